//! The NFS server's files.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::device::DeviceNumber;
use crate::sense::mounts::unescape;
use crate::sense::tree::shown;

/// A client of NFSv4.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NfsClient {
    /// The name that it gives itself, as the kernel escapes it.
    pub(super) name: String,
    /// `None` if it does not come over IP.
    pub(super) address: Option<IpAddr>,
}

/// `clients/<n>/info`; an error has the line, counted from 1. The client's own words are escaped by the
/// kernel.
pub(super) fn client(text: &str) -> Result<NfsClient, (usize, String)> {
    let mut address = None;
    let mut name = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(value) = line.strip_prefix("address: ") {
            let inner = quoted(value);
            // What is not of IP, the kernel does not know how to write.
            address = match inner {
                Some("(einval)") => Some(None),
                _ => Some(Some(inner.and_then(ip).ok_or_else(|| {
                    (
                        index + 1,
                        format!("expected an address such as `\"10.0.0.11:917\"`, not `{}`", shown(value)),
                    )
                })?)),
            };
        } else if let Some(value) = line.strip_prefix("name: ") {
            let value = quoted(value)
                .ok_or_else(|| (index + 1, format!("expected a name in quotes, not `{}`", shown(value))))?;
            name = Some(value.to_owned());
        }
    }
    let missing = |what: &str| (text.lines().count().max(1), format!("expected a line `{what}: …`"));
    Ok(NfsClient {
        name: name.ok_or_else(|| missing("name"))?,
        address: address.ok_or_else(|| missing("address"))?,
    })
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

/// `10.0.0.11:917`, `[fd00::11]:917`
fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse::<SocketAddr>().ok()?.ip().to_canonical())
}

/// `clients/<n>/states`: the file systems on which there is anything open, locked or delegated.
///
/// File names are the clients' and not escaped, newlines included: what does not look like the beginning of a
/// line of the kernel's is skipped, and the superblock comes before the name. A client that forges a line
/// claims to load what it does not.
pub(super) fn file_systems(text: &str) -> BTreeSet<DeviceNumber> {
    let superblock = |line: &str| {
        let (_, rest) = line.strip_prefix("- 0x")?.split_once("superblock: \"")?;
        let mut numbers = rest.split(':').map(|number| u32::from_str_radix(number, 16));
        Some(DeviceNumber::new(numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    text.lines().filter_map(superblock).collect()
}

/// An export to a client, or to a set of clients.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NfsExport {
    pub(super) path: String,
    /// An address, a prefix, a name, a pattern of names, a netgroup, or `*`.
    client: String,
}

impl NfsExport {
    /// Returns true if it may be for an address. Names are not looked up, and may mean any client.
    pub(super) fn may_be_for(&self, address: IpAddr) -> bool {
        let (network, bits) = match self.client.split_once('/') {
            Some((network, bits)) => (network, Some(bits)),
            None => (self.client.as_str(), None),
        };
        let Ok(network) = network.parse::<IpAddr>() else { return true };
        let (Some(network), Some(address), width) = (match (network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (Some(u128::from(network.to_bits())), Some(u128::from(address.to_bits())), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (Some(network.to_bits()), Some(address.to_bits()), 128)
            }
            _ => (None, None, 0),
        }) else {
            return false;
        };
        let bits = match bits {
            None => width,
            // Only people write a mask in dots; not understood, it may be for any host.
            Some(bits) => match bits.parse::<u32>() {
                Ok(bits) if bits <= width => bits,
                _ => return true,
            },
        };
        (network ^ address).checked_shr(width - bits).unwrap_or(0) == 0
    }
}

/// `exports`: `<path>\t<client>(<flags>)`, white space and backslashes as octal numbers. Paths below `/` that
/// are there for NFSv4 only are among them.
pub(super) fn exports(text: &str) -> Vec<NfsExport> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (path, rest) = line.split_once('\t')?;
            let (client, _) = rest.split_once('(')?;
            Some(NfsExport { path: unescape(path), client: unescape(client) })
        })
        .collect()
}

/// `portlist`: `tcp 2049`; that port if there is no such line.
pub(super) fn tcp_ports(text: &str) -> Vec<u16> {
    let ports: Vec<u16> =
        text.lines().filter_map(|line| line.strip_prefix("tcp ")?.trim().parse().ok()).collect();
    if ports.is_empty() { vec![2049] } else { ports }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clients_of_every_form_are_read() {
        let read = |address: &str| {
            client(&format!("clientid: 0x1\naddress: \"{address}\"\nname: \"a \\x22b\"\n")).unwrap()
        };
        let one = read("10.0.0.11:917");
        assert_eq!((one.name.as_str(), one.address), ("a \\x22b", "10.0.0.11".parse().ok()));
        assert_eq!(read("[fd00::11]:917").address, "fd00::11".parse().ok());
        assert_eq!(read("[::ffff:10.0.0.11]:917").address, "10.0.0.11".parse().ok());
        assert_eq!(read("(einval)").address, None);
        for (text, line) in [("", 1), ("address: \"10.0.0.1\"\n", 1), ("name: x\n", 1), ("name: \"x\"\n", 1)]
        {
            assert_eq!(client(text).unwrap_err().0, line, "{text}");
        }
    }

    #[test]
    fn file_names_with_newlines_are_no_error() {
        let text = "- 0x01: { type: open, access: rw, deny: --, superblock: \"fd:1f:131\", filename: \"a\n- \
            b\", owner: \"x\" }\n\
                    - 0x02: { type: lock, superblock: \"fd:00:7\", filename: \"superblock: \"08:00:1\"\" }\n\
                    - 0x03: { type: layout }\n";
        let numbers = [DeviceNumber::new(253, 0), DeviceNumber::new(253, 31)];
        assert_eq!(file_systems(text), BTreeSet::from(numbers));
    }

    #[test]
    fn an_export_may_be_for_whom_it_names() {
        let may = |client: &str, address: &str| {
            let all = exports(&format!("# Version 1.1\n/srv/a\\040b\t{client}(rw,sync)\n"));
            assert_eq!(all[0].path, "/srv/a b");
            all[0].may_be_for(address.parse().unwrap())
        };
        for client in [
            "10.0.0.0/24",
            "10.0.0.11",
            "*",
            "*.example.org",
            "@group",
            "0.0.0.0/0",
            "10.0.0.0/255.255.255.0",
        ] {
            assert!(may(client, "10.0.0.11"), "{client}");
        }
        for client in ["10.0.1.0/24", "10.0.0.12", "fd00::/64", "::/0"] {
            assert!(!may(client, "10.0.0.11"), "{client}");
        }
        assert!(may("fd00::/64", "fd00::11") && may("::/0", "fd00::11") && !may("fd00::/128", "fd00::11"));
    }

    #[test]
    fn ports_are_those_of_tcp() {
        assert_eq!(tcp_ports("rdma 20049\nudp 2049\ntcp 2050\n"), [2050]);
        assert_eq!(tcp_ports(""), [2049]);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(\\PC|\n|\t){0,200}",
            client_text in "[0-9a-f.:/()\t]{0,40}") {
            let _ = client(&text);
            let _ = file_systems(&text);
            let _ = tcp_ports(&text);
            for export in exports(&text).into_iter().chain(exports(&format!("/a\t{client_text}"))) {
                let _ = export.may_be_for("10.0.0.1".parse().unwrap());
                let _ = export.may_be_for("fd00::1".parse().unwrap());
            }
        }
    }
}
