//! The part of a reload that may have to wait for storage: volumes that a new configuration adds are opened,
//! and those that are open are measured again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tidegate_units::{ConsumerName, ResourceName};
use tracing::warn;

use super::errors::StartError;
use super::exports::{OpenedExport, open};
use crate::backend::ExportVolume;
use crate::claim::VolumeFile;
use crate::clock::GatewayClock;
use crate::config::{BackendConfig, ExportConfig, GatewayConfig, PoolConfig};

/// The longest time that answers about volumes are waited for. They are in the kernel's memory, unless a server
/// has them.
const MEASURING: Duration = Duration::from_secs(2);

/// Measuring needs little more than frames.
const STACK: usize = 128 * 1024;

/// The volumes of a new configuration: those to be opened, and those to be measured again.
#[derive(Debug)]
pub struct ReloadVolumes {
    added: Vec<(PoolConfig, ExportConfig)>,
    /// Open volumes, by the identities of their exports.
    open: Vec<(u64, Weak<VolumeFile>)>,
    /// True while some measurement has not come back.
    measuring: Arc<AtomicBool>,
    clock: GatewayClock,
}

/// The volumes of a new configuration, opened and measured.
#[derive(Debug, Default)]
pub struct OpenedVolumes {
    added: BTreeMap<(ResourceName, ConsumerName), ExportVolume>,
    sizes: BTreeMap<u64, u64>,
}

impl ReloadVolumes {
    pub(super) fn new<'a>(
        old: &GatewayConfig,
        new: &GatewayConfig,
        exports: impl Iterator<Item = &'a OpenedExport>,
        measuring: &Arc<AtomicBool>,
        clock: GatewayClock,
    ) -> Self {
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
        let open = exports.filter_map(|opened| Some((opened.id, opened.file.clone()?))).collect();
        Self { added, open, measuring: Arc::clone(measuring), clock }
    }

    /// Returns true if nothing has to be waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.open.is_empty()
    }

    /// Opens and measures them, which ends within some seconds also where storage hangs. A volume that
    /// cannot be measured keeps the size that it had.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub fn open(self) -> Result<OpenedVolumes, StartError> {
        let mut volumes = BTreeMap::new();
        for (pool, export) in &self.added {
            let volume = open(pool, export, &mut (0, 0), self.clock)?;
            volumes.insert((pool.name.clone(), export.name.clone()), volume);
        }
        Ok(OpenedVolumes { added: volumes, sizes: measure(self.open, &self.measuring) })
    }
}

fn measure(open: Vec<(u64, Weak<VolumeFile>)>, measuring: &Arc<AtomicBool>) -> BTreeMap<u64, u64> {
    let size = |(id, file): (u64, Weak<VolumeFile>)| Some((id, file.upgrade()?.size().ok()?));
    ask_each(open, measuring, size).into_iter().collect()
}

/// The trouble that a reload goes on with.
const NOT_LOOKED_AT: &str =
    "not all volumes were looked at, and one that was replaced or has another size may be unnoticed";

/// Asks about volumes on a thread of its own, which is left behind when it does not come back: then the
/// answers that have come are all. `asking` lets one thread ask at a time.
pub(super) fn ask_each<V: Send + 'static, A: Send + 'static>(
    volumes: Vec<V>,
    asking: &Arc<AtomicBool>,
    ask: impl Fn(V) -> Option<A> + Send + 'static,
) -> Vec<A> {
    if volumes.is_empty() {
        return Vec::new();
    }
    if asking.swap(true, Ordering::AcqRel) {
        warn!("{NOT_LOOKED_AT}: the look of the last reload still waits for one of them");
        return Vec::new();
    }
    let (sender, answers) = channel();
    let begun = Arc::clone(asking);
    let body = move || {
        // The caller may have given up.
        volumes.into_iter().filter_map(ask).for_each(|answer| drop(sender.send(answer)));
        begun.store(false, Ordering::Release);
    };
    if let Err(error) = std::thread::Builder::new().name("tg-size".into()).stack_size(STACK).spawn(body) {
        warn!("volumes are not looked at, there is no thread for it: {error}");
        asking.store(false, Ordering::Release);
    }
    let end = Instant::now() + MEASURING;
    let mut answered = Vec::new();
    loop {
        match answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(answer) => answered.push(answer),
            Err(RecvTimeoutError::Disconnected) => return answered,
            Err(RecvTimeoutError::Timeout) => {
                warn!("{NOT_LOOKED_AT}: the storage of one of them hangs");
                return answered;
            }
        }
    }
}

impl OpenedVolumes {
    pub(super) fn take(&mut self, pool: &ResourceName, export: &ConsumerName) -> Option<ExportVolume> {
        self.added.remove(&(pool.clone(), export.clone()))
    }

    /// Returns the size of an export's volume, if it was measured.
    pub(super) fn size(&self, export: u64) -> Option<u64> {
        self.sizes.get(&export).copied()
    }
}
