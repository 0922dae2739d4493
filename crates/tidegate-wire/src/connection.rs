//! One connection between an initiator and an array: both directions, in one protocol.
//!
//! A command and its response use the same connection, in iSCSI (RFC 7143, section 4.2.2) and in NVMe/TCP. So
//! nothing is shared between the connections of a session but its names, which each connection says.

use std::fmt::Debug;
use std::sync::Arc;

use tidegate_units::Instant;

use crate::commands::{CommandTable, CompletedCommand, LogicalUnit, ReadsInFlight};
use crate::direction::{Direction, DirectionEvents, DirectionSegment};
use crate::framing::{PduEvent, PduFormat};

/// The receiver of a direction's PDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Towards {
    Target,
    Initiator,
}

/// The names of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionNames {
    pub(crate) initiator: Arc<str>,
    pub(crate) target: Arc<str>,
}

/// The longest name of an initiator or target, in bytes: of iSCSI (RFC 7143, section 4.2.7.1) and of NVMe.
const LONGEST_NAME: usize = 223;

/// Returns a name as it may be shown: cut to the longest that is allowed, characters that are not seen escaped.
pub(crate) fn shown_name(text: &str) -> Arc<str> {
    tidegate_units::shown_name(text, LONGEST_NAME).into()
}

/// The peers of a protocol, as far as they have spoken.
pub(crate) trait Dialogue: Default + Debug {
    /// Agreements that change the form of PDUs.
    type Terms: Copy + PartialEq + Debug;
    /// The PDUs of a direction.
    type Format: PduFormat + Debug;

    /// The terms before peers have agreed on others.
    const FIRST: Self::Terms;

    /// The terms that a connection may have that was seen from its middle only.
    fn possible_terms() -> Vec<Self::Terms>;

    /// The PDUs of a direction under some terms.
    fn format(towards: Towards, terms: Self::Terms) -> Self::Format;

    /// The terms of a format.
    fn terms(format: &Self::Format) -> Self::Terms;

    /// Takes what passes to the target.
    fn request(&mut self, event: PduEvent<'_>, commands: &mut CommandTable);

    /// Takes what passes to the initiator. Hands `each` the commands that it completes.
    fn response(
        &mut self,
        event: PduEvent<'_>,
        commands: &mut CommandTable,
        each: &mut impl FnMut(CompletedCommand),
    );

    /// Returns terms that have just been agreed on.
    fn take_terms(&mut self) -> Option<Self::Terms>;

    /// The names of the session, once they are known.
    fn names(&self) -> Option<&SessionNames>;

    /// Gives a session that was seen from its middle the names that were known of it before.
    fn recall(&mut self, names: SessionNames);

    /// Returns true if the login has ended, or was not seen.
    fn is_logged_in(&self) -> bool;
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
#[derive(Debug)]
pub(crate) struct Connection<D: Dialogue> {
    to_target: Direction<D::Format>,
    to_initiator: Direction<D::Format>,
    dialogue: D,
    commands: CommandTable,
}

impl<D: Dialogue> Connection<D> {
    /// A connection that was there before.
    pub(crate) fn from_the_middle() -> Self {
        let direction = |towards| {
            let formats = D::possible_terms().into_iter().map(|terms| D::format(towards, terms));
            Direction::from_the_middle(formats.collect())
        };
        Self {
            to_target: direction(Towards::Target),
            to_initiator: direction(Towards::Initiator),
            dialogue: D::default(),
            commands: CommandTable::default(),
        }
    }

    /// Begins a direction at a known byte.
    pub(crate) fn begin(&mut self, towards: Towards, first: u32) {
        let begun = Direction::from_the_beginning(D::format(towards, D::FIRST), first);
        match towards {
            Towards::Target => self.to_target = begun,
            Towards::Initiator => self.to_initiator = begun,
        }
    }

    /// Takes a segment. Hands `each` the commands that it completes.
    pub(crate) fn take(
        &mut self,
        towards: Towards,
        segment: DirectionSegment<'_>,
        each: &mut impl FnMut(CompletedCommand),
    ) -> ConnectionEvents {
        let Self { to_target, to_initiator, dialogue, commands } = self;
        let direction = match towards {
            Towards::Target => to_target.take(segment, &mut |event| dialogue.request(event, commands)),
            Towards::Initiator => {
                to_initiator.take(segment, &mut |event| dialogue.response(event, commands, each))
            }
        };
        if let Some(terms) = dialogue.take_terms() {
            to_target.set_format(D::format(Towards::Target, terms));
            to_initiator.set_format(D::format(Towards::Initiator, terms));
        }
        self.settle();
        let forgotten = if direction.gap { self.commands.forget() } else { 0 };
        ConnectionEvents { direction, forgotten, unfollowed: self.commands.take_unfollowed() }
    }

    /// Accepts the places of directions that were seen from their middle. The terms are the same in both:
    /// what one direction leaves open, the other may tell.
    fn settle(&mut self) {
        if self.is_understood() {
            return;
        }
        let (there, back) = (self.to_target.confirmed(), self.to_initiator.confirmed());
        let in_both = there.iter().map(D::terms);
        let in_both: Vec<_> =
            in_both.filter(|terms| back.iter().any(|other| D::terms(other) == *terms)).collect();
        if let [terms] = in_both[..] {
            self.to_target.accept(D::format(Towards::Target, terms));
            self.to_initiator.accept(D::format(Towards::Initiator, terms));
            // The responses to commands from before may have passed while the place was sought.
            self.commands.forget();
        }
    }

    /// Returns true if both directions look like the protocol, and its terms are not known yet.
    pub(crate) fn is_plausible(&self) -> bool {
        !self.to_target.confirmed().is_empty() && !self.to_initiator.confirmed().is_empty()
    }

    /// Takes note that packets up to now may be missing.
    pub(crate) const fn doubt(&mut self, now: Instant) {
        self.commands.doubt(now);
    }

    /// Forgets the commands that are outstanding. Returns how many they were.
    pub(crate) fn forget(&mut self) -> usize {
        self.commands.forget()
    }

    /// Returns true if both directions are understood.
    pub(crate) const fn is_understood(&self) -> bool {
        self.to_target.has_place() && self.to_initiator.has_place()
    }

    pub(crate) const fn dialogue(&self) -> &D {
        &self.dialogue
    }

    /// Gives a session that was seen from its middle the names that were known of it before.
    pub(crate) fn recall(&mut self, names: SessionNames) {
        self.dialogue.recall(names);
    }

    /// The LUNs that it has used.
    pub(crate) fn units(&self) -> impl ExactSizeIterator<Item = LogicalUnit> {
        self.commands.units()
    }

    /// Returns the reads of a LUN that certainly wait.
    pub(crate) fn reads_in_flight(&self, unit: LogicalUnit) -> ReadsInFlight {
        if self.is_understood() { self.commands.reads_in_flight(unit) } else { ReadsInFlight::default() }
    }
}
