//! The target `rollups`.

#![no_main]

tidegate_fuzz::target!(tidegate_rollups::fuzz::rollups, at_most: 256 << 20);
