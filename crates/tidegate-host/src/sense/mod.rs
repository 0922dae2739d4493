//! Sensors: they read what the kernel says, and never decide.
//!
//! | sensor | reads | says |
//! |---|---|---|
//! | [`DiskStats`] | `/proc/diskstats` | what every block device has done, and what is outstanding there |
//! | [`Volumes`] | `/sys/block` | which device is which volume, of which group, on which disks |
//! | [`CgroupReader`] | `io.stat`, or `blkio.throttle.*` | which control group does what to a device |
//! | [`BlockLatency`] | an eBPF program's map | how long the requests of chosen devices took, each by each |
//! | [`StorageReader`] | `/proc/diskstats` or a cgroup, `statvfs` | what the storage under a path does as a whole, and its room |
//! | [`sessions`] | configfs, `/proc/fs/nfsd`, socket tables | who loads which device, from which address |
//!
//! Parsing is pure and takes text; reading takes a [`Root`](crate::Root), so that all of it but
//! [`BlockLatency`] works on a captured tree, too.

pub mod cgroups;
pub mod diskstats;
pub mod latency;
pub(crate) mod mounts;
pub mod session;
pub mod storage;
pub(crate) mod tree;
pub mod volume;

pub use cgroups::CgroupReader;
pub use diskstats::{Change, DiskDelta, DiskStats};
pub use latency::BlockLatency;
pub use session::{Activity, Session, SessionReader, Sessions, sessions};
pub use storage::{StorageLane, StorageReader, StorageSample};
pub use volume::{Group, Volumes};
