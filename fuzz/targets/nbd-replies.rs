//! The target `nbd-replies`.

#![no_main]

tidegate_fuzz::target!(tidegate_nbd::fuzz::replies, at_most: 1 << 20);
