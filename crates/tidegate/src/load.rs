//! `tidegate load`.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use tidegate_load::{
    BlockOrder, LoadArrivals, LoadConfig, LoadError, LoadHandle, LoadPhases, LoadReport, LoadSample,
    LoadTarget, RequestSpacing, RunningLoad, WritePayload,
};
use tidegate_units::{Bytes, Iops, Latency};

use crate::failure::CommandFailure;
use crate::out;

/// The default number of requests that an open loop may have outstanding per connection. It is more than a
/// healthy server ever has, so that the loop stays open.
const OPEN_DEPTH: u32 = 1024;

/// The pause between two looks at the end of the load and at a wish to stop.
const POLL: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  tidegate load nbd://localhost/database --rate 64 --duration 10s
  tidegate load 'nbd+unix:///scratch?socket=/run/nbd.sock' --sequential --reads 0 --block 256KiB";

/// Load an NBD export and measure its response times
///
/// Reads only, unless told otherwise: writes overwrite what the export holds. Without --rate each connection
/// keeps --depth requests outstanding (closed loop); with --rate requests come whatever the answers (open
/// loop), and a response time counts from when its request was due. Ctrl-C ends the load early and reports.
/// If the server ends the session before, the results so far are printed, and the exit status is 1.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The export: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[arg(value_name = "URI")]
    target: LoadTarget,

    /// Duration of the load
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: Latency,

    /// Connections, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: u32,

    /// Requests outstanding per connection; with --rate the most that may be [default: 1, with --rate 1024]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,

    /// Pause between an answer and the next request
    #[arg(long, value_name = "TIME", default_value = "0s", conflicts_with = "rate")]
    think: Latency,

    /// Requests per second, of all connections together
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<Iops>,

    /// Space the requests of --rate at random, as many independent users do
    #[arg(long, requires = "rate")]
    poisson: bool,

    /// Size of each request
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: Bytes,

    /// One block after the other instead of random ones
    #[arg(long)]
    sequential: bool,

    /// Share of reads in per cent; the rest OVERWRITES the export
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    reads: f64,

    /// Write zeroes instead of random bytes
    #[arg(long)]
    zeroes: bool,

    /// Have every write on stable storage before it is answered
    #[arg(long)]
    fua: bool,

    /// Beginning of the loaded region in the export
    #[arg(long, value_name = "SIZE", default_value = "0B")]
    offset: Bytes,

    /// Size of the loaded region [default: the rest of the export]
    #[arg(long, value_name = "SIZE")]
    span: Option<Bytes>,

    /// Load that comes and goes: how long it is on
    #[arg(long, value_name = "TIME", requires = "off")]
    on: Option<Latency>,

    /// Load that comes and goes: how long it then pauses
    #[arg(long, value_name = "TIME", requires = "on")]
    off: Option<Latency>,

    /// Seed of everything random: the same seed makes the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A rate is a number of requests per second, with or without its unit: there is no other here.
pub(crate) fn rate(text: &str) -> Result<Iops, String> {
    match text.strip_suffix("/s").unwrap_or(text).parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(Iops::new(number)),
        Ok(_) => Err("a rate is more than nothing".to_owned()),
        Err(_) => text.parse().map_err(|error: tidegate_units::ParseUnitError| error.to_string()),
    }
}

impl Args {
    fn config(&self) -> LoadConfig {
        let arrivals = match self.rate {
            None => LoadArrivals::Closed { depth: self.depth.unwrap_or(1), think: self.think.to_duration() },
            Some(rate) => LoadArrivals::Open {
                rate,
                spacing: if self.poisson { RequestSpacing::Poisson } else { RequestSpacing::Even },
                depth: self.depth.unwrap_or(OPEN_DEPTH),
            },
        };
        LoadConfig {
            connections: self.connections,
            arrivals,
            order: if self.sequential { BlockOrder::Sequential } else { BlockOrder::Random },
            read_fraction: self.reads / 100.0,
            block: self.block,
            offset: self.offset,
            span: self.span,
            fua: self.fua,
            payload: if self.zeroes { WritePayload::Zeroes } else { WritePayload::Random },
            phases: self.on.zip(self.off).map(|(on, off)| LoadPhases {
                on: on.to_duration(),
                off: off.to_duration(),
                delay: Duration::ZERO,
            }),
            duration: Some(self.duration.to_duration()),
            seed: self.seed,
            ..LoadConfig::new(self.target.clone())
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal asks, a second one does not wait.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .map_err(CommandFailure::Signals)?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(CommandFailure::Signals)?;
    }
    let handle = RunningLoad::connect(args.config())?.start()?;
    watch(&handle, &stop)?;
    match handle.join() {
        Ok(report) => {
            print(&report, args.json)?;
            judge(&report)
        }
        // What was measured until then was measured all the same.
        Err(error) => {
            if let LoadError::Lost { report, .. } = &error {
                print(report, args.json)?;
            }
            Err(error.into())
        }
    }
}

fn print(report: &LoadReport, is_json: bool) -> io::Result<()> {
    if is_json {
        let json = serde_json::to_string_pretty(report).map_err(io::Error::from)?;
        writeln!(out::stdout(), "{json}")
    } else {
        write!(out::stdout(), "{report}")
    }
}

fn judge(report: &LoadReport) -> Result<(), CommandFailure> {
    match &report.first_error {
        Some(first) => Err(CommandFailure::Answers {
            errors: report.reads.errors + report.writes.errors,
            first: first.clone(),
        }),
        None => Ok(()),
    }
}

/// Waits for the end, with one line of progress on a terminal.
fn watch(handle: &LoadHandle, stop: &AtomicBool) -> io::Result<()> {
    let live = io::stderr().is_terminal();
    let (start, mut next) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    let mut stopped = false;
    while !handle.is_finished() {
        thread::sleep(POLL);
        if stop.load(Ordering::Relaxed) && !stopped {
            handle.stop();
            stopped = true;
        }
        if live && Instant::now() >= next {
            // To the line's beginning, and what was there erased.
            write!(io::stderr(), "\r\x1b[K{}", progress(start.elapsed(), &handle.sample()))?;
            next += Duration::from_secs(1);
        }
    }
    if live { write!(io::stderr(), "\r\x1b[K") } else { Ok(()) }
}

fn progress(elapsed: Duration, sample: &LoadSample) -> String {
    let seconds = sample.span.as_secs_f64().max(f64::EPSILON);
    let mut line = format!("{:>4} s", elapsed.as_secs());
    for (name, operation) in [("reads", &sample.reads), ("writes", &sample.writes)] {
        if let Some(mean) = operation.latency_mean() {
            line += &format!("   {name} {} at {mean}", Iops::new(operation.count as f64 / seconds));
        }
    }
    line + &format!("   {} outstanding", sample.in_flight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_no_unit_and_bears_one() {
        assert_eq!(rate("64"), Ok(Iops::new(64.0)));
        assert_eq!(rate("1.5 kIO/s"), Ok(Iops::new(1_500.0)));
        for wrong in ["0", "-1", "nan", "inf", "fast", ""] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
