//! `tidegate set`.

use std::io::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tidegate_service::overrides::{
    ConsumerInForce, ConsumerPatch, RequestError, ResourceInForce, ResourcePatch, ServiceSettings,
};
use tidegate_units::{ByteRate, Iops, Latency};

use super::diff::{Readings, readings};
use super::target::ControlTarget;
use super::{print_json, services};
use crate::failure::CommandFailure;
use crate::http::ServiceOptions;
use crate::out;

const EXAMPLES: &str = "\
Examples:
  tidegate set disk target=12ms
  tidegate set backup shares=50 'limit=200 IO/s'
  tidegate set backup 'bandwidth=40 MB/s' --json
  tidegate set backup limit=file
  tidegate set disk target=12ms --url https://storage-1:9810 --token-file ops.token";

/// Change settings of a running service, until it restarts
///
/// Changes the target of a pool or resource, or shares and limits of an export. A reload keeps the changes,
/// and a restart ends them. `tidegate status` and `tidegate config diff` show them. `tidegate dry-run`
/// switches dry runs.
///
/// Exit status: 0 the change is in force; 1 the service does not answer; 2 it refuses, or wrong usage.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SetArgs {
    /// Name of the pool, the resource or the consumer
    name: String,

    /// Settings: target=LATENCY, shares=N, limit=IO/S, bandwidth=BYTES/S; with the value `file` the setting is
    /// that of the configuration again
    #[arg(required = true, value_name = "SETTING=VALUE")]
    settings: Vec<String>,

    /// Resource of the consumer, where several have one of this name
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,

    #[command(flatten)]
    service: ServiceOptions,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The settings after a change.
#[derive(Debug, Serialize)]
struct SetAnswer<'a> {
    service: &'a str,
    address: String,
    resource: &'a str,
    /// `null`: the settings are the resource's.
    consumer: Option<&'a str>,
    /// The changes as the service took them. `null`: the value of the configuration.
    changed: &'a Map<String, Value>,
    /// All settings before the change.
    before: Option<SettingsInForce>,
    /// All settings in force, as they were read back. `null`: the resource or the consumer is gone.
    in_force: Option<SettingsInForce>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum SettingsInForce {
    Resource(ResourceInForce),
    Consumer(ConsumerInForce),
}

pub(crate) fn set(args: &SetArgs) -> Result<(), CommandFailure> {
    let patch = patch(&args.settings).map_err(CommandFailure::Usage)?;
    let (service, target) = services::find(&args.service, &args.name, args.resource.as_deref())?;
    fits(&patch, &target).map_err(CommandFailure::Usage)?;
    let read_settings = || service.client.get("/v1/settings")?.read::<ServiceSettings>("list of settings");
    let before = read_settings()?;
    service.client.patch(&target.page(), &patch)?;
    let settings = read_settings()?;
    if args.json {
        print_json(&SetAnswer {
            service: service.status.service.name(),
            address: service.address.to_string(),
            resource: &target.resource,
            consumer: target.consumer.as_deref(),
            changed: &patch,
            before: in_force(before, &target),
            in_force: in_force(settings, &target),
        })?;
    } else {
        for line in changed_values(&readings(&before), &readings(&settings), &target) {
            writeln!(out::stdout(), "{line}")?;
        }
        writeln!(out::stdout(), "in force until the service restarts; `tidegate status` shows it")?;
    }
    Ok(())
}

/// Returns a line for each setting of the target whose value is another one than before.
fn changed_values(before: &Readings, now: &Readings, target: &ControlTarget) -> Vec<String> {
    let is_targets = |(resource, consumer, _): &(String, Option<String>, &str)| {
        *resource == target.resource && *consumer == target.consumer
    };
    let changed = now.iter().filter(|(place, _)| is_targets(place)).filter_map(|(place, value)| {
        let old = before.get(place).filter(|old| *old != value)?;
        Some(format!("{} is {value}, before {old}", place.2))
    });
    changed.collect()
}

/// Returns the settings of the resource alone, or those of the consumer.
fn in_force(settings: ServiceSettings, target: &ControlTarget) -> Option<SettingsInForce> {
    let mut resources = settings.resources.into_iter();
    let resource = resources.find(|resource| resource.name.as_str() == target.resource)?;
    match &target.consumer {
        None => Some(SettingsInForce::Resource(ResourceInForce { consumers: Vec::new(), ..resource })),
        Some(name) => {
            let mut consumers = resource.consumers.into_iter();
            consumers.find(|one| one.name.as_str() == name).map(SettingsInForce::Consumer)
        }
    }
}

/// The value by which a setting is that of the configuration again.
const FILE: &str = "file";

/// The setting of a resource; the others are those of a consumer.
const OF_RESOURCE: &str = "target_seconds";

/// Returns the body of the request.
fn patch(settings: &[String]) -> Result<Map<String, Value>, String> {
    let mut patch = Map::new();
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(format!("`{setting}` is no setting: write for example `target=12ms`"));
        };
        let wrong = |why: String| format!("`{setting}`: {why}");
        let (name, parsed) = match key {
            "target" => ("target_seconds", parsed(value, |value: Latency| json!(value.as_secs_f64()))),
            "limit" if value.parse::<ByteRate>().is_ok() => {
                return Err(wrong(format!("a limit is in IO/s; use `bandwidth={value}`")));
            }
            "limit" => ("limit_iops", parsed(value, |value: Iops| json!(value.per_second()))),
            "bandwidth" => {
                ("limit_bytes_per_second", parsed(value, |value: ByteRate| json!(value.per_second())))
            }
            "shares" => ("shares", parsed(value, |shares: u32| json!(shares))),
            "dry_run" => return Err(wrong("use `tidegate dry-run on|off|file RESOURCE`".to_owned())),
            _ => {
                let keys = ["target", "limit", "bandwidth", "shares"];
                let help = tidegate_config::nearest(key, &keys).map_or_else(
                    || format!("use one of {}", keys.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(wrong(format!("no setting of this name can be changed; {help}")));
            }
        };
        let value = parsed.map_err(wrong)?;
        check(name, &value).map_err(|error| wrong(format!("must be between {}", error.range())))?;
        if patch.insert(name.to_owned(), value).is_some() {
            return Err(wrong(format!("`{key}` is there twice")));
        }
    }
    Ok(patch)
}

fn parsed<T: std::str::FromStr>(value: &str, json: impl Fn(T) -> Value) -> Result<Value, String>
where
    T::Err: std::fmt::Display,
{
    if value == FILE {
        Ok(Value::Null)
    } else {
        value.parse().map(json).map_err(|error: T::Err| error.to_string())
    }
}

/// Checks one setting as the service does, so that an error can name it as it was written.
fn check(name: &str, value: &Value) -> Result<(), RequestError> {
    let one = json!({ name: value });
    if name == OF_RESOURCE { read::<ResourcePatch>(one).check() } else { read::<ConsumerPatch>(one).check() }
}

fn read<T: DeserializeOwned>(patch: Value) -> T {
    // Invariant: the names and the types are those of the patches.
    serde_json::from_value(patch).expect("a setting that patches have")
}

/// Checks that the settings are those of a resource, or those of a consumer.
fn fits(patch: &Map<String, Value>, target: &ControlTarget) -> Result<(), String> {
    let wrong = patch.keys().find(|key| (*key == OF_RESOURCE) != target.consumer.is_none());
    match (wrong, &target.consumer) {
        (None, _) => Ok(()),
        (Some(_), Some(consumer)) => {
            Err(format!("`{consumer}` is a consumer: it has `shares`, `limit` and `bandwidth`"))
        }
        (Some(_), None) => Err(format!("`{}` is a resource: it has a `target`", target.resource)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(settings: &[&str]) -> Result<String, String> {
        let settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
        patch(&settings).map(|patch| Value::Object(patch).to_string())
    }

    #[test]
    fn settings_have_units_and_file_undoes_them() {
        assert_eq!(body(&["target=12ms"]).unwrap(), r#"{"target_seconds":0.012}"#);
        assert_eq!(body(&["shares=300", "limit=50 IO/s"]).unwrap(), r#"{"limit_iops":50.0,"shares":300}"#);
        let bandwidth = r#"{"limit_bytes_per_second":40000000.0}"#;
        assert_eq!(body(&["bandwidth=40 MB/s"]).unwrap(), bandwidth);
        assert_eq!(body(&["limit=file", "shares=file"]).unwrap(), r#"{"limit_iops":null,"shares":null}"#);
    }

    #[test]
    fn a_wrong_setting_is_told_with_its_place() {
        for (setting, said) in [
            ("target", "is no setting"),
            ("taget=1ms", "did you mean `target`?"),
            ("shares=0", "`shares=0`: must be between 1 and "),
            ("target=61s", "`target=61s`: must be between 10us and 60s"),
            ("limit=0.5 IO/s", "`limit=0.5 IO/s`: must be between 1 IO/s and "),
            ("bandwidth=1KiB/s", "`bandwidth=1KiB/s`: must be between 64KiB/s and "),
            ("limit=40 MB/s", "use `bandwidth=40 MB/s`"),
            ("target=12", "`target=12`: "),
            ("dry_run=on", "use `tidegate dry-run on|off|file RESOURCE`"),
        ] {
            let error = body(&[setting]).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert!(body(&["shares=1", "shares=2"]).unwrap_err().contains("twice"));
    }

    #[test]
    fn a_resource_has_other_settings_than_a_consumer() {
        let target = |consumer: Option<&str>| ControlTarget {
            resource: "disk".to_owned(),
            consumer: consumer.map(str::to_owned),
        };
        let shares = patch(&["shares=1".to_owned()]).unwrap();
        let target_patch = patch(&["target=1ms".to_owned()]).unwrap();
        assert_eq!(fits(&shares, &target(Some("vm1"))), Ok(()));
        assert_eq!(fits(&target_patch, &target(None)), Ok(()));
        assert!(fits(&shares, &target(None)).is_err() && fits(&target_patch, &target(Some("vm1"))).is_err());
    }
}
