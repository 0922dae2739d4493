//! iSCSI (RFC 7143): PDUs, logins, and commands with their responses.

mod dialogue;
mod format;
mod login;
#[cfg(test)]
pub(crate) mod peers;

pub(crate) use dialogue::IscsiDialogue;

#[cfg(test)]
mod tests;
