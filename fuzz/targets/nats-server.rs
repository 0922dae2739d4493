//! The target `nats-server`.

#![no_main]

tidegate_fuzz::target!(tidegate_nats::fuzz::server, at_most: 1 << 20);
