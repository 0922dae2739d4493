//! The place of PDUs in a stream of bytes, some of which were not seen.
//!
//! A PDU is a head of fixed length, perhaps a few bytes that are worth reading, and bytes that are not. Only
//! bytes of the last kind may be missing. Otherwise the place is lost, and found again at a segment that
//! begins with a head.

use tidegate_units::Instant;

/// Plausible heads in a row after which a place that was found counts as one.
const CONFIRMING_HEADS: u32 = 4;

/// The longest PDU that a place is looked for with, in bytes. A wrong place claims any length.
const LONGEST_PLAUSIBLE: u64 = 2 << 20;

/// The PDUs of one direction of a protocol.
pub(crate) trait PduFormat: Copy + PartialEq {
    /// The length of a head. No PDU is shorter.
    const HEAD: usize;

    /// Returns how a PDU goes on that has this head; `None` if none has.
    fn shape(&self, head: &[u8]) -> Option<PduShape>;

    /// Returns true if the head is as peers write it, reserved fields included.
    fn is_plausible(&self, head: &[u8]) -> bool;
}

/// The bytes of a PDU after its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PduShape {
    /// Bytes worth reading.
    pub(crate) kept: u32,
    /// Bytes after those.
    pub(crate) skipped: u64,
}

/// A moment of a PDU that passes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PduEvent<'a> {
    /// Its head has passed.
    Head { head: &'a [u8], at: Instant },
    /// All of it has passed. The time is `None` if its end was not seen, and has passed since.
    End { head: &'a [u8], kept: &'a [u8], at: Option<Instant> },
}

/// The place in a stream is lost: a head is none, or bytes of one are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlaceLost;

/// A piece of a stream: bytes, and how many follow that were not captured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamPiece<'a> {
    pub(crate) at: Instant,
    pub(crate) bytes: &'a [u8],
    pub(crate) missing: u64,
    /// True if no packet with these bytes was seen, so that their time is unknown.
    pub(crate) is_hole: bool,
}

impl StreamPiece<'_> {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.missing == 0
    }
}

/// The part of a PDU that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PduPart {
    Head,
    Kept { until: usize, skipped: u64 },
    Skipped { remaining: u64 },
}

/// Reads PDUs from a known place on.
#[derive(Debug, Clone)]
struct PduReader<F> {
    format: F,
    part: PduPart,
    /// The head, and what is kept behind it.
    buffer: Vec<u8>,
    /// True until the place is confirmed: heads must be plausible, and PDUs not too long.
    is_trial: bool,
    heads: u32,
}

impl<F: PduFormat> PduReader<F> {
    fn new(format: F, is_trial: bool) -> Self {
        Self { format, part: PduPart::Head, buffer: Vec::new(), is_trial, heads: 0 }
    }

    /// Takes a piece. Hands `each` the PDUs that end in it.
    fn read(
        &mut self,
        mut piece: StreamPiece<'_>,
        each: &mut impl FnMut(PduEvent<'_>),
    ) -> Result<(), PlaceLost> {
        loop {
            match self.part {
                PduPart::Head => {
                    if !self.fill(&mut piece, F::HEAD)? {
                        return Ok(());
                    }
                    self.begin()?;
                    each(PduEvent::Head { head: &self.buffer, at: piece.at });
                }
                PduPart::Kept { until, skipped } => {
                    if !self.fill(&mut piece, until)? {
                        return Ok(());
                    }
                    self.part = PduPart::Skipped { remaining: skipped };
                }
                PduPart::Skipped { remaining } => {
                    let seen = remaining.min(piece.bytes.len() as u64);
                    piece.bytes = &piece.bytes[seen as usize..];
                    let unseen =
                        if piece.bytes.is_empty() { (remaining - seen).min(piece.missing) } else { 0 };
                    piece.missing -= unseen;
                    let remaining = remaining - seen - unseen;
                    if remaining > 0 {
                        self.part = PduPart::Skipped { remaining };
                        return Ok(());
                    }
                    let (head, kept) = self.buffer.split_at(F::HEAD);
                    each(PduEvent::End { head, kept, at: (!piece.is_hole).then_some(piece.at) });
                    self.buffer.clear();
                    self.part = PduPart::Head;
                }
            }
            if self.part == PduPart::Head && piece.is_empty() {
                return Ok(());
            }
        }
    }

    /// Takes bytes until the buffer has `until`. Returns false if more are needed.
    fn fill(&mut self, piece: &mut StreamPiece<'_>, until: usize) -> Result<bool, PlaceLost> {
        let taken = (until - self.buffer.len()).min(piece.bytes.len());
        self.buffer.extend_from_slice(&piece.bytes[..taken]);
        piece.bytes = &piece.bytes[taken..];
        if self.buffer.len() == until {
            return Ok(true);
        }
        if piece.missing > 0 { Err(PlaceLost) } else { Ok(false) }
    }

    /// Reads a head that is complete.
    fn begin(&mut self) -> Result<(), PlaceLost> {
        let shape = self.format.shape(&self.buffer).ok_or(PlaceLost)?;
        let length = u64::from(shape.kept) + shape.skipped;
        if self.is_trial && (length > LONGEST_PLAUSIBLE || !self.format.is_plausible(&self.buffer)) {
            return Err(PlaceLost);
        }
        self.heads = self.heads.saturating_add(1);
        self.part = PduPart::Kept { until: F::HEAD + shape.kept as usize, skipped: shape.skipped };
        Ok(())
    }

    /// Returns the number of bytes from here that need not be seen.
    fn not_needed(&self) -> u64 {
        if let PduPart::Skipped { remaining } = self.part { remaining } else { 0 }
    }
}

/// Reads the PDUs of one direction of a connection, and finds its place where it has none.
#[derive(Debug, Clone)]
pub(crate) struct PduStream<F> {
    place: StreamPlace<F>,
}

#[derive(Debug, Clone)]
enum StreamPlace<F> {
    Known(PduReader<F>),
    /// Places that the stream may be at; none: a segment gives them.
    Sought {
        candidates: Vec<F>,
        trials: Vec<PduReader<F>>,
    },
}

impl<F: PduFormat> PduStream<F> {
    /// A stream from its first byte on.
    pub(crate) fn from_the_beginning(format: F) -> Self {
        Self { place: StreamPlace::Known(PduReader::new(format, false)) }
    }

    /// A stream that was there before, of one of these formats.
    pub(crate) fn from_the_middle(candidates: Vec<F>) -> Self {
        Self { place: StreamPlace::Sought { candidates, trials: Vec::new() } }
    }

    /// Returns true if it knows where PDUs begin.
    pub(crate) const fn has_place(&self) -> bool {
        matches!(self.place, StreamPlace::Known(_))
    }

    /// Changes the format from the next PDU on.
    pub(crate) fn set_format(&mut self, format: F) {
        match &mut self.place {
            StreamPlace::Known(reader) => reader.format = format,
            StreamPlace::Sought { candidates, trials } => {
                *candidates = vec![format];
                trials.retain(|trial| trial.format == format);
            }
        }
    }

    /// Gives the place up: bytes are missing.
    pub(crate) fn lose(&mut self) {
        match &mut self.place {
            StreamPlace::Known(reader) => *self = Self::from_the_middle(vec![reader.format]),
            StreamPlace::Sought { trials, .. } => trials.clear(),
        }
    }

    /// Returns the formats that the stream may have, as far as they are confirmed; none if none is.
    pub(crate) fn confirmed(&self) -> Vec<F> {
        match &self.place {
            StreamPlace::Known(reader) => vec![reader.format],
            StreamPlace::Sought { trials, .. } => {
                let is_confirmed = |trial: &&PduReader<F>| trial.heads >= CONFIRMING_HEADS;
                match trials.iter().any(|trial| is_confirmed(&trial)) {
                    true => trials.iter().map(|trial| trial.format).collect(),
                    false => Vec::new(),
                }
            }
        }
    }

    /// Accepts the place of the trial of a format.
    pub(crate) fn accept(&mut self, format: F) {
        if let StreamPlace::Sought { trials, .. } = &mut self.place
            && let Some(found) = trials.iter().position(|trial| trial.format == format)
        {
            let mut reader = trials.swap_remove(found);
            reader.is_trial = false;
            self.place = StreamPlace::Known(reader);
        }
    }

    /// Returns the number of bytes from here that need not be seen.
    pub(crate) fn not_needed(&self) -> u64 {
        match &self.place {
            StreamPlace::Known(reader) => reader.not_needed(),
            StreamPlace::Sought { trials, .. } => trials.iter().map(PduReader::not_needed).min().unwrap_or(0),
        }
    }

    /// Takes the next piece. Hands `each` what passes in it. Returns true if the place is lost by it.
    pub(crate) fn read(&mut self, piece: StreamPiece<'_>, each: &mut impl FnMut(PduEvent<'_>)) -> bool {
        match &mut self.place {
            StreamPlace::Known(reader) => {
                let is_lost = reader.read(piece, each).is_err();
                if is_lost {
                    self.lose();
                }
                is_lost
            }
            StreamPlace::Sought { candidates, trials } => {
                trials.retain_mut(|trial| trial.read(piece, &mut |_| ()).is_ok());
                // The same bytes may be where another trial begins: it has seen them as a part of a PDU.
                if trials.is_empty() && !piece.bytes.is_empty() {
                    trials.extend(candidates.iter().filter_map(|format| {
                        let mut trial = PduReader::new(*format, true);
                        trial.read(piece, &mut |_| ()).is_ok().then_some(trial)
                    }));
                }
                false
            }
        }
    }
}
