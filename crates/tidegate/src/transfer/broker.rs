//! `tidegate broker`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{major, minor, statvfs};
use tidegate_host::sense::diskstats::{DiskDelta, DiskStats};
use tidegate_host::{DeviceNumber, Root};
use tidegate_transfer::{BrokerConfig, DeviceSample, Sensor, serve};
use tidegate_units::{ByteRate, Bytes};

use crate::failure::Failure;
use crate::logging;

/// Place transfers on storage nodes, for `tidegate place`, `tidegate transfer` and other programs
///
/// Knows the nodes, measures them, says which one carries a transfer, holds what was reserved until the transfer ends or its
/// client is silent for longer than its lease, and keeps the catalogue of what is where. The data does not pass through it.
/// SIGTERM and SIGINT end it; transfers under way go on meanwhile, and are known again after the next start.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration; see docs/transfers.md
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// What to log: error, warn, info, debug or trace [default: TIDEGATE_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    logging::start(args.log.as_deref())?;
    let config = BrokerConfig::load(&args.config)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let mut sensors: BTreeMap<_, Box<dyn Sensor>> = BTreeMap::new();
    for plan in &config.nodes {
        if let Some(path) = &plan.sense {
            sensors.insert(plan.config.name.clone(), Box::new(Device::under(path)));
        }
    }
    Ok(serve(&config, sensors)?)
}

/// The device under a path of this machine.
#[derive(Debug)]
struct Device {
    path: PathBuf,
    root: Root,
    stats: Option<(DeviceNumber, DiskStats)>,
}

impl Device {
    fn under(path: &Path) -> Self {
        let root = Root::default();
        let stats = std::fs::metadata(path)
            .ok()
            .map(|about| DeviceNumber::new(major(about.dev()), minor(about.dev())))
            .and_then(|number| {
                let stats = DiskStats::read(&root).ok()?;
                stats.get(number).is_some().then_some((number, stats))
            });
        match &stats {
            Some((number, _)) => {
                tracing::info!("{}: on device {number}, whose rates are measured", path.display());
            }
            None => tracing::warn!(
                "{}: no block device is known under this path; what its transfers say of themselves is taken for its rates",
                path.display()
            ),
        }
        Self { path: path.to_owned(), root, stats }
    }

    fn done(&mut self) -> Option<DiskDelta> {
        let (number, before) = self.stats.as_mut()?;
        let now = DiskStats::read(&self.root).ok()?;
        let change = now.change(before, *number);
        *before = now;
        change?.delta()
    }
}

impl Sensor for Device {
    fn sample(&mut self, elapsed: Duration) -> DeviceSample {
        let rate = |bytes: Bytes| ByteRate::new(bytes.get() as f64 / elapsed.as_secs_f64());
        let rates = self.done().map(|done| (rate(done.reads.bytes()), rate(done.writes.bytes())));
        let free = statvfs(&self.path).ok();
        let free = free.map(|free| Bytes::new(free.f_bavail.saturating_mul(free.f_frsize)));
        DeviceSample { rates: rates.filter(|_| !elapsed.is_zero()), free }
    }
}
