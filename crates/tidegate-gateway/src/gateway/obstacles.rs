//! What would keep a gateway from starting on this machine now.

use std::io;

use super::errors::StartError;
use crate::backend::try_out_file;
use crate::config::{BackendConfig, ExportStore, GatewayConfig};
use crate::endpoint::BoundEndpoint;
use crate::listener::{devices, disks};

/// Returns everything that would keep a gateway from starting now: addresses, volumes and devices that others
/// use, or that are not fit to be served. Nothing is changed, listened on or claimed.
///
/// Upstreams are not asked. A gateway starts without them, and asks again.
#[must_use]
pub fn obstacles(config: &GatewayConfig) -> Vec<StartError> {
    let mut found = Vec::new();
    for listen in &config.listen {
        if let Err(source) = BoundEndpoint::try_out(&listen.endpoint) {
            found.push(StartError::Listen { endpoint: listen.endpoint.clone(), source });
        }
    }
    // Storage that hangs is waited for once.
    let mut hangs = false;
    for pool in &config.pools {
        for export in &pool.exports {
            let sockets = export.disks.iter().map(|socket| disks::try_out(&export.name, socket));
            found.extend(sockets.filter_map(Result::err).map(StartError::from));
            let devices = export.devices.iter().map(|number| devices::try_out(pool, export, *number));
            found.extend(devices.filter_map(Result::err).map(StartError::from));
            let (BackendConfig::File { direct }, ExportStore::Path(path)) = (&pool.backend, &export.store)
            else {
                continue;
            };
            if let Some(Err(source)) = (!hangs).then(|| try_out_file(path, *direct, export)) {
                hangs |= source.kind() == io::ErrorKind::TimedOut;
                let (export, path) = (export.name.clone(), path.clone());
                found.push(StartError::Open { export, path, source });
            }
        }
    }
    found
}
