//! The part that each consumer has in a history.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_control::{ConsumerObservation, Decision, Observation};
use tidegate_units::ConsumerName;

use crate::explain::is_throttled;

/// The most consumers that one history tells of.
pub const MOST_CONSUMERS: usize = 50;

/// The most consumers that are followed to find the busiest. Chosen: with the most points they take 20 MB
/// while a journal is read.
const MOST_FOLLOWED: usize = 1_000;

/// The consumers that a history tells of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HistoryConsumers {
    /// None.
    #[default]
    None,
    /// So many consumers, those with the most requests first.
    Busiest(usize),
    /// The consumer of this name.
    One(ConsumerName),
}

/// One consumer over the span. Each column has a value for each point of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerHistory {
    /// Its name.
    pub name: String,
    /// True if it was protected when it was seen last.
    pub protected: bool,
    /// Requests that completed in the span.
    pub requests: u64,
    /// Mean number of requests that completed per second. `null`: it was not observed.
    pub iops: Vec<Option<f64>>,
    /// Mean latency of these requests at the storage. `null`: none completed.
    pub latency_seconds: Vec<Option<f64>>,
    /// Part of the time for which the law throttled it, from 0 to 1. On a dry run it throttles nothing.
    /// `null`: it was not observed.
    pub throttled: Vec<Option<f64>>,
}

/// Adds up what consumers did while decisions pass by.
#[derive(Debug)]
pub(super) struct ConsumersFold {
    wanted: HistoryConsumers,
    followed: BTreeMap<ConsumerName, ConsumerFold>,
    /// The most consumers that were observed at a time.
    most_observed: usize,
}

#[derive(Debug, Default)]
struct ConsumerFold {
    protected: bool,
    requests: u64,
    current: Option<ConsumerSums>,
    /// The parts in which it was observed, by the number of their point.
    parts: Vec<(usize, ConsumerSums)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ConsumerSums {
    seconds: f64,
    requests: u64,
    latencies: f64,
    throttled_seconds: f64,
}

impl ConsumersFold {
    pub(super) const fn new(wanted: HistoryConsumers) -> Self {
        Self { wanted, followed: BTreeMap::new(), most_observed: 0 }
    }

    /// Takes one decision about the time of an observation. `decision.held` is the number of consumers that
    /// were throttled in fact.
    pub(super) fn take(&mut self, observation: &Observation, decision: &Decision) {
        self.most_observed = self.most_observed.max(observation.consumers.len());
        for consumer in &observation.consumers {
            let is_wanted = match &self.wanted {
                HistoryConsumers::None => return,
                HistoryConsumers::Busiest(_) => true,
                HistoryConsumers::One(name) => *name == consumer.name,
            };
            if !is_wanted {
                continue;
            }
            let is_full = self.followed.len() >= MOST_FOLLOWED;
            let known = match self.followed.get_mut(&consumer.name) {
                Some(known) => known,
                None if is_full => continue,
                None => self.followed.entry(consumer.name.clone()).or_default(),
            };
            known.add(consumer, decision);
        }
    }

    /// Ends the part of the span that becomes the point of this number.
    pub(super) fn end_part(&mut self, point: usize) {
        for known in self.followed.values_mut() {
            known.parts.extend(known.current.take().map(|sums| (point, sums)));
        }
    }

    /// Returns the consumers, the busiest first, and the number of those that are left out.
    pub(super) fn finish(self, points: usize) -> (Vec<ConsumerHistory>, usize) {
        let most = match self.wanted {
            HistoryConsumers::None => 0,
            HistoryConsumers::Busiest(most) => most.min(MOST_CONSUMERS),
            HistoryConsumers::One(_) => 1,
        };
        // Of more than are followed, the rest is known only while they are observed together.
        let seen = self.followed.len().max(self.most_observed);
        let mut all: Vec<_> = self.followed.into_iter().collect();
        all.sort_by_key(|(_, known)| Reverse(known.requests));
        let told: Vec<_> =
            all.into_iter().take(most).map(|(name, known)| known.finish(&name, points)).collect();
        let left_out = seen.saturating_sub(told.len());
        (told, left_out)
    }
}

impl ConsumerFold {
    fn add(&mut self, consumer: &ConsumerObservation, decision: &Decision) {
        let [reads, writes] = [&consumer.reads, &consumer.writes];
        let requests = reads.count.saturating_add(writes.count);
        let seconds = decision.elapsed.as_secs_f64();
        self.protected = consumer.protected;
        self.requests = self.requests.saturating_add(requests);
        let sums = self.current.get_or_insert_default();
        sums.seconds += seconds;
        sums.requests = sums.requests.saturating_add(requests);
        sums.latencies += reads.total_latency.as_secs_f64() + writes.total_latency.as_secs_f64();
        if decision.held > 0 && !decision.dry_run && is_throttled(consumer, decision) {
            sums.throttled_seconds += seconds;
        }
    }

    fn finish(self, name: &ConsumerName, points: usize) -> ConsumerHistory {
        let column = |of: fn(&ConsumerSums) -> Option<f64>| {
            let mut values = vec![None; points];
            for (point, sums) in &self.parts {
                values[*point] = of(sums);
            }
            values
        };
        ConsumerHistory {
            name: name.to_string(),
            protected: self.protected,
            requests: self.requests,
            iops: column(|sums| sums.part_of_time(sums.requests as f64)),
            latency_seconds: column(|sums| {
                (sums.requests > 0).then(|| sums.latencies / sums.requests as f64)
            }),
            throttled: column(|sums| sums.part_of_time(sums.throttled_seconds)),
        }
    }
}

impl ConsumerSums {
    fn part_of_time(&self, of: f64) -> Option<f64> {
        (self.seconds > 0.0).then(|| of / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_control::{AutoConfig, ControlLoop, LoopConfig};
    use tidegate_units::{Instant, Latency, ResourceName, Shares};

    use super::*;

    /// Folds parts of one decision each, in which these consumers read so many times, each for 2 ms. The last
    /// decision throttles.
    fn folded(wanted: HistoryConsumers, parts: &[&[(&str, u64)]]) -> (Vec<ConsumerHistory>, usize) {
        let resource = ResourceName::new("vg0").unwrap();
        let law = AutoConfig::default().into();
        let config = LoopConfig::new(resource.clone(), Latency::from_millis(15), law);
        let mut control = ControlLoop::new(config).unwrap();
        let mut fold = ConsumersFold::new(wanted);
        control.step(Instant::ZERO, &Observation::new(resource.clone(), Instant::ZERO, Vec::new()));
        for (part, consumers) in parts.iter().enumerate() {
            let at = Instant::ZERO + Duration::from_millis(250 * (part as u64 + 1));
            let observe = |(name, reads): &(&str, u64)| {
                let name = ConsumerName::new(name).unwrap();
                let mut one = ConsumerObservation::idle(name, Shares::MIN, false);
                one.reads.count = *reads;
                one.reads.total_latency = Latency::from_millis(2 * reads);
                one.queued = 1;
                one
            };
            let consumers = consumers.iter().map(observe).collect();
            let observation = Observation::new(resource.clone(), at, consumers);
            let (_, decision) = control.step(at, &observation);
            let held = u32::from(part + 1 == parts.len());
            fold.take(&observation, &Decision { held, ..decision });
            fold.end_part(part);
        }
        fold.finish(parts.len())
    }

    #[test]
    fn the_busiest_come_first_and_are_unknown_while_they_are_away() {
        let parts: [&[_]; 3] = [&[("a", 10), ("b", 0)], &[("b", 50), ("c", 20)], &[("b", 50)]];
        let (told, left_out) = folded(HistoryConsumers::Busiest(2), &parts);
        assert_eq!((told.len(), left_out), (2, 1));
        let [b, c] = &told[..] else { panic!("{told:?}") };
        assert_eq!((b.name.as_str(), b.requests, c.name.as_str()), ("b", 100, "c"));
        assert_eq!(b.iops, [Some(0.0), Some(200.0), Some(200.0)]);
        assert_eq!(b.latency_seconds, [None, Some(0.002), Some(0.002)]);
        assert_eq!(b.throttled, [Some(0.0), Some(0.0), Some(1.0)]);
        assert_eq!(c.iops, [None, Some(80.0), None]);
        let one = HistoryConsumers::One(ConsumerName::new("c").unwrap());
        let (told, left_out) = folded(one, &parts);
        assert_eq!((told.len(), told[0].name.as_str(), left_out), (1, "c", 1));
        assert!(folded(HistoryConsumers::None, &parts).0.is_empty());
    }
}
