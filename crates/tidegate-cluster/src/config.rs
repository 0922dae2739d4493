//! Configuration of a host that takes part in a cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tidegate_config::masked;
use tidegate_units::HostName;

use crate::key::{ClusterKey, Secret};
use crate::limits::{MOST_LISTED, MOST_SLOTS};
use crate::name::ClusterName;
use crate::peer_address::PeerAddress;
use crate::signature::PolicyWriters;
use crate::status::CarrierKind;
use crate::tls::TlsSettings;

/// The shortest and the longest interval.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));

/// Configuration of a host in a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterConfig {
    /// The cluster's name. Messages of other clusters on the same wire are ignored.
    pub name: ClusterName,
    /// Our name in it: no other host may have it.
    pub host: HostName,
    /// The control interval that the cluster works with, 10 ms to 60 s: a host that says nothing for three of
    /// them is stale. All hosts should have the same.
    pub interval: Duration,
    /// The carrier of the reports.
    pub carrier: Carrier,
}

impl ClusterConfig {
    /// PARDA's control interval, 2 s.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(2);

    /// Checks that a host could join with this configuration.
    ///
    /// # Errors
    /// When it contradicts itself: see [`JoinError`].
    pub fn check(&self) -> Result<(), JoinError> {
        let (shortest, longest) = INTERVALS;
        if !(shortest..=longest).contains(&self.interval) {
            return Err(JoinError::Interval(self.interval));
        }
        match &self.carrier {
            Carrier::Udp(udp) => udp.check(),
            Carrier::File(file) => file.check(),
            Carrier::Nats(nats) => nats.check(),
        }
    }
}

/// The carrier of the reports, with its configuration.
#[derive(Debug, Clone, PartialEq)]
pub enum Carrier {
    /// Datagrams, authenticated with a shared key.
    Udp(UdpConfig),
    /// Blocks of a shared file or block device.
    File(FileConfig),
    /// A NATS server, or several that form one.
    Nats(NatsConfig),
}

impl Carrier {
    /// Returns the kind of carrier.
    #[must_use]
    pub const fn kind(&self) -> CarrierKind {
        match self {
            Self::Udp(_) => CarrierKind::Udp,
            Self::File(_) => CarrierKind::File,
            Self::Nats(_) => CarrierKind::Nats,
        }
    }
}

/// Datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpConfig {
    /// The address to listen on. With multicast only the port counts; otherwise the address must be of the
    /// peers' family, or `[::]` for both.
    pub listen: SocketAddr,
    /// To whom to speak.
    pub reach: CarrierReach,
    /// The shared key: known to all hosts of the cluster and to nothing else.
    pub key: ClusterKey,
}

/// To whom a host speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CarrierReach {
    /// To each of these, and only these are heard. Our own address may be among them, so that all hosts can
    /// have the same list.
    Peers(Vec<PeerAddress>),
    /// To a group on the local network.
    Multicast {
        /// The group's address, for example `239.84.68.1` or `ff02::5444`.
        group: IpAddr,
        /// The network interface. Without it the system chooses by its routes.
        interface: Option<String>,
        /// The number of routers that may pass it on: 1 stays on the local network.
        hops: u8,
    },
}

impl UdpConfig {
    fn check(&self) -> Result<(), JoinError> {
        match &self.reach {
            CarrierReach::Peers(peers) => {
                if peers.is_empty() || peers.len() > MOST_LISTED {
                    return Err(JoinError::PeerCount(peers.len()));
                }
                let listen = self.listen;
                let mut peers = peers.iter().map(|peer| &peer.address);
                let reachable = |peer: &SocketAddr| {
                    peer.is_ipv4() == listen.is_ipv4() || (listen.is_ipv6() && listen.ip().is_unspecified())
                };
                match peers.find(|peer| peer.port() == 0 || !reachable(peer)) {
                    Some(peer) if peer.port() == 0 => Err(JoinError::NoPort(*peer)),
                    Some(peer) => Err(JoinError::Family { listen, peer: *peer }),
                    None => Ok(()),
                }
            }
            CarrierReach::Multicast { group, .. } if !group.is_multicast() => {
                Err(JoinError::NotMulticast(*group))
            }
            CarrierReach::Multicast { .. } if self.listen.port() == 0 => Err(JoinError::NoPort(self.listen)),
            CarrierReach::Multicast { .. } => Ok(()),
        }
    }
}

/// Blocks of a shared file or block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileConfig {
    /// A file or block device that all hosts reach under a path of their own: on a cluster file system, or a
    /// small shared volume. A file that is not there is made; a device, or a file, that is all zeros is
    /// taken; anything else is left alone.
    pub path: PathBuf,
    /// For how many hosts the file is made when it is not there, 1 to 512. A file that is there says it
    /// itself.
    pub slots: u16,
    /// The slot of this host, from 0. Without it a free one is found.
    pub slot: Option<u16>,
}

impl FileConfig {
    fn check(&self) -> Result<(), JoinError> {
        if !(1..=MOST_SLOTS).contains(&usize::from(self.slots)) {
            return Err(JoinError::Slots(self.slots));
        }
        Ok(())
    }
}

/// A NATS server, or several that form one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsConfig {
    /// The servers' addresses, for example `nats://10.0.0.5:4222`. The first one that answers is used.
    pub servers: Vec<String>,
    /// The credentials that the server asks for.
    pub credentials: NatsCredentials,
    /// Encryption. Without it, a connection is encrypted only if the server insists, and a host on its path
    /// can prevent that.
    pub tls: Option<TlsSettings>,
    /// The number of servers that keep the policies, used when their bucket is made: 1 to 5, and not more
    /// than there are.
    pub replicas: u8,
    /// The keys whose policies count. Without any, no policy does.
    pub writers: PolicyWriters,
}

/// The credentials that a NATS server asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NatsCredentials {
    /// Nothing.
    None,
    /// A token.
    Token(Secret),
    /// A user's name and password.
    User {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A signature with the key of a user whose JWT is known to it. Both are in this file, which is read for
    /// every connection.
    File(PathBuf),
}

impl NatsConfig {
    fn check(&self) -> Result<(), JoinError> {
        if self.servers.is_empty() {
            return Err(JoinError::NoServer);
        }
        if !(1..=5).contains(&self.replicas) {
            return Err(JoinError::Replicas(self.replicas));
        }
        for server in &self.servers {
            let failed = |why: String| JoinError::Server { server: masked(server).into_owned(), why };
            let address: async_nats::ServerAddr =
                server.parse().map_err(|error: std::io::Error| failed(error.to_string()))?;
            if address.is_websocket() {
                return Err(failed("only nats:// and tls:// are supported".to_owned()));
            }
            if address.tls_required() && self.tls.is_none() {
                return Err(failed(
                    "with tls:// there must be `tls = true`, for all servers alike".to_owned(),
                ));
            }
            if address.has_user_pass() {
                return Err(failed(
                    "write the password into the credentials, not into the address".to_owned(),
                ));
            }
        }
        Ok(())
    }
}

/// Reasons why a host cannot take part: its configuration is wrong. Conditions that may change by themselves,
/// such as an address that is not there yet, are no such errors: the carrier tries again, and says so in its
/// status.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The interval is out of its range.
    #[error("the cluster's interval must be 10ms to 60s, this one is {0:?}")]
    Interval(Duration),
    /// The list of peers is empty or too long.
    #[error("a list of peers has 1 to {MOST_LISTED} addresses, this one has {0}")]
    PeerCount(usize),
    /// An address without a port.
    #[error("{0}: the port must not be 0")]
    NoPort(SocketAddr),
    /// One cannot send to an IPv6 address from an IPv4 one, nor the other way round.
    #[error(
        "cannot reach {peer} from {listen}: listen on an address of the same family, or on [::] for both"
    )]
    Family {
        /// The address to listen on.
        listen: SocketAddr,
        /// The peer that cannot be reached from there.
        peer: SocketAddr,
    },
    /// The group's address is of one host.
    #[error("{0} is not a multicast address: use one such as 239.84.68.1 or ff02::5444")]
    NotMulticast(IpAddr),
    /// The number of slots is out of its range.
    #[error("a shared file has 1 to {MOST_SLOTS} slots, not {0}")]
    Slots(u16),
    /// No server was given.
    #[error("NATS needs the address of a server, such as nats://10.0.0.5:4222")]
    NoServer,
    /// A server's address cannot be used.
    #[error("{server}: {why}")]
    Server {
        /// The address.
        server: String,
        /// The reason.
        why: String,
    },
    /// The number of replicas is out of its range.
    #[error("the policies are kept by 1 to 5 servers, not {0}")]
    Replicas(u8),
    /// The system has no randomness to give.
    #[error("the system gives no random numbers")]
    NoRandomness,
    /// The system gives no thread or descriptor.
    #[error("cannot start the carrier")]
    System(#[from] std::io::Error),
}
