//! How hosts come to one window: each decides by itself, and the median of all decisions is in force.
//!
//! All hosts see the same sums, but not at the same time. If each decided from where the others already are,
//! one error would be corrected once by every host. So each proposes its own window, and decides again once
//! most hosts have come along and the effect can be seen. A proposal that finds no majority is withdrawn.

use std::time::Duration;

/// The most by which the logarithm of a host's window is apart from what all hosts agreed on.
const APART: f64 = 0.1;

/// The distance within which hosts agree on the logarithm of a window.
const TOGETHER: f64 = 0.3;

/// Seconds for which a host waits for the others to agree.
const PATIENCE: f64 = 2.0;

/// Seconds in which a distance that counts as agreement falls to 1/e.
const DRIFT: f64 = 5.0;

/// The part of the way to the median that a host goes in an interval without a proposal. Reports tell what was
/// in force an interval ago: two hosts that went all the way would change places for ever.
const HALF_WAY: f64 = 0.5;

/// What a host proposed, and what all of them agreed on. Windows are logarithms.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Agreement {
    /// The median of all hosts' windows. `None` while the host is alone.
    agreed: Option<f64>,
    /// Seconds since this host proposed a window.
    proposed: Option<f64>,
}

/// What a host does with the median that it heard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Heard {
    /// Most hosts agree with this one, which is to go on from this window.
    Agreed(f64),
    /// The same of a wider window, which begins to be in force now.
    Widened(f64),
    /// This host's proposal waits for the others.
    Waiting,
    /// The others decided otherwise: this host comes along to this window.
    Overruled(f64),
}

impl Agreement {
    /// Returns true if no other host has been heard yet.
    pub(super) fn is_alone(&self) -> bool {
        self.agreed.is_none()
    }

    /// Forgets the other hosts. Returns true if there were any.
    pub(super) fn lose(&mut self) -> bool {
        std::mem::take(self).agreed.is_some()
    }

    /// Takes note of a window that this host decided on.
    pub(super) fn propose(&mut self) {
        self.proposed = self.agreed.map(|_| 0.0);
    }

    /// Takes note of the median `all`, while this host's own window is `own`.
    pub(super) fn hear(&mut self, all: f64, own: f64, interval: Duration) -> Heard {
        let seconds = interval.as_secs_f64();
        let before = self.agreed.replace(all);
        if (all - own).abs() <= TOGETHER {
            let widens = before.is_some_and(|before| own > before + APART);
            let nearer = own + (all - own) * (1.0 - (-seconds / DRIFT).exp());
            let is_new = self.proposed.take().is_some();
            return if is_new && widens { Heard::Widened(nearer) } else { Heard::Agreed(nearer) };
        }
        self.proposed = self.proposed.map(|waited| waited + seconds).filter(|waited| *waited < PATIENCE);
        if self.proposed.is_some() { Heard::Waiting } else { Heard::Overruled(own + HALF_WAY * (all - own)) }
    }

    /// The window in force on this host, of all hosts together. What it proposes to take is in force at once,
    /// what it proposes to give once the others agree.
    pub(super) fn in_force(&self, own: f64) -> f64 {
        self.agreed.map_or(own, |all| {
            let least = if self.proposed.is_some() { f64::NEG_INFINITY } else { all - APART };
            own.clamp(least, all + APART)
        })
    }

    /// The bounds of [`in_force`](Self::in_force) move with a floor that all hosts keep.
    pub(super) fn raise_to(&mut self, floor: f64) {
        self.agreed = self.agreed.map(|_| floor);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(250);

    fn median(mut windows: Vec<f64>) -> f64 {
        windows.sort_by(f64::total_cmp);
        (windows[(windows.len() - 1) / 2] + windows[windows.len() / 2]) / 2.0
    }

    /// Lets hosts hear the medians of an interval ago for so many intervals.
    fn hear(hosts: &mut [(Agreement, f64)], intervals: usize) {
        let mut reported = median(hosts.iter().map(|(_, own)| *own).collect());
        for _ in 0..intervals {
            let now = median(hosts.iter().map(|(_, own)| *own).collect());
            for (agreement, own) in hosts.iter_mut() {
                match agreement.hear(reported, *own, INTERVAL) {
                    Heard::Agreed(window) | Heard::Widened(window) | Heard::Overruled(window) => {
                        *own = window;
                    }
                    Heard::Waiting => {}
                }
            }
            reported = now;
        }
    }

    #[test]
    fn a_proposal_to_take_is_in_force_at_once_and_one_to_give_waits() {
        let mut agreement = Agreement::default();
        agreement.hear(2.0, 2.0, INTERVAL);
        agreement.propose();
        assert!((agreement.in_force(1.0) - 1.0).abs() < 1e-9);
        assert!((agreement.in_force(3.0) - 2.1).abs() < 1e-9);
    }

    #[test]
    fn one_host_alone_is_overruled_after_some_seconds() {
        let mut agreement = Agreement::default();
        agreement.hear(2.0, 2.0, INTERVAL);
        agreement.propose();
        let heard: Vec<Heard> = (0..8).map(|_| agreement.hear(2.0, 1.0, INTERVAL)).collect();
        assert_eq!(heard[6], Heard::Waiting);
        assert_eq!(heard[7], Heard::Overruled(1.5));
    }

    #[test]
    fn what_most_hosts_propose_is_agreed() {
        let mut agreement = Agreement::default();
        agreement.hear(2.0, 2.0, INTERVAL);
        agreement.propose();
        assert_eq!(agreement.hear(3.0, 3.0, INTERVAL), Heard::Widened(3.0));
        assert_eq!(agreement.hear(3.0, 3.0, INTERVAL), Heard::Agreed(3.0));
    }

    #[test]
    fn a_host_that_has_lost_the_others_decides_alone() {
        let mut agreement = Agreement::default();
        assert!(!agreement.lose() && agreement.is_alone());
        agreement.hear(2.0, 5.0, INTERVAL);
        assert!(agreement.lose() && agreement.is_alone());
        assert!((agreement.in_force(5.0) - 5.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn hosts_come_together_wherever_they_begin(windows in prop::collection::vec(-4.0f64..8.0, 2..20)) {
            let (least, most) = windows.iter().fold((8.0f64, -4.0f64), |(least, most), window| {
                (least.min(*window), most.max(*window))
            });
            let mut hosts: Vec<_> = windows.iter().map(|own| (Agreement::default(), *own)).collect();
            hear(&mut hosts, 200);
            let all = median(hosts.iter().map(|(_, own)| *own).collect());
            for (agreement, own) in &hosts {
                prop_assert!((agreement.in_force(*own) - all).abs() < 0.2, "{own} beside {all}");
                prop_assert!((least - 1e-9..=most + 1e-9).contains(own));
            }
        }
    }
}
