//! The target `catalogue-journal`.

#![no_main]

tidegate_fuzz::target!(tidegate_transfer::fuzz::catalogue_journal, at_most: 8 << 20);
