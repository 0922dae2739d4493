//! `tidegate transfer probe`.

use std::io::Write;

use serde_json::json;
use tidegate_transfer::store::NodePlace;
use tidegate_transfer::wire::{PeakNow, PeakReport};
use tidegate_transfer::{NodeProbe, ProbeError, ProbeLimits, ProbeResult};
use tidegate_units::{Bytes, Latency, ResourceName};
use tokio::signal::unix::{SignalKind, signal};

use super::{Args, print};
use crate::failure::CommandFailure;
use crate::out;

/// Try what a storage node moves, and tell the broker
///
/// Writes objects to the node from this machine, one after the other, reads them, and removes them, whatever
/// happens but SIGKILL. The result counts as the node's learnt peak, which ages; a peak that the
/// configuration pins stays. Nothing else ever does this: while it lasts, it takes from all other users of
/// the node.
#[derive(clap::Args)]
pub(super) struct ProbeArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: ResourceName,

    /// Write, and read, this much at the most
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    size: Bytes,

    /// Write for so long at the most, and read for as long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    time: Latency,

    /// Print the result, and report it to no broker
    #[arg(long)]
    keep: bool,
}

/// No probe takes longer, nor more: it is no load test.
const LONGEST: Latency = Latency::from_millis(300_000);
const LARGEST: Bytes = Bytes::from_gib(64);

impl ProbeArgs {
    fn limits(&self) -> Result<ProbeLimits, CommandFailure> {
        let wrong = |what: &str| Err(CommandFailure::Usage(what.to_owned()));
        if self.time < Latency::from_millis(100) || self.time > LONGEST {
            return wrong("`--time` is within 100ms and 5 minutes");
        }
        if self.size < Bytes::from_mib(1) || self.size > LARGEST {
            return wrong("`--size` is within 1MiB and 64GiB");
        }
        Ok(ProbeLimits { size: self.size, time: self.time.to_duration() })
    }
}

pub(super) fn run(all: &Args, args: &ProbeArgs) -> Result<(), CommandFailure> {
    let limits = args.limits()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(probe(all, args, limits));
    // A thread in a folder that hangs does not come back.
    runtime.shutdown_background();
    outcome
}

async fn probe(all: &Args, args: &ProbeArgs, limits: ProbeLimits) -> Result<(), CommandFailure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(CommandFailure::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CommandFailure::Signals)?;
    let client = all.whom.client_at_once()?;
    let name = &args.node;
    let known = client.nodes().await?.nodes.into_iter().find(|node| node.name == *name);
    let node = known.ok_or_else(|| CommandFailure::Usage(format!("there is no storage node `{name}`")))?;
    if let Some(free) = node.free.filter(|free| *free < limits.size) {
        let why = format!(
            "{free} are free on `{name}`, and {} would be written: give less by `--size`",
            limits.size
        );
        return Err(CommandFailure::Usage(why));
    }
    let active = node.read.active.saturating_add(node.write.active);
    if active > 0 {
        let many = if active == 1 { "1 transfer is".to_owned() } else { format!("{active} transfers are") };
        writeln!(out::stderr(), "{name}: {many} under way there: what is found is what they leave")?;
    }
    let places = all.places()?;
    let place = places.find(name, &node.place).map_err(|error| CommandFailure::Probe(error.to_string()))?;
    let failed = |error: ProbeError| CommandFailure::Probe(format!("{name}: {error}"));
    let mut probe = NodeProbe::new(place, limits).map_err(failed)?;
    let work = async {
        let written = probe.write().await?;
        Ok::<_, ProbeError>((written, probe.read().await))
    };
    let outcome = tokio::select! {
        outcome = work => outcome.map_err(failed),
        _ = terminate.recv() => Err(CommandFailure::Interrupted),
        _ = interrupt.recv() => Err(CommandFailure::Interrupted),
    };
    let mut is_clean = true;
    for (key, error) in probe.clean_up().await {
        is_clean = false;
        writeln!(out::stderr(), "tidegate: `{key}` is left on node `{name}`: {error}")?;
    }
    let (written, read) = outcome?;
    let unread = read.as_ref().err().map(|error| failed_to_read(name, error));
    let read = read.ok();
    let found = PeakReport {
        read_bps: read.map(|found| found.rate.per_second()),
        write_bps: Some(written.rate.per_second()),
    };
    let peaks = if args.keep { None } else { Some(client.probed(name, &found).await?) };
    if all.json {
        let part = |found: ProbeResult| {
            json!({ "bps": found.rate, "of_bytes": found.of,
            "moved_bytes": found.moved, "objects": found.objects })
        };
        print(&json!({ "node": name, "write": part(written), "read": read.map(part), "peaks": peaks }))?;
    } else {
        let mut out = out::stdout();
        let mut say = |way: &str, found: &ProbeResult, peak: Option<PeakNow>| {
            let what = match peak {
                Some(PeakNow { bps, pinned: true }) => {
                    format!("; the configuration says {bps}, and that stays")
                }
                Some(PeakNow { bps, pinned: false }) => format!("; its peak is taken for {bps} now"),
                None => String::new(),
            };
            writeln!(out, "{name}: {way} {}, of {} in all{what}", found.rate, found.moved)
        };
        say("writes", &written, peaks.map(|peaks| peaks.write))?;
        if let Some(read) = &read {
            say("reads", read, peaks.map(|peaks| peaks.read))?;
            if !matches!(place, NodePlace::Folder(_)) {
                writeln!(out::stdout(), "{name}: what was read may have been in its server's memory")?;
            }
        }
    }
    if let Some(unread) = unread {
        writeln!(out::stderr(), "{unread}")?;
    }
    if is_clean { Ok(()) } else { Err(CommandFailure::Transfers(1)) }
}

fn failed_to_read(name: &ResourceName, error: &ProbeError) -> String {
    format!("tidegate: {name}: it was written to, and could not be read: {error}")
}
