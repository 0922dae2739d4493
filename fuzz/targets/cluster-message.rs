//! The target `cluster-message`.

#![no_main]

tidegate_fuzz::target!(tidegate_cluster::fuzz::message, at_most: 4 << 20);
