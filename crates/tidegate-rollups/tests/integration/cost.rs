//! The size of a month of rollups on disk, measured: the figures of `docs/reference/rollups.md`.

use std::fs;
use std::time::Duration;

use rand::SeedableRng;
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;
use tidegate_control::WaitReason;
use tidegate_rollups::{
    JudgedBy, MinuteBatch, MinuteCounts, Month, PromiseTerms, RollupKey, RollupReader, RollupWriter,
};
use tidegate_units::{Bytes, ConsumerName, Latency, ResourceName};

const PATIENCE: Duration = Duration::from_secs(60);

fn key(consumer: usize) -> RollupKey {
    RollupKey {
        resource: ResourceName::new("disk").unwrap(),
        consumer: ConsumerName::new(&format!("tenant-{consumer:04}")).unwrap(),
        promise: Some(PromiseTerms { response_time: Latency::from_millis(20), judged_by: JudgedBy::Seconds }),
    }
}

/// A minute at 200 requests per second of 4 KiB to 64 KiB and 4 ms, at times throttled.
fn busy(random: &mut Pcg64, minute: u32) -> MinuteCounts {
    let draw = |random: &mut Pcg64, mean: f64| Normal::new(mean, mean / 20.0).unwrap().sample(random) as u64;
    let requests = draw(random, 12_000.0);
    let mut counts = MinuteCounts {
        watched: Duration::from_secs(60),
        judged: 48 + draw(random, 6.0),
        kept: 48,
        requests,
        client_time: Latency::from_micros(draw(random, 5_000.0) * requests + draw(random, 5_000.0)),
        storage_requests: requests,
        storage_time: Latency::from_micros(draw(random, 4_000.0) * requests + draw(random, 4_000.0)),
        read: Bytes::new(draw(random, 40.0) * 512 * requests),
        written: Bytes::new(draw(random, 20.0) * 512 * requests),
        ..MinuteCounts::default()
    };
    if minute.is_multiple_of(3) {
        counts.add_wait(WaitReason::Law, Duration::from_millis(250 * (1 + draw(random, 60.0))));
    }
    counts
}

/// Returns the bytes on disk of a day of so many consumers, the first of them busy, times the days of the
/// month.
fn bytes_per_month(consumers: usize, active: usize) -> u64 {
    let month: Month = "2026-11".parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut writer = RollupWriter::start(folder.path()).unwrap();
    let mut random = Pcg64::seed_from_u64(7);
    for minute in 0..1_440 {
        let counts = |consumer: usize, random: &mut Pcg64| match consumer < active {
            true => busy(random, minute),
            false => MinuteCounts { watched: Duration::from_secs(60), ..MinuteCounts::default() },
        };
        let rollups = (0..consumers).map(|consumer| (key(consumer), counts(consumer, &mut random)));
        writer.write(MinuteBatch { minute: month.day(9).later(minute), rollups: rollups.collect() });
        if minute.is_multiple_of(30) {
            assert!(writer.flush(PATIENCE));
        }
    }
    assert!(writer.flush(PATIENCE));
    let mut rollups = 0;
    let reader = RollupReader::open(folder.path()).unwrap();
    assert!(reader.read(month, |_, _, _| rollups += 1).unwrap().is_empty());
    assert_eq!(rollups, 1_440 * consumers, "no minute was dropped");
    let file = folder.path().join("rollups/2026-11.1.tdgr");
    fs::metadata(file).unwrap().len() * u64::from(month.days())
}

#[test]
fn a_month_of_a_busy_consumer_takes_about_a_megabyte_and_of_an_idle_one_some_kilobytes() {
    let service = bytes_per_month(1, 0);
    let busy = (bytes_per_month(50, 50) - service) / 50;
    let idle = (bytes_per_month(100, 0) - service) / 99;
    println!("a month: a service {service}, a busy consumer {busy}, an idle consumer {idle} bytes");
    assert!(service < 720_000, "{service}");
    assert!(busy < 1_000_000, "{busy}");
    assert!(idle < 2_000, "{idle}");
}
