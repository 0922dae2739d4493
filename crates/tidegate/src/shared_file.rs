//! The process that reads and writes the shared file of a cluster for a service.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use tidegate_cluster::{ClusterName, serve_shared_file, use_file_helper};

use crate::failure::CommandFailure;

/// The reader of a cluster's shared file: started by a service, never by hand
#[derive(clap::Args)]
pub(crate) struct Args {
    path: PathBuf,
    cluster: String,
    slots: u16,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    // The service ends its input once it has said farewell to other hosts. A stop of all processes of the service
    // must not end this one before that.
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let cluster =
        ClusterName::new(&args.cluster).map_err(|error| CommandFailure::Usage(error.to_string()))?;
    Ok(serve_shared_file(&args.path, &cluster, args.slots)?)
}

/// Has this service use such a process.
pub(crate) fn prepare() {
    // By this name also after the file was replaced by a newer one.
    use_file_helper(Path::new("/proc/self/exe"), "shared-file");
}
