//! The target `nbd-client-handshake`.

#![no_main]

tidegate_fuzz::target!(tidegate_nbd::fuzz::client_handshake, at_most: 4 << 20);
