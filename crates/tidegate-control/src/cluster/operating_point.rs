//! The operating point that hosts with the self-tuning law agree on, and how much of each report is believed
//! (Triage §3: every client runs a regulator, and all use the lowest operating point that any of them asks
//! for).
//!
//! The lowest wins, so a single host that is wrong, or lies, could take all others to nothing. Against that:
//!
//! - Where it is a matter of whom to believe, what the host did that asks for the lowest counts at most as
//!   much as what all others did, and all together have done no more than the operating point was.
//! - **No host alone takes the operating point below four fifths of what was done before it said so**, nor
//!   below four fifths of what the next lowest asks for, whichever is less. The next lowest is asked at the
//!   goal of the lowest: a host that asks for the operating point u to meet its goal of y would ask for about
//!   u·y′/y to meet a shorter one of y′, since response times grow at least in proportion to the throughput.
//!   So two that ask for less are believed, to a fifth. What was done before stays known while a host is
//!   doubted: otherwise each step down would be where the next one begins. And it grows by a tenth in an
//!   interval, up to what the next lowest asks for: otherwise a lie in the quiet of the night would hold all
//!   others to that quiet. So a claim that no other host confirms fades.
//! - A goal counts at least as the shortest one that the receiver knows itself: its own consumers', and the
//!   resource's target. For a goal that is shorter by a factor, the operating point falls that much further,
//!   to no less than a quarter.
//! - A host whose protected consumers are the only ones that have a say is believed alone: that is what
//!   protection is.
//!
//! Four fifths is the price of one host that lies, or whose path is slow, and more than placement takes: that
//! made PARDA's hosts differ by 1.16 (§4.1). A host's own latency is seldom caused by the others, and a host
//! with much slower data would throttle all others for a goal that it cannot meet. Response times are
//! believed to a quarter, too ([`combine`](crate::combine)).
//!
//! With the model of a queue it is numbers of requests at the storage that are compared and doubted, not
//! throughputs: of one server the throughput is the same for every goal.

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

/// Greatest factor by which a single host may take the operating point below what the others support,
/// whatever its goal.
const BELIEVED: f64 = 4.0;

/// The same for a goal that the others have, too: four fifths stay.
const DISAGREES: f64 = 1.25;

/// The part of what was done that stays known from one interval to the next, while no host is doubted.
const KEPT: f64 = 0.9;

/// By how much the others free themselves in an interval of a claim that none of them confirms, up to what
/// they ask for themselves.
const GROWS: f64 = 1.1;

/// A wish among others', all of throughputs in IO/s, or all of numbers of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostWish {
    /// Amount that all hosts may do together.
    pub(crate) asks: f64,
    /// So that this response time is kept.
    pub(crate) goal: Latency,
    /// Amount that its host did.
    pub(crate) done: f64,
}

/// The agreed operating point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AgreedPoint {
    pub(crate) point: f64,
    /// Place of the lowest wish.
    pub(crate) lowest: usize,
    /// It was not followed all the way.
    pub(crate) doubted: bool,
}

/// The agreement of the hosts' wishes, with its memory.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct HostAgreement {
    /// Amount that all did before the lowest wish was doubted. `None`: there was no other host.
    supported: Option<f64>,
}

impl HostAgreement {
    /// The operating point that all use: the lowest wish, as far as it is believed. `in_force` is the one
    /// until now, beyond which no host can have done anything, whatever it reports. `shortest` is the
    /// shortest goal that this host knows of. `None` without a wish. The order of the wishes does not matter,
    /// unless two are the lowest.
    pub(crate) fn of(
        &mut self,
        wishes: &[HostWish],
        in_force: f64,
        shortest: Latency,
    ) -> Option<AgreedPoint> {
        let at = |place: usize| wishes[place].asks;
        let lowest = (0..wishes.len()).min_by(|left, right| at(*left).total_cmp(&at(*right)))?;
        let goal = wishes[lowest].goal.max(shortest).as_secs_f64();
        let others = wishes.iter().enumerate().filter(|(place, _)| *place != lowest).map(|(_, other)| other);
        let at_goal = |other: &HostWish| {
            let longer = (other.goal.as_secs_f64() / goal).max(1.0);
            other.asks / longer
        };
        let Some(support) = others.clone().map(at_goal).min_by(f64::total_cmp) else {
            self.supported = None;
            return Some(AgreedPoint { point: at(lowest), lowest, doubted: false });
        };
        let by_others: f64 = others.map(|other| other.done).sum();
        let done = (by_others + wishes[lowest].done.min(by_others)).min(in_force);
        let remembered = self.supported.unwrap_or(0.0);
        let shorter = (shortest.as_secs_f64() / wishes[lowest].goal.as_secs_f64()).max(1.0);
        let believed = (DISAGREES * shorter).min(BELIEVED);
        // What the others want for themselves is more than what they can be asked to bear.
        let least = (remembered.max(done) / believed).min(support / DISAGREES);
        let doubted = at(lowest) < least;
        // What was done before stays known for as long as a host is doubted: otherwise each step down would
        // be where the next begins.
        let known = remembered.max(done);
        let unconfirmed = known.max((known * GROWS).min(support));
        self.supported = Some(if doubted { unconfirmed } else { done.max(remembered * KEPT) });
        Some(AgreedPoint { point: at(lowest).max(least), lowest, doubted })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOAL: Latency = Latency::from_millis(20);

    fn wish(asks: f64, goal_ms: u64, done: f64) -> HostWish {
        HostWish { asks, goal: Latency::from_millis(goal_ms), done }
    }

    fn agreed(agreement: &mut HostAgreement, wishes: &[HostWish]) -> (f64, usize, bool) {
        let AgreedPoint { point, lowest, doubted } = agreement.of(wishes, f64::MAX, GOAL).unwrap();
        (point, lowest, doubted)
    }

    #[test]
    fn the_lowest_wins() {
        let mut agreement = HostAgreement::default();
        assert_eq!(agreement.of(&[], f64::MAX, GOAL), None);
        assert_eq!(agreed(&mut agreement, &[wish(3.0, 20, 500.0)]), (3.0, 0, false), "a host that is alone");
        let wishes = [wish(500.0, 20, 100.0), wish(350.0, 20, 200.0), wish(400.0, 20, 100.0)];
        assert_eq!(agreed(&mut agreement, &wishes), (350.0, 1, false));
        // To a fifth below the next one.
        let wishes = [wish(500.0, 20, 100.0), wish(100.0, 20, 200.0), wish(400.0, 20, 100.0)];
        assert_eq!(agreed(&mut agreement, &wishes), (320.0, 1, true));
    }

    #[test]
    fn who_asks_for_next_to_nothing_holds_nobody_below_four_fifths_however_long_it_asks() {
        let mut agreement = HostAgreement::default();
        let mut done = 400.0;
        for _ in 0..1_000 {
            // The honest one would have response times of its goal at 400: proportional, down to a third of
            // that.
            let takes = (20.0 * done / 400.0_f64).max(20.0 / 3.0);
            let honest = wish(done * 20.0 / takes, 20, done / 2.0);
            let (point, lowest, doubted) = agreed(&mut agreement, &[honest, wish(1e-3, 20, done / 2.0)]);
            assert!((lowest, doubted) == (1, true));
            done = point;
        }
        assert!((done - 320.0).abs() < 1e-9, "{done}");
    }

    #[test]
    fn who_has_a_shorter_goal_is_believed_as_the_others_measurements_say() {
        // All measure 40 ms at 400 IO/s: for 4 ms it takes 40.
        let strict = wish(40.0, 4, 100.0);
        let others = [wish(400.0, 40, 150.0), wish(400.0, 40, 150.0)];
        let wishes = [strict, others[0], others[1]];
        let knows = HostAgreement::default().of(&wishes, 400.0, Latency::from_millis(4)).unwrap();
        assert_eq!((knows.point, knows.doubted), (40.0, false));
        // A host that knows of no goal below 40 ms believes a quarter, and what a goal that is shorter by
        // half takes.
        let knows_not = HostAgreement::default().of(&wishes, 400.0, Latency::from_millis(40)).unwrap();
        assert_eq!((knows_not.point, knows_not.doubted), (100.0, true));
        let wishes = [wish(40.0, 20, 100.0), others[0], others[1]];
        let knows_not = HostAgreement::default().of(&wishes, 400.0, Latency::from_millis(40)).unwrap();
        assert_eq!((knows_not.point, knows_not.doubted), (160.0, true));
    }

    #[test]
    fn two_who_agree_that_the_storage_has_become_slow_are_believed() {
        let mut agreement = HostAgreement::default();
        let content = [wish(900.0, 20, 400.0), wish(900.0, 20, 400.0)];
        assert!((agreed(&mut agreement, &content).0 - 900.0).abs() < 1e-9);
        let slow = [wish(34.0, 20, 400.0), wish(40.0, 20, 400.0)];
        assert_eq!(agreed(&mut agreement, &slow), (34.0, 0, false));
    }

    /// The others do little when it begins, and more later.
    #[test]
    fn a_claim_that_no_other_host_confirms_fades() {
        let mut agreement = HostAgreement::default();
        let night = [wish(500.0, 20, 50.0), wish(500.0, 20, 50.0), wish(1.0, 20, 0.0)];
        assert_eq!(agreed(&mut agreement, &night), (80.0, 2, true));
        let by_day = (0..30).map(|_| agreed(&mut agreement, &night).0).last();
        assert!(by_day.is_some_and(|point| (point - 400.0).abs() < 1e-9), "{by_day:?}");
    }

    #[test]
    fn what_a_liar_says_that_it_did_supports_nothing() {
        let mut agreement = HostAgreement::default();
        let (point, ..) = agreed(&mut agreement, &[wish(1.0, 20, 1e12), wish(500.0, 20, 100.0)]);
        assert!((point - 160.0).abs() < 1e-9, "{point}");
    }

    prop_compose! {
        fn any_wish()(point in prop_oneof![Just(0.0), 1e-6..1e9_f64], goal in 0..1_000_u64,
            done in prop_oneof![Just(0.0), 0.0..1e9_f64]) -> HostWish {
            wish(point, goal, done)
        }
    }

    proptest! {
        #[test]
        fn the_operating_point_is_between_the_lowest_wish_and_the_next(
            steps in prop::collection::vec(prop::collection::vec(any_wish(), 1..6), 1..20),
        ) {
            let mut agreement = HostAgreement::default();
            for wishes in steps {
                let AgreedPoint { point, lowest, doubted } = agreement.of(&wishes, 1e6, GOAL).unwrap();
                let mut sorted: Vec<f64> = wishes.iter().map(|wish| wish.asks).collect();
                sorted.sort_by(f64::total_cmp);
                let next = sorted.get(1).copied().unwrap_or(sorted[0]);
                prop_assert!(sorted[0] <= point && point <= next, "{point} of {sorted:?}");
                prop_assert_eq!(doubted, point > sorted[0]);
                prop_assert!((wishes[lowest].asks - sorted[0]).abs() <= 0.0);
            }
        }

        #[test]
        fn the_order_of_hosts_does_not_matter(wishes in prop::collection::vec(any_wish(), 1..6),
            by in 0..6_usize) {
            let points: Vec<f64> = wishes.iter().map(|wish| wish.asks).collect();
            prop_assume!(points.iter().enumerate()
                .all(|(at, point)| points[..at].iter().all(|other| (other - point).abs() > 0.0)));
            let mut turned = wishes.clone();
            turned.rotate_left(by % wishes.len());
            let [one, other] = [&wishes, &turned]
                .map(|wishes| HostAgreement::default().of(wishes, 1e6, GOAL).unwrap());
            let close = (one.point - other.point).abs() <= 1e-9 * one.point;
            prop_assert!(close && one.doubted == other.doubted);
            prop_assert_eq!(wishes[one.lowest], turned[other.lowest]);
        }

        /// One host's word leaves the others, which are content, four fifths of their load.
        #[test]
        fn no_single_host_holds_content_ones_below_four_fifths(
            lies in prop::collection::vec(any_wish(), 1..50),
                honest in prop::collection::vec((1.0..5.0_f64, 1.0..1_000.0_f64), 1..5),
        ) {
            let mut agreement = HostAgreement::default();
            let all: f64 = honest.iter().map(|(_, done)| done).sum();
            let (mut part, mut in_force) = (1.0, all);
            for lie in lies {
                let now = all * part;
                // They are content: each asks for more than all do, the liar's claim included as far as it
                // counts.
                let mut wishes: Vec<HostWish> =
                    honest.iter().map(|(more, done)| wish(2.0 * now * more, 20, done * part)).collect();
                wishes.push(HostWish { goal: lie.goal.max(GOAL), ..lie });
                let AgreedPoint { point, .. } = agreement.of(&wishes, in_force, GOAL).unwrap();
                in_force = point;
                let (least, goal) = (all / DISAGREES, lie.goal.max(GOAL).as_secs_f64() / GOAL.as_secs_f64());
                prop_assert!(point >= least * (1.0 - 1e-9), "{} of {}, goal {}", point, all, goal);
                part = (point / all).min(1.0);
            }
        }
    }
}
