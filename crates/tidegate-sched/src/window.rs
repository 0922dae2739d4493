//! The window: how many requests may be outstanding, made whole over time.
//!
//! PARDA §3.3 leaves fractional windows open ("per-VM allocations may be very small"). Here the fraction is
//! kept in time: the gate integrates `w − n`, the window less the requests outstanding, and lets one request
//! more than ⌊w⌋ go whenever that balance is not negative. While requests wait, the mean number outstanding
//! is therefore w. For w < 1 this is Little's law: a request that was outstanding for l is followed by
//! a pause of l·(1/w − 1).

use tidegate_units::{Instant, Window};

use crate::discipline::RefillTime;

/// Binary digits behind the point of a window.
const BITS: u32 = 20;
const ONE: i64 = 1 << BITS;

/// The least window that has an effect of its own. Zero would stop the storage for ever, and a regulator must
/// not be able to do that by a bad number.
const LEAST: f64 = 1.0 / 1024.0;

/// The greatest: more than any device takes, and far from overflow.
const GREATEST: f64 = 1_048_576.0;

/// The longest pause that a request outstanding for long can cause: memory of this much is a debt, more
/// would be a grudge.
const LONGEST_PAUSE_NANOS: i64 = 1_000_000_000;

/// Greatest lateness at which the owner may come back without losing a part of the window.
const LATENESS_NANOS: i64 = 100_000_000;

/// Longer than any balance takes to reach its bounds (18 minutes), short enough that nothing overflows.
const LONGEST_STEP_NANOS: u64 = 1 << 40;

/// Answer of the gate to one more request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateAnswer {
    Open,
    /// Not before this time, unless a completion or a larger window comes first.
    NotBefore(Instant),
    /// Not before a completion or a larger window.
    Shut,
}

/// See the module. Times are the scheduler's own: they never go back.
#[derive(Debug)]
pub(crate) struct WindowGate {
    /// ⌊w⌋ and the fraction that is left; `None`: no bound.
    window: Option<(u32, i64)>,
    outstanding: u32,
    /// ∫(w − n)dt in requests · 2⁻²⁰ · ns.
    balance: i64,
    balanced_at: Instant,
    /// True if a request waits at the gate. Without demand no balance is earned.
    waiting: bool,
    /// The batch under way; `None`: requests go one by one.
    batch: Option<Sent>,
}

/// Part of a batch that has gone since nothing was outstanding; `closed`: no more may go.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    requests: u32,
    closed: bool,
}

impl WindowGate {
    pub(crate) fn new(window: Option<Window>, refill: RefillTime) -> Self {
        Self {
            window: window.map(whole_and_fraction),
            outstanding: 0,
            balance: 0,
            balanced_at: Instant::ZERO,
            waiting: false,
            batch: (refill == RefillTime::InBatches).then(Sent::default),
        }
    }

    /// Larger: at once. Smaller: what is outstanding stays, and nothing follows until it fits.
    pub(crate) fn set(&mut self, window: Option<Window>, now: Instant) {
        self.settle(now);
        self.window = window.map(whole_and_fraction);
        self.settle(now);
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    pub(crate) fn dispatched(&mut self, now: Instant) {
        self.settle(now);
        self.outstanding += 1;
        if let Some(batch) = &mut self.batch {
            batch.requests += 1;
        }
    }

    pub(crate) fn completed(&mut self, now: Instant) {
        self.settle(now);
        self.outstanding -= 1;
        if let Some(batch) = self.batch.as_mut().filter(|_| self.outstanding == 0) {
            *batch = Sent::default();
        }
    }

    /// May a request that waits now go?
    pub(crate) fn admit(&mut self, now: Instant) -> GateAnswer {
        if self.batch.is_some_and(|batch| self.is_sent(batch)) {
            self.settle(now);
            self.waiting = true;
            return GateAnswer::Shut;
        }
        let Some((whole, fraction)) = self.window else { return GateAnswer::Open };
        if self.outstanding < whole {
            return GateAnswer::Open;
        }
        self.settle(now);
        if self.outstanding > whole || fraction == 0 {
            self.waiting = true;
            return GateAnswer::Shut;
        }
        if self.balance >= 0 {
            return GateAnswer::Open;
        }
        self.waiting = true;
        let nanos = (-self.balance - 1) / fraction + 1;
        GateAnswer::NotBefore(now + tidegate_units::Latency::from_nanos(nanos.unsigned_abs()))
    }

    /// No request waits.
    pub(crate) fn idle(&mut self, now: Instant) {
        if self.waiting {
            self.settle(now);
            self.waiting = false;
        }
        if let Some(batch) = &mut self.batch {
            batch.closed = self.outstanding > 0;
        }
    }

    /// Returns true if no more of the batch may go. A batch of a fractional window may be one larger than
    /// ⌊w⌋.
    fn is_sent(&self, batch: Sent) -> bool {
        let full = |(whole, fraction): (u32, i64)| batch.requests >= whole + u32::from(fraction != 0);
        batch.closed || self.window.is_some_and(full)
    }

    fn settle(&mut self, now: Instant) {
        let Some((whole, fraction)) = self.window.filter(|&(_, fraction)| fraction != 0) else {
            self.balance = 0;
            self.balanced_at = now;
            return;
        };
        let elapsed = now.as_nanos().saturating_sub(self.balanced_at.as_nanos()).min(LONGEST_STEP_NANOS);
        self.balanced_at = now;
        // Requests beyond ⌈w⌉ were dispatched under a larger window, and do not count against this one.
        let over = i64::from(self.outstanding.min(whole + 1)) - i64::from(whole);
        let slope = (fraction - over * ONE).min(ONE);
        let most = if self.waiting { fraction * LATENESS_NANOS } else { 0 };
        self.balance =
            (self.balance + slope * elapsed.cast_signed()).clamp(-fraction * LONGEST_PAUSE_NANOS, most);
    }
}

fn whole_and_fraction(window: Window) -> (u32, i64) {
    let fixed = (window.get().clamp(LEAST, GREATEST) * ONE as f64).round() as i64;
    ((fixed >> BITS) as u32, fixed & (ONE - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn gate(window: f64) -> WindowGate {
        WindowGate::new(Some(Window::new(window)), RefillTime::OneByOne)
    }

    /// Lets requests through as fast as the gate allows; each is outstanding for the next of `latencies`.
    /// Returns the mean number outstanding and the greatest.
    fn backlogged(gate: &mut WindowGate, latencies: &[u64], requests: usize) -> (f64, u32) {
        let (mut now, mut area, mut most) = (0u64, 0.0, 0);
        let mut ends: Vec<u64> = Vec::new();
        let mut next = latencies.iter().copied().cycle();
        for _ in 0..requests {
            loop {
                let wake = match gate.admit(at(now)) {
                    GateAnswer::Open => break,
                    GateAnswer::NotBefore(wake) => Some(wake.as_nanos()),
                    GateAnswer::Shut => None,
                };
                let end = ends.iter().copied().min();
                let then = wake.into_iter().chain(end).min().expect("a shut gate has requests outstanding");
                area += (then - now) as f64 * f64::from(gate.outstanding());
                now = then;
                if let Some(index) = ends.iter().position(|&end| end <= now) {
                    ends.swap_remove(index);
                    gate.completed(at(now));
                }
            }
            gate.dispatched(at(now));
            ends.push(now + next.next().unwrap());
            most = most.max(gate.outstanding());
        }
        (area / now as f64, most)
    }

    #[test]
    fn a_pause_follows_by_littles_law() {
        let mut gate = gate(0.25);
        assert_eq!(gate.admit(at(0)), GateAnswer::Open);
        gate.dispatched(at(0));
        assert_eq!(gate.admit(at(1_000_000)), GateAnswer::Shut);
        gate.completed(at(8_000_000));
        assert_eq!(gate.admit(at(8_000_000)), GateAnswer::NotBefore(at(32_000_000)));
        assert_eq!(gate.admit(at(32_000_000)), GateAnswer::Open);
    }

    #[test]
    fn no_pause_is_longer_than_a_second() {
        for window in [0.0, 1e-9, 0.001, f64::NAN] {
            let mut gate = gate(window);
            gate.dispatched(at(0));
            gate.completed(at(60_000_000_000));
            match gate.admit(at(60_000_000_000)) {
                GateAnswer::NotBefore(then) => assert!(then <= at(61_000_000_000)),
                other => panic!("window {window}: {other:?}"),
            }
        }
    }

    #[test]
    fn raising_acts_at_once_lowering_revokes_nothing() {
        let mut gate = gate(0.1);
        gate.dispatched(at(0));
        gate.completed(at(1_000_000));
        assert!(matches!(gate.admit(at(1_000_000)), GateAnswer::NotBefore(_)));
        gate.set(Some(Window::new(3.0)), at(1_000_000));
        for _ in 0..3 {
            assert_eq!(gate.admit(at(1_000_000)), GateAnswer::Open);
            gate.dispatched(at(1_000_000));
        }
        assert_eq!(gate.admit(at(1_000_000)), GateAnswer::Shut);
        gate.set(Some(Window::new(1.0)), at(1_000_000));
        assert_eq!(gate.outstanding(), 3);
        gate.completed(at(2_000_000));
        gate.completed(at(2_000_000));
        assert_eq!(gate.admit(at(2_000_000)), GateAnswer::Shut);
        gate.completed(at(2_000_000));
        assert_eq!(gate.admit(at(2_000_000)), GateAnswer::Open);
        gate.set(None, at(2_000_000));
        for _ in 0..1_000 {
            assert_eq!(gate.admit(at(2_000_000)), GateAnswer::Open);
            gate.dispatched(at(2_000_000));
        }
    }

    /// A timer is never on time; the part of the window lost by it comes back.
    #[test]
    fn an_owner_who_comes_late_loses_nothing() {
        let mut gate = gate(0.5);
        let (mut now, mut busy) = (0u64, 0u64);
        for _ in 0..1_000 {
            loop {
                match gate.admit(at(now)) {
                    GateAnswer::Open => break,
                    GateAnswer::NotBefore(then) => now = then.as_nanos() + 3_000_000,
                    GateAnswer::Shut => unreachable!("nothing is outstanding"),
                }
            }
            gate.dispatched(at(now));
            now += 10_000_000;
            busy += 10_000_000;
            gate.completed(at(now));
        }
        let mean = busy as f64 / now as f64;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    /// An idle hour must not be spent as a burst without pauses.
    #[test]
    fn idleness_earns_nothing() {
        let mut gate = gate(0.5);
        let hour = 3_600_000_000_000;
        assert_eq!(gate.admit(at(hour)), GateAnswer::Open);
        gate.dispatched(at(hour));
        gate.completed(at(hour + 5_000_000));
        assert_eq!(gate.admit(at(hour + 5_000_000)), GateAnswer::NotBefore(at(hour + 10_000_000)));
        gate.idle(at(hour + 7_000_000));
        gate.dispatched(at(2 * hour));
        gate.completed(at(2 * hour + 1_000_000));
        assert_eq!(gate.admit(at(2 * hour + 1_000_000)), GateAnswer::NotBefore(at(2 * hour + 2_000_000)));
    }

    #[test]
    fn a_batch_is_refilled_when_all_of_it_is_done() {
        let mut gate = WindowGate::new(Some(Window::new(2.5)), RefillTime::InBatches);
        for _ in 0..3 {
            assert_eq!(gate.admit(at(0)), GateAnswer::Open);
            gate.dispatched(at(0));
        }
        for done in 0..3 {
            assert_eq!(gate.admit(at(done)), GateAnswer::Shut, "{done} of 3 done");
            gate.completed(at(done));
        }
        assert_eq!(gate.admit(at(3)), GateAnswer::Open);
        gate.dispatched(at(3));
        gate.idle(at(3));
        assert_eq!(gate.admit(at(4)), GateAnswer::Shut, "came after the batch was closed");
        gate.completed(at(5));
        gate.idle(at(5));
        assert_eq!(gate.admit(at(6)), GateAnswer::Open);
    }

    proptest! {
        #[test]
        fn mean_outstanding_is_the_window_and_never_beyond_its_ceiling(
            window in 0.05f64..6.0,
            latencies in prop::collection::vec(100_000u64..20_000_000, 1..20),
        ) {
            let (mean, most) = backlogged(&mut gate(window), &latencies, 2_000);
            prop_assert!((mean - window).abs() < 0.01 * window + 0.005, "mean {mean}, window {window}");
            prop_assert!(f64::from(most) <= window.ceil());
        }
    }
}
