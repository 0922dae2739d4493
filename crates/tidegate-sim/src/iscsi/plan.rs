//! What is simulated: machines and what they do, the network, the storage, and who is delayed.

use std::time::Duration;

use thiserror::Error;
use tidegate_control::{LoopConfig, WritersConfig};
use tidegate_device::DeviceConfig;
use tidegate_units::{ByteRate, Bytes, ConsumerName, Latency};

use super::egress::Packets;
use super::protocol::Protocol;

/// At most so many machines, loads on all of them, requests that one load has outstanding, steps of a
/// timetable, and rows of the time series: what is kept of each is bounded thereby.
const MACHINES: usize = 64;
const LOADS: usize = 1024;
const DEPTH: u32 = 1024;
const STEPS: usize = 4096;
const ROWS: u128 = 1 << 20;

/// A simulation of machines that use one iSCSI target.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// How long it lasts at most. It ends sooner when all loads have moved their amounts.
    pub duration: Duration,
    /// The interval of the time series.
    pub sample: Duration,
    /// The storage behind the target.
    pub store: Store,
    /// What lies between.
    pub network: Network,
    /// What both sides agreed on.
    pub protocol: Protocol,
    /// The initiators, each with a session of one connection.
    pub machines: Vec<ConsumerName>,
    /// What they do.
    pub loads: Vec<Load>,
    /// Who is delayed.
    pub throttle: Throttle,
}

/// The storage.
#[derive(Debug, Clone, PartialEq)]
pub enum Store {
    /// A device model.
    Device(DeviceConfig),
    /// Servers in order of arrival, striped: the lab's array (`lab/experiments/iscsi.py`).
    Servers {
        /// How many.
        servers: u32,
        /// What each takes for a request, whatever its size.
        service: Latency,
        /// How much of each before the next.
        stripe: Bytes,
    },
}

/// TCP and the wire. Nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// What may be under way to the target.
    pub window_up: Bytes,
    /// What may be under way from it.
    pub window_down: Bytes,
    /// What the wire carries to the target, all connections together.
    pub rate_up: ByteRate,
    /// And from it.
    pub rate_down: ByteRate,
    /// One way, beside that.
    pub latency: Latency,
}

/// What a machine does, one of possibly several things at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Which machine, by its place.
    pub machine: usize,
    /// Reads or writes.
    pub write: bool,
    /// The size of a request.
    pub block: Bytes,
    /// Requests outstanding.
    pub depth: u32,
    /// From the beginning to the end of its area, and again; or anywhere in it.
    pub sequential: bool,
    /// Where its area begins.
    pub start: Bytes,
    /// How large it is.
    pub size: Bytes,
    /// From an answer to the next request.
    pub think: Latency,
    /// From one request to the next at least, at each place of `depth`.
    pub every: Latency,
    /// When.
    pub when: When,
    /// How much to move; `None`: as long as it lasts.
    pub amount: Option<Bytes>,
}

/// When a load is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// From a time on.
    From(Duration),
    /// When another load, by its place, has moved its amount.
    After(usize),
    /// From a time on so long, then as long not as is said, and so on. What is under way at the end of a
    /// burst is completed.
    Bursts {
        /// The first.
        from: Duration,
        /// How long one lasts.
        on: Duration,
        /// How long the pause.
        off: Duration,
    },
}

/// Who is delayed, and by whom.
#[derive(Debug, Clone, PartialEq)]
pub enum Throttle {
    /// By a timetable.
    Timetable {
        /// Which packets.
        packets: Packets,
        /// From when on, which machine by its place, for how long.
        steps: Vec<(Duration, usize, Latency)>,
    },
    /// By the agent's loop.
    Regulated {
        /// Which packets.
        packets: Packets,
        /// The loop's set-up.
        law: Box<LoopConfig>,
        /// Who may be held.
        members: Members,
    },
}

/// Who may be held.
#[derive(Debug, Clone, PartialEq)]
pub enum Members {
    /// These: the manual sets of Bjørgeengen §3.6.
    Named(Vec<ConsumerName>),
    /// Who writes: the automatic sets of §2.3.1.
    Automatic(WritersConfig),
}

impl Plan {
    /// Checks what the engine relies on.
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
                When::After(other) => other < place && self.loads[other].amount.is_some(),
                When::Bursts { on, .. } => !on.is_zero(),
                When::From(_) => true,
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
        if let Throttle::Timetable { steps, .. } = &self.throttle
            && (steps.len() > STEPS || steps.iter().any(|(_, machine, _)| *machine >= self.machines.len()))
        {
            return Err(InvalidPlan::Timetable);
        }
        Ok(())
    }
}

/// Why a plan cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidPlan {
    /// A time, a rate or a window is zero.
    #[error("durations, rates and windows must be greater than zero")]
    Nothing,
    /// The time series would be too long.
    #[error("a time series of at most {ROWS} rows can be kept")]
    Rows,
    /// There are none, or too many.
    #[error(
        "1 to {MACHINES} machines and at most {LOADS} loads can be simulated, there are {machines} and {loads}"
    )]
    Many {
        /// How many machines.
        machines: usize,
        /// How many loads.
        loads: usize,
    },
    /// A load cannot run.
    #[error(
        "load {0} names a machine or a load that is not there, or asks for nothing, or for too much at once"
    )]
    Load(usize),
    /// A step of the timetable is about nobody, or there are too many.
    #[error("the timetable names a machine that is not there, or has more than {STEPS} steps")]
    Timetable,
    /// The storage.
    #[error(transparent)]
    Store(#[from] tidegate_device::ConfigError),
    /// A request does not lie on the storage.
    #[error(transparent)]
    Request(#[from] tidegate_device::SubmitError),
    /// The loop.
    #[error(transparent)]
    Law(#[from] tidegate_control::LoopConfigError),
    /// The sets of writers.
    #[error(transparent)]
    Writers(#[from] tidegate_control::WritersConfigError),
}
