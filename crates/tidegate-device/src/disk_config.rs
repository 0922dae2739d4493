//! Parameters of a mechanical disk.

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

use crate::seek::SeekConfig;

/// A mechanical disk with 512-byte sectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DiskConfig {
    /// Revolutions per minute.
    pub rpm: u32,
    /// Number of cylinders; at least 16.
    pub cylinders: u32,
    /// Number of surfaces, and so of tracks per cylinder.
    pub heads: u32,
    /// Number of sectors that pass in one revolution. With `rpm` it determines the media rate.
    pub sectors_per_track: u32,
    /// Time that the arm takes to move.
    pub seek: SeekConfig,
    /// Time from one surface to the next of the same cylinder, settling included.
    #[serde(with = "tidegate_units::text")]
    pub head_switch: Latency,
    /// Additional settling time of a write, compared with a read, after any movement.
    #[serde(with = "tidegate_units::text")]
    pub write_settle: Latency,
    /// Time that the controller takes for a request before the arm can move for it.
    #[serde(with = "tidegate_units::text")]
    pub overhead: Latency,
    /// Order in which requests are served.
    pub queue: QueueConfig,
}

/// The order of service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum QueueConfig {
    /// Order of arrival.
    Fifo,
    /// C-LOOK: upwards through the disk, then back to the lowest, among the `depth` oldest. A request that
    /// waits for longer than `max_age` is served next (the oldest first), so that none starves behind a
    /// stream that always has another request just ahead of the arm.
    #[serde(rename_all = "kebab-case")]
    Elevator {
        /// Number of requests that the reordering sees; native command queueing has 32. 1 to 1024.
        depth: u32,
        /// The wait after which order of arrival prevails.
        #[serde(with = "tidegate_units::text")]
        max_age: Latency,
    },
    /// Shortest seek time first: the nearest in address among the `depth` oldest, on either side of the arm.
    /// Requests for the middle are near more often than those for the ends, and wait for less. A request that
    /// waits for longer than `max_age` is served next.
    #[serde(rename_all = "kebab-case")]
    ShortestSeek {
        /// Number of requests that the reordering sees. 1 to 1024.
        depth: u32,
        /// The wait after which order of arrival prevails.
        #[serde(with = "tidegate_units::text")]
        max_age: Latency,
    },
}
