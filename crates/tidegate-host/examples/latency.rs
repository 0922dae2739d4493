//! Watches block devices, and says every second how long their reads and writes took: `latency vda dm-0`. As
//! root.

#![allow(clippy::print_stdout, reason = "an example says what it saw")]

use std::collections::BTreeMap;
use std::error::Error;
use std::thread;
use std::time::Duration;

use tidegate_host::SystemRoot;
use tidegate_host::sense::VolumeTree;
use tidegate_host::sense::latency::{BlockLatency, LatencyBuckets, ReadsAndWrites};

fn main() -> Result<(), Box<dyn Error>> {
    let volumes = VolumeTree::read(&SystemRoot::default())?;
    let mut devices = BTreeMap::new();
    for name in std::env::args().skip(1) {
        let device = volumes.find(&name).ok_or_else(|| format!("{name}: there is no such device"))?;
        devices.insert(device.number, name);
    }
    let mut sensor = BlockLatency::new(u32::try_from(devices.len())?)?;
    sensor.watch(&devices.keys().copied().collect())?;
    let mut before: BTreeMap<_, ReadsAndWrites> = BTreeMap::new();
    loop {
        thread::sleep(Duration::from_secs(1));
        for (number, name) in &devices {
            let now = sensor.read(*number)?.unwrap_or_default();
            let second = now.since(before.get(number).unwrap_or(&ReadsAndWrites::default()));
            print(name, "reads", &second.reads);
            print(name, "writes", &second.writes);
            before.insert(*number, now);
        }
    }
}

fn print(device: &str, kind: &str, latencies: &LatencyBuckets) {
    if let Some(mean) = latencies.mean() {
        let [half, most, nearly_all] =
            [0.5, 0.95, 0.99].map(|quantile| latencies.quantile(quantile).unwrap_or(mean));
        let count = latencies.count();
        println!("{device}: {count} {kind}, mean {mean}, p50 {half}, p95 {most}, p99 {nearly_all}");
    }
}
