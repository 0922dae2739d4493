//! One resource: its loop, its set of writers, and what the throttle is to do for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_control::{
    ConsumerObservation, ControlLoop, Decision, LoopConfigError, Observation, Writers, WritersConfigError,
};
use tidegate_host::throttle::Hold;
use tidegate_units::{ConsumerName, Instant, Latency, ResourceName, Shares};

use super::addresses::Addresses;
use super::config::ResourceConfig;
use super::pattern::Pattern;
use super::watch::{Load, Watch};
use crate::metrics::ResourceStatus;

/// A resource that is being regulated.
#[derive(Debug)]
pub(super) struct Resource {
    config: ResourceConfig,
    control: ControlLoop,
    writers: Option<Writers>,
    /// Since the last decision.
    pending: BTreeMap<ConsumerName, Load>,
    since_decision: Duration,
    /// In force for all members.
    delay: Latency,
    members: BTreeSet<ConsumerName>,
    /// The last decision.
    decision: Option<Decision>,
    /// All that its consumers ever did.
    done: Load,
}

impl Resource {
    pub(super) fn new(config: ResourceConfig) -> Result<Self, SetUpError> {
        Ok(Self {
            control: ControlLoop::new(config.law.clone())?,
            writers: config.writers.map(Writers::new).transpose()?,
            config,
            pending: BTreeMap::new(),
            since_decision: Duration::ZERO,
            delay: Latency::ZERO,
            members: BTreeSet::new(),
            decision: None,
            done: Load::default(),
        })
    }

    /// Changes the set-up while running, without letting go of anybody in between.
    pub(super) fn reconfigure(&mut self, config: ResourceConfig) -> Result<(), SetUpError> {
        self.control.reconfigure(config.law.clone())?;
        match (&mut self.writers, config.writers) {
            (Some(writers), Some(new)) => writers.reconfigure(new)?,
            (writers, new) => *writers = new.map(Writers::new).transpose()?,
        }
        self.config = config;
        Ok(())
    }

    pub(super) fn config(&self) -> &ResourceConfig {
        &self.config
    }

    pub(super) fn name(&self) -> &ResourceName {
        &self.config.law.resource
    }

    /// Takes what its consumers did in `elapsed`, and decides when its interval is over.
    pub(super) fn observe(&mut self, now: Instant, elapsed: Duration, watch: &Watch) -> Option<Decision> {
        let loads = watch.loads(&self.config.storage, now);
        if let Some(writers) = &mut self.writers {
            let written = loads.iter().map(|(name, load)| (name, load.writes.bytes));
            writers.observe(elapsed, self.delay > Latency::ZERO, written);
        }
        for (name, load) in loads {
            self.done.plus(&load);
            self.pending.entry(name).or_default().plus(&load);
        }
        self.since_decision = self.since_decision.saturating_add(elapsed);
        // A tick that comes a little early is this interval's all the same.
        if self.since_decision + elapsed / 2 < self.config.law.interval {
            return None;
        }
        let since = std::mem::take(&mut self.since_decision);
        self.members = self.eligible(watch);
        let mut pending = std::mem::take(&mut self.pending);
        for member in &self.members {
            // A member that did nothing is held all the same.
            if !pending.contains_key(member) {
                pending.insert(member.clone(), Load::default());
            }
        }
        let consumers = pending
            .into_iter()
            .map(|(name, load)| ConsumerObservation {
                mean_outstanding: load.outstanding_with(
                    if self.members.contains(&name) { self.delay } else { Latency::ZERO },
                    since,
                ),
                protected: !self.members.contains(&name),
                reads: load.reads,
                writes: load.writes,
                ..ConsumerObservation::idle(name, Shares::DEFAULT, false)
            })
            .collect();
        let observation = Observation::new(self.name().clone(), now, consumers);
        let (commands, decision) = self.control.step(now, &observation);
        self.delay = commands.consumers.iter().filter_map(|command| command.delay).max().unwrap_or_default();
        self.decision = Some(decision.clone());
        Some(decision)
    }

    /// What the throttle is to do.
    pub(super) fn hold(&self, addresses: &Addresses) -> Hold {
        // Who shares an address with somebody exempt is not held either.
        let exempt =
            |address: &IpAddr| addresses.at(*address).any(|name| meant(&self.config.exempt, name, addresses));
        let members = self.members.iter().flat_map(|name| addresses.of(name));
        Hold {
            resource: self.name().clone(),
            members: members.filter(|address| !exempt(address)).collect(),
            delay: self.delay,
        }
    }

    /// How it stands. `present` says whether the machine has its storage.
    pub(super) fn status(&self, present: bool) -> ResourceStatus {
        ResourceStatus {
            name: self.name().clone(),
            present,
            dry_run: self.config.law.dry_run,
            delay: self.delay,
            decision: self.decision.clone(),
            reads: self.done.reads,
            writes: self.done.writes,
            members: self.members.clone(),
        }
    }

    /// Holds for as long as is said, until the next decision.
    pub(super) fn impose(&mut self, delay: Latency) {
        self.delay = delay;
    }

    /// Who of the resource's consumers may be held.
    fn eligible(&self, watch: &Watch) -> BTreeSet<ConsumerName> {
        let nobody = self.config.members.is_empty()
            && self.writers.as_ref().is_none_or(|writers| writers.members().next().is_none());
        if nobody {
            return BTreeSet::new();
        }
        let addresses = watch.addresses();
        watch
            .consumers(&self.config.storage)
            .filter(|name| {
                let writes = self.writers.as_ref().is_some_and(|writers| writers.contains(name));
                (writes || meant(&self.config.members, name, addresses))
                    && !meant(&self.config.exempt, name, addresses)
            })
            .cloned()
            .collect()
    }
}

fn meant(patterns: &[Pattern], name: &ConsumerName, addresses: &Addresses) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name.as_str(), addresses.of(name)))
}

/// Why a resource cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// Its law.
    #[error(transparent)]
    Law(#[from] LoopConfigError),
    /// Its set of writers.
    #[error(transparent)]
    Writers(#[from] WritersConfigError),
}
