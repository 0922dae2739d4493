//! Looks at the volumes that are served, on threads that serve no client: to look takes as long as the storage likes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use tidegate_units::ConsumerName;
use tracing::{info, warn};

use super::replaced::DisplacedVolume;
use crate::claim::VolumeFile;
use crate::identity::VolumeIdentity;

/// Looking needs little more than frames.
const STACK: usize = 128 * 1024;

/// The outcome of the looks at one volume.
#[derive(Debug, Default)]
pub(super) struct VolumeLooks {
    is_looking: AtomicBool,
    is_replaced: AtomicBool,
}

impl VolumeLooks {
    /// Returns true if the path led elsewhere than to the volume at the last look.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    fn look(&self, volume: LookedAtVolume) {
        let LookedAtVolume { export, path, served, file } = volume;
        // It may have been removed since the round began.
        let Some(file) = file.upgrade() else { return };
        // The worker looks at what is found here.
        file.look_at_size();
        let displaced = DisplacedVolume::find(export.clone(), path, served);
        let was_replaced = self.is_replaced.swap(displaced.is_some(), Ordering::Relaxed);
        match displaced {
            Some(displaced) if !was_replaced => warn!("{displaced}"),
            None if was_replaced => info!(%export, "its path leads to its volume again"),
            Some(_) | None => {}
        }
    }
}

/// Looks at volumes in a thread that goes from one to the next. A volume at which an earlier thread still waits for the
/// storage is left to that one, so that there are no more threads than volumes that hang.
pub(super) fn begin_round(volumes: Vec<(Arc<VolumeLooks>, LookedAtVolume)>) {
    let round = move || {
        for (looks, volume) in volumes {
            if !looks.is_looking.swap(true, Ordering::AcqRel) {
                looks.look(volume);
                looks.is_looking.store(false, Ordering::Release);
            }
        }
    };
    // Without a thread the next round finds the same.
    let _ = thread::Builder::new().name("tg-look".into()).stack_size(STACK).spawn(round);
}

/// A volume that is served by its path.
#[derive(Debug)]
pub(super) struct LookedAtVolume {
    pub(super) export: ConsumerName,
    pub(super) path: PathBuf,
    pub(super) served: VolumeIdentity,
    pub(super) file: Weak<VolumeFile>,
}
