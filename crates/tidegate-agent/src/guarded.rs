//! The throttle with its guardian: nothing is throttled without one, and what the agent can no longer release
//! the guardian does.
//!
//! The guardian has signs of life only while the throttle does what it is told. When consumers may be
//! throttled more than is wanted, because what is in force cannot be changed, they cease; the guardian, which
//! has a process and descriptors of its own, then releases every consumer. The agent gives that throttle up,
//! and begins with a fresh one as soon as it can.

use std::io;
use std::time::{Duration, Instant as Clock};

use thiserror::Error;
use tidegate_host::throttle::{
    Guardian, RemovedThrottles, Throttle, ThrottleError, ThrottleInForce, ThrottleRequest, lacking, undo,
    undo_orphaned,
};
use tidegate_units::Instant;

use super::presence::{LivingAgent, Presence};
use super::{AgentConfig, AgentError, GuardianCommand};

/// A guardian is done within two seconds; it may not be quick to start on a busy machine.
const GUARDIANS_WORK: Duration = Duration::from_secs(5);

/// The pause between two signs of life for the guardian.
const BETWEEN_BEATS: Duration = Duration::from_secs(1);

/// After so long a silence the guardian releases every consumer. An agent that has become blind notices that
/// within four seconds, and a release takes one or two: together less than ten.
const ALARM: Duration = Duration::from_secs(4);

/// The same while the throttle is started. Nothing is throttled yet, and the kernel may load modules.
const ALARM_AT_START: Duration = Duration::from_secs(60);

/// The pause between two attempts to start a guardian, or a fresh throttle.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// The reasons why consumers are not throttled as they should be.
#[derive(Debug, Error)]
pub enum ActError {
    /// The throttle could not do all that it was told.
    #[error(transparent)]
    Throttle(#[from] ThrottleError),
    /// There is no guardian.
    #[error("no consumer is throttled, since no guardian can be started: {0}")]
    Unguarded(io::Error),
    /// The throttle was given up.
    #[error(
        "no consumer is throttled, since limits could not be changed any more and cannot be yet: {0}; trying \
            again each second"
    )]
    GivenUp(io::Error),
}

/// The throttle, and the guardian that releases consumers when the agent cannot.
#[derive(Debug)]
pub(super) struct GuardedThrottle {
    /// `None` once it was given up.
    throttle: Option<Throttle>,
    guardian: Option<Guardian>,
    config: AgentConfig,
    command: GuardianCommand,
    /// The time of the last sign of life to the guardian; `None` before the first decision is carried out.
    beat: Option<Clock>,
    /// Since when consumers may be throttled more than is wanted.
    stuck: Option<Clock>,
    /// The time of the last attempt to start a guardian, or a fresh throttle.
    tried: Clock,
    /// The reason why that failed.
    failure: Option<io::Error>,
    guardians: u64,
    errors: u64,
    /// This agent and its guardian are the only ones in this network namespace.
    presence: Presence,
}

impl GuardedThrottle {
    pub(super) fn start(config: &AgentConfig, command: &GuardianCommand) -> Result<Self, AgentError> {
        let presence = Presence::take(GUARDIANS_WORK)
            .map_err(AgentError::Alone)?
            .map_err(|LivingAgent { process, .. }| AgentError::AnotherAgent(named(process)))?;
        let found = undo_orphaned(false).map_err(AgentError::Reconcile)?;
        report(&found.removed);
        let guardian = start_guardian(command, &presence, ALARM_AT_START).map_err(AgentError::Guardian)?;
        // Missing parts would otherwise be noticed at the first throttling: in the night of the first backup.
        let lacks = lacking(config.throttle, config.packets).map_err(AgentError::Throttle)?;
        if !lacks.is_empty() {
            let what = lacks.iter().filter_map(|one| Some(format!("{}: {}", one.what, one.lacks()?)));
            let what = what.collect::<Vec<_>>().join("; ");
            return Err(AgentError::Lacks { method: config.throttle, what });
        }
        let throttle = new_throttle(config).map_err(AgentError::Throttle)?;
        let now = Clock::now();
        Ok(Self {
            throttle: Some(throttle),
            guardian: Some(guardian),
            config: config.clone(),
            command: command.clone(),
            beat: None,
            stuck: None,
            tried: now,
            failure: None,
            guardians: 1,
            errors: 0,
            presence,
        })
    }

    /// Has the throttle do what is wanted, and tells the guardian that it did.
    ///
    /// # Errors
    /// When not all of it is done. What is in force then is never more than was wanted, or the guardian
    /// releases it.
    pub(super) fn act(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> Result<(), ActError> {
        let guarded = self.keep_guarded();
        // An agent may hang right after its first limit: from here on a silence is soon an alarm.
        if self.beat.is_none() {
            self.give_sign_of_life();
        }
        // Nothing would release consumers if this process died now.
        let wanted = if guarded.is_ok() { wanted } else { &[] };
        let outcome = match &mut self.throttle {
            Some(throttle) => {
                let applied = throttle.apply(now, wanted);
                let is_stuck = applied.is_err() && throttle.is_stuck(wanted);
                self.note(is_stuck);
                applied.map_err(ActError::from)
            }
            None => self.start_afresh(),
        };
        if outcome.is_err() {
            self.errors += 1;
        }
        if self.acts() && self.beat.is_none_or(|beat| beat.elapsed() >= BETWEEN_BEATS) {
            self.give_sign_of_life();
        }
        guarded.and(outcome)
    }

    fn give_sign_of_life(&mut self) {
        self.beat = Some(Clock::now());
        if let Some(guardian) = &mut self.guardian {
            guardian.beat(ALARM);
        }
    }

    fn note(&mut self, is_stuck: bool) {
        let since = self.stuck.take();
        if !is_stuck {
            return;
        }
        let since = since.unwrap_or_else(Clock::now);
        self.stuck = Some(since);
        // The guardian releases now. Whatever this throttle would set from now on would be against it.
        if since.elapsed() >= ALARM {
            self.throttle = None;
            tracing::error!(
                "limits that are in force cannot be changed: the guardian releases every consumer"
            );
        }
    }

    /// Starts the guardian anew when something has ended it.
    fn keep_guarded(&mut self) -> Result<(), ActError> {
        if self.guardian.as_mut().is_some_and(Guardian::is_alive) {
            return Ok(());
        }
        let was_there = self.guardian.take().is_some();
        if was_there || self.is_due() {
            match start_guardian(&self.command, &self.presence, ALARM) {
                Ok(guardian) => {
                    tracing::warn!("the guardian was gone and is started anew");
                    self.guardian = Some(guardian);
                    self.guardians += 1;
                    return Ok(());
                }
                Err(error) => self.failure = Some(error),
            }
        }
        Err(ActError::Unguarded(self.last_failure()))
    }

    /// Removes what is in force, and begins with a throttle that knows of nothing.
    fn start_afresh(&mut self) -> Result<(), ActError> {
        if self.is_due() {
            match undo().and_then(|_| new_throttle(&self.config)) {
                Ok(throttle) => {
                    tracing::warn!("limits can be changed again: consumers are throttled where it is needed");
                    self.throttle = Some(throttle);
                    self.stuck = None;
                    return Ok(());
                }
                Err(error) => self.failure = Some(error),
            }
        }
        Err(ActError::GivenUp(self.last_failure()))
    }

    fn is_due(&mut self) -> bool {
        let is_due = self.tried.elapsed() >= BETWEEN_ATTEMPTS;
        if is_due {
            self.tried = Clock::now();
        }
        is_due
    }

    fn last_failure(&self) -> io::Error {
        let text = self.failure.as_ref().map_or_else(|| "not tried yet".to_owned(), ToString::to_string);
        io::Error::other(text)
    }

    /// Returns true if the throttle releases the consumers that it is told to release.
    pub(super) const fn acts(&self) -> bool {
        self.stuck.is_none()
    }

    /// Returns true if consumers are throttled as is wanted for a resource, or none is to be.
    pub(super) fn holds(&self, wanted: &ThrottleRequest) -> bool {
        self.throttle.as_ref().is_some_and(|throttle| throttle.holds(wanted))
    }

    /// Returns the state in force for a resource, as the kernel confirmed it.
    pub(super) fn in_force(&self, wanted: &ThrottleRequest) -> ThrottleInForce {
        self.throttle.as_ref().map_or_else(ThrottleInForce::default, |throttle| throttle.in_force(wanted))
    }

    /// Returns the number of times that the throttle failed to do what was wanted.
    pub(super) const fn errors(&self) -> u64 {
        self.errors
    }

    /// Returns the number of guardians started so far.
    pub(super) const fn guardians(&self) -> u64 {
        self.guardians
    }

    pub(super) fn let_go(self) {
        let Self { mut throttle, guardian, .. } = self;
        // From its own memory first: the record of our limits may have been removed.
        if let Some(Throttle::Cgroup(cgroups)) = &mut throttle
            && let Err(error) = cgroups.apply(Instant::ZERO, &[])
        {
            tracing::error!("cannot release all cgroups: {error}");
        }
        // Limits that are still there belong to no other program.
        drop(throttle);
        match undo() {
            Ok(_) => {
                if let Some(guardian) = guardian {
                    guardian.dismiss();
                }
                tracing::info!("released all consumers");
            }
            // The guardian tries again when it sees us gone.
            Err(error) => tracing::error!("cannot release all consumers: {error}"),
        }
    }
}

fn new_throttle(config: &AgentConfig) -> io::Result<Throttle> {
    Throttle::new(config.throttle, config.packets, &config.ports, config.array())
}

/// A process in a message.
fn named(process: Option<u32>) -> String {
    process.map_or_else(
        || "a process that is not seen from here".to_owned(),
        |process| format!("process {process}"),
    )
}

/// The release of what agents left that died together with their guardians.
#[derive(Debug)]
pub struct OrphanedRelease {
    /// The throttles that were removed.
    pub removed: RemovedThrottles,
    /// The living agents whose throttles stayed, in words.
    pub living: Option<String>,
}

/// Releases every consumer that an agent left throttled which died together with its guardian. What a living
/// agent has stays as it is. No agent starts meanwhile.
///
/// # Errors
/// When something cannot be undone, or is there again.
pub fn release_orphaned() -> io::Result<OrphanedRelease> {
    let presence = Presence::take(Duration::ZERO)?;
    let other = presence.as_ref().err().copied();
    let (mut removed, mut cgroups_in_use) = (RemovedThrottles::default(), false);
    // All that there is may be an older agent's.
    if !other.is_some_and(|other| other.is_older) {
        let first = undo_orphaned(other.is_some())?;
        let again = undo_orphaned(other.is_some())?;
        if !again.removed.nothing() {
            return Err(io::Error::other("what was removed is there again: another program puts it back"));
        }
        removed = first.removed;
        cgroups_in_use = first.cgroups_in_use || again.cgroups_in_use;
    }
    drop(presence);
    let living = match other {
        Some(LivingAgent { process, .. }) => {
            Some(format!("an agent, or its guardian, lives: {}", named(process)))
        }
        None => cgroups_in_use
            .then(|| "an agent in a container or another network namespace limits cgroups".to_owned()),
    };
    Ok(OrphanedRelease { removed, living })
}

fn start_guardian(command: &GuardianCommand, presence: &Presence, alarm: Duration) -> io::Result<Guardian> {
    Guardian::start(&command.program, &command.arguments, presence.share()?, alarm)
}

fn report(found: &RemovedThrottles) {
    if found.nothing() {
        return;
    }
    let table = if found.table { "the nftables table, " } else { "" };
    let cgroup = if found.cgroup { "the cgroup that limits what is written, " } else { "" };
    let limits = if found.cgroups > 0 { "limits of cgroups, " } else { "" };
    tracing::warn!(
        "removed what an earlier agent left: {cgroup}{limits}{table}queueing on [{}]",
        found.interfaces.join(", ")
    );
}
