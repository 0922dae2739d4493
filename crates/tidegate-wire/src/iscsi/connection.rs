//! One iSCSI connection: commands that are outstanding, and their responses.
//!
//! A command and its response use the same connection (RFC 7143, section 4.2.2), so that nothing is shared
//! between the connections of a session but its names, which each connection's login has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidegate_units::{Instant, Latency};

use super::format::{Digests, IscsiFormat, Towards, data_length, number, opcode, request, response};
use super::login::{LoginTexts, SessionNames};
use crate::direction::{Direction, DirectionEvents, DirectionSegment};
use crate::framing::PduEvent;

/// Commands outstanding on a connection that are followed, at most. Targets allow fewer.
const MOST_OUTSTANDING: usize = 4096;

/// LUNs of a connection that are followed, at most.
const MOST_UNITS: usize = 256;

/// A LUN as commands name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogicalUnit([u8; 8]);

impl LogicalUnit {
    fn of(header: &[u8]) -> Self {
        let mut unit = [0; 8];
        unit.copy_from_slice(&header[8..16]);
        Self(unit)
    }
}

impl fmt::Display for LogicalUnit {
    /// Peripheral and flat addressing as the number that administrators know, all else in full (SAM-5,
    /// section 4.7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, rest @ ..] = self.0;
        let is_single = rest == [0; 6];
        match first >> 6 {
            0 if is_single && first == 0 => write!(f, "{second}"),
            1 if is_single => write!(f, "{}", u16::from(first & 0x3f) << 8 | u16::from(second)),
            _ => write!(f, "{:016x}", u64::from_be_bytes(self.0)),
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
    /// From the command, or the last of a write's data, to the response. `None`: not all of them were seen.
    pub(crate) latency: Option<Latency>,
}

/// A command without a response so far.
#[derive(Debug, Clone, Copy)]
struct OutstandingCommand {
    unit: LogicalUnit,
    /// `None`: of another kind. It is followed, so that its response is not another command's.
    kind: Option<CommandKind>,
    bytes: u32,
    /// The bytes of a write's data that have passed.
    data: u64,
    /// The time at which the target had all that it needs, as far as it has passed.
    sent: Instant,
}

/// Reads of a LUN that have no response yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReadsInFlight {
    pub(crate) count: u32,
    pub(crate) oldest: Option<Instant>,
}

/// The events of a connection while a segment was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ConnectionEvents {
    pub(crate) direction: DirectionEvents,
    /// Commands that were forgotten, since their responses may have been missed.
    pub(crate) forgotten: usize,
    /// Commands that were not followed, since there were too many.
    pub(crate) unfollowed: usize,
}

/// A connection.
#[derive(Debug, Clone)]
pub(crate) struct IscsiConnection {
    to_target: Direction<IscsiFormat>,
    to_initiator: Direction<IscsiFormat>,
    dialogue: Dialogue,
}

/// The commands and responses of a connection, in their order.
#[derive(Debug, Clone, Default)]
struct Dialogue {
    login: LoginTexts,
    names: Option<SessionNames>,
    /// Set for a moment when a login has ended.
    digests: Option<Digests>,
    is_logged_in: bool,
    outstanding: BTreeMap<u32, OutstandingCommand>,
    units: BTreeSet<LogicalUnit>,
    /// Commands from before this time may have a response that was missed. Their age is no latency.
    doubtful_before: Instant,
    unfollowed: usize,
}

const fn format(towards: Towards) -> IscsiFormat {
    IscsiFormat { towards, digests: Digests { header: false, data: false } }
}

impl IscsiConnection {
    /// A connection that was there before.
    pub(crate) fn from_the_middle() -> Self {
        Self {
            to_target: Direction::from_the_middle(IscsiFormat::candidates(Towards::Target)),
            to_initiator: Direction::from_the_middle(IscsiFormat::candidates(Towards::Initiator)),
            dialogue: Dialogue::default(),
        }
    }

    /// Begins a direction at a known byte.
    pub(crate) fn begin(&mut self, is_to_target: bool, first: u32) {
        match is_to_target {
            true => self.to_target = Direction::from_the_beginning(format(Towards::Target), first),
            false => self.to_initiator = Direction::from_the_beginning(format(Towards::Initiator), first),
        }
    }

    /// Takes a segment. Hands `each` the commands that it completes.
    pub(crate) fn take(
        &mut self,
        is_to_target: bool,
        segment: DirectionSegment<'_>,
        each: &mut impl FnMut(CompletedCommand),
    ) -> ConnectionEvents {
        let Self { to_target, to_initiator, dialogue } = self;
        let direction = match is_to_target {
            true => to_target.take(segment, &mut |event| dialogue.request(event)),
            false => to_initiator.take(segment, &mut |event| dialogue.response(event, each)),
        };
        if let Some(digests) = dialogue.digests.take() {
            to_target.set_format(IscsiFormat { digests, ..format(Towards::Target) });
            to_initiator.set_format(IscsiFormat { digests, ..format(Towards::Initiator) });
        }
        self.settle();
        let dialogue = &mut self.dialogue;
        let forgotten = if direction.gap { dialogue.forget() } else { 0 };
        let unfollowed = std::mem::take(&mut dialogue.unfollowed);
        ConnectionEvents { direction, forgotten, unfollowed }
    }

    /// Accepts the places of directions that were seen from their middle. Digests are the same in both: what
    /// one direction leaves open, the other may tell.
    fn settle(&mut self) {
        if self.is_understood() {
            return;
        }
        let (there, back) = (self.to_target.confirmed(), self.to_initiator.confirmed());
        let in_both = there.iter().filter(|one| back.iter().any(|other| other.digests == one.digests));
        let in_both: Vec<_> = in_both.map(|format| format.digests).collect();
        if let [digests] = in_both[..] {
            self.to_target.accept(IscsiFormat { digests, ..format(Towards::Target) });
            self.to_initiator.accept(IscsiFormat { digests, ..format(Towards::Initiator) });
            // The responses to commands from before may have passed while the place was sought.
            self.dialogue.forget();
        }
    }

    /// Returns true if both directions look like iSCSI, and it is not known yet with which digests.
    pub(crate) fn is_plausible(&self) -> bool {
        !self.to_target.confirmed().is_empty() && !self.to_initiator.confirmed().is_empty()
    }

    /// Takes note that packets up to now may be missing.
    pub(crate) fn doubt(&mut self, now: Instant) {
        self.dialogue.doubtful_before = now;
    }

    /// Forgets the commands that are outstanding. Returns how many they were.
    pub(crate) fn forget(&mut self) -> usize {
        self.dialogue.forget()
    }

    /// Returns true if both directions are understood.
    pub(crate) const fn is_understood(&self) -> bool {
        self.to_target.has_place() && self.to_initiator.has_place()
    }

    /// Returns true if the login has ended, or was not seen.
    pub(crate) const fn is_logged_in(&self) -> bool {
        self.dialogue.is_logged_in
    }

    pub(crate) const fn names(&self) -> Option<&SessionNames> {
        self.dialogue.names.as_ref()
    }

    /// Gives a session that was seen from its middle the names that were known of it before.
    pub(crate) fn recall(&mut self, names: SessionNames) {
        self.dialogue.names.get_or_insert(names);
    }

    /// The LUNs that it has used.
    pub(crate) fn units(&self) -> impl ExactSizeIterator<Item = LogicalUnit> {
        self.dialogue.units.iter().copied()
    }

    /// Returns the reads of a LUN that certainly wait.
    pub(crate) fn reads_in_flight(&self, unit: LogicalUnit) -> ReadsInFlight {
        let mut reads = ReadsInFlight::default();
        if !self.is_understood() {
            return reads;
        }
        for command in self.dialogue.outstanding.values() {
            let counts = command.unit == unit
                && command.kind == Some(CommandKind::Read)
                && command.sent >= self.dialogue.doubtful_before;
            if counts {
                reads.count += 1;
                reads.oldest = Some(reads.oldest.map_or(command.sent, |oldest| oldest.min(command.sent)));
            }
        }
        reads
    }
}

impl Dialogue {
    fn request(&mut self, event: PduEvent<'_>) {
        match event {
            PduEvent::Head { head, at } => match opcode(head) {
                request::COMMAND => self.command(head, at),
                request::TASK_MANAGEMENT => self.abort(head),
                request::LOGOUT => _ = self.forget(),
                _ => {}
            },
            PduEvent::End { head, kept, at } => match opcode(head) {
                request::COMMAND | request::DATA_OUT => self.data(head, at),
                request::LOGIN => self.login.request(head, kept),
                _ => {}
            },
        }
    }

    fn command(&mut self, head: &[u8], sent: Instant) {
        self.is_logged_in = true;
        let (tag, unit) = (number(head, 16), LogicalUnit::of(head));
        let is_known = self.units.contains(&unit) || self.units.len() < MOST_UNITS && self.units.insert(unit);
        let has_room = self.outstanding.len() < MOST_OUTSTANDING || self.outstanding.contains_key(&tag);
        if !is_known || !has_room {
            self.outstanding.remove(&tag);
            self.unfollowed += 1;
            return;
        }
        let command =
            OutstandingCommand { unit, kind: kind_of(&head[32..]), bytes: number(head, 20), data: 0, sent };
        // A tag that is used again says that the command before has ended.
        self.outstanding.insert(tag, command);
    }

    /// Takes note of a write's data that have passed.
    fn data(&mut self, head: &[u8], at: Option<Instant>) {
        let length = data_length(head);
        if let (Some(at), Some(command)) = (at, self.outstanding.get_mut(&number(head, 16)))
            && length > 0
        {
            command.sent = at;
            command.data += length;
        }
    }

    fn response(&mut self, event: PduEvent<'_>, each: &mut impl FnMut(CompletedCommand)) {
        const STATUS_IN_DATA: u8 = 0x01;
        match event {
            PduEvent::Head { head, at } => match opcode(head) {
                response::COMMAND => self.complete(head, at, each),
                response::DATA_IN if head[1] & STATUS_IN_DATA != 0 => self.complete(head, at, each),
                response::REJECT => _ = self.forget(),
                _ => {}
            },
            PduEvent::End { head, kept, .. } if opcode(head) == response::LOGIN => {
                if let Some(login) = self.login.response(head, kept) {
                    self.names = login.names;
                    self.digests = Some(login.digests);
                    self.is_logged_in = true;
                }
            }
            PduEvent::End { .. } => {}
        }
    }

    /// Ends a command. It is a sample if it was carried out; an error takes another time than a transfer.
    fn complete(&mut self, head: &[u8], at: Instant, each: &mut impl FnMut(CompletedCommand)) {
        const UNDERFLOW: u8 = 0x02;
        let is_data = opcode(head) == response::DATA_IN;
        let Some(command) = self.outstanding.remove(&number(head, 16)) else { return };
        let is_good = (is_data || head[2] == 0) && head[3] == 0;
        let Some(kind) = command.kind.filter(|_| is_good) else { return };
        let residual = if head[1] & UNDERFLOW != 0 { number(head, 44) } else { 0 };
        let bytes = u64::from(command.bytes.saturating_sub(residual));
        let is_whole = kind == CommandKind::Read || command.data >= bytes;
        let latency = is_whole.then(|| at.latency_since(command.sent));
        each(CompletedCommand { unit: command.unit, kind, bytes, latency });
    }

    /// Forgets commands that a task management request ends.
    fn abort(&mut self, head: &[u8]) {
        const ABORT_TASK: u8 = 1;
        const OF_A_LOGICAL_UNIT: [u8; 3] = [2, 3, 5];
        match head[1] & 0x7f {
            ABORT_TASK => _ = self.outstanding.remove(&number(head, 20)),
            function if OF_A_LOGICAL_UNIT.contains(&function) => {
                let unit = LogicalUnit::of(head);
                self.outstanding.retain(|_, command| command.unit != unit);
            }
            _ => _ = self.forget(),
        }
    }

    fn forget(&mut self) -> usize {
        std::mem::take(&mut self.outstanding).len()
    }
}

/// Returns the kind of a command by its CDB (SBC-4).
fn kind_of(cdb: &[u8]) -> Option<CommandKind> {
    match cdb[0] {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(CommandKind::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(CommandKind::Write),
        // READ (32) and WRITE (32).
        0x7f => match [cdb[8], cdb[9]] {
            [0, 0x09] => Some(CommandKind::Read),
            [0, 0x0b | 0x0c] => Some(CommandKind::Write),
            _ => None,
        },
        _ => None,
    }
}
