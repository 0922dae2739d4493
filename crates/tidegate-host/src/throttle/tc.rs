//! Traffic control: the queueing disciplines that hold packets.
//!
//! Everything that Tidegate puts on an interface, and nothing else, has a handle of its own: [`HANDLE`]. A
//! program that has to remove it finds it by that.

mod device;
mod filter;
mod fq;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use crate::netlink::{CREATE, EXCLUSIVE, Netlink, NetlinkBody, REPLACE, array, attributes};

/// The major number of our root queueing discipline, 71de: for `tc`.
pub(super) const HANDLE: u16 = 0x71de;

/// The parent of what is at the root of an interface.
const ROOT: u32 = 0xffff_ffff;

const NEW_QDISC: u16 = 36;
const DELETE_QDISC: u16 = 37;
const GET_QDISC: u16 = 38;
const NEW_CLASS: u16 = 40;
const GET_ROUTE: u16 = 26;

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATISTICS: u16 = 7;
const STATISTICS_OF_QUEUE: u16 = 3;

/// The kernel's traffic control counts time in these.
const TICK_NANOS: u64 = 64;

/// Beyond any link: the classes are there to be told apart, not to limit.
const UNLIMITED_BYTES_PER_SECOND: u64 = 125_000_000_000;

/// Packets that may wait in a delay, which must never be the reason to drop one: what waits is bounded by the
/// sockets' own buffers long before. netem's default of 1 000 is 50 000 packets/s at 20 ms.
const LIMIT_PACKETS: u32 = 1_000_000;

pub(super) use device::{DEVICE, NamesakeDevice};
pub(super) use fq::FairQueue;

/// A queueing discipline as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Qdisc {
    pub(super) interface: u32,
    pub(super) kind: String,
    pub(super) handle: u32,
    pub(super) parent: u32,
    pub(super) queued: u32,
    /// The delay of a packet, if it is a netem.
    pub(super) delay: Option<Duration>,
    /// The settings, if it is an fq.
    pub(super) fair: Option<FairQueue>,
}

impl Qdisc {
    pub(super) fn is_root(&self) -> bool {
        self.parent == ROOT
    }

    /// Returns true if this is Tidegate's, the one at the root or one below.
    pub(super) fn is_ours(&self) -> bool {
        let major = if self.is_root() { self.handle } else { self.parent };
        major >> 16 == u32::from(HANDLE)
    }

    /// Returns true if the kernel put it in place by default, which shows by the missing handle.
    pub(super) fn is_default(&self) -> bool {
        self.handle == 0
    }

    /// The class that it is the queue of.
    pub(super) fn class(&self) -> u16 {
        (self.parent & 0xffff) as u16
    }
}

/// The kernel's traffic control, and what it takes to know where a packet will leave.
#[derive(Debug)]
pub(super) struct TrafficControl {
    netlink: Netlink,
}

impl TrafficControl {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open(None)? })
    }

    /// All queueing disciplines of this network namespace.
    pub(super) fn qdiscs(&mut self) -> io::Result<Vec<Qdisc>> {
        let mut found = Vec::new();
        self.netlink.dump(GET_QDISC, &NetlinkBody::new(&header(0, 0, 0)), |message| {
            found.extend(qdisc(message).ok());
        })?;
        Ok(found)
    }

    /// The interface by which packets to an address leave.
    pub(super) fn interface_towards(&mut self, address: IpAddr) -> io::Result<u32> {
        const TO: u16 = 1;
        const INTERFACE: u16 = 4;
        let (family, bits, bytes) = match &address {
            IpAddr::V4(address) => (2_u8, 32_u8, address.octets().to_vec()),
            IpAddr::V6(address) => (10, 128, address.octets().to_vec()),
        };
        let mut header = [0; 12];
        header[0] = family;
        header[1] = bits;
        let mut interface = None;
        self.netlink.get(GET_ROUTE, &NetlinkBody::new(&header).with(TO, &bytes), |message| {
            let found = attributes(message.get(12..).unwrap_or_default())
                .find(|(kind, _)| *kind == INTERFACE)
                .and_then(|(_, value)| array(value, 0).ok());
            interface = found.map(u32::from_ne_bytes).or(interface);
        })?;
        interface.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the route names no interface"))
    }

    /// Makes ours the root of an interface. Everything that is in none of its classes goes the direct way.
    pub(super) fn add_root(&mut self, interface: u32) -> io::Result<()> {
        const INIT: u16 = 2;
        const VERSION: u32 = 3;
        const QUANTUM_DIVISOR: u32 = 10;
        const TO_NO_CLASS: u32 = 0;
        /// The limit of packets that wait for the interface itself. The default is the interface's 1 000
        /// packets: less than the former discipline may have queued.
        const DIRECT_QUEUE: u16 = 5;
        const DIRECT_PACKETS: u32 = 10_000;
        let init = words(&[VERSION, QUANTUM_DIVISOR, TO_NO_CLASS, 0, 0]);
        let body =
            NetlinkBody::new(&header(interface, u32::from(HANDLE) << 16, ROOT)).with(KIND, b"htb\0").with(
                OPTIONS,
                NetlinkBody::new(&[])
                    .with(INIT, &init)
                    .with(DIRECT_QUEUE, &words(&[DIRECT_PACKETS]))
                    .as_bytes(),
            );
        self.netlink.change(NEW_QDISC, CREATE | REPLACE, &body)
    }

    /// Adds a class to our root, which delays its packets by `delay`.
    pub(super) fn add_class(&mut self, interface: u32, class: u16, delay: Duration) -> io::Result<()> {
        self.add_unlimited(interface, class)?;
        self.netlink.change(NEW_QDISC, CREATE | EXCLUSIVE, &delaying(interface, class, delay))
    }

    /// Adds a class without a limit to our root. It still needs its queue.
    fn add_unlimited(&mut self, interface: u32, class: u16) -> io::Result<()> {
        const PARAMETERS: u16 = 1;
        const RATE_64: u16 = 6;
        const CEILING_64: u16 = 7;
        /// The burst that the class may send at once: a megabyte, in ticks at the unlimited rate.
        const BURST: u32 = (1_000_000 * 1_000_000_000 / UNLIMITED_BYTES_PER_SECOND / TICK_NANOS) as u32;
        const QUANTUM_BYTES: u32 = 60_000;
        // struct tc_ratespec twice, whose rate is in the 64-bit attributes; link layer 1 is Ethernet, which
        // needs no table of sizes.
        let rate = [[0, 1, 0, 0, 0, 0, 0, 0].as_slice(), &u32::MAX.to_ne_bytes()].concat();
        let tail = words(&[BURST, BURST, QUANTUM_BYTES, 0, 0]);
        let parameters = [rate.as_slice(), &rate, &tail].concat();
        let unlimited = UNLIMITED_BYTES_PER_SECOND.to_ne_bytes();
        let options = NetlinkBody::new(&[])
            .with(PARAMETERS, &parameters)
            .with(RATE_64, &unlimited)
            .with(CEILING_64, &unlimited);
        let body = NetlinkBody::new(&header(interface, class_id(class), u32::from(HANDLE) << 16))
            .with(KIND, b"htb\0")
            .with(OPTIONS, options.as_bytes());
        self.netlink.change(NEW_CLASS, CREATE | EXCLUSIVE, &body)
    }

    /// Changes for how long a class holds packets. Those that it already holds stay, and nothing overtakes
    /// them.
    pub(super) fn set_delay(&mut self, interface: u32, class: u16, delay: Duration) -> io::Result<()> {
        self.netlink.change(NEW_QDISC, REPLACE, &delaying(interface, class, delay))
    }

    /// Removes our root, and with it all that is below. What it still holds is dropped: empty it first.
    pub(super) fn delete_root(&mut self, interface: u32) -> io::Result<()> {
        let body = NetlinkBody::new(&header(interface, u32::from(HANDLE) << 16, ROOT));
        self.netlink.change(DELETE_QDISC, 0, &body)
    }
}

/// The class's identity, as packets carry it in their priority.
pub(super) fn class_id(class: u16) -> u32 {
    u32::from(HANDLE) << 16 | u32::from(class)
}

/// The class of an identity, if it is one of ours.
pub(super) fn class_of(id: u32) -> Option<u16> {
    (id >> 16 == u32::from(HANDLE)).then_some((id & 0xffff) as u16)
}

/// A netem with a delay. With a rate, however great, netem counts a packet's time from that of the packet
/// before it: so packets keep their order also when the delay shrinks, where TCP would take overtaking for
/// loss.
fn delaying(interface: u32, class: u16, delay: Duration) -> NetlinkBody {
    const RATE: u16 = 6;
    const RATE_64: u16 = 8;
    const DELAY_64: u16 = 10;
    let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    // struct tc_netem_qopt: the delay in ticks (a 64-bit attribute has it exactly), the limit, and nothing
    // lost, reordered, duplicated or jittered.
    let ticks = u32::try_from(nanos / TICK_NANOS).unwrap_or(u32::MAX);
    let options = NetlinkBody::new(&words(&[ticks, LIMIT_PACKETS, 0, 0, 0, 0]))
        .with(DELAY_64, &nanos.to_ne_bytes())
        .with(RATE_64, &UNLIMITED_BYTES_PER_SECOND.to_ne_bytes())
        .with(RATE, &words(&[u32::MAX, 0, 0, 0]));
    NetlinkBody::new(&header(interface, queue_handle(class), class_id(class)))
        .with(KIND, b"netem\0")
        .with(OPTIONS, options.as_bytes())
}

/// Our handle and the class: a handle is unique on the interface, and readable in `tc`'s listing.
fn queue_handle(class: u16) -> u32 {
    u32::from(HANDLE.wrapping_add(class)) << 16
}

/// struct tcmsg.
fn header(interface: u32, handle: u32, parent: u32) -> Vec<u8> {
    words(&[0, interface, handle, parent, 0])
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn qdisc(message: &[u8]) -> io::Result<Qdisc> {
    let word = |at| array(message, at).map(u32::from_ne_bytes);
    let mut qdisc = Qdisc {
        interface: word(4)?,
        handle: word(8)?,
        parent: word(12)?,
        kind: String::new(),
        queued: 0,
        delay: None,
        fair: None,
    };
    let mut options: &[u8] = &[];
    for (kind, value) in attributes(message.get(20..).unwrap_or_default()) {
        match kind {
            KIND => qdisc.kind = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            OPTIONS => options = value,
            STATISTICS => {
                let queue = attributes(value).find(|(kind, _)| *kind == STATISTICS_OF_QUEUE);
                if let Some((_, queue)) = queue {
                    qdisc.queued = u32::from_ne_bytes(array(queue, 0)?);
                }
            }
            _ => {}
        }
    }
    match qdisc.kind.as_str() {
        "netem" => qdisc.delay = Some(netem_delay(options)?),
        "fq" => qdisc.fair = Some(FairQueue::read(options)),
        _ => {}
    }
    Ok(qdisc)
}

fn netem_delay(options: &[u8]) -> io::Result<Duration> {
    const FIXED: usize = 24;
    const DELAY_64: u16 = 10;
    let exact = attributes(options.get(FIXED..).unwrap_or_default()).find(|(kind, _)| *kind == DELAY_64);
    Ok(Duration::from_nanos(match exact {
        Some((_, value)) => u64::from_ne_bytes(array(value, 0)?),
        None => u64::from(u32::from_ne_bytes(array(options, 0)?)) * TICK_NANOS,
    }))
}

#[cfg(test)]
mod tests {
    use tidegate_testing::in_own_network;

    use super::*;

    #[test]
    fn the_loopback_interface_leads_to_this_machine() {
        let mut tc = TrafficControl::open().unwrap();
        assert_eq!(tc.interface_towards("127.0.0.1".parse().unwrap()).unwrap(), 1);
    }

    #[test]
    fn a_delay_is_read_back_as_it_was_written() {
        let wanted = Duration::from_micros(12_500);
        let body = delaying(3, 2, wanted);
        let read = qdisc(body.as_bytes()).unwrap();
        assert_eq!(read.delay, Some(wanted));
        assert_eq!((read.interface, read.class()), (3, 2));
        assert!(read.is_ours() && !read.is_root() && !read.is_default());
    }

    /// In a network namespace of its own, as root.
    #[test]
    fn our_root_is_found_again_and_taken_once() {
        in_own_network(|| {
            let mut tc = TrafficControl::open().unwrap();
            tc.add_root(1).unwrap();
            assert!(tc.qdiscs().unwrap().iter().any(|qdisc| qdisc.is_root() && qdisc.is_ours()));
            assert!(tc.add_root(1).is_err(), "so that what lost something has to be removed first");
            tc.delete_root(1).unwrap();
            assert!(tc.qdiscs().unwrap().iter().all(|qdisc| !qdisc.is_ours()));
            tc.add_root(1).unwrap();
        });
    }

    #[test]
    fn another_programs_qdisc_is_not_ours() {
        let root = |handle| Qdisc {
            interface: 1,
            kind: "htb".to_owned(),
            handle,
            parent: ROOT,
            queued: 0,
            delay: None,
            fair: None,
        };
        assert!(root(u32::from(HANDLE) << 16).is_ours());
        assert!(!root(0x1_0000).is_ours());
        assert!(!root(0).is_ours() && root(0).is_default());
    }
}
