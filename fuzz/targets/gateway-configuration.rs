//! The target `gateway-configuration`.

#![no_main]

tidegate_fuzz::target!(tidegate_serve::fuzz::gateway_configuration, at_most: 16 << 20);
