//! Exports that are opened, and what the gateway's handle keeps of them.

use std::sync::{Arc, Weak};

use tidegate_nbd::ExportDescription;
use tracing::{info, warn};

use super::awaited;
use super::errors::StartError;
use super::volume_look::{LookedAtVolume, VolumeLooks};
use crate::backend::{ExportVolume, open_file};
use crate::claim::VolumeFile;
use crate::clock::GatewayClock;
use crate::config::{BackendConfig, ExportConfig, ExportStore, PoolConfig};
use crate::identity::VolumeIdentity;
use crate::upstream::{self, UpstreamConnection, UpstreamExport};
use crate::worker::door::{ExportPin, NewExport};

/// Exports of an emulated device begin at multiples of this, so that stripes and zones do not cut across
/// them.
const REGION_ALIGNMENT: u64 = 1 << 20;

/// An export that is served.
#[derive(Debug)]
pub(super) struct OpenedExport {
    pub(super) id: u64,
    pub(super) export: ExportDescription,
    pub(super) config: ExportConfig,
    pub(super) volume: VolumeIdentity,
    /// Its file, for as long as the worker has it open.
    pub(super) file: Option<Weak<VolumeFile>>,
    pub(super) looks: Arc<VolumeLooks>,
    pub(super) pin: ExportPin,
}

/// The exports for which places are kept, and whether they are protected.
pub(super) fn seated(exports: &[OpenedExport]) -> Vec<(u64, bool)> {
    exports.iter().map(|opened| (opened.id, opened.config.protected)).collect()
}

impl OpenedExport {
    /// Returns its volume, to be looked at, if it is a file or block device.
    pub(super) fn volume_to_look_at(&self) -> Option<(Arc<VolumeLooks>, LookedAtVolume)> {
        let (ExportStore::Path(path), Some(file)) = (&self.config.store, &self.file) else { return None };
        let (export, path) = (self.config.name.clone(), path.clone());
        let volume = LookedAtVolume { export, path, served: self.volume.clone(), file: Weak::clone(file) };
        Some((Arc::clone(&self.looks), volume))
    }

    /// The same export under a new configuration, with the size that its volume has now.
    pub(super) fn with(&self, config: &ExportConfig, size: Option<u64>) -> Self {
        let mut geometry = self.export.geometry;
        if let Some(size) = size.filter(|size| *size != geometry.size) {
            let (export, before) = (&config.name, geometry.size);
            if size.is_multiple_of(u64::from(geometry.blocks.minimum())) {
                info!(%export, "its volume had {before} bytes and has {size} now: new connections see them");
                geometry.size = size;
            } else {
                warn!(%export, "its volume has {size} bytes now, which are no whole blocks: {before} stay");
            }
        }
        let description = config.description.clone().unwrap_or_default();
        Self {
            id: self.id,
            export: ExportDescription { geometry, description },
            config: config.clone(),
            volume: self.volume.clone(),
            file: self.file.clone(),
            looks: Arc::clone(&self.looks),
            pin: ExportPin::clone(&self.pin),
        }
    }
}

/// An opened export's two halves: the worker's and the handle's.
pub(super) fn adopt(id: u64, volume: ExportVolume, config: &ExportConfig) -> (NewExport, OpenedExport) {
    let export = ExportDescription {
        geometry: volume.geometry(config.read_only),
        description: config.description.clone().unwrap_or_default(),
    };
    let file = match &volume {
        ExportVolume::File(file) => Some(Arc::downgrade(&file.file())),
        ExportVolume::Region { .. } | ExportVolume::Upstream(_) => None,
    };
    let pin = ExportPin::default();
    let identity = volume.identity();
    let opened = OpenedExport {
        id,
        export,
        config: config.clone(),
        volume: identity,
        file,
        looks: Arc::default(),
        pin: ExportPin::clone(&pin),
    };
    (NewExport { id, volume, config: config.clone(), pin }, opened)
}

/// Opens an export's file, gives it space on the emulated device, or connects to its upstream.
pub(super) fn open(
    pool: &PoolConfig,
    export: &ExportConfig,
    regions: &mut (u64, u64),
    clock: GatewayClock,
) -> Result<ExportVolume, StartError> {
    match (&pool.backend, &export.store) {
        (BackendConfig::File { direct }, ExportStore::Path(path)) => open_file(path, *direct, export)
            .map(ExportVolume::File)
            .map_err(|source| StartError::Open { export: export.name.clone(), path: path.clone(), source }),
        (BackendConfig::Emulated { .. }, ExportStore::Size(size)) => {
            let base = regions.0.next_multiple_of(REGION_ALIGNMENT);
            let end = base.checked_add(size.get()).filter(|end| *end <= regions.1);
            let Some(end) = end else {
                return Err(StartError::Space { pool: pool.name.clone(), export: export.name.clone() });
            };
            regions.0 = end;
            Ok(ExportVolume::Region { base, size: size.get() })
        }
        (BackendConfig::Nbd(config), ExportStore::Upstream(name)) => {
            // Invariant: it is the target of just these two.
            let target = awaited::target(pool, export).expect("an upstream has a target");
            let first = upstream::open(&target).map_err(|source| StartError::Upstream {
                export: export.name.clone(),
                address: config.address.clone(),
                name: name.clone(),
                source: Box::new(source),
            })?;
            Ok(upstream_volume(pool, export, first, clock))
        }
        _ => unreachable!("`validate` has matched stores with backends"),
    }
}

/// An export of an upstream that was reached.
pub(super) fn upstream_volume(
    pool: &PoolConfig,
    export: &ExportConfig,
    first: UpstreamConnection,
    clock: GatewayClock,
) -> ExportVolume {
    let (BackendConfig::Nbd(config), Some(target)) = (&pool.backend, awaited::target(pool, export)) else {
        unreachable!("only an export with an upstream has a connection to it");
    };
    let (pool, export, config) = (pool.name.clone(), export.name.clone(), config.clone());
    ExportVolume::Upstream(Box::new(UpstreamExport::new(pool, export, target, config, first, clock.now())))
}
