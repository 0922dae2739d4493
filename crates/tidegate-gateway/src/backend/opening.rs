//! Opening a file whose storage may hang.

use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::FileVolume;
use crate::config::{BackendConfig, ExportConfig, ExportStore};
use crate::identity::VolumeIdentity;

/// The longest time that a healthy storage takes to open a file: chosen above a disk that has to spin up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opening needs little more than frames.
const STACK: usize = 256 * 1024;

/// Opens a file for an export on a thread of its own, which is left behind when it does not come back.
///
/// # Errors
/// Those of [`FileVolume::open`], or that the storage does not answer.
pub(crate) fn open_file(path: &Path, direct: bool, export: &ExportConfig) -> io::Result<FileVolume> {
    let (path, export) = (path.to_owned(), export.clone());
    within_patience(move || FileVolume::open(&path, direct, &export))
}

/// Tries out a file for an export, like [`open_file`].
///
/// # Errors
/// Those of [`FileVolume::try_out`], or that the storage does not answer.
pub(crate) fn try_out_file(path: &Path, direct: bool, export: &ExportConfig) -> io::Result<()> {
    let (path, export) = (path.to_owned(), export.clone());
    within_patience(move || FileVolume::try_out(&path, direct, &export))
}

/// Returns the identity of the storage that an export would have now.
///
/// # Errors
/// The system's answer, or that the storage does not answer.
pub(crate) fn identify(backend: &BackendConfig, store: &ExportStore) -> io::Result<VolumeIdentity> {
    match (store, backend) {
        (ExportStore::Path(path), _) => {
            let path = path.clone();
            within_patience(move || Ok(VolumeIdentity::of_file(&path, &path.metadata()?)))
        }
        (ExportStore::Upstream(name), BackendConfig::Nbd(upstream)) => {
            Ok(VolumeIdentity::of_upstream(&upstream.address, name))
        }
        (ExportStore::Upstream(_) | ExportStore::Size(_), _) => Ok(VolumeIdentity::of_emulated_device()),
    }
}

fn within_patience<T: Send + 'static>(
    open: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, opened) = sync_channel(1);
    // The caller may have given up; the file is closed then.
    let body = move || drop(sender.send(open()));
    std::thread::Builder::new().name("tg-open".into()).stack_size(STACK).spawn(body)?;
    opened.recv_timeout(PATIENCE).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("its storage hangs: it could not be opened within {} s", PATIENCE.as_secs()),
        )),
        RecvTimeoutError::Disconnected => Err(io::Error::other("opening it failed unexpectedly")),
    })
}
