//! The abstract Unix sockets of this network namespace, with their owners as the kernel knows them
//! (`NETLINK_SOCK_DIAG`, include/uapi/linux/unix_diag.h; Linux 5.3). Nothing is sent to the sockets.

use std::io;

use rustix::net::netlink::SOCK_DIAG;

use crate::netlink::{Netlink, NetlinkBody, array, attributes};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `AF_UNIX`.
const UNIX: u8 = 1;
/// States of sockets: those that are listened on (`TCP_LISTEN`), and those without a connection (`TCP_CLOSE`). A user
/// may have got a connected one from root, and given it a name.
const STATES: u32 = 1 << LISTEN | 1 << 7;
const LISTEN: u8 = 10;
/// `UDIAG_SHOW_NAME` and `UDIAG_SHOW_UID`.
const SHOW: u32 = 0x01 | 0x40;
/// `UNIX_DIAG_NAME` and `UNIX_DIAG_UID`.
const NAME: u16 = 0;
const USER: u16 = 7;

/// Offsets in `struct unix_diag_msg`.
const STATE_AT: usize = 2;
const INODE_AT: usize = 4;
const MESSAGE: usize = 16;

/// An abstract socket that has no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbstractSocket {
    /// The name.
    pub name: Vec<u8>,
    /// The number of the user who made the socket.
    pub user: u32,
    /// The number of the socket, as links of `/proc` have it.
    pub inode: u32,
    /// True if a process listens at the socket.
    pub is_listening: bool,
}

impl AbstractSocket {
    /// Returns the sockets whose names are meant.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn find(is_meant: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Self>> {
        // `struct unix_diag_req`.
        let mut request = [0; 24];
        request[0] = UNIX;
        request[4..8].copy_from_slice(&STATES.to_ne_bytes());
        request[12..16].copy_from_slice(&SHOW.to_ne_bytes());
        let mut found = Vec::new();
        let each = |message: &[u8]| {
            found.extend(Self::read(message).filter(|socket| is_meant(&socket.name)));
        };
        let asked = Netlink::open(Some(SOCK_DIAG))
            .and_then(|mut kernel| kernel.dump(BY_FAMILY, &NetlinkBody::new(&request), each));
        asked.map(|()| found).map_err(|error| {
            let why = format!("the kernel does not tell whose Unix sockets are (module unix_diag): {error}");
            io::Error::new(error.kind(), why)
        })
    }

    fn read(message: &[u8]) -> Option<Self> {
        let is_listening = *message.get(STATE_AT)? == LISTEN;
        let inode = u32::from_ne_bytes(array(message, INODE_AT).ok()?);
        let of_kind = |kind: u16| {
            let attribute = attributes(message.get(MESSAGE..)?).find(|(found, _)| *found == kind)?;
            Some(attribute.1)
        };
        let name = of_kind(NAME)?.strip_prefix(b"\0")?.to_owned();
        let user = u32::from_ne_bytes(array(of_kind(USER)?, 0).ok()?);
        Some(Self { name, user, inode, is_listening })
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn a_socket_is_found_by_its_name_with_its_owner_however_many_wait_for_it() {
        let name = format!("tidegate-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let find = || AbstractSocket::find(|found| found == name.as_bytes()).unwrap();
        assert_eq!(find(), []);
        let datagrams = UnixDatagram::bind_addr(&address).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let mut found = find();
        found.sort_by_key(|socket| socket.is_listening);
        let user = rustix::process::geteuid().as_raw();
        let shown: Vec<_> = found.iter().map(|socket| (socket.user, socket.is_listening)).collect();
        assert_eq!(shown, [(user, false), (user, true)]);
        drop((datagrams, listener));
        assert_eq!(find(), []);
    }

    #[test]
    fn a_message_that_is_cut_short_is_no_socket() {
        let body = NetlinkBody::new(&[1, 1, LISTEN, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let whole = body.with(NAME, b"\0agent").with(USER, &1000_u32.to_ne_bytes());
        assert!(AbstractSocket::read(whole.as_bytes()).is_some());
        for length in 0..whole.as_bytes().len() {
            assert_eq!(AbstractSocket::read(&whole.as_bytes()[..length]), None, "{length}");
        }
    }
}
