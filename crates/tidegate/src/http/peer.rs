//! The process that answers a connection, as the kernel of this machine knows it.
//!
//! Any user can listen at a port that no service has, or make a socket in a folder for all. What such a process
//! answers is not a service's, and a token is nothing for it.

use std::fs;
use std::net::ToSocketAddrs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidegate_service::operator_socket::is_believed;
use tidegate_sockets::holders;
use tokio::net::{TcpStream, UnixStream};

/// The bits of a folder's mode by which others than its owner can put a socket into it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// How far the process at the other end of a connection is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerTrust {
    /// Root's, this user's or a packaged service's, or one with the certificate that was asked for.
    Believed,
    /// A service of the user that has the folder of its socket.
    OfFolder,
    /// Any user's, for this reason.
    Unknown(String),
}

impl PeerTrust {
    pub(super) fn of_unix(path: &Path, stream: &UnixStream) -> Self {
        let user = match stream.peer_cred() {
            Ok(credentials) => credentials.uid(),
            Err(error) => return Self::Unknown(format!("the system does not tell whose it is: {error}")),
        };
        let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
        let is_owner = |folder: fs::Metadata| folder.uid() == user && folder.mode() & WRITABLE_BY_OTHERS == 0;
        if is_believed(user) {
            Self::Believed
        } else if folder.is_some_and(is_owner) {
            Self::OfFolder
        } else {
            Self::Unknown(listens(user))
        }
    }

    pub(super) fn of_tcp(stream: &TcpStream) -> Self {
        let (Ok(peer), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else {
            return Self::Unknown("the connection is gone".to_owned());
        };
        if !peer.ip().to_canonical().is_loopback() && peer.ip() != own.ip() {
            return Self::Unknown("plain HTTP does not tell who answers on another machine".to_owned());
        }
        let users = holders::users_of_tcp(peer);
        match users.iter().find(|user| !is_believed(**user)) {
            Some(stranger) => Self::Unknown(listens(*stranger)),
            None if users.is_empty() => {
                Self::Unknown("the system does not tell who listens there".to_owned())
            }
            None => Self::Believed,
        }
    }
}

/// Returns the reason why a program that listens at a plain HTTP address of this machine could be any user's. `None`
/// if it is known, if nothing listens, or if the address is another machine's.
pub(crate) fn stranger_at(url: &str) -> Option<String> {
    let authority = url.strip_prefix("http://")?.split('/').next()?;
    let mut here =
        authority.to_socket_addrs().ok()?.filter(|address| address.ip().to_canonical().is_loopback());
    let stranger = |address| holders::users_of_tcp(address).into_iter().find(|user| !is_believed(*user));
    here.find_map(stranger).map(listens)
}

fn listens(user: u32) -> String {
    format!("user {user} listens there, and that is neither root nor this user nor a service's user")
}
