//! Exports: their names, their promises, and the requests that those allow.

use std::fmt;

use thiserror::Error;

use crate::flags::TransmissionFlags;

/// The longest string of the protocol in bytes (specification, "Conventions").
pub const MAX_STRING: usize = 4096;

/// The reasons why a text cannot name an export.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportNameError {
    /// It is too long.
    #[error("an export name has at most {MAX_STRING} bytes, this one has {0}")]
    TooLong(usize),
    /// It is not UTF-8.
    #[error("an export name is UTF-8")]
    NotUtf8,
    /// It contains a NUL.
    #[error("an export name does not contain NUL")]
    Nul,
}

/// The name of an export: at most [`MAX_STRING`] bytes of UTF-8 without NUL. The empty name means the
/// server's default export.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExportName(String);

impl ExportName {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// When it is too long or contains a NUL.
    pub fn new(name: impl Into<String>) -> Result<Self, ExportNameError> {
        let name = name.into();
        if name.len() > MAX_STRING {
            return Err(ExportNameError::TooLong(name.len()));
        }
        if name.contains('\0') {
            return Err(ExportNameError::Nul);
        }
        Ok(Self(name))
    }

    /// Checks and takes a name off the wire.
    pub(crate) fn from_wire(bytes: &[u8]) -> Result<Self, ExportNameError> {
        if bytes.len() > MAX_STRING {
            return Err(ExportNameError::TooLong(bytes.len()));
        }
        Self::new(std::str::from_utf8(bytes).map_err(|_| ExportNameError::NotUtf8)?)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reasons why three numbers are not size constraints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BlockSizesError {
    /// The least block.
    #[error("the minimum block size must be a power of two up to 65536, not {0}")]
    Minimum(u32),
    /// The preferred block.
    #[error(
        "the preferred block size must be a power of two, at least 512 and the minimum block size, not {0}"
    )]
    Preferred(u32),
    /// The greatest payload.
    #[error("the maximum payload must be at least the preferred block size, not {0}")]
    Maximum(u32),
}

/// The sizes that a client must keep to, in bytes (specification, "Size constraints").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    minimum: u32,
    preferred: u32,
    maximum: u32,
    serves_parts: bool,
}

impl BlockSizes {
    /// The constraints if none were negotiated: every byte addressable, 4 KiB preferred, payloads up to 32
    /// MiB.
    pub const DEFAULT: Self = Self { minimum: 1, preferred: 4096, maximum: 32 << 20, serves_parts: false };

    /// The most data that fits one structured chunk, whose 32-bit length counts the 8 bytes of the offset
    /// too.
    const MAX_CHUNK_DATA: u32 = u32::MAX - 8;

    /// Checks and takes sizes: every offset and length is a multiple of `minimum`, multiples of `preferred`
    /// are cheap, no payload is longer than `maximum`. A `maximum` that no structured chunk can carry (the
    /// protocol's "no limit" among them) is lowered to what it can.
    ///
    /// # Errors
    /// When the sizes break the specification.
    pub fn new(minimum: u32, preferred: u32, maximum: u32) -> Result<Self, BlockSizesError> {
        if !minimum.is_power_of_two() || minimum > 65_536 {
            return Err(BlockSizesError::Minimum(minimum));
        }
        if !preferred.is_power_of_two() || preferred < minimum.max(512) {
            return Err(BlockSizesError::Preferred(preferred));
        }
        if maximum < preferred {
            return Err(BlockSizesError::Maximum(maximum));
        }
        let maximum = maximum.min(Self::MAX_CHUNK_DATA);
        Ok(Self { minimum, preferred, maximum, serves_parts: false })
    }

    /// The same sizes at a server that also serves parts of a minimum block. Clients that do not ask for the
    /// sizes do not know them.
    #[must_use]
    pub const fn with_parts(self) -> Self {
        Self { serves_parts: true, ..self }
    }

    /// Returns true if parts of a minimum block are served too.
    #[must_use]
    pub const fn serves_parts(self) -> bool {
        self.serves_parts
    }

    /// The least block, a power of two.
    #[must_use]
    pub const fn minimum(self) -> u32 {
        self.minimum
    }

    /// The block from which on requests are cheap, a power of two.
    #[must_use]
    pub const fn preferred(self) -> u32 {
        self.preferred
    }

    /// The greatest payload of a request or a reply.
    #[must_use]
    pub const fn maximum(self) -> u32 {
        self.maximum
    }
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// An export as the server describes it to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportDescription {
    /// The geometry that requests are judged by.
    pub geometry: ExportGeometry,
    /// For people; `""` for none. More than [`MAX_STRING`] bytes are not sent.
    pub description: String,
}

/// The part of an export that requests are judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportGeometry {
    /// The size in bytes.
    pub size: u64,
    /// The abilities of the export.
    pub flags: TransmissionFlags,
    /// The sizes that a client must keep to.
    pub blocks: BlockSizes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_keep_to_the_specification() {
        assert!(BlockSizes::new(1, 512, 512).is_ok());
        assert!(BlockSizes::new(65_536, 65_536, 1 << 20).is_ok());
        assert_eq!(BlockSizes::new(0, 512, 512), Err(BlockSizesError::Minimum(0)));
        assert_eq!(BlockSizes::new(3, 512, 512), Err(BlockSizesError::Minimum(3)));
        assert_eq!(BlockSizes::new(131_072, 131_072, 1 << 20), Err(BlockSizesError::Minimum(131_072)));
        assert_eq!(BlockSizes::new(1, 256, 512), Err(BlockSizesError::Preferred(256)));
        assert_eq!(BlockSizes::new(4096, 2048, 4096), Err(BlockSizesError::Preferred(2048)));
        assert_eq!(BlockSizes::new(1, 4096, 2048), Err(BlockSizesError::Maximum(2048)));
        assert_eq!(BlockSizes::new(1, 4096, u32::MAX).unwrap().maximum(), u32::MAX - 8);
    }
}
