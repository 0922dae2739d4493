//! One resource: its loop, its sets of writers and readers, and what the throttle is to do for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_control::{BulkConfigError, BulkDetector, Decision, LoopConfigError};
use tidegate_host::DeviceNumber;
use tidegate_host::sense::UncountedDevice;
use tidegate_host::sense::latency::LatencyBuckets;
use tidegate_host::throttle::{ThrottleInForce, ThrottleMethod, ThrottleRequest, WriteLimit};
use tidegate_journal::{ConsumerReading, LimitReading, ThrottleReading};
use tidegate_regulate::{
    EligibleConsumer, InFlight, RecentPercentile, RegulatedResource, StorageLoad, ThrottleKind, WritePace,
};
use tidegate_service::status::SignalOrigin;
use tidegate_units::{ByteRate, Bytes, ConsumerName, Instant, Iops, Latency, ResourceName};

use super::addresses::ConsumerAddresses;
use super::cgroups::CgroupSetUpError;
use super::config::ResourceConfig;
use super::initiators::intake::{ReportCarrier, ReportIntake};
use super::kernel_limits::write_limit;
use super::load_watch::LoadWatch;
use super::pattern::ConsumerPattern;
use super::seeking::SeekAllowance;
use super::source::{LatencySource, SourceSample};
use super::watch::MachineSample;
use crate::metrics::ResourceStatus;

/// A resource that sessions load, and that is being regulated.
#[derive(Debug)]
pub(super) struct SessionResource {
    config: ResourceConfig,
    regulated: RegulatedResource,
    writers: Option<BulkDetector>,
    readers: Option<BulkDetector>,
    /// The devices that it is made up of, as of the last rescan.
    devices: Vec<ResourceDevice>,
    /// True if devices and members have to be found anew: they are of another configuration, or not found
    /// yet.
    stale: bool,
    /// True if members came or went at the last step.
    members_changed: bool,
    /// The percentile that the law steers by, if it steers by one.
    percentile: Option<RecentPercentile<LatencyBuckets>>,
    method: ThrottleMethod,
    /// The writes of the devices that may be limited.
    paces: BTreeMap<DeviceNumber, WritePace>,
    /// The reports of initiators, if they count.
    reports: Option<ReportIntake>,
    /// The source of the latency that the law steers by, once it is asked.
    source: Option<LatencySource>,
    /// The last limits of these devices that the throttle was told.
    limited: BTreeMap<DeviceNumber, WriteLimit>,
    /// The time for which members may be sought at each sample.
    seeking: SeekAllowance,
    /// The consumers that are not eligible, each with its load since then.
    protected: BTreeMap<ConsumerName, StorageLoad>,
    /// Devices of it whose requests the kernel did not count at the last rescan: nothing is known while there
    /// are any.
    uncounted: Vec<UncountedDevice>,
}

/// A device of a resource.
#[derive(Debug)]
struct ResourceDevice {
    /// Its place in the watch.
    place: usize,
    /// `None`: a LUN of an array.
    number: Option<DeviceNumber>,
    /// The place in the resource's members of each of its consumers; empty if none is a member.
    members: Vec<Option<usize>>,
}

impl SessionResource {
    pub(super) fn new(config: ResourceConfig, method: ThrottleMethod) -> Result<Self, SetUpError> {
        Ok(Self {
            regulated: RegulatedResource::new(config.law.clone(), throttle(&config, method))?,
            writers: config.writers.map(BulkDetector::new).transpose()?,
            readers: config.readers.map(BulkDetector::new).transpose()?,
            percentile: RecentPercentile::new(config.law.statistic),
            config,
            devices: Vec::new(),
            stale: true,
            members_changed: false,
            method,
            paces: BTreeMap::new(),
            reports: None,
            source: None,
            limited: BTreeMap::new(),
            seeking: SeekAllowance::default(),
            protected: BTreeMap::new(),
            uncounted: Vec::new(),
        }
        .with_reports())
    }

    /// Changes the set-up while running, without a release in between.
    pub(super) fn reconfigure(&mut self, config: ResourceConfig) -> Result<(), SetUpError> {
        self.regulated.reconfigure(config.law.clone(), throttle(&config, self.method))?;
        for (known, new) in [(&mut self.writers, config.writers), (&mut self.readers, config.readers)] {
            match (known, new) {
                (Some(known), Some(new)) => known.reconfigure(new)?,
                (known, new) => *known = new.map(BulkDetector::new).transpose()?,
            }
        }
        if self.percentile.as_ref().map(RecentPercentile::statistic) != Some(config.law.statistic) {
            self.percentile = RecentPercentile::new(config.law.statistic);
        }
        self.config = config;
        self.follow_reports();
        self.stale = true;
        if self.config.law.dry_run {
            self.paces.values_mut().for_each(WritePace::release);
            self.limited.clear();
        }
        Ok(())
    }

    fn with_reports(mut self) -> Self {
        self.follow_reports();
        self
    }

    /// Takes reports, and asks a source, as the configuration says.
    fn follow_reports(&mut self) {
        self.reports = match (self.reports.take(), &self.config.reports) {
            (Some(mut known), Some(new)) => {
                known.reconfigure(new.clone());
                Some(known)
            }
            (None, Some(new)) => Some(ReportIntake::new(new.clone())),
            (_, None) => None,
        };
        // It is asked from the next decision on.
        let is_same = |known: &LatencySource| self.config.source.as_ref().is_some_and(|new| known.is(new));
        self.source = self.source.take().filter(is_same);
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

    /// Returns true if the latency is above the goal, and no consumer is known that could be throttled. It is
    /// not waited then until consumers are counted anew. Where that finds none, it is done more seldom.
    pub(super) fn seeks_members(&self) -> bool {
        let finds = (self.writers.is_some() || self.readers.is_some()) && self.seeking.is_left();
        let is_above =
            |decided: &Decision| decided.estimate.is_some_and(|latency| latency > decided.set_point);
        finds
            && self.regulated.consumers().next().is_none()
            && self.regulated.decision().is_some_and(is_above)
    }

    /// The delay that is to be in force for members.
    pub(super) fn delay(&self) -> Latency {
        self.regulated.delay()
    }

    /// Takes the latencies of its reads that completed.
    pub(super) fn count(&mut self, reads: &LatencyBuckets) {
        if let Some(percentile) = &mut self.percentile {
            percentile.current().merge(reads);
        }
    }

    /// Takes what its consumers did, and decides when its interval is over.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        sample: MachineSample,
        watch: &LoadWatch,
        carrier: Option<&ReportCarrier>,
    ) -> Option<Decision> {
        self.members_changed = false;
        let seeks_members = self.seeks_members();
        self.seeking.pass(sample.elapsed, seeks_members);
        if self.stale || sample.looked.is_some() {
            self.rescan(sample, watch, seeks_members);
        }
        if !self.uncounted.is_empty() {
            self.regulated.lose_sight();
            return None;
        }
        self.take(sample.elapsed, watch);
        let since = self.regulated.pass(sample.elapsed)?;
        // Counters do not tell whose reads wait, unless a device has one consumer.
        for device in &self.devices {
            if let Some(waited) = watch.device(device.place).reads_wait(now) {
                let waits = InFlight { count: 1, oldest: Some(waited) };
                let single = match device.members[..] {
                    [member] => member,
                    _ => None,
                };
                self.regulated.in_flight(single, waits, InFlight::default());
            }
        }
        if let Some(config) = &self.config.source {
            let name = &self.config.law.resource;
            let source = self.source.get_or_insert_with(|| LatencySource::start(name, config));
            return Some(decide_by_source(&mut self.regulated, now, source));
        }
        if let (Some(reports), Some(carrier)) = (&mut self.reports, carrier) {
            let devices = self.devices.iter();
            let consumers = devices.flat_map(|device| watch.device(device.place).consumers()).collect();
            return Some(decide_by_reports(
                &mut self.regulated,
                (now, since),
                (reports, carrier),
                &consumers,
                watch,
            ));
        }
        let percentile = self.percentile.as_mut().and_then(|percentile| percentile.end(since));
        Some(self.regulated.decide(now, percentile))
    }

    /// Finds the writers and readers, if they were counted anew, and the eligible ones of its consumers.
    fn rescan(&mut self, sample: MachineSample, watch: &LoadWatch, seeks_members: bool) {
        let places = watch.devices_of(&self.config.storage);
        let numbers = places.iter().filter_map(|place| watch.device(*place).number());
        // Of several devices, one that may only be unused hides nothing.
        let hides = |device: &UncountedDevice| device.is_certain() || places.len() == 1;
        self.uncounted = numbers.filter_map(|number| watch.uncounted(number)).filter(hides).collect();
        if let Some(elapsed) = sample.looked {
            let is_throttled = self.regulated.delay() > Latency::ZERO;
            let moved = places.iter().flat_map(|place| watch.device(*place).moved());
            let moved: Vec<_> = moved.filter(|moved| moved.read.max(moved.written) > Bytes::ZERO).collect();
            if let Some(writers) = &mut self.writers {
                let written = moved.iter().map(|moved| (moved.consumer, moved.written));
                writers.observe(elapsed, is_throttled, written);
            }
            if let Some(readers) = &mut self.readers {
                readers.observe(
                    elapsed,
                    is_throttled,
                    moved.iter().map(|moved| (moved.consumer, moved.read)),
                );
            }
            if seeks_members {
                self.writers.iter_mut().chain(&mut self.readers).for_each(BulkDetector::admit);
            }
        }
        let eligible = self.eligible(&places, watch);
        self.follow_protected(&places, &eligible, watch);
        self.members_changed = !self.regulated.consumers().eq(&eligible);
        if !self.members_changed && !self.stale && !sample.changed {
            return;
        }
        let addresses = watch.addresses();
        let weighed = |name: ConsumerName| {
            let weight = self.config.weight(&name, &addresses.of(&name));
            EligibleConsumer { weight, ..EligibleConsumer::new(name) }
        };
        self.regulated.set_consumers(eligible.into_iter().map(weighed));
        let device = |place| {
            let all: Vec<_> =
                watch.device(place).consumers().map(|name| self.regulated.place_of(name)).collect();
            let members = if all.iter().any(Option::is_some) { all } else { Vec::new() };
            ResourceDevice { place, number: watch.device(place).number(), members }
        };
        self.devices = places.into_iter().map(device).collect();
        if self.method == ThrottleMethod::Rate {
            self.follow_paces(watch);
        }
        self.stale = false;
    }

    fn follow_protected(&mut self, places: &[usize], eligible: &BTreeSet<ConsumerName>, watch: &LoadWatch) {
        let present: BTreeSet<_> = places.iter().flat_map(|place| watch.device(*place).consumers()).collect();
        let is_protected = |name: &ConsumerName| present.contains(name) && !eligible.contains(name);
        self.protected.retain(|name, _| is_protected(name));
        for name in present.into_iter().filter(|name| !eligible.contains(*name)) {
            if !self.protected.contains_key(name) {
                self.protected.insert(name.clone(), StorageLoad::default());
            }
        }
    }

    /// Finds the devices that may be limited. A limit is one for all sessions that use the device, so that no
    /// exempt consumer may be among them.
    fn follow_paces(&mut self, watch: &LoadWatch) {
        let addresses = watch.addresses();
        let is_member = |name| self.regulated.place_of(name).is_some();
        let mut known = std::mem::take(&mut self.paces);
        for device in &self.devices {
            let device = watch.device(device.place);
            if let Some(number) = device.number()
                && device.reached().any(is_member)
                && !device.reached().any(|name| matches_any(&self.config.exempt, name, addresses))
            {
                self.paces.insert(number, known.remove(&number).unwrap_or_default());
            }
        }
    }

    /// Adds what was done since the sample before.
    fn take(&mut self, elapsed: Duration, watch: &LoadWatch) {
        for ResourceDevice { place, members, .. } in &self.devices {
            let device = watch.device(*place);
            for (load, name) in device.loads().zip(device.consumers()) {
                if let Some(known) = self.protected.get_mut(name) {
                    known.plus(&load);
                }
            }
            if members.is_empty() {
                self.regulated.complete(None, &device.load());
                continue;
            }
            for (load, member) in device.loads().zip(members) {
                self.regulated.complete(*member, &load);
            }
            if let Some(pace) = device.number().and_then(|number| self.paces.get_mut(&number)) {
                let waits = pace.observe(elapsed, &device.load().writes);
                for (writes, member) in device.parts_of_writes().zip(members) {
                    if let Some(member) = member {
                        self.regulated.wait(*member, writes * waits);
                    }
                }
            }
        }
    }

    /// Returns the limits on writes of the devices that are limited.
    pub(super) fn limits(&mut self) -> BTreeMap<DeviceNumber, WriteLimit> {
        let floor = self.config.floor;
        let mut limits = BTreeMap::new();
        let delays: Vec<_> = self.regulated.delays().map(|(_, delay)| delay).collect();
        let mut of_devices = BTreeMap::new();
        for device in &self.devices {
            // A limit is of all consumers of a device.
            let longest = device.members.iter().flatten().map(|member| delays[*member]).max();
            of_devices.extend(device.number.zip(longest));
        }
        for (device, pace) in &mut self.paces {
            let delay = of_devices.get(device).copied().unwrap_or(self.regulated.delay());
            if let Some(limit) = pace.limit(delay, floor) {
                limits.insert(*device, write_limit(limit));
            } else if delay > Latency::ZERO {
                let name = &self.config.law.resource;
                tracing::debug!(
                    "{name}: writes to {device} are not limited yet: too few of them have been seen"
                );
            }
        }
        self.limited.clone_from(&limits);
        limits
    }

    /// Returns the throttling that is to be in force.
    pub(super) fn throttling(&mut self, watch: &LoadWatch) -> ThrottleRequest {
        let limits = self.limits();
        let addresses = watch.addresses();
        // A member that shares an address with an exempt consumer is not throttled either.
        let exempt = |address: &IpAddr| {
            addresses.at(*address).any(|name| matches_any(&self.config.exempt, name, addresses))
        };
        // Packets of a member's sessions with other storage go their way, as far as addresses tell them.
        let members = self.devices.iter().flat_map(|device| {
            let consumers = watch.device(device.place).consumers().zip(&device.members);
            let eligible = consumers.filter(|(_, member)| member.is_some());
            eligible.flat_map(move |(name, _)| watch.paths(device.place, name))
        });
        let members = members.filter(|address| !exempt(address)).collect();
        ThrottleRequest {
            resource: self.name().clone(),
            own_delays: self.own_delays(&members, addresses),
            members,
            delay: self.regulated.delay(),
            limits,
            cgroups: BTreeMap::new(),
        }
    }

    /// Returns the delays of those of `members` that have one of their own. The longest of its consumers' is
    /// an address's.
    pub(super) fn own_delays(
        &self,
        members: &BTreeSet<IpAddr>,
        addresses: &ConsumerAddresses,
    ) -> BTreeMap<IpAddr, Latency> {
        let mut delays = BTreeMap::new();
        for (name, delay) in self.regulated.delays().filter(|_| self.regulated.is_divided()) {
            for address in addresses.of(name).filter(|address| members.contains(address)) {
                let longest = delays.entry(address).or_insert(delay);
                *longest = delay.max(*longest);
            }
        }
        delays
    }

    /// Returns the regulation of the resource.
    pub(super) const fn regulated(&self) -> &RegulatedResource {
        &self.regulated
    }

    /// Returns the throttling in force for each eligible consumer. `members` are the addresses whose packets
    /// are delayed.
    pub(super) fn reading(
        &self,
        in_force: &ThrottleInForce,
        members: &BTreeSet<IpAddr>,
        watch: &LoadWatch,
    ) -> ThrottleReading {
        let addresses = watch.addresses();
        let read = |(place, name): (usize, &ConsumerName)| {
            let delay_at = |address| in_force.own_delays.get(&address).copied().unwrap_or(in_force.delay);
            let throttled = addresses.of(name).filter(|address| members.contains(address));
            let longest = throttled.map(delay_at).max();
            ConsumerReading {
                delay: longest.filter(|delay| *delay > Latency::ZERO),
                writes: self.writes_in_force(place, &in_force.limits, watch),
                ..ConsumerReading::unlimited(name.clone())
            }
        };
        let consumers = self.regulated.consumers().enumerate().map(read).collect();
        ThrottleReading { window: None, consumers }
    }

    /// Returns the limit of the writes to the devices of a member together. It has none if one of its devices
    /// has none.
    fn writes_in_force(
        &self,
        member: usize,
        limits: &BTreeMap<DeviceNumber, WriteLimit>,
        watch: &LoadWatch,
    ) -> LimitReading {
        let uses = |device: &&ResourceDevice| device.members.contains(&Some(member));
        let of = |device: &ResourceDevice| limits.get(&watch.device(device.place).number()?);
        let all: Option<Vec<_>> = self.devices.iter().filter(uses).map(of).collect();
        let Some(all) = all.filter(|all| !all.is_empty()) else { return LimitReading::default() };
        let rate = all.iter().map(|limit| limit.writes().per_second()).sum();
        let bytes = all.iter().map(|limit| limit.bytes().per_second()).sum();
        LimitReading { rate: Some(Iops::new(rate)), bytes: Some(ByteRate::new(bytes)) }
    }

    /// Returns the resource's state.
    pub(super) fn status(&self, watch: &LoadWatch) -> ResourceStatus {
        // A device that has just gone has a number only.
        let name =
            |device: &DeviceNumber| watch.name(*device).map_or_else(|| device.to_string(), str::to_owned);
        let limits = self.limited.iter().map(|(device, limit)| (name(device), *limit)).collect();
        let status = ResourceStatus::of(&self.regulated, watch.has(&self.config.storage), limits);
        ResourceStatus {
            reporters: self.reports.iter().flat_map(ReportIntake::reporters).cloned().collect(),
            source: self.source.as_ref().map(LatencySource::reading),
            signal_origin: self.origin(),
            protected: self.protected.clone(),
            uncounted: self.uncounted.iter().map(ToString::to_string).collect(),
            ..status
        }
    }

    /// Returns the devices of it whose requests the kernel does not count.
    pub(super) fn uncounted(&self) -> &[UncountedDevice] {
        &self.uncounted
    }

    /// Returns the origin of the latency that the law steers by.
    fn origin(&self) -> SignalOrigin {
        match &self.config.source {
            Some(_) => SignalOrigin::Source,
            None => self.reports.as_ref().map(ReportIntake::origin).unwrap_or_default(),
        }
    }

    /// Delays members by as much as is said, until the next decision.
    pub(super) fn impose(&mut self, delay: Latency) {
        self.regulated.impose(delay);
    }

    /// Returns the resource's consumers that are eligible.
    fn eligible(&self, places: &[usize], watch: &LoadWatch) -> BTreeSet<ConsumerName> {
        let found = || [&self.writers, &self.readers].into_iter().flatten();
        let is_empty = self.config.members.is_empty() && found().all(|set| set.members().next().is_none());
        if is_empty {
            return BTreeSet::new();
        }
        let addresses = watch.addresses();
        let eligible = places
            .iter()
            .flat_map(|place| watch.device(*place).consumers())
            .filter(|name| {
                (found().any(|set| set.contains(name)) || matches_any(&self.config.members, name, addresses))
                    && !matches_any(&self.config.exempt, name, addresses)
            })
            .cloned()
            .collect();
        match &self.reports {
            Some(reports) => reports.in_turn(eligible),
            None => eligible,
        }
    }
}

/// Decides by the latency that a source says. Nothing is throttled while it says none.
fn decide_by_source(regulated: &mut RegulatedResource, now: Instant, source: &mut LatencySource) -> Decision {
    let sample = source.take();
    let decision = regulated.decide_with(now, None, Some(&mut |_| sample.signal()));
    if sample == SourceSample::Unknown {
        regulated.impose(Latency::ZERO);
    }
    decision
}

/// Decides by what initiators wait for, as far as their reports count.
fn decide_by_reports(
    regulated: &mut RegulatedResource,
    (now, since): (Instant, Duration),
    (reports, carrier): (&mut ReportIntake, &ReportCarrier),
    consumers: &BTreeSet<&ConsumerName>,
    watch: &LoadWatch,
) -> Decision {
    let eligible: BTreeSet<_> = regulated.consumers().collect();
    let heard = reports.take(now, (carrier, regulated.law()), consumers, &eligible, watch.addresses());
    let (counts, mut reported) = (reports.counts(), None);
    let decision = regulated.decide_with(
        now,
        None,
        Some(&mut |own| {
            let signal = heard.as_ref().and_then(|heard| heard.signal(own));
            reported = signal.as_ref().and_then(|signal| signal.mean);
            let signal = signal.filter(|_| counts);
            reports.note_origin(own, signal.as_ref());
            signal
        }),
    );
    let target = regulated.law().target;
    let longest = regulated.law().law.longest_delay().unwrap_or_default();
    reports.follow(since, reported, target, (regulated.delay(), longest));
    decision
}

/// Returns the way in which commands are carried out.
const fn throttle(config: &ResourceConfig, method: ThrottleMethod) -> ThrottleKind {
    let longest = config.longest;
    match method {
        ThrottleMethod::Rate => ThrottleKind::WriteDelay { longest },
        ThrottleMethod::Netem | ThrottleMethod::Edt | ThrottleMethod::Cgroup => {
            ThrottleKind::Delay { longest }
        }
    }
}

/// Returns true if a pattern means the consumer.
fn matches_any(patterns: &[ConsumerPattern], name: &ConsumerName, addresses: &ConsumerAddresses) -> bool {
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
    Writers(#[from] BulkConfigError),
    /// Its cgroups.
    #[error(transparent)]
    Cgroups(#[from] CgroupSetUpError),
}
