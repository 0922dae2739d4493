//! One direction of a TCP connection: segments as they pass, brought into the order of their bytes.
//!
//! A tap sees retransmissions, segments in another order, and misses some. Segments that come early wait for
//! those before them, within bounds. Bytes that do not come, and that may be part of a head, are a *gap*.

use tidegate_units::Instant;

use crate::framing::{PduEvent, PduFormat, PduStream, StreamPiece};

/// Segments that wait for an earlier one, at most.
const MOST_EARLY: usize = 64;

/// Their bytes, at most.
const MOST_EARLY_BYTES: usize = 256 << 10;

/// An earlier segment that has not come for this long will not: TCP sends again sooner.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);

/// A segment further off than any window belongs to another connection, or to a part that was not seen.
const FARTHEST: u32 = 1 << 30;

/// The part of a segment that the order needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectionSegment<'a> {
    pub(crate) at: Instant,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
    pub(crate) length: u32,
}

/// The events of a direction while a segment was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DirectionEvents {
    /// All bytes of the segment were there before.
    pub(crate) repeated: bool,
    /// It came before an earlier one.
    pub(crate) early: bool,
    /// Bytes are missing that may be part of a header. The fate of outstanding commands is unknown.
    pub(crate) gap: bool,
}

/// A segment that came before an earlier one.
#[derive(Debug, Clone)]
struct EarlySegment {
    at: Instant,
    sequence: u32,
    payload: Vec<u8>,
    length: u32,
}

/// One direction.
#[derive(Debug, Clone)]
pub(crate) struct Direction<F> {
    stream: PduStream<F>,
    /// The number of the next byte; `None` before the first segment.
    next: Option<u32>,
    early: Vec<EarlySegment>,
    early_bytes: usize,
}

impl<F: PduFormat> Direction<F> {
    /// A direction whose first byte has the number `first`.
    pub(crate) fn from_the_beginning(format: F, first: u32) -> Self {
        let stream = PduStream::from_the_beginning(format);
        Self { stream, next: Some(first), early: Vec::new(), early_bytes: 0 }
    }

    /// A direction that was there before.
    pub(crate) fn from_the_middle(candidates: Vec<F>) -> Self {
        let stream = PduStream::from_the_middle(candidates);
        Self { stream, next: None, early: Vec::new(), early_bytes: 0 }
    }

    pub(crate) const fn has_place(&self) -> bool {
        self.stream.has_place()
    }

    pub(crate) fn set_format(&mut self, format: F) {
        self.stream.set_format(format);
    }

    /// Returns the formats that it may have, as far as they are confirmed; none if none is.
    pub(crate) fn confirmed(&self) -> Vec<F> {
        self.stream.confirmed()
    }

    /// Accepts the place that one of these formats gives.
    pub(crate) fn accept(&mut self, format: F) {
        self.stream.accept(format);
    }

    /// Takes a segment. Hands `each` what passes in it, or in those that waited for it.
    pub(crate) fn take(
        &mut self,
        segment: DirectionSegment<'_>,
        each: &mut impl FnMut(PduEvent<'_>),
    ) -> DirectionEvents {
        let mut events = DirectionEvents::default();
        if segment.length == 0 {
            return events;
        }
        self.append(segment, &mut events, each);
        self.drain(segment.at, &mut events, each);
        events
    }

    /// Takes a segment if it is next, or keeps it.
    fn append(
        &mut self,
        segment: DirectionSegment<'_>,
        events: &mut DirectionEvents,
        each: &mut impl FnMut(PduEvent<'_>),
    ) {
        let next = *self.next.get_or_insert(segment.sequence);
        let ahead = segment.sequence.wrapping_sub(next);
        let behind = next.wrapping_sub(segment.sequence);
        if ahead == 0 {
            self.read(segment, 0, events, each);
        } else if behind <= FARTHEST {
            if behind >= segment.length {
                events.repeated = true;
            } else {
                self.read(segment, behind, events, each);
            }
        } else if ahead > FARTHEST {
            self.jump(segment.sequence, events);
            self.read(segment, 0, events, each);
        } else if u64::from(ahead) <= self.stream.not_needed() {
            // What is missing is part of a PDU's data. It is not waited for.
            let missing = u64::from(ahead);
            let hole = StreamPiece { at: segment.at, bytes: &[], missing, is_hole: true };
            self.stream.read(hole, each);
            self.next = Some(segment.sequence);
            self.read(segment, 0, events, each);
        } else {
            events.early = true;
            self.wait(segment);
        }
    }

    /// Reads a segment without its first `old` bytes.
    fn read(
        &mut self,
        segment: DirectionSegment<'_>,
        old: u32,
        events: &mut DirectionEvents,
        each: &mut impl FnMut(PduEvent<'_>),
    ) {
        let bytes = segment.payload.get(old as usize..).unwrap_or_default();
        let length = u64::from(segment.length - old);
        let missing = length - bytes.len() as u64;
        let piece = StreamPiece { at: segment.at, bytes, missing, is_hole: false };
        events.gap |= self.stream.read(piece, each);
        self.next = Some(segment.sequence.wrapping_add(segment.length));
    }

    fn wait(&mut self, segment: DirectionSegment<'_>) {
        let DirectionSegment { at, sequence, payload, length } = segment;
        if self.early.iter().any(|early| early.sequence == sequence && early.length >= length) {
            return;
        }
        self.early_bytes += payload.len();
        self.early.push(EarlySegment { at, sequence, payload: payload.to_vec(), length });
    }

    /// Reads the segments that waited, as far as they are next. Gives up on what they wait for when they are
    /// too many, or have waited for too long.
    fn drain(&mut self, now: Instant, events: &mut DirectionEvents, each: &mut impl FnMut(PduEvent<'_>)) {
        while let Some(first) = self.first_early() {
            let Some(next) = self.next else { return };
            let ahead = self.early[first].sequence.wrapping_sub(next);
            let is_next = ahead == 0 || ahead > FARTHEST || u64::from(ahead) <= self.stream.not_needed();
            let is_hopeless = self.early.len() > MOST_EARLY
                || self.early_bytes > MOST_EARLY_BYTES
                || now.saturating_since(self.early[first].at) > PATIENCE;
            if !is_next && !is_hopeless {
                return;
            }
            let early = self.early.swap_remove(first);
            self.early_bytes -= early.payload.len();
            if !is_next {
                self.jump(early.sequence, events);
            }
            let EarlySegment { at, sequence, payload, length } = &early;
            let segment = DirectionSegment { at: *at, sequence: *sequence, payload, length: *length };
            self.append(segment, events, each);
        }
    }

    /// Returns the place of the segment that comes first of those that wait.
    fn first_early(&self) -> Option<usize> {
        let next = self.next?;
        // From a quarter of the numbers behind on: a segment may be old by now.
        let order = |early: &EarlySegment| early.sequence.wrapping_sub(next).wrapping_add(FARTHEST);
        (0..self.early.len()).min_by_key(|at| order(&self.early[*at]))
    }

    /// Goes on at another byte: those before it were not seen.
    fn jump(&mut self, sequence: u32, events: &mut DirectionEvents) {
        events.gap |= self.stream.has_place();
        self.stream.lose();
        self.next = Some(sequence);
    }
}
