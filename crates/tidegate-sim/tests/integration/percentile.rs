//! Percentiles as the statistic of a host.

use tidegate_control::{Decision, SignalRequests, SignalState, SignalStatistic};
use tidegate_sim::{Recorder, Scenario, SeriesRow, SimulationOutcome, TimeSeries, simulate};
use tidegate_units::{ConsumerName, HostName};

/// A reader with a server for each of its four requests, so that latencies are exponential with a mean of
/// 10 ms. `host` has the keys of the host.
fn unloaded(host: &str) -> Scenario {
    let text = format!(
        r#"
name = "unloaded"
duration = "400s"
warmup = "10500ms"
array.a = {{ rate = "1600 IO/s", servers = 16 }}
host.h = {{ {host} }}
workload.reads = {{ outstanding = 4 }}
vm.reader = {{ workload = "reads" }}
"#
    );
    Scenario::parse("unloaded", &text).unwrap()
}

fn run(scenario: &Scenario, recorder: &mut dyn Recorder) -> SimulationOutcome {
    simulate(scenario, 5, recorder).unwrap()
}

#[test]
fn percentiles_of_exponential_latencies_are_those_of_the_distribution() {
    for (name, statistic) in SignalStatistic::NAMED {
        let mut series = TimeSeries::default();
        let outcome = run(&unloaded(&format!("statistic = '{name}'")), &mut series);
        let reader = outcome.consumers.get("reader").unwrap();
        let Some(percent) = statistic.percent() else {
            assert_eq!(reader.device_percentile_ms, None);
            assert!(series.rows().iter().all(|row| row.sample.device_percentile_ms.is_none()));
            continue;
        };
        let expected = -10.0 * (1.0 - f64::from(percent) / 100.0).ln();
        let found = reader.device_percentile_ms.unwrap();
        assert!((found / expected - 1.0).abs() < 0.03, "{name}: {found} ms instead of {expected} ms");
        // Some 400 reads in each second: the mean of their percentiles is that of all reads, about.
        let seconds: Vec<f64> =
            series.rows().iter().map(|row| row.sample.device_percentile_ms.unwrap()).collect();
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        assert!((mean / expected - 1.0).abs() < 0.05, "{name}: {mean} ms instead of {expected} ms");
    }
}

#[test]
fn without_a_percentile_no_document_tells_of_one() {
    let json = |host| serde_json::to_string(&run(&unloaded(host), &mut TimeSeries::default())).unwrap();
    assert_eq!(json(""), json("statistic = 'mean'"));
    assert!(!json("").contains("percentile"));
}

/// A protected reader beside a writer with 64 requests on two servers.
fn beside_a_writer(host: &str) -> Scenario {
    let text = format!(
        r#"
name = "beside"
duration = "120s"
array.a = {{ rate = "800 IO/s", servers = 2 }}
host.h = {{ target = "60ms", {host} }}
workload.reads = {{ rate = "100 IO/s" }}
workload.writes = {{ outstanding = 64, reads = 0.0 }}
workload.log = {{ rate = "20 IO/s", reads = 0.0 }}
vm.reader = {{ workload = "reads", protected = true }}
vm.log = {{ workload = "log", protected = true }}
vm.writer = {{ workload = "writes" }}
"#
    );
    Scenario::parse("beside", &text).unwrap()
}

/// Keeps the rows and the decisions.
#[derive(Default)]
struct Everything {
    series: TimeSeries,
    decisions: Vec<Decision>,
}

impl Recorder for Everything {
    fn row(&mut self, row: &SeriesRow<'_>) {
        self.series.row(row);
    }

    fn decision(&mut self, _: &HostName, _: Option<&ConsumerName>, decision: &Decision) {
        self.decisions.push(decision.clone());
    }
}

#[test]
fn a_law_hears_the_percentile_of_the_signals_requests_and_is_judged_by_it() {
    let mut heard = Everything::default();
    let outcome = run(&beside_a_writer("statistic = 'p95'"), &mut heard);
    let last = heard.decisions.last().unwrap();
    assert_eq!((last.statistic, last.signal), (SignalStatistic::P95, SignalRequests::ProtectedReads));
    // The signal has every read of the reader once, and nothing of the log.
    let counted: u64 = heard
        .decisions
        .iter()
        .filter(|decision| decision.at.as_secs_f64() > 20.0)
        .map(|decision| match decision.input {
            SignalState::Samples { count } => count,
            _ => 0,
        })
        .sum();
    let samples: Vec<_> = heard.series.of_consumer("reader").collect();
    let read: f64 = samples.iter().filter(|(end, _)| *end > 20.5).map(|(_, sample)| sample.iops).sum();
    assert!((counted as f64 - read).abs() < 10.0, "{counted} instead of {read}");
    // The outcome counts the seconds whose percentile is above the target, and no others.
    let is_above = |ms: &f64| *ms > 60.0;
    let above = samples.iter().filter_map(|(_, sample)| sample.device_percentile_ms).filter(is_above).count();
    let fraction = outcome.consumers.get("reader").unwrap().above_target_fraction.unwrap();
    assert!((fraction - above as f64 / 120.0).abs() < 1e-9, "{fraction}");
    assert!(samples.iter().all(|(_, sample)| sample.device_percentile_ms >= sample.device_latency_ms));
}

#[test]
fn the_law_auto_keeps_a_percentile_that_it_misses_by_the_mean() {
    let above = |law: &str, steers_by: SignalStatistic| {
        let mut scenario = beside_a_writer(&format!("law = '{law}', statistic = 'p95'"));
        if let Some(law) = &mut scenario.hosts[0].law {
            law.statistic = steers_by;
        }
        run(&scenario, &mut TimeSeries::default()).consumers.get("reader").unwrap().above_target_fraction
    };
    let by_percentile = above("auto", SignalStatistic::P95).unwrap();
    let by_mean = above("auto", SignalStatistic::Mean).unwrap();
    assert!(by_percentile < 0.1, "{by_percentile}");
    assert!(by_mean > 0.5, "{by_mean}");
}

#[test]
fn a_percentile_is_refused_where_no_law_can_steer_by_it() {
    let error = |keys: &str, count: u32| {
        let text = format!(
            r#"
name = "refused"
duration = "1s"
array.a = {{ rate = "100 IO/s" }}
workload.w = {{ outstanding = 1 }}
[host.h]
count = {count}
target = "60ms"
statistic = "p95"
{keys}
[vm.v]
count = {count}
host = "h"
workload = "w"
"#
        );
        Scenario::parse("refused", &text).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(error("", 1), "");
    assert_eq!(error("signal = \"local\"", 2), "");
    assert!(error("", 2).contains("needs `signal = \"local\"`"), "{}", error("", 2));
    let integral = error("law = \"integral\"", 1);
    assert!(integral.contains("refused:9:") && integral.contains("statistic of its own"), "{integral}");
    assert!(error("law = \"self-tuning\"", 1).contains("by their mean"));
    assert!(error("normalise = true\nlaw = \"window\"", 1).contains("without `normalise`"));
}
