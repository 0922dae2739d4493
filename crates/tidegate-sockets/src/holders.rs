//! The programs that have a file or a socket open, as far as this process may see them. Only links and tables
//! of the kernel are read: a file behind a link may hang.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Programs that are found at most.
const MOST_HOLDERS: usize = 3;

/// The state of a socket that is listened on, in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The flags of a socket that is listened on (`__SO_ACCEPTCON`), in `/proc/net/unix`.
const ACCEPTS: &[u8] = b"00010000";

/// A program that has something open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The number of its process.
    pub process: u32,
    /// Its name, as the kernel knows it.
    pub program: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.program, self.process)
    }
}

/// Returns programs, other than this one, that have a file open; `path` is absolute and without links.
#[must_use]
pub fn of_file(path: &Path) -> Vec<Holder> {
    having(&[path.to_owned()])
}

/// Returns programs, other than this one, that listen on the port of a TCP address, and so keep others from
/// listening on the address.
#[must_use]
pub fn of_tcp(address: SocketAddr) -> Vec<Holder> {
    let excludes = |local: SocketAddr| {
        local.port() == address.port()
            && (local.ip() == address.ip() || local.ip().is_unspecified() || address.ip().is_unspecified())
    };
    let tables = tcp_tables();
    let sockets = listening(&tables).filter(|socket| excludes(socket.local)).filter_map(|socket| socket.link);
    having(&sockets.collect::<Vec<_>>())
}

/// Returns the numbers of the users whose programs have the other end of a TCP connection within this network
/// namespace, or listen at its address and may accept it, as the kernel tells all users.
pub(crate) fn users_of_connection(peer: SocketAddr, own: SocketAddr) -> Vec<u32> {
    // A table has the sockets that are listened on first. So a listener that is gone from it has left the
    // connection to the program that accepted it, which the table has afterwards.
    let tables = tcp_tables();
    listeners(&tables, peer).into_iter().chain(accepted(&tables, peer, own)).collect()
}

/// Returns the users of the sockets that the kernel prefers for connections to an address: those at the address
/// itself, else those at all addresses of its family, else those at all addresses of IPv6. The last take
/// connections over IPv4, too, unless they are for IPv6 alone: then the connection would not have been made.
fn listeners(tables: &str, address: SocketAddr) -> Vec<u32> {
    let ip = address.ip().to_canonical();
    let of_family = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { ip };
    let preferred = [ip, of_family, Ipv6Addr::UNSPECIFIED.into()];
    let at = |ip: IpAddr| {
        let is_there = |local: SocketAddr| local.ip() == ip && local.port() == address.port();
        listening(tables)
            .filter(|socket| is_there(socket.local))
            .map(|socket| socket.user)
            .collect::<Vec<_>>()
    };
    preferred.into_iter().map(at).find(|users| !users.is_empty()).unwrap_or_default()
}

/// Returns the lines of both tables of TCP sockets.
fn tcp_tables() -> String {
    ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default()).concat()
}

/// Returns programs, other than this one, that have the socket with this number open.
#[must_use]
pub fn of_socket(inode: u32) -> Vec<Holder> {
    having(&[socket_link(inode)])
}

/// Returns programs, other than this one, that listen on a Unix socket; `path` is absolute.
#[must_use]
pub fn of_unix(path: &Path) -> Vec<Holder> {
    having(&listening_unix(path))
}

/// Returns the sockets that are listened on at an absolute path, as links to them are called.
pub(crate) fn listening_unix(path: &Path) -> Vec<PathBuf> {
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    listening_in(&table, path.as_os_str().as_bytes())
}

/// The fourth field of a line has the flags, the seventh the inode, and the rest of it is the path
/// (proc_net(5)).
fn listening_in(table: &[u8], path: &[u8]) -> Vec<PathBuf> {
    let sockets = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let is_listening = fields.nth(3)? == ACCEPTS;
        let inode = std::str::from_utf8(fields.nth(2)?).ok()?;
        let is_there = line.strip_suffix(path).is_some_and(|before| before.ends_with(b" "));
        (is_listening && is_there).then(|| socket_link(inode))
    });
    sockets.collect()
}

fn having(targets: &[PathBuf]) -> Vec<Holder> {
    if targets.is_empty() {
        return Vec::new();
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let having = numbers.filter(|process| *process != std::process::id()).filter_map(|process| {
        let mut descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
        let is_target = |link: fs::DirEntry| fs::read_link(link.path()).is_ok_and(|to| targets.contains(&to));
        descriptors.any(is_target).then_some(())?;
        let program = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        Some(Holder { process, program: program.trim().to_owned() })
    });
    having.take(MOST_HOLDERS).collect()
}

/// A TCP socket of a table.
#[derive(Debug, PartialEq, Eq)]
struct TcpSocket {
    local: SocketAddr,
    remote: SocketAddr,
    is_listening: bool,
    /// The number of its user.
    user: u32,
    /// The socket as links to it are called. `None`: no program has it, or has it yet.
    link: Option<PathBuf>,
}

/// Returns the sockets of tables. The second field of a line is the local address, the third the remote one,
/// the fourth the state, the eighth the user, the tenth the inode (proc_net_tcp.rst). A line of titles has no
/// address.
fn sockets(tables: &str) -> impl Iterator<Item = TcpSocket> {
    tables.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = read_address(fields.next()?)?;
        let remote = read_address(fields.next()?)?;
        let is_listening = fields.next()? == LISTEN;
        let user = fields.nth(3)?.parse().ok()?;
        let inode = fields.nth(1)?;
        let link = (inode != "0").then(|| socket_link(inode));
        Some(TcpSocket { local, remote, is_listening, user, link })
    })
}

fn listening(tables: &str) -> impl Iterator<Item = TcpSocket> {
    sockets(tables).filter(|socket| socket.is_listening)
}

/// Returns the user of the program that has the other end of a connection.
fn accepted(tables: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let [peer, own] = [peer, own].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
    let other_end = sockets(tables).find(|socket| (socket.local, socket.remote) == (peer, own))?;
    other_end.link.map(|_| other_end.user)
}

/// Returns a link to the socket with this number, as the kernel calls it.
fn socket_link(inode: impl fmt::Display) -> PathBuf {
    PathBuf::from(format!("socket:[{inode}]"))
}

/// Reads an address in hexadecimal words of 32 bits, each in the byte order of this machine.
fn read_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_program_that_listens_on_a_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = std::os::fd::OwnedFd::from(listener);
        let mut program = Command::new("sleep").arg("60").stdin(Stdio::from(socket)).spawn().unwrap();
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
        let found = [of_tcp(address), of_tcp(any)];
        program.kill().unwrap();
        program.wait().unwrap();
        let sleep = Holder { process: program.id(), program: "sleep".to_owned() };
        assert_eq!(found, [vec![sleep.clone()], vec![sleep]]);
        assert_eq!(of_tcp(address), []);
    }

    #[test]
    fn a_unix_socket_that_is_listened_on_is_found_by_its_path() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff: 00000002 00000000 00010000 0001 01 15021 /run/a b.sock\n\
            ffff: 00000003 00000000 00000000 0001 03 15022 /run/c.sock\n";
        assert_eq!(listening_in(table, b"/run/a b.sock"), [PathBuf::from("socket:[15021]")]);
        for none in [&b"/run/c.sock"[..], b"b.sock/", b"un/a b.sock"] {
            assert!(listening_in(table, none).is_empty());
        }
    }

    #[test]
    fn a_connection_belongs_to_the_program_that_has_accepted_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, own) = (client.peer_addr().unwrap(), client.local_addr().unwrap());
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(users_of_connection(peer, own), [user], "by its listener");
        let accepted = listener.accept().unwrap();
        assert_eq!(users_of_connection(peer, own), [user; 2]);
        drop(listener);
        assert_eq!(users_of_connection(peer, own), [user], "its listener is gone");
        drop(accepted);
        assert_eq!(users_of_connection(peer, own), []);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_other_end_goes_before_whoever_listens_now() {
        let table = "  sl  local_address rem_address   st\n\
            0: 0100007F:2651 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
            1: 0100007F:A001 0100007F:2651 01 00000000:00000000 00:00000000 00000000     0        0 12 1\n\
            2: 0100007F:2651 0100007F:A001 01 00000000:00000000 00:00000000 00000000 65534        0 13 1\n\
            3: 0100007F:2651 0100007F:A002 01 00000000:00000000 00:00000000 00000000     0        0 0 1\n";
        let [peer, accepted_end, waiting_end] =
            ["127.0.0.1:9809", "127.0.0.1:40961", "127.0.0.1:40962"].map(|text| text.parse().unwrap());
        assert_eq!(accepted(table, peer, accepted_end), Some(65534));
        assert_eq!(accepted(table, peer, waiting_end), None);
        assert_eq!(listeners(table, peer), [0]);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_socket_that_the_kernel_prefers_decides_whose_a_listener_is() {
        let line = |local: &str, user: u32| {
            format!(
                "   0: {local} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  {user}        0 4711 1\n"
            )
        };
        let [here, all, all_of_6, here_6] = [
            "0100007F:0050",
            "00000000:0050",
            "00000000000000000000000000000000:0050",
            "00000000000000000000000001000000:0050",
        ];
        let titles = "  sl  local_address rem_address   st\n";
        for (sockets, address, expected) in [
            (&[(all_of_6, 9), (all, 8), (here, 7)][..], "127.0.0.1:80", &[7][..]),
            (&[(all_of_6, 9), (all, 8), (here, 7)], "[::ffff:127.0.0.1]:80", &[7]),
            (&[(all_of_6, 9), (all, 8)], "127.0.0.1:80", &[8]),
            (&[(all_of_6, 9)], "127.0.0.1:80", &[9]),
            (&[(here, 7), (all_of_6, 9), (all, 8)], "[::1]:80", &[9]),
            (&[(here, 7), (all_of_6, 9), (here_6, 6)], "[::1]:80", &[6]),
            (&[(here, 7), (all, 8)], "[::1]:80", &[]),
            (&[(here, 7)], "127.0.0.1:81", &[]),
        ] {
            let lines: String = sockets.iter().map(|(local, user)| line(local, *user)).collect();
            assert_eq!(
                listeners(&format!("{titles}{lines}"), address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        for (text, address) in [
            ("0100007F:2A39", "127.0.0.1:10809"),
            ("00000000000000000000000000000000:0050", "[::]:80"),
            ("0000000000000000FFFF00000100007F:0050", "127.0.0.1:80"),
        ] {
            assert_eq!(read_address(text), Some(address.parse().unwrap()), "{text}");
        }
        assert_eq!(read_address("0100007F"), None);
    }
}
