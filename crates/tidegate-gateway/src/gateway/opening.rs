//! Volumes that a new configuration adds, opened before it is applied, so that no storage is waited for then.

use std::collections::BTreeMap;

use tidegate_units::{ConsumerName, ResourceName};

use super::{StartError, open};
use crate::backend::ExportVolume;
use crate::clock::GatewayClock;
use crate::config::{BackendConfig, ExportConfig, GatewayConfig, PoolConfig};

/// The exports that a configuration adds, to be opened.
#[derive(Debug)]
pub struct AddedExports {
    added: Vec<(PoolConfig, ExportConfig)>,
    clock: GatewayClock,
}

/// The volumes of exports that a configuration adds.
#[derive(Debug, Default)]
pub struct OpenedVolumes(BTreeMap<(ResourceName, ConsumerName), ExportVolume>);

impl AddedExports {
    pub(super) fn new(old: &GatewayConfig, new: &GatewayConfig, clock: GatewayClock) -> Self {
        let mut added = Vec::new();
        // The pools are the same ones, in the same order: another set of pools needs a restart.
        for (old, new) in old.pools.iter().zip(&new.pools) {
            // A part of an emulated device is given away when the configuration is applied.
            if matches!(new.backend, BackendConfig::Emulated { .. }) {
                continue;
            }
            let is_new = |export: &&ExportConfig| old.exports.iter().all(|before| before.name != export.name);
            added.extend(new.exports.iter().filter(is_new).map(|export| (new.clone(), export.clone())));
        }
        Self { added, clock }
    }

    /// Returns true if nothing has to be opened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
    }

    /// Opens them, which ends within some seconds also where storage hangs.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub fn open(self) -> Result<OpenedVolumes, StartError> {
        let mut volumes = BTreeMap::new();
        for (pool, export) in &self.added {
            let volume = open(pool, export, &mut (0, 0), self.clock)?;
            volumes.insert((pool.name.clone(), export.name.clone()), volume);
        }
        Ok(OpenedVolumes(volumes))
    }
}

impl OpenedVolumes {
    pub(super) fn take(&mut self, pool: &ResourceName, export: &ConsumerName) -> Option<ExportVolume> {
        self.0.remove(&(pool.clone(), export.clone()))
    }
}
