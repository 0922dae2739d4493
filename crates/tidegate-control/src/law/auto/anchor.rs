//! The slow bound of the law `auto`, beside storage that answers later than it is asked.
//!
//! A cache takes a write at once and drains it seconds later. A law that believes the present latency climbs
//! until the cache is full and then falls, again and again. The anchor follows the window slowly. The window
//! stays within a range around it, and climbs beyond that range only by the integral of the error.

/// The time constants with which the anchor follows the window, downwards and upwards, in seconds.
const FOLLOWS: (f64, f64) = (3.0, 6.0);

/// The range around the anchor, as logarithms: the window is at least e^-1.4 and at most e^0.4 times as
/// large.
const RANGE: (f64, f64) = (1.4, 0.4);

/// Bounds of the gain of the integral, per second, and its recovery per second.
const GAIN: (f64, f64) = (0.1, 2.0);
const GAIN_RECOVERS: f64 = 0.3;

/// A change of sign of an error beyond this, as a logarithm, is a swing: the gain becomes smaller by this
/// factor.
const SWING: (f64, f64) = (0.4, 0.7);

/// The anchor. It begins when the first climb meets the goal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anchor {
    at: Option<f64>,
    gain: f64,
    /// The sign of the last great error.
    sign: f64,
    /// Seconds for which the latency has been far below the goal.
    below: f64,
}

impl Default for Anchor {
    fn default() -> Self {
        Self { at: None, gain: 1.0, sign: 0.0, below: 0.0 }
    }
}

impl Anchor {
    /// Follows the window after a decision. `error` is ln(goal / latency) and `deviation` its standard
    /// deviation.
    pub(super) fn follow(&mut self, window: f64, error: f64, deviation: f64, seconds: f64) {
        if error.abs() > SWING.0 && error.abs() > 2.0 * deviation {
            if self.sign * error < 0.0 {
                self.gain *= SWING.1;
            }
            self.sign = error.signum();
        } else {
            self.gain += GAIN_RECOVERS * seconds;
        }
        self.gain = self.gain.clamp(GAIN.0, GAIN.1);
        // 0.22 is ln(1 / 0.8).
        self.below = if error > 0.22 { self.below + seconds } else { 0.0 };
        let Some(at) = &mut self.at else {
            if error <= 0.0 {
                self.at = Some(window);
            }
            return;
        };
        let constant = if window < *at { FOLLOWS.0 } else { FOLLOWS.1 / (1.0 + self.below / 2.0) };
        *at += (window - *at) * (1.0 - (-seconds / constant).exp());
    }

    /// Bounds a window that a decision asks for. `now` is the window in force.
    pub(super) fn bound(&self, asked: f64, now: f64, error: f64, seconds: f64) -> f64 {
        let Some(at) = self.at else { return asked };
        let (least, most) = (at - RANGE.0, at + RANGE.1);
        if asked > most {
            let beyond = (self.gain * error.max(0.0) * seconds).min(1.5f64.ln());
            return asked.min(most.max(now + beyond));
        }
        asked.max(least)
    }

    /// Forgets the range: what was learnt was of another storage.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
