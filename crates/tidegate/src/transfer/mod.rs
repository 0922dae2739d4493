//! `tidegate place` and `tidegate transfer`: transfers on the storage node that can carry them.

pub(crate) mod broker;
mod copy;
pub(crate) mod place;
mod probe;
mod progress;

use std::collections::HashSet;
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use clap::{ArgGroup, Subcommand, ValueEnum};
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use serde_json::json;
use tidegate_transfer::sensor_reports;
use tidegate_transfer::store::{self, NodePlace, NodeStore, StoreError};
use tidegate_transfer::wire::{CatalogueObject, NodeState, ServiceNeeds, one_line};
use tidegate_transfer::{
    AskError, BrokerClient, FileMover, MoveError, MoverSettings, NodePlaces, ObjectName, PlacesError,
    TransferEvent, TransferOutcome,
};
use tidegate_units::{ByteRate, Latency, ParseUnitError};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::CommandFailure;
use crate::http::token_of;
use crate::out;
use progress::ProgressBars;

/// The default address of a broker.
const BROKER: &str = "http://127.0.0.1:7311";

const EXAMPLES: &str = "\
Examples:
  tidegate transfer put run7.h5 --rate 10MB/s
  tidegate transfer put *.h5 --rate 10MB/s --copies 2
  tidegate transfer get run7.h5 --rate 10MB/s --to /scratch/
  tidegate transfer list";

/// Broker to ask.
#[derive(clap::Args)]
pub(crate) struct BrokerArgs {
    /// The broker [default: TIDEGATE_BROKER, or http://127.0.0.1:7311]
    #[arg(long, value_name = "URL", global = true)]
    broker: Option<String>,

    /// File with the token of a broker that asks for one [default: TIDEGATE_TOKEN_FILE]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,

    /// Wait so long for a broker that is away
    #[arg(long, value_name = "TIME", default_value = "30s", global = true)]
    patience: Latency,
}

impl BrokerArgs {
    fn client(&self) -> Result<BrokerClient, CommandFailure> {
        self.client_with(self.patience.to_duration())
    }

    /// Returns a client for one question on which no transfer depends: it does not wait for a broker that is
    /// away.
    fn client_at_once(&self) -> Result<BrokerClient, CommandFailure> {
        self.client_with(Duration::ZERO)
    }

    fn client_with(&self, patience: Duration) -> Result<BrokerClient, CommandFailure> {
        let from_environment = env::var("TIDEGATE_BROKER").ok();
        let url = self.broker.as_deref().or(from_environment.as_deref()).unwrap_or(BROKER);
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(CommandFailure::Usage(format!(
                "`{url}` is no broker's address: write http://HOST:PORT"
            )));
        }
        if tidegate_config::has_credentials(url) {
            let said = "a password does not belong into a broker's address: write `--token-file FILE`";
            return Err(CommandFailure::Usage(said.to_owned()));
        }
        if store::is_plain_beyond_this_host(url) {
            warn(&format!(
                "{url} is not encrypted: any host on the way can read what is asked, a token included, and \
                    change \
                 the answer; write https://HOST"
            ))?;
        }
        let from_environment =
            env::var_os("TIDEGATE_TOKEN_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
        let file = self.token_file.clone().or(from_environment);
        let token = file.as_deref().map(token_of).transpose()?;
        Ok(BrokerClient::new(url, patience, token)?)
    }
}

/// The nodes that this machine is configured for. A broker only says which of them.
fn places(named: Option<&Path>) -> Result<NodePlaces, CommandFailure> {
    let from_environment = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let load = |file: &Path| NodePlaces::load(file).map_err(CommandFailure::from);
    if let Some(file) = named.map(Path::to_owned).or_else(|| from_environment("TIDEGATE_NODES")) {
        return load(&file);
    }
    let own = from_environment("XDG_CONFIG_HOME")
        .or_else(|| Some(from_environment("HOME")?.join(".config")))
        .map(|folder| folder.join("tidegate/nodes.toml"));
    let files: Vec<_> = own.into_iter().chain([PathBuf::from("/etc/tidegate/nodes.toml")]).collect();
    match files.iter().find(|file| file.exists()) {
        Some(file) => load(file),
        None => Ok(NodePlaces::none(&files[0])),
    }
}

impl Args {
    fn places(&self) -> Result<NodePlaces, CommandFailure> {
        let places = places(self.nodes.as_deref())?;
        let plain: Vec<_> = places.unencrypted().map(ToString::to_string).collect();
        if !plain.is_empty() {
            let nodes = plain.join(", ");
            warn(&format!(
                "data goes over the network without encryption to and from: {nodes}; write `https://`"
            ))?;
        }
        Ok(places)
    }
}

fn warn(what: &str) -> Result<(), CommandFailure> {
    Ok(writeln!(out::stderr(), "tidegate: warning: {what}")?)
}

/// By which measure of its rate a transfer is judged.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// All of it over all of its time
    Average,
    /// Any ten samples that follow each other
    MovingAverage,
    /// Every sample
    Current,
}

/// Service that a transfer needs.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("needed").required(true).args(["rate", "latency"]))]
pub(crate) struct NeedArgs {
    /// The rate that each transfer needs, such as 10MB/s
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<ByteRate>,

    /// Meaning of the rate
    #[arg(long, value_enum, value_name = "KIND", default_value = "average", requires = "rate")]
    kind: Kind,

    /// Instead of a rate: how soon the first byte must come
    #[arg(long, value_name = "TIME")]
    latency: Option<Latency>,
}

/// Nothing is nothing in any unit, and what is wrong with it is not that it has none.
fn rate(text: &str) -> Result<ByteRate, ParseUnitError> {
    let is_nothing = text.trim().parse::<f64>().is_ok_and(|number| number == 0.0);
    if is_nothing { Ok(ByteRate::ZERO) } else { text.parse() }
}

impl NeedArgs {
    fn read(&self) -> Result<ServiceNeeds, CommandFailure> {
        let rate = match (self.rate, self.latency) {
            (None, Some(latency)) => return Ok(ServiceNeeds::Latency(latency.as_secs_f64())),
            (rate, _) => rate.unwrap_or_default(),
        };
        if rate == ByteRate::ZERO {
            let why = "a rate of zero needs no reservation: ask for a rate above zero, or for a latency";
            return Err(CommandFailure::Usage(why.to_owned()));
        }
        let rate = rate.per_second();
        Ok(match self.kind {
            Kind::Average => ServiceNeeds::Average(rate),
            Kind::MovingAverage => ServiceNeeds::MovingAverage(rate),
            Kind::Current => ServiceNeeds::Current(rate),
        })
    }
}

/// Store files on storage nodes, and fetch them, at the rate that they need
///
/// Each file goes to a node that can carry it now, and waits while there is none. What was stored is checked
/// by its SHA-256 when it is fetched. If a node fails, the transfer goes on at another: of what is fetched,
/// from where it stopped.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: BrokerArgs,

    /// Addresses of the storage nodes: a file with their tables `[node.NAME]`, such as the broker's
    /// configuration [default: TIDEGATE_NODES, or ~/.config/tidegate/nodes.toml, or /etc/tidegate/nodes.toml]
    #[arg(long, value_name = "FILE", global = true)]
    nodes: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    what: TransferCommand,
}

#[derive(Subcommand)]
enum TransferCommand {
    Put(PutArgs),
    Get(GetArgs),
    /// List the objects of the catalogue
    List,
    Remove(RemoveArgs),
    /// Show the storage nodes
    Nodes,
    Probe(probe::ProbeArgs),
    CopyCatalogue(copy::CopyArgs),
}

/// Settings of transfers.
#[derive(clap::Args)]
struct MoveArgs {
    #[command(flatten)]
    need: NeedArgs,

    /// A node that moves nothing, or next to nothing, for so long has failed
    #[arg(long, value_name = "TIME", default_value = "60s")]
    stall: Latency,

    /// Move so many at once; each has a reservation of its own
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    parallel: u8,

    /// Give a transfer up after so many attempts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32)
        .range(1..=1000))]
    attempts: u32,
}

impl MoveArgs {
    fn settings(&self) -> Result<MoverSettings, CommandFailure> {
        let stall = self.stall.to_duration();
        if stall < Duration::from_secs(1) {
            return Err(CommandFailure::Usage("`--stall` is at least 1s".to_owned()));
        }
        Ok(MoverSettings { stall, attempts: self.attempts, ..MoverSettings::new(self.need.read()?) })
    }
}

/// Store files as objects
#[derive(clap::Args)]
struct PutArgs {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    how: MoveArgs,

    /// Name of the object, if there is one file [default: the file's own name]
    #[arg(long, value_name = "NAME")]
    name: Option<ObjectName>,

    /// Replicas, each on a node of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    copies: u8,

    /// The least class of availability
    #[arg(long, value_name = "CLASS", default_value_t = 0)]
    availability: u8,

    /// The greatest class of cost
    #[arg(long, value_name = "CLASS", default_value_t = u8::MAX)]
    cost: u8,

    /// Read back what was stored, and compare its checksum
    #[arg(long)]
    verify: bool,
}

/// Fetch objects into files
#[derive(clap::Args)]
struct GetArgs {
    /// The objects
    #[arg(required = true, value_name = "NAME")]
    names: Vec<ObjectName>,

    #[command(flatten)]
    how: MoveArgs,

    /// The folder; of one object also a file [default: here]
    #[arg(long, value_name = "PATH", default_value = ".")]
    to: PathBuf,

    /// Replace files that are there
    #[arg(long)]
    force: bool,
}

/// Remove objects from the catalogue, and from the nodes that hold them
#[derive(clap::Args)]
struct RemoveArgs {
    /// The objects
    #[arg(required = true, value_name = "NAME")]
    names: Vec<ObjectName>,
}

/// The time in which uploads that were begun are called off: that of one answer, and a little more.
const CALLING_OFF: Duration = Duration::from_secs(16);

/// The time in which threads that handle files end.
const THREADS_END: Duration = Duration::from_secs(1);

/// Runs what waits for others, sockets and files, unless SIGINT or SIGTERM ends it. Then no part of a file is
/// left behind, nor of an upload where its server answers within 15 s, and what was reserved is free
/// again after its lease.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(CommandFailure::Signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(CommandFailure::Signals)?;
        let outcome = tokio::select! {
            outcome = work => Ok(outcome),
            _ = terminate.recv() => Err(CommandFailure::Interrupted),
            _ = interrupt.recv() => Err(CommandFailure::Interrupted),
        };
        // A second signal ends that, too.
        tokio::select! {
            is_clean = store::ended(CALLING_OFF) => if !is_clean {
                tracing::warn!("an upload could not be called off: parts of it may be left at its node");
            },
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        outcome
    });
    // Threads remove the parts that they were creating. One in a folder that hangs does not come back.
    runtime.shutdown_timeout(THREADS_END);
    outcome
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    match &args.what {
        TransferCommand::Put(put) => block_on(put_files(args, put))?,
        TransferCommand::Get(get) => block_on(get_objects(args, get))?,
        TransferCommand::List => block_on(list(args))?,
        TransferCommand::Remove(remove) => block_on(remove_objects(args, remove))?,
        TransferCommand::Nodes => block_on(nodes(args))?,
        TransferCommand::Probe(probe) => probe::run(args, probe),
        TransferCommand::CopyCatalogue(copy) => copy::run(args.json, copy),
    }
}

async fn put_files(args: &Args, put: &PutArgs) -> Result<(), CommandFailure> {
    let mut settings = put.how.settings()?;
    settings.availability = put.availability;
    settings.cost = put.cost;
    settings.copies = put.copies;
    settings.verify = put.verify;
    if put.name.is_some() && put.files.len() > 1 {
        return Err(CommandFailure::Usage("`--name` is of one file: several would be one object".to_owned()));
    }
    let mut names = Vec::new();
    for file in &put.files {
        names.push(match &put.name {
            Some(name) => name.clone(),
            None => own_name(file)?,
        });
    }
    if let Some(twice) = twice(&names) {
        return Err(CommandFailure::Usage(format!(
            "two files are called `{twice}`: store them one by one, with `--name`"
        )));
    }
    let mover = FileMover::new(args.whom.client()?, args.places()?, settings);
    let work: Vec<_> = names.iter().cloned().zip(put.files.iter().cloned()).collect();
    let put_one = async |name: &ObjectName, file: &Path, watch: &(dyn Fn(TransferEvent<'_>) + Sync)| {
        mover.put(file, name, watch).await
    };
    move_all(args, &put.how, RateWay::To, &work, put_one).await
}

/// Moves files, some of them at once, each in its turn. One that fails does not stop the others.
async fn move_all(
    args: &Args,
    how: &MoveArgs,
    way: RateWay,
    work: &[(ObjectName, PathBuf)],
    one: impl AsyncFn(
        &ObjectName,
        &Path,
        &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> Result<TransferOutcome, MoveError>,
) -> Result<(), CommandFailure> {
    let names: Vec<_> = work.iter().map(|(name, _)| name.clone()).collect();
    let bars = ProgressBars::new(&names, !args.json);
    let (bars, one) = (&bars, &one);
    let moved = stream::iter(work.iter().enumerate()).map(async |(number, (name, file))| {
        let progress = bars.of(name);
        let outcome = one(name, file, &|event| progress.show(&event)).await;
        (number, name, outcome)
    });
    let mut moved = pin!(moved.buffer_unordered(usize::from(how.parallel)));
    let mut said = TransferSummary::new(args.json, work.len());
    while let Some((number, name, outcome)) = moved.next().await {
        bars.aside(|| said.say(number, name, outcome, way))?;
    }
    said.finish()
}

fn twice(names: &[ObjectName]) -> Option<&ObjectName> {
    let mut seen = HashSet::new();
    names.iter().find(|name| !seen.insert(name.as_str()))
}

fn own_name(file: &Path) -> Result<ObjectName, CommandFailure> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ObjectName::new(name).map_err(|error| {
        CommandFailure::Usage(format!("{}: {error}; give it another by `--name`", file.display()))
    })
}

async fn get_objects(args: &Args, get: &GetArgs) -> Result<(), CommandFailure> {
    let mover = FileMover::new(args.whom.client()?, args.places()?, get.how.settings()?);
    let is_folder = get.to.is_dir();
    if let Some(twice) = twice(&get.names) {
        return Err(CommandFailure::Usage(format!(
            "`{twice}` is named twice: it would be fetched into one file"
        )));
    }
    if get.names.len() > 1 && !is_folder {
        return Err(CommandFailure::Usage(format!(
            "{}: several objects need a folder that is there",
            get.to.display()
        )));
    }
    let work = get.names.iter().map(|name| {
        let file = if is_folder { get.to.join(name.as_str()) } else { get.to.clone() };
        (name.clone(), file)
    });
    let work: Vec<_> = work.collect();
    let get_one = async |name: &ObjectName, file: &Path, watch: &(dyn Fn(TransferEvent<'_>) + Sync)| {
        if !get.force && file.symlink_metadata().is_ok() {
            let source =
                io::Error::new(io::ErrorKind::AlreadyExists, "it is there already: `--force` replaces it");
            return Err(MoveError::File { path: file.to_owned(), source });
        }
        mover.get(name, file, watch).await
    };
    move_all(args, &get.how, RateWay::From, &work, get_one).await
}

#[derive(Clone, Copy)]
enum RateWay {
    To,
    From,
}

/// The outcome of several transfers. One that fails does not stop the others.
struct TransferSummary {
    json: bool,
    /// In the order of the command, whatever ends first.
    documents: Vec<serde_json::Value>,
    failed: usize,
}

impl TransferSummary {
    fn new(json: bool, several: usize) -> Self {
        Self { json, documents: vec![serde_json::Value::Null; several], failed: 0 }
    }

    fn say(
        &mut self,
        number: usize,
        name: &ObjectName,
        outcome: Result<TransferOutcome, MoveError>,
        way: RateWay,
    ) -> Result<(), CommandFailure> {
        match outcome {
            Ok(outcome) => self.done(number, &outcome, way),
            Err(error) => {
                self.failed += 1;
                writeln!(out::stderr(), "tidegate: {name}: {error}")?;
                if self.json {
                    let code = match &error {
                        MoveError::Copies { .. } => "copies",
                        MoveError::Partly { .. } => "partly",
                        MoveError::Places(_) => "no-such-node",
                        MoveError::Ask(why) | MoveError::Then { why, .. } => match why {
                            AskError::Refused(problem) => problem.code.as_str(),
                            AskError::Unbelievable { .. } => "unbelievable",
                            _ => "no-broker",
                        },
                        MoveError::File { .. } | MoveError::NotAFile(_) => "file",
                        MoveError::Changed(_) => "changed",
                        MoveError::Unsure { .. } => "unsure",
                        MoveError::Nodes { .. } => "nodes",
                        MoveError::Checksum { .. } => "checksum",
                    };
                    let mut document = json!({ "name": name, "error": error.to_string(), "code": code });
                    if let MoveError::Partly { nodes, .. } = &error {
                        document["nodes"] = json!(nodes);
                    }
                    self.documents[number] = document;
                }
                Ok(())
            }
        }
    }

    fn done(&mut self, number: usize, outcome: &TransferOutcome, way: RateWay) -> Result<(), CommandFailure> {
        if self.json {
            self.documents[number] = serde_json::to_value(outcome).map_err(io::Error::from)?;
            return Ok(());
        }
        let TransferOutcome { name, bytes, rate_bps, kept, failed, waited_s, .. } = outcome;
        let nodes: Vec<_> = outcome.nodes.iter().map(ToString::to_string).collect();
        let way = match way {
            RateWay::To => "to",
            RateWay::From => "from",
        };
        let mut line = format!("{name}: {bytes} {way} {} at {rate_bps}", nodes.join(", "));
        line += if *kept { ", as needed" } else { ", LESS THAN NEEDED" };
        if *waited_s >= 1.0 {
            line += &format!(", waited {waited_s:.1} s");
        }
        match failed {
            0 => {}
            1 => line += ", 1 attempt failed",
            _ => line += &format!(", {failed} attempts failed"),
        }
        Ok(writeln!(out::stdout(), "{line}")?)
    }

    fn finish(self) -> Result<(), CommandFailure> {
        if self.json {
            print(&json!({ "transfers": self.documents }))?;
        }
        if self.failed > 0 { Err(CommandFailure::Transfers(self.failed)) } else { Ok(()) }
    }
}

fn print(document: &impl Serialize) -> Result<(), CommandFailure> {
    let json = serde_json::to_string_pretty(document).map_err(io::Error::from)?;
    Ok(writeln!(out::stdout(), "{json}")?)
}

async fn list(args: &Args) -> Result<(), CommandFailure> {
    let client = args.whom.client_at_once()?;
    let mut all = Vec::new();
    loop {
        let page = client.objects(all.last().map(|object: &CatalogueObject| &object.name)).await?;
        let more = page.more && !page.objects.is_empty();
        all.extend(page.objects);
        if !more {
            break;
        }
    }
    if args.json {
        return print(&json!({ "objects": all }));
    }
    let rows = all.iter().map(|object| {
        let nodes: Vec<_> = object.replicas.iter().map(|replica| replica.node.to_string()).collect();
        vec![object.name.to_string(), object.size.to_string(), nodes.join(", "), object.sha256.to_string()]
    });
    show(&["object", "size", "nodes", "sha256"], rows)
}

async fn nodes(args: &Args) -> Result<(), CommandFailure> {
    let nodes = args.whom.client_at_once()?.nodes().await?;
    if args.json {
        return print(&nodes);
    }
    let rows = nodes.nodes.iter().map(|node| {
        let lane = |lane: &tidegate_transfer::wire::NodeDirection| {
            let now = lane.moving_average_bps.map_or("?".to_owned(), |rate| rate.to_string());
            let lent = lane.lent_bps;
            let lent = if lent > ByteRate::ZERO { format!(", {lent} lent") } else { String::new() };
            format!("{now} of {}, {} active{lent}", lane.peak_bps, lane.active)
        };
        let free = node.free.map_or("?".to_owned(), |free| free.to_string());
        vec![
            node.name.to_string(),
            lane(&node.read),
            lane(&node.write),
            node.waiting.to_string(),
            free,
            sensor(node),
            one_line(&node.place),
        ]
    });
    show(&["node", "reads", "writes", "waiting", "free", "sensor", "place"], rows)?;
    if nodes.waiting > 0 {
        writeln!(out::stdout(), "{} waiting", nodes.waiting)?;
    }
    Ok(())
}

/// Returns the kind of a node's sensor and, if it is silent, for how long.
fn sensor(node: &NodeState) -> String {
    let Some(sensor) = &node.sensor else { return "-".to_owned() };
    let kind = sensor_reports::NodeKind::NAMED
        .iter()
        .find(|(_, kind)| *kind == sensor.report.kind)
        .map_or("?", |(name, _)| name);
    let state = if sensor.recent { "" } else { ", SILENT for " };
    let age = if sensor.recent { String::new() } else { format!("{:.0} s", sensor.age_s) };
    format!("{kind}{state}{age}")
}

async fn remove_objects(args: &Args, remove: &RemoveArgs) -> Result<(), CommandFailure> {
    let client = args.whom.client()?;
    let mut removed = Vec::new();
    let mut failed = 0;
    let places = args.places()?;
    for name in &remove.names {
        // Before it is forgotten: what is on a node that this machine does not know would be left there.
        let known = client.object_patiently(name).await.map(|object| unknown_place(&places, &object));
        if let Ok(Err(error)) = known {
            writeln!(out::stderr(), "tidegate: {name}: not removed: {error}")?;
            failed += 1;
            continue;
        }
        let object = match client.remove(name).await {
            Ok(object) => object,
            Err(error @ AskError::Refused(_)) => {
                writeln!(out::stderr(), "tidegate: {name}: {error}")?;
                failed += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // The catalogue has forgotten it: what is left on a node that is away costs room, and is said.
        for replica in &object.replicas {
            let gone = match replica.place.as_deref().map(|told| places.find(&replica.node, told)) {
                Some(Ok(place)) => {
                    remove_replica(place, &replica.key).await.map_err(|error| error.to_string())
                }
                Some(Err(error)) => Err(error.to_string()),
                None => Err("the broker's configuration has no such node any more".to_owned()),
            };
            if let Err(error) = gone {
                failed += 1;
                let (node, key) = (&replica.node, &replica.key);
                writeln!(out::stderr(), "tidegate: {name}: `{key}` is left on node `{node}`: {error}")?;
            }
        }
        if !args.json {
            writeln!(out::stdout(), "{name}: removed")?;
        }
        removed.push(object);
    }
    if args.json {
        print(&json!({ "removed": removed }))?;
    }
    if failed > 0 { Err(CommandFailure::Transfers(failed)) } else { Ok(()) }
}

/// Checks that every replica is where our own configuration has it. Replicas on nodes that the broker no
/// longer has pass.
fn unknown_place(places: &NodePlaces, object: &CatalogueObject) -> Result<(), PlacesError> {
    places.any()?;
    let mut told = object.replicas.iter().filter_map(|one| Some((&one.node, one.place.as_deref()?)));
    told.try_for_each(|(node, told)| places.find(node, told).map(drop))
}

async fn remove_replica(place: &NodePlace, key: &str) -> Result<(), StoreError> {
    NodeStore::open(place)?.remove(key).await
}

/// A table, each column as wide as it must be.
fn show(heading: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<(), CommandFailure> {
    let heading = heading.iter().map(|&name| name.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let width = |column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut out = out::stdout();
    for row in &rows {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}
