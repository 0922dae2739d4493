//! The delay that a law's output comes to. Throttles take delays.
//!
//! The PID's output is a delay. The window law's output is the number w of requests that all members together
//! may have at the storage. Members keep q requests outstanding, so that q − w of them are to wait. By
//! Little's law, if X complete per second and each waits for d, X·d are waiting:
//!
//! d = (q − w)/X
//!
//! q counts the requests at the storage and those that the throttle keeps waiting. X counts the completed
//! requests that the throttle may delay: all where packets are delayed, writes where they are limited. If d
//! is too short, the storage is saturated: X is its capacity, and all but w wait. If d is too long, X is
//! q/(R+d), R being the time at the storage. The next d is then shorter, by the part w/q of its excess.
//! Either way w requests are at the storage in the end. The formula R·(q − w)/w gives the same in the end.
//! But with it a response time that is a little too long would make the delay (q − w)/w times as much too
//! long. With deep queues the delay would swing.
//!
//! q and X are averages of a second: after a delay has grown, some of the requests that it keeps waiting have
//! not come yet.
//!
//! So the window of the law `auto` would be in force seconds after the decision. The delay is therefore
//! [steered](crate::steering) once the window asks for one.

use std::time::Duration;

use tidegate_control::{Commands, MeanOutstanding};
use tidegate_units::{Latency, Window};

use crate::pace::remembered;

/// The time constant with which the recent load of members is forgotten. It is longer than the longest delay
/// of packets, and as long as that of a limit.
pub(crate) const MEMORY: Duration = Duration::from_secs(1);

/// Delays are rounded up to multiples of this, as the PID's: a change of less is not worth the kernel's work.
pub(crate) const STEP: Latency = Latency::from_micros(500);

/// The requests of all members of a resource in an interval.
#[derive(Debug, Clone, Copy)]
pub struct MemberInterval {
    /// Its length.
    pub elapsed: Duration,
    /// The requests outstanding on average, throttled or at the storage.
    pub outstanding: MeanOutstanding,
    /// The completed requests that the throttle may delay.
    pub completed: u64,
}

/// The requests that all members of a resource together keep outstanding, and those that complete.
#[derive(Debug, Clone, Default)]
pub struct MemberDemand {
    /// Weighted by age: seconds, requests times the seconds that they were outstanding, and requests that
    /// completed.
    seconds: f64,
    outstanding: f64,
    completed: f64,
}

impl MemberDemand {
    /// Takes an interval.
    pub fn observe(&mut self, interval: MemberInterval) {
        let (keep, seconds) = (remembered(interval.elapsed, MEMORY), interval.elapsed.as_secs_f64());
        self.seconds = keep * self.seconds + seconds;
        self.outstanding = keep * self.outstanding + interval.outstanding.get() * seconds;
        self.completed = keep * self.completed + interval.completed as f64;
    }

    /// Returns the requests that complete per second, and the time that each takes by Little's law. `None`
    /// while nothing was done.
    pub(crate) fn rate_and_latency(&self) -> Option<(f64, f64)> {
        let known = self.completed > 0.0 && self.outstanding > 0.0;
        known.then(|| (self.completed / self.seconds, self.outstanding / self.completed))
    }

    /// Returns the delay of each member that the commands come to. One that a window comes to is at most
    /// `longest`. `None` while it cannot be known, because nothing was done.
    pub fn delay(&self, commands: &Commands, longest: Latency) -> Option<Latency> {
        match commands.window {
            Some(window) => self.delay_of_window(window, longest),
            None => {
                let delays = commands.consumers.iter().filter_map(|command| command.delay);
                Some(delays.max().unwrap_or_default())
            }
        }
    }

    fn delay_of_window(&self, window: Window, longest: Latency) -> Option<Latency> {
        if self.seconds <= 0.0 {
            return None;
        }
        let waiting = self.outstanding / self.seconds - window.get();
        if waiting <= 0.0 {
            return Some(Latency::ZERO);
        }
        let delay = Latency::from_secs_f64(waiting * self.seconds / self.completed);
        let steps = delay.min(longest).as_nanos().div_ceil(STEP.as_nanos());
        (self.completed > 0.0).then(|| Latency::from_nanos(steps * STEP.as_nanos()).min(longest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_control::ConsumerCommand;
    use tidegate_units::ConsumerName;

    use super::*;

    const LONGEST: Latency = Latency::from_millis(100);
    const INTERVAL: Duration = Duration::from_millis(250);

    fn interval(elapsed: Duration, outstanding: f64, completed: u64) -> MemberInterval {
        MemberInterval { elapsed, outstanding: MeanOutstanding::new(outstanding), completed }
    }

    fn window(window: f64) -> Commands {
        Commands { window: Some(Window::new(window)), ..Commands::default() }
    }

    fn delay_of(demand: &MemberDemand, commands: &Commands) -> f64 {
        demand.delay(commands, LONGEST).unwrap().as_secs_f64()
    }

    #[test]
    fn the_longest_of_the_pids_delays_is_in_force_as_it_is() {
        let consumer = |delay| ConsumerCommand { name: ConsumerName::new("a").unwrap(), delay, rate: None };
        let longer = Latency::from_millis(3_000);
        let commands =
            Commands { consumers: vec![consumer(None), consumer(Some(longer))], ..Commands::default() };
        assert_eq!(MemberDemand::default().delay(&commands, LONGEST), Some(longer));
        assert_eq!(MemberDemand::default().delay(&Commands::default(), LONGEST), Some(Latency::ZERO));
    }

    #[test]
    fn what_a_window_comes_to_is_unknown_while_nothing_completes_and_nothing_while_it_is_not_full() {
        let mut demand = MemberDemand::default();
        assert_eq!(demand.delay(&window(4.0), LONGEST), None);
        demand.observe(interval(INTERVAL, 8.0, 0));
        assert_eq!(demand.delay(&window(4.0), LONGEST), None);
        assert_eq!(demand.delay(&window(8.0), LONGEST), Some(Latency::ZERO));
        demand.observe(interval(INTERVAL, 8.0, 50));
        // 4 wait, and 100 a second go on.
        assert!((delay_of(&demand, &window(4.0)) - 0.040).abs() < 0.005);
        assert_eq!(demand.delay(&window(0.1), Latency::from_millis(30)), Some(Latency::from_millis(30)));
    }

    /// Returns the number of requests that are at the storage in the end, beside a window. Members keep
    /// `outstanding` at a storage that completes `capacity` per second, each in `service` at least. A change
    /// of the delay shows when the delayed requests have gone round.
    fn at_the_storage(outstanding: f64, capacity: f64, service: f64, allowed: f64) -> f64 {
        let (mut demand, mut delay, mut there) = (MemberDemand::default(), 0.0, outstanding);
        for _ in 0..120 {
            let done = capacity.min(outstanding / (service + delay));
            let held = (done * delay).min(outstanding);
            demand.observe(interval(INTERVAL, there + held, (done * INTERVAL.as_secs_f64()).round() as u64));
            there = outstanding - held;
            delay = demand.delay(&window(allowed), Latency::from_millis(1_000)).unwrap().as_secs_f64();
        }
        there
    }

    proptest! {
        #[test]
        fn as_many_as_the_window_has_are_at_the_storage(
            outstanding in 8.0..200.0, capacity in 300.0..5_000.0, part in 0.2..0.9,
        ) {
            // A window that keeps the storage busy, and a delay that is long enough for it is allowed.
            let allowed = part * outstanding;
            let service = 0.5 * allowed / capacity;
            prop_assume!(outstanding / capacity < 0.9);
            let there = at_the_storage(outstanding, capacity, service, allowed);
            // Rounding up to a step delays some more, and requests are whole.
            let step = capacity * STEP.as_secs_f64();
            let tolerance = step + 0.05 * outstanding;
            prop_assert!((there - allowed).abs() <= tolerance, "{} at the storage, not {}", there, allowed);
        }

        #[test]
        fn whatever_is_seen_a_delay_is_within_its_bounds(
            seen in prop::collection::vec((0..5_u32, any::<f64>(), any::<u32>(), 0.1..1e6), 1..40),
        ) {
            let mut demand = MemberDemand::default();
            for (steps, outstanding, completed, allowed) in seen {
                demand.observe(interval(INTERVAL * steps, outstanding, completed.into()));
                if let Some(delay) = demand.delay(&window(allowed), LONGEST) {
                    prop_assert!(delay <= LONGEST);
                }
            }
        }
    }
}
