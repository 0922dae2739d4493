//! Connections to a portal: `/proc/net/tcp` and `tcp6` of this network namespace
//! (Documentation/networking/proc_net_tcp.rst).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::root::{ReadError, SystemRoot};
use crate::sense::tree;

const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// The TCP sockets of a network namespace. IPv4 is IPv4 also on sockets of IPv6.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TcpSockets {
    pub(super) established: Vec<TcpConnection>,
    pub(super) listening: Vec<SocketAddr>,
}

/// An established connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TcpConnection {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl TcpSockets {
    /// Reads both tables. One that is not there (no IPv6) is empty.
    pub(super) fn read(root: &SystemRoot) -> Result<Self, ReadError> {
        let mut sockets = Self::default();
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let Some(text) = tree::text(root, table)? else { continue };
            sockets.add(&text).map_err(|(line, problem)| tree::malformed(root, table, line, problem))?;
        }
        Ok(sockets)
    }

    /// Adds the lines of a table; an error has the line, counted from 1.
    fn add(&mut self, text: &str) -> Result<(), (usize, String)> {
        for (index, line) in text.lines().enumerate().skip(1) {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (Some(local), Some(peer), Some(state)) = (words.next(), words.next(), words.next()) else {
                if line.trim().is_empty() {
                    continue;
                }
                return Err((index + 1, format!("expected a socket, not `{}`", tree::shown(line))));
            };
            let address = |word: &str| {
                socket_address(word).ok_or_else(|| {
                    (
                        index + 1,
                        format!("expected an address such as `0100000A:0CBC`, not `{}`", tree::shown(word)),
                    )
                })
            };
            match state {
                ESTABLISHED => {
                    self.established.push(TcpConnection { local: address(local)?, peer: address(peer)? });
                }
                LISTEN => self.listening.push(address(local)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns true if a socket listens at a portal here.
    pub(super) fn listens_at(&self, portal: SocketAddr) -> bool {
        self.listening.iter().any(|socket| reaches(*socket, portal) || reaches(portal, *socket))
    }
}

impl TcpConnection {
    /// Returns true if the connection may have been made to a portal.
    pub(super) fn is_to(&self, portal: SocketAddr) -> bool {
        reaches(portal, self.local)
    }
}

/// Returns true if connections to `portal` may have `local` as their local address.
pub(super) fn reaches(portal: SocketAddr, local: SocketAddr) -> bool {
    portal.port() == local.port()
        && match portal.ip() {
            IpAddr::V6(any) if any.is_unspecified() => true,
            IpAddr::V4(any) if any.is_unspecified() => local.is_ipv4(),
            one => one == local.ip(),
        }
}

/// `10.0.0.1:3260`, `[::]:3260`; a zone such as `%eth0` is left out, since the tables have none.
pub(super) fn portal(text: &str) -> Option<SocketAddr> {
    let zone = text.find('%').zip(text.rfind(']'));
    let portal: SocketAddr = match zone {
        Some((from, to)) if from < to => format!("{}{}", &text[..from], &text[to..]).parse().ok()?,
        _ => text.parse().ok()?,
    };
    Some(SocketAddr::new(portal.ip().to_canonical(), portal.port()))
}

/// `0100000A:0CBC`: the address as the machine's own words of 32 bits, the port as a number.
fn socket_address(word: &str) -> Option<SocketAddr> {
    let (address, port) = word.split_once(':')?;
    let part = |at: usize| address.get(at..at + 8).and_then(hexadecimal).map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(part(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&part(8 * at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    let port = u16::try_from(hexadecimal(port)?).ok()?;
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// Digits only: `from_str_radix` would take a sign.
fn hexadecimal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits { u32::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADING: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n";

    fn sockets(lines: &str) -> TcpSockets {
        let mut sockets = TcpSockets::default();
        sockets.add(&format!("{HEADING}{lines}")).unwrap();
        sockets
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn captured_lines_are_read() {
        let table = sockets(
            "   0: 0100000A:0CBC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 \
                11012 1\n   \
                1: 0100000A:0CBC 0D00000A:B394 01 00000000:00000000 00:00000000 00000000     0        0 \
                11338 2\n   \
                1: 000000FD000000000000000001000000:0CBC 000000FD000000000000000012000000:95DE 01 \
                00000000:00000000\n   \
                2: 0000000000000000FFFF00000100000A:0CBC 0000000000000000FFFF00000D00000A:9BD4 01 \
                00000000:00000000\n   \
                3: 0100000A:0CBC 0D00000A:B395 06 00000000:00000000 00:00000000 00000000     0        0 \
                11338 2\n",
        );
        assert_eq!(table.listening, [address("10.0.0.1:3260")]);
        let pairs: Vec<_> = table.established.iter().map(|one| (one.local, one.peer)).collect();
        assert_eq!(
            pairs,
            [
                (address("10.0.0.1:3260"), address("10.0.0.13:45972")),
                (address("[fd00::1]:3260"), address("[fd00::12]:38366")),
                (address("10.0.0.1:3260"), address("10.0.0.13:39892")),
            ]
        );
    }

    #[test]
    fn a_portal_of_every_address_takes_connections_of_its_family() {
        let table = sockets(
            "0: 0100000A:0CBC 0D00000A:B394 01\n1: 000000FD000000000000000001000000:0CBC \
                000000FD000000000000000012000000:95DE 01\n",
        );
        let peers = |text: &str| {
            let portal = portal(text).unwrap();
            table.established.iter().filter(|one| one.is_to(portal)).count()
        };
        assert_eq!((peers("0.0.0.0:3260"), peers("[::]:3260"), peers("10.0.0.1:3260")), (1, 2, 1));
        assert_eq!((peers("10.0.0.2:3260"), peers("0.0.0.0:3261"), peers("[fd00::1%eth0]:3260")), (0, 0, 1));
    }

    #[test]
    fn a_malformed_line_is_named() {
        for (line, part) in [
            ("0: 0100000A\n", "expected a socket"),
            ("0: 0100000A:0CBC 0D00000A 01\n", "not `0D00000A`"),
            ("0: 0100000A:0CBC +D00000A:0001 01\n", "not `+D00000A:0001`"),
            ("0: 0100000A:10CBC 0D00000A:0001 01\n", "not `0100000A:10CBC`"),
            ("0: 0100000A:0CBC é00000A:0001 01\n", "not `é00000A:0001`"),
        ] {
            let (at, problem) = TcpSockets::default().add(&format!("{HEADING}{line}")).unwrap_err();
            assert_eq!(at, 2);
            assert!(problem.contains(part), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,100}", lines in "(0: [0-9A-Fx:é]{0,40} \
            [0-9A-F:]{0,40} (01|0A)\n){0,3}") {
            let _ = TcpSockets::default().add(&format!("{HEADING}{text}\n"));
            let _ = TcpSockets::default().add(&format!("{HEADING}{lines}"));
            let _ = portal(&text);
        }

        #[test]
        fn portals_never_panic(text in "[0-9\\[\\]%:.a-f]{0,30}") {
            let _ = portal(&text);
        }
    }
}
