//! Entries of a journal.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_control::{Commands, Contract, Observation};
use tidegate_units::{ByteRate, ConsumerName, Instant, Iops, Latency, ResourceName, Shares, Window};

use crate::time::WallTime;

/// One entry of a journal, with its time of day.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalEntry {
    /// Time of the entry. Entries of one resource are in the order of their times; entries of several are
    /// nearly so.
    pub time: WallTime,
    /// Content of the entry.
    pub content: EntryContent,
}

/// Content of an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryContent {
    /// The state of a resource's loop. Decisions after it follow from it.
    Checkpoint(CheckpointRecord),
    /// A decision on a resource.
    Decision(DecisionRecord),
    /// An action of an operator or of the service.
    Action(ActionRecord),
    /// Entries that are missing here.
    Gap(GapRecord),
}

impl JournalEntry {
    /// Returns the resource that the entry is about; `None` if it is about all of them.
    #[must_use]
    pub fn resource(&self) -> Option<&ResourceName> {
        match &self.content {
            EntryContent::Checkpoint(checkpoint) => Some(&checkpoint.resource),
            EntryContent::Decision(decision) => Some(decision.resource()),
            EntryContent::Action(action) => action.resource.as_ref(),
            EntryContent::Gap(_) => None,
        }
    }
}

/// The state of a resource's loop, with its configuration. [`LoopReplay`](crate::LoopReplay) reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointRecord {
    /// Resource that the loop regulates.
    pub resource: ResourceName,
    /// Build that wrote the state.
    pub build: String,
    /// Mechanism that carries out the commands.
    pub mechanism: ThrottleMechanism,
    /// The loop in MessagePack, with names of fields.
    pub state: Vec<u8>,
}

/// A decision with its inputs. Consecutive decisions without a change share their content.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRecord {
    /// Time of the observation.
    pub at: Instant,
    pub(crate) body: Arc<DecisionBody>,
}

impl DecisionRecord {
    /// Returns the resource decided on.
    #[must_use]
    pub fn resource(&self) -> &ResourceName {
        &self.body.observation.resource
    }

    /// Returns the complete observation that the loop was given.
    #[must_use]
    pub fn observation(&self) -> Observation {
        Observation { at: self.at, ..self.body.observation.clone() }
    }

    /// Returns the time that the loop was told. As a rule it is the time of the observation.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.at.as_nanos().wrapping_add_signed(self.body.lag))
    }

    /// Returns the commands that resulted.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.body.commands
    }

    /// Returns the throttle as it was read back before this decision, if it was.
    #[must_use]
    pub fn reading(&self) -> Option<&ThrottleReading> {
        self.body.reading.as_ref()
    }

    /// Returns the number of throttled consumers, as the service published it. The service knows the depth of
    /// a queue, which the loop does not.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.body.held
    }
}

/// Mechanism that carries out the commands on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleMechanism {
    /// Requests wait in the queue of the gateway.
    #[default]
    Queue,
    /// Packets that go to consumers are delayed.
    PacketDelay,
    /// Writes wait in front of their device. Each device has one limit for all its consumers together.
    DeviceLimit,
    /// Requests of cgroups wait in front of the device. Each cgroup has limits of its own.
    CgroupLimit,
}

/// Limits that were in force when the throttle was read back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThrottleReading {
    /// The window of all throttled consumers together, if the throttle has one.
    pub window: Option<Window>,
    /// The consumers for which the throttle shows anything.
    pub consumers: Vec<ConsumerReading>,
}

/// Limits of one consumer when the throttle was read back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerReading {
    /// Name of the consumer.
    pub name: ConsumerName,
    /// Delay of each request, or of each packet. `None`: none.
    pub delay: Option<Latency>,
    /// Limit of its reads.
    pub reads: LimitReading,
    /// Limit of its writes. Where it is one of devices, it is of all consumers of these devices together.
    pub writes: LimitReading,
}

impl ConsumerReading {
    pub(crate) fn is_unlimited(&self) -> bool {
        let none = LimitReading::default();
        self.delay.is_none() && self.reads == none && self.writes == none
    }

    /// Creates the reading of a consumer that nothing throttles.
    #[must_use]
    pub const fn unlimited(name: ConsumerName) -> Self {
        let none = LimitReading { rate: None, bytes: None };
        Self { name, delay: None, reads: none, writes: none }
    }
}

/// Limit of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitReading {
    /// Requests per second. `None`: no limit.
    pub rate: Option<Iops>,
    /// Bytes per second. `None`: no limit.
    pub bytes: Option<ByteRate>,
}

/// An action beside the loop: a reload, a release by hand, an override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionRecord {
    /// Resource that it is about. `None`: all.
    pub resource: Option<ResourceName>,
    /// Actor, as far as it is known: a user, a token's name, a signal.
    pub actor: String,
    /// The action in words.
    pub text: String,
}

impl ActionRecord {
    /// The longest actor and the longest text, in bytes. Longer ones are cut.
    pub const LONGEST: usize = 4_096;
}

/// Entries that were dropped before this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GapRecord {
    /// Time at which the first of them was dropped.
    pub from: WallTime,
    /// Number of dropped entries.
    pub entries: u64,
    /// Reason why the last of them was dropped.
    pub cause: GapCause,
}

/// Reason for a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapCause {
    /// The writer was behind, and its queue full.
    Queue,
    /// The file could not be written.
    Write,
    /// A decision came without a checkpoint before it.
    Late,
}

/// A decision and its inputs, apart from its time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecisionBody {
    pub(crate) observation: Observation,
    pub(crate) reading: Option<ThrottleReading>,
    pub(crate) commands: Commands,
    pub(crate) held: u32,
    /// Time that the loop was told, less the time of the observation, in nanoseconds.
    pub(crate) lag: i64,
}

/// Parts of a consumer's observation that seldom change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedTerms {
    pub(crate) name: ConsumerName,
    pub(crate) shares: Shares,
    pub(crate) contract: Option<Contract>,
    pub(crate) goal: Option<Latency>,
    pub(crate) protected: bool,
}

/// Returns true if both are the same, bit for bit: zeros of different signs are equal.
pub(crate) fn same_commands(one: &Commands, other: &Commands) -> bool {
    let bits = |commands: &Commands| {
        let window = commands.window.map_or(0, |window| window.get().to_bits());
        let rates = commands.consumers.iter().map(|command| command.rate.map_or(0, iops_bits));
        rates.fold(window, |sum, bits| sum.rotate_left(1) ^ bits)
    };
    one == other && bits(one) == bits(other)
}

pub(crate) fn iops_bits(rate: Iops) -> u64 {
    rate.per_second().to_bits()
}
