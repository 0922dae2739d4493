//! Fuzz targets: each takes bytes as an administrator or a client might hand them over, and checks what must
//! hold whatever they are.

use std::path::Path;

use tidegate_admission::{AdmissionRule, GREATEST_SIZE, LEAST_RATE};
use tidegate_device::{DeviceConfig, ExponentialConfig};
use tidegate_sched::Discipline;
use tidegate_units::{Bytes, Iops, Latency};

use crate::admission::api::{self, QuestionRefusal};
use crate::admission::{MOST_TENANTS, StorageModel};
use crate::config::{ConfigError, ServeConfig};

#[path = "../../../fuzz/findings.rs"]
mod findings;

/// The name under which findings refer to a text.
const NAME: &str = "tidegate.toml";

/// The longest message of a refusal, in bytes.
const LONGEST_MESSAGE: usize = 2048;

/// The most requests in each simulation of a question here: a service simulates twenty times as many, ten
/// times.
const MOST_REQUESTS: u32 = 1_000;

fn check_invalid(text: &str, error: ConfigError) {
    match error {
        ConfigError::Invalid(found) => findings::check_errors(text, &found),
        ConfigError::Read { path, .. } => panic!("{} is read", path.display()),
    }
}

/// The text of a gateway's configuration, and of where its metrics are.
pub fn gateway_configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match ServeConfig::parse(NAME, text, Path::new("/nowhere")) {
        Ok(config) => {
            findings::check_warnings(text, &config.warnings);
            let again = ServeConfig::parse(NAME, text, Path::new("/nowhere")).map(|config| config.warnings);
            assert!(again.is_ok_and(|again| again == config.warnings), "a text is read in two ways");
            let exports = config.gateway.pools.iter().flat_map(|pool| &pool.exports);
            let mut names: Vec<_> = exports.map(|export| &export.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "two exports have one name");
            for pool in &config.gateway.pools {
                assert!(pool.depth > 0, "{pool:?}");
            }
        }
        Err(error) => check_invalid(text, error),
    }
}

fn check_refused(refused: &QuestionRefusal) {
    let said = refused.text();
    assert!(said.len() <= LONGEST_MESSAGE, "{} bytes of message", said.len());
    assert!(!said.contains(char::is_control), "a message with control characters: {said:?}");
    assert!(refused.status().is_client_error(), "{said}");
}

/// The body of `POST /v1/admit`: what is asked, and the judgement about it on a storage of a hundred requests
/// per second.
pub fn admit_bodies(input: &[u8]) {
    let (_, contracts, loads) = match api::read(input) {
        Ok(question) => question,
        Err(refused) => return check_refused(&refused),
    };
    assert!((1..=MOST_TENANTS).contains(&loads.len()));
    assert_eq!(contracts.as_slice().len(), loads.len());
    for (contract, load) in contracts.as_slice().iter().zip(&loads) {
        let rate = contract.iops.per_second();
        assert!(rate.is_finite() && rate >= LEAST_RATE, "{contract:?}");
        assert!(contract.size > Bytes::ZERO && contract.size <= GREATEST_SIZE, "{contract:?}");
        assert!(contract.response_time > Latency::ZERO, "{contract:?}");
        assert_eq!((&load.name, load.rate), (&contract.name, contract.iops));
        assert!((0.0..=1.0).contains(&load.reads), "{load:?}");
    }
    let device = ExponentialConfig { rate: Iops::new(100.0), servers: 4, capacity: Bytes::from_gib(1) };
    let model = StorageModel::new(DeviceConfig::Exponential(device), 16, Discipline::StartTags);
    let rule = AdmissionRule::default();
    let mut offer = api::offer(&model, loads, &rule);
    (offer.requests, offer.seeds) = (MOST_REQUESTS / 10, 1);
    match api::verdict(offer, &contracts, &rule, MOST_REQUESTS) {
        Ok(document) => check_verdict(&document, contracts.as_slice().len()),
        Err(refused) => check_refused(&refused),
    }
}

fn check_verdict(document: &str, count: usize) {
    let document: serde_json::Value = serde_json::from_str(document).expect("a document of our own");
    let tenants = document["tenants"].as_array().expect("a list of tenants");
    assert_eq!(tenants.len(), count);
    let is_kept = |tenant: &serde_json::Value| tenant["kept"] == true;
    assert_eq!(document["admitted"] == true, tenants.iter().all(is_kept), "{document}");
    assert_eq!(document["instead"].is_null(), document["admitted"] == true, "{document}");
    let is_rate = |rate: &serde_json::Value| rate.as_f64().is_some_and(|rate| rate > 0.0);
    assert!(is_rate(&document["iops"]) && is_rate(&document["capacity_iops"]), "{document}");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("gateway-configuration", super::gateway_configuration);
        replay("admit-bodies", super::admit_bodies);
    }
}
