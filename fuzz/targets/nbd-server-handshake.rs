//! The target `nbd-server-handshake`.

#![no_main]

tidegate_fuzz::target!(tidegate_nbd::fuzz::server_handshake, at_most: 1 << 20);
