//! `tidegate release`.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde_json::json;
use tidegate_agent as agent;
use tidegate_host::throttle::{self, RemovedThrottles};
use tidegate_service::operator_socket;
use tidegate_service::overrides::{OverridesDocument, ReleaseEntry};
use tidegate_service::status::{ResourceStatus, ServiceKind, ServiceStatus};
use tidegate_units::{ConsumerName, ResourceName};

use super::services::{self, KnownService};
use super::status;
use super::target::ControlTarget;
use crate::failure::CommandFailure;
use crate::http::{ServiceAddress, ServiceClient, ServiceError, ServiceOptions, with_query};

/// The pause between two looks at what changes soon.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Longer than the guardian of an agent that died needs to release all consumers.
const GUARDIANS_WORK: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  tidegate release
  tidegate release backup --for 2h
  tidegate release backup --end
  tidegate release --kernel";

/// Stop throttling: everything, a resource, or one consumer, for a time
///
/// Asks every service of this machine, or the one that an option names. Their laws go on to decide, and
/// throttle nothing of what is released: neither by windows, rates and delays, nor by limits. After the time
/// they throttle again. Success is told after the next decision of each law, when nothing is throttled.
///
/// Without a name and an option that names a service, it also removes everything that an agent left in the
/// kernel which does not live any more, and reads the kernel back. It needs root or CAP_NET_ADMIN for that. An
/// agent that lives and does not answer is a failure, since it may throttle again. A gateway that does not run
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
    if let Some(name) = &args.name {
        let (service, target) = services::find(&args.service, name, args.resource.as_deref())?;
        return of_service(args, &service, Some(&target));
    }
    let (known, silent) = services::ask(&args.service)?;
    let is_named = args.service.named()?.is_some();
    // Where nothing listens, nothing has to be asked, unless it was named.
    let (mut gone, silent): (Vec<_>, Vec<_>) = silent.into_iter().partition(ServiceError::is_gone);
    if (args.end || is_named)
        && known.is_empty()
        && let Some(error) = gone.pop()
    {
        return Err(error.into());
    }
    for error in gone {
        writeln!(io::stdout(), "{error}")?;
    }
    let mut failures: Vec<CommandFailure> = silent.into_iter().map(CommandFailure::from).collect();
    for service in &known {
        failures.extend(of_service(args, service, None).err());
    }
    if !args.end && !is_named {
        failures.extend(of_other_agents(&known).err());
    }
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.remove(0)),
        _ => Err(CommandFailure::Several(failures)),
    }
}

/// Removes what agents left in the kernel that do not live any more.
///
/// # Errors
/// When an agent lives that was not asked: it throttles again.
fn of_other_agents(asked: &[KnownService]) -> Result<(), CommandFailure> {
    let agents = || asked.iter().filter(|service| service.status.service == ServiceKind::Agent);
    // Packets are delayed in the agent's network namespace, and cgroups are the machine's.
    let is_here = |service: &KnownService| match &service.address {
        ServiceAddress::Unix(socket) => operator_socket::is_of_this_network(socket).unwrap_or(true),
        ServiceAddress::Http(_) | ServiceAddress::Https(_) => true,
    };
    let (has_agent, has_agent_here) = (agents().next().is_some(), agents().any(is_here));
    let begin = Instant::now();
    let (present, claimed) = loop {
        let present = agent::is_present().map_err(CommandFailure::Release)?;
        let claimed = throttle::are_cgroups_claimed();
        let is_asked = (has_agent_here || !present) && (has_agent || !claimed);
        if is_asked {
            break (present, claimed);
        }
        if begin.elapsed() > GUARDIANS_WORK {
            tell(&throttle::undo().map_err(CommandFailure::Release)?)?;
            return Err(CommandFailure::AgentNotAsked);
        }
        thread::sleep(BETWEEN_LOOKS);
    };
    // What is in the kernel is that of the agents that were asked.
    if present || claimed {
        return Ok(());
    }
    if !asked.is_empty() && !geteuid().is_root() {
        writeln!(io::stdout(), "the kernel was not looked at: only root may")?;
        return Ok(());
    }
    of_kernel()
}

/// Has a service release consumers, or throttle them again.
fn of_service(
    args: &ReleaseArgs,
    service: &KnownService,
    target: Option<&ControlTarget>,
) -> Result<(), CommandFailure> {
    let KnownService { client, address, status } = service;
    let kind = status.service.name();
    let resource = target.map(|target| &target.resource);
    let consumer = target.and_then(|target| target.consumer.as_ref());
    if args.end {
        let named = [("resource", resource), ("consumer", consumer)];
        let query: Vec<_> = named.into_iter().filter_map(|(key, name)| Some((key, name?.clone()))).collect();
        let overrides: OverridesDocument =
            client.delete(&with_query("/v1/releases", &query))?.read("list of overrides")?;
        let left = overrides.releases.len();
        writeln!(io::stdout(), "{kind} at {address} throttles again; releases that go on: {left}")?;
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
    let throttled = throttled_after_decision(client, target)?;
    if !throttled.is_empty() {
        return Err(CommandFailure::StillThrottled {
            address: address.to_string(),
            consumers: throttled.join(", "),
        });
    }
    writeln!(io::stdout(), "released until {until}: {kind} at {address} throttles none of it")?;
    Ok(())
}

/// Returns what is throttled still after each law has decided once more.
fn throttled_after_decision(
    client: &ServiceClient,
    target: Option<&ControlTarget>,
) -> Result<Vec<String>, ServiceError> {
    let begin = Instant::now();
    loop {
        let status = status(client)?;
        let meant = |resource: &&ResourceStatus| target.is_none_or(|target| target.resource == resource.name);
        let laws = || {
            status.resources.iter().filter(meant).filter_map(|resource| {
                Some((resource.law.as_ref()?.interval_seconds, resource.decided.as_ref()?.age_seconds))
            })
        };
        let elapsed = begin.elapsed().as_secs_f64();
        let has_decided = laws().all(|(_, age)| age < elapsed);
        let throttled = still_throttled(&status, target);
        // A law whose storage is gone decides nothing.
        let longest = laws().map(|(interval, _)| interval).fold(1.0, f64::max);
        if has_decided && throttled.is_empty() || elapsed > 2.0 * longest + 1.0 {
            return Ok(throttled);
        }
        thread::sleep(BETWEEN_LOOKS);
    }
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
        writeln!(io::stdout(), "nothing of Tidegate is in the kernel")?;
        return Ok(());
    }
    if agent::is_present().map_err(CommandFailure::Release)? {
        return Err(CommandFailure::AgentNotAsked);
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
