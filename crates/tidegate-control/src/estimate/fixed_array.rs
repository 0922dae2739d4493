//! Arrays of a fixed length in a checkpoint. Serde itself knows only arrays of up to 32 elements.

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

/// Writes the elements as a sequence.
pub(crate) fn serialize<T: Serialize, S: Serializer, const N: usize>(
    array: &[T; N],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    array.as_slice().serialize(serializer)
}

/// Reads a sequence of exactly this length.
pub(crate) fn deserialize<'de, T, D, const N: usize>(deserializer: D) -> Result<[T; N], D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    fixed(Vec::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Returns the elements as an array.
pub(crate) fn fixed<T, const N: usize>(elements: Vec<T>) -> Result<[T; N], String> {
    let length = elements.len();
    elements.try_into().map_err(|_| format!("{length} numbers where {N} are needed"))
}
