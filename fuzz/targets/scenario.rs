//! The target `scenario`.

#![no_main]

tidegate_fuzz::target!(tidegate_sim::fuzz::scenario, at_most: 64 << 20);
