//! `tidegate transfer copy-catalogue`.

use std::io::Write;
use std::path::PathBuf;

use serde_json::json;
use tidegate_transfer::{BrokerConfig, Catalogue, CataloguePlace};

use crate::failure::CommandFailure;
use crate::out;

/// Copy a broker's catalogue to where another configuration keeps it: from its folder into NATS, or back
///
/// No broker is asked: neither may run. Nothing is copied over a catalogue that is there already. Transfers
/// that are under way are copied, too, and go on meanwhile. What was copied stays where it is: start no
/// broker on it any more.
#[derive(clap::Args)]
pub(crate) struct CopyArgs {
    /// The configuration of the broker that had it
    #[arg(long, value_name = "FILE")]
    from: PathBuf,

    /// The configuration of the broker that is to have it
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

pub(crate) fn run(json: bool, args: &CopyArgs) -> Result<(), CommandFailure> {
    let [from, to] = [BrokerConfig::load(&args.from)?, BrokerConfig::load(&args.to)?];
    let copied = Catalogue::copy(kept(&from), kept(&to))?;
    let (objects, under_way) = (copied.objects, copied.under_way);
    let mut out = out::stdout();
    let said = if json {
        writeln!(out, "{}", json!({ "objects": objects, "under_way": under_way }))
    } else {
        writeln!(out, "copied: {objects} objects, {under_way} transfers under way")
    };
    said.map_err(CommandFailure::Output)
}

fn kept(config: &BrokerConfig) -> CataloguePlace<'_> {
    (&config.state, config.site.as_ref())
}
