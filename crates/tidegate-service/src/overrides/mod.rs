//! Overrides: settings that operators change while a service runs, laid over its configuration.
//!
//! A restart ends all overrides, and a reload keeps them. Each of them names the caller and the time, so that
//! a difference from the file can be explained.

mod api;
mod document;
mod request;

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_config::nearest;
use tidegate_journal::{ActionRecord, WallTime};
use tidegate_units::{ConsumerName, Iops, Latency, ResourceName, Shares};

pub use api::{ControlRequest, routes};
pub use document::{
    ConsumerInForce, ConsumerOverride, OverridesDocument, ReleaseEntry, ResourceInForce, ResourceOverride,
    ServiceSettings,
};
pub use request::{ConsumerPatch, OverrideAction, ReleaseRequest, RequestError, ResourcePatch};

/// The longest release, in time: a day. A longer one is a change of the configuration.
pub const LONGEST_RELEASE: Duration = Duration::from_secs(24 * 3_600);

/// Settings of a resource that were changed. `None`: as the configuration has it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ResourceChanges {
    /// The target of the law.
    pub target: Option<Latency>,
    /// True: the law decides, and throttles nothing.
    pub dry_run: Option<bool>,
}

/// Settings of a consumer that were changed. `None`: as the configuration has it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ConsumerChanges {
    /// Its weight against the other consumers.
    pub shares: Option<Shares>,
    /// Its limit in I/Os per second.
    pub limit: Option<Iops>,
}

/// The extent of a release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseScope {
    /// The resource. `None`: every one of the service.
    pub resource: Option<ResourceName>,
    /// The consumer. `None`: all of them.
    pub consumer: Option<ConsumerName>,
}

impl ReleaseScope {
    /// Returns true if the release holds for all consumers of this resource.
    #[must_use]
    pub fn is_whole(&self, resource: &ResourceName) -> bool {
        self.consumer.is_none() && self.resource.as_ref().is_none_or(|name| name == resource)
    }

    /// Returns true if the release holds for this consumer.
    #[must_use]
    pub fn covers(&self, resource: &ResourceName, consumer: &ConsumerName) -> bool {
        self.resource.as_ref().is_none_or(|name| name == resource)
            && self.consumer.as_ref().is_none_or(|name| name == consumer)
    }
}

impl fmt::Display for ReleaseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.consumer, &self.resource) {
            (Some(consumer), Some(resource)) => write!(f, "{consumer} at {resource}"),
            (Some(consumer), None) => write!(f, "{consumer}"),
            (None, Some(resource)) => write!(f, "all consumers of {resource}"),
            (None, None) => f.write_str("all consumers"),
        }
    }
}

/// The caller and the time of an override.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    by: String,
    since: WallTime,
}

#[derive(Debug, Clone, PartialEq)]
struct Release {
    origin: Origin,
    /// The end, on the clock that no administrator sets.
    until: Instant,
    /// The same as a time of day.
    until_wall: WallTime,
}

/// All overrides of a running service. There are at most as many as it has resources and consumers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    resources: BTreeMap<ResourceName, (ResourceChanges, Origin)>,
    consumers: BTreeMap<ResourceName, BTreeMap<ConsumerName, (ConsumerChanges, Origin)>>,
    releases: BTreeMap<ReleaseScope, Release>,
}

/// Reasons why a service does not do what an operator asks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OverrideRefusal {
    /// The service has no resource of this name.
    #[error("there is no resource `{asked}`{}", hint(nearest.as_deref()))]
    NoResource {
        /// The name that was asked for.
        asked: ResourceName,
        /// The known name that looks most like it.
        nearest: Option<String>,
    },
    /// The resource has no consumer of this name.
    #[error("there is no consumer `{asked}`{}", hint(nearest.as_deref()))]
    NoConsumer {
        /// The name that was asked for.
        asked: ConsumerName,
        /// The known name that looks most like it.
        nearest: Option<String>,
    },
    /// The service cannot do it.
    #[error("{0}")]
    Impossible(String),
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

impl OverrideRefusal {
    /// The refusal for a resource that is not among the known ones.
    pub fn no_resource<'a>(asked: &ResourceName, known: impl Iterator<Item = &'a str>) -> Self {
        let nearest = nearest(asked.as_str(), &known.collect::<Vec<_>>()).map(str::to_owned);
        Self::NoResource { asked: asked.clone(), nearest }
    }

    /// The refusal for a consumer that is not among the known ones.
    pub fn no_consumer<'a>(asked: &ConsumerName, known: impl Iterator<Item = &'a str>) -> Self {
        let nearest = nearest(asked.as_str(), &known.collect::<Vec<_>>()).map(str::to_owned);
        Self::NoConsumer { asked: asked.clone(), nearest }
    }
}

impl Overrides {
    /// Returns the settings that were changed of a resource.
    #[must_use]
    pub fn of_resource(&self, name: &ResourceName) -> ResourceChanges {
        self.resources.get(name).map(|(changes, _)| *changes).unwrap_or_default()
    }

    /// Returns the consumers of a resource whose settings were changed.
    pub fn of_consumers(
        &self,
        resource: &ResourceName,
    ) -> impl Iterator<Item = (&ConsumerName, ConsumerChanges)> {
        let consumers = self.consumers.get(resource).into_iter().flatten();
        consumers.map(|(name, (changes, _))| (name, *changes))
    }

    /// Returns true if all consumers of a resource are released.
    #[must_use]
    pub fn is_released(&self, resource: &ResourceName) -> bool {
        self.releases.keys().any(|scope| scope.is_whole(resource))
    }

    /// Returns true if a consumer is released, alone or with its resource.
    #[must_use]
    pub fn is_consumer_released(&self, resource: &ResourceName, consumer: &ConsumerName) -> bool {
        self.releases.keys().any(|scope| scope.covers(resource, consumer))
    }

    /// Returns the consumers that are released alone, of one resource or wherever they are.
    pub fn released_consumers<'a>(
        &'a self,
        resource: &'a ResourceName,
    ) -> impl Iterator<Item = &'a ConsumerName> {
        let of = move |scope: &&ReleaseScope| scope.resource.as_ref().is_none_or(|name| name == resource);
        self.releases.keys().filter(of).filter_map(|scope| scope.consumer.as_ref())
    }

    /// Returns true if there is no override.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.consumers.is_empty() && self.releases.is_empty()
    }

    /// Returns the overrides after an action of a caller. The service then checks that it can do it.
    #[must_use]
    pub fn after(&self, action: &OverrideAction, by: &str, now: (Instant, WallTime)) -> Self {
        let mut after = self.clone();
        let origin = Origin { by: by.to_owned(), since: now.1 };
        match action {
            OverrideAction::Resource { resource, patch } => {
                let changes = patch.onto(self.of_resource(resource));
                if changes == ResourceChanges::default() {
                    after.resources.remove(resource);
                } else {
                    after.resources.insert(resource.clone(), (changes, origin));
                }
            }
            OverrideAction::Consumer { resource, consumer, patch } => {
                let of_resource = after.consumers.entry(resource.clone()).or_default();
                let known = of_resource.get(consumer).map(|(changes, _)| *changes).unwrap_or_default();
                let changes = patch.onto(known);
                if changes == ConsumerChanges::default() {
                    of_resource.remove(consumer);
                } else {
                    of_resource.insert(consumer.clone(), (changes, origin));
                }
                after.consumers.retain(|_, consumers| !consumers.is_empty());
            }
            OverrideAction::Release { scope, time } => {
                let until_wall = WallTime::from_nanos(
                    now.1.as_nanos().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
                );
                let release = Release { origin, until: now.0 + *time, until_wall };
                after.releases.insert(scope.clone(), release);
            }
            OverrideAction::EndRelease { scope: Some(scope) } => {
                after.releases.remove(scope);
            }
            OverrideAction::EndRelease { scope: None } => after.releases.clear(),
        }
        after
    }

    /// Ends the releases whose time is over, and returns them.
    pub fn expire(&mut self, now: Instant) -> Vec<ReleaseScope> {
        let over: Vec<_> = self
            .releases
            .iter()
            .filter(|(_, release)| release.until <= now)
            .map(|(scope, _)| scope.clone())
            .collect();
        for scope in &over {
            self.releases.remove(scope);
        }
        over
    }

    /// Drops the overrides of resources and consumers that a reload removed.
    pub fn retain(
        &mut self,
        has_resource: impl Fn(&ResourceName) -> bool,
        has_consumer: impl Fn(&ResourceName, &ConsumerName) -> bool,
    ) {
        self.resources.retain(|resource, _| has_resource(resource));
        for (resource, consumers) in &mut self.consumers {
            consumers.retain(|consumer, _| has_consumer(resource, consumer));
        }
        self.consumers.retain(|_, consumers| !consumers.is_empty());
        self.releases.retain(|scope, _| scope.resource.as_ref().is_none_or(&has_resource));
    }
}

/// Returns the entry of the decision journal for an action of a caller.
#[must_use]
pub fn action_record(action: &OverrideAction, by: &str) -> ActionRecord {
    ActionRecord { resource: action.resource().cloned(), actor: by.to_owned(), text: action.to_string() }
}

#[cfg(test)]
mod tests;
