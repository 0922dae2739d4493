//! The location of an export, as an NBD URI.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;
use tidegate_nbd::{ExportName, ExportNameError};

/// The port that IANA assigned to NBD.
const DEFAULT_PORT: u16 = 10_809;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerEndpoint {
    /// By TCP.
    Tcp {
        /// A name, an IPv4 address, or an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// By a Unix socket.
    Unix(PathBuf),
}

/// An export of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoadTarget {
    /// The address of the server.
    pub endpoint: ServerEndpoint,
    /// The name of the export; the empty name is the server's default.
    pub export: ExportName,
    /// The folder with certificates, where the connections are encrypted.
    pub tls: Option<PathBuf>,
}

/// The reasons why a text is not an NBD URI that can be used here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// It does not begin like one.
    #[error("write `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`, not `{0}`")]
    Scheme(String),
    /// It asks for TLS, and does not say where the certificates are.
    #[error("`{0}` names no certificates; end it with `?tls-certificates=FOLDER`")]
    NoCertificates(String),
    /// A user's name or a password, which are not shown.
    #[error("an NBD URI has no user and no password: servers know their clients by certificates")]
    Credentials,
    /// No host in a TCP URI.
    #[error("`{0}` names no host")]
    NoHost(String),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` is not a port")]
    Port(String),
    /// No socket in a Unix URI.
    #[error("`{0}` names no socket; end it with `?socket=PATH`")]
    NoSocket(String),
    /// A host in a Unix URI.
    #[error("`{0}` names a host beside the socket; write `nbd+unix:///`, with three slashes")]
    HostAndSocket(String),
    /// A parameter that is not understood.
    #[error(
        "unknown parameter `{0}`; understood are `socket` with `+unix:`, and `tls-certificates` with `nbds`"
    )]
    Parameter(String),
    /// `%` without two hexadecimal digits, or bytes that are not UTF-8.
    #[error("`{0}` is not percent-encoded UTF-8")]
    Encoding(String),
    /// The export's name cannot be one.
    #[error(transparent)]
    Export(#[from] ExportNameError),
}

impl LoadTarget {
    /// An export of a server behind a Unix socket.
    #[must_use]
    pub fn unix(socket: impl Into<PathBuf>, export: ExportName) -> Self {
        Self { endpoint: ServerEndpoint::Unix(socket.into()), export, tls: None }
    }

    /// An export of a server behind a TCP port.
    #[must_use]
    pub fn tcp(host: impl Into<String>, port: u16, export: ExportName) -> Self {
        Self { endpoint: ServerEndpoint::Tcp { host: host.into(), port }, export, tls: None }
    }
}

impl FromStr for LoadTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| TargetError::Scheme(text.to_owned()))?;
        let (location, query) = match rest.split_once('?') {
            Some((location, query)) => (location, Some(query)),
            None => (rest, None),
        };
        let (authority, export) = location.split_once('/').unwrap_or((location, ""));
        let export = ExportName::new(decode(export)?)?;
        let (unix, secret) = match scheme {
            "nbd" => (false, false),
            "nbd+unix" => (true, false),
            "nbds" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(TargetError::Scheme(text.to_owned())),
        };
        let (mut socket, mut certificates) = (None, None);
        for parameter in query.into_iter().flat_map(|query| query.split('&')) {
            match parameter.split_once('=') {
                Some(("socket", path)) if unix && socket.is_none() => socket = Some(decode(path)?),
                Some(("tls-certificates", path)) if secret && certificates.is_none() => {
                    certificates = Some(decode(path)?);
                }
                _ => return Err(TargetError::Parameter(parameter.to_owned())),
            }
        }
        let endpoint = if unix {
            if !authority.is_empty() {
                return Err(TargetError::HostAndSocket(text.to_owned()));
            }
            let socket = socket.filter(|socket| !socket.is_empty());
            ServerEndpoint::Unix(socket.ok_or_else(|| TargetError::NoSocket(text.to_owned()))?.into())
        } else {
            match tcp_endpoint(authority, text) {
                // A password may have any character in it, and looks like a port.
                Err(_) if location.contains('@') => return Err(TargetError::Credentials),
                _ if authority.contains('@') => return Err(TargetError::Credentials),
                endpoint => endpoint?,
            }
        };
        let tls = match certificates.filter(|folder| !folder.is_empty()) {
            None if secret => return Err(TargetError::NoCertificates(text.to_owned())),
            folder => folder.map(PathBuf::from),
        };
        Ok(Self { endpoint, export, tls })
    }
}

fn tcp_endpoint(authority: &str, text: &str) -> Result<ServerEndpoint, TargetError> {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => {
            (host, Some(rest.strip_prefix(':').ok_or_else(|| TargetError::Port(rest.to_owned()))?))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(TargetError::NoHost(text.to_owned()));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => {
            port.parse().ok().filter(|port| *port != 0).ok_or_else(|| TargetError::Port(port.to_owned()))?
        }
    };
    Ok(ServerEndpoint::Tcp { host: host.to_owned(), port })
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, TargetError> {
    let bad = || TargetError::Encoding(text.to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(bad)?;
        rest = tail;
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(bad);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// Percent-encodes what would be misread.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

impl fmt::Display for LoadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(self.export.as_str());
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        match &self.endpoint {
            ServerEndpoint::Tcp { host, port } if host.contains(':') => {
                write!(f, "{scheme}://[{host}]:{port}/{export}")?;
            }
            ServerEndpoint::Tcp { host, port } => write!(f, "{scheme}://{host}:{port}/{export}")?,
            ServerEndpoint::Unix(path) => {
                write!(f, "{scheme}+unix:///{export}?socket={}", encode(&Path::to_string_lossy(path)))?;
            }
        }
        match (&self.tls, &self.endpoint) {
            (None, _) => Ok(()),
            (Some(folder), ServerEndpoint::Tcp { .. }) => {
                write!(f, "?tls-certificates={}", encode(&folder.to_string_lossy()))
            }
            (Some(folder), ServerEndpoint::Unix(_)) => {
                write!(f, "&tls-certificates={}", encode(&folder.to_string_lossy()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> ExportName {
        ExportName::new(text).unwrap()
    }

    #[test]
    fn uris_are_understood() {
        for (text, target) in [
            ("nbd://localhost/disk", LoadTarget::tcp("localhost", 10_809, name("disk"))),
            ("nbd://10.0.0.1:99/", LoadTarget::tcp("10.0.0.1", 99, name(""))),
            ("nbd://host", LoadTarget::tcp("host", 10_809, name(""))),
            ("nbd://[::1]/a/b", LoadTarget::tcp("::1", 10_809, name("a/b"))),
            ("nbd://[fe80::1]:7/x%20y", LoadTarget::tcp("fe80::1", 7, name("x y"))),
            ("nbd+unix:///disk?socket=/run/n.sock", LoadTarget::unix("/run/n.sock", name("disk"))),
            ("nbd+unix://?socket=rel", LoadTarget::unix("rel", name(""))),
            (
                "nbds://h/x?tls-certificates=/etc/pki",
                LoadTarget { tls: Some("/etc/pki".into()), ..LoadTarget::tcp("h", 10_809, name("x")) },
            ),
            (
                "nbds+unix:///x?tls-certificates=c&socket=s",
                LoadTarget { tls: Some("c".into()), ..LoadTarget::unix("s", name("x")) },
            ),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_uri_is_said() {
        let error = |text: &str| text.parse::<LoadTarget>().unwrap_err();
        assert_eq!(error("localhost:10809"), TargetError::Scheme("localhost:10809".to_owned()));
        assert_eq!(error("http://x/"), TargetError::Scheme("http://x/".to_owned()));
        for unsafe_tls in ["nbds://x/", "nbds://x/?tls-certificates=", "nbds+unix:///x?socket=s"] {
            assert_eq!(error(unsafe_tls), TargetError::NoCertificates(unsafe_tls.to_owned()));
        }
        assert_eq!(
            error("nbd://x/?tls-certificates=d"),
            TargetError::Parameter("tls-certificates=d".to_owned())
        );
        assert_eq!(error("nbd:///x"), TargetError::NoHost("nbd:///x".to_owned()));
        assert_eq!(error("nbd://x:0/"), TargetError::Port("0".to_owned()));
        assert_eq!(error("nbd://x:65536/"), TargetError::Port("65536".to_owned()));
        assert_eq!(error("nbd://[::1]7/"), TargetError::Port("7".to_owned()));
        assert_eq!(error("nbd+unix:///x"), TargetError::NoSocket("nbd+unix:///x".to_owned()));
        assert_eq!(error("nbd+unix:///x?socket="), TargetError::NoSocket("nbd+unix:///x?socket=".to_owned()));
        assert_eq!(
            error("nbd+unix://h/x?socket=s"),
            TargetError::HostAndSocket("nbd+unix://h/x?socket=s".to_owned())
        );
        assert_eq!(error("nbd+unix:///x?path=s"), TargetError::Parameter("path=s".to_owned()));
        assert_eq!(error("nbd://h/x?socket=s"), TargetError::Parameter("socket=s".to_owned()));
        assert_eq!(error("nbd://h/%e9"), TargetError::Encoding("%e9".to_owned()));
        assert_eq!(error("nbd://h/%4"), TargetError::Encoding("%4".to_owned()));
        assert_eq!(error("nbd://h/%00"), TargetError::Export(ExportNameError::Nul));
    }

    proptest! {
        #[test]
        fn uris_round_trip(
            export in "[^\0]{0,30}", host in "[a-z0-9.:]{1,20}", port in 1u16..=65535,
                socket in "[^\0]{1,30}",
        ) {
            for target in
                [LoadTarget::tcp(host, port, name(&export)), LoadTarget::unix(socket.clone(), name(&export))]
            {
                prop_assert_eq!(target.to_string().parse(), Ok(target.clone()));
                let secret = LoadTarget { tls: Some(socket.clone().into()), ..target };
                prop_assert_eq!(secret.to_string().parse(), Ok(secret));
            }
        }

        #[test]
        fn arbitrary_text_is_no_trouble(text in "\\PC{0,60}") {
            let _ = text.parse::<LoadTarget>();
            let _ = format!("nbd+unix://{text}").parse::<LoadTarget>();
        }
    }
}
