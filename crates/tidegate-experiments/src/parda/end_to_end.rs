//! From virtual machine to array: shares of virtual machines on several hosts (§2, §5.4, §5.5), and a law for
//! each virtual machine (§3.3).

use tidegate_sim::Scenario;
use tidegate_sim::scenario::{DiskPlace, LawScope, VirtualDisk};
use tidegate_units::Bytes;

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, TimeSpan, Tolerance};
use super::{by_host, embedded, mean, of, of_requests, ratio, uncontrolled, usual_plots};
use crate::RunResult;

pub(super) const SETTLED: TimeSpan = TimeSpan::new(100.0, 300.0);

pub(super) fn fig12_scenario() -> Scenario {
    embedded(include_str!("../../../../scenarios/parda/fig12.toml"))
}

fn ops_ratio(above: &'static str, below: &'static str) -> impl Fn(&RunResult) -> Option<f64> {
    move |run| ratio(run.ops(above, SETTLED), run.ops(below, SETTLED))
}

pub(super) fn hosts_one_to_two(run: &RunResult) -> Option<f64> {
    ratio(run.host_ops("host-1", SETTLED), run.host_ops("host-2", SETTLED))
}

fn micro_three_to_four(run: &RunResult) -> Option<f64> {
    ratio(run.iops("host-3", SETTLED), run.iops("host-4", SETTLED))
}

pub(super) fn table1() -> Experiment {
    let run = NamedRun::new("uncontrolled", fig12_scenario()).but(uncontrolled);
    Experiment {
        runs: vec![run],
        quantities: vec![
            JudgedQuantity::new(
                "operations, host 1 : host 2",
                Tolerance::near(1.0, 15.0),
                of("uncontrolled", hosts_one_to_two),
            )
            .paper(0.973),
            JudgedQuantity::new(
                "throughput, host 3 : host 4",
                Tolerance::near(1.0, 15.0),
                of("uncontrolled", micro_three_to_four),
            )
            .paper(0.973),
            JudgedQuantity::new(
                "operations within host 1, 200 : 100 shares",
                Tolerance::near(2.0, 7.0),
                of("uncontrolled", ops_ratio("oltp-1a", "oltp-1b")),
            )
            .paper(1.99),
            JudgedQuantity::new(
                "operations within host 2, 100 : 100 shares",
                Tolerance::near(1.0, 7.0),
                of("uncontrolled", ops_ratio("oltp-2a", "oltp-2b")),
            )
            .paper(1.0),
        ],
        figures: [
            ("oltp-1a", 823.0),
            ("oltp-1b", 413.0),
            ("oltp-2a", 635.0),
            ("oltp-2b", 635.0),
            ("micro-3", 710.0),
            ("micro-4", 730.0),
        ]
        .into_iter()
        .map(|(vm, ops)| {
            ReportedFigure::new(vm, "Ops/s", Some(ops), of("uncontrolled", move |run| run.ops(vm, SETTLED)))
        })
        .collect(),
        plots: vec![by_host("Throughput", "IO/s", "uncontrolled", Vec::new(), RunResult::iops)],
        ..Experiment::of("parda.table1")
    }
}

/// Returns the quantities that judge how the machines of each of two hosts share their host's throughput.
fn machines(run: &'static str) -> Vec<JudgedQuantity> {
    vec![
        JudgedQuantity::new(
            "operations within host 1, 200 : 100 shares",
            Tolerance::near(2.0, 7.0),
            of(run, ops_ratio("oltp-1a", "oltp-1b")),
        )
        .paper(2.14),
        JudgedQuantity::new(
            "operations within host 2, 100 : 100 shares",
            Tolerance::near(1.0, 7.0),
            of(run, ops_ratio("oltp-2a", "oltp-2b")),
        )
        .paper(1.01),
    ]
}

const HOSTS_3_TO_2: &str = "operations, host 1 : host 2, 300 : 200 shares";

fn hosts(run: &'static str) -> JudgedQuantity {
    JudgedQuantity::new(HOSTS_3_TO_2, Tolerance::near(1.5, 7.0), of(run, hosts_one_to_two)).paper(1.37)
}

pub(super) fn quantities(run: &'static str) -> Vec<JudgedQuantity> {
    let mut all = machines(run);
    all.push(hosts(run));
    all
}

pub(super) fn fig12() -> Experiment {
    let parda = NamedRun::new("parda", fig12_scenario());
    let requests = NamedRun { name: "requests".to_owned(), ..parda.clone() }.but(of_requests);
    let mut quantities = machines("parda");
    quantities
        .push(JudgedQuantity { name: format!("shares of requests: {HOSTS_3_TO_2}"), ..hosts("requests") });
    for (host, share) in [("host-1", 1.5), ("host-3", 1.0), ("host-4", 0.5)] {
        quantities.push(
            JudgedQuantity::new(
                format!("window of {host} : host-2"),
                Tolerance::near(share, 10.0),
                of("parda", move |run| ratio(run.window(host, SETTLED), run.window("host-2", SETTLED))),
            )
            .paper(share),
        );
    }
    quantities.push(JudgedQuantity::new(
        "response time to 𝓛 + Σβ/C",
        Tolerance::near(1.0, 10.0),
        of("parda", |run| run.latency_to_equilibrium(25.0, SETTLED)),
    ));
    Experiment {
        runs: vec![parda, requests],
        quantities,
        figures: [
            ("oltp-1a", 1266.0),
            ("oltp-1b", 591.0),
            ("oltp-2a", 681.0),
            ("oltp-2b", 673.0),
            ("micro-3", 740.0),
            ("micro-4", 400.0),
        ]
        .into_iter()
        .map(|(vm, ops)| {
            ReportedFigure::new(vm, "Ops/s", Some(ops), of("parda", move |run| run.ops(vm, SETTLED)))
        })
        .chain([
            ReportedFigure::new(
                format!("shares of slots: {HOSTS_3_TO_2}"),
                "",
                Some(1.37),
                of("parda", hosts_one_to_two),
            ),
            ReportedFigure::new(
                "throughput, host 3 : host 4",
                "",
                Some(1.85),
                of("parda", micro_three_to_four),
            ),
            ReportedFigure::new(
                "response time to 𝓛",
                "",
                Some(1.0),
                of("parda", |run| Some(run.latency(SETTLED)? / 25.0)),
            ),
            ReportedFigure::new("Σβ/C", "ms", None, of("parda", |run| run.offset(SETTLED))),
        ])
        .collect(),
        plots: usual_plots("parda", 25.0),
        ..Experiment::of("parda.fig12")
    }
}

/// In the order of the array. Each place and the one opposite, seen from the middle, belong to hosts whose
/// machines all in all are equally well placed.
const WELL_PLACED: [&str; 6] = ["oltp-1a", "micro-3", "oltp-2a", "oltp-1b", "micro-4", "oltp-2b"];

pub(super) fn placed_scenario() -> Scenario {
    let mut scenario = fig12_scenario();
    for vm in &mut scenario.vms {
        let number =
            WELL_PLACED.iter().position(|name| *name == vm.name.as_str()).unwrap_or(WELL_PLACED.len());
        for disk in &mut vm.disks {
            let size = VirtualDisk::DEFAULT_SIZE;
            disk.place = DiskPlace::At { offset: Bytes::new(size.get() * number as u64), size };
        }
    }
    scenario
}

pub(super) fn fig12_placed() -> Experiment {
    Experiment {
        runs: vec![NamedRun::new("placed", placed_scenario())],
        quantities: quantities("placed"),
        figures: WELL_PLACED
            .into_iter()
            .map(|vm| ReportedFigure::new(vm, "Ops/s", None, of("placed", move |run| run.ops(vm, SETTLED))))
            .chain([ReportedFigure::new(
                "window of host 1 : host 2",
                "",
                Some(1.5),
                of("placed", |run| ratio(run.window("host-1", SETTLED), run.window("host-2", SETTLED))),
            )])
            .collect(),
        plots: usual_plots("placed", 25.0),
        ..Experiment::of("parda.fig12-placed")
    }
}

pub(super) fn fig13() -> Experiment {
    const BEFORE: TimeSpan = TimeSpan::new(100.0, 140.0);
    const SOON: TimeSpan = TimeSpan::new(146.0, 160.0);
    const IDLE: TimeSpan = TimeSpan::new(260.0, 300.0);
    const RESUMED: TimeSpan = TimeSpan::new(316.0, 330.0);
    const AFTER: TimeSpan = TimeSpan::new(400.0, 450.0);
    let parda = NamedRun::new("parda", embedded(include_str!("../../../../scenarios/parda/fig13.toml")));
    let beta = |name: &str, span, value: f64| {
        JudgedQuantity::new(
            name,
            Tolerance::near(value, 5.0),
            of("parda", move |run| run.beta("host-1", span)),
        )
        .paper(value)
    };
    let windows = |name: &str, above: &'static str, below: &'static str, span, value: f64| {
        JudgedQuantity::new(
            name,
            Tolerance::near(value, 10.0),
            of("parda", move |run| ratio(run.window(above, span), run.window(below, span))),
        )
        .paper(value)
    };
    Experiment {
        runs: vec![parda],
        quantities: vec![
            beta("β of host 1 before", BEFORE, 6.0),
            beta("β of host 1 from 6 s after the stop", SOON, 4.0),
            beta("β of host 1 from 6 s after the resumption", RESUMED, 6.0),
            windows("before: window of host 1 : host 2", "host-1", "host-2", BEFORE, 1.5),
            windows("by 300 s: window of host 1 : host 2", "host-1", "host-2", IDLE, 1.0),
            windows("by 300 s: window of host 4 : host 1", "host-4", "host-1", IDLE, 0.5),
            windows("after: window of host 1 : host 2", "host-1", "host-2", AFTER, 1.5),
        ],
        figures: vec![ReportedFigure::new(
            "while idle: operations of the other machine on host 1 : before",
            "",
            None,
            of("parda", |run| ratio(run.ops("oltp-1a", IDLE), run.ops("oltp-1a", BEFORE))),
        )],
        plots: std::iter::once(by_host("β", "", "parda", Vec::new(), RunResult::beta))
            .chain(usual_plots("parda", 25.0))
            .collect(),
        ..Experiment::of("parda.fig13")
    }
}

pub(super) fn law_per_vm(scenario: &mut Scenario) {
    for host in &mut scenario.hosts {
        host.scope = LawScope::Vm;
    }
}

pub(super) fn per_vm() -> Experiment {
    const LATE: TimeSpan = TimeSpan::new(200.0, 400.0);
    /// Six machines per host: two each with 50, 100 and 200 shares.
    const HOSTS: [&str; 4] = ["host-1", "host-2", "host-3", "host-4"];
    let small = NamedRun::new(
        "small shares, a law per host",
        embedded(include_str!("../../../../scenarios/parda/per-vm.toml")),
    );
    let runs = vec![
        NamedRun::new("fig. 12, a law per VM", fig12_scenario()).but(law_per_vm),
        NamedRun { name: "small shares, a law per VM".to_owned(), ..small.clone() }.but(law_per_vm),
        small,
    ];
    // Machine `k` of host `h` is `vm-h-k`: 1 and 2 have 50 shares, 3 and 4 have 100, 5 and 6 have 200.
    let rate = |run: &RunResult, machines: [u32; 2]| {
        let of_host =
            |host: &str| {
                let number = host.trim_start_matches("host-");
                mean(machines.map(|machine| {
                    run.mean(&format!("vm-{number}-{machine}"), LATE, |sample| Some(sample.iops))
                }))
            };
        mean(HOSTS.map(of_host))
    };
    let mut quantities = self::quantities("fig. 12, a law per VM");
    for run in ["small shares, a law per host", "small shares, a law per VM"] {
        for (name, machines, share) in [("100", [3, 4], 2.0), ("200", [5, 6], 4.0)] {
            quantities.push(JudgedQuantity::new(
                format!("{run}: throughput of {name} : 50 shares"),
                Tolerance::near(share, 10.0),
                of(run, move |run| ratio(rate(run, machines), rate(run, [1, 2]))),
            ));
        }
        quantities.push(JudgedQuantity::new(
            format!("{run}: throughput of all : capacity"),
            Tolerance::near(1.0, 2.0),
            of(run, |run| Some(run.total_iops(LATE)? / 1000.0)),
        ));
    }
    quantities.push(JudgedQuantity::new(
        "small shares, a law per VM: window of a machine with 50 shares",
        Tolerance::Between(0.45, 0.75),
        of("small shares, a law per VM", |run| run.mean("vm-1-1", LATE, |sample| sample.window)),
    ));
    Experiment {
        runs,
        quantities,
        figures: vec![
            ReportedFigure::new(
                "small shares, a law per host: response time",
                "ms",
                Some(30.0),
                of("small shares, a law per host", |run| run.latency(LATE)),
            ),
            ReportedFigure::new(
                "small shares, a law per VM: response time",
                "ms",
                Some(30.0),
                of("small shares, a law per VM", |run| run.latency(LATE)),
            ),
        ],
        plots: vec![
            by_host(
                "Windows of a host's machines together, fig. 12",
                "I/Os",
                "fig. 12, a law per VM",
                Vec::new(),
                RunResult::window,
            ),
            by_host(
                "Windows of a host's machines together, small shares",
                "I/Os",
                "small shares, a law per VM",
                Vec::new(),
                RunResult::window,
            ),
        ],
        ..Experiment::of("parda.per-vm")
    }
}
