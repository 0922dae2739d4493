//! Addresses of other hosts, as a list of peers has them.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::str::FromStr;

use thiserror::Error;
use tidegate_units::{HostName, NameError};

/// Another host in the list of peers: `ADDRESS:PORT`, or `NAME@ADDRESS:PORT` where only that name counts from
/// there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    /// The only name that counts from there, and that counts from nowhere else.
    pub host: Option<HostName>,
    /// Its address.
    pub address: SocketAddr,
}

/// The reason why a text is no peer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PeerAddressError {
    /// There is no address in it.
    #[error("write ADDRESS:PORT or NAME@ADDRESS:PORT: {0}")]
    Address(#[from] AddrParseError),
    /// The name before the address is none.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: None, address }
    }
}

impl FromStr for PeerAddress {
    type Err = PeerAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A name may contain `@`, an address does not.
        Ok(match text.rsplit_once('@') {
            Some((host, address)) => Self { host: Some(HostName::new(host)?), address: address.parse()? },
            None => Self { host: None, address: text.parse()? },
        })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{host}@{}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}
