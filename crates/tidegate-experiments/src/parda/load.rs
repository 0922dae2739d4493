//! The array without control: response time against workload and load (§5.1), and what static windows do
//! (§5.2).

use tidegate_sim::scenario::SizeWeights;

use super::super::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, SeedTrial, TimeSpan, Tolerance,
};
use super::{embedded, mean, of, ratio};
use crate::RunResult;
use crate::trial::spread;

/// Fig. 5's settings: all of the paper's sizes, and read and sequential parts from end to end.
const SIZES_KIB: [u32; 4] = [4, 32, 64, 128];
const READS: [u32; 3] = [0, 50, 100];
const SEQUENTIAL: [u32; 3] = [0, 50, 100];

/// After a minute the write-back cache is as full as it gets.
const STEADY: TimeSpan = TimeSpan::new(60.0, 120.0);

fn setting(kib: u32, reads: u32, sequential: u32) -> String {
    format!("{kib} KiB, {reads} % reads, {sequential} % sequential")
}

fn settings() -> impl Iterator<Item = (u32, u32, u32)> {
    SIZES_KIB.into_iter().flat_map(|kib| {
        READS
            .into_iter()
            .flat_map(move |reads| SEQUENTIAL.into_iter().map(move |sequential| (kib, reads, sequential)))
    })
}

fn latency_at(trial: &SeedTrial<'_>, (kib, reads, sequential): (u32, u32, u32)) -> Option<f64> {
    trial.run(&setting(kib, reads, sequential))?.latency(STEADY)
}

fn megabytes_at(trial: &SeedTrial<'_>, at: (u32, u32, u32)) -> Option<f64> {
    let iops = trial.run(&setting(at.0, at.1, at.2))?.total_iops(STEADY)?;
    Some(iops * f64::from(at.0) * 1024.0 / 1e6)
}

type AtSetting = fn(&SeedTrial<'_>, (u32, u32, u32)) -> Option<f64>;

/// The least and the greatest over all settings.
fn extremes(trial: &SeedTrial<'_>, number: AtSetting) -> Option<(f64, f64)> {
    settings().try_fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), at| {
        let value = number(trial, at)?;
        Some((least.min(value), most.max(value)))
    })
}

pub(super) fn fig5() -> Experiment {
    let scenario = embedded(include_str!("../../../../scenarios/parda/fig5.toml"));
    let runs = settings()
        .map(|(kib, reads, sequential)| {
            NamedRun::new(setting(kib, reads, sequential), scenario.clone()).but(|scenario| {
                for step in
                    scenario.vms.iter_mut().flat_map(|vm| &mut vm.workloads).flat_map(|load| &mut load.steps)
                {
                    step.sizes = SizeWeights::fixed(kib * 1024);
                    step.reads = f64::from(reads) / 100.0;
                    step.sequential = f64::from(sequential) / 100.0;
                }
            })
        })
        .collect();
    Experiment {
        runs,
        quantities: vec![
            JudgedQuantity::new(
                "response time of sequential 4 KiB reads : least of all",
                Tolerance::AtMost(1.0 + 1e-9),
                |trial| ratio(latency_at(trial, (4, 100, 100)), Some(extremes(trial, latency_at)?.0)),
            )
            .paper(1.0),
            JudgedQuantity::new(
                "response time of random 128 KiB writes : greatest of all",
                Tolerance::AtLeast(1.0 - 1e-9),
                |trial| ratio(latency_at(trial, (128, 0, 0)), Some(extremes(trial, latency_at)?.1)),
            )
            .paper(1.0),
            JudgedQuantity::new("response time, greatest : least", Tolerance::AtLeast(20.0), |trial| {
                extremes(trial, latency_at).map(|(least, most)| most / least)
            }),
            JudgedQuantity::new("bandwidth, greatest : least", Tolerance::AtLeast(20.0), |trial| {
                extremes(trial, megabytes_at).map(|(least, most)| most / least)
            })
            .paper(22.1),
            JudgedQuantity::new("least bandwidth", Tolerance::near(8.0, 25.0), |trial| {
                Some(extremes(trial, megabytes_at)?.0)
            })
            .paper(8.0)
            .unit("MB/s"),
            JudgedQuantity::new("greatest bandwidth", Tolerance::near(177.0, 25.0), |trial| {
                Some(extremes(trial, megabytes_at)?.1)
            })
            .paper(177.0)
            .unit("MB/s"),
            JudgedQuantity::new(
                "random reads: response time at 128 KiB : at 4 KiB",
                Tolerance::Between(1.0, 4.0),
                |trial| ratio(latency_at(trial, (128, 100, 0)), latency_at(trial, (4, 100, 0))),
            ),
        ],
        figures: vec![
            ReportedFigure::new("least response time", "ms", None, |trial| {
                Some(extremes(trial, latency_at)?.0)
            }),
            ReportedFigure::new("greatest response time", "ms", None, |trial| {
                Some(extremes(trial, latency_at)?.1)
            }),
        ],
        plots: vec![Plot {
            title: "Response time of reads, by how many of them are sequential".to_owned(),
            unit: "ms",
            over: "KiB",
            marks: Vec::new(),
            lines: Box::new(|trial| {
                let line = |sequential: u32| {
                    let point = |kib: u32| Some((f64::from(kib), latency_at(trial, (kib, 100, sequential))?));
                    PlotLine {
                        name: format!("{sequential} %"),
                        points: SIZES_KIB.into_iter().filter_map(point).collect(),
                    }
                };
                SEQUENTIAL.into_iter().map(line).collect()
            }),
        }],
        ..Experiment::of("parda.fig5")
    }
}

const HOSTS: [&str; 5] = ["1 host", "2 hosts", "3 hosts", "4 hosts", "5 hosts"];

pub(super) fn fig6() -> Experiment {
    let scenario = embedded(include_str!("../../../../scenarios/parda/fig6.toml"));
    let runs = (1..)
        .zip(HOSTS)
        .map(|(hosts, name)| {
            NamedRun::new(name, scenario.clone()).but(|scenario| {
                scenario.hosts.truncate(hosts);
                scenario.vms.truncate(hosts);
            })
        })
        .collect();
    let throughput = |trial: &SeedTrial<'_>, name: &str| trial.run(name)?.total_iops(STEADY);
    let latency = |trial: &SeedTrial<'_>, name: &str| trial.run(name)?.latency(STEADY);
    let greatest = move |trial: &SeedTrial<'_>| {
        HOSTS.iter().try_fold(0.0, |most: f64, name| Some(most.max(throughput(trial, name)?)))
    };
    let over_hosts = |title: &str, unit, number: fn(&RunResult, TimeSpan) -> Option<f64>| Plot {
        title: title.to_owned(),
        unit,
        over: "hosts",
        marks: Vec::new(),
        lines: Box::new(move |trial| {
            let point =
                |(hosts, (_, run)): (u32, (&str, &RunResult))| Some((f64::from(hosts), number(run, STEADY)?));
            vec![PlotLine {
                name: "all hosts".to_owned(),
                points: (1..).zip(trial.runs()).filter_map(point).collect(),
            }]
        }),
    };
    Experiment {
        runs,
        quantities: vec![
            JudgedQuantity::new(
                "throughput of three hosts : greatest",
                Tolerance::AtLeast(0.98),
                move |trial| ratio(throughput(trial, "3 hosts"), greatest(trial)),
            )
            .paper(1.0),
            JudgedQuantity::new(
                "throughput of one host : three hosts",
                Tolerance::AtMost(0.95),
                move |trial| ratio(throughput(trial, "1 host"), throughput(trial, "3 hosts")),
            ),
            JudgedQuantity::new(
                "response time of five hosts : three hosts",
                Tolerance::Between(1.4, 2.0),
                move |trial| ratio(latency(trial, "5 hosts"), latency(trial, "3 hosts")),
            ),
        ],
        figures: HOSTS
            .into_iter()
            .flat_map(|name| {
                [
                    ReportedFigure::new(format!("throughput of {name}"), "IO/s", None, move |trial| {
                        throughput(trial, name)
                    }),
                    ReportedFigure::new(format!("response time of {name}"), "ms", None, move |trial| {
                        latency(trial, name)
                    }),
                ]
            })
            .collect(),
        plots: vec![
            over_hosts("Throughput of all hosts", "IO/s", RunResult::total_iops),
            over_hosts("Response time", "ms", RunResult::latency),
        ],
        ..Experiment::of("parda.fig6")
    }
}

pub(super) fn fig7() -> Experiment {
    const EQUAL: [&str; 4] = ["vm-1", "vm-2", "vm-3", "vm-4"];
    const THROTTLED: [&str; 3] = ["vm-5", "vm-6", "vm-7"];
    let all = NamedRun::new("32 for all", embedded(include_str!("../../../../scenarios/parda/fig7.toml")));
    let some = NamedRun { name: "16 for three".to_owned(), ..all.clone() }.but(|scenario| {
        for host in &mut scenario.hosts[4..] {
            host.depth = 16;
        }
    });
    let iops = |run: &RunResult| {
        let of = |vm| run.mean(vm, STEADY, |sample| Some(sample.iops));
        Some((mean(THROTTLED.map(of))?, mean(EQUAL.map(of))?))
    };
    let felt = |run: &RunResult| {
        let of = |vm| run.felt(vm, STEADY);
        Some((mean(THROTTLED.map(of))?, mean(EQUAL.map(of))?))
    };
    let device = |run: &RunResult| {
        let throttled = ["host-5", "host-6", "host-7"].map(|host| run.device_latency(host, STEADY));
        let others = ["host-1", "host-2", "host-3", "host-4"].map(|host| run.device_latency(host, STEADY));
        ratio(mean(throttled), mean(others))
    };
    Experiment {
        runs: vec![all, some],
        quantities: vec![
            JudgedQuantity::new(
                "throughput, throttled hosts : others",
                Tolerance::near(0.494, 10.0),
                of("16 for three", move |run| iops(run).map(|(throttled, others)| throttled / others)),
            )
            .paper(0.494),
            JudgedQuantity::new(
                "response time in the virtual machine, throttled : others",
                Tolerance::near(2.17, 15.0),
                of("16 for three", move |run| felt(run).map(|(throttled, others)| throttled / others)),
            )
            .paper(2.17),
            JudgedQuantity::new(
                "device response time, throttled : others",
                Tolerance::near(1.0, 10.0),
                of("16 for three", device),
            )
            .paper(1.0),
            JudgedQuantity::new(
                "device response time, 16 for three : 32 for all",
                Tolerance::near(0.798, 10.0),
                |trial| {
                    ratio(
                        trial.run("16 for three")?.latency(STEADY),
                        trial.run("32 for all")?.latency(STEADY),
                    )
                },
            )
            .paper(0.798),
        ],
        figures: vec![
            ReportedFigure::new(
                "throughput, throttled",
                "IO/s",
                Some(42.0),
                of("16 for three", move |run| Some(iops(run)?.0)),
            ),
            ReportedFigure::new(
                "throughput, others",
                "IO/s",
                Some(85.0),
                of("16 for three", move |run| Some(iops(run)?.1)),
            ),
            ReportedFigure::new(
                "response time, throttled",
                "ms",
                Some(780.0),
                of("16 for three", move |run| Some(felt(run)?.0)),
            ),
            ReportedFigure::new(
                "response time, others",
                "ms",
                Some(360.0),
                of("16 for three", move |run| Some(felt(run)?.1)),
            ),
            ReportedFigure::new(
                "device response time, 32 for all",
                "ms",
                Some(470.0),
                of("32 for all", |run| run.latency(STEADY)),
            ),
            ReportedFigure::new(
                "device response time, 16 for three",
                "ms",
                Some(375.0),
                of("16 for three", |run| run.latency(STEADY)),
            ),
        ],
        ..Experiment::of("parda.fig7")
    }
}

pub(super) fn table2() -> Experiment {
    let one = NamedRun::new("phase 1", embedded(include_str!("../../../../scenarios/parda/table2.toml")));
    let two = NamedRun { name: "phase 2".to_owned(), ..one.clone() }.but(|scenario| {
        for host in &mut scenario.hosts[2..] {
            host.depth = 16;
        }
    });
    let throughput = |trial: &SeedTrial<'_>, phase: &str, hosts: [&str; 2]| {
        let run = trial.run(phase)?;
        mean(hosts.map(|host| run.iops(host, STEADY)))
    };
    let preferred = |trial: &SeedTrial<'_>, phase: &str| {
        let run = trial.run(phase)?;
        ratio(run.iops("host-4", STEADY), run.iops("host-3", STEADY))
    };
    Experiment {
        runs: vec![one, two],
        quantities: vec![
            JudgedQuantity::new(
                "throughput, throttled hosts : others, phase 2 against phase 1",
                Tolerance::near(0.5, 20.0),
                move |trial| {
                    let throttled = |phase| throughput(trial, phase, ["host-3", "host-4"]);
                    let others = |phase| throughput(trial, phase, ["host-1", "host-2"]);
                    let share = |phase| ratio(throttled(phase), others(phase));
                    ratio(share("phase 2"), share("phase 1"))
                },
            )
            .paper(0.5),
            JudgedQuantity::new(
                "phase 1: throughput of host 4 (sequential) : host 3 (random)",
                Tolerance::AtLeast(1.1),
                move |trial| preferred(trial, "phase 1"),
            ),
            JudgedQuantity::new(
                "phase 2: throughput of host 4 : host 3",
                Tolerance::AtLeast(1.1),
                move |trial| preferred(trial, "phase 2"),
            ),
        ],
        figures: ["host-1", "host-2", "host-3", "host-4"]
            .into_iter()
            .flat_map(|host| {
                ["phase 1", "phase 2"].map(|phase| {
                    ReportedFigure::new(
                        format!("{phase}: throughput of {host}"),
                        "IO/s",
                        None,
                        of(phase, move |run| run.iops(host, STEADY)),
                    )
                })
            })
            .collect(),
        ..Experiment::of("parda.table2")
    }
}

/// Table 4: each host's requests per second and milliseconds.
pub(super) const TABLE4: [(&str, f64, f64); 6] = [
    ("host-1", 525.0, 59.0),
    ("host-2", 570.0, 55.0),
    ("host-3", 570.0, 55.0),
    ("host-4", 560.0, 57.0),
    ("host-5", 430.0, 77.0),
    ("host-6", 500.0, 62.0),
];

/// The stretch of table 4 that counts.
pub(super) const MEASURED: TimeSpan = TimeSpan::new(60.0, 145.0);

pub(super) fn table4() -> Experiment {
    let run = NamedRun::new("uncontrolled", embedded(include_str!("../../../../scenarios/parda/fig9.toml")))
        .but(super::uncontrolled);
    Experiment {
        runs: vec![run],
        quantities: vec![
            JudgedQuantity::new(
                "throughput of all",
                Tolerance::near(3130.0, 10.0),
                of("uncontrolled", |run| run.total_iops(MEASURED)),
            )
            .paper(3130.0)
            .unit("IO/s"),
            JudgedQuantity::new(
                "response time",
                Tolerance::near(60.0, 10.0),
                of("uncontrolled", |run| run.latency(MEASURED)),
            )
            .paper(60.0)
            .unit("ms"),
        ],
        figures: TABLE4
            .into_iter()
            .flat_map(|(host, iops, latency)| {
                [
                    ReportedFigure::new(
                        format!("throughput of {host}"),
                        "IO/s",
                        Some(iops),
                        of("uncontrolled", move |run| run.iops(host, MEASURED)),
                    ),
                    ReportedFigure::new(
                        format!("response time of {host}"),
                        "ms",
                        Some(latency),
                        of("uncontrolled", move |run| run.device_latency(host, MEASURED)),
                    ),
                ]
            })
            .chain([ReportedFigure::new(
                "throughput, greatest : least",
                "",
                Some(570.0 / 430.0),
                of("uncontrolled", |run| {
                    spread(run.hosts().into_iter().map(|host| run.iops(host, MEASURED)))
                }),
            )])
            .collect(),
        ..Experiment::of("parda.table4")
    }
}
