//! Policy of a resource, as the cluster's administrator sets it: a document per resource, the same for all
//! hosts.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{ConsumerName, Iops, Latency, ResourceName, Shares};

use crate::name::ClusterName;
use crate::policy_writer::PolicyWriter;

/// Longer documents are refused: 64 KiB.
pub(crate) const LONGEST: usize = 64 * 1024;

/// The most characters of a message about a document.
const LONGEST_SHOWN: usize = 500;

/// A cluster has policies for at most so many resources.
pub(crate) const MOST_RESOURCES: usize = 1024;

/// A target outside of this range is a slip of the pen: no storage keeps a tenth of a millisecond under load,
/// and a minute is a hung storage.
const TARGETS: (Latency, Latency) = (Latency::from_micros(100), Latency::from_millis(60_000));

/// A rate outside of this range is a slip of the pen, too, in requests per second. A client with a lower
/// limit gives up, and no storage does more than the most.
const RATES: (f64, f64) = (1.0, 1e7);

/// The policy of one resource. A setting that it does not mention stays as each host's own configuration has
/// it.
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
pub struct ResourcePolicy {
    /// The version of this document: [`ResourcePolicy::VERSION`].
    pub version: u16,
    /// The response time that is promised: 100 µs to one minute.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "exact::latency")]
    pub target: Option<Latency>,
    /// The shares of the consumers: their entitlements relative to one another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<ConsumerName, Shares>,
    /// The least rate of each consumer while it asks for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "exact::rates")]
    pub reservations: BTreeMap<ConsumerName, Iops>,
    /// The greatest rate of each consumer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "exact::rates")]
    pub limits: BTreeMap<ConsumerName, Iops>,
}

/// Reasons why a document is not a policy.
#[derive(Debug, Error)]
pub enum InvalidPolicy {
    /// It is not JSON of this shape.
    #[error("{}", one_line(.0))]
    Json(#[from] serde_json::Error),
    /// It is of another version.
    #[error("version {0} is not known here")]
    Version(u16),
    /// It is longer than 64 KiB.
    #[error("it has {0} bytes, and at most {LONGEST} are allowed")]
    Length(usize),
    /// The target is out of its range.
    #[error("the target {0} is out of range: 100us to 1min")]
    Target(Latency),
    /// A rate is out of its range.
    #[error("the rate of `{consumer}` must be 1 to 10,000,000 IO/s, it is {rate} \
        IO/s", rate = rate.per_second())]
    Rate {
        /// The consumer.
        consumer: ConsumerName,
        /// Its rate.
        rate: Iops,
    },
    /// A consumer is to get at least more than it may get at most.
    #[error("the reservation of `{0}` is above its limit")]
    AboveLimit(ConsumerName),
    /// It is a policy without a signature.
    #[error(
        "it is not signed: write it anew with `tidegate policy set --replace --key FILE`, and name the key's \
            public half \
         in `[cluster] policy` of the hosts"
    )]
    Unsigned,
    /// It is signed by a key that this host does not know.
    #[error("it is signed by {0}, which is not among `writers` in `[cluster] policy`")]
    UnknownWriter(PolicyWriter),
    /// It was changed after it was signed, or never signed by the key that it names.
    #[error("its signature is wrong")]
    Signature,
    /// It was signed for another cluster or resource.
    #[error("it was signed for `{resource}` of cluster {cluster}")]
    OtherPlace {
        /// For which cluster.
        cluster: ClusterName,
        /// For which resource.
        resource: ResourceName,
    },
    /// A later one was there before.
    #[error(
        "its serial number {serial} is not above {seen}, which was in force: an old policy was put back, or \
            its writer's \
         clock is behind"
    )]
    Old {
        /// Its serial number.
        serial: u64,
        /// The highest that was seen.
        seen: u64,
    },
    /// The library refuses to sign.
    #[error("it cannot be signed with this key")]
    CannotSign,
}

/// A message about a document for a line of the log. It may quote the document, which every client of the
/// server may have written: control characters are escaped, and the message ends after 500 characters.
fn one_line(message: &impl fmt::Display) -> String {
    let message = message.to_string();
    let escaped = message.chars().flat_map(|c| {
        let plain = Some(c).filter(|c| !c.is_control());
        let control = Some(c).filter(|c| c.is_control()).map(char::escape_debug);
        plain.into_iter().chain(control.into_iter().flatten())
    });
    escaped.take(LONGEST_SHOWN).collect()
}

impl Default for ResourcePolicy {
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

impl ResourcePolicy {
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

    /// Checks that the policy is consistent.
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
        let (least, most) = RATES;
        for (name, rate) in self.reservations.iter().chain(&self.limits) {
            if !(least..=most).contains(&rate.per_second()) {
                return Err(InvalidPolicy::Rate { consumer: name.clone(), rate: *rate });
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

/// Quantities as text that is read back as the same quantity: for people's eyes three digits do, for a
/// document that is read, changed and written back they do not.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::policy_board::{PolicyBoard, PolicyRefusal, PolicyRevision, PolicyWatch};

    fn error(json: &str) -> String {
        ResourcePolicy::from_json(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn the_documented_example_is_a_policy() {
        let json = r#"{ "version": 1, "target": "15ms", "shares": { "database": 400, "backup": 100 },
            "reservations": { "database": "200 IO/s" }, "limits": { "backup": "500 IO/s" } }"#;
        let policy = ResourcePolicy::from_json(json.as_bytes()).unwrap();
        assert_eq!(policy.target, Some(Latency::from_millis(15)));
        assert_eq!(policy.shares[&ConsumerName::new("database").unwrap()].get(), 400);
        assert_eq!(policy.limits[&ConsumerName::new("backup").unwrap()], Iops::new(500.0));
    }

    #[test]
    fn a_document_wrote_lines_into_the_log_of_those_who_refused_it() {
        let long = "x".repeat(5_000);
        for key in [r"\n2026-01-01 all is well", r"\u001b[2J", &long] {
            let said = error(&format!(r#"{{"version":1,"{key}":1}}"#));
            assert!(said.starts_with("unknown field `"), "{said}");
            assert!(!said.contains(char::is_control) && said.len() <= LONGEST_SHOWN, "{said}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(error("{").contains("EOF"));
        assert!(error(r#"{"version":1,"targets":"15ms"}"#).contains("unknown field `targets`"));
        assert!(error(r#"{"version":1,"target":"15"}"#).contains("the unit is missing"));
        assert_eq!(error(r#"{"version":2}"#), "version 2 is not known here");
        for target in ["2h", "10us"] {
            let json = format!(r#"{{"version":1,"target":"{target}"}}"#);
            assert!(error(&json).contains("out of range: 100us to 1min"));
        }
        assert!(
            error(r#"{"version":1,"shares":{"a":0}}"#).contains("shares"),
            "{}",
            error(r#"{"version":1,"shares":{"a":0}}"#)
        );
        assert!(error(r#"{"version":1,"limits":{"a":"fast"}}"#).contains("`a`: `fast`"));
        for rate in ["0", "0.000001", "100000000"] {
            let json = format!(r#"{{"version":1,"limits":{{"a":"{rate} IO/s"}}}}"#);
            assert!(
                error(&json).contains("the rate of `a` must be 1 to 10,000,000 IO/s"),
                "{}",
                error(&json)
            );
        }
        assert_eq!(
            error(r#"{"version":1,"limits":{"a":"5 IO/s"},"reservations":{"a":"6 IO/s"}}"#),
            "the reservation of `a` is above its limit"
        );
        let long = format!(r#"{{"version":1,"shares":{{"{}":1}}}}"#, "a".repeat(LONGEST));
        assert!(error(&long).contains("at most 65536"));
    }

    fn signed(serial: u64, revision: u64, target_ms: u64) -> PolicyRevision {
        let policy =
            ResourcePolicy { target: Some(Latency::from_millis(target_ms)), ..ResourcePolicy::default() };
        let writer = crate::signature::PolicyKey::generate().writer();
        PolicyRevision { revision, serial, writer, policy }
    }

    #[test]
    fn a_watch_sees_each_change_once() {
        let board = Arc::new(PolicyBoard::default());
        let mut watch = PolicyWatch::new(Arc::clone(&board));
        assert_eq!(watch.changed(), None);
        let vg0 = ResourceName::new("vg0").unwrap();
        let first = signed(1, 1, 15);
        assert!(board.put(vg0.clone(), first.clone()).unwrap());
        assert_eq!(watch.changed().unwrap()[&vg0], first);
        assert!(!board.put(vg0.clone(), first).unwrap());
        assert_eq!(watch.changed(), None);
        assert!(board.put(vg0, signed(2, 2, 20)).unwrap());
        assert_eq!(watch.wait(Duration::from_secs(1)).map(|policies| policies.len()), Some(1));
    }

    #[test]
    fn an_old_policy_that_is_put_back_does_not_count() {
        let board = PolicyBoard::default();
        let vg0 = ResourceName::new("vg0").unwrap();
        board.put(vg0.clone(), signed(7, 1, 15)).unwrap();
        for (serial, revision) in [(6, 2), (7, 3), (1, 99)] {
            let refused = board.put(vg0.clone(), signed(serial, revision, 50)).unwrap_err();
            assert!(matches!(refused, PolicyRefusal::Old(InvalidPolicy::Old { seen: 7, .. })), "{refused:?}");
        }
        assert_eq!(board.lock().policies[&vg0].policy.target, Some(Latency::from_millis(15)));
        board.put(vg0.clone(), signed(8, 4, 50)).unwrap();
        assert_eq!(board.lock().policies[&vg0].revision, 4);
    }

    #[test]
    fn resources_are_bounded() {
        let board = PolicyBoard::default();
        for n in 0..MOST_RESOURCES {
            board.put(ResourceName::new(&format!("r{n}")).unwrap(), signed(1, 1, 15)).unwrap();
        }
        let more = ResourceName::new("more").unwrap();
        assert!(matches!(board.put(more, signed(1, 1, 15)), Err(PolicyRefusal::TooMany)));
        assert!(board.put(ResourceName::new("r0").unwrap(), signed(2, 2, 20)).unwrap());
    }

    proptest! {
        #[test]
        fn nothing_is_rounded(
            nanos in 100_000u64..60_000_000_000, rate in 1.0f64..1e7, shares in 1u32..1_000_000
        ) {
            let name = ConsumerName::new("a").unwrap();
            let policy = ResourcePolicy {
                target: Some(Latency::from_nanos(nanos)),
                shares: [(name.clone(), Shares::new(shares).unwrap())].into(),
                limits: [(name, Iops::new(rate))].into(),
                ..ResourcePolicy::default()
            };
            let again = ResourcePolicy::from_json(policy.to_json().unwrap().as_bytes()).unwrap();
            prop_assert_eq!(again, policy);
        }

        #[test]
        fn any_bytes_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ResourcePolicy::from_json(&bytes).is_err());
        }
    }
}
