//! The agent's regulation on a captured machine: three initiators with a volume each of volume group vg0. Its
//! counters are made to go on here.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use tidegate_agent::{AgentConfig, MachineRegulator, RegulationStep};
use tidegate_control::{SignalRequests, SignalState};
use tidegate_host::SystemRoot;
use tidegate_host::throttle::ThrottleRequest;
use tidegate_host::trees::unpack;
use tidegate_units::{Instant, Latency, ResourceName};

const TREE: &str = include_str!("../../../tidegate-host/tests/fixtures/lio-acls.tree");

const STEP: Latency = Latency::from_millis(100);

/// What one volume does in a tenth of a second.
#[derive(Clone, Copy, Default)]
struct Load {
    reads: u64,
    read_ms: u64,
    writes: u64,
    in_flight: u64,
}

const READS_SLOWLY: Load = Load { reads: 6, read_ms: 240, writes: 0, in_flight: 0 };
const READS_QUICKLY: Load = Load { reads: 6, read_ms: 48, writes: 0, in_flight: 0 };
const WRITES: Load = Load { reads: 0, read_ms: 0, writes: 40, in_flight: 8 };
const SILENT: Load = Load { reads: 0, read_ms: 0, writes: 0, in_flight: 0 };

struct Machine {
    tree: TempDir,
    regulator: MachineRegulator,
    now: Instant,
    done: [Load; 3],
}

impl Machine {
    fn new(more: &str) -> Self {
        Self::told(&format!("[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\n{more}"))
    }

    fn told(text: &str) -> Self {
        let tree = tempfile::tempdir().unwrap();
        unpack(TREE, tree.path()).unwrap();
        let config = AgentConfig::parse("agent.toml", text).unwrap();
        let regulator = MachineRegulator::new(SystemRoot::at(tree.path()), &config).unwrap();
        Self { tree, regulator, now: Instant::ZERO, done: [SILENT; 3] }
    }

    fn write_counters(&self, in_flight: [u64; 3]) {
        let lines = self.done.iter().zip(in_flight).enumerate().map(|(minor, (done, in_flight))| {
            let Load { reads, read_ms, writes, .. } = done;
            let (read_sectors, write_sectors, write_ms) = (reads * 8, writes * 128, writes * 20);
            format!(
                "254 {minor} dm-{minor} {reads} 0 {read_sectors} {read_ms} {writes} 0 {write_sectors} \
                    {write_ms} {in_flight} 0 {} 0 0 0 0 0 0\n",
                read_ms + write_ms
            )
        });
        fs::write(self.tree.path().join("proc/diskstats"), lines.collect::<String>()).unwrap();
    }

    /// A tenth of a second in which the three volumes do that.
    fn step(&mut self, loads: [Load; 3]) -> RegulationStep {
        for (done, load) in self.done.iter_mut().zip(loads) {
            done.reads += load.reads;
            done.read_ms += load.read_ms;
            done.writes += load.writes;
        }
        self.write_counters(loads.map(|load| load.in_flight));
        self.now = self.now + STEP;
        self.regulator.step(self.now)
    }

    /// The hold after some seconds of that.
    fn after(&mut self, seconds: u32, loads: [Load; 3]) -> ThrottleRequest {
        for _ in 0..seconds * 10 {
            self.step(loads);
        }
        self.regulator.holds()[0].clone()
    }
}

fn addresses(numbers: &[u8]) -> Vec<IpAddr> {
    numbers.iter().map(|number| IpAddr::from([10, 0, 0, 10 + number])).collect()
}

fn members(hold: &ThrottleRequest) -> Vec<IpAddr> {
    hold.members.iter().copied().collect()
}

#[test]
fn who_writes_is_held_while_reads_are_slow_and_let_go_when_they_are_not() {
    let mut machine = Machine::new("");
    let hold = machine.after(3, [READS_SLOWLY, WRITES, WRITES]);
    assert_eq!(members(&hold), addresses(&[2, 3]));
    assert!(hold.delay > Latency::ZERO);
    // From the longest delay, by Kp·T/Ti·e = 1 ms per interval.
    let hold = machine.after(12, [READS_QUICKLY, WRITES, WRITES]);
    assert_eq!((members(&hold), hold.delay), (addresses(&[2, 3]), Latency::ZERO));
    let hold = machine.after(5, [READS_QUICKLY, SILENT, WRITES]);
    assert_eq!(members(&hold), addresses(&[3]));
}

#[test]
fn while_no_consumer_is_eligible_each_sample_looks_for_writers() {
    for quiet in 0..10 {
        let mut machine = Machine::new("");
        // Consumers are counted once a second, at any time before the writers begin.
        machine.after(2, [READS_QUICKLY, SILENT, SILENT]);
        (0..quiet).for_each(|_| drop(machine.step([READS_QUICKLY, SILENT, SILENT])));
        let steps = (1..10).find(|_| {
            machine.step([READS_SLOWLY, WRITES, WRITES]);
            members(&machine.regulator.holds()[0]) == addresses(&[2, 3])
        });
        assert!(steps.is_some_and(|steps| steps <= 4), "{quiet}: {steps:?}");
    }
}

#[test]
fn an_agent_that_decides_seldom_looks_often_enough_to_notice_that_it_is_blind() {
    for (interval, step) in [("100ms", 100_000), ("1s", 1_000_000), ("2500ms", 833_333), ("1min", 1_000_000)]
    {
        let machine = Machine::new(&format!("interval = '{interval}'\n"));
        assert_eq!(machine.regulator.interval().as_micros(), step, "{interval}");
    }
}

#[test]
fn by_a_window_who_writes_waits_for_what_it_has_no_room_for() {
    for throttle in ["netem", "rate"] {
        let text = format!("throttle = '{throttle}'\n[resource.vg0]\ntarget = '15ms'\nlaw = 'window'");
        let mut machine = Machine::told(&text);
        let hold = machine.after(3, [READS_QUICKLY, WRITES, WRITES]);
        assert_eq!((members(&hold), hold.delay), (addresses(&[2, 3]), Latency::ZERO), "a window begins open");
        let hold = machine.after(5, [READS_SLOWLY, WRITES, WRITES]);
        // 16 are at the storage, 800 a second go on: (16 − 0.25)/800 s, and more since this storage does not
        // answer sooner for it.
        assert!(hold.delay >= Latency::from_millis(20), "{}", hold.delay);
        assert_eq!(hold.limits.len(), if throttle == "rate" { 2 } else { 0 });
        // The window law decides every quarter of a second.
        let decided =
            (0..10).flat_map(|_| machine.step([READS_SLOWLY, WRITES, WRITES]).decisions).next().unwrap();
        let said = decided.to_string();
        assert!(said.contains("writers throttled by up to "), "{said}");
        assert!(said.contains("per request (2 of 2 throttled)"), "{said}");
        assert_eq!(machine.after(20, [READS_QUICKLY, WRITES, WRITES]).delay, Latency::ZERO, "{throttle}");
    }
}

#[test]
fn by_the_model_of_a_queue_who_writes_waits_for_what_its_window_has_no_room_for() {
    for throttle in ["netem", "rate"] {
        let text =
            format!("throttle = '{throttle}'\n[resource.vg0]\ntarget = '15ms'\nlaw = 'queueing-model'");
        let mut machine = Machine::told(&text);
        // What writes take is longer than the target, and is nobody's promise.
        let hold = machine.after(5, [READS_QUICKLY, WRITES, WRITES]);
        assert_eq!((members(&hold), hold.delay), (addresses(&[2, 3]), Latency::ZERO), "{throttle}");
        let hold = machine.after(10, [READS_SLOWLY, WRITES, WRITES]);
        assert!(hold.delay >= Latency::from_millis(5), "{throttle}: {}", hold.delay);
        assert_eq!(hold.limits.len(), if throttle == "rate" { 2 } else { 0 });
        let decided = (0..10).flat_map(|_| machine.step([READS_SLOWLY, WRITES, WRITES]).decisions).next();
        let decided = decided.unwrap();
        assert_eq!((decided.signal, decided.held), (SignalRequests::Reads, 2), "{decided}");
        assert_eq!(machine.after(30, [READS_QUICKLY, WRITES, WRITES]).delay, Latency::ZERO, "{throttle}");
    }
}

#[test]
fn by_a_percentile_a_few_slow_reads_among_quick_ones_hold_writers() {
    let told = |machine: &mut Machine, millis: &[u64]| {
        let reads = millis.iter().map(|millis| Latency::from_millis(*millis)).collect();
        machine.regulator.count(&ResourceName::new("vg0").unwrap(), &reads);
        machine.step([READS_QUICKLY, WRITES, WRITES])
    };
    let quick = [8; 6];
    let mixed = [8, 8, 8, 8, 8, 60];
    for (statistic, held) in [("mean", false), ("p50", false), ("p95", true)] {
        let mut machine = Machine::new(&format!("statistic = '{statistic}'"));
        for _ in 0..30 {
            told(&mut machine, &mixed);
        }
        assert_eq!(machine.regulator.holds()[0].delay > Latency::ZERO, held, "{statistic}");
        for _ in 0..150 {
            told(&mut machine, &quick);
        }
        assert_eq!(machine.regulator.holds()[0].delay, Latency::ZERO, "{statistic}");
    }
    // The counters have reads, and nobody has said how long each of them took.
    let mut machine = Machine::new("statistic = 'p95'");
    for _ in 0..30 {
        told(&mut machine, &mixed);
    }
    assert_eq!(machine.step([READS_QUICKLY, WRITES, WRITES]).decisions[0].input, SignalState::Unknown);
}

#[test]
fn nobody_is_held_for_writes_that_are_in_nobodys_way() {
    let mut machine = Machine::new("");
    let hold = machine.after(5, [SILENT, WRITES, WRITES]);
    assert_eq!((members(&hold), hold.delay), (addresses(&[2, 3]), Latency::ZERO));
}

#[test]
fn when_the_reader_falls_silent_the_hold_decays() {
    let mut machine = Machine::new("");
    let held = machine.after(3, [READS_SLOWLY, WRITES, WRITES]).delay;
    let soon = machine.after(1, [SILENT, WRITES, WRITES]).delay;
    assert!(soon > Latency::ZERO && soon < held, "{soon} of {held}");
    assert_eq!(machine.after(30, [SILENT, WRITES, WRITES]).delay, Latency::ZERO);
}

#[test]
fn reads_that_do_not_complete_are_overload_by_their_age() {
    let mut machine = Machine::new("");
    machine.after(3, [READS_QUICKLY, WRITES, WRITES]);
    fs::create_dir_all(machine.tree.path().join("sys/block/dm-0")).unwrap();
    fs::write(machine.tree.path().join("sys/block/dm-0/inflight"), "       1        0\n").unwrap();
    let stuck = Load { in_flight: 1, ..SILENT };
    let mut inputs = Vec::new();
    for _ in 0..10 {
        let step = machine.step([stuck, WRITES, WRITES]);
        inputs.push(step.decisions[0].input);
    }
    let oldest = |input: &SignalState| {
        matches!(input, SignalState::Overload { oldest }
        if *oldest >= Latency::from_millis(800))
    };
    assert!(oldest(inputs.last().unwrap()), "{inputs:?}");
}

#[test]
fn exempt_members_and_names() {
    for (more, held) in [
        ("exempt = '10.0.0.12'", addresses(&[3])),
        ("exempt = ['iqn.*:initiator3', '10.0.0.12/31']", Vec::new()),
        ("writers = false\nmembers = '*:initiator1'", addresses(&[1])),
        ("members = '10.0.0.0/24'\nexempt = '10.0.0.13'", addresses(&[1, 2])),
    ] {
        let hold = Machine::new(more).after(3, [READS_SLOWLY, WRITES, WRITES]);
        assert_eq!(members(&hold), held, "{more}");
        assert_eq!(hold.delay > Latency::ZERO, !held.is_empty(), "{more}");
    }
}

#[test]
fn a_dry_run_decides_and_holds_nobody() {
    let mut machine = Machine::new("dry_run = true");
    for _ in 0..30 {
        machine.step([READS_SLOWLY, WRITES, WRITES]);
        assert!(machine.regulator.holds().is_empty());
    }
    let step = machine.step([READS_SLOWLY, WRITES, WRITES]);
    assert!(step.decisions[0].to_string().contains("would be throttled"), "{}", step.decisions[0]);
}

#[test]
fn counters_that_cannot_be_read_let_everybody_go_after_two_seconds() {
    let mut machine = Machine::new("");
    let held = machine.after(3, [READS_SLOWLY, WRITES, WRITES]).delay;
    fs::remove_file(machine.tree.path().join("proc/diskstats")).unwrap();
    let blind = |machine: &mut Machine| {
        machine.now = machine.now + STEP;
        let step = machine.regulator.step(machine.now);
        assert!(step.blind.unwrap().to_string().contains("diskstats"));
        machine.regulator.holds()[0].delay
    };
    assert_eq!(blind(&mut machine), held, "one reading that fails is not the end");
    let delays: Vec<_> = (0..20).map(|_| blind(&mut machine)).collect();
    assert_eq!(*delays.last().unwrap(), Latency::ZERO);
    // And it goes on when they are back.
    assert!(machine.after(3, [READS_SLOWLY, WRITES, WRITES]).delay > Latency::ZERO);
}

#[test]
fn a_volume_that_is_removed_takes_its_consumer_along() {
    let mut machine = Machine::new("");
    machine.after(3, [READS_SLOWLY, WRITES, WRITES]);
    let acl = "sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv2";
    fs::remove_dir_all(machine.tree.path().join(acl)).unwrap();
    let counts = machine.after(4, [READS_SLOWLY, SILENT, WRITES]);
    assert_eq!(members(&counts), addresses(&[3]));
}

#[test]
fn a_reload_keeps_who_is_held() {
    let mut machine = Machine::new("");
    let held = machine.after(3, [READS_SLOWLY, WRITES, WRITES]);
    let config = AgentConfig::parse(
        "agent.toml",
        "[resource.vg0]\nlaw = 'pid'\ntarget = '16ms'\nexempt = '10.0.0.13'",
    )
    .unwrap();
    machine.regulator.reconfigure(&config).unwrap();
    machine.step([READS_SLOWLY, WRITES, WRITES]);
    let hold = &machine.regulator.holds()[0];
    assert_eq!(members(hold), addresses(&[2]));
    assert!(hold.delay >= held.delay.scale(0.8), "{} after {}", hold.delay, held.delay);
}

#[test]
fn who_shares_an_address_is_held_unless_somebody_there_is_exempt() {
    for (more, held) in [("", vec![2]), ("exempt = 'iqn.*:initiator3'", Vec::new())] {
        let mut machine = Machine::new(more);
        // The third initiator logs in from where the second one is.
        let info = machine.tree.path().join(
            "sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv3/tpgt_1/acls/iqn.2026-01.lab:initiator3/info",
        );
        let text = fs::read_to_string(&info).unwrap();
        fs::write(&info, text.replace("10.0.0.13", "10.0.0.12")).unwrap();
        machine.after(2, [SILENT; 3]);
        let hold = machine.after(3, [READS_SLOWLY, WRITES, WRITES]);
        assert_eq!(members(&hold), addresses(&held), "{more}");
    }
}

#[test]
fn packets_by_every_path_of_a_throttled_consumer_are_delayed_and_by_no_path_of_another() {
    let told = "[addresses]\n'iqn.2026-01.lab:initiator2' = ['10.1.0.12', 'fd00::12']\n\
                'iqn.2026-01.lab:initiator1' = '10.1.0.11'\n";
    let mut machine = Machine::told(&format!("{told}[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'"));
    let hold = machine.after(3, [READS_SLOWLY, WRITES, SILENT]);
    let paths = ["10.0.0.12", "10.1.0.12", "fd00::12"].map(|path| path.parse::<IpAddr>().unwrap());
    assert_eq!(members(&hold), paths);
    // A path that is told no longer is no path any more.
    let config = AgentConfig::parse("agent.toml", "[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'").unwrap();
    machine.regulator.reconfigure(&config).unwrap();
    machine.step([READS_SLOWLY, WRITES, SILENT]);
    assert_eq!(members(&machine.regulator.holds()[0]), addresses(&[2]));
}

#[test]
fn by_weights_consumers_have_delays_of_their_own() {
    let own = |hold: &ThrottleRequest| {
        let [two, three] = [12, 13].map(|last| hold.own_delays.get(&IpAddr::from([10, 0, 0, last])).copied());
        two.zip(three)
    };
    let loads = [READS_SLOWLY, WRITES, WRITES];
    assert_eq!(own(&Machine::new("").after(5, loads)), None, "without weights there is one delay");
    let mut machine = Machine::new("weights = { 'iqn.*:initiator2' = 4 }");
    let hold = machine.after(5, loads);
    let (two, three) = own(&hold).unwrap();
    // The reads stay slow, so the delay becomes the longest: no member has more.
    assert!(two < hold.delay && hold.delay <= three, "{two} and {three} of {}", hold.delay);
    // They move the same, whatever their delays are: the one of the greater weight is to have more.
    let (less, more) = own(&machine.after(5, loads)).unwrap();
    assert!(less <= two && more >= three, "{less} and {more} after {two} and {three}");
    let quick = [READS_QUICKLY, WRITES, WRITES];
    assert_eq!(own(&machine.after(30, quick)), Some((Latency::ZERO, Latency::ZERO)));
}

#[test]
fn by_rate_a_volumes_limit_is_by_its_initiators_weight() {
    let text =
        "throttle = 'rate'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\nweights = { '10.0.0.12' = 4 }";
    // The least rate is 10 per second. As the delay grows towards its longest, both come near to that.
    let hold = Machine::told(text).after(3, [READS_SLOWLY, WRITES, WRITES]);
    let rates: Vec<_> = hold.limits.values().map(|limit| limit.writes().per_second()).collect();
    let [two, three] = rates[..] else { panic!("{rates:?}") };
    assert!(two > 2.0 * three, "{two} and {three}");
}

#[test]
fn a_reader_that_becomes_bulk_joins_and_the_small_one_is_the_signal() {
    const READS_MUCH: Load = Load { reads: 400, read_ms: 24_000, writes: 0, in_flight: 0 };
    let mut machine = Machine::new("readers = { above = '4MiB/s' }");
    let hold = machine.after(3, [READS_SLOWLY, READS_QUICKLY, SILENT]);
    assert_eq!(members(&hold), addresses(&[]));
    let hold = machine.after(3, [READS_SLOWLY, READS_MUCH, SILENT]);
    assert_eq!(members(&hold), addresses(&[2]));
    assert!(hold.delay > Latency::ZERO);
    let decision = machine.step([READS_SLOWLY, READS_MUCH, SILENT]).decisions.remove(0);
    assert_eq!(decision.signal, SignalRequests::ProtectedReads);
    assert_eq!(decision.input, SignalState::Samples { count: 6 });
    // Its own reads are as slow as before, and those of the small one are quick.
    let hold = machine.after(30, [READS_QUICKLY, READS_MUCH, SILENT]);
    assert_eq!((members(&hold), hold.delay), (addresses(&[2]), Latency::ZERO));
    let hold = machine.after(6, [READS_QUICKLY, READS_QUICKLY, SILENT]);
    assert_eq!(members(&hold), addresses(&[]));
    let mut machine = Machine::new("");
    let hold = machine.after(5, [READS_SLOWLY, READS_MUCH, SILENT]);
    assert_eq!(members(&hold), addresses(&[]), "readers are none by default");
}

#[test]
fn without_configfs_nobody_is_known_and_nobody_held_until_it_is_back() {
    let mut machine = Machine::new("");
    machine.after(3, [READS_SLOWLY, WRITES, WRITES]);
    let [mounted, gone] = ["config", "gone"].map(|name| machine.tree.path().join("sys/kernel").join(name));
    fs::rename(&mounted, &gone).unwrap();
    assert_eq!(members(&machine.after(4, [READS_SLOWLY, WRITES, WRITES])), addresses(&[]));
    fs::rename(&gone, &mounted).unwrap();
    assert_eq!(members(&machine.after(4, [READS_SLOWLY, WRITES, WRITES])), addresses(&[2, 3]));
}

/// The minor numbers of the devices that are limited.
fn limited(hold: &ThrottleRequest) -> Vec<u32> {
    hold.limits.keys().map(|device| device.minor).collect()
}

#[test]
fn by_rate_the_volumes_that_members_write_are_limited_as_the_delay_says() {
    let mut machine = Machine::told("throttle = 'rate'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'");
    let hold = machine.after(3, [READS_SLOWLY, WRITES, WRITES]);
    assert_eq!((members(&hold), limited(&hold)), (addresses(&[2, 3]), vec![1, 2]));
    // 400 writes of 64 KiB per second that take 20 ms each: 8 are outstanding.
    for limit in hold.limits.values() {
        let expected = 8.0 / (0.020 + hold.delay.as_secs_f64());
        assert!((limit.bytes().per_second() / 65_536.0 - expected).abs() <= 1.0, "{limit:?}");
        // In requests the kernel counts by tens.
        assert!((0.0..10.0).contains(&(limit.writes().per_second() - expected)), "{limit:?}");
    }
    // Longer than packets are ever held, and from long delays it takes its time to let go.
    assert!(machine.after(20, [READS_SLOWLY, WRITES, WRITES]).delay > Latency::from_millis(100));
    let hold = machine.after(300, [READS_QUICKLY, WRITES, WRITES]);
    assert_eq!((hold.delay, limited(&hold)), (Latency::ZERO, Vec::new()));
}

#[test]
fn by_rate_the_status_has_what_the_throttle_is_told() {
    let mut machine = Machine::told("throttle = 'rate'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'");
    let hold = machine.after(3, [READS_SLOWLY, WRITES, WRITES]);
    let said = machine.regulator.status()[0].limits.clone();
    assert_eq!(said.keys().collect::<Vec<_>>(), ["dm-1", "dm-2"]);
    assert!(said.values().eq(hold.limits.values()), "{said:?}");
    // Nothing of it stays when the resource is only looked at.
    let dry = "throttle = 'rate'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\ndry_run = true";
    machine.regulator.reconfigure(&AgentConfig::parse("agent.toml", dry).unwrap()).unwrap();
    machine.step([READS_SLOWLY, WRITES, WRITES]);
    assert!(machine.regulator.status()[0].limits.is_empty());
    // Nor when nobody is to be held any more.
    let mut machine = Machine::told("throttle = 'rate'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'");
    machine.after(3, [READS_SLOWLY, WRITES, WRITES]);
    machine.after(300, [READS_QUICKLY, WRITES, WRITES]);
    assert!(machine.regulator.status()[0].limits.is_empty());
}

#[test]
fn by_rate_nobody_is_limited_of_whom_nothing_is_known_who_is_exempt_or_on_a_dry_run() {
    for (more, limits) in [
        ("exempt = '10.0.0.12'", vec![2]),
        ("writers = false\nmembers = '10.0.0.0/24'", vec![1, 2]),
        ("dry_run = true", vec![]),
    ] {
        let mut machine = Machine::told(&format!(
            "throttle = 'rate'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\n{more}"
        ));
        for _ in 0..30 {
            machine.step([READS_SLOWLY, WRITES, WRITES]);
        }
        let held: Vec<_> = machine.regulator.holds().iter().flat_map(limited).collect();
        assert_eq!(held, limits, "{more}");
    }
}

#[test]
fn by_rate_a_volume_that_is_removed_takes_its_limit_along() {
    let mut machine = Machine::told("throttle = 'rate'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'");
    assert_eq!(limited(&machine.after(3, [READS_SLOWLY, WRITES, WRITES])), [1, 2]);
    let acl = "sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv2";
    fs::remove_dir_all(machine.tree.path().join(acl)).unwrap();
    assert_eq!(limited(&machine.after(4, [READS_SLOWLY, SILENT, WRITES])), [2]);
}

const TARGET: &str = "sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv1/tpgt_1";

/// A machine whose first volume a second initiator uses, too, from 10.0.0.14, and what the target has counted
/// of both in MiB.
struct Shared {
    machine: Machine,
    counted: [(u64, u64); 2],
    ticks: u64,
}

impl Shared {
    const USERS: [&str; 2] = ["iqn.2026-01.lab:initiator1", "iqn.2026-01.lab:other"];
    /// What the volume does in a tenth of a second: 0.5 MiB of reads, and 2.5 MiB of writes.
    const BUSY: Load = Load { reads: 128, read_ms: 1_024, writes: 40, in_flight: 4 };

    fn new() -> Self {
        let machine = Machine::new("");
        let at = machine.tree.path().join(TARGET);
        let [first, other] = Self::USERS.map(|name| at.join("acls").join(name));
        let info = fs::read_to_string(first.join("info")).unwrap().replace("10.0.0.11", "10.0.0.14");
        fs::create_dir_all(other.join("lun_0/statistics/scsi_auth_intr")).unwrap();
        fs::write(other.join("info"), info).unwrap();
        symlink("../../../../../../../target/iscsi/iqn/tpgt_1/lun/lun_0", other.join("lun_0/link")).unwrap();
        fs::write(at.join("../fabric_statistics/iscsi_instance/sessions"), "2\n").unwrap();
        // As they were captured, of the first.
        let shared = Self { machine, counted: [(0, 6); 2], ticks: 0 };
        shared.write_counted();
        shared
    }

    fn write_counted(&self) {
        for ((read, written), name) in self.counted.iter().zip(Self::USERS) {
            let at = self.machine.tree.path().join(TARGET).join("acls").join(name);
            let at = at.join("lun_0/statistics/scsi_auth_intr");
            fs::write(at.join("read_mbytes"), format!("{read}\n")).unwrap();
            fs::write(at.join("write_mbytes"), format!("{written}\n")).unwrap();
        }
    }

    /// A tenth of a second in which the two read and write a part of what the volume does.
    fn step(&mut self, reads: [bool; 2], writes: [bool; 2]) -> Vec<IpAddr> {
        self.ticks += 1;
        // The target counts whole MiB: half a second's reads and writes.
        if self.ticks.is_multiple_of(5) {
            let writers = writes.iter().filter(|writes| **writes).count() as u64;
            for (user, (read, written)) in self.counted.iter_mut().enumerate() {
                *read += if reads[user] { 2 } else { 0 };
                *written += if writes[user] { 12 / writers } else { 0 };
            }
            self.write_counted();
        }
        self.machine.step([Self::BUSY, SILENT, SILENT]);
        members(&self.machine.regulator.holds()[0])
    }
}

#[test]
fn of_two_who_share_a_volume_who_only_reads_is_never_a_member() {
    let mut shared = Shared::new();
    for _ in 0..30 {
        shared.step([true, false], [false, true]);
    }
    // At first nobody can know, and both are.
    for tick in 0..100 {
        let members = shared.step([true, false], [false, true]);
        assert!(tick < 50 || members == addresses(&[4]), "{members:?} after {tick} ticks");
    }
}

#[test]
fn who_begins_to_write_a_shared_volume_is_found_at_whatever_time_and_lost_when_it_stops() {
    for phase in (0..20).step_by(3) {
        let mut shared = Shared::new();
        for _ in 0..60 + phase {
            shared.step([true; 2], [true, false]);
        }
        assert_eq!(shared.step([true; 2], [true, false]), addresses(&[1]), "{phase}");
        let joined = (1..40).find(|_| shared.step([true; 2], [true; 2]) == addresses(&[1, 4])).unwrap();
        assert!(joined <= 30, "begun {phase} ticks after a look, found after {joined}");
        let left = (1..80).find(|_| shared.step([true; 2], [true, false]) == addresses(&[1])).unwrap();
        assert!(left <= 60, "stopped {phase} ticks after a look, lost after {left}");
    }
}
