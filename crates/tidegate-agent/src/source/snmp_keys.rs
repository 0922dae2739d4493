//! The keys of `source` that tell how to ask an SNMP agent.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use async_snmp::{AuthProtocol, PrivProtocol};
use tidegate_cluster::Secret;
use tidegate_config::{FindingList, Section};

use super::snmp::{ObjectId, SnmpAccess, SnmpUser};

/// The keys that only a source of SNMP has.
pub(super) const SNMP_KEYS: &[&str] =
    &["oid", "community_file", "user", "authentication", "authentication_file", "privacy", "privacy_file"];

/// The keys that belong to a user of version 3.
const USER_KEYS: [&str; 4] = ["authentication", "authentication_file", "privacy", "privacy_file"];

/// The longest community. Chosen: agents take 32 bytes at least, and a datagram has room for more.
const LONGEST_COMMUNITY: usize = 255;

/// The longest name of a user (RFC 3414, 5: SnmpAdminString of at most 32 octets).
const LONGEST_USER: usize = 32;

/// The shortest passphrase (RFC 3414, 11.2).
const SHORTEST_PASSPHRASE: usize = 8;

/// The community of an agent as it is delivered.
const USUAL_COMMUNITY: &str = "public";

const AUTHENTICATION: [(&str, AuthProtocol); 6] = [
    ("sha256", AuthProtocol::Sha256),
    ("sha224", AuthProtocol::Sha224),
    ("sha384", AuthProtocol::Sha384),
    ("sha512", AuthProtocol::Sha512),
    ("sha1", AuthProtocol::Sha1),
    ("md5", AuthProtocol::Md5),
];

/// DES is left out: a key of 56 bits protects nothing, and its use takes a counter that survives restarts.
const PRIVACY: [(&str, PrivProtocol); 5] = [
    ("aes", PrivProtocol::Aes128),
    ("aes192", PrivProtocol::Aes192Blumenthal),
    ("aes256", PrivProtocol::Aes256Blumenthal),
    ("aes192-cisco", PrivProtocol::Aes192Reeder),
    ("aes256-cisco", PrivProtocol::Aes256Reeder),
];

/// The address of an agent, with or without its port.
struct SnmpAddress(SocketAddr);

impl FromStr for SnmpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// The port of SNMP.
        const PORT: u16 = 161;
        let with_port = text.parse().or_else(|_| text.parse().map(|address| SocketAddr::new(address, PORT)));
        with_port
            .map(Self)
            .map_err(|_| format!("`{}` is no address, such as 10.0.0.9 or 10.0.0.9:161", text.escape_debug()))
    }
}

/// Reads the address of an SNMP agent, the object, and the credentials.
pub(super) fn read(
    table: &Section<'_>,
    folder: Option<&Path>,
    report: &mut FindingList<'_>,
) -> Option<(SocketAddr, ObjectId, SnmpAccess)> {
    if !table.has("oid") {
        table.missing("oid", "\"1.3.6.1.4.1.8072.1.0\"", report);
    }
    let address = table.parsed::<SnmpAddress>("snmp", report);
    let object = table.parsed::<ObjectId>("oid", report);
    let access = if table.has("user") {
        user(table, folder, report).map(SnmpAccess::User)
    } else {
        community(table, folder, report).map(SnmpAccess::Community)
    };
    let SnmpAddress(address) = address?.value;
    Some((address, object?.value, access?))
}

fn community(table: &Section<'_>, folder: Option<&Path>, report: &mut FindingList<'_>) -> Option<Secret> {
    for key in USER_KEYS {
        if let Some(span) = table.key_span(key) {
            report.error_with_help(&span, format!("`{key}` is only for a `user`"), "add `user`");
        }
    }
    if !table.has("community_file") {
        return Some(Secret::new(USUAL_COMMUNITY));
    }
    let fits = |secret: &str| match secret.len() {
        0..=LONGEST_COMMUNITY => Ok(()),
        length => Err(format!("a community of {length} bytes; at most {LONGEST_COMMUNITY} are possible")),
    };
    secret(table, "community_file", folder, fits, report)
}

fn user(table: &Section<'_>, folder: Option<&Path>, report: &mut FindingList<'_>) -> Option<SnmpUser> {
    if let Some(span) = table.key_span("community_file") {
        report.error(&span, "`user` and `community_file` exclude each other: a user takes version 3");
    }
    if !table.has("authentication_file") {
        table.missing("authentication_file", "\"snmp-authentication\"", report);
    }
    if let Some(span) = table.key_span("privacy").filter(|_| !table.has("privacy_file")) {
        report.error_with_help(&span, "`privacy` needs a passphrase", "add `privacy_file`");
    }
    let name = table.text("user", report)?;
    if !(1..=LONGEST_USER).contains(&name.value.len()) {
        report.error(&name.span, format!("the name of a user has 1 to {LONGEST_USER} bytes"));
    }
    let authentication = table.choice("authentication", &AUTHENTICATION, report);
    let privacy = table.choice("privacy", &PRIVACY, report);
    let fits = |secret: &str| match secret.len() {
        SHORTEST_PASSPHRASE.. => Ok(()),
        length => Err(format!(
            "a passphrase of {length} bytes; SNMP version 3 needs {SHORTEST_PASSPHRASE} at least"
        )),
    };
    let passphrase = secret(table, "authentication_file", folder, fits, report);
    let encryption = match table.has("privacy_file") {
        false => None,
        true => {
            let protocol = privacy.map_or(PrivProtocol::Aes128, |given| given.value);
            Some((protocol, secret(table, "privacy_file", folder, fits, report)?))
        }
    };
    let protocol = authentication.map_or(AuthProtocol::Sha256, |given| given.value);
    Some(SnmpUser {
        name: name.value.to_owned(),
        authentication: (protocol, passphrase?),
        privacy: encryption,
    })
}

/// Reads the secret in the file that a key names. Without a folder, no file is read.
fn secret(
    table: &Section<'_>,
    key: &str,
    folder: Option<&Path>,
    fits: impl FnOnce(&str) -> Result<(), String>,
    report: &mut FindingList<'_>,
) -> Option<Secret> {
    let given = table.text(key, report)?;
    let Some(folder) = folder else { return Some(Secret::new("")) };
    let path = folder.join(given.value);
    let secret = match Secret::from_file(&path) {
        Ok(secret) => secret,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            report.error(&given.span, format!("{error}{}", cause.unwrap_or_default()));
            return None;
        }
    };
    match fits(secret.as_str()) {
        Ok(()) => Some(secret),
        Err(why) => {
            report.error(&given.span, format!("{} holds {why}", path.display()));
            None
        }
    }
}
