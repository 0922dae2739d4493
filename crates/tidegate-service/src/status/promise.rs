//! The record of a promise: how much of the last minute, hour and day it was kept.
//!
//! A promise is a latency. Each second with completed requests is judged by their mean; a second in which
//! nothing completes although requests are outstanding for too long breaks the promise. Under a contract each
//! request is judged, as the contract says. Seconds without requests are not judged: no samples is unknown.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
pub use tidegate_rollups::JudgedBy;
use tidegate_rollups::PromiseTerms;
use tidegate_units::{Instant, Latency};

/// A promise counts as kept if at least this part of a span is: contracts allow 5 % late requests.
pub const KEPT: f64 = 0.95;

/// A judgement covers at least this time, so that it is about more than a request or two.
const JUDGED: Duration = Duration::from_secs(1);

/// Lengths and numbers of the slots that make up the last minute, hour and day.
const SPANS: [(Duration, u64); 3] =
    [(Duration::from_secs(5), 12), (Duration::from_secs(60), 60), (Duration::from_secs(900), 96)];

/// The fulfilment of one consumer's promise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PromiseStatus {
    /// The promised latency.
    pub response_time_seconds: f64,
    /// The unit of the judgement.
    pub judged_by: JudgedBy,
    /// Fulfilled part of the last minute, from 0 to 1. `null`: nothing to judge by.
    pub minute: Option<f64>,
    /// The same of the last hour.
    pub hour: Option<f64>,
    /// The same of the last day.
    pub day: Option<f64>,
}

impl PromiseStatus {
    /// Returns true if the promise was kept in the last minute. `None`: not known.
    #[must_use]
    pub fn is_kept(&self) -> Option<bool> {
        self.minute.map(is_enough)
    }

    /// Returns the fulfilled parts that are known, by their spans of time.
    pub fn spans(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let spans = [("minute", self.minute), ("hour", self.hour), ("day", self.day)];
        spans.into_iter().filter_map(|(over, kept)| Some((over, kept?)))
    }
}

/// Numbers of consumers, by the fulfilment of their promises in the last minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromiseCounts {
    /// Those whose promise was kept.
    pub kept: usize,
    /// Those whose promise was broken.
    pub broken: usize,
    /// Those that were promised something, and of which nothing could be judged.
    pub unknown: usize,
}

impl FromIterator<PromiseStatus> for PromiseCounts {
    fn from_iter<T: IntoIterator<Item = PromiseStatus>>(promises: T) -> Self {
        promises.into_iter().fold(Self::default(), |mut counts, promise| {
            let count = match promise.is_kept() {
                Some(true) => &mut counts.kept,
                Some(false) => &mut counts.broken,
                None => &mut counts.unknown,
            };
            *count = count.saturating_add(1);
            counts
        })
    }
}

fn is_enough(part: f64) -> bool {
    part >= KEPT
}

/// Counters of a consumer since the start, from which its promise is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromiseReading {
    /// The promised latency.
    pub promised: Latency,
    /// The counters.
    pub counters: PromiseCounters,
}

/// The counters of a reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PromiseCounters {
    /// Completed requests, the sum of their latencies, and the age of the oldest one if none completes.
    Latencies {
        /// Number of completed requests.
        count: u64,
        /// Sum of their latencies.
        sum: Latency,
        /// Age of the oldest outstanding request, where nothing completes.
        oldest: Option<Latency>,
    },
    /// Requests under a contract, and those of them that were late.
    Contract {
        /// Number of completed requests.
        requests: u64,
        /// Those of them that were late.
        late: u64,
    },
}

impl PromiseReading {
    /// Returns the promise.
    #[must_use]
    pub const fn terms(&self) -> PromiseTerms {
        let judged_by = match self.counters {
            PromiseCounters::Latencies { .. } => JudgedBy::Seconds,
            PromiseCounters::Contract { .. } => JudgedBy::Requests,
        };
        PromiseTerms { response_time: self.promised, judged_by }
    }
}

/// Numbers of seconds or requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Judgement {
    /// Those that were judged.
    pub judged: u64,
    /// Those of them in which the promise was kept.
    pub kept: u64,
}

impl Judgement {
    /// Adds another judgement.
    pub const fn add(&mut self, other: Self) {
        self.judged = self.judged.saturating_add(other.judged);
        self.kept = self.kept.saturating_add(other.kept);
    }

    /// Returns the kept part, from 0 to 1. `None`: nothing was judged.
    #[must_use]
    pub fn part(self) -> Option<f64> {
        (self.judged > 0).then(|| self.kept as f64 / self.judged as f64)
    }

    /// Returns true if at least [`KEPT`] was kept. `None`: nothing was judged.
    #[must_use]
    pub fn is_kept(self) -> Option<bool> {
        self.part().map(is_enough)
    }
}

/// The judgements of a span, in slots. The last slot is the current one.
#[derive(Debug, Clone, Default)]
struct SlotRing {
    current: u64,
    slots: VecDeque<Judgement>,
}

impl SlotRing {
    fn advance(&mut self, now: Instant, (length, number): (Duration, u64)) {
        let current = now.as_nanos() / u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let passed = current.saturating_sub(self.current).min(number);
        self.current = current.max(self.current);
        let most = usize::try_from(number).unwrap_or(usize::MAX);
        for _ in 0..passed {
            self.slots.push_back(Judgement::default());
        }
        while self.slots.len() > most {
            self.slots.pop_front();
        }
    }

    fn add(&mut self, judgement: Judgement) {
        if self.slots.is_empty() {
            self.slots.push_back(Judgement::default());
        }
        if let Some(slot) = self.slots.back_mut() {
            slot.add(judgement);
        }
    }

    fn kept(&self) -> Option<f64> {
        let mut sum = Judgement::default();
        self.slots.iter().for_each(|slot| sum.add(*slot));
        sum.part()
    }
}

/// One consumer's promise over time. Its size is fixed: 168 slots.
#[derive(Debug, Clone, Default)]
pub struct PromiseRecord {
    last: Option<(Instant, PromiseReading)>,
    spans: [SlotRing; 3],
}

impl PromiseRecord {
    /// Takes a reading of now, and returns the judgement since the last judged one. Readings closer than a
    /// second to that change nothing.
    pub fn note(&mut self, now: Instant, reading: PromiseReading) -> Judgement {
        let Some((then, before)) = self.last else {
            self.last = Some((now, reading));
            return Judgement::default();
        };
        let elapsed = now.saturating_since(then);
        if elapsed < JUDGED {
            return Judgement::default();
        }
        self.last = Some((now, reading));
        let judgement = judge(before, reading, elapsed);
        for (ring, span) in self.spans.iter_mut().zip(SPANS) {
            ring.advance(now, span);
            ring.add(judgement);
        }
        judgement
    }

    /// Returns the fulfilment as of the last reading. `None` before there is one.
    #[must_use]
    pub fn status(&self) -> Option<PromiseStatus> {
        let (_, reading) = self.last?;
        let [minute, hour, day] = [0, 1, 2].map(|span| self.spans[span].kept());
        let PromiseTerms { response_time, judged_by } = reading.terms();
        let response_time_seconds = response_time.as_secs_f64();
        Some(PromiseStatus { response_time_seconds, judged_by, minute, hour, day })
    }
}

/// Judges the time between two readings. Counters that began anew judge nothing.
fn judge(before: PromiseReading, now: PromiseReading, elapsed: Duration) -> Judgement {
    match (before.counters, now.counters) {
        (
            PromiseCounters::Latencies { count: before, sum: sum_before, .. },
            PromiseCounters::Latencies { count, sum, oldest },
        ) => {
            // A service that was suspended judges the whole time by what completed in it.
            let seconds = elapsed.as_secs().max(1);
            let Some(completed) = count.checked_sub(before) else { return Judgement::default() };
            if completed > 0 {
                let total = sum.saturating_sub(sum_before).as_secs_f64();
                let is_kept = total <= now.promised.as_secs_f64() * completed as f64;
                return Judgement { judged: seconds, kept: if is_kept { seconds } else { 0 } };
            }
            let is_overdue = oldest.is_some_and(|oldest| oldest > now.promised);
            Judgement { judged: if is_overdue { seconds } else { 0 }, kept: 0 }
        }
        (
            PromiseCounters::Contract { requests: before, late: late_before },
            PromiseCounters::Contract { requests, late },
        ) => {
            let judged = requests.saturating_sub(before);
            Judgement { judged, kept: judged.saturating_sub(late.saturating_sub(late_before)) }
        }
        _ => Judgement::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn latencies(count: u64, millis: u64, oldest: Option<u64>) -> PromiseReading {
        PromiseReading {
            promised: Latency::from_millis(10),
            counters: PromiseCounters::Latencies {
                count,
                sum: Latency::from_millis(millis),
                oldest: oldest.map(Latency::from_millis),
            },
        }
    }

    /// A record of seconds in each of which 10 requests completed, with these means in milliseconds.
    fn record(means: &[u64]) -> (PromiseRecord, u64, u64) {
        let (mut record, mut count, mut sum) = (PromiseRecord::default(), 0, 0);
        record.note(at(0), latencies(0, 0, None));
        for (second, mean) in (1..).zip(means) {
            (count, sum) = (count + 10, sum + 10 * mean);
            record.note(at(second), latencies(count, sum, None));
        }
        (record, count, sum)
    }

    #[test]
    fn a_promise_is_kept_in_the_seconds_whose_mean_is_within_it() {
        let status = record(&[5, 10, 11, 40]).0.status().unwrap();
        assert_eq!((status.minute, status.hour, status.day), (Some(0.5), Some(0.5), Some(0.5)));
        assert_eq!(status.is_kept(), Some(false));
    }

    #[test]
    fn a_minute_forgets_what_an_hour_remembers() {
        let means: Vec<u64> = [40; 60].into_iter().chain([5; 120]).collect();
        let status = record(&means).0.status().unwrap();
        assert_eq!((status.minute, status.is_kept()), (Some(1.0), Some(true)));
        assert!(status.hour.is_some_and(|part| (part - 120.0 / 180.0).abs() < 0.01), "{status:?}");
    }

    #[test]
    fn silence_is_unknown_and_a_request_that_never_completes_breaks_the_promise() {
        let (mut record, count, sum) = record(&[]);
        record.note(at(1), latencies(count, sum, None));
        record.note(at(2), latencies(count, sum, Some(9)));
        assert_eq!(record.status().unwrap().is_kept(), None);
        record.note(at(3), latencies(count, sum, Some(11)));
        assert_eq!(record.status().unwrap().minute, Some(0.0));
    }

    #[test]
    fn under_a_contract_each_request_is_judged() {
        let mut record = PromiseRecord::default();
        for (second, requests, late) in [(0, 0, 0), (1, 100, 4), (2, 200, 4)] {
            let counters = PromiseCounters::Contract { requests, late };
            record.note(at(second), PromiseReading { promised: Latency::from_millis(10), counters });
        }
        let status = record.status().unwrap();
        assert_eq!((status.judged_by, status.minute), (JudgedBy::Requests, Some(0.98)));
    }

    #[test]
    fn promises_are_counted_by_their_last_minute() {
        let of = |means: &[u64]| record(means).0.status().unwrap();
        let counts = [of(&[5]), of(&[40]), of(&[5, 5]), of(&[])].into_iter().collect::<PromiseCounts>();
        assert_eq!(counts, PromiseCounts { kept: 2, broken: 1, unknown: 1 });
    }

    #[test]
    fn a_day_has_a_bounded_size() {
        let mut record = PromiseRecord::default();
        for second in 0..3 * 86_400 {
            record.note(at(second), latencies(second, 5 * second, None));
        }
        assert_eq!(record.spans.iter().map(|ring| ring.slots.len()).sum::<usize>(), 168);
        assert!(record.spans.iter().zip(SPANS).all(|(ring, (_, number))| ring.slots.len() as u64 == number));
    }
}
