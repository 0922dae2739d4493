//! Shares of requests instead of slots: beyond the paper, on the set-ups of its figures 8 and 12.

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, Tolerance};
use super::fairness::{FIG8, fig8_scenario, two_to_one};
use super::{end_to_end, of, of_requests, ratio, usual_plots};

pub(super) fn requests() -> Experiment {
    let fig8 = NamedRun::new("fig. 8, slots", fig8_scenario());
    let fig12 = NamedRun::new("fig. 12, slots", end_to_end::fig12_scenario());
    let per_vm = NamedRun::new("fig. 12, a law per VM, requests", end_to_end::fig12_scenario())
        .but(end_to_end::law_per_vm)
        .but(of_requests);
    let placed =
        NamedRun::new("fig. 12, well placed, requests", end_to_end::placed_scenario()).but(of_requests);
    let mut quantities = vec![
        JudgedQuantity::new(
            "fig. 8: throughput, hosts 3 and 4 : hosts 1 and 2",
            Tolerance::near(2.0, 7.0),
            of("fig. 8, requests", two_to_one),
        ),
        JudgedQuantity::new(
            "fig. 8: throughput, host 2 : host 1",
            Tolerance::near(1.0, 7.0),
            of("fig. 8, requests", |run| ratio(run.iops("host-2", FIG8), run.iops("host-1", FIG8))),
        ),
        JudgedQuantity::new(
            "fig. 8: response time to 𝓛 + Σβ/C",
            Tolerance::near(1.0, 10.0),
            of("fig. 8, requests", |run| run.latency_to_equilibrium(25.0, FIG8)),
        ),
        JudgedQuantity::new(
            "fig. 8: throughput of all, requests : slots",
            Tolerance::AtLeast(0.97),
            |trial| {
                ratio(
                    trial.run("fig. 8, requests")?.total_iops(FIG8),
                    trial.run("fig. 8, slots")?.total_iops(FIG8),
                )
            },
        ),
    ];
    for run in ["fig. 12, requests", "fig. 12, well placed, requests", "fig. 12, a law per VM, requests"] {
        quantities.extend(
            end_to_end::quantities(run)
                .into_iter()
                .map(|quantity| JudgedQuantity { name: format!("{run}: {}", quantity.name), ..quantity }),
        );
    }
    Experiment {
        runs: vec![
            NamedRun { name: "fig. 8, requests".to_owned(), ..fig8.clone() }.but(of_requests),
            NamedRun { name: "fig. 12, requests".to_owned(), ..fig12.clone() }.but(of_requests),
            placed,
            per_vm,
            fig8,
            fig12,
        ],
        quantities,
        figures: vec![
            ReportedFigure::new(
                "fig. 8, slots: throughput, hosts 3 and 4 : hosts 1 and 2",
                "",
                Some(2.0),
                of("fig. 8, slots", two_to_one),
            ),
            ReportedFigure::new(
                "fig. 8, requests: window of host 3 : host 1",
                "",
                None,
                of("fig. 8, requests", |run| ratio(run.window("host-3", FIG8), run.window("host-1", FIG8))),
            ),
            ReportedFigure::new(
                "fig. 12, slots: operations, host 1 : host 2",
                "",
                Some(1.37),
                of("fig. 12, slots", end_to_end::hosts_one_to_two),
            ),
            ReportedFigure::new("fig. 12: throughput of all, requests : slots", "", None, |trial| {
                let settled = end_to_end::SETTLED;
                ratio(
                    trial.run("fig. 12, requests")?.total_iops(settled),
                    trial.run("fig. 12, slots")?.total_iops(settled),
                )
            }),
        ],
        plots: usual_plots("fig. 12, requests", 25.0),
        ..Experiment::of("parda.requests")
    }
}
