//! What a client of an array with a write-back cache sees.

use crate::common::{array, cache, raid_5};
use tidegate_device::{CacheConfig, Device, DeviceCompletion, DeviceConfig, DeviceIo, IoKind};
use tidegate_units::{Bytes, Instant, Latency};

const KIB: u64 = 1024;

fn device(size: Bytes) -> Device {
    Device::new(&DeviceConfig::Array(array(Some(cache(size)))), 1).unwrap()
}

/// Submits at once and answers when it is done.
fn wait_for(device: &mut Device, now: Instant, io: DeviceIo) -> Instant {
    const ID: u64 = 1 << 60;
    device.submit(now, ID, io).unwrap();
    let mut done: Vec<DeviceCompletion> = Vec::new();
    loop {
        device.advance(device.next_event().unwrap(), &mut done);
        if let Some(completion) = done.iter().find(|completion| completion.id == ID) {
            return completion.at;
        }
    }
}

#[test]
fn while_there_is_room_a_write_takes_as_long_as_the_cache() {
    let mut device = device(Bytes::from_mib(1));
    let done = wait_for(&mut device, Instant::ZERO, DeviceIo::write(0, 64 << 10));
    assert_eq!(done.latency_since(Instant::ZERO), Latency::from_micros(50));
    assert_eq!(device.dirty(), Bytes::from_kib(64));
    assert_eq!(device.next_event(), None, "below the low mark nothing moves");
}

#[test]
fn what_is_dirty_is_read_from_the_cache_and_the_rest_from_disk() {
    let mut device = device(Bytes::from_mib(1));
    let now = wait_for(&mut device, Instant::ZERO, DeviceIo::write(32 * KIB, 32 << 10));
    let hit = wait_for(&mut device, now, DeviceIo::read(40 * KIB, 16 << 10));
    assert_eq!(hit.latency_since(now), Latency::from_micros(50));
    let half = wait_for(&mut device, hit, DeviceIo::read(16 * KIB, 32 << 10));
    assert!(half.latency_since(hit) > Latency::from_micros(250), "a part of it is on disk only");
}

#[test]
fn when_it_is_full_writes_go_at_the_speed_of_the_disks() {
    let mut device = device(Bytes::from_kib(512));
    let mut now = Instant::ZERO;
    let mut slow = 0;
    for n in 0..256 {
        // Scattered, so that every destage costs a seek.
        let offset = n * 7_919 * 4 * KIB % (1 << 29);
        let done = wait_for(&mut device, now, DeviceIo::write(offset, 4096));
        slow += u32::from(done.latency_since(now) > Latency::from_micros(50));
        assert!(device.dirty() <= Bytes::from_kib(512));
        now = done;
    }
    assert!((64..256).contains(&slow), "{slow} of 256 writes waited for room of 128 blocks");
}

#[test]
fn a_write_larger_than_the_cache_passes_through_it() {
    let mut device = device(Bytes::from_kib(64));
    let done = wait_for(&mut device, Instant::ZERO, DeviceIo::write(0, 4 << 20));
    assert!(done.latency_since(Instant::ZERO) > Latency::from_millis(20));
    assert!(device.dirty() <= Bytes::from_kib(64));
}

#[test]
fn a_flush_ends_when_what_was_dirty_is_on_disk() {
    let mut device = device(Bytes::from_mib(1));
    let mut now = Instant::ZERO;
    for n in 0..20 {
        now = wait_for(&mut device, now, DeviceIo::write(n * 1_000 * 4 * KIB, 4096));
    }
    assert_eq!(device.dirty(), Bytes::from_kib(80));
    let flushed = wait_for(&mut device, now, DeviceIo::flush());
    assert_eq!(device.dirty(), Bytes::ZERO);
    assert!(flushed.latency_since(now) > Latency::from_millis(10), "seven scattered writes at each disk");
    let again = wait_for(&mut device, flushed, DeviceIo::flush());
    assert_eq!(again, flushed, "nothing is dirty, so there is nothing to wait for");
}

#[test]
fn a_flush_ends_though_others_keep_writing() {
    let mut device = device(Bytes::from_mib(1));
    let mut now = wait_for(&mut device, Instant::ZERO, DeviceIo::write(0, 4096));
    device.submit(now, 0, DeviceIo::flush()).unwrap();
    let mut done = Vec::new();
    let mut id = 0;
    while !done.iter().any(|completion: &DeviceCompletion| completion.id == 0) {
        id += 1;
        device.submit(now, id, DeviceIo::write(id * 1_000 * 4 * KIB, 4096)).unwrap();
        now = now + Latency::from_micros(100);
        device.advance(now, &mut done);
        assert!(id < 1_000, "the flush is still waiting after {now:?}");
    }
    assert!(device.dirty() > Bytes::ZERO, "it did not wait for what came after it");
}

#[test]
fn a_write_with_fua_is_on_disk_when_it_ends() {
    let mut device = device(Bytes::from_mib(1));
    let fua = DeviceIo { kind: IoKind::Write { fua: true }, ..DeviceIo::write(0, 4096) };
    let done = wait_for(&mut device, Instant::ZERO, fua);
    assert!(done.latency_since(Instant::ZERO) > Latency::from_micros(200));
    assert_eq!(device.dirty(), Bytes::ZERO);
}

#[test]
fn contiguous_small_writes_reach_the_disks_as_large_ones() {
    let time_to_flush = |place: &dyn Fn(u64) -> u64| {
        let mut device = device(Bytes::from_mib(8));
        let mut now = Instant::ZERO;
        for n in 0..384 {
            now = wait_for(&mut device, now, DeviceIo::write(place(n) * 4 * KIB, 4096));
        }
        wait_for(&mut device, now, DeviceIo::flush()).latency_since(now)
    };
    let together = time_to_flush(&|n| n);
    let scattered = time_to_flush(&|n| n * 97);
    assert!(together.scale(5.0) < scattered, "{together} against {scattered}");
}

#[test]
fn without_a_cache_a_flush_has_nothing_to_do_and_a_write_is_durable() {
    let mut device = Device::new(&DeviceConfig::Array(array(None)), 1).unwrap();
    let written = wait_for(&mut device, Instant::ZERO, DeviceIo::write(0, 4096));
    assert!(written.latency_since(Instant::ZERO) > Latency::from_micros(200));
    assert_eq!(wait_for(&mut device, written, DeviceIo::flush()), written);
}

#[test]
fn a_nonvolatile_cache_is_as_good_as_disk() {
    let cache = CacheConfig { nonvolatile: true, ..cache(Bytes::from_mib(1)) };
    let mut device = Device::new(&DeviceConfig::Array(array(Some(cache))), 1).unwrap();
    let fua = DeviceIo { kind: IoKind::Write { fua: true }, ..DeviceIo::write(0, 4096) };
    let written = wait_for(&mut device, Instant::ZERO, fua);
    assert_eq!(written.latency_since(Instant::ZERO), Latency::from_micros(50));
    assert_eq!(device.dirty(), Bytes::from_kib(4));
    assert_eq!(wait_for(&mut device, written, DeviceIo::flush()), written);
    assert_eq!(device.dirty(), Bytes::from_kib(4), "a flush moves nothing");
}

#[test]
fn raid_5_writes_a_row_at_once_and_a_part_of_it_in_two_steps() {
    let time = |bytes: u32| {
        let mut device = Device::new(&DeviceConfig::Array(raid_5(None)), 1).unwrap();
        wait_for(&mut device, Instant::ZERO, DeviceIo::write(0, bytes)).latency_since(Instant::ZERO)
    };
    // Each disk writes a unit of 16 KiB, at the latest after a revolution of 8.3 ms; or it reads, and comes
    // round again.
    let row = time(48 << 10);
    let small = time(4 << 10);
    assert!(row < Latency::from_micros(10_500), "{row}");
    assert!(small > Latency::from_micros(8_333), "{small}");
}

#[test]
fn raid_5_gathers_a_row_in_the_cache() {
    let time_to_flush = |order: &dyn Fn(u64) -> u64| {
        let mut device =
            Device::new(&DeviceConfig::Array(raid_5(Some(cache(Bytes::from_mib(8))))), 1).unwrap();
        let mut now = Instant::ZERO;
        for n in 0..384 {
            now = wait_for(&mut device, now, DeviceIo::write(order(n) * 4 * KIB, 4096));
        }
        wait_for(&mut device, now, DeviceIo::flush()).latency_since(now)
    };
    // 384 blocks are 32 rows, in whatever order they came; and as many blocks one to a row cost four I/Os
    // each.
    let rows = time_to_flush(&|n| n * 5 % 384);
    let scattered = time_to_flush(&|n| n * 12);
    assert!(rows.scale(5.0) < scattered, "{rows} against {scattered}");
}
