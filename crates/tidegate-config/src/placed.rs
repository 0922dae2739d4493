//! A value with its place in a document.

use std::ops::Range;

/// A value with its place.
#[derive(Debug, Clone)]
pub struct PlacedValue<T> {
    /// The value.
    pub value: T,
    /// Its place, in bytes of the text.
    pub span: Range<usize>,
}
