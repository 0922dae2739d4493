//! `tidegate release`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde_json::json;
use tidegate_agent::{self as agent, OrphanedRelease};
use tidegate_host::throttle::{self, RemovedThrottles};
use tidegate_service::operator_socket;
use tidegate_service::overrides::{OverridesDocument, ReleaseEntry, ReleaseRequest, RequestError};
use tidegate_service::status::{ResourceStatus, ServiceKind, ServiceStatus};
use tidegate_sockets::trust::is_believed;
use tidegate_units::{ConsumerName, ResourceName};

use super::release_answer::{KernelState, ReleaseReport, ServiceOutcome};
use super::services::{self, KnownService, SilentService};
use super::status;
use super::target::ControlTarget;
use crate::failure::CommandFailure;
use crate::http::{PeerTrust, ServiceAddress, ServiceClient, ServiceError, ServiceOptions, with_query};
use crate::logging;

/// The pause between two looks at what changes soon.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Longer than the guardian of an agent that died needs to release all consumers.
const GUARDIANS_WORK: Duration = Duration::from_secs(5);

/// An agent that released everything has told the kernel so by then. Chosen: a step of its slowest throttle.
const KERNEL_FOLLOWS: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  tidegate release
  tidegate release backup --for 2h
  tidegate release backup --end
  tidegate release --json
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

    /// Ask no service: remove what an agent left in the kernel. Fails if an agent lives, which would throttle
    /// again
    #[arg(long, conflicts_with_all = ["name", "end"])]
    kernel: bool,

    /// The same, of agents that do not live any more, and without a word if there is nothing: for services
    /// and timers
    #[arg(long, conflicts_with_all = ["name", "end", "kernel"])]
    orphaned: bool,

    #[command(flatten)]
    service: ServiceOptions,

    /// Print one JSON document: each service with its answer, and the state of the kernel afterwards
    #[arg(long)]
    json: bool,
}

pub(crate) fn release(args: &ReleaseArgs) -> Result<(), CommandFailure> {
    let mut report = ReleaseReport::new(args.json);
    let done = carry_out(args, &mut report);
    report.finish()?;
    done
}

fn carry_out(args: &ReleaseArgs, report: &mut ReleaseReport) -> Result<(), CommandFailure> {
    if args.orphaned {
        // The log goes to the journal with its severity: a timer does not tell each minute that an agent lives.
        logging::start(None)?;
        let OrphanedRelease { removed, living } =
            agent::release_orphaned().map_err(CommandFailure::Release)?;
        if let Some(living) = &living {
            tracing::info!("{living}; its limits stay");
        }
        let state = if living.is_none() { KernelState::Nothing } else { KernelState::AgentNotAsked };
        return Ok(report.removed(&removed, state)?);
    }
    if args.kernel {
        return of_kernel(report);
    }
    check_time(args.time)?;
    if let Some(name) = &args.name {
        let (service, target) = services::find(&args.service, name, args.resource.as_deref())?;
        return of_service(args, &service, Some(&target), report);
    }
    let is_named = args.service.named()?.is_some();
    // Another user's services may be false ones that hang: they come last.
    let is_own = |client: &ServiceClient| is_named || client.socket().is_none_or(is_of_system);
    let (own, of_users): (Vec<_>, Vec<_>) = args.service.clients()?.into_iter().partition(is_own);
    let (known, silent) = services::ask(own);
    // Where nothing listens, nothing has to be asked, unless it was named. A stranger's answer counts as nothing,
    // but it may hide the only service.
    let is_gone = |one: &SilentService| {
        one.error.is_gone() && !(known.is_empty() && matches!(one.error, ServiceError::Stranger { .. }))
    };
    let (mut gone, silent): (Vec<_>, Vec<_>) = silent.into_iter().partition(is_gone);
    if (args.end || is_named)
        && known.is_empty()
        && let Some(service) = gone.pop()
    {
        return Err(service.error.into());
    }
    for SilentService { address, error } in gone {
        report.service(None, address, ServiceOutcome::NotRunning { error: error.to_string() })?;
    }
    let mut failures = of_services(args, &known, silent, report)?;
    if !args.end && !is_named {
        failures.extend(of_other_agents(&known, report).err());
    }
    let (known, silent) = services::ask(of_users);
    failures.extend(of_services(args, &known, silent, report)?);
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.remove(0)),
        _ => Err(CommandFailure::Several(failures)),
    }
}

/// Has services release everything, or throttle again. Returns what failed.
fn of_services(
    args: &ReleaseArgs,
    known: &[KnownService],
    silent: Vec<SilentService>,
    report: &mut ReleaseReport,
) -> Result<Vec<CommandFailure>, CommandFailure> {
    let mut failures = Vec::new();
    for SilentService { address, error } in silent {
        report.service(None, address, ServiceOutcome::Failed { error: error.to_string() })?;
        failures.push(error.into());
    }
    for service in known {
        failures.extend(of_service(args, service, None, report).err());
    }
    Ok(failures)
}

/// Returns true if the socket's folder is root's, this user's or a packaged service's.
fn is_of_system(socket: &Path) -> bool {
    let owner = socket.parent().and_then(|folder| fs::metadata(folder).ok()).map(|folder| folder.uid());
    owner.is_some_and(is_believed)
}

/// Checks the time as the service does, so that the error can name the option.
fn check_time(time: Duration) -> Result<(), CommandFailure> {
    let request = ReleaseRequest { resource: None, consumer: None, for_seconds: time.as_secs_f64() };
    let wrong = |error: RequestError| {
        let time = humantime::format_duration(time);
        CommandFailure::Usage(format!("`--for {time}`: must be between {}", error.range()))
    };
    request.action().map(|_| ()).map_err(wrong)
}

/// Removes what agents left in the kernel that do not live any more.
///
/// # Errors
/// When an agent lives that was not asked: it throttles again.
fn of_other_agents(asked: &[KnownService], report: &mut ReleaseReport) -> Result<(), CommandFailure> {
    // Other users have no agents.
    let is_agent = |service: &&KnownService| {
        service.status.service == ServiceKind::Agent && service.trust == PeerTrust::Believed
    };
    let agents = || asked.iter().filter(is_agent);
    // Packets are delayed in the agent's network namespace, and cgroups are the machine's.
    let is_here = |service: &KnownService| match &service.address {
        ServiceAddress::Unix(socket) => operator_socket::is_of_this_network(socket).unwrap_or(true),
        ServiceAddress::Http(_) | ServiceAddress::Https(_) => true,
    };
    let asked_agents =
        LivingAgents { in_namespace: agents().any(is_here), of_cgroups: agents().next().is_some() };
    let living = match await_other_agents(asked_agents) {
        Ok(living) => living,
        // Nothing keeps the operator from a release.
        Err(error) => {
            let removed = throttle::undo().map_err(CommandFailure::Release)?;
            report.kernel(&removed, KernelState::AgentNotAsked)?;
            return Err(error);
        }
    };
    if living.is_other_than(asked_agents) {
        let removed = throttle::undo().map_err(CommandFailure::Release)?;
        report.kernel(&removed, KernelState::AgentNotAsked)?;
        return Err(CommandFailure::AgentNotAsked);
    }
    // What is in the kernel is that of the agents that were asked.
    if !asked.is_empty() && !geteuid().is_root() {
        return Ok(report.kernel(&RemovedThrottles::default(), KernelState::NotLookedAt)?);
    }
    if living != LivingAgents::default() {
        let state = await_empty_kernel()?;
        return Ok(report.kernel(&RemovedThrottles::default(), state)?);
    }
    of_kernel(report)
}

/// Waits until the kernel throttles nothing, after the agents that were asked have released everything. Returns
/// what is known of the kernel then.
///
/// # Errors
/// When it still throttles, although what dead agents may have left was removed.
fn await_empty_kernel() -> Result<KernelState, CommandFailure> {
    let begin = Instant::now();
    let mut is_late = false;
    loop {
        match throttle::left_in_kernel() {
            Ok(left) if left.is_empty() => return Ok(KernelState::OfAskedAgents),
            Ok(left) if is_late => return Err(CommandFailure::LeftInKernel(left.join(", "))),
            Ok(_) => {}
            // Agents have rights that the operator may lack, and they say that they released everything.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(KernelState::NotLookedAt);
            }
            Err(error) => return Err(CommandFailure::Release(error)),
        }
        is_late = begin.elapsed() > KERNEL_FOLLOWS;
        if is_late {
            throttle::undo().map_err(CommandFailure::Release)?;
        } else {
            thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// Agents that live, as far as each of their traces shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LivingAgents {
    /// True if an agent or its guardian lives in this network namespace.
    in_namespace: bool,
    /// True if an agent has claimed the machine's cgroups.
    of_cgroups: bool,
}

impl LivingAgents {
    fn now() -> Result<Self, CommandFailure> {
        let in_namespace = agent::living_agent().map_err(CommandFailure::Release)?.is_some();
        Ok(Self { in_namespace, of_cgroups: throttle::are_cgroups_claimed() })
    }

    /// Returns true if an agent lives beside these.
    const fn is_other_than(self, known: Self) -> bool {
        (self.in_namespace && !known.in_namespace) || (self.of_cgroups && !known.of_cgroups)
    }
}

/// Returns the agents that live. Waits for guardians of agents that died, which release all consumers.
fn await_other_agents(known: LivingAgents) -> Result<LivingAgents, CommandFailure> {
    let begin = Instant::now();
    loop {
        let living = LivingAgents::now()?;
        if !living.is_other_than(known) || begin.elapsed() > GUARDIANS_WORK {
            return Ok(living);
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}

/// Has a service release consumers, or throttle them again, and tells what it said.
fn of_service(
    args: &ReleaseArgs,
    service: &KnownService,
    target: Option<&ControlTarget>,
    report: &mut ReleaseReport,
) -> Result<(), CommandFailure> {
    let asked = if args.end { end(service, target) } else { begin(service, target, args.time) };
    let address = service.address.to_string();
    let outcome = match &asked {
        Ok(outcome) => outcome.clone(),
        Err(error) => ServiceOutcome::Failed { error: error.to_string() },
    };
    report.service(Some(service.status.service.name()), address.clone(), outcome)?;
    match asked? {
        ServiceOutcome::StillThrottled { consumers } => {
            Err(CommandFailure::StillThrottled { address, consumers: consumers.join(", ") })
        }
        _ => Ok(()),
    }
}

/// Has a service throttle again.
fn end(service: &KnownService, target: Option<&ControlTarget>) -> Result<ServiceOutcome, ServiceError> {
    let resource = target.map(|target| &target.resource);
    let consumer = target.and_then(|target| target.consumer.as_ref());
    let named = [("resource", resource), ("consumer", consumer)];
    let query: Vec<_> = named.into_iter().filter_map(|(key, name)| Some((key, name?.clone()))).collect();
    let overrides: OverridesDocument =
        service.client.delete(&with_query("/v1/releases", &query))?.read("list of overrides")?;
    Ok(ServiceOutcome::ThrottlesAgain { releases_left: overrides.releases.len() })
}

/// Has a service release consumers for a time.
fn begin(
    service: &KnownService,
    target: Option<&ControlTarget>,
    time: Duration,
) -> Result<ServiceOutcome, ServiceError> {
    let resource = target.map(|target| target.resource.as_str());
    let consumer = target.and_then(|target| target.consumer.as_deref());
    let seconds = time.as_secs_f64();
    let body = json!({ "resource": resource, "consumer": consumer, "for_seconds": seconds });
    let overrides: OverridesDocument =
        service.client.post("/v1/releases", &body)?.read("list of overrides")?;
    let is_it = |entry: &&ReleaseEntry| {
        entry.resource.as_ref().map(ResourceName::as_str) == resource
            && entry.consumer.as_ref().map(ConsumerName::as_str) == consumer
    };
    let until = overrides.releases.iter().find(is_it).map_or("now", |entry| entry.until.as_str());
    let consumers = throttled_after_decision(&service.client, target)?;
    Ok(if consumers.is_empty() {
        ServiceOutcome::Released { until: until.to_owned() }
    } else {
        ServiceOutcome::StillThrottled { consumers }
    })
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
///
/// # Errors
/// When an agent lives: it throttles again, also if it has nothing in the kernel now.
fn of_kernel(report: &mut ReleaseReport) -> Result<(), CommandFailure> {
    let found = throttle::undo().map_err(CommandFailure::Release)?;
    let nobody = LivingAgents::default();
    if await_other_agents(nobody)?.is_other_than(nobody) {
        report.kernel(&found, KernelState::AgentNotAsked)?;
        return Err(CommandFailure::AgentNotAsked);
    }
    let left = throttle::undo().map_err(CommandFailure::Release)?;
    if left.nothing() {
        Ok(report.kernel(&found, KernelState::Nothing)?)
    } else {
        report.kernel(&found, KernelState::ThereAgain)?;
        Err(CommandFailure::PutBack)
    }
}
