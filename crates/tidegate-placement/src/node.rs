//! A storage node, as it is known from outside.

use std::time::Duration;

use tidegate_units::{ByteRate, Bytes, Instant, Latency, ResourceName};

use super::capacity::Capacity;
use super::first_byte::FirstByte;
use super::moving_average::MovingAverage;
use super::peak::Peak;
use super::policy::View;
use super::tape::Tape;

/// Which way data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the node.
    Read,
    /// To the node.
    Write,
}

impl Direction {
    /// Reads first.
    pub const BOTH: [Self; 2] = [Self::Read, Self::Write];
}

/// What is said of a node beforehand.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// Its name.
    pub name: ResourceName,
    /// What it moves at best, when it is read.
    pub read: Peak,
    /// What it moves at best, when it is written.
    pub write: Peak,
    /// Its class of availability: the higher, the more it survives.
    pub availability: u8,
    /// Its class of cost: the higher, the dearer.
    pub cost: u8,
    /// From a request to its first byte, where somebody knows it: then nothing is learnt. A tape's is its
    /// recall.
    pub latency: Option<Latency>,
    /// Where it is a disk in front of tapes.
    pub tape: Option<Tape>,
    /// What is free on it, until a sample says more. `None`: not known, and not asked.
    pub free: Option<Bytes>,
}

/// What was measured of a node since the sample before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeSample {
    /// What its transfers read from it.
    pub read: ByteRate,
    /// What they wrote to it.
    pub write: ByteRate,
    /// What its sensor says of its device, reads first; nothing where there is none, or it is silent.
    pub device: [DeviceLane; 2],
    /// What is free on it.
    pub free: Room,
}

/// What a sample says of what is free on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// So much.
    Free(Bytes),
    /// Nobody knows any more: whatever was known before is too old.
    Unknown,
    /// Nobody was asked: it is what it was, less what was written since.
    NotAsked,
}

/// What a sensor says of one direction of a node's device, whoever uses it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceLane {
    /// All that moved.
    pub rate: Option<ByteRate>,
    /// How long its requests took, where there were any.
    pub latency: Option<Latency>,
}

/// What is known of a node now, for people and programs.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// Its name.
    pub name: ResourceName,
    /// Of each direction, reads first.
    pub directions: [DirectionReport; 2],
    /// What is free, less what was promised to transfers that are under way.
    pub free: Option<Bytes>,
    /// Transfers that wait and may use it. One that may use several nodes is counted at each.
    pub waiting: usize,
}

/// What is known of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DirectionReport {
    /// The most that it moves.
    pub peak: ByteRate,
    /// What transfers moved in the last sample.
    pub current: Option<ByteRate>,
    /// The mean of the last ten.
    pub moving_average: Option<ByteRate>,
    /// What the next transfer has to expect from its request to its first byte; nothing where nobody knows.
    pub latency: Option<Latency>,
    /// Transfers that were placed and have not ended.
    pub active: u32,
    /// What is reserved for them, less what was lent.
    pub reserved: ByteRate,
    /// What of their reservations they do not use, and others may have.
    pub lent: ByteRate,
}

/// Transfers of which it is known for long enough what they get: how many, and how many get less than they
/// reserved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    all: u32,
    short: u32,
}

impl Known {
    /// One of them was known to fall short or not, and now is; nothing where it was or is not known.
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
    pub(super) peak: Peak,
    /// Of what transfers moved.
    average: MovingAverage,
    /// Of what moved at all, whoever did it.
    moving: MovingAverage,
    pub(super) first_byte: FirstByte,
    capacity: Capacity,
    pub(super) active: u32,
    /// Those of them whose data is being recalled: each has a drive.
    pub(super) recalling: u32,
    pub(super) reserved: ByteRate,
    pub(super) lent: ByteRate,
    pub(super) known: Known,
    /// Transfers whose data moves times seconds, since the last sample.
    busy: f64,
    counted: Instant,
}

impl Lane {
    fn new(peak: Peak, latency: Option<Latency>, now: Instant) -> Self {
        Self {
            peak,
            average: MovingAverage::default(),
            moving: MovingAverage::default(),
            first_byte: FirstByte::new(latency),
            capacity: Capacity::default(),
            active: 0,
            recalling: 0,
            reserved: ByteRate::ZERO,
            lent: ByteRate::ZERO,
            known: Known::default(),
            busy: 0.0,
            counted: now,
        }
    }

    /// How many were active counts until now; call before it changes.
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

    /// The data of one of them is there: its drive is free for the next.
    pub(super) fn recalled(&mut self, now: Instant) {
        self.count(now);
        self.recalling = self.recalling.saturating_sub(1);
    }

    /// One is over that had reserved so much, and lent so much of it.
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

    /// One of them that lent so much lends so much now.
    pub(super) fn lends(&mut self, before: ByteRate, now: ByteRate) {
        let (before, now) = (before.per_second(), now.per_second());
        self.reserved = ByteRate::new(self.reserved.per_second() + before - now);
        self.lent = ByteRate::new(self.lent.per_second() - before + now);
    }

    fn observe(&mut self, now: Instant, elapsed: Duration, rate: ByteRate, device: Option<ByteRate>) {
        self.count(now);
        let active = std::mem::take(&mut self.busy) / elapsed.as_secs_f64();
        self.average.add(rate);
        // A sensor cannot make less of a node than its transfers do; a cache in front of the device can.
        self.moving.add(device.filter(|device| *device > rate).unwrap_or(rate));
        if active == 0.0 {
            self.capacity.idle(elapsed);
            return;
        }
        self.peak.observe(rate, elapsed);
        // Where the only transfer came or went within the interval its rate is that of a part of it, and
        // `active` is below 1: that says nothing of the node.
        self.capacity.observe(active, rate, self.peak.get());
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
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
pub(super) struct Node {
    pub(super) config: NodeConfig,
    read: Lane,
    write: Lane,
    /// What transfers under way have been promised room for.
    pub(super) promised: u64,
    /// Until then nobody new is placed here.
    pub(super) rests_until: Instant,
    sampled: Instant,
}

impl Node {
    pub(super) fn new(config: NodeConfig, now: Instant) -> Self {
        let lane = |peak| Lane::new(peak, config.latency, now);
        let (read, write) = (lane(config.read), lane(config.write));
        Self { config, read, write, promised: 0, rests_until: now, sampled: now }
    }

    pub(super) const fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    pub(super) const fn lane_mut(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    /// Whether there is room for so much, beside what was promised.
    pub(super) fn has_room(&self, size: Bytes) -> bool {
        self.free().is_none_or(|free| size <= free)
    }

    /// A write that was promised room for so much is over. Until a sample says how much it really took, it is
    /// taken for written.
    pub(super) fn wrote(&mut self, size: Bytes) {
        self.wrote_not(size);
        if let Some(free) = &mut self.config.free {
            *free = Bytes::new(free.get().saturating_sub(size.get()));
        }
    }

    /// A write that was promised room for so much is over, and left nothing.
    pub(super) fn wrote_not(&mut self, size: Bytes) {
        self.promised = self.promised.saturating_sub(size.get());
    }

    pub(super) fn free(&self) -> Option<Bytes> {
        self.config.free.map(|free| Bytes::new(free.get().saturating_sub(self.promised)))
    }

    /// A sample of an interval without length, or of a clock that jumped back, says nothing of rates.
    pub(super) fn observe(&mut self, now: Instant, sample: &NodeSample) {
        let elapsed = now.saturating_since(self.sampled);
        self.sampled = now;
        match sample.free {
            Room::Free(free) => self.config.free = Some(free),
            Room::Unknown => self.config.free = None,
            Room::NotAsked => {}
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
