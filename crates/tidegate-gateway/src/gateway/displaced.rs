//! Volumes that were replaced or removed under their exports: the path leads elsewhere than the open file.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_units::ConsumerName;

use super::exports::OpenedExport;
use super::opening::ask_each;
use super::replaced::DisplacedVolume;
use crate::config::ExportStore;
use crate::identity::VolumeIdentity;

/// The volumes that a gateway has open by paths.
#[derive(Debug)]
pub struct OpenVolumes {
    volumes: Vec<(ConsumerName, PathBuf, VolumeIdentity)>,
    looking: Arc<AtomicBool>,
}

impl OpenVolumes {
    pub(super) fn new<'a>(
        exports: impl Iterator<Item = &'a OpenedExport>,
        looking: &Arc<AtomicBool>,
    ) -> Self {
        let volumes = exports.filter_map(|opened| match &opened.config.store {
            ExportStore::Path(path) => {
                Some((opened.config.name.clone(), path.clone(), opened.volume.clone()))
            }
            ExportStore::Size(_) | ExportStore::Upstream(_) => None,
        });
        Self { volumes: volumes.collect(), looking: Arc::clone(looking) }
    }

    /// Looks where the paths lead, which ends within some seconds also where storage hangs. A path that
    /// cannot be looked at is taken to be right.
    #[must_use]
    pub fn displaced(self) -> Vec<DisplacedVolume> {
        ask_each(self.volumes, &self.looking, |(export, path, served)| {
            DisplacedVolume::find(export, path, served)
        })
    }
}
