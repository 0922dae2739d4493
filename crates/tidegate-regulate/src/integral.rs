//! The number of requests outstanding over time, and its means.

use tidegate_units::Instant;

/// A number of outstanding requests, and its integral over time.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutstandingIntegral {
    value: u64,
    request_nanos: u128,
    changed: Instant,
}

impl OutstandingIntegral {
    /// None outstanding, from this time on.
    #[must_use]
    pub const fn beginning_at(now: Instant) -> Self {
        Self { value: 0, request_nanos: 0, changed: now }
    }

    /// Adds to the number, or subtracts from it.
    #[inline]
    pub fn add(&mut self, change: i64, now: Instant) {
        self.request_nanos = self.integral(now);
        self.changed = self.changed.max(now);
        self.value = self.value.saturating_add_signed(change);
    }

    /// Returns the present number.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// Returns the integral up to now, in request-nanoseconds. [`MeanSince`] takes means between two of them.
    #[inline]
    #[must_use]
    pub fn integral(&self, now: Instant) -> u128 {
        // Whole nanoseconds: a `Duration` would cost a division for every request.
        let nanos = now.latency_since(self.changed).as_nanos();
        self.request_nanos + u128::from(self.value) * u128::from(nanos)
    }

    /// Sets the number to zero. The integral stays.
    pub fn clear(&mut self, now: Instant) {
        self.add(0, now);
        self.value = 0;
    }
}

/// The reading of an integral from which the next mean begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct MeanSince {
    integral: u128,
    at: Instant,
}

impl MeanSince {
    /// An integral of zero at this time.
    #[must_use]
    pub const fn beginning_at(now: Instant) -> Self {
        Self { integral: 0, at: now }
    }

    /// Returns the mean since the last call of a number that now has this integral. `None` if no time has
    /// passed.
    pub fn mean(&mut self, integral: u128, now: Instant) -> Option<f64> {
        let past = std::mem::replace(self, Self { integral, at: now });
        let elapsed = now.latency_since(past.at).as_nanos();
        (elapsed > 0).then(|| integral.saturating_sub(past.integral) as f64 / elapsed as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a sum over every single nanosecond.
        #[test]
        fn means_equal_those_of_an_oracle_that_counts_every_nanosecond(
            steps in prop::collection::vec((0u64..40, -3i64..4, any::<bool>()), 1..60),
        ) {
            let (mut outstanding, mut since) = (OutstandingIntegral::default(), MeanSince::default());
            let (mut now, mut value) = (0u64, 0u64);
            let mut history = Vec::new();
            for (wait, change, read) in steps {
                history.extend(std::iter::repeat_n(value, wait as usize));
                now += wait;
                if read {
                    let mean = since.mean(outstanding.integral(Instant::from_nanos(now)),
                        Instant::from_nanos(now));
                    let expected = history.iter().sum::<u64>() as f64 / history.len() as f64;
                    prop_assert_eq!(mean, (!history.is_empty()).then_some(expected));
                    history.clear();
                }
                outstanding.add(change, Instant::from_nanos(now));
                value = value.saturating_add_signed(change);
                prop_assert_eq!(outstanding.value(), value);
            }
        }
    }

    #[test]
    fn a_clock_that_jumps_back_neither_adds_nor_subtracts() {
        let at = Instant::from_nanos;
        let mut outstanding = OutstandingIntegral::beginning_at(at(100));
        outstanding.add(2, at(100));
        outstanding.add(0, at(110));
        assert_eq!(outstanding.integral(at(50)), 20);
        assert_eq!(outstanding.integral(at(120)), 40);
        outstanding.clear(at(120));
        assert_eq!((outstanding.value(), outstanding.integral(at(200))), (0, 40));
    }
}
