//! The programs `latency` (`bpf/latency.c`): how long reads and writes take at block devices, counted in
//! buckets.

use super::AlignedBytes;

static ALIGNED: &AlignedBytes<[u8]> = &AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/latency.o")));

/// The programs and their maps, as an ELF object.
pub static OBJECT: &[u8] = &ALIGNED.0;

/// Each program's name, in the object and in the kernel, with the tracepoint that it is for. They are
/// attached in this order: a bio is not seen to end before bios are seen to begin.
pub const PROGRAMS: [(&str, &str); 3] = [
    ("tidegate_rq_end", "block_rq_complete"),
    ("tidegate_begin", "block_bio_queue"),
    ("tidegate_end", "block_bio_complete"),
];

/// By [`key`]: a [`LatencyCounts`] per processor. Only devices that have an entry are counted. Who loads it
/// says how many it has room for.
pub const TIMES: &str = "tidegate_times";

/// Eight buckets per octave.
const SUB_BITS: u32 = 3;
/// Up to 2^10 ns (1 µs) everything is one bucket.
const FINEST_BITS: u32 = 10;
/// Above 2^36 ns (69 s) everything is one bucket.
const COARSEST_BITS: u32 = 36;

/// Buckets of a histogram.
pub const BUCKETS: usize = (((COARSEST_BITS - FINEST_BITS) << SUB_BITS) + 2) as usize;

/// By how much the upper bound of a bucket exceeds what is in it, at most, as a part of that; except in the
/// first and the last one.
pub const RELATIVE_ERROR: f64 = 1.0 / (1 << SUB_BITS) as f64;

/// Counts of one processor for a device, in the map's format: nanoseconds of all reads together, then reads
/// by bucket. The same of writes follows.
pub type LatencyCounts = [u64; 2 * (1 + BUCKETS)];

/// The sum of response times in nanoseconds, and how many there were in each bucket: of reads, and of writes.
#[must_use]
pub fn reads_and_writes(times: &LatencyCounts) -> [(u64, &[u64]); 2] {
    let (reads, writes) = times.split_at(1 + BUCKETS);
    [reads, writes].map(|times| (times[0], &times[1..]))
}

/// The key of a device: its number as the kernel has it inside.
#[must_use]
pub const fn key(major: u32, minor: u32) -> u32 {
    const MINOR_BITS: u32 = 20;
    major << MINOR_BITS | minor
}

/// The greatest number of nanoseconds that a bucket is for; `u64::MAX` for the last one.
#[must_use]
pub const fn upper_bound(bucket: usize) -> u64 {
    if bucket == 0 {
        return 1 << FINEST_BITS;
    }
    if bucket >= BUCKETS - 1 {
        return u64::MAX;
    }
    let (octave, sub) = ((bucket as u64 - 1) >> SUB_BITS, (bucket as u64 - 1) & ((1 << SUB_BITS) - 1));
    let base = 1 << (octave + FINEST_BITS as u64);
    base + (sub + 1) * (base >> SUB_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_ascend_from_a_microsecond_to_69_seconds_and_beyond() {
        let bounds: Vec<u64> = (0..BUCKETS).map(upper_bound).collect();
        assert!(bounds.is_sorted_by(|a, b| a < b));
        assert_eq!((bounds[0], bounds[1], bounds[8]), (1_024, 1_152, 2_048));
        assert_eq!(bounds[BUCKETS - 2..], [1 << COARSEST_BITS, u64::MAX]);
    }

    #[test]
    fn a_bucket_is_no_wider_than_is_said() {
        for bucket in 1..BUCKETS - 1 {
            let (below, bound) = (upper_bound(bucket - 1), upper_bound(bucket));
            assert!((bound - below) as f64 <= RELATIVE_ERROR * below as f64, "{bucket}");
        }
    }

    #[test]
    fn a_device_number_is_the_kernels() {
        assert_eq!(key(253, 7), 0x0fd0_0007);
        assert_eq!(key(0xfff, 0xf_ffff), u32::MAX);
    }
}
