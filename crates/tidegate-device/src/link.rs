//! A link between hosts and a device: requests queue for its bandwidth, then for the device.
//!
//! A write occupies the direction to the device before the device sees it. A read occupies the direction to
//! the host once the device has its data. Commands and acknowledgments are small: they take the link's latency
//! and no bandwidth.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{ByteRate, Bytes, Instant, Latency};

use crate::config::{DeviceConfig, DeviceConfigError, require};
use crate::device::Device;
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
