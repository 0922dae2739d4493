//! A cgroup that reads a disk of its own, for tests of the agent on a real kernel.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{limits_alone, until};

/// A cgroup that reads a disk without a pause; `None` where this machine does not have what that takes.
pub(crate) struct DiskReader {
    pub(crate) cgroup: PathBuf,
    pub(crate) device: String,
    process: Child,
    _disk: tempfile::NamedTempFile,
    /// A lock: `tidegate release` of other tests undoes the limits of the whole machine.
    _alone: fs::File,
}

impl DiskReader {
    pub(crate) fn start(test: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"].map(Path::new);
        let root = roots.into_iter().find(|root| {
            let gives_io = fs::read_to_string(root.join("cgroup.subtree_control"));
            gives_io.is_ok_and(|text| text.contains("io")) || root.ends_with("blkio") && root.exists()
        })?;
        let disk = tempfile::NamedTempFile::new().unwrap();
        fs::write(disk.path(), vec![7; 16 << 20]).unwrap();
        let cgroup = root.join(format!("tidegate-{test}-{}", std::process::id()));
        fs::create_dir(&cgroup).ok()?;
        let made = Command::new("losetup").args(["--find", "--show"]).arg(disk.path()).output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            fs::remove_dir(&cgroup).unwrap();
            return None;
        };
        let device = String::from_utf8(made.stdout).unwrap().trim_end().to_owned();
        let alone = limits_alone();
        // Cgroups v1 count only what has a limit: one that nothing reaches.
        let limit = cgroup.join("blkio.throttle.read_bps_device");
        if limit.exists() {
            let number = fs::read_to_string(device.replace("/dev/", "/sys/block/") + "/dev").unwrap();
            fs::write(limit, format!("{} 1000000000000", number.trim_end())).unwrap();
        }
        let script = "echo $$ > \"$0\"; while :; do dd if=\"$1\" of=/dev/null bs=64k iflag=direct; done";
        let process = Command::new("sh")
            .args(["-c", script])
            .arg(cgroup.join("cgroup.procs"))
            .arg(&device)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        Some(Self { cgroup, device, process, _disk: disk, _alone: alone })
    }
}

impl Drop for DiskReader {
    fn drop(&mut self) {
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.process.wait();
        until("the end of the cgroup's processes", || fs::remove_dir(&self.cgroup).ok());
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}
