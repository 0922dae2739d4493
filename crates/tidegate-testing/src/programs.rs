//! Programs that a test needs.

use crate::{Lack, skip};

/// Returns true if these programs are installed. Otherwise says that the test is skipped.
#[must_use]
pub fn has_programs(programs: &[&'static str]) -> bool {
    let missing = programs.iter().find(|program| !is_installed(program));
    if let Some(missing) = missing {
        skip(Lack::Program(missing), "a program that is not installed");
    }
    missing.is_none()
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}
