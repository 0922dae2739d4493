//! A fuzz target: it takes bytes as an administrator might hand them over, and checks what must hold whatever
//! they are.

use std::path::Path;

use tidegate_service::config::ConfigError;
use tidegate_transfer::BearerToken;
use tidegate_units::Latency;

use crate::AgentConfig;

#[path = "../../../fuzz/findings.rs"]
mod findings;

/// The name under which findings refer to a text.
const NAME: &str = "agent.toml";

fn check_invalid(text: &str, error: ConfigError) {
    match error {
        ConfigError::Invalid(found) => findings::check_errors(text, &found),
        ConfigError::Read { path, .. } => panic!("{} is read", path.display()),
    }
}

/// The text of an agent's configuration.
pub fn agent_configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let token = |_: &Path| Ok(BearerToken::new("0123456789abcdef").expect("a valid token"));
    match AgentConfig::read(NAME, text, token, None) {
        Ok(config) => {
            findings::check_warnings(text, &config.warnings);
            assert!(config.resources.is_empty() || config.cgroups.is_empty(), "two throttles at once");
            for law in config.laws() {
                assert!(!law.interval.is_zero(), "{law:?}");
            }
            for resource in &config.resources {
                assert!(resource.longest > Latency::ZERO, "{resource:?}");
            }
        }
        Err(error) => check_invalid(text, error),
    }
    // Which of the two readers is asked depends on the text alone.
    let _ = crate::is_agents(text);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("agent-configuration", super::agent_configuration);
    }
}
