//! The terms of one session, and the requests that they allow.

use crate::errno::Errno;
use crate::export::ExportGeometry;
use crate::flags::{CommandFlags, TransmissionFlags};
use crate::input::MessageFields;
use crate::transmission::{MessageStyle, NbdCommand, RepliedRequest, WireRequest};

/// The length of a block status' payload that names the one context that there is: an effect length and an
/// id.
const QUERY: u64 = 12;

/// The terms on which one session uses its export: what its client was told, and has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTerms {
    /// The export's geometry, with the flags as this client was told.
    pub geometry: ExportGeometry,
    /// The style of requests and replies.
    pub style: MessageStyle,
    /// The id of `base:allocation`, if the client selected it for this export.
    pub allocation: Option<u32>,
    /// The client knows that a request answered with [`Errno::Shutdown`] was not carried out, and asks again
    /// elsewhere. Other clients take it for an error of the storage.
    pub hears_shutdown: bool,
}

/// A request that passed [`SessionTerms::check`]: its range is not empty and lies within the export, its
/// payload is within bounds, and the export can do it. It is aligned, unless the export serves parts of
/// blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckedOperation {
    /// Read `length` bytes at `offset`.
    Read {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
    },
    /// Write `length` bytes, which follow the request, at `offset`.
    Write {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
        /// Answer only once the data is on stable storage.
        fua: bool,
    },
    /// Bring to stable storage every write that has been answered.
    Flush,
    /// The range is no longer needed.
    Trim {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes; not bound by the maximum payload.
        length: u64,
        /// Answer only once the effect is on stable storage.
        fua: bool,
    },
    /// The range shall read as zeroes.
    WriteZeroes {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes; not bound by the maximum payload.
        length: u64,
        /// Answer only once the effect is on stable storage.
        fua: bool,
        /// The range must stay allocated.
        no_hole: bool,
        /// Fail at once with [`Errno::NotSup`] unless this is faster than writing.
        fast: bool,
    },
    /// The range is about to be read: bring it where reading it is fast.
    Cache {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes; not bound by the maximum payload.
        length: u64,
    },
    /// Tell the allocation of a range, or of its beginning.
    BlockStatus {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes; not bound by the maximum payload.
        length: u64,
        /// One extent is enough.
        one: bool,
    },
    /// The client leaves: answer what is in flight, then close. There is no reply.
    Disconnect,
}

impl SessionTerms {
    /// Terms without anything that is chosen beside the export.
    #[must_use]
    pub const fn simple(geometry: ExportGeometry) -> Self {
        Self { geometry, style: MessageStyle::Simple, allocation: None, hears_shutdown: false }
    }

    /// Returns the terms that a server tells a client of an export: some of its flags depend on what else the
    /// client has chosen.
    #[must_use]
    pub const fn told(mut geometry: ExportGeometry, style: MessageStyle, allocation: Option<u32>) -> Self {
        let mut flags = geometry.flags.with(TransmissionFlags::HAS_FLAGS);
        if !style.has_chunks() {
            flags = flags.without(TransmissionFlags::SEND_DF);
        }
        geometry.flags = if matches!(style, MessageStyle::Extended) && allocation.is_some() {
            flags.with(TransmissionFlags::BLOCK_STATUS_PAYLOAD)
        } else {
            flags.without(TransmissionFlags::BLOCK_STATUS_PAYLOAD)
        };
        Self { geometry, style, allocation, hears_shutdown: false }
    }

    /// Returns the length of the payload that must be here before a request can be judged: it says what a
    /// block status is to tell about. All other payloads come after the judgement.
    #[must_use]
    pub const fn query_length(&self, request: &WireRequest) -> usize {
        let is_query = request.has_payload
            && request.length == QUERY
            && matches!(request.command, NbdCommand::BlockStatus)
            && self.geometry.flags.contains(TransmissionFlags::BLOCK_STATUS_PAYLOAD);
        if is_query { QUERY as usize } else { 0 }
    }

    /// Judges a request: what to do, or which error to answer. `query` is the beginning of its payload, as
    /// long as [`query_length`](Self::query_length) says.
    ///
    /// A refused request still has (the rest of) its payload on the wire. `DISC` is accepted whatever else
    /// it carries, because it has no reply that could complain.
    ///
    /// # Errors
    /// As the specification says under "Error values": [`Errno::Perm`] for changes to a read-only export,
    /// [`Errno::NoSpc`] for writes (zeroes included) beyond the end, [`Errno::Inval`] for other ranges beyond
    /// the end, for empty or unaligned ones, and for commands, flags and payloads that were not offered; a
    /// payload that is too long is [`Errno::Inval`], or [`Errno::Overflow`] for a read where
    /// [`TransmissionFlags::SEND_DF`] was offered.
    pub fn check(&self, request: &WireRequest, query: &[u8]) -> Result<CheckedOperation, Errno> {
        let WireRequest { command, flags, offset, length, has_payload, .. } = *request;
        if command == NbdCommand::Disconnect {
            return Ok(CheckedOperation::Disconnect);
        }
        if !self.allowed_flags(command).contains(flags) {
            return Err(Errno::Inval);
        }
        if has_payload != (command == NbdCommand::Write) && query.is_empty() {
            return Err(Errno::Inval);
        }
        let fua = flags.contains(CommandFlags::FUA);
        match command {
            NbdCommand::Read => {
                self.check_range(offset, length, Errno::Inval)?;
                let df = self.geometry.flags.contains(TransmissionFlags::SEND_DF);
                let too_long = if df { Errno::Overflow } else { Errno::Inval };
                let length = self.check_payload(offset, length).ok_or(too_long)?;
                Ok(CheckedOperation::Read { offset, length })
            }
            NbdCommand::Write => {
                self.check_change(TransmissionFlags::NONE)?;
                self.check_range(offset, length, Errno::NoSpc)?;
                let length = self.check_payload(offset, length).ok_or(Errno::Inval)?;
                Ok(CheckedOperation::Write { offset, length, fua })
            }
            NbdCommand::Flush => {
                self.check_offered(TransmissionFlags::SEND_FLUSH)?;
                // The specification reserves both fields; a flush of a range is not something we could keep.
                if offset == 0 && length == 0 { Ok(CheckedOperation::Flush) } else { Err(Errno::Inval) }
            }
            NbdCommand::Trim => {
                self.check_change(TransmissionFlags::SEND_TRIM)?;
                self.check_range(offset, length, Errno::Inval)?;
                Ok(CheckedOperation::Trim { offset, length, fua })
            }
            NbdCommand::WriteZeroes => {
                self.check_change(TransmissionFlags::SEND_WRITE_ZEROES)?;
                self.check_range(offset, length, Errno::NoSpc)?;
                Ok(CheckedOperation::WriteZeroes {
                    offset,
                    length,
                    fua,
                    no_hole: flags.contains(CommandFlags::NO_HOLE),
                    fast: flags.contains(CommandFlags::FAST_ZERO),
                })
            }
            NbdCommand::Cache => {
                self.check_offered(TransmissionFlags::SEND_CACHE)?;
                self.check_range(offset, length, Errno::Inval)?;
                Ok(CheckedOperation::Cache { offset, length })
            }
            NbdCommand::BlockStatus => {
                let context = self.allocation.ok_or(Errno::Inval)?;
                let length = if query.is_empty() { length } else { asked_about(query, context)? };
                self.check_range(offset, length, Errno::Inval)?;
                let one = flags.contains(CommandFlags::REQ_ONE);
                Ok(CheckedOperation::BlockStatus { offset, length, one })
            }
            NbdCommand::Disconnect | NbdCommand::Resize | NbdCommand::Other(_) => Err(Errno::Inval),
        }
    }

    fn allowed_flags(&self, command: NbdCommand) -> CommandFlags {
        let offered = |flag, command_flag| {
            if self.geometry.flags.contains(flag) { command_flag } else { CommandFlags::NONE }
        };
        // Clients are known to set FUA on commands that write nothing; the specification lets them.
        let fua = offered(TransmissionFlags::SEND_FUA, CommandFlags::FUA);
        match command {
            NbdCommand::Read => fua | offered(TransmissionFlags::SEND_DF, CommandFlags::DF),
            NbdCommand::WriteZeroes => {
                fua | CommandFlags::NO_HOLE
                    | offered(TransmissionFlags::SEND_FAST_ZERO, CommandFlags::FAST_ZERO)
            }
            NbdCommand::BlockStatus => fua | CommandFlags::REQ_ONE,
            _ => fua,
        }
    }

    /// Returns the length of a payload that is within bounds. With parts of blocks it is at most half as long
    /// as otherwise: the server moves the whole blocks.
    fn check_payload(&self, offset: u64, length: u64) -> Option<u32> {
        let maximum = self.geometry.blocks.maximum();
        let most = if self.is_aligned(offset, length) { maximum } else { maximum / 2 };
        u32::try_from(length).ok().filter(|length| *length <= most)
    }

    fn is_aligned(&self, offset: u64, length: u64) -> bool {
        // A minimum block is a power of two, so that one test sees the low bits of both numbers.
        (offset | length) & u64::from(self.geometry.blocks.minimum() - 1) == 0
    }

    fn check_change(&self, needed: TransmissionFlags) -> Result<(), Errno> {
        if self.geometry.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(Errno::Perm);
        }
        self.check_offered(needed)
    }

    fn check_offered(&self, needed: TransmissionFlags) -> Result<(), Errno> {
        if self.geometry.flags.contains(needed) { Ok(()) } else { Err(Errno::Inval) }
    }

    fn check_range(&self, offset: u64, length: u64, beyond: Errno) -> Result<(), Errno> {
        if length == 0 || !(self.is_aligned(offset, length) || self.geometry.blocks.serves_parts()) {
            return Err(Errno::Inval);
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.geometry.size => Ok(()),
            _ => Err(beyond),
        }
    }
}

impl CheckedOperation {
    /// Returns the offset of its request.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        match *self {
            Self::Read { offset, .. }
            | Self::Write { offset, .. }
            | Self::Trim { offset, .. }
            | Self::WriteZeroes { offset, .. }
            | Self::Cache { offset, .. }
            | Self::BlockStatus { offset, .. } => offset,
            Self::Flush | Self::Disconnect => 0,
        }
    }

    /// Returns a request that says the same, whatever the client's own request looked like.
    #[must_use]
    pub fn request(&self, cookie: u64) -> WireRequest {
        let flag = |set, flag| if set { flag } else { CommandFlags::NONE };
        let (command, flags, length) = match *self {
            Self::Read { length, .. } => (NbdCommand::Read, CommandFlags::NONE, length.into()),
            Self::Write { length, fua, .. } => {
                (NbdCommand::Write, flag(fua, CommandFlags::FUA), length.into())
            }
            Self::Flush => (NbdCommand::Flush, CommandFlags::NONE, 0),
            Self::Trim { length, fua, .. } => (NbdCommand::Trim, flag(fua, CommandFlags::FUA), length),
            Self::WriteZeroes { length, fua, no_hole, fast, .. } => {
                let flags = flag(fua, CommandFlags::FUA)
                    | flag(no_hole, CommandFlags::NO_HOLE)
                    | flag(fast, CommandFlags::FAST_ZERO);
                (NbdCommand::WriteZeroes, flags, length)
            }
            Self::Cache { length, .. } => (NbdCommand::Cache, CommandFlags::NONE, length),
            Self::BlockStatus { length, one, .. } => {
                (NbdCommand::BlockStatus, flag(one, CommandFlags::REQ_ONE), length)
            }
            Self::Disconnect => (NbdCommand::Disconnect, CommandFlags::NONE, 0),
        };
        WireRequest::new(command, flags, cookie, self.offset(), length)
    }

    /// Returns the request that a reply answers.
    #[must_use]
    pub const fn replied(&self, cookie: u64) -> RepliedRequest {
        RepliedRequest { cookie, offset: self.offset() }
    }
}

/// Reads the payload of a block status: the length to tell about, and the contexts to tell.
fn asked_about(query: &[u8], context: u32) -> Result<u64, Errno> {
    let mut fields = MessageFields(query);
    let (length, asked) = (fields.u64(), fields.u32());
    length.filter(|_| asked == Some(context)).ok_or(Errno::Inval)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::allocation::ALLOCATION_CONTEXT;
    use crate::export::BlockSizes;

    const EVERYTHING: TransmissionFlags = TransmissionFlags::HAS_FLAGS
        .with(TransmissionFlags::SEND_FLUSH)
        .with(TransmissionFlags::SEND_FUA)
        .with(TransmissionFlags::SEND_TRIM)
        .with(TransmissionFlags::SEND_WRITE_ZEROES)
        .with(TransmissionFlags::SEND_DF)
        .with(TransmissionFlags::SEND_FAST_ZERO)
        .with(TransmissionFlags::SEND_CACHE)
        .with(TransmissionFlags::BLOCK_STATUS_PAYLOAD);

    const SIZE: u64 = 1 << 30;

    fn geometry() -> ExportGeometry {
        ExportGeometry { size: SIZE, flags: EVERYTHING, blocks: BlockSizes::new(512, 4096, 1 << 20).unwrap() }
    }

    fn terms(geometry: ExportGeometry) -> SessionTerms {
        SessionTerms::told(geometry, MessageStyle::Extended, Some(ALLOCATION_CONTEXT))
    }

    fn judge(geometry: &ExportGeometry, request: &WireRequest) -> Result<CheckedOperation, Errno> {
        terms(*geometry).check(request, &[])
    }

    fn request(command: NbdCommand, offset: u64, length: u64) -> WireRequest {
        WireRequest::new(command, CommandFlags::NONE, 7, offset, length)
    }

    const RANGES: [NbdCommand; 6] = [
        NbdCommand::Read,
        NbdCommand::Write,
        NbdCommand::Trim,
        NbdCommand::WriteZeroes,
        NbdCommand::Cache,
        NbdCommand::BlockStatus,
    ];

    #[test]
    fn the_end_of_the_export_is_exact_and_the_error_depends_on_the_command() {
        let geometry = geometry();
        for (command, beyond) in [
            (NbdCommand::Read, Errno::Inval),
            (NbdCommand::Trim, Errno::Inval),
            (NbdCommand::Cache, Errno::Inval),
            (NbdCommand::BlockStatus, Errno::Inval),
            (NbdCommand::Write, Errno::NoSpc),
            (NbdCommand::WriteZeroes, Errno::NoSpc),
        ] {
            assert!(judge(&geometry, &request(command, SIZE - 4096, 4096)).is_ok());
            assert_eq!(judge(&geometry, &request(command, SIZE - 4096, 4608)), Err(beyond));
            assert_eq!(judge(&geometry, &request(command, SIZE, 512)), Err(beyond));
            assert_eq!(judge(&geometry, &request(command, u64::MAX - 511, 512)), Err(beyond));
        }
    }

    #[test]
    fn unaligned_and_empty_ranges_are_einval() {
        for command in RANGES {
            for (offset, length) in [(1, 512), (512, 511), (0, 0), (256, 256)] {
                assert_eq!(judge(&geometry(), &request(command, offset, length)), Err(Errno::Inval));
            }
        }
    }

    #[test]
    fn parts_of_blocks_are_taken_where_they_are_served() {
        let whole = geometry();
        let parts = ExportGeometry { blocks: whole.blocks.with_parts(), ..whole };
        for command in RANGES {
            for (offset, length) in [(1, 512), (512, 511), (256, 256)] {
                assert!(judge(&parts, &request(command, offset, length)).is_ok(), "{command:?}");
            }
            assert_eq!(judge(&parts, &request(command, 0, 0)), Err(Errno::Inval));
        }
        let half = 1 << 19;
        for command in [NbdCommand::Read, NbdCommand::Write] {
            assert!(judge(&parts, &request(command, 1, half)).is_ok());
            assert!(judge(&parts, &request(command, 1, half + 1)).is_err(), "the whole blocks are moved");
            assert!(judge(&parts, &request(command, 512, 2 * half)).is_ok());
        }
    }

    #[test]
    fn payloads_are_bound_and_effects_are_not() {
        let mut geometry = geometry();
        let long = (1 << 20) + 512;
        assert!(judge(&geometry, &request(NbdCommand::Write, 0, 1 << 20)).is_ok());
        assert_eq!(judge(&geometry, &request(NbdCommand::Write, 0, long)), Err(Errno::Inval));
        assert_eq!(judge(&geometry, &request(NbdCommand::Read, 0, long)), Err(Errno::Overflow));
        assert!(judge(&geometry, &request(NbdCommand::Trim, 0, long)).is_ok());
        assert!(judge(&geometry, &request(NbdCommand::WriteZeroes, 0, 1 << 29)).is_ok());
        geometry.size = 1 << 63;
        for command in [NbdCommand::Trim, NbdCommand::WriteZeroes, NbdCommand::Cache, NbdCommand::BlockStatus]
        {
            assert!(judge(&geometry, &request(command, 0, 1 << 63)).is_ok(), "{command:?}");
        }
        assert_eq!(judge(&geometry, &request(NbdCommand::Read, 0, 1 << 33)), Err(Errno::Overflow));
        assert_eq!(judge(&geometry, &request(NbdCommand::Write, 0, 1 << 33)), Err(Errno::Inval));
        geometry.flags = geometry.flags.without(TransmissionFlags::SEND_DF);
        assert_eq!(judge(&geometry, &request(NbdCommand::Read, 0, long)), Err(Errno::Inval));
    }

    #[test]
    fn a_read_only_export_refuses_changes_and_still_flushes() {
        let mut geometry = geometry();
        geometry.flags = geometry.flags | TransmissionFlags::READ_ONLY;
        for command in [NbdCommand::Write, NbdCommand::Trim, NbdCommand::WriteZeroes] {
            assert_eq!(judge(&geometry, &request(command, 0, 512)), Err(Errno::Perm));
        }
        assert!(judge(&geometry, &request(NbdCommand::Read, 0, 512)).is_ok());
        assert_eq!(judge(&geometry, &request(NbdCommand::Flush, 0, 0)), Ok(CheckedOperation::Flush));
    }

    #[test]
    fn what_was_not_offered_is_refused() {
        let bare = ExportGeometry { flags: TransmissionFlags::HAS_FLAGS, ..geometry() };
        for command in [NbdCommand::Trim, NbdCommand::WriteZeroes, NbdCommand::Cache] {
            assert_eq!(judge(&bare, &request(command, 0, 512)), Err(Errno::Inval));
        }
        assert_eq!(judge(&bare, &request(NbdCommand::Flush, 0, 0)), Err(Errno::Inval));
        for command in [NbdCommand::Resize, NbdCommand::Other(99)] {
            assert_eq!(judge(&geometry(), &request(command, 0, 512)), Err(Errno::Inval));
        }
        let flagged = |command, flags| WireRequest { flags, ..request(command, 0, 512) };
        for (command, flags) in [
            (NbdCommand::Write, CommandFlags::FUA),
            (NbdCommand::Read, CommandFlags::DF),
            (NbdCommand::WriteZeroes, CommandFlags::FAST_ZERO),
        ] {
            assert!(judge(&geometry(), &flagged(command, flags)).is_ok());
            assert_eq!(judge(&bare, &flagged(command, flags)), Err(Errno::Inval));
        }
        for (command, flags) in [
            (NbdCommand::Write, CommandFlags::DF),
            (NbdCommand::Read, CommandFlags::NO_HOLE),
            (NbdCommand::Trim, CommandFlags::FAST_ZERO),
            (NbdCommand::Read, CommandFlags::REQ_ONE),
            (NbdCommand::Cache, CommandFlags::REQ_ONE),
            (NbdCommand::BlockStatus, CommandFlags::DF),
            (NbdCommand::Read, CommandFlags::PAYLOAD_LEN),
            (NbdCommand::Write, CommandFlags::from_bits(1 << 15)),
        ] {
            assert_eq!(judge(&geometry(), &flagged(command, flags)), Err(Errno::Inval));
        }
        assert!(judge(&geometry(), &flagged(NbdCommand::Read, CommandFlags::FUA)).is_ok());
    }

    #[test]
    fn flush_reserves_its_range_and_disconnect_always_goes_through() {
        assert_eq!(judge(&geometry(), &request(NbdCommand::Flush, 512, 0)), Err(Errno::Inval));
        assert_eq!(judge(&geometry(), &request(NbdCommand::Flush, 0, 512)), Err(Errno::Inval));
        let goodbye = WireRequest {
            flags: CommandFlags::from_bits(u16::MAX),
            has_payload: true,
            ..request(NbdCommand::Disconnect, 9, 9)
        };
        assert_eq!(judge(&geometry(), &goodbye), Ok(CheckedOperation::Disconnect));
    }

    #[test]
    fn a_block_status_needs_a_context() {
        let status = request(NbdCommand::BlockStatus, 512, 1024);
        let told = |one| Ok(CheckedOperation::BlockStatus { offset: 512, length: 1024, one });
        assert_eq!(judge(&geometry(), &status), told(false));
        let one = WireRequest { flags: CommandFlags::REQ_ONE, ..status };
        assert_eq!(judge(&geometry(), &one), told(true));
        let without = SessionTerms { allocation: None, ..terms(geometry()) };
        assert_eq!(without.check(&status, &[]), Err(Errno::Inval));
    }

    #[test]
    fn a_block_status_may_name_its_context_in_a_payload_where_that_was_offered() {
        let terms = terms(geometry());
        let named = WireRequest { has_payload: true, ..request(NbdCommand::BlockStatus, 512, QUERY) };
        assert_eq!(terms.query_length(&named), 12);
        let query = |length: u64, id: u32| [&length.to_be_bytes()[..], &id.to_be_bytes()].concat();
        assert_eq!(
            terms.check(&named, &query(1024, ALLOCATION_CONTEXT)),
            Ok(CheckedOperation::BlockStatus { offset: 512, length: 1024, one: false })
        );
        for (length, id) in [(1024, ALLOCATION_CONTEXT + 1), (SIZE, ALLOCATION_CONTEXT), (0, 1), (1, 1)] {
            assert_eq!(terms.check(&named, &query(length, id)), Err(Errno::Inval), "{length} {id}");
        }
        // Several contexts, or none: there is one.
        for length in [8, 16, 4096] {
            let other = WireRequest { length, ..named };
            assert_eq!((terms.query_length(&other), terms.check(&other, &[])), (0, Err(Errno::Inval)));
        }
        let mut unasked = terms;
        unasked.geometry.flags = unasked.geometry.flags.without(TransmissionFlags::BLOCK_STATUS_PAYLOAD);
        assert_eq!((unasked.query_length(&named), unasked.check(&named, &[])), (0, Err(Errno::Inval)));
    }

    #[test]
    fn only_a_write_has_a_payload_and_it_must() {
        for command in RANGES {
            let proper = request(command, 512, 512);
            assert!(judge(&geometry(), &proper).is_ok());
            let improper = WireRequest { has_payload: !proper.has_payload, ..proper };
            assert_eq!(judge(&geometry(), &improper), Err(Errno::Inval), "{command:?}");
        }
    }

    proptest! {
        /// A backend can carry out every accepted request without looking again.
        #[test]
        fn an_accepted_range_is_within_aligned_and_bound(
            code in 0u16..10, flags in 0u16..64, offset in any::<u64>(), length in any::<u64>(),
            near_end in any::<bool>(), size in any::<u64>(), export_flags in any::<u16>(), shift in 0u32..17,
        ) {
            let minimum = 1 << shift;
            let blocks = BlockSizes::new(minimum, minimum.max(512), 1 << 20).unwrap();
            let geometry = ExportGeometry { size, flags: TransmissionFlags::from_bits(export_flags), blocks };
            let (offset, length) =
                if near_end { (size.saturating_sub(offset % 8192), length % 8192) } else { (offset, length) };
            let (command, flags) = (NbdCommand::from_code(code), CommandFlags::from_bits(flags));
            let request = WireRequest::new(command, flags, 0, offset, length);
            if let Ok(operation) = judge(&geometry, &request) {
                prop_assert_eq!(judge(&geometry, &operation.request(0)), Ok(operation), "said again");
            }
            let payload = match judge(&geometry, &request) {
                Ok(CheckedOperation::Read { .. } | CheckedOperation::Write { .. }) => true,
                Ok(CheckedOperation::Flush | CheckedOperation::Disconnect) | Err(_) => return Ok(()),
                Ok(_) => false,
            };
            prop_assert!(length > 0);
            prop_assert!(u128::from(offset) + u128::from(length) <= u128::from(size));
            prop_assert!(offset % u64::from(minimum) == 0 && length % u64::from(minimum) == 0);
            prop_assert!(!payload || length <= 1 << 20);
            let read_only = geometry.flags.contains(TransmissionFlags::READ_ONLY);
            let changes = matches!(command, NbdCommand::Write | NbdCommand::Trim | NbdCommand::WriteZeroes);
            prop_assert!(!changes || !read_only);
        }
    }
}
