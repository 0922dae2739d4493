//! The nftables table that tells packets to be delayed from all others, and sends them through our device.
//!
//! It is of the family netdev: its chains are at the egress of interfaces, where alone a packet can be
//! redirected. One chain has all the work; each interface that leads to a member has one more, which only
//! sends packets there. Two maps, one for each family of addresses, give the class of each member: a packet
//! costs one look-up, whatever the number of members and resources.
//!
//! What is wanted is rendered as a whole, and one transaction makes it of what is in force: there is no
//! sequence of changes that could end halfway.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::DelayedPackets;
use super::protocol::PROTOCOLS;
use super::tc::{DEVICE, class_id, class_of};

/// With its family.
const TABLE: &str = "netdev tidegate";

/// The priority of our chains: behind all others, which a redirected packet would not meet any more.
const LAST: u32 = 1_000_000;

/// The chain that tells packets from each other.
const HOLD: &str = "hold";

/// Everything the table holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NftTable {
    /// The class of each member. Without members there is no table.
    pub(super) classes: BTreeMap<IpAddr, u16>,
    /// True if packets to members are redirected now.
    pub(super) redirects: bool,
    pub(super) packets: DelayedPackets,
    pub(super) ports: BTreeSet<u16>,
    /// The interfaces by which packets leave that may be redirected: their names, by their numbers.
    pub(super) interfaces: BTreeMap<u32, String>,
}

impl NftTable {
    /// Returns true if the kernel's table would be the same.
    pub(super) fn same_rules(&self, other: &Self) -> bool {
        self.classes == other.classes && self.rules() == other.rules() && self.hooks() == other.hooks()
    }

    /// Returns true if it redirects packets of any interface.
    pub(super) fn is_hooked(&self) -> bool {
        self.redirects && !self.classes.is_empty() && !self.interfaces.is_empty()
    }

    /// Returns the text for `nft -f` that puts this into force whatever is there. Without members it is
    /// nothing but the removal.
    fn render(&self) -> String {
        let mut text = format!("add table {TABLE}\ndelete table {TABLE}\n");
        if !self.classes.is_empty() {
            text += &format!("add table {TABLE}\n");
            for family in Family::BOTH {
                text +=
                    &format!("add map {TABLE} {} {{ type {} : classid; }}\n", family.map(), family.kind());
            }
            text += &self.changes(&Self::default());
        }
        text
    }

    /// Returns the text for `nft -f` that makes this of `before`, which is in force and whose table stays.
    /// Things that stay the same are not touched. While a chain is replaced, packets slip through, although
    /// that should be atomic.
    fn changes(&self, before: &Self) -> String {
        let mut text = String::new();
        for family in Family::BOTH {
            let of = |all: &Self, others: &Self| {
                let changed = |(address, class): &(&IpAddr, &u16)| {
                    family.has(**address) && others.classes.get(*address) != Some(*class)
                };
                let classes = all.classes.iter().filter(changed);
                classes
                    .map(|(address, class)| format!("{address} : {}", class_text(*class)))
                    .collect::<Vec<_>>()
            };
            // A member of another class goes and comes: the kernel changes no element.
            text += &elements("delete", family, &of(before, self));
            text += &elements("add", family, &of(self, before));
        }
        let (old_rules, rules) = (before.rules(), self.rules());
        let (old_hooks, hooks) = (before.hooks(), self.hooks());
        for chain in old_hooks.keys().filter(|chain| !hooks.contains_key(*chain)) {
            text += &format!("delete chain {TABLE} {chain}\n");
        }
        if rules != old_rules {
            let change = match (old_rules.as_slice(), rules.as_slice()) {
                ([], _) => "add",
                (_, []) => "delete",
                _ => "flush",
            };
            text += &format!("{change} chain {TABLE} {HOLD}\n");
            for rule in &rules {
                text += &format!("add rule {TABLE} {HOLD} {rule}\n");
            }
        }
        for (chain, interface) in hooks.iter().filter(|(chain, _)| !old_hooks.contains_key(*chain)) {
            text += &format!(
                "add chain {TABLE} {chain} {{ type filter hook egress device \"{interface}\" priority \
                    {LAST}; policy accept; }}\n\
                 add rule {TABLE} {chain} jump {HOLD}\n"
            );
        }
        text
    }

    /// The chain of each interface that has one: none at rest.
    fn hooks(&self) -> BTreeMap<String, &str> {
        let of = |(index, name)| (format!("on_{index}"), String::as_str(name));
        self.interfaces.iter().filter(|_| self.is_hooked()).map(of).collect()
    }

    /// The rules: a packet that matches one is redirected. None at rest.
    fn rules(&self) -> Vec<String> {
        let mut rules = Vec::new();
        for family in Family::BOTH.into_iter().filter(|_| self.redirects && !self.classes.is_empty()) {
            for (ports, packets) in self.packets.matches(family, &self.ports) {
                // A packet to an address that is not in the map matches no further, and goes its way.
                rules.push(format!(
                    "meta protocol {family} tcp sport {{ {ports} }}{packets} meta priority set \
                        {family} daddr map @{} fwd to \"{DEVICE}\"",
                    family.map()
                ));
            }
        }
        rules
    }
}

/// Adds or deletes elements of a map; nothing without elements.
fn elements(what: &str, family: Family, elements: &[String]) -> String {
    if elements.is_empty() {
        return String::new();
    }
    format!("{what} element {TABLE} {} {{ {} }}\n", family.map(), elements.join(", "))
}

/// A class as nftables writes it.
fn class_text(class: u16) -> String {
    let id = class_id(class);
    format!("{:x}:{:x}", id >> 16, id & 0xffff)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const BOTH: [Self; 2] = [Self::V4, Self::V6];

    fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    /// The name of its map.
    fn map(self) -> &'static str {
        match self {
            Self::V4 => "classes_v4",
            Self::V6 => "classes_v6",
        }
    }

    /// The type of its addresses.
    fn kind(self) -> &'static str {
        match self {
            Self::V4 => "ipv4_addr",
            Self::V6 => "ipv6_addr",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        })
    }
}

/// TCP header lengths, each with the greatest IPv4 length of a packet that has such a header and no payload.
/// It is 20 bytes each of IPv4 and TCP, with 12 of timestamps, or with up to 40 of options. The shortest
/// answer, of 24 bytes by NVMe/TCP, makes 76 with timestamps.
const WITHOUT_PAYLOAD: [(&str, u32); 2] = [("<= 8", 52), ("> 8", 80)];

/// IPv6 counts what follows its header; IPv4 includes its own, which is of this length.
const IPV4_HEADER: u32 = 20;

impl DelayedPackets {
    /// The ports that a packet may come from, and what it then has to look like: any of these.
    fn matches(self, family: Family, ports: &BTreeSet<u16>) -> Vec<(String, String)> {
        let all = listed(ports.iter());
        let acks = WITHOUT_PAYLOAD.map(|(words, greatest)| {
            let greatest = match family {
                Family::V4 => greatest,
                Family::V6 => greatest - IPV4_HEADER,
            };
            let what = format!(
                " tcp flags & (syn | fin | rst) == 0x0 tcp doff {words} {family} length <= {greatest}"
            );
            (all.clone(), what)
        });
        match self {
            Self::All => vec![(all, String::new())],
            Self::Acks => acks.to_vec(),
            Self::Responses => acks.into_iter().chain(responses(ports)).collect(),
        }
    }
}

/// The beginnings of what paces writes, by port. It follows the TCP header, which is of 32 bytes (`doff 8`)
/// with timestamps, as Linux sends them.
fn responses(ports: &BTreeSet<u16>) -> impl Iterator<Item = (String, String)> {
    PROTOCOLS.iter().filter_map(|protocol| {
        let own = listed(ports.iter().filter(|port| protocol.is_at(**port)));
        let values = listed(protocol.values.iter().map(|value| format!("{value:#x}")));
        let beginning = format!(" tcp doff 8 @th,256,32 & {:#x} {{ {values} }}", protocol.mask);
        (!own.is_empty()).then_some((own, beginning))
    })
}

fn listed(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// The members in the kernel's table and their classes, the chains of interfaces, and how many rules there
/// are for what goes through them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seen {
    pub(super) classes: BTreeMap<IpAddr, u16>,
    pub(super) hooks: BTreeSet<String>,
    pub(super) rules: usize,
}

impl Seen {
    /// Returns true if the kernel has what is wanted.
    pub(super) fn agrees_with(&self, table: &NftTable) -> bool {
        let hooks: BTreeSet<_> = table.hooks().into_keys().collect();
        self.classes == table.classes && self.hooks == hooks && self.rules == table.rules().len()
    }
}

/// Puts a table into force in one transaction, whatever is there.
pub(super) fn replace(table: &NftTable) -> io::Result<()> {
    run(&["-f", "-"], &table.render()).map(drop)
}

/// Makes a table of the one that is in force, in one transaction.
pub(super) fn change(before: &NftTable, table: &NftTable) -> io::Result<()> {
    if before.classes.is_empty() || table.classes.is_empty() {
        return replace(table);
    }
    run(&["-f", "-"], &table.changes(before)).map(drop)
}

/// Reads our part of the kernel's tables; `None` if there is no table.
pub(super) fn read() -> io::Result<Option<Seen>> {
    let listing = run(&["-j", "list", "tables"], "")?;
    let tables: Value = serde_json::from_slice(&listing)?;
    let exists = objects(&tables, "table").any(is_ours);
    if !exists {
        return Ok(None);
    }
    let listing = run(&["-j", &format!("list table {TABLE}")], "")?;
    let document: Value = serde_json::from_slice(&listing)?;
    let hooks = objects(&document, "chain").filter(|chain| chain.get("hook").is_some());
    let mut seen = Seen {
        hooks: hooks.filter_map(|chain| chain["name"].as_str().map(str::to_owned)).collect(),
        rules: objects(&document, "rule").filter(|rule| rule["chain"] == HOLD).count(),
        ..Seen::default()
    };
    for map in objects(&document, "map") {
        let elements = map["elem"].as_array().map_or(&[][..], Vec::as_slice);
        seen.classes.extend(elements.iter().filter_map(element));
    }
    Ok(Some(seen))
}

/// An element of a map: an address, and the class of its packets.
fn element(element: &Value) -> Option<(IpAddr, u16)> {
    let [address, class] = element.as_array()?.as_slice() else { return None };
    let (major, minor) = class.as_str()?.split_once(':')?;
    let part = |text| u32::from_str_radix(text, 16).ok().filter(|part| *part <= 0xffff);
    Some((address.as_str()?.parse().ok()?, class_of(part(major)? << 16 | part(minor)?)?))
}

fn is_ours(table: &Value) -> bool {
    let name = |key: &str| table[key].as_str().unwrap_or_default().to_owned();
    format!("{} {}", name("family"), name("name")) == TABLE
}

fn objects<'a>(document: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    document["nftables"].as_array().into_iter().flatten().filter_map(move |object| object.get(kind))
}

fn run(arguments: &[&str], input: &str) -> io::Result<Vec<u8>> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("nft: {error} (package nftables)")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("nft: {}", said.trim())));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use tidegate_testing::{Lack, in_own_network, skip, until_true};

    use super::super::tc::TrafficControl;
    use super::*;

    fn table(members: &[(&str, u16)], redirects: bool) -> NftTable {
        let classes = members.iter().map(|(address, class)| (address.parse().unwrap(), *class)).collect();
        let interfaces = [(1, "lo".to_owned())].into();
        NftTable { classes, redirects, packets: DelayedPackets::All, ports: [3260].into(), interfaces }
    }

    #[test]
    fn nothing_wanted_is_nothing_left() {
        assert_eq!(NftTable::default().render(), "add table netdev tidegate\ndelete table netdev tidegate\n");
    }

    #[test]
    fn at_rest_there_are_maps_and_no_chain() {
        let text = table(&[("10.0.0.12", 1)], false).render();
        assert!(text.contains("add element netdev tidegate classes_v4 { 10.0.0.12 : 71de:1 }"), "{text}");
        assert!(!text.contains("chain"), "{text}");
    }

    #[test]
    fn there_are_as_many_rules_for_a_hundred_classes_as_for_one() {
        let addresses: Vec<_> = (0..100).map(|last| format!("10.0.0.{last}")).collect();
        let members: Vec<_> = addresses.iter().map(String::as_str).zip(1..).collect();
        let text = table(&members, true).render();
        assert_eq!(text.matches("meta priority set").count(), 2, "{text}");
        assert!(text.contains("meta priority set ip daddr map @classes_v4 fwd to \"tidegate\""), "{text}");
        assert!(text.contains("meta priority set ip6 daddr map @classes_v6 fwd to \"tidegate\""), "{text}");
    }

    #[test]
    fn acknowledgements_are_told_by_their_length_and_responses_by_their_opcode() {
        let mut table = table(&[("10.0.0.12", 1)], true);
        table.packets = DelayedPackets::Acks;
        let text = table.render();
        for rule in [
            "} tcp flags & (syn | fin | rst) == 0x0 tcp doff <= 8 ip length <= 52 meta",
            "} tcp flags & (syn | fin | rst) == 0x0 tcp doff > 8 ip length <= 80 meta",
            "} tcp flags & (syn | fin | rst) == 0x0 tcp doff <= 8 ip6 length <= 32 meta",
            "} tcp flags & (syn | fin | rst) == 0x0 tcp doff > 8 ip6 length <= 60 meta",
        ] {
            assert!(text.contains(rule), "{text}");
        }
        assert_eq!(text.matches("meta priority set").count(), 4);
        table.packets = DelayedPackets::Responses;
        let text = table.render();
        let iscsi = "tcp doff 8 @th,256,32 & 0xff000000 { 0x21000000, 0x31000000 } meta";
        assert!(text.contains(&format!("tcp sport {{ 3260 }} {iscsi}")), "{text}");
        assert_eq!(text.matches("meta priority set").count(), 6);
        // Each protocol at its own port, and all three at a port of none.
        table.ports = [2049, 3260, 4420, 10_000].into();
        let text = table.render();
        assert!(text.contains("tcp sport { 2049, 3260, 4420, 10000 } tcp flags"), "{text}");
        assert!(text.contains(&format!("tcp sport {{ 3260, 10000 }} {iscsi}")), "{text}");
        assert!(
            text.contains(
                "tcp sport { 4420, 10000 } tcp doff 8 @th,256,32 & 0xff00ff00 { 0x5001800, \
                    0x9001800 } meta"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "tcp sport { 2049, 10000 } tcp doff 8 @th,256,32 & 0xfffffe00 { \
                0x80000000 } meta"
            ),
            "{text}"
        );
        assert_eq!(text.matches("meta priority set").count(), 10);
    }

    #[test]
    fn who_joins_while_others_are_held_changes_nothing_for_them() {
        let before = table(&[("10.0.0.12", 1)], true);
        let after = table(&[("10.0.0.12", 1), ("10.0.0.13", 1)], true);
        assert_eq!(after.changes(&before), "add element netdev tidegate classes_v4 { 10.0.0.13 : 71de:1 }\n");
        let removed = "delete element netdev tidegate classes_v4 { 10.0.0.13 : 71de:1 }\n";
        assert_eq!(before.changes(&after), removed);
        assert_eq!(after.changes(&after), "");
        let moved = table(&[("10.0.0.12", 1), ("10.0.0.13", 2)], true);
        let added = "add element netdev tidegate classes_v4 { 10.0.0.13 : 71de:2 }\n";
        assert_eq!(moved.changes(&after), format!("{removed}{added}"));
    }

    /// In a network namespace of its own, as root.
    #[test]
    fn the_kernel_takes_every_change() {
        let nowhere = |table: NftTable| NftTable { interfaces: BTreeMap::new(), ..table };
        let of_responses =
            || NftTable { packets: DelayedPackets::Responses, ..table(&[("10.0.0.15", 2)], true) };
        let steps = [
            table(&[("10.0.0.12", 1)], false),
            nowhere(table(&[("10.0.0.12", 1)], true)),
            table(&[("10.0.0.12", 1), ("fd00::12", 1)], true),
            table(&[("fd00::12", 2), ("10.0.0.14", 4096), ("10.0.0.15", 2)], true),
            table(&[("10.0.0.15", 2)], true),
            of_responses(),
            NftTable { ports: [2049, 3260, 4420, 10_000].into(), ..of_responses() },
            table(&[("10.0.0.15", 2)], false),
            NftTable::default(),
        ];
        in_own_network(move || {
            TrafficControl::open().unwrap().add_device().unwrap();
            let mut before = NftTable::default();
            for (number, step) in steps.into_iter().enumerate() {
                match change(&before, &step) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return skip(Lack::Program("nft"), error);
                    }
                    changed => changed.unwrap_or_else(|error| panic!("step {number}: {error}")),
                }
                let seen = read().unwrap().unwrap_or_default();
                assert!(seen.agrees_with(&step), "step {number}: {seen:?}");
                before = step;
            }
        });
    }

    /// The header of an Ethernet frame, with these VLAN tags.
    fn ethernet(tags: &[u16]) -> Vec<u8> {
        let mut header = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
        for tag in tags {
            header.extend([0x81, 0]);
            header.extend(tag.to_be_bytes());
        }
        header.extend([8, 0]);
        header
    }

    /// A TCP segment without payload, from port 3260 to 10.0.0.12, in IPv4.
    fn segment() -> Vec<u8> {
        let addresses = [[10, 0, 0, 1], [10, 0, 0, 12]].concat();
        let mut packet = [&[0x45, 0, 0, 40, 0, 1, 0, 0, 64, 6, 0, 0], &addresses[..]].concat();
        let words = packet.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend([3_260_u16, 40_000].map(u16::to_be_bytes).concat());
        packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 4, 0, 0, 0, 0, 0]);
        packet
    }

    /// Sends a frame as it is.
    fn send(interface: &str, frame: &[u8]) {
        let name = CString::new(interface).unwrap();
        // SAFETY: the name ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: no memory is passed.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(index > 0 && socket >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor is new, and owned from here on.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: zeros are a valid address of this kind.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = i32::try_from(index).unwrap();
        // SAFETY: frame and address live during the call, with the lengths that are told.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        assert_eq!(usize::try_from(sent).unwrap(), frame.len(), "{}", io::Error::last_os_error());
    }

    /// Packets that an interface has sent.
    fn sent(interface: &str) -> u64 {
        let shown = Command::new("ip").args(["-s", "-j", "link", "show", interface]).output().unwrap();
        let links: Value = serde_json::from_slice(&shown.stdout).unwrap();
        links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    }

    /// In a network namespace of its own, as root: a bridge between an array's port and an initiator's.
    #[test]
    fn packets_that_cross_a_bridge_are_redirected_with_a_vlan_tag_and_without() {
        in_own_network(|| {
            let ip = |arguments: &str| {
                let done = Command::new("ip").args(arguments.split(' ')).status();
                done.is_ok_and(|status| status.success())
            };
            let is_made = [
                "link add array type veth peer name port1",
                "link add port2 type veth peer name initiator",
                "link add bridge type bridge",
                "link set port1 master bridge",
                "link set port2 master bridge",
            ];
            if !is_made.into_iter().all(ip) {
                return skip(Lack::Kernel("bridge"), "a bridge between two pairs of veth cannot be made");
            }
            let mut tc = TrafficControl::open().unwrap();
            tc.add_device().unwrap();
            for name in ["array", "port1", "port2", "initiator", "bridge", DEVICE] {
                // Nothing of the kernel's own is to pass.
                assert!(ip(&format!("link set {name} addrgenmode none")), "{name}");
                assert!(ip(&format!("link set {name} up")), "{name}");
            }
            let table =
                NftTable { interfaces: [(1, "port2".to_owned())].into(), ..table(&[("10.0.0.12", 1)], true) };
            match replace(&table) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return skip(Lack::Program("nft"), error);
                }
                replaced => replaced.unwrap(),
            }
            for tags in [&[][..], &[5]] {
                // A bridge sends packets of its own, such as IGMP reports: only ours reach the device.
                let delayed = sent(DEVICE);
                // The first ones may find a port that is not up yet.
                until_true("a redirected packet", || {
                    send("array", &[ethernet(tags), segment()].concat());
                    sent(DEVICE) > delayed
                });
            }
        });
    }

    #[test]
    fn what_is_seen_is_compared_with_what_is_wanted() {
        let wanted = table(&[("10.0.0.12", 1), ("fd00::12", 1)], true);
        let mut seen = Seen { classes: wanted.classes.clone(), hooks: ["on_1".to_owned()].into(), rules: 2 };
        assert!(seen.agrees_with(&wanted));
        let whole = seen.clone();
        seen.rules = 0;
        assert!(!seen.agrees_with(&wanted));
        let without_interface = Seen { hooks: BTreeSet::new(), ..whole.clone() };
        assert!(!without_interface.agrees_with(&wanted));
        let elsewhere = Seen { classes: table(&[("10.0.0.12", 2)], true).classes, ..whole };
        assert!(!elsewhere.agrees_with(&wanted));
    }

    #[test]
    fn what_is_no_class_of_ours_is_no_member() {
        let read = |text: &str| element(&serde_json::from_str(text).unwrap());
        assert_eq!(read(r#"["10.0.0.12", "71de:1f"]"#), Some(("10.0.0.12".parse().unwrap(), 0x1f)));
        for other in
            [r#"["10.0.0.12", "1:1"]"#, r#"["10.0.0.12", "none"]"#, r#""10.0.0.12""#, r#"["x", "71de:1"]"#]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
