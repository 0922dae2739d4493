//! The array without control: response time against workload and load (§5.1), and what static windows do
//! (§5.2).

use tidegate_sim::scenario::Sizes;

use super::super::{Accepts, Experiment, Figure, Line, Plot, Quantity, Run, Span, Trial};
use super::{embedded, mean, of, ratio};
use crate::RunResult;
use crate::trial::spread;

/// Fig. 5's settings: all of the paper's sizes, and read and sequential parts from end to end.
const SIZES_KIB: [u32; 4] = [4, 32, 64, 128];
const READS: [u32; 3] = [0, 50, 100];
const SEQUENTIAL: [u32; 3] = [0, 50, 100];

/// After a minute the write-back cache is as full as it gets.
const STEADY: Span = Span::new(60.0, 120.0);

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

fn latency_at(trial: &Trial<'_>, (kib, reads, sequential): (u32, u32, u32)) -> Option<f64> {
    trial.run(&setting(kib, reads, sequential))?.latency(STEADY)
}

fn megabytes_at(trial: &Trial<'_>, at: (u32, u32, u32)) -> Option<f64> {
    let iops = trial.run(&setting(at.0, at.1, at.2))?.total_iops(STEADY)?;
    Some(iops * f64::from(at.0) * 1024.0 / 1e6)
}

type AtSetting = fn(&Trial<'_>, (u32, u32, u32)) -> Option<f64>;

/// The least and the greatest over all settings.
fn extremes(trial: &Trial<'_>, number: AtSetting) -> Option<(f64, f64)> {
    settings().try_fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), at| {
        let value = number(trial, at)?;
        Some((least.min(value), most.max(value)))
    })
}

pub(super) fn fig5() -> Experiment {
    let scenario = embedded(include_str!("../../../../scenarios/parda/fig5.toml"));
    let runs = settings()
        .map(|(kib, reads, sequential)| {
            Run::new(setting(kib, reads, sequential), scenario.clone()).but(|scenario| {
                for step in
                    scenario.vms.iter_mut().flat_map(|vm| &mut vm.workloads).flat_map(|load| &mut load.steps)
                {
                    step.sizes = Sizes::fixed(kib * 1024);
                    step.reads = f64::from(reads) / 100.0;
                    step.sequential = f64::from(sequential) / 100.0;
                }
            })
        })
        .collect();
    Experiment {
        id: "parda.fig5",
        title: "Response time against size, sequentiality and reads, one host, 8 outstanding",
        paper: "One virtual machine with 8 I/Os pending; reads 0 to 100 %, sizes 4, 32, 64 and 128 KB, sequential 0 to 100 %. \
                The least latency is that of sequential 4 KB reads, the greatest that of random 128 KB writes. Bandwidth \
                varies from 8 to 177 MB/s; both vary by more than a factor of 20. Latency grows with size, but little.",
        setup: "The same at 0, 50 and 100 % reads, and 0, 50 and 100 % sequential. Nothing is regulated. 120 s each, \
                of which the last 60 s count.",
        runs,
        quantities: vec![
            Quantity::new(
                "response time of sequential 4 KiB reads : least of all",
                Accepts::AtMost(1.0 + 1e-9),
                "the paper names this setting as the quickest",
                |trial| ratio(latency_at(trial, (4, 100, 100)), Some(extremes(trial, latency_at)?.0)),
            )
            .paper(1.0),
            Quantity::new(
                "response time of random 128 KiB writes : greatest of all",
                Accepts::AtLeast(1.0 - 1e-9),
                "the paper names this setting as the slowest",
                |trial| ratio(latency_at(trial, (128, 0, 0)), Some(extremes(trial, latency_at)?.1)),
            )
            .paper(1.0),
            Quantity::new(
                "response time, greatest : least",
                Accepts::AtLeast(20.0),
                "more than a factor of 20",
                |trial| extremes(trial, latency_at).map(|(least, most)| most / least),
            ),
            Quantity::new(
                "bandwidth, greatest : least",
                Accepts::AtLeast(20.0),
                "more than a factor of 20; 177 : 8 is 22",
                |trial| extremes(trial, megabytes_at).map(|(least, most)| most / least),
            )
            .paper(22.1),
            Quantity::new(
                "random reads: response time at 128 KiB : at 4 KiB",
                Accepts::Between(1.0, 4.0),
                "grows with size, but little: at most an eighth of the factor of 32 in size",
                |trial| ratio(latency_at(trial, (128, 100, 0)), latency_at(trial, (4, 100, 0))),
            ),
        ],
        figures: vec![
            Figure::new("least bandwidth", "MB/s", Some(8.0), |trial| Some(extremes(trial, megabytes_at)?.0)),
            Figure::new("greatest bandwidth", "MB/s", Some(177.0), |trial| {
                Some(extremes(trial, megabytes_at)?.1)
            }),
            Figure::new("least response time", "ms", None, |trial| Some(extremes(trial, latency_at)?.0)),
            Figure::new("greatest response time", "ms", None, |trial| Some(extremes(trial, latency_at)?.1)),
        ],
        plots: vec![Plot {
            title: "Response time of reads, by how many of them are sequential".to_owned(),
            unit: "ms",
            over: "KiB",
            marks: Vec::new(),
            lines: Box::new(|trial| {
                let line = |sequential: u32| {
                    let point = |kib: u32| Some((f64::from(kib), latency_at(trial, (kib, 100, sequential))?));
                    Line {
                        name: format!("{sequential} %"),
                        points: SIZES_KIB.into_iter().filter_map(point).collect(),
                    }
                };
                SEQUENTIAL.into_iter().map(line).collect()
            }),
        }],
    }
}

const HOSTS: [&str; 5] = ["1 host", "2 hosts", "3 hosts", "4 hosts", "5 hosts"];

pub(super) fn fig6() -> Experiment {
    let scenario = embedded(include_str!("../../../../scenarios/parda/fig6.toml"));
    let runs = (1..)
        .zip(HOSTS)
        .map(|(hosts, name)| {
            Run::new(name, scenario.clone()).but(|scenario| {
                scenario.hosts.truncate(hosts);
                scenario.vms.truncate(hosts);
            })
        })
        .collect();
    let throughput = |trial: &Trial<'_>, name: &str| trial.run(name)?.total_iops(STEADY);
    let latency = |trial: &Trial<'_>, name: &str| trial.run(name)?.latency(STEADY);
    let greatest = move |trial: &Trial<'_>| {
        HOSTS.iter().try_fold(0.0, |most: f64, name| Some(most.max(throughput(trial, name)?)))
    };
    let over_hosts = |title: &str, unit, number: fn(&RunResult, Span) -> Option<f64>| Plot {
        title: title.to_owned(),
        unit,
        over: "hosts",
        marks: Vec::new(),
        lines: Box::new(move |trial| {
            let point =
                |(hosts, (_, run)): (u32, (&str, &RunResult))| Some((f64::from(hosts), number(run, STEADY)?));
            vec![Line {
                name: "all hosts".to_owned(),
                points: (1..).zip(trial.runs()).filter_map(point).collect(),
            }]
        }),
    };
    Experiment {
        id: "parda.fig6",
        title: "Throughput and response time against load, one to five hosts",
        paper: "One to five hosts with 16 KB I/Os, 67 % reads, 70 % random, 32 outstanding each. Throughput peaks at three \
                hosts; latency goes on growing.",
        setup: "The same. Nothing is regulated. 120 s each, of which the last 60 s count.",
        runs,
        quantities: vec![
            Quantity::new(
                "throughput of three hosts : greatest",
                Accepts::AtLeast(0.98),
                "it peaks at three; 2 %, because the plot's maximum is flat",
                move |trial| ratio(throughput(trial, "3 hosts"), greatest(trial)),
            )
            .paper(1.0),
            Quantity::new(
                "throughput of one host : three hosts",
                Accepts::AtMost(0.95),
                "one host does not saturate the array; 5 % keeps that clear of noise",
                move |trial| ratio(throughput(trial, "1 host"), throughput(trial, "3 hosts")),
            ),
            Quantity::new(
                "response time of five hosts : three hosts",
                Accepts::Between(1.4, 2.0),
                "at a constant throughput 5/3 times the load takes 5/3 times as long (Little); 20 % to either side",
                move |trial| ratio(latency(trial, "5 hosts"), latency(trial, "3 hosts")),
            ),
        ],
        figures: HOSTS
            .into_iter()
            .flat_map(|name| {
                [
                    Figure::new(format!("throughput of {name}"), "IO/s", None, move |trial| {
                        throughput(trial, name)
                    }),
                    Figure::new(format!("response time of {name}"), "ms", None, move |trial| {
                        latency(trial, name)
                    }),
                ]
            })
            .collect(),
        plots: vec![
            over_hosts("Throughput of all hosts", "IO/s", RunResult::total_iops),
            over_hosts("Response time", "ms", RunResult::latency),
        ],
    }
}

pub(super) fn fig7() -> Experiment {
    const EQUAL: [&str; 4] = ["vm-1", "vm-2", "vm-3", "vm-4"];
    const THROTTLED: [&str; 3] = ["vm-5", "vm-6", "vm-7"];
    let all = Run::new("32 for all", embedded(include_str!("../../../../scenarios/parda/fig7.toml")));
    let some = Run { name: "16 for three".to_owned(), ..all.clone() }.but(|scenario| {
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
        id: "parda.fig7",
        title: "Static windows of 32 and 16 on seven hosts",
        paper: "Seven hosts on a RAID-5 group of 5 disks (400 GB), disks of 8 GB, 32 KB I/Os, 67 % reads, 70 % random, 32 \
                pending; windows of 32, or 16 for hosts 5 to 7. These then get about half (42 against 85 IO/s) at double \
                latency (780 against 360 ms); device latencies remain alike, and fall from 470 to 375 ms.",
        setup: "The same. Nothing else is regulated. 120 s each, of which the last 60 s count.",
        runs: vec![all, some],
        quantities: vec![
            Quantity::new(
                "throughput, throttled hosts : others",
                Accepts::near(0.494, 10.0),
                "about half: the ratio of the windows; 10 % for placement and noise",
                of("16 for three", move |run| iops(run).map(|(throttled, others)| throttled / others)),
            )
            .paper(0.494),
            Quantity::new(
                "response time in the virtual machine, throttled : others",
                Accepts::near(2.17, 15.0),
                "doubled, by the wait in the host; 15 %, because the paper's figures are rounded plots",
                of("16 for three", move |run| felt(run).map(|(throttled, others)| throttled / others)),
            )
            .paper(2.17),
            Quantity::new(
                "device response time, throttled : others",
                Accepts::near(1.0, 10.0),
                "similar for all hosts",
                of("16 for three", device),
            )
            .paper(1.0),
            Quantity::new(
                "device response time, 16 for three : 32 for all",
                Accepts::near(0.798, 10.0),
                "176 instead of 224 requests at the array make 0.786 at a constant throughput; 10 % for its change",
                |trial| {
                    ratio(trial.run("16 for three")?.latency(STEADY), trial.run("32 for all")?.latency(STEADY))
                },
            )
            .paper(0.798),
        ],
        figures: vec![
            Figure::new("throughput, throttled", "IO/s", Some(42.0), of("16 for three", move |run| Some(iops(run)?.0))),
            Figure::new("throughput, others", "IO/s", Some(85.0), of("16 for three", move |run| Some(iops(run)?.1))),
            Figure::new("response time, throttled", "ms", Some(780.0), of("16 for three", move |run| Some(felt(run)?.0))),
            Figure::new("response time, others", "ms", Some(360.0), of("16 for three", move |run| Some(felt(run)?.1))),
            Figure::new("device response time, 32 for all", "ms", Some(470.0), of("32 for all", |run| run.latency(STEADY))),
            Figure::new("device response time, 16 for three", "ms", Some(375.0), of("16 for three", |run| run.latency(STEADY))),
        ],
        plots: Vec::new(),
    }
}

pub(super) fn table2() -> Experiment {
    let one = Run::new("phase 1", embedded(include_str!("../../../../scenarios/parda/table2.toml")));
    let two = Run { name: "phase 2".to_owned(), ..one.clone() }.but(|scenario| {
        for host in &mut scenario.hosts[2..] {
            host.depth = 16;
        }
    });
    let throughput = |trial: &Trial<'_>, phase: &str, hosts: [&str; 2]| {
        let run = trial.run(phase)?;
        mean(hosts.map(|host| run.iops(host, STEADY)))
    };
    let preferred = |trial: &Trial<'_>, phase: &str| {
        let run = trial.run(phase)?;
        ratio(run.iops("host-4", STEADY), run.iops("host-3", STEADY))
    };
    Experiment {
        id: "parda.table2",
        title: "Queue lengths of 32, then 16 for two of four hosts with different workloads",
        paper: "Four hosts with different workloads and queues of 32 (phase 1), then 16 for two of them (phase 2). Throughput \
                falls roughly in proportion to the queue; a host that the array prefers at 32 it also prefers at 16.",
        setup: "The workloads of table 2 are lost in the text that we have; these are ours: 16 KiB random reads on hosts 1 and \
                3, 8 KiB with half of the I/Os sequential on hosts 2 and 4, all reads; hosts 3 and 4 are the throttled ones. \
                120 s each, of which the last 60 s count.",
        runs: vec![one, two],
        quantities: vec![
            Quantity::new(
                "throughput, throttled hosts : others, phase 2 against phase 1",
                Accepts::near(0.5, 20.0),
                "roughly in proportion to the queue length",
                move |trial| {
                    let throttled = |phase| throughput(trial, phase, ["host-3", "host-4"]);
                    let others = |phase| throughput(trial, phase, ["host-1", "host-2"]);
                    let share = |phase| ratio(throttled(phase), others(phase));
                    ratio(share("phase 2"), share("phase 1"))
                },
            )
            .paper(0.5),
            Quantity::new(
                "phase 1: throughput of host 4 (sequential) : host 3 (random)",
                Accepts::AtLeast(1.1),
                "the array prefers the cheaper workload, clearly: that is the premiss",
                move |trial| preferred(trial, "phase 1"),
            ),
            Quantity::new(
                "phase 2: throughput of host 4 : host 3",
                Accepts::AtLeast(1.1),
                "and still does with half of the queue",
                move |trial| preferred(trial, "phase 2"),
            ),
        ],
        figures: ["host-1", "host-2", "host-3", "host-4"]
            .into_iter()
            .flat_map(|host| {
                ["phase 1", "phase 2"].map(|phase| {
                    Figure::new(
                        format!("{phase}: throughput of {host}"),
                        "IO/s",
                        None,
                        of(phase, move |run| run.iops(host, STEADY)),
                    )
                })
            })
            .collect(),
        plots: Vec::new(),
    }
}

pub(super) fn table4() -> Experiment {
    const PAPER: [(&str, f64, f64); 6] = [
        ("host-1", 525.0, 59.0),
        ("host-2", 570.0, 55.0),
        ("host-3", 570.0, 55.0),
        ("host-4", 560.0, 57.0),
        ("host-5", 430.0, 77.0),
        ("host-6", 500.0, 62.0),
    ];
    const MEASURED: Span = Span::new(60.0, 145.0);
    let run = Run::new("uncontrolled", embedded(include_str!("../../../../scenarios/parda/fig9.toml")))
        .but(super::uncontrolled);
    Experiment {
        id: "parda.table4",
        title: "Six hosts without control",
        paper: "Six hosts, 16 KB random reads, 32 outstanding each: 430 to 570 IO/s at 55 to 77 ms, 3130 IO/s at 60 ms together.",
        setup: "The same on the preset, which was fitted to four hosts: what it does with six is a prediction.",
        runs: vec![run],
        quantities: vec![
            Quantity::new(
                "throughput of all",
                Accepts::near(3130.0, 10.0),
                "a prediction of the preset from four hosts to six; the paper's own two figures, 3130 and the table's sum \
                 3155, differ by 1 %, and from day to day more",
                of("uncontrolled", |run| run.total_iops(MEASURED)),
            )
            .paper(3130.0)
            .unit("IO/s"),
            Quantity::new(
                "response time",
                Accepts::near(60.0, 10.0),
                "192 outstanding over the throughput (Little), so with the same tolerance",
                of("uncontrolled", |run| run.latency(MEASURED)),
            )
            .paper(60.0)
            .unit("ms"),
        ],
        figures: PAPER
            .into_iter()
            .flat_map(|(host, iops, latency)| {
                [
                    Figure::new(format!("throughput of {host}"), "IO/s", Some(iops), of("uncontrolled", move |run| run.iops(host, MEASURED))),
                    Figure::new(format!("response time of {host}"), "ms", Some(latency), of("uncontrolled", move |run| run.device_latency(host, MEASURED))),
                ]
            })
            .chain([Figure::new("throughput, greatest : least", "", Some(570.0 / 430.0), of("uncontrolled", |run| {
                spread(run.hosts().into_iter().map(|host| run.iops(host, MEASURED)))
            }))])
            .collect(),
        plots: Vec::new(),
    }
}
