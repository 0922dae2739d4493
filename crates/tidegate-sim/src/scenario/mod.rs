//! What is simulated: arrays, hosts, virtual machines with their workloads, and the network between the
//! hosts.
//!
//! A [`Scenario`] is read from a text ([`Scenario::parse`]), or put together in code: its fields are public,
//! and [`simulate`](crate::simulate) checks what it is given. Names refer to each other; nothing depends on
//! positions, except that virtual disks without an offset lie on their array in the order of the virtual
//! machines.

mod read;
mod workload;

use std::time::Duration;

use tidegate_control::{Contract, LoopConfig};
use tidegate_device::DeviceConfig;
use tidegate_sched::{Batch, Cost, Discipline, Limit, Release};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares};

pub use read::{DEVICE_KEYS, Files, InvalidScenario, SpanError, device, schema};
pub use workload::{
    Arrivals, Cycle, Durability, Region, Sizes, Spacing, Step, Think, ThinkTime, TraceRecord, Workload,
};

/// Everything that decides a simulation, but for the seed that may be given with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it is called in results.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// How long it lasts.
    pub duration: Duration,
    /// What is left out of the statistics at its beginning. The time series has it.
    pub warmup: Duration,
    /// The seed of everything random where none is given.
    pub seed: u64,
    /// The interval of the time series, and what a response time is averaged over to be judged against the
    /// target.
    pub series_interval: Duration,
    /// The storage.
    pub arrays: Vec<Array>,
    /// Virtual disks that several virtual machines share.
    pub disks: Vec<SharedDisk>,
    /// Who issues requests to the storage, and regulates itself.
    pub hosts: Vec<Host>,
    /// The consumers.
    pub vms: Vec<Vm>,
    /// What the hosts tell each other passes through it.
    pub network: Network,
}

impl Scenario {
    /// An empty scenario: add arrays, hosts and virtual machines.
    #[must_use]
    pub fn new(name: &str, duration: Duration) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            duration,
            warmup: Duration::ZERO,
            seed: 1,
            series_interval: Duration::from_secs(1),
            arrays: Vec::new(),
            disks: Vec::new(),
            hosts: Vec::new(),
            vms: Vec::new(),
            network: Network::default(),
        }
    }
}

/// A storage array, as one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// The resource.
    pub name: ResourceName,
    /// Its model.
    pub device: DeviceConfig,
    /// What becomes of it in time.
    pub changes: Vec<ArrayChange>,
}

/// From a time on an array is another one.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayChange {
    /// When.
    pub at: Instant,
    /// What it becomes.
    pub to: Becomes,
}

/// What an array becomes.
#[derive(Debug, Clone, PartialEq)]
pub enum Becomes {
    /// Faster or slower: what all servers of an exponential one together complete per second from then on.
    /// What is in service goes on at the new rate.
    Rate(Iops),
    /// Another storage: the data have moved, from disk to cache or to more disks. What is under way completes
    /// where it is.
    Device(DeviceConfig),
}

/// From a time on a virtual machine is to have another response time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoalChange {
    /// When.
    pub at: Instant,
    /// The response time.
    pub goal: Latency,
}

/// A stretch of time, from its beginning to before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its beginning.
    pub from: Instant,
    /// Its end; [`Instant::MAX`]: none.
    pub to: Instant,
}

impl Span {
    /// All of time.
    pub const ALWAYS: Self = Self { from: Instant::ZERO, to: Instant::MAX };

    /// Whether a time is in it.
    #[must_use]
    pub fn contains(&self, at: Instant) -> bool {
        self.from <= at && at < self.to
    }
}

/// A host: for each array that its virtual machines use it has an issue queue, a scheduler and, for its main
/// array, a control loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// Its main array: the one that it regulates, and where its virtual machines' disks are unless they say
    /// otherwise.
    pub array: ResourceName,
    /// How it regulates itself; the resource is taken from `array`. `None`: an uncontrolled host.
    pub law: Option<LoopConfig>,
    /// Whose response times its law steers by.
    pub signal: SignalSource,
    /// What one control loop is for.
    pub scope: Scope,
    /// The greatest number of requests outstanding at the array: what a law works below, and all there is
    /// without one.
    pub depth: u32,
    /// Which tags decide who is next.
    pub discipline: Discipline,
    /// Whether, and how long, its scheduler stays with one virtual machine.
    pub batch: Option<Batch>,
    /// How requests are released where the law commands rates.
    pub release: Release,
    /// What a virtual machine may save up while it is idle.
    pub idle_credit: Cost,
    /// How long after the others it takes its steps. Hosts with the same interval and phase step at the same
    /// time.
    pub phase: Duration,
    /// When its law decides for the first time. Until then the host is uncontrolled, and tells the others
    /// nothing.
    pub law_from: Instant,
    /// When it is down: its virtual machines with it, its requests forgotten, its law begun anew afterwards.
    pub down: Vec<Span>,
    /// A host that tells the others something else than it measured: its response times times this. Not
    /// finite or negative counts as 1.
    pub reported_factor: f64,
}

impl Host {
    /// A host without a law, with a depth of 64 (PARDA §5), batches as by default and no credit.
    #[must_use]
    pub fn new(name: HostName, array: ResourceName) -> Self {
        Self {
            name,
            array,
            law: None,
            signal: SignalSource::default(),
            scope: Scope::default(),
            depth: Self::DEFAULT_DEPTH,
            discipline: Discipline::default(),
            batch: Some(Batch::default()),
            release: Release::default(),
            idle_credit: Cost::ZERO,
            phase: Duration::ZERO,
            law_from: Instant::ZERO,
            down: Vec::new(),
            reported_factor: 1.0,
        }
    }

    /// The usual length of an issue queue per LUN (PARDA §2).
    pub const DEFAULT_DEPTH: u32 = 64;
}

/// Whose response times a law steers by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignalSource {
    /// Those of this host alone.
    Local,
    /// The mean over all hosts on the array that do the same, as far as they are heard.
    #[default]
    Cluster,
}

/// What one control loop is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// The host: one window, which its scheduler divides among its virtual machines.
    #[default]
    Host,
    /// Each virtual machine: a window each (PARDA §3.3, "PARDA flow control at the VM level").
    Vm,
}

/// A virtual machine: a consumer.
#[derive(Debug, Clone, PartialEq)]
pub struct Vm {
    /// Its name.
    pub name: ConsumerName,
    /// Where it runs.
    pub host: HostName,
    /// What it is entitled to.
    pub shares: Shares,
    /// Never held back; its reads are what its host's law keeps fast.
    pub protected: bool,
    /// What goes before all shares, in requests of up to 64 KiB per second.
    pub reservation: Option<Iops>,
    /// A ceiling that no law lifts.
    pub limit: Option<Limit>,
    /// What is promised to it, where its host's law keeps contracts.
    pub contract: Option<Contract>,
    /// The response time that it is to have, where its host's law is the self-tuning one. `None`: the host's
    /// target.
    pub goal: Option<Latency>,
    /// Changes of that; before the first it is `goal`.
    pub goal_changes: Vec<GoalChange>,
    /// σ: how many requests may be released at once after a pause, where its host's law commands rates.
    pub bucket: u32,
    /// Its virtual disks; the steps of its workloads refer to them by position. At least one.
    pub disks: Vec<Disk>,
    /// What it does, each independently of the others but for [`Arrivals::After`].
    pub workloads: Vec<Workload>,
    /// When it is on.
    pub on: Vec<Span>,
}

impl Vm {
    /// A virtual machine with 100 shares, on from beginning to end, that does nothing yet.
    #[must_use]
    pub fn new(name: ConsumerName, host: HostName, disk: Disk) -> Self {
        Self {
            name,
            host,
            shares: Shares::DEFAULT,
            protected: false,
            reservation: None,
            limit: None,
            contract: None,
            goal: None,
            goal_changes: Vec::new(),
            bucket: Release::USUAL_SIZE,
            disks: vec![disk],
            workloads: Vec::new(),
            on: vec![Span::ALWAYS],
        }
    }
}

/// A virtual disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The array on which it lies; `None`: its host's main array.
    pub array: Option<ResourceName>,
    /// Where it lies.
    pub place: Place,
}

impl Disk {
    /// PARDA's virtual machines have disks of 16 GB (§4.1).
    pub const DEFAULT_SIZE: Bytes = Bytes::from_gib(16);
}

impl Default for Disk {
    fn default() -> Self {
        Self { array: None, place: Place::InOrder { size: Self::DEFAULT_SIZE } }
    }
}

/// Where a virtual disk lies on its array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Behind the one before it, from the array's beginning on.
    InOrder {
        /// Its size.
        size: Bytes,
    },
    /// There.
    At {
        /// Its first byte on the array.
        offset: Bytes,
        /// Its size.
        size: Bytes,
    },
    /// It is the shared disk of this name, whatever array that lies on.
    Shared(String),
}

/// A virtual disk that several virtual machines use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedDisk {
    /// What it is called.
    pub name: String,
    /// The array on which it lies.
    pub array: ResourceName,
    /// Its first byte on the array; `None`: it lies in order, before those of the virtual machines.
    pub offset: Option<Bytes>,
    /// Its size.
    pub size: Bytes,
}

/// What the hosts tell each other passes through it. As it is by default all hear everything at once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Network {
    /// How long a message takes.
    pub delay: Latency,
    /// Up to how much longer, uniformly.
    pub jitter: Latency,
    /// The part of messages that is lost, 0 to 1.
    pub loss: f64,
    /// When and between whom nothing passes.
    pub partitions: Vec<Partition>,
}

impl Network {
    /// Whether all hosts always hear the same, at once.
    #[must_use]
    pub fn is_ideal(&self) -> bool {
        self.delay == Latency::ZERO
            && self.jitter == Latency::ZERO
            && self.loss <= 0.0
            && self.partitions.is_empty()
    }
}

/// For a time these hosts and all others do not hear each other. Among themselves both sides do.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// When.
    pub during: Span,
    /// Who is cut off.
    pub hosts: Vec<HostName>,
}
