//! The report of a rehearsal.

use std::fmt;

use serde::Serialize;
use tidegate_control::{LawKind, SignalRequests};
use tidegate_units::{ConsumerName, ResourceName};

use crate::demand::DemandKind;

/// The report of a rehearsal of one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RehearsalReport {
    /// The resource.
    pub resource: ResourceName,
    /// Recorded time, without gaps.
    pub recorded_seconds: f64,
    /// The law that was rehearsed. `None`: no configuration could be read.
    pub law: Option<LawKind>,
    /// The target of the resource, in seconds.
    pub target_seconds: f64,
    /// Requests that the target is about.
    pub signal: SignalRequests,
    /// The recorded time as it was.
    pub measured: MeasuredTime,
    /// The model of the storage; `None` if there was too little to fit one.
    pub model: Option<ModelReport>,
    /// The same time with the law in force, or the reasons why nothing is claimed.
    pub outcome: RehearsalOutcome,
}

/// The recorded time as it was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredTime {
    /// Seconds in which requests of the signal completed.
    pub judged_seconds: f64,
    /// The fraction of these seconds whose mean latency was above the target.
    pub above_fraction: f64,
    /// Mean latency of the signal's requests at the storage, in seconds.
    pub latency_seconds: f64,
    /// Requests of the signal.
    pub requests: f64,
}

/// The fitted model, and its errors on blocks that the fit had not seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelReport {
    /// Length of a block, in seconds. A first fit leaves every second one unseen.
    pub block_seconds: f64,
    /// The sharpness p of the curve.
    pub sharpness: f64,
    /// The growth g of the load with the number outstanding.
    pub growth: f64,
    /// The number of forms of the curve that fit about as well. All of them are rehearsed.
    pub shapes: usize,
    /// Median error of ten-second mean latencies of the signal in unseen blocks, as a fraction.
    pub signal_error: f64,
    /// The error that 90 % of them do not exceed.
    pub signal_error_p90: f64,
    /// The same median for throughput: that of all eligible consumers together, with their recorded number
    /// outstanding. `None` if they did too little.
    pub throughput_error: Option<f64>,
    /// The fraction of seconds above the target that the model gives for the recorded time, without the law.
    pub reproduced_above_fraction: f64,
    /// Unloaded latency and work of each class.
    pub classes: Vec<ClassReport>,
}

/// The parameters of a class of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassReport {
    /// The consumer; `None`: all consumers without a class of their own.
    pub consumer: Option<ConsumerName>,
    /// True for reads.
    pub reads: bool,
    /// s, in seconds.
    pub unloaded_seconds: f64,
    /// w.
    pub work: f64,
    /// a.
    pub felt: f64,
}

/// The rehearsed time, or the reasons why nothing is claimed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RehearsalOutcome {
    /// The same time with the law in force.
    Predicted(Box<Prediction>),
    /// Nothing is claimed.
    Refused(Vec<Refusal>),
}

/// The recorded time with the law in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Number of runs that the ranges are of.
    pub runs: usize,
    /// The fraction of seconds above the target.
    pub above_fraction: Estimate,
    /// Mean latency of the signal's requests at the storage, in seconds.
    pub latency_seconds: Estimate,
    /// The fraction of the time in which the law throttled.
    pub throttled_fraction: Estimate,
    /// The consumers that did anything, in the order of the recording.
    pub consumers: Vec<ConsumerPrediction>,
    /// Mean latency of the signal, as it was and with the law, for equal parts of the recorded time.
    pub curve: Vec<CurvePoint>,
}

/// One consumer with the law in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConsumerPrediction {
    /// The consumer.
    pub name: ConsumerName,
    /// True if it is never throttled.
    pub protected: bool,
    /// Reaction of its requests to latency.
    pub demand: DemandKind,
    /// Requests that it completed.
    pub requests: f64,
    /// Bytes that it read and wrote.
    pub bytes: f64,
    /// Its mean latency at the storage as recorded, in seconds.
    pub measured_latency_seconds: f64,
    /// The same with the law.
    pub latency_seconds: Estimate,
    /// Its throughput in the time in which it was active, as a multiple of the recorded one.
    pub throughput: Estimate,
    /// The greatest time by which work was done later, in seconds. An infinite one is `null` in JSON.
    pub later_seconds: Estimate,
}

/// A figure with its range over all runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Median.
    pub likely: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl Estimate {
    /// Makes the estimate of the figures of all runs.
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |place: usize| figures.get(place).copied().unwrap_or_default();
        let last = figures.len().saturating_sub(1);
        Self { likely: at(last / 2), low: at(0), high: at(last) }
    }
}

/// Mean latencies of the signal in a part of the time, in seconds. `None` without requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Beginning of the part, in seconds of recorded time.
    pub at_seconds: f64,
    /// Recorded mean.
    pub measured_seconds: Option<f64>,
    /// Mean with the law.
    pub predicted_seconds: Option<f64>,
}

/// A reason to claim nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Refusal {
    /// No checkpoint could be read.
    NoConfiguration,
    /// The throttle is not the queue of a gateway.
    NotAQueue,
    /// Too little time is recorded.
    TooShort {
        /// Recorded time.
        seconds: f64,
        /// Time that is needed.
        least: f64,
    },
    /// The law throttled while it was recorded.
    LawActed {
        /// The fraction of decisions.
        fraction: f64,
    },
    /// Other hosts load the resource too, or its latency is measured elsewhere.
    OtherHosts,
    /// The law steers by a percentile.
    Percentile,
    /// Consumers have contracts.
    Contracts,
    /// No consumer may be throttled.
    NothingEligible,
    /// The signal has too few requests.
    TooFewRequests {
        /// Requests.
        requests: f64,
        /// Requests that are needed.
        least: f64,
    },
    /// Writes are acknowledged at once, by a cache.
    WriteCache {
        /// Mean latency of writes over that of reads, both under load.
        writes: f64,
        /// Mean latency of reads under load over that with little load.
        reads: f64,
    },
    /// The model misses latencies that it has not seen.
    PoorModel {
        /// Median error, as a fraction.
        error: f64,
        /// The greatest error with which a claim is made.
        most: f64,
    },
    /// The model does not give the recorded seconds above the target.
    NotReproduced {
        /// The measured fraction.
        measured: f64,
        /// The fraction by the model.
        modelled: f64,
    },
    /// The recording has one load only.
    NoRange {
        /// Latency of the signal at its highest loads over that at its lowest.
        spread: f64,
    },
    /// The law would keep the storage at loads that were never recorded.
    OutsideRange {
        /// The fraction of the throttled time.
        fraction: f64,
    },
    /// Runs differ by so much that no figure says anything.
    TooUncertain {
        /// The least fraction of seconds above the target.
        low: f64,
        /// The greatest.
        high: f64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        match *self {
            Self::NoConfiguration => f.write_str(
                "no checkpoint of the loop can be read: rehearse with the build that wrote the journal",
            ),
            Self::NotAQueue => f.write_str(
                "the throttle delays packets or limits devices, and only the queue of a gateway is modelled",
            ),
            Self::TooShort { seconds, least } => {
                write!(f, "{seconds:.0} s are recorded, and {least:.0} s are needed: take a longer --since")
            }
            Self::LawActed { fraction } => write!(
                f,
                "the law throttled in {} of the decisions: choose a span of a dry run",
                percent(fraction)
            ),
            Self::OtherHosts => {
                f.write_str("other hosts share the resource, or measure it: that is not in this journal")
            }
            Self::Percentile => {
                f.write_str("the law steers by a percentile, and the journal has means of intervals")
            }
            Self::Contracts => {
                f.write_str("contracts are judged request by request, and the journal has means of intervals")
            }
            Self::NothingEligible => f.write_str("all consumers are protected: the law throttles none"),
            Self::TooFewRequests { requests, least } => write!(
                f,
                "the signal has {requests:.0} requests, and {least:.0} are needed: take a longer --since"
            ),
            Self::WriteCache { writes, reads } => write!(
                f,
                "a cache takes the writes: under load, reads take {reads:.1} times as long as without, and \
                 writes {writes:.2} times as long as reads; the load behind a cache is not in the journal"
            ),
            Self::PoorModel { error, most } => write!(
                f,
                "the model misses the latencies of unseen blocks by {} (median), more than {}",
                percent(error),
                percent(most)
            ),
            Self::NotReproduced { measured, modelled } => write!(
                f,
                "the model gives {} of seconds above the target for the recorded time, and {} were measured",
                percent(modelled),
                percent(measured)
            ),
            Self::NoRange { spread } => write!(
                f,
                "the load was always about the same (latency varies by a factor of {spread:.2}): \
                 record a time with and without it"
            ),
            Self::OutsideRange { fraction } => write!(
                f,
                "in {} of the throttled time the law would keep the storage at lower loads than any in the \
                 journal: record a time with less load as well",
                percent(fraction)
            ),
            Self::TooUncertain { low, high } => write!(
                f,
                "the runs range from {} to {} of seconds above the target",
                percent(low),
                percent(high)
            ),
        }
    }
}
