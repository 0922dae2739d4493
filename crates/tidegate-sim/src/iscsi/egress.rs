//! Packets of the target to one initiator, and the delay of some of them.

use tidegate_units::Latency;

/// Classes of delayed packets to a throttled initiator. The lab measures these classifications
/// (lab/README.md), and the agent offers all but one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketClasses {
    /// Every packet. The paper's choice for reads, whose "all other packets" (§3.2) and bare acknowledgements
    /// come to this.
    All,
    /// Acknowledgements without payload: the paper's choice for writes (§2.1).
    Acks,
    /// At most four iSCSI headers of payload, whatever they are. In the lab only.
    Small,
    /// Acknowledgements without payload, and packets that begin with an R2T or a SCSI response.
    Responses,
}

impl PacketClasses {
    /// Returns the name that the lab uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Acks => "ack",
            Self::Small => "small",
            Self::Responses => "response",
        }
    }

    /// Returns true if a packet is delayed. `payload` is its size; `paces_writes` is true if it begins with
    /// an R2T or a SCSI response.
    pub(super) const fn mean(self, payload: u64, paces_writes: bool) -> bool {
        match self {
            Self::All => true,
            Self::Acks => payload == 0,
            Self::Small => payload <= 4 * super::HEADER,
            Self::Responses => payload == 0 || paces_writes,
        }
    }
}

/// The delayed packets of one connection: netem with a rate beyond any link. It counts a packet's time from
/// the one before it, so that none overtakes another also while the delay shrinks.
#[derive(Debug, Clone, Default)]
pub(super) struct DelayedEgress {
    delay: u64,
    /// Time at which the last of them leaves.
    last: u64,
}

impl DelayedEgress {
    /// Sets the delay from now on. Waiting packets keep their time.
    pub(super) const fn set(&mut self, delay: Latency) {
        self.delay = delay.as_nanos();
    }

    /// Returns the time at which a delayed packet that is sent now leaves.
    pub(super) fn leaves(&mut self, now: u64) -> u64 {
        self.last = self.last.max(now + self.delay);
        self.last
    }

    pub(super) const fn delay(&self) -> Latency {
        Latency::from_nanos(self.delay)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_paper_delays_what_carries_nothing() {
        for (packets, ack, response, header, data) in [
            (PacketClasses::All, true, true, true, true),
            (PacketClasses::Acks, true, false, false, false),
            (PacketClasses::Small, true, true, true, false),
            (PacketClasses::Responses, true, true, false, false),
        ] {
            assert_eq!(packets.mean(0, false), ack);
            assert_eq!(packets.mean(48, true), response);
            assert_eq!(packets.mean(48, false), header);
            assert_eq!(packets.mean(8240, false), data);
        }
    }

    proptest! {
        #[test]
        fn none_overtakes_another_however_the_delay_changes(
            steps in prop::collection::vec((0u64..1_000, 0u64..5_000), 1..200)
        ) {
            let mut egress = DelayedEgress::default();
            let (mut now, mut last) = (0, 0);
            for (pause, delay) in steps {
                now += pause;
                egress.set(Latency::from_nanos(delay));
                let leaves = egress.leaves(now);
                prop_assert!(leaves >= last && leaves >= now + delay);
                prop_assert!(leaves <= last.max(now + delay));
                last = leaves;
            }
        }
    }
}
