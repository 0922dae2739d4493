//! The abstract Unix sockets of this network namespace, with their owners as the kernel knows them
//! (`NETLINK_SOCK_DIAG`, include/uapi/linux/unix_diag.h; Linux 5.3). Nothing is sent to the sockets. A kernel
//! without the module `unix_diag` has a table of sockets still, without their owners (proc_net(5)).

use std::fs;
use std::io;
use std::str;

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

/// Values in `/proc/net/unix`: the flags of a socket that is listened on (`__SO_ACCEPTCON`), and the state of a
/// socket without a connection (`SS_UNCONNECTED`).
const ACCEPTS: &[u8] = b"00010000";
const UNCONNECTED: &[u8] = b"01";

/// An abstract socket that has no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbstractSocket {
    /// The name.
    pub name: Vec<u8>,
    /// The number of the user who made the socket. `None` if the kernel does not tell.
    pub user: Option<u32>,
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
        Self::ask_kernel(&is_meant).or_else(|error| {
            let table = fs::read("/proc/net/unix").map_err(|table| {
                let why =
                    format!("the kernel does not tell of Unix sockets: {error}; /proc/net/unix: {table}");
                io::Error::new(table.kind(), why)
            })?;
            Ok(Self::in_table(&table).filter(|socket| is_meant(&socket.name)).collect())
        })
    }

    fn ask_kernel(is_meant: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Self>> {
        // `struct unix_diag_req`.
        let mut request = [0; 24];
        request[0] = UNIX;
        request[4..8].copy_from_slice(&STATES.to_ne_bytes());
        request[12..16].copy_from_slice(&SHOW.to_ne_bytes());
        let mut found = Vec::new();
        let each = |message: &[u8]| {
            found.extend(Self::read(message).filter(|socket| is_meant(&socket.name)));
        };
        Netlink::open(Some(SOCK_DIAG))?.dump(BY_FAMILY, &NetlinkBody::new(&request), each)?;
        Ok(found)
    }

    /// Returns the sockets of a table that have no connection. A user can add false ones by a name with a line
    /// break, and hide none.
    fn in_table(table: &[u8]) -> impl Iterator<Item = Self> {
        table.split(|byte| *byte == b'\n').filter_map(|line| {
            // Number, references, protocol, flags, type, state, inode and name. Inodes are aligned.
            let (fields, name) = line.split_at(line.windows(2).position(|pair| pair == b" @")?);
            let fields: Vec<_> =
                fields.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).collect();
            let [_, _, _, flags, _, UNCONNECTED, inode] = fields[..] else { return None };
            Some(Self {
                name: name.strip_prefix(b" @")?.to_owned(),
                user: None,
                inode: str::from_utf8(inode).ok()?.parse().ok()?,
                is_listening: flags == ACCEPTS,
            })
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
        let user = Some(u32::from_ne_bytes(array(of_kind(USER)?, 0).ok()?));
        Some(Self { name, user, inode, is_listening })
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_is_found_by_its_name_with_its_owner_however_many_wait_for_it() {
        let name = format!("tidegate-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let find = || AbstractSocket::ask_kernel(|found| found == name.as_bytes()).unwrap();
        assert_eq!(find(), []);
        let datagrams = UnixDatagram::bind_addr(&address).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let mut found = find();
        found.sort_by_key(|socket| socket.is_listening);
        let user = rustix::process::geteuid().as_raw();
        let shown: Vec<_> = found.iter().map(|socket| (socket.user, socket.is_listening)).collect();
        assert_eq!(shown, [(Some(user), false), (Some(user), true)]);
        // The connection has the name, too.
        let _waiting = UnixStream::connect_addr(&address).unwrap();
        let _accepted = listener.accept().unwrap();
        let table = std::fs::read("/proc/net/unix").unwrap();
        let mut listed: Vec<_> =
            AbstractSocket::in_table(&table).filter(|socket| socket.name == name.as_bytes()).collect();
        listed.sort_by_key(|socket| socket.is_listening);
        let without_owner = |socket| AbstractSocket { user: None, ..socket };
        assert_eq!(listed, found.into_iter().map(without_owner).collect::<Vec<_>>());
        drop((datagrams, listener));
        assert_eq!(find(), []);
    }

    #[test]
    fn sockets_are_read_from_the_table_of_a_kernel_without_unix_diag() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff: 00000002 00000000 00010000 0001 01 15021 /run/a @b\n\
            ffff: 00000002 00000000 00010000 0001 01   422 @tidegate agent\n\
            ffff: 00000003 00000000 00000000 0001 03 15022 @tidegate\n\
            ffff: 00000002 00000000 00000000 0002 01 15023 @tidegate @ \xff\n\
            ffff: 00000002 00000000 00000000 0002 01 15024\n\
            ffff: 00000002 00000000 00000000 0002 01 9999999999 @x\n\
            ffff: @x\n @x";
        let socket = |name: &[u8], inode, is_listening| AbstractSocket {
            name: name.to_owned(),
            user: None,
            inode,
            is_listening,
        };
        assert_eq!(
            AbstractSocket::in_table(table).collect::<Vec<_>>(),
            [socket(b"tidegate agent", 422, true), socket(b"tidegate @ \xff", 15023, false)]
        );
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
