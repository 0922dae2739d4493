//! The target `decision-journal`.

#![no_main]

tidegate_fuzz::target!(tidegate_journal::fuzz::decision_journal, at_most: 256 << 20);
