//! `tidegate place`.

use std::io::Write;

use tidegate_transfer::ObjectName;
use tidegate_transfer::wire::{DataDirection, TransferQuestion, TransferReservation, one_line};
use tidegate_units::{Bytes, Latency, ResourceName};

use super::{BrokerArgs, NeedArgs, block_on, print};
use crate::failure::CommandFailure;
use crate::out;

const EXAMPLES: &str = "\
Examples:
  tidegate place --write 2GB --rate 10MB/s
  tidegate place --read run7.h5 --rate 10MB/s --json";

/// Ask which storage node carries a transfer now, and reserve it there
///
/// Moves nothing. The reservation lasts for the broker's lease. The client that makes the transfer keeps it
/// alive by reporting its progress with the id, and reports its end; see docs/guide/transfers.md.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, group = clap::ArgGroup::new("what").required(true).args(["write", "read"]))]
pub(crate) struct Args {
    #[command(flatten)]
    whom: BrokerArgs,

    /// So much is to be written
    #[arg(long, value_name = "SIZE")]
    write: Option<Bytes>,

    /// This object is to be read
    #[arg(long, value_name = "NAME")]
    read: Option<ObjectName>,

    /// Name in the catalogue of the written object
    #[arg(long, value_name = "NAME", requires = "write")]
    name: Option<ObjectName>,

    #[command(flatten)]
    need: NeedArgs,

    /// The least class of availability
    #[arg(long, value_name = "CLASS", default_value_t = 0)]
    availability: u8,

    /// The greatest class of cost
    #[arg(long, value_name = "CLASS", default_value_t = u8::MAX)]
    cost: u8,

    /// Not this node; may be given several times
    #[arg(long, value_name = "NODE")]
    except: Vec<String>,

    /// Wait while no node can carry it; otherwise that is said, and nothing is reserved
    #[arg(long)]
    wait: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let except = args.except.iter().map(|name| ResourceName::new(name));
    let except =
        except.collect::<Result<_, _>>().map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let wish = TransferQuestion {
        way: if args.read.is_some() { DataDirection::Read } else { DataDirection::Write },
        name: args.read.clone().or(args.name.clone()),
        size: args.write,
        needs: args.need.read()?,
        availability: args.availability,
        cost: args.cost,
        except,
        replica: false,
    };
    let reservation = block_on(place(args, &wish))??;
    if args.json {
        print(&reservation)?;
    } else if let Some(granted) = &reservation.granted {
        let mut out = out::stdout();
        let first = granted.expected_first_byte_s.map(Latency::from_secs_f64);
        let first = first.map_or_else(String::new, |first| format!(", its first byte after {first}"));
        let place = one_line(&granted.place);
        writeln!(out, "{} at {place}, expected {}{first}", granted.node, granted.expected_bps)?;
        if let Some(key) = &granted.key {
            writeln!(out, "under the key {key}")?;
        }
        writeln!(out, "reservation {}, for {} s without a word", reservation.id, reservation.lease_s)?;
    }
    if reservation.granted.is_some() { Ok(()) } else { Err(CommandFailure::NotNow) }
}

async fn place(args: &Args, wish: &TransferQuestion) -> Result<TransferReservation, CommandFailure> {
    if args.wait {
        return Ok(args.whom.client()?.place_and_wait(wish, || ()).await?);
    }
    let client = args.whom.client_at_once()?;
    let reservation = client.place(wish).await?;
    if reservation.granted.is_none() {
        // No client will come back for it.
        let _ = client.end(&reservation.id, tidegate_transfer::wire::TransferEnd::default()).await;
    }
    Ok(reservation)
}
