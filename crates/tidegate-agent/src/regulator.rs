//! The agent's work without touching anything: it observes the machine, and decides which consumers to
//! throttle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::ClusterHandle;
use tidegate_control::{Decision, SignalStatistic};
use tidegate_host::sense::latency::LatencyBuckets;
use tidegate_host::sense::session::TargetKind;
use tidegate_host::sense::{TargetSessions, UncountedDevice};
use tidegate_host::throttle::{ThrottleInForce, ThrottleMethod, ThrottleRequest};
use tidegate_host::{ReadError, SystemRoot};
use tidegate_journal::ThrottleReading;
use tidegate_regulate::RegulatedResource;
use tidegate_units::{ConsumerName, HostName, Instant, Latency, ResourceName};

use super::AgentError;
use super::addresses::{ConsumerAddresses, ToldSessions};
use super::bridge::BridgeWatch;
use super::cgroups::CgroupConfig;
use super::cgroups::{CgroupResource, CgroupSetUpError};
use super::config::{AgentConfig, ResourceConfig};
use super::initiators::intake::ReportCarrier;
use super::load_watch::{BlindError, LoadWatch};
use super::nfsd_watch::{self, NfsdStatus, NfsdWatch};
use super::resource::{SessionResource, SetUpError};
use super::watch::MachineSample;
use crate::metrics::ResourceStatus;
use tidegate_host::DeviceNumber;

/// After this time without counters nothing is known any more, and all consumers are released.
const BLIND: Duration = Duration::from_secs(2);

/// The longest time from one step to the next.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// Regulates all resources of a configuration on one machine, or on what looks like one.
#[derive(Debug)]
pub struct MachineRegulator {
    watch: LoadWatch,
    resources: Vec<SessionResource>,
    /// Devices whose cgroups are regulated.
    cgroups: Vec<CgroupResource>,
    root: SystemRoot,
    /// The carrier of initiators' reports, if there is one.
    carrier: Option<ReportCarrier>,
    /// The throttling that is to be in force.
    holds: Vec<ThrottleRequest>,
    /// True if the consumers to throttle have to be found anew.
    stale: bool,
    /// The time of the last reading of the machine's counters.
    seen: Instant,
    /// The time at which it was told last which reads completed; `None`: never.
    counted: Option<Instant>,
    method: ThrottleMethod,
    /// Kinds of targets, by resource, whose writers cannot be throttled.
    beyond: BTreeSet<(ResourceName, TargetKind)>,
    /// The threads of this machine's NFS server.
    nfsd: NfsdWatch,
}

/// The outcome of one step.
#[derive(Debug)]
pub struct RegulationStep {
    /// The decisions of the resources whose interval was over.
    pub decisions: Vec<Decision>,
    /// The reason why the machine could not be seen.
    pub blind: Option<BlindError>,
}

impl MachineRegulator {
    /// Reads the machine's consumers for the first time. Nothing is throttled yet.
    ///
    /// # Errors
    /// When the machine cannot be seen, or a resource cannot be set up.
    pub fn new(root: SystemRoot, config: &AgentConfig) -> Result<Self, AgentError> {
        let resources = resources(config)?;
        let cgroups = cgroups(&root, config)?;
        let mut watch = LoadWatch::new(root.clone(), config)?;
        watch.look_every(between_looks(config));
        let method = config.throttle;
        let (holds, beyond) = (Vec::new(), BTreeSet::new());
        Ok(Self {
            nfsd: NfsdWatch::new(root.clone()),
            watch,
            resources,
            cgroups,
            root,
            carrier: None,
            holds,
            stale: true,
            seen: Instant::ZERO,
            counted: None,
            method,
            beyond,
        })
    }

    /// Takes reports of initiators from now on, as the host that the cluster knows by this name.
    pub fn hear(&mut self, cluster: Arc<ClusterHandle>, host: HostName) {
        self.carrier = Some(ReportCarrier { cluster, host });
    }

    /// Changes the configuration while running, without releasing any consumer in between.
    ///
    /// # Errors
    /// When a resource cannot be set up; nothing is changed then.
    pub fn reconfigure(&mut self, config: &AgentConfig) -> Result<(), SetUpError> {
        // What can be made anew can be made of what is there: nothing below fails when these two are made.
        let mut fresh = resources(config)?;
        let mut fresh_cgroups = cgroups(&self.root, config)?;
        for resource in &mut fresh {
            if let Some(place) = self.resources.iter().position(|known| known.name() == resource.name()) {
                let mut known = self.resources.swap_remove(place);
                known.reconfigure(resource.config().clone())?;
                *resource = known;
            }
        }
        for resource in &mut fresh_cgroups {
            let name = &resource.config().law.resource;
            if let Some(place) = self.cgroups.iter().position(|known| known.config().law.resource == *name) {
                let mut known = self.cgroups.swap_remove(place);
                known.reconfigure(resource.config().clone()).map_err(CgroupSetUpError::from)?;
                *resource = known;
            }
        }
        self.cgroups = fresh_cgroups;
        self.resources = fresh;
        self.stale = true;
        self.watch.look_every(between_looks(config));
        self.watch.tell(ToldSessions::of(config));
        Ok(())
    }

    /// Returns the interval at which [`step`](Self::step) is to be called: the shortest of the resources'
    /// intervals. Where that is so long that an agent without counters would notice too late, it is a whole
    /// part of it.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let of_cgroups = self.cgroups.iter().map(|resource| resource.config().law.interval);
        let intervals = self.resources.iter().map(|resource| resource.config().law.interval);
        let shortest = intervals.chain(of_cgroups).min().unwrap_or(BLIND);
        let parts = shortest.as_nanos().div_ceil(LONGEST_STEP.as_nanos()).max(1);
        shortest / u32::try_from(parts).unwrap_or(u32::MAX)
    }

    /// Returns true if a resource's law steers by a percentile, so that [`count`](Self::count) has to be
    /// called.
    #[must_use]
    pub fn steers_by_percentile(&self) -> bool {
        self.resources.iter().any(|resource| resource.config().law.statistic != SignalStatistic::Mean)
    }

    /// Takes how long each of a resource's reads took that completed lately, before the step that decides on
    /// them.
    pub fn count(&mut self, resource: &ResourceName, reads: &LatencyBuckets) {
        if let Some(known) = self.resources.iter_mut().find(|known| known.name() == resource) {
            known.count(reads);
        }
    }

    /// Takes note that everything that is to be [counted](Self::count) was.
    pub(super) const fn counted(&mut self, now: Instant) {
        self.counted = Some(now);
    }

    /// Looks and decides once.
    pub fn step(&mut self, now: Instant) -> RegulationStep {
        let mut decisions = Vec::new();
        let mut blind = None;
        if self.resources.iter().any(SessionResource::seeks_members) {
            self.watch.look_now();
        }
        match self.watch.sample(now) {
            Ok(sample) => {
                self.seen = now;
                if let Some(sample) = sample {
                    decisions = self.decide(now, sample);
                    blind = self.decide_of_cgroups(now, sample, &mut decisions).err().map(BlindError::from);
                    if nfsd_watch::has_clients(self.watch.sessions())
                        && let Err(error) = self.nfsd.look(now)
                    {
                        tracing::debug!("threads of the NFS server: {error}");
                    }
                    self.stale |=
                        sample.changed || self.resources.iter().any(SessionResource::members_changed);
                }
            }
            Err(error) => blind = Some(error),
        }
        if blind.is_some() {
            self.release_the_unseen(now);
        }
        if self.counted.is_some_and(|counted| now.saturating_since(counted) >= BLIND) {
            self.release_uncounted();
        }
        self.renew_throttling();
        RegulationStep { decisions, blind }
    }

    /// Releases resources without samples for too long. Cgroups of one device can be released alone.
    fn release_the_unseen(&mut self, now: Instant) {
        if now.saturating_since(self.seen) >= BLIND {
            self.resources.iter_mut().for_each(|resource| resource.impose(Latency::ZERO));
        }
        let unseen = |resource: &&mut CgroupResource| now.saturating_since(resource.seen()) >= BLIND;
        self.cgroups.iter_mut().filter(unseen).for_each(CgroupResource::release);
    }

    /// Releases the consumers of resources whose law steers by a percentile, when response times are not
    /// counted any more: to the law that looks like storage without requests, or with requests that are still
    /// young.
    fn release_uncounted(&mut self) {
        let by_percentile =
            |resource: &&mut SessionResource| resource.config().law.statistic != SignalStatistic::Mean;
        self.resources.iter_mut().filter(by_percentile).for_each(|resource| resource.impose(Latency::ZERO));
    }

    /// Returns the throttling that is to be in force now; nothing about resources on a dry run.
    #[must_use]
    pub fn holds(&self) -> &[ThrottleRequest] {
        &self.holds
    }

    /// Returns the regulation of all resources. Their order stays the same until the next
    /// [`reconfigure`](Self::reconfigure).
    pub(super) fn regulated(&self) -> impl Iterator<Item = &RegulatedResource> + Clone {
        let of_cgroups = self.cgroups.iter().map(CgroupResource::regulated);
        self.resources.iter().map(SessionResource::regulated).chain(of_cgroups)
    }

    /// Returns the throttling in force for each of [`regulated`](Self::regulated). A resource on a dry run
    /// has none. `in_force` tells it for a request.
    pub(super) fn readings(
        &self,
        in_force: impl Fn(&ThrottleRequest) -> ThrottleInForce,
    ) -> Vec<Option<ThrottleReading>> {
        let mut holds = self.holds.iter();
        let mut readings = Vec::with_capacity(self.resources.len() + self.cgroups.len());
        for resource in &self.resources {
            let hold = if resource.config().law.dry_run { None } else { holds.next() };
            let read = |hold: &ThrottleRequest| resource.reading(&in_force(hold), &hold.members, &self.watch);
            readings.push(hold.map(read));
        }
        for resource in &self.cgroups {
            let hold = if resource.config().law.dry_run { None } else { holds.next() };
            readings.push(hold.map(|hold| resource.reading(&in_force(hold))));
        }
        readings
    }

    /// Delays may be others at each step, members and their addresses seldom are.
    fn renew_throttling(&mut self) {
        if std::mem::take(&mut self.stale) {
            if self.method == ThrottleMethod::Rate {
                self.beyond = self.beyond_limits();
            }
            let watch = &self.watch;
            self.holds = acting(&mut self.resources).map(|resource| resource.throttling(watch)).collect();
        } else {
            for (hold, resource) in self.holds.iter_mut().zip(acting(&mut self.resources)) {
                hold.delay = resource.delay();
                hold.own_delays = resource.own_delays(&hold.members, self.watch.addresses());
                hold.limits = resource.limits();
            }
            self.holds.truncate(acting(&mut self.resources).count());
        }
        let cgroups = self.cgroups.iter().filter(|resource| !resource.config().law.dry_run);
        self.holds.extend(cgroups.map(CgroupResource::throttling));
    }

    fn beyond_limits(&self) -> BTreeSet<(ResourceName, TargetKind)> {
        let beyond = |resource: &SessionResource| {
            let name = resource.name().clone();
            let sessions = self.watch.beyond_limits(&resource.config().storage);
            sessions.map(move |session| (name.clone(), session.via)).collect::<Vec<_>>()
        };
        self.resources.iter().flat_map(beyond).collect()
    }

    /// Returns the kinds of targets, by resource, whose writers the throttle cannot throttle.
    pub(super) const fn beyond(&self) -> &BTreeSet<(ResourceName, TargetKind)> {
        &self.beyond
    }

    /// Returns the throttling that is to be in force when all members of every resource are delayed by
    /// `delay`, whatever the law decided.
    pub(super) fn impose(&mut self, delay: Latency) -> Vec<ThrottleRequest> {
        let watch = &self.watch;
        let held = |resource: &mut SessionResource| {
            resource.impose(delay);
            resource.throttling(watch)
        };
        self.resources.iter_mut().map(held).collect()
    }

    fn decide(&mut self, now: Instant, sample: MachineSample) -> Vec<Decision> {
        let (watch, carrier) = (&self.watch, self.carrier.as_ref());
        let decided = |resource: &mut SessionResource| resource.observe(now, sample, watch, carrier);
        let mut decisions = Vec::with_capacity(self.resources.len());
        decisions.extend(self.resources.iter_mut().filter_map(decided));
        decisions
    }

    fn decide_of_cgroups(
        &mut self,
        now: Instant,
        sample: MachineSample,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), ReadError> {
        let mut failed = Ok(());
        for resource in &mut self.cgroups {
            match resource.observe(now, sample, &self.watch) {
                Ok(decision) => decisions.extend(decision),
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    /// Cgroups that the kernel neither accounts for nor limits, by resource.
    pub(super) fn unaccounted(&self) -> BTreeSet<(ResourceName, ConsumerName)> {
        let of = |resource: &CgroupResource| {
            let name = resource.config().law.resource.clone();
            resource.unaccounted().map(move |cgroup| (name.clone(), cgroup.clone())).collect::<Vec<_>>()
        };
        self.cgroups.iter().flat_map(of).collect()
    }

    /// Devices whose requests the kernel does not count, by resource. Nothing is known of these resources.
    pub(super) fn uncounted(&self) -> BTreeSet<(ResourceName, UncountedDevice)> {
        let of_sessions = self.resources.iter().flat_map(|resource| {
            resource.uncounted().iter().map(|device| (resource.name().clone(), device.clone()))
        });
        let of_cgroups = self.cgroups.iter().filter_map(|resource| {
            Some((resource.config().law.resource.clone(), resource.uncounted()?.clone()))
        });
        of_sessions.chain(of_cgroups).collect()
    }

    /// Returns the devices of all resources of sessions whose requests the kernel does not count now, whether or not
    /// consumers load them.
    pub(super) fn uncounted_storage(&self) -> Vec<UncountedDevice> {
        let storages = self.resources.iter().map(|resource| &resource.config().storage);
        storages.flat_map(|storage| self.watch.uncounted_of(storage)).collect()
    }

    /// Returns the state of the resources.
    #[must_use]
    pub fn status(&self) -> Vec<ResourceStatus> {
        let of_cgroups = self
            .cgroups
            .iter()
            .map(|resource| resource.status(self.watch.number(&resource.config().device).is_some()));
        self.resources.iter().map(|resource| resource.status(&self.watch)).chain(of_cgroups).collect()
    }

    /// The goals of cgroups that have one of their own.
    pub(super) fn goals(&self) -> BTreeMap<(ResourceName, ConsumerName), Latency> {
        self.cgroups.iter().flat_map(CgroupResource::goals).collect()
    }

    /// The devices of each resource that consumers load.
    pub(super) fn devices(&self) -> DevicesOf {
        let devices = |resource: &SessionResource| {
            let places = self.watch.devices_of(&resource.config().storage);
            places.into_iter().filter_map(|place| self.watch.device(place).number()).collect()
        };
        let of_cgroups = self.cgroups.iter().map(|resource| {
            (resource.config().law.resource.clone(), resource.device().into_iter().collect())
        });
        let of_sessions = self.resources.iter().map(|resource| (resource.name().clone(), devices(resource)));
        of_sessions.chain(of_cgroups).collect()
    }

    /// The sensor of packets, if there is one.
    pub(super) fn bridge(&self) -> Option<&BridgeWatch> {
        self.watch.bridge()
    }

    /// Returns the addresses of the consumers of these sessions.
    pub(super) fn addresses(&self) -> &ConsumerAddresses {
        self.watch.addresses()
    }

    /// Returns the state of the NFS server's threads; `None` if there is none.
    #[must_use]
    pub fn nfsd(&self) -> Option<NfsdStatus> {
        self.nfsd.status()
    }

    /// Returns the sessions that the targets showed last.
    pub(super) fn sessions(&self) -> &TargetSessions {
        self.watch.sessions()
    }
}

/// Returns the interval between two rescans for writers, as short as the shortest at which any resource's set
/// is brought up to date.
fn between_looks(config: &AgentConfig) -> Duration {
    let sets = config.resources.iter().flat_map(|resource| [resource.writers, resource.readers]);
    sets.flatten().map(|set| set.interval).min().unwrap_or(Duration::MAX)
}

/// Those that are no dry run.
fn acting(resources: &mut [SessionResource]) -> impl Iterator<Item = &mut SessionResource> {
    resources.iter_mut().filter(|resource| !resource.config().law.dry_run)
}

fn resources(config: &AgentConfig) -> Result<Vec<SessionResource>, SetUpError> {
    let new = |resource: &ResourceConfig| SessionResource::new(resource.clone(), config.throttle);
    config.resources.iter().map(new).collect()
}

fn cgroups(root: &SystemRoot, config: &AgentConfig) -> Result<Vec<CgroupResource>, SetUpError> {
    let new = |config: &CgroupConfig| CgroupResource::new(root, config.clone());
    Ok(config.cgroups.iter().map(new).collect::<Result<_, _>>()?)
}

/// The devices of each resource.
pub(super) type DevicesOf = BTreeMap<ResourceName, BTreeSet<DeviceNumber>>;
