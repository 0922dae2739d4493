//! The device as its driver sees it: one clock, one queue of completions, whatever the model.

use std::collections::VecDeque;

use tidegate_units::{Bytes, Instant, Iops};

use crate::array::RaidArray;
use crate::config::DeviceConfig;
use crate::config_error::{DeviceConfigError, require};
use crate::disk::SingleDisk;
use crate::exponential::{Exponential, ExponentialChange};
use crate::flash::FlashDevice;
use crate::io::{DeviceCompletion, DeviceIo, IoKind, SubmitError};
use crate::link::LinkedDevice;
use crate::tiers::TieredDevice;
use crate::volume::CloudVolume;

/// Number of requests that a device holds at once; a further one is refused with [`SubmitError::Full`].
pub const MAX_IN_FLIGHT: usize = 1 << 20;

/// Number of devices that a device may be inside of.
const MAX_DEPTH: u32 = 4;

/// A model of a storage device. See the [crate's documentation](crate) for the order of calls.
#[derive(Debug, Clone)]
pub struct Device {
    model: Model,
    capacity: Bytes,
    /// The latest time that a caller has told. The model has no unprocessed event at or before it.
    clock: Instant,
    /// Completed in the model, not yet collected; in the order of their times.
    done: VecDeque<DeviceCompletion>,
    in_flight: usize,
}

#[derive(Debug, Clone)]
enum Model {
    Exponential(Exponential),
    Disk(Box<SingleDisk>),
    Array(Box<RaidArray>),
    Flash(Box<FlashDevice>),
    Volume(Box<CloudVolume>),
    Tiers(Box<TieredDevice>),
    Link(Box<LinkedDevice>),
}

/// The device's speed follows from its parameters and cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("only an exponential server's rate can be set")]
pub struct FixedRate;

impl Device {
    /// A device at rest at the origin of the clock. The seed decides whatever is random in the model: service
    /// times, the angles at which disks stand.
    ///
    /// # Errors
    /// When a parameter has a value with which the model means nothing.
    pub fn new(config: &DeviceConfig, seed: u64) -> Result<Self, DeviceConfigError> {
        Self::nested(config, seed, 0)
    }

    /// A device inside so many others.
    pub(crate) fn nested(config: &DeviceConfig, seed: u64, depth: u32) -> Result<Self, DeviceConfigError> {
        require(depth <= MAX_DEPTH, "device", "inside 4 others at most")?;
        let (model, capacity) = match config {
            DeviceConfig::Exponential(config) => {
                (Model::Exponential(Exponential::new(config, seed)?), config.capacity)
            }
            DeviceConfig::Disk(config) => {
                let disk = SingleDisk::new(config, seed)?;
                let capacity = disk.capacity();
                (Model::Disk(Box::new(disk)), capacity)
            }
            DeviceConfig::Array(config) => {
                let array = RaidArray::new(config, seed)?;
                let capacity = array.capacity();
                (Model::Array(Box::new(array)), capacity)
            }
            DeviceConfig::Flash(config) => {
                (Model::Flash(Box::new(FlashDevice::new(config, seed)?)), config.capacity)
            }
            DeviceConfig::Volume(config) => {
                (Model::Volume(Box::new(CloudVolume::new(config, seed)?)), config.capacity)
            }
            DeviceConfig::Tiers(config) => {
                let tiers = TieredDevice::new(config, seed, depth)?;
                let capacity = tiers.capacity();
                (Model::Tiers(Box::new(tiers)), capacity)
            }
            DeviceConfig::Link(config) => {
                let link = LinkedDevice::new(config, seed, depth)?;
                let capacity = link.capacity();
                (Model::Link(Box::new(link)), capacity)
            }
        };
        Ok(Self { model, capacity, clock: Instant::ZERO, done: VecDeque::new(), in_flight: 0 })
    }

    /// Returns the device's size in bytes; requests must lie below.
    #[must_use]
    pub const fn capacity(&self) -> Bytes {
        self.capacity
    }

    /// Returns the number of requests that were taken and not yet handed back by [`Device::advance`].
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the amount of data in the write-back cache or write buffer that is not yet on disk or flash.
    /// It is zero for a device without a cache.
    #[must_use]
    pub fn dirty(&self) -> Bytes {
        match &self.model {
            Model::Array(array) => array.dirty(),
            Model::Flash(flash) => flash.dirty(),
            Model::Tiers(tiers) => tiers.dirty(),
            Model::Link(link) => link.dirty(),
            Model::Exponential(_) | Model::Disk(_) | Model::Volume(_) => Bytes::ZERO,
        }
    }

    /// Takes a request at the time `now`, under an id that its completion will carry. Ids are the caller's:
    /// the device neither reads nor compares them.
    ///
    /// # Errors
    /// When the range does not lie on the device or is empty, or too many requests are in flight. The request
    /// is then not taken.
    pub fn submit(&mut self, now: Instant, id: u64, io: DeviceIo) -> Result<(), SubmitError> {
        if io.kind != IoKind::Flush {
            if io.bytes == 0 {
                return Err(SubmitError::Empty);
            }
            let end = io.offset.checked_add(u64::from(io.bytes));
            if end.is_none_or(|end| end > self.capacity.get()) {
                return Err(SubmitError::OutOfRange {
                    offset: io.offset,
                    bytes: io.bytes,
                    capacity: self.capacity,
                });
            }
        }
        if self.in_flight >= MAX_IN_FLIGHT {
            return Err(SubmitError::Full { limit: MAX_IN_FLIGHT });
        }
        self.catch_up(now);
        self.in_flight += 1;
        match &mut self.model {
            Model::Exponential(model) => model.submit(self.clock, id, io, &mut self.done),
            Model::Disk(model) => model.submit(self.clock, id, io, &mut self.done),
            Model::Array(model) => model.submit(self.clock, id, io, &mut self.done),
            Model::Flash(model) => model.submit(self.clock, id, io, &mut self.done),
            Model::Volume(model) => model.submit(self.clock, id, io, &mut self.done),
            Model::Tiers(model) => model.submit(self.clock, id, io),
            Model::Link(model) => model.submit(self.clock, id, io),
        }
        Ok(())
    }

    /// Returns the time of the next event if nothing is submitted: the time to [`Device::advance`] to. `None`
    /// if there is none. The event need not be a completion (a disk may be done with a part). It lies before
    /// the latest time told only when completions wait to be collected.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        self.done.front().map(|completion| completion.at).or_else(|| self.model.next_event())
    }

    /// Brings the model to `now` and appends the new completions to `out`, in their order.
    pub fn advance(&mut self, now: Instant, out: &mut Vec<DeviceCompletion>) {
        self.catch_up(now);
        self.in_flight -= self.done.len();
        out.extend(self.done.drain(..));
    }

    /// Sets an exponential server's rate from `now` on; requests in service continue at the new rate. At a
    /// rate of zero it stands still.
    ///
    /// # Errors
    /// When the device is not an exponential server.
    pub fn set_rate(&mut self, now: Instant, rate: Iops) -> Result<(), FixedRate> {
        self.catch_up(now);
        match &mut self.model {
            Model::Exponential(model) => {
                model.set_rate(self.clock, rate);
                Ok(())
            }
            _ => Err(FixedRate),
        }
    }

    /// Plans the changes of an exponential server, counted from its first request on. They replace those that
    /// were planned before.
    ///
    /// # Errors
    /// When the device is not an exponential server, or a change has a value with which the model means
    /// nothing.
    pub fn plan(&mut self, changes: Vec<ExponentialChange>) -> Result<(), DeviceConfigError> {
        match &mut self.model {
            Model::Exponential(model) => model.plan(changes),
            _ => require(changes.is_empty(), "changes", "none: only an exponential server changes"),
        }
    }

    fn catch_up(&mut self, now: Instant) {
        while let Some(at) = self.model.next_event().filter(|at| *at <= now) {
            debug_assert!(at >= self.clock, "the model left an event behind");
            self.clock = at;
            self.model.step(at, &mut self.done);
        }
        self.clock = self.clock.max(now);
    }
}

impl Model {
    fn next_event(&self) -> Option<Instant> {
        match self {
            Self::Exponential(model) => model.next_event(),
            Self::Disk(model) => model.next_event(),
            Self::Array(model) => model.next_event(),
            Self::Flash(model) => model.next_event(),
            Self::Volume(model) => model.next_event(),
            Self::Tiers(model) => model.next_event(),
            Self::Link(model) => model.next_event(),
        }
    }

    /// Carries out one event that is due at `at`.
    fn step(&mut self, at: Instant, done: &mut VecDeque<DeviceCompletion>) {
        match self {
            Self::Exponential(model) => model.step(at, done),
            Self::Disk(model) => model.step(at, done),
            Self::Array(model) => model.step(at, done),
            Self::Flash(model) => model.step(at, done),
            Self::Volume(model) => model.step(at, done),
            Self::Tiers(model) => model.step(at, done),
            Self::Link(model) => model.step(at, done),
        }
    }
}
