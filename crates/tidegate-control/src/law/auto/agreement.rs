//! The agreement of hosts on one window: each decides by itself, and the median of all is in force.
//!
//! All hosts see the same sums, but not at the same time. If each decided from where the others already are,
//! one error would be corrected once by every host. So each proposes its own window, and decides again once
//! most hosts have come along and the effect can be seen. A proposal that finds no majority is withdrawn.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A proposal beyond what hosts agreed on by this, as a logarithm, widens the window.
const WIDER: f64 = 0.1;

/// The distance within which hosts agree on the logarithm of a window.
const TOGETHER: f64 = 0.3;

/// Seconds for which a host waits for the others to agree.
const PATIENCE: f64 = 2.0;

/// Seconds in which a distance that counts as agreement falls to 1/e.
const DRIFT: f64 = 5.0;

/// The part of the way to the median that a host goes in an interval without a proposal. Reports tell what
/// was in force an interval ago: two hosts that went all the way would change places for ever.
const HALF_WAY: f64 = 0.5;

/// A host's proposal, and the window that all agreed on. Windows are logarithms.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Agreement {
    /// The median of all hosts' windows. `None` while the host is alone.
    agreed: Option<f64>,
    /// Seconds since this host proposed a window.
    proposed: Option<f64>,
}

/// The answer of a host to the median that it heard.
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
            let widens = before.is_some_and(|before| own > before + WIDER);
            let nearer = own + (all - own) * (1.0 - (-seconds / DRIFT).exp());
            let is_new = self.proposed.take().is_some();
            return if is_new && widens { Heard::Widened(nearer) } else { Heard::Agreed(nearer) };
        }
        self.proposed = self.proposed.map(|waited| waited + seconds).filter(|waited| *waited < PATIENCE);
        if self.proposed.is_some() { Heard::Waiting } else { Heard::Overruled(own + HALF_WAY * (all - own)) }
    }

    /// The window of all hosts together that this host takes its part of. It is the one that they agreed on,
    /// or this host's proposal if that is smaller.
    pub(super) fn in_force(&self, own: f64) -> f64 {
        self.agreed.map_or(own, |all| if self.proposed.is_some() { own.min(all) } else { all })
    }

    /// Raises what is in force to a floor that this host keeps until it hears the others again.
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
    fn what_a_host_proposes_to_take_is_in_force_at_once_and_all_else_by_most_hosts() {
        let mut agreement = Agreement::default();
        agreement.hear(2.0, 2.0, INTERVAL);
        assert!((agreement.in_force(1.9) - 2.0).abs() < 1e-9, "small decisions are in force when most agree");
        agreement.propose();
        assert!((agreement.in_force(1.0) - 1.0).abs() < 1e-9);
        assert!((agreement.in_force(3.0) - 2.0).abs() < 1e-9);
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
