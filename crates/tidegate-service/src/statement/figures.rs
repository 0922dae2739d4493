//! The figures of a day or a month.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidegate_control::WaitReason;
use tidegate_rollups::{JudgedBy, MinuteCounts, PromiseTerms};
use tidegate_units::Latency;

use crate::status::Judgement;

/// A minute without requests counts as idle if the service watched it for this time: half of it. Chosen.
const WATCHED: Duration = Duration::from_secs(30);

const SECONDS_PER_MINUTE: f64 = 60.0;

/// The figures of a span of time. `null` means unknown; it never means good.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpanFigures {
    /// Each promise of the span, and how much of it was kept.
    pub promises: Vec<PromiseFigures>,
    /// Its minutes.
    pub minutes: MinuteNumbers,
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Requests per second, on average over the minutes that are known.
    pub iops: Option<f64>,
    /// Requests per second in the busiest minute.
    pub peak_iops: Option<f64>,
    /// The mean latency at the storage; with a law that releases requests, from their release.
    pub storage_seconds: Option<f64>,
    /// The mean latency that the client sees, less the network.
    pub client_seconds: Option<f64>,
    /// The time during which requests waited.
    pub waited: WaitFigures,
}

/// One promise, and its fulfilment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromiseFigures {
    /// The promised latency.
    pub response_time_seconds: f64,
    /// The unit of the judgement.
    pub judged_by: JudgedBy,
    /// Seconds or requests that were judged.
    pub judged: u64,
    /// Those of them in which it was kept.
    pub kept: u64,
    /// The kept part, from 0 to 1. `null`: nothing was judged.
    pub kept_fraction: Option<f64>,
    /// True if enough of it was kept. `null`: nothing was judged.
    pub is_kept: Option<bool>,
}

/// Numbers of minutes. Each minute is of one kind: judged, idle, unpromised or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MinuteNumbers {
    /// All minutes.
    pub total: u64,
    /// Those in which something was judged.
    pub judged: u64,
    /// Judged ones in which too little was kept.
    pub missed: u64,
    /// Those in which the consumer sent nothing.
    pub idle: u64,
    /// Those in which it sent requests and was promised nothing.
    pub unpromised: u64,
    /// Those in which the service did not run or judged nothing, although requests came.
    pub unknown: u64,
}

/// Times during which requests waited, by the reason.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct WaitFigures {
    /// The law throttled the consumer.
    pub law_seconds: f64,
    /// The consumer was at its limit.
    pub limit_seconds: f64,
    /// The depth was full, and others had a part of it.
    pub share_seconds: f64,
    /// The depth was full of the consumer's own requests.
    pub depth_seconds: f64,
}

/// The sums of a span.
#[derive(Debug, Clone, Default)]
pub(super) struct SpanSum {
    counts: MinuteCounts,
    promises: BTreeMap<PromiseTerms, Judgement>,
    minutes: MinuteNumbers,
    /// Requests in minutes that are known.
    known_requests: u64,
    busiest: u64,
}

impl SpanSum {
    /// Begins a span of so many minutes, all of them unknown.
    pub(super) fn new(minutes: u32) -> Self {
        let minutes = MinuteNumbers {
            total: u64::from(minutes),
            unknown: u64::from(minutes),
            ..MinuteNumbers::default()
        };
        Self { minutes, ..Self::default() }
    }

    /// Adds a minute of the span, in the parts that it has.
    pub(super) fn add_minute(&mut self, parts: &[(Option<PromiseTerms>, MinuteCounts)]) {
        let mut minute = MinuteCounts::default();
        // The promises of a minute are kept if each one is.
        let mut is_missed = false;
        for (promise, counts) in parts {
            minute.add(counts);
            if let Some(promise) = promise {
                let judgement = Judgement { judged: counts.judged, kept: counts.kept };
                self.promises.entry(*promise).or_default().add(judgement);
                is_missed |= judgement.is_kept() == Some(false);
            }
        }
        self.counts.add(&minute);
        self.busiest = self.busiest.max(minute.requests);
        let is_silent = minute.requests == 0 && minute.storage_requests == 0 && !minute.was_stuck;
        let numbers = &mut self.minutes;
        let kind = if minute.judged > 0 {
            numbers.missed += u64::from(is_missed);
            &mut numbers.judged
        } else if is_silent && minute.watched >= WATCHED {
            &mut numbers.idle
        } else if !is_silent && parts.iter().all(|(promise, _)| promise.is_none()) {
            &mut numbers.unpromised
        } else {
            return;
        };
        *kind += 1;
        numbers.unknown -= 1;
        self.known_requests = self.known_requests.saturating_add(minute.requests);
    }

    /// Adds a span that follows.
    pub(super) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        for (promise, judgement) in &other.promises {
            self.promises.entry(*promise).or_default().add(*judgement);
        }
        let (sum, more) = (&mut self.minutes, &other.minutes);
        sum.total += more.total;
        sum.judged += more.judged;
        sum.missed += more.missed;
        sum.idle += more.idle;
        sum.unpromised += more.unpromised;
        sum.unknown += more.unknown;
        self.known_requests = self.known_requests.saturating_add(other.known_requests);
        self.busiest = self.busiest.max(other.busiest);
    }

    pub(super) fn figures(&self) -> SpanFigures {
        let counts = &self.counts;
        let known = self.minutes.total - self.minutes.unknown;
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        // An agent counts requests whose latency it does not know. No request takes no time.
        let latency = |sum: Latency, count| mean(sum.as_secs_f64(), count).filter(|mean| *mean > 0.0);
        let waited = |reason| counts.waited_for(reason).as_secs_f64();
        let promise = |(terms, judgement): (&PromiseTerms, &Judgement)| PromiseFigures {
            response_time_seconds: terms.response_time.as_secs_f64(),
            judged_by: terms.judged_by,
            judged: judgement.judged,
            kept: judgement.kept,
            kept_fraction: judgement.part(),
            is_kept: judgement.is_kept(),
        };
        SpanFigures {
            promises: self.promises.iter().map(promise).collect(),
            minutes: self.minutes,
            requests: counts.requests,
            read_bytes: counts.read.get(),
            written_bytes: counts.written.get(),
            iops: mean(self.known_requests as f64 / SECONDS_PER_MINUTE, known),
            peak_iops: (known > 0).then(|| self.busiest as f64 / SECONDS_PER_MINUTE),
            storage_seconds: latency(counts.storage_time, counts.storage_requests),
            client_seconds: latency(counts.client_time, counts.requests),
            waited: WaitFigures {
                law_seconds: waited(WaitReason::Law),
                limit_seconds: waited(WaitReason::Limit),
                share_seconds: waited(WaitReason::Share),
                depth_seconds: waited(WaitReason::Depth),
            },
        }
    }
}
