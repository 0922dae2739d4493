//! What a cluster's administrator wants of its resources: a document per resource, the same for all hosts.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{ConsumerName, Iops, Latency, ResourceName, Shares};

/// Longer documents are refused: 64 KiB.
pub(crate) const LONGEST: usize = 64 * 1024;

/// A cluster has policies for at most so many resources.
pub(crate) const MOST_RESOURCES: usize = 1024;

/// A target outside of this range is a slip of the pen.
const TARGETS: (Latency, Latency) = (Latency::from_micros(10), Latency::from_millis(3_600_000));

/// What is wanted of one resource. What it does not mention stays as each host's own configuration has it.
///
/// ```json
/// {
///   "version": 1,
///   "target": "15ms",
///   "shares": { "database": 400, "backup": 100 },
///   "reservations": { "database": "200 IO/s" },
///   "limits": { "backup": "500 IO/s" }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The version of this document: [`Policy::VERSION`].
    pub version: u16,
    /// The response time that is promised: 10 µs to one hour.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "exact::latency")]
    pub target: Option<Latency>,
    /// What consumers are entitled to, relative to one another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<ConsumerName, Shares>,
    /// What consumers get at least while they ask for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "exact::rates")]
    pub reservations: BTreeMap<ConsumerName, Iops>,
    /// What consumers get at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "exact::rates")]
    pub limits: BTreeMap<ConsumerName, Iops>,
}

/// Why a document is not a policy.
#[derive(Debug, Error)]
pub enum InvalidPolicy {
    /// It is not JSON of this shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It is of another version.
    #[error("version {0} is not known here, only {known} is", known = Policy::VERSION)]
    Version(u16),
    /// It is longer than 64 KiB.
    #[error("it has {0} bytes, and at most {LONGEST} are allowed")]
    Length(usize),
    /// The target is out of its range.
    #[error("the target {0} is out of range: 10us to 1h")]
    Target(Latency),
    /// A rate is zero or not finite.
    #[error("the rate of `{0}` must be above zero")]
    Rate(ConsumerName),
    /// A consumer is to get at least more than it may get at most.
    #[error("the reservation of `{0}` is above its limit")]
    AboveLimit(ConsumerName),
}

impl Default for Policy {
    /// A policy that mentions nothing.
    fn default() -> Self {
        Self {
            version: Self::VERSION,
            target: None,
            shares: BTreeMap::new(),
            reservations: BTreeMap::new(),
            limits: BTreeMap::new(),
        }
    }
}

impl Policy {
    /// The version that this code writes and reads.
    pub const VERSION: u16 = 1;

    /// Reads a policy from JSON, and checks it.
    ///
    /// # Errors
    /// When it is none: see [`InvalidPolicy`].
    pub fn from_json(json: &[u8]) -> Result<Self, InvalidPolicy> {
        if json.len() > LONGEST {
            return Err(InvalidPolicy::Length(json.len()));
        }
        let policy: Self = serde_json::from_slice(json)?;
        policy.check()?;
        Ok(policy)
    }

    /// The policy as JSON. Reading it gives the same policy: nothing is rounded.
    ///
    /// # Errors
    /// When it does not hold together, or is too long.
    pub fn to_json(&self) -> Result<String, InvalidPolicy> {
        self.check()?;
        let json = serde_json::to_string_pretty(self)?;
        if json.len() > LONGEST { Err(InvalidPolicy::Length(json.len())) } else { Ok(json) }
    }

    /// Whether it holds together.
    ///
    /// # Errors
    /// When it does not: see [`InvalidPolicy`].
    pub fn check(&self) -> Result<(), InvalidPolicy> {
        if self.version != Self::VERSION {
            return Err(InvalidPolicy::Version(self.version));
        }
        let (shortest, longest) = TARGETS;
        if let Some(target) = self.target.filter(|target| *target < shortest || *target > longest) {
            return Err(InvalidPolicy::Target(target));
        }
        for (name, rate) in self.reservations.iter().chain(&self.limits) {
            if rate.per_second() <= 0.0 || !rate.per_second().is_finite() {
                return Err(InvalidPolicy::Rate(name.clone()));
            }
        }
        for (name, reservation) in &self.reservations {
            if self.limits.get(name).is_some_and(|limit| reservation > limit) {
                return Err(InvalidPolicy::AboveLimit(name.clone()));
            }
        }
        Ok(())
    }
}

/// Quantities as text that is read back as the same quantity: for people's eyes three digits do, for a document that is
/// read, changed and written back they do not.
mod exact {
    use tidegate_units::Latency;

    fn latency_text(latency: Latency) -> String {
        match latency.as_nanos() {
            nanos if nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
            nanos if nanos % 1_000 == 0 => format!("{}us", nanos / 1_000),
            nanos => format!("{nanos}ns"),
        }
    }

    pub(super) mod latency {
        use serde::{Deserialize, Deserializer, Serializer, de::Error};
        use tidegate_units::Latency;

        pub(in super::super) fn serialize<S: Serializer>(
            value: &Option<Latency>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match value {
                Some(latency) => serializer.serialize_str(&super::latency_text(*latency)),
                None => serializer.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Latency>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
        }
    }

    pub(super) mod rates {
        use std::collections::BTreeMap;

        use serde::{Deserialize, Deserializer, Serializer, de::Error};
        use tidegate_units::{ConsumerName, Iops};

        pub(in super::super) fn serialize<S: Serializer>(
            rates: &BTreeMap<ConsumerName, Iops>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            // The shortest digits that are read back as the same number.
            serializer
                .collect_map(rates.iter().map(|(name, rate)| (name, format!("{} IO/s", rate.per_second()))))
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<BTreeMap<ConsumerName, Iops>, D::Error> {
            let texts = BTreeMap::<ConsumerName, String>::deserialize(deserializer)?;
            texts
                .into_iter()
                .map(|(name, text)| {
                    let rate =
                        text.parse().map_err(|error| D::Error::custom(format!("`{name}`: {error}")))?;
                    Ok((name, rate))
                })
                .collect()
        }
    }
}

/// A policy as it stands in the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyRevision {
    /// Grows with every change in the cluster's store; what a compare-and-set compares.
    pub revision: u64,
    /// The policy.
    pub policy: Policy,
}

/// The policies of all resources that have one.
pub type Policies = Arc<BTreeMap<ResourceName, PolicyRevision>>;

/// Sees the policies of a cluster change.
///
/// A policy that is not valid is refused with a line in the log, and the last good one stays; so it does when the server is
/// away. A policy that is deleted is gone: the hosts' own configurations hold again.
#[derive(Debug)]
pub struct PolicyWatch {
    board: Arc<Board>,
    seen: u64,
}

impl PolicyWatch {
    pub(crate) fn new(board: Arc<Board>) -> Self {
        Self { board, seen: 0 }
    }

    /// All policies now.
    #[must_use]
    pub fn current(&self) -> Policies {
        self.board.lock().policies.clone()
    }

    /// All policies, if any has changed since this watch was last asked. Never waits.
    pub fn changed(&mut self) -> Option<Policies> {
        self.wait(Duration::ZERO)
    }

    /// Waits for a change, at most so long.
    pub fn wait(&mut self, timeout: Duration) -> Option<Policies> {
        let seen = self.seen;
        let deadline = Instant::now() + timeout;
        let mut state = self.board.lock();
        while state.changes == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.board.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.seen = state.changes;
        Some(state.policies.clone())
    }
}

/// Where the carrier puts policies, and watches find them.
#[derive(Debug, Default)]
pub(crate) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    policies: Policies,
    changes: u64,
}

impl Board {
    /// `None`: the resource has no policy any more. Returns whether there was room.
    pub(crate) fn put(&self, resource: ResourceName, policy: Option<PolicyRevision>) -> bool {
        let mut state = self.lock();
        if state.policies.get(&resource) == policy.as_ref() {
            return true;
        }
        if state.policies.len() >= MOST_RESOURCES
            && policy.is_some()
            && !state.policies.contains_key(&resource)
        {
            return false;
        }
        let policies = Arc::make_mut(&mut state.policies);
        match policy {
            Some(policy) => policies.insert(resource, policy),
            None => policies.remove(&resource),
        };
        state.changes += 1;
        self.changed.notify_all();
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(json: &str) -> String {
        Policy::from_json(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn the_documented_example_is_a_policy() {
        let json = r#"{ "version": 1, "target": "15ms", "shares": { "database": 400, "backup": 100 },
            "reservations": { "database": "200 IO/s" }, "limits": { "backup": "500 IO/s" } }"#;
        let policy = Policy::from_json(json.as_bytes()).unwrap();
        assert_eq!(policy.target, Some(Latency::from_millis(15)));
        assert_eq!(policy.shares[&ConsumerName::new("database").unwrap()].get(), 400);
        assert_eq!(policy.limits[&ConsumerName::new("backup").unwrap()], Iops::new(500.0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(error("{").contains("EOF"));
        assert!(error(r#"{"version":1,"targets":"15ms"}"#).contains("unknown field `targets`"));
        assert!(error(r#"{"version":1,"target":"15"}"#).contains("the unit is missing"));
        assert_eq!(error(r#"{"version":2}"#), "version 2 is not known here, only 1 is");
        assert!(error(r#"{"version":1,"target":"2h"}"#).contains("out of range: 10us to 1h"));
        assert!(
            error(r#"{"version":1,"shares":{"a":0}}"#).contains("shares"),
            "{}",
            error(r#"{"version":1,"shares":{"a":0}}"#)
        );
        assert!(error(r#"{"version":1,"limits":{"a":"fast"}}"#).contains("`a`: `fast`"));
        assert_eq!(error(r#"{"version":1,"limits":{"a":"0 IO/s"}}"#), "the rate of `a` must be above zero");
        assert_eq!(
            error(r#"{"version":1,"limits":{"a":"5 IO/s"},"reservations":{"a":"6 IO/s"}}"#),
            "the reservation of `a` is above its limit"
        );
        let long = format!(r#"{{"version":1,"shares":{{"{}":1}}}}"#, "a".repeat(LONGEST));
        assert!(error(&long).contains("at most 65536"));
    }

    #[test]
    fn a_watch_sees_each_change_once() {
        let board = Arc::new(Board::default());
        let mut watch = PolicyWatch::new(Arc::clone(&board));
        assert_eq!(watch.changed(), None);
        let vg0 = ResourceName::new("vg0").unwrap();
        let first = PolicyRevision { revision: 1, policy: Policy::default() };
        board.put(vg0.clone(), Some(first.clone()));
        assert_eq!(watch.changed().unwrap()[&vg0], first);
        board.put(vg0.clone(), Some(first));
        assert_eq!(watch.changed(), None);
        board.put(vg0, None);
        assert_eq!(watch.wait(Duration::from_secs(1)).map(|policies| policies.len()), Some(0));
    }

    proptest! {
        #[test]
        fn nothing_is_rounded(
            nanos in 10_000u64..3_600_000_000_000, rate in 1e-3f64..1e9, shares in 1u32..1_000_000
        ) {
            let name = ConsumerName::new("a").unwrap();
            let policy = Policy {
                target: Some(Latency::from_nanos(nanos)),
                shares: [(name.clone(), Shares::new(shares).unwrap())].into(),
                limits: [(name, Iops::new(rate))].into(),
                ..Policy::default()
            };
            let again = Policy::from_json(policy.to_json().unwrap().as_bytes()).unwrap();
            prop_assert_eq!(again, policy);
        }

        #[test]
        fn any_bytes_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Policy::from_json(&bytes).is_err());
        }
    }
}
