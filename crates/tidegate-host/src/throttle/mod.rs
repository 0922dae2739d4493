//! Holding consumers back, by delaying the packets that go to them (Bjørgeengen §2.1), or by limiting what
//! they write, or do, per second.
//!
//! A consumer that waits longer for its answers sends fewer requests. Nothing is dropped or retransmitted,
//! and nothing is in the data path while nothing is throttled.

mod capability;
pub mod cgroups;
mod edt;
mod guardian;
mod interface;
mod lowering;
mod netem;
mod nft;
mod plan;
mod probe;
mod protocol;
pub mod rate;
mod remedy;
mod table_work;
mod tc;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_units::{Instant, Latency, ResourceName};

use crate::cgroup::IoLimit;
use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};

pub use capability::{CapabilityNeed, KernelCapability};
pub use cgroups::{CgroupDevice, Cgroups};
pub use edt::Edt;
pub use guardian::{Guardian, guard};
pub use interface::consumer_ports;
pub use netem::NetemThrottle;
pub use probe::{lacking, probe};
pub use rate::{Rate, WriteLimit};
pub use undo::{OrphanRelease, RemovedThrottles, are_cgroups_claimed, left_in_kernel, undo, undo_orphaned};

/// The packets to a throttled consumer that are delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DelayedPackets {
    /// All from the storage ports: answers to reads and to writes alike.
    #[default]
    All,
    /// Those without payload: the paper's choice for writes. With today's receive windows it hardly slows any
    /// consumer.
    Acks,
    /// Those without payload, and those that begin with what paces writes, and no read: an R2T or a response
    /// of iSCSI or NVMe/TCP, a short reply of NFS. By the port (3260, 4420, 2049); from any other port, the
    /// beginnings of all three. For consumers that do not both read and write through one session: their read
    /// data would overtake delayed packets, and TCP would take that for loss.
    Responses,
}

/// The mechanisms of throttling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThrottleMethod {
    /// Classes with a delay each, in a device of their own that nftables rules send packets through.
    #[default]
    Netem,
    /// A program gives packets their departure times, and fq holds them until then.
    Edt,
    /// A cgroup has what is written to a device wait in front of it. Packets are not touched.
    Rate,
    /// Limits of control groups make their I/O to a device wait in front of it. Packets are not touched.
    Cgroup,
}

impl fmt::Display for ThrottleMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Netem => "netem",
            Self::Edt => "edt",
            Self::Rate => "rate",
            Self::Cgroup => "cgroup",
        })
    }
}

/// A throttle.
#[derive(Debug)]
pub enum Throttle {
    /// Packet delay by netem.
    Netem(Box<NetemThrottle>),
    /// Packet delay by departure times.
    Edt(Box<Edt>),
    /// Limits of what is written.
    Rate(Box<Rate>),
    /// Limits of cgroups.
    Cgroup(Box<Cgroups>),
}

impl Throttle {
    /// `packets` that come from `ports` are delayed, where packets are. They come from this machine, or from
    /// an array behind the interface `array`. Nothing is in the path yet.
    ///
    /// # Errors
    /// When the kernel cannot be asked, or does not take what the method needs from the beginning.
    pub fn new(
        method: ThrottleMethod,
        packets: DelayedPackets,
        ports: &BTreeSet<u16>,
        array: Option<&str>,
    ) -> io::Result<Self> {
        Ok(match method {
            ThrottleMethod::Netem => {
                Self::Netem(Box::new(NetemThrottle::new(packets, ports.clone(), array)?))
            }
            ThrottleMethod::Edt => Self::Edt(Box::new(Edt::new(packets, ports, array)?)),
            ThrottleMethod::Rate => Self::Rate(Box::new(Rate::new(SystemRoot::default())?)),
            ThrottleMethod::Cgroup => Self::Cgroup(Box::new(Cgroups::new(SystemRoot::default())?)),
        })
    }

    /// Puts the wanted throttles into force, for all resources; one that is not named is released.
    ///
    /// # Errors
    /// When a part could not be done. The rest was done, and the next call tries that part again.
    pub fn apply(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> Result<(), ThrottleError> {
        match self {
            Self::Netem(netem) => netem.apply(now, wanted),
            Self::Edt(edt) => edt.apply(now, wanted),
            Self::Rate(rate) => rate.apply(now, wanted),
            Self::Cgroup(cgroups) => cgroups.apply(now, wanted),
        }
    }

    /// Waits until what the last [`apply`](Self::apply) began is done. Without it, that is awaited by no
    /// call, and its failure is the error of a later one.
    ///
    /// # Errors
    /// When it failed.
    pub fn settle(&mut self) -> Result<(), ThrottleError> {
        match self {
            Self::Netem(netem) => netem.settle(),
            Self::Edt(_) | Self::Rate(_) | Self::Cgroup(_) => Ok(()),
        }
    }

    /// Returns true if any consumer is throttled for a resource as wanted, or if none should be. It is asked
    /// after an [`apply`](Self::apply) that failed: the failure may concern another resource, or one member
    /// of many.
    #[must_use]
    pub fn holds(&self, wanted: &ThrottleRequest) -> bool {
        match self {
            Self::Netem(netem) => netem.holds(wanted),
            Self::Edt(edt) => edt.holds(wanted),
            Self::Rate(rate) => rate.holds(wanted),
            Self::Cgroup(cgroups) => cgroups.holds(wanted),
        }
    }

    /// Returns the state that is in force for a resource, as the kernel confirmed it. It is less than what is
    /// wanted where the throttle failed.
    #[must_use]
    pub fn in_force(&self, wanted: &ThrottleRequest) -> ThrottleInForce {
        match self {
            Self::Netem(netem) => netem.delays_in_force(wanted),
            Self::Edt(edt) => edt.delays_in_force(wanted),
            Self::Rate(rate) => {
                ThrottleInForce { limits: rate.limits_in_force(wanted), ..ThrottleInForce::default() }
            }
            Self::Cgroup(cgroups) => {
                ThrottleInForce { cgroups: cgroups.limits_in_force(wanted), ..ThrottleInForce::default() }
            }
        }
    }

    /// Returns true if consumers may be throttled more than is wanted, because the state in force could not
    /// be changed. It is asked after an [`apply`](Self::apply) of the same that failed. A throttle that can
    /// set nothing new, and releases, is not stuck.
    #[must_use]
    pub fn is_stuck(&self, wanted: &[ThrottleRequest]) -> bool {
        match self {
            Self::Netem(netem) => netem.is_stuck(),
            Self::Edt(edt) => edt.is_stuck(),
            Self::Rate(rate) => rate.is_stuck(),
            Self::Cgroup(cgroups) => cgroups.is_stuck(wanted),
        }
    }
}

/// The state that a throttle should have in force for one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThrottleRequest {
    /// The resource whose consumers they are.
    pub resource: ResourceName,
    /// The members of the resource's set: throttled as soon as there is a delay.
    pub members: BTreeSet<IpAddr>,
    /// The delay of each packet to a member. Zero: none.
    pub delay: Latency,
    /// The delays of members that have one of their own instead.
    pub own_delays: BTreeMap<IpAddr, Latency>,
    /// The limits that [`Rate`] uses instead: of the writes to the devices that members use. A device that is
    /// not named is not limited.
    pub limits: BTreeMap<DeviceNumber, WriteLimit>,
    /// The limits that [`Cgroups`] uses instead: of each of the resource's cgroups for its device. A cgroup
    /// that is not named is released.
    pub cgroups: BTreeMap<CgroupDevice, IoLimit>,
}

impl ThrottleRequest {
    /// Returns true if no packet is to be delayed.
    fn is_released(&self) -> bool {
        let mut delays = self.own_delays.values().chain([&self.delay]);
        self.members.is_empty() || delays.all(|delay| *delay == Latency::ZERO)
    }
}

/// The state that a throttle has in force for one resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThrottleInForce {
    /// The delay of each packet to a member. Zero: none.
    pub delay: Latency,
    /// The delays of members that have one of their own instead.
    pub own_delays: BTreeMap<IpAddr, Latency>,
    /// The limits of writes to devices. A device that is not named is not limited.
    pub limits: BTreeMap<DeviceNumber, WriteLimit>,
    /// The limits of cgroups. A cgroup that is not named is not limited by Tidegate.
    pub cgroups: BTreeMap<CgroupDevice, IoLimit>,
}

/// The reason that a throttle could not do what it was told.
#[derive(Debug, Error)]
pub enum ThrottleError {
    /// Traffic control refused.
    #[error("traffic control of {interface}: {source}")]
    TrafficControl {
        /// The interface, by name where it still has one.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another program shapes the traffic of this interface. It is left as it is, and consumers behind it are
    /// not throttled.
    #[error(
        "{interface} already has a root queueing discipline, {kind} {handle:x}:, which Tidegate did not put \
            there; {remedy}"
    )]
    Foreign {
        /// The interface.
        interface: String,
        /// The kind of discipline.
        kind: String,
        /// The major number of its handle.
        handle: u32,
        /// The remedy.
        remedy: &'static str,
    },
    /// The device that packets wait in is not as it was left.
    #[error("the device {0} was removed, or set down: it is put there anew")]
    Removed(&'static str),
    /// Something else has the name of the device that packets wait in.
    #[error("there is an interface {0} that Tidegate did not put there: rename it")]
    Taken(&'static str),
    /// No route leads to a consumer.
    #[error("no way to {address}: {source}")]
    Unreachable {
        /// The consumer.
        address: IpAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The program that gives departure times, or one of its maps.
    #[error(transparent)]
    Program(io::Error),
    /// More members than the program's maps have room for: these are not throttled.
    #[error("{first} and {others} others are not throttled: there is room for {most} members")]
    NoRoom {
        /// One of them.
        first: IpAddr,
        /// The number of further members.
        others: usize,
        /// The number of members that there is room for.
        most: usize,
    },
    /// nftables refused, or is not there.
    #[error(transparent)]
    Rules(io::Error),
    /// A file of a cgroup's.
    #[error("{}: {source}", path.display())]
    Cgroup {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The limit of a cgroup could not be read.
    #[error(transparent)]
    Limits(#[from] ReadError),
    /// The cgroup that limits cannot be removed, or something else has its name.
    #[error("cannot release limited consumers: {0}")]
    Rates(io::Error),
    /// The kernel has something else than what it was told.
    #[error("{what} is not what was asked for, although nothing was refused")]
    ReadBack {
        /// The part that was read back.
        what: String,
    },
    /// More different delays than the throttle has classes: these members are not throttled.
    #[error("{first} and {others} others are not throttled: there are classes for {most} different delays")]
    NoClass {
        /// One of them.
        first: IpAddr,
        /// The number of further members.
        others: usize,
        /// The number of classes.
        most: u16,
    },
}
