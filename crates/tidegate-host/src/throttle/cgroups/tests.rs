//! On the kernel that runs here, and on what looks like one. The first take root, and a loop device.

use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use tempfile::{NamedTempFile, TempDir};
use tidegate_testing::{Lack, LoopDevice, has_free_cgroups, lacks, limits_alone, skip, until, until_true};
use tidegate_units::{Iops, Latency, ResourceName};

use super::*;
use crate::trees::unpack;

/// A loop device over a file, and two cgroups of others.
struct Machine {
    tree: CgroupTree,
    device: DeviceNumber,
    disk: LoopDevice,
    names: [ConsumerName; 2],
    _file: NamedTempFile,
    /// Locks: `undo` affects the whole machine, so tests run one after the other, in whichever process. The
    /// first is of all tests that set limits, the second is the agent's own.
    _alone: (File, CgroupClaim),
}

impl Machine {
    /// Says that the test is skipped, and returns `None`, if the kernel here does not let us.
    fn new(test: &str) -> Option<Self> {
        let tree = match CgroupTree::find(&SystemRoot::default()) {
            Err(error) => return lacks(Lack::CgroupIo, error),
            Ok(tree) => tree,
        };
        // Trying is done alone, too: two that try at once remove each other's cgroup.
        let alone = limits_alone();
        if !has_free_cgroups(tree.path()) {
            return None;
        }
        let claim = until("the end of other agents", || tree.claim().ok());
        if let Err(error) = tree.try_out(|trial| mark::try_out(&tree, trial)) {
            return lacks(Lack::CgroupIo, error);
        }
        if !tree.offers_io().unwrap() {
            return lacks(Lack::CgroupIo, "the root's children have no controller io");
        }
        let file = NamedTempFile::new().unwrap();
        // It has holes only, and no reader comes to its end.
        file.as_file().set_len(16 << 30).unwrap();
        let disk = LoopDevice::over(file.path())?;
        let names = ["a", "b"].map(|name| {
            let name = format!("tidegate-test-{test}-{}-{name}", std::process::id());
            fs::create_dir(tree.path().join(&name)).unwrap();
            ConsumerName::new(&name).unwrap()
        });
        Some(Self {
            tree,
            device: disk.number().parse().unwrap(),
            disk,
            names,
            _file: file,
            _alone: (alone, claim),
        })
    }

    fn key(&self, cgroup: usize) -> CgroupDevice {
        (self.names[cgroup].clone(), self.device)
    }

    fn directory(&self, cgroup: usize) -> PathBuf {
        self.tree.path().join(self.names[cgroup].as_str())
    }

    /// Returns the limit in force, as the kernel reports it.
    fn limit(&self, cgroup: usize) -> IoLimit {
        let limits = self.tree.limits(&self.directory(cgroup)).unwrap().unwrap();
        limits.get(&self.device).copied().unwrap_or_default()
    }

    fn is_marked(&self, cgroup: usize) -> bool {
        mark::read(&self.tree, &self.directory(cgroup)).unwrap().is_some()
    }

    /// One that is not the only one: several tests run at once.
    fn throttle(&self) -> Cgroups {
        Cgroups::of(SystemRoot::default(), CgroupTree::find(&SystemRoot::default()).unwrap())
    }

    /// A program that reads 4 KiB after 4 KiB in a cgroup, so many times.
    fn reads(&self, cgroup: usize, times: u32) -> Child {
        Command::new("sh")
            .args([
                "-c",
                "echo $$ > \"$0\" && exec dd if=\"$1\" of=/dev/null bs=4k iflag=direct count=\"$2\"",
            ])
            .arg(self.directory(cgroup).join("cgroup.procs"))
            .arg(self.disk.path())
            .arg(times.to_string())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for cgroup in 0..2 {
            fs::remove_dir(self.directory(cgroup)).unwrap();
        }
    }
}

/// A program that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rate(per_second: f64) -> IoLimit {
    IoLimit::NONE.reads(Iops::new(per_second)).writes(Iops::new(per_second))
}

fn hold(limits: impl IntoIterator<Item = (CgroupDevice, IoLimit)>) -> [ThrottleRequest; 1] {
    [ThrottleRequest {
        resource: ResourceName::new("disk").unwrap(),
        members: [].into(),
        delay: Latency::ZERO,
        own_delays: [].into(),
        limits: [].into(),
        cgroups: limits.into_iter().collect(),
    }]
}

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn limits_are_set_changed_and_taken_back() {
    let Some(machine) = Machine::new("change") else { return };
    let mut throttle = machine.throttle();
    throttle.apply(at(1), &hold([(machine.key(0), rate(1_000.0)), (machine.key(1), IoLimit::NONE)])).unwrap();
    assert_eq!((machine.limit(0), machine.limit(1)), (rate(1_000.0), IoLimit::NONE));
    assert!(machine.is_marked(0) && !machine.is_marked(1));
    // By so little it is not changed.
    throttle.apply(at(1), &hold([(machine.key(0), rate(1_010.0)), (machine.key(1), rate(10.0))])).unwrap();
    assert_eq!((machine.limit(0), machine.limit(1)), (rate(1_000.0), rate(10.0)));
    throttle.apply(at(1), &hold([(machine.key(0), rate(50.0))])).unwrap();
    assert_eq!((machine.limit(0), machine.limit(1)), (rate(50.0), IoLimit::NONE));
    throttle.apply(at(1), &[]).unwrap();
    assert_eq!((machine.limit(0), machine.is_marked(0)), (IoLimit::NONE, false));
}

#[test]
fn somebody_elses_limit_is_never_loosened_and_comes_back() {
    let Some(machine) = Machine::new("others") else { return };
    let others = IoLimit::NONE.reads(Iops::new(60.0)).write_bytes(tidegate_units::ByteRate::new(1e6));
    assert!(machine.tree.limit(&machine.directory(0), machine.device, others).unwrap());
    let mut throttle = machine.throttle();
    throttle.apply(at(1), &hold([(machine.key(0), rate(100.0))])).unwrap();
    assert_eq!(machine.limit(0), others.writes(Iops::new(100.0)));
    throttle.apply(at(1), &hold([(machine.key(0), rate(20.0))])).unwrap();
    assert_eq!(machine.limit(0), others.min(rate(20.0)));
    // They want something else meanwhile: seen at the next look, and what comes back.
    let newer = IoLimit::NONE.reads(Iops::new(10.0));
    machine.tree.limit(&machine.directory(0), machine.device, newer).unwrap();
    throttle.apply(at(3), &hold([(machine.key(0), rate(20.0))])).unwrap();
    assert_eq!(machine.limit(0), newer.writes(Iops::new(20.0)));
    throttle.apply(at(3), &[]).unwrap();
    assert_eq!((machine.limit(0), machine.is_marked(0)), (newer, false));
}

#[test]
fn a_limit_that_somebody_sets_between_two_of_ours_is_not_written_over() {
    let Some(machine) = Machine::new("between") else { return };
    let mut throttle = machine.throttle();
    throttle.apply(at(1), &hold([(machine.key(0), rate(100.0))])).unwrap();
    let others = IoLimit::NONE.reads(Iops::new(30.0));
    machine.tree.limit(&machine.directory(0), machine.device, others).unwrap();
    // No look is due.
    throttle.apply(at(1), &hold([(machine.key(0), rate(80.0))])).unwrap();
    assert_eq!(machine.limit(0), others.writes(Iops::new(80.0)));
    drop(throttle);
    undo(&SystemRoot::default()).unwrap();
    assert_eq!(machine.limit(0), others);
}

#[test]
fn what_a_dead_agent_held_is_undone_and_what_somebody_set_since_is_not() {
    let Some(machine) = Machine::new("undo") else { return };
    let others = IoLimit::NONE.reads(Iops::new(60.0));
    machine.tree.limit(&machine.directory(0), machine.device, others).unwrap();
    let mut throttle = machine.throttle();
    let wanted = hold([(machine.key(0), rate(20.0)), (machine.key(1), rate(20.0))]);
    throttle.apply(at(1), &wanted).unwrap();
    drop(throttle);
    let newer = IoLimit::NONE.writes(Iops::new(5.0));
    machine.tree.limit(&machine.directory(1), machine.device, newer).unwrap();
    assert!(undo(&SystemRoot::default()).unwrap() >= 2);
    assert_eq!((machine.limit(0), machine.limit(1)), (others, newer));
    assert!(!machine.is_marked(0) && !machine.is_marked(1));
}

#[test]
fn what_was_undone_beside_a_living_agent_is_held_again() {
    let Some(machine) = Machine::new("again") else { return };
    let mut throttle = machine.throttle();
    let wanted = hold([(machine.key(0), rate(20.0))]);
    throttle.apply(at(1), &wanted).unwrap();
    undo(&SystemRoot::default()).unwrap();
    assert_eq!(machine.limit(0), IoLimit::NONE);
    throttle.apply(at(3), &wanted).unwrap();
    assert_eq!((machine.limit(0), machine.is_marked(0)), (rate(20.0), true));
    throttle.apply(at(3), &[]).unwrap();
    assert_eq!(machine.limit(0), IoLimit::NONE);
}

#[test]
fn a_cgroup_that_is_gone_is_no_trouble() {
    let Some(machine) = Machine::new("gone") else { return };
    let mut throttle = machine.throttle();
    let wanted = hold([(machine.key(0), rate(20.0)), (machine.key(1), rate(20.0))]);
    throttle.apply(at(1), &wanted).unwrap();
    fs::remove_dir(machine.directory(0)).unwrap();
    throttle.apply(at(3), &wanted).unwrap();
    assert_eq!(machine.limit(1), rate(20.0));
    // The same name, and another cgroup.
    fs::create_dir(machine.directory(0)).unwrap();
    throttle.apply(at(5), &wanted).unwrap();
    assert_eq!((machine.limit(0), machine.is_marked(0)), (rate(20.0), true));
    throttle.apply(at(5), &[]).unwrap();
    assert_eq!((machine.limit(0), machine.limit(1)), (IoLimit::NONE, IoLimit::NONE));
}

#[test]
fn what_is_limited_waits_and_is_counted() {
    let Some(machine) = Machine::new("waits") else { return };
    let mut throttle = machine.throttle();
    throttle.apply(at(1), &hold([(machine.key(0), IoLimit::NONE), (machine.key(1), IoLimit::NONE)])).unwrap();
    let counted = |cgroup: usize| {
        let counters = machine.tree.counters(machine.names[cgroup].as_str()).unwrap().unwrap_or_default();
        counters.get(&machine.device).copied().unwrap_or_default().reads
    };
    let read = |times| {
        let begin = std::time::Instant::now();
        assert!(machine.reads(0, times).wait().unwrap().success());
        begin.elapsed()
    };
    read(30);
    assert_eq!((counted(0), counted(1)), (30, 0), "by each, before any limit");
    throttle.apply(at(1), &hold([(machine.key(0), rate(20.0))])).unwrap();
    // The kernel lets a tenth of a second's go at once. Being late for other reasons only adds to it.
    let took = read(30);
    assert!(took >= Duration::from_millis(1_200), "{took:?}");
    assert_eq!((counted(0), counted(1)), (60, 0));
    // Waiting requests go at once after the release.
    let mut waiting = machine.reads(0, 1_000);
    let begin = std::time::Instant::now();
    throttle.apply(at(1), &[]).unwrap();
    assert!(waiting.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(25), "a thousand at 20 a second are 50 s");
}

#[test]
fn a_lowered_limit_counts_from_then_on_and_stops_nobody() {
    let Some(machine) = Machine::new("lower") else { return };
    let mut throttle = machine.throttle();
    let _reader = Killed(machine.reads(0, u32::MAX));
    let directory = machine.names[0].as_str();
    let reads = || {
        let counters = machine.tree.counters(directory).unwrap().unwrap();
        counters.get(&machine.device).map_or(0, |counters| counters.reads)
    };
    // Per second.
    let reads_in = |time| {
        let (before, begin) = (reads(), std::time::Instant::now());
        std::thread::sleep(time);
        (reads() - before) as f64 / begin.elapsed().as_secs_f64()
    };
    let half = std::time::Duration::from_millis(500);
    // A limit is lowered at other times of the kernel's slices.
    for (second, part) in [(1, 0), (2, 30), (3, 60)] {
        throttle.apply(at(second), &hold([(machine.key(0), rate(1_000.0))])).unwrap();
        until_true("the limit is reached", || reads_in(half) > 200.0);
        std::thread::sleep(std::time::Duration::from_millis(part));
        throttle.apply(at(second), &hold([(machine.key(0), rate(100.0))])).unwrap();
        let passed = [reads_in(half), reads_in(half)];
        assert!(passed[0] < 400.0 && passed[1] > 10.0, "{passed:?}");
    }
    throttle.apply(at(4), &[]).unwrap();
}

#[test]
fn a_device_that_is_gone_is_no_trouble() {
    let Some(machine) = Machine::new("device") else { return };
    let mut throttle = machine.throttle();
    // No device has this number: it went a moment ago, and there is nothing to throttle for.
    let gone = (machine.names[0].clone(), DeviceNumber::new(4_000, 1));
    throttle.hold(&gone, rate(20.0)).unwrap();
    assert!(throttle.held.is_empty());
}

#[test]
fn of_what_two_resources_want_the_lower_counts() {
    let key = (ConsumerName::new("db").unwrap(), DeviceNumber::new(7, 0));
    let [one] = hold([(key.clone(), IoLimit::NONE.reads(Iops::new(50.0)))]);
    let [two] = hold([(key.clone(), rate(70.0))]);
    assert_eq!(lowest(&[one, two])[&key], rate(70.0).reads(Iops::new(50.0)));
}

#[test]
fn two_agents_do_not_limit_the_same_machine() {
    let tree = TempDir::new().unwrap();
    let text = "proc/self/mountinfo
  30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
sys/fs/cgroup/cgroup.controllers
  io
";
    unpack(text, tree.path()).unwrap();
    let first = Cgroups::new(SystemRoot::at(tree.path())).unwrap();
    let second = Cgroups::new(SystemRoot::at(tree.path())).unwrap_err().to_string();
    assert!(second.contains("another agent"), "{second}");
    drop(first);
    // A process that another test is starting has a share of the lock until it runs its own program.
    until_true("the lock", || Cgroups::new(SystemRoot::at(tree.path())).is_ok());
    for capability in probe(&SystemRoot::at("/nowhere")) {
        assert!(capability.works.is_err(), "{}", capability.what);
    }
}

#[test]
fn one_number_that_somebody_else_sets_does_not_make_the_others_theirs() {
    let Some(machine) = Machine::new("number") else { return };
    let others = IoLimit::NONE.read_bytes(tidegate_units::ByteRate::new(1e6));
    let (wanted, lower) = (hold([(machine.key(0), rate(100.0))]), hold([(machine.key(0), rate(50.0))]));
    let held_and_changed = || {
        let mut throttle = machine.throttle();
        throttle.apply(at(1), &wanted).unwrap();
        // As `rbps=1000000` alone, or by v1 one of the four files.
        let mixed = others.min(rate(100.0));
        assert!(machine.tree.limit(&machine.directory(0), machine.device, mixed).unwrap());
        throttle
    };
    let is_theirs_alone = |how| {
        assert_eq!((machine.limit(0), machine.is_marked(0)), (others, false), "{how}");
        assert!(machine.tree.limit(&machine.directory(0), machine.device, IoLimit::NONE).unwrap());
    };

    let mut throttle = held_and_changed();
    throttle.apply(at(3), &wanted).unwrap();
    assert_eq!(machine.limit(0), others.min(rate(100.0)));
    throttle.apply(at(3), &[]).unwrap();
    is_theirs_alone("seen at a look");

    let mut throttle = held_and_changed();
    throttle.apply(at(1), &lower).unwrap();
    assert_eq!(machine.limit(0), others.min(rate(50.0)));
    throttle.apply(at(1), &[]).unwrap();
    is_theirs_alone("seen when it is changed");

    let mut throttle = held_and_changed();
    throttle.apply(at(1), &[]).unwrap();
    is_theirs_alone("seen at its release");

    drop(held_and_changed());
    undo(&SystemRoot::default()).unwrap();
    is_theirs_alone("seen by who undoes it");
}

#[test]
fn a_limit_that_is_written_by_half_is_ours() {
    let Some(machine) = Machine::new("half") else { return };
    let mut throttle = machine.throttle();
    throttle.apply(at(1), &hold([(machine.key(0), rate(100.0))])).unwrap();
    drop(throttle);
    // By v1 it is four files, and a SIGKILL may come between them.
    let (before, in_force) = (rate(100.0), rate(50.0));
    let mark = LimitMark { found: IoLimit::NONE, wanted: in_force, before, in_force };
    mark::write(&machine.tree, &machine.directory(0), machine.device, Some(mark)).unwrap();
    let half = before.reads(Iops::new(50.0));
    assert!(machine.tree.limit(&machine.directory(0), machine.device, half).unwrap());
    undo(&SystemRoot::default()).unwrap();
    assert_eq!((machine.limit(0), machine.is_marked(0)), (IoLimit::NONE, false));
}

/// A directory that looks like a machine with cgroup v2: files that can be made to fail. The text written
/// last is the text read.
struct Paper(TempDir);

impl Paper {
    const DEVICE: DeviceNumber = DeviceNumber::new(7, 0);

    const HELD: &str = "7:0 rbps=max wbps=max riops=20 wiops=20\n";

    const TREE: &str = "proc/self/mountinfo
  30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
sys/dev/block/7:0/
sys/fs/cgroup/cgroup.controllers
  io
sys/fs/cgroup/a/io.max
sys/fs/cgroup/b/io.max
";

    /// Says that the test is skipped, and returns `None`, if temporary files have no attributes.
    fn new() -> Option<Self> {
        let tree = TempDir::new().unwrap();
        unpack(Self::TREE, tree.path()).unwrap();
        let paper = Self(tree);
        let marked = paper.tree().and_then(|tree| mark::try_out(&tree, &paper.directory("b")));
        if let Err(error) = marked.and_then(|()| mark::clear(&paper.tree()?, &paper.directory("b"))) {
            return lacks(Lack::Kernel("extended attributes"), error);
        }
        Some(paper)
    }

    fn root(&self) -> SystemRoot {
        SystemRoot::at(self.0.path())
    }

    fn tree(&self) -> io::Result<CgroupTree> {
        CgroupTree::find(&self.root())
    }

    fn directory(&self, cgroup: &str) -> PathBuf {
        self.0.path().join("sys/fs/cgroup").join(cgroup)
    }

    /// Sets the content of `io.max`; `""` is no limit.
    fn says(&self, cgroup: &str, limits: &str) {
        let file = self.directory(cgroup).join("io.max");
        // It may be a directory, or lead elsewhere.
        let _ = fs::remove_dir(&file).or_else(|_| fs::remove_file(&file));
        fs::write(file, limits).unwrap();
    }

    /// Neither read nor written.
    fn breaks(&self, cgroup: &str) {
        let file = self.directory(cgroup).join("io.max");
        fs::remove_file(&file).unwrap();
        fs::create_dir(file).unwrap();
    }

    fn limit(&self, cgroup: &str) -> IoLimit {
        let limits = self.tree().unwrap().limits(&self.directory(cgroup)).unwrap().unwrap();
        limits.get(&Self::DEVICE).copied().unwrap_or_default()
    }

    fn is_marked(&self, cgroup: &str) -> bool {
        mark::read(&self.tree().unwrap(), &self.directory(cgroup)).unwrap().is_some()
    }

    fn hold(cgroups: &[&str]) -> [ThrottleRequest; 1] {
        hold(cgroups.iter().map(|name| ((ConsumerName::new(name).unwrap(), Self::DEVICE), rate(20.0))))
    }
}

#[test]
fn what_could_not_be_undone_is_undone_the_next_time() {
    let Some(paper) = Paper::new() else { return };
    let mut throttle = Cgroups::new(paper.root()).unwrap();
    throttle.apply(at(1), &Paper::hold(&["a", "b"])).unwrap();
    drop(throttle);
    paper.breaks("a");
    undo(&paper.root()).unwrap_err();
    assert_eq!((paper.limit("b"), paper.is_marked("b")), (IoLimit::NONE, false));
    paper.says("a", Paper::HELD);
    assert_eq!(undo(&paper.root()).unwrap(), 1);
    assert_eq!((paper.limit("a"), paper.is_marked("a")), (IoLimit::NONE, false));
}

#[test]
fn a_throttle_is_stuck_while_a_limit_cannot_be_taken_back_and_not_because_one_cannot_be_set() {
    let Some(paper) = Paper::new() else { return };
    let (a, b, both) = (Paper::hold(&["a"]), Paper::hold(&["b"]), Paper::hold(&["a", "b"]));
    let mut throttle = Cgroups::new(paper.root()).unwrap();
    throttle.apply(at(1), &a).unwrap();
    paper.breaks("a");
    throttle.apply(at(2), &b).unwrap_err();
    assert!(throttle.is_stuck(&b));
    paper.says("a", Paper::HELD);
    throttle.apply(at(3), &b).unwrap();
    assert!(!throttle.is_stuck(&b));
    paper.breaks("a");
    throttle.apply(at(4), &both).unwrap_err();
    assert!(!throttle.is_stuck(&both));
    assert_ne!(paper.limit("b"), IoLimit::NONE, "the other one is limited all the same");
}

#[test]
fn an_attribute_that_says_nothing_is_removed() {
    let Some(paper) = Paper::new() else { return };
    mark::try_out(&paper.tree().unwrap(), &paper.directory("a")).unwrap();
    assert_eq!(undo(&paper.root()).unwrap(), 1);
    assert!(!paper.is_marked("a"));
}

#[test]
fn the_owner_of_a_delegated_cgroup_can_neither_fail_a_release_nor_make_up_limits() {
    let Some(paper) = Paper::new() else { return };
    if !geteuid().is_root() {
        skip(Lack::Root, "another user");
        return;
    }
    let (tree, directory) = (paper.tree().unwrap(), paper.directory("a"));
    chown(&directory, Some(65_534), None).unwrap();
    let none = IoLimit::NONE;
    let made_up = LimitMark { found: rate(10.0), wanted: none, before: none, in_force: rate(20.0) };
    let mark = || mark::write(&tree, &directory, Paper::DEVICE, Some(made_up)).unwrap();
    // It would limit the cgroup, or count as a limit.
    mark();
    assert_eq!((limited(&paper.root()).unwrap(), undo(&paper.root()).unwrap()), (vec![], 0));
    assert_eq!(paper.limit("a"), IoLimit::NONE);
    // A limit counts that its owner cannot lift.
    paper.says("a", Paper::HELD);
    let ours = LimitMark { found: none, ..made_up };
    mark::write(&tree, &directory, Paper::DEVICE, Some(ours)).unwrap();
    assert_eq!(limited(&paper.root()).unwrap(), ["a"]);
    assert_eq!(undo(&paper.root()).unwrap(), 1);
    assert_eq!((paper.limit("a"), limited(&paper.root()).unwrap()), (IoLimit::NONE, vec![]));
    // What he can lift is his own affair, also if it stays.
    paper.breaks("a");
    chown(directory.join("io.max"), Some(65_534), None).unwrap();
    mark::write(&tree, &directory, Paper::DEVICE, Some(ours)).unwrap();
    assert_eq!((limited(&paper.root()).unwrap(), undo(&paper.root()).unwrap()), (vec![], 0));
}

#[test]
fn a_directory_too_deep_for_a_path_hides_no_other_and_fails_nothing() {
    let Some(paper) = Paper::new() else { return };
    let mut throttle = Cgroups::new(paper.root()).unwrap();
    throttle.apply(at(1), &Paper::hold(&["a", "b"])).unwrap();
    drop(throttle);
    // Deeper than a path can say.
    let mut directory = File::open(paper.directory("")).unwrap();
    let name = "deep".repeat(60);
    for _ in 0..20 {
        mkdirat(&directory, &name, Mode::RWXU).unwrap();
        directory = openat(&directory, &name, OFlags::DIRECTORY, Mode::empty()).unwrap().into();
    }
    assert_eq!(undo(&paper.root()).unwrap(), 2);
    assert_eq!(limited(&paper.root()).unwrap(), Vec::<String>::new());
    for cgroup in ["a", "b"] {
        assert_eq!((paper.limit(cgroup), paper.is_marked(cgroup)), (IoLimit::NONE, false));
    }
}

#[test]
fn who_does_not_know_of_a_limit_of_ours_asks_the_mark() {
    let Some(machine) = Machine::new("asks") else { return };
    let others = IoLimit::NONE.reads(Iops::new(60.0));
    machine.tree.limit(&machine.directory(0), machine.device, others).unwrap();
    machine.throttle().apply(at(1), &hold([(machine.key(0), rate(20.0))])).unwrap();
    let mut throttle = machine.throttle();
    throttle.apply(at(1), &hold([(machine.key(0), rate(30.0))])).unwrap();
    assert_eq!(machine.limit(0), rate(30.0));
    throttle.apply(at(1), &[]).unwrap();
    assert_eq!((machine.limit(0), machine.is_marked(0)), (others, false));
}

#[test]
fn a_limit_that_could_not_be_read_back_is_ours_all_the_same() {
    let Some(paper) = Paper::new() else { return };
    let mut throttle = Cgroups::new(paper.root()).unwrap();
    let wanted = Paper::hold(&["a"]);
    let fails = |throttle: &mut Cgroups| {
        let file = paper.directory("a").join("io.max");
        fs::remove_file(&file).unwrap();
        symlink("/dev/null", file).unwrap();
        let error = throttle.apply(at(1), &wanted).unwrap_err();
        assert!(matches!(error, ThrottleError::ReadBack { .. }), "{error}");
    };
    // It was not set: it is at the next call, before a look is due.
    fails(&mut throttle);
    paper.says("a", "");
    throttle.apply(at(1), &wanted).unwrap();
    assert_eq!(paper.limit("a"), rate(20.0));
    throttle.apply(at(1), &[]).unwrap();
    // It was set, goes on, and is released.
    for next in [&wanted[..], &[]] {
        fails(&mut throttle);
        paper.says("a", Paper::HELD);
        throttle.apply(at(1), next).unwrap();
        throttle.apply(at(1), &[]).unwrap();
        assert_eq!((paper.limit("a"), paper.is_marked("a")), (IoLimit::NONE, false));
    }
}

#[test]
fn one_that_cannot_be_looked_at_hides_no_other() {
    let Some(paper) = Paper::new() else { return };
    let mut throttle = Cgroups::new(paper.root()).unwrap();
    let wanted = Paper::hold(&["a", "b"]);
    throttle.apply(at(1), &wanted).unwrap();
    paper.breaks("a");
    paper.says("b", "");
    throttle.apply(at(3), &wanted).unwrap_err();
    assert_eq!(paper.limit("b"), rate(20.0));
}

#[test]
fn one_that_cannot_be_counted_hides_no_other() {
    let Some(machine) = Machine::new("count") else { return };
    let mut throttle = machine.throttle();
    // No device has this number, and it is before any that has one.
    let gone = DeviceNumber::new(0, 4_000);
    assert!(gone < machine.device);
    let counted = throttle.count([gone, machine.device].into());
    assert_eq!(counted.is_err(), machine.tree.version() == CgroupVersion::V1);
    assert!(throttle.counted.contains(&machine.device));
}

#[test]
fn a_cgroup_that_goes_while_it_is_marked_is_no_trouble() {
    let Some(paper) = Paper::new() else { return };
    let (tree, gone) = (paper.tree().unwrap(), paper.directory("gone"));
    assert_eq!(mark::read(&tree, &gone).unwrap(), None);
    let mark = LimitMark::over(IoLimit::NONE, IoLimit::NONE, rate(20.0));
    mark::write(&tree, &gone, Paper::DEVICE, Some(mark)).unwrap();
}
