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
use tidegate_journal::{ConsumerReading, ReplayedDecision, ThrottleMechanism, WallTime};
use tidegate_units::{ByteRate, ConsumerName, Iops, Latency, ResourceName};

use episode::{EpisodeTracker, ThrottleMoment};
pub use episode::{ThrottleEffect, ThrottleEpisode};
pub use question::{AskedTime, ExplainError, JournalExplanation, NoTime, asked_span, explain_journal};

/// Rates and latencies are of the last so many seconds.
const RECENT_S: f64 = 10.0;

/// The most consumers of a resource that are told of although they are not observed any more.
const MOST_ABSENT: usize = 1_000;

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
    /// Mechanism that carries out the commands.
    pub mechanism: ThrottleMechanism,
    /// True if nothing is throttled, whatever is decided.
    pub dry_run: bool,
    /// True if that is because an operator released all consumers.
    #[serde(default)]
    pub released: bool,
    /// Number of throttled consumers; on a dry run, of those that would be.
    pub held: u32,
    /// Number of eligible consumers.
    pub eligible: u32,
    /// The decision in words, as in the log.
    pub said: String,
    /// The latency that the law steers, and its target.
    pub signal: SignalExplanation,
    /// The throttle that the last decision commands.
    pub throttle: ThrottleFigures,
    /// Names of the consumers whose latency is the signal. Empty: that of all consumers is.
    pub protects: Vec<String>,
    /// Actions on the resource in the span, and errors of its storage, the oldest first.
    #[serde(default)]
    pub actions: Vec<ExplainedAction>,
    /// The consumers, in the order of the observation, then those that were throttled and are not observed
    /// any more.
    pub consumers: Vec<ConsumerExplanation>,
}

/// An action of an operator, of the service or of the storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainedAction {
    /// Its time.
    #[serde(with = "time_text")]
    pub at: WallTime,
    /// The user, the token, the signal or the part that acted.
    pub actor: String,
    /// The action in words.
    pub text: String,
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

/// Limits in force for a consumer, as they were read back from the throttle. `null`: none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct InForceFigures {
    /// Delay of each packet.
    pub delay_seconds: Option<f64>,
    /// Reads per second.
    pub read_iops: Option<f64>,
    /// Bytes read per second.
    pub read_bytes_per_second: Option<f64>,
    /// Writes per second.
    pub write_iops: Option<f64>,
    /// Bytes written per second.
    pub write_bytes_per_second: Option<f64>,
}

impl From<&ConsumerReading> for InForceFigures {
    fn from(reading: &ConsumerReading) -> Self {
        let ConsumerReading { delay, reads, writes, .. } = reading;
        Self {
            delay_seconds: delay.map(Latency::as_secs_f64),
            read_iops: reads.rate.map(Iops::per_second),
            read_bytes_per_second: reads.bytes.map(ByteRate::per_second),
            write_iops: writes.rate.map(Iops::per_second),
            write_bytes_per_second: writes.bytes.map(ByteRate::per_second),
        }
    }
}

/// One consumer at that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerExplanation {
    /// Its name.
    pub name: String,
    /// The name of the pod, container, machine or unit that a cgroup is. Absent: not known, or none. A
    /// journal does not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_as: Option<String>,
    /// True if it is never throttled.
    pub protected: bool,
    /// False if it was not observed by itself any more: it is away, or not eligible.
    pub present: bool,
    /// True if the law throttles it, or would on a dry run.
    pub throttled: bool,
    /// The throttle that it feels.
    pub throttle: ThrottleFigures,
    /// Limits in force for it when the decision was made. `null`: they were not read back.
    pub in_force: Option<InForceFigures>,
    /// Requests per second, in the last ten seconds.
    pub iops: f64,
    /// Mean latency at the storage in that time. `null`: nothing completed.
    pub latency_seconds: Option<f64>,
    /// Spans in which it was throttled, or would have been, the oldest first. The last one goes on if
    /// `throttled` is true.
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
    mechanism: ThrottleMechanism,
    decision: Decision,
    observation: Observation,
    consumers: BTreeMap<ConsumerName, ConsumerFold>,
}

#[derive(Debug, Default)]
struct ConsumerFold {
    recent: VecDeque<RecentLoad>,
    episodes: EpisodeTracker,
    throttle: ThrottleFigures,
    in_force: Option<InForceFigures>,
    throttled: bool,
    /// Time of its last observation.
    seen: WallTime,
}

/// The load of one interval.
#[derive(Debug, Clone, Copy)]
struct RecentLoad {
    seconds: f64,
    count: f64,
    latencies: f64,
}

impl ExplanationFold {
    /// Takes the next decision. `config` is the loop's configuration at that time, and `mechanism` carries
    /// out its commands. Decisions that this build could not recompute are left out, since their reasons are
    /// not known.
    pub fn take(&mut self, replayed: &ReplayedDecision, config: &LoopConfig, mechanism: ThrottleMechanism) {
        let Some((commands, decision)) = &replayed.recomputed else { return };
        let observation = replayed.recorded.observation();
        let held = replayed.recorded.held();
        let resource = self.resources.entry(observation.resource.clone()).or_insert_with(|| ResourceFold {
            time: replayed.time,
            config: config.clone(),
            mechanism,
            decision: decision.clone(),
            observation: observation.clone(),
            consumers: BTreeMap::new(),
        });
        let seconds = decision.elapsed.as_secs_f64();
        let readings = replayed.recorded.reading().map_or(&[][..], |reading| &reading.consumers);
        for consumer in &observation.consumers {
            let known = resource.consumers.entry(consumer.name.clone()).or_default();
            known.note(consumer, seconds);
            let command = commands.consumers.iter().find(|command| command.name == consumer.name);
            known.throttle = ThrottleFigures {
                window_requests: commands.window.map(tidegate_units::Window::get),
                delay_seconds: command.and_then(|command| command.delay).map(Latency::as_secs_f64),
                rate_iops: command.and_then(|command| command.rate).map(tidegate_units::Iops::per_second),
            };
            let reading = readings.iter().find(|reading| reading.name == consumer.name);
            known.in_force = reading.map(InForceFigures::from);
            known.seen = replayed.time;
            known.throttled = held > 0 && is_throttled(consumer, decision);
            let moment = ThrottleMoment {
                time: replayed.time,
                seconds,
                throttled: known.throttled,
                effect: ThrottleEffect::of(decision),
                iops: known.iops(),
                throttle: known.throttle,
                signal: signal_latency(decision),
            };
            known.episodes.take(&moment);
        }
        resource.time = replayed.time;
        resource.forget_absent();
        (resource.config, resource.mechanism) = (config.clone(), mechanism);
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
    /// Keeps the consumers that are away as far as there is something to tell of them: an agent's consumers
    /// come and go.
    fn forget_absent(&mut self) {
        let now = self.time;
        self.consumers.retain(|_, consumer| consumer.seen == now || consumer.was_throttled());
        let absent = self.consumers.values().filter(|consumer| consumer.seen < now).count();
        if absent > MOST_ABSENT {
            let longest = self.consumers.iter().min_by_key(|(_, consumer)| consumer.seen);
            if let Some(name) = longest.map(|(name, _)| name.clone()) {
                self.consumers.remove(&name);
            }
        }
    }

    /// Explains the resource, with this consumer alone if one is named.
    fn explain(&self, resource: &ResourceName, consumer: Option<&str>) -> ResourceExplanation {
        let decision = &self.decision;
        let is_meant = |one: &&ConsumerObservation| consumer.is_none_or(|name| one.name.as_str() == name);
        let protects = self.observation.consumers.iter().filter(|consumer| consumer.protected);
        let explain = |one: &ConsumerObservation| {
            let known = self.consumers.get(&one.name)?;
            Some(ConsumerExplanation { protected: one.protected, ..known.explain(&one.name) })
        };
        let present = self.observation.consumers.iter().filter(is_meant).filter_map(explain);
        let absent = self.consumers.iter().filter(|(_, known)| known.seen < self.time);
        let absent = absent.filter(|(name, _)| consumer.is_none_or(|meant| name.as_str() == meant));
        let absent = absent.map(|(name, known)| ConsumerExplanation {
            present: false,
            throttled: false,
            throttle: ThrottleFigures::default(),
            in_force: None,
            iops: 0.0,
            latency_seconds: None,
            ..known.explain(name)
        });
        ResourceExplanation {
            resource: resource.to_string(),
            at: self.time,
            law: decision.law,
            mechanism: self.mechanism,
            dry_run: decision.dry_run,
            released: decision.released,
            held: decision.held,
            eligible: decision.throttled,
            said: decision.to_string(),
            signal: SignalExplanation {
                requests: decision.signal,
                latency_seconds: signal_latency(decision),
                set_point_seconds: decision.steered_to().as_secs_f64(),
                target_seconds: self.config.target.as_secs_f64(),
                floor_seconds: decision.auto.and_then(|auto| auto.floor).map(Latency::as_secs_f64),
                overload: matches!(decision.input, SignalState::Overload { .. }),
            },
            throttle: ThrottleFigures {
                window_requests: decision.window().map(tidegate_units::Window::get),
                delay_seconds: match decision.throttle() {
                    LawOutput::Delay(delay) => Some(delay.as_secs_f64()),
                    LawOutput::Window(_) | LawOutput::Rate(_) => None,
                },
                rate_iops: match decision.throttle() {
                    LawOutput::Rate(rate) => Some(rate.per_second()),
                    LawOutput::Window(_) | LawOutput::Delay(_) => None,
                },
            },
            protects: protects.map(|consumer| consumer.name.to_string()).collect(),
            actions: Vec::new(),
            consumers: present.chain(absent).collect(),
        }
    }
}

impl ConsumerFold {
    fn was_throttled(&self) -> bool {
        !self.episodes.is_empty()
    }

    /// Explains an eligible consumer that is observed.
    fn explain(&self, name: &ConsumerName) -> ConsumerExplanation {
        ConsumerExplanation {
            name: name.to_string(),
            selected_as: None,
            protected: false,
            present: true,
            throttled: self.throttled,
            throttle: self.throttle,
            in_force: self.in_force,
            iops: self.iops(),
            latency_seconds: self.latency(),
            episodes: self.episodes.all(),
        }
    }

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
    let latency = match decision.input {
        SignalState::Overload { oldest } => Some(oldest),
        SignalState::Samples { .. } => decision.compared(),
        SignalState::Unknown | SignalState::Idle | SignalState::NoTime => None,
    };
    latency.map(Latency::as_secs_f64)
}

/// Returns true if the law makes requests of the consumer wait: by a delay, by its rate, or by the window.
pub(crate) fn is_throttled(consumer: &ConsumerObservation, decision: &Decision) -> bool {
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
