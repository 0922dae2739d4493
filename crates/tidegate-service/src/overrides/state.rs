//! The overrides of a running service.

use std::collections::BTreeMap;
use std::time::Instant;

use tidegate_control::LoopConfig;
use tidegate_journal::{ActionRecord, WallTime};
use tidegate_units::{ByteRate, ConsumerName, Iops, Latency, ResourceName, Shares};

use super::changes::{ConsumerChanges, ReleaseScope, ResourceChanges};
use super::document::{ConsumerOverride, OverridesDocument, ReleaseEntry, ResourceOverride};
use super::request::OverrideAction;

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

impl Overrides {
    /// Lays the settings of a law's resource over the configuration's. A release is a dry run.
    pub fn lay_over(&self, law: &mut LoopConfig) {
        let changes = self.of_resource(&law.resource);
        law.target = changes.target.unwrap_or(law.target);
        law.released = self.is_released(&law.resource);
        law.dry_run = changes.dry_run.unwrap_or(law.dry_run) || law.released;
    }

    /// Returns the settings that were changed of a resource.
    pub(super) fn of_resource(&self, name: &ResourceName) -> ResourceChanges {
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

    /// Returns all overrides as a document.
    #[must_use]
    pub fn document(&self) -> OverridesDocument {
        let resources =
            self.resources.iter().map(|(resource, (changes, Origin { by, since }))| ResourceOverride {
                resource: resource.clone(),
                target_seconds: changes.target.map(Latency::as_secs_f64),
                dry_run: changes.dry_run,
                by: by.clone(),
                since: since.to_string(),
            });
        let consumers = self.consumers.iter().flat_map(|(resource, consumers)| {
            consumers.iter().map(|(consumer, (changes, Origin { by, since }))| ConsumerOverride {
                resource: resource.clone(),
                consumer: consumer.clone(),
                shares: changes.shares.map(Shares::get),
                limit_iops: changes.limit.map(Iops::per_second),
                limit_bytes_per_second: changes.bandwidth.map(ByteRate::per_second),
                by: by.clone(),
                since: since.to_string(),
            })
        });
        let releases = self.releases.iter().map(|(scope, release)| ReleaseEntry {
            resource: scope.resource.clone(),
            consumer: scope.consumer.clone(),
            until: release.until_wall.to_string(),
            by: release.origin.by.clone(),
            since: release.origin.since.to_string(),
        });
        OverridesDocument {
            resources: resources.collect(),
            consumers: consumers.collect(),
            releases: releases.collect(),
        }
    }
}

/// Returns the entry of the decision journal for an action of a caller.
#[must_use]
pub fn action_record(action: &OverrideAction, by: &str) -> ActionRecord {
    ActionRecord { resource: action.resource().cloned(), actor: by.to_owned(), text: action.to_string() }
}

/// Logs what an operator did.
pub fn log_action(action: &OverrideAction, by: &str) {
    tracing::info!(
        tidegate.resource = action.resource().map(display),
        tidegate.consumer = action.consumer().map(display),
        tidegate.caller = by,
        "{by}: {action}"
    );
}

/// Logs that the time of a release is over.
pub fn log_end(scope: &ReleaseScope) {
    tracing::info!(
        tidegate.resource = scope.resource.as_ref().map(display),
        tidegate.consumer = scope.consumer.as_ref().map(display),
        "the release of {scope} is over"
    );
}

/// Returns the entry of the decision journal for a release whose time is over.
#[must_use]
pub fn end_record(scope: &ReleaseScope) -> ActionRecord {
    let text = format!("the release of {scope} is over");
    ActionRecord { resource: scope.resource.clone(), actor: "tidegate".to_owned(), text }
}
