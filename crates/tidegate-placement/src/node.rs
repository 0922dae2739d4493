//! The state of a storage node, as it is known from outside.

use std::time::Duration;

use tidegate_units::{ByteRate, Bytes, Instant, Latency, ResourceName};

use super::capacity::NodeCapacity;
use super::first_byte::FirstByte;
use super::moving_average::MovingAverage;
use super::peak::NodePeak;
use super::policy::NodeView;
use super::tape::NodeTapes;

/// The direction in which data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferDirection {
    /// From the node.
    Read,
    /// To the node.
    Write,
}

impl TransferDirection {
    /// Reads first.
    pub const BOTH: [Self; 2] = [Self::Read, Self::Write];
}

/// The configuration of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// Its name.
    pub name: ResourceName,
    /// The peak rate at which it is read.
    pub read: NodePeak,
    /// The peak rate at which it is written.
    pub write: NodePeak,
    /// Its class of availability: the higher, the more it survives.
    pub availability: u8,
    /// Its class of cost: the higher, the dearer.
    pub cost: u8,
    /// The time from a request to its first byte, if it is configured: then nothing is learnt. A tape's is
    /// its recall.
    pub latency: Option<Latency>,
    /// The tape store, if the node is a disk in front of tapes.
    pub tape: Option<NodeTapes>,
    /// The free space on it, until a sample says more. `None` if it is not known, and not asked.
    pub free: Option<Bytes>,
}

/// The measurements of a node since the sample before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeSample {
    /// The rate at which its transfers read from it.
    pub read: ByteRate,
    /// The rate at which they wrote to it.
    pub write: ByteRate,
    /// The sensor's values for its device, reads first. They are empty if there is no sensor, or it is
    /// silent.
    pub device: [DeviceLane; 2],
    /// The free space on it.
    pub free: FreeSpace,
}

/// The free space on a node, as a sample reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeSpace {
    /// The free space.
    Free(Bytes),
    /// The free space is no longer known: the last value is too old.
    Unknown,
    /// The sample did not ask for it: it is the previous value, less what was written since.
    NotAsked,
}

/// A sensor's values for one direction of a node's device, for all of its users.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceLane {
    /// The rate of all data that moved.
    pub rate: Option<ByteRate>,
    /// The time that its requests took, if there were any.
    pub latency: Option<Latency>,
}

/// The present state of a node, for people and programs.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// Its name.
    pub name: ResourceName,
    /// The state of each direction, reads first.
    pub directions: [DirectionReport; 2],
    /// The free space, less what was promised to transfers that are under way.
    pub free: Option<Bytes>,
    /// Transfers that wait and may use it. One that may use several nodes is counted at each.
    pub waiting: usize,
}

/// The state of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DirectionReport {
    /// The most that it moves.
    pub peak: ByteRate,
    /// The rate of its transfers in the last sample.
    pub current: Option<ByteRate>,
    /// The mean of the last ten.
    pub moving_average: Option<ByteRate>,
    /// The time that the next transfer has to expect from its request to its first byte; `None` if it is not
    /// known.
    pub latency: Option<Latency>,
    /// Transfers that were placed and have not ended.
    pub active: u32,
    /// The rate that is reserved for them, less the rate that was lent.
    pub reserved: ByteRate,
    /// The part of their reservations that they do not use, and others may have.
    pub lent: ByteRate,
}

/// Transfers whose rate has been known for long enough: their number, and the number of those that get less
/// than they reserved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SettledTransfers {
    all: u32,
    short: u32,
}

impl SettledTransfers {
    /// Counts a change of one transfer: whether it was and is known to fall short. `None`: it was or is not
    /// known.
    pub(super) fn changes(&mut self, before: Option<bool>, after: Option<bool>) {
        self.all = self.all + u32::from(after.is_some()) - u32::from(before.is_some());
        self.short = self.short + u32::from(after == Some(true)) - u32::from(before == Some(true));
    }

    pub(super) const fn all_fall_short(self) -> bool {
        self.all > 0 && self.short == self.all
    }
}

/// One direction of a node.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) peak: NodePeak,
    /// The average rate of transfers.
    average: MovingAverage,
    /// The average rate of all data that moved, from all sources.
    moving: MovingAverage,
    /// The same, of the samples in which a transfer was under way all the time.
    used: MovingAverage,
    /// True if a sensor reported the last of these rates.
    sensed: bool,
    pub(super) first_byte: FirstByte,
    capacity: NodeCapacity,
    pub(super) active: u32,
    /// Active transfers whose data is being recalled: each has a drive.
    pub(super) recalling: u32,
    pub(super) reserved: ByteRate,
    pub(super) lent: ByteRate,
    pub(super) known: SettledTransfers,
    /// The sum over the transfers of the seconds in which their data moved, since the last sample.
    busy: f64,
    counted: Instant,
}

impl Lane {
    fn new(peak: NodePeak, latency: Option<Latency>, now: Instant) -> Self {
        Self {
            peak,
            average: MovingAverage::default(),
            moving: MovingAverage::default(),
            used: MovingAverage::default(),
            sensed: false,
            first_byte: FirstByte::new(latency),
            capacity: NodeCapacity::default(),
            active: 0,
            recalling: 0,
            reserved: ByteRate::ZERO,
            lent: ByteRate::ZERO,
            known: SettledTransfers::default(),
            busy: 0.0,
            counted: now,
        }
    }

    /// Counts the active transfers until now; call before their number changes.
    fn count(&mut self, now: Instant) {
        let moving = self.active.saturating_sub(self.recalling);
        self.busy += f64::from(moving) * now.saturating_since(self.counted).as_secs_f64();
        self.counted = now;
    }

    pub(super) fn began(&mut self, now: Instant, rate: ByteRate, recalls: bool) {
        self.count(now);
        self.active += 1;
        self.recalling += u32::from(recalls);
        self.reserved = ByteRate::new(self.reserved.per_second() + rate.per_second());
    }

    /// Takes note that the data of a recalling transfer is there: its drive is free for the next.
    pub(super) fn recalled(&mut self, now: Instant) {
        self.count(now);
        self.recalling = self.recalling.saturating_sub(1);
    }

    /// Takes note that a transfer is over that had reserved this rate, and lent this part of it.
    pub(super) fn ended(&mut self, now: Instant, reserved: ByteRate, lent: ByteRate) {
        self.count(now);
        self.active = self.active.saturating_sub(1);
        let kept = ByteRate::new(reserved.per_second() - lent.per_second());
        self.reserved = ByteRate::new(self.reserved.per_second() - kept.per_second());
        self.lent = ByteRate::new(self.lent.per_second() - lent.per_second());
        if self.active == 0 {
            // Sums of parts do not cancel to the last bit.
            (self.reserved, self.lent) = (ByteRate::ZERO, ByteRate::ZERO);
        }
    }

    /// Changes the rate that one transfer lends.
    pub(super) fn lends(&mut self, before: ByteRate, now: ByteRate) {
        let (before, now) = (before.per_second(), now.per_second());
        self.reserved = ByteRate::new(self.reserved.per_second() + before - now);
        self.lent = ByteRate::new(self.lent.per_second() - before + now);
    }

    fn observe(&mut self, now: Instant, elapsed: Duration, rate: ByteRate, device: Option<ByteRate>) {
        self.count(now);
        let active = std::mem::take(&mut self.busy) / elapsed.as_secs_f64();
        self.average.add(rate);
        self.sensed = device.is_some();
        // A sensor cannot make less of a node than its transfers do; a cache in front of the device can.
        self.moving.add(device.filter(|device| *device > rate).unwrap_or(rate));
        if active == 0.0 {
            self.capacity.idle(elapsed);
            return;
        }
        // What others move beside transfers is part of what the node can move.
        let all = self.moving.last().unwrap_or(rate);
        if active >= 1.0 {
            self.used.add(all);
            let mean = self.used.get().unwrap_or(all);
            self.peak.observe_mean(mean, self.used.is_full(), elapsed);
        } else {
            self.peak.observe(all, elapsed);
        }
        // Where the only transfer came or went within the interval its rate is that of a part of it, and
        // `active` is below 1: that says nothing of the node.
        self.capacity.observe(active, rate, self.peak.get());
    }

    /// Returns true if a sensor has seen over ten samples that all together, transfers and others, move less
    /// than this part of the peak: then it is not the node that keeps its transfers slow.
    pub(super) fn is_seen_below(&self, part: f64) -> bool {
        let moving = self.moving.get().unwrap_or_default().per_second();
        self.sensed && self.moving.is_full() && moving < self.peak.get().per_second() * part
    }

    pub(super) fn view(&self) -> NodeView<'_> {
        NodeView {
            peak: self.peak.get(),
            reserved: self.reserved,
            moving_average: self.average.get().unwrap_or_default(),
            moving: self.moving.get().unwrap_or_default(),
            active: self.active,
            recalling: self.recalling,
            capacity: &self.capacity,
        }
    }

    fn report(&self, now: Instant) -> DirectionReport {
        DirectionReport {
            peak: self.peak.get(),
            current: self.average.last(),
            moving_average: self.average.get(),
            latency: self.first_byte.get(now),
            active: self.active,
            reserved: self.reserved,
            lent: self.lent,
        }
    }
}

/// A node, and what was placed on it.
#[derive(Debug, Clone)]
pub(super) struct PlacementNode {
    pub(super) config: NodeConfig,
    read: Lane,
    write: Lane,
    /// The room that was promised to transfers under way.
    pub(super) promised: u64,
    /// The time until which no new transfer is placed here.
    pub(super) rests_until: Instant,
    sampled: Instant,
}

impl PlacementNode {
    pub(super) fn new(config: NodeConfig, now: Instant) -> Self {
        let lane = |peak| Lane::new(peak, config.latency, now);
        let (read, write) = (lane(config.read), lane(config.write));
        Self { config, read, write, promised: 0, rests_until: now, sampled: now }
    }

    pub(super) const fn lane(&self, direction: TransferDirection) -> &Lane {
        match direction {
            TransferDirection::Read => &self.read,
            TransferDirection::Write => &self.write,
        }
    }

    pub(super) const fn lane_mut(&mut self, direction: TransferDirection) -> &mut Lane {
        match direction {
            TransferDirection::Read => &mut self.read,
            TransferDirection::Write => &mut self.write,
        }
    }

    /// Returns true if there is room for this size, beside what was promised.
    pub(super) fn has_room(&self, size: Bytes) -> bool {
        self.free().is_none_or(|free| size <= free)
    }

    /// Takes note that a write is over to which this room was promised. All of it counts as written until a
    /// sample reports the free space.
    pub(super) fn wrote(&mut self, size: Bytes) {
        self.wrote_not(size);
        if let Some(free) = &mut self.config.free {
            *free = Bytes::new(free.get().saturating_sub(size.get()));
        }
    }

    /// Takes note that a write is over to which this room was promised, and that it left nothing.
    pub(super) fn wrote_not(&mut self, size: Bytes) {
        self.promised = self.promised.saturating_sub(size.get());
    }

    pub(super) fn free(&self) -> Option<Bytes> {
        self.config.free.map(|free| Bytes::new(free.get().saturating_sub(self.promised)))
    }

    /// Takes a sample. It says nothing of rates if its interval has no length, or the clock jumped back.
    pub(super) fn observe(&mut self, now: Instant, sample: &NodeSample) {
        let elapsed = now.saturating_since(self.sampled);
        self.sampled = now;
        match sample.free {
            FreeSpace::Free(free) => self.config.free = Some(free),
            FreeSpace::Unknown => self.config.free = None,
            FreeSpace::NotAsked => {}
        }
        let lanes = [(&mut self.read, sample.read), (&mut self.write, sample.write)];
        for ((lane, rate), device) in lanes.into_iter().zip(sample.device) {
            lane.first_byte.sense(device.latency);
            if !elapsed.is_zero() {
                lane.observe(now, elapsed, rate, device.rate);
            }
        }
    }

    pub(super) fn report(&self, waiting: usize) -> NodeReport {
        NodeReport {
            name: self.config.name.clone(),
            directions: [self.read.report(self.sampled), self.write.report(self.sampled)],
            free: self.free(),
            waiting,
        }
    }
}
