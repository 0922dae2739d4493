//! Replay: recorded observations through the loop again, as it was or with another configuration.
//!
//! The journal keeps observations and commands, and not the decision's figures and reasons. They follow from
//! a checkpoint and the observations, and would cost several times as much as all the rest. A build that
//! decides otherwise than the one that wrote still has both observations and commands.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use thiserror::Error;
use tidegate_control::{Commands, ControlLoop, Decision, LoopConfig};
use tidegate_units::ResourceName;

use crate::error::JournalError;
use crate::reader::{Entries, EntryFilter, JournalReader};
use crate::record::{
    ActionRecord, CheckpointRecord, DecisionRecord, EntryContent, JournalEntry, ThrottleMechanism,
    same_commands,
};
use crate::time::WallTime;

/// Reason why a checkpoint is of no use to this build.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{resource}: the checkpoint by {build} cannot be read by this build: {reason}")]
pub struct CheckpointError {
    /// Resource of the checkpoint.
    pub resource: ResourceName,
    /// Build that wrote it.
    pub build: String,
    /// The reason.
    pub reason: String,
}

impl CheckpointRecord {
    /// Returns the loop as it was.
    ///
    /// # Errors
    /// When another build wrote the checkpoint, and its laws have another state.
    pub fn control_loop(&self) -> Result<ControlLoop, CheckpointError> {
        let error = |reason: String| CheckpointError {
            resource: self.resource.clone(),
            build: self.build.clone(),
            reason,
        };
        let control: ControlLoop =
            rmp_serde::from_slice(&self.state).map_err(|reason| error(reason.to_string()))?;
        control.config().validate().map_err(|reason| error(reason.to_string()))?;
        Ok(control)
    }
}

/// A recorded decision beside what the loop decides in the replay.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedDecision {
    /// Time of the decision.
    pub time: WallTime,
    /// The decision as it was recorded.
    pub recorded: DecisionRecord,
    /// Commands and decision of the replay. `None`: no checkpoint before it can be read.
    pub recomputed: Option<(Commands, Decision)>,
}

impl ReplayedDecision {
    /// Returns true if the recomputed commands are the recorded ones, bit for bit.
    #[must_use]
    pub fn agrees(&self) -> bool {
        let commands = self.recomputed.as_ref().map(|(commands, _)| commands);
        commands.is_some_and(|commands| same_commands(commands, self.recorded.commands()))
    }
}

/// Changes the configuration of a loop for a replay.
pub type ConfigChange = Box<dyn Fn(&LoopConfig) -> LoopConfig + Send>;

/// Replays entries, without looking at the world. Feed it the entries of a journal in their order, beginning
/// with checkpoints.
#[derive(Default)]
pub struct LoopReplay {
    change: Option<ConfigChange>,
    loops: BTreeMap<ResourceName, ReplayedLoop>,
    unreadable: Vec<CheckpointError>,
}

/// A loop in a replay.
struct ReplayedLoop {
    control: ControlLoop,
    /// The recorded configuration.
    recorded: LoopConfig,
    mechanism: ThrottleMechanism,
}

impl fmt::Debug for LoopReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopReplay").field("resources", &self.loops.keys()).finish_non_exhaustive()
    }
}

impl LoopReplay {
    /// The most unreadable checkpoints that are kept.
    const MOST_UNREADABLE: usize = 100;

    /// A replay with the recorded configurations. Each checkpoint sets its loop anew.
    #[must_use]
    pub fn as_recorded() -> Self {
        Self::default()
    }

    /// A replay with other configurations. Loops begin with the state of their first checkpoint, and go on
    /// from there by themselves: later states are of the recorded configuration. A configuration that is not
    /// valid changes nothing.
    #[must_use]
    pub fn changed(change: ConfigChange) -> Self {
        Self { change: Some(change), ..Self::default() }
    }

    /// Returns the configuration of a resource's loop as it is now in the replay.
    #[must_use]
    pub fn config(&self, resource: &ResourceName) -> Option<&LoopConfig> {
        self.loops.get(resource).map(|running| running.control.config())
    }

    /// Returns the mechanism that carried out the commands on a resource.
    #[must_use]
    pub fn mechanism(&self, resource: &ResourceName) -> Option<ThrottleMechanism> {
        self.loops.get(resource).map(|running| running.mechanism)
    }

    /// Returns the checkpoints that this build could not read: the first hundred.
    #[must_use]
    pub fn unreadable(&self) -> &[CheckpointError] {
        &self.unreadable
    }

    /// Takes the next entry. Returns the decision, if it is one.
    pub fn feed(&mut self, entry: JournalEntry) -> Option<ReplayedDecision> {
        match entry.content {
            EntryContent::Checkpoint(checkpoint) => {
                self.restore(&checkpoint);
                None
            }
            EntryContent::Decision(recorded) => {
                let recomputed = self.step(&recorded);
                Some(ReplayedDecision { time: entry.time, recorded, recomputed })
            }
            EntryContent::Action(_) | EntryContent::Gap(_) => None,
        }
    }

    fn restore(&mut self, checkpoint: &CheckpointRecord) {
        let mut control = match checkpoint.control_loop() {
            Ok(control) => control,
            Err(error) => {
                self.loops.remove(&checkpoint.resource);
                if self.unreadable.len() < Self::MOST_UNREADABLE {
                    self.unreadable.push(error);
                }
                return;
            }
        };
        let recorded = control.config().clone();
        if let Some(change) = &self.change {
            if let Some(running) = self.loops.get_mut(&checkpoint.resource) {
                running.mechanism = checkpoint.mechanism;
                if running.recorded != recorded {
                    // A reload in the recording. An error leaves the loop as it is.
                    let _ = running.control.reconfigure(change(&recorded));
                    running.recorded = recorded;
                }
                return;
            }
            // An error leaves the loop as it is.
            let _ = control.reconfigure(change(&recorded));
        }
        let mechanism = checkpoint.mechanism;
        self.loops.insert(checkpoint.resource.clone(), ReplayedLoop { control, recorded, mechanism });
    }

    fn step(&mut self, recorded: &DecisionRecord) -> Option<(Commands, Decision)> {
        let running = self.loops.get_mut(recorded.resource())?;
        let observation = recorded.observation();
        if observation.cluster.is_some() {
            // The host reported its observation before it decided, and a report changes what a loop knows.
            let _ = running.control.report(&observation);
        }
        let (commands, mut decision) = running.control.step(recorded.now(), &observation);
        if self.change.is_none() && same_commands(&commands, recorded.commands()) {
            decision.held = recorded.held();
        }
        Some((commands, decision))
    }
}

/// Iterates over the decisions of a span of time, each beside what the loop decides in the replay.
#[derive(Debug)]
pub struct Replay {
    entries: Entries,
    filter: EntryFilter,
    replay: LoopReplay,
    /// The latest actions of the span.
    actions: VecDeque<(WallTime, ActionRecord)>,
}

impl Replay {
    /// The most actions that are kept.
    const MOST_ACTIONS: usize = 100;

    /// Returns the actions of the span up to the last decision that was returned, the oldest first: the latest
    /// hundred.
    #[must_use]
    pub const fn actions(&self) -> &VecDeque<(WallTime, ActionRecord)> {
        &self.actions
    }

    /// Returns the first decision whose recomputed commands are others than the recorded ones. `None`: there
    /// is none.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn first_difference(&mut self) -> Result<Option<ReplayedDecision>, JournalError> {
        for replayed in self {
            let replayed = replayed?;
            if !replayed.agrees() {
                return Ok(Some(replayed));
            }
        }
        Ok(None)
    }

    /// Returns the loops of the replay.
    #[must_use]
    pub const fn loops(&self) -> &LoopReplay {
        &self.replay
    }
}

impl Iterator for Replay {
    type Item = Result<ReplayedDecision, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.entries.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let is_in_span = self.filter.is_in_span(&entry);
            if let EntryContent::Action(action) = &entry.content
                && is_in_span
            {
                if self.actions.len() == Self::MOST_ACTIONS {
                    self.actions.pop_front();
                }
                self.actions.push_back((entry.time, action.clone()));
            }
            if let Some(replayed) = self.replay.feed(entry).filter(|_| is_in_span) {
                return Some(Ok(replayed));
            }
        }
    }
}

impl JournalReader {
    /// Returns the decisions of a span of time, replayed from the checkpoints before it.
    ///
    /// # Errors
    /// When nothing of that span is kept.
    pub fn replay(&self, filter: EntryFilter, replay: LoopReplay) -> Result<Replay, JournalError> {
        let entries = self.entries(filter.clone())?.from_checkpoints();
        Ok(Replay { entries, filter, replay, actions: VecDeque::new() })
    }
}
