//! Times of day of a journal's entries.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tidegate_units::Instant;

/// A time in nanoseconds since 1970, UTC. [`Display`](fmt::Display) shows it by RFC 3339, to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(u64);

impl WallTime {
    /// The first time there is.
    pub const MIN: Self = Self(0);
    /// The last time there is, in the year 2554.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds since 1970.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time now, by the machine's clock.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Returns the whole milliseconds of this time.
    #[must_use]
    pub(crate) const fn whole_millis(self) -> Self {
        Self(self.0 - self.0 % 1_000_000)
    }

    /// Time passed since `earlier`; zero if that is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for WallTime {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<WallTime> for SystemTime {
    fn from(time: WallTime) -> Self {
        UNIX_EPOCH + Duration::from_nanos(time.0)
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_millis(SystemTime::from(*self)).fmt(f)
    }
}

/// One moment on both clocks: the loop's own, and the time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAnchor {
    /// The moment on the clock of the observations.
    pub at: Instant,
    /// The same moment as a time of day.
    pub wall: WallTime,
}

impl ClockAnchor {
    /// Returns a moment of the loop's clock as a time of day.
    #[must_use]
    pub const fn wall(&self, at: Instant) -> WallTime {
        let (at, anchor, wall) = (at.as_nanos(), self.at.as_nanos(), self.wall.0);
        WallTime(if at >= anchor {
            wall.saturating_add(at - anchor)
        } else {
            wall.saturating_sub(anchor - at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_people_write_them() {
        let shown = |seconds: u64| WallTime::from_nanos(seconds * 1_000_000_000).to_string();
        assert_eq!(WallTime::MIN.to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(shown(1_796_083_199), "2026-11-30T23:59:59.000Z");
        assert_eq!(WallTime::from_nanos(1_234_567_890).to_string(), "1970-01-01T00:00:01.234Z");
        assert_eq!(WallTime::MAX.to_string(), "2554-07-21T23:34:33.709Z");
    }

    #[test]
    fn moments_before_and_after_the_anchor_are_known() {
        let anchor = ClockAnchor { at: Instant::from_nanos(100), wall: WallTime(1_000) };
        assert_eq!(anchor.wall(Instant::from_nanos(130)), WallTime(1_030));
        assert_eq!(anchor.wall(Instant::from_nanos(70)), WallTime(970));
        assert_eq!(anchor.wall(Instant::MAX), WallTime::MAX);
    }
}
