//! `tidegate policy`: what a cluster's administrator wants of a resource, on all of its hosts.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use serde::Serialize;
use tidegate_cluster::{
    ClusterName, NatsConfig, PolicyError, PolicyKey, PolicyRevision, ResourcePolicy, policy_get, policy_put,
};
use tidegate_serve::config::ServeConfig;
use tidegate_units::{ConsumerName, Iops, Latency, ResourceName, Shares};

use crate::failure::CommandFailure;
use crate::out;

/// Show or change what a cluster wants of a resource: target, shares, reservations, limits, in force on all
/// hosts
///
/// Policies are kept by the NATS server of `[cluster]`, and signed: hosts follow those whose key is among
/// `writers` in their `[cluster] policy`. A change is a compare-and-set: when another writer has changed the
/// policy meanwhile, it is refused and nothing happens.
#[derive(Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Subcommand)]
enum PolicyCommand {
    /// Show the policy of a pool, with its revision
    Get(PolicyGet),
    /// Change what is named of the policy of a pool; the rest stays
    Set(PolicySet),
    /// Make a key that signs policies, and show its public half, for `writers` in `[cluster] policy` of the
    /// hosts
    Key(NewKey),
}

#[derive(Parser)]
struct NewKey {
    /// File for the key; nothing may be there. It stays with the writers: no host needs it
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Pool and cluster of the policy.
#[derive(Parser)]
struct PolicyPlace {
    /// The configuration of a host of the cluster
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The pool
    pool: ResourceName,
}

#[derive(Parser)]
struct PolicyGet {
    #[command(flatten)]
    place: PolicyPlace,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Parser)]
struct PolicySet {
    #[command(flatten)]
    place: PolicyPlace,
    /// The key that signs it: a file that `tidegate policy key` has written
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The response time to keep
    #[arg(long, value_name = "TIME")]
    target: Option<Latency>,
    /// Shares of a consumer, relative to the others; may be repeated
    #[arg(long, value_name = "CONSUMER=SHARES")]
    shares: Vec<Named<u32>>,
    /// The least that a consumer gets when it asks for it; may be repeated
    #[arg(long, value_name = "CONSUMER=IO/s")]
    reservation: Vec<Named<Iops>>,
    /// The most that a consumer gets; may be repeated
    #[arg(long, value_name = "CONSUMER=IO/s")]
    limit: Vec<Named<Iops>>,
    /// Begin with an empty policy: what is not named here is as each host's own configuration has it
    #[arg(long)]
    replace: bool,
    /// Only if the policy is at this revision; 0: only if there is none
    #[arg(long, value_name = "REVISION")]
    expect: Option<u64>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// A consumer, and something of it.
#[derive(Debug, Clone)]
struct Named<T> {
    consumer: ConsumerName,
    value: T,
}

impl<T: FromStr<Err: ToString>> FromStr for Named<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A name may contain `=`, a value does not.
        let (consumer, value) = text.rsplit_once('=').ok_or("write CONSUMER=VALUE")?;
        let consumer = consumer.parse().map_err(|error: tidegate_units::NameError| error.to_string())?;
        let value = value.parse().map_err(|error: T::Err| error.to_string())?;
        Ok(Self { consumer, value })
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    match &args.command {
        PolicyCommand::Get(get) => show(&get.place, get.json),
        PolicyCommand::Set(set) => change(set),
        PolicyCommand::Key(key) => make_key(&key.file),
    }
}

/// Returns the server that keeps the policies, and the cluster.
fn store(place: &PolicyPlace) -> Result<(NatsConfig, ClusterName), CommandFailure> {
    let config = ServeConfig::load(&place.config)?;
    let file = place.config.display();
    let plan = config
        .cluster
        .ok_or_else(|| CommandFailure::Usage(format!("{file} has no `[cluster]`, and so no policies")))?;
    let nats = plan.policies()?.ok_or_else(|| {
        CommandFailure::Usage(format!(
            "the cluster of {file} has no policies: only the carrier `nats` brings them"
        ))
    })?;
    Ok((nats, plan.name().clone()))
}

fn show(place: &PolicyPlace, json: bool) -> Result<(), CommandFailure> {
    let (nats, cluster) = store(place)?;
    match policy_get(&nats, &cluster, &place.pool)? {
        Some(revision) => print(&revision, json),
        None if json => Ok(writeln!(out::stdout(), "null")?),
        None => Ok(writeln!(out::stdout(), "pool {} has no policy", place.pool)?),
    }
}

fn change(set: &PolicySet) -> Result<(), CommandFailure> {
    let key = PolicyKey::from_file(&set.key)?;
    let (nats, cluster) = store(&set.place)?;
    if !nats.writers.contains(&key.writer()) {
        return Err(CommandFailure::Usage(format!(
            "hosts with the configuration {} would not follow this policy: add \"{}\" to `writers` in \
                `[cluster] policy`",
            set.place.config.display(),
            key.writer()
        )));
    }
    let found = match policy_get(&nats, &cluster, &set.place.pool) {
        // What no writer has signed is not built upon, and may be replaced.
        Err(PolicyError::Stored { revision, .. }) if set.replace => {
            FoundPolicy { revision, serial: 0, policy: None }
        }
        found => FoundPolicy::from(found?),
    };
    let revision = set.expect.unwrap_or(found.revision);
    // Above every earlier one that is known, and above one that is lost as long as clocks are about right.
    let serial = found.serial.saturating_add(1).max(unix_millis());
    let mut policy = found.policy.filter(|_| !set.replace).unwrap_or_default();
    policy.target = set.target.or(policy.target);
    for Named { consumer, value } in &set.shares {
        let shares = Shares::try_from(*value).map_err(|error| CommandFailure::Usage(error.to_string()))?;
        policy.shares.insert(consumer.clone(), shares);
    }
    let reservations = set.reservation.iter();
    policy.reservations.extend(reservations.map(|least| (least.consumer.clone(), least.value)));
    policy.limits.extend(set.limit.iter().map(|limit| (limit.consumer.clone(), limit.value)));
    let revision = policy_put(&nats, &cluster, &set.place.pool, (&policy, serial, &key), revision)?;
    print(&PolicyRevision { revision, serial, writer: key.writer(), policy }, set.json)
}

/// The policy before a change.
struct FoundPolicy {
    revision: u64,
    serial: u64,
    policy: Option<ResourcePolicy>,
}

impl From<Option<PolicyRevision>> for FoundPolicy {
    fn from(found: Option<PolicyRevision>) -> Self {
        match found {
            Some(PolicyRevision { revision, serial, policy, .. }) => {
                Self { revision, serial, policy: Some(policy) }
            }
            None => Self { revision: 0, serial: 0, policy: None },
        }
    }
}

/// The wall clock of a policy's writer: hosts compare serial numbers with each other, and never with a clock.
fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn make_key(file: &Path) -> Result<(), CommandFailure> {
    let key = PolicyKey::generate();
    key.write_new(file)?;
    Ok(writeln!(out::stdout(), "{}", key.writer())?)
}

fn print(revision: &PolicyRevision, json: bool) -> Result<(), CommandFailure> {
    #[derive(Serialize)]
    struct Document<'a> {
        revision: u64,
        policy: &'a ResourcePolicy,
    }

    let PolicyRevision { revision, policy, .. } = revision;
    let document = Document { revision: *revision, policy };
    let mut out = out::stdout();
    if json {
        serde_json::to_writer(&mut out, &document).map_err(io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    writeln!(out, "revision {revision}")?;
    if let Some(target) = policy.target {
        writeln!(out, "  target {target}")?;
    }
    for (consumer, shares) in &policy.shares {
        writeln!(out, "  {consumer}: {shares} shares")?;
    }
    for (consumer, rate) in &policy.reservations {
        writeln!(out, "  {consumer}: at least {rate}")?;
    }
    for (consumer, rate) in &policy.limits {
        writeln!(out, "  {consumer}: at most {rate}")?;
    }
    Ok(())
}
