//! The verdicts: whether what is wrong is found wrong.

use std::time::Duration;

use tidegate_control::ArxSample;
use tidegate_sim::iscsi::LoadFindings;
use tidegate_sim::transfers::TransferFindings;
use tidegate_sim::{EngineWork, NamedValues, Scenario, SeriesSample, SimulationOutcome};
use tidegate_units::{ConsumerName, HostName, Latency};

use super::*;

/// A world without any law of nature: whatever is simulated, every consumer has the same numbers all the
/// time.
fn made_up(subject: &RunSubject, sample: SeriesSample) -> RunResult {
    let end = subject.duration().as_secs();
    let samples: Vec<_> = (1..=end).map(|second| (second as f64, sample)).collect();
    let outcome = SimulationOutcome {
        scenario: subject.name().to_owned(),
        seed: 1,
        duration_s: subject.duration().as_secs_f64(),
        warmup_s: 0.0,
        resources: NamedValues::from_iter([]),
        hosts: NamedValues::from_iter([]),
        consumers: NamedValues::from_iter([]),
        work: EngineWork::default(),
    };
    let track = |host: &HostName, consumer: &ConsumerName| ConsumerSeries {
        host: host.clone(),
        consumer: consumer.clone(),
        samples: samples.clone(),
    };
    let mut result = RunResult::of(outcome);
    match subject {
        RunSubject::Scenario(scenario) => {
            result.tracks = scenario.vms.iter().map(|vm| track(&vm.host, &vm.name)).collect();
        }
        RunSubject::Iscsi(plan) if sample.iops > 0.0 => {
            let host = HostName::new("host").unwrap();
            result.tracks = plan.machines.iter().map(|machine| track(&host, machine)).collect();
            result.loads = vec![LoadFindings { requests: 100, took_s: Some(1.0) }; plan.loads.len()];
            result.delays = (1..=end).map(|second| (second as f64, 1.0)).collect();
        }
        RunSubject::Transfers(plan) if sample.iops > 0.0 => {
            let one = TransferFindings {
                node: plan.nodes[0].name.clone(),
                size: plan.size,
                asked_s: 0.0,
                began_s: 0.0,
                moved_s: Some(0.0),
                ended_s: Some(1.0),
                soon: None,
            };
            result.transfers = vec![one; plan.transfers as usize];
        }
        RunSubject::Identification(one) if sample.iops > 0.0 => {
            let response = Some(Latency::from_millis(500));
            let same = ArxSample { operating_point: one.excitation.around, response };
            result.excited = one.intervals.iter().map(|interval| (*interval, vec![same; 100])).collect();
        }
        RunSubject::Iscsi(_) | RunSubject::Transfers(_) | RunSubject::Identification(_) => {}
    }
    result
}

fn judged(experiments: &[Experiment], result: impl Fn(&RunSubject) -> RunResult) -> ReproductionReport {
    let jobs = jobs(experiments, 1, 1);
    let results: Vec<_> = jobs.list().iter().map(|job| result(job.subject)).collect();
    judge(experiments, &jobs, &results)
}

const SAMPLE: SeriesSample = SeriesSample {
    window: Some(20.0),
    rate: Some(50.0),
    beta: Some(1.0),
    latency_local_ms: Some(500.0),
    latency_cluster_ms: Some(500.0),
    estimate_ms: Some(500.0),
    device_latency_ms: Some(500.0),
    latency_ms: Some(500.0),
    released_ms: Some(500.0),
    iops: 100.0,
    bytes_per_s: 1e6,
    ops_per_s: 100.0,
    outstanding: 20.0,
    device_percentile_ms: None,
};

#[test]
fn a_world_in_which_nothing_depends_on_anything_agrees_with_no_experiment() {
    let report = judged(&catalogue(), |subject| made_up(subject, SAMPLE));
    for experiment in &report.experiments {
        // That nothing depends on how a peak is known is so in this world.
        let is_so = experiment.id == "nikolow.peaks";
        assert_eq!(experiment.ok, is_so, "{}", experiment.id);
    }
    assert!(!report.ok);
}

#[test]
fn what_was_not_measured_was_not_shown() {
    let nothing = SeriesSample::default();
    let report = judged(&catalogue(), |subject| made_up(subject, nothing));
    assert!(report.experiments.iter().all(|experiment| !experiment.ok));
    for quantity in catalogue().iter().flat_map(|experiment| &experiment.quantities) {
        assert_eq!((quantity.measure)(&SeedTrial::new([])), None, "{}", quantity.name);
    }
}

#[test]
fn every_experiment_has_runs_and_accepts_the_papers_own_figures() {
    let catalogue = catalogue();
    for (place, experiment) in catalogue.iter().enumerate() {
        assert!(catalogue[..place].iter().all(|other| other.id != experiment.id), "{}", experiment.id);
        assert!(!experiment.quantities.is_empty() && !experiment.runs.is_empty(), "{}", experiment.id);
        for (place, run) in experiment.runs.iter().enumerate() {
            assert!(experiment.runs[..place].iter().all(|other| other.name != run.name), "{}", run.name);
        }
        for quantity in &experiment.quantities {
            // Where both are known the paper's own figure agrees with the paper: fig. 12's last one is the
            // exception that its reason names.
            if let Some(paper) = quantity.paper.filter(|_| !quantity.name.contains("operations, host 1")) {
                assert!(quantity.accepts.agrees(paper), "{}: {}", experiment.id, quantity.name);
            }
        }
    }
}

/// An experiment with one run and one quantity: the mean rate of its only consumer is near 100.
fn simple() -> Experiment {
    let mut scenario = Scenario::new("simple", Duration::from_secs(10));
    let (vm, host) = (ConsumerName::new("vm").unwrap(), HostName::new("host").unwrap());
    scenario.vms.push(tidegate_sim::scenario::VirtualMachine::new(
        vm,
        host,
        tidegate_sim::scenario::VirtualDisk::default(),
    ));
    Experiment {
        id: "test.simple",
        texts: ExperimentTexts::default(),
        runs: vec![NamedRun::new("only", scenario)],
        quantities: vec![
            JudgedQuantity::new("rate", Tolerance::near(100.0, 10.0), |trial| {
                trial.run("only")?.total_iops(TimeSpan::new(0.0, 10.0))
            })
            .paper(100.0)
            .unit("IO/s"),
        ],
        figures: Vec::new(),
        plots: Vec::new(),
    }
}

fn rates(rates: &[f64]) -> ReproductionReport {
    let experiments = [simple()];
    let jobs = jobs(&experiments, 1, rates.len() as u64);
    let results: Vec<_> = jobs
        .list()
        .iter()
        .zip(rates)
        .map(|(job, &iops)| made_up(job.subject, SeriesSample { iops, ..SAMPLE }))
        .collect();
    judge(&experiments, &jobs, &results)
}

#[test]
fn the_mean_over_the_seeds_decides_and_all_seeds_are_reported() {
    let good = rates(&[95.0, 105.0, 130.0]);
    let quantity = &good.experiments[0].quantities[0];
    assert!(good.ok && quantity.ok);
    assert_eq!((quantity.ours, quantity.seeds_ok), (Some(110.0), 2));
    assert_eq!(quantity.values, [Some(95.0), Some(105.0), Some(130.0)]);
    assert_eq!(good.seeds, [1, 2, 3]);

    for bad in
        [&[89.9][..], &[110.1], &[100.0, 130.0], &[f64::NAN], &[100.0, f64::NAN], &[f64::INFINITY, 100.0]]
    {
        let report = rates(bad);
        assert!(
            !report.ok && !report.experiments[0].ok && !report.experiments[0].quantities[0].ok,
            "{bad:?}"
        );
    }
    assert_eq!(rates(&[100.0, f64::NAN]).experiments[0].quantities[0].ours, None);
}

#[test]
fn nothing_judged_is_nothing_shown() {
    let mut empty = simple();
    empty.quantities.clear();
    assert!(!judged(&[empty], |subject| made_up(subject, SAMPLE)).ok);
    assert!(!judged(&[], |subject| made_up(subject, SAMPLE)).ok);
}

#[test]
fn one_that_differs_makes_the_whole_differ() {
    let (good, mut bad) = (simple(), simple());
    bad.id = "test.bad";
    bad.quantities[0].accepts = Tolerance::AtMost(1.0);
    let report = judged(&[good, bad], |subject| made_up(subject, SAMPLE));
    assert!(!report.ok && report.experiments[0].ok && !report.experiments[1].ok);
}

#[test]
fn the_document_has_its_shape_and_can_be_read_back() {
    let report = rates(&[95.0, 105.0]);
    let json = serde_json::to_value(&report).unwrap();
    let experiment = &json["experiments"][0];
    assert_eq!((&experiment["id"], &experiment["ok"]), (&"test.simple".into(), &true.into()));
    let quantity = &experiment["quantities"][0];
    assert_eq!(quantity["name"], "rate");
    assert_eq!((&quantity["paper"], &quantity["ours"]), (&100.0.into(), &100.0.into()));
    assert_eq!((&quantity["tolerance"], &quantity["ok"]), (&"100 ± 10 %".into(), &true.into()));
    assert_eq!(serde_json::from_value::<ReproductionReport>(json).unwrap(), report);
}

#[test]
fn what_experiments_have_in_common_is_simulated_once() {
    let all = catalogue();
    let table7 = select(catalogue(), &["fig14", "fig15", "table7"]).unwrap();
    assert_eq!(jobs(&table7, 1, 10).list().len(), 5 * 10, "of three experiments with two runs in common");
    let together = jobs(&all, 1, 1);
    let runs: usize = all.iter().map(|experiment| experiment.runs.len()).sum();
    assert!(together.list().len() < runs);
    for (place, job) in together.list().iter().enumerate() {
        assert!(together.list()[..place].iter().all(|other| other.subject != job.subject));
    }
}

#[test]
fn k_and_the_reading_of_alpha_stand_with_every_law() {
    let report = judged(&catalogue(), |subject| made_up(subject, SAMPLE));
    let laws: Vec<_> =
        report.experiments.iter().flat_map(|one| &one.runs).flat_map(|run| &run.laws).collect();
    assert!(laws.len() > 15);
    for law in laws {
        assert!(law.k > 0.0 && law.k_per == "100 shares", "{law:?}");
        assert!(matches!(law.alpha_past_weight, Some(0.002 | 0.998)), "{law:?}");
        assert!((law.gamma - 0.8).abs() < 1e-12 && (law.interval_s - 2.0).abs() < 1e-12, "{law:?}");
    }
}

#[test]
fn a_window_of_its_own_for_each_machine_adds_up() {
    let experiments = select(catalogue(), &["parda.per-vm"]).unwrap();
    let subject = &experiments[0].runs[0].subject;
    let mut result = made_up(subject, SAMPLE);
    let whole = TimeSpan::new(0.0, 300.0);
    assert_eq!(result.window("host-1", whole), Some(20.0), "shared by both machines");
    let RunSubject::Scenario(scenario) = subject else { unreachable!("PARDA's are scenarios") };
    result.law_per_vm = scenario.hosts.iter().map(|host| host.name.clone()).collect();
    assert_eq!(result.window("host-1", whole), Some(40.0), "each has one");
    assert_eq!(result.window("nobody", whole), None);
}
