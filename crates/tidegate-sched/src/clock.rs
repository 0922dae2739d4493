//! A clock that never runs backwards, made from one that may.

use std::time::Duration;

use tidegate_units::Instant;

/// A timestamp this much older than the newest is merely late (taken before a batch of work, used after it).
/// What lies further back is a clock that was set back.
const LATE: Duration = Duration::from_secs(1);

/// The most that one reading may advance time. It keeps a clock that leaps to and fro from using up the 584
/// years that an [`Instant`] can count.
const LEAP: Duration = Duration::from_secs(86_400);

/// Time as the scheduler counts it: it begins at [`Instant::ZERO`] with the first reading, and passes only
/// while the caller's clock goes forward. A clock set back therefore neither freezes delayed requests nor
/// releases them early.
#[derive(Debug, Default)]
pub(crate) struct SchedulerClock {
    newest: Option<Instant>,
    passed: Instant,
}

impl SchedulerClock {
    /// Takes a reading of the caller's clock.
    pub(crate) fn read(&mut self, now: Instant) -> Instant {
        let newest = *self.newest.get_or_insert(now);
        if now >= newest {
            self.passed = self.passed + now.saturating_since(newest).min(LEAP);
            self.newest = Some(now);
        } else if newest.saturating_since(now) > LATE {
            self.newest = Some(now);
        }
        self.passed
    }

    /// Our time as of the newest reading.
    pub(crate) fn passed(&self) -> Instant {
        self.passed
    }

    /// Our time at a reading of the caller's clock that is not taken into account otherwise.
    pub(crate) fn peek(&self, now: Instant) -> Instant {
        self.passed + now.saturating_since(self.newest.unwrap_or(now)).min(LEAP)
    }

    /// The caller's reading when our time will be or was `at`, provided that its clock runs evenly.
    pub(crate) fn callers(&self, at: Instant) -> Instant {
        let newest = self.newest.unwrap_or_default();
        newest + at.saturating_since(self.passed) - self.passed.saturating_since(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000_000)
    }

    #[test]
    fn passes_only_forward() {
        let mut clock = SchedulerClock::default();
        assert_eq!(clock.read(secs(1_000)), secs(0), "the origin is the caller's affair");
        assert_eq!(clock.read(secs(1_003)), secs(3));
        assert_eq!(clock.read(secs(5)), secs(3), "set back: no time passes");
        assert_eq!(clock.read(secs(7)), secs(5), "and runs on from there");
        assert_eq!(clock.callers(secs(8)), secs(10));
        assert_eq!(clock.callers(secs(4)), secs(6));
    }

    #[test]
    fn late_timestamps_do_not_make_time_pass_twice() {
        let mut clock = SchedulerClock::default();
        clock.read(secs(10));
        for _ in 0..1_000 {
            clock.read(Instant::from_nanos(9_500_000_000));
            assert_eq!(clock.read(secs(10)), secs(0));
        }
    }

    #[test]
    fn leaping_to_and_fro_does_not_use_time_up() {
        let mut clock = SchedulerClock::default();
        for _ in 0..1_000 {
            clock.read(Instant::ZERO);
            clock.read(Instant::MAX);
        }
        let before = clock.read(secs(1));
        assert_eq!(clock.read(secs(2)).saturating_since(before), Duration::from_secs(1));
    }
}
