//! The program `edt` (`bpf/edt.c`): packets to members are given an earliest departure time, and a class.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Aligned;

static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/edt.o")));

/// The program and its maps, as an ELF object.
pub static OBJECT: &[u8] = &ALIGNED.0;

/// The program's name, in the object and in the kernel.
pub const PROGRAM: &str = "tidegate_edt";

/// A [`Settings`], at 0.
pub const SETTINGS: &str = "tidegate_set";

/// By [`Key`]: the slot (`u32`) whose delay is the member's.
pub const HELD: &str = "tidegate_held";

/// By slot: nanoseconds (`u64`).
pub const DELAYS: &str = "tidegate_delay";

/// By [`Key`]: when the member's last packet leaves, in nanoseconds (`u64`) of the monotonic clock. Without an entry nothing
/// keeps a member's packets in order.
pub const LAST: &str = "tidegate_last";

/// Members that the maps have room for.
pub const MOST_MEMBERS: u32 = 65_536;

/// Delays that the map has room for, [`RELEASED`] included.
pub const SLOTS: u32 = 4_097;

/// The slot of those who are being let go: its delay stays zero.
pub const RELEASED: u32 = 0;

/// An address as the maps have it: an IPv4 address as `::ffff:a.b.c.d`, in network order.
pub type Key = [u8; 16];

/// The key of an address.
#[must_use]
pub const fn key(address: IpAddr) -> Key {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Which packets to a member are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Packets {
    /// All from the ports.
    All = 0,
    /// Those without payload.
    Acks = 1,
    /// Those without payload, and those that begin with an iSCSI R2T or SCSI response.
    Responses = 2,
}

/// One bit per port.
const PORT_BYTES: usize = 8_192;

const PORTS_AT: usize = 8;

/// What holds for all members, as the map has it.
pub type Settings = [u8; PORTS_AT + PORT_BYTES];

/// Packets of this kind from these ports go to this class.
#[must_use]
pub fn settings(packets: Packets, class: u32, ports: &BTreeSet<u16>) -> Settings {
    let mut settings = [0; PORTS_AT + PORT_BYTES];
    settings[..4].copy_from_slice(&(packets as u32).to_ne_bytes());
    settings[4..PORTS_AT].copy_from_slice(&class.to_ne_bytes());
    for port in ports {
        settings[PORTS_AT + usize::from(port / 8)] |= 1 << (port % 8);
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
    fn every_port_has_a_bit_of_its_own() {
        let settings = settings(Packets::Responses, 0x71de_0001, &[0, 3260, 65_535].into());
        assert_eq!(settings[..8], [2_u32.to_ne_bytes(), 0x71de_0001_u32.to_ne_bytes()].concat());
        let set: Vec<usize> =
            (0..65_536).filter(|port| settings[8 + port / 8] >> (port % 8) & 1 == 1).collect();
        assert_eq!(set, [0, 3260, 65_535]);
    }
}
