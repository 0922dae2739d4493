//! The configuration of a load.

use std::time::Duration;

use thiserror::Error;
use tidegate_units::{Bytes, Iops};

use crate::target::LoadTarget;

/// The most connections of one load, each with two threads.
const MAX_CONNECTIONS: u32 = 64;

/// The most requests outstanding on one connection.
const MAX_DEPTH: u32 = 4096;

/// The greatest rate: one request per microsecond.
const MAX_RATE: f64 = 1e6;

/// The longest phase, pause or run: beyond any test, short of any overflow.
const MAX_DURATION: Duration = Duration::from_secs(365 * 86_400);

/// A load on one export.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadConfig {
    /// The export to load.
    pub target: LoadTarget,
    /// The number of connections, 1 to 64.
    pub connections: u32,
    /// The times at which requests come.
    pub arrivals: LoadArrivals,
    /// The order in which requests touch the blocks.
    pub order: BlockOrder,
    /// The share of reads, 0 (only writes) to 1 (only reads).
    pub read_fraction: f64,
    /// The size of every request.
    pub block: Bytes,
    /// The offset in the export at which the loaded region begins.
    pub offset: Bytes,
    /// The size of the region; the rest of the export if absent. A remainder at its end that does not fill a
    /// block is left alone.
    pub span: Option<Bytes>,
    /// True if writes must be on stable storage before they are answered.
    pub fua: bool,
    /// The content of writes.
    pub payload: WritePayload,
    /// Pauses; none if absent.
    pub phases: Option<LoadPhases>,
    /// The length of the run; until stopped if absent.
    pub duration: Option<Duration>,
    /// The seed of random numbers: the same seed makes the same requests in the same order, per connection.
    pub seed: u64,
}

impl LoadConfig {
    /// Random reads of 4 KiB over the whole export, one at a time, until stopped.
    #[must_use]
    pub fn new(target: LoadTarget) -> Self {
        Self {
            target,
            connections: 1,
            arrivals: LoadArrivals::Closed { depth: 1, think: Duration::ZERO },
            order: BlockOrder::Random,
            read_fraction: 1.0,
            block: Bytes::from_kib(4),
            offset: Bytes::ZERO,
            span: None,
            fua: false,
            payload: WritePayload::Random,
            phases: None,
            duration: None,
            seed: 1,
        }
    }

    /// Checks what can be checked without the export.
    ///
    /// # Errors
    /// The first value out of its bounds.
    pub fn check(&self) -> Result<(), LoadConfigError> {
        if self.connections == 0 || self.connections > MAX_CONNECTIONS {
            return Err(LoadConfigError::Connections(self.connections));
        }
        let (depth, think) = match self.arrivals {
            LoadArrivals::Closed { depth, think } => (depth, think),
            LoadArrivals::Open { rate, spacing, depth } => {
                if let RequestSpacing::Drawn { from, to, .. } = spacing
                    && !(0.0 <= from && from < to && to <= 1.0)
                {
                    return Err(LoadConfigError::Part { from, to });
                }
                let per_connection = rate.per_second() / f64::from(self.connections);
                // Below, the time to the next request would be longer than the longest run.
                if rate.per_second() > MAX_RATE || per_connection < MAX_DURATION.as_secs_f64().recip() {
                    return Err(LoadConfigError::Rate(rate));
                }
                (depth, Duration::ZERO)
            }
        };
        if depth == 0 || depth > MAX_DEPTH {
            return Err(LoadConfigError::Depth(depth));
        }
        // A NaN is in no range.
        if !(0.0..=1.0).contains(&self.read_fraction) {
            return Err(LoadConfigError::ReadFraction(self.read_fraction));
        }
        let phases = self.phases.map_or([Duration::ZERO; 3], |phases| [phases.on, phases.off, phases.delay]);
        let durations = [think, self.duration.unwrap_or_default()].into_iter().chain(phases);
        if let Some(long) = durations.max().filter(|longest| *longest > MAX_DURATION) {
            return Err(LoadConfigError::TooLong(long));
        }
        if self.phases.is_some_and(|phases| phases.on.is_zero()) {
            return Err(LoadConfigError::NeverOn);
        }
        if self.block == Bytes::ZERO {
            return Err(LoadConfigError::NoBlock);
        }
        Ok(())
    }
}

/// The times at which requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadArrivals {
    /// Each connection keeps `depth` requests outstanding; an answer makes room for the next request.
    Closed {
        /// The requests outstanding per connection, 1 to 4096.
        depth: u32,
        /// The time from an answer to the next request.
        think: Duration,
    },
    /// Requests come at a rate, whatever the answers.
    Open {
        /// The rate of all connections together, at most 1 000 000 per second.
        rate: Iops,
        /// The spacing of the requests.
        spacing: RequestSpacing,
        /// The most requests outstanding per connection, 1 to 4096. A request that is due at this bound waits
        /// its turn at the generator. None is dropped, and its response time includes the wait. Requests that
        /// still wait at the end of the run are reported as unsent.
        depth: u32,
    },
}

/// The spacing of requests in an open loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RequestSpacing {
    /// Evenly.
    Even,
    /// With exponentially distributed intervals, as of many independent users.
    Poisson,
    /// Evenly at the rate, and only those that chance makes this load's: of several loads with the same rate,
    /// the same seed here and parts that do not overlap, each moment is one load's. So requests are mixed in
    /// Lee's admission control (§2).
    Drawn {
        /// The beginning of this load's part of the whole, 0 to 1.
        from: f64,
        /// The end of this load's part, above `from`.
        to: f64,
        /// The seed that decides which load each moment belongs to.
        seed: u64,
    },
}

/// The order of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOrder {
    /// Any block of the region, uniformly.
    Random,
    /// One after the other, from the region's end back to its beginning. Of several connections each begins
    /// at its own part of the region.
    Sequential,
}

/// The content of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePayload {
    /// Bytes that do not compress.
    Random,
    /// Zeroes.
    Zeroes,
    /// One byte, repeated.
    Byte(u8),
}

/// Load that comes and goes. Requests that are outstanding when a pause begins complete normally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadPhases {
    /// The time for which the load is on; not zero.
    pub on: Duration,
    /// The length of the pause after that.
    pub off: Duration,
    /// The time before the load is on for the first time.
    pub delay: Duration,
}

/// The reasons why a load makes no sense.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum LoadConfigError {
    /// The number of connections.
    #[error("{0} connections; 1 to {MAX_CONNECTIONS} are possible")]
    Connections(u32),
    /// The number of requests outstanding.
    #[error("a depth of {0}; 1 to {MAX_DEPTH} are possible")]
    Depth(u32),
    /// The rate.
    #[error("a rate of {0}; it must be more than zero and at most 1000 kIO/s")]
    Rate(Iops),
    /// The part of moments that are drawn.
    #[error("from {from} to {to} is no part of the whole")]
    Part {
        /// The beginning asked for.
        from: f64,
        /// The end asked for.
        to: f64,
    },
    /// The share of reads.
    #[error("{0} as the share of reads; 0 to 1 is possible")]
    ReadFraction(f64),
    /// A time span.
    #[error("{0:?} is longer than a year")]
    TooLong(Duration),
    /// Phases without load.
    #[error("the load is never on")]
    NeverOn,
    /// Requests without data.
    #[error("the block size is zero")]
    NoBlock,
}
