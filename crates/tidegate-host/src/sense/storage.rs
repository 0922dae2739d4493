//! The storage under a path: a storage system as a whole, whatever it is made of.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{major, minor, statvfs};
use tidegate_units::{ByteRate, Bytes, Latency};

use super::counting::{UncountedDevice, uncounted};
use super::diskstats::{DiskDelta, DiskStats};
use super::mounts::MountTable;
use super::mountstats::{NetworkCounters, NetworkMounts, NetworkOperations};
use super::volume::VolumeTree;
use crate::cgroup::{CgroupTree, IoCounters};
use crate::device::DeviceNumber;
use crate::root::SystemRoot;

/// The storage under a path of this machine: the load of its device, from all sources, or of one cgroup, and
/// the room in its file system.
///
/// The device is that of the path, and not the disks that an array is made of. A mount of NFS has none: what
/// this machine does through it counts, and not what others do on the server. Of other network file systems
/// no rates are known. A question to a file system that hangs does not come back: ask on a thread of its own.
#[derive(Debug)]
pub struct StorageReader {
    path: PathBuf,
    root: SystemRoot,
    /// The device that the path was on when the source was made: it may be mounted anew, from another device.
    on: Option<DeviceNumber>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The path could not be looked at, or has no block device.
    Unknown,
    Device {
        number: DeviceNumber,
        last: DiskStats,
        /// The devices when the source was made.
        volumes: VolumeTree,
        /// The device, if the kernel did not count its requests at the last reading.
        uncounted: Option<UncountedDevice>,
    },
    Network {
        point: PathBuf,
        last: NetworkCounters,
    },
    Cgroup {
        tree: CgroupTree,
        cgroup: String,
        device: Option<DeviceNumber>,
        last: Option<IoCounters>,
    },
}

/// The storage that a reader measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeasuredStorage {
    /// A block device.
    Device(DeviceNumber),
    /// A mount of NFS, by its directory.
    NetworkMount(PathBuf),
}

impl fmt::Display for MeasuredStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(number) => write!(f, "device {number}"),
            Self::NetworkMount(point) => write!(f, "the NFS mount {}", point.display()),
        }
    }
}

/// The storage's activity since the last sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StorageSample {
    /// Reads.
    pub read: StorageLane,
    /// Writes.
    pub write: StorageLane,
    /// Free space in its file system, for users other than root.
    pub free: Option<Bytes>,
    /// The size of its file system.
    pub size: Option<Bytes>,
}

/// One direction. Values are `None` if they are not known, which is not the same as no activity.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StorageLane {
    /// Bytes per second.
    pub rate: Option<ByteRate>,
    /// The mean latency of all of the device's requests; `None` if there were none.
    pub latency: Option<Latency>,
}

/// Both directions.
#[derive(Debug, Clone, Copy, Default)]
struct Lanes {
    read: StorageLane,
    write: StorageLane,
}

impl StorageReader {
    /// Makes a reader for a path. Call it on a thread that may wait for the path's file system. With a
    /// `cgroup`, such as `system.slice/minio.service`, that cgroup's I/O counts, instead of the device's.
    ///
    /// # Errors
    /// When no cgroup hierarchy here accounts for I/O.
    pub fn under(root: &SystemRoot, path: &Path, cgroup: Option<&str>) -> std::io::Result<Self> {
        let source = match cgroup {
            Some(cgroup) => Source::Cgroup {
                tree: CgroupTree::find(root)?,
                cgroup: cgroup.trim_matches('/').to_owned(),
                device: None,
                last: None,
            },
            None => Source::Unknown,
        };
        let mut reader = Self { path: path.to_owned(), root: root.clone(), on: None, source };
        reader.begin(reader.is_on());
        Ok(reader)
    }

    /// The storage that is measured, or of which a cgroup's part is; `None` where there is none.
    #[must_use]
    pub fn measures(&self) -> Option<MeasuredStorage> {
        match &self.source {
            Source::Unknown => None,
            Source::Device { number, .. } => Some(MeasuredStorage::Device(*number)),
            Source::Network { point, .. } => Some(MeasuredStorage::NetworkMount(point.clone())),
            Source::Cgroup { device, .. } => device.map(MeasuredStorage::Device),
        }
    }

    /// Returns the device, if the kernel did not count its requests at the last reading, so that its rates are
    /// not known.
    #[must_use]
    pub const fn uncounted(&self) -> Option<&UncountedDevice> {
        match &self.source {
            Source::Device { uncounted, .. } => uncounted.as_ref(),
            _ => None,
        }
    }

    /// Returns the storage's activity since the last call; `elapsed` is the time since then.
    pub fn sample(&mut self, elapsed: Duration) -> StorageSample {
        let on = self.is_on();
        let Lanes { read, write } = if on != self.on || matches!(self.source, Source::Unknown) {
            // It was mounted meanwhile, or something else was. What the device did before is none of this
            // interval.
            self.begin(on);
            Lanes::default()
        } else {
            self.lanes(elapsed)
        };
        let room = statvfs(&self.path).ok();
        let bytes = |blocks: u64, each: u64| Bytes::new(blocks.saturating_mul(each));
        StorageSample {
            read,
            write,
            free: room.as_ref().map(|room| bytes(room.f_bavail, room.f_frsize)),
            size: room.as_ref().map(|room| bytes(room.f_blocks, room.f_frsize)),
        }
    }

    /// The number of the device that the path is on, whether or not there is a block device of that number.
    fn is_on(&self) -> Option<DeviceNumber> {
        let about = std::fs::metadata(&self.path).ok()?;
        Some(DeviceNumber::new(major(about.dev()), minor(about.dev())))
    }

    /// From here on what is done to this device counts.
    fn begin(&mut self, on: Option<DeviceNumber>) {
        self.on = on;
        let stats = DiskStats::read(&self.root).ok();
        // Only a block device is one that the kernel counts.
        let counted = on.zip(stats).filter(|(on, stats)| stats.get(*on).is_some());
        match &mut self.source {
            Source::Cgroup { device, last, .. } => {
                (*device, *last) = (counted.map(|(number, _)| number), None);
                self.lanes(Duration::ZERO);
            }
            source => {
                *source = match counted {
                    Some((number, last)) => {
                        let volumes = VolumeTree::read(&self.root).unwrap_or_default();
                        let uncounted = uncounted(&self.root, &volumes, &last, number);
                        Source::Device { number, last, volumes, uncounted }
                    }
                    None => on.and_then(|on| network_mount(&self.root, on)).unwrap_or(Source::Unknown),
                };
            }
        }
    }

    fn lanes(&mut self, elapsed: Duration) -> Lanes {
        match &mut self.source {
            Source::Unknown => Lanes::default(),
            Source::Device { number, last, volumes, uncounted: was_uncounted } => {
                let Ok(now) = DiskStats::read(&self.root) else { return Lanes::default() };
                let change = now.change(last, *number);
                let is_uncounted = uncounted(&self.root, volumes, &now, *number);
                *last = now;
                // Of an interval that the kernel counted in part, the rates are not known either.
                let is_known = was_uncounted.is_none() && is_uncounted.is_none();
                *was_uncounted = is_uncounted;
                change
                    .filter(|_| is_known)
                    .and_then(super::diskstats::DiskChange::delta)
                    .map(|done| of_device(&done, elapsed))
                    .unwrap_or_default()
            }
            Source::Network { point, last } => {
                let now = NetworkMounts::read(&self.root).ok();
                let Some(now) = now.and_then(|now| Some(now.at(point)?.counters)) else {
                    return Lanes::default();
                };
                let before = std::mem::replace(last, now);
                now.since(&before).map(|done| of_mount(&done, elapsed)).unwrap_or_default()
            }
            Source::Cgroup { tree, cgroup, device, last } => {
                let found = tree.counters(cgroup).ok().flatten();
                let now = found.map(|found| together(&found, *device));
                let before = std::mem::replace(last, now);
                let done = now.zip(before).and_then(|(now, before)| now.since(before));
                done.map(|done| of_cgroup(done, elapsed)).unwrap_or_default()
            }
        }
    }
}

/// The mount of NFS whose file system has this number.
fn network_mount(root: &SystemRoot, on: DeviceNumber) -> Option<Source> {
    let mounts = MountTable::table(root).ok()?;
    let point = mounts.of(on)?.point.clone();
    let last = NetworkMounts::read(root).ok()?.at(&point)?.counters;
    Some(Source::Network { point, last })
}

fn rate(bytes: Bytes, elapsed: Duration) -> Option<ByteRate> {
    (!elapsed.is_zero()).then(|| ByteRate::new(bytes.get() as f64 / elapsed.as_secs_f64()))
}

fn of_device(done: &DiskDelta, elapsed: Duration) -> Lanes {
    let lane = |done: &super::diskstats::CompletedRequests| StorageLane {
        rate: rate(done.bytes(), elapsed),
        latency: done.mean_response_time(),
    };
    Lanes { read: lane(&done.reads), write: lane(&done.writes) }
}

/// The latency is the whole time of an operation: a device's is from its queue on, too.
fn of_mount(done: &NetworkCounters, elapsed: Duration) -> Lanes {
    let lane = |done: &NetworkOperations| StorageLane {
        rate: rate(done.bytes, elapsed),
        latency: done.mean_execution(),
    };
    Lanes { read: lane(&done.read), write: lane(&done.write) }
}

/// The kernel does not say how long a cgroup's requests take.
fn of_cgroup(done: IoCounters, elapsed: Duration) -> Lanes {
    let lane = |bytes| StorageLane { rate: rate(bytes, elapsed), latency: None };
    Lanes { read: lane(done.read), write: lane(done.written) }
}

/// Returns a cgroup's I/O to the device, or to all devices if the device is not known. In that case a bio
/// that goes through several layers of devices counts at each of them.
fn together(found: &BTreeMap<DeviceNumber, IoCounters>, device: Option<DeviceNumber>) -> IoCounters {
    if let Some(device) = device {
        // What was not touched yet has no line.
        return found.get(&device).copied().unwrap_or_default();
    }
    found.values().fold(IoCounters::default(), |sum, one| IoCounters {
        reads: sum.reads.saturating_add(one.reads),
        writes: sum.writes.saturating_add(one.writes),
        read: Bytes::new(sum.read.get().saturating_add(one.read.get())),
        written: Bytes::new(sum.written.get().saturating_add(one.written.get())),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A captured tree in which the path of the test lies on a disk that has done this.
    struct Machine {
        folder: tempfile::TempDir,
        number: DeviceNumber,
    }

    impl Machine {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let about = fs::metadata(folder.path()).unwrap();
            let number = DeviceNumber::new(major(about.dev()), minor(about.dev()));
            fs::create_dir(folder.path().join("proc")).unwrap();
            Self { folder, number }
        }

        /// Reads, their sectors and milliseconds; the same of writes.
        fn did(&self, [reads, read, read_ms, writes, written, write_ms]: [u64; 6]) {
            let DeviceNumber { major, minor } = self.number;
            let line = format!(
                "{major} {minor} sdx {reads} 0 {read} {read_ms} {writes} 0 {written} {write_ms} 0 9 9 0 0 0 \
                    0 0 0\n"
            );
            fs::write(self.folder.path().join("proc/diskstats"), line).unwrap();
        }

        fn reader(&self) -> StorageReader {
            StorageReader::under(&SystemRoot::at(self.folder.path()), self.folder.path(), None).unwrap()
        }
    }

    #[test]
    fn rates_and_response_times_are_those_of_the_device_under_the_path() {
        let machine = Machine::new();
        machine.did([10, 100, 50, 20, 200, 70]);
        let mut reader = machine.reader();
        assert_eq!(reader.measures(), Some(MeasuredStorage::Device(machine.number)));
        machine.did([14, 100 + 8000, 70, 20, 200, 70]);
        let sample = reader.sample(Duration::from_secs(2));
        let read =
            StorageLane { rate: Some(ByteRate::new(2_048_000.0)), latency: Some(Latency::from_millis(5)) };
        assert_eq!(sample.read, read);
        assert_eq!(
            sample.write,
            StorageLane { rate: Some(ByteRate::ZERO), latency: None },
            "no request is no response time"
        );
        assert!(sample.free.unwrap() <= sample.size.unwrap());
        // A device that was made anew has done nothing that is known.
        machine.did([1, 8, 1, 1, 8, 1]);
        assert_eq!(reader.sample(Duration::from_secs(1)).read, StorageLane::default());
        machine.did([2, 16, 2, 1, 8, 1]);
        assert_eq!(reader.sample(Duration::from_secs(1)).read.rate, Some(ByteRate::new(4096.0)));
    }

    #[test]
    fn a_device_that_the_kernel_does_not_count_is_unknown_and_not_idle() {
        let machine = Machine::new();
        machine.did([10, 100, 50, 20, 200, 70]);
        let number = machine.number;
        let sysfs = format!(
            "sys/block/sdx/dev\n  {number}\nsys/block/sdx/size\n  2048\nsys/block/sdx/mq/0/cpu_list\n  0\n"
        );
        crate::trees::unpack(&sysfs, machine.folder.path()).unwrap();
        let count = |is_on: bool| {
            let file = "sys/block/sdx/queue/iostats";
            let text = if is_on { "1\n" } else { "0\n" };
            crate::trees::write_file(machine.folder.path(), file, text.as_bytes()).unwrap();
        };
        count(true);
        let mut reader = machine.reader();
        let mut rate = |is_on| {
            count(is_on);
            let rate = reader.sample(Duration::from_secs(1)).read.rate;
            (rate, reader.uncounted().map(ToString::to_string))
        };
        assert_eq!(rate(true), (Some(ByteRate::ZERO), None));
        let why =
            "the kernel does not count the requests of sdx; run `echo 1 > /sys/block/sdx/queue/iostats`";
        assert_eq!(rate(false), (None, Some(why.to_owned())));
        assert_eq!(rate(true), (None, None), "it was counted for a part of the interval only");
        assert_eq!(rate(true), (Some(ByteRate::ZERO), None));
    }

    #[test]
    fn where_no_device_is_known_nothing_is_and_one_that_comes_later_is_found() {
        let machine = Machine::new();
        fs::write(machine.folder.path().join("proc/diskstats"), "").unwrap();
        let mut reader = machine.reader();
        assert_eq!(reader.measures(), None);
        assert_eq!(
            reader.sample(Duration::from_secs(1)).write,
            StorageLane::default(),
            "unknown, and not idle"
        );
        machine.did([0, 0, 0, 1, 8, 4]);
        reader.sample(Duration::from_secs(1));
        machine.did([0, 0, 0, 2, 16, 8]);
        assert_eq!(reader.sample(Duration::from_secs(1)).write.latency, Some(Latency::from_millis(4)));
    }

    #[test]
    fn a_path_that_moved_to_another_device_was_measured_on_the_one_before() {
        let machine = Machine::new();
        let path = machine.folder.path().join("store");
        let under = |target: &std::path::Path| {
            let _ = fs::remove_file(&path);
            std::os::unix::fs::symlink(target, &path).unwrap();
        };
        // A folder of the test's disk, and then one that is certainly elsewhere.
        let elsewhere = fs::metadata("/proc").unwrap().dev();
        let other = DeviceNumber::new(major(elsewhere), minor(elsewhere));
        let did = |[mine, others]: [u64; 2]| {
            let line = |DeviceNumber { major, minor }: DeviceNumber, sectors| {
                format!("{major} {minor} sdx 1 0 {sectors} 1 1 0 8 1 0 9 9 0 0 0 0 0 0\n")
            };
            let text = line(machine.number, mine) + &line(other, others);
            fs::write(machine.folder.path().join("proc/diskstats"), text).unwrap();
        };
        let root = SystemRoot::at(machine.folder.path());
        did([8, 8]);
        under(machine.folder.path());
        let mut reader = StorageReader::under(&root, &path, None).unwrap();
        let mut read = || reader.sample(Duration::from_secs(1)).read.rate;
        did([16, 8]);
        assert_eq!(read(), Some(ByteRate::new(4096.0)));
        under(std::path::Path::new("/proc"));
        did([1000, 16]);
        assert_eq!(read(), None, "unknown for this interval, and not idle");
        did([2000, 32]);
        assert_eq!(read(), Some(ByteRate::new(8192.0)));
        fs::remove_file(&path).unwrap();
        assert_eq!(read(), None);
        under(machine.folder.path());
        assert_eq!(read(), None);
        did([2008, 32]);
        assert_eq!(read(), Some(ByteRate::new(4096.0)));
        assert_eq!(reader.measures(), Some(MeasuredStorage::Device(machine.number)));
    }

    #[test]
    fn a_mount_of_nfs_is_measured_by_what_goes_through_it() {
        let machine = Machine::new();
        let at = |path: &str| machine.folder.path().join(path);
        fs::write(at("proc/diskstats"), "").unwrap();
        fs::create_dir(at("proc/self")).unwrap();
        // The test's folder lies on the file system of this number.
        let line = format!("30 20 {} / /mnt/store rw - nfs4 10.0.0.1:/ rw\n", machine.number);
        fs::write(at("proc/self/mountinfo"), line).unwrap();
        let did = |read: u64, written: u64, writes: u64, millis: u64| {
            let text = format!(
                "device 10.0.0.1:/ mounted on /mnt/store with fstype nfs4 statvers=1.1\n\
                 \tbytes:\t0 0 0 0 {read} {written} 0 0\n\tper-op statistics\n\
                 \t READ: 0 0 0 0 0 0 0 0 0\n\t WRITE: {writes} {writes} 0 0 0 0 {millis} {millis} 0\n"
            );
            fs::write(at("proc/self/mountstats"), text).unwrap();
        };
        did(5_000, 70_000, 7, 100);
        let mut reader = machine.reader();
        assert_eq!(reader.measures().unwrap().to_string(), "the NFS mount /mnt/store");
        did(5_000, 90_000, 9, 116);
        let sample = reader.sample(Duration::from_secs(2));
        let written =
            StorageLane { rate: Some(ByteRate::new(10_000.0)), latency: Some(Latency::from_millis(8)) };
        assert_eq!(sample.write, written);
        assert_eq!(sample.read, StorageLane { rate: Some(ByteRate::ZERO), latency: None });
        // Mounted anew: what was counted before is none of this interval.
        did(0, 10_000, 1, 9);
        assert_eq!(reader.sample(Duration::from_secs(1)).write, StorageLane::default());
        did(0, 20_000, 2, 18);
        assert_eq!(reader.sample(Duration::from_secs(1)).write.rate, Some(ByteRate::new(10_000.0)));
    }

    #[test]
    fn of_a_cgroup_what_it_did_to_the_device_counts_or_to_all_where_there_is_none() {
        let counters = |read, written| IoCounters {
            reads: 1,
            writes: 1,
            read: Bytes::new(read),
            written: Bytes::new(written),
        };
        let [one, other] = [DeviceNumber::new(8, 0), DeviceNumber::new(8, 16)];
        let found = BTreeMap::from([(one, counters(10, 20)), (other, counters(100, 200))]);
        assert_eq!(together(&found, Some(one)), counters(10, 20));
        assert_eq!(together(&found, Some(DeviceNumber::new(9, 0))), IoCounters::default());
        assert_eq!(together(&found, None).written, Bytes::new(220));
        let lanes = of_cgroup(counters(10, 20), Duration::from_secs(2));
        assert_eq!(lanes.write, StorageLane { rate: Some(ByteRate::new(10.0)), latency: None });
    }

    #[test]
    fn a_cgroup_is_read_where_the_kernel_counts() {
        let machine = Machine::new();
        machine.did([0; 6]);
        let at = |path: &str| machine.folder.path().join(path);
        fs::create_dir_all(at("cg/system.slice/store.service")).unwrap();
        fs::create_dir_all(at("proc/self")).unwrap();
        fs::write(at("proc/self/mountinfo"), "30 20 0:26 / /cg rw - cgroup2 cgroup2 rw\n").unwrap();
        fs::write(at("cg/cgroup.controllers"), "cpu io memory\n").unwrap();
        let did = |read: u64| {
            let text = format!("{} rbytes={read} wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n", machine.number);
            fs::write(at("cg/system.slice/store.service/io.stat"), text).unwrap();
        };
        did(1000);
        let root = SystemRoot::at(machine.folder.path());
        let mut reader =
            StorageReader::under(&root, machine.folder.path(), Some("/system.slice/store.service")).unwrap();
        did(5000);
        assert_eq!(reader.sample(Duration::from_secs(2)).read.rate, Some(ByteRate::new(2000.0)));
        fs::remove_dir_all(at("cg/system.slice")).unwrap();
        assert_eq!(
            reader.sample(Duration::from_secs(2)).read,
            StorageLane::default(),
            "gone is unknown, and not idle"
        );
        fs::write(at("proc/self/mountinfo"), "").unwrap();
        assert!(StorageReader::under(&root, machine.folder.path(), Some("x")).is_err());
    }
}
