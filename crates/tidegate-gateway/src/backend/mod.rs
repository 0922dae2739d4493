//! The places of data: files through the ring, a model of storage in real time, or another server
//! ([`crate::upstream`]).

mod bounce;
mod emulated;
mod file;
mod file_requests;
mod mapping;
mod memory;
mod opening;
mod path;
mod volume_thread;
mod writer;

pub(crate) use emulated::{EmulatedVolume, FinishedIo};
pub(crate) use file::{FileVolume, errno};
pub(crate) use opening::{identify, open_file, try_out_file};
pub(crate) use path::{FileRing, SubmissionPath, VolumeOperation, VolumeSilence};

use tidegate_nbd::{BlockSizes, Errno, ExportGeometry, TransmissionFlags};

use crate::config::MAX_PAYLOAD;
use crate::identity::VolumeIdentity;
use crate::upstream::UpstreamExport;
use crate::zeroing::ZeroingStorage;

/// The storage that holds an export's data.
#[derive(Debug)]
pub(crate) enum ExportVolume {
    File(FileVolume),
    /// A region of the pool's emulated device: `size` bytes from `base`.
    Region {
        base: u64,
        size: u64,
    },
    /// An export of another server.
    Upstream(Box<UpstreamExport>),
}

impl ExportVolume {
    /// Returns the kind of storage for zeroing. It decides which part writes zeros, if they have to be
    /// written.
    pub(crate) fn zeroing(&self) -> ZeroingStorage {
        match self {
            Self::File(file) if file.is_block_device() => ZeroingStorage::Device,
            Self::File(_) => ZeroingStorage::File,
            Self::Region { .. } => ZeroingStorage::Emulated,
            Self::Upstream(upstream) => upstream.zeroing(),
        }
    }

    pub(crate) fn identity(&self) -> VolumeIdentity {
        match self {
            Self::File(file) => file.identity().clone(),
            Self::Region { .. } => VolumeIdentity::of_emulated_device(),
            Self::Upstream(upstream) => upstream.identity(),
        }
    }

    /// Returns the geometry that clients are told.
    pub(crate) fn geometry(&self, read_only: bool) -> ExportGeometry {
        let (size, minimum) = match self {
            Self::File(file) => (file.size(), file.alignment()),
            Self::Region { size, .. } => (*size, 1),
            Self::Upstream(upstream) => return upstream.geometry(read_only),
        };
        let mut flags = TransmissionFlags::SEND_FLUSH
            .with(TransmissionFlags::SEND_FUA)
            .with(TransmissionFlags::SEND_DF)
            // A flush is a sync of the file itself, or of the whole device: it covers every connection.
            .with(TransmissionFlags::CAN_MULTI_CONN);
        flags = if read_only {
            flags.with(TransmissionFlags::READ_ONLY)
        } else {
            flags
                .with(TransmissionFlags::SEND_TRIM)
                .with(TransmissionFlags::SEND_WRITE_ZEROES)
                .with(TransmissionFlags::SEND_FAST_ZERO)
        };
        if matches!(self, Self::File(file) if file.has_cache()) {
            flags = flags.with(TransmissionFlags::SEND_CACHE);
        }
        let blocks = BlockSizes::new(minimum, minimum.max(4096), MAX_PAYLOAD)
            // Invariant: an alignment is a power of two of at most 64 KiB, checked when the file was opened.
            .expect("alignments are valid block sizes");
        // Whatever the file needs: see [`crate::blocks`].
        ExportGeometry { size, flags, blocks: blocks.with_parts() }
    }
}

/// The progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestProgress {
    /// More completions follow.
    Working,
    /// Done; a successful change that must be durable still needs a sync.
    Done { result: Result<(), Errno>, sync: bool },
    /// Failed, and the error may have been the kernel's one report of earlier writes that are lost.
    ReportedLoss(Errno),
}

impl RequestProgress {
    pub(crate) fn done(result: Result<(), Errno>) -> Self {
        Self::Done { result, sync: false }
    }

    /// The same, with a sync after a success.
    pub(crate) fn with_sync(self, sync: bool) -> Self {
        match self {
            Self::Done { result, .. } => Self::Done { result, sync },
            Self::Working | Self::ReportedLoss(_) => self,
        }
    }
}
