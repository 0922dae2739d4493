//! The rules that decide whether a node can carry one transfer more.

use thiserror::Error;
use tidegate_units::ByteRate;

use super::capacity::NodeCapacity;

/// The rule by which nodes are chosen (Nikolow §III.B). The paper gives no values for its coefficients. The
/// defaults here are overheads of nothing. For [`StaticQos`](Self::StaticQos), which the paper says to be
/// cautious, the default is an overhead of a quarter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlacementPolicy {
    /// The next node, whatever it can do.
    RoundRobin,
    /// Eq. 4: no more than λ = BSN_max/(rb·k4) transfers at once.
    StaticQos {
        /// k4, the overhead of concurrent transfers.
        overhead: f64,
    },
    /// Eq. 1: max − res_ban·k1 > rb.
    SmR1 {
        /// k1, the overhead of the reserved rate.
        overhead: f64,
    },
    /// Eq. 2: max − moved·k2 > rb, where `moved` is the moving average of all data that moved. The paper
    /// writes ma10, and does not say whether that includes what others moved.
    SmR2 {
        /// k2, the overhead of the moving rate.
        overhead: f64,
    },
    /// Eq. 3: ma10/(np + 1) > rb·k3, or no transfer at all.
    SmR3 {
        /// k3, the overhead of the rate that is asked for.
        overhead: f64,
    },
    /// Eq. 3 with the moving average of the node instead of that of its transfers: all data that moved there,
    /// where a sensor knows it. The paper says that ma10 is of the storage resource.
    SmR3OfNode {
        /// k3, the overhead of the rate that is asked for.
        overhead: f64,
    },
    /// Beyond the paper: the rate that each would get by the node's own history ([`NodeCapacity`]), or no
    /// transfer at all.
    Learnt,
}

/// The state of a node that a policy looks at, in the direction of the transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeView<'a> {
    /// max, BSN_max: the most that it moves.
    pub peak: ByteRate,
    /// res_ban: the rate that is reserved on it, less the rate that was lent.
    pub reserved: ByteRate,
    /// ma10: the rate of its transfers together, the mean of the last ten samples. Zero before the first.
    pub moving_average: ByteRate,
    /// The mean rate of all data that moved, from all sources, if a sensor knows it; else that of its
    /// transfers. Rules that ask how much of a node is left use it. Rules that ask what a transfer would get
    /// use the rates of the node's own transfers, not this one.
    pub moving: ByteRate,
    /// Transfers that were placed on it and have not ended.
    pub active: u32,
    /// Active transfers whose data is being recalled from a tape: they move nothing yet.
    pub recalling: u32,
    /// The learnt capacity of the node.
    pub capacity: &'a NodeCapacity,
}

/// A coefficient is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("the overhead k of a policy is above 0 and at most {greatest}, it is \
    {is}", greatest = PlacementPolicy::GREATEST_OVERHEAD)]
pub struct PolicyError {
    is: f64,
}

impl NodeView<'_> {
    /// np: the number of transfers that ma10 covers. A transfer whose data is being recalled moves nothing,
    /// for minutes, and is not counted: it would make an idle node look full.
    fn moving_now(&self) -> u32 {
        self.active.saturating_sub(self.recalling)
    }

    /// The part of a moving average that one transfer more would have: ma10/(np + 1).
    fn share_of(&self, average: ByteRate) -> ByteRate {
        ByteRate::new(average.per_second() / (f64::from(self.moving_now()) + 1.0))
    }
}

impl PlacementPolicy {
    /// The greatest coefficient.
    pub const GREATEST_OVERHEAD: f64 = 100.0;

    /// SM-R3 without an overhead, the best of the paper's.
    pub const SM_R3: Self = Self::SmR3 { overhead: 1.0 };

    /// Checks the coefficient.
    ///
    /// # Errors
    /// When it is out of range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        match *self {
            Self::RoundRobin | Self::Learnt => Ok(()),
            Self::StaticQos { overhead }
            | Self::SmR1 { overhead }
            | Self::SmR2 { overhead }
            | Self::SmR3 { overhead }
            | Self::SmR3OfNode { overhead } => {
                // Written so that NaN is refused as well.
                let right = overhead > 0.0 && overhead <= Self::GREATEST_OVERHEAD;
                if right { Ok(()) } else { Err(PolicyError { is: overhead }) }
            }
        }
    }

    /// Returns true if the node can carry a transfer more that asks for this rate.
    #[must_use]
    pub fn carries(&self, node: &NodeView<'_>, asked: ByteRate) -> bool {
        let rate = asked.per_second();
        let peak = node.peak.per_second();
        match *self {
            Self::RoundRobin => true,
            Self::StaticQos { overhead } => {
                // Transfers are whole, so is their number.
                f64::from(node.active) + 1.0 <= peak / (rate * overhead)
            }
            Self::SmR1 { overhead } => peak - node.reserved.per_second() * overhead > rate,
            Self::SmR2 { overhead } => peak - node.moving.per_second() * overhead > rate,
            Self::SmR3 { overhead } | Self::SmR3OfNode { overhead } => {
                node.moving_now() == 0 || self.expected(node).per_second() > rate * overhead
            }
            Self::Learnt => node.moving_now() == 0 || self.expected(node) > asked,
        }
    }

    /// Returns the rate that a transfer more would get on the node, as far as the policy knows. It decides
    /// between several nodes, and is told to the client.
    #[must_use]
    pub fn expected(&self, node: &NodeView<'_>) -> ByteRate {
        let one_more = f64::from(node.active) + 1.0;
        let peak = node.peak.per_second();
        match *self {
            Self::RoundRobin | Self::StaticQos { .. } => ByteRate::new(peak / one_more),
            Self::SmR1 { overhead } => ByteRate::new(peak - node.reserved.per_second() * overhead),
            Self::SmR2 { overhead } => ByteRate::new(peak - node.moving.per_second() * overhead),
            Self::SmR3 { .. } | Self::SmR3OfNode { .. } if node.moving_now() == 0 => node.peak,
            Self::SmR3 { .. } => node.share_of(node.moving_average),
            Self::SmR3OfNode { .. } => node.share_of(node.moving),
            Self::Learnt => node.capacity.of_each(f64::from(node.moving_now()) + 1.0, node.peak),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;

    fn carries(
        policy: PlacementPolicy,
        (peak, reserved, average, active): (f64, f64, f64, u32),
        asked: f64,
    ) -> bool {
        let capacity = NodeCapacity::default();
        let node = NodeView {
            peak: ByteRate::new(peak * MB),
            reserved: ByteRate::new(reserved * MB),
            moving_average: ByteRate::new(average * MB),
            moving: ByteRate::new(average * MB),
            active,
            recalling: 0,
            capacity: &capacity,
        };
        policy.carries(&node, ByteRate::new(asked * MB))
    }

    #[test]
    fn the_papers_rules() {
        // The disk of the paper's three nodes, 60 MB/s, and transfers of 10 MB/s.
        let r1 = PlacementPolicy::SmR1 { overhead: 1.0 };
        assert!(carries(r1, (60.0, 40.0, 55.0, 4), 10.0));
        assert!(!carries(r1, (60.0, 50.0, 0.0, 5), 10.0), "as much as is asked for is not more");
        assert!(carries(PlacementPolicy::SmR1 { overhead: 0.9 }, (60.0, 50.0, 0.0, 5), 10.0));

        let r2 = PlacementPolicy::SmR2 { overhead: 1.0 };
        assert!(carries(r2, (60.0, 900.0, 30.0, 90), 10.0), "it sees what moves, and nothing else");
        assert!(!carries(r2, (60.0, 0.0, 50.0, 1), 10.0));

        assert!(carries(PlacementPolicy::SM_R3, (60.0, 0.0, 55.0, 4), 10.0));
        assert!(!carries(PlacementPolicy::SM_R3, (60.0, 0.0, 50.0, 4), 10.0));
        assert!(
            carries(PlacementPolicy::SM_R3, (60.0, 0.0, 0.0, 0), 10.0),
            "one transfer is begun in any case"
        );

        let fixed = PlacementPolicy::StaticQos { overhead: 1.0 };
        assert!(carries(fixed, (60.0, 0.0, 0.0, 5), 10.0), "the sixth of six");
        assert!(!carries(fixed, (60.0, 0.0, 0.0, 6), 10.0));
        assert!(
            !carries(PlacementPolicy::StaticQos { overhead: 1.25 }, (60.0, 0.0, 0.0, 4), 10.0),
            "λ = 4.8, and 4 are whole"
        );

        assert!(carries(PlacementPolicy::RoundRobin, (1.0, 99.0, 0.0, 1000), 10.0));
    }

    #[test]
    fn the_nodes_own_average_counts_what_others_move() {
        let capacity = NodeCapacity::default();
        let rate = |mb: f64| ByteRate::new(mb * MB);
        let node = NodeView {
            peak: rate(60.0),
            reserved: rate(0.0),
            moving_average: rate(20.0),
            moving: rate(50.0),
            active: 1,
            recalling: 0,
            capacity: &capacity,
        };
        let of_node = PlacementPolicy::SmR3OfNode { overhead: 1.0 };
        assert!(of_node.carries(&node, rate(20.0)) && !PlacementPolicy::SM_R3.carries(&node, rate(20.0)));
        assert_eq!(of_node.expected(&node), rate(25.0));
        let without = NodeView { moving: rate(20.0), ..node };
        assert_eq!(of_node.expected(&without), PlacementPolicy::SM_R3.expected(&without));
    }

    #[test]
    fn what_was_learnt_says_what_each_would_get() {
        // 60 MB/s less 10 %: 54; two get 26 each.
        assert!(carries(PlacementPolicy::Learnt, (60.0, 0.0, 0.0, 1), 26.0));
        assert!(!carries(PlacementPolicy::Learnt, (60.0, 0.0, 0.0, 1), 27.0));
        assert!(
            carries(PlacementPolicy::Learnt, (60.0, 0.0, 0.0, 0), 100.0),
            "one transfer is begun in any case"
        );
    }

    #[test]
    fn a_node_that_only_recalled_from_its_tapes_looked_full() {
        let capacity = NodeCapacity::default();
        let rate = |mb: f64| ByteRate::new(mb * MB);
        let node = NodeView {
            peak: rate(60.0),
            reserved: rate(20.0),
            moving_average: ByteRate::ZERO,
            moving: ByteRate::ZERO,
            active: 2,
            recalling: 2,
            capacity: &capacity,
        };
        for policy in [PlacementPolicy::SM_R3, PlacementPolicy::Learnt] {
            assert!(policy.carries(&node, rate(10.0)), "{policy:?}");
            assert!(!policy.carries(&NodeView { recalling: 1, ..node }, rate(60.0)), "{policy:?}");
        }
        assert_eq!(PlacementPolicy::SM_R3.expected(&node), rate(60.0));
    }

    #[test]
    fn coefficients_that_mean_nothing_are_refused() {
        for overhead in [0.0, -1.0, f64::NAN, 101.0] {
            for policy in [
                PlacementPolicy::StaticQos { overhead },
                PlacementPolicy::SmR1 { overhead },
                PlacementPolicy::SmR2 { overhead },
                PlacementPolicy::SmR3 { overhead },
                PlacementPolicy::SmR3OfNode { overhead },
            ] {
                assert!(policy.validate().is_err(), "{policy:?}");
            }
        }
        assert!(PlacementPolicy::SM_R3.validate().is_ok() && PlacementPolicy::Learnt.validate().is_ok());
    }
}
