//! Explanations of throttling, from recorded decisions: since when, how much, why, for which consumer, and at
//! what cost.
//!
//! Nothing is measured or decided here. [`ExplanationFold`] takes decisions in their order, as a journal
//! replays them, and keeps what [`ResourceExplanation`] tells.

mod episode;
mod question;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use tidegate_control::{
    ConsumerObservation, Decision, LawKind, LawOutput, LoopConfig, Observation, SignalRequests, SignalState,
};
use tidegate_journal::{ReplayedDecision, WallTime};
use tidegate_units::{ConsumerName, Latency, ResourceName};

pub use episode::ThrottleEpisode;
use episode::{EpisodeTracker, ThrottleMoment};
pub use question::{AskedTime, ExplainError, JournalExplanation, NoTime, asked_span, explain_journal};

/// Rates and latencies are of the last so many seconds.
const RECENT_S: f64 = 10.0;

/// The state of one resource at one time, with its reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceExplanation {
    /// The resource.
    pub resource: String,
    /// Time of the last decision that is considered.
    #[serde(with = "time_text")]
    pub at: WallTime,
    /// The law.
    pub law: LawKind,
    /// True if nothing is throttled, whatever is decided.
    pub dry_run: bool,
    /// The decision in words, as in the log.
    pub said: String,
    /// The latency that the law steers, and its target.
    pub signal: SignalExplanation,
    /// The throttle that the last decision commands.
    pub throttle: ThrottleFigures,
    /// Names of the consumers whose latency is the signal. Empty: that of all consumers is.
    pub protects: Vec<String>,
    /// The consumers, in the order of the configuration.
    pub consumers: Vec<ConsumerExplanation>,
}

/// The signal of the last decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalExplanation {
    /// Requests whose latency it is.
    pub requests: SignalRequests,
    /// Latency of the last decision, as the law compared it. `null`: nothing was known.
    pub latency_seconds: Option<f64>,
    /// Latency that the law steers to.
    pub set_point_seconds: f64,
    /// Latency promised.
    pub target_seconds: f64,
    /// Latency that the storage cannot go below, if throttling is futile.
    pub floor_seconds: Option<f64>,
    /// True if nothing completes, and the oldest request is overdue.
    pub overload: bool,
}

/// A throttle in figures. `null`: it does not throttle by that.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ThrottleFigures {
    /// Requests of all eligible consumers that may be at the storage.
    pub window_requests: Option<f64>,
    /// Delay of each request.
    pub delay_seconds: Option<f64>,
    /// Requests per second: of all consumers together, or of one.
    pub rate_iops: Option<f64>,
}

/// One consumer at that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerExplanation {
    /// Its name.
    pub name: String,
    /// True if it is never throttled.
    pub protected: bool,
    /// True if the law throttles it, or would on a dry run.
    pub throttled: bool,
    /// The throttle that it feels.
    pub throttle: ThrottleFigures,
    /// Requests per second, in the last ten seconds.
    pub iops: f64,
    /// Mean latency at the storage in that time. `null`: nothing completed.
    pub latency_seconds: Option<f64>,
    /// Throttled spans, the oldest first. The last one goes on if the consumer is throttled.
    pub episodes: Vec<ThrottleEpisode>,
}

/// Keeps what is told of resources while decisions pass by.
#[derive(Debug, Default)]
pub struct ExplanationFold {
    resources: BTreeMap<ResourceName, ResourceFold>,
}

#[derive(Debug)]
struct ResourceFold {
    time: WallTime,
    config: LoopConfig,
    decision: Decision,
    observation: Observation,
    consumers: BTreeMap<ConsumerName, ConsumerFold>,
}

#[derive(Debug, Default)]
struct ConsumerFold {
    recent: VecDeque<RecentLoad>,
    episodes: EpisodeTracker,
    throttle: ThrottleFigures,
    throttled: bool,
}

/// The load of one interval.
#[derive(Debug, Clone, Copy)]
struct RecentLoad {
    seconds: f64,
    count: f64,
    latencies: f64,
}

impl ExplanationFold {
    /// Takes the next decision. `config` is the loop's configuration at that time. Decisions that this build
    /// could not recompute are left out, since their reasons are not known.
    pub fn take(&mut self, replayed: &ReplayedDecision, config: &LoopConfig) {
        let Some((commands, decision)) = &replayed.recomputed else { return };
        let observation = replayed.recorded.observation();
        let held = replayed.recorded.held();
        let resource = self.resources.entry(observation.resource.clone()).or_insert_with(|| ResourceFold {
            time: replayed.time,
            config: config.clone(),
            decision: decision.clone(),
            observation: observation.clone(),
            consumers: BTreeMap::new(),
        });
        let seconds = decision.elapsed.as_secs_f64();
        for consumer in &observation.consumers {
            let known = resource.consumers.entry(consumer.name.clone()).or_default();
            known.note(consumer, seconds);
            let command = commands.consumers.iter().find(|command| command.name == consumer.name);
            known.throttle = ThrottleFigures {
                window_requests: commands.window.map(tidegate_units::Window::get),
                delay_seconds: command.and_then(|command| command.delay).map(Latency::as_secs_f64),
                rate_iops: command.and_then(|command| command.rate).map(tidegate_units::Iops::per_second),
            };
            known.throttled = held > 0 && is_throttled(consumer, decision);
            let moment = ThrottleMoment {
                time: replayed.time,
                seconds,
                throttled: known.throttled,
                iops: known.iops(),
                throttle: known.throttle,
                signal: signal_latency(decision),
            };
            known.episodes.take(&moment);
        }
        let present = |name: &ConsumerName| observation.consumers.iter().any(|one| one.name == *name);
        resource.consumers.retain(|name, _| present(name));
        (resource.time, resource.config) = (replayed.time, config.clone());
        (resource.decision, resource.observation) = (Decision { held, ..decision.clone() }, observation);
    }

    /// Returns the names of the resources and of their consumers.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let of = |(name, resource): (&ResourceName, &ResourceFold)| {
            let consumers = resource.consumers.keys().map(ToString::to_string).collect::<Vec<_>>();
            [vec![name.to_string()], consumers].concat()
        };
        self.resources.iter().flat_map(of).collect()
    }

    /// Explains each resource of this name, or that has a consumer of this name. `None`: all resources.
    #[must_use]
    pub fn explain(&self, name: Option<&str>) -> Vec<ResourceExplanation> {
        let is_meant = |resource: &str, consumers: &BTreeMap<ConsumerName, ConsumerFold>| {
            name.is_none_or(|name| resource == name || consumers.keys().any(|one| one.as_str() == name))
        };
        let resources = self.resources.iter();
        resources
            .filter(|(resource, fold)| is_meant(resource.as_str(), &fold.consumers))
            .map(|(resource, fold)| fold.explain(resource, name.filter(|name| *name != resource.as_str())))
            .collect()
    }
}

impl ResourceFold {
    /// Explains the resource, with this consumer alone if one is named.
    fn explain(&self, resource: &ResourceName, consumer: Option<&str>) -> ResourceExplanation {
        let decision = &self.decision;
        let auto = decision.auto.as_ref();
        let is_meant = |one: &&ConsumerObservation| consumer.is_none_or(|name| one.name.as_str() == name);
        let protects = self.observation.consumers.iter().filter(|consumer| consumer.protected);
        let explain = |one: &ConsumerObservation| {
            let known = self.consumers.get(&one.name)?;
            Some(ConsumerExplanation {
                name: one.name.to_string(),
                protected: one.protected,
                throttled: known.throttled,
                throttle: known.throttle,
                iops: known.iops(),
                latency_seconds: known.latency(),
                episodes: known.episodes.all(),
            })
        };
        ResourceExplanation {
            resource: resource.to_string(),
            at: self.time,
            law: decision.law,
            dry_run: decision.dry_run,
            said: decision.to_string(),
            signal: SignalExplanation {
                requests: decision.signal,
                latency_seconds: signal_latency(decision),
                set_point_seconds: auto.map_or(decision.set_point, |auto| auto.goal).as_secs_f64(),
                target_seconds: self.config.target.as_secs_f64(),
                floor_seconds: auto.and_then(|auto| auto.floor).map(Latency::as_secs_f64),
                overload: matches!(decision.input, SignalState::Overload { .. }),
            },
            throttle: ThrottleFigures {
                window_requests: decision.window().map(tidegate_units::Window::get),
                delay_seconds: match decision.bounded {
                    LawOutput::Delay(delay) => Some(delay.as_secs_f64()),
                    LawOutput::Window(_) | LawOutput::Rate(_) => None,
                },
                rate_iops: match decision.bounded {
                    LawOutput::Rate(rate) => Some(rate.per_second()),
                    LawOutput::Window(_) | LawOutput::Delay(_) => None,
                },
            },
            protects: protects.map(|consumer| consumer.name.to_string()).collect(),
            consumers: self.observation.consumers.iter().filter(is_meant).filter_map(explain).collect(),
        }
    }
}

impl ConsumerFold {
    fn note(&mut self, consumer: &ConsumerObservation, seconds: f64) {
        let operations = [&consumer.reads, &consumer.writes];
        self.recent.push_back(RecentLoad {
            seconds,
            count: operations.iter().map(|one| one.count as f64).sum(),
            latencies: operations.iter().map(|one| one.total_latency.as_secs_f64()).sum(),
        });
        let mut total: f64 = self.recent.iter().map(|load| load.seconds).sum();
        while let Some(first) = self.recent.front().filter(|first| total - first.seconds >= RECENT_S) {
            total -= first.seconds;
            self.recent.pop_front();
        }
    }

    fn sum(&self, of: fn(&RecentLoad) -> f64) -> f64 {
        self.recent.iter().map(of).sum()
    }

    fn iops(&self) -> f64 {
        let seconds = self.sum(|load| load.seconds);
        if seconds > 0.0 { self.sum(|load| load.count) / seconds } else { 0.0 }
    }

    fn latency(&self) -> Option<f64> {
        let count = self.sum(|load| load.count);
        (count > 0.0).then(|| self.sum(|load| load.latencies) / count)
    }
}

/// Times as people write them.
pub(crate) mod time_text {
    use std::time::SystemTime;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use tidegate_journal::WallTime;

    pub(crate) fn serialize<S: Serializer>(time: &WallTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(time)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WallTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map(SystemTime::into).map_err(D::Error::custom)
    }
}

/// The latency that the law compared. If nothing completes, it is the age of the oldest request.
fn signal_latency(decision: &Decision) -> Option<f64> {
    let of_auto = decision.auto.as_ref().map(|auto| auto.latency);
    let latency = match decision.input {
        SignalState::Overload { oldest } => Some(oldest),
        SignalState::Samples { .. } => of_auto.or(decision.estimate),
        SignalState::Unknown | SignalState::Idle | SignalState::NoTime => None,
    };
    latency.map(Latency::as_secs_f64)
}

/// Returns true if the law makes requests of the consumer wait: by a delay, by its rate, or by the window.
fn is_throttled(consumer: &ConsumerObservation, decision: &Decision) -> bool {
    if consumer.protected {
        return false;
    }
    let by_rate = decision.rates.iter().any(|rate| rate.held && rate.name == consumer.name);
    let allotments = decision.point.iter().flat_map(|point| &point.allotments);
    let by_point = allotments.into_iter().any(|part| part.held && part.name == consumer.name);
    let by_output = match decision.bounded {
        LawOutput::Window(_) => consumer.queued > 0,
        LawOutput::Delay(delay) => delay > Latency::ZERO,
        LawOutput::Rate(_) => false,
    };
    by_rate || by_point || by_output
}
