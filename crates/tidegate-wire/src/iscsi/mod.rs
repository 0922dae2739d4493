//! iSCSI (RFC 7143): PDUs, logins, and commands with their responses.

mod connection;
mod format;
mod login;
#[cfg(any(test, fuzzing))]
pub(crate) mod peers;

pub(crate) use connection::{CommandKind, CompletedCommand, IscsiConnection, LogicalUnit};
pub(crate) use login::SessionNames;

#[cfg(test)]
mod tests;
