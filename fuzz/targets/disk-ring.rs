//! The target `disk-ring`.

#![no_main]

tidegate_fuzz::target!(tidegate_vhost::fuzz::ring, at_most: 1 << 20);
