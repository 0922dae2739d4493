//! The shared file or block device: opened past the page cache where that can be, made when it is not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::{pread, pwrite};
use thiserror::Error;

use super::layout::{BLOCK, FileHeader, read_header, write_header};
use crate::name::ClusterName;

/// Memory that direct I/O can use: whole blocks, aligned to one.
#[derive(Debug)]
pub(crate) struct AlignedBlocks {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBlocks {
    pub(crate) fn zeroed(count: usize) -> Self {
        let length = count * BLOCK;
        let memory = vec![0; length + BLOCK - 1];
        // The memory of a Vec that never grows stays where it is.
        let start = memory.as_ptr().align_offset(BLOCK);
        Self { memory, start, length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }

    pub(crate) fn block(&self, index: usize) -> &[u8] {
        &self.bytes()[index * BLOCK..][..BLOCK]
    }
}

/// Reasons why the shared file cannot be used now.
#[derive(Debug, Error)]
pub(crate) enum MediumError {
    #[error("cannot open {path}: {source}", path = path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot make {path}: {source}", path = path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{path} is too small: {slots} hosts need {needs} bytes, it has {has}", path = path.display())]
    Small { path: PathBuf, slots: u16, needs: u64, has: u64 },
    #[error("{path} is not usable: {why}", path = path.display())]
    Wrong { path: PathBuf, why: String },
    #[error("the process that reads {path} does not work: {source}", path = path.display())]
    Helper { path: PathBuf, source: io::Error },
    /// An error of the helper, in its words.
    #[error("{0}")]
    Told(String),
}

#[derive(Debug)]
pub(crate) struct BlockMedium {
    file: File,
    path: PathBuf,
    direct: bool,
    pub(crate) slots: u16,
}

impl BlockMedium {
    /// Opens the file; makes one for `slots` hosts when there is none; takes a device or file that is all
    /// zeros.
    ///
    /// # Errors
    /// When it cannot be opened or made, or holds anything else than this cluster's blocks.
    pub(crate) fn open(path: &Path, cluster: &ClusterName, slots: u16) -> Result<Self, MediumError> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make(path, cluster, slots)
                    .map_err(|source| MediumError::Make { path: path.to_owned(), source })?;
            }
            _ => {}
        }
        let (file, direct) = open_direct(path)?;
        let mut medium = Self { file, path: path.to_owned(), direct, slots };
        let has = medium.size()?;
        let mut first = AlignedBlocks::zeroed(1);
        if has < BLOCK as u64 {
            return Err(medium.too_small(has));
        }
        medium.read(&mut first)?;
        match read_header(cluster, first.bytes()) {
            FileHeader::Ours { slots } => medium.slots = slots,
            FileHeader::Zeros => medium.take_zeros(has, cluster, first)?,
            FileHeader::Wrong(why) => return Err(medium.wrong(why)),
        }
        if has < medium.length() { Err(medium.too_small(has)) } else { Ok(medium) }
    }

    /// Returns true if reads and writes bypass the page cache.
    pub(crate) const fn is_direct(&self) -> bool {
        self.direct
    }

    /// Fills `blocks` from the start of the file with one read.
    pub(crate) fn read(&self, blocks: &mut AlignedBlocks) -> Result<(), MediumError> {
        let failed = |source| MediumError::Read { path: self.path.clone(), source };
        if !self.direct {
            // What another host has written is not in our cache. Advice may be ignored: then it is as good as
            // it gets.
            let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        }
        let bytes = blocks.bytes_mut();
        let read = loop {
            match pread(&self.file, &mut *bytes, 0) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result.map_err(|error| failed(error.into()))?,
            }
        };
        if read < bytes.len() { Err(failed(ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
    }

    /// Writes one block with one write.
    pub(crate) fn write(&self, index: usize, block: &AlignedBlocks) -> Result<(), MediumError> {
        let failed = |source| MediumError::Write { path: self.path.clone(), source };
        let written = loop {
            match pwrite(&self.file, block.bytes(), (index * BLOCK) as u64) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result.map_err(|error| failed(error.into()))?,
            }
        };
        if written < BLOCK {
            return Err(failed(ErrorKind::WriteZero.into()));
        }
        if !self.direct {
            self.file.sync_data().map_err(failed)?;
        }
        Ok(())
    }

    fn length(&self) -> u64 {
        length(self.slots)
    }

    fn size(&self) -> Result<u64, MediumError> {
        // The end of a block device is not in its metadata.
        (&self.file)
            .seek(SeekFrom::End(0))
            .map_err(|source| MediumError::Read { path: self.path.clone(), source })
    }

    /// All blocks that we would write to must be zeros. Otherwise they are foreign data.
    fn take_zeros(
        &self,
        has: u64,
        cluster: &ClusterName,
        mut first: AlignedBlocks,
    ) -> Result<(), MediumError> {
        if has < self.length() {
            return Err(self.too_small(has));
        }
        let mut all = AlignedBlocks::zeroed(usize::from(self.slots) + 1);
        self.read(&mut all)?;
        if all.bytes().iter().any(|byte| *byte != 0) {
            let why = "it begins with zeros, and holds something else further on, which is not overwritten";
            return Err(self.wrong(why.to_owned()));
        }
        write_header(cluster, self.slots, first.bytes_mut());
        self.write(0, &first)
    }

    fn wrong(&self, why: String) -> MediumError {
        MediumError::Wrong { path: self.path.clone(), why }
    }

    fn too_small(&self, has: u64) -> MediumError {
        MediumError::Small { path: self.path.clone(), slots: self.slots, needs: self.length(), has }
    }
}

fn length(slots: u16) -> u64 {
    (u64::from(slots) + 1) * BLOCK as u64
}

fn open_direct(path: &Path) -> Result<(File, bool), MediumError> {
    let failed = |source| MediumError::Open { path: path.to_owned(), source };
    let open = |flags: OFlags| {
        // The flags of an open call fit into an i32.
        OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path)
    };
    let (file, direct) = match open(OFlags::DIRECT) {
        Ok(file) => (file, true),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            (open(OFlags::empty()).map_err(failed)?, false)
        }
        Err(error) => return Err(failed(error)),
    };
    let kind = file.metadata().map_err(failed)?.file_type();
    if kind.is_file() || kind.is_block_device() {
        Ok((file, direct))
    } else {
        let why = "it is neither a file nor a block device".to_owned();
        Err(MediumError::Wrong { path: path.to_owned(), why })
    }
}

/// Makes the file under a temporary name and renames it when it is complete, so that no host sees half of it.
/// Of two hosts that make it at the same time, one finds it there. Zeros are written rather than allocated,
/// so that later writes change only data.
fn make(path: &Path, cluster: &ClusterName, slots: u16) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let nonce = crate::name::Incarnation::random().ok_or(ErrorKind::Other)?.0;
    let draft = folder.join(format!(".{}.{nonce:032x}", name.to_string_lossy()));
    let made = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o660).open(&draft)?;
        let mut header = vec![0; BLOCK];
        write_header(cluster, slots, &mut header);
        file.write_all(&header)?;
        file.write_all(&vec![0; usize::from(slots) * BLOCK])?;
        file.sync_all()?;
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    let _ = fs::remove_file(&draft);
    made
}
