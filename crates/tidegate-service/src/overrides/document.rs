//! Settings in force and overrides, as documents.

use serde::{Deserialize, Serialize};
use tidegate_control::LoopConfig;
use tidegate_units::{ConsumerName, ResourceName};

/// The settings of a running service, or of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceSettings {
    /// The version of this document.
    pub version: u32,
    /// `serve` or `agent`.
    pub service: String,
    /// The resources in the order of the configuration.
    pub resources: Vec<ResourceInForce>,
    /// The overrides. A configuration has none.
    pub overrides: OverridesDocument,
}

impl ServiceSettings {
    /// The version that this code writes and reads.
    pub const VERSION: u32 = 1;
}

/// Settings of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceInForce {
    /// The name of the resource.
    pub name: ResourceName,
    /// The law. `None`: the resource has none.
    pub law: Option<String>,
    /// The target of the law in seconds.
    pub target_seconds: Option<f64>,
    /// The control interval in seconds.
    pub interval_seconds: Option<f64>,
    /// True if the law decides, and throttles nothing.
    pub dry_run: bool,
    /// The consumers that the configuration names.
    pub consumers: Vec<ConsumerInForce>,
}

impl ResourceInForce {
    /// Returns the settings of a resource by its law, if it has one.
    #[must_use]
    pub fn of(name: &ResourceName, law: Option<&LoopConfig>, consumers: Vec<ConsumerInForce>) -> Self {
        Self {
            name: name.clone(),
            law: law.map(|law| law.law.kind().to_string()),
            target_seconds: law.map(|law| law.target.as_secs_f64()),
            interval_seconds: law.map(|law| law.interval.as_secs_f64()),
            dry_run: law.is_some_and(|law| law.dry_run),
            consumers,
        }
    }
}

/// Settings of a consumer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerInForce {
    /// The name of the consumer.
    pub name: ConsumerName,
    /// True if no law throttles it.
    pub protected: bool,
    /// Its weight against the other consumers.
    pub shares: u32,
    /// Its limit in I/Os per second.
    pub limit_iops: Option<f64>,
    /// Its limit in bytes per second.
    pub limit_bytes_per_second: Option<f64>,
    /// Its reservation in I/Os per second.
    pub reservation_iops: Option<f64>,
    /// The response time that it is to have, in seconds, if that is not the target.
    pub goal_seconds: Option<f64>,
}

/// All overrides of a running service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OverridesDocument {
    /// Overrides of resources.
    pub resources: Vec<ResourceOverride>,
    /// Overrides of consumers.
    pub consumers: Vec<ConsumerOverride>,
    /// Releases.
    pub releases: Vec<ReleaseEntry>,
}

/// Settings of a resource that were changed. `None`: as the configuration has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceOverride {
    /// The resource.
    pub resource: ResourceName,
    /// The target of the law in seconds.
    pub target_seconds: Option<f64>,
    /// True: the law decides, and throttles nothing.
    pub dry_run: Option<bool>,
    /// The last caller that changed it.
    pub by: String,
    /// The time of the last change, by RFC 3339.
    pub since: String,
}

/// Settings of a consumer that were changed. `None`: as the configuration has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerOverride {
    /// The resource.
    pub resource: ResourceName,
    /// The consumer.
    pub consumer: ConsumerName,
    /// Its weight against the other consumers.
    pub shares: Option<u32>,
    /// Its limit in I/Os per second.
    pub limit_iops: Option<f64>,
    /// Its limit in bytes per second. Older services did not say it.
    #[serde(default)]
    pub limit_bytes_per_second: Option<f64>,
    /// The last caller that changed it.
    pub by: String,
    /// The time of the last change, by RFC 3339.
    pub since: String,
}

/// A release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseEntry {
    /// The resource. `None`: every one of the service.
    pub resource: Option<ResourceName>,
    /// The consumer. `None`: all of them.
    pub consumer: Option<ConsumerName>,
    /// The time of its end, by RFC 3339.
    pub until: String,
    /// The caller.
    pub by: String,
    /// The time of the request, by RFC 3339.
    pub since: String,
}
