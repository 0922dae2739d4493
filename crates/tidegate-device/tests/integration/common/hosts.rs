//! Hosts that keep so many requests outstanding, as Iometer does.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_device::{Device, DeviceIo};
use tidegate_units::Instant;

/// One host's workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    pub(crate) outstanding: usize,
    pub(crate) bytes: u32,
    /// The parts of its requests that are reads, and that go to a place at random; the others follow the
    /// last.
    pub(crate) reads: f64,
    pub(crate) random: f64,
    /// Its virtual disk.
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// What a host sees after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    pub(crate) iops: f64,
    /// Mean latency in milliseconds: of all, of the reads, of the writes.
    pub(crate) latency: f64,
    pub(crate) read: f64,
    pub(crate) write: f64,
}

/// Each host alone decides when it issues: as soon as one of its requests is answered.
pub(crate) fn run(device: &mut Device, hosts: &[Host], warm_up: f64, seconds: f64, seed: u64) -> Vec<Seen> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let begin = Instant::from_nanos((warm_up * 1e9) as u64);
    let end = Instant::from_nanos(((warm_up + seconds) * 1e9) as u64);
    let mut next: Vec<u64> = vec![0; hosts.len()];
    // Of each slot of each host's queue: since when, and whether it reads.
    let mut slots: Vec<(usize, Instant, bool)> = Vec::new();
    let mut sums = vec![[(0_u64, 0.0_f64); 2]; hosts.len()];
    let mut issue =
        |device: &mut Device, slots: &mut Vec<(usize, Instant, bool)>, slot: usize, now: Instant| {
            let host = &hosts[slots[slot].0];
            let next = &mut next[slots[slot].0];
            let places = host.size / u64::from(host.bytes);
            if rng.random::<f64>() < host.random {
                *next = rng.random_range(0..places);
            }
            let offset = host.start + *next % places * u64::from(host.bytes);
            *next += 1;
            let read = rng.random::<f64>() < host.reads;
            let io =
                if read { DeviceIo::read(offset, host.bytes) } else { DeviceIo::write(offset, host.bytes) };
            slots[slot] = (slots[slot].0, now, read);
            device.submit(now, slot as u64, io).unwrap();
        };
    for (index, host) in hosts.iter().enumerate() {
        for _ in 0..host.outstanding {
            slots.push((index, Instant::ZERO, true));
            let slot = slots.len() - 1;
            issue(device, &mut slots, slot, Instant::ZERO);
        }
    }
    let mut done = Vec::new();
    while let Some(at) = device.next_event().filter(|at| *at < end) {
        device.advance(at, &mut done);
        for completion in done.drain(..) {
            let slot = completion.id as usize;
            let (host, since, read) = slots[slot];
            if completion.at >= begin {
                let (count, total) = &mut sums[host][usize::from(read)];
                *count += 1;
                *total += completion.at.latency_since(since).as_millis_f64();
            }
            issue(device, &mut slots, slot, completion.at);
        }
    }
    sums.iter()
        .map(|[(writes, write), (reads, read)]| Seen {
            iops: (writes + reads) as f64 / seconds,
            latency: (write + read) / (writes + reads) as f64,
            read: read / *reads as f64,
            write: write / *writes as f64,
        })
        .collect()
}
