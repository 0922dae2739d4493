//! `tidegate config diff`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidegate_agent::{self as agent, is_agents};
use tidegate_service::overrides::{ConsumerInForce, OverridesDocument, ResourceInForce, ServiceSettings};
use tidegate_units::{ByteRate, Iops, Latency, ResourceName};

use crate::failure::CommandFailure;
use crate::http::CallerOptions;
use crate::out;

/// Compare configurations with running services
#[derive(clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(clap::Subcommand)]
enum ConfigCommand {
    Diff(DiffArgs),
}

const EXAMPLES: &str = "\
Examples:
  tidegate config diff -c /etc/tidegate/tidegate.toml
  tidegate config diff -c storage-1.toml --url https://storage-1:9810 --token-file ops.token";

/// Show the settings in force that differ from a configuration file
///
/// A setting differs when it was changed at run time, by a policy of the cluster, or in the file since the
/// last reload. Compared are laws, targets, intervals, dry run, shares, limits, reservations and goals.
///
/// Exit status: 0 there is no difference; 1 there is one, or the service does not answer; 2 wrong usage or
/// configuration.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
struct DiffArgs {
    /// The configuration to compare with. Without an address it also says where the service answers
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Address of the service: http://HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    #[command(flatten)]
    caller: CallerOptions,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn config(args: &ConfigArgs) -> Result<(), CommandFailure> {
    let ConfigCommand::Diff(args) = &args.command;
    let path = &args.config;
    let file = settings_of(path)?;
    let client = match &args.url {
        Some(url) => args.caller.client(url)?,
        None => args.caller.client_of(path)?,
    };
    let running: ServiceSettings = client.get("/v1/settings")?.read("list of settings")?;
    let differences = differences(&file, &running);
    let mut out = out::stdout();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &differences).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for difference in &differences {
            writeln!(out, "{difference}")?;
        }
        if differences.is_empty() {
            writeln!(out, "no difference: the service runs as {} says", path.display())?;
        }
    }
    if differences.is_empty() { Ok(()) } else { Err(CommandFailure::Differs(differences.len())) }
}

/// Returns the settings that a file says.
fn settings_of(path: &Path) -> Result<ServiceSettings, CommandFailure> {
    if fs::read_to_string(path).is_ok_and(|text| is_agents(&text)) {
        Ok(agent::settings(path)?)
    } else {
        Ok(tidegate_serve::serve::settings(path)?)
    }
}

/// A setting that differs.
#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    /// Its resource.
    resource: String,
    /// Its consumer. `None`: it is a setting of the resource.
    consumer: Option<String>,
    setting: &'static str,
    /// The value in the file.
    file: String,
    /// The value in force.
    in_force: String,
    /// The caller of the override that changed it. `None`: no override did.
    by: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, consumer, setting, file, in_force, by } = self;
        match consumer {
            Some(consumer) => write!(f, "{consumer} at {resource}: ")?,
            None => write!(f, "{resource}: ")?,
        }
        write!(f, "{setting} is {in_force}, in the file {file}")?;
        match by {
            Some(by) => write!(f, "; changed by {by}"),
            None => Ok(()),
        }
    }
}

/// The value of a setting that is not there.
const NONE: &str = "none";

/// Settings by their places: resource, consumer, setting.
pub(super) type Readings = BTreeMap<(String, Option<String>, &'static str), String>;

fn differences(file: &ServiceSettings, running: &ServiceSettings) -> Vec<Difference> {
    let (file, real) = (readings(file), readings(running));
    let places: BTreeSet<_> = file.keys().chain(real.keys()).collect();
    let said = |readings: &Readings, place| readings.get(place).map_or(NONE, String::as_str).to_owned();
    let compared = places.into_iter().map(|place| (place, said(&file, place), said(&real, place)));
    let differing = compared.filter(|(_, file, in_force)| file != in_force);
    let difference = |(place, file, in_force)| {
        let (resource, consumer, setting): &(String, Option<String>, &'static str) = place;
        let by = changed_by(&running.overrides, resource, consumer.as_deref());
        let (resource, consumer) = (resource.clone(), consumer.clone());
        Difference { resource, consumer, setting, file, in_force, by }
    };
    differing.map(difference).collect()
}

/// Returns the caller whose override changed settings of a resource or a consumer.
fn changed_by(overrides: &OverridesDocument, resource: &str, consumer: Option<&str>) -> Option<String> {
    let of = |name: &ResourceName| name.as_str() == resource;
    let one = match consumer {
        None => overrides.resources.iter().find(|one| of(&one.resource)).map(|one| &one.by),
        Some(consumer) => overrides
            .consumers
            .iter()
            .find(|one| of(&one.resource) && one.consumer.as_str() == consumer)
            .map(|one| &one.by),
    };
    let release = overrides.releases.iter().find(|one| one.resource.as_ref().is_none_or(of));
    one.or_else(|| release.filter(|_| consumer.is_none()).map(|one| &one.by)).cloned()
}

pub(super) fn readings(settings: &ServiceSettings) -> Readings {
    let mut found = Readings::new();
    for resource in &settings.resources {
        let name = resource.name.to_string();
        for (setting, value) in of_resource(resource) {
            found.insert((name.clone(), None, setting), value);
        }
        for consumer in &resource.consumers {
            for (setting, value) in of_consumer(consumer) {
                found.insert((name.clone(), Some(consumer.name.to_string()), setting), value);
            }
        }
    }
    found
}

fn of_resource(one: &ResourceInForce) -> [(&'static str, String); 4] {
    [
        ("law", one.law.clone().unwrap_or_else(|| NONE.to_owned())),
        ("target", shown(one.target_seconds, Latency::from_secs_f64)),
        ("interval", shown(one.interval_seconds, Latency::from_secs_f64)),
        ("dry_run", one.dry_run.to_string()),
    ]
}

fn of_consumer(one: &ConsumerInForce) -> [(&'static str, String); 6] {
    [
        ("protected", one.protected.to_string()),
        ("shares", one.shares.to_string()),
        ("limit", shown(one.limit_iops, Iops::new)),
        ("bandwidth", shown(one.limit_bytes_per_second, ByteRate::new)),
        ("reservation", shown(one.reservation_iops, Iops::new)),
        ("goal", shown(one.goal_seconds, Latency::from_secs_f64)),
    ]
}

fn shown<T: fmt::Display>(value: Option<f64>, unit: impl Fn(f64) -> T) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| unit(value).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(target: f64, limit: Option<f64>, overrides: &str) -> ServiceSettings {
        let consumer = serde_json::json!({
            "name": "vm1", "protected": false, "shares": 100, "limit_iops": limit,
            "limit_bytes_per_second": null, "reservation_iops": null, "goal_seconds": null,
        });
        let document = serde_json::json!({
            "version": 1, "service": "serve",
            "resources": [{
                "name": "disk", "law": "auto", "target_seconds": target, "interval_seconds": 0.25,
                "dry_run": false, "consumers": [consumer],
            }],
            "overrides": serde_json::from_str::<serde_json::Value>(overrides).unwrap(),
        });
        serde_json::from_value(document).unwrap()
    }

    const NOTHING: &str = r#"{"resources": [], "consumers": [], "releases": []}"#;

    #[test]
    fn a_difference_has_both_values_and_the_caller_that_made_it() {
        let file = settings(0.015, Some(50.0), NOTHING);
        assert_eq!(differences(&file, &file), []);
        let overrides = r#"{"resources": [{"resource": "disk", "target_seconds": 0.012, "dry_run": null,
            "by": "uid 0", "since": "x"}], "consumers": [], "releases": []}"#;
        let said: Vec<_> =
            differences(&file, &settings(0.012, None, overrides)).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "disk: target is 12.0ms, in the file 15.0ms; changed by uid 0",
                "vm1 at disk: limit is none, in the file 50 IO/s",
            ]
        );
    }

    #[test]
    fn a_consumer_that_only_one_side_has_differs() {
        let file = settings(0.015, None, NOTHING);
        let mut running = file.clone();
        running.resources[0].consumers.clear();
        let found = differences(&file, &running);
        assert!(found.iter().any(|one| one.setting == "shares" && one.in_force == NONE), "{found:?}");
    }
}
