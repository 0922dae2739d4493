//! A limit, as `io.max` has it (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files").

use tidegate_units::{ByteRate, Iops};

use crate::device::DeviceNumber;

/// A limit that is off by less than this part of itself is left as it is: a law that changes its mind ten times a second by
/// little does not have the kernel write each time.
const ABOUT: f64 = 1.0 / 32.0;

/// What may be written to a device per second, in requests and in bytes: whole numbers, as the kernel keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteLimit {
    writes: u32,
    bytes: u64,
}

impl WriteLimit {
    /// Rounds up: never nothing at all.
    #[must_use]
    pub fn new(writes: Iops, bytes: ByteRate) -> Self {
        // The kernel takes the greatest number for no limit. A cast saturates.
        let writes = (writes.per_second().ceil() as u32).clamp(1, u32::MAX - 1);
        let bytes = (bytes.per_second().ceil() as u64).clamp(1, u64::MAX - 1);
        Self { writes, bytes }
    }

    /// Requests per second.
    #[must_use]
    pub fn writes(self) -> Iops {
        Iops::new(self.writes.into())
    }

    /// Bytes per second.
    #[must_use]
    pub fn bytes(self) -> ByteRate {
        ByteRate::new(self.bytes as f64)
    }

    /// The lower of both, of each.
    pub(super) fn min(self, other: Self) -> Self {
        Self { writes: self.writes.min(other.writes), bytes: self.bytes.min(other.bytes) }
    }

    /// Whether the difference is not worth a change.
    pub(super) fn is_about(self, other: Self) -> bool {
        let near = |one: f64, other: f64| (one - other).abs() <= ABOUT * one;
        near(self.writes.into(), other.writes.into()) && near(self.bytes as f64, other.bytes as f64)
    }

    /// The line that sets it.
    pub(super) fn line(self, device: DeviceNumber) -> String {
        format!("{device} wbps={} wiops={}", self.bytes, self.writes)
    }

    /// The line that sets none.
    pub(super) fn none(device: DeviceNumber) -> String {
        format!("{device} wbps=max wiops=max")
    }

    /// A line as the kernel writes it; of other limits than ours nothing is said.
    pub(super) fn parse(line: &str) -> Option<(DeviceNumber, Self)> {
        let mut words = line.split_whitespace();
        let device = words.next()?.parse().ok()?;
        let mut limit = Self { writes: u32::MAX, bytes: u64::MAX };
        for word in words {
            match word.split_once('=')? {
                (_, "max") => {}
                ("wbps", bytes) => limit.bytes = bytes.parse().ok()?,
                ("wiops", writes) => limit.writes = writes.parse().ok()?,
                _ => {}
            }
        }
        Some((device, limit))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_the_kernel_is_told_is_what_it_says(writes in 0.0..1e12, bytes in 0.0..1e30, major in 0..4096_u32, minor: u32) {
            let limit = WriteLimit::new(Iops::new(writes), ByteRate::new(bytes));
            let device = DeviceNumber::new(major, minor);
            prop_assert_eq!(WriteLimit::parse(&limit.line(device)), Some((device, limit)));
            prop_assert!(limit.writes().per_second() >= writes.min(f64::from(u32::MAX - 1)));
            prop_assert!(limit.is_about(limit));
        }

        #[test]
        fn any_line_is_read_or_refused(line in "\\PC{0,60}") {
            let _ = WriteLimit::parse(&line);
        }

        #[test]
        fn what_is_left_as_it_is_is_not_far_off(one in 1.0..1e6, other in 1.0..1e6) {
            let limit = |writes| WriteLimit::new(Iops::new(writes), ByteRate::new(4_096.0 * writes));
            let (one, other) = (limit(one), limit(other));
            if one.is_about(other) {
                let ratio = other.writes().per_second() / one.writes().per_second();
                prop_assert!((ratio - 1.0).abs() <= ABOUT, "{}", ratio);
            }
        }
    }

    #[test]
    fn the_kernels_own_lines() {
        let device = DeviceNumber::new(254, 0);
        let limit = WriteLimit::new(Iops::new(100.0), ByteRate::new(1_048_576.0));
        assert_eq!(
            WriteLimit::parse("254:0 rbps=max wbps=1048576 riops=max wiops=100"),
            Some((device, limit))
        );
        for wrong in ["", "254:0 wbps", "254:0 wbps=-1", "254 wbps=1", "254:0 wiops=4294967296"] {
            assert_eq!(WriteLimit::parse(wrong), None, "{wrong}");
        }
    }
}
