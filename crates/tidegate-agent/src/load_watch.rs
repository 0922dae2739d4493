//! The sensors of an agent: of this machine's storage, or of an array behind it.

use std::net::IpAddr;

use thiserror::Error;
use tidegate_host::sense::capture::CaptureError;
use tidegate_host::sense::{DiskDelta, TargetSession, TargetSessions, UncountedDevice};
use tidegate_host::{DeviceNumber, ReadError, SystemRoot};
use tidegate_units::{ConsumerName, Instant};

use crate::addresses::{ConsumerAddresses, ToldSessions};
use crate::bridge::BridgeWatch;
use crate::config::{AgentConfig, ResourceStorage};
use crate::watch::{MachineSample, MachineWatch, WatchedDevice};

/// The reasons why nothing is known of the storage.
#[derive(Debug, Error)]
pub enum BlindError {
    /// The kernel's counters cannot be read.
    #[error(transparent)]
    Counters(#[from] ReadError),
    /// Packets cannot be captured.
    #[error(transparent)]
    Packets(#[from] CaptureError),
}

/// Everything that regulators ask of sensors.
#[derive(Debug)]
pub(super) enum LoadWatch {
    /// This machine has the storage.
    Machine(Box<MachineWatch>),
    /// An array has it, whose packets pass here.
    Bridge(Box<BridgeWatch>),
}

impl LoadWatch {
    pub(super) fn new(root: SystemRoot, config: &AgentConfig) -> Result<Self, BlindError> {
        Ok(match &config.bridge {
            Some(bridge) => Self::Bridge(Box::new(BridgeWatch::new(bridge, &config.ports, true)?)),
            None => Self::Machine(Box::new(MachineWatch::new(root, ToldSessions::of(config))?)),
        })
    }

    /// Rescans consumers each second, or more often if configured.
    pub(super) fn look_every(&mut self, interval: std::time::Duration) {
        match self {
            Self::Machine(machine) => machine.look_every(interval),
            Self::Bridge(bridge) => bridge.look_every(interval),
        }
    }

    /// Makes the next sample a rescan.
    pub(super) fn look_now(&mut self) {
        match self {
            Self::Machine(machine) => machine.look_now(),
            Self::Bridge(bridge) => bridge.look_now(),
        }
    }

    /// Takes what the configuration tells of sessions now.
    pub(super) fn tell(&mut self, told: ToldSessions) {
        if let Self::Machine(machine) = self {
            machine.tell(told);
        }
    }

    /// Takes what was done since the sample before, and at a rescan the consumers. Returns `None` at the
    /// first call.
    pub(super) fn sample(&mut self, now: Instant) -> Result<Option<MachineSample>, BlindError> {
        Ok(match self {
            Self::Machine(machine) => machine.sample(now)?,
            Self::Bridge(bridge) => bridge.sample(now)?,
        })
    }

    /// The places of the devices of a resource that consumers load, good until the next rescan.
    pub(super) fn devices_of(&self, storage: &ResourceStorage) -> Vec<usize> {
        match (self, storage) {
            (Self::Machine(machine), ResourceStorage::Machine(storage)) => machine.devices_of(storage),
            (Self::Bridge(bridge), ResourceStorage::Array(part)) => bridge.devices_of(part),
            // A configuration has resources of one kind.
            _ => Vec::new(),
        }
    }

    /// A device, by its place of [`devices_of`](Self::devices_of).
    pub(super) fn device(&self, place: usize) -> &WatchedDevice {
        match self {
            Self::Machine(machine) => machine.device(place),
            Self::Bridge(bridge) => bridge.device(place),
        }
    }

    /// Returns true if the storage is there. An array's is there when a consumer uses it.
    pub(super) fn has(&self, storage: &ResourceStorage) -> bool {
        match (self, storage) {
            (Self::Machine(machine), ResourceStorage::Machine(storage)) => machine.has(storage),
            _ => !self.devices_of(storage).is_empty(),
        }
    }

    /// A block device's number, while it is there.
    pub(super) fn number(&self, device: &str) -> Option<DeviceNumber> {
        self.machine()?.number(device)
    }

    /// A block device's name, while it is there.
    pub(super) fn name(&self, number: DeviceNumber) -> Option<&str> {
        Some(&self.machine()?.volumes().get(number)?.name)
    }

    /// Returns the load of any device since the sample before; `None` if that is not known.
    pub(super) fn did(&self, number: DeviceNumber) -> Option<DiskDelta> {
        self.machine()?.did(number)
    }

    /// Returns a device, with the reason, if the kernel does not count its requests now.
    pub(super) fn uncounted(&self, number: DeviceNumber) -> Option<UncountedDevice> {
        self.machine()?.uncounted(number)
    }

    /// Returns the devices of a storage whose requests the kernel does not count now, whether or not consumers load
    /// them.
    pub(super) fn uncounted_of(&self, storage: &ResourceStorage) -> Vec<UncountedDevice> {
        match (self, storage) {
            (Self::Machine(machine), ResourceStorage::Machine(storage)) => machine.uncounted_of(storage),
            _ => Vec::new(),
        }
    }

    /// The addresses from which a consumer uses a device, by its place: packets to its other addresses are of
    /// other devices.
    pub(super) fn paths(&self, place: usize, name: &ConsumerName) -> Vec<IpAddr> {
        match self {
            Self::Machine(machine) => {
                let number = machine.device(place).number();
                number.into_iter().flat_map(|number| machine.addresses().towards(name, number)).collect()
            }
            // Each use of a LUN is a device.
            Self::Bridge(bridge) => bridge.sessions().sessions[place].addresses.clone(),
        }
    }

    pub(super) fn addresses(&self) -> &ConsumerAddresses {
        match self {
            Self::Machine(machine) => machine.addresses(),
            Self::Bridge(bridge) => bridge.addresses(),
        }
    }

    /// Sessions of a resource whose writes cannot be limited (`throttle = "rate"`).
    pub(super) fn beyond_limits(&self, storage: &ResourceStorage) -> impl Iterator<Item = &TargetSession> {
        let found = match (self, storage) {
            (Self::Machine(machine), ResourceStorage::Machine(storage)) => {
                Some(machine.beyond_limits(storage))
            }
            _ => None,
        };
        found.into_iter().flatten()
    }

    /// Returns the sessions that the targets showed, and the state of each kind of target.
    pub(super) fn sessions(&self) -> &TargetSessions {
        match self {
            Self::Machine(machine) => machine.sessions(),
            Self::Bridge(bridge) => bridge.sessions(),
        }
    }

    /// The sensor of packets, if there is one.
    pub(super) fn bridge(&self) -> Option<&BridgeWatch> {
        match self {
            Self::Machine(_) => None,
            Self::Bridge(bridge) => Some(bridge),
        }
    }

    fn machine(&self) -> Option<&MachineWatch> {
        match self {
            Self::Machine(machine) => Some(machine),
            Self::Bridge(_) => None,
        }
    }
}
