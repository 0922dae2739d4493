//! `tidegate broker`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_host::SystemRoot;
use tidegate_host::sense::{StorageLane, StorageReader, StorageSample};
use tidegate_placement::DeviceLane;
use tidegate_service::supervisor::Supervisor;
use tidegate_transfer::{BrokerConfig, DeviceSample, DeviceSensor, serve};

use crate::descriptors;
use crate::failure::CommandFailure;
use crate::logging;

/// Place transfers on storage nodes, for `tidegate place`, `tidegate transfer` and other programs
///
/// Knows the nodes, measures them, says which one carries a transfer, holds what was reserved until the
/// transfer ends or its client is silent for longer than its lease, and keeps the catalogue of what is where.
/// The data does not pass through it. SIGTERM and SIGINT end it; transfers under way go on meanwhile, and are
/// known again after the next start.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration; see docs/guide/transfers.md
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Least severity to log: error, warn, info, debug or trace [default: TIDEGATE_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    logging::start(args.log.as_deref())?;
    descriptors::raise();
    let config = BrokerConfig::load(&args.config)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let mut sensors: BTreeMap<_, Box<dyn DeviceSensor>> = BTreeMap::new();
    for plan in &config.nodes {
        if let Some(device) = plan.sense.as_deref().and_then(Device::under) {
            sensors.insert(plan.config.name.clone(), Box::new(device));
        }
    }
    let supervisor = Supervisor::of_this_process();
    Ok(serve(&config, sensors, || supervisor.ready())?)
}

/// The storage under a path of this machine.
#[derive(Debug)]
struct Device(StorageReader);

impl Device {
    fn under(path: &Path) -> Option<Self> {
        // Nothing but a cgroup can be lacking.
        let reader = StorageReader::under(&SystemRoot::default(), path, None).ok()?;
        match reader.measures() {
            Some(storage) => {
                tracing::info!("{}: on {storage}, whose rates are measured", path.display());
            }
            None => tracing::warn!(
                "{}: neither a block device nor NFS is under this path: nothing is known of what others do \
                 there",
                path.display()
            ),
        }
        if let Some(device) = reader.uncounted() {
            tracing::warn!("{}: its rates are unknown: {device}", path.display());
        }
        Some(Self(reader))
    }
}

impl DeviceSensor for Device {
    fn sample(&mut self, elapsed: Duration) -> DeviceSample {
        let StorageSample { read, write, free, .. } = self.0.sample(elapsed);
        let lane = |lane: StorageLane| DeviceLane { rate: lane.rate, latency: lane.latency };
        DeviceSample { lanes: [lane(read), lane(write)], free }
    }
}
