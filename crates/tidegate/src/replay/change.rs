//! Changes of a loop's configuration for a replay, as they are given on the command line.

use std::sync::LazyLock;

use tidegate_config::law::{self, AvailableLaws, LawReader};
use tidegate_config::{FindingList, Section};
use tidegate_control::{LawKind, LoopConfig, WindowConfig};
use tidegate_journal::ConfigChange;
use tidegate_serve::config::ConfigError;
use tidegate_units::ResourceName;

use crate::failure::CommandFailure;

/// The source of settings, in messages.
const SOURCE: &str = "--set";

/// Keys that are not about the parameters of a law.
const COMMON_KEYS: [&str; 6] = ["target", "set_point", "interval", "idle_half_life", "normalise", "dry_run"];

/// All keys that can be set.
static KEYS: LazyLock<Vec<&str>> =
    LazyLock::new(|| [law::POOL_KEYS, &["law", "integral", "self_tuning", "bands"]].concat());

/// A change of a loop's configuration.
#[derive(Debug, Clone)]
pub(super) struct LoopChange {
    law: Option<LawKind>,
    /// The text of the settings, as a table of a pool.
    text: String,
    /// The common keys that are set, and whether a parameter of a law is.
    common: Vec<&'static str>,
    sets_law: bool,
}

impl LoopChange {
    /// `None` without a law and without settings.
    pub(super) fn new(law: Option<LawKind>, settings: &[String]) -> Result<Option<Self>, CommandFailure> {
        if law.is_none() && settings.is_empty() {
            return Ok(None);
        }
        let mut change = Self { law, text: String::new(), common: Vec::new(), sets_law: false };
        for setting in settings {
            let Some((key, value)) = setting.split_once('=') else {
                let shown = setting.escape_debug();
                return Err(CommandFailure::Usage(format!("`--set {shown}`: write KEY=VALUE")));
            };
            match COMMON_KEYS.iter().find(|common| **common == key.trim()) {
                Some(common) => change.common.push(common),
                None => change.sets_law = true,
            }
            change.text.push_str(&format!("{} = {}\n", key.trim(), literal(value.trim())));
        }
        // Errors are reported now, and not at the first checkpoint.
        let name = ResourceName::new("pool").map_err(|error| CommandFailure::Usage(error.to_string()))?;
        change.read(&name, law.unwrap_or(LawKind::Auto))?;
        Ok(Some(change))
    }

    pub(super) fn into_config_change(self) -> ConfigChange {
        Box::new(move |recorded| self.applied_to(recorded))
    }

    /// Returns the configuration with the change. Settings that its law does not have change nothing.
    fn applied_to(&self, recorded: &LoopConfig) -> LoopConfig {
        let kind = self.law.unwrap_or_else(|| recorded.law.kind());
        let Ok(given) = self.read(&recorded.resource, kind) else { return recorded.clone() };
        let mut config = recorded.clone();
        if self.law.is_some() || self.sets_law {
            let ratio = LoopConfig::new(recorded.resource.clone(), recorded.target, given.law);
            config.law = given.law;
            config.bands = recorded.bands.clone().filter(|_| kind.has_bands());
            config.knee = None;
            if self.law.is_some() {
                config.set_point_ratio = ratio.set_point_ratio;
            }
        }
        for key in &self.common {
            match *key {
                "target" => config.target = given.target,
                "set_point" => config.set_point_ratio = given.set_point_ratio,
                "interval" => config.interval = given.interval,
                "idle_half_life" => config.idle_half_life = given.idle_half_life,
                "normalise" => config.normalise = given.normalise,
                _ => config.dry_run = given.dry_run,
            }
        }
        config
    }

    fn read(&self, name: &ResourceName, kind: LawKind) -> Result<LoopConfig, ConfigError> {
        let target = if self.common.contains(&"target") { "" } else { "target = \"15ms\"\n" };
        let text = format!("{}{target}law = \"{}\"\n", self.text, kind.name());
        let mut report = FindingList::new(SOURCE, &text);
        let config = tidegate_config::parse(&text, &mut report).and_then(|document| {
            let section = Section::new(&document, 0..0, "a pool".to_owned(), &KEYS, &mut report);
            let laws =
                AvailableLaws { reader: LawReader::Gateway, window: WindowConfig::default(), rates: true };
            law::read(&section, name, laws, &mut report)
        });
        let failed = report.has_errors();
        match config {
            Some(config) if !failed => Ok(config),
            _ => Err(ConfigError::Invalid(report.into_findings())),
        }
    }
}

/// A value as TOML has it: numbers, flags and what is quoted stay as they are, and the rest is text.
fn literal(value: &str) -> String {
    let is_plain = value.parse::<f64>().is_ok() || matches!(value, "true" | "false");
    if is_plain || value.starts_with(['"', '\'', '{', '[']) {
        value.to_owned()
    } else {
        format!("\"{}\"", value.escape_debug())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_control::LawConfig;
    use tidegate_units::Latency;

    use super::*;

    fn recorded() -> LoopConfig {
        let law = LawConfig::of_kind(LawKind::Auto);
        LoopConfig::new(ResourceName::new("vg0").unwrap(), Latency::from_millis(15), law)
    }

    fn changed(law: Option<LawKind>, settings: &[&str]) -> LoopConfig {
        let settings: Vec<String> = settings.iter().map(|&text| text.to_owned()).collect();
        LoopChange::new(law, &settings).unwrap().unwrap().applied_to(&recorded())
    }

    #[test]
    fn a_setting_changes_one_key_and_a_law_its_parameters() {
        let config = changed(None, &["target=20ms", "set_point=0.7"]);
        assert_eq!((config.target, config.law.kind()), (Latency::from_millis(20), LawKind::Auto));
        assert!((config.set_point_ratio - 0.7).abs() < 1e-9);
        assert_eq!(
            LoopConfig { target: recorded().target, set_point_ratio: 1.0, ..config },
            LoopConfig { set_point_ratio: 1.0, ..recorded() }
        );
        let config = changed(Some(LawKind::Pid), &[]);
        assert_eq!((config.law.kind(), config.target), (LawKind::Pid, recorded().target));
        let config = changed(Some(LawKind::Window), &["window.gamma=0.5"]);
        let LawConfig::Window(window) = config.law else { panic!("{config:?}") };
        assert!((window.gamma - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_set_is_said_with_its_place() {
        for (setting, said) in [
            ("target", "write KEY=VALUE"),
            ("target=soon", "--set:1:"),
            ("traget=9ms", "did you mean `target`?"),
            ("window.gama=1", "did you mean `gamma`?"),
        ] {
            let error = LoopChange::new(None, &[setting.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(said), "{setting}: {error}");
        }
    }

    #[test]
    fn nothing_given_is_no_change() {
        assert!(LoopChange::new(None, &[]).unwrap().is_none());
    }
}
