//! The parts of a simulation: arrays, hosts, virtual machines with their workloads, and the network between
//! the hosts.
//!
//! A [`Scenario`] is read from a text ([`Scenario::parse`]), or put together in code: its fields are public,
//! and [`simulate`](crate::simulate) checks it. Names refer to each other, and nothing depends on positions.
//! The one exception is that virtual disks without an offset lie on their array in the order of the virtual
//! machines.

mod read;
mod workload;

use std::time::Duration;

use tidegate_control::{Contract, LoopConfig, SignalStatistic};
use tidegate_device::DeviceConfig;
use tidegate_sched::{BucketRelease, ConsumerLimit, Discipline, FlowBatch, RequestCost};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares};

pub use read::{DEVICE_KEYS, InvalidScenario, ScenarioFiles, SpanError, device, schema};
pub use workload::{
    ActivityCycle, ArrivalSpacing, DiskRegion, Durability, OperationArrivals, OperationStep, SizeWeights,
    ThinkTime, ThinkTiming, TraceRecord, Workload,
};

/// Everything that decides a simulation, but for the seed that may be given with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Name of the scenario in results.
    pub name: String,
    /// Purpose of the scenario.
    pub description: String,
    /// Simulated time, warm-up included.
    pub duration: Duration,
    /// Time at the beginning that the statistics leave out. The time series has it.
    pub warmup: Duration,
    /// The seed of everything random where none is given.
    pub seed: u64,
    /// Interval of the time series. Response times are averaged over it to be judged against the target.
    pub series_interval: Duration,
    /// The storage.
    pub arrays: Vec<ScenarioArray>,
    /// Virtual disks that several virtual machines share.
    pub disks: Vec<SharedDisk>,
    /// Hosts that issue requests to the storage, and regulate themselves.
    pub hosts: Vec<ScenarioHost>,
    /// The consumers.
    pub vms: Vec<VirtualMachine>,
    /// Network that carries the hosts' reports to each other.
    pub network: ReportNetwork,
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
            network: ReportNetwork::default(),
        }
    }

    /// Returns true if some virtual machines are judged by a percentile.
    #[must_use]
    pub fn has_percentiles(&self) -> bool {
        self.hosts.iter().any(|host| host.statistic != SignalStatistic::Mean)
    }
}

/// A storage array, as one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioArray {
    /// The resource.
    pub name: ResourceName,
    /// Its model.
    pub device: DeviceConfig,
    /// Changes of the array in time.
    pub changes: Vec<ArrayChange>,
}

/// Replacement of an array by another one, from a time on.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayChange {
    /// Time of the change.
    pub at: Instant,
    /// The array's new speed or model.
    pub to: ChangedArray,
}

/// A new speed or model of an array.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangedArray {
    /// Requests per second that all servers of an exponential array together complete from then on. Requests
    /// in service continue at the new rate.
    Rate(Iops),
    /// Another storage: the data has moved, from disk to cache or to more disks. Requests under way complete
    /// where they are.
    Device(DeviceConfig),
}

/// A new response time that a virtual machine is to have from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoalChange {
    /// Time of the change.
    pub at: Instant,
    /// The response time.
    pub goal: Latency,
}

/// A stretch of time, from its beginning to before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioSpan {
    /// Its beginning.
    pub from: Instant,
    /// Its end; [`Instant::MAX`]: none.
    pub to: Instant,
}

impl ScenarioSpan {
    /// All of time.
    pub const ALWAYS: Self = Self { from: Instant::ZERO, to: Instant::MAX };

    /// Returns true if a time is in it.
    #[must_use]
    pub fn contains(&self, at: Instant) -> bool {
        self.from <= at && at < self.to
    }
}

/// A host. For each array that its virtual machines use it has an issue queue, a scheduler and, for its main
/// array, a control loop.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioHost {
    /// Its name.
    pub name: HostName,
    /// Its main array. The host regulates this one, and its virtual machines' disks are there unless they say
    /// otherwise.
    pub array: ResourceName,
    /// Control law; the resource is taken from `array`. `None`: an uncontrolled host.
    pub law: Option<LoopConfig>,
    /// Statistic by which its virtual machines are judged, under any law and without one. The time series
    /// states it. The law steers by its own, which is the same unless the law knows means only.
    pub statistic: SignalStatistic,
    /// Source of the response times by which its law steers.
    pub signal: SignalSource,
    /// Unit that has a control loop of its own.
    pub scope: LawScope,
    /// Greatest number of requests outstanding at the array: the upper bound of a law's window, or the whole
    /// window without a law.
    pub depth: u32,
    /// Tags by which the scheduler chooses the next request.
    pub discipline: Discipline,
    /// Batches of its scheduler, which stays with one virtual machine for so long. `None`: no batches.
    pub batch: Option<FlowBatch>,
    /// Rule for the release of requests where the law commands rates.
    pub release: BucketRelease,
    /// Greatest credit that a virtual machine saves up while it is idle.
    pub idle_credit: RequestCost,
    /// Time by which it takes its steps later than the others. Hosts with the same interval and phase step at
    /// the same time.
    pub phase: Duration,
    /// Time at which its law decides for the first time. Until then the host is uncontrolled, and tells the
    /// others nothing.
    pub law_from: Instant,
    /// Times at which it is down: its virtual machines with it, its requests forgotten, its law begun anew
    /// afterwards.
    pub down: Vec<ScenarioSpan>,
    /// Factor by which the response times that it reports to others differ from its measurements. A factor
    /// that is negative or not finite counts as 1.
    pub reported_factor: f64,
}

impl ScenarioHost {
    /// A host without a law, with a depth of 64 (PARDA §5), batches as by default and no credit.
    #[must_use]
    pub fn new(name: HostName, array: ResourceName) -> Self {
        Self {
            name,
            array,
            law: None,
            statistic: SignalStatistic::default(),
            signal: SignalSource::default(),
            scope: LawScope::default(),
            depth: Self::DEFAULT_DEPTH,
            discipline: Discipline::default(),
            batch: Some(FlowBatch::default()),
            release: BucketRelease::default(),
            idle_credit: RequestCost::ZERO,
            phase: Duration::ZERO,
            law_from: Instant::ZERO,
            down: Vec::new(),
            reported_factor: 1.0,
        }
    }

    /// The usual length of an issue queue per LUN (PARDA §2).
    pub const DEFAULT_DEPTH: u32 = 64;
}

/// Source of the response times by which a law steers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignalSource {
    /// This host alone.
    Local,
    /// The mean over all hosts on the array with the same source, as far as they are heard.
    #[default]
    Cluster,
}

/// Unit that has a control loop of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LawScope {
    /// The host: one window, which its scheduler divides among its virtual machines.
    #[default]
    Host,
    /// Each virtual machine: a window each (PARDA §3.3, "PARDA flow control at the VM level").
    Vm,
}

/// A virtual machine: a consumer.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualMachine {
    /// Its name.
    pub name: ConsumerName,
    /// The host on which it runs.
    pub host: HostName,
    /// Shares to which it is entitled.
    pub shares: Shares,
    /// True if it is never throttled; its host's law keeps its reads fast.
    pub protected: bool,
    /// Rate that goes before all shares, in requests of up to 64 KiB per second.
    pub reservation: Option<Iops>,
    /// A ceiling that no law lifts.
    pub limit: Option<ConsumerLimit>,
    /// Contract with it, where its host's law keeps contracts.
    pub contract: Option<Contract>,
    /// Response time that it is to have, where its host's law is the self-tuning one. `None`: the host's
    /// target.
    pub goal: Option<Latency>,
    /// Changes of the goal; before the first it is `goal`.
    pub goal_changes: Vec<GoalChange>,
    /// σ: number of requests that may be released at once after a pause, where its host's law commands rates.
    pub bucket: u32,
    /// Its virtual disks; the steps of its workloads refer to them by position. At least one.
    pub disks: Vec<VirtualDisk>,
    /// Its workloads, each independent of the others but for [`OperationArrivals::After`].
    pub workloads: Vec<Workload>,
    /// Times at which it is on.
    pub on: Vec<ScenarioSpan>,
}

impl VirtualMachine {
    /// A virtual machine with 100 shares, on from beginning to end, that does nothing yet.
    #[must_use]
    pub fn new(name: ConsumerName, host: HostName, disk: VirtualDisk) -> Self {
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
            bucket: BucketRelease::USUAL_SIZE,
            disks: vec![disk],
            workloads: Vec::new(),
            on: vec![ScenarioSpan::ALWAYS],
        }
    }
}

/// A virtual disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualDisk {
    /// The array on which it lies; `None`: its host's main array.
    pub array: Option<ResourceName>,
    /// Its place on the array.
    pub place: DiskPlace,
}

impl VirtualDisk {
    /// Size of the disks of PARDA's virtual machines: 16 GB (§4.1).
    pub const DEFAULT_SIZE: Bytes = Bytes::from_gib(16);
}

impl Default for VirtualDisk {
    fn default() -> Self {
        Self { array: None, place: DiskPlace::InOrder { size: Self::DEFAULT_SIZE } }
    }
}

/// The place of a virtual disk on its array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskPlace {
    /// The disk lies behind the one before it, from the array's beginning on.
    InOrder {
        /// Its size.
        size: Bytes,
    },
    /// The disk lies at a given offset.
    At {
        /// Its first byte on the array.
        offset: Bytes,
        /// Its size.
        size: Bytes,
    },
    /// The disk is the shared one of this name, on any array.
    Shared(String),
}

/// A virtual disk that several virtual machines use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedDisk {
    /// Its name.
    pub name: String,
    /// The array on which it lies.
    pub array: ResourceName,
    /// Its first byte on the array; `None`: it lies in order, before those of the virtual machines.
    pub offset: Option<Bytes>,
    /// Its size.
    pub size: Bytes,
}

/// The network that carries the hosts' reports to each other. By default all hosts hear everything at once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReportNetwork {
    /// Least time that a message takes.
    pub delay: Latency,
    /// Greatest additional time of a message, distributed uniformly.
    pub jitter: Latency,
    /// The fraction of messages that is lost, 0 to 1.
    pub loss: f64,
    /// Times at which some hosts are cut off from the others.
    pub partitions: Vec<NetworkPartition>,
}

impl ReportNetwork {
    /// Returns true if all hosts always hear the same, at once.
    #[must_use]
    pub fn is_ideal(&self) -> bool {
        self.delay == Latency::ZERO
            && self.jitter == Latency::ZERO
            && self.loss <= 0.0
            && self.partitions.is_empty()
    }
}

/// A time in which these hosts and all others do not hear each other. Hosts on the same side do.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPartition {
    /// The time.
    pub during: ScenarioSpan,
    /// The hosts that are cut off.
    pub hosts: Vec<HostName>,
}
