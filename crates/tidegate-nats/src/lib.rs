//! Connections to servers of NATS, with a bound on everything that the server sends.
//!
//! The client library keeps whatever a server announces: a message of any length, a line without an end. So it
//! does not speak to the server itself. [`connect`] does, and hands the library a connection over loopback; a
//! relay between the two lets pass what has an expected length ([`guard`]). Encryption ends at the relay.

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guard;
mod relay;
mod servers;

pub use guard::ProtocolViolation;
pub use relay::{Encryption, NatsError, Relay, connect};
pub use servers::NatsServers;
