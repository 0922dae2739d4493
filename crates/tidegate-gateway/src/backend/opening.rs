//! Opening a file whose storage may hang.

use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::FileVolume;
use crate::config::ExportConfig;

/// The longest time that a healthy storage takes to open a file: chosen above a disk that has to spin up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opening needs little more than frames.
const STACK: usize = 256 * 1024;

/// Opens a file for an export on a thread of its own, which is left behind when it does not come back.
///
/// # Errors
/// Those of [`FileVolume::open`], or that the storage does not answer.
pub(crate) fn open_file(path: &Path, direct: bool, export: &ExportConfig) -> io::Result<FileVolume> {
    let (sender, opened) = sync_channel(1);
    let body = {
        let (path, export) = (path.to_owned(), export.clone());
        // The caller may have given up; the file is closed then.
        move || drop(sender.send(FileVolume::open(&path, direct, &export)))
    };
    std::thread::Builder::new().name("tg-open".into()).stack_size(STACK).spawn(body)?;
    opened.recv_timeout(PATIENCE).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("its storage hangs: it could not be opened within {} s", PATIENCE.as_secs()),
        )),
        RecvTimeoutError::Disconnected => Err(io::Error::other("opening it failed unexpectedly")),
    })
}
