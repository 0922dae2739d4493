//! A link between hosts and a device: requests queue for its bandwidth, then for the device.
//!
//! A write occupies the direction to the device before the device sees it. A read occupies the direction to
//! the host once the device has its data. Commands and acknowledgments are small: they take the link's
//! latency and no bandwidth.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{ByteRate, Bytes, Instant, Latency};

use crate::Device;
use crate::config::DeviceConfig;
use crate::config_error::{DeviceConfigError, require};
use crate::io::{DeviceCompletion, DeviceIo, IoKind};
use crate::lane::{Lane, transfer_time};
use crate::nested::{self, Slots};
use crate::tiers::forward;

/// A link in front of a device, in order of arrival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkConfig {
    /// Bytes per second of each direction.
    #[serde(with = "tidegate_units::text")]
    pub rate: ByteRate,
    /// Time for which a request occupies its direction beside its data: headers and turnaround.
    #[serde(default, with = "tidegate_units::text")]
    pub overhead: Latency,
    /// Time that a message takes in either direction, whatever its size.
    #[serde(default, with = "tidegate_units::text")]
    pub latency: Latency,
    /// True if both directions share the rate.
    #[serde(default)]
    pub half_duplex: bool,
    /// The device behind it.
    #[serde(deserialize_with = "nested::deserialize")]
    pub device: Box<DeviceConfig>,
}

#[derive(Debug, Clone)]
pub(crate) struct LinkedDevice {
    nanos_per_byte: f64,
    overhead: Latency,
    latency: Latency,
    half_duplex: bool,
    /// To the host; in half duplex, both directions.
    inbound: Lane,
    outbound: Lane,
    /// Writes on their way to the device, and apart from them the requests without data, by arrival.
    writes: VecDeque<(Instant, u64)>,
    commands: VecDeque<(Instant, u64)>,
    device: Device,
    /// Data of reads on its way to the host, and apart from it the acknowledgments, by arrival.
    data: VecDeque<(Instant, u64)>,
    acknowledgments: VecDeque<(Instant, u64)>,
    /// Requests in progress.
    requests: Slots<LinkedRequest>,
    completed: Vec<DeviceCompletion>,
}

#[derive(Debug, Clone)]
struct LinkedRequest {
    id: u64,
    io: DeviceIo,
}

impl LinkedDevice {
    pub(crate) fn new(config: &LinkConfig, seed: u64, depth: u32) -> Result<Self, DeviceConfigError> {
        require(config.rate.per_second() >= 1.0, "rate", "at least one byte per second")?;
        let mut rng = Pcg64::seed_from_u64(seed);
        Ok(Self {
            nanos_per_byte: 1e9 / config.rate.per_second(),
            overhead: config.overhead,
            latency: config.latency,
            half_duplex: config.half_duplex,
            inbound: Lane::default(),
            outbound: Lane::default(),
            writes: VecDeque::new(),
            commands: VecDeque::new(),
            device: Device::nested(&config.device, rng.random(), depth + 1)?,
            data: VecDeque::new(),
            acknowledgments: VecDeque::new(),
            requests: Slots::default(),
            completed: Vec::new(),
        })
    }

    pub(crate) const fn capacity(&self) -> Bytes {
        self.device.capacity()
    }

    pub(crate) fn dirty(&self) -> Bytes {
        self.device.dirty()
    }

    pub(crate) fn submit(&mut self, now: Instant, id: u64, io: DeviceIo) {
        let request = self.requests.insert(LinkedRequest { id, io });
        if let IoKind::Write { .. } = io.kind {
            let time = self.occupied(io);
            let lane = if self.half_duplex { &mut self.inbound } else { &mut self.outbound };
            self.writes.push_back((lane.carry(now, time) + self.latency, request));
        } else {
            self.commands.push_back((now + self.latency, request));
        }
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        let queues = [&self.writes, &self.commands, &self.data, &self.acknowledgments];
        let moved = queues.into_iter().filter_map(|queue| queue.front().map(|(at, _)| *at)).min();
        [moved, self.device.next_event()].into_iter().flatten().min()
    }

    pub(crate) fn step(&mut self, at: Instant, done: &mut VecDeque<DeviceCompletion>) {
        for queue in [&mut self.data, &mut self.acknowledgments] {
            if let Some((_, request)) = queue.pop_front_if(|(due, _)| *due == at) {
                done.extend(
                    self.requests.remove(request).map(|LinkedRequest { id, .. }| DeviceCompletion { id, at }),
                );
                return;
            }
        }
        for queue in [&mut self.writes, &mut self.commands] {
            if let Some((_, request)) = queue.pop_front_if(|(due, _)| *due == at) {
                if let Some(LinkedRequest { io, .. }) = self.requests.get_mut(request) {
                    forward(&mut self.device, at, request, *io);
                }
                return;
            }
        }
        let mut completed = std::mem::take(&mut self.completed);
        self.device.advance(at, &mut completed);
        for completion in completed.drain(..) {
            self.answer(at, completion.id);
        }
        self.completed = completed;
    }

    /// Sends the device's answer back.
    fn answer(&mut self, at: Instant, request: u64) {
        let Some(LinkedRequest { io, .. }) = self.requests.get_mut(request) else {
            debug_assert!(false, "the device completed what it was not given");
            return;
        };
        let io = *io;
        if io.kind == IoKind::Read {
            let time = self.occupied(io);
            self.data.push_back((self.inbound.carry(at, time) + self.latency, request));
        } else {
            self.acknowledgments.push_back((at + self.latency, request));
        }
    }

    /// Time for which a request's data occupies its direction.
    fn occupied(&self, io: DeviceIo) -> Latency {
        self.overhead.saturating_add(transfer_time(u64::from(io.bytes), self.nanos_per_byte))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tidegate_units::Iops;

    use super::*;
    use crate::ExponentialConfig;

    /// A link of 1 byte for each nanosecond in front of a device that takes next to no time.
    fn config() -> LinkConfig {
        let device = ExponentialConfig { rate: Iops::new(1e12), servers: 1, capacity: Bytes::from_gib(1) };
        LinkConfig {
            rate: ByteRate::new(1e9),
            overhead: Latency::from_micros(10),
            latency: Latency::from_micros(50),
            half_duplex: false,
            device: Box::new(DeviceConfig::Exponential(device)),
        }
    }

    /// Submits requests at once. Returns the ids and times in microseconds.
    fn at_once(config: LinkConfig, requests: &[DeviceIo]) -> Vec<(u64, u64)> {
        let mut device = Device::new(&DeviceConfig::Link(config), 1).unwrap();
        for (id, io) in (0..).zip(requests) {
            device.submit(Instant::ZERO, id, *io).unwrap();
        }
        let mut done = Vec::new();
        while let Some(at) = device.next_event() {
            device.advance(at, &mut done);
        }
        done.into_iter().map(|one| (one.id, one.at.as_nanos() / 1_000)).collect()
    }

    #[test]
    fn requests_of_one_direction_pass_one_after_the_other() {
        let reads = [DeviceIo::read(0, 100_000), DeviceIo::read(0, 50_000)];
        assert_eq!(at_once(config(), &reads), [(0, 50 + 110 + 50), (1, 50 + 110 + 60 + 50)]);
        let writes = [DeviceIo::write(0, 100_000), DeviceIo::write(0, 50_000)];
        assert_eq!(at_once(config(), &writes), [(0, 110 + 100), (1, 170 + 100)]);
    }

    #[test]
    fn directions_share_the_rate_in_half_duplex_alone() {
        let both = [DeviceIo::write(0, 100_000), DeviceIo::read(0, 100_000)];
        assert_eq!(at_once(config(), &both), [(1, 210), (0, 210)]);
        // The read's data waits for the write's.
        let shared = LinkConfig { half_duplex: true, ..config() };
        assert_eq!(at_once(shared, &both), [(0, 210), (1, 110 + 110 + 50)]);
    }

    #[test]
    fn a_flush_passes_without_data() {
        assert_eq!(at_once(config(), &[DeviceIo::write(0, 100_000), DeviceIo::flush()])[0], (1, 100));
    }

    #[test]
    fn wrong_links_are_refused_by_name_and_depth() {
        let refused = |config| Device::new(&DeviceConfig::Link(config), 1).unwrap_err().to_string();
        let still = LinkConfig { rate: ByteRate::new(0.0), ..config() };
        assert_eq!(refused(still), "rate must be at least one byte per second");
        let deep = |depth| {
            (0..depth).fold(config(), |link, _| LinkConfig {
                device: Box::new(DeviceConfig::Link(link)),
                ..config()
            })
        };
        assert!(Device::new(&DeviceConfig::Link(deep(3)), 1).is_ok());
        assert_eq!(refused(deep(4)), "device must be inside 4 others at most");
    }

    proptest! {
        #[test]
        fn the_link_is_busy_while_requests_wait_for_it(
            sizes in prop::collection::vec(1_u32..200_000, 1..50),
        ) {
            let reads: Vec<_> = sizes.iter().map(|bytes| DeviceIo::read(0, *bytes)).collect();
            let last = at_once(config(), &reads).last().unwrap().1;
            let work: u64 = sizes.iter().map(|bytes| 10_000 + u64::from(*bytes)).sum();
            prop_assert_eq!(last, (100_000 + work) / 1_000);
        }
    }
}
