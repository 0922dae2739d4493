//! Shares of requests instead of slots: beyond PARDA, whose shares divide the array's queue.
//!
//! A window is a number of slots. Take a host that keeps `w` of them full. By Little's law it completes `w/l`
//! requests per second, `l` being its own response time. A host whose data the array serves sooner gets more
//! for the same slots (PARDA §2 wants it so, because it is cheap for the array; fig. 12 shows hosts at 1.37
//! for shares of 3:2). A promise of throughput needs `w/l` in proportion to shares, thus `w` in proportion to
//! shares times `l`. So β is multiplied by `l/L`, `L` being the response time of all hosts.
//!
//! That needs no further signal, and moves nothing else: where requests are as shares say, `Σβ` is what it
//! was, and so is the response time at which the law settles (eq. 3). A host that gets more slots and gains
//! nothing by them, because something else slows it down, would take ever more: therefore the factor is
//! bounded.

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

/// The weight of the past, per interval: about ten of them. Databases write in bursts of several intervals,
/// in which response times are others than between them. Windows follow β over tens of intervals, so that
/// this delays little.
const PAST: f64 = 0.9;

/// Greatest factor in favour of a host, or against it.
const GREATEST: f64 = 2.0;

/// By what one host's β is multiplied. State: what this host and all hosts completed of late.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct ShareCompensation {
    own: Completed,
    all: Completed,
}

/// Requests, and the sum of their response times. Summed apart, so that the mean is over requests: a mean
/// over intervals would give the few requests of a slow interval the weight of the many of a quick one, and
/// Little's law is not about that.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Completed {
    count: f64,
    nanos: f64,
}

impl Completed {
    fn add(&mut self, count: u64, mean: Latency) {
        let count = count as f64;
        self.count = PAST * self.count + (1.0 - PAST) * count;
        self.nanos = PAST * self.nanos + (1.0 - PAST) * count * mean.as_nanos() as f64;
    }

    fn mean(self) -> f64 {
        (self.nanos / self.count).max(1.0)
    }
}

impl ShareCompensation {
    /// Takes an interval in which requests completed on this host: how many, and their mean response time;
    /// and the same of all hosts.
    pub(crate) fn observe(&mut self, own: (u64, Latency), all: (u64, Latency)) {
        self.own.add(own.0, own.1);
        self.all.add(all.0, all.1);
    }

    /// l/L within its bounds; 1 while one of them is not known.
    pub(crate) fn factor(&self) -> f64 {
        // Everything that decays can become too small to divide by.
        let known =
            |completed: &Completed| completed.count > f64::MIN_POSITIVE && completed.nanos.is_finite();
        if !known(&self.own) || !known(&self.all) {
            return 1.0;
        }
        (self.own.mean() / self.all.mean()).clamp(1.0 / GREATEST, GREATEST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::Window;

    use super::*;
    use crate::law::window::config::{BetaScale, WindowConfig};
    use crate::law::window::window_law::WindowLaw;

    const SET_POINT: Latency = Latency::from_millis(25);
    const CAPACITY: f64 = 3_400.0;

    struct Host {
        law: WindowLaw,
        beta: f64,
        compensation: ShareCompensation,
        iops: f64,
    }

    fn host(beta: f64) -> Host {
        let config = WindowConfig {
            beta_scale: BetaScale::PerShare,
            greatest: Window::new(1e3),
            ..WindowConfig::default()
        };
        let law = WindowLaw::new(config).unwrap();
        Host { law, beta, compensation: ShareCompensation::default(), iops: 0.0 }
    }

    /// An array that does `CAPACITY` and serves host i after `waits[i]` times what the others wait; the mean
    /// over all requests, in seconds, that it settles at.
    fn run(hosts: &mut [Host], waits: &[f64]) -> f64 {
        let mut mean = 0.0;
        for _ in 0..2_000 {
            let slots: f64 = hosts.iter().zip(waits).map(|(host, wait)| host.law.window().get() / wait).sum();
            let unit = slots / CAPACITY;
            for (host, wait) in hosts.iter_mut().zip(waits) {
                host.iops = host.law.window().get() / (unit * wait);
            }
            mean = hosts.iter().map(|host| host.law.window().get()).sum::<f64>() / CAPACITY;
            let all = Latency::from_secs_f64(mean);
            for (host, wait) in hosts.iter_mut().zip(waits) {
                let own = (host.iops as u64, Latency::from_secs_f64(unit * wait));
                host.compensation.observe(own, (CAPACITY as u64, all));
                let beta = host.beta * host.compensation.factor();
                host.law.step(all, SET_POINT, beta, 1.0);
            }
        }
        mean
    }

    proptest! {
        #[test]
        fn requests_come_to_be_as_shares_say_whomever_the_array_favours(
            all in prop::collection::vec((0.5..4.0, 0.75..1.3), 2..8)
        ) {
            let (betas, waits): (Vec<f64>, Vec<f64>) = all.into_iter().unzip();
            let mut hosts: Vec<Host> = betas.iter().map(|&beta| host(beta)).collect();
            let mean = run(&mut hosts, &waits);
            let sum: f64 = betas.iter().sum();
            for host in &hosts {
                let fair = CAPACITY * host.beta / sum;
                prop_assert!((host.iops / fair - 1.0).abs() < 0.01, "{} for {}", host.iops, fair);
            }
            // Where eq. 3 has it without any favour.
            let expected = SET_POINT.as_secs_f64() + sum / CAPACITY;
            prop_assert!((mean / expected - 1.0).abs() < 0.01, "{mean} for {expected}");
        }

        #[test]
        fn the_factor_is_bounded_whatever_is_measured(
            samples in prop::collection::vec(((any::<u64>(), any::<u64>()), (any::<u64>(), any::<u64>())),
                0..20)
        ) {
            let mut compensation = ShareCompensation::default();
            for (own, all) in samples {
                let of = |(count, nanos)| (count, Latency::from_nanos(nanos));
                compensation.observe(of(own), of(all));
                prop_assert!((0.5..=2.0).contains(&compensation.factor()));
            }
        }
    }

    #[test]
    fn the_mean_is_over_requests_and_not_over_intervals() {
        let mut bursts = ShareCompensation::default();
        for interval in 0..200 {
            // Nine of ten requests take a millisecond, and come in every second interval.
            let own = if interval % 2 == 0 { (90, 1) } else { (10, 91) };
            bursts.observe((own.0, Latency::from_millis(own.1)), (1_000, Latency::from_millis(10)));
        }
        assert!((bursts.factor() - 1.0).abs() < 0.1, "{}", bursts.factor());
    }

    #[test]
    fn whom_more_slots_do_not_help_takes_no_more_than_twice_its_share() {
        // Each of the hosts has the array's whole capacity in mind, and the first a link that lets 100 of
        // them through.
        let mut slow = host(1.0);
        for _ in 0..400 {
            let own = Latency::from_secs_f64(slow.law.window().get() / 100.0);
            slow.compensation.observe((100, own), (1_000, SET_POINT));
            let beta = slow.beta * slow.compensation.factor();
            slow.law.step(SET_POINT.scale(1.1), SET_POINT, beta, 1.0);
        }
        // w = β/(1 − 𝓛/L) with twice the β.
        assert!((slow.law.window().get() / 22.0 - 1.0).abs() < 0.01, "{}", slow.law.window());
    }
}
