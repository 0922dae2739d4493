//! The scenarios: of every paper those that the simulator of hosts has, without their laws.

use std::time::Duration;

use tidegate_control::{Band, Bands};
use tidegate_units::{ConsumerName, Iops};

use super::contest::{Contest, SETTLES};
use crate::TimeSpan;

/// All of them, by paper.
pub(super) fn all() -> Vec<Contest> {
    let mut all = vec![
        reader("bjorgeengen.20ms", 20),
        reader("bjorgeengen.15ms", 15),
        reader("bjorgeengen.10ms", 10),
        capacity_falls(),
        shares_of_an_array(),
    ];
    all.extend(contracts());
    all.extend(one_storage());
    all.extend([moves(), moves_with_goal(), isolation(), grows("triage.fig10", 826.0)]);
    all.push(grows("triage.fig10-doubled", 1_294.0));
    all
}

/// Bjørgeengen's figures 12 to 16: a reader that asks for little, and three machines of four writers each, 20
/// s on and 10 s off.
fn reader(id: &'static str, target_ms: u32) -> Contest {
    let text = r#"
name = "reader and writers"
duration = "130s"
[array.vg0]
preset = "sata-stripe"
[host.target]
[workload.reader]
rate = "64 IO/s"
size = "4KiB"
limit = 64
[workload.writer]
outstanding = 4
size = "256KiB"
reads = 0.0
sequential = 1.0
cycle = { on = "20s", off = "10s", delay = "10s" }
[vm.reader]
workload = "reader"
protected = true
[vm.writers]
count = 3
workload = "writer"
"#;
    let bursts: Vec<TimeSpan> = (0..4)
        .map(|burst| 10.0 + 30.0 * f64::from(burst))
        .map(|from| TimeSpan::new(from, from + 20.0))
        .collect();
    Contest {
        comes_and_goes: true,
        capacity: 200.0,
        ios_per_request: 4.0,
        shared: bursts.iter().map(|burst| TimeSpan::new(burst.from + SETTLES, burst.to)).collect(),
        bursts,
        ..Contest::new(id, text)
    }
    .group(&["reader"], &[(0.0, f64::from(target_ms))])
}

/// PARDA's figure 2.
fn capacity_falls() -> Contest {
    let text = r#"
name = "capacity falls"
duration = "120s"
[array.array]
rate = "400 IO/s"
changes = [{ at = "60s", rate = "100 IO/s" }]
[host.host]
count = 3
depth = 192
[workload.backlogged]
outstanding = 192
[vm.vm-1]
host = "host-1"
shares = 100
workload = "backlogged"
[vm.vm-2]
host = "host-2"
shares = 200
workload = "backlogged"
[vm.vm-3]
host = "host-3"
shares = 300
workload = "backlogged"
"#;
    Contest {
        capacity: 400.0,
        shared: vec![TimeSpan::new(30.0, 60.0), TimeSpan::new(90.0, 120.0)],
        ..Contest::new("parda.fig2", text)
    }
    .group(&["vm-1", "vm-2", "vm-3"], &[(0.0, 200.0)])
}

/// PARDA's figure 8, for a minute.
fn shares_of_an_array() -> Contest {
    let vm = |number: u32, shares: u32| {
        let offset = 4 + 20 * (number - 1);
        format!(
            "[vm.vm-{number}]\nhost = \"host-{number}\"\nshares = {shares}\nworkload = \"reads\"\n\
             offset = \"{offset}GiB\"\nsize = \"16GiB\"\n"
        )
    };
    let vms: String =
        [(1, 100), (2, 100), (3, 200), (4, 200)].map(|(number, shares)| vm(number, shares)).concat();
    let text = format!(
        r#"
name = "shares of an array"
duration = "60s"
[array.lun]
preset = "fc-raid5"
[host.host]
count = 4
[workload.reads]
outstanding = 32
size = "16KiB"
{vms}"#
    );
    Contest {
        capacity: 3_400.0,
        shared: vec![TimeSpan::new(30.0, 60.0)],
        ..Contest::new("parda.fig8", &text)
    }
    .group(&["vm-1", "vm-2", "vm-3", "vm-4"], &[(0.0, 25.0)])
}

/// Lee's cases 2 to 4. The disk has a queue of its own here, which is what other laws can keep short.
fn contracts() -> [Contest; 3] {
    let text = |during: &str, cycle: &str| {
        format!(
            r#"
name = "contracts"
duration = "60s"
[array.dnes]
preset = "dnes-309170w"
[disk.all]
array = "dnes"
size = "8704MiB"
[host.server]
batch = {{ requests = 0 }}
[vm.w1]
shares = 200
workload = "w1"
disk = "all"
goal = "35ms"
contract = {{ iops = "40 IO/s", response_time = "35ms", expected = "28ms", bucket = 8 }}
[vm.w2]
shares = 100
workload = "w2"
disk = "all"
goal = "38ms"
contract = {{ iops = "20 IO/s", response_time = "38ms", expected = "30.4ms", bucket = 4 }}
[workload.w1]
outstanding = 16
size = "4KiB"
[workload.w2]
outstanding = 16
size = "4KiB"
{during}
{cycle}
"#
        )
    };
    let of = |id, text: &str| Contest { capacity: 100.0, ..Contest::new(id, text) };
    let groups = |contest: Contest| contest.group(&["w1"], &[(0.0, 35.0)]).group(&["w2"], &[(0.0, 38.0)]);
    let begins = of("lee.case2", &text("during = \"30s..\"", ""));
    let pulses = of("lee.case3", &text("", "cycle = { on = \"5s\", off = \"5s\", delay = \"5s\" }"));
    let both = of("lee.case4", &text("", ""));
    [
        groups(Contest {
            bursts: vec![TimeSpan::new(0.0, 30.0), TimeSpan::new(30.0, 60.0)],
            shared: vec![TimeSpan::new(35.0, 60.0)],
            ..begins
        }),
        groups(Contest {
            comes_and_goes: true,
            bursts: vec![TimeSpan::new(0.0, 60.0)],
            shared: (0..6)
                .map(|pulse| 5.0 + 10.0 * f64::from(pulse))
                .map(|from| TimeSpan::new(from + 1.0, from + 5.0))
                .collect(),
            ..pulses
        }),
        groups(Contest { shared: vec![TimeSpan::new(5.0, 60.0)], ..both }),
    ]
}

/// Requests per second of Triage's storages, as fitted in `experiments::triage`.
const CACHE: f64 = 960.0;
const DISK: f64 = 164.0;
const ONE: f64 = 647.0;

fn clients(seconds: u32, storage: &str, vms: &str, outstanding: u32) -> String {
    format!(
        "name = \"clients\"\nduration = \"{seconds}s\"\n[array.storage]\n{storage}\n[host.clients]\n\
         [workload.clients]\n\
         outstanding = {outstanding}\n{vms}"
    )
}

/// Triage's figures 5 and 7: laws begin at 10 s.
fn one_storage() -> [Contest; 2] {
    let of = |id, rate: f64, target: f64| {
        let text = clients(70, &format!("rate = \"{rate} IO/s\""), "[vm.clients]\nworkload = \"clients\"", 8);
        Contest { begins: Duration::from_secs(10), capacity: rate, ..Contest::new(id, &text) }
            .group(&["clients"], &[(0.0, target)])
    };
    [of("triage.fig7-cache", CACHE, 2.5), of("triage.fig7-disk", DISK, 15.0)]
}

const MOVED: &str = "rate = \"164 IO/s\"\nchanges = [{ at = \"40s\", rate = \"960 IO/s\" }]";

/// Triage's figure 8 with one target throughout, and enough clients that both storages can miss it.
fn moves() -> Contest {
    let text = clients(90, MOVED, "[vm.clients]\nworkload = \"clients\"", 32);
    Contest { capacity: CACHE, ..Contest::new("triage.fig8-one-goal", &text) }
        .group(&["clients"], &[(0.0, 15.0)])
}

/// Triage's figure 8.
fn moves_with_goal() -> Contest {
    let vm = "[vm.clients]\nworkload = \"clients\"\ngoal = \"15ms\"\n\
              goal_changes = [{ at = \"40s\", goal = \"2.5ms\" }]";
    let text = clients(90, MOVED, vm, 8);
    Contest { capacity: CACHE, ..Contest::new("triage.fig8", &text) }
        .group(&["clients"], &[(0.0, 15.0), (40.0, 2.5)])
}

fn bands(bands: &[(f64, &[(&str, f64)])]) -> Option<Bands> {
    let band = |(up_to, ratios): &(f64, &[(&str, f64)])| {
        let ratios = ratios.iter().map(|(name, ratio)| Some((ConsumerName::new(name).ok()?, *ratio)));
        Some(Band { up_to: Iops::new(*up_to), ratios: ratios.collect::<Option<_>>()? })
    };
    let bands = bands.iter().map(band).collect::<Option<_>>();
    Some(bands.and_then(|bands| Bands::new(bands).ok()).unwrap_or_else(|| panic!("bands of ours are wrong")))
}

/// Triage's figure 9. Laws without bands have shares as the bands say up to their end, and contracts of the
/// goals that the paper has.
fn isolation() -> Contest {
    let contract = |iops: u32| {
        format!(
            "contract = {{ iops = \"{iops} IO/s\", response_time = \"4ms\", expected = \"3.2ms\", \
             bucket = 8 }}"
        )
    };
    let vms = format!(
        "[vm.w1]\nshares = 900\nworkload = \"clients\"\n{}\n\
         [vm.w2]\nshares = 100\nworkload = \"clients\"\n{}",
        contract(450),
        contract(50)
    );
    let text = clients(70, &format!("rate = \"{ONE} IO/s\""), &vms, 4);
    Contest {
        bands: bands(&[(500.0, &[("w1", 0.9), ("w2", 0.1)])]),
        begins: Duration::from_secs(10),
        capacity: ONE,
        shared: vec![TimeSpan::new(15.0, 70.0)],
        ..Contest::new("triage.fig9", &text)
    }
    .group(&["w1", "w2"], &[(0.0, 4.0)])
}

/// Triage's figure 10 and table 1. Laws without bands have shares as the bands say at 500 IO/s.
fn grows(id: &'static str, after: f64) -> Contest {
    let contract = |iops: u32, ms: u32, expected: f64| {
        format!(
            "contract = {{ iops = \"{iops} IO/s\", response_time = \"{ms}ms\", expected = \"{expected}ms\", \
             bucket = 8 }}"
        )
    };
    let vms = format!(
        "[vm.w1]\nshares = 700\nworkload = \"clients\"\ngoal = \"4ms\"\n{}\n\
         [vm.w2]\nshares = 300\nworkload = \"clients\"\ngoal = \"5ms\"\n{}",
        contract(350, 4, 3.2),
        contract(50, 5, 4.0)
    );
    let storage = format!("rate = \"{ONE} IO/s\"\nchanges = [{{ at = \"30s\", rate = \"{after} IO/s\" }}]");
    let ratios: &[(f64, &[(&str, f64)])] =
        &[(100.0, &[("w1", 0.5), ("w2", 0.5)]), (400.0, &[("w1", 1.0)]), (900.0, &[("w2", 1.0)])];
    Contest {
        bands: bands(ratios),
        capacity: after,
        shared: vec![TimeSpan::new(10.0, 30.0), TimeSpan::new(35.0, 80.0)],
        ..Contest::new(id, &clients(80, &storage, &vms, 4))
    }
    .group(&["w1"], &[(0.0, 4.0)])
    .group(&["w2"], &[(0.0, 5.0)])
}

#[cfg(test)]
mod tests {
    use tidegate_device::DeviceConfig;

    use super::*;

    #[test]
    fn names_are_unique_and_every_scenario_can_be_simulated() {
        let all = all();
        for (place, contest) in all.iter().enumerate() {
            assert!(all[..place].iter().all(|other| other.id != contest.id), "{}", contest.id);
            let mut short = contest.scenario.clone();
            short.duration = Duration::from_millis(100);
            assert!(
                tidegate_sim::simulate(&short, 1, &mut tidegate_sim::SilentRecorder).is_ok(),
                "{}",
                contest.id
            );
            let phases = contest.phases();
            let whole = TimeSpan::new(contest.begins.as_secs_f64(), contest.seconds());
            assert_eq!(phases.first().map(|phase| phase.span.from), Some(whole.from));
            assert_eq!(phases.last().map(|phase| phase.span.to), Some(whole.to));
            for span in contest.shared.iter().chain(&contest.stretches()) {
                assert!(
                    whole.from <= span.from && span.from < span.to && span.to <= whole.to,
                    "{}",
                    contest.id
                );
            }
        }
    }

    #[test]
    fn in_a_phase_storage_and_targets_are_those_of_the_phase() {
        let contest = moves_with_goal();
        let phases = contest.phases();
        assert_eq!(phases.len(), 2);
        for (phase, rate, target) in [(&phases[0], DISK, 15.0), (&phases[1], CACHE, 2.5)] {
            let alone = contest.alone(phase);
            let DeviceConfig::Exponential(server) = &alone.arrays[0].device else { panic!("{alone:?}") };
            assert!((server.rate.per_second() - rate).abs() < 1e-9 && alone.arrays[0].changes.is_empty());
            assert!((contest.from(phase).groups[0].target_ms(0.0) - target).abs() < 1e-9);
        }
    }
}
