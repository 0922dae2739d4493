//! Storage that behaves as a test wants it: loop devices over file systems in memory.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory with one file, and a loop device over the file; all of it goes when it is dropped.
pub(crate) struct LoopDevice {
    pub(crate) device: PathBuf,
    mounted: tempfile::TempDir,
}

impl LoopDevice {
    /// A device of `size` bytes in a file system of this type with these options. `None`, with a message,
    /// where this takes rights or programs that are not here.
    pub(crate) fn on(kind: &str, options: &str, size: u64) -> Option<Self> {
        let mounted = tempfile::tempdir().unwrap();
        let folder = mounted.path().to_str().unwrap();
        if run("mount", &["-t", kind, "-o", options, "none", folder]).is_none() {
            eprintln!("skipped: cannot mount a {kind} (this takes root)");
            return None;
        }
        let file = mounted.path().join("disk");
        std::fs::File::create(&file).unwrap().set_len(size).unwrap();
        let Some(device) = run("losetup", &["--find", "--show", file.to_str().unwrap()]) else {
            run("umount", &["-l", folder]);
            eprintln!("skipped: there is no loop device");
            return None;
        };
        Some(Self { device: PathBuf::from(device.trim()), mounted })
    }

    /// Has the kernel write back what it holds of the device, and forget it.
    pub(crate) fn write_back(&self) {
        run("blockdev", &["--flushbufs", self.device.to_str().unwrap()]);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", &["-d", self.device.to_str().unwrap()]);
        run("umount", &["-l", self.mounted.path().to_str().unwrap()]);
    }
}

/// What a program says on its standard output; `None` when it is not here or fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is here.
pub(crate) fn is_here(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| Path::new(&folder).join(program).exists())
}
