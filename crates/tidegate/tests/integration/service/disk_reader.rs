//! A cgroup that reads a disk of its own, for tests of the agent on a real kernel.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_testing::{Lack, LoopDevice, has_free_cgroups, has_namespaces, lacks, limits_alone, until};

/// A cgroup that reads a disk without a pause.
pub(crate) struct DiskReader {
    pub(crate) cgroup: PathBuf,
    pub(crate) device: LoopDevice,
    process: Child,
    _disk: tempfile::NamedTempFile,
    /// A lock: `tidegate release` of other tests undoes the limits of the whole machine.
    _alone: fs::File,
}

impl DiskReader {
    /// Returns true if the kernel limits how many reads per second it may send.
    pub(crate) fn is_limited(&self) -> bool {
        let file = |name| fs::read_to_string(self.cgroup.join(name)).unwrap_or_default();
        // Cgroups v2 write each limit that there is none of as `max`.
        let of_v2 = file("io.max");
        let is_number = |limit: &str| limit.strip_prefix("riops=").is_some_and(|limit| limit != "max");
        !file("blkio.throttle.read_iops_device").is_empty() || of_v2.split_whitespace().any(is_number)
    }

    /// The same, where an [`OwnAgent`] can be had as well.
    pub(crate) fn start_for_own_agent(test: &str) -> Option<Self> {
        if has_namespaces(&["--net", "--mount"]) { Self::start(test) } else { None }
    }

    /// Says that the test is skipped, and returns `None`, if this machine does not have what this takes.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let alone = limits_alone();
        let root = hierarchy()?;
        let disk = tempfile::NamedTempFile::new().unwrap();
        fs::write(disk.path(), vec![7; 16 << 20]).unwrap();
        let device = LoopDevice::over(disk.path())?;
        let cgroup = root.join(format!("tidegate-{test}-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&cgroup) {
            return lacks(Lack::CgroupIo, format_args!("{}: {error}", cgroup.display()));
        }
        // Cgroups v1 count only what has a limit: one that nothing reaches.
        let limit = cgroup.join("blkio.throttle.read_bps_device");
        if limit.exists() {
            fs::write(limit, format!("{} 1000000000000", device.number())).unwrap();
        }
        let process = read_without_pause(&cgroup, device.path());
        Some(Self { cgroup, device, process, _disk: disk, _alone: alone })
    }
}

/// Returns the root of the cgroups with I/O. Says that the test is skipped, and returns `None`, if there are
/// none, or if another agent has them. To be called with the lock of [`limits_alone`].
pub(crate) fn hierarchy() -> Option<&'static Path> {
    let roots = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"].map(Path::new);
    let root = roots.into_iter().find(|root| {
        let gives_io = fs::read_to_string(root.join("cgroup.subtree_control"));
        gives_io.is_ok_and(|text| text.contains("io")) || root.ends_with("blkio") && root.exists()
    });
    match root {
        Some(root) => has_free_cgroups(root).then_some(root),
        None => lacks(Lack::CgroupIo, "neither blkio of cgroup v1 nor io of v2"),
    }
}

/// Starts a process of a cgroup that reads a device without a pause. It ends when it is killed, with its
/// group, or after the test that started it, however that ended.
pub(crate) fn read_without_pause(cgroup: &Path, device: &Path) -> Child {
    let script = "echo $$ > \"$0\"
        while kill -0 \"$2\" 2>/dev/null; do dd if=\"$1\" of=/dev/null bs=64k iflag=direct; done";
    let reader = Command::new("sh")
        .args(["-c", script])
        .arg(cgroup.join("cgroup.procs"))
        .arg(device)
        .arg(std::process::id().to_string())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    reader.unwrap()
}

/// An agent of a network and a mount namespace of its own, which is the only one there.
pub(crate) struct OwnAgent {
    process: Child,
    log: PathBuf,
}

impl OwnAgent {
    /// Starts it with a configuration in this folder.
    pub(crate) fn start(folder: &Path, configuration: &str) -> Self {
        let (config, log) = (folder.join("agent.toml"), folder.join("agent.log"));
        fs::write(&config, configuration).unwrap();
        let process = Command::new("unshare")
            .args(["--net", "--mount", env!("CARGO_BIN_EXE_tidegate"), "agent", "-c"])
            .arg(&config)
            .env(super::RUN_DIRECTORY, folder)
            .stdin(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn();
        Self { process: process.unwrap(), log }
    }

    pub(crate) fn expect_alive(&mut self) {
        let ended = self.process.try_wait().unwrap();
        assert!(ended.is_none(), "{}", fs::read_to_string(&self.log).unwrap());
    }

    /// Lets the agent and its guardian write to the mount that has a folder, or not.
    pub(crate) fn let_write(&self, folder: &Path, may_write: bool) {
        let id = self.process.id().to_string();
        let options = if may_write { "remount,bind,rw" } else { "remount,bind,ro" };
        let script = "mount -o \"$0\" \"$(findmnt --noheadings --output TARGET --target \"$1\")\"";
        let done = Command::new("nsenter")
            .args(["--target", &id, "--mount", "sh", "-ec", script, options])
            .arg(folder)
            .status();
        assert!(done.unwrap().success());
    }

    pub(crate) fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Kills it, and its guardian first, and waits until its sockets are closed.
    pub(crate) fn kill_with_guardian(&mut self) {
        let id = self.process.id().to_string();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let all = children.split_whitespace().chain([id.as_str()]);
        assert!(Command::new("kill").arg("-KILL").args(all).status().unwrap().success());
        self.process.wait().unwrap();
    }

    pub(crate) fn terminate(&mut self) {
        self.signal("-TERM");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for OwnAgent {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for DiskReader {
    fn drop(&mut self) {
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.process.wait();
        until("the end of the cgroup's processes", || fs::remove_dir(&self.cgroup).ok());
    }
}
