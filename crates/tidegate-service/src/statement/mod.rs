//! The statement of a month for one consumer: its promises, how much of them was kept, and what it got.
//!
//! Nothing is measured or judged here. [`StatementFold`] adds up the rollups of the month, and
//! [`MonthStatement`] is the result. All times are UTC.

mod figures;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tidegate_rollups::{Minute, MinuteCounts, Month, PromiseTerms, RollupKey};
use tidegate_units::ConsumerName;

use figures::SpanSum;
pub use figures::{MinuteNumbers, PromiseFigures, SpanFigures, WaitFigures};

/// The service that one consumer got in one month, beside its promises.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MonthStatement {
    /// The consumer.
    pub consumer: String,
    /// The resources that it was a consumer of.
    pub resources: Vec<String>,
    /// The month, in UTC.
    pub month: Month,
    /// False if the month is under way: its later minutes do not count yet.
    pub is_over: bool,
    /// True if every promise of the month was kept. `null`: nothing was judged.
    pub is_kept: Option<bool>,
    /// The month, from the first day of which anything is known.
    pub total: SpanFigures,
    /// Its days from the first one of which anything is known, as far as they have begun.
    pub days: Vec<DayFigures>,
}

/// One day, from midnight to midnight UTC.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DayFigures {
    /// The day of the month, from 1.
    pub day: u32,
    /// Its figures.
    #[serde(flatten)]
    pub figures: SpanFigures,
}

/// The counts of one minute, by promise: a promise may change within a minute.
type MinuteParts = Vec<(Option<PromiseTerms>, MinuteCounts)>;

/// Adds up the rollups of a month.
#[derive(Debug, Clone)]
pub struct StatementFold {
    consumer: ConsumerName,
    month: Month,
    /// The first minute that is not over.
    end: Minute,
    resources: BTreeSet<String>,
    minutes: BTreeMap<Minute, MinuteParts>,
}

impl StatementFold {
    /// Begins a statement. Minutes from `now` on do not count: they are not over.
    #[must_use]
    pub fn new(consumer: ConsumerName, month: Month, now: Minute) -> Self {
        let end = month.first_minute().later(month.minutes()).min(now);
        Self { consumer, month, end, resources: BTreeSet::new(), minutes: BTreeMap::new() }
    }

    /// Adds a rollup, in any order. Those of other consumers are left out, and minutes that come twice are
    /// added up.
    pub fn take(&mut self, minute: Minute, key: &RollupKey, counts: &MinuteCounts) {
        if key.consumer != self.consumer || minute < self.month.first_minute() || minute >= self.end {
            return;
        }
        if !self.resources.contains(key.resource.as_str()) {
            self.resources.insert(key.resource.to_string());
        }
        let parts = self.minutes.entry(minute).or_default();
        match parts.iter_mut().find(|(promise, _)| *promise == key.promise) {
            Some((_, sum)) => sum.add(counts),
            None => parts.push((key.promise, *counts)),
        }
    }

    /// Returns the statement; `None` if nothing is known of the consumer in the month.
    #[must_use]
    pub fn finish(&self) -> Option<MonthStatement> {
        let known = *self.minutes.first_key_value()?.0;
        let last = self.month.day(self.month.days() + 1);
        let mut total = SpanSum::default();
        let mut days = Vec::new();
        for day in 1..=self.month.days() {
            let (from, until) = (self.month.day(day), self.month.day(day + 1).min(self.end));
            if from >= until {
                break;
            }
            // A consumer that is new, or rollups that were begun, in the middle of a month.
            if until <= known {
                continue;
            }
            let mut sum = SpanSum::new(until.since(from));
            self.minutes.range(from..until).for_each(|(_, parts)| sum.add_minute(parts));
            total.add(&sum);
            days.push(DayFigures { day, figures: sum.figures() });
        }
        let total = total.figures();
        let kept: Vec<bool> = total.promises.iter().filter_map(|promise| promise.is_kept).collect();
        Some(MonthStatement {
            consumer: self.consumer.to_string(),
            resources: self.resources.iter().cloned().collect(),
            month: self.month,
            is_over: self.end == last,
            is_kept: (!kept.is_empty()).then(|| kept.iter().all(|kept| *kept)),
            total,
            days,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_control::WaitReason;
    use tidegate_rollups::JudgedBy;
    use tidegate_units::{Bytes, Latency, ResourceName};

    use super::*;

    fn month() -> Month {
        "2026-02".parse().unwrap()
    }

    fn key(promise: Option<(u64, JudgedBy)>) -> RollupKey {
        RollupKey {
            resource: ResourceName::new("disk").unwrap(),
            consumer: ConsumerName::new("w1").unwrap(),
            promise: promise.map(|(millis, judged_by)| PromiseTerms {
                response_time: Latency::from_millis(millis),
                judged_by,
            }),
        }
    }

    fn whole() -> MinuteCounts {
        MinuteCounts { watched: Duration::from_secs(60), ..MinuteCounts::default() }
    }

    fn judged(judged: u64, kept: u64) -> MinuteCounts {
        MinuteCounts {
            judged,
            kept,
            requests: 600,
            client_time: Latency::from_millis(6_000),
            storage_requests: 1_200,
            storage_time: Latency::from_millis(3_000),
            read: Bytes::new(4_096),
            written: Bytes::new(512),
            ..whole()
        }
    }

    fn fold(now: Minute) -> StatementFold {
        StatementFold::new(ConsumerName::new("w1").unwrap(), month(), now)
    }

    #[test]
    fn minutes_are_judged_idle_unknown_or_not_promised_anything() {
        let (seconds, mut fold) = (key(Some((20, JudgedBy::Seconds))), fold(month().day(3)));
        let first = month().first_minute();
        fold.take(first, &seconds, &judged(50, 50));
        fold.take(first.later(1), &seconds, &judged(50, 20));
        fold.take(first.later(2), &seconds, &whole());
        // Watched for a part of the minute, and nothing came.
        let brief = MinuteCounts { watched: Duration::from_secs(29), ..whole() };
        fold.take(first.later(3), &seconds, &brief);
        // Requests that never completed, without a law that would know.
        fold.take(first.later(4), &seconds, &MinuteCounts { was_stuck: true, ..whole() });
        fold.take(first.later(5), &seconds, &MinuteCounts { requests: 7, ..whole() });
        fold.take(first.later(6), &key(None), &MinuteCounts { requests: 7, ..whole() });
        fold.take(month().day(2), &seconds, &judged(1, 1));
        // Not of this statement.
        fold.take(month().day(3), &seconds, &judged(1, 0));
        let other = RollupKey { consumer: ConsumerName::new("w2").unwrap(), ..seconds.clone() };
        fold.take(first, &other, &judged(1, 0));

        let statement = fold.finish().unwrap();
        assert_eq!((statement.days.len(), statement.is_over), (2, false));
        let day = &statement.days[0].figures;
        let expected =
            MinuteNumbers { total: 1_440, judged: 2, missed: 1, idle: 1, unpromised: 1, unknown: 1_436 };
        assert_eq!(day.minutes, expected);
        assert_eq!((day.requests, day.read_bytes, day.written_bytes), (1_214, 8_192, 1_024));
        assert_eq!((day.client_seconds, day.storage_seconds), (Some(12.0 / 1_214.0), Some(0.0025)));
        assert_eq!(day.peak_iops, Some(10.0));
        let [promise] = &statement.total.promises[..] else { panic!("{statement:?}") };
        assert_eq!((promise.judged, promise.kept, promise.is_kept), (101, 71, Some(false)));
        assert_eq!(statement.is_kept, Some(false));
    }

    #[test]
    fn a_statement_begins_with_the_first_day_of_which_anything_is_known() {
        let mut fold = fold(month().next().first_minute());
        fold.take(month().day(27).later(90), &key(Some((20, JudgedBy::Seconds))), &judged(50, 50));
        let statement = fold.finish().unwrap();
        let days: Vec<_> = statement.days.iter().map(|day| day.day).collect();
        assert_eq!((days, statement.total.minutes.total), (vec![27, 28], 2 * 1_440));
        assert_eq!(statement.total.minutes.unknown, 2 * 1_440 - 1, "the rest of those days is unknown");
    }

    #[test]
    fn parts_of_a_minute_and_promises_are_added_up() {
        let mut fold = fold(month().day(28));
        let (early, late) = (key(Some((20, JudgedBy::Seconds))), key(Some((50, JudgedBy::Requests))));
        let half = MinuteCounts { watched: Duration::from_secs(30), ..judged(30, 30) };
        for (place, key) in [(5, &early), (5, &late), (5, &early)] {
            let mut half = half;
            half.add_wait(WaitReason::Limit, Duration::from_secs(place));
            fold.take(month().first_minute(), key, &half);
        }
        let statement = fold.finish().unwrap();
        let figures = &statement.days[0].figures;
        assert_eq!((figures.minutes.judged, figures.requests), (1, 1_800));
        assert!((figures.waited.limit_seconds - 15.0).abs() < 1e-9);
        let promises: Vec<_> =
            figures.promises.iter().map(|promise| (promise.judged_by, promise.judged)).collect();
        assert_eq!(promises, [(JudgedBy::Seconds, 60), (JudgedBy::Requests, 30)]);
        assert_eq!(statement.is_kept, Some(true));
        assert_eq!((statement.days.len(), statement.total.minutes.total), (27, 27 * 1_440));
    }

    #[test]
    fn a_month_without_a_rollup_has_no_statement_and_one_without_a_judgement_no_verdict() {
        let mut fold = fold(month().next().first_minute());
        assert_eq!(fold.finish(), None);
        fold.take(month().first_minute(), &key(None), &whole());
        let statement = fold.finish().unwrap();
        assert_eq!((statement.is_kept, statement.is_over), (None, true));
        assert_eq!((statement.days.len(), statement.total.minutes.unknown), (28, 28 * 1_440 - 1));
        assert_eq!((statement.total.iops, statement.total.peak_iops), (Some(0.0), Some(0.0)));
        assert_eq!(statement.days[1].figures.iops, None, "nothing is known of that day");
    }
}
