//! Namespaces of programs that a test starts.

use std::io;
use std::process::Command;

use crate::{Lack, skip};

/// Returns true if `unshare` makes the namespaces of these options. Otherwise says that the test is skipped.
///
/// # Panics
///
/// Panics if `unshare` cannot be started although it is installed.
#[must_use]
pub fn has_namespaces(options: &[&str]) -> bool {
    match Command::new("unshare").args(options).arg("true").output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            skip(Lack::Namespaces, String::from_utf8_lossy(&output.stderr).trim_end());
            false
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(Lack::Program("unshare"), error);
            false
        }
        Err(error) => panic!("unshare: {error}"),
    }
}
