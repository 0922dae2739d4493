//! The socket, for a list of peers or for a group.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::config::{CarrierReach, UdpConfig};
use crate::peer_address::PeerAddress;

/// A socket that neither blocks nor is shared with other programs' children, and to whom it speaks.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    pub(crate) socket: UdpSocket,
    pub(crate) targets: Vec<SocketAddr>,
}

impl DatagramSocket {
    /// # Errors
    /// When an address or interface is not there, or the port is taken.
    pub(crate) fn open(config: &UdpConfig) -> io::Result<Self> {
        match &config.reach {
            CarrierReach::Peers(peers) => Self::open_list(config.listen, peers),
            CarrierReach::Multicast { group, interface, hops } => {
                Self::open_group(SocketAddr::new(*group, config.listen.port()), interface.as_deref(), *hops)
            }
        }
    }

    fn open_list(listen: SocketAddr, peers: &[PeerAddress]) -> io::Result<Self> {
        let socket = new_socket(listen)?;
        let both_families = listen.is_ipv6() && listen.ip().is_unspecified();
        if listen.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, !both_families)?;
        }
        bind(&socket, &listen)?;
        let target = |peer: &PeerAddress| match &peer.address {
            SocketAddr::V4(v4) if both_families => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            other => *other,
        };
        Ok(Self { socket, targets: peers.iter().map(target).collect() })
    }

    fn open_group(group: SocketAddr, interface: Option<&str>, hops: u8) -> io::Result<Self> {
        let socket = new_socket(group)?;
        // Several hosts of a test, or several services of one machine, listen to one group.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        let index = match interface {
            Some(name) => name_to_index(&socket, name)
                .map_err(|error| io::Error::new(error.kind(), format!("interface `{name}`: {error}")))?,
            None => 0,
        };
        match group.ip() {
            IpAddr::V4(address) => {
                sockopt::set_ip_add_membership_with_ifindex(
                    &socket,
                    &address,
                    &Ipv4Addr::UNSPECIFIED,
                    index,
                )?;
                if index != 0 {
                    let any = Ipv4Addr::UNSPECIFIED;
                    sockopt::set_ip_multicast_if_with_ifindex(&socket, &any, &any, index)?;
                }
                sockopt::set_ip_multicast_ttl(&socket, hops.into())?;
                sockopt::set_ip_multicast_loop(&socket, true)?;
            }
            IpAddr::V6(address) => {
                sockopt::set_ipv6_v6only(&socket, true)?;
                sockopt::set_ipv6_add_membership(&socket, &address, index)?;
                sockopt::set_ipv6_multicast_if(&socket, index)?;
                sockopt::set_ipv6_multicast_hops(&socket, hops.into())?;
                sockopt::set_ipv6_multicast_loop(&socket, true)?;
            }
        }
        // Bound to the group's own address, the socket gets nothing else that comes to this port.
        let target = match group {
            SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope(v6.ip(), index)).into(),
            v4 @ SocketAddr::V4(_) => v4,
        };
        bind(&socket, &target)?;
        Ok(Self { socket, targets: vec![target] })
    }
}

/// A link-local group is one only on an interface.
fn scope(group: &Ipv6Addr, index: u32) -> u32 {
    let link_local = group.segments()[0] & 0xf == 2;
    if link_local { index } else { 0 }
}

fn new_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::DGRAM, flags, None)?.into())
}
