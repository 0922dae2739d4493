//! The target `broker-bodies`.

#![no_main]

tidegate_fuzz::target!(tidegate_transfer::fuzz::broker_bodies, at_most: 16 << 20);
