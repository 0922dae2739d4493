//! The queueing discipline fq, which lets no packet leave before its time.

use std::io;
use std::time::Duration;

use super::{
    CREATE, EXCLUSIVE, KIND, LIMIT_PACKETS, NEW_QDISC, NetlinkBody, OPTIONS, TrafficControl, array,
    attributes, class_id, header, queue_handle, words,
};

const LIMIT: u16 = 1;
const FLOW_LIMIT: u16 = 2;
const PACES: u16 = 5;
const ORPHAN_MASK: u16 = 10;
const HORIZON: u16 = 14;
const HORIZON_DROPS: u16 = 15;

/// The settings that decide whether an fq loses packets, or delays them for other reasons than their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct FairQueue {
    /// Packets that may wait, and those of one connection; more are dropped. By default 10 000 and 100.
    limit: u32,
    flow_limit: u32,
    /// True if connections that have a queue here are told to space their packets. By default they are, over
    /// the round trip that TCP measures. The delay here is a part of that, so packets would leave a little
    /// later than their times say.
    paces: bool,
    /// Packets to other machines' connections are told apart by this much of a hash.
    orphan_mask: u32,
    /// A packet whose time is further away than this leaves then; by default it would be dropped.
    horizon: Duration,
    horizon_drops: bool,
}

impl FairQueue {
    /// The settings for delayed packets: none is dropped that netem would not drop, and none is delayed but
    /// by its time.
    pub(in super::super) const WANTED: Self = Self {
        limit: LIMIT_PACKETS,
        flow_limit: LIMIT_PACKETS,
        paces: false,
        orphan_mask: 0xffff,
        horizon: Duration::from_secs(60),
        horizon_drops: false,
    };

    fn options(self) -> NetlinkBody {
        let micros = u32::try_from(self.horizon.as_micros()).unwrap_or(u32::MAX);
        NetlinkBody::new(&[])
            .with(LIMIT, &words(&[self.limit]))
            .with(FLOW_LIMIT, &words(&[self.flow_limit]))
            .with(PACES, &words(&[u32::from(self.paces)]))
            .with(ORPHAN_MASK, &words(&[self.orphan_mask]))
            .with(HORIZON, &words(&[micros]))
            .with(HORIZON_DROPS, &[u8::from(self.horizon_drops)])
    }

    /// Reads the kernel's options. A missing option has its default.
    pub(super) fn read(options: &[u8]) -> Self {
        let word = |wanted, default| {
            let found = attributes(options).find(|(kind, _)| *kind == wanted);
            found.and_then(|(_, value)| array(value, 0).ok()).map_or(default, u32::from_ne_bytes)
        };
        let drops = attributes(options).find(|(kind, _)| *kind == HORIZON_DROPS);
        Self {
            limit: word(LIMIT, 10_000),
            flow_limit: word(FLOW_LIMIT, 100),
            paces: word(PACES, 1) != 0,
            orphan_mask: word(ORPHAN_MASK, 1_023),
            // Before Linux 5.8 there is no horizon.
            horizon: Duration::from_micros(word(HORIZON, u32::MAX).into()),
            horizon_drops: drops.is_some_and(|(_, value)| value.first() != Some(&0)),
        }
    }
}

impl TrafficControl {
    /// Adds a class to our root, whose packets leave in the order of their times, and not before them.
    pub(in super::super) fn add_fair_class(&mut self, interface: u32, class: u16) -> io::Result<()> {
        self.add_unlimited(interface, class)?;
        let body = NetlinkBody::new(&header(interface, queue_handle(class), class_id(class)))
            .with(KIND, b"fq\0")
            .with(OPTIONS, FairQueue::WANTED.options().as_bytes());
        self.netlink.change(NEW_QDISC, CREATE | EXCLUSIVE, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_back_as_it_was_written() {
        assert_eq!(FairQueue::read(FairQueue::WANTED.options().as_bytes()), FairQueue::WANTED);
        assert_ne!(FairQueue::read(&[]), FairQueue::WANTED, "which is the kernel's default");
    }
}
