//! What the agent does without touching anything: it looks at the machine, and says who is to be held.

use std::time::Duration;

use tidegate_control::Decision;
use tidegate_host::sense::Sessions;
use tidegate_host::throttle::Hold;
use tidegate_host::{ReadError, Root};
use tidegate_units::{Instant, Latency};

use super::AgentError;
use super::config::{AgentConfig, Storage};
use super::histograms::DevicesOf;
use super::resource::{Resource, SetUpError};
use super::watch::Watch;
use crate::metrics::ResourceStatus;

/// After this time without counters nothing is known any more, and everybody is let go.
const BLIND: Duration = Duration::from_secs(2);

/// Regulates all resources of a configuration on one machine, or on what looks like one.
#[derive(Debug)]
pub struct Regulator {
    watch: Watch,
    resources: Vec<Resource>,
    /// When counters were read last.
    seen: Instant,
}

/// What one step came to.
#[derive(Debug)]
pub struct Step {
    /// What was decided, of the resources whose interval was over.
    pub decisions: Vec<Decision>,
    /// What the throttle is to have in force now; nothing about resources on a dry run.
    pub holds: Vec<Hold>,
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
        Ok(Self { watch: Watch::new(root)?, resources, seen: Instant::ZERO })
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
            Ok(elapsed) => {
                self.seen = now;
                if let Some(elapsed) = elapsed {
                    decisions = self.decide(now, elapsed);
                }
            }
            Err(error) => {
                blind = Some(error);
                if now.saturating_since(self.seen) >= BLIND {
                    self.resources.iter_mut().for_each(|resource| resource.impose(Latency::ZERO));
                }
            }
        }
        let addresses = self.watch.addresses();
        let acting = self.resources.iter().filter(|resource| !resource.config().law.dry_run);
        Step { decisions, holds: acting.map(|resource| resource.hold(addresses)).collect(), blind }
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

    fn decide(&mut self, now: Instant, elapsed: Duration) -> Vec<Decision> {
        let watch = &self.watch;
        self.resources.iter_mut().filter_map(|resource| resource.observe(now, elapsed, watch)).collect()
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
        let devices = |resource: &Resource| self.watch.devices_of(&resource.config().storage);
        self.resources
            .iter()
            .map(|resource| (resource.name().clone(), devices(resource).into_iter().collect()))
            .collect()
    }

    /// What the targets said last.
    pub(super) fn sessions(&self) -> &Sessions {
        self.watch.sessions()
    }
}

fn resources(config: &AgentConfig) -> Result<Vec<Resource>, SetUpError> {
    config.resources.iter().cloned().map(Resource::new).collect()
}
