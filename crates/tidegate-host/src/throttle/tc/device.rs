//! A device of our own, for packets to wait in on their way to an interface.
//!
//! It is an ifb: what is redirected to it goes through its queueing disciplines and then on to the interface
//! that it was on the way to. So no interface gets another root. While the kernel exchanges one, what is sent
//! through it in that moment is lost uncounted, and on an interface with many queues one root would replace
//! all of theirs.

use std::io;

use rustix::io::Errno;

use super::{CREATE, EXCLUSIVE, NetlinkBody, TrafficControl, array, attributes, words};

/// The device's name, by which it is found again.
pub(in super::super) const DEVICE: &str = "tidegate";

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;

/// The length of struct ifinfomsg.
const HEADER: usize = 16;
const UP: u32 = 1;

const NAME: u16 = 3;
const QUEUE_LENGTH: u16 = 13;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const FAMILIES: u16 = 26;

const MASTER: u16 = 10;

const IFB: &str = "ifb";
const BRIDGE: &str = "bridge";

/// An interface that may be a port of another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PortLink {
    index: u32,
    name: String,
    master: Option<u32>,
    kind: String,
}

/// The device that has our device's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct NamesakeDevice {
    pub(in super::super) index: u32,
    pub(in super::super) is_up: bool,
    /// The kind of device; empty for a physical one.
    pub(in super::super) kind: String,
}

impl NamesakeDevice {
    /// Returns true if it can be ours: other programs may have given our name to something else.
    pub(in super::super) fn is_ours(&self) -> bool {
        self.kind == IFB
    }
}

impl TrafficControl {
    /// The device, whichever process put it there.
    pub(in super::super) fn device(&mut self) -> io::Result<Option<NamesakeDevice>> {
        let mut found = None;
        let wanted = NetlinkBody::new(&link(0, 0)).with(NAME, &with_end(DEVICE));
        match self.netlink.get(GET_LINK, &wanted, |message| found = device(message)) {
            Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(None),
            answer => answer.map(|()| found),
        }
    }

    /// Adds the device, up and with nothing in it.
    ///
    /// # Errors
    /// When the kernel refuses, also because something of its name is there; nothing is left then.
    pub(in super::super) fn add_device(&mut self) -> io::Result<u32> {
        /// A queue behind our own disciplines. When it is full they are told to wait.
        const PACKETS: u32 = 1_000;
        let body = NetlinkBody::new(&link(0, 0))
            .with(NAME, &with_end(DEVICE))
            .with(QUEUE_LENGTH, &words(&[PACKETS]))
            .with(INFO, NetlinkBody::new(&[]).with(INFO_KIND, &with_end(IFB)).as_bytes());
        self.netlink.change(NEW_LINK, CREATE | EXCLUSIVE, &body)?;
        let index = match self.device()? {
            Some(device) => device.index,
            None => return Err(Errno::NODEV.into()),
        };
        let up = self
            .without_addresses(index)
            .and_then(|()| self.netlink.change(NEW_LINK, 0, &NetlinkBody::new(&link(index, UP))));
        if up.is_err() {
            self.delete_device(index)?;
        }
        up.map(|()| index)
    }

    /// No host is to be reached by it: IPv6 would give it an address, and announce it.
    fn without_addresses(&mut self, index: u32) -> io::Result<()> {
        const IPV6: u16 = 10;
        const GENERATED: u16 = 8;
        const NONE: u8 = 1;
        let none = NetlinkBody::new(&[]).with(GENERATED, &[NONE]);
        let families = NetlinkBody::new(&[]).with(IPV6, none.as_bytes());
        let body = NetlinkBody::new(&link(index, 0)).with(FAMILIES, families.as_bytes());
        match self.netlink.change(NEW_LINK, 0, &body) {
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => Ok(()),
            changed => changed,
        }
    }

    /// The ports of the bridge that an interface is a port of, without itself; none if it is a port of none.
    ///
    /// # Errors
    /// When there is no such interface.
    pub(in super::super) fn other_bridge_ports(&mut self, interface: &str) -> io::Result<Vec<u32>> {
        let mut links = Vec::new();
        self.netlink.dump(GET_LINK, &NetlinkBody::new(&link(0, 0)), |message| links.extend(port(message)))?;
        let known = links.iter().find(|link| link.name == interface);
        let Some(array) = known else { return Err(Errno::NODEV.into()) };
        let Some(master) = array.master else { return Ok(Vec::new()) };
        let is_bridge = links.iter().any(|link| link.index == master && link.kind == BRIDGE);
        let others = links.iter().filter(|link| is_bridge && link.master == Some(master));
        Ok(others.map(|link| link.index).filter(|index| *index != array.index).collect())
    }

    /// Removes the device. What it still holds is dropped: empty it first.
    pub(in super::super) fn delete_device(&mut self, index: u32) -> io::Result<()> {
        self.netlink.change(DELETE_LINK, 0, &NetlinkBody::new(&link(index, 0)))
    }
}

/// struct ifinfomsg, which changes the flags that it sets.
fn link(index: u32, flags: u32) -> Vec<u8> {
    words(&[0, index, flags, flags])
}

fn with_end(name: &str) -> Vec<u8> {
    format!("{name}\0").into_bytes()
}

fn device(message: &[u8]) -> Option<NamesakeDevice> {
    let word = |at| array(message, at).map(u32::from_ne_bytes).ok();
    let kind = kind_of(message.get(HEADER..)?);
    Some(NamesakeDevice { index: word(4)?, is_up: word(8)? & UP != 0, kind })
}

fn port(message: &[u8]) -> Option<PortLink> {
    let given = message.get(HEADER..)?;
    let value = |wanted| attributes(given).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    Some(PortLink {
        index: array(message, 4).map(u32::from_ne_bytes).ok()?,
        name: without_end(value(NAME)?),
        master: value(MASTER).and_then(|value| array(value, 0).map(u32::from_ne_bytes).ok()),
        kind: kind_of(given),
    })
}

/// The kind of an interface; empty for a physical one.
fn kind_of(given: &[u8]) -> String {
    let info = attributes(given).find(|(kind, _)| *kind == INFO);
    let kind = info.and_then(|(_, info)| attributes(info).find(|(kind, _)| *kind == INFO_KIND));
    kind.map(|(_, kind)| without_end(kind)).unwrap_or_default()
}

fn without_end(text: &[u8]) -> String {
    String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use tidegate_testing::in_own_network;

    use super::*;

    #[test]
    fn a_device_of_another_kind_is_not_ours() {
        let told = |kind: Option<&[u8]>| {
            let info = kind.map_or(NetlinkBody::new(&[]), |kind| NetlinkBody::new(&[]).with(INFO_KIND, kind));
            device(NetlinkBody::new(&link(7, UP)).with(INFO, info.as_bytes()).as_bytes()).unwrap()
        };
        let ours = told(Some(b"ifb\0"));
        assert!(ours.is_ours() && ours.is_up);
        assert_eq!(ours.index, 7);
        assert!(!told(Some(b"dummy\0")).is_ours());
        assert!(!told(None).is_ours(), "a physical one");
        assert_eq!(device(&[0; 7]), None);
    }

    /// In a network namespace of its own, as root.
    #[test]
    fn the_other_ports_of_a_bridge_are_found_and_a_routed_interface_has_none() {
        in_own_network(|| {
            let ip = |command: &str| {
                let status = std::process::Command::new("ip").args(command.split(' ')).status();
                assert!(status.unwrap().success(), "{command}");
            };
            ip("link add br0 type bridge");
            for pair in ["a", "b", "c"] {
                ip(&format!("link add {pair}0 type veth peer name {pair}1"));
                ip(&format!("link set {pair}0 master br0"));
            }
            let mut tc = TrafficControl::open().unwrap();
            let ports = tc.other_bridge_ports("a0").unwrap();
            let names: Vec<_> =
                ports.iter().map(|port| super::super::super::interface::called(*port)).collect();
            assert_eq!(names, ["b0", "c0"]);
            assert_eq!(tc.other_bridge_ports("a1").unwrap(), [] as [u32; 0]);
            assert_eq!(
                tc.other_bridge_ports("d0").unwrap_err().raw_os_error(),
                Some(Errno::NODEV.raw_os_error())
            );
        });
    }

    /// In a network namespace of its own, as root.
    #[test]
    fn it_is_there_once_up_and_goes_with_all_that_is_in_it() {
        in_own_network(|| {
            let mut tc = TrafficControl::open().unwrap();
            assert_eq!(tc.device().unwrap(), None);
            let index = tc.add_device().unwrap();
            let found = tc.device().unwrap().unwrap();
            assert!(found.is_ours() && found.is_up && found.index == index, "{found:?}");
            assert!(tc.add_device().is_err());
            tc.add_root(index).unwrap();
            tc.delete_device(index).unwrap();
            assert_eq!(tc.device().unwrap(), None);
            assert!(tc.qdiscs().unwrap().iter().all(|qdisc| !qdisc.is_ours()));
        });
    }
}
