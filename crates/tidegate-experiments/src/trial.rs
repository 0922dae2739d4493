//! Runs of an experiment under one seed, and the search for numbers in them.

use std::time::Duration;

use tidegate_control::ArxSample;
use tidegate_units::{ConsumerName, HostName};

use tidegate_sim::iscsi::LoadFindings;
use tidegate_sim::scenario::LawScope;
use tidegate_sim::transfers::TransferFindings;
use tidegate_sim::{Recorder, Scenario, SeriesRow, SeriesSample, SimulationOutcome};

/// A stretch of virtual time in seconds, within which something is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeSpan {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

impl TimeSpan {
    /// A stretch.
    #[must_use]
    pub const fn new(from: f64, to: f64) -> Self {
        Self { from, to }
    }

    /// Returns true if an interval of the time series that ends then lies within.
    fn holds(self, end: f64) -> bool {
        end > self.from + 1e-9 && end <= self.to + 1e-9
    }
}

/// A consumer's time series.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerSeries {
    /// Its host.
    pub host: HostName,
    /// The consumer.
    pub consumer: ConsumerName,
    /// The end of each interval in seconds, and the numbers of the interval.
    pub samples: Vec<(f64, SeriesSample)>,
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// Its statistics.
    pub outcome: SimulationOutcome,
    /// Its time series, by consumer, in the order of the scenario.
    pub tracks: Vec<ConsumerSeries>,
    /// The hosts where each virtual machine has a window of its own.
    pub law_per_vm: Vec<HostName>,
    /// The findings of each load, in the order of the plan; over iSCSI only.
    pub loads: Vec<LoadFindings>,
    /// The end of each interval, and the mean delay of packets over it in milliseconds; over iSCSI only.
    pub delays: Vec<(f64, f64)>,
    /// Every transfer, in order; of transfers over storage nodes only.
    pub transfers: Vec<TransferFindings>,
    /// Sampling intervals, and what came of each at a storage that was excited; of identifications only.
    pub excited: Vec<(Duration, Vec<ArxSample>)>,
}

/// Collects time series by consumer while a simulation runs.
#[derive(Debug, Clone, Default)]
pub struct SeriesRecorder(Vec<ConsumerSeries>);

impl SeriesRecorder {
    /// Together with the statistics of the scenario that was simulated.
    #[must_use]
    pub fn with(self, outcome: SimulationOutcome, scenario: &Scenario) -> RunResult {
        let per_vm = scenario.hosts.iter().filter(|host| host.scope == LawScope::Vm);
        let law_per_vm = per_vm.map(|host| host.name.clone()).collect();
        RunResult { tracks: self.0, law_per_vm, ..RunResult::of(outcome) }
    }
}

impl Recorder for SeriesRecorder {
    fn row(&mut self, row: &SeriesRow<'_>) {
        let known = self.0.iter().position(|track| track.consumer == *row.consumer);
        let place = known.unwrap_or_else(|| {
            let (host, consumer) = (row.host.clone(), row.consumer.clone());
            self.0.push(ConsumerSeries { host, consumer, samples: Vec::new() });
            self.0.len() - 1
        });
        self.0[place].samples.push((row.time_s, row.sample));
    }
}

impl RunResult {
    /// Statistics, and nothing beside them.
    pub(super) const fn of(outcome: SimulationOutcome) -> Self {
        Self {
            outcome,
            tracks: Vec::new(),
            law_per_vm: Vec::new(),
            loads: Vec::new(),
            delays: Vec::new(),
            transfers: Vec::new(),
            excited: Vec::new(),
        }
    }

    fn track(&self, consumer: &str) -> Option<&ConsumerSeries> {
        self.tracks.iter().find(|track| track.consumer.as_str() == consumer)
    }

    fn tracks_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a ConsumerSeries> {
        self.tracks.iter().filter(move |track| track.host.as_str() == host)
    }

    /// The hosts, in the order of the scenario.
    #[must_use]
    pub fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = Vec::new();
        for track in &self.tracks {
            if !hosts.contains(&track.host.as_str()) {
                hosts.push(track.host.as_str());
            }
        }
        hosts
    }

    /// The mean over time of a consumer's numbers, where it has them.
    #[must_use]
    pub fn mean(
        &self,
        consumer: &str,
        span: TimeSpan,
        number: impl Fn(&SeriesSample) -> Option<f64>,
    ) -> Option<f64> {
        mean(within(self.track(consumer)?, span).filter_map(number))
    }

    /// A host's mean window: the one that its consumers share, or all of theirs together where each has its
    /// own.
    #[must_use]
    pub fn window(&self, host: &str, span: TimeSpan) -> Option<f64> {
        self.of_law(host, span, |sample| sample.window)
    }

    /// A host's mean β.
    #[must_use]
    pub fn beta(&self, host: &str, span: TimeSpan) -> Option<f64> {
        self.of_law(host, span, |sample| sample.beta)
    }

    /// Consumers under one window say the same; where each has its own, the host's is their sum.
    fn of_law(
        &self,
        host: &str,
        span: TimeSpan,
        number: impl Fn(&SeriesSample) -> Option<f64>,
    ) -> Option<f64> {
        let mut means =
            self.tracks_of(host).filter_map(|track| mean(within(track, span).filter_map(&number)));
        let first = means.next()?;
        let own = self.law_per_vm.iter().any(|own| own.as_str() == host);
        Some(if own { first + means.sum::<f64>() } else { first })
    }

    /// Requests per second of all consumers of a host.
    #[must_use]
    pub fn iops(&self, host: &str, span: TimeSpan) -> Option<f64> {
        sum(self.tracks_of(host).map(|track| mean(within(track, span).map(|sample| sample.iops))))
    }

    /// Requests per second of all consumers.
    #[must_use]
    pub fn total_iops(&self, span: TimeSpan) -> Option<f64> {
        sum(self.tracks.iter().map(|track| mean(within(track, span).map(|sample| sample.iops))))
    }

    /// Operations per second of a consumer.
    #[must_use]
    pub fn ops(&self, consumer: &str, span: TimeSpan) -> Option<f64> {
        self.mean(consumer, span, |sample| Some(sample.ops_per_s))
    }

    /// Operations per second of all consumers of a host.
    #[must_use]
    pub fn host_ops(&self, host: &str, span: TimeSpan) -> Option<f64> {
        sum(self.tracks_of(host).map(|track| mean(within(track, span).map(|sample| sample.ops_per_s))))
    }

    /// Mean response time of the array for a host, in milliseconds, each request counting once.
    #[must_use]
    pub fn device_latency(&self, host: &str, span: TimeSpan) -> Option<f64> {
        weighted(self.tracks_of(host), span, |sample| sample.device_latency_ms)
    }

    /// Mean response time of the array for one consumer.
    pub(super) fn device_latency_of(&self, consumer: &str, span: TimeSpan) -> Option<f64> {
        weighted(self.track(consumer).into_iter(), span, |sample| sample.device_latency_ms)
    }

    /// Mean response time of the array for all consumers.
    #[must_use]
    pub fn latency(&self, span: TimeSpan) -> Option<f64> {
        weighted(self.tracks.iter(), span, |sample| sample.device_latency_ms)
    }

    /// Mean response time of the array for all consumers but one host's.
    #[must_use]
    pub fn latency_without(&self, host: &str, span: TimeSpan) -> Option<f64> {
        let others = self.tracks.iter().filter(|track| track.host.as_str() != host);
        weighted(others, span, |sample| sample.device_latency_ms)
    }

    /// Mean response time that a consumer feels, its host's queue included.
    #[must_use]
    pub fn felt(&self, consumer: &str, span: TimeSpan) -> Option<f64> {
        weighted(self.track(consumer).into_iter(), span, |sample| sample.latency_ms)
    }

    /// The largest of the hosts' mean windows over the smallest.
    #[must_use]
    pub fn window_spread(&self, span: TimeSpan) -> Option<f64> {
        spread(self.hosts().into_iter().map(|host| self.window(host, span)))
    }

    /// Σβ/C in milliseconds: how far above 𝓛 the law settles (eq. 3), with β and C as measured. C is what the
    /// hosts under the law complete: other hosts take away from it.
    #[must_use]
    pub fn offset(&self, span: TimeSpan) -> Option<f64> {
        let (mut betas, mut iops) = (0.0, 0.0);
        for host in self.hosts() {
            if let Some(beta) = self.beta(host, span) {
                betas += beta;
                iops += self.iops(host, span)?;
            }
        }
        (iops > 0.0).then(|| betas / iops * 1e3)
    }

    /// Measured response time over 𝓛 + Σβ/C: 1 where the law is at the equilibrium that eq. 3 gives.
    #[must_use]
    pub fn latency_to_equilibrium(&self, set_point_ms: f64, span: TimeSpan) -> Option<f64> {
        Some(self.latency(span)? / (set_point_ms + self.offset(span)?))
    }
}

/// The largest over the smallest; `None` unless all are there and more than nothing.
pub(crate) fn spread(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    (least > 0.0 && most > 0.0).then_some(most / least)
}

fn within(track: &ConsumerSeries, span: TimeSpan) -> impl Iterator<Item = &SeriesSample> {
    track.samples.iter().filter(move |(end, _)| span.holds(*end)).map(|(_, sample)| sample)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// `None` when one is, or there are none.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum())
}

/// The mean of a response time, each interval with as many requests as it had.
fn weighted<'a>(
    tracks: impl Iterator<Item = &'a ConsumerSeries>,
    span: TimeSpan,
    latency: impl Fn(&SeriesSample) -> Option<f64>,
) -> Option<f64> {
    let (mut requests, mut total) = (0.0, 0.0);
    for sample in tracks.flat_map(|track| within(track, span)) {
        if let Some(latency) = latency(sample) {
            requests += sample.iops;
            total += sample.iops * latency;
        }
    }
    (requests > 0.0).then(|| total / requests)
}

/// The runs of an experiment under one seed.
#[derive(Debug, Clone)]
pub struct SeedTrial<'a> {
    runs: Vec<(&'a str, &'a RunResult)>,
}

impl<'a> SeedTrial<'a> {
    /// Runs with their names.
    pub fn new(runs: impl IntoIterator<Item = (&'a str, &'a RunResult)>) -> Self {
        Self { runs: runs.into_iter().collect() }
    }

    /// A run by its name.
    #[must_use]
    pub fn run(&self, name: &str) -> Option<&'a RunResult> {
        self.runs.iter().find(|(own, _)| *own == name).map(|(_, run)| *run)
    }

    /// All runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = (&'a str, &'a RunResult)> {
        self.runs.iter().copied()
    }
}
