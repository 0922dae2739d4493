//! One direction of a link: requests pass one after the other.

use tidegate_units::{Instant, Latency};

/// A server in order of arrival whose service times are known on arrival.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    /// Time at which all requests until now have passed.
    free_at: Instant,
}

impl Lane {
    /// Lets a request pass that occupies the lane for so long. Returns the time at which it has passed.
    pub(crate) fn carry(&mut self, now: Instant, time: Latency) -> Instant {
        self.free_at = self.free_at.max(now) + time;
        self.free_at
    }
}

/// Returns the time that so many bytes take.
pub(crate) fn transfer_time(bytes: u64, nanos_per_byte: f64) -> Latency {
    Latency::from_nanos((bytes as f64 * nanos_per_byte) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_pass_one_after_the_other() {
        let mut lane = Lane::default();
        let at = |micros: u64| Instant::from_nanos(micros * 1_000);
        let time = Latency::from_micros(10);
        assert_eq!(lane.carry(at(5), time), at(15));
        assert_eq!(lane.carry(at(7), time), at(25), "behind the first");
        assert_eq!(lane.carry(at(100), time), at(110), "the lane was free");
    }

    #[test]
    fn a_transfer_takes_its_bytes_at_the_rate() {
        assert_eq!(transfer_time(4096, 1e9 / 1e9), Latency::from_nanos(4096));
        assert_eq!(transfer_time(0, 2.0), Latency::ZERO);
    }
}
