//! Changed settings, and the extent of a release.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::{ByteRate, ConsumerName, Iops, Latency, ResourceName, Shares};

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
    /// Its limit in bytes per second.
    pub bandwidth: Option<ByteRate>,
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
