//! Addresses of services as people write them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use tidegate_config::masked;

/// The address of a service. [`Display`](fmt::Display) gives its URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServiceAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host and a port, in plain text.
    Http(String),
    /// A host and a port, by TLS.
    Https(String),
}

/// The error for a text that is no such address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no address of a service: write http://HOST:PORT, https://HOST:PORT or unix:PATH, such as \
     http://127.0.0.1:9809"
)]
pub(crate) struct ServiceAddressError(String);

impl FromStr for ServiceAddress {
    type Err = ServiceAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let authority = |rest: &str| {
            let authority = rest.trim_end_matches('/');
            is_authority(authority).then(|| authority.to_owned())
        };
        let address = if let Some(path) = text.strip_prefix("unix:") {
            Some(path)
                .filter(|path| !path.is_empty() && !path.contains('\0'))
                .map(|path| Self::Unix(path.into()))
        } else if let Some(rest) = text.strip_prefix("http://") {
            authority(rest).map(Self::Http)
        } else {
            text.strip_prefix("https://").and_then(authority).map(Self::Https)
        };
        address.ok_or_else(|| ServiceAddressError(masked(text).escape_debug().to_string()))
    }
}

fn is_authority(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
    !host.is_empty() && host.bytes().all(plain) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http(authority) => write!(f, "http://{authority}"),
            Self::Https(authority) => write!(f, "https://{authority}"),
        }
    }
}

impl ServiceAddress {
    /// Returns the host and the port that a request names.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Unix(_) => "localhost",
            Self::Http(authority) | Self::Https(authority) => authority,
        }
    }

    /// Returns the name that the certificate of the service must have; `None` without TLS.
    pub(super) fn server(&self) -> Option<&str> {
        match self {
            Self::Https(authority) => {
                let (host, _) = authority.rsplit_once(':')?;
                Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
            }
            Self::Unix(_) | Self::Http(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_or_a_socket() {
        for url in ["http://127.0.0.1:9809", "http://[::1]:9809", "https://gw.example:1", "unix:/run/a.sock"]
        {
            assert_eq!(url.parse::<ServiceAddress>().unwrap().to_string(), url);
        }
        assert_eq!("http://storage-1:80/".parse(), Ok(ServiceAddress::Http("storage-1:80".to_owned())));
        for (url, server) in [("https://[::1]:1", "::1"), ("https://gw.example:1", "gw.example")] {
            assert_eq!(url.parse::<ServiceAddress>().unwrap().server(), Some(server));
        }
        let wrong = [
            "",
            "127.0.0.1:9809",
            "ftp://a:1",
            "http://",
            "http://a",
            "http://a:0",
            "http://:1",
            "http://a:1/v1",
            "https://a",
            "unix:",
            "http://a\r\nb:1",
            "http://a:65536",
        ];
        for url in wrong {
            assert!(url.parse::<ServiceAddress>().is_err(), "{url}");
        }
    }
}
