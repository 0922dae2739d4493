//! Numbers in columns: each as its difference from what was expected of it.
//!
//! A number has one symbol, and perhaps bits in the common bit stream:
//!
//! | symbol | meaning |
//! |---|---|
//! | 0 | no number |
//! | 1, 2, 3 | the first, second, third expectation |
//! | 4 + 65·u + l | a difference of l bits, in the u-th unit: of times 1, 1,000 or 1,000,000, of sizes 1, 512 or 4,096 |
//! | 199 + l | a difference of l bits between rounded numbers, counted along these |
//!
//! The difference is signed and folded: 0, −1, 1, −2 become 0, 1, 2, 3. Its highest bit is always one, and
//! the lower l − 1 bits follow in the bit stream. They are the noise of the measurement, which no compression
//! shortens.
//!
//! A symbol is coded by probabilities of its column. They depend on the last symbol of the same consumer, so
//! that numbers that hardly ever change cost next to nothing beside others that always do.
//!
//! The expectations are known to the reader, and so is which of them came closest of late.

use tidegate_control::Observation;

use crate::bit_coder::{BitDecoder, BitEncoder, BitModel};
use crate::error::DamagedBlock;

/// Columns that each consumer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ConsumerColumn {
    ReadCount,
    ReadBytes,
    ReadLatency,
    ReadInFlight,
    ReadOldest,
    WriteCount,
    WriteBytes,
    WriteLatency,
    WriteInFlight,
    WriteOldest,
    Outstanding,
    OutstandingNanos,
    OutstandingRest,
    Queued,
    ShortOfTokens,
    Late,
    SchedulerWait,
    ReleaseToCompletion,
    OldestReleased,
    Reservation,
    CommandDelay,
    CommandRate,
    ReadingDelay,
    ReadingReadRate,
    ReadingReadBytes,
    ReadingWriteRate,
    ReadingWriteBytes,
}

/// Columns that each resource has once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ResourceColumn {
    Resource,
    At,
    Form,
    Lag,
    Held,
    CommandWindow,
    Spacing,
    ReadingWindow,
    PercentileStatistic,
    PercentileCount,
    PercentileLatency,
    PercentileStretch,
    ClusterHosts,
    ClusterStale,
    ClusterAdjusted,
    ClusterSignal,
    ClusterCompleted,
    ClusterMean,
    ClusterIops,
    ClusterReserved,
    ClusterOutstanding,
    ClusterOldest,
    ClusterLeads,
    ClusterSetPoint,
    LoadIops,
    LoadWrites,
    LoadOutstanding,
    LoadWriting,
    LoadWaiting,
    LoadLate,
    LoadMean,
    LoadWorst,
    LoadTotalWindow,
    LoadActiveShares,
}

/// Number of columns of a consumer.
pub(crate) const CONSUMER_COLUMNS: usize = ConsumerColumn::ReadingWriteBytes as usize + 1;

/// Number of columns of a resource.
pub(crate) const RESOURCE_COLUMNS: usize = ResourceColumn::LoadActiveShares as usize + 1;

/// Number of all columns.
pub(crate) const COLUMNS: usize = CONSUMER_COLUMNS + RESOURCE_COLUMNS;

/// Meaning of the numbers of a column, which says how they may be rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberKind {
    Count,
    /// A number of bytes, which storage counts in blocks.
    Size,
    /// A time in nanoseconds. Many sensors know it in whole micro- or milliseconds, or with
    /// [`Observation::SUM_BITS`] bits.
    Time,
    /// The age of a request in nanoseconds, with [`Observation::AGE_BITS`] bits.
    Age,
    /// The bits of a floating-point number, of which the sensor may know [`Observation::SUM_BITS`] bits.
    Real,
}

/// A column of numbers.
pub(crate) trait Column: Copy {
    /// Returns the place among all columns.
    fn place(self) -> usize;

    /// Returns the place among the columns of its kind.
    fn cell(self) -> usize;

    fn kind(self) -> NumberKind;
}

impl Column for ConsumerColumn {
    fn place(self) -> usize {
        self as usize
    }

    fn cell(self) -> usize {
        self as usize
    }

    fn kind(self) -> NumberKind {
        match self {
            Self::ReadBytes | Self::WriteBytes => NumberKind::Size,
            Self::ReadLatency
            | Self::WriteLatency
            | Self::OutstandingNanos
            | Self::ShortOfTokens
            | Self::SchedulerWait
            | Self::ReleaseToCompletion
            | Self::CommandDelay
            | Self::ReadingDelay => NumberKind::Time,
            Self::ReadOldest | Self::WriteOldest | Self::OldestReleased => NumberKind::Age,
            Self::Outstanding => NumberKind::Real,
            _ => NumberKind::Count,
        }
    }
}

impl Column for ResourceColumn {
    fn place(self) -> usize {
        CONSUMER_COLUMNS + self as usize
    }

    fn cell(self) -> usize {
        self as usize
    }

    fn kind(self) -> NumberKind {
        match self {
            Self::At
            | Self::Spacing
            | Self::PercentileLatency
            | Self::PercentileStretch
            | Self::ClusterMean
            | Self::ClusterOldest
            | Self::ClusterSetPoint
            | Self::LoadMean => NumberKind::Time,
            _ => NumberKind::Count,
        }
    }
}

/// The most expectations of a number.
const EXPECTATIONS: usize = 3;

/// Memory of one column of a consumer or resource.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cell {
    pub(crate) last: u64,
    /// Bits that each expectation has cost of late.
    costs: [i16; EXPECTATIONS],
    /// Class of the last symbols: the context of the next one.
    class: u8,
}

/// The expectations of a number, of which the first is always there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    numbers: [Option<u64>; EXPECTATIONS],
}

impl Expected {
    /// Expects one number.
    pub(crate) const fn one(first: u64) -> Self {
        Self { numbers: [Some(first), None, None] }
    }

    /// Expects one number or, if there is one, another.
    pub(crate) const fn either(first: u64, second: Option<u64>) -> Self {
        Self { numbers: [Some(first), second, None] }
    }

    /// Expects a third number as well, if there is one.
    pub(crate) const fn or(self, third: Option<u64>) -> Self {
        let [first, second, _] = self.numbers;
        Self { numbers: [first, second, third] }
    }
}

/// Writes or reads the numbers and documents of a block. One walk over a decision serves both: a writer
/// takes each value, and a reader sets it.
pub(crate) trait Coder {
    fn number(
        &mut self,
        column: impl Column,
        value: &mut Option<u64>,
        expected: Expected,
        cell: &mut Cell,
    ) -> Result<(), DamagedBlock>;

    fn document<T: serde::Serialize + serde::de::DeserializeOwned>(
        &mut self,
        value: &mut T,
    ) -> Result<(), DamagedBlock>;
}

const NONE: u8 = 0;
const FIRST: u8 = 1;
/// The second and the third expectation follow.
const OTHERS: std::ops::RangeInclusive<u8> = 2..=3;
const DIFFERENCE: u8 = 4;
/// Lengths of a difference in bits: 0 to 64.
const LENGTHS: u8 = 65;
const ROUNDED: u8 = DIFFERENCE + 3 * LENGTHS;
/// Classes of last symbols.
const CLASSES: usize = 8;
/// Contexts of the headers of entries.
pub(crate) const HEADER_CONTEXTS: usize = 32;
/// The most numbers of a block.
pub(crate) const MOST_NUMBERS: usize = 8 * 1024 * 1024;

const fn folded(difference: u64) -> u64 {
    let signed = difference.cast_signed();
    (signed << 1 ^ signed >> 63).cast_unsigned()
}

const fn unfolded(folded: u64) -> u64 {
    (folded >> 1) ^ (folded & 1).wrapping_neg()
}

const fn bits(folded: u64) -> u32 {
    64 - folded.leading_zeros()
}

fn cost(value: u64, expected: u64) -> i16 {
    // At most 65.
    if value == expected { 0 } else { 1 + bits(folded(value.wrapping_sub(expected))) as i16 }
}

impl Cell {
    /// Returns the expectation that was the best of late: the first of those that cost the least.
    fn base(&self, expected: Expected) -> u64 {
        let known =
            self.costs.iter().zip(expected.numbers).filter_map(|(cost, number)| Some((cost, number?)));
        known.min_by_key(|(cost, _)| **cost).map_or(0, |(_, number)| number)
    }

    fn learn(&mut self, value: u64, expected: Expected, symbol: u8) {
        if expected.numbers[1..].iter().any(Option::is_some) {
            for (sum, number) in self.costs.iter_mut().zip(expected.numbers) {
                let Some(number) = number else { continue };
                *sum += cost(value, number) - *sum / 4;
            }
        }
        self.last = value;
        self.note(symbol);
    }

    const fn note(&mut self, symbol: u8) {
        let length = match symbol {
            NONE => None,
            FIRST => {
                self.class = if self.class <= 1 { 0 } else { 1 };
                return;
            }
            2..DIFFERENCE => {
                self.class = 3;
                return;
            }
            ROUNDED.. => Some(symbol - ROUNDED),
            _ => Some((symbol - DIFFERENCE) % LENGTHS),
        };
        self.class = match length {
            None => 2,
            Some(0..=3) => 4,
            Some(4..=6) => 5,
            Some(7..=10) => 6,
            Some(_) => 7,
        };
    }
}

/// Numbers that a sensor may have rounded, in their order. The rounded number of this place is the greatest
/// that is not above the number.
fn rounded_place(kind: NumberKind, number: u64) -> u64 {
    let kept = match kind {
        NumberKind::Count | NumberKind::Size => return number,
        NumberKind::Real => return number >> (f64::MANTISSA_DIGITS - Observation::SUM_BITS),
        NumberKind::Time => Observation::SUM_BITS,
        NumberKind::Age => Observation::AGE_BITS,
    };
    let dropped = bits(number).saturating_sub(kept);
    (u64::from(dropped) << (kept - 1)) + (number >> dropped)
}

/// Returns the rounded number at a place. `None`: there is none.
fn rounded_number(kind: NumberKind, place: u64) -> Option<u64> {
    let kept = match kind {
        NumberKind::Count | NumberKind::Size => return Some(place),
        NumberKind::Real => {
            let dropped = f64::MANTISSA_DIGITS - Observation::SUM_BITS;
            return Some(place << dropped).filter(|number| number >> dropped == place);
        }
        NumberKind::Time => Observation::SUM_BITS,
        NumberKind::Age => Observation::AGE_BITS,
    };
    let dropped = (place >> (kept - 1)).saturating_sub(1);
    let number = place - (dropped << (kept - 1));
    (dropped <= u64::from(64 - kept)).then(|| number << dropped)
}

/// Returns the units of differences. Numbers without units have three of one.
const fn units(kind: NumberKind) -> [u64; 3] {
    match kind {
        NumberKind::Count | NumberKind::Real => [1; 3],
        NumberKind::Size => [1, 512, 4_096],
        NumberKind::Time | NumberKind::Age => [1, 1_000, 1_000_000],
    }
}

/// Returns the greatest unit of a number, by its place.
fn unit_of(kind: NumberKind, value: u64) -> usize {
    let units = units(kind);
    let is_whole = |place: &usize| units[*place] > 1 && value.is_multiple_of(units[*place]);
    if value == 0 { 0 } else { (1..units.len()).rev().find(is_whole).unwrap_or(0) }
}

/// Probabilities of symbols and of headers, as both sides have learnt them in a segment.
#[derive(Debug)]
pub(crate) struct SymbolModels {
    first: Vec<[BitModel; CLASSES]>,
    others: Vec<[[BitModel; 256]; CLASSES]>,
    headers: [[BitModel; 8]; HEADER_CONTEXTS],
}

impl Default for SymbolModels {
    fn default() -> Self {
        Self {
            first: vec![[BitModel::EVEN; CLASSES]; COLUMNS],
            others: vec![[[BitModel::EVEN; 256]; CLASSES]; COLUMNS],
            headers: [[BitModel::EVEN; 8]; HEADER_CONTEXTS],
        }
    }
}

/// Numbers, bits and documents of a block that is being written.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    models: SymbolModels,
    pub(crate) symbols: BitEncoder,
    pub(crate) documents: Vec<u8>,
    pub(crate) noise: BitWriter,
    numbers: usize,
}

impl Encoder {
    /// Returns the memory that a reader needs for everything so far, about.
    pub(crate) fn len(&self) -> usize {
        self.numbers + self.documents.len() + self.noise.bytes.len() + self.symbols.len()
    }

    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.documents.clear();
        self.noise.clear();
        self.numbers = 0;
    }

    /// Writes the header of an entry, below 8.
    pub(crate) fn header(&mut self, header: u8, context: usize) {
        self.numbers += 1;
        push_tree(&mut self.symbols, header, 3, &mut self.models.headers[context]);
    }
}

/// Writes the lowest bits of a number, the highest of them first. Each has a probability for those before.
fn push_tree(encoder: &mut BitEncoder, number: u8, bits: u32, models: &mut [BitModel]) {
    let mut node = 1;
    for place in (0..bits).rev() {
        let bit = number >> place & 1 == 1;
        encoder.push(bit, &mut models[node]);
        node = 2 * node + usize::from(bit);
    }
}

fn take_tree(decoder: &mut BitDecoder<'_>, bits: u32, models: &mut [BitModel]) -> u8 {
    let mut node = 1;
    for _ in 0..bits {
        node = 2 * node + usize::from(decoder.take(&mut models[node]));
    }
    // The highest bit of a node is that of the root.
    (node - (1 << bits)) as u8
}

impl Coder for Encoder {
    fn number(
        &mut self,
        column: impl Column,
        value: &mut Option<u64>,
        expected: Expected,
        cell: &mut Cell,
    ) -> Result<(), DamagedBlock> {
        self.numbers += 1;
        let (place, class) = (column.place(), usize::from(cell.class));
        let is_first = value.is_some() && *value == expected.numbers[0];
        self.symbols.push(is_first, &mut self.models.first[place][class]);
        let symbol = match *value {
            None => NONE,
            Some(_) if is_first => FIRST,
            Some(value) => match expected.numbers[1..].iter().position(|number| *number == Some(value)) {
                Some(other) => OTHERS.start() + other as u8,
                None => self.difference(column.kind(), value, cell.base(expected)),
            },
        };
        if !is_first {
            push_tree(&mut self.symbols, symbol, 8, &mut self.models.others[place][class]);
        }
        match *value {
            None => cell.note(symbol),
            Some(value) => cell.learn(value, expected, symbol),
        }
        Ok(())
    }

    fn document<T: serde::Serialize + serde::de::DeserializeOwned>(
        &mut self,
        value: &mut T,
    ) -> Result<(), DamagedBlock> {
        let bytes = rmp_serde::to_vec_named(value).map_err(|_| DamagedBlock("a document has no encoding"))?;
        push_length(&mut self.documents, bytes.len());
        self.documents.extend_from_slice(&bytes);
        Ok(())
    }
}

impl Encoder {
    /// Writes the bits of a difference, in the unit that takes fewer. Returns its symbol.
    fn difference(&mut self, kind: NumberKind, value: u64, base: u64) -> u8 {
        let unit = unit_of(kind, value);
        let size = units(kind)[unit];
        let plain = folded((value / size).wrapping_sub(base / size));
        let place = rounded_place(kind, value);
        let may_be_rounded = !matches!(kind, NumberKind::Count | NumberKind::Size);
        let is_rounded = may_be_rounded && rounded_number(kind, place) == Some(value);
        let rounded = folded(place.wrapping_sub(rounded_place(kind, base)));
        let (first, difference) = if is_rounded && bits(rounded) <= bits(plain) {
            (ROUNDED, rounded)
        } else {
            // The greatest is 4 + 2·65 + 64.
            (DIFFERENCE + LENGTHS * unit as u8, plain)
        };
        let length = bits(difference);
        self.noise.push(difference, length.saturating_sub(1));
        first + length as u8
    }
}

/// Numbers, bits and documents of a block that is being read.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    models: &'a mut SymbolModels,
    symbols: BitDecoder<'a>,
    pub(crate) documents: Bytes<'a>,
    noise: BitReader<'a>,
    numbers: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(
        models: &'a mut SymbolModels,
        symbols: &'a [u8],
        documents: Bytes<'a>,
        noise: &'a [u8],
    ) -> Self {
        let (symbols, noise) = (BitDecoder::new(symbols), BitReader::new(noise));
        Self { models, symbols, documents, noise, numbers: 0 }
    }

    /// Reads the header of an entry.
    pub(crate) fn header(&mut self, context: usize) -> u8 {
        take_tree(&mut self.symbols, 3, &mut self.models.headers[context])
    }

    fn difference(&mut self, kind: NumberKind, symbol: u8, base: u64) -> Result<u64, DamagedBlock> {
        let (unit, length) = match symbol {
            ROUNDED.. => (None, symbol - ROUNDED),
            _ => {
                let unit = units(kind)[usize::from((symbol - DIFFERENCE) / LENGTHS)];
                (Some(unit), (symbol - DIFFERENCE) % LENGTHS)
            }
        };
        let difference = match u32::from(length).checked_sub(1) {
            None => 0,
            Some(lower) => self.noise.take(lower)? | 1 << lower,
        };
        let difference = unfolded(difference);
        match unit {
            Some(unit) => Ok((base / unit).wrapping_add(difference).wrapping_mul(unit)),
            None => {
                let place = rounded_place(kind, base).wrapping_add(difference);
                rounded_number(kind, place).ok_or(DamagedBlock("a number is too great"))
            }
        }
    }
}

impl Coder for Decoder<'_> {
    fn number(
        &mut self,
        column: impl Column,
        value: &mut Option<u64>,
        expected: Expected,
        cell: &mut Cell,
    ) -> Result<(), DamagedBlock> {
        self.numbers += 1;
        if self.numbers > MOST_NUMBERS {
            return Err(DamagedBlock("a block has too many numbers"));
        }
        let (place, class) = (column.place(), usize::from(cell.class));
        let symbol = if self.symbols.take(&mut self.models.first[place][class]) {
            FIRST
        } else {
            take_tree(&mut self.symbols, 8, &mut self.models.others[place][class])
        };
        let found = match symbol {
            NONE => {
                *value = None;
                cell.note(symbol);
                return Ok(());
            }
            FIRST..DIFFERENCE => {
                let number = expected.numbers[usize::from(symbol - FIRST)];
                number.ok_or(DamagedBlock("a number refers to nothing"))?
            }
            symbol => self.difference(column.kind(), symbol, cell.base(expected))?,
        };
        *value = Some(found);
        cell.learn(found, expected, symbol);
        Ok(())
    }

    fn document<T: serde::Serialize + serde::de::DeserializeOwned>(
        &mut self,
        value: &mut T,
    ) -> Result<(), DamagedBlock> {
        let length = self.documents.length()?;
        let bytes = self.documents.take(length)?;
        *value = rmp_serde::from_slice(bytes).map_err(|_| DamagedBlock("a document is not understood"))?;
        Ok(())
    }
}

/// Appends a length: seven bits in each byte, the lowest first, the highest bit set in all but the last.
pub(crate) fn push_length(bytes: &mut Vec<u8>, length: usize) {
    let mut rest = length;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// Bytes that are read from their beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, DamagedBlock> {
        let (&first, rest) = self.0.split_first().ok_or(DamagedBlock("a block lacks bytes"))?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DamagedBlock> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DamagedBlock("a block lacks bytes"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn length(&mut self) -> Result<usize, DamagedBlock> {
        let mut length = 0_u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(length).map_err(|_| DamagedBlock("a length is too great"));
            }
        }
        Err(DamagedBlock("a length is too great"))
    }
}

/// Bits, the lowest of a byte first.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that fill no byte yet, fewer than eight.
    rest: u128,
    count: u32,
}

impl BitWriter {
    /// Appends the lowest `count` bits, at most 64.
    fn push(&mut self, bits: u64, count: u32) {
        let kept = u128::from(bits) & ((1_u128 << count) - 1);
        self.rest |= kept << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.rest as u8);
            self.rest >>= 8;
            self.count -= 8;
        }
    }

    /// Fills the last byte with zeros, and returns all.
    pub(crate) fn finish(&mut self) -> &[u8] {
        if self.count > 0 {
            self.bytes.push(self.rest as u8);
            (self.rest, self.count) = (0, 0);
        }
        &self.bytes
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.rest, self.count) = (0, 0);
    }
}

/// Bits as [`BitWriter`] writes them.
#[derive(Debug)]
pub(crate) struct BitReader<'a> {
    bytes: Bytes<'a>,
    rest: u128,
    count: u32,
}

impl<'a> BitReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: Bytes(bytes), rest: 0, count: 0 }
    }

    /// Takes the next `count` bits, at most 64.
    fn take(&mut self, count: u32) -> Result<u64, DamagedBlock> {
        while self.count < count {
            self.rest |= u128::from(self.bytes.byte()?) << self.count;
            self.count += 8;
        }
        let taken = self.rest & ((1_u128 << count) - 1);
        self.rest >>= count;
        self.count -= count;
        // At most 64 bits were taken.
        Ok(taken as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_control::MeanOutstanding;
    use tidegate_units::Latency;

    use super::*;

    const COLUMN_KINDS: [ConsumerColumn; 5] = [
        ConsumerColumn::ReadCount,
        ConsumerColumn::ReadBytes,
        ConsumerColumn::ReadLatency,
        ConsumerColumn::ReadOldest,
        ConsumerColumn::Outstanding,
    ];

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            0..100_u64,
            any::<u64>(),
            (0..1_000_u64).prop_map(|ms| ms * 1_000_000),
            any::<u64>()
                .prop_map(|nanos| Latency::from_nanos(nanos).rounded(Observation::SUM_BITS).as_nanos()),
            any::<f64>().prop_map(|real| MeanOutstanding::new(real).rounded().get().to_bits()),
            Just(u64::MAX)
        ]
    }

    proptest! {
        #[test]
        fn numbers_come_back_whatever_was_expected(
            numbers in prop::collection::vec(
                (
                    prop::option::of(number()), number(), prop::option::of(number()),
                    prop::option::of(number()), 0..COLUMN_KINDS.len(),
                ), 0..60),
        ) {
            let mut encoder = Encoder::default();
            let mut cells = [Cell::default(); COLUMN_KINDS.len()];
            for (value, first, second, third, kind) in &numbers {
                let expected = Expected::either(*first, *second).or(*third);
                encoder.number(COLUMN_KINDS[*kind], &mut value.clone(), expected, &mut cells[*kind]).unwrap();
            }
            let (symbols, noise) = (encoder.symbols.finish().to_vec(), encoder.noise.finish().to_vec());
            let mut models = SymbolModels::default();
            let mut decoder = Decoder::new(&mut models, &symbols, Bytes(&[]), &noise);
            let mut cells = [Cell::default(); COLUMN_KINDS.len()];
            for (value, first, second, third, kind) in &numbers {
                let expected = Expected::either(*first, *second).or(*third);
                let mut found = Some(7);
                decoder.number(COLUMN_KINDS[*kind], &mut found, expected, &mut cells[*kind]).unwrap();
                prop_assert_eq!(found, *value);
            }
        }

        #[test]
        fn places_of_rounded_numbers_are_in_their_order(one: u64, other: u64) {
            for kind in [NumberKind::Time, NumberKind::Age] {
                let (place, next) = (rounded_place(kind, one), rounded_place(kind, other));
                prop_assert_eq!(place.cmp(&next) as i32 * one.cmp(&other) as i32 >= 0, true);
                let number = rounded_number(kind, place).unwrap();
                prop_assert_eq!(rounded_place(kind, number), place);
                prop_assert!(number <= one);
                prop_assert!(rounded_number(kind, place + 1).is_none_or(|next| next > one));
            }
        }

        #[test]
        fn lengths_come_back(lengths in prop::collection::vec(any::<u32>(), 0..20)) {
            let mut bytes = Vec::new();
            lengths.iter().for_each(|length| push_length(&mut bytes, *length as usize));
            let mut bytes = Bytes(&bytes);
            for length in lengths {
                prop_assert_eq!(bytes.length(), Ok(length as usize));
            }
            prop_assert!(bytes.byte().is_err());
        }
    }
}
