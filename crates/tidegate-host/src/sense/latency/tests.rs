//! The programs themselves, on the kernel that runs here, at devices that are made for it. It takes root.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;
use tidegate_testing::{Lack, LoopDevice, lacks};
use tidegate_units::Latency;

use super::*;
use crate::SystemRoot;
use crate::sense::DiskStats;
use crate::sense::diskstats::{CompletedRequests, DiskDelta};

const BLOCK: usize = 4_096;
const SIZE: u64 = 16 << 20;
const READS: u64 = 3_000;
const WRITES: u64 = 2_000;
const ROOM: u32 = 40;

/// Loads the programs. Says that the test is skipped, and returns `None`, without the right to do so.
fn loaded() -> Option<BlockLatency> {
    match BlockLatency::new(ROOM) {
        Ok(sensor) => Some(sensor),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => lacks(Lack::Bpf, error),
        Err(error) => panic!("{error}"),
    }
}

/// A device without another user.
struct Device {
    path: PathBuf,
    /// Parts that go with the device.
    _parts: Box<dyn Any>,
}

struct Zram {
    number: String,
}

impl Zram {
    const CONTROL: &str = "/sys/class/zram-control";
}

impl Drop for Zram {
    fn drop(&mut self) {
        fs::write(format!("/sys/block/zram{}/reset", self.number), "1").unwrap();
        fs::write(format!("{}/hot_remove", Self::CONTROL), &self.number).unwrap();
    }
}

impl Device {
    /// With a request queue: a file in memory.
    fn looped() -> Option<Self> {
        let memory = PathBuf::from("/dev/shm");
        let directory = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let backing = NamedTempFile::new_in(directory).unwrap();
        backing.as_file().write_all_at(&vec![1; SIZE as usize], 0).unwrap();
        let device = LoopDevice::over(backing.path())?;
        Some(Self { path: device.path().to_owned(), _parts: Box::new((device, backing)) })
    }

    /// Without one: compressed memory.
    fn zram() -> Option<Self> {
        let number = match fs::read_to_string(format!("{}/hot_add", Zram::CONTROL)) {
            Ok(number) => number.trim_end().to_owned(),
            Err(error) => return lacks(Lack::Kernel("zram"), error),
        };
        let path = PathBuf::from(format!("/dev/zram{number}"));
        let sized = fs::write(format!("/sys/block/zram{number}/disksize"), SIZE.to_string());
        let device = Self { path, _parts: Box::new(Zram { number }) };
        if let Err(error) = sized {
            return lacks(Lack::Kernel("zram"), format_args!("perhaps without a compressor: {error}"));
        }
        // Through the page cache: this memory is not aligned as a device may want it.
        let whole = OpenOptions::new().write(true).open(&device.path).unwrap();
        whole.write_all_at(&vec![1; SIZE as usize], 0).unwrap();
        whole.sync_all().unwrap();
        Some(device)
    }

    /// Past the page cache: each read and write of the file is one of the device's.
    fn open(&self) -> File {
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        OpenOptions::new().read(true).write(true).custom_flags(direct).open(&self.path).unwrap()
    }

    fn number(&self) -> DeviceNumber {
        let name = self.path.file_name().unwrap().to_str().unwrap();
        fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap().trim_end().parse().unwrap()
    }

    fn read_and_write(&self, reads: u64, writes: u64) {
        let file = self.open();
        let mut memory = vec![2; 2 * BLOCK];
        let aligned = memory.as_ptr().align_offset(BLOCK);
        let block = &mut memory[aligned..aligned + BLOCK];
        // From anywhere: neighbours would be merged.
        let place = |number: u64| number * 7_919 % (SIZE / BLOCK as u64) * BLOCK as u64;
        (0..reads).for_each(|number| file.read_exact_at(block, place(number)).unwrap());
        (0..writes).for_each(|number| file.write_all_at(block, place(number)).unwrap());
    }

    /// Returns the change of `/proc/diskstats` over the device's work, once the file shows that the work is
    /// done.
    fn counters_over(&self, reads: u64, writes: u64, work: impl FnOnce()) -> DiskDelta {
        let before = DiskStats::read(&SystemRoot::default()).unwrap();
        work();
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let after = DiskStats::read(&SystemRoot::default()).unwrap();
            let delta = after.change(&before, self.number()).unwrap().delta().unwrap();
            // The kernel answers first and counts then.
            if (delta.reads.ios, delta.writes.ios) == (reads, writes) || Instant::now() > deadline {
                return delta;
            }
        }
    }
}

/// Returns true if the buckets can be of requests that took so long together: each has the width and the
/// place that is stated.
fn is_consistent(latencies: &LatencyBuckets) -> bool {
    let (mut least, mut most, mut below, mut bound_before) = (0, 0, 0, 0);
    for (bound, within) in latencies.cumulative() {
        let count = within - below;
        if count > 0 {
            least += count * bound_before;
            most += count * bound.as_nanos();
        }
        (below, bound_before) = (within, bound.as_nanos());
    }
    (least..=most).contains(&latencies.sum().as_nanos())
}

/// The kernel's sum is of whole milliseconds, and ends a little later, after who waits was woken.
const OF_REQUESTS_MS: f64 = 2.0;

/// Limit of the difference for bios. For a bio the kernel counts the ticks of its clock meanwhile, up to
/// 10 ms each. Many short bios get none at all, or several, by chance.
const OF_BIOS_MS: f64 = 50.0;

/// Requests that may end while the program runs for another one on the same processor, as is documented.
const MOST_MISSED: u64 = 3;

fn agree(latencies: &LatencyBuckets, kernels: &CompletedRequests, within_ms: f64) {
    let missed = kernels.ios.checked_sub(latencies.count());
    assert!(missed.is_some_and(|missed| missed <= MOST_MISSED), "{} of {}", latencies.count(), kernels.ios);
    assert!(is_consistent(latencies), "{latencies:?}");
    let [ours, kernels] = [latencies.sum(), kernels.response_time].map(Latency::as_millis_f64);
    assert!(
        ours < kernels + within_ms && ours > 0.5 * kernels - within_ms,
        "{ours} ms, by the kernel's counters {kernels} ms"
    );
    let median = latencies.quantile(0.5).unwrap();
    assert!(median <= latencies.quantile(0.99).unwrap());
}

fn counts_what_the_kernel_counts(device: &Device, within_ms: f64) {
    let Some(mut sensor) = loaded() else { return };
    let number = device.number();
    sensor.watch(&[number].into()).unwrap();
    let counters = device.counters_over(READS, WRITES, || device.read_and_write(READS, WRITES));
    let first = sensor.read(number).unwrap().unwrap();
    agree(&first.reads, &counters.reads, within_ms);
    agree(&first.writes, &counters.writes, within_ms);
    // And of an interval.
    device.read_and_write(10, 0);
    let then = sensor.read(number).unwrap().unwrap().since(&first);
    assert_eq!((then.reads.count(), then.writes.count()), (10, 0));
    assert!(is_consistent(&then.reads), "{then:?}");
}

#[test]
fn requests_are_counted_as_the_kernel_counts_them() {
    if let Some(device) = Device::looped() {
        counts_what_the_kernel_counts(&device, OF_REQUESTS_MS);
    }
}

#[test]
fn bios_of_a_device_without_requests_are_counted_as_the_kernel_counts_them() {
    if let Some(device) = Device::zram() {
        counts_what_the_kernel_counts(&device, OF_BIOS_MS);
    }
}

#[test]
fn only_what_is_watched_is_counted_and_from_the_beginning() {
    let (Some(watched), Some(other)) = (Device::looped(), Device::looped()) else { return };
    let Some(mut sensor) = loaded() else { return };
    watched.read_and_write(5, 0);
    sensor.watch(&[watched.number()].into()).unwrap();
    watched.read_and_write(7, 3);
    other.read_and_write(7, 3);
    let counted = |sensor: &BlockLatency, device: &Device| {
        let read = sensor.read(device.number()).unwrap();
        read.map(|read| (read.reads.count(), read.writes.count()))
    };
    assert_eq!((counted(&sensor, &watched), counted(&sensor, &other)), (Some((7, 3)), None));
    // Another one beside it changes nothing; without it, it is forgotten.
    sensor.watch(&[watched.number(), other.number()].into()).unwrap();
    assert_eq!((counted(&sensor, &watched), counted(&sensor, &other)), (Some((7, 3)), Some((0, 0))));
    sensor.watch(&[other.number()].into()).unwrap();
    sensor.watch(&[watched.number()].into()).unwrap();
    assert_eq!((counted(&sensor, &watched), counted(&sensor, &other)), (Some((0, 0)), None));
}

#[test]
fn without_a_device_nothing_is_attached() {
    let Some(mut sensor) = loaded() else { return };
    assert!(sensor.attached.is_empty());
    sensor.watch(&[DeviceNumber::new(8, 0)].into()).unwrap();
    assert_eq!(sensor.attached.len(), PROGRAMS.len());
    sensor.watch(&BTreeSet::new()).unwrap();
    assert!(sensor.attached.is_empty());
    probe().unwrap();
}

#[test]
fn who_finds_no_room_is_named_and_the_others_are_watched() {
    let Some(mut sensor) = loaded() else { return };
    let first = |count| (0..count).map(|minor| DeviceNumber::new(4_000, minor)).collect();
    let too_many: BTreeSet<_> = first(ROOM + 2);
    for _ in 0..2 {
        let error = sensor.watch(&too_many).unwrap_err().to_string();
        assert_eq!(
            error,
            "the response times of 4000:40 and 1 other devices are not counted: there is room for 40 devices"
        );
    }
    assert!(sensor.read(DeviceNumber::new(4_000, 39)).unwrap().is_some());
    assert!(sensor.read(DeviceNumber::new(4_000, 40)).unwrap().is_none());
    sensor.watch(&first(ROOM)).unwrap();
}
