//! Servers of which the kernel shows no sessions: tgt, Samba and ksmbd, NFS-Ganesha, and any other.
//!
//! The kernel knows their connections, and how much each has carried (`NETLINK_SOCK_DIAG`,
//! include/uapi/linux/inet_diag.h; Linux 4.1). It does not know which device a connection is for: the
//! configuration tells the devices behind a portal.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::net::netlink::SOCK_DIAG;
use tidegate_units::ConsumerName;

use super::sockets::reaches;
use super::{
    ServedPortals, SessionCounters, TargetAbsence, TargetFinding, TargetKind, TargetSession, VolumeBacking,
};
use crate::netlink::{Netlink, NetlinkBody, array, attributes};
use crate::root::ReadError;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO`: the attribute with the `tcp_info` of a connection.
const INFO: u16 = 2;
const TCP: u8 = 6;
/// `AF_INET` and `AF_INET6`.
const FAMILIES: [u8; 2] = [2, 10];
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// Offsets in `struct inet_diag_msg`.
const STATE_AT: usize = 1;
const PORTS_AT: usize = 4;
const LOCAL_AT: usize = 8;
const PEER_AT: usize = 24;
const COOKIE_AT: usize = 44;
const MESSAGE: usize = 72;

/// Offsets in `struct tcp_info`.
const ACKNOWLEDGED_AT: usize = 120;
const RECEIVED_AT: usize = 128;

/// Reads the clients of portals again and again.
#[derive(Debug, Default)]
pub(super) struct PortalReader {
    served: ServedPortals,
    netlink: Option<Netlink>,
    /// The bytes that each connection had carried, by the kernel's cookie of its socket.
    connections: HashMap<u64, CarriedBytes>,
    /// The bytes of all connections of a client since its first was seen.
    clients: BTreeMap<(SocketAddr, ConsumerName), CarriedBytes>,
    /// The counters of each session, in the order of the sessions.
    counters: Vec<SessionCounters>,
}

/// The bytes that clients have sent to a server, and been sent by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CarriedBytes {
    received: u64,
    sent: u64,
}

/// A socket of the kernel's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DiagnosedSocket {
    state: u8,
    local: SocketAddr,
    peer: SocketAddr,
    cookie: u64,
    carried: CarriedBytes,
}

impl PortalReader {
    /// Takes the portals that are served from now on.
    pub(super) fn serve(&mut self, served: ServedPortals) {
        self.served = served;
    }

    pub(super) fn is_needed(&self) -> bool {
        !self.served.devices.is_empty()
    }

    /// Returns the counters of the sessions of the last reading, in their order.
    pub(super) fn counters(&self) -> &[SessionCounters] {
        &self.counters
    }

    /// Finds the clients of all portals, each with every device behind its portal.
    pub(super) fn read(&mut self) -> Result<TargetFinding, ReadError> {
        let sockets = self.sockets().map_err(|source| {
            self.netlink = None;
            ReadError::Unreadable { path: PathBuf::from("NETLINK_SOCK_DIAG"), source }
        })?;
        let known = (std::mem::take(&mut self.clients), std::mem::take(&mut self.connections));
        let mut sessions = Vec::new();
        self.counters.clear();
        for (portal, devices) in &self.served.devices {
            let mut addresses: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
            let connected = sockets.iter().filter(|socket| socket.state == ESTABLISHED);
            for socket in connected.filter(|socket| reaches(*portal, socket.local)) {
                let client = (*portal, self.served.name_of(socket.peer.ip()));
                addresses.entry(client.1.clone()).or_default().insert(socket.peer.ip());
                let before = known.0.get(&client).copied().unwrap_or_default();
                let carried = self.clients.entry(client).or_insert(before);
                carried.add(socket.carried, known.1.get(&socket.cookie).copied().unwrap_or_default());
                self.connections.insert(socket.cookie, socket.carried);
            }
            for (consumer, addresses) in addresses {
                let counters = self.clients[&(*portal, consumer.clone())].in_mib();
                for (number, name) in devices {
                    self.counters.push(counters);
                    sessions.push(TargetSession {
                        via: TargetKind::Portal,
                        consumer: consumer.clone(),
                        target: portal.to_string().into(),
                        volume: Arc::new(VolumeBacking { name: name.clone(), path: None }),
                        device: Some(*number),
                        addresses: addresses.iter().copied().collect(),
                        doubt: None,
                        counters: Some(counters),
                    });
                }
            }
        }
        let unheard = |portal: &&SocketAddr| !sockets.iter().any(|socket| reaches(**portal, socket.local));
        Ok(match self.served.devices.keys().find(unheard) {
            Some(portal) if sessions.is_empty() => {
                TargetFinding::Absent(TargetAbsence::NothingListens(*portal))
            }
            _ => TargetFinding::Sessions(sessions),
        })
    }

    /// The sockets of this network namespace at the portals' ports, listening and connected.
    fn sockets(&mut self) -> io::Result<Vec<DiagnosedSocket>> {
        let netlink = match &mut self.netlink {
            Some(netlink) => netlink,
            closed => closed.insert(Netlink::open(Some(SOCK_DIAG))?),
        };
        let mut ports: Vec<u16> = self.served.devices.keys().map(SocketAddr::port).collect();
        ports.sort_unstable();
        ports.dedup();
        let mut sockets = Vec::new();
        for (port, family) in ports.iter().flat_map(|port| FAMILIES.map(|family| (*port, family))) {
            netlink.dump(BY_FAMILY, &request(family, port), |message| {
                sockets.extend(DiagnosedSocket::read(message).filter(|socket| socket.local.port() == port));
            })?;
        }
        Ok(sockets)
    }
}

/// `struct inet_diag_req_v2`: the listening and connected sockets at a port.
fn request(family: u8, port: u16) -> NetlinkBody {
    let mut request = [0; 56];
    request[0] = family;
    request[1] = TCP;
    request[2] = 1 << (INFO - 1);
    let states: u32 = 1 << ESTABLISHED | 1 << LISTEN;
    request[4..8].copy_from_slice(&states.to_ne_bytes());
    request[8..10].copy_from_slice(&port.to_be_bytes());
    NetlinkBody::new(&request)
}

impl DiagnosedSocket {
    /// Reads `struct inet_diag_msg` and its attributes; `None` if the message is cut short.
    fn read(message: &[u8]) -> Option<Self> {
        let ip = |at: usize| {
            Some(if message[0] == FAMILIES[0] {
                IpAddr::from(array::<4>(message, at).ok()?)
            } else {
                IpAddr::from(array::<16>(message, at).ok()?).to_canonical()
            })
        };
        let port = |at: usize| array(message, at).ok().map(u16::from_be_bytes);
        let rest = message.get(MESSAGE..)?;
        let info = attributes(rest).find(|(kind, _)| *kind == INFO).map_or(&[][..], |(_, info)| info);
        let count = |at: usize| array(info, at).map_or(0, u64::from_ne_bytes);
        Some(Self {
            state: message[STATE_AT],
            local: SocketAddr::new(ip(LOCAL_AT)?, port(PORTS_AT)?),
            peer: SocketAddr::new(ip(PEER_AT)?, port(PORTS_AT + 2)?),
            cookie: array(message, COOKIE_AT).ok().map(u64::from_ne_bytes)?,
            carried: CarriedBytes { received: count(RECEIVED_AT), sent: count(ACKNOWLEDGED_AT) },
        })
    }
}

impl CarriedBytes {
    /// Adds what a connection has carried since then.
    fn add(&mut self, now: Self, then: Self) {
        self.received = self.received.saturating_add(now.received.saturating_sub(then.received));
        self.sent = self.sent.saturating_add(now.sent.saturating_sub(then.sent));
    }

    /// Returns them as counters of a session, which wrap. Bytes from clients count as written, bytes to
    /// clients as read.
    fn in_mib(self) -> SessionCounters {
        let mib = |bytes: u64| u32::try_from(bytes >> 20 & u64::from(u32::MAX)).unwrap_or_default();
        SessionCounters { read_mib: mib(self.sent), written_mib: mib(self.received) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::any;

    use super::*;
    use crate::device::DeviceNumber;

    fn reader(portal: SocketAddr) -> PortalReader {
        let mut reader = PortalReader::default();
        let devices = [(DeviceNumber::new(254, 0), "vg0/a".to_owned())];
        reader.serve(ServedPortals {
            devices: [(portal, devices.into())].into(),
            names: [(portal.ip(), ConsumerName::new("db").unwrap())].into(),
        });
        reader
    }

    fn sessions(reader: &mut PortalReader) -> Vec<TargetSession> {
        match reader.read().unwrap() {
            TargetFinding::Sessions(sessions) => sessions,
            TargetFinding::Absent(absence) => panic!("{absence}"),
        }
    }

    #[test]
    fn clients_of_a_portal_are_counted_over_all_their_connections() {
        const MIB: usize = 1 << 20;
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let portal = server.local_addr().unwrap();
        let mut reader = reader(portal);
        assert_eq!(sessions(&mut reader), [], "it listens, and no client has come");
        let carry = |written: usize, read: usize| {
            let mut client = TcpStream::connect(portal).unwrap();
            let mut served = server.accept().unwrap().0;
            let send = std::thread::spawn(move || {
                client.write_all(&vec![0; written]).unwrap();
                client.read_exact(&mut vec![0; read]).unwrap();
                client
            });
            served.read_exact(&mut vec![0; written]).unwrap();
            served.write_all(&vec![0; read]).unwrap();
            (send.join().unwrap(), served)
        };
        let first = carry(3 * MIB, 0);
        let found = sessions(&mut reader);
        assert_eq!((found.len(), found[0].via, found[0].consumer.as_str()), (1, TargetKind::Portal, "db"));
        assert_eq!(found[0].addresses, [portal.ip()]);
        assert_eq!(found[0].counters.unwrap().written_mib, 3);
        let second = carry(2 * MIB, 4 * MIB);
        drop(first);
        let counters = sessions(&mut reader)[0].counters.unwrap();
        // The last acknowledgement may be on its way.
        assert_eq!(counters.written_mib, 5, "a connection that has ended is not forgotten");
        assert!((3..=4).contains(&counters.read_mib), "{counters:?}");
        assert_eq!(reader.counters(), [counters]);
        drop(second);
    }

    #[test]
    fn a_portal_where_nothing_listens_is_named() {
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(
            reader(unused).read().unwrap(),
            TargetFinding::Absent(TargetAbsence::NothingListens(unused))
        );
    }

    proptest::proptest! {
        #[test]
        fn any_message_is_a_socket_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = DiagnosedSocket::read(&bytes);
        }
    }
}
