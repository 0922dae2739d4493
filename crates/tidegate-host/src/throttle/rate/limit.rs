//! A limit of what is written to a device.

use tidegate_units::{ByteRate, Iops};

use crate::cgroup::{IoLimit, LimitKey};

/// The limit of writes to a device per second, in requests and in bytes, as the kernel keeps them: see
/// [`IoLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteLimit {
    writes: u32,
    bytes: u64,
}

impl WriteLimit {
    /// Rounds up: never nothing at all.
    #[must_use]
    pub fn new(writes: Iops, bytes: ByteRate) -> Self {
        let writes = LimitKey::Writes.rounded(writes.per_second());
        Self {
            writes: u32::try_from(writes).unwrap_or(u32::MAX - 1),
            bytes: LimitKey::WriteBytes.rounded(bytes.per_second()),
        }
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

    /// Returns true if the difference is not worth a change.
    pub(super) fn is_about(self, other: Self) -> bool {
        IoLimit::from(self).is_about(other.into())
    }

    /// Returns the part of a limit that concerns writes.
    pub(super) fn of(limit: IoLimit) -> Self {
        // What is not limited is the greatest number, which is never what we set.
        let writes = limit.get(LimitKey::Writes).unwrap_or(u64::MAX);
        Self {
            writes: u32::try_from(writes).unwrap_or(u32::MAX),
            bytes: limit.get(LimitKey::WriteBytes).unwrap_or(u64::MAX),
        }
    }
}

impl From<WriteLimit> for IoLimit {
    fn from(limit: WriteLimit) -> Self {
        Self::NONE.writes(limit.writes()).write_bytes(limit.bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_the_kernel_is_told_is_what_it_says(writes in 0.0..1e12, bytes in 0.0..1e30) {
            let limit = WriteLimit::new(Iops::new(writes), ByteRate::new(bytes));
            prop_assert_eq!(WriteLimit::of(limit.into()), limit);
            prop_assert!(limit.writes().per_second() >= writes.min(f64::from(u32::MAX - 1)));
            prop_assert!(limit.is_about(limit));
        }
    }

    #[test]
    fn what_somebody_removed_is_no_limit_of_ours() {
        let limit = WriteLimit::new(Iops::new(1e30), ByteRate::new(1e30));
        assert_ne!(WriteLimit::of(IoLimit::NONE), limit);
        assert_ne!(WriteLimit::of(IoLimit::NONE.reads(Iops::new(5.0))), limit);
    }
}
