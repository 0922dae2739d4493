//! `tidegate set`.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use tidegate_units::{Iops, Latency, Shares};

use super::services;
use super::target::ControlTarget;
use crate::failure::CommandFailure;
use crate::http::ServiceOptions;

const EXAMPLES: &str = "\
Examples:
  tidegate set disk target=12ms
  tidegate set backup shares=50 'limit=200 IO/s'
  tidegate set backup limit=file
  tidegate set disk target=12ms --url https://storage-1:9810 --token-file ops.token";

/// Change settings of a running service, until it restarts
///
/// Changes the target of a pool or resource, or shares and limit of an export. A reload keeps the changes,
/// and a restart ends them. `tidegate status` and `tidegate config diff` show them. `tidegate dry-run`
/// switches dry runs.
///
/// Exit status: 0 the change is in force; 1 the service does not answer; 2 it refuses, or wrong usage.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SetArgs {
    /// Name of the pool, the resource or the consumer
    name: String,

    /// Settings: target=LATENCY, shares=N, limit=RATE; with the value `file` the setting is that of the
    /// configuration again
    #[arg(required = true, value_name = "SETTING=VALUE")]
    settings: Vec<String>,

    /// Resource of the consumer, where several have one of this name
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,

    #[command(flatten)]
    service: ServiceOptions,
}

pub(crate) fn set(args: &SetArgs) -> Result<(), CommandFailure> {
    let patch = patch(&args.settings).map_err(CommandFailure::Usage)?;
    let (service, target) = services::find(&args.service, &args.name, args.resource.as_deref())?;
    fits(&patch, &target).map_err(CommandFailure::Usage)?;
    service.client.patch(&target.page(), &patch)?;
    writeln!(io::stdout(), "in force until the service restarts; `tidegate status` shows it")?;
    Ok(())
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
            "limit" => ("limit_iops", parsed(value, |value: Iops| json!(value.per_second()))),
            "shares" => ("shares", parsed(value, |shares: u32| json!(shares)).and_then(in_range)),
            "dry_run" => return Err(wrong("use `tidegate dry-run on|off|file RESOURCE`".to_owned())),
            _ => {
                let keys = ["target", "limit", "shares"];
                let help = tidegate_config::nearest(key, &keys).map_or_else(
                    || format!("use one of {}", keys.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(wrong(format!("no setting of this name can be changed; {help}")));
            }
        };
        if patch.insert(name.to_owned(), parsed.map_err(wrong)?).is_some() {
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

fn in_range(shares: Value) -> Result<Value, String> {
    let is_wrong = |shares: u64| u32::try_from(shares).ok().and_then(Shares::new).is_none();
    match shares.as_u64() {
        Some(number) if is_wrong(number) => Err(format!("must be between 1 and {}", Shares::MAX.get())),
        _ => Ok(shares),
    }
}

/// Checks that the settings are those of a resource, or those of a consumer.
fn fits(patch: &Map<String, Value>, target: &ControlTarget) -> Result<(), String> {
    let wrong = patch.keys().find(|key| (*key == OF_RESOURCE) != target.consumer.is_none());
    match (wrong, &target.consumer) {
        (None, _) => Ok(()),
        (Some(_), Some(consumer)) => Err(format!("`{consumer}` is a consumer: it has `shares` and `limit`")),
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
        assert_eq!(body(&["limit=file", "shares=file"]).unwrap(), r#"{"limit_iops":null,"shares":null}"#);
    }

    #[test]
    fn a_wrong_setting_is_told_with_its_place() {
        for (setting, said) in [
            ("target", "is no setting"),
            ("taget=1ms", "did you mean `target`?"),
            ("shares=0", "`shares=0`: "),
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
