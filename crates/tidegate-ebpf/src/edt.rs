//! The program `edt` (`bpf/edt.c`): packets to members are given an earliest departure time, and a class.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::AlignedBytes;

static ALIGNED: &AlignedBytes<[u8]> = &AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/edt.o")));

/// The program and its maps, as an ELF object.
pub static OBJECT: &[u8] = &ALIGNED.0;

/// The program's name, in the object and in the kernel.
pub const PROGRAM: &str = "tidegate_edt";

/// A [`EdtSettings`], at 0.
pub const SETTINGS: &str = "tidegate_set";

/// By [`AddressKey`]: the slot (`u32`) whose delay is the member's.
pub const HELD: &str = "tidegate_held";

/// By slot: nanoseconds (`u64`).
pub const DELAYS: &str = "tidegate_delay";

/// By [`AddressKey`]: when the member's last packet leaves, in nanoseconds (`u64`) of the monotonic clock.
/// Without an entry nothing keeps a member's packets in order.
pub const LAST: &str = "tidegate_last";

/// Members that the maps have room for.
pub const MOST_MEMBERS: u32 = 65_536;

/// Delays that the map has room for, [`RELEASED`] included.
pub const SLOTS: u32 = 4_097;

/// The slot of members that are being released: its delay stays zero.
pub const RELEASED: u32 = 0;

/// An address as the maps have it: an IPv4 address as `::ffff:a.b.c.d`, in network order.
pub type AddressKey = [u8; 16];

/// The key of an address.
#[must_use]
pub const fn key(address: IpAddr) -> AddressKey {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The packets to a member that are delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PacketKinds {
    /// All from the ports.
    All = 0,
    /// Those without payload.
    Acks = 1,
    /// Those without payload, and those whose payload has one of the port's [`PayloadStart`]s.
    Responses = 2,
}

/// The beginning of a packet's payload: its first four bytes in network order, of which the mask's bits
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PayloadStart {
    /// The bits that count.
    pub mask: u32,
    /// The values of these bits.
    pub value: u32,
}

/// Different beginnings that there is room for.
pub const MOST_BEGINNINGS: usize = 7;

/// One byte per port, by its number in network order: a bit for each beginning, and [`COUNTS`].
const PORT_BYTES: usize = 65_536;
const COUNTS: u8 = 0x80;

const BEGINNINGS_AT: usize = 8;
const BEGINNING_BYTES: usize = 8;
const PORTS_AT: usize = BEGINNINGS_AT + MOST_BEGINNINGS * BEGINNING_BYTES;

/// The settings common to all members, in the map's format.
pub type EdtSettings = [u8; PORTS_AT + PORT_BYTES];

/// Returns the settings by which packets of this kind from these ports go to this class. Each port has the
/// beginnings of packets that count as responses.
///
/// # Panics
/// With more than [`MOST_BEGINNINGS`] different beginnings.
#[must_use]
pub fn settings(packets: PacketKinds, class: u32, ports: &BTreeMap<u16, Vec<PayloadStart>>) -> EdtSettings {
    let mut settings = [0; PORTS_AT + PORT_BYTES];
    settings[..4].copy_from_slice(&(packets as u32).to_ne_bytes());
    settings[4..BEGINNINGS_AT].copy_from_slice(&class.to_ne_bytes());
    for port in ports.keys() {
        settings[PORTS_AT + usize::from(port.to_be())] = COUNTS;
    }
    let all: BTreeSet<PayloadStart> = ports.values().flatten().copied().collect();
    assert!(all.len() <= MOST_BEGINNINGS, "{} beginnings", all.len());
    for (number, beginning) in all.into_iter().enumerate() {
        let at = BEGINNINGS_AT + number * BEGINNING_BYTES;
        settings[at..at + 4].copy_from_slice(&beginning.mask.to_ne_bytes());
        settings[at + 4..at + 8].copy_from_slice(&beginning.value.to_ne_bytes());
        for (port, _) in ports.iter().filter(|(_, own)| own.contains(&beginning)) {
            settings[PORTS_AT + usize::from(port.to_be())] |= 1 << number;
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_of_the_machine_that_runs_in_the_kernel() {
        const MACHINE_AT: usize = 18;
        const BPF: u16 = 247;
        assert_eq!(OBJECT[..4], *b"\x7fELF");
        assert_eq!(OBJECT[MACHINE_AT..MACHINE_AT + 2], BPF.to_ne_bytes());
        assert_eq!(OBJECT.as_ptr().addr() % 8, 0);
    }

    #[test]
    fn an_ipv4_address_is_one_of_ipv6() {
        assert_eq!(key("10.0.0.11".parse().unwrap()), *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x0b");
        assert_eq!(key("fd00::b".parse().unwrap())[14..], [0, 0xb]);
    }

    #[test]
    fn every_port_has_beginnings_of_its_own() {
        let [one, other] = [1, 2].map(|value| PayloadStart { mask: 0xff, value });
        let ports = [(0, vec![]), (3260, vec![other]), (65_535, vec![one, other])].into();
        let settings = settings(PacketKinds::Responses, 0x71de_0001, &ports);
        let head: Vec<u32> =
            settings[..24].chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!(head, [2, 0x71de_0001, 0xff, 1, 0xff, 2]);
        assert_eq!(settings[24..64], [0; 40]);
        let set: Vec<_> = (0..=u16::MAX)
            .map(|port| (port, settings[64 + usize::from(port.to_be())]))
            .filter(|(_, byte)| *byte != 0)
            .collect();
        assert_eq!(set, [(0, 0x80), (3260, 0x82), (65_535, 0x83)]);
    }
}
