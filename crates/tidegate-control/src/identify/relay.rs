//! Finding a PID's gains by a short experiment on the process itself: relay feedback (Åström and Hägglund,
//! *Automatic tuning of simple regulators*, Automatica 20, 1984), and Skogestad's rules for what it finds.
//!
//! Bjørgeengen's appendix A tunes by hand and names both. The experiment is bounded in its delays (up to a
//! greatest one) and in time. Its caller releases all consumers after it.

use std::f64::consts::PI;
use std::time::Duration;

use thiserror::Error;
use tidegate_units::Latency;

/// A delay is tried that is longer by this factor than one that was not enough.
const LONGER: f64 = 1.5;

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelayConfig {
    /// Around what the relay switches, as far as delays get there: what the PID is to steer to.
    pub set_point: Latency,
    /// Delays are multiples of this.
    pub step: Latency,
    /// No longer delay is tried.
    pub greatest: Latency,
    /// The relay switches at this part of the set point above and below it, so that noise does not switch it.
    /// Default 0.1.
    pub hysteresis: f64,
    /// Time for which one delay stays in force; the second half of it counts. Default 4 s.
    pub dwell: Duration,
    /// Number of oscillations to measure, after a first one that does not count. Default 6.
    pub cycles: u32,
    /// The whole experiment takes no longer. Default 1 min.
    pub limit: Duration,
    /// It ends when nothing is known for so long. Default 5 s.
    pub silence: Duration,
}

impl RelayConfig {
    /// An experiment with the default bounds.
    #[must_use]
    pub const fn new(set_point: Latency, step: Latency, greatest: Latency) -> Self {
        Self {
            set_point,
            step,
            greatest,
            hysteresis: 0.1,
            dwell: Duration::from_secs(4),
            cycles: 6,
            limit: Duration::from_secs(60),
            silence: Duration::from_secs(5),
        }
    }
}

/// The identified process, and the gains for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IdentifiedProcess {
    /// The response time with no consumer throttled.
    pub at_rest: Latency,
    /// Around what the relay switched: the set point, or more where the greatest delay is only just enough
    /// for that.
    pub around: Latency,
    /// The relay's delay: on or off.
    pub delay: Latency,
    /// By how much the response time falls per delay, between none and that one.
    pub gain: f64,
    /// Period of the oscillation; mean of the cycles.
    pub period: Latency,
    /// Amplitude of the oscillation: half of the distance between its extremes; mean of the cycles.
    pub amplitude: Latency,
    /// The periods' standard deviation over their mean: above 0.3 the load changed, or is too uneven.
    pub spread: f64,
    /// First-order lag, the signal's smoothing included.
    pub time_constant: Latency,
    /// Until a changed delay shows, the sampling included.
    pub dead_time: Latency,
    /// K_p by the rules.
    pub proportional_gain: f64,
    /// T_i by the rules.
    pub integral_time: Latency,
}

/// Reason that the experiment found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum RelayError {
    /// There is nothing to regulate.
    #[error(
        "with no consumer throttled it takes {at_rest}, and the set point is {set_point}: there is nothing \
            to regulate \
            now. \
         Repeat it under the load that is to be held back, or with a lower target"
    )]
    NoNeed {
        /// The response time.
        at_rest: Latency,
        /// Set point that it was compared with.
        set_point: Latency,
    },
    /// Nothing that is allowed is enough.
    #[error(
        "with the greatest delay, {greatest}, it takes {measured}, and with none {at_rest}: too little of a \
            difference to find \
         gains for. Are those who load the storage in the set? If they are, a greater `greatest` is needed"
    )]
    OutOfReach {
        /// The longest delay that was tried.
        greatest: Latency,
        /// Response time with that delay.
        measured: Latency,
        /// The response time with no consumer throttled.
        at_rest: Latency,
    },
    /// Nothing is known.
    #[error("nothing completed for {0:?}: there must be load for the whole time")]
    Silence(Duration),
    /// It took too long.
    #[error(
        "after {limit:?} there were {cycles} oscillations of {wanted}: the load changes too much, or the \
            process is too slow; allow \
         more time"
    )]
    Limit {
        /// Greatest time allowed.
        limit: Duration,
        /// Number of oscillations measured.
        cycles: u32,
        /// Number of oscillations wanted.
        wanted: u32,
    },
}

/// Next wish of an experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RelayStep {
    /// All eligible consumers get this delay.
    Hold(Latency),
    /// It is over.
    Done(IdentifiedProcess),
}

/// An experiment that is going on.
#[derive(Debug, Clone)]
pub struct RelayExperiment {
    config: RelayConfig,
    phase: Phase,
    took: Duration,
    silent: Duration,
    at_rest: f64,
    /// The response time with the relay's delay.
    held: f64,
    /// Level that the relay switches around.
    around: f64,
    delay: Latency,
}

#[derive(Debug, Clone)]
enum Phase {
    /// One delay stays in force, to show its effect.
    Level { since: Duration, sum: f64, count: u32 },
    /// The delay is switched on and off.
    Oscillation { on: bool, now: Cycle, cycles: Vec<Cycle>, warm: bool },
}

/// One oscillation, from one switching on to the next.
#[derive(Debug, Clone, Copy)]
struct Cycle {
    time: f64,
    steps: u32,
    least: f64,
    most: f64,
}

impl Cycle {
    const NEW: Self = Self { time: 0.0, steps: 0, least: f64::INFINITY, most: 0.0 };
}

impl Phase {
    const LEVEL: Self = Self::Level { since: Duration::ZERO, sum: 0.0, count: 0 };
}

impl RelayExperiment {
    /// Begins with no consumer throttled.
    #[must_use]
    pub const fn new(config: RelayConfig) -> Self {
        Self {
            config,
            phase: Phase::LEVEL,
            took: Duration::ZERO,
            silent: Duration::ZERO,
            at_rest: 0.0,
            held: 0.0,
            around: 0.0,
            delay: Latency::ZERO,
        }
    }

    /// Takes what was measured in the interval that is over, smoothed as for the PID; `None`: nothing is
    /// known. While nothing is known nothing is changed.
    ///
    /// # Errors
    /// When the experiment cannot find anything. It is over then.
    pub fn step(&mut self, elapsed: Duration, estimate: Option<Latency>) -> Result<RelayStep, RelayError> {
        self.took = self.took.saturating_add(elapsed);
        if self.took > self.config.limit {
            // A load that never was cannot be said to change too much.
            if estimate.is_none() && self.silent.saturating_add(elapsed) >= self.took {
                return Err(RelayError::Silence(self.took));
            }
            let cycles = match &self.phase {
                Phase::Level { .. } => 0,
                Phase::Oscillation { cycles, .. } => cycles.len() as u32,
            };
            return Err(RelayError::Limit { limit: self.config.limit, cycles, wanted: self.config.cycles });
        }
        let Some(estimate) = estimate else {
            self.silent = self.silent.saturating_add(elapsed);
            if self.silent >= self.config.silence {
                return Err(RelayError::Silence(self.silent));
            }
            return Ok(RelayStep::Hold(self.in_force()));
        };
        let elapsed = elapsed.saturating_add(std::mem::take(&mut self.silent));
        let estimate = estimate.as_secs_f64();
        if matches!(self.phase, Phase::Level { .. }) {
            self.level(elapsed, estimate)?;
        } else if self.oscillate(elapsed, estimate) {
            return Ok(RelayStep::Done(self.conclude()));
        }
        Ok(RelayStep::Hold(self.in_force()))
    }

    /// Returns the number of oscillations measured so far, and the number wanted.
    #[must_use]
    pub const fn progress(&self) -> (usize, u32) {
        match &self.phase {
            Phase::Level { .. } => (0, self.config.cycles),
            Phase::Oscillation { cycles, .. } => (cycles.len(), self.config.cycles),
        }
    }

    const fn in_force(&self) -> Latency {
        match self.phase {
            Phase::Oscillation { on: false, .. } => Latency::ZERO,
            _ => self.delay,
        }
    }

    fn level(&mut self, elapsed: Duration, estimate: f64) -> Result<(), RelayError> {
        let Phase::Level { since, sum, count } = &mut self.phase else { return Ok(()) };
        *since += elapsed;
        if *since > self.config.dwell / 2 {
            *sum += estimate;
            *count += 1;
        }
        if *since < self.config.dwell || *count == 0 {
            return Ok(());
        }
        let mean = *sum / f64::from(*count);
        let set_point = self.config.set_point.as_secs_f64();
        // What is to be crossed has to be well within what is reached.
        let (below, above) = (1.0 - 2.0 * self.config.hysteresis, 1.0 + 2.0 * self.config.hysteresis);
        if self.delay == Latency::ZERO {
            self.at_rest = mean;
            if mean <= set_point * above {
                let at_rest = Latency::from_secs_f64(mean);
                return Err(RelayError::NoNeed { at_rest, set_point: self.config.set_point });
            }
            // Clients that send one request after the other give back at most what they are made to wait.
            self.delay = self.rounded(mean - set_point);
        } else if mean < set_point * below || self.delay >= self.config.greatest {
            self.held = mean;
            self.around = set_point.max(mean / below);
            if self.around * above > self.at_rest {
                return Err(RelayError::OutOfReach {
                    greatest: self.delay,
                    measured: Latency::from_secs_f64(mean),
                    at_rest: Latency::from_secs_f64(self.at_rest),
                });
            }
            self.phase = Phase::Oscillation { on: false, now: Cycle::NEW, cycles: Vec::new(), warm: false };
            return Ok(());
        } else {
            self.delay = self.rounded(self.delay.as_secs_f64() * LONGER);
        }
        self.phase = Phase::LEVEL;
        Ok(())
    }

    /// Up to a multiple of the step, and to the greatest.
    fn rounded(&self, seconds: f64) -> Latency {
        let step = self.config.step.as_secs_f64();
        Latency::from_secs_f64((seconds / step).ceil().max(1.0) * step).min(self.config.greatest)
    }

    /// Returns true once there were enough oscillations.
    fn oscillate(&mut self, elapsed: Duration, estimate: f64) -> bool {
        let Phase::Oscillation { on, now, cycles, warm } = &mut self.phase else { return false };
        now.time += elapsed.as_secs_f64();
        now.steps += 1;
        now.least = now.least.min(estimate);
        now.most = now.most.max(estimate);
        if *on && estimate < self.around * (1.0 - self.config.hysteresis) {
            *on = false;
        } else if !*on && estimate > self.around * (1.0 + self.config.hysteresis) {
            *on = true;
            let cycle = std::mem::replace(now, Cycle::NEW);
            // The first begins somewhere.
            if std::mem::replace(warm, true) {
                cycles.push(cycle);
            }
        }
        cycles.len() as u32 >= self.config.cycles
    }

    fn conclude(&self) -> IdentifiedProcess {
        let Phase::Oscillation { cycles, .. } = &self.phase else { unreachable!("it oscillated") };
        let mean = |of: fn(&Cycle) -> f64| cycles.iter().map(of).sum::<f64>() / cycles.len() as f64;
        let period = mean(|cycle| cycle.time);
        let amplitude = mean(|cycle| (cycle.most - cycle.least) / 2.0);
        let variance =
            cycles.iter().map(|cycle| (cycle.time - period).powi(2)).sum::<f64>() / cycles.len() as f64;
        let delay = self.delay.as_secs_f64();
        let gain = (self.at_rest - self.held) / delay;
        let process = process(&Oscillation {
            gain,
            delay,
            period,
            amplitude,
            hysteresis: self.config.hysteresis * self.around,
            interval: mean(|cycle| cycle.time / f64::from(cycle.steps)),
        });
        let (proportional_gain, integral_time) = process.simc();
        IdentifiedProcess {
            at_rest: Latency::from_secs_f64(self.at_rest),
            around: Latency::from_secs_f64(self.around),
            delay: self.delay,
            gain,
            period: Latency::from_secs_f64(period),
            amplitude: Latency::from_secs_f64(amplitude),
            spread: variance.sqrt() / period,
            time_constant: Latency::from_secs_f64(process.time_constant),
            dead_time: Latency::from_secs_f64(process.dead_time),
            proportional_gain,
            integral_time: Latency::from_secs_f64(integral_time),
        }
    }
}

struct Oscillation {
    gain: f64,
    delay: f64,
    period: f64,
    amplitude: f64,
    hysteresis: f64,
    interval: f64,
}

/// First order with dead time. In seconds.
struct DelayedProcess {
    gain: f64,
    time_constant: f64,
    dead_time: f64,
}

/// Returns the process that oscillates like this under a relay, by the relay's describing function. With
/// relay amplitude d and hysteresis ε, the process has at the oscillation's frequency the gain πa/4d and the
/// phase −π + arcsin(ε/a).
fn process(oscillation: &Oscillation) -> DelayedProcess {
    let Oscillation { gain, delay, period, amplitude, hysteresis, interval } = *oscillation;
    let frequency = 2.0 * PI / period;
    // A gain at that frequency above the static one is noise: then there is no lag to be seen.
    let ratio = gain * 4.0 * (delay / 2.0) / (PI * amplitude);
    let lag = (ratio * ratio - 1.0).max(0.0).sqrt();
    let phase = PI - (hysteresis / amplitude).min(1.0).asin() - lag.atan();
    // What is decided once in an interval cannot show earlier, whatever few samples of a short period seem to
    // say.
    DelayedProcess { gain, time_constant: lag / frequency, dead_time: (phase / frequency).max(interval) }
}

impl DelayedProcess {
    /// K_p and T_i by the improved SIMC rule with τ_c = θ (Skogestad and Grimholt, *The SIMC method for
    /// smooth PID controller design*, 2012, §5.6): the lag counts for a third of the dead time more, so that
    /// a process without a lag gets a controller too.
    fn simc(&self) -> (f64, f64) {
        let lag = self.time_constant + self.dead_time / 3.0;
        let closed = 2.0 * self.dead_time;
        (lag / (self.gain * closed), lag.min(4.0 * closed))
    }
}

#[cfg(test)]
mod tests;
