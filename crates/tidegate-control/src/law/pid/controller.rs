//! The single-sided PID of Bjørgeengen and Haugerud (LISA 2010), appendix A, equation 2.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

use crate::document::output::OutputBound;
use crate::law::pid::config::{PidConfig, PidConfigError, PidVariant};

/// The derivative time counts as at most this many intervals: the usual limit of derivative gain (Åström and
/// Hägglund, *PID Controllers*: 8 to 20), so that two steps close together do not turn noise into the
/// greatest delay.
const GREATEST_DERIVATIVE_GAIN: f64 = 10.0;

/// Result of one step of the PID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidStep {
    /// Eq. 2 without bounds and levels; nothing when negative.
    pub raw: Latency,
    /// The delay now.
    pub delay: Latency,
    /// The bound that made the difference; rounding up to a level is none.
    pub bound: Option<OutputBound>,
}

/// The single-sided PID. State: the integral, the previous error, the delay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pid {
    config: PidConfig,
    /// In seconds, within [0, greatest]: this is the anti-windup. Equation 2 as printed has none.
    integral: f64,
    /// In seconds.
    last_error: Option<f64>,
    delay: Latency,
}

impl Pid {
    /// Begins without delay.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn new(config: PidConfig) -> Result<Self, PidConfigError> {
        config.validate()?;
        Ok(Self { config, integral: 0.0, last_error: None, delay: Latency::ZERO })
    }

    /// The delay now.
    #[must_use]
    pub const fn delay(&self) -> Latency {
        self.delay
    }

    /// Its parameters.
    #[must_use]
    pub const fn config(&self) -> &PidConfig {
        &self.config
    }

    /// Changes the parameters and keeps the delay as far as the new bounds allow: the integral takes up what
    /// the other terms no longer give.
    ///
    /// # Errors
    /// When the configuration is not valid; nothing is changed then.
    pub fn reconfigure(&mut self, config: PidConfig) -> Result<(), PidConfigError> {
        config.validate()?;
        let before = self.config.proportional_gain * self.last_error.unwrap_or(0.0);
        let after = config.proportional_gain * self.last_error.unwrap_or(0.0);
        self.config = config;
        self.integral = (self.integral + before - after).clamp(0.0, config.greatest.as_secs_f64());
        self.delay = self.delay.min(config.greatest);
        Ok(())
    }

    /// One step of eq. 2, `u = K_p·e + (u_i + K_p·T/T_i·e) + K_p·T_d/T·(e − e')` with e = estimate − set
    /// point, clamped and rounded up to a level.
    ///
    /// `greatest` is the longest delay that is of any use now ([`PidConfig::greatest_for`] the consumer that
    /// bears most); the integral stops there, because beyond it would only wind up. When no time has passed
    /// nothing changes.
    ///
    /// A changed delay shows its whole effect only after the delayed requests have gone round, after about
    /// the delay itself. So the integral time is never shorter than the delay in force: for a process with
    /// gain −1 and dead time θ, K_p/T_i ≤ 1/(2θ) is Skogestad's rule (SIMC, J. Process Control 13, 2003).
    pub fn step(
        &mut self,
        estimate: Latency,
        set_point: Latency,
        elapsed: Duration,
        greatest: Latency,
    ) -> PidStep {
        let greatest = greatest.min(self.config.greatest);
        let time = elapsed.as_secs_f64();
        if elapsed.is_zero() {
            return PidStep { raw: self.delay, delay: self.delay, bound: None };
        }
        let error = estimate.as_secs_f64() - set_point.as_secs_f64();
        let gain = self.config.proportional_gain;
        let printed = self.config.variant == PidVariant::Equation2;
        let [integral_time, derivative_time] =
            [self.config.integral_time, self.config.derivative_time].map(|time| time.as_secs_f64());
        let least_time = if printed { 0.0 } else { self.delay.as_secs_f64() };
        let integral = self.integral + gain * time / integral_time.max(least_time) * error;
        self.integral = if printed { integral } else { integral.clamp(0.0, greatest.as_secs_f64()) };
        let change = error - self.last_error.unwrap_or(error);
        let greatest_derivative = if printed { f64::INFINITY } else { GREATEST_DERIVATIVE_GAIN };
        let derivative = (derivative_time / time).min(greatest_derivative);
        self.last_error = Some(error);

        let unbounded = gain * error + integral + gain * derivative * change;
        let bounded = gain * error + self.integral + gain * derivative * change;
        let silent = self.config.variant != PidVariant::Clamped && error < 0.0;
        let wanted = Latency::from_secs_f64(if silent { 0.0 } else { bounded });
        self.delay = self.round_up(wanted).min(greatest);

        let bound = if silent || unbounded < 0.0 {
            Some(OutputBound::Least)
        } else if Latency::from_secs_f64(unbounded) <= greatest {
            None
        } else if greatest < self.config.greatest {
            Some(OutputBound::FloorRate)
        } else {
            Some(OutputBound::Greatest)
        };
        PidStep { raw: Latency::from_secs_f64(unbounded), delay: self.delay, bound }
    }

    /// Releases by degrees: keeps `remaining` of the delay, and nothing once that is less than a level.
    pub fn relax(&mut self, remaining: f64) -> Latency {
        let remaining = if remaining.is_nan() { 1.0 } else { remaining.clamp(0.0, 1.0) };
        if self.last_error.take().is_some() {
            // What decays is the delay in force, the proportional part of an old error included.
            self.integral = self.delay.as_secs_f64();
        }
        self.integral *= remaining;
        if self.integral < self.config.step.as_secs_f64() {
            self.integral = 0.0;
        }
        self.delay = self.round_up(Latency::from_secs_f64(self.integral)).min(self.delay);
        self.delay
    }

    fn round_up(&self, delay: Latency) -> Latency {
        let step = self.config.step.as_nanos();
        Latency::from_nanos(delay.as_nanos().div_ceil(step).saturating_mul(step))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::mean_outstanding::MeanOutstanding;
    use crate::estimate::ewma::Ewma;
    use tidegate_units::Iops;

    const SET_POINT: Latency = Latency::from_millis(12);
    const INTERVAL: Duration = Duration::from_millis(250);
    const SMOOTHING: Duration = Duration::from_millis(200);

    const fn ms(millis: u64) -> Latency {
        Latency::from_millis(millis)
    }

    fn pid(config: PidConfig) -> Pid {
        Pid::new(config).unwrap()
    }

    /// A saturated FIFO server: R = N·q/C − d, at least the time of one request.
    fn saturated(full: f64) -> impl Fn(f64) -> f64 {
        move |delay| (full - delay).max(0.003)
    }

    /// A closed network of one exponential server and a delay, by exact mean value analysis: the smooth knee.
    fn closed_network(requests: u32, service: f64) -> impl Fn(f64) -> f64 {
        move |delay| {
            let (mut queue, mut response) = (0.0, 0.0);
            for n in 1..=requests {
                response = service * (1.0 + queue);
                queue = response * f64::from(n) / (response + delay);
            }
            response
        }
    }

    /// Runs the law on a process that answers `dead` intervals late. Gives (response, delay) per interval, in
    /// seconds.
    fn run(
        pid: &mut Pid,
        process: impl Fn(f64) -> f64,
        interval: Duration,
        dead: usize,
        steps: usize,
    ) -> Vec<(f64, f64)> {
        let mut ewma = Ewma::default();
        let mut delays = vec![pid.delay().as_secs_f64(); dead + 1];
        let mut trace = Vec::new();
        for _ in 0..steps {
            let response = process(delays[delays.len() - 1 - dead]);
            let estimate = ewma.update_elapsed(Latency::from_secs_f64(response), interval, SMOOTHING);
            let step = pid.step(estimate, SET_POINT, interval, Latency::MAX);
            delays.push(step.delay.as_secs_f64());
            trace.push((response, step.delay.as_secs_f64()));
        }
        trace
    }

    /// After how many seconds the mean of every further second is within 20 % of the set point, or below it.
    fn settled(trace: &[(f64, f64)]) -> usize {
        let limit = SET_POINT.as_secs_f64() * 1.2;
        let mean = |second: &[(f64, f64)]| second.iter().map(|(response, _)| response).sum::<f64>() / 4.0;
        trace.chunks(4).rposition(|second| mean(second) > limit).map_or(0, |last| last + 1)
    }

    #[test]
    fn one_step_is_equation_2_rounded_up_to_a_level() {
        let mut pid = pid(PidConfig { derivative_time: Duration::from_millis(50), ..PidConfig::default() });
        // e = 10 ms: 5 + 0.5·250/200·10 = 11.25, no change of error yet, and up to a half.
        let first = pid.step(ms(22), SET_POINT, INTERVAL, Latency::MAX);
        assert_eq!(
            first,
            PidStep { raw: Latency::from_micros(11_250), delay: Latency::from_micros(11_500), bound: None }
        );
        // e = 4 ms, e − e' = −6: 2 + (6.25 + 2.5) − 0.5·0.2·6 = 10.15.
        let second = pid.step(ms(16), SET_POINT, INTERVAL, Latency::MAX);
        assert_eq!(second.raw, Latency::from_micros(10_150));
        assert_eq!(second.delay, Latency::from_micros(10_500));
    }

    /// Worked out by hand: K_p = 0.5, T/T_i = 1.25, greatest 20 ms.
    #[test]
    fn equation_2_as_printed_neither_bounds_its_integral_nor_lengthens_its_time() {
        let printed = PidConfig { variant: PidVariant::Equation2, greatest: ms(20), ..PidConfig::default() };
        let mut pid = pid(printed);
        // Five intervals 8 ms below: the integral falls by 5 ms in each, and nothing is delayed.
        for _ in 0..5 {
            let step = pid.step(ms(4), SET_POINT, INTERVAL, Latency::MAX);
            assert_eq!((step.delay, step.bound), (Latency::ZERO, Some(OutputBound::Least)));
        }
        // 32 ms above: 16 + (−25 + 20) = 11. Then 16 + (−5 + 20), of which 20 are carried out.
        assert_eq!(pid.step(ms(44), SET_POINT, INTERVAL, Latency::MAX).delay, ms(11));
        let capped = pid.step(ms(44), SET_POINT, INTERVAL, Latency::MAX);
        assert_eq!((capped.raw, capped.delay), (ms(31), ms(20)));
        // At the set point all that is left is the integral, 15 ms; a bounded one began at nothing.
        assert_eq!(pid.step(SET_POINT, SET_POINT, INTERVAL, Latency::MAX).delay, ms(15));
    }

    #[test]
    fn below_the_set_point_it_winds_down_and_literally_lets_go_at_once() {
        let mut clamped = pid(PidConfig::default());
        let mut literal = pid(PidConfig { variant: PidVariant::Literal, ..PidConfig::default() });
        for pid in [&mut clamped, &mut literal] {
            pid.step(ms(60), SET_POINT, INTERVAL, Latency::MAX);
        }
        assert_eq!(clamped, Pid { config: *clamped.config(), ..literal });
        let wound = clamped.step(ms(11), SET_POINT, INTERVAL, Latency::MAX);
        assert!(wound.delay > ms(25), "{wound:?}");
        let let_go = literal.step(ms(11), SET_POINT, INTERVAL, Latency::MAX);
        assert_eq!((let_go.delay, let_go.bound), (Latency::ZERO, Some(OutputBound::Least)));
        // The integral is still there: the next error is answered at once.
        assert!(literal.step(ms(13), SET_POINT, INTERVAL, Latency::MAX).delay > ms(25));
    }

    #[test]
    fn settles_within_two_seconds_on_a_smooth_knee() {
        // Twelve writers of depth 4 on 400 IO/s.
        let trace = run(&mut pid(PidConfig::default()), closed_network(48, 0.0025), INTERVAL, 0, 400);
        assert!(settled(&trace) <= 2, "{:?}", &trace[..20]);
        let (response, _) = trace[399];
        assert!((response / 0.012 - 1.0).abs() < 0.02, "{response}");
    }

    #[test]
    fn an_hour_at_the_bound_does_not_make_the_release_longer() {
        let release = |steps| {
            let mut pid = pid(PidConfig { greatest: ms(20), ..PidConfig::default() });
            run(&mut pid, |_| 10.0, INTERVAL, 0, steps);
            assert_eq!(pid.delay(), ms(20));
            let trace = run(&mut pid, |_| 0.002, INTERVAL, 0, 400);
            trace.iter().position(|(_, delay)| *delay <= 0.0).unwrap()
        };
        assert_eq!(release(14_400), release(4));
        // 20 ms, less what the proportional part takes off (5 ms), at 6.25 ms per interval.
        assert!(release(4) <= 3, "{}", release(4));
    }

    #[test]
    fn a_floor_rate_bounds_the_delay_by_littles_law() {
        let config = PidConfig::default();
        assert_eq!(config.greatest_for(MeanOutstanding::new(0.5)), ms(250));
        assert_eq!(config.greatest_for(MeanOutstanding::new(f64::INFINITY)), ms(1_000));
        assert_eq!(config.greatest_for(MeanOutstanding::new(f64::NAN)), Latency::ZERO);
        let mut pid = pid(config);
        let floor = pid.step(ms(9_000), SET_POINT, INTERVAL, config.greatest_for(MeanOutstanding::new(0.5)));
        assert_eq!((floor.delay, floor.bound), (ms(250), Some(OutputBound::FloorRate)));
        let greatest = pid.step(ms(9_000), SET_POINT, INTERVAL, Latency::MAX);
        assert_eq!((greatest.delay, greatest.bound), (ms(1_000), Some(OutputBound::Greatest)));
    }

    #[test]
    fn relaxing_ends_at_nothing() {
        let mut pid = pid(PidConfig::default());
        pid.step(ms(200), SET_POINT, INTERVAL, Latency::MAX);
        let before = pid.delay();
        assert_eq!(pid.relax(f64::NAN), before);
        // 94 + 117.5 ms; half of it, up to a level.
        assert_eq!((before, pid.relax(0.5)), (Latency::from_micros(211_500), ms(106)));
        let steps = (0..).take_while(|_| pid.relax(0.917) > Latency::ZERO).count();
        // 106 ms to 0.5 ms at 0.917 per step: ln(0.0047)/ln(0.917).
        assert!((55..70).contains(&steps), "{steps}");
    }

    #[test]
    fn new_gains_do_not_jump() {
        let mut pid = pid(PidConfig::default());
        pid.step(ms(60), SET_POINT, INTERVAL, Latency::MAX);
        let before = pid.delay();
        pid.reconfigure(PidConfig { proportional_gain: 0.1, ..PidConfig::default() }).unwrap();
        assert_eq!(pid.delay(), before);
        let after = pid.step(ms(60), SET_POINT, Duration::from_nanos(1), Latency::MAX).delay;
        assert!((after.as_millis_f64() - before.as_millis_f64()).abs() <= 0.5, "{before} {after}");
        pid.reconfigure(PidConfig { greatest: ms(20), ..PidConfig::default() }).unwrap();
        assert_eq!(pid.delay(), ms(20));
    }

    #[test]
    fn two_steps_close_together_do_not_make_noise_the_greatest_delay() {
        let mut pid = pid(PidConfig { derivative_time: INTERVAL, ..PidConfig::default() });
        pid.step(ms(12), SET_POINT, INTERVAL, Latency::MAX);
        let step = pid.step(ms(14), SET_POINT, Duration::from_nanos(1), Latency::MAX);
        assert!(step.delay < ms(20), "{step:?}");
    }

    #[test]
    fn what_is_not_a_configuration_is_refused() {
        let refused = |change: fn(&mut PidConfig)| {
            let mut config = PidConfig::default();
            change(&mut config);
            Pid::new(config).unwrap_err()
        };
        assert!(matches!(refused(|c| c.proportional_gain = f64::NAN), PidConfigError::ProportionalGain(_)));
        assert!(matches!(refused(|c| c.proportional_gain = 0.0), PidConfigError::ProportionalGain(_)));
        assert_eq!(refused(|c| c.integral_time = Duration::ZERO), PidConfigError::IntegralTime);
        assert!(matches!(refused(|c| c.step = Latency::ZERO), PidConfigError::Levels { .. }));
        assert!(matches!(refused(|c| c.greatest = Latency::from_micros(499)), PidConfigError::Levels { .. }));
        assert_eq!(refused(|c| c.floor = Iops::ZERO), PidConfigError::Floor);
    }

    proptest! {
        #[test]
        fn always_within_its_bounds(
            literal: bool,
            inputs in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 1..40),
        ) {
            let variant = if literal { PidVariant::Literal } else { PidVariant::Clamped };
            let derivative_time = Duration::from_millis(30);
            let mut pid = pid(PidConfig { variant, derivative_time, ..PidConfig::default() });
            for (estimate, set_point, elapsed, greatest) in inputs {
                let greatest = Latency::from_nanos(greatest);
                let (estimate, set_point) = (Latency::from_nanos(estimate), Latency::from_nanos(set_point));
                let before = pid.delay();
                let step = pid.step(estimate, set_point, Duration::from_nanos(elapsed), greatest);
                prop_assert!(step.delay <= ms(1_000));
                let bound = if elapsed > 0 { greatest } else { before };
                prop_assert!(step.delay <= bound);
                let level = step.delay.as_nanos().is_multiple_of(500_000);
                prop_assert!(level || step.delay == greatest);
                prop_assert!((0.0..=1.0).contains(&pid.integral));
            }
        }

        #[test]
        fn a_longer_response_time_never_gives_a_shorter_delay(
            before in 1u64..300, millis in 0u64..300, more in 0u64..300, literal: bool
        ) {
            let variant = if literal { PidVariant::Literal } else { PidVariant::Clamped };
            let mut short = pid(PidConfig { variant, ..PidConfig::default() });
            short.step(ms(before), SET_POINT, INTERVAL, Latency::MAX);
            let mut long = short;
            let short = short.step(ms(millis), SET_POINT, INTERVAL, Latency::MAX);
            let long = long.step(ms(millis + more), SET_POINT, INTERVAL, Latency::MAX);
            prop_assert!(long.delay >= short.delay);
        }

        /// The stability region that the default gains must cover: process gain −1, saturations of any depth
        /// below the greatest delay, the local and the paper's interval, one interval of dead time or none.
        #[test]
        fn is_stable_on_a_saturated_resource(
            full in 0.02..0.9, millis in prop::sample::select(vec![100u64, 250]), dead in 0usize..2
        ) {
            let interval = Duration::from_millis(millis);
            let trace = run(&mut pid(PidConfig::default()), saturated(full), interval, dead, 600);
            for (response, _) in &trace[500..] {
                // Rounding up to a level is worth half a millisecond.
                prop_assert!((response - 0.012).abs() < 0.0015, "{response} {:?}", &trace[590..]);
            }
        }

        #[test]
        fn is_stable_on_a_smooth_knee(requests in 12u32..200, iops in 200.0..2_000.0, dead in 0usize..2) {
            let process = closed_network(requests, 1.0 / iops);
            let trace = run(&mut pid(PidConfig::default()), process, INTERVAL, dead, 800);
            let (response, delay) = trace[799];
            // Kept, or not needed, or out of reach.
            prop_assert!(
                (response / 0.012 - 1.0).abs() < 0.1 || (response < 0.012 && delay < 0.001) || delay >= 1.0,
                "{response} {delay}"
            );
        }

        /// The saturation is as deep as the greatest delay can answer, and felt only after the delay itself.
        #[test]
        fn is_stable_when_held_requests_answer_late(full in 0.1..0.9) {
            let mut pid = pid(PidConfig::default());
            let mut delays: Vec<f64> = vec![0.0];
            let mut ewma = Ewma::default();
            let mut responses = Vec::new();
            for _ in 0..2_000 {
                // The delay that was in force one delay ago, between two intervals if need be.
                let late = delays[delays.len() - 1] / INTERVAL.as_secs_f64();
                let at = |intervals: usize| delays[delays.len().saturating_sub(1 + intervals)];
                let (whole, part) = (late.floor() as usize, late.fract());
                let felt = at(whole) * (1.0 - part) + at(whole + 1) * part;
                let response = saturated(full)(felt);
                let estimate = ewma.update_elapsed(Latency::from_secs_f64(response), INTERVAL, SMOOTHING);
                delays.push(pid.step(estimate, SET_POINT, INTERVAL, Latency::MAX).delay.as_secs_f64());
                responses.push(response);
            }
            for response in &responses[1_900..] {
                prop_assert!((response - 0.012).abs() < 0.0015, "{response}");
            }
        }
    }
}
