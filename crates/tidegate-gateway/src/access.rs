//! Access: which clients may use which export.
//!
//! A client is known by the way it comes (a Unix socket, whose kernel tells the user, or an address), and by
//! the names in its certificate, where it shows one. [`ExportAccess::judge`] decides; nothing here touches a
//! socket.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::stats::RefusalReason;

/// The clients that may use an export.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ExportAccess {
    /// Those on this host: by a Unix socket, or from a loopback address.
    #[default]
    Local,
    /// Those that fit at least one of these rules.
    Rules(Vec<AccessRule>),
    /// All that can connect.
    Any,
}

/// A rule that admits a client. All that it names must fit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessRule {
    /// The client shows a certificate that has this name.
    pub certificate: Option<CertificateName>,
    /// It comes by a Unix socket and runs as this user.
    pub user: Option<u32>,
    /// It comes by a Unix socket and belongs to this group.
    pub group: Option<u32>,
    /// It comes from an address in this network.
    pub network: Option<AddressRange>,
}

/// A name that a rule wants in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateName {
    /// Any certificate that is verified.
    Any,
    /// This name, in small letters.
    Is(String),
}

impl CertificateName {
    /// `*` is any name.
    #[must_use]
    pub fn new(text: &str) -> Self {
        if text == "*" { Self::Any } else { Self::Is(text.to_ascii_lowercase()) }
    }
}

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    bits: u8,
}

/// The reasons why a text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetworkError {
    /// It does not look like one.
    #[error("`{0}` is not a network; write for example `10.1.0.0/16`, `fd00::/8`, or a single address")]
    Form(String),
    /// The address has bits beyond those that the network is about.
    #[error("`{given}` names an address within a network; the network is `{meant}`")]
    Host {
        /// The text.
        given: String,
        /// The network that the address is in.
        meant: AddressRange,
    },
}

impl FromStr for AddressRange {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let form = || NetworkError::Form(text.escape_debug().to_string());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| form())?;
        let most = width(address);
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(form)?,
        };
        let meant = Self { first: masked(address, bits), bits };
        if meant.first == address {
            Ok(meant)
        } else {
            Err(NetworkError::Host { given: text.escape_debug().to_string(), meant })
        }
    }
}

impl AddressRange {
    /// Returns true if the address is in the network. An IPv4 address that arrives mapped into IPv6 counts as
    /// IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        width(address) == width(self.first) && masked(address, self.bits) == self.first
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or_default();
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or_default();
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

/// A client, as far as it is known.
#[derive(Debug, Clone)]
pub(crate) struct KnownClient {
    pub(crate) origin: ClientOrigin,
    /// The names in its certificate, which was verified. `None`: it has shown none.
    pub(crate) names: Option<Vec<String>>,
}

/// The way a client comes.
#[derive(Debug, Clone)]
pub(crate) enum ClientOrigin {
    /// By a Unix socket; `None` if the kernel did not tell the user.
    Unix(Option<ProcessCredentials>),
    /// From an address.
    Tcp(IpAddr),
}

/// The user and the groups of a process, as the kernel knows them since it connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessCredentials {
    pub(crate) user: u32,
    pub(crate) groups: Vec<u32>,
}

/// The outcome of a client's request for an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessVerdict {
    Allowed,
    /// A certificate may help.
    NeedsCertificate,
    Denied(RefusalReason),
}

impl ExportAccess {
    pub(crate) fn judge(&self, client: &KnownClient) -> AccessVerdict {
        let rules = match self {
            Self::Any => return AccessVerdict::Allowed,
            Self::Local if client.is_local() => return AccessVerdict::Allowed,
            Self::Local => &[],
            Self::Rules(rules) => &rules[..],
        };
        // Whether a rule fits but for the certificate, and whether it lacks one.
        let elsewhere = |rule: &&AccessRule| rule.fits_origin(&client.origin);
        let fits = |rule: &AccessRule| rule.fits_names(client.names.as_deref());
        if rules.iter().filter(elsewhere).any(fits) {
            AccessVerdict::Allowed
        } else if client.names.is_none() && rules.iter().any(|rule| elsewhere(&rule)) {
            AccessVerdict::NeedsCertificate
        } else if rules.iter().any(|rule| elsewhere(&rule)) {
            AccessVerdict::Denied(RefusalReason::Certificate)
        } else {
            match client.origin {
                ClientOrigin::Unix(_) => AccessVerdict::Denied(RefusalReason::User),
                ClientOrigin::Tcp(_) => AccessVerdict::Denied(RefusalReason::Address),
            }
        }
    }

    /// Returns true if any rule names a certificate.
    pub(crate) fn asks_for_certificates(&self) -> bool {
        matches!(self, Self::Rules(rules) if rules.iter().any(|rule| rule.certificate.is_some()))
    }
}

impl AccessRule {
    fn fits_origin(&self, origin: &ClientOrigin) -> bool {
        let process = match origin {
            ClientOrigin::Unix(process) => process.as_ref(),
            ClientOrigin::Tcp(_) => None,
        };
        let user = self.user.is_none_or(|user| process.is_some_and(|process| process.user == user));
        let group =
            self.group.is_none_or(|group| process.is_some_and(|process| process.groups.contains(&group)));
        let network = self
            .network
            .is_none_or(|network| matches!(origin, ClientOrigin::Tcp(address) if network.contains(*address)));
        user && group && network
    }

    fn fits_names(&self, names: Option<&[String]>) -> bool {
        match (&self.certificate, names) {
            (None, _) | (Some(CertificateName::Any), Some(_)) => true,
            (Some(CertificateName::Is(wanted)), Some(names)) => names.contains(wanted),
            (Some(_), None) => false,
        }
    }
}

impl KnownClient {
    fn is_local(&self) -> bool {
        match self.origin {
            ClientOrigin::Unix(_) => true,
            ClientOrigin::Tcp(address) => address.to_canonical().is_loopback(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(address: &str, names: Option<&[&str]>) -> KnownClient {
        let names = names.map(|names| names.iter().map(ToString::to_string).collect());
        KnownClient { origin: ClientOrigin::Tcp(address.parse().unwrap()), names }
    }

    fn unix(user: u32, groups: &[u32]) -> KnownClient {
        let credentials = ProcessCredentials { user, groups: groups.to_vec() };
        KnownClient { origin: ClientOrigin::Unix(Some(credentials)), names: None }
    }

    fn network(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    #[test]
    fn without_rules_only_this_host_comes_in() {
        for local in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(ExportAccess::Local.judge(&tcp(local, None)), AccessVerdict::Allowed, "{local}");
        }
        assert_eq!(ExportAccess::Local.judge(&unix(7, &[7])), AccessVerdict::Allowed);
        assert_eq!(
            ExportAccess::Local.judge(&KnownClient { origin: ClientOrigin::Unix(None), names: None }),
            AccessVerdict::Allowed
        );
        let denied = AccessVerdict::Denied(RefusalReason::Address);
        for remote in ["10.0.0.1", "128.0.0.1", "fe80::1", "::ffff:10.0.0.1", "::"] {
            assert_eq!(ExportAccess::Local.judge(&tcp(remote, None)), denied, "{remote}");
            assert_eq!(ExportAccess::Local.judge(&tcp(remote, Some(&["db"]))), denied, "{remote}");
            assert_eq!(ExportAccess::Any.judge(&tcp(remote, None)), AccessVerdict::Allowed, "{remote}");
        }
    }

    #[test]
    fn a_rule_wants_all_that_it_names_and_one_rule_is_enough() {
        let db = Some(CertificateName::new("DB.example"));
        let access = ExportAccess::Rules(vec![
            AccessRule { certificate: db, network: Some(network("10.1.0.0/16")), ..AccessRule::default() },
            AccessRule { network: Some(network("10.2.0.7")), ..AccessRule::default() },
            AccessRule { user: Some(64055), group: Some(108), ..AccessRule::default() },
        ]);
        for (client, verdict) in [
            (tcp("10.1.2.3", Some(&["x", "db.example"])), AccessVerdict::Allowed),
            (tcp("10.1.2.3", Some(&["other"])), AccessVerdict::Denied(RefusalReason::Certificate)),
            (tcp("10.1.2.3", Some(&[])), AccessVerdict::Denied(RefusalReason::Certificate)),
            (tcp("10.1.2.3", None), AccessVerdict::NeedsCertificate),
            (tcp("10.9.2.3", Some(&["db.example"])), AccessVerdict::Denied(RefusalReason::Address)),
            (tcp("10.2.0.7", None), AccessVerdict::Allowed),
            (tcp("::ffff:10.2.0.7", None), AccessVerdict::Allowed),
            (tcp("10.2.0.8", None), AccessVerdict::Denied(RefusalReason::Address)),
            (tcp("127.0.0.1", None), AccessVerdict::Denied(RefusalReason::Address)),
            (unix(64055, &[5, 108]), AccessVerdict::Allowed),
            (unix(64055, &[5]), AccessVerdict::Denied(RefusalReason::User)),
            (unix(0, &[108]), AccessVerdict::Denied(RefusalReason::User)),
        ] {
            assert_eq!(access.judge(&client), verdict, "{client:?}");
        }
        let nobody = KnownClient { origin: ClientOrigin::Unix(None), names: None };
        assert_eq!(access.judge(&nobody), AccessVerdict::Denied(RefusalReason::User));
        assert_eq!(
            ExportAccess::Rules(Vec::new()).judge(&unix(0, &[0])),
            AccessVerdict::Denied(RefusalReason::User)
        );
    }

    #[test]
    fn any_certificate_is_one_that_was_shown() {
        let rule = AccessRule { certificate: Some(CertificateName::new("*")), ..AccessRule::default() };
        let access = ExportAccess::Rules(vec![rule]);
        assert!(access.asks_for_certificates());
        assert_eq!(access.judge(&tcp("10.0.0.1", Some(&[]))), AccessVerdict::Allowed);
        assert_eq!(access.judge(&tcp("10.0.0.1", None)), AccessVerdict::NeedsCertificate);
    }

    #[test]
    fn networks_are_read_and_contain_what_they_should() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("192.0.2.128/25", "192.0.2.255", "192.0.2.127"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("::1/128", "::1", "::2"),
        ] {
            let network = network(text);
            assert!(network.contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{text} {outside}");
            assert_eq!(network.to_string().parse(), Ok(network));
        }
        for wrong in ["", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "10.0.0.0/", "localhost", "10.0.0.0/-1"] {
            assert!(matches!(wrong.parse::<AddressRange>(), Err(NetworkError::Form(_))), "{wrong}");
        }
        let error = "10.1.2.3/16".parse::<AddressRange>().unwrap_err();
        assert!(error.to_string().ends_with("the network is `10.1.0.0/16`"), "{error}");
    }
}
