//! A limit of what a cgroup may do to a device, as the kernel keeps it.

use std::fmt::Write as _;

use tidegate_units::{ByteRate, Iops};

use crate::device::DeviceNumber;

/// A limit that is off by less than this part of itself is left as it is: a law that changes its mind ten
/// times a second by little does not have the kernel write each time.
const ABOUT: f64 = 1.0 / 32.0;

/// Some kernels refuse one: `io.max` of 5.10 to 6.11, at least, takes only what is above it (EINVAL).
const LEAST: u64 = 2;

/// Requests are granted by slices of 100 ms, whole ones, and what is left of a slice is forgotten: of 19 per
/// second 10 come through, and with less than 10 a limit that is written anew often lets hundreds pass (6.1,
/// measured). So requests are limited to multiples of this, rounded up, and it takes a limit in bytes, of
/// which nothing is forgotten, to be exact.
const GRAIN: u64 = 10;

/// A number is lowered to this part of the one before in steps of a half.
const FAR: u64 = 8;

/// The limits of a cgroup's I/O to a device, per second; a missing number is no limit. Numbers are whole.
/// Bytes are at least two, since some kernels refuse one. Requests are multiples of ten, rounded up, since
/// the kernel would round down. Limits that others have set may have any numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoLimit {
    /// In the order of [`LimitKey::ALL`].
    values: [Option<u64>; 4],
}

/// One of the four numbers of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitKey {
    ReadBytes,
    WriteBytes,
    Reads,
    Writes,
}

impl LimitKey {
    /// In the order in which `io.max` has them.
    pub(super) const ALL: [Self; 4] = [Self::ReadBytes, Self::WriteBytes, Self::Reads, Self::Writes];

    const fn name(self) -> &'static str {
        match self {
            Self::ReadBytes => "rbps",
            Self::WriteBytes => "wbps",
            Self::Reads => "riops",
            Self::Writes => "wiops",
        }
    }

    pub(super) const fn file_of_v1(self) -> &'static str {
        match self {
            Self::ReadBytes => "blkio.throttle.read_bps_device",
            Self::WriteBytes => "blkio.throttle.write_bps_device",
            Self::Reads => "blkio.throttle.read_iops_device",
            Self::Writes => "blkio.throttle.write_iops_device",
        }
    }

    /// Returns the requested rate as a number that the kernel can keep, rounded up.
    pub(crate) fn rounded(self, per_second: f64) -> u64 {
        // A cast saturates.
        let value = per_second.ceil() as u64;
        let value = match self {
            Self::ReadBytes | Self::WriteBytes => value.max(LEAST),
            Self::Reads | Self::Writes => value.max(1).checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX),
        };
        value.min(self.most())
    }

    /// A number that no device reaches, and small enough for the kernel to reckon with.
    const fn unreachable(self) -> u64 {
        match self {
            Self::ReadBytes | Self::WriteBytes => 1 << 44,
            Self::Reads | Self::Writes => 100_000_000,
        }
    }

    /// Beyond these the kernel knows none: the numbers themselves are what it takes for "none".
    const fn most(self) -> u64 {
        match self {
            Self::ReadBytes | Self::WriteBytes => u64::MAX - 1,
            Self::Reads | Self::Writes => u32::MAX as u64 - 1,
        }
    }
}

impl IoLimit {
    /// No limit at all.
    pub const NONE: Self = Self { values: [None; 4] };

    /// With reads limited, to the next multiple of ten: never nothing at all.
    #[must_use]
    pub fn reads(self, rate: Iops) -> Self {
        self.with(LimitKey::Reads, rate.per_second())
    }

    /// With writes limited, to the next multiple of ten.
    #[must_use]
    pub fn writes(self, rate: Iops) -> Self {
        self.with(LimitKey::Writes, rate.per_second())
    }

    /// With what is read limited, in bytes.
    #[must_use]
    pub fn read_bytes(self, rate: ByteRate) -> Self {
        self.with(LimitKey::ReadBytes, rate.per_second())
    }

    /// With what is written limited, in bytes.
    #[must_use]
    pub fn write_bytes(self, rate: ByteRate) -> Self {
        self.with(LimitKey::WriteBytes, rate.per_second())
    }

    /// Returns the limit of reads, in requests; `None` if there is none.
    #[must_use]
    pub fn read_rate(self) -> Option<Iops> {
        self.get(LimitKey::Reads).map(|value| Iops::new(value as f64))
    }

    /// Returns the limit of writes, in requests; `None` if there is none.
    #[must_use]
    pub fn write_rate(self) -> Option<Iops> {
        self.get(LimitKey::Writes).map(|value| Iops::new(value as f64))
    }

    /// Returns the limit of reads, in bytes; `None` if there is none.
    #[must_use]
    pub fn read_byte_rate(self) -> Option<ByteRate> {
        self.get(LimitKey::ReadBytes).map(|value| ByteRate::new(value as f64))
    }

    /// Returns the limit of writes, in bytes; `None` if there is none.
    #[must_use]
    pub fn write_byte_rate(self) -> Option<ByteRate> {
        self.get(LimitKey::WriteBytes).map(|value| ByteRate::new(value as f64))
    }

    fn with(mut self, key: LimitKey, per_second: f64) -> Self {
        self.set(key, key.rounded(per_second));
        self
    }

    pub(super) fn set(&mut self, key: LimitKey, value: u64) {
        self.values[key as usize] = Some(value);
    }

    pub(crate) const fn get(self, key: LimitKey) -> Option<u64> {
        self.values[key as usize]
    }

    /// The lower of both, of each number.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        let lower = |at: usize| match (self.values[at], other.values[at]) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { values: [lower(0), lower(1), lower(2), lower(3)] }
    }

    /// The higher of both, of each number.
    pub(crate) fn max(self, other: Self) -> Self {
        let higher = |at: usize| self.values[at].zip(other.values[at]).map(|(one, other)| one.max(other));
        Self { values: [higher(0), higher(1), higher(2), higher(3)] }
    }

    /// Returns true if any number is one that no device reaches.
    pub(crate) fn is_wide(self) -> bool {
        LimitKey::ALL.into_iter().any(|key| self.get(key) == Some(key.unreachable()))
    }

    /// With numbers instead that no device reaches.
    pub(crate) fn wide(self) -> Self {
        self.each(|key, _| Some(key.unreachable()))
    }

    /// With such numbers for those that are below another limit's.
    pub(crate) fn wide_where_below(self, other: Self) -> Self {
        self.each(|key, number| match other.get(key) {
            Some(other) if number < other => Some(key.unreachable()),
            _ => Some(number),
        })
    }

    /// With the numbers of another limit where it has some that this one lacks.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { values: LimitKey::ALL.map(|key| self.get(key).or(other.get(key))) }
    }

    /// The first step to this limit from the one `before`, which was `ours` when it was written last.
    pub(crate) fn first_step(self, before: Self, ours: Self) -> Self {
        self.each(|key, number| match before.get(key) {
            Some(before) if ours.get(key).is_none_or(|ours| before >= ours) && number >= before / FAR => {
                Some(number.max(before))
            }
            _ => Some(key.unreachable()),
        })
    }

    /// The next step to this limit after another one: its own number instead of one that no device reaches, and,
    /// if it `halves`, at least half of every other one.
    pub(crate) fn next_step(self, reached: Self, halves: bool) -> Self {
        self.each(|key, number| match reached.get(key) {
            Some(reached) if reached == key.unreachable() => Some(number),
            Some(reached) if halves => Some(number.max(reached.div_ceil(2))),
            reached => reached,
        })
    }

    fn each(self, change: impl Fn(LimitKey, u64) -> Option<u64>) -> Self {
        Self { values: LimitKey::ALL.map(|key| self.get(key).and_then(|number| change(key, number))) }
    }

    fn pairs(self, other: Self) -> impl Iterator<Item = (Option<u64>, Option<u64>)> {
        self.values.into_iter().zip(other.values)
    }

    /// With each number that is one of `ours` replaced by what was found.
    pub(crate) fn without(self, ours: [Self; 2], found: Self) -> Self {
        Self {
            values: std::array::from_fn(|at| {
                let is_ours = ours.iter().any(|limit| limit.values[at] == self.values[at]);
                if is_ours { found.values[at] } else { self.values[at] }
            }),
        }
    }

    /// Returns true if the difference is not worth a change.
    pub(crate) fn is_about(self, other: Self) -> bool {
        self.pairs(other).all(|(one, other)| match (one, other) {
            (Some(one), Some(other)) => (one as f64 - other as f64).abs() <= ABOUT * one as f64,
            (one, other) => one == other,
        })
    }

    /// The four numbers, as `io.max` has them.
    pub(crate) fn numbers(self) -> String {
        let mut text = String::new();
        for key in LimitKey::ALL {
            let separator = if text.is_empty() { "" } else { " " };
            // Writing to a text does not fail.
            let _ = match self.get(key) {
                Some(value) => write!(text, "{separator}{}={value}", key.name()),
                None => write!(text, "{separator}{}=max", key.name()),
            };
        }
        text
    }

    /// Parses the text of [`numbers`](Self::numbers), and ignores words with other keys.
    pub(crate) fn parse_numbers(text: &str) -> Option<Self> {
        let mut limit = Self::NONE;
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=')?;
            let Some(key) = LimitKey::ALL.into_iter().find(|key| key.name() == name) else { continue };
            if value != "max" {
                limit.set(key, value.parse().ok().filter(|value| (1..=key.most()).contains(value))?);
            }
        }
        Some(limit)
    }

    /// The line that sets it, in place of all that was set before.
    pub(super) fn line(self, device: DeviceNumber) -> String {
        format!("{device} {}", self.numbers())
    }

    /// A line of `io.max` as the kernel writes it.
    pub(super) fn parse(line: &str) -> Option<(DeviceNumber, Self)> {
        let (device, numbers) = line.trim().split_once(' ')?;
        Some((device.parse().ok()?, Self::parse_numbers(numbers)?))
    }
}

/// A line of a file of v1.
pub(super) fn parse_v1(line: &str) -> Option<(DeviceNumber, u64)> {
    let (device, value) = line.trim().split_once(' ')?;
    Some((device.parse().ok()?, value.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit() -> impl Strategy<Value = IoLimit> {
        let value = |key: LimitKey| prop::option::of(1..=key.most());
        (
            value(LimitKey::ReadBytes),
            value(LimitKey::WriteBytes),
            value(LimitKey::Reads),
            value(LimitKey::Writes),
        )
            .prop_map(|(a, b, c, d)| IoLimit { values: [a, b, c, d] })
    }

    proptest! {
        #[test]
        fn what_the_kernel_is_told_is_what_it_says(limit in limit(), major in 0..4096_u32, minor: u32) {
            let device = DeviceNumber::new(major, minor);
            prop_assert_eq!(IoLimit::parse(&limit.line(device)), Some((device, limit)));
            prop_assert!(limit.is_about(limit));
        }

        #[test]
        fn it_is_never_what_some_kernels_refuse_and_never_below_what_was_asked_for(
            rate in prop_oneof![0.0..4.0, 0.0..1e30],
        ) {
            let limit = IoLimit::NONE.reads(Iops::new(rate)).write_bytes(ByteRate::new(rate));
            for key in [LimitKey::Reads, LimitKey::WriteBytes] {
                let value = limit.get(key).unwrap();
                prop_assert!(value >= LEAST && value as f64 >= rate.min(key.most() as f64));
            }
            let reads = limit.get(LimitKey::Reads).unwrap();
            prop_assert!(reads == LimitKey::Reads.most() || reads.is_multiple_of(GRAIN)
                && reads as f64 <= rate + GRAIN as f64);
            prop_assert_eq!((limit.get(LimitKey::Writes), limit.get(LimitKey::ReadBytes)), (None, None));
        }

        #[test]
        fn the_lower_of_both_loosens_neither(one in limit(), other in limit()) {
            let lower = one.min(other);
            for key in LimitKey::ALL {
                for limit in [one, other] {
                    prop_assert!(limit.get(key).is_none_or(|value| lower.get(key).unwrap() <= value));
                }
            }
            prop_assert_eq!(lower, other.min(one));
            prop_assert_eq!(lower.min(one), lower);
        }

        #[test]
        fn what_is_left_as_it_is_is_not_far_off(one in 1.0..1e6, other in 1.0..1e6) {
            let limit = |rate| IoLimit::NONE.writes(Iops::new(rate));
            let (one, other) = (limit(one), limit(other));
            if one.is_about(other) {
                let ratio = other.get(LimitKey::Writes).unwrap() as f64 / one.get(LimitKey::Writes)
                    .unwrap() as f64;
                prop_assert!((ratio - 1.0).abs() <= ABOUT, "{}", ratio);
            }
            prop_assert!(!one.is_about(IoLimit::NONE));
        }

        #[test]
        fn any_line_is_read_or_refused(line in "\\PC{0,60}") {
            let _ = (IoLimit::parse(&line), parse_v1(&line));
        }
    }

    #[test]
    fn the_kernels_own_lines() {
        let device = DeviceNumber::new(254, 0);
        let limit = IoLimit::NONE.writes(Iops::new(100.0)).write_bytes(ByteRate::new(1_048_576.0));
        assert_eq!(IoLimit::parse("254:0 rbps=max wbps=1048576 riops=max wiops=100"), Some((device, limit)));
        assert_eq!(parse_v1("7:0 250"), Some((DeviceNumber::new(7, 0), 250)));
        for wrong in ["", "254:0 wbps", "254:0 wbps=-1", "254 wbps=1", "254:0 wiops=4294967295"] {
            assert_eq!(IoLimit::parse(wrong), None, "{wrong}");
        }
    }
}
