//! The content of writes.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::config::{LoadConfig, WritePayload};

/// A random payload is a window on random bytes that moves within this many bytes more than a block: each
/// write differs, and none costs more than a number.
const PAYLOAD_SLACK: usize = 64 << 10;

/// The source of payloads, one after the other.
pub(crate) struct PayloadSource {
    bytes: Vec<u8>,
    block: usize,
    random: Pcg64,
}

impl PayloadSource {
    pub(crate) fn new(config: &LoadConfig, block: u32, index: u32) -> Self {
        let block = block as usize;
        let seed = config.seed.wrapping_add(u64::from(index)) ^ 0xd1b5_4a32_d192_ed03;
        let mut random = Pcg64::seed_from_u64(seed);
        let bytes = match config.payload {
            _ if config.read_fraction >= 1.0 => Vec::new(),
            WritePayload::Zeroes => vec![0; block],
            WritePayload::Byte(byte) => vec![byte; block],
            WritePayload::Random => {
                let mut bytes = vec![0; block + PAYLOAD_SLACK];
                random.fill(&mut bytes[..]);
                bytes
            }
        };
        Self { bytes, block, random }
    }

    /// The next one; only for loads that write.
    pub(crate) fn next(&mut self) -> &[u8] {
        let slack = self.bytes.len() - self.block;
        let start = if slack == 0 { 0 } else { self.random.random_range(0..slack) };
        &self.bytes[start..start + self.block]
    }
}

#[cfg(test)]
mod tests {
    use tidegate_nbd::ExportName;

    use super::*;
    use crate::target::LoadTarget;

    fn payloads(payload: WritePayload) -> PayloadSource {
        let target = LoadTarget::unix("/x", ExportName::default());
        PayloadSource::new(&LoadConfig { payload, read_fraction: 0.0, ..LoadConfig::new(target) }, 4096, 0)
    }

    #[test]
    fn payloads_are_what_was_asked_for() {
        assert_eq!(payloads(WritePayload::Zeroes).next(), [0; 4096]);
        assert_eq!(payloads(WritePayload::Byte(7)).next(), [7; 4096]);
        let mut random = payloads(WritePayload::Random);
        let first = random.next().to_vec();
        assert_eq!(first.len(), 4096);
        assert_ne!(random.next(), first);
        assert_eq!(payloads(WritePayload::Random).next(), first, "the same seed makes the same load");
    }
}
