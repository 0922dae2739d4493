//! Numbers in columns: each as its difference from what was expected of it.
//!
//! A number has one symbol, a byte, in the plane of its column, and perhaps bits in the common bit stream:
//!
//! | symbol | meaning |
//! |---|---|
//! | 0 | no number |
//! | 1 | the first expectation |
//! | 2 | the second expectation |
//! | 3 + 65·u + l | a difference of l bits, in units of 1, 1,000 or 1,000,000 (u = 0, 1, 2) |
//!
//! The difference is signed and folded: 0, −1, 1, −2 become 0, 1, 2, 3. Its highest bit is always one, and
//! the lower l − 1 bits follow in the bit stream. Symbols repeat, and zstd compresses them. The bits are the
//! noise of the measurement, which no compression shortens.
//!
//! Both expectations are known to the reader, and so is which of them came closer of late.

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
    ReadingRate,
    ReadingBytes,
}

/// Columns that each resource has once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ResourceColumn {
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
pub(crate) const CONSUMER_COLUMNS: usize = ConsumerColumn::ReadingBytes as usize + 1;

/// Number of columns of a resource.
pub(crate) const RESOURCE_COLUMNS: usize = ResourceColumn::LoadActiveShares as usize + 1;

/// Number of planes of symbols in a block.
pub(crate) const PLANES: usize = CONSUMER_COLUMNS + RESOURCE_COLUMNS;

/// Place of a column's plane in a block.
pub(crate) trait Column: Copy {
    fn plane(self) -> usize;

    /// Returns the place among the columns of its kind.
    fn cell(self) -> usize;

    /// Returns true if the numbers are times, which many sensors know in whole micro- or milliseconds.
    fn is_time(self) -> bool;
}

impl Column for ConsumerColumn {
    fn plane(self) -> usize {
        self as usize
    }

    fn cell(self) -> usize {
        self as usize
    }

    fn is_time(self) -> bool {
        matches!(
            self,
            Self::ReadLatency
                | Self::ReadOldest
                | Self::WriteLatency
                | Self::WriteOldest
                | Self::OutstandingNanos
                | Self::ShortOfTokens
                | Self::SchedulerWait
                | Self::ReleaseToCompletion
                | Self::OldestReleased
                | Self::CommandDelay
                | Self::ReadingDelay
        )
    }
}

impl Column for ResourceColumn {
    fn plane(self) -> usize {
        CONSUMER_COLUMNS + self as usize
    }

    fn cell(self) -> usize {
        self as usize
    }

    fn is_time(self) -> bool {
        matches!(
            self,
            Self::Spacing
                | Self::PercentileLatency
                | Self::PercentileStretch
                | Self::ClusterMean
                | Self::ClusterOldest
                | Self::ClusterSetPoint
                | Self::LoadMean
        )
    }
}

/// Memory of one column of a consumer or resource: its last number, and which expectation came closer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cell {
    pub(crate) last: u64,
    /// Bits that the first expectation has cost beyond the second one, of late.
    balance: i16,
}

/// The two expectations of a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    first: u64,
    second: Option<u64>,
}

impl Expected {
    /// Expects one number.
    pub(crate) const fn one(first: u64) -> Self {
        Self { first, second: None }
    }

    /// Expects one number or, if there is one, another.
    pub(crate) const fn either(first: u64, second: Option<u64>) -> Self {
        Self { first, second }
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
const SECOND: u8 = 2;
const DIFFERENCE: u8 = 3;
/// Lengths of a difference in bits: 0 to 64.
const LENGTHS: u8 = 65;
const UNITS: [u64; 3] = [1, 1_000, 1_000_000];

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
    fn base(&self, expected: Expected) -> u64 {
        expected.second.filter(|_| self.balance > 0).unwrap_or(expected.first)
    }

    fn learn(&mut self, value: u64, expected: Expected) {
        if let Some(second) = expected.second {
            let difference = cost(value, expected.first) - cost(value, second);
            self.balance += difference - self.balance / 4;
        }
        self.last = value;
    }
}

fn unit_of(column: impl Column, value: u64) -> usize {
    if !column.is_time() || value == 0 || !value.is_multiple_of(UNITS[1]) {
        0
    } else if value.is_multiple_of(UNITS[2]) {
        2
    } else {
        1
    }
}

/// Symbols, bits and documents of a block that is being written.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub(crate) planes: Vec<Vec<u8>>,
    pub(crate) documents: Vec<u8>,
    pub(crate) noise: BitWriter,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { planes: vec![Vec::new(); PLANES], documents: Vec::new(), noise: BitWriter::default() }
    }
}

impl Encoder {
    /// Returns the size of everything so far, before compression.
    pub(crate) fn len(&self) -> usize {
        self.planes.iter().map(Vec::len).sum::<usize>() + self.documents.len() + self.noise.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.planes.iter_mut().for_each(Vec::clear);
        self.documents.clear();
        self.noise.clear();
    }
}

impl Coder for Encoder {
    fn number(
        &mut self,
        column: impl Column,
        value: &mut Option<u64>,
        expected: Expected,
        cell: &mut Cell,
    ) -> Result<(), DamagedBlock> {
        let plane = &mut self.planes[column.plane()];
        let Some(value) = *value else {
            plane.push(NONE);
            return Ok(());
        };
        if value == expected.first {
            plane.push(FIRST);
        } else if Some(value) == expected.second {
            plane.push(SECOND);
        } else {
            let unit = unit_of(column, value);
            let base = cell.base(expected) / UNITS[unit];
            let difference = folded((value / UNITS[unit]).wrapping_sub(base));
            let length = bits(difference);
            // 3 + 2·65 + 64 is the greatest symbol.
            plane.push(DIFFERENCE + LENGTHS * unit as u8 + length as u8);
            self.noise.push(difference, length.saturating_sub(1));
        }
        cell.learn(value, expected);
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

/// Symbols, bits and documents of a block that is being read.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    pub(crate) planes: Vec<Bytes<'a>>,
    pub(crate) documents: Bytes<'a>,
    pub(crate) noise: BitReader<'a>,
}

impl Coder for Decoder<'_> {
    fn number(
        &mut self,
        column: impl Column,
        value: &mut Option<u64>,
        expected: Expected,
        cell: &mut Cell,
    ) -> Result<(), DamagedBlock> {
        let symbol = self.planes[column.plane()].byte()?;
        let found = match symbol {
            NONE => {
                *value = None;
                return Ok(());
            }
            FIRST => expected.first,
            SECOND => expected.second.ok_or(DamagedBlock("a number refers to nothing"))?,
            symbol => {
                let (unit, length) = ((symbol - DIFFERENCE) / LENGTHS, (symbol - DIFFERENCE) % LENGTHS);
                let unit = *UNITS.get(usize::from(unit)).ok_or(DamagedBlock("a symbol is unknown"))?;
                let difference = match u32::from(length).checked_sub(1) {
                    None => 0,
                    Some(lower) => self.noise.take(lower)? | 1 << lower,
                };
                let base = cell.base(expected) / unit;
                base.wrapping_add(unfolded(difference)).wrapping_mul(unit)
            }
        };
        *value = Some(found);
        cell.learn(found, expected);
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

    use super::*;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            0..100_u64,
            any::<u64>(),
            (0..1_000_u64).prop_map(|ms| ms * 1_000_000),
            Just(u64::MAX)
        ]
    }

    proptest! {
        #[test]
        fn numbers_come_back_whatever_was_expected(
            numbers in prop::collection::vec(
                (prop::option::of(number()), number(), prop::option::of(number()), any::<bool>()), 0..60),
        ) {
            let mut encoder = Encoder::default();
            let mut cells = [Cell::default(); 2];
            for (value, first, second, is_time) in &numbers {
                let expected = Expected::either(*first, *second);
                let column = if *is_time { ConsumerColumn::ReadLatency } else { ConsumerColumn::ReadCount };
                let cell = &mut cells[usize::from(*is_time)];
                encoder.number(column, &mut value.clone(), expected, cell).unwrap();
            }
            let noise = encoder.noise.finish().to_vec();
            let mut decoder = Decoder {
                planes: encoder.planes.iter().map(|plane| Bytes(plane)).collect(),
                documents: Bytes(&[]),
                noise: BitReader::new(&noise),
            };
            let mut cells = [Cell::default(); 2];
            for (value, first, second, is_time) in &numbers {
                let expected = Expected::either(*first, *second);
                let column = if *is_time { ConsumerColumn::ReadLatency } else { ConsumerColumn::ReadCount };
                let mut found = Some(7);
                decoder.number(column, &mut found, expected, &mut cells[usize::from(*is_time)]).unwrap();
                prop_assert_eq!(found, *value);
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
