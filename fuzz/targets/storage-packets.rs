//! The target `storage-packets`.

#![no_main]

tidegate_fuzz::target!(tidegate_wire::fuzz::packets, at_most: 16 << 20);
