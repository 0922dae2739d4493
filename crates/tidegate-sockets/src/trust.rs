//! The users whose programs are believed at the other end of a connection within this machine.
//!
//! Any user can listen at a port that no service has. What such a program answers is not a service's, and a token
//! is nothing for it. A check counts for the connection that it was made of, and for no later one.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;
use thiserror::Error;

use crate::holders::users_of_connection;

/// The runtime directories of the gateway and the agent that the packages install.
pub const RUNTIME_DIRECTORIES: [&str; 2] = ["/run/tidegate", "/run/tidegate-agent"];

/// The state directory of the packaged broker, which has no operator's socket.
const OF_BROKER: &str = "/var/lib/tidegate-broker";

/// The reason why a program at the other end of a plain connection could be any user's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnknownPeer {
    /// The other end is on another machine.
    #[error("plain HTTP does not tell who answers on another machine")]
    OtherMachine,
    /// The kernel knows no program there.
    #[error(
        "the system does not tell who listens there; if the port leads into a container or to another machine, \
         use an `https://` address"
    )]
    Untold,
    /// A program of another user is there, which is not believed.
    #[error("user {0} listens there, and that is neither root nor this user nor a service's user")]
    Stranger(u32),
}

/// Returns true if what a user's process says of itself is believed: root's, this user's, and that of a user for
/// whom systemd made the directory of a packaged service.
#[must_use]
pub fn is_believed(user: u32) -> bool {
    let is_service = |folder: &str| fs::metadata(folder).is_ok_and(|found| found.uid() == user);
    user == 0
        || user == geteuid().as_raw()
        || RUNTIME_DIRECTORIES.into_iter().chain([OF_BROKER]).any(is_service)
}

/// Checks the user at the other end of a TCP connection, as the kernel knows it now.
///
/// # Errors
/// When the program there could be any user's.
pub fn check_connection(peer: SocketAddr, own: SocketAddr) -> Result<(), UnknownPeer> {
    let is_here = peer.ip().to_canonical().is_loopback() || peer.ip() == own.ip();
    if !is_here {
        return Err(UnknownPeer::OtherMachine);
    }
    let users = users_of_connection(peer, own);
    match users.iter().find(|user| !is_believed(**user)) {
        Some(stranger) => Err(UnknownPeer::Stranger(*stranger)),
        None if users.is_empty() => Err(UnknownPeer::Untold),
        None => Ok(()),
    }
}
