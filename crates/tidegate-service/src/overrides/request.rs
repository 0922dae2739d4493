//! Requests of operators: their bodies, checked.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use thiserror::Error;
use tidegate_units::{ByteRate, ConsumerName, Iops, Latency, ResourceName, Shares};

use super::changes::{ConsumerChanges, LONGEST_RELEASE, ReleaseScope, ResourceChanges};

/// An action of an operator.
#[derive(Debug, Clone, PartialEq)]
pub enum OverrideAction {
    /// Settings of a resource are changed, or are those of the configuration again.
    Resource {
        /// The resource.
        resource: ResourceName,
        /// The changes.
        patch: ResourcePatch,
    },
    /// Settings of a consumer are changed, or are those of the configuration again.
    Consumer {
        /// Its resource.
        resource: ResourceName,
        /// The consumer.
        consumer: ConsumerName,
        /// The changes.
        patch: ConsumerPatch,
    },
    /// Consumers are released for a time.
    Release {
        /// The consumers.
        scope: ReleaseScope,
        /// The time.
        time: Duration,
    },
    /// A release ends before its time.
    EndRelease {
        /// The release. `None`: all of them.
        scope: Option<ReleaseScope>,
    },
}

impl OverrideAction {
    /// Returns the resource that the action is about; `None` if it is about all of them.
    #[must_use]
    pub const fn resource(&self) -> Option<&ResourceName> {
        match self {
            Self::Resource { resource, .. } | Self::Consumer { resource, .. } => Some(resource),
            Self::Release { scope, .. } | Self::EndRelease { scope: Some(scope) } => scope.resource.as_ref(),
            Self::EndRelease { scope: None } => None,
        }
    }

    /// Returns the consumer that the action is about; `None` if it is about all of them.
    #[must_use]
    pub const fn consumer(&self) -> Option<&ConsumerName> {
        match self {
            Self::Consumer { consumer, .. } => Some(consumer),
            Self::Release { scope, .. } | Self::EndRelease { scope: Some(scope) } => scope.consumer.as_ref(),
            Self::Resource { .. } | Self::EndRelease { scope: None } => None,
        }
    }

    /// Returns true if consumers are to be throttled by nothing after it.
    #[must_use]
    pub fn lets_go(&self) -> bool {
        match self {
            Self::Release { .. } => true,
            Self::Resource { patch, .. } => patch.dry_run == Some(Some(true)),
            Self::Consumer { .. } | Self::EndRelease { .. } => false,
        }
    }
}

impl fmt::Display for OverrideAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource { resource, patch } => write!(f, "{resource}: {patch}"),
            Self::Consumer { resource, consumer, patch } => write!(f, "{consumer} at {resource}: {patch}"),
            Self::Release { scope, time } => {
                write!(f, "released {scope} for {}", humantime::format_duration(*time))
            }
            Self::EndRelease { scope: Some(scope) } => write!(f, "ended the release of {scope}"),
            Self::EndRelease { scope: None } => f.write_str("ended all releases"),
        }
    }
}

/// Changes of a resource's settings (RFC 7396): a setting that is absent stays as it is, and one that is
/// `null` is that of the configuration again.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourcePatch {
    /// The target of the law in seconds.
    #[serde(default, deserialize_with = "present")]
    pub target_seconds: Option<Option<f64>>,
    /// True: the law decides, and throttles nothing.
    #[serde(default, deserialize_with = "present")]
    pub dry_run: Option<Option<bool>>,
}

/// Changes of a consumer's settings (RFC 7396), as [`ResourcePatch`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerPatch {
    /// Its weight against the other consumers.
    #[serde(default, deserialize_with = "present")]
    pub shares: Option<Option<u32>>,
    /// Its limit in I/Os per second.
    #[serde(default, deserialize_with = "present")]
    pub limit_iops: Option<Option<f64>>,
    /// Its limit in bytes per second.
    #[serde(default, deserialize_with = "present")]
    pub limit_bytes_per_second: Option<Option<f64>>,
}

/// A request to release consumers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The resource. Absent: every one of the service.
    #[serde(default)]
    pub resource: Option<ResourceName>,
    /// The consumer. Absent: all of them.
    #[serde(default)]
    pub consumer: Option<ConsumerName>,
    /// The time in seconds.
    pub for_seconds: f64,
}

/// Reasons why a request cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// It changes nothing.
    #[error("the request changes nothing: name a setting")]
    Nothing,
    /// The target is out of its range.
    #[error("`target_seconds` must be between 0.00001 and 60")]
    Target,
    /// The shares are out of their range.
    #[error("`shares` must be between 1 and {}", Shares::MAX.get())]
    Shares,
    /// The limit is out of its range.
    #[error("`limit_iops` must be between 1 and 10,000,000")]
    Limit,
    /// The limit in bytes per second is out of its range.
    #[error("`limit_bytes_per_second` must be between 65,536 and 1,000,000,000,000")]
    Bandwidth,
    /// The time of a release is out of its range.
    #[error("`for_seconds` must be between 1 and {}", LONGEST_RELEASE.as_secs())]
    Time,
}

impl RequestError {
    /// Returns the range of the value as people write it, with its unit: the end of "must be between …".
    #[must_use]
    pub fn range(&self) -> String {
        match self {
            Self::Nothing => "something that changes".to_owned(),
            Self::Target => "10us and 60s".to_owned(),
            Self::Shares => format!("1 and {}", Shares::MAX.get()),
            Self::Limit => "1 IO/s and 10000000 IO/s".to_owned(),
            Self::Bandwidth => "64KiB/s and 1000GB/s".to_owned(),
            Self::Time => format!("1s and {}", humantime::format_duration(LONGEST_RELEASE)),
        }
    }
}

/// Targets that storage can have, in seconds: a shorter one is a slip of the pen, and a longer one is that of
/// a hung storage.
const TARGETS: std::ops::RangeInclusive<f64> = 1e-5..=60.0;

/// Limits in I/Os per second: a client with a lower one gives up, and no storage does more.
const LIMITS: std::ops::RangeInclusive<f64> = 1.0..=1e7;

/// Limits in bytes per second: from one I/O of 64 KiB to more than any storage moves.
const BANDWIDTHS: std::ops::RangeInclusive<f64> = 65_536.0..=1e12;

impl ResourcePatch {
    /// Checks the ranges.
    ///
    /// # Errors
    /// When the patch changes nothing, or a value is out of its range.
    pub fn check(&self) -> Result<(), RequestError> {
        if *self == Self::default() {
            return Err(RequestError::Nothing);
        }
        let target = self.target_seconds.flatten();
        if target.is_some_and(|seconds| !TARGETS.contains(&seconds)) {
            Err(RequestError::Target)
        } else {
            Ok(())
        }
    }

    /// Returns changed settings.
    pub(super) fn onto(self, mut changes: ResourceChanges) -> ResourceChanges {
        if let Some(target) = self.target_seconds {
            changes.target = target.map(Latency::from_secs_f64);
        }
        if let Some(dry_run) = self.dry_run {
            changes.dry_run = dry_run;
        }
        changes
    }
}

impl ConsumerPatch {
    /// Checks the ranges.
    ///
    /// # Errors
    /// When the patch changes nothing, or a value is out of its range.
    pub fn check(&self) -> Result<(), RequestError> {
        if *self == Self::default() {
            return Err(RequestError::Nothing);
        }
        if self.shares.flatten().is_some_and(|shares| Shares::new(shares).is_none()) {
            return Err(RequestError::Shares);
        }
        if self.limit_iops.flatten().is_some_and(|rate| !LIMITS.contains(&rate)) {
            return Err(RequestError::Limit);
        }
        let bandwidth = self.limit_bytes_per_second.flatten();
        if bandwidth.is_some_and(|rate| !BANDWIDTHS.contains(&rate)) {
            return Err(RequestError::Bandwidth);
        }
        Ok(())
    }

    /// Returns changed settings.
    pub(super) fn onto(self, mut changes: ConsumerChanges) -> ConsumerChanges {
        if let Some(shares) = self.shares {
            changes.shares = shares.and_then(Shares::new);
        }
        if let Some(limit) = self.limit_iops {
            changes.limit = limit.map(Iops::new);
        }
        if let Some(bandwidth) = self.limit_bytes_per_second {
            changes.bandwidth = bandwidth.map(ByteRate::new);
        }
        changes
    }
}

impl ReleaseRequest {
    /// Returns the action.
    ///
    /// # Errors
    /// When the time is out of its range.
    pub fn action(self) -> Result<OverrideAction, RequestError> {
        if !(1.0..=LONGEST_RELEASE.as_secs_f64()).contains(&self.for_seconds) {
            return Err(RequestError::Time);
        }
        let time = Duration::from_secs_f64(self.for_seconds);
        Ok(OverrideAction::Release {
            scope: ReleaseScope { resource: self.resource, consumer: self.consumer },
            time,
        })
    }
}

impl fmt::Display for ResourcePatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target_seconds.map(|target| said("target", target.map(Latency::from_secs_f64)));
        let dry_run = self.dry_run.map(|dry_run| said("dry_run", dry_run));
        f.write_str(&[target, dry_run].into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for ConsumerPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = self.shares.map(|shares| said("shares", shares));
        let limit = self.limit_iops.map(|limit| said("limit", limit.map(Iops::new)));
        let bandwidth = self.limit_bytes_per_second;
        let bandwidth = bandwidth.map(|bandwidth| said("bandwidth", bandwidth.map(ByteRate::new)));
        f.write_str(&[shares, limit, bandwidth].into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

fn said(setting: &str, value: Option<impl fmt::Display>) -> String {
    value.map_or_else(
        || format!("{setting} as in the configuration"),
        |value| format!("{setting} set to {value}"),
    )
}

/// Tells a setting that is `null` from one that is absent.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(value).map(Some)
}
