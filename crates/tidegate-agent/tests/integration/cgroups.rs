//! The agent's regulation of cgroups, on files that look like a machine's: a disk that two cgroups read, one
//! of which may be held. The counters are made to go on here. What the kernel does with limits is for
//! `tidegate-host`'s tests and the lab.

use std::fs;

use tempfile::TempDir;
use tidegate_agent::{AgentConfig, MachineRegulator, RegulationStep};
use tidegate_control::SignalState;
use tidegate_host::cgroup::IoLimit;
use tidegate_host::trees::{unpack, write_file};
use tidegate_host::{DeviceNumber, SystemRoot};
use tidegate_units::{ConsumerName, Instant, Latency};

const TREE: &str = "proc/self/mountinfo
  30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
proc/diskstats
  8 0 sda 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
  8 16 sdb 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
sys/block/sda/dev
  8:0
sys/block/sda/size
  2097152
sys/block/sdb/dev
  8:16
sys/block/sdb/size
  2097152
sys/fs/cgroup/cgroup.controllers
  cpu io memory
sys/fs/cgroup/db/io.stat
sys/fs/cgroup/batch/io.stat
";

const TOLD: &str =
    "throttle = 'cgroup'\n[resource.disk]\ndevice = 'sda'\nlaw = 'pid'\ntarget = '10ms'\ncgroups = ['ba*']\n";

const BANDED: &str = "throttle = 'cgroup'\n[resource.disk]\ndevice = 'sda'\ntarget = '10ms'\ncgroups = \
    ['db', 'ba*']\n\
    law = 'self-tuning'\nbands = [{ up_to = '100 IO/s', ratios = { db = 1 } }, { up_to = '900 IO/s', ratios \
    = { batch = 1 } }]\n";

const STEP: Latency = Latency::from_millis(100);
const DISK: DeviceNumber = DeviceNumber::new(8, 0);

/// What is done in a tenth of a second, by each of the two.
#[derive(Clone, Copy)]
struct Load {
    db: u64,
    batch: u64,
    each: Latency,
}

const SLOW: Load = Load { db: 5, batch: 45, each: Latency::from_millis(20) };
const QUICK: Load = Load { db: 5, batch: 20, each: Latency::from_millis(2) };

/// How many of its size may be read per second: in bytes a limit is exact.
fn reads(limit: IoLimit) -> Option<f64> {
    limit.read_byte_rate().map(|rate| rate.per_second() / 4096.0)
}

struct Machine {
    tree: TempDir,
    regulator: MachineRegulator,
    now: Instant,
    done: [u64; 2],
    read_ms: u64,
}

impl Machine {
    fn told(more: &str) -> Self {
        Self::configured(&format!("{TOLD}{more}"))
    }

    fn configured(text: &str) -> Self {
        let tree = tempfile::tempdir().unwrap();
        unpack(TREE, tree.path()).unwrap();
        let config = AgentConfig::parse("agent.toml", text).unwrap();
        let regulator = MachineRegulator::new(SystemRoot::at(tree.path()), &config).unwrap();
        Self { tree, regulator, now: Instant::ZERO, done: [0; 2], read_ms: 0 }
    }

    fn write(&self, path: &str, text: &str) {
        write_file(self.tree.path(), path, text.as_bytes()).unwrap();
    }

    fn step(&mut self, load: Load, in_flight: u64) -> RegulationStep {
        for (done, more) in self.done.iter_mut().zip([load.db, load.batch]) {
            *done += more;
        }
        let [db, batch] = self.done;
        let completed = db + batch;
        self.read_ms += load.each.as_nanos() / 1_000_000 * (load.db + load.batch);
        self.write(
            "proc/diskstats",
            &format!(
                "8 0 sda {completed} 0 {} {} 0 0 0 0 {in_flight} 0 {} 0 0 0 0 0 0\n8 16 sdb 0 0 0 0 0 0 0 0 \
                    0 0 0 0 0 0 0 0 0\n",
                completed * 8,
                self.read_ms,
                self.read_ms
            ),
        );
        for (name, done) in [("db", db), ("batch", batch)] {
            let path = format!("sys/fs/cgroup/{name}/io.stat");
            if self.tree.path().join(&path).exists() {
                self.write(
                    &path,
                    &format!("8:0 rbytes={} wbytes=0 rios={done} wios=0 dbytes=0 dios=0\n", done * 4096),
                );
            }
        }
        self.now = self.now + STEP;
        self.regulator.step(self.now)
    }

    /// How much may be read after some seconds of that.
    fn after(&mut self, seconds: u32, load: Load) -> Option<f64> {
        for _ in 0..seconds * 10 {
            self.step(load, 1);
        }
        reads(self.limit("batch").unwrap())
    }

    fn limit(&self, cgroup: &str) -> Option<IoLimit> {
        self.regulator.holds()[0].cgroups.get(&(ConsumerName::new(cgroup).unwrap(), DISK)).copied()
    }
}

#[test]
fn who_may_be_held_is_limited_while_everybody_reads_slowly_and_let_go_after() {
    let mut machine = Machine::told("");
    assert_eq!(machine.after(2, QUICK), None);
    let first = machine.after(1, SLOW).unwrap();
    // 450 a second are what it did by itself.
    assert!(first < 450.0, "{first}");
    let later = machine.after(3, SLOW).unwrap();
    assert!(later < first, "{later} after {first}");
    assert_eq!(machine.limit("db"), None, "nobody else is ever named");
    assert_eq!(machine.after(60, QUICK), None, "let go");
}

/// A disk that takes a millisecond for every fifty requests per second; both read as much as they may.
#[test]
fn bands_divide_what_a_goal_leaves_between_two_cgroups() {
    let mut machine = Machine::configured(BANDED);
    let mut load = Load { db: 45, batch: 45, each: Latency::from_millis(18) };
    for _ in 0..30 {
        for _ in 0..10 {
            machine.step(load, 0);
        }
        let rate = |cgroup| {
            let limit = machine.limit(cgroup).unwrap();
            reads(limit).map_or(450.0, |rate| rate.min(450.0))
        };
        let [db, batch] = ["db", "batch"].map(|cgroup| rate(cgroup) / 10.0);
        let each = Latency::from_millis(((db + batch) * 10.0 / 50.0).round() as u64);
        load = Load { db: db.round() as u64, batch: batch.round() as u64, each };
    }
    // At 8 ms, 0.8 of the target, it does 400 a second: 100 of the first band, 300 of the second.
    assert!((9..=11).contains(&load.db) && (27..=33).contains(&load.batch), "{} {}", load.db, load.batch);
    assert!(machine.limit("db").unwrap().read_rate().is_some());
}

#[test]
fn a_cgroup_that_goes_leaves_its_part_of_the_bands_to_the_others() {
    let mut machine = Machine::configured(BANDED);
    let load = Load { db: 10, batch: 60, each: Latency::from_millis(10) };
    for _ in 0..100 {
        machine.step(load, 0);
    }
    fs::remove_dir_all(machine.tree.path().join("sys/fs/cgroup/batch")).unwrap();
    let alone = Load { db: 40, batch: 0, each: Latency::from_millis(8) };
    for _ in 0..50 {
        machine.step(alone, 0);
    }
    // 100 a second would be all of the only band that it has a part of.
    let rate = reads(machine.limit("db").unwrap()).unwrap_or(1e9);
    assert!(rate > 300.0, "{rate}");
}

#[test]
fn nobody_is_limited_below_the_floor() {
    let mut machine = Machine::told("pid = { floor = '40 IO/s', greatest = '5s' }\n");
    let rate = machine.after(60, Load { each: Latency::from_millis(200), ..SLOW }).unwrap();
    assert!((40.0..41.0).contains(&rate), "{rate}");
}

#[test]
fn on_a_dry_run_the_throttle_is_told_nothing() {
    let mut machine = Machine::told("dry_run = true\n");
    for _ in 0..30 {
        let step = machine.step(SLOW, 1);
        assert!(step.decisions.iter().all(|decision| decision.dry_run));
    }
    assert!(machine.regulator.holds().is_empty());
}

#[test]
fn requests_that_do_not_come_back_are_an_overload_and_not_silence() {
    let mut machine = Machine::told("");
    machine.after(2, QUICK);
    let stuck = Load { db: 0, batch: 0, each: Latency::ZERO };
    let inputs: Vec<_> =
        (0..10).flat_map(|_| machine.step(stuck, 3).decisions).map(|decision| decision.input).collect();
    assert!(matches!(inputs[0], SignalState::Unknown), "{inputs:?}");
    assert!(
        matches!(inputs[9], SignalState::Overload { oldest } if oldest >= Latency::from_millis(800)),
        "{inputs:?}"
    );
}

#[test]
fn cgroups_and_devices_that_come_and_go() {
    let mut machine = Machine::told("");
    assert!(machine.after(3, SLOW).is_some());
    fs::remove_dir_all(machine.tree.path().join("sys/fs/cgroup/batch")).unwrap();
    for _ in 0..11 {
        machine.step(SLOW, 1);
    }
    assert_eq!(machine.limit("batch"), None, "it is gone");
    machine.write("sys/fs/cgroup/backup/io.stat", "");
    for _ in 0..11 {
        machine.step(SLOW, 1);
    }
    assert_eq!(machine.limit("backup"), Some(IoLimit::NONE), "it does nothing, and is limited to nothing");
    fs::remove_dir_all(machine.tree.path().join("sys/block/sda")).unwrap();
    machine.write("proc/diskstats", "");
    for _ in 0..2 {
        machine.now = machine.now + Latency::from_secs_f64(31.0);
        assert!(machine.regulator.step(machine.now).blind.is_none());
    }
    assert!(machine.regulator.holds()[0].cgroups.is_empty());
}

#[test]
fn who_cannot_be_read_for_two_seconds_is_let_go() {
    let mut machine = Machine::told("");
    assert!(machine.after(3, SLOW).is_some());
    machine.write("sys/fs/cgroup/batch/io.stat", "8:0 rios=many\n");
    let mut blind = Vec::new();
    for _ in 0..25 {
        machine.now = machine.now + STEP;
        blind.extend(machine.regulator.step(machine.now).blind.map(|error| error.to_string()));
    }
    assert!(blind[0].contains("batch/io.stat:1"), "{blind:?}");
    assert_eq!(machine.limit("batch"), Some(IoLimit::NONE));
}

#[test]
fn one_device_whose_cgroups_cannot_be_read_lets_go_of_nobody_elsewhere() {
    let mut machine = Machine::told(
        "[resource.second]\ndevice = 'sdb'\nlaw = 'pid'\ntarget = '10ms'\ncgroups = ['other']\n",
    );
    assert!(machine.after(3, SLOW).is_some());
    machine.write("sys/fs/cgroup/other/io.stat", "8:16 rios=many\n");
    let mut blind = 0;
    for _ in 0..30 {
        blind += u32::from(machine.step(SLOW, 1).blind.is_some());
        assert!(machine.limit("batch").unwrap().read_rate().is_some(), "held all the time");
    }
    assert!(blind >= 20, "{blind}");
}
