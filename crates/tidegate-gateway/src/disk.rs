//! A virtual machine's disk, as the worker of its pool has it.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use slab::Slab;
use tidegate_nbd::transmission::{NbdCommand, WireRequest};
use tidegate_nbd::{CheckedOperation, CommandFlags, Errno, ExportGeometry, SessionTerms, TransmissionFlags};
use tidegate_vhost::{
    DiskCommand, DiskProperties, DiskRequest, DiskRing, DiskSize, EventDescriptor, GuestMemory, MOST_QUEUES,
    RequestStatus,
};

use crate::guest_memory::GuestMemoryWatch;
use crate::identity::VolumeIdentity;

/// A disk whose front end has just connected.
#[derive(Debug)]
pub(crate) struct NewDisk {
    /// Its identity across all pools; the next front end of the same socket has another.
    pub(crate) id: u64,
    /// The name that the guest is told.
    pub(crate) serial: String,
    /// The size that the guest is told.
    pub(crate) size: Arc<DiskSize>,
    pub(crate) under_way: UnderWay,
}

/// Dropped once no request of a disk is under way, and the worker has dropped all that the front end has
/// passed. Two threads wait for that. The front end's own closes and unmaps what it has passed. That of the
/// next front end may begin: before that, the guest would do again what is still being done, and a late write
/// would undo its next one.
pub(crate) type UnderWay = [SyncSender<()>; 2];

/// A wish of the front end.
#[derive(Debug)]
pub(crate) enum DiskOrder {
    Memory(Option<GuestMemory>),
    Start {
        index: u16,
        ring: Box<DiskRing>,
    },
    /// Take no further requests; the answer is the index of the next one, once all are complete. `None`: it
    /// had not started.
    Stop {
        index: u16,
        reply: SyncSender<Option<u16>>,
    },
    Call {
        index: u16,
        call: Option<EventDescriptor>,
    },
    Cache {
        may_cache: bool,
    },
    /// The front end is gone: the reason.
    End(String),
}

/// A ring that has started.
#[derive(Debug)]
pub(crate) struct StartedRing {
    pub(crate) ring: DiskRing,
    /// Requests that were taken and are not complete.
    pub(crate) taken: usize,
    /// The watch for requests.
    pub(crate) watch: Option<usize>,
    /// The guest may have to be told of results.
    pub(crate) has_results: bool,
    /// The guest may have missed what an earlier event was signalled for: the next signal goes in any case. A
    /// front end that connects gives one event that it drops, and then the guest's own.
    pub(crate) has_new_call: bool,
    /// To be answered when it has stopped.
    pub(crate) stopping: Option<SyncSender<Option<u16>>>,
}

/// A request that was taken out of a ring.
#[derive(Debug)]
pub(crate) struct TakenRequest {
    pub(crate) ring: u16,
    pub(crate) request: DiskRequest,
}

/// The disk of a session.
#[derive(Debug)]
pub(crate) struct SessionDisk {
    pub(crate) id: u64,
    pub(crate) serial: String,
    pub(crate) size: Arc<DiskSize>,
    /// `None` until the front end has shared some.
    pub(crate) memory: Option<GuestMemory>,
    /// The rings by their index, up to the greatest that was ever started.
    pub(crate) rings: Vec<Option<StartedRing>>,
    /// The ring that is looked into first.
    pub(crate) first: usize,
    pub(crate) calls: Vec<Option<Arc<EventDescriptor>>>,
    pub(crate) may_cache: bool,
    pub(crate) requests: Slab<TakenRequest>,
    /// Watches of rings, also of such as have stopped; each is the index of its ring.
    pub(crate) watches: Slab<u16>,
    pub(crate) memory_watch: GuestMemoryWatch,
    /// Events that are being signalled.
    pub(crate) signals: usize,
    /// The last field: all others are dropped before.
    _under_way: UnderWay,
}

impl SessionDisk {
    pub(crate) fn new(new: NewDisk) -> Self {
        Self {
            id: new.id,
            serial: new.serial,
            size: new.size,
            memory: None,
            rings: Vec::new(),
            first: 0,
            calls: (0..MOST_QUEUES).map(|_| None).collect(),
            may_cache: false,
            requests: Slab::new(),
            watches: Slab::new(),
            memory_watch: GuestMemoryWatch::default(),
            signals: 0,
            _under_way: new.under_way,
        }
    }

    /// Returns true if the front end waits for a ring to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.rings.iter().flatten().any(|ring| ring.stopping.is_some())
    }

    /// Returns the ring if it has started, and the memory that it lies in.
    pub(crate) fn started(&mut self, index: u16) -> Option<(&mut StartedRing, &GuestMemory)> {
        let ring = self.rings.get_mut(usize::from(index))?.as_mut()?;
        // Invariant: a ring starts in memory.
        Some((ring, self.memory.as_ref()?))
    }

    pub(crate) fn start(&mut self, index: u16, ring: StartedRing) {
        let index = usize::from(index);
        if self.rings.len() <= index {
            self.rings.resize_with(index + 1, || None);
        }
        self.rings[index] = Some(ring);
    }

    /// Returns true if no operation of the kernel's is under way for it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.watches.is_empty() && self.signals == 0
    }
}

/// The terms of a disk. No message of NBD comes or goes.
pub(crate) fn terms(geometry: ExportGeometry) -> SessionTerms {
    SessionTerms::simple(geometry)
}

/// The disk that an export is to a guest.
pub(crate) fn properties(geometry: &ExportGeometry, serial: &str, volume: &VolumeIdentity) -> DiskProperties {
    let has = |flag| geometry.flags.contains(flag);
    DiskProperties {
        block: geometry.blocks.minimum(),
        payload: geometry.blocks.maximum(),
        read_only: has(TransmissionFlags::READ_ONLY),
        // Without the one there is not the other.
        flush: has(TransmissionFlags::SEND_FLUSH) && has(TransmissionFlags::SEND_FUA),
        discard: has(TransmissionFlags::SEND_TRIM),
        zeroes: has(TransmissionFlags::SEND_WRITE_ZEROES),
        serial: serial.to_owned(),
        volume: volume.stamp(),
    }
}

/// The answer to a request that needs no storage, or the operation that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JudgedRequest {
    Operation(CheckedOperation),
    Identify,
    Refused(RequestStatus),
}

/// Judges a request as one of NBD is judged. Without a cache each change must be durable.
///
/// # Errors
/// When the export cannot do it.
pub(crate) fn judge(
    terms: &SessionTerms,
    command: DiskCommand,
    may_cache: bool,
) -> Result<JudgedRequest, Errno> {
    let (command, offset, length, flags) = match command {
        DiskCommand::Read { offset, length } => (NbdCommand::Read, offset, length, CommandFlags::NONE),
        DiskCommand::Write { offset, length } => (NbdCommand::Write, offset, length, CommandFlags::NONE),
        DiskCommand::Flush => (NbdCommand::Flush, 0, 0, CommandFlags::NONE),
        DiskCommand::Discard { offset, length } => (NbdCommand::Trim, offset, length, CommandFlags::NONE),
        DiskCommand::WriteZeroes { offset, length, unmap } => {
            let flags = if unmap { CommandFlags::NONE } else { CommandFlags::NO_HOLE };
            (NbdCommand::WriteZeroes, offset, length, flags)
        }
        DiskCommand::Identify => return Ok(JudgedRequest::Identify),
        DiskCommand::Refuse(status) => return Ok(JudgedRequest::Refused(status)),
    };
    let is_change = matches!(command, NbdCommand::Write | NbdCommand::Trim | NbdCommand::WriteZeroes);
    let durable = is_change && !may_cache && terms.geometry.flags.contains(TransmissionFlags::SEND_FUA);
    let flags = if durable { flags.with(CommandFlags::FUA) } else { flags };
    let request = WireRequest::new(command, flags, 0, offset, length);
    terms.check(&request, &[]).map(JudgedRequest::Operation)
}

/// The status that a guest is told.
pub(crate) fn status_of(result: Result<(), Errno>) -> RequestStatus {
    match result {
        Ok(()) => RequestStatus::Done,
        Err(Errno::NotSup) => RequestStatus::Unsupported,
        Err(_) => RequestStatus::Failed,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_nbd::BlockSizes;

    use super::*;

    fn of_flags(flags: TransmissionFlags) -> SessionTerms {
        terms(ExportGeometry { size: 1 << 20, flags, blocks: BlockSizes::default() })
    }

    #[test]
    fn without_a_cache_every_change_is_durable_and_nothing_else() {
        let flags = TransmissionFlags::SEND_FLUSH
            .with(TransmissionFlags::SEND_FUA)
            .with(TransmissionFlags::SEND_WRITE_ZEROES);
        let write = DiskCommand::Write { offset: 0, length: 512 };
        let judged = |command, may_cache| judge(&of_flags(flags), command, may_cache).unwrap();
        for may_cache in [false, true] {
            let fua = !may_cache;
            let operation = CheckedOperation::Write { offset: 0, length: 512, fua };
            assert_eq!(judged(write, may_cache), JudgedRequest::Operation(operation));
            let zeroes = DiskCommand::WriteZeroes { offset: 0, length: 512, unmap: true };
            let JudgedRequest::Operation(CheckedOperation::WriteZeroes { fua: durable, no_hole, .. }) =
                judged(zeroes, may_cache)
            else {
                panic!("zeroes are zeroes");
            };
            assert_eq!((durable, no_hole), (fua, false));
            let read = CheckedOperation::Read { offset: 0, length: 512 };
            let command = DiskCommand::Read { offset: 0, length: 512 };
            assert_eq!(judged(command, may_cache), JudgedRequest::Operation(read));
        }
    }

    #[test]
    fn a_request_beyond_the_end_or_of_another_kind_is_refused_as_by_nbd() {
        let plain = of_flags(TransmissionFlags::SEND_FLUSH);
        let beyond = DiskCommand::Write { offset: 1 << 20, length: 512 };
        assert_eq!(judge(&plain, beyond, true), Err(Errno::NoSpc));
        let discard = DiskCommand::Discard { offset: 0, length: 512 };
        assert_eq!(judge(&plain, discard, true), Err(Errno::Inval));
        let read_only = of_flags(TransmissionFlags::READ_ONLY);
        assert_eq!(judge(&read_only, DiskCommand::Write { offset: 0, length: 512 }, true), Err(Errno::Perm));
    }
}
