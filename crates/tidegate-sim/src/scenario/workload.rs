//! What a virtual machine does.

use std::sync::Arc;

use tidegate_units::{Bytes, Instant, Iops, Latency};

use super::Span;

/// A stream of operations. An operation is one I/O or several.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// What it is called; differs from the others of its virtual machine. Its random numbers depend on it.
    pub name: String,
    /// When operations begin.
    pub arrivals: Arrivals,
    /// What an operation does, one step after the other. At least one, but for a trace, which has none.
    pub steps: Vec<Step>,
    /// How many operations one of them is counted as: more than one where it stands for a burst of them.
    pub operations: u32,
    /// When it is active.
    pub during: Vec<Span>,
    /// Load that comes and goes: active only in the first part of each cycle.
    pub cycle: Option<Cycle>,
}

impl Workload {
    /// Always so many random reads of this size outstanding.
    #[must_use]
    pub fn random_reads(name: &str, outstanding: u32, bytes: u32) -> Self {
        Self {
            name: name.to_owned(),
            arrivals: Arrivals::Closed { outstanding, think: Think::NONE },
            steps: vec![Step::random_reads(bytes)],
            operations: 1,
            during: vec![Span::ALWAYS],
            cycle: None,
        }
    }
}

/// When operations begin.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// So many operations are always under way; between two of the same thread it thinks. The first ones
    /// begin after a think time as well.
    Closed {
        /// How many threads.
        outstanding: u32,
        /// How long each thinks after an operation.
        think: Think,
    },
    /// At this rate, whatever becomes of those before.
    Open {
        /// Operations per second.
        rate: Iops,
        /// How they are spaced.
        spacing: Spacing,
        /// An operation that would be one more than this under way does not take place: a client's queue is
        /// bounded.
        limit: u32,
    },
    /// One for every so many operations of another workload of the same virtual machine, which has to wait
    /// when they do not keep up: a database's writer processes, and its log.
    After {
        /// The other's name.
        workload: String,
        /// For every so many operations of the other.
        every: u32,
        /// How many may be under way at once.
        threads: u32,
        /// While so many operations of the other wait to be answered for, it may begin none.
        backlog: u32,
    },
    /// As they were recorded, from each beginning of activity on.
    Trace {
        /// What was recorded, in the order of time.
        records: Arc<[TraceRecord]>,
        /// How many times as fast.
        speed: f64,
        /// Once more from the beginning when it is at its end.
        repeat: bool,
    },
}

/// Think time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Think {
    /// Its mean.
    pub mean: Latency,
    /// How it varies.
    pub distribution: ThinkTime,
}

impl Think {
    /// No think time.
    pub const NONE: Self = Self { mean: Latency::ZERO, distribution: ThinkTime::Constant };
}

/// The distribution of think times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThinkTime {
    /// Always the mean.
    Constant,
    /// Exponential.
    #[default]
    Exponential,
    /// Uniform between nothing and twice the mean.
    Uniform,
}

/// How arrivals at a rate are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Spacing {
    /// A Poisson process.
    #[default]
    Poisson,
    /// Evenly.
    Even,
    /// Evenly, and each later by up to this much, at random: what several workloads have to do at one time
    /// they then do in any order.
    Jittered(Latency),
    /// Evenly, and for each arrival a number from 0 to 1 is drawn: it takes place when that is at least
    /// `from` and below `to`. All workloads of a simulation see the same numbers, so that those of one rate
    /// with parts that fill 0 to 1 are together one stream of mixed requests. The workload's rate is that of
    /// the whole stream.
    Drawn {
        /// The beginning of its part.
        from: f64,
        /// The end of its part.
        to: f64,
    },
}

/// Active for a time, then not, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// How long it is active.
    pub on: Latency,
    /// How long it then pauses.
    pub off: Latency,
    /// When the first cycle begins.
    pub delay: Latency,
}

/// A part of an operation: so many I/Os at once, of which all must be done before the next step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// How many.
    pub count: u32,
    /// How large each is.
    pub sizes: Sizes,
    /// The part of them that reads, 0 to 1.
    pub reads: f64,
    /// The part of them that follows the one before, 0 to 1. The others are anywhere in the region.
    pub sequential: f64,
    /// Which part of the disk.
    pub region: Region,
    /// What its writes promise.
    pub durability: Durability,
    /// Which of the virtual machine's disks.
    pub disk: usize,
}

impl Step {
    /// One random read of this size, anywhere on the first disk.
    #[must_use]
    pub fn random_reads(bytes: u32) -> Self {
        Self {
            count: 1,
            sizes: Sizes::fixed(bytes),
            reads: 1.0,
            sequential: 0.0,
            region: Region::WHOLE,
            durability: Durability::default(),
            disk: 0,
        }
    }
}

/// Sizes of requests with their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes(Vec<(u32, f64)>);

impl Sizes {
    /// Always this size.
    #[must_use]
    pub fn fixed(bytes: u32) -> Self {
        Self(vec![(bytes, 1.0)])
    }

    /// One of these sizes in bytes, each as often as its weight says. `None` unless there is one, all sizes
    /// are more than nothing, and all weights are finite, not negative, and not all zero.
    #[must_use]
    pub fn weighted(sizes: Vec<(u32, f64)>) -> Option<Self> {
        let valid = sizes.iter().all(|(bytes, weight)| *bytes > 0 && weight.is_finite() && *weight >= 0.0);
        let some = sizes.iter().any(|(_, weight)| *weight > 0.0);
        (valid && some).then_some(Self(sizes))
    }

    /// Normally distributed, in whole blocks of 512 bytes, at least one of them and at most four deviations
    /// above the mean. `None` unless the mean is a block or more, the deviation no more than the mean, and
    /// the greatest below 4 GiB.
    #[must_use]
    pub fn normal(mean: Bytes, deviation: Bytes) -> Option<Self> {
        const BLOCK: u64 = 512;
        let greatest = deviation.get().checked_mul(4)?.checked_add(mean.get())?;
        if mean.get() < BLOCK || deviation > mean || u32::try_from(greatest).is_err() {
            return None;
        }
        if deviation == Bytes::ZERO {
            return Some(Self::fixed(mean.get() as u32));
        }
        let weight = |bytes: u64| {
            let deviations = (bytes as f64 - mean.get() as f64) / deviation.get() as f64;
            (-0.5 * deviations * deviations).exp()
        };
        let sizes = (1..=greatest / BLOCK).map(|blocks| blocks * BLOCK);
        Self::weighted(sizes.map(|bytes| (bytes as u32, weight(bytes))).collect())
    }

    /// The greatest.
    #[must_use]
    pub fn greatest(&self) -> u32 {
        self.0.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0)
    }

    /// The mean, in bytes.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let (weights, bytes) = self.0.iter().fold((0.0, 0.0), |(weights, sum), (bytes, weight)| {
            (weights + weight, sum + weight * f64::from(*bytes))
        });
        bytes / weights
    }

    /// The size at a fraction, 0 to 1, of all weights; the mean use of one random number.
    pub(crate) fn at(&self, fraction: f64) -> u32 {
        let [(only, _)] = self.0[..] else {
            let mut left = fraction * self.0.iter().map(|(_, weight)| weight).sum::<f64>();
            let found = self.0.iter().find(|(_, weight)| {
                left -= weight;
                left < 0.0
            });
            // The last one takes what rounding leaves over.
            return found.or(self.0.last()).map_or(0, |(bytes, _)| *bytes);
        };
        only
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.0.len() == 1
    }
}

/// A part of a disk, as fractions of its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Region {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

impl Region {
    /// All of it.
    pub const WHOLE: Self = Self { from: 0.0, to: 1.0 };
}

/// What a write promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// To be durable with the next flush.
    #[default]
    None,
    /// To be durable when it is answered (force unit access).
    Fua,
    /// The step ends with a flush: `fsync`.
    Flush,
}

/// An I/O as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// When, from the beginning of the record.
    pub at: Instant,
    /// A read, or else a write.
    pub read: bool,
    /// Its first byte on the virtual disk. What lies beyond the disk's end is taken modulo its size.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
}
