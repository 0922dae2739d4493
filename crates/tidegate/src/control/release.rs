//! `tidegate release`.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;
use tidegate_agent as agent;
use tidegate_host::throttle::{self, RemovedThrottles};
use tidegate_service::overrides::{OverridesDocument, ReleaseEntry};
use tidegate_service::status::ServiceStatus;
use tidegate_units::{ConsumerName, ResourceName};

use super::status;
use super::target::ControlTarget;
use crate::failure::CommandFailure;
use crate::http::{ServiceClient, ServiceError, ServiceOptions, with_query};

const EXAMPLES: &str = "\
Examples:
  tidegate release
  tidegate release backup --for 2h
  tidegate release backup --end
  tidegate release --kernel";

/// Stop throttling: everything, a resource, or one consumer, for a time
///
/// Asks the running service. Its law goes on to decide, and throttles nothing of what is released: neither by
/// windows, rates and delays, nor by limits. After the time it throttles again.
///
/// If no service answers, it removes everything that `tidegate agent` puts into the kernel, and nothing
/// else, and reads the kernel back. It needs root or CAP_NET_ADMIN for that. A gateway that does not run
/// throttles nothing.
///
/// Exit status: 0 released; 1 something is still throttled, or not known; 2 the service refuses, or wrong
/// usage.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReleaseArgs {
    /// Name of the pool, the resource or the consumer [default: everything]
    name: Option<String>,

    /// Resource of the consumer, where several have one of this name
    #[arg(long, value_name = "NAME", requires = "name")]
    resource: Option<String>,

    /// Time until the service throttles again, at most 24h
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = humantime::parse_duration)]
    time: Duration,

    /// End the release: the service throttles again at once
    #[arg(long)]
    end: bool,

    /// Ask no service: remove what an agent left in the kernel
    #[arg(long, conflicts_with_all = ["name", "end"])]
    kernel: bool,

    /// The same, of agents that do not live any more, and without a word if there is nothing: for services
    /// and timers
    #[arg(long, conflicts_with_all = ["name", "end", "kernel"])]
    orphaned: bool,

    #[command(flatten)]
    service: ServiceOptions,
}

pub(crate) fn release(args: &ReleaseArgs) -> Result<(), CommandFailure> {
    if args.orphaned {
        let found = agent::release_orphaned().map_err(CommandFailure::Release)?.unwrap_or_default();
        return tell(&found);
    }
    if args.kernel {
        return of_kernel();
    }
    let client = args.service.client()?;
    match status(&client) {
        Ok(known) => of_service(args, &client, &known),
        // Nothing was asked for that only a service knows.
        Err(ServiceError::NotThere { address, .. }) if args.name.is_none() && !args.end => {
            writeln!(io::stdout(), "no service answers at {address}: releasing what is in the kernel")?;
            of_kernel()
        }
        Err(error) => Err(error.into()),
    }
}

/// Has the service release consumers, or throttle them again.
fn of_service(
    args: &ReleaseArgs,
    client: &ServiceClient,
    known: &ServiceStatus,
) -> Result<(), CommandFailure> {
    let name = args.name.as_deref();
    let target = name.map(|name| ControlTarget::find(known, name, args.resource.as_deref())).transpose();
    let target = target.map_err(CommandFailure::Usage)?;
    let resource = target.as_ref().map(|target| &target.resource);
    let consumer = target.as_ref().and_then(|target| target.consumer.as_ref());
    if args.end {
        let named = [("resource", resource), ("consumer", consumer)];
        let query: Vec<_> = named.into_iter().filter_map(|(key, name)| Some((key, name?.clone()))).collect();
        let overrides: OverridesDocument =
            client.delete(&with_query("/v1/releases", &query))?.read("list of overrides")?;
        let left = overrides.releases.len();
        writeln!(io::stdout(), "throttles again; releases that go on: {left}")?;
        return Ok(());
    }
    let seconds = args.time.as_secs_f64();
    let body = json!({ "resource": resource, "consumer": consumer, "for_seconds": seconds });
    let overrides: OverridesDocument = client.post("/v1/releases", &body)?.read("list of overrides")?;
    let is_it = |entry: &&ReleaseEntry| {
        entry.resource.as_ref().map(ResourceName::as_str) == resource.map(String::as_str)
            && entry.consumer.as_ref().map(ConsumerName::as_str) == consumer.map(String::as_str)
    };
    let until = overrides.releases.iter().find(is_it).map_or("now", |entry| entry.until.as_str());
    let throttled = still_throttled(&status(client)?, target.as_ref());
    if !throttled.is_empty() {
        return Err(CommandFailure::StillThrottled(throttled.join(", ")));
    }
    writeln!(io::stdout(), "released until {until}; the service shows none of it as throttled")?;
    Ok(())
}

/// Returns the consumers that should be released and are throttled all the same.
fn still_throttled(status: &ServiceStatus, target: Option<&ControlTarget>) -> Vec<String> {
    let resources = status
        .resources
        .iter()
        .filter(|resource| target.is_none_or(|target| target.resource == resource.name));
    let consumers = resources.flat_map(|resource| &resource.consumers);
    let meant = consumers.filter(|consumer| {
        target.and_then(|target| target.consumer.as_ref()).is_none_or(|name| *name == consumer.name)
    });
    meant.filter(|consumer| consumer.held == Some(true)).map(|consumer| consumer.name.clone()).collect()
}

/// Removes what is in the kernel, and reads it back.
fn of_kernel() -> Result<(), CommandFailure> {
    let found = throttle::undo().map_err(CommandFailure::Release)?;
    tell(&found)?;
    if found.nothing() {
        writeln!(io::stdout(), "nothing was throttled")?;
        return Ok(());
    }
    let left = throttle::undo().map_err(CommandFailure::Release)?;
    if left.nothing() {
        writeln!(io::stdout(), "read back: nothing of Tidegate is in the kernel")?;
        Ok(())
    } else {
        Err(CommandFailure::PutBack)
    }
}

fn tell(found: &RemovedThrottles) -> Result<(), CommandFailure> {
    let mut out = io::stdout();
    for interface in &found.interfaces {
        writeln!(out, "{interface}: removed what delayed packets")?;
    }
    if found.table {
        writeln!(out, "removed the nftables table")?;
    }
    if found.cgroup {
        writeln!(out, "removed the cgroup that limits what is written")?;
    }
    if found.cgroups > 0 {
        writeln!(out, "{} cgroups: put back the limits that they had", found.cgroups)?;
    }
    Ok(())
}
