//! The target `nbd-requests`.

#![no_main]

tidegate_fuzz::target!(tidegate_nbd::fuzz::requests, at_most: 1 << 20);
