//! Exclusive use of a volume: two programs that write to one volume destroy each other's data.
//!
//! A writable export takes its volume for itself. A read-only one shares it with other readers.
//! [`VolumeFile::open`] refuses a volume that something else uses, and keeps others away for as long as the
//! claim lives:
//!
//! | volume | claim | refuses, and is refused by |
//! |---|---|---|
//! | block device | `O_EXCL` | mounts, swap, LVM, md, other openers with `O_EXCL` |
//! | both | locks of the open file description ([`lock`]) | QEMU, and other gateways |
//! | regular file | flock(2) | programs that use it |
//!
//! The kernel gives up a claim with the process. `shared_volume` of an export does without one.

mod format;
mod layers;
mod lock;
mod mounts;
mod occupant;
mod size;

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::ops::Deref;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use tidegate_units::ConsumerName;
use tracing::warn;

use crate::config::ExportConfig;
pub(crate) use occupant::programs;
pub(crate) use size::ShrunkVolume;
use size::SizeWatch;

/// The time in which a volume may become free: udev looks into a device for some milliseconds after a change.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(50);

/// The claims of this process.
static CLAIMS: Mutex<BTreeMap<(VolumeId, ConsumerName), Weak<VolumeFile>>> = Mutex::new(BTreeMap::new());

/// The identity of a volume, under all of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeId {
    /// A block device: its number.
    Device(u64),
    /// A regular file.
    File {
        /// The number of its file system's device.
        device: u64,
        /// Its number there.
        inode: u64,
    },
}

impl VolumeId {
    fn of(metadata: &Metadata) -> io::Result<Self> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            Ok(Self::Device(metadata.rdev()))
        } else if kind.is_file() {
            Ok(Self::File { device: metadata.dev(), inode: metadata.ino() })
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device"))
        }
    }
}

/// The facts about a path that a configuration names as a volume.
#[derive(Debug, Clone)]
pub struct VolumeFacts {
    /// Its identity.
    pub id: VolumeId,
    /// The size of a regular file in bytes. `None`: a block device, whose size is a number of sectors.
    pub file_size: Option<u64>,
    /// The use that another part of the system makes of it, such as "it is mounted at /srv".
    pub occupied: Option<String>,
    /// The image format that its first bytes are of, such as "qcow2". An export serves such bytes as they
    /// are.
    pub format: Option<&'static str>,
}

impl VolumeFacts {
    /// Looks at a volume without claiming it.
    ///
    /// # Errors
    /// The system's answer, or that it is neither a regular file nor a block device.
    pub fn of(path: &Path, read_only: bool) -> io::Result<Self> {
        let metadata = path.metadata()?;
        let id = VolumeId::of(&metadata)?;
        let file = VolumeOpening { path, id, read_only, direct: false }.look()?;
        Ok(Self {
            id,
            file_size: metadata.is_file().then_some(metadata.len()),
            occupied: occupant::of(id, path),
            format: format::of(&file),
        })
    }
}

/// An open volume. Its locks live as long as it does: while an operation may still reach the storage, nothing
/// else takes it.
#[derive(Debug)]
pub(crate) struct VolumeFile {
    file: File,
    read_only: bool,
    direct: bool,
    watch: SizeWatch,
}

impl VolumeFile {
    fn new(file: File, read_only: bool, direct: bool) -> io::Result<Arc<Self>> {
        let watch = SizeWatch::new(&file.metadata()?);
        Ok(Arc::new(Self { file, read_only, direct, watch }))
    }

    /// Begins to watch the size that clients are told.
    pub(crate) fn begin_to_promise(&self, size: u64) {
        self.watch.begin(size);
    }

    /// Clients are told of a larger size as well.
    pub(crate) fn promise(&self, size: u64) {
        self.watch.promise(size);
    }

    /// Looks whether the volume has shrunk, for [`shrunk`](Self::shrunk). It may wait if the file system asks a
    /// server.
    pub(crate) fn look_at_size(&self) {
        self.watch.look(&self.file);
    }

    /// Returns true if an operation ends beyond the end of a volume that has shrunk. What ends where the volume
    /// did has it looked at first: a write there would make a file that was cut as long as before, with zeros
    /// in the gap.
    pub(crate) fn is_cut_before(&self, end: u64) -> bool {
        if self.watch.is_end(end) {
            self.look_at_size();
        }
        self.shrunk().is_some_and(|shrunk| end > shrunk.found)
    }

    /// A read found the end of the volume here.
    pub(crate) fn ends_at(&self, offset: u64) {
        self.watch.saw(offset);
    }

    /// Returns the fewest bytes that the volume was seen with, if they are fewer than clients were told.
    pub(crate) fn shrunk(&self) -> Option<ShrunkVolume> {
        self.watch.shrunk()
    }

    /// Returns the size in bytes that it has now.
    ///
    /// # Errors
    /// The system's answer.
    pub(crate) fn size(&self) -> io::Result<u64> {
        volume_size(&self.file)
    }

    /// Opens a volume for an export, and claims it unless the export shares it. With `direct` it goes past
    /// the page cache.
    ///
    /// A later export of the same name gets the volume that the earlier one's last sessions use.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] with the other user of the volume, or the system's answer.
    pub(crate) fn open(path: &Path, direct: bool, export: &ExportConfig) -> io::Result<Arc<Self>> {
        let (read_only, owner) = (export.read_only, &export.name);
        let id = VolumeId::of(&path.metadata()?)?;
        let opening = VolumeOpening { path, id, read_only, direct };
        if export.shared_volume {
            let file = opening.open(OFlags::empty())?;
            return Self::new(file, read_only, direct);
        }
        let key = (id, owner.clone());
        if let Some(open) = claims().get(&key).and_then(Weak::upgrade)
            && (open.read_only, open.direct) == (read_only, direct)
        {
            return Ok(open);
        }
        if let Some(other) = other_export(id, owner, read_only) {
            return Err(busy(&format!("export `{other}` of this gateway uses it")));
        }
        let file = opening.claim_within(PATIENCE)?;
        if let Some(format) = format::of(&file) {
            warn!(
                export = %owner,
                "{}: begins like a {format} image: clients see its bytes as they are, and not the disk in it",
                path.display()
            );
        }
        let open = Self::new(file, read_only, direct)?;
        let mut claims = claims();
        claims.retain(|_, claim| claim.strong_count() > 0);
        claims.insert(key, Arc::downgrade(&open));
        Ok(open)
    }
}

impl Deref for VolumeFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

fn claims() -> MutexGuard<'static, BTreeMap<(VolumeId, ConsumerName), Weak<VolumeFile>>> {
    // Entries are independent of each other, so that a panic elsewhere leaves nothing half done.
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The export of another name that uses a volume in a way that excludes this use.
fn other_export(id: VolumeId, owner: &ConsumerName, read_only: bool) -> Option<ConsumerName> {
    let claims = claims();
    let mut others = claims.iter().filter_map(|((of, export), claim)| {
        let open = claim.upgrade()?;
        let excludes = !(read_only && open.read_only);
        (*of == id && export != owner && excludes).then(|| export.clone())
    });
    others.next()
}

/// Returns the size in bytes that an open volume has now.
pub(crate) fn volume_size(mut file: &File) -> io::Result<u64> {
    // The position of the file means nothing: every operation brings its own.
    file.seek(SeekFrom::End(0))
}

/// Opens a volume as an export would, if the export could have it now. Nothing is claimed.
///
/// # Errors
/// As [`VolumeFile::open`].
pub(crate) fn try_out(path: &Path, direct: bool, export: &ExportConfig) -> io::Result<File> {
    let id = VolumeId::of(&path.metadata()?)?;
    let opening = VolumeOpening { path, id, read_only: export.read_only, direct };
    if export.shared_volume { opening.look() } else { opening.try_out() }
}

/// A volume to be opened.
struct VolumeOpening<'a> {
    path: &'a Path,
    id: VolumeId,
    read_only: bool,
    direct: bool,
}

impl VolumeOpening<'_> {
    fn open(&self, flags: OFlags) -> io::Result<File> {
        let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        // With O_NONBLOCK, opening waits for nothing.
        let flags = (flags | direct | OFlags::NONBLOCK).bits() as i32;
        OpenOptions::new().read(true).write(!self.read_only).custom_flags(flags).open(self.path)
    }

    /// Opens a volume to look at it. A device is not opened for writing, since udev looks into a device that
    /// was.
    fn look(&self) -> io::Result<File> {
        let VolumeId::Device(number) = self.id else { return self.open(OFlags::empty()) };
        if !self.read_only {
            accessat(CWD, self.path, Access::WRITE_OK, AtFlags::EACCESS)?;
            if occupant::is_read_only(number) {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
        }
        Self { read_only: true, ..*self }.open(OFlags::empty())
    }

    fn claim_within(&self, patience: Duration) -> io::Result<File> {
        let end = Instant::now() + patience;
        loop {
            let attempt = match occupant::of(self.id, self.path) {
                Some(occupied) => Err(busy(&occupied)),
                None => self.claim(),
            };
            match attempt {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                    thread::sleep(RETRY);
                }
                attempt => return attempt,
            }
        }
    }

    /// Opens a volume that could be claimed now, without a claim.
    fn try_out(&self) -> io::Result<File> {
        if let Some(occupied) = occupant::of(self.id, self.path) {
            return Err(busy(&occupied));
        }
        let file = self.look()?;
        let is_held = match self.id {
            VolumeId::Device(_) => Self { read_only: true, direct: false, ..*self }
                .open(OFlags::EXCL)
                .is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy),
            VolumeId::File { .. } => occupant::is_flocked(&file, self.read_only)?,
        };
        match lock::try_out(&file, self.read_only) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            _ if is_held => {}
            Err(error) if !lock::is_not_offered(&error) => return Err(error),
            _ => return Ok(file),
        }
        Err(busy(&occupant::named("it is in use by another program", self.path)))
    }

    fn claim(&self) -> io::Result<File> {
        let VolumeId::Device(_) = self.id else {
            let file = self.open(OFlags::empty())?;
            lock_all(&file, self.path, self.read_only)?;
            return Ok(file);
        };
        let exclusive = self.open(OFlags::EXCL).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                busy(&occupant::named("it is in use by another program", self.path))
            }
            _ => error,
        })?;
        let file = if self.read_only {
            // Other readers shall have it as well.
            drop(exclusive);
            self.open(OFlags::empty())?
        } else {
            exclusive
        };
        lock_all(&file, self.path, self.read_only)?;
        // udev does not look into a device that a program has locked with flock.
        file.unlock()?;
        Ok(file)
    }
}

/// Locks an open file against other users for as long as it is open.
///
/// # Errors
/// As [`VolumeFile::open`].
pub(crate) fn lock_all(file: &File, path: &Path, read_only: bool) -> io::Result<()> {
    let locked = if read_only { file.try_lock_shared() } else { file.try_lock() };
    let locked = locked.map_err(|error| match error {
        TryLockError::WouldBlock => io::ErrorKind::ResourceBusy.into(),
        TryLockError::Error(error) => error,
    });
    for result in [locked, if read_only { lock::for_reading(file) } else { lock::for_writing(file) }] {
        match result {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(busy(&occupant::named("it is locked by another program", path)));
            }
            Err(error) if lock::is_not_offered(&error) => {
                warn!("{}: its file system has no locks: other users of it are not noticed", path.display());
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn busy(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("{what}; end that use, or write `shared_volume = true` if both may write to it"),
    )
}

#[cfg(test)]
mod tests;
