//! The flash presets against what their makers and testers publish. No control law has any part in this.
//! `cargo test -p tidegate-device --test integration flash -- --nocapture` prints the figures.

use crate::common::hosts::{Host, Seen, run};
use tidegate_device::{Device, DeviceIo, Preset};
use tidegate_units::Instant;

const KIB: u32 = 1024;

/// Runs one host. `mix` has the parts of its requests that read and that go to a place at random.
fn measure(preset: Preset, outstanding: usize, bytes: u32, (reads, random): (f64, f64)) -> Seen {
    let mut device = Device::new(&preset.config(), 1).unwrap();
    let host = Host { outstanding, bytes, reads, random, start: 0, size: device.capacity().get() };
    // The steady state: random writes have used up the erased reserve.
    let warm_up = if reads < 1.0 && random > 0.0 { 12.0 } else { 0.5 };
    run(&mut device, &[host], warm_up, 2.0, 1)[0]
}

const READ: (f64, f64) = (1.0, 1.0);
const WRITE: (f64, f64) = (0.0, 1.0);
const READ_ON: (f64, f64) = (1.0, 0.0);
const WRITE_ON: (f64, f64) = (0.0, 0.0);

#[track_caller]
fn assert_within(what: &str, model: f64, published: f64, tolerance: f64) {
    let error = model / published - 1.0;
    println!("  {what}: {model:.1}, published {published}: {:+.1} %", error * 100.0);
    assert!(
        error.abs() <= tolerance,
        "{what}: {model:.1} against {published}, off by {:.1} %",
        error * 100.0
    );
}

/// 4 KiB and 8 KiB at random at a queue depth of 32, 128 KiB in sequence, 4 KiB at depth 1.
fn sata(preset: Preset, writes_4k: f64, writes_8k: f64) {
    println!("{preset}");
    assert_within("4 KiB reads per second", measure(preset, 32, 4 * KIB, READ).iops, 72_000.0, 0.05);
    assert_within("8 KiB reads per second", measure(preset, 32, 8 * KIB, READ).iops, 48_000.0, 0.05);
    assert_within("4 KiB writes per second", measure(preset, 32, 4 * KIB, WRITE).iops, writes_4k, 0.05);
    assert_within("8 KiB writes per second", measure(preset, 32, 8 * KIB, WRITE).iops, writes_8k, 0.05);
    let megabytes = |mix| measure(preset, 32, 128 * KIB, mix).iops * f64::from(128 * KIB) / 1e6;
    assert_within("MB/s read in sequence", megabytes(READ_ON), 500.0, 0.05);
    assert_within("MB/s written in sequence", megabytes(WRITE_ON), 490.0, 0.05);
    let micros = |mix| measure(preset, 1, 4 * KIB, mix).latency * 1e3;
    assert_within("µs for a read at depth 1", micros(READ), 110.0, 0.05);
    assert_within("µs for a write at depth 1", micros(WRITE), 52.0, 0.05);
    assert_within("µs for 99.9 % of reads at depth 1", read_percentile(preset, 0.999), 300.0, 0.1);
    let mixed = measure(preset, 32, 4 * KIB, (0.7, 1.0));
    println!("  4 KiB, 70 % reads: {:.0} per second (not published); {mixed:?}", mixed.iops);
}

#[test]
fn dc_s4600() {
    sata(Preset::DcS4600, 65_000.0, 40_000.0);
}

#[test]
fn dc_s4500() {
    sata(Preset::DcS4500, 33_000.0, 21_000.0);
}

#[test]
fn dc_p3700() {
    let preset = Preset::DcP3700;
    println!("{preset}");
    // Four workers with a queue depth of 32 each.
    assert_within("4 KiB reads per second", measure(preset, 128, 4 * KIB, READ).iops, 460_000.0, 0.05);
    assert_within("4 KiB writes per second", measure(preset, 128, 4 * KIB, WRITE).iops, 175_000.0, 0.05);
    let mixed = measure(preset, 128, 4 * KIB, (0.7, 1.0));
    assert_within("4 KiB per second, 70 % reads", mixed.iops, 265_000.0, 0.05);
    let megabytes = |mix| measure(preset, 128, 128 * KIB, mix).iops * f64::from(128 * KIB) / 1e6;
    assert_within("MB/s read in sequence", megabytes(READ_ON), 2_800.0, 0.05);
    assert_within("MB/s written in sequence", megabytes(WRITE_ON), 2_000.0, 0.05);
    assert_within("reads per second at depth 1", measure(preset, 1, 4 * KIB, READ).iops, 8_900.0, 0.05);
    assert_within("reads per second at depth 8", measure(preset, 8, 4 * KIB, READ).iops, 77_000.0, 0.1);
    assert_within("reads per second at depth 32", measure(preset, 32, 4 * KIB, READ).iops, 270_000.0, 0.1);
    assert_within(
        "µs for a write at depth 1",
        measure(preset, 1, 4 * KIB, WRITE_ON).latency * 1e3,
        20.0,
        0.05,
    );
}

/// The percentile in microseconds of 4 KiB reads, one after the other.
fn read_percentile(preset: Preset, part: f64) -> f64 {
    let mut device = Device::new(&preset.config(), 1).unwrap();
    let (mut now, mut done) = (Instant::ZERO, Vec::new());
    let mut latencies: Vec<f64> = (0..50_000)
        .map(|number| {
            device
                .submit(now, number, DeviceIo::read(number * 1_000 * 4096 % 900_000_000_000, 4096))
                .unwrap();
            let begun = now;
            while done.is_empty() {
                now = device.next_event().unwrap();
                device.advance(now, &mut done);
            }
            done.clear();
            now.latency_since(begun).as_secs_f64() * 1e6
        })
        .collect();
    latencies.sort_by(f64::total_cmp);
    latencies[(latencies.len() as f64 * part) as usize]
}
