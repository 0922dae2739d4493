//! Workloads of a virtual machine.

use std::sync::Arc;

use tidegate_units::{Bytes, Instant, Iops, Latency};

use super::ScenarioSpan;

/// A stream of operations. An operation is one I/O or several.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Name in results, unique within the virtual machine. Its random numbers depend on it.
    pub name: String,
    /// Rule for the beginnings of operations.
    pub arrivals: OperationArrivals,
    /// Steps of an operation, one after the other. At least one, but for a trace, which has none.
    pub steps: Vec<OperationStep>,
    /// Number of operations that one of them counts as: more than one where it stands for a burst of them.
    pub operations: u32,
    /// Times at which it is active.
    pub during: Vec<ScenarioSpan>,
    /// Load that comes and goes: active only in the first part of each cycle.
    pub cycle: Option<ActivityCycle>,
}

impl Workload {
    /// Always has so many random reads of this size outstanding.
    #[must_use]
    pub fn random_reads(name: &str, outstanding: u32, bytes: u32) -> Self {
        Self {
            name: name.to_owned(),
            arrivals: OperationArrivals::Closed { outstanding, think: ThinkTiming::NONE },
            steps: vec![OperationStep::random_reads(bytes)],
            operations: 1,
            during: vec![ScenarioSpan::ALWAYS],
            cycle: None,
        }
    }
}

/// Rules for the beginnings of operations.
#[derive(Debug, Clone, PartialEq)]
pub enum OperationArrivals {
    /// A fixed number of operations is always under way. Each thread thinks between two operations. The first
    /// ones begin after a think time as well.
    Closed {
        /// Number of threads.
        outstanding: u32,
        /// Think time of each thread after an operation.
        think: ThinkTiming,
    },
    /// Operations begin at this rate, whatever becomes of those before.
    Open {
        /// Operations per second.
        rate: Iops,
        /// Distribution of the gaps between them.
        spacing: ArrivalSpacing,
        /// An operation that would be one more than this under way does not take place: a client's queue is
        /// bounded.
        limit: u32,
    },
    /// One operation for every so many of another workload of the same virtual machine. The other waits when
    /// these do not keep up: a database's writer processes, and its log.
    After {
        /// The other's name.
        workload: String,
        /// Number of the other's operations for each of its own.
        every: u32,
        /// Greatest number of its operations under way at once.
        threads: u32,
        /// Greatest number of the other's operations that wait to be answered for. The other begins no
        /// operation while so many wait.
        backlog: u32,
    },
    /// I/Os begin at their recorded times, from each beginning of activity on.
    Trace {
        /// The recorded I/Os, in the order of time.
        records: Arc<[TraceRecord]>,
        /// Factor by which the replay is faster than the record.
        speed: f64,
        /// True if the replay starts over from the beginning at its end.
        repeat: bool,
    },
}

/// Think time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinkTiming {
    /// Its mean.
    pub mean: Latency,
    /// Distribution of think times around the mean.
    pub distribution: ThinkTime,
}

impl ThinkTiming {
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

/// Distribution of the gaps between arrivals at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ArrivalSpacing {
    /// A Poisson process.
    #[default]
    Poisson,
    /// Even gaps.
    Even,
    /// Even gaps, with each arrival later by up to this much, at random. Operations that several workloads
    /// begin at one time then come in any order.
    Jittered(Latency),
    /// Even gaps, and for each arrival a number from 0 to 1 is drawn. The arrival takes place when that is at
    /// least `from` and below `to`. All workloads of a simulation see the same numbers. So workloads of one
    /// rate with parts that fill 0 to 1 are together one stream of mixed requests. The workload's rate is
    /// that of the whole stream.
    Drawn {
        /// The beginning of its part.
        from: f64,
        /// The end of its part.
        to: f64,
    },
}

/// Active for a time, then not, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivityCycle {
    /// Time for which it is active.
    pub on: Latency,
    /// Time for which it then pauses.
    pub off: Latency,
    /// Time at which the first cycle begins.
    pub delay: Latency,
}

/// A part of an operation: so many I/Os at once. All of them must be done before the next step.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationStep {
    /// Number of I/Os.
    pub count: u32,
    /// Sizes of the I/Os.
    pub sizes: SizeWeights,
    /// The fraction of them that reads, 0 to 1.
    pub reads: f64,
    /// The fraction of them that follows the one before, 0 to 1. The others are anywhere in the region.
    pub sequential: f64,
    /// Part of the disk that it uses.
    pub region: DiskRegion,
    /// Durability of its writes.
    pub durability: Durability,
    /// Index of the virtual machine's disk.
    pub disk: usize,
}

impl OperationStep {
    /// One random read of this size, anywhere on the first disk.
    #[must_use]
    pub fn random_reads(bytes: u32) -> Self {
        Self {
            count: 1,
            sizes: SizeWeights::fixed(bytes),
            reads: 1.0,
            sequential: 0.0,
            region: DiskRegion::WHOLE,
            durability: Durability::default(),
            disk: 0,
        }
    }
}

/// Sizes of requests with their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeWeights(Vec<(u32, f64)>);

impl SizeWeights {
    /// Makes a distribution with this one size.
    #[must_use]
    pub fn fixed(bytes: u32) -> Self {
        Self(vec![(bytes, 1.0)])
    }

    /// Makes a distribution of these sizes in bytes, each as often as its weight says. `None` unless there is
    /// one, all sizes are more than nothing, and all weights are finite, not negative, and not all zero.
    #[must_use]
    pub fn weighted(sizes: Vec<(u32, f64)>) -> Option<Self> {
        let valid = sizes.iter().all(|(bytes, weight)| *bytes > 0 && weight.is_finite() && *weight >= 0.0);
        let some = sizes.iter().any(|(_, weight)| *weight > 0.0);
        (valid && some).then_some(Self(sizes))
    }

    /// Makes a normal distribution, in whole blocks of 512 bytes. Sizes are at least one block and at most
    /// four deviations above the mean. `None` unless the mean is a block or more, the deviation no more than
    /// the mean, and the greatest below 4 GiB.
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

    /// Returns the size at a fraction, 0 to 1, of all weights; the fraction is meant to be a random number.
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
pub struct DiskRegion {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

impl DiskRegion {
    /// All of it.
    pub const WHOLE: Self = Self { from: 0.0, to: 1.0 };
}

/// Durability that a write promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The write is durable with the next flush.
    #[default]
    None,
    /// The write is durable when it is answered (force unit access).
    Fua,
    /// The step ends with a flush: `fsync`.
    Flush,
}

/// An I/O as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// Time from the beginning of the record.
    pub at: Instant,
    /// A read, or else a write.
    pub read: bool,
    /// Its first byte on the virtual disk. An offset beyond the disk's end is taken modulo its size.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u32,
}
