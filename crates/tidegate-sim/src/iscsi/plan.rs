//! The parts of a simulation: machines and their loads, the network, the storage, and the throttle.

use std::time::Duration;

use thiserror::Error;
use tidegate_control::{BulkConfig, LoopConfig};
use tidegate_device::DeviceConfig;
use tidegate_units::{ByteRate, Bytes, ConsumerName, Latency};

use super::egress::PacketClasses;
use super::protocol::IscsiProtocol;

/// Greatest numbers of things, which bound the memory. They are machines, loads on all of them, outstanding
/// requests of one load, steps of a timetable, and rows of the time series.
const MACHINES: usize = 64;
const LOADS: usize = 1024;
const DEPTH: u32 = 1024;
const STEPS: usize = 4096;
const ROWS: u128 = 1 << 20;

/// A simulation of machines that use one iSCSI target.
#[derive(Debug, Clone, PartialEq)]
pub struct IscsiPlan {
    /// Its name.
    pub name: String,
    /// Greatest simulated time. The simulation ends sooner when all loads have moved their amounts.
    pub duration: Duration,
    /// The interval of the time series.
    pub sample: Duration,
    /// The storage behind the target.
    pub store: StoreModel,
    /// The network between initiators and target.
    pub network: TcpNetwork,
    /// Parameters that both sides agreed on.
    pub protocol: IscsiProtocol,
    /// The initiators, each with a session of one connection.
    pub machines: Vec<ConsumerName>,
    /// Loads of the machines.
    pub loads: Vec<MachineLoad>,
    /// The delays, and the machines that have them.
    pub throttle: ThrottleRule,
}

/// The storage.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreModel {
    /// A device model.
    Device(DeviceConfig),
    /// Servers in order of arrival, striped: the lab's array (`lab/experiments/shared/iscsi.py`).
    Servers {
        /// Number of servers.
        servers: u32,
        /// Service time of each server for a request, whatever its size.
        service: Latency,
        /// Number of bytes on each server before the next.
        stripe: Bytes,
    },
}

/// TCP and the wire. Nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TcpNetwork {
    /// Bytes that may be under way to the target.
    pub window_up: Bytes,
    /// Bytes that may be under way from the target.
    pub window_down: Bytes,
    /// Rate of the wire to the target, all connections together.
    pub rate_up: ByteRate,
    /// Rate of the wire from the target.
    pub rate_down: ByteRate,
    /// Latency of the wire, one way, in addition to the time for its rate.
    pub latency: Latency,
}

/// One load of a machine, which may have several at once.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineLoad {
    /// The machine, by its place.
    pub machine: usize,
    /// True for writes, false for reads.
    pub write: bool,
    /// The size of a request.
    pub block: Bytes,
    /// Requests outstanding.
    pub depth: u32,
    /// True if it goes from the beginning to the end of its area, and again; false if it goes anywhere in it.
    pub sequential: bool,
    /// Offset of its area.
    pub start: Bytes,
    /// Size of its area.
    pub size: Bytes,
    /// Time from an answer to the next request.
    pub think: Latency,
    /// Least time from one request to the next, at each place of `depth`.
    pub every: Latency,
    /// Times at which it is at work.
    pub when: LoadTimes,
    /// Amount to move; `None`: no limit until the simulation ends.
    pub amount: Option<Bytes>,
}

/// Times at which a load is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadTimes {
    /// At work from a time on.
    From(Duration),
    /// At work after another load, given by its place, has moved its amount.
    After(usize),
    /// At work in bursts from a time on, with pauses between them. A request under way at the end of a burst
    /// is completed.
    Bursts {
        /// Beginning of the first burst.
        from: Duration,
        /// Duration of a burst.
        on: Duration,
        /// Duration of a pause.
        off: Duration,
    },
}

/// The rule that sets delays.
#[derive(Debug, Clone, PartialEq)]
pub enum ThrottleRule {
    /// Delays that a timetable sets.
    Timetable {
        /// Class of the packets that are delayed.
        packets: PacketClasses,
        /// For each step: its time, the machine by its place, and the delay from then on.
        steps: Vec<(Duration, usize, Latency)>,
    },
    /// Delays that the agent's loop sets.
    Regulated {
        /// Class of the packets that are delayed.
        packets: PacketClasses,
        /// The loop's set-up.
        law: Box<LoopConfig>,
        /// Consumers that are eligible for throttling.
        members: MemberRule,
    },
}

/// Consumers that are eligible for throttling.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberRule {
    /// Consumers given by name: the manual sets of Bjørgeengen §3.6.
    Named(Vec<ConsumerName>),
    /// Consumers that write: the automatic sets of §2.3.1.
    Automatic(BulkConfig),
}

impl IscsiPlan {
    /// Checks the conditions that the engine relies on.
    ///
    /// # Errors
    /// The first thing that cannot be simulated.
    pub(super) fn validate(&self) -> Result<(), InvalidPlan> {
        let positive = !self.duration.is_zero()
            && !self.sample.is_zero()
            && self.network.rate_up.per_second() > 0.0
            && self.network.rate_down.per_second() > 0.0;
        if !positive || self.network.window_up == Bytes::ZERO || self.network.window_down == Bytes::ZERO {
            return Err(InvalidPlan::Nothing);
        }
        if self.duration.as_nanos() / self.sample.as_nanos() > ROWS {
            return Err(InvalidPlan::Rows);
        }
        if self.machines.is_empty() || self.machines.len() > MACHINES || self.loads.len() > LOADS {
            return Err(InvalidPlan::Many { machines: self.machines.len(), loads: self.loads.len() });
        }
        for (place, load) in self.loads.iter().enumerate() {
            let after = match load.when {
                LoadTimes::After(other) => other < place && self.loads[other].amount.is_some(),
                LoadTimes::Bursts { on, .. } => !on.is_zero(),
                LoadTimes::From(_) => true,
            };
            let block = load.block.get();
            let sound = load.machine < self.machines.len()
                && (1..=DEPTH).contains(&load.depth)
                && (1..=u64::from(u32::MAX)).contains(&block)
                && block <= load.size.get();
            if !(after && sound) {
                return Err(InvalidPlan::Load(place));
            }
        }
        if let ThrottleRule::Timetable { steps, .. } = &self.throttle
            && (steps.len() > STEPS || steps.iter().any(|(_, machine, _)| *machine >= self.machines.len()))
        {
            return Err(InvalidPlan::Timetable);
        }
        Ok(())
    }
}

/// The reason why a plan cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidPlan {
    /// A time, a rate or a window is zero.
    #[error("durations, rates and windows must be greater than zero")]
    Nothing,
    /// The time series would be too long.
    #[error("a time series of at most {ROWS} rows can be kept")]
    Rows,
    /// There are no machines, or too many machines or loads.
    #[error(
        "1 to {MACHINES} machines and at most {LOADS} loads can be simulated, there are {machines} and \
            {loads}"
    )]
    Many {
        /// Number of machines.
        machines: usize,
        /// Number of loads.
        loads: usize,
    },
    /// A load cannot run.
    #[error(
        "load {0} names a machine or a load that is not there, or asks for nothing, or for too much at once"
    )]
    Load(usize),
    /// A step of the timetable names a machine that is not there, or there are too many steps.
    #[error("the timetable names a machine that is not there, or has more than {STEPS} steps")]
    Timetable,
    /// The storage.
    #[error(transparent)]
    Store(#[from] tidegate_device::DeviceConfigError),
    /// A request does not lie on the storage.
    #[error(transparent)]
    Request(#[from] tidegate_device::SubmitError),
    /// The loop.
    #[error(transparent)]
    Law(#[from] tidegate_control::LoopConfigError),
    /// The sets of writers.
    #[error(transparent)]
    Writers(#[from] tidegate_control::BulkConfigError),
}
