//! `tidegate identify`.

mod arx;
mod arx_page;
mod page;
mod profile;
mod relay;

use std::io::{self, Write};
use std::path::PathBuf;
use std::{fmt, fs};

use clap::ArgGroup;
use serde::Serialize;
use tidegate_admission::GREATEST_SIZE;
use tidegate_control::ClosedLoopPole;
use tidegate_load::LoadTarget;
use tidegate_units::{Bytes, Iops, Latency, ResourceName};

use crate::admit::effort::MeasuringEffort;
use crate::failure::CommandFailure;
use crate::live::LiveLoading;
use crate::load;
use crate::out;
use tidegate_program::page::plot::PlotError;

/// Find out how a storage answers to what a controller does, by an experiment on it
///
/// With --relay: gains for the PID of an agent's resource. Throttles the eligible consumers, and releases
/// them, by turns, until the resource's reads have oscillated around the set point a few times. Their
/// oscillation shows how quickly the PID may act. Run it instead of the agent, under the load that is to be
/// regulated. It disturbs: meanwhile reads take up to as long as unregulated. At its end, and when it is
/// interrupted, it releases all consumers.
///
/// With --model: the response time of a storage model over the rate of requests, where it grows about
/// linearly, and how much there: the process gain, for a controller of rates. Nothing real is touched.
///
/// With --live: the same of an export, which is read at rates up to --to, and no further than its storage
/// keeps up. It sends nothing while other consumers use the pool. It stops at once when another consumer
/// begins, when a request takes two seconds, and at Ctrl-C.
///
/// With --model and --excite: the rate is white noise, and a linear model is laid through the response times,
/// for each of several sampling intervals and orders; which of them to take, and what gains make of a fixed
/// integral controller for it.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("how").required(true).args(["relay", "model", "live"])))]
pub(crate) struct Args {
    /// With --relay: the agent's configuration; see docs/guide/agent.md
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["model", "live"],
        conflicts_with_all = ["model", "live"])]
    config: Option<PathBuf>,

    /// With --relay: the resource; may be left out when there is only one
    #[arg(value_name = "RESOURCE", conflicts_with_all = ["model", "live"])]
    resource: Option<ResourceName>,

    /// By relay feedback
    #[arg(long, conflicts_with_all = ["arrivals", "seed", "seeds", "requests"])]
    relay: bool,

    /// With --relay: the experiment takes no longer
    #[arg(long, value_name = "TIME", default_value = "1min", conflicts_with_all = ["model", "live"])]
    limit: Latency,

    /// By offering load to a model: a preset's name, or a file of contracts (see docs/guide/contracts.md)
    #[arg(long, value_name = "PRESET|FILE")]
    model: Option<String>,

    /// By reading an export: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[arg(long, value_name = "URI", requires = "to", conflicts_with = "seeds")]
    live: Option<LoadTarget>,

    /// With --live: the greatest rate at which it is read
    #[arg(long, value_name = "N", value_parser = load::rate, requires = "live")]
    to: Option<Iops>,

    #[command(flatten)]
    loading: LiveLoading,

    /// With --model: excite it with white noise, half of the rate to either side of it, and find a linear
    /// model
    #[arg(long, requires = "model", conflicts_with_all = ["arrivals", "seeds", "requests", "points", "pole"])]
    excite: bool,

    /// With --model or --live: the rate at which the controller is to work [default: that of all contracts,
    /// or three quarters of the greatest; with --excite two thirds of it]
    #[arg(long, value_name = "N", value_parser = load::rate, conflicts_with = "relay")]
    rate: Option<Iops>,

    /// With --model or --live: where the pole of the closed loop is to be, between -1 and 1; the nearer to 1
    /// the slower and the safer
    #[arg(long, value_name = "P", value_parser = pole, default_value = "0.9", conflicts_with = "relay")]
    pole: ClosedLoopPole,

    /// With --live, a preset, or a file without tenants: size of each read, 32 MiB at most [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "relay")]
    size: Option<Bytes>,

    /// With --model or --live: how many rates are measured
    #[arg(
        long, value_name = "N", default_value_t = 20, conflicts_with = "relay",
        value_parser = clap::value_parser!(u32).range(5..=1_000)
    )]
    points: u32,

    #[command(flatten)]
    effort: MeasuringEffort,

    /// With --model or --live: write a page with the plot to this file
    #[arg(long, value_name = "FILE.html", conflicts_with = "relay")]
    report: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> Result<Bytes, String> {
    let size = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    match size {
        Bytes::ZERO => Err("a read has a byte at least".to_owned()),
        size if size > GREATEST_SIZE => Err(format!("a read has {GREATEST_SIZE} at the most")),
        size => Ok(size),
    }
}

fn pole(text: &str) -> Result<ClosedLoopPole, String> {
    let number: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    ClosedLoopPole::new(number).map_err(|error| error.to_string())
}

/// Prints what was found, as text or as JSON, and writes its page where one is asked for.
fn show(
    found: &impl fmt::Display,
    document: &impl Serialize,
    page: impl FnOnce() -> Result<String, PlotError>,
    args: &Args,
) -> Result<(), CommandFailure> {
    if let Some(path) = &args.report {
        let page = page().map_err(CommandFailure::Plot)?;
        fs::write(path, page).map_err(|source| CommandFailure::WriteReport { path: path.clone(), source })?;
    }
    let mut out = out::stdout();
    if args.json {
        serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{found}")?;
        if let Some(path) = &args.report {
            writeln!(out, "Report: {}", path.display())?;
        }
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    match (&args.model, args.live.as_ref().zip(args.to), &args.config) {
        (Some(model), ..) if args.excite => arx::run(model, args),
        (Some(model), ..) => profile::run_model(model, args),
        (None, Some((target, greatest)), _) => profile::run_live(target, greatest, args),
        (None, None, Some(config)) => relay::run(config, args.resource.as_ref(), args.limit, args.json),
        (None, None, None) => Err(CommandFailure::Usage(
            "name a configuration with --config, a --model, or an export with --live".to_owned(),
        )),
    }
}
