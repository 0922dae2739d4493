//! Commands of a connection that are outstanding, in any protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidegate_units::{Instant, Latency};

/// Commands outstanding on a connection that are followed, at most. Targets allow fewer.
const MOST_OUTSTANDING: usize = 4096;

/// LUNs of a connection that are followed, at most.
const MOST_UNITS: usize = 256;

/// A LUN or namespace as commands name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LogicalUnit {
    Scsi([u8; 8]),
    Namespace(u32),
}

impl fmt::Display for LogicalUnit {
    /// Peripheral and flat addressing of SCSI as the number that administrators know, all else in full
    /// (SAM-5, section 4.7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self {
            Self::Namespace(number) => return write!(f, "{number}"),
            Self::Scsi(bytes) => bytes,
        };
        let [first, second, rest @ ..] = bytes;
        let is_single = *rest == [0; 6];
        match first >> 6 {
            0 if is_single && *first == 0 => write!(f, "{second}"),
            1 if is_single => write!(f, "{}", u16::from(first & 0x3f) << 8 | u16::from(*second)),
            _ => write!(f, "{:016x}", u64::from_be_bytes(*bytes)),
        }
    }
}

/// Kinds of commands that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandKind {
    Read,
    Write,
}

/// A command that the target has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompletedCommand {
    pub(crate) unit: LogicalUnit,
    pub(crate) kind: CommandKind,
    pub(crate) bytes: u64,
    /// The time from the command, or the last of a write's data, to the response. `None`: not all were seen.
    pub(crate) latency: Option<Latency>,
}

/// A command as it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentCommand {
    pub(crate) unit: LogicalUnit,
    /// `None`: of another kind. It is followed, so that its response is not another command's.
    pub(crate) kind: Option<CommandKind>,
    pub(crate) bytes: u32,
}

/// The way in which a command ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandEnd {
    pub(crate) at: Instant,
    /// An error takes another time than a transfer, and is no sample.
    pub(crate) is_good: bool,
    /// Bytes that were not moved.
    pub(crate) residual: u32,
}

/// A command without a response so far.
#[derive(Debug, Clone, Copy)]
struct OutstandingCommand {
    sent: SentCommand,
    /// The bytes of a write's data that have passed.
    data: u64,
    /// The time at which the target had all that it needs, as far as it has passed.
    at: Instant,
}

/// Reads of a LUN that have no response yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReadsInFlight {
    pub(crate) count: u32,
    pub(crate) oldest: Option<Instant>,
}

/// The commands of a connection, by their tags.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandTable {
    outstanding: BTreeMap<u32, OutstandingCommand>,
    units: BTreeSet<LogicalUnit>,
    /// Commands from before this time may have a response that was missed. Their age is no latency.
    doubtful_before: Instant,
    unfollowed: usize,
}

impl CommandTable {
    /// Takes note of a command. A tag that is used again says that the command before has ended.
    pub(crate) fn send(&mut self, tag: u32, at: Instant, sent: SentCommand) {
        let unit = sent.unit;
        let is_known = self.units.contains(&unit) || self.units.len() < MOST_UNITS && self.units.insert(unit);
        let has_room = self.outstanding.len() < MOST_OUTSTANDING || self.outstanding.contains_key(&tag);
        if is_known && has_room {
            self.outstanding.insert(tag, OutstandingCommand { sent, data: 0, at });
        } else {
            self.outstanding.remove(&tag);
            self.unfollowed += 1;
        }
    }

    /// Takes note of a write's data that have passed; without a time they were not seen to.
    pub(crate) fn data(&mut self, tag: u32, at: Option<Instant>, length: u64) {
        if let (Some(at), Some(command)) = (at, self.outstanding.get_mut(&tag))
            && length > 0
        {
            command.at = at;
            command.data += length;
        }
    }

    /// Ends a command. Hands it to `each` if it was carried out.
    pub(crate) fn complete(&mut self, tag: u32, end: CommandEnd, each: &mut impl FnMut(CompletedCommand)) {
        let Some(OutstandingCommand { sent, data, at }) = self.outstanding.remove(&tag) else { return };
        let Some(kind) = sent.kind.filter(|_| end.is_good) else { return };
        let bytes = u64::from(sent.bytes.saturating_sub(end.residual));
        let is_whole = kind == CommandKind::Read || data >= bytes;
        let latency = is_whole.then(|| end.at.latency_since(at));
        each(CompletedCommand { unit: sent.unit, kind, bytes, latency });
    }

    /// Forgets one command.
    pub(crate) fn abort(&mut self, tag: u32) {
        self.outstanding.remove(&tag);
    }

    /// Forgets the commands of a LUN.
    pub(crate) fn abort_unit(&mut self, unit: LogicalUnit) {
        self.outstanding.retain(|_, command| command.sent.unit != unit);
    }

    /// Forgets all commands. Returns how many they were.
    pub(crate) fn forget(&mut self) -> usize {
        std::mem::take(&mut self.outstanding).len()
    }

    /// Takes note that packets up to now may be missing.
    pub(crate) const fn doubt(&mut self, now: Instant) {
        self.doubtful_before = now;
    }

    /// Returns the commands that were not followed since the last call, because there were too many.
    pub(crate) fn take_unfollowed(&mut self) -> usize {
        std::mem::take(&mut self.unfollowed)
    }

    /// The LUNs that were used.
    pub(crate) fn units(&self) -> impl ExactSizeIterator<Item = LogicalUnit> {
        self.units.iter().copied()
    }

    /// Returns the reads of a LUN that certainly wait.
    pub(crate) fn reads_in_flight(&self, unit: LogicalUnit) -> ReadsInFlight {
        let counts = |command: &&OutstandingCommand| {
            command.sent.unit == unit
                && command.sent.kind == Some(CommandKind::Read)
                && command.at >= self.doubtful_before
        };
        self.outstanding.values().filter(counts).fold(ReadsInFlight::default(), |reads, command| {
            let oldest = reads.oldest.map_or(command.at, |oldest| oldest.min(command.at));
            ReadsInFlight { count: reads.count + 1, oldest: Some(oldest) }
        })
    }
}
