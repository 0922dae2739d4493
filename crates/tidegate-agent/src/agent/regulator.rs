//! What the agent does without touching anything: it looks at the machine, and says who is to be held.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_control::Decision;
use tidegate_host::sense::Sessions;
use tidegate_host::sense::session::Via;
use tidegate_host::throttle::{Hold, Method};
use tidegate_host::{ReadError, Root};
use tidegate_units::{Instant, Latency, ResourceName};

use super::AgentError;
use super::config::{AgentConfig, ResourceConfig, Storage};
use super::histograms::DevicesOf;
use super::resource::{Resource, SetUpError};
use super::watch::{Sample, Watch};
use crate::metrics::ResourceStatus;

/// After this time without counters nothing is known any more, and everybody is let go.
const BLIND: Duration = Duration::from_secs(2);

/// Regulates all resources of a configuration on one machine, or on what looks like one.
#[derive(Debug)]
pub struct Regulator {
    watch: Watch,
    resources: Vec<Resource>,
    /// What the throttle is to have in force.
    holds: Vec<Hold>,
    /// Whether who is to be held has to be found anew.
    stale: bool,
    /// When counters were read last.
    seen: Instant,
    method: Method,
    /// Whose writes cannot be held: kinds of targets, by resource.
    beyond: BTreeSet<(ResourceName, Via)>,
}

/// What one step came to.
#[derive(Debug)]
pub struct Step {
    /// What was decided, of the resources whose interval was over.
    pub decisions: Vec<Decision>,
    /// Why the machine could not be seen.
    pub blind: Option<ReadError>,
}

impl Regulator {
    /// Looks at the machine for the first time. Nobody is held yet.
    ///
    /// # Errors
    /// When the machine cannot be seen, or a resource cannot be set up.
    pub fn new(root: Root, config: &AgentConfig) -> Result<Self, AgentError> {
        let resources = resources(config)?;
        let mut watch = Watch::new(root)?;
        watch.look_every(between_looks(config));
        let method = config.throttle;
        let (holds, beyond) = (Vec::new(), BTreeSet::new());
        Ok(Self { watch, resources, holds, stale: true, seen: Instant::ZERO, method, beyond })
    }

    /// Changes the configuration while running, without letting go of anybody in between.
    ///
    /// # Errors
    /// When a resource cannot be set up; nothing is changed then.
    pub fn reconfigure(&mut self, config: &AgentConfig) -> Result<(), SetUpError> {
        // What can be made anew can be made of what is there.
        let mut fresh = resources(config)?;
        for resource in &mut fresh {
            if let Some(place) = self.resources.iter().position(|known| known.name() == resource.name()) {
                let mut known = self.resources.swap_remove(place);
                known.reconfigure(resource.config().clone())?;
                *resource = known;
            }
        }
        self.resources = fresh;
        self.stale = true;
        self.watch.look_every(between_looks(config));
        Ok(())
    }

    /// How often [`step`](Self::step) is to be called: the shortest of the resources' intervals.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.resources.iter().map(|resource| resource.config().law.interval).min().unwrap_or(BLIND)
    }

    /// Looks and decides once.
    pub fn step(&mut self, now: Instant) -> Step {
        let mut decisions = Vec::new();
        let mut blind = None;
        match self.watch.sample(now) {
            Ok(sample) => {
                self.seen = now;
                if let Some(sample) = sample {
                    decisions = self.decide(now, sample);
                    self.stale |= sample.changed || self.resources.iter().any(Resource::members_changed);
                }
            }
            Err(error) => {
                blind = Some(error);
                if now.saturating_since(self.seen) >= BLIND {
                    self.resources.iter_mut().for_each(|resource| resource.impose(Latency::ZERO));
                }
            }
        }
        self.renew_holds();
        Step { decisions, blind }
    }

    /// What the throttle is to have in force now; nothing about resources on a dry run.
    #[must_use]
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Delays may be others at each step, members and their addresses seldom are.
    fn renew_holds(&mut self) {
        if std::mem::take(&mut self.stale) {
            if self.method == Method::Rate {
                self.beyond = self.beyond_limits();
            }
            let addresses = self.watch.addresses();
            self.holds = acting(&mut self.resources).map(|resource| resource.hold(addresses)).collect();
        } else {
            for (hold, resource) in self.holds.iter_mut().zip(acting(&mut self.resources)) {
                hold.delay = resource.delay();
                hold.limits = resource.limits();
            }
        }
    }

    fn beyond_limits(&self) -> BTreeSet<(ResourceName, Via)> {
        let beyond = |resource: &Resource| {
            let name = resource.name().clone();
            let sessions = self.watch.beyond_limits(&resource.config().storage);
            sessions.map(move |session| (name.clone(), session.via)).collect::<Vec<_>>()
        };
        self.resources.iter().flat_map(beyond).collect()
    }

    /// Whose writes the throttle cannot hold, although they use a resource.
    pub(super) const fn beyond(&self) -> &BTreeSet<(ResourceName, Via)> {
        &self.beyond
    }

    /// What the throttle is to have in force when all members of every resource are held for `delay`, whatever the law decided.
    pub(super) fn impose(&mut self, delay: Latency) -> Vec<Hold> {
        let addresses = self.watch.addresses();
        let held = |resource: &mut Resource| {
            resource.impose(delay);
            resource.hold(addresses)
        };
        self.resources.iter_mut().map(held).collect()
    }

    fn decide(&mut self, now: Instant, sample: Sample) -> Vec<Decision> {
        let watch = &self.watch;
        let mut decisions = Vec::with_capacity(self.resources.len());
        decisions
            .extend(self.resources.iter_mut().filter_map(|resource| resource.observe(now, sample, watch)));
        decisions
    }

    /// Whether this machine has the storage.
    pub(super) fn has(&self, storage: &Storage) -> bool {
        self.watch.has(storage)
    }

    /// How the resources stand.
    pub(super) fn status(&self) -> Vec<ResourceStatus> {
        let present = |resource: &Resource| self.watch.has(&resource.config().storage);
        self.resources.iter().map(|resource| resource.status(present(resource))).collect()
    }

    /// The devices of each resource that consumers load.
    pub(super) fn devices(&self) -> DevicesOf {
        let devices = |resource: &Resource| {
            let places = self.watch.devices_of(&resource.config().storage);
            places.into_iter().map(|place| self.watch.device(place).number()).collect()
        };
        self.resources.iter().map(|resource| (resource.name().clone(), devices(resource))).collect()
    }

    /// What the targets said last.
    pub(super) fn sessions(&self) -> &Sessions {
        self.watch.sessions()
    }
}

/// How often it has to be looked who writes: as often as the set of any resource is to be brought up to date.
fn between_looks(config: &AgentConfig) -> Duration {
    let intervals = config.resources.iter().filter_map(|resource| Some(resource.writers?.interval));
    intervals.min().unwrap_or(Duration::MAX)
}

/// Those that are no dry run.
fn acting(resources: &mut [Resource]) -> impl Iterator<Item = &mut Resource> {
    resources.iter_mut().filter(|resource| !resource.config().law.dry_run)
}

fn resources(config: &AgentConfig) -> Result<Vec<Resource>, SetUpError> {
    let new = |resource: &ResourceConfig| Resource::new(resource.clone(), config.throttle);
    config.resources.iter().map(new).collect()
}
