//! A block device of this host (ublk), as the worker of its pool has it.

use std::collections::VecDeque;

use tidegate_nbd::transmission::{NbdCommand, WireRequest};
use tidegate_nbd::{CheckedOperation, CommandFlags, Errno, ExportGeometry, SessionTerms, TransmissionFlags};
use tidegate_ublk::{DEPTH, DeviceProperties, RequestDescriptor, RequestKind, ServedDevice};

/// The device of a session.
#[derive(Debug)]
pub(crate) struct SessionDevice {
    pub(crate) channel: ServedDevice,
    /// Tags whose requests have come and were not taken in, since a bound was reached.
    pub(crate) waiting: VecDeque<u16>,
    /// Tags whose command is at the kernel.
    pub(crate) fetched: u16,
}

impl SessionDevice {
    pub(crate) fn new(channel: ServedDevice) -> Self {
        Self { channel, waiting: VecDeque::with_capacity(usize::from(DEPTH)), fetched: 0 }
    }
}

/// The device that an export is to the kernel. `None`: its blocks are larger than the kernel's pages.
pub(crate) fn properties(geometry: &ExportGeometry) -> Option<DeviceProperties> {
    let has = |flag| geometry.flags.contains(flag);
    let properties = DeviceProperties {
        size: geometry.size,
        block: geometry.blocks.minimum(),
        physical_block: geometry.blocks.preferred(),
        payload: geometry.blocks.maximum(),
        read_only: has(TransmissionFlags::READ_ONLY),
        // Without the one there is not the other.
        cache: has(TransmissionFlags::SEND_FLUSH) && has(TransmissionFlags::SEND_FUA),
        discard: has(TransmissionFlags::SEND_TRIM),
        zeroes: has(TransmissionFlags::SEND_WRITE_ZEROES),
    };
    properties.rounded()
}

/// Judges a request as one of NBD is judged.
///
/// # Errors
/// When the export cannot do it.
pub(crate) fn judge(terms: &SessionTerms, request: &RequestDescriptor) -> Result<CheckedOperation, Errno> {
    let fua = if request.fua { CommandFlags::FUA } else { CommandFlags::NONE };
    let (command, flags) = match request.kind {
        RequestKind::Read => (NbdCommand::Read, CommandFlags::NONE),
        RequestKind::Write => (NbdCommand::Write, fua),
        RequestKind::Flush => {
            return terms.check(&WireRequest::new(NbdCommand::Flush, CommandFlags::NONE, 0, 0, 0u32), &[]);
        }
        RequestKind::Discard => (NbdCommand::Trim, fua),
        RequestKind::WriteZeroes { unmap: true } => (NbdCommand::WriteZeroes, fua),
        RequestKind::WriteZeroes { unmap: false } => {
            (NbdCommand::WriteZeroes, fua.with(CommandFlags::NO_HOLE))
        }
        RequestKind::Unknown(_) => return Err(Errno::NotSup),
    };
    let length = u32::try_from(request.length).map_err(|_| Errno::Inval)?;
    terms.check(&WireRequest::new(command, flags, 0, request.offset, length), &[])
}

/// The result of a request as the kernel is told: bytes of data, or a negative error number.
pub(crate) fn result_of(operation: &CheckedOperation, result: Result<(), Errno>) -> i32 {
    match (result, *operation) {
        (Err(errno), _) => -(errno.code() as i32),
        // A device's requests have at most `tidegate_ublk::MAX_PAYLOAD` bytes of data.
        (Ok(()), CheckedOperation::Read { length, .. } | CheckedOperation::Write { length, .. }) => {
            length as i32
        }
        (Ok(()), _) => 0,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_nbd::BlockSizes;

    use super::*;
    use crate::disk::terms;

    fn geometry(flags: TransmissionFlags) -> ExportGeometry {
        ExportGeometry { size: 1 << 20, flags, blocks: BlockSizes::default() }
    }

    fn able() -> TransmissionFlags {
        TransmissionFlags::SEND_FLUSH
            .with(TransmissionFlags::SEND_FUA)
            .with(TransmissionFlags::SEND_TRIM)
            .with(TransmissionFlags::SEND_WRITE_ZEROES)
    }

    fn request(kind: RequestKind) -> RequestDescriptor {
        RequestDescriptor { kind, offset: 4096, length: 512, fua: false }
    }

    #[test]
    fn a_change_is_durable_if_the_kernel_says_so() {
        let terms = terms(geometry(able()));
        for fua in [false, true] {
            let write = RequestDescriptor { fua, ..request(RequestKind::Write) };
            let operation = CheckedOperation::Write { offset: 4096, length: 512, fua };
            assert_eq!(judge(&terms, &write), Ok(operation));
            assert_eq!(result_of(&operation, Ok(())), 512);
            assert_eq!(result_of(&operation, Err(Errno::NoSpc)), -28);
        }
        let flush = judge(&terms, &RequestDescriptor { offset: 0, length: 0, ..request(RequestKind::Flush) });
        assert_eq!(flush, Ok(CheckedOperation::Flush));
        assert_eq!(result_of(&CheckedOperation::Flush, Ok(())), 0);
        for unmap in [false, true] {
            let zeroes = judge(&terms, &request(RequestKind::WriteZeroes { unmap }));
            let Ok(CheckedOperation::WriteZeroes { no_hole, .. }) = zeroes else { panic!("{zeroes:?}") };
            assert_eq!(no_hole, !unmap);
        }
    }

    #[test]
    fn a_request_beyond_the_end_or_of_another_kind_is_refused_as_by_nbd() {
        let able = terms(geometry(able()));
        let beyond = RequestDescriptor { offset: 1 << 20, ..request(RequestKind::Write) };
        assert_eq!(judge(&able, &beyond), Err(Errno::NoSpc));
        assert_eq!(judge(&able, &request(RequestKind::Unknown(9))), Err(Errno::NotSup));
        let long = RequestDescriptor { length: 1 << 32, ..request(RequestKind::Discard) };
        assert_eq!(judge(&able, &long), Err(Errno::Inval));
        let read_only = terms(geometry(TransmissionFlags::READ_ONLY));
        assert_eq!(judge(&read_only, &request(RequestKind::Write)), Err(Errno::Perm));
    }

    #[test]
    fn the_kernel_is_told_what_the_export_can_do() {
        let properties = properties(&geometry(able())).expect("blocks of 512 bytes");
        assert!(properties.cache && properties.discard && properties.zeroes && !properties.read_only);
        assert_eq!((properties.block, properties.physical_block), (512, 4096));
        let plain = super::properties(&geometry(TransmissionFlags::READ_ONLY)).expect("blocks of 512 bytes");
        assert!(plain.read_only && !plain.cache && !plain.discard && !plain.zeroes);
    }
}
