//! Sensors: they read the kernel's state, and never decide.
//!
//! | sensor | reads | says |
//! |---|---|---|
//! | [`DiskStats`] | `/proc/diskstats` | every block device's activity and outstanding requests |
//! | [`uncounted`] | `queue/iostats` in sysfs | whether the kernel counts a device's requests at all |
//! | [`VolumeTree`] | `/sys/block` | the volume of each device, its group and its disks |
//! | [`CgroupReader`] | `io.stat`, or `blkio.throttle.*` | each control group's I/O to devices |
//! | [`BlockLatency`] | an eBPF program's map | the latency of each request of chosen devices |
//! | [`NetworkMounts`] | `/proc/self/mountstats` | every NFS mount's activity |
//! | [`NfsdThreads`] | `/proc/fs/nfsd/pool_stats` | requests that waited for a thread of the NFS server |
//! | [`StorageReader`] | one of these or a cgroup, `statvfs` | activity and room of a path's storage |
//! | [`PacketCapture`] | packets that pass an interface | each initiator's I/O to an array's LUNs |
//! | [`sessions`] | configfs, `/proc/fs/nfsd`, socket tables | each device's consumers, their addresses |
//!
//! Parsing is pure and takes text; reading takes a [`SystemRoot`](crate::SystemRoot), so that all of it but
//! [`BlockLatency`] works on a captured tree, too.

pub mod capture;
pub mod cgroups;
pub mod counting;
pub mod diskstats;
pub mod latency;
pub(crate) mod mounts;
pub mod mountstats;
pub mod nfsd_threads;
pub mod session;
pub mod storage;
pub(crate) mod tree;
pub mod volume;

pub use capture::PacketCapture;
pub use cgroups::CgroupReader;
pub use counting::{UncountedDevice, uncounted};
pub use diskstats::{DiskChange, DiskDelta, DiskStats};
pub use latency::BlockLatency;
pub use mountstats::NetworkMounts;
pub use nfsd_threads::NfsdThreads;
pub use session::{DeviceActivity, SessionReader, TargetSession, TargetSessions, sessions};
pub use storage::{MeasuredStorage, StorageLane, StorageReader, StorageSample};
pub use volume::{DeviceGroup, VolumeTree};
