//! Consumers that write, or read, so much that they are eligible: the automatic sets of Bjørgeengen §2.3.1.
//! The paper has sets of writers; a set of readers follows the same rules.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use tidegate_units::{ByteRate, Bytes, ConsumerName};

/// Rules for membership of the set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BulkConfig {
    /// Consumers that move more than this join. Default 1 MiB/s, for writers: a backup or a copy exceeds it
    /// at once, a database's log seldom.
    pub above: ByteRate,
    /// Members that move less than this part of `above` leave, within (0, 1]. Default 0.5.
    pub leaves_below: f64,
    /// The time constant of the average of what is moved. Default 1 s.
    pub smoothing: Duration,
    /// Interval between two updates of the set. Default 1 s (§2.3.1).
    pub interval: Duration,
    /// Silence after which a throttled member leaves. Throttling alone makes it move less, so only moving
    /// nothing for this long counts. Default 2 s.
    pub silence: Duration,
}

impl Default for BulkConfig {
    fn default() -> Self {
        Self {
            above: ByteRate::new(1_048_576.0),
            leaves_below: 0.5,
            smoothing: Duration::from_secs(1),
            interval: Duration::from_secs(1),
            silence: Duration::from_secs(2),
        }
    }
}

impl BulkConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self) -> Result<(), BulkConfigError> {
        if self.above.per_second() <= 0.0 {
            return Err(BulkConfigError::Above);
        }
        if !(self.leaves_below > 0.0 && self.leaves_below <= 1.0) {
            return Err(BulkConfigError::LeavesBelow(self.leaves_below));
        }
        if self.interval.is_zero() {
            return Err(BulkConfigError::Interval);
        }
        Ok(())
    }
}

/// Reason that a set cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum BulkConfigError {
    /// Every consumer would belong to the set, idle ones included.
    #[error("the rate above which a consumer joins must be greater than zero")]
    Above,
    /// The part is out of range.
    #[error("the part of the rate below which a member leaves must be above 0 and at most 1, it is {0}")]
    LeavesBelow(f64),
    /// The interval is zero.
    #[error("the interval at which the set is brought up to date must be greater than zero")]
    Interval,
}

/// Consumers outside the set that average less than this part of the threshold are forgotten.
const FORGOTTEN: f64 = 1e-3;

/// The consumers of one resource that move more than a threshold in one direction, by an average, with
/// hysteresis.
#[derive(Debug, Clone)]
pub struct BulkDetector {
    config: BulkConfig,
    consumers: BTreeMap<ConsumerName, BulkConsumer>,
    since_update: Duration,
}

#[derive(Debug, Clone, Default)]
struct BulkConsumer {
    /// Bytes per second, averaged.
    rate: f64,
    silent: Duration,
    member: bool,
    /// Since the step before.
    moved: Bytes,
}

impl BulkDetector {
    /// An empty set.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn new(config: BulkConfig) -> Result<Self, BulkConfigError> {
        config.validate()?;
        Ok(Self { config, consumers: BTreeMap::new(), since_update: Duration::ZERO })
    }

    /// Changes when a consumer belongs to the set. Who belongs to it stays until the next update.
    ///
    /// # Errors
    /// When the configuration is not valid; nothing is changed then.
    pub fn reconfigure(&mut self, config: BulkConfig) -> Result<(), BulkConfigError> {
        config.validate()?;
        self.config = config;
        Ok(())
    }

    /// Takes what consumers moved in `elapsed`, and brings the set up to date when it is time to. A consumer
    /// that is named several times moved the sum. One that is not named moved nothing, and is forgotten after
    /// a while. `held`: the members are throttled now.
    pub fn observe<'a>(
        &mut self,
        elapsed: Duration,
        held: bool,
        moved: impl IntoIterator<Item = (&'a ConsumerName, Bytes)>,
    ) {
        let seconds = elapsed.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let past = match self.config.smoothing.as_secs_f64() {
            smoothing if smoothing > 0.0 => (-seconds / smoothing).exp(),
            _ => 0.0,
        };
        for (name, bytes) in moved {
            if bytes > Bytes::ZERO && !self.consumers.contains_key(name) {
                self.consumers.insert(name.clone(), BulkConsumer::default());
            }
            if let Some(consumer) = self.consumers.get_mut(name) {
                consumer.moved = Bytes::new(consumer.moved.get().saturating_add(bytes.get()));
            }
        }
        let forgotten = FORGOTTEN * self.config.above.per_second();
        self.consumers.retain(|_, consumer| {
            let moved = std::mem::take(&mut consumer.moved);
            consumer.rate = past * consumer.rate + (1.0 - past) * (moved.get() as f64 / seconds);
            consumer.silent = match moved {
                Bytes::ZERO => consumer.silent.saturating_add(elapsed),
                _ => Duration::ZERO,
            };
            consumer.member || consumer.rate > forgotten
        });
        self.since_update = self.since_update.saturating_add(elapsed);
        // What comes a little early is this interval's all the same.
        if self.since_update.saturating_add(elapsed / 2) >= self.config.interval {
            self.since_update = Duration::ZERO;
            self.update(held);
        }
    }

    /// Admits consumers that move more than the threshold by now, before it is time to update the set.
    pub fn admit(&mut self) {
        let above = self.config.above.per_second();
        for consumer in self.consumers.values_mut() {
            consumer.member |= consumer.rate > above;
        }
    }

    fn update(&mut self, held: bool) {
        let above = self.config.above.per_second();
        for consumer in self.consumers.values_mut() {
            consumer.member = if !consumer.member {
                consumer.rate > above
            } else if held {
                consumer.silent < self.config.silence
            } else {
                consumer.rate > above * self.config.leaves_below
            };
        }
    }

    /// Returns true if a consumer belongs to the set.
    #[must_use]
    pub fn contains(&self, name: &ConsumerName) -> bool {
        self.consumers.get(name).is_some_and(|consumer| consumer.member)
    }

    /// Returns the members of the set.
    pub fn members(&self) -> impl Iterator<Item = &ConsumerName> {
        self.consumers.iter().filter(|(_, consumer)| consumer.member).map(|(name, _)| name)
    }

    /// Returns the average rate of a consumer. `None` if it moved nothing lately.
    #[must_use]
    pub fn rate(&self, name: &ConsumerName) -> Option<ByteRate> {
        self.consumers.get(name).map(|consumer| ByteRate::new(consumer.rate))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    fn name(text: &str) -> ConsumerName {
        ConsumerName::new(text).unwrap()
    }

    fn mib(count: f64) -> Bytes {
        Bytes::new((count * 1_048_576.0) as u64)
    }

    /// Writes at a rate in MiB/s for some seconds, and says after how many the membership became `wanted`.
    fn until(set: &mut BulkDetector, rate: f64, held: bool, wanted: bool, most: u32) -> Option<f64> {
        let (writer, reader) = (name("10.0.0.12"), name("10.0.0.11"));
        (1..=most * 10).find_map(|step| {
            set.observe(STEP, held, [(&writer, mib(rate * 0.1)), (&reader, Bytes::ZERO)]);
            assert!(!set.contains(&reader), "who only reads never belongs to the set");
            (set.contains(&writer) == wanted).then(|| f64::from(step) / 10.0)
        })
    }

    fn set() -> BulkDetector {
        BulkDetector::new(BulkConfig::default()).unwrap()
    }

    #[test]
    fn a_writer_joins_within_two_seconds_and_leaves_when_it_stops() {
        for rate in [2.0, 40.0] {
            let mut set = set();
            let joined = until(&mut set, rate, false, true, 10).unwrap();
            assert!(joined <= 2.0, "{rate} MiB/s joined after {joined} s");
            let left = until(&mut set, 0.0, false, false, 10).unwrap();
            assert!(left <= 6.0, "{rate} MiB/s left after {left} s");
        }
    }

    #[test]
    fn who_is_admitted_joins_before_the_set_is_brought_up_to_date() {
        let (mut set, writer, idle) = (set(), name("w"), name("idle"));
        let steps = (1..10).find(|_| {
            set.observe(STEP, false, [(&writer, mib(0.4)), (&idle, mib(0.01))]);
            set.admit();
            set.contains(&writer)
        });
        // 4 MiB/s average more than 1 MiB/s after 0.29 s.
        assert_eq!(steps, Some(3));
        assert!(!set.contains(&idle));
    }

    #[test]
    fn hysteresis_keeps_who_wavers_around_the_threshold() {
        let mut set = set();
        until(&mut set, 2.0, false, true, 10).unwrap();
        assert_eq!(until(&mut set, 0.7, false, false, 60), None, "above half of the threshold it stays");
        assert!(until(&mut set, 0.3, false, false, 60).is_some());
        assert_eq!(until(&mut set, 0.7, false, true, 60), None, "below the threshold it does not come back");
    }

    #[test]
    fn who_is_held_is_not_let_go_for_being_slow() {
        let mut set = set();
        until(&mut set, 40.0, false, true, 10).unwrap();
        assert_eq!(until(&mut set, 0.01, true, false, 60), None);
        let left = until(&mut set, 0.0, true, false, 10).unwrap();
        assert!(left <= 3.0, "left after {left} s");
    }

    #[test]
    fn once_a_second_is_often_enough_and_a_little_early_no_reason_to_wait() {
        for second in [970, 1_000, 1_030].map(Duration::from_millis) {
            let (mut set, writer) = (set(), name("w"));
            let mut after = |rate: f64, held: bool, wanted: bool| {
                (1..=10).find(|_| {
                    set.observe(second, held, [(&writer, mib(rate))]);
                    set.contains(&writer) == wanted
                })
            };
            assert_eq!(after(2.0, false, true), Some(1), "{second:?}");
            assert_eq!(after(0.0, true, false), Some(if second < STEP * 10 { 3 } else { 2 }), "{second:?}");
        }
    }

    #[test]
    fn who_is_named_several_times_wrote_all_of_that() {
        let (mut set, writer) = (set(), name("w"));
        for _ in 0..30 {
            set.observe(STEP, false, [(&writer, mib(0.06)), (&writer, mib(0.06))]);
        }
        assert!(set.contains(&writer), "1.2 MiB/s by two volumes");
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut set = set();
        until(&mut set, 40.0, false, true, 10).unwrap();
        for _ in 0..200 {
            set.observe(STEP, false, []);
        }
        assert_eq!(set.members().count(), 0);
        assert_eq!(set.rate(&name("10.0.0.12")), None);
    }

    #[test]
    fn no_time_is_no_observation() {
        let mut set = set();
        set.observe(Duration::ZERO, false, [(&name("a"), mib(1e6))]);
        assert_eq!(set.rate(&name("a")), None);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let with = |change: fn(&mut BulkConfig)| {
            let mut config = BulkConfig::default();
            change(&mut config);
            BulkDetector::new(config).map(drop)
        };
        assert_eq!(with(|c| c.above = ByteRate::new(0.0)), Err(BulkConfigError::Above));
        assert_eq!(with(|c| c.leaves_below = 1.5), Err(BulkConfigError::LeavesBelow(1.5)));
        assert_eq!(with(|c| c.interval = Duration::ZERO), Err(BulkConfigError::Interval));
    }

    proptest! {
        #[test]
        fn nobody_belongs_without_having_written(
            written in prop::collection::vec((any::<u64>(), any::<bool>()), 1..100)
        ) {
            let mut set = set();
            let (writer, idle) = (name("w"), name("idle"));
            for (bytes, held) in written {
                set.observe(STEP, held, [(&writer, Bytes::new(bytes)), (&idle, Bytes::ZERO)]);
                prop_assert!(!set.contains(&idle));
                prop_assert!(set.rate(&writer).is_none_or(|rate| rate.per_second().is_finite()));
            }
        }
    }
}
