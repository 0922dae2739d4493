//! Collecting a known number of bytes from input that arrives in arbitrary pieces.

/// Bytes of one message that is not complete yet. It never keeps more than was asked for.
#[derive(Debug, Default)]
pub(crate) struct MessageCollector {
    bytes: Vec<u8>,
}

impl MessageCollector {
    /// Moves bytes from `input` until `wanted` are collected; says whether they are.
    pub(crate) fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.bytes.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.bytes.extend_from_slice(taken);
        *input = rest;
        self.bytes.len() == wanted
    }

    /// Collects exactly `N` bytes and yields them, ready for the next message.
    pub(crate) fn take<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        if !self.fill(input, N) {
            return None;
        }
        let mut message = [0; N];
        message.copy_from_slice(&self.bytes);
        self.bytes.clear();
        Some(message)
    }

    /// Collects `length` bytes and yields them, ready for the next message.
    pub(crate) fn take_vec(&mut self, input: &mut &[u8], length: usize) -> Option<Vec<u8>> {
        self.fill(input, length).then(|| std::mem::take(&mut self.bytes))
    }

    /// Reads the bytes that were [filled](Self::fill) in, and is ready for the next message.
    pub(crate) fn read<T>(&mut self, reader: impl FnOnce(&[u8]) -> T) -> T {
        let outcome = reader(&self.bytes);
        self.bytes.clear();
        outcome
    }

    /// Returns true if no part of a message is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of bytes kept.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        self.bytes.len()
    }
}

/// Drops up to `remaining` bytes of `input` and counts them off; says whether none remains.
pub(crate) fn skip(input: &mut &[u8], remaining: &mut u64) -> bool {
    let dropped = usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.len());
    *input = &input[dropped..];
    *remaining -= dropped as u64;
    *remaining == 0
}

/// Big-endian numbers and slices off the front of a message whose length is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageFields<'a>(pub(crate) &'a [u8]);

impl<'a> MessageFields<'a> {
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}
