//! The presets against what the papers publish without regulation. No control law has any part in this.
//! `cargo test -p tidegate-device --test integration presets -- --nocapture` prints the figures.

use std::time::Duration;

use crate::common::{Arrivals, Client, Measured, Pattern, run};
use tidegate_device::{Device, Preset};

const SEEDS: std::ops::Range<u64> = 0..10;
const GIB: u64 = 1 << 30;
const WARM_UP: Duration = Duration::from_secs(2);
const LENGTH: Duration = Duration::from_secs(60);

/// Bjørgeengen's reader: 256 kB/s of random 4 KiB, in the first volume of 4 GiB.
fn reader() -> Client {
    Client {
        write: false,
        bytes: 4096,
        pattern: Pattern::Random,
        arrivals: Arrivals::Every(Duration::from_nanos(15_625_000)),
        start: 0,
        size: 4 * GIB,
    }
}

/// One of his sequential writers, in a volume of its own. A command carries what iSCSI sends in one burst,
/// and the next comes when the answer is back.
fn writer(volume: u64, start: u64) -> Client {
    Client {
        write: true,
        bytes: 256 * 1024,
        pattern: Pattern::Sequential,
        arrivals: Arrivals::Closed(Duration::from_micros(300)),
        start: volume * 4 * GIB + start,
        size: 3 * GIB,
    }
}

fn sata_stripe(clients: &[Client], seed: u64) -> Vec<Measured> {
    let mut device = Device::new(&Preset::SataStripe.config(), seed).unwrap();
    run(&mut device, clients, WARM_UP, LENGTH, seed)
}

fn show(what: &str, reads: &Measured) {
    println!(
        "  {what}: mean {:.1} ms, p50 {:.1}, p95 {:.1}, p99 {:.1}",
        reads.mean(),
        reads.percentile(50),
        reads.percentile(95),
        reads.percentile(99)
    );
}

/// The reader's mean wait in milliseconds, and the writers' MB/s.
fn interference(start_of: impl Fn(u64) -> u64, seed: u64) -> (f64, f64) {
    let writers = (1..=12).map(|volume| writer(volume, start_of(volume)));
    let clients: Vec<_> = std::iter::once(reader()).chain(writers).collect();
    let measured = sata_stripe(&clients, seed);
    let written: u64 = measured[1..].iter().map(|writer| writer.bytes).sum();
    let rate = written as f64 / 1e6 / LENGTH.as_secs_f64();
    show("beside twelve writers", &measured[0]);
    println!("  the writers together: {rate:.1} MB/s");
    (measured[0].mean(), rate)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn assert_within(value: f64, tolerance: f64, published: f64, what: &str) {
    let error = value / published - 1.0;
    assert!(
        error.abs() <= tolerance,
        "{what}: {value:.1} against {published}, off by {:.0} %",
        error * 100.0
    );
}

#[test]
fn sata_stripe_meets_the_papers_unregulated_figures() {
    let (mut waits, mut rates) = (Vec::new(), Vec::new());
    for seed in SEEDS {
        println!("seed {seed}");
        let alone = &sata_stripe(&[reader()], seed)[0];
        show("reader alone", alone);
        assert!(alone.mean() < 8.0, "a reader alone waits for nobody: {:.1} ms", alone.mean());
        let (wait, rate) = interference(|_| 0, seed);
        assert_within(wait, 0.15, 45.0, "the reader's wait");
        assert_within(rate, 0.10, 39.0, "the writers' rate");
        waits.push(wait);
        rates.push(rate);
    }
    println!("mean of the seeds: {:.1} ms, {:.1} MB/s", mean(&waits), mean(&rates));
    assert_within(mean(&waits), 0.08, 45.0, "the reader's mean wait over the seeds");
    assert_within(mean(&rates), 0.06, 39.0, "the writers' mean rate over the seeds");
}

/// Writers that began at different times are at different places of their volumes.
#[test]
fn sata_stripe_does_not_hang_on_the_writers_going_abreast() {
    let results: Vec<_> =
        SEEDS.map(|seed| interference(|volume| (volume * 7_919 % 3_001) << 18, seed)).collect();
    let (waits, rates): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    println!("mean of the seeds: {:.1} ms, {:.1} MB/s", mean(&waits), mean(&rates));
    assert_within(mean(&waits), 0.15, 45.0, "the reader's mean wait over the seeds");
    assert_within(mean(&rates), 0.10, 39.0, "the writers' mean rate over the seeds");
}

fn dnes(arrivals: Arrivals, clients: usize, seed: u64) -> (f64, Vec<Measured>) {
    let mut device = Device::new(&Preset::Dnes309170w.config(), seed).unwrap();
    let size = device.capacity().get();
    let client = Client { write: false, bytes: 4096, pattern: Pattern::Random, arrivals, start: 0, size };
    let measured = run(&mut device, &vec![client; clients], WARM_UP, LENGTH * 10, seed);
    let reads: usize = measured.iter().map(|client| client.latencies.len()).sum();
    (reads as f64 / (LENGTH * 10).as_secs_f64(), measured)
}

/// Lee §4.2: stable up to 75 IO/s, which he takes for three quarters of the disk's maximum.
#[test]
fn dnes_309170w_sustains_what_lee_found() {
    for seed in SEEDS {
        let (most, _) = dnes(Arrivals::Closed(Duration::ZERO), 2, seed);
        let (_, open) = dnes(Arrivals::Poisson(Duration::from_secs(1) / 60), 1, seed);
        println!("seed {seed}: at most {most:.1} IO/s");
        show("60 IO/s, Poisson", &open[0]);
        assert!((75.0..=100.0).contains(&most), "{most:.1} IO/s");
        assert!((20.0..31.4).contains(&open[0].mean()), "{:.1} ms", open[0].mean());
    }
}
