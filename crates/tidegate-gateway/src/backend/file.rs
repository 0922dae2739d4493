//! Regular files and block devices as volumes: how they are opened, and what they ask of requests.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, IFlags, OFlags, StatVfsMountFlags, StatxFlags, fcntl_getfl, fcntl_setfl, fstatfs};
use rustix::io::ReadWriteFlags;
use tidegate_nbd::{CheckedOperation, Errno};

use crate::claim::{self, ShrunkVolume, VolumeFile};
use crate::config::ExportConfig;
use crate::identity::VolumeIdentity;

/// The alignment for direct I/O if the system does not tell it: no storage in use has larger logical blocks.
const CONSERVATIVE_ALIGNMENT: u32 = 4096;

/// The magic number of tmpfs (statfs(2)), which moves data without waiting for anything.
const TMPFS: u64 = 0x0102_1994;

/// The magic numbers of file systems that begin I/O without waiting, as long as their device answers: ext2 to
/// ext4, XFS, Btrfs, F2FS, bcachefs, tmpfs. Others may ask a server at any point (NFS, CIFS, Ceph, FUSE, 9p),
/// or are not known.
const LOCAL: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, TMPFS];

/// The operations that can be begun on a file without waiting for storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImmediateStart {
    /// Everything: the data is in memory.
    AtOnce,
    /// A read that the page cache serves or refuses.
    Cached,
    /// Reads and writes past the page cache, for as long as the device takes them.
    Direct,
    /// Nothing: its file system asks a server, or is not known.
    MayWait,
}

impl ImmediateStart {
    /// Returns the answer for an open file; `file_system` is its magic number, if it is not a block device.
    fn of(file: &File, file_system: Option<u64>, direct: bool) -> Self {
        match file_system {
            Some(TMPFS) => Self::AtOnce,
            Some(magic) if !LOCAL.contains(&magic) => Self::MayWait,
            _ if direct => Self::Direct,
            _ if reads_from_cache_alone(file) => Self::Cached,
            _ => Self::MayWait,
        }
    }
}

/// An open file or block device, and what it asks of requests.
#[derive(Debug)]
pub(crate) struct FileVolume {
    file: Arc<VolumeFile>,
    identity: VolumeIdentity,
    size: u64,
    alignment: u32,
    block_device: bool,
    beginning: ImmediateStart,
    /// Past the page cache.
    direct: bool,
    /// Every write is one with O_SYNC: its file or file system is mounted or marked so.
    synchronous: bool,
}

impl FileVolume {
    /// Opens a file for an export, and claims it unless the export shares its volume.
    ///
    /// # Errors
    /// The system's answer, or that the file is neither a regular file nor a block device, or that its size
    /// does not fit the alignment that direct I/O needs, or that something else uses it.
    pub(crate) fn open(path: &Path, direct: bool, export: &ExportConfig) -> io::Result<Self> {
        let file = VolumeFile::open(path, direct, export)?;
        let kind = file.metadata()?.file_type();
        let block_device = kind.is_block_device();
        let file_system = if block_device { None } else { Some(fstatfs(&**file)?.f_type as u64) };
        let beginning = ImmediateStart::of(&file, file_system, direct);
        if beginning != ImmediateStart::AtOnce {
            submit_without_waiting(&file)?;
        }
        let size = file.size()?;
        let alignment = alignment(&file, block_device, direct, size)?;
        let synchronous = !block_device && is_synchronous(&file);
        file.begin_to_promise(size);
        let identity = VolumeIdentity::of_file(path, &file.metadata()?);
        Ok(Self { file, identity, size, alignment, block_device, beginning, direct, synchronous })
    }

    /// Opens a file as an export would, without a claim.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn try_out(path: &Path, direct: bool, export: &ExportConfig) -> io::Result<()> {
        let file = claim::try_out(path, direct, export)?;
        let block_device = file.metadata()?.file_type().is_block_device();
        let size = claim::volume_size(&file)?;
        alignment(&file, block_device, direct, size).map(drop)
    }

    /// The same volume past the page cache, whatever its file system can do.
    #[cfg(test)]
    pub(crate) fn past_the_cache(self, alignment: u32) -> Self {
        Self { direct: true, alignment, ..self }
    }

    pub(crate) fn identity(&self) -> &VolumeIdentity {
        &self.identity
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn alignment(&self) -> u32 {
        self.alignment
    }

    pub(crate) fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Returns true if reads go through the page cache.
    pub(crate) fn has_cache(&self) -> bool {
        !self.direct
    }

    pub(super) fn beginning(&self) -> ImmediateStart {
        self.beginning
    }

    /// The open file, for a thread that outlives the export.
    pub(crate) fn file(&self) -> Arc<VolumeFile> {
        Arc::clone(&self.file)
    }

    /// Looks whether the volume has shrunk, if that can be asked without waiting.
    pub(crate) fn look_at_size(&self) {
        if self.beginning != ImmediateStart::MayWait {
            self.file.look_at_size();
        }
    }

    /// Returns true if an operation ends beyond the end of a volume that has shrunk; see
    /// [`VolumeFile::is_cut_before`].
    pub(crate) fn is_cut_before(&self, end: u64) -> bool {
        if self.beginning == ImmediateStart::MayWait {
            return self.shrunk().is_some_and(|shrunk| end > shrunk.found);
        }
        self.file.is_cut_before(end)
    }

    /// Returns the sizes that clients were told and that it was seen with, if it has shrunk.
    pub(crate) fn shrunk(&self) -> Option<ShrunkVolume> {
        self.file.shrunk()
    }

    /// A read found the end of the volume here.
    pub(super) fn ends_at(&self, offset: u64) {
        self.file.ends_at(offset);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns true if the kernel also syncs with the operation's writes. Their error may be the report of
    /// lost data that a sync beside them then does not get.
    pub(crate) fn syncs_by_itself(&self, operation: &CheckedOperation) -> bool {
        let writes =
            matches!(operation, CheckedOperation::Write { .. } | CheckedOperation::WriteZeroes { .. });
        writes && (self.synchronous || self.syncs_with(operation))
    }

    /// Returns true if a change that is written must be followed by a sync.
    pub(super) fn needs_sync(&self, operation: &CheckedOperation) -> bool {
        match *operation {
            CheckedOperation::Write { fua, .. } | CheckedOperation::WriteZeroes { fua, .. } => {
                fua && !self.syncs_with(operation)
            }
            _ => false,
        }
    }

    /// Returns true if a write with FUA is one operation that also syncs (RWF_DSYNC).
    ///
    /// Through the page cache it is a write, and then a sync. The combined operation has a single error,
    /// which does not tell whether the client's write failed or the sync did. Several of them at a time also
    /// share the descriptor's one report of failed write-back. The first one takes the report, and the others
    /// succeed without their data.
    pub(super) fn syncs_with(&self, operation: &CheckedOperation) -> bool {
        self.direct && matches!(operation, CheckedOperation::Write { fua: true, .. })
    }
}

/// Returns true if the kernel syncs after every write to a regular file, FUA or not.
fn is_synchronous(file: &File) -> bool {
    let mounted =
        rustix::fs::fstatvfs(file).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::SYNCHRONOUS));
    // File systems without such marks refuse the question.
    mounted || rustix::fs::ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::SYNC))
}

/// Returns the error that a client is told after a failed operation.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_linux(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Returns true if the file system can serve a read from the page cache, or refuse it before any input
/// begins.
fn reads_from_cache_alone(file: &File) -> bool {
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS))
}

/// Has io_uring try operations on the file only where its file system can refuse to wait, and leave the
/// others to the kernel's worker threads. O_NONBLOCK, which keeps open(2) from waiting, would tell it that
/// every file system can: FUSE and NFS cannot, and would hold the submitting thread for as long as their
/// server is silent.
fn submit_without_waiting(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags - OFlags::NONBLOCK)?)
}

/// Returns the alignment that a file of this size needs; past the page cache that is more than one byte.
fn alignment(file: &File, block_device: bool, direct: bool, size: u64) -> io::Result<u32> {
    let alignment = if direct { direct_alignment(file, block_device)? } else { 1 };
    if size.is_multiple_of(u64::from(alignment)) {
        return Ok(alignment);
    }
    let what = format!("its size, {size}, is not a multiple of the {alignment} bytes that direct I/O needs");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// The alignment of offsets, lengths and memory that direct I/O on this file needs.
fn direct_alignment(file: &File, block_device: bool) -> io::Result<u32> {
    let alignment = if block_device {
        rustix::fs::ioctl_blksszget(file)?
    } else {
        let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        match statx {
            Ok(statx) if statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
                statx.stx_dio_offset_align.max(statx.stx_dio_mem_align)
            }
            _ => CONSERVATIVE_ALIGNMENT,
        }
    };
    match alignment {
        // Said by file systems that take O_DIRECT when opening and refuse it later.
        0 => Err(io::Error::new(io::ErrorKind::Unsupported, "its file system has no direct I/O")),
        // Our buffers are aligned to 4 KiB, and nothing in use asks for more.
        a if a.is_power_of_two() && a <= 4096 => Ok(a.max(512)),
        a => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("direct I/O needs an alignment of {a} bytes"),
        )),
    }
}
