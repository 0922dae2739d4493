//! Storage that behaves as a test wants it: loop devices over file systems in memory.

use std::path::Path;
use std::process::Command;

use tidegate_testing::{Lack, LoopDevice, lacks};

/// A loop device over a file in a file system in memory; all of it goes when it is dropped.
pub(crate) struct MemoryDevice {
    device: LoopDevice,
    _mount: MemoryMount,
}

impl MemoryDevice {
    /// Makes a device of `size` bytes in a file system of this type with these options. Says that the test is
    /// skipped, and returns `None`, where this takes rights that are not here.
    pub(crate) fn on(kind: &str, options: &str, size: u64) -> Option<Self> {
        let mount = MemoryMount::new(kind, options)?;
        let file = mount.0.path().join("disk");
        std::fs::File::create(&file).unwrap().set_len(size).unwrap();
        Some(Self { device: LoopDevice::over(&file)?, _mount: mount })
    }

    pub(crate) fn path(&self) -> &Path {
        self.device.path()
    }

    /// Has the kernel write back what it holds of the device, and forget it.
    pub(crate) fn write_back(&self) {
        run("blockdev", &["--flushbufs", self.path().to_str().unwrap()]);
    }
}

/// A mounted file system.
struct MemoryMount(tempfile::TempDir);

impl MemoryMount {
    fn new(kind: &str, options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = run("mount", &["-t", kind, "-o", options, "none", folder.path().to_str().unwrap()]);
        if mounted.is_none() { lacks(Lack::Mount, kind) } else { Some(Self(folder)) }
    }
}

impl Drop for MemoryMount {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.path().to_str().unwrap()]);
    }
}

/// What a program says on its standard output; `None` when it is not here or fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
