//! Whole numbers of variable length: seven bits in each byte, the lowest first. All bytes but the last have
//! the highest bit set.

use crate::error::DamagedBlock;

/// Appends a number.
pub(crate) fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number from the beginning.
pub(crate) fn take(bytes: &mut &[u8]) -> Result<u64, DamagedBlock> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(DamagedBlock("it ends within a number"))?;
        *bytes = rest;
        let part = u64::from(byte & 0x7F);
        if part << shift >> shift != part {
            break;
        }
        number |= part << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(DamagedBlock("a number is too large"))
}

/// Takes a number that counts something in memory.
pub(crate) fn take_length(bytes: &mut &[u8]) -> Result<usize, DamagedBlock> {
    usize::try_from(take(bytes)?).map_err(|_| DamagedBlock("a number is too large"))
}

/// Folds a difference: 0, −1, 1, −2 are 0, 1, 2, 3. Differences are modulo 2⁶⁴.
pub(crate) fn fold(difference: u64) -> u64 {
    (difference << 1) ^ ((difference.cast_signed() >> 63).cast_unsigned())
}

/// Returns the difference of a folded number.
pub(crate) fn unfold(folded: u64) -> u64 {
    (folded >> 1) ^ (folded & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(number in any::<u64>(), bits in 0_u32..64) {
            let number = number >> bits;
            let mut bytes = Vec::new();
            push(&mut bytes, number);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(take(&mut rest), Ok(number));
            prop_assert!(rest.is_empty());
            prop_assert!(take(&mut &bytes[..bytes.len() - 1]).is_err());
            prop_assert_eq!(unfold(fold(number)), number);
        }
    }

    #[test]
    fn small_differences_are_small_and_large_numbers_are_refused() {
        let differences: [i64; 4] = [0, -1, 1, -2];
        assert_eq!(differences.map(|difference| fold(difference.cast_unsigned())), [0, 1, 2, 3]);
        assert!(take(&mut &[0xFF; 11][..]).is_err());
        let mut largest = vec![0xFF; 9];
        largest.push(2);
        assert!(take(&mut &largest[..]).is_err());
    }
}
