//! The style of a session's messages.

/// The style of a session's requests and replies, as negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageStyle {
    /// Compact requests, and simple replies only.
    Simple,
    /// Compact requests, and structured replies wherever data or an error is involved.
    Structured,
    /// Extended requests and replies only.
    Extended,
}

impl MessageStyle {
    /// Returns true if replies consist of chunks, so that they can tell of holes and of allocation.
    #[must_use]
    pub const fn has_chunks(self) -> bool {
        !matches!(self, Self::Simple)
    }
}
