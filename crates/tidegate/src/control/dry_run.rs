//! `tidegate dry-run`.

use std::io::Write;

use serde::Serialize;
use serde_json::{Value, json};
use tidegate_service::status::{LawStatus, ServiceStatus};

use super::{print_json, services, status};
use crate::failure::CommandFailure;
use crate::http::ServiceOptions;
use crate::out;

const EXAMPLES: &str = "\
Examples:
  tidegate dry-run off array
  tidegate dry-run on array --url https://storage-1:9810 --token-file ops.token
  tidegate dry-run file array";

/// Switch the dry run of a pool or resource while its service runs
///
/// On a dry run the law decides, and the log, the status and the journal show it, but it throttles nothing.
/// The switch holds until the service restarts, also after a reload. `tidegate status` and `tidegate config
/// diff` show it.
///
/// Exit status: 0 it is in force; 1 the service does not answer; 2 it refuses, or wrong usage.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DryRunArgs {
    /// The switch
    #[arg(value_enum)]
    switch: DryRunSwitch,

    /// Name of the pool or resource
    resource: String,

    #[command(flatten)]
    service: ServiceOptions,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What is in force after a switch.
#[derive(Debug, Serialize)]
struct DryRunAnswer<'a> {
    service: &'a str,
    address: String,
    resource: &'a str,
    switch: DryRunSwitch,
    /// True if the law throttles nothing. `null`: the resource is gone.
    dry_run: Option<bool>,
    /// True if a release makes the dry run, whatever the switch is.
    released: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
enum DryRunSwitch {
    /// Decide, and throttle nothing
    On,
    /// Decide, and throttle
    Off,
    /// The value in the configuration
    File,
}

impl DryRunSwitch {
    const fn value(self) -> Option<bool> {
        match self {
            Self::On => Some(true),
            Self::Off => Some(false),
            Self::File => None,
        }
    }
}

pub(crate) fn dry_run(args: &DryRunArgs) -> Result<(), CommandFailure> {
    let (service, target) = services::find(&args.service, &args.resource, None)?;
    if let Some(consumer) = &target.consumer {
        return Err(CommandFailure::Usage(format!(
            "`{consumer}` is a consumer, and a dry run is its resource's: name `{}`; `tidegate release` \
             releases one consumer",
            target.resource
        )));
    }
    let switch = args.switch.value().map_or(Value::Null, Value::Bool);
    service.client.patch(&target.page(), &json!({ "dry_run": switch }))?;
    // Read back: a release makes a dry run, too.
    let status = status(&service.client)?;
    let law = law(&status, &target.resource);
    if args.json {
        print_json(&DryRunAnswer {
            service: service.status.service.name(),
            address: service.address.to_string(),
            resource: &target.resource,
            switch: args.switch,
            dry_run: law.map(|law| law.dry_run),
            released: law.is_some_and(|law| law.released),
        })?;
    } else {
        writeln!(out::stdout(), "{}", in_force(law, &target.resource, args.switch))?;
    }
    Ok(())
}

/// Returns the law of a resource, if the resource is still there.
fn law<'a>(status: &'a ServiceStatus, name: &str) -> Option<&'a LawStatus> {
    status.resources.iter().find(|resource| resource.name == name)?.law.as_ref()
}

/// Says what is in force after the switch.
fn in_force(law: Option<&LawStatus>, name: &str, switch: DryRunSwitch) -> String {
    let until = match switch {
        DryRunSwitch::File => "as in the configuration",
        DryRunSwitch::On | DryRunSwitch::Off => "until the service restarts",
    };
    match (law.map(|law| law.dry_run), switch) {
        (Some(true), DryRunSwitch::Off) => format!(
            "{name}: the switch is off, and it throttles nothing all the same: `tidegate status` shows its \
             release, and `tidegate release {name} --end` ends it"
        ),
        (Some(true), _) => format!("{name}: dry run, throttles nothing, {until}"),
        (Some(false), _) => format!("{name}: no dry run, the law throttles, {until}"),
        (None, _) => format!("{name}: it is gone from the configuration"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(dry_run: bool, switch: DryRunSwitch) -> String {
        let status: ServiceStatus = serde_json::from_value(json!({
            "version": 1, "service": "serve", "program": "0.1.0", "sees": true,
            "resources": [{
                "name": "array", "present": true, "throttle_fails": false, "decided": null, "recent": null,
                "law": { "kind": "auto", "target_seconds": 0.015, "interval_seconds": 1, "dry_run": dry_run },
                "consumers": [], "consumers_left_out": 0,
            }],
        }))
        .unwrap();
        in_force(law(&status, "array"), "array", switch)
    }

    #[test]
    fn what_is_in_force_is_said_and_not_what_was_asked() {
        assert_eq!(
            said(true, DryRunSwitch::On),
            "array: dry run, throttles nothing, until the service restarts"
        );
        assert_eq!(
            said(false, DryRunSwitch::File),
            "array: no dry run, the law throttles, as in the configuration"
        );
        assert!(said(true, DryRunSwitch::Off).contains("`tidegate release array --end`"));
    }
}
