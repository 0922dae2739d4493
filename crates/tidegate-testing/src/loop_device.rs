//! A file as a block device.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io, thread};

use crate::{Lack, lacks};

/// A loop device over a file, which goes when it is dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Makes a loop device. Says that the test is skipped, and returns `None`, if this machine makes none.
    #[must_use]
    pub fn over(file: &Path) -> Option<Self> {
        Self::with_options(file, &[])
    }

    /// Makes a loop device with more options of `losetup`.
    #[must_use]
    pub fn with_options(file: &Path, options: &[&str]) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        match made {
            Ok(made) if made.status.success() => {
                let path = String::from_utf8(made.stdout).expect("the name of a device is text");
                Some(Self { path: PathBuf::from(path.trim_end()) })
            }
            Ok(made) => lacks(Lack::LoopDevice, String::from_utf8_lossy(&made.stderr).trim_end()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => lacks(Lack::Program("losetup"), error),
            Err(error) => panic!("losetup: {error}"),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the device below `/dev`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).expect("a device has a name")
    }

    /// Returns the device's number as the kernel writes it, such as `7:0`.
    #[must_use]
    pub fn number(&self) -> String {
        let file = format!("/sys/block/{}/dev", self.name());
        fs::read_to_string(file).expect("the kernel knows the device").trim_end().to_owned()
    }

    /// Detaches the device with `losetup`; returns true if that worked.
    fn detach(&self) -> bool {
        let detached = Command::new("losetup").arg("--detach").arg(&self.path).status();
        detached.is_ok_and(|status| status.success())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Otherwise the test has failed already, and says why.
        if !self.detach() && !thread::panicking() {
            panic!("{} cannot be detached", self.path.display());
        }
    }
}
