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

impl<T> PlacedValue<T> {
    /// Turns the value into another one at the same place.
    #[must_use]
    pub fn map<U>(self, turn: impl FnOnce(T) -> U) -> PlacedValue<U> {
        PlacedValue { value: turn(self.value), span: self.span }
    }
}
