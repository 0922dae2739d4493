//! The target `cluster-policy`.

#![no_main]

tidegate_fuzz::target!(tidegate_cluster::fuzz::policy, at_most: 4 << 20);
