//! The nftables table that tells packets to be delayed from all others, and sends them through our device.
//!
//! It is of the family netdev: its chains are at the egress of interfaces, where alone a packet can be
//! redirected. One chain has all the work; each interface that leads to a member has one more, which only
//! sends packets there.
//!
//! What is wanted is rendered as a whole, and one transaction makes it of what is in force: there is no
//! sequence of changes that could end halfway.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::{Command, Stdio};

use serde_json::Value;
use tidegate_units::Latency;

use super::DelayedPackets;
use super::protocol::PROTOCOLS;
use super::tc::{DEVICE, class_id};

/// With its family.
const TABLE: &str = "netdev tidegate";

/// The priority of our chains: behind all others, which a redirected packet would not meet any more.
const LAST: u32 = 1_000_000;

/// The chain that tells packets from each other.
const HOLD: &str = "hold";

/// One resource's part of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TablePart {
    /// The class of its packets.
    pub(super) class: u16,
    /// The consumers whose packets they are.
    pub(super) members: BTreeSet<IpAddr>,
    /// True if its packets go to the class now.
    pub(super) ruled: bool,
    /// The delay of the class: of two rules for a consumer the longer one decides.
    pub(super) delay: Latency,
}

/// Everything the table holds, by the names of its sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NftTable {
    pub(super) parts: BTreeMap<String, TablePart>,
    pub(super) packets: DelayedPackets,
    pub(super) ports: BTreeSet<u16>,
    /// By which interfaces packets leave that may be ruled: their names, by their numbers.
    pub(super) interfaces: BTreeMap<u32, String>,
}

impl NftTable {
    /// Returns true if the kernel's rules would be the same: of the delays only their order is in the rules.
    pub(super) fn same_rules(&self, other: &Self) -> bool {
        let same = |(one, other): ((&String, &TablePart), (&String, &TablePart))| {
            one.0 == other.0 && one.1.members == other.1.members
        };
        self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(same)
            && self.rules() == other.rules()
            && self.hooks() == other.hooks()
    }

    /// Returns the text for `nft -f` that puts this into force whatever is there. Without parts it is nothing
    /// but the removal.
    fn render(&self) -> String {
        let mut text = format!("add table {TABLE}\ndelete table {TABLE}\n");
        if !self.parts.is_empty() {
            text += &format!("add table {TABLE}\n");
            text += &self.changes(&Self::default());
        }
        text
    }

    /// Returns the text for `nft -f` that makes this of `before`, which is in force and whose table stays.
    /// Things that stay the same are not touched. While a set or a chain is replaced, packets slip through,
    /// although that should be atomic.
    fn changes(&self, before: &Self) -> String {
        let mut text = String::new();
        let (old_sets, sets) = (before.sets(), self.sets());
        let (old_rules, rules) = (before.rules(), self.rules());
        for (name, (kind, _)) in sets.iter().filter(|(name, _)| !old_sets.contains_key(*name)) {
            text += &format!("add set {TABLE} {name} {{ type {kind}; }}\n");
        }
        for (name, (_, members)) in &sets {
            let old = old_sets.get(name).map(|(_, members)| members);
            let is_old = |address: &&IpAddr| old.is_some_and(|old| old.contains(*address));
            text += &elements("add", name, members.iter().filter(|address| !is_old(address)));
            text += &elements(
                "delete",
                name,
                old.into_iter().flatten().filter(|address| !members.contains(*address)),
            );
        }
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
        for name in old_sets.keys().filter(|name| !sets.contains_key(*name)) {
            text += &format!("delete set {TABLE} {name}\n");
        }
        text
    }

    /// Each set, by its name: the type of its members, and these.
    fn sets(&self) -> BTreeMap<String, (&'static str, BTreeSet<IpAddr>)> {
        let of = |(name, part): (&String, &TablePart)| {
            let (v4, v6) = part.members.iter().copied().partition(IpAddr::is_ipv4);
            [(format!("{name}_v4"), ("ipv4_addr", v4)), (format!("{name}_v6"), ("ipv6_addr", v6))]
        };
        self.parts.iter().flat_map(of).collect()
    }

    /// The chain of each interface that has one: none at rest.
    fn hooks(&self) -> BTreeMap<String, &str> {
        let ruled = self.parts.values().any(|part| part.ruled);
        let of = |(index, name)| (format!("on_{index}"), String::as_str(name));
        self.interfaces.iter().filter(|_| ruled).map(of).collect()
    }

    /// The rules in their order: the first one that matches decides.
    fn rules(&self) -> Vec<String> {
        let mut ruled: Vec<_> = self.parts.iter().filter(|(_, part)| part.ruled).collect();
        ruled.sort_by_key(|(_, part)| (Reverse(part.delay), part.class));
        let mut rules = Vec::new();
        for (name, part) in ruled {
            let id = class_id(part.class);
            for (suffix, family) in [("v4", Family::V4), ("v6", Family::V6)] {
                for (ports, packets) in self.packets.matches(family, &self.ports) {
                    rules.push(format!(
                        "tcp sport {{ {ports} }} {family} daddr @{name}_{suffix}{packets} meta priority set \
                            {:x}:{:x} fwd to \"{DEVICE}\"",
                        id >> 16,
                        id & 0xffff
                    ));
                }
            }
        }
        rules
    }
}

/// Adds or deletes members of a set; nothing without members.
fn elements<'a>(what: &str, set: &str, members: impl Iterator<Item = &'a IpAddr>) -> String {
    let members: Vec<_> = members.map(ToString::to_string).collect();
    if members.is_empty() {
        return String::new();
    }
    format!("{what} element {TABLE} {set} {{ {} }}\n", members.join(", "))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
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

/// The sets in the kernel and their members, the chains of interfaces, and how many rules there are for what
/// goes through them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seen {
    pub(super) sets: BTreeMap<String, BTreeSet<IpAddr>>,
    pub(super) hooks: BTreeSet<String>,
    pub(super) rules: usize,
}

impl Seen {
    /// Returns true if the kernel has what is wanted.
    pub(super) fn agrees_with(&self, table: &NftTable) -> bool {
        let sets = table.sets().into_iter().map(|(name, (_, members))| (name, members)).collect();
        let hooks: BTreeSet<_> = table.hooks().into_keys().collect();
        self.sets == sets && self.hooks == hooks && self.rules == table.rules().len()
    }
}

/// Puts a table into force in one transaction, whatever is there.
pub(super) fn replace(table: &NftTable) -> io::Result<()> {
    run(&["-f", "-"], &table.render()).map(drop)
}

/// Makes a table of the one that is in force, in one transaction.
pub(super) fn change(before: &NftTable, table: &NftTable) -> io::Result<()> {
    if before.parts.is_empty() || table.parts.is_empty() {
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
    for set in objects(&document, "set") {
        let name = set["name"].as_str().unwrap_or_default().to_owned();
        let elements = set["elem"].as_array().map_or(&[][..], Vec::as_slice);
        let members = elements.iter().filter_map(|element| element.as_str()?.parse().ok()).collect();
        seen.sets.insert(name, members);
    }
    Ok(Some(seen))
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
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::super::tc::TrafficControl;
    use super::*;

    fn part(class: u16, members: &[&str], ruled: bool, millis: u64) -> TablePart {
        let members = members.iter().map(|address| address.parse().unwrap()).collect();
        TablePart { class, members, ruled, delay: Latency::from_millis(millis) }
    }

    fn table(parts: &[(&str, TablePart)]) -> NftTable {
        let parts = parts.iter().map(|(name, part)| ((*name).to_owned(), part.clone())).collect();
        let interfaces = [(1, "lo".to_owned())].into();
        NftTable { parts, packets: DelayedPackets::All, ports: [3260].into(), interfaces }
    }

    #[test]
    fn nothing_wanted_is_nothing_left() {
        assert_eq!(NftTable::default().render(), "add table netdev tidegate\ndelete table netdev tidegate\n");
    }

    #[test]
    fn at_rest_there_are_sets_and_no_chain() {
        let text = table(&[("vg0", part(1, &["10.0.0.12"], false, 0))]).render();
        assert!(text.contains("add element netdev tidegate vg0_v4 { 10.0.0.12 }"), "{text}");
        assert!(!text.contains("chain"), "{text}");
    }

    #[test]
    fn the_longest_delay_is_ruled_first() {
        let text = table(&[
            ("vg0", part(1, &["10.0.0.12"], true, 20)),
            ("vg1", part(2, &["10.0.0.12", "fd00::12"], true, 5)),
        ])
        .render();
        let place = |rule: &str| text.find(rule).unwrap_or_else(|| panic!("no `{rule}` in {text}"));
        assert!(
            place("@vg0_v4 meta priority set 71de:1 fwd to")
                < place("@vg1_v4 meta priority set 71de:2 fwd to")
        );
        assert!(text.contains("ip6 daddr @vg1_v6"), "{text}");
    }

    #[test]
    fn acknowledgements_are_told_by_their_length_and_responses_by_their_opcode() {
        let mut table = table(&[("vg0", part(1, &["10.0.0.12"], true, 20))]);
        table.packets = DelayedPackets::Acks;
        let text = table.render();
        for rule in [
            "@vg0_v4 tcp flags & (syn | fin | rst) == 0x0 tcp doff <= 8 ip length <= 52 meta",
            "@vg0_v4 tcp flags & (syn | fin | rst) == 0x0 tcp doff > 8 ip length <= 80 meta",
            "@vg0_v6 tcp flags & (syn | fin | rst) == 0x0 tcp doff <= 8 ip6 length <= 32 meta",
            "@vg0_v6 tcp flags & (syn | fin | rst) == 0x0 tcp doff > 8 ip6 length <= 60 meta",
        ] {
            assert!(text.contains(rule), "{text}");
        }
        assert_eq!(text.matches("meta priority set").count(), 4);
        table.packets = DelayedPackets::Responses;
        let text = table.render();
        let iscsi = "@vg0_v4 tcp doff 8 @th,256,32 & 0xff000000 { 0x21000000, 0x31000000 } meta";
        assert!(text.contains(&format!("tcp sport {{ 3260 }} ip daddr {iscsi}")), "{text}");
        assert_eq!(text.matches("meta priority set").count(), 6);
        // Each protocol at its own port, and all three at a port of none.
        table.ports = [2049, 3260, 4420, 10_000].into();
        let text = table.render();
        assert!(text.contains("tcp sport { 2049, 3260, 4420, 10000 } ip daddr @vg0_v4 tcp flags"), "{text}");
        assert!(text.contains(&format!("tcp sport {{ 3260, 10000 }} ip daddr {iscsi}")), "{text}");
        assert!(
            text.contains(
                "tcp sport { 4420, 10000 } ip6 daddr @vg0_v6 tcp doff 8 @th,256,32 & 0xff00ff00 { 0x5001800, \
                    0x9001800 } meta"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "tcp sport { 2049, 10000 } ip daddr @vg0_v4 tcp doff 8 @th,256,32 & 0xfffffe00 { \
                0x80000000 } meta"
            ),
            "{text}"
        );
        assert_eq!(text.matches("meta priority set").count(), 10);
    }

    #[test]
    fn who_joins_while_others_are_held_changes_nothing_for_them() {
        let before = table(&[("vg0", part(1, &["10.0.0.12"], true, 20))]);
        let after = table(&[("vg0", part(1, &["10.0.0.12", "10.0.0.13"], true, 25))]);
        assert_eq!(after.changes(&before), "add element netdev tidegate vg0_v4 { 10.0.0.13 }\n");
        assert_eq!(before.changes(&after), "delete element netdev tidegate vg0_v4 { 10.0.0.13 }\n");
        assert_eq!(after.changes(&after), "");
    }

    /// In a network namespace of its own, as root.
    #[test]
    fn the_kernel_takes_every_change() {
        let nowhere = |table: NftTable| NftTable { interfaces: BTreeMap::new(), ..table };
        let steps = [
            table(&[("vg0", part(1, &["10.0.0.12"], false, 0))]),
            nowhere(table(&[("vg0", part(1, &["10.0.0.12"], true, 5))])),
            table(&[("vg0", part(1, &["10.0.0.12", "fd00::12"], true, 5))]),
            table(&[
                ("vg0", part(1, &["fd00::12"], true, 5)),
                ("vg1", part(2, &["10.0.0.14", "10.0.0.15"], true, 3)),
            ]),
            table(&[("vg1", part(2, &["10.0.0.15"], true, 3))]),
            NftTable {
                packets: DelayedPackets::Responses,
                ..table(&[("vg1", part(2, &["10.0.0.15"], true, 3))])
            },
            NftTable {
                packets: DelayedPackets::Responses,
                ports: [2049, 3260, 4420, 10_000].into(),
                ..table(&[("vg1", part(2, &["10.0.0.15"], true, 3))])
            },
            table(&[("vg1", part(2, &[], false, 0))]),
            NftTable::default(),
        ];
        let trial = std::thread::spawn(move || {
            // SAFETY: only this thread changes its network namespace, before it opens anything.
            if let Err(error) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
                assert_eq!(error, rustix::io::Errno::PERM);
                return;
            }
            TrafficControl::open().unwrap().add_device().unwrap();
            let mut before = NftTable::default();
            for (number, step) in steps.into_iter().enumerate() {
                match change(&before, &step) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                    changed => changed.unwrap_or_else(|error| panic!("step {number}: {error}")),
                }
                let seen = read().unwrap().unwrap_or_default();
                assert!(seen.agrees_with(&step), "step {number}: {seen:?}");
                before = step;
            }
        });
        trial.join().unwrap();
    }

    #[test]
    fn what_is_seen_is_compared_with_what_is_wanted() {
        let wanted = table(&[("vg0", part(1, &["10.0.0.12", "fd00::12"], true, 5))]);
        let mut seen = Seen {
            sets: [
                ("vg0_v4".to_owned(), ["10.0.0.12".parse().unwrap()].into()),
                ("vg0_v6".to_owned(), ["fd00::12".parse().unwrap()].into()),
            ]
            .into(),
            hooks: ["on_1".to_owned()].into(),
            rules: 2,
        };
        assert!(seen.agrees_with(&wanted));
        let whole = seen.clone();
        seen.rules = 0;
        assert!(!seen.agrees_with(&wanted));
        let without_interface = Seen { hooks: BTreeSet::new(), ..whole };
        assert!(!without_interface.agrees_with(&wanted));
    }
}
