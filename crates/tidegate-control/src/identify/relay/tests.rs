use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::law::pid::config::PidConfig;
use crate::law::pid::controller::Pid;

const INTERVAL: Duration = Duration::from_millis(100);
const SET_POINT: Latency = Latency::from_millis(16);

/// A first-order process with dead time, in steps of a millisecond.
struct Plant {
    at_rest: f64,
    gain: f64,
    time_constant: f64,
    pipe: VecDeque<f64>,
    output: f64,
}

impl Plant {
    fn new(gain: f64, time_constant: f64, dead_time: f64) -> Self {
        let at_rest = 0.040;
        let pipe = vec![0.0; (dead_time * 1e3) as usize + 1].into();
        Self { at_rest, gain, time_constant, pipe, output: at_rest }
    }

    fn run(&mut self, delay: Latency) -> Latency {
        for _ in 0..INTERVAL.as_millis() {
            self.pipe.push_back(delay.as_secs_f64());
            let acts = self.pipe.pop_front().unwrap();
            let target = (self.at_rest - self.gain * acts).max(0.001);
            self.output += (target - self.output) * (1e-3 / self.time_constant).min(1.0);
        }
        Latency::from_secs_f64(self.output)
    }
}

fn identify(plant: &mut Plant) -> Result<IdentifiedProcess, RelayError> {
    let mut relay = RelayExperiment::new(RelayConfig::new(
        SET_POINT,
        Latency::from_micros(500),
        Latency::from_millis(200),
    ));
    let mut delay = Latency::ZERO;
    loop {
        let estimate = plant.run(delay);
        match relay.step(INTERVAL, Some(estimate))? {
            RelayStep::Hold(next) => delay = next,
            RelayStep::Done(found) => return Ok(found),
        }
    }
}

proptest! {
    /// Over processes from nearly pure lag to nearly pure dead time, gains of a resource from its knee to
    /// saturation.
    #[test]
    fn what_is_found_regulates_what_it_was_found_on(
        gain in 0.25..1.0_f64,
        time_constant in 0.05..1.0_f64,
        dead_time in 0.0..0.6_f64,
    ) {
        let found = identify(&mut Plant::new(gain, time_constant, dead_time)).unwrap();
        // The slowest are not settled where the dwell begins to count.
        prop_assert!((found.gain / gain - 1.0).abs() < 0.25, "{found:?}");
        // A period of a few intervals differs by one of them.
        prop_assert!(found.spread < 0.1 + 0.1 / found.period.as_secs_f64(), "{found:?}");

        let mut pid = Pid::new(PidConfig {
            proportional_gain: found.proportional_gain,
            integral_time: found.integral_time.to_duration(),
            greatest: Latency::from_millis(200),
            ..PidConfig::default()
        }).unwrap();
        let mut plant = Plant::new(gain, time_constant, dead_time);
        let mut delay = Latency::ZERO;
        let settled: Vec<f64> = (0..300)
            .map(|_| {
                let estimate = plant.run(delay);
                delay = pid.step(estimate, SET_POINT, INTERVAL, Latency::from_millis(200)).delay;
                estimate.as_secs_f64()
            })
            .skip(200)
            .collect();
        // A delay is a multiple of 0.5 ms: so exact is it at best.
        let worst = settled.iter().map(|estimate| (estimate - SET_POINT.as_secs_f64()).abs())
            .fold(0.0, f64::max);
        prop_assert!(worst < 0.15 * SET_POINT.as_secs_f64(), "off by {worst}: {found:?}");
    }
}

#[test]
fn lag_and_dead_time_are_told_apart() {
    // The sampling adds its interval to the dead time. A describing function knows sines only, and delays
    // that are far longer than needed oscillate unevenly: a factor of two is what to expect of it.
    let within_two = |found: Latency, is: f64| (0.5..2.0).contains(&(found.as_secs_f64() / is));
    let slow = identify(&mut Plant::new(0.8, 1.0, 0.2)).unwrap();
    assert!(within_two(slow.time_constant, 1.0) && within_two(slow.dead_time, 0.3), "{slow:?}");
    let late = identify(&mut Plant::new(0.8, 0.05, 0.5)).unwrap();
    assert!(within_two(late.dead_time, 0.6) && late.time_constant < late.dead_time, "{late:?}");
}

#[test]
fn nothing_is_held_where_there_is_no_need() {
    let mut relay = RelayExperiment::new(RelayConfig::new(
        SET_POINT,
        Latency::from_micros(500),
        Latency::from_millis(50),
    ));
    let error = loop {
        match relay.step(INTERVAL, Some(Latency::from_millis(10))) {
            Ok(step) => assert_eq!(step, RelayStep::Hold(Latency::ZERO)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RelayError::NoNeed { .. }));
}

#[test]
fn no_delay_is_longer_than_is_allowed() {
    let greatest = Latency::from_millis(70);
    let mut relay = RelayExperiment::new(RelayConfig::new(SET_POINT, Latency::from_micros(500), greatest));
    let error = loop {
        // Whatever is done.
        match relay.step(INTERVAL, Some(Latency::from_millis(40))) {
            Ok(RelayStep::Hold(delay)) => assert!(delay <= greatest),
            Ok(RelayStep::Done(found)) => panic!("{found:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RelayError::OutOfReach { greatest: tried, .. } if tried == greatest), "{error}");
}

#[test]
fn where_the_greatest_delay_is_only_just_enough_it_oscillates_above_the_set_point() {
    // 40 ms, and 15.2 with the greatest delay: not far enough below 16 to switch there.
    let mut plant = Plant::new(0.124, 0.2, 0.1);
    let found = identify(&mut plant).unwrap();
    assert!(found.around > SET_POINT && found.around < Latency::from_millis(20), "{found:?}");
    assert!((found.gain - 0.124).abs() < 0.02, "{found:?}");
}

#[test]
fn silence_ends_it_and_changes_nothing_before() {
    let mut relay = RelayExperiment::new(RelayConfig::new(
        SET_POINT,
        Latency::from_micros(500),
        Latency::from_millis(200),
    ));
    let slow = Some(Latency::from_millis(40));
    let mut held = Latency::ZERO;
    while held == Latency::ZERO {
        let RelayStep::Hold(delay) = relay.step(INTERVAL, slow).unwrap() else { panic!("done") };
        held = delay;
    }
    for _ in 0..49 {
        assert_eq!(relay.step(INTERVAL, None), Ok(RelayStep::Hold(held)));
    }
    assert!(matches!(relay.step(INTERVAL, None), Err(RelayError::Silence(_))));
}

#[test]
fn it_ends_when_nothing_oscillates() {
    let config = RelayConfig::new(SET_POINT, Latency::from_micros(500), Latency::from_millis(200));
    let mut relay = RelayExperiment::new(config);
    let mut steps = 0_u32;
    let error = loop {
        // The load ends with the first throttling, and does not come back.
        let estimate = if steps < 40 { 40 } else { 2 };
        steps += 1;
        if let Err(error) = relay.step(INTERVAL, Some(Latency::from_millis(estimate))) {
            break error;
        }
    };
    assert_eq!(error, RelayError::Limit { limit: config.limit, cycles: 0, wanted: config.cycles });
}

#[test]
fn of_a_load_that_never_was_it_is_not_said_that_it_changes() {
    let config = RelayConfig::new(SET_POINT, Latency::from_micros(500), Latency::from_millis(200));
    let short = RelayConfig { limit: Duration::from_secs(2), ..config };
    let end = |mut known: Option<Latency>| {
        let mut relay = RelayExperiment::new(short);
        loop {
            if let Err(error) = relay.step(INTERVAL, known.take()) {
                return error;
            }
        }
    };
    assert!(matches!(end(None), RelayError::Silence(silence) if silence <= Duration::from_millis(2_100)));
    assert!(matches!(end(Some(Latency::from_millis(40))), RelayError::Limit { .. }), "there was some");
}
