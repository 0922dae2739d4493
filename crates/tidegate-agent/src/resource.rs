//! One resource: its loop, its set of writers, and what the throttle is to do for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_control::{
    ConsumerObservation, ControlLoop, Decision, LoopConfigError, Observation, Operations, Outstanding,
    Writers, WritersConfigError,
};
use tidegate_host::DeviceNumber;
use tidegate_host::sense::latency::Latencies;
use tidegate_host::throttle::{Hold, Method, WriteLimit};
use tidegate_regulate::{MemberDemand, WritePace};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, ResourceName, Shares};

use super::addresses::Addresses;
use super::cgroups::CgroupSetUpError;
use super::config::ResourceConfig;
use super::kernel_limits::write_limit;
use super::pattern::Pattern;
use super::percentile::Percentile;
use super::watch::{Load, Sample, Watch};
use crate::metrics::ResourceStatus;

/// A resource that is being regulated.
#[derive(Debug)]
pub(super) struct Resource {
    config: ResourceConfig,
    control: ControlLoop,
    writers: Option<Writers>,
    /// The devices that it is made up of, as of the last rescan.
    devices: Vec<Part>,
    /// In the order of their names.
    members: Vec<Member>,
    /// True if devices and members have to be found anew: they are of another configuration, or not found
    /// yet.
    stale: bool,
    /// True if members came or went at the last step.
    members_changed: bool,
    /// Since the last decision, of all who are no members.
    others: Load,
    /// The name of all these together.
    all_others: ConsumerName,
    since_decision: Duration,
    demand: MemberDemand,
    /// The percentile that the law steers by, if it steers by one.
    percentile: Option<Percentile>,
    /// In force for all members.
    delay: Latency,
    /// True if the writes of members are limited, rather than packets delayed.
    limits: bool,
    /// The writes of the devices that may be limited.
    paces: BTreeMap<DeviceNumber, WritePace>,
    /// The last limits of these devices that the throttle was told.
    limited: BTreeMap<DeviceNumber, WriteLimit>,
    /// The last decision.
    decision: Option<Decision>,
    /// All that its consumers ever did.
    done: Load,
}

/// A device of a resource.
#[derive(Debug)]
struct Part {
    /// Its place in the watch.
    place: usize,
    /// The place in the resource's members of each of its consumers; empty if none is a member.
    members: Vec<Option<usize>>,
}

/// Somebody who may be held.
#[derive(Debug)]
struct Member {
    name: ConsumerName,
    /// Since the last decision.
    load: Load,
}

impl Resource {
    pub(super) fn new(config: ResourceConfig, method: Method) -> Result<Self, SetUpError> {
        Ok(Self {
            control: ControlLoop::new(config.law.clone())?,
            writers: config.writers.map(Writers::new).transpose()?,
            percentile: Percentile::new(config.law.statistic),
            config,
            devices: Vec::new(),
            members: Vec::new(),
            stale: true,
            members_changed: false,
            others: Load::default(),
            all_others: ConsumerName::new("(all others)").expect("neither empty nor too long"),
            since_decision: Duration::ZERO,
            demand: MemberDemand::default(),
            delay: Latency::ZERO,
            limits: method == Method::Rate,
            paces: BTreeMap::new(),
            limited: BTreeMap::new(),
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
        if self.percentile.as_ref().map(Percentile::statistic) != Some(config.law.statistic) {
            self.percentile = Percentile::new(config.law.statistic);
        }
        self.config = config;
        self.stale = true;
        if self.config.law.dry_run {
            self.paces.values_mut().for_each(WritePace::release);
            self.limited.clear();
        }
        Ok(())
    }

    pub(super) fn config(&self) -> &ResourceConfig {
        &self.config
    }

    pub(super) fn name(&self) -> &ResourceName {
        &self.config.law.resource
    }

    /// Returns true if members came or went at the last step.
    pub(super) fn members_changed(&self) -> bool {
        self.members_changed
    }

    /// For how long members are held.
    pub(super) fn delay(&self) -> Latency {
        self.delay
    }

    /// Takes how long each of its reads took that completed.
    pub(super) fn count(&mut self, reads: &Latencies) {
        if let Some(percentile) = &mut self.percentile {
            percentile.count(reads);
        }
    }

    /// Takes what its consumers did, and decides when its interval is over.
    pub(super) fn observe(&mut self, now: Instant, sample: Sample, watch: &Watch) -> Option<Decision> {
        self.members_changed = false;
        if self.stale || sample.looked.is_some() {
            self.look(sample, watch);
        }
        self.take(sample.elapsed, watch);
        self.since_decision = self.since_decision.saturating_add(sample.elapsed);
        // A tick that comes a little early is this interval's all the same.
        if self.since_decision + sample.elapsed / 2 < self.config.law.interval {
            return None;
        }
        let since = std::mem::take(&mut self.since_decision);
        let observation = self.observation(now, since, watch);
        let (commands, decision) = self.control.step(now, &observation);
        self.follow_demand(since, &observation);
        // As long as nobody gets anything done it stays as it is.
        self.delay = self.demand.delay(&commands, self.config.longest).unwrap_or(self.delay);
        self.decision = Some(decision.clone());
        Some(decision)
    }

    /// Finds out who writes, if it was looked who does, and who of its consumers may be held.
    fn look(&mut self, sample: Sample, watch: &Watch) {
        let places = watch.devices_of(&self.config.storage);
        if let (Some(elapsed), Some(writers)) = (sample.looked, &mut self.writers) {
            let written = places.iter().flat_map(|place| watch.device(*place).written());
            let written = written.filter(|(_, bytes)| *bytes > Bytes::ZERO);
            writers.observe(elapsed, self.delay > Latency::ZERO, written);
        }
        let eligible = self.eligible(&places, watch);
        self.members_changed = !self.members.iter().map(|member| &member.name).eq(&eligible);
        if !self.members_changed && !self.stale && !sample.changed {
            return;
        }
        for member in std::mem::take(&mut self.members) {
            self.others.plus(&member.load);
        }
        self.members = eligible.into_iter().map(|name| Member { name, load: Load::default() }).collect();
        let members = &self.members;
        let place_among =
            |name: &ConsumerName| members.binary_search_by_key(&name, |member| &member.name).ok();
        let part = |place| {
            let all: Vec<_> = watch.device(place).consumers().map(place_among).collect();
            let members = if all.iter().any(Option::is_some) { all } else { Vec::new() };
            Part { place, members }
        };
        self.devices = places.into_iter().map(part).collect();
        if self.limits {
            self.follow_paces(watch);
        }
        self.stale = false;
    }

    /// Finds the devices that may be limited: a limit is one for all sessions that use the device, so that
    /// nobody exempt may be among them.
    fn follow_paces(&mut self, watch: &Watch) {
        let addresses = watch.addresses();
        let is_member = |name| self.members.binary_search_by_key(&name, |member| &member.name).is_ok();
        let mut known = std::mem::take(&mut self.paces);
        for part in &self.devices {
            let device = watch.device(part.place);
            if device.reached().any(is_member)
                && !device.reached().any(|name| meant(&self.config.exempt, name, addresses))
            {
                self.paces.insert(device.number(), known.remove(&device.number()).unwrap_or_default());
            }
        }
    }

    /// Adds what was done since the sample before.
    fn take(&mut self, elapsed: Duration, watch: &Watch) {
        for part in &self.devices {
            let device = watch.device(part.place);
            let load = device.load();
            self.done.plus(&load);
            if part.members.is_empty() {
                self.others.plus(&load);
                continue;
            }
            for (load, member) in device.loads().zip(&part.members) {
                match member {
                    Some(member) => self.members[*member].load.plus(&load),
                    None => self.others.plus(&load),
                }
            }
            if let Some(pace) = self.paces.get_mut(&device.number()) {
                let waits = pace.observe(elapsed, &load.writes);
                for (writes, member) in device.parts_of_writes().zip(&part.members) {
                    if let Some(member) = member {
                        self.members[*member].load.outstanding_seconds += writes * waits;
                    }
                }
            }
        }
    }

    /// Returns the observation since the last decision. Members are listed one by one, since that bounds how
    /// long each may be delayed, and all others together.
    fn observation(&mut self, now: Instant, since: Duration, watch: &Watch) -> Observation {
        let mut consumers = Vec::with_capacity(self.members.len() + 1);
        let (limits, in_force) = (self.limits, self.delay);
        let mut entry = |name: ConsumerName, load: &mut Load, protected: bool, delay: Latency| {
            let load = std::mem::take(load);
            let waited = if protected { 0 } else { can_be_held(limits, &load.reads, &load.writes) };
            let waiting = waited as f64 * in_force.as_secs_f64() / since.as_secs_f64();
            consumers.push(ConsumerObservation {
                mean_outstanding: load.outstanding_with(delay, since),
                queued: waiting.ceil() as u32,
                reads: load.reads,
                writes: load.writes,
                ..ConsumerObservation::idle(name, Shares::DEFAULT, protected)
            });
        };
        // Whose reads wait is not known. They are everybody's signal, and here they are nobody's load.
        for part in &self.devices {
            if let Some(waited) = watch.device(part.place).reads_wait(now) {
                self.others.reads.in_flight = self.others.reads.in_flight.saturating_add(1);
                self.others.reads.oldest_in_flight = self.others.reads.oldest_in_flight.max(Some(waited));
            }
        }
        entry(self.all_others.clone(), &mut self.others, true, Latency::ZERO);
        // What waits for a limit is among what is outstanding already.
        let delay = if self.limits { Latency::ZERO } else { self.delay };
        // A member that did nothing is held all the same.
        for member in &mut self.members {
            entry(member.name.clone(), &mut member.load, false, delay);
        }
        let percentile = self.percentile.as_mut().and_then(|percentile| percentile.end(since));
        Observation { percentile, ..Observation::new(self.name().clone(), now, consumers) }
    }

    /// Takes what members did, all together.
    fn follow_demand(&mut self, since: Duration, observation: &Observation) {
        let members = || observation.consumers.iter().filter(|consumer| !consumer.protected);
        let outstanding: f64 = members().map(|member| member.mean_outstanding.get()).sum();
        let completed = members().map(|member| can_be_held(self.limits, &member.reads, &member.writes)).sum();
        self.demand.observe(since, Outstanding::new(outstanding), completed);
    }

    /// Returns the limits on writes of the devices that are limited.
    pub(super) fn limits(&mut self) -> BTreeMap<DeviceNumber, WriteLimit> {
        let (floor, delay) = (self.config.floor, self.delay);
        let mut limits = BTreeMap::new();
        for (device, pace) in &mut self.paces {
            if let Some(limit) = pace.limit(delay, floor) {
                limits.insert(*device, write_limit(limit));
            } else if delay > Latency::ZERO {
                let name = &self.config.law.resource;
                tracing::debug!(
                    "{name}: too little is known of what is written to {device}: it is not limited yet"
                );
            }
        }
        self.limited.clone_from(&limits);
        limits
    }

    /// Returns the throttling that is to be in force.
    pub(super) fn hold(&mut self, addresses: &Addresses) -> Hold {
        let limits = self.limits();
        // Who shares an address with somebody exempt is not held either.
        let exempt =
            |address: &IpAddr| addresses.at(*address).any(|name| meant(&self.config.exempt, name, addresses));
        let members = self.members.iter().flat_map(|member| addresses.of(&member.name));
        Hold {
            resource: self.name().clone(),
            members: members.filter(|address| !exempt(address)).collect(),
            delay: self.delay,
            limits,
            cgroups: BTreeMap::new(),
        }
    }

    /// Returns the resource's state.
    pub(super) fn status(&self, watch: &Watch) -> ResourceStatus {
        // A device that has just gone has a number only.
        let name = |device: &DeviceNumber| {
            watch.volumes().get(*device).map_or_else(|| device.to_string(), |known| known.name.clone())
        };
        ResourceStatus {
            name: self.name().clone(),
            present: watch.has(&self.config.storage),
            dry_run: self.config.law.dry_run,
            delay: self.delay,
            limits: self.limited.iter().map(|(device, limit)| (name(device), *limit)).collect(),
            decision: self.decision.clone(),
            reads: self.done.reads,
            writes: self.done.writes,
            members: self.members.iter().map(|member| member.name.clone()).collect(),
        }
    }

    /// Holds for as long as is said, until the next decision.
    pub(super) fn impose(&mut self, delay: Latency) {
        self.delay = delay;
    }

    /// Returns the resource's consumers that are eligible.
    fn eligible(&self, places: &[usize], watch: &Watch) -> BTreeSet<ConsumerName> {
        let nobody = self.config.members.is_empty()
            && self.writers.as_ref().is_none_or(|writers| writers.members().next().is_none());
        if nobody {
            return BTreeSet::new();
        }
        let addresses = watch.addresses();
        places
            .iter()
            .flat_map(|place| watch.device(*place).consumers())
            .filter(|name| {
                let writes = self.writers.as_ref().is_some_and(|writers| writers.contains(name));
                (writes || meant(&self.config.members, name, addresses))
                    && !meant(&self.config.exempt, name, addresses)
            })
            .cloned()
            .collect()
    }
}

/// Returns the number of completed requests of the kind that a throttle can delay: writes where these are
/// limited, otherwise all.
const fn can_be_held(limits: bool, reads: &Operations, writes: &Operations) -> u64 {
    if limits { writes.count } else { reads.count + writes.count }
}

fn meant(patterns: &[Pattern], name: &ConsumerName, addresses: &Addresses) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name.as_str(), addresses.of(name)))
}

/// The reasons why a resource cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// Its law.
    #[error(transparent)]
    Law(#[from] LoopConfigError),
    /// Its set of writers.
    #[error(transparent)]
    Writers(#[from] WritersConfigError),
    /// Its cgroups.
    #[error(transparent)]
    Cgroups(#[from] CgroupSetUpError),
}
