//! The process that answers a connection, as the kernel of this machine knows it. Any user can make a socket in a
//! folder for all.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidegate_sockets::trust::{UnknownPeer, check_connection, is_believed};
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
            Self::Unknown(UnknownPeer::Stranger(user).to_string())
        }
    }

    pub(super) fn of_tcp(stream: &TcpStream) -> Self {
        let (Ok(peer), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else {
            return Self::Unknown("the connection is gone".to_owned());
        };
        match check_connection(peer, own) {
            Ok(()) => Self::Believed,
            Err(unknown) => Self::Unknown(unknown.to_string()),
        }
    }
}
