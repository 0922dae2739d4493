//! The target `agent-configuration`.

#![no_main]

tidegate_fuzz::target!(tidegate_agent::fuzz::agent_configuration, at_most: 16 << 20);
