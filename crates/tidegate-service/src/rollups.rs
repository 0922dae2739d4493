//! Rollups from what a service counts and judges anyway: nothing is judged twice.
//!
//! [`MinuteFold`] takes each consumer's counters about once a second, together with the judgement of its
//! promise, and adds them up to minutes. It reads no clock. [`RollupRecorder`] brings them to the disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tidegate_control::WaitReason;
use tidegate_journal::WallTime;
use tidegate_rollups::{
    Minute, MinuteBatch, MinuteCounts, PromiseTerms, RollupError, RollupKey, RollupWriter,
};
use tidegate_units::{ConsumerName, Instant, ResourceName};

use crate::status::{ConsumerTotal, Judgement};

/// The longest time for which the reason to wait at one moment counts. Chosen: a service looks four times a
/// second.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// The longest time that the end of a service waits for the last minutes to be written. Chosen: a disk that
/// needs longer hangs.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The minutes of a service's consumers, on their way to the disk.
#[derive(Debug)]
pub struct RollupRecorder {
    /// The minutes under way.
    pub fold: MinuteFold,
    writer: RollupWriter,
}

impl RollupRecorder {
    /// Begins to write beside the decision journal in this folder.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn start(journal: &Path) -> Result<Self, RollupError> {
        Ok(Self { fold: MinuteFold::default(), writer: RollupWriter::start(journal)? })
    }

    /// Hands over the minutes that are over, after the readings of all consumers.
    pub fn write_ended(&mut self, wall: WallTime) {
        for batch in self.fold.take_ended(wall) {
            self.writer.write(batch);
        }
    }

    /// Hands over the minutes under way, as far as they are known.
    pub fn write_all(&mut self) {
        for batch in self.fold.take_all() {
            self.writer.write(batch);
        }
    }

    /// Waits a little for the disk.
    pub fn close(self) {
        self.writer.close(LAST_WRITE);
    }
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookTime {
    /// On the clock of the consumers' counters.
    pub at: Instant,
    /// The time of day.
    pub wall: WallTime,
}

/// Returns the minute of the time that ends now: the end of a minute belongs to it.
fn minute_until(wall: WallTime) -> Minute {
    Minute::of(WallTime::from_nanos(wall.as_nanos().saturating_sub(1)))
}

/// One consumer's counters at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MinuteReading {
    /// Requests since the start.
    pub total: ConsumerTotal,
    /// Its promise. `None`: it was promised nothing.
    pub promise: Option<PromiseTerms>,
    /// The judgement of the promise since the last reading.
    pub judgement: Judgement,
    /// True if it has requests outstanding.
    pub is_outstanding: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct ConsumerFold {
    total: ConsumerTotal,
    promise: Option<PromiseTerms>,
    /// The times of the last reading and of the last look at reasons to wait.
    noted: Option<Instant>,
    looked: Option<Instant>,
}

/// The minutes under way.
#[derive(Debug, Clone, Default)]
pub struct MinuteFold {
    /// The minute of now and the one before, which gets its last part of a second with the next reading.
    minutes: BTreeMap<Minute, BTreeMap<RollupKey, MinuteCounts>>,
    consumers: BTreeMap<ResourceName, BTreeMap<ConsumerName, ConsumerFold>>,
}

impl MinuteFold {
    /// Adds what a consumer did since the last reading. A consumer that is new counts from the start.
    ///
    /// Requests and judgements belong to the minute in which they were read, which is up to the time between
    /// two readings after they happened.
    pub fn note(
        &mut self,
        resource: &ResourceName,
        consumer: &ConsumerName,
        now: LookTime,
        reading: MinuteReading,
    ) {
        let own = self.consumers.entry(resource.clone()).or_default().entry(consumer.clone()).or_default();
        let did = reading.total.since(&own.total);
        let elapsed = own.noted.map_or(Duration::ZERO, |noted| now.at.saturating_since(noted));
        (own.total, own.promise, own.noted) = (reading.total, reading.promise, Some(now.at));
        let key =
            RollupKey { resource: resource.clone(), consumer: consumer.clone(), promise: reading.promise };
        let minute = minute_until(now.wall);
        let of_minute = now.wall.saturating_since(minute.begin());
        let before = elapsed.saturating_sub(of_minute);
        if let Some(counts) = self.minutes.get_mut(&minute.previous()).and_then(|keys| keys.get_mut(&key)) {
            counts.watched = counts.watched.saturating_add(before);
        }
        let counts = self.minutes.entry(minute).or_default().entry(key).or_default();
        counts.add(&MinuteCounts {
            watched: elapsed.min(of_minute),
            judged: reading.judgement.judged,
            kept: reading.judgement.kept,
            requests: did.client.0,
            client_time: did.client.1,
            storage_requests: did.count,
            storage_time: did.sum,
            read: did.read,
            written: did.written,
            waited: [Duration::ZERO; 4],
            was_stuck: reading.is_outstanding && did.client.0 == 0 && did.count == 0,
        });
    }

    /// Takes note of the reason for which a consumer's requests wait now. It counts for the time since the
    /// last look. A consumer without a reading is not known.
    pub fn look(
        &mut self,
        resource: &ResourceName,
        consumer: &ConsumerName,
        now: LookTime,
        waits_for: Option<WaitReason>,
    ) {
        let Some(own) = self.consumers.get_mut(resource).and_then(|known| known.get_mut(consumer)) else {
            return;
        };
        let elapsed = own.looked.map_or(Duration::ZERO, |looked| now.at.saturating_since(looked));
        own.looked = Some(now.at);
        let Some(reason) = waits_for else { return };
        let key = RollupKey { resource: resource.clone(), consumer: consumer.clone(), promise: own.promise };
        let counts = self.minutes.entry(minute_until(now.wall)).or_default().entry(key).or_default();
        counts.add_wait(reason, elapsed.min(LONGEST_LOOK));
    }

    /// Takes note that nothing is known of a resource now: the time up to the next readings of its consumers is not
    /// watched.
    pub fn lose_sight(&mut self, resource: &ResourceName) {
        for own in self.consumers.get_mut(resource).into_iter().flat_map(BTreeMap::values_mut) {
            (own.noted, own.looked) = (None, None);
        }
    }

    /// Forgets the consumers of a resource that are gone.
    pub fn retain(&mut self, resource: &ResourceName, is_there: impl Fn(&ConsumerName) -> bool) {
        if let Some(known) = self.consumers.get_mut(resource) {
            known.retain(|consumer, _| is_there(consumer));
        }
    }

    /// Returns the minutes that are over, after the readings of all consumers.
    pub fn take_ended(&mut self, wall: WallTime) -> Vec<MinuteBatch> {
        let minute = minute_until(wall);
        // A clock that was set back leaves a later minute, which is over, too.
        let under_way = self.minutes.remove_entry(&minute);
        let ended = self.take_all();
        self.minutes.extend(under_way);
        ended
    }

    /// Returns the minutes as far as they are known, at the end of a service.
    pub fn take_all(&mut self) -> Vec<MinuteBatch> {
        let ended = std::mem::take(&mut self.minutes).into_iter();
        let batch = |(minute, keys): (Minute, BTreeMap<RollupKey, MinuteCounts>)| {
            let rollups = keys.into_iter().map(|(key, mut counts)| {
                counts.was_stuck &= counts.requests == 0 && counts.storage_requests == 0;
                (key, counts)
            });
            MinuteBatch { minute, rollups: rollups.collect() }
        };
        ended.map(batch).collect()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_rollups::{JudgedBy, Month};
    use tidegate_units::{Bytes, Latency};

    use super::*;

    /// Noon of a day.
    fn noon() -> Minute {
        "2026-11".parse::<Month>().unwrap().day(26).later(720)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A time after noon, on clocks that differ by `back`.
    fn time(after: Duration, back: Duration) -> LookTime {
        let wall = noon().begin().as_nanos() + after.as_nanos() as u64 - back.as_nanos() as u64;
        LookTime { at: Instant::ZERO + after, wall: WallTime::from_nanos(wall) }
    }

    fn names() -> (ResourceName, ConsumerName) {
        (ResourceName::new("disk").unwrap(), ConsumerName::new("w1").unwrap())
    }

    fn promise() -> Option<PromiseTerms> {
        Some(PromiseTerms { response_time: Latency::from_millis(20), judged_by: JudgedBy::Seconds })
    }

    /// A consumer with ten requests of 5 ms each second.
    fn reading(seconds: u64) -> MinuteReading {
        let total = ConsumerTotal {
            count: 10 * seconds,
            sum: Latency::from_millis(50 * seconds),
            client: (10 * seconds, Latency::from_millis(60 * seconds)),
            read: Bytes::new(40_960 * seconds),
            written: Bytes::new(512 * seconds),
            ..ConsumerTotal::default()
        };
        let judgement =
            Judgement { judged: u64::from(seconds > 0), kept: u64::from(!seconds.is_multiple_of(10)) };
        MinuteReading { total, promise: promise(), judgement, is_outstanding: true }
    }

    fn only(batch: &MinuteBatch) -> &MinuteCounts {
        assert_eq!(batch.rollups.len(), 1, "{batch:?}");
        &batch.rollups[0].1
    }

    #[test]
    fn seconds_add_up_to_minutes_each_of_which_is_watched_whole() {
        let ((disk, w1), mut fold, mut ended) = (names(), MinuteFold::default(), Vec::new());
        // Readings are up to a quarter of a second late.
        for second in 0..=121 {
            let now = time(millis(1_000 * second + 250 * ((second + 1) % 2)), Duration::ZERO);
            fold.note(&disk, &w1, now, reading(second));
            fold.look(&disk, &w1, now, (second % 4 == 1).then_some(WaitReason::Law));
            ended.extend(fold.take_ended(now.wall));
        }
        let [first, second] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!((first.minute, second.minute), (noon(), noon().later(1)));
        let counts = only(second);
        assert_eq!(counts.watched, Duration::from_secs(60), "to the last part of a second");
        assert_eq!((counts.judged, counts.kept, counts.requests), (60, 54, 600));
        assert_eq!((counts.storage_requests, counts.storage_time), (600, Latency::from_millis(3_000)));
        assert_eq!(counts.client_time, Latency::from_millis(3_600));
        assert_eq!((counts.read.get(), counts.written.get()), (40_960 * 60, 512 * 60));
        assert_eq!(counts.waited_for(WaitReason::Law), millis(15 * 750));
        assert!(!counts.was_stuck);
        assert_eq!(fold.take_all().iter().map(|rest| only(rest).requests).sum::<u64>(), 20);
    }

    #[test]
    fn a_consumer_that_does_nothing_is_idle_and_one_that_gets_nothing_is_stuck() {
        let ((disk, w1), mut fold) = (names(), MinuteFold::default());
        let stuck = ConsumerName::new("stuck").unwrap();
        for second in 0..=60 {
            let now = time(Duration::from_secs(second), Duration::ZERO);
            let nothing =
                MinuteReading { is_outstanding: false, judgement: Judgement::default(), ..reading(0) };
            fold.note(&disk, &w1, now, nothing);
            fold.note(&disk, &stuck, now, MinuteReading { is_outstanding: true, ..nothing });
            fold.take_ended(now.wall);
        }
        let [batch] = &fold.take_all()[..] else { panic!("one minute") };
        let watched = Duration::from_secs(60);
        let found: Vec<_> =
            batch.rollups.iter().map(|(key, counts)| (key.consumer.as_str(), *counts)).collect();
        let idle = MinuteCounts { watched, ..MinuteCounts::default() };
        assert_eq!(found, [("stuck", MinuteCounts { was_stuck: true, ..idle }), ("w1", idle)]);
    }

    #[test]
    fn a_clock_that_is_set_back_ends_its_minute_and_begins_an_earlier_one() {
        let ((disk, w1), mut fold, mut ended) = (names(), MinuteFold::default(), Vec::new());
        for second in 1..=180 {
            // Five minutes back, in the middle of a minute.
            let back = if second > 90 { Duration::from_secs(300) } else { Duration::ZERO };
            let now = time(Duration::from_secs(second), back);
            fold.note(&disk, &w1, now, reading(second));
            ended.extend(fold.take_ended(now.wall));
        }
        ended.extend(fold.take_all());
        let minutes: Vec<_> = ended.iter().map(|batch| batch.minute).collect();
        let earlier = |minutes: u64| {
            Minute::of(WallTime::from_nanos(noon().begin().as_nanos() - minutes * 60_000_000_000))
        };
        assert_eq!(minutes, [noon(), noon().later(1), earlier(4), earlier(3)]);
        let requests: u64 = ended.iter().map(|batch| only(batch).requests).sum();
        assert_eq!(requests, 1_800, "nothing is lost or counted twice");
        assert!(ended.iter().all(|batch| only(batch).watched <= Duration::from_secs(60)));
    }

    #[test]
    fn counters_that_begin_anew_count_from_nothing_and_a_new_promise_begins_a_rollup() {
        let ((disk, w1), mut fold) = (names(), MinuteFold::default());
        let at = |second| time(Duration::from_secs(second), Duration::ZERO);
        fold.note(&disk, &w1, at(1), reading(7));
        fold.note(&disk, &w1, at(2), reading(2));
        let contract =
            PromiseTerms { response_time: Latency::from_millis(20), judged_by: JudgedBy::Requests };
        fold.note(&disk, &w1, at(3), MinuteReading { promise: Some(contract), ..reading(3) });
        fold.retain(&disk, |_| false);
        fold.note(&disk, &w1, at(4), MinuteReading { promise: None, ..reading(1) });
        let [batch] = &fold.take_all()[..] else { panic!("one minute") };
        let found: Vec<_> =
            batch.rollups.iter().map(|(key, counts)| (key.promise, counts.requests)).collect();
        assert_eq!(found, [(None, 10), (promise(), 90), (Some(contract), 10)]);
    }

    #[test]
    fn a_reason_to_wait_counts_no_longer_than_a_look_can_tell() {
        let ((disk, w1), mut fold) = (names(), MinuteFold::default());
        for second in [1, 2, 30] {
            let now = time(Duration::from_secs(second), Duration::ZERO);
            fold.look(&disk, &w1, now, Some(WaitReason::Limit));
            fold.note(&disk, &w1, now, reading(second));
        }
        let [batch] = &fold.take_all()[..] else { panic!("one minute") };
        assert_eq!(only(batch).waited_for(WaitReason::Limit), LONGEST_LOOK);
        assert_eq!(only(batch).watched, Duration::from_secs(29));
    }
}
