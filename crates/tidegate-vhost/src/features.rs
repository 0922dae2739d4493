//! The disk as a guest sees it: features and configuration space.

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::request::{MOST_SEGMENTS, SECTOR};

/// The most rings of one disk. Chosen: a ring for each processor of most guests; the worker serves them all.
pub const MOST_QUEUES: u16 = 64;

/// The longest ring that is taken.
pub(crate) const LONGEST_RING: u16 = 1024;

/// Sectors of one range to discard or to zero: 1 GiB, so that its length in bytes fits 32 bits.
const MOST_RANGE_SECTORS: u32 = 1 << 21;

/// The offset at which the guest writes its choice of the write cache.
pub(crate) const CACHE_OFFSET: u32 = 32;

/// The length of the configuration space, as far as its fields have a meaning here.
const CONFIG_BYTES: usize = 60;

const fn bit(number: u32) -> u64 {
    1 << number
}

/// The properties of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskProperties {
    /// The least block that can be addressed, a power of two.
    pub block: u32,
    /// The greatest payload in bytes.
    pub payload: u32,
    /// Refuses every change.
    pub read_only: bool,
    /// Can bring writes to stable storage when the guest asks for it. A disk that cannot has them there, as
    /// far as it knows, once it has answered them.
    pub flush: bool,
    /// Can discard ranges.
    pub discard: bool,
    /// Can make ranges zero.
    pub zeroes: bool,
    /// The name that the guest is told; cut to 20 bytes.
    pub serial: String,
    /// A number that stands for the volume, never zero. The record of a guest's requests in flight that was
    /// made for another volume is refused.
    pub volume: u64,
}

impl DiskProperties {
    /// The virtio features that are offered.
    pub(crate) fn features(&self) -> u64 {
        let mut features = bit(VIRTIO_F_VERSION_1)
            | bit(VIRTIO_RING_F_EVENT_IDX)
            | bit(VIRTIO_RING_F_INDIRECT_DESC)
            | bit(VIRTIO_BLK_F_SIZE_MAX)
            | bit(VIRTIO_BLK_F_SEG_MAX)
            | bit(VIRTIO_BLK_F_BLK_SIZE)
            | bit(VIRTIO_BLK_F_MQ);
        if self.flush {
            features |= bit(VIRTIO_BLK_F_FLUSH) | bit(VIRTIO_BLK_F_CONFIG_WCE);
        }
        if self.read_only {
            features |= bit(VIRTIO_BLK_F_RO);
        }
        if self.discard {
            features |= bit(VIRTIO_BLK_F_DISCARD);
        }
        if self.zeroes {
            features |= bit(VIRTIO_BLK_F_WRITE_ZEROES);
        }
        features
    }

    /// The block that the guest is told: no smaller than a sector.
    fn block(&self) -> u32 {
        self.block.max(SECTOR as u32)
    }

    /// The configuration space. `size` is in bytes; a rest that fills no block is not there for the guest.
    /// `cache` is the guest's choice of the write cache.
    pub(crate) fn config(&self, size: u64, cache: bool) -> [u8; CONFIG_BYTES] {
        let mut config = [0; CONFIG_BYTES];
        let mut put =
            |offset: usize, bytes: &[u8]| config[offset..offset + bytes.len()].copy_from_slice(bytes);
        // The offsets are those of `struct virtio_blk_config`.
        let whole_blocks = size - size % u64::from(self.block());
        put(0, &(whole_blocks / SECTOR).to_le_bytes());
        // Both together stay within the payload.
        put(8, &(self.payload / (MOST_SEGMENTS + 2)).to_le_bytes());
        put(12, &MOST_SEGMENTS.to_le_bytes());
        put(20, &self.block().to_le_bytes());
        put(CACHE_OFFSET as usize, &[u8::from(cache)]);
        put(34, &MOST_QUEUES.to_le_bytes());
        let sectors_of_block = self.block() / SECTOR as u32;
        put(36, &MOST_RANGE_SECTORS.to_le_bytes());
        put(40, &1u32.to_le_bytes());
        put(44, &sectors_of_block.to_le_bytes());
        put(48, &MOST_RANGE_SECTORS.to_le_bytes());
        put(52, &1u32.to_le_bytes());
        put(56, &[1]);
        config
    }
}

/// Returns true if the guest has taken a feature.
pub(crate) fn has(features: u64, number: u32) -> bool {
    features & bit(number) != 0
}

/// Returns true if a guest that has taken these features may let writes wait in the cache: without the flush
/// it could never bring them to stable storage.
pub(crate) fn may_cache(features: u64, cache: bool) -> bool {
    has(features, VIRTIO_BLK_F_FLUSH) && (cache || !has(features, VIRTIO_BLK_F_CONFIG_WCE))
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use virtio_bindings::bindings::virtio_blk::virtio_blk_config;

    use super::*;

    fn disk() -> DiskProperties {
        DiskProperties {
            block: 1,
            payload: 32 << 20,
            read_only: false,
            flush: true,
            discard: true,
            zeroes: true,
            serial: "database".into(),
            volume: 1,
        }
    }

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        assert_eq!(offset_of!(virtio_blk_config, size_max), 8);
        assert_eq!(offset_of!(virtio_blk_config, seg_max), 12);
        assert_eq!(offset_of!(virtio_blk_config, blk_size), 20);
        assert_eq!(offset_of!(virtio_blk_config, wce), CACHE_OFFSET as usize);
        assert_eq!(offset_of!(virtio_blk_config, num_queues), 34);
        assert_eq!(offset_of!(virtio_blk_config, max_discard_sectors), 36);
        assert_eq!(offset_of!(virtio_blk_config, discard_sector_alignment), 44);
        assert_eq!(offset_of!(virtio_blk_config, max_write_zeroes_sectors), 48);
        assert_eq!(offset_of!(virtio_blk_config, write_zeroes_may_unmap), 56);
    }

    #[test]
    fn the_largest_request_fits_the_payload_and_the_size_is_whole_blocks() {
        let word = |config: &[u8], at: usize| u32::from_le_bytes(config[at..at + 4].try_into().unwrap());
        let config = disk().config((1 << 30) + 700, true);
        assert!(u64::from(word(&config, 8)) * u64::from(word(&config, 12)) <= 32 << 20);
        assert_eq!(config[..8], (((1u64 << 30) + 512) / 512).to_le_bytes());
        let config = DiskProperties { block: 4096, ..disk() }.config((1 << 30) + 700, false);
        assert_eq!(config[..8], ((1u64 << 30) / 512).to_le_bytes());
        assert_eq!((word(&config, 20), config[32]), (4096, 0));
    }

    #[test]
    fn writes_are_cached_only_where_the_guest_can_flush_and_wants_to() {
        let all = disk().features();
        assert!(may_cache(all, true) && !may_cache(all, false));
        assert!(may_cache(all & !bit(VIRTIO_BLK_F_CONFIG_WCE), false), "it has no choice");
        assert!(!may_cache(all & !bit(VIRTIO_BLK_F_FLUSH), true));
        let read_only = DiskProperties { read_only: true, discard: false, ..disk() }.features();
        assert!(has(read_only, VIRTIO_BLK_F_RO) && !has(read_only, VIRTIO_BLK_F_DISCARD));
    }
}
