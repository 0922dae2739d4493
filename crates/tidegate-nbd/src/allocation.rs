//! The allocation of a range: what a block status in the context `base:allocation` tells.

use crate::input::MessageFields;
use crate::transmission::MessageStyle;

/// The name of the one metadata context that is spoken.
pub const ALLOCATION_NAME: &str = "base:allocation";

/// The id that the server gives that context.
pub const ALLOCATION_CONTEXT: u32 = 1;

/// The most extents of one answer. Chosen: 16 KiB of answer, far above what a client needs to go on, and a
/// bound on what one request costs the storage.
pub const MOST_EXTENTS: usize = 1024;

const HOLE: u64 = 1;
const ZERO: u64 = 2;

/// The state of one extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AllocationState {
    /// Nothing is allocated for it: a write may fail for lack of space.
    pub hole: bool,
    /// It reads as zeroes.
    pub zero: bool,
}

impl AllocationState {
    /// Allocated, with contents that are not known: always a true answer.
    pub const DATA: Self = Self { hole: false, zero: false };

    /// Not allocated, and reads as zeroes.
    pub const HOLE: Self = Self { hole: true, zero: true };

    /// Reads a state from the flags of the wire. Unknown flags are ignored.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { hole: bits & HOLE != 0, zero: bits & ZERO != 0 }
    }

    /// For the wire.
    #[must_use]
    pub const fn bits(self) -> u64 {
        (if self.hole { HOLE } else { 0 }) | (if self.zero { ZERO } else { 0 })
    }
}

/// A part of a range with one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationExtent {
    /// The length in bytes; never zero.
    pub length: u64,
    /// The state.
    pub state: AllocationState,
}

/// The answer to a block status: extents that follow each other from the beginning of the range. It ends
/// with the range at the latest, and with the last extent that it has room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationMap {
    extents: Vec<AllocationExtent>,
    length: u64,
    covered: u64,
    most: usize,
    full: bool,
}

impl AllocationMap {
    /// An empty answer for a range of this length, which is not zero: of one extent, or of up to
    /// [`MOST_EXTENTS`].
    #[must_use]
    pub fn new(length: u64, one: bool) -> Self {
        let most = if one { 1 } else { MOST_EXTENTS };
        Self { extents: Vec::new(), length, covered: 0, most, full: false }
    }

    /// Takes the next extent: what follows the last one. One of the same state continues the last one, and
    /// what lies beyond the range is left out.
    pub fn push(&mut self, length: u64, state: AllocationState) {
        let length = length.min(self.length - self.covered);
        if self.full || length == 0 {
            return;
        }
        let room = self.extents.len() < self.most;
        match self.extents.last_mut() {
            Some(last) if last.state == state => last.length += length,
            _ if !room => {
                self.full = true;
                return;
            }
            _ => self.extents.push(AllocationExtent { length, state }),
        }
        self.covered += length;
        self.full = self.covered == self.length;
    }

    /// Returns true if it takes an extent of another state than the last one.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.full && self.extents.len() < self.most
    }

    /// Returns true if it takes nothing more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Returns the number of bytes that it tells about so far.
    #[must_use]
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// The extents, in their order.
    #[must_use]
    pub fn extents(&self) -> &[AllocationExtent] {
        &self.extents
    }

    /// Returns the bytes that so many extents occupy on the wire.
    #[must_use]
    pub const fn encoded_length(style: MessageStyle, extents: usize) -> usize {
        extents * if matches!(style, MessageStyle::Extended) { 16 } else { 8 }
    }

    /// Writes the extents to the beginning of `out`, which is long enough; returns their length in bytes.
    /// Under compact headers a range is shorter than 4 GiB, and so is every extent.
    pub fn encode(&self, style: MessageStyle, out: &mut [u8]) -> usize {
        let each = Self::encoded_length(style, 1);
        for (extent, bytes) in self.extents.iter().zip(out.chunks_exact_mut(each)) {
            let (length, state) = (extent.length, extent.state.bits());
            if style == MessageStyle::Extended {
                bytes[..8].copy_from_slice(&length.to_be_bytes());
                bytes[8..].copy_from_slice(&state.to_be_bytes());
            } else {
                debug_assert!(u32::try_from(length).is_ok(), "{length} does not fit");
                bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
                bytes[4..].copy_from_slice(&(state as u32).to_be_bytes());
            }
        }
        self.extents.len() * each
    }
}

/// Reads one extent off the wire; `None` when its length is zero.
pub(crate) fn parse_extent(bytes: &[u8]) -> Option<AllocationExtent> {
    let mut fields = MessageFields(bytes);
    let (length, bits) = match bytes.len() {
        16 => (fields.u64()?, fields.u64()?),
        _ => (u64::from(fields.u32()?), u64::from(fields.u32()?)),
    };
    (length > 0).then(|| AllocationExtent { length, state: AllocationState::from_bits(bits) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state() -> impl Strategy<Value = AllocationState> {
        (0u64..4).prop_map(AllocationState::from_bits)
    }

    #[test]
    fn a_huge_range_gets_a_short_answer() {
        let mut map = AllocationMap::new(1 << 63, false);
        while !map.is_full() {
            map.push(4096, AllocationState::DATA);
            map.push(4096, AllocationState::HOLE);
        }
        assert_eq!((map.extents().len(), map.covered()), (MOST_EXTENTS, 4096 * MOST_EXTENTS as u64));
        let mut map = AllocationMap::new(1 << 63, false);
        map.push(u64::MAX, AllocationState::HOLE);
        assert_eq!(map.extents(), [AllocationExtent { length: 1 << 63, state: AllocationState::HOLE }]);
    }

    #[test]
    fn one_extent_is_as_long_as_its_state_lasts() {
        let mut map = AllocationMap::new(100, true);
        for (length, state) in [
            (10, AllocationState::DATA),
            (5, AllocationState::DATA),
            (5, AllocationState::HOLE),
            (5, AllocationState::DATA),
        ] {
            map.push(length, state);
        }
        assert_eq!(map.extents(), [AllocationExtent { length: 15, state: AllocationState::DATA }]);
        assert!(map.is_full());
    }

    proptest! {
        #[test]
        fn a_map_tells_the_beginning_of_what_was_pushed(
            length in 1u64..200, one in any::<bool>(),
            pushed in prop::collection::vec((0u64..30, state()), 0..40), extended in any::<bool>(),
        ) {
            let mut map = AllocationMap::new(length, one);
            for (length, state) in &pushed {
                map.push(*length, *state);
            }
            let bytes = pushed.iter().flat_map(|(length, state)| (0..*length).map(|_| *state));
            let told: Vec<_> =
                map.extents().iter().flat_map(|extent| (0..extent.length).map(|_| extent.state)).collect();
            prop_assert!(bytes.take(told.len()).eq(told.iter().copied()));
            prop_assert!(told.len() as u64 == map.covered() && map.covered() <= length);
            prop_assert!(map.extents().windows(2).all(|pair| pair[0].state != pair[1].state));
            prop_assert!(!one || map.extents().len() <= 1);

            let style = if extended { MessageStyle::Extended } else { MessageStyle::Structured };
            let mut wire = [0; 1024];
            let written = map.encode(style, &mut wire);
            let each = AllocationMap::encoded_length(style, 1);
            let again: Option<Vec<_>> = wire[..written].chunks(each).map(parse_extent).collect();
            prop_assert_eq!(again.as_deref(), Some(map.extents()));
        }
    }
}
