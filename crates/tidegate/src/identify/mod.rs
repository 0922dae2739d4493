//! `tidegate identify`.

mod page;
mod profile;
mod relay;

use std::path::PathBuf;

use clap::ArgGroup;
use tidegate_control::Pole;
use tidegate_units::{Bytes, Iops, Latency, ResourceName};

use crate::admit::Effort;
use crate::failure::Failure;
use crate::load;

/// Find out how a storage answers to what a controller does, by an experiment on it
///
/// With --relay: gains for the PID of an agent's resource. Holds those who may be held, and lets them go, by turns, until the
/// resource's reads have oscillated around the set point a few times; how they do says how quickly the PID may act. It is to
/// run while the load is there that is to be held back, and instead of the agent. It disturbs: while it goes on reads take up
/// to as long as unregulated. Then, and when it is interrupted, everybody is let go.
///
/// With --model: the response time of a storage model over the rate of requests, where it grows about linearly, and how much
/// there: the process gain, for a controller of rates. Nothing real is touched.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("how").required(true).args(["relay", "model"])))]
pub(crate) struct Args {
    /// With --relay: the agent's configuration; see docs/agent.md
    #[arg(short, long, value_name = "FILE", required_unless_present = "model", conflicts_with = "model")]
    config: Option<PathBuf>,

    /// With --relay: the resource; may be left out when there is only one
    #[arg(value_name = "RESOURCE", conflicts_with = "model")]
    resource: Option<ResourceName>,

    /// By relay feedback
    #[arg(long, conflicts_with_all = ["arrivals", "seed", "seeds", "requests"])]
    relay: bool,

    /// With --relay: the experiment takes no longer
    #[arg(long, value_name = "TIME", default_value = "1min", conflicts_with = "model")]
    limit: Latency,

    /// By offering load to a model: a preset's name, or a file of a storage and contracts (docs/contracts.md)
    #[arg(long, value_name = "PRESET|FILE")]
    model: Option<String>,

    /// With --model: the rate at which the controller is to work [default: that of all contracts, or three quarters of
    /// the greatest]
    #[arg(long, value_name = "N", value_parser = load::rate, requires = "model")]
    rate: Option<Iops>,

    /// With --model: where the pole of the closed loop is to be, between -1 and 1; the nearer to 1 the slower and the safer
    #[arg(long, value_name = "P", value_parser = pole, default_value = "0.9", conflicts_with = "relay")]
    pole: Pole,

    /// With --model and a file without tenants, or a preset: size of each read [default: 4KiB]
    #[arg(long, value_name = "SIZE", requires = "model")]
    size: Option<Bytes>,

    /// With --model: how many rates are measured
    #[arg(
        long, value_name = "N", default_value_t = 20, conflicts_with = "relay",
        value_parser = clap::value_parser!(u32).range(5..=1_000)
    )]
    points: u32,

    #[command(flatten)]
    effort: Effort,

    /// With --model: write a page with the plot to this file
    #[arg(long, value_name = "FILE.html", requires = "model")]
    report: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn pole(text: &str) -> Result<Pole, String> {
    let number: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    Pole::new(number).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match (&args.model, &args.config) {
        (Some(model), _) => profile::run(model, args),
        (None, Some(config)) => relay::run(config, args.resource.as_ref(), args.limit, args.json),
        (None, None) => Err(Failure::Usage("name a configuration with --config, or a --model".to_owned())),
    }
}
