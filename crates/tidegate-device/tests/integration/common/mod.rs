//! Clients in virtual time: what the models are tested under.

pub(crate) mod hosts;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_device::{
    ArrayConfig, BurstConfig, CacheConfig, Device, DeviceConfig, DeviceIo, DiskConfig, ExponentialConfig,
    FlashConfig, HitChange, LinkConfig, QueueConfig, RaidLevel, ReadAheadConfig, SeekConfig, TiersConfig,
    VolumeConfig,
};
use tidegate_units::{ByteRate, Bytes, Instant, Iops, Latency};

pub(crate) fn exponential(rate: f64, servers: u32) -> ExponentialConfig {
    ExponentialConfig { rate: Iops::new(rate), servers, capacity: Bytes::from_gib(1) }
}

/// A small disk: 1 GB, 31 MB/s under the head.
pub(crate) fn disk(queue: QueueConfig) -> DiskConfig {
    DiskConfig {
        rpm: 7_200,
        cylinders: 1_000,
        heads: 4,
        sectors_per_track: 500,
        seek: SeekConfig {
            track_to_track: Latency::from_micros(800),
            average: Latency::from_micros(8_500),
            full_stroke: Latency::from_millis(18),
            knee: 0.2,
        },
        head_switch: Latency::from_micros(1_000),
        write_settle: Latency::from_micros(500),
        overhead: Latency::from_micros(200),
        queue,
    }
}

pub(crate) fn elevator() -> QueueConfig {
    QueueConfig::Elevator { depth: 8, max_age: Latency::from_millis(200) }
}

pub(crate) fn nearest() -> QueueConfig {
    QueueConfig::ShortestSeek { depth: 8, max_age: Latency::from_millis(200) }
}

pub(crate) fn raid_5(cache: Option<CacheConfig>) -> ArrayConfig {
    ArrayConfig { disks: 4, level: RaidLevel::Raid5, ..array(cache) }
}

pub(crate) fn reading_ahead(array: ArrayConfig) -> ArrayConfig {
    let read_ahead = ReadAheadConfig {
        after: 2,
        distance: Bytes::from_kib(64),
        segment: Bytes::from_kib(8),
        overhead: Latency::from_micros(20),
    };
    ArrayConfig { read_ahead: Some(read_ahead), ..array }
}

pub(crate) fn array(cache: Option<CacheConfig>) -> ArrayConfig {
    ArrayConfig {
        disks: 3,
        level: RaidLevel::Raid0,
        stripe_unit: Bytes::from_kib(16),
        disk: disk(elevator()),
        cache,
        read_ahead: None,
    }
}

pub(crate) fn cache(size: Bytes) -> CacheConfig {
    CacheConfig {
        size,
        overhead: Latency::from_micros(50),
        low: 0.25,
        high: 0.75,
        destage_depth: 4,
        destage_run: Bytes::from_kib(64),
        nonvolatile: false,
    }
}

/// A small flash device: four dies, little spare flash, a small buffer.
pub(crate) fn flash() -> FlashConfig {
    FlashConfig {
        capacity: Bytes::from_gib(1),
        dies: 4,
        page: Bytes::from_kib(16),
        block_pages: 16,
        read: Latency::from_micros(60),
        program: Latency::from_micros(800),
        erase: Latency::from_millis(3),
        retries: 0.01,
        retry: Latency::from_micros(150),
        reads_first: 8,
        over_provisioning: 0.25,
        reserve: Bytes::from_mib(1),
        mapping: Bytes::new(2048),
        buffer: Bytes::from_kib(128),
        command: Latency::from_micros(5),
        link: ByteRate::new(500e6),
        half_duplex: true,
        latency: Latency::from_micros(30),
    }
}

/// A small volume that can burst for a while.
pub(crate) fn volume() -> VolumeConfig {
    VolumeConfig {
        capacity: Bytes::from_gib(1),
        rate: Iops::new(100.0),
        burst: Some(BurstConfig { rate: Iops::new(1_000.0), credits: 500, initial: None }),
        throughput: ByteRate::new(50e6),
        io_size: Bytes::from_kib(256),
        slack: Latency::from_millis(10),
        latency: Latency::from_micros(500),
        spread: Latency::from_micros(100),
    }
}

/// Two tiers whose hit ratio falls after 10 s.
pub(crate) fn tiers(fast: DeviceConfig, slow: DeviceConfig, extent: Option<Bytes>) -> TiersConfig {
    let changes = vec![HitChange { after: Latency::from_millis(10_000), hits: 0.3 }];
    TiersConfig { fast: Box::new(fast), slow: Box::new(slow), hits: 0.8, extent, changes }
}

/// A link of 100 MB/s.
pub(crate) fn link(device: DeviceConfig) -> LinkConfig {
    LinkConfig {
        rate: ByteRate::new(100e6),
        overhead: Latency::from_micros(10),
        latency: Latency::from_micros(50),
        half_duplex: false,
        device: Box::new(device),
    }
}

/// Where a client's requests go.
#[derive(Clone, Copy)]
pub(crate) enum Pattern {
    Sequential,
    Random,
}

/// When a client issues its next request.
#[derive(Clone, Copy)]
pub(crate) enum Arrivals {
    /// So long after the last completed, with one outstanding.
    Closed(Duration),
    /// Every so often, come what may.
    Every(Duration),
    /// At random, with this mean interval.
    Poisson(Duration),
}

#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) write: bool,
    pub(crate) bytes: u32,
    pub(crate) pattern: Pattern,
    pub(crate) arrivals: Arrivals,
    /// The region it keeps to.
    pub(crate) start: u64,
    pub(crate) size: u64,
}

#[derive(Default, Clone)]
pub(crate) struct Measured {
    /// Response times in milliseconds, ascending.
    pub(crate) latencies: Vec<f64>,
    pub(crate) bytes: u64,
}

impl Measured {
    pub(crate) fn mean(&self) -> f64 {
        self.latencies.iter().sum::<f64>() / self.latencies.len() as f64
    }

    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        self.latencies[(self.latencies.len() * percent / 100).min(self.latencies.len() - 1)]
    }
}

/// Runs the clients against the device for so long after so much warm-up; one measurement per client, of the
/// requests issued and completed after the warm-up.
pub(crate) fn run(
    device: &mut Device,
    clients: &[Client],
    warm_up: Duration,
    length: Duration,
    seed: u64,
) -> Vec<Measured> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let begin = Instant::ZERO + warm_up;
    let end = begin + length;
    let mut measured = vec![Measured::default(); clients.len()];
    let mut cursor = vec![0_u64; clients.len()];
    let mut arrivals: BinaryHeap<_> = (0..clients.len())
        // Nobody starts in step with anybody.
        .map(|client| Reverse((Instant::from_nanos(rng.random_range(0..20_000_000)), client)))
        .collect();
    let mut issued = Vec::new();
    let mut done = Vec::new();
    loop {
        let arrival = arrivals.peek().map(|Reverse((at, _))| *at);
        let now = [arrival, device.next_event()].into_iter().flatten().min().unwrap_or(end);
        if now >= end {
            break;
        }
        device.advance(now, &mut done);
        for completion in done.drain(..) {
            let (client, at): (usize, Instant) = issued[completion.id as usize];
            if at >= begin {
                let latency = completion.at.latency_since(at).as_millis_f64();
                measured[client].latencies.push(latency);
                measured[client].bytes += u64::from(clients[client].bytes);
            }
            if let Arrivals::Closed(turnaround) = clients[client].arrivals {
                arrivals.push(Reverse((completion.at + turnaround, client)));
            }
        }
        while let Some(Reverse((at, client))) = arrivals.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            arrivals.pop();
            let Client { write, bytes, pattern, start, size, .. } = clients[client];
            let places = size / u64::from(bytes);
            let place = match pattern {
                Pattern::Random => rng.random_range(0..places),
                Pattern::Sequential => cursor[client] % places,
            };
            cursor[client] += 1;
            let offset = start + place * u64::from(bytes);
            let io = if write { DeviceIo::write(offset, bytes) } else { DeviceIo::read(offset, bytes) };
            device.submit(at, issued.len() as u64, io).unwrap();
            issued.push((client, at));
            match clients[client].arrivals {
                Arrivals::Closed(_) => {}
                Arrivals::Every(interval) => arrivals.push(Reverse((at + interval, client))),
                Arrivals::Poisson(mean) => {
                    let interval = mean.mul_f64(-(1.0 - rng.random::<f64>()).ln());
                    arrivals.push(Reverse((at + interval, client)));
                }
            }
        }
    }
    for client in &mut measured {
        client.latencies.sort_by(f64::total_cmp);
    }
    measured
}
