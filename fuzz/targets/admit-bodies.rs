//! The target `admit-bodies`.

#![no_main]

tidegate_fuzz::target!(tidegate_serve::fuzz::admit_bodies, at_most: 64 << 20);
