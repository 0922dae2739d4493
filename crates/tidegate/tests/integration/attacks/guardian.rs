//! An agent that hangs, that cannot act any more, or that is killed together with its guardian: in none of
//! these cases a consumer stays limited. With limits of a cgroup on a loop device, as root.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tempfile::{NamedTempFile, TempDir};

use crate::service::disk_reader::{self, read_without_pause};
use tidegate_testing::{Lack, LoopDevice, has_namespaces, in_own_network, lacks, limits_alone, skip, until};

use super::strangers::as_nobody;

/// Every consumer is released within ten seconds; this is a busy machine's.
const RELEASED_WITHIN: Duration = Duration::from_secs(40);

/// A cgroup, a disk that it reads without a pause, and files that say how it is limited.
struct Machine {
    cgroup: PathBuf,
    device: LoopDevice,
    number: String,
    reader: Option<Child>,
    folder: TempDir,
    /// The command that runs agents and releases.
    isolation: &'static [&'static str],
    _disk: NamedTempFile,
    /// A lock: guardians and `tidegate release` undo the limits of the whole machine.
    _alone: File,
}

impl Machine {
    /// Says that the test is skipped, and returns `None`, if this machine does not have what this takes.
    fn new(test: &str) -> Option<Self> {
        let alone = limits_alone();
        let root = disk_reader::hierarchy()?;
        if !has_namespaces(&["--net"]) {
            return None;
        }
        let disk = NamedTempFile::new().unwrap();
        disk.as_file().set_len(64 << 20).unwrap();
        disk.as_file().write_all_at(&vec![7; 64 << 20], 0).unwrap();
        let device = LoopDevice::over(disk.path())?;
        let cgroup = root.join(format!("tidegate-attack-{test}-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&cgroup) {
            return lacks(Lack::CgroupIo, format_args!("{}: {error}", cgroup.display()));
        }
        let folder = tempfile::tempdir().unwrap();
        let mut machine = Self {
            cgroup,
            number: device.number(),
            device,
            reader: None,
            folder,
            isolation: &["unshare", "--net"],
            _disk: disk,
            _alone: alone,
        };
        machine.read_for_ever();
        Some(machine)
    }

    fn read_for_ever(&mut self) {
        self.reader = Some(read_without_pause(&self.cgroup, self.device.path()));
    }

    fn is_limited(&self) -> bool {
        self.is_limited_at(&self.cgroup)
    }

    fn is_limited_at(&self, cgroup: &Path) -> bool {
        let names = ["read_bps", "write_bps", "read_iops", "write_iops"];
        let files = names.map(|name| format!("blkio.throttle.{name}_device"));
        let files = files.into_iter().chain(["io.max".to_owned()]);
        files.filter_map(|file| fs::read_to_string(cgroup.join(file)).ok()).any(|text| {
            text.lines().any(|line| line.split_once(' ').is_some_and(|(number, _)| number == self.number))
        })
    }

    fn await_release(&self, of: &str) {
        let end = Instant::now() + RELEASED_WITHIN;
        while self.is_limited() {
            assert!(Instant::now() < end, "{of}: still limited; {}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// An agent that has limited the cgroup just now. In a network namespace of its own it is the only one
    /// there.
    fn agent(&self) -> Agent {
        let cgroup = self.cgroup.file_name().unwrap().to_str().unwrap();
        self.agent_of(cgroup)
    }

    /// The same with a pattern that means the cgroup.
    fn agent_of(&self, cgroup: &str) -> Agent {
        let config = self.folder.path().join("agent.toml");
        let device = self.device.name();
        let text = format!(
            "throttle = 'cgroup'\n[resource.disk]\ndevice = '{device}'\nlaw = 'pid'\ntarget = '20us'\n\
             cgroups = ['{cgroup}']\n"
        );
        fs::write(&config, text).unwrap();
        let log = OpenOptions::new().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let process = until("an agent that may limit on this machine", || {
            let mut agent = self
                .tidegate(&["agent", "-c"])
                .arg(&config)
                .stderr(log.try_clone().unwrap())
                .spawn()
                .unwrap();
            let limits = until("a limit", || {
                let ended = agent.try_wait().unwrap().is_some();
                (ended || self.is_limited()).then_some(!ended)
            });
            // Another agent of this machine, which has limits, is waited for.
            assert!(limits || self.log().contains("another agent of this machine"), "{}", self.log());
            limits.then_some(agent)
        });
        Agent { process }
    }

    fn release(&self, options: &[&str]) {
        // Limits of cgroups are the machine's; in this network namespace another agent may live.
        let done = self.tidegate(&["release"]).args(options).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn tidegate(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.isolation[0]);
        command.args(&self.isolation[1..]).arg(env!("CARGO_BIN_EXE_tidegate")).args(arguments);
        command
    }

    /// Limits that outlive the agent and its guardian.
    fn outlive_agent(&self) {
        until("limits that outlive the agent and its guardian", || {
            let mut agent = self.agent();
            let guardian = agent.guardian();
            signal("-STOP", &guardian);
            agent.process.kill().unwrap();
            agent.process.wait().unwrap();
            signal("-KILL", &guardian);
            self.is_limited().then_some(())
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut reader) = self.reader.take() {
            signal("-KILL", &format!("-{}", reader.id()));
            reader.wait().unwrap();
        }
        // Whatever the test found, nothing stays.
        for file in ["read_bps", "write_bps", "read_iops", "write_iops"] {
            let path = self.cgroup.join(format!("blkio.throttle.{file}_device"));
            let _ =
                OpenOptions::new().write(true).open(path).map(|mut file| writeln!(file, "{} 0", self.number));
        }
        until("the end of the cgroup's processes", || fs::remove_dir(&self.cgroup).ok());
    }
}

struct Agent {
    process: Child,
}

impl Agent {
    fn signal(&self, name: &str) {
        signal(name, &self.process.id().to_string());
    }

    fn guardian(&self) -> String {
        until("a guardian", || self.children()?.split_whitespace().next().map(str::to_owned))
    }

    fn children(&self) -> Option<String> {
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.process.id())).ok()
    }

    /// How many descriptors it may have from now on.
    fn descriptors(&self, most: u32) {
        let limit = format!("--nofile={most}:");
        let done = Command::new("prlimit").args(["--pid", &self.process.id().to_string(), &limit]).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let guardians = self.children().unwrap_or_default();
        // Already ended, in some tests.
        let _ = self.process.kill();
        let _ = self.process.wait();
        // A guardian that outlived the test would undo the limits of the next one.
        for guardian in guardians.split_whitespace() {
            let command = format!("/proc/{guardian}/cmdline");
            until("the end of the guardian", || {
                fs::read(&command).unwrap_or_default().is_empty().then_some(())
            });
        }
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, "--", process]).status().unwrap().success());
}

#[test]
fn an_agent_that_hangs_right_after_its_first_limit_leaves_none() {
    let Some(machine) = Machine::new("hangs") else { return };
    let agent = machine.agent();
    agent.signal("-STOP");
    machine.await_release("the agent was stopped");
    // It comes back, and goes on.
    agent.signal("-CONT");
    until("a limit again", || machine.is_limited().then_some(()));
    // A guardian that hangs would be none: it is replaced.
    let guardian = agent.guardian();
    signal("-STOP", &guardian);
    until("another guardian", || (agent.guardian() != guardian).then_some(()));
    agent.signal("-KILL");
    machine.await_release("the agent was killed");
}

#[test]
fn an_agent_without_descriptors_leaves_no_consumer_limited_and_comes_back() {
    let Some(machine) = Machine::new("blind") else { return };
    let agent = machine.agent();
    agent.descriptors(3);
    machine.await_release("the agent has no descriptors");
    // The guardian releases before it says so.
    until("its word", || machine.log().contains("no sign of life from the agent").then_some(()));
    // By then it has given its throttle up, and begins with a fresh one.
    until("the end of its patience", || machine.log().contains("no consumer is throttled").then_some(()));
    agent.descriptors(1024);
    until("a limit again", || machine.is_limited().then_some(()));
    until("word of it", || machine.log().contains("limits can be changed again").then_some(()));
    agent.signal("-TERM");
    machine.await_release("the agent ended");
}

#[test]
fn an_agent_whose_counters_stand_still_leaves_no_consumer_limited() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut version = release.split('.').map_while(|part| part.parse::<u32>().ok());
    if version.next().zip(version.next()) < Some((6, 8)) {
        skip(Lack::Kernel("Linux 6.8"), release);
        return;
    }
    let Some(mut machine) = Machine::new("frozen").filter(|_| has_namespaces(&["--net", "--mount"])) else {
        return;
    };
    machine.isolation = &["unshare", "--net", "--mount"];
    let agent = machine.agent();
    let frozen = machine.folder.path().join("diskstats");
    let now = fs::read_to_string("/proc/diskstats").unwrap();
    let with_request = |line: &str| {
        let mut fields: Vec<_> = line.split_ascii_whitespace().collect();
        // The number of requests under way.
        fields[11] = "1";
        fields.join(" ") + "\n"
    };
    fs::write(&frozen, now.lines().map(with_request).collect::<String>()).unwrap();
    let target = agent.process.id().to_string();
    let mounted = Command::new("nsenter")
        .args(["--mount", "--target", &target, "mount", "--bind"])
        .args([frozen.as_path(), Path::new("/proc/diskstats")])
        .status();
    assert!(mounted.unwrap().success());
    until("its word", || machine.log().contains("nothing in it changes").then_some(()));
    machine.await_release("its counters stand still");
}

#[test]
fn what_outlives_the_agent_and_its_guardian_is_released_and_what_is_alive_is_left_alone() {
    let Some(machine) = Machine::new("orphaned") else { return };
    // The law may release for a moment by itself, or another agent of the machine by its start: then it is
    // tried again.
    until("a living agent whose limits stay", || {
        let _agent = machine.agent();
        machine.release(&["--orphaned"]);
        machine.is_limited().then_some(())
    });
    machine.await_release("the agent was killed");
    machine.outlive_agent();
    // As the service's `ExecStopPost=` and its timer do.
    machine.release(&["--orphaned"]);
    assert!(!machine.is_limited());
}

#[test]
fn another_user_stops_neither_an_agent_nor_the_release_of_what_it_left() {
    in_own_network(|| {
        let Some(mut machine) = Machine::new("stranger") else { return };
        machine.isolation = &["env"];
        let root = machine.cgroup.parent().unwrap().to_owned();
        let _stranger = as_nobody(move || {
            let folder = File::open(root).unwrap();
            folder.lock().unwrap();
            let name = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
            let sockets = UnixDatagram::bind_addr(&name("tidegate-agent")).unwrap();
            let others = UnixListener::bind_addr(&name("tidegate-agent.0123456789abcdef")).unwrap();
            (folder, sockets, others)
        });
        {
            let _agent = machine.agent();
            // An agent of root's keeps its place all the same.
            let config = machine.folder.path().join("agent.toml");
            as_nobody(fill_queue);
            let orphaned = machine.tidegate(&["release", "--orphaned"]).output().unwrap();
            let said = String::from_utf8(orphaned.stderr).unwrap();
            assert!(said.contains("an agent, or its guardian, lives: process "), "{said}");
            let second = machine.tidegate(&["agent", "-c"]).arg(&config).output().unwrap();
            let said = String::from_utf8(second.stderr).unwrap();
            assert!(
                said.contains("an agent throttles in this network namespace already (process "),
                "{said}"
            );
            assert!(said.contains("is not an agent's, but user 65534's"), "{said}");
        }
        machine.await_release("the agent was killed");
        machine.outlive_agent();
        machine.release(&["--orphaned"]);
        assert!(!machine.is_limited());
    });
}

/// Connects to the socket of an agent until no more connections may wait there.
fn fill_queue() {
    let address = SocketAddrUnix::new_abstract_name(b"tidegate-agent").unwrap();
    loop {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_agent_of_an_earlier_version_keeps_its_limits_while_it_lives() {
    in_own_network(|| {
        let Some(mut machine) = Machine::new("earlier") else { return };
        machine.isolation = &["env"];
        machine.outlive_agent();
        // It takes datagrams, and has no claim of the cgroups.
        let name = SocketAddr::from_abstract_name("tidegate-agent").unwrap();
        let earlier = UnixDatagram::bind_addr(&name).unwrap();
        machine.release(&["--orphaned"]);
        assert!(machine.is_limited());
        drop(earlier);
        machine.release(&["--orphaned"]);
        assert!(!machine.is_limited());
    });
}

#[test]
fn cgroups_deeper_than_a_path_can_name_keep_no_agent_from_its_start_and_no_limit_in_force() {
    let Some(machine) = Machine::new("deep") else { return };
    let name = "deep".repeat(50);
    let root = machine.cgroup.join("delegated");
    fs::create_dir(&root).unwrap();
    chown(&root, Some(65_534), None).unwrap();
    let (own, path) = (name.clone(), root.clone());
    as_nobody(move || {
        let mut directory = File::open(path).unwrap();
        for _ in 0..22 {
            mkdirat(&directory, &own, Mode::RWXU).unwrap();
            directory = openat(&directory, &own, OFlags::DIRECTORY, Mode::empty()).unwrap().into();
        }
    });
    let _removed = DeepFolder { root, name };
    let agent = machine.agent();
    agent.signal("-TERM");
    machine.await_release("the agent ended");
    drop(agent);
    machine.outlive_agent();
    machine.release(&["--orphaned"]);
    assert!(!machine.is_limited());
}

/// Folders in each other, all of one name, which are removed when this is dropped.
struct DeepFolder {
    root: PathBuf,
    name: String,
}

impl Drop for DeepFolder {
    fn drop(&mut self) {
        let mut directories: Vec<OwnedFd> = vec![File::open(&self.root).unwrap().into()];
        while let Ok(inner) =
            openat(directories.last().unwrap(), &self.name, OFlags::DIRECTORY, Mode::empty())
        {
            directories.push(inner);
        }
        for directory in directories.iter().rev().skip(1) {
            unlinkat(directory, &self.name, AtFlags::REMOVEDIR).unwrap();
        }
        fs::remove_dir(&self.root).unwrap();
    }
}

#[test]
fn a_cgroup_that_is_renamed_while_it_is_limited_is_released() {
    let Some(machine) = Machine::new("renamed") else { return };
    let away = machine.cgroup.with_extension("away");
    let agent = machine.agent();
    if let Err(error) = fs::rename(&machine.cgroup, &away) {
        skip(Lack::Kernel("cgroups v1"), error);
        return;
    }
    until("the release of the renamed cgroup", || (!machine.is_limited_at(&away)).then_some(()));
    fs::rename(&away, &machine.cgroup).unwrap();
    until("a limit again", || machine.is_limited().then_some(()));
    // Another one in its place has no limits of the first one, and the first one does not keep them.
    fs::rename(&machine.cgroup, &away).unwrap();
    fs::create_dir(&machine.cgroup).unwrap();
    until("the release of the one before", || (!machine.is_limited_at(&away)).then_some(()));
    agent.signal("-TERM");
    machine.await_release("the agent ended");
    fs::remove_dir(&machine.cgroup).unwrap();
    fs::rename(&away, &machine.cgroup).unwrap();
}

#[test]
fn a_cgroup_whose_name_has_control_characters_is_limited_like_any_other() {
    let Some(machine) = Machine::new("\u{1b}]0;title\u{7}\u{202e}") else { return };
    let agent = machine.agent_of("tidegate-attack-*");
    assert!(machine.is_limited());
    agent.signal("-TERM");
    machine.await_release("the agent ended");
    let log = machine.log();
    assert!(!log.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{log:?}");
}
