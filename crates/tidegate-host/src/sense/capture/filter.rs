//! The kernel's filter of a capture: a classic BPF program that lets TCP from and to some ports pass.

use std::collections::BTreeSet;

use libc::sock_filter;

/// The most ports that a filter can have: its jumps reach 255 instructions.
pub const MOST_PORTS: usize = 32;

/// The codes of linux/bpf_common.h: `BPF_LD | BPF_B | BPF_ABS`, and so on.
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_IPV4_LENGTH: u16 = 0xb1;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// The place of the IP header, wherever VLAN tags put it (`SKF_NET_OFF`).
const IP: u32 = 0xfff0_0000;

const TCP: u32 = 6;

/// The destination of a jump.
#[derive(Debug, Clone, Copy)]
enum JumpTo {
    Next,
    Over(usize),
    Accept,
    Drop,
}

/// Returns a filter that keeps the first `snap` bytes of TCP packets from and to these ports. `None`: there
/// are more than [`MOST_PORTS`].
pub(super) fn program(ports: &BTreeSet<u16>, snap: u32) -> Option<Vec<sock_filter>> {
    if ports.len() > MOST_PORTS {
        return None;
    }
    let load = |code, at| (code, JumpTo::Next, JumpTo::Next, at);
    let equal = |value, if_true, if_false| (JUMP_EQUAL, if_true, if_false, value);
    let ports = || ports.iter().map(|port| equal(u32::from(*port), JumpTo::Accept, JumpTo::Next));
    let neither = equal(0, JumpTo::Drop, JumpTo::Drop);
    let mut ipv4 = vec![
        load(LOAD_BYTE, IP + 9),
        equal(TCP, JumpTo::Next, JumpTo::Drop),
        // Not the first fragment of a packet, which alone has ports.
        load(LOAD_HALF, IP + 6),
        (JUMP_ANY_BIT, JumpTo::Drop, JumpTo::Next, 0x1fff),
        load(LOAD_IPV4_LENGTH, IP),
        load(LOAD_HALF_INDEXED, IP),
    ];
    ipv4.extend(ports());
    ipv4.push(load(LOAD_HALF_INDEXED, IP + 2));
    ipv4.extend(ports());
    ipv4.push(neither);
    let mut all = vec![load(LOAD_BYTE, IP), (AND, JumpTo::Next, JumpTo::Next, 0xf0)];
    all.push(equal(0x40, JumpTo::Next, JumpTo::Over(ipv4.len())));
    all.extend(ipv4);
    // The version is still at hand here: nothing but this jump leads here.
    all.push(equal(0x60, JumpTo::Next, JumpTo::Drop));
    all.push(load(LOAD_BYTE, IP + 6));
    // Behind an extension header the ports are elsewhere. Few packets have one, and the reader finds them.
    all.push(equal(TCP, JumpTo::Next, JumpTo::Accept));
    all.push(load(LOAD_HALF, IP + 40));
    all.extend(ports());
    all.push(load(LOAD_HALF, IP + 42));
    all.extend(ports());
    all.push(neither);
    assemble(&all, snap)
}

fn assemble(all: &[(u16, JumpTo, JumpTo, u32)], snap: u32) -> Option<Vec<sock_filter>> {
    let mut program = Vec::with_capacity(all.len() + 2);
    for (at, (code, if_true, if_false, value)) in all.iter().enumerate() {
        let distance = |to: &JumpTo| {
            u8::try_from(match to {
                JumpTo::Next => 0,
                JumpTo::Over(count) => *count,
                JumpTo::Accept => all.len() - at - 1,
                JumpTo::Drop => all.len() - at,
            })
            .ok()
        };
        let (jt, jf) = (distance(if_true)?, distance(if_false)?);
        program.push(sock_filter { code: *code, jt, jf, k: *value });
    }
    program.extend([snap, 0].map(|k| sock_filter { code: RETURN, jt: 0, jf: 0, k }));
    Some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does (Documentation/networking/filter.rst): the bytes that pass.
    fn run(program: &[sock_filter], frame: &[u8], ip_at: usize) -> u32 {
        let (mut accumulator, mut index, mut at) = (0_u32, 0_u32, 0);
        let place = |value: u32, index: u32| {
            assert!(value >= IP);
            ip_at + (value - IP + index) as usize
        };
        loop {
            let sock_filter { code, jt, jf, k: value } = program[at];
            at += 1;
            let byte = |at: usize| frame.get(at).copied().map(u32::from);
            let half = |at: usize| Some(byte(at)? << 8 | byte(at + 1)?);
            let loaded = match code {
                LOAD_BYTE => byte(place(value, 0)),
                LOAD_HALF => half(place(value, 0)),
                LOAD_HALF_INDEXED => half(place(value, index)),
                LOAD_IPV4_LENGTH => {
                    index = 4 * (byte(place(value, 0)).unwrap() & 0xf);
                    Some(accumulator)
                }
                AND => Some(accumulator & value),
                JUMP_EQUAL | JUMP_ANY_BIT => {
                    let is_true =
                        if code == JUMP_EQUAL { accumulator == value } else { accumulator & value != 0 };
                    at += usize::from(if is_true { jt } else { jf });
                    Some(accumulator)
                }
                RETURN => return value,
                other => panic!("{other:#x}"),
            };
            // A load beyond the packet ends the program.
            let Some(loaded) = loaded else { return 0 };
            accumulator = loaded;
        }
    }

    /// A frame with an IP header, options included, and ports.
    fn frame(version: u8, protocol: u8, fragment: u16, options: usize, ports: [u16; 2]) -> Vec<u8> {
        let mut ip = vec![0; 40];
        if version == 4 {
            ip.truncate(20 + options);
            ip.resize(20 + options, 0);
            ip[0] = 0x45 + u8::try_from(options / 4).unwrap();
            ip[6..8].copy_from_slice(&fragment.to_be_bytes());
            ip[9] = protocol;
        } else {
            ip[0] = 0x60;
            ip[6] = protocol;
        }
        let ports = ports.iter().flat_map(|port| port.to_be_bytes());
        [vec![0; 14], ip, ports.collect()].concat()
    }

    #[test]
    fn tcp_from_and_to_the_ports_passes_and_nothing_else() {
        for count in [1, 3, MOST_PORTS] {
            let ports: BTreeSet<u16> = (3260..).take(count).collect();
            let last = *ports.last().unwrap();
            let program = program(&ports, 777).unwrap();
            let passes = |frame: Vec<u8>| run(&program, &frame, 14) == 777;
            for version in [4, 6] {
                for (protocol, from, to, expected) in [
                    (6, 3260, 40_000, true),
                    (6, 40_000, last, true),
                    (6, 40_000, last + 1, false),
                    (17, 3260, 3260, false),
                ] {
                    let told = (version, protocol, from, to);
                    // Anything but TCP may be an extension header of IPv6.
                    let expected = expected || version == 6 && protocol != 6;
                    assert_eq!(passes(frame(version, protocol, 0, 0, [from, to])), expected, "{told:?}");
                }
            }
            assert!(passes(frame(4, 6, 0x4000, 12, [40_000, 3260])), "with options, and the flag DF");
            assert!(!passes(frame(4, 6, 9, 0, [3260, 3260])), "a later fragment");
            assert!(!passes(vec![0; 60]), "no IP");
        }
    }

    #[test]
    fn more_ports_than_jumps_reach_are_refused() {
        assert!(program(&(1..).take(MOST_PORTS + 1).collect(), 1).is_none());
    }
}
