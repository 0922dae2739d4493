//! The consequences of an upstream's promises: the geometry for clients, and the way to pass their requests
//! on.

use thiserror::Error;
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, PendingReply};
use tidegate_nbd::{BlockSizes, CheckedOperation, CommandFlags, Errno, ExportGeometry, TransmissionFlags};

use crate::config::MAX_PAYLOAD;
use crate::request::is_durable;
use crate::zeroing::{RequestSlice, SliceMethod};

/// The flags that clients are told as the upstream tells them. Requests that rely on them are passed on.
const PASSED_ON: TransmissionFlags = TransmissionFlags::SEND_FLUSH
    .with(TransmissionFlags::SEND_FUA)
    .with(TransmissionFlags::SEND_TRIM)
    .with(TransmissionFlags::SEND_WRITE_ZEROES)
    .with(TransmissionFlags::SEND_FAST_ZERO)
    .with(TransmissionFlags::SEND_CACHE)
    .with(TransmissionFlags::ROTATIONAL)
    .with(TransmissionFlags::READ_ONLY);

/// The flags that the gateway relies on. An upstream that comes back must still have them.
const RELIED_ON: TransmissionFlags = TransmissionFlags::SEND_FLUSH
    .with(TransmissionFlags::SEND_FUA)
    .with(TransmissionFlags::SEND_TRIM)
    .with(TransmissionFlags::SEND_WRITE_ZEROES)
    .with(TransmissionFlags::SEND_FAST_ZERO)
    .with(TransmissionFlags::CAN_MULTI_CONN);

/// One request to the upstream: an operation, or as much of it as the upstream takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpstreamPart {
    pub(crate) command: NbdCommand,
    pub(crate) flags: CommandFlags,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// The longest range that compact headers can name, in whole blocks of any size.
const LONGEST_COMPACT: u64 = (u32::MAX - 65_535) as u64;

impl UpstreamPart {
    pub(crate) const FLUSH: Self =
        Self { command: NbdCommand::Flush, flags: CommandFlags::NONE, offset: 0, length: 0 };

    /// Returns the reply that it may bring; `allocation` is the id of the metadata context of that name.
    pub(crate) fn expects(&self, allocation: Option<u32>) -> PendingReply {
        let offset = self.offset;
        match (self.command, allocation) {
            // Not longer than the greatest payload.
            (NbdCommand::Read, _) => PendingReply::Read { offset, length: self.length as u32 },
            (NbdCommand::BlockStatus, Some(context)) => PendingReply::BlockStatus { offset, context },
            _ => PendingReply::Other { offset },
        }
    }

    /// Returns true if it changes data, or may.
    pub(crate) fn changes(&self) -> bool {
        !matches!(
            self.command,
            NbdCommand::Read | NbdCommand::Flush | NbdCommand::Cache | NbdCommand::BlockStatus
        )
    }

    /// Returns the beginning of it that a request of this style can name.
    pub(crate) fn within(self, style: MessageStyle) -> Self {
        let longest = if style == MessageStyle::Extended { u64::MAX } else { LONGEST_COMPACT };
        Self { length: self.length.min(longest), ..self }
    }
}

/// The differences between a lost upstream and the one that has come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UpstreamMismatch {
    /// Another size: another volume, or the same one resized.
    #[error("its size was {was} bytes and is {is} now")]
    Size {
        /// The size when the gateway started.
        was: u64,
        /// The size now.
        is: u64,
    },
    /// Clients were promised more than it can do now.
    #[error("it could do more before: of the transmission flags {was:#06x} it has {is:#06x} left")]
    Features {
        /// The flags relied on.
        was: u16,
        /// Those of them that are left.
        is: u16,
    },
    /// Clients were told that they may write.
    #[error("it is read-only now")]
    ReadOnly,
    /// Requests within the old bounds could break the new ones.
    #[error("it takes blocks of {minimum} to {maximum} bytes now, which excludes what it took before")]
    Blocks {
        /// The least block now.
        minimum: u32,
        /// The greatest payload now.
        maximum: u32,
    },
}

/// The rules by which requests to one upstream export are passed on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpstreamPlan {
    size: u64,
    flags: TransmissionFlags,
    minimum: u32,
    preferred: u32,
    /// The longest payload of one part: a multiple of the preferred block.
    longest: u32,
}

impl UpstreamPlan {
    pub(crate) fn new(upstream: &ExportGeometry) -> Self {
        let ExportGeometry { size, blocks, .. } = *upstream;
        let preferred = blocks.preferred();
        let longest = blocks.maximum() / preferred * preferred;
        Self { size, flags: told(upstream), minimum: blocks.minimum(), preferred, longest }
    }

    /// Returns the geometry that clients are told.
    pub(crate) fn geometry(&self, read_only: bool) -> ExportGeometry {
        let mut flags = (self.flags_within(PASSED_ON))
            .with(TransmissionFlags::SEND_DF)
            // One flush goes to the upstream for all sessions, and covers what was answered on every
            // connection.
            .with(TransmissionFlags::CAN_MULTI_CONN);
        if self.flags.contains(TransmissionFlags::SEND_FLUSH) {
            flags = flags.with(TransmissionFlags::SEND_FUA);
        }
        if read_only || flags.contains(TransmissionFlags::READ_ONLY) {
            flags = flags
                .with(TransmissionFlags::READ_ONLY)
                .without(TransmissionFlags::SEND_TRIM)
                .without(TransmissionFlags::SEND_WRITE_ZEROES)
                .without(TransmissionFlags::SEND_FAST_ZERO);
        }
        // A block larger than the greatest payload could not be transferred.
        let preferred = self.preferred.clamp(self.minimum, MAX_PAYLOAD);
        let blocks = BlockSizes::new(self.minimum, preferred, MAX_PAYLOAD)
            // Invariant: both came out of valid sizes, and the minimum is at most 64 KiB.
            .expect("an upstream's block sizes are valid");
        ExportGeometry { size: self.size, flags, blocks }
    }

    fn flags_within(&self, mask: TransmissionFlags) -> TransmissionFlags {
        TransmissionFlags::from_bits(self.flags.bits() & mask.bits())
    }

    /// Returns true if a flush on one connection covers changes answered on all.
    pub(crate) fn allows_many_connections(&self) -> bool {
        self.flags.contains(TransmissionFlags::CAN_MULTI_CONN)
    }

    /// Returns true if changes that the upstream has answered may still be lost with it. An upstream without
    /// flush has nothing to flush.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        self.flags.contains(TransmissionFlags::SEND_FLUSH)
    }

    /// Returns true if the upstream refuses, when asked to, zeroing a range that it would have to write.
    pub(crate) fn knows_fast_zeroes(&self) -> bool {
        self.flags.contains(TransmissionFlags::SEND_FAST_ZERO)
    }

    /// Returns the next part of an operation's slice, after its first `done` bytes.
    pub(crate) fn part(&self, operation: &CheckedOperation, slice: RequestSlice, done: u64) -> UpstreamPart {
        let left = slice.until - done;
        let fua = |fua: bool| {
            if fua && self.flags.contains(TransmissionFlags::SEND_FUA) {
                CommandFlags::FUA
            } else {
                CommandFlags::NONE
            }
        };
        let set = |wanted, flag| if wanted { flag } else { CommandFlags::NONE };
        let (command, flags, offset, length) = match *operation {
            CheckedOperation::Read { offset, .. } => {
                (NbdCommand::Read, CommandFlags::NONE, offset, left.min(self.longest.into()))
            }
            CheckedOperation::Write { offset, fua: durable, .. } => {
                (NbdCommand::Write, fua(durable), offset, left.min(self.longest.into()))
            }
            // The greatest payload does not bind what has none (specification, "Size constraints").
            CheckedOperation::Trim { offset, fua: durable, .. } => {
                (NbdCommand::Trim, fua(durable), offset, left)
            }
            CheckedOperation::WriteZeroes { offset, fua: durable, no_hole, fast, .. } => {
                let fast = fast || (slice.method == SliceMethod::Mark && self.knows_fast_zeroes());
                let more = set(no_hole, CommandFlags::NO_HOLE) | set(fast, CommandFlags::FAST_ZERO);
                (NbdCommand::WriteZeroes, fua(durable) | more, offset, left)
            }
            CheckedOperation::Cache { offset, .. } => (NbdCommand::Cache, CommandFlags::NONE, offset, left),
            CheckedOperation::BlockStatus { offset, one, .. } => {
                (NbdCommand::BlockStatus, set(one, CommandFlags::REQ_ONE), offset, left)
            }
            CheckedOperation::Flush | CheckedOperation::Disconnect => {
                unreachable!("not carried out as requests")
            }
        };
        UpstreamPart { command, flags, offset: offset + done, length }
    }

    /// Returns true if a successful operation still needs a flush to be as durable as its client wants it.
    pub(crate) fn needs_flush(&self, operation: &CheckedOperation) -> bool {
        is_durable(operation) && !self.flags.contains(TransmissionFlags::SEND_FUA)
    }

    /// Returns true if a successful operation leaves something that only a flush makes durable.
    pub(crate) fn leaves_unflushed(&self, operation: &CheckedOperation) -> bool {
        let changes = matches!(
            operation,
            CheckedOperation::Write { .. }
                | CheckedOperation::Trim { .. }
                | CheckedOperation::WriteZeroes { .. }
        );
        changes && self.has_volatile_cache() && (!is_durable(operation) || self.needs_flush(operation))
    }

    /// Judges an upstream that has come back.
    ///
    /// # Errors
    /// What is different, if clients could notice.
    pub(crate) fn check(&self, upstream: &ExportGeometry) -> Result<(), UpstreamMismatch> {
        if upstream.size != self.size {
            return Err(UpstreamMismatch::Size { was: self.size, is: upstream.size });
        }
        let flags = told(upstream);
        let (was, is) = (self.flags_within(RELIED_ON), flags.bits() & self.flags_within(RELIED_ON).bits());
        if was.bits() != is {
            return Err(UpstreamMismatch::Features { was: was.bits(), is });
        }
        if flags.contains(TransmissionFlags::READ_ONLY) && !self.flags.contains(TransmissionFlags::READ_ONLY)
        {
            return Err(UpstreamMismatch::ReadOnly);
        }
        let (minimum, maximum) = (upstream.blocks.minimum(), upstream.blocks.maximum());
        if minimum > self.minimum || maximum < self.longest.min(MAX_PAYLOAD) {
            return Err(UpstreamMismatch::Blocks { minimum, maximum });
        }
        Ok(())
    }
}

/// The flags that mean something: without HAS_FLAGS none does.
fn told(geometry: &ExportGeometry) -> TransmissionFlags {
    if geometry.flags.contains(TransmissionFlags::HAS_FLAGS) {
        geometry.flags
    } else {
        TransmissionFlags::NONE
    }
}

/// Returns true if the error proves that the upstream has not begun to carry the request out. No other error
/// does. Servers answer EINVAL for every error that the protocol has no number for. They answer EPERM for a
/// file system that failed.
pub(crate) fn is_refusal(part: &UpstreamPart, errno: Errno) -> bool {
    errno == Errno::NotSup && part.flags.contains(CommandFlags::FAST_ZERO)
}

/// Returns the error that a client is told when the upstream refused its operation with this error.
pub(crate) fn errno_for_client(operation: &CheckedOperation, errno: Errno) -> Errno {
    match (errno, operation) {
        // "Not faster than writing" is an answer to this one question only.
        (Errno::NotSup, CheckedOperation::WriteZeroes { fast: true, .. }) => errno,
        // Narrow meanings that do not hold for the gateway itself: it has not been asked for one chunk, and
        // is not about to end.
        (Errno::NotSup | Errno::Overflow | Errno::Shutdown, _) => Errno::Io,
        _ => errno,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_nbd::SessionTerms;
    use tidegate_nbd::transmission::WireRequest;

    use super::*;

    const FULL: TransmissionFlags = PASSED_ON
        .with(TransmissionFlags::HAS_FLAGS)
        .with(TransmissionFlags::CAN_MULTI_CONN)
        .without(TransmissionFlags::READ_ONLY);

    fn upstream(flags: TransmissionFlags) -> ExportGeometry {
        ExportGeometry { size: 1 << 30, flags, blocks: BlockSizes::new(512, 4096, 65_536).unwrap() }
    }

    #[test]
    fn clients_are_told_what_the_upstream_can_do_and_what_can_be_made_up_for() {
        let flags = |upstream_flags| UpstreamPlan::new(&upstream(upstream_flags)).geometry(false).flags;
        assert!(flags(FULL).contains(FULL.without(TransmissionFlags::HAS_FLAGS)));
        let emulated = flags(FULL.without(TransmissionFlags::SEND_FUA));
        assert!(emulated.contains(TransmissionFlags::SEND_FUA), "a flush does the same");
        let bare = flags(TransmissionFlags::HAS_FLAGS);
        for absent in [
            TransmissionFlags::SEND_FLUSH,
            TransmissionFlags::SEND_FUA,
            TransmissionFlags::SEND_TRIM,
            TransmissionFlags::SEND_WRITE_ZEROES,
        ] {
            assert!(!bare.contains(absent));
        }
        let meaningless = flags(FULL.without(TransmissionFlags::HAS_FLAGS));
        assert!(!meaningless.contains(TransmissionFlags::SEND_FLUSH));
        let read_only = flags(FULL | TransmissionFlags::READ_ONLY);
        assert!(read_only.contains(TransmissionFlags::READ_ONLY));
        assert!(!read_only.contains(TransmissionFlags::SEND_TRIM));
    }

    #[test]
    fn a_missing_fua_is_made_up_for_by_a_flush() {
        let write = CheckedOperation::Write { offset: 0, length: 512, fua: true };
        let native = UpstreamPlan::new(&upstream(FULL));
        assert_eq!(native.part(&write, RequestSlice::whole(512), 0).flags, CommandFlags::FUA);
        assert!(!native.needs_flush(&write) && !native.leaves_unflushed(&write));
        let emulating = UpstreamPlan::new(&upstream(FULL.without(TransmissionFlags::SEND_FUA)));
        assert_eq!(emulating.part(&write, RequestSlice::whole(512), 0).flags, CommandFlags::NONE);
        assert!(emulating.needs_flush(&write) && emulating.leaves_unflushed(&write));
    }

    #[test]
    fn only_the_same_upstream_or_a_better_one_may_come_back() {
        let plan = UpstreamPlan::new(&upstream(FULL.without(TransmissionFlags::SEND_FAST_ZERO)));
        assert_eq!(plan.check(&upstream(FULL)), Ok(()));
        let resized = ExportGeometry { size: 1 << 31, ..upstream(FULL) };
        assert!(matches!(plan.check(&resized), Err(UpstreamMismatch::Size { .. })));
        for flag in [TransmissionFlags::SEND_FLUSH, TransmissionFlags::CAN_MULTI_CONN] {
            assert!(matches!(
                plan.check(&upstream(FULL.without(flag))),
                Err(UpstreamMismatch::Features { .. })
            ));
        }
        let read_only = upstream(FULL | TransmissionFlags::READ_ONLY);
        assert_eq!(plan.check(&read_only), Err(UpstreamMismatch::ReadOnly));
        for (minimum, maximum) in [(4096, 65_536), (512, 32_768)] {
            let blocks = BlockSizes::new(minimum, 4096, maximum).unwrap();
            assert!(matches!(
                plan.check(&ExportGeometry { blocks, ..upstream(FULL) }),
                Err(UpstreamMismatch::Blocks { .. })
            ));
        }
    }

    #[test]
    fn errors_keep_the_meaning_that_they_have_for_the_client() {
        let zero =
            |fast| CheckedOperation::WriteZeroes { offset: 0, length: 512, fua: false, no_hole: false, fast };
        assert_eq!(errno_for_client(&zero(true), Errno::NotSup), Errno::NotSup);
        assert_eq!(errno_for_client(&zero(false), Errno::NotSup), Errno::Io);
        assert_eq!(errno_for_client(&zero(false), Errno::NoSpc), Errno::NoSpc);
        assert_eq!(errno_for_client(&zero(false), Errno::Shutdown), Errno::Io);
    }

    #[test]
    fn a_question_about_more_than_compact_headers_can_name_is_asked_in_part() {
        let plan = UpstreamPlan::new(&ExportGeometry { size: 1 << 40, ..upstream(FULL) });
        let status = CheckedOperation::BlockStatus { offset: 4096, length: 1 << 39, one: true };
        let part = plan.part(&status, RequestSlice::question(1 << 39), 0);
        assert_eq!((part.flags, part.length), (CommandFlags::REQ_ONE, 1 << 39));
        assert_eq!(part.within(MessageStyle::Extended), part);
        assert_eq!(part.within(MessageStyle::Structured).length, 0xffff_0000);
        assert!(!plan.leaves_unflushed(&status) && !part.changes());
    }

    proptest! {
        /// The parts of a request follow each other without gap, and each is one that the upstream itself
        /// would accept.
        #[test]
        fn parts_cover_the_request_and_keep_to_the_upstreams_blocks(
            shift in 0u32..17, preferred_shift in 9u32..22, maximum in 512u32..(64 << 20),
            first in 0u64..1000, blocks in 1u32..2000, write in any::<bool>(),
        ) {
            let minimum = 1 << shift;
            let preferred = (1 << preferred_shift).max(minimum);
            prop_assume!(maximum >= preferred);
            let sizes = BlockSizes::new(minimum, preferred, maximum).unwrap();
            let geometry = ExportGeometry { size: 1 << 40, flags: FULL, blocks: sizes };
            let plan = UpstreamPlan::new(&geometry);
            let told = plan.geometry(false).blocks;
            let (offset, length)
                = (first * u64::from(minimum), blocks.saturating_mul(minimum).min(told.maximum()));
            let operation = if write {
                CheckedOperation::Write { offset, length, fua: false }
            } else {
                CheckedOperation::Read { offset, length }
            };
            let mut done = 0;
            while done < u64::from(length) {
                let part = plan.part(&operation, RequestSlice::whole(length), done);
                prop_assert_eq!(part.offset, offset + done);
                prop_assert!(part.length > 0 && part.length <= u64::from(maximum));
                let request = WireRequest::new(part.command, part.flags, 0, part.offset, part.length);
                prop_assert!(SessionTerms::simple(geometry).check(&request, &[]).is_ok());
                done += part.length;
            }
            prop_assert_eq!(done, u64::from(length));
        }
    }
}
