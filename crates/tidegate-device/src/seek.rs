//! The time that the arm takes to move.
//!
//! The two-regime curve of C. Ruemmler and J. Wilkes, "An introduction to disk drive modeling", IEEE Computer
//! 27(3), 1994: over short distances the arm accelerates all the way and the time grows with the square root
//! of the distance; over long ones it coasts, and the time grows linearly. Their curves are fitted to
//! measured points; data sheets give three numbers (track to track, average, full stroke), and those
//! determine the same curve once it is said where the regimes meet.

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

use crate::config_error::{DeviceConfigError, require};

/// A seek curve given by the numbers of data sheets. Each time includes settling for a read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SeekConfig {
    /// Seek time to the next cylinder.
    #[serde(with = "tidegate_units::text")]
    pub track_to_track: Latency,
    /// The mean over all pairs of different cylinders.
    #[serde(with = "tidegate_units::text")]
    pub average: Latency,
    /// Seek time from the first cylinder to the last.
    #[serde(with = "tidegate_units::text")]
    pub full_stroke: Latency,
    /// Distance at which the square root ends and the line begins, as a fraction of the full stroke, between
    /// 0 and 1. The disks of Ruemmler and Wilkes have it at 0.2 (HP 97560) and 0.42 (HP C2200A).
    pub knee: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct SeekCurve {
    /// All in nanoseconds and cylinders.
    track_to_track: f64,
    full_stroke: f64,
    at_knee: f64,
    knee: f64,
    last: f64,
}

impl SeekCurve {
    /// `cylinders` is at least 16.
    pub(crate) fn new(config: &SeekConfig, cylinders: u32) -> Result<Self, DeviceConfigError> {
        require(config.knee > 0.0 && config.knee < 1.0, "seek.knee", "between 0 and 1")?;
        let last = f64::from(cylinders - 1);
        let mut curve = Self {
            track_to_track: config.track_to_track.as_nanos() as f64,
            full_stroke: config.full_stroke.as_nanos() as f64,
            at_knee: 0.0,
            knee: (last * config.knee).round().clamp(2.0, last - 1.0),
            last,
        };
        // The mean seek time is linear in the time at the knee, so two means determine the time that gives
        // the mean asked for.
        let mean_at_zero = curve.mean(cylinders);
        curve.at_knee = curve.full_stroke;
        let mean_at_full = curve.mean(cylinders);
        curve.at_knee = curve.full_stroke * (config.average.as_nanos() as f64 - mean_at_zero)
            / (mean_at_full - mean_at_zero);
        let monotone = curve.at_knee >= curve.track_to_track && curve.at_knee <= curve.full_stroke;
        require(monotone, "seek.average", "between the times of a curve that never falls")?;
        Ok(curve)
    }

    /// The time to move by so many cylinders.
    pub(crate) fn time(&self, distance: u32) -> Latency {
        if distance == 0 { Latency::ZERO } else { Latency::from_nanos(self.nanos(distance).round() as u64) }
    }

    fn nanos(&self, distance: u32) -> f64 {
        let distance = f64::from(distance);
        if distance <= self.knee {
            let part = ((distance - 1.0) / (self.knee - 1.0)).sqrt();
            self.track_to_track + (self.at_knee - self.track_to_track) * part
        } else {
            let part = (distance - self.knee) / (self.last - self.knee);
            self.at_knee + (self.full_stroke - self.at_knee) * part
        }
    }

    /// Over all pairs of different cylinders: of n cylinders, 2·(n − d) ordered pairs lie d apart.
    fn mean(&self, cylinders: u32) -> f64 {
        let n = f64::from(cylinders);
        let sum: f64 = (1..cylinders).map(|d| 2.0 * (n - f64::from(d)) * self.nanos(d)).sum();
        sum / (n * (n - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SeekConfig {
        SeekConfig {
            track_to_track: Latency::from_micros(800),
            average: Latency::from_micros(8_500),
            full_stroke: Latency::from_millis(18),
            knee: 0.2,
        }
    }

    #[test]
    fn the_three_numbers_of_the_data_sheet_come_out() {
        let curve = SeekCurve::new(&config(), 5_000).unwrap();
        assert_eq!(curve.time(0), Latency::ZERO);
        assert_eq!(curve.time(1), Latency::from_micros(800));
        assert_eq!(curve.time(4_999), Latency::from_millis(18));
        assert!((curve.mean(5_000) / 8.5e6 - 1.0).abs() < 1e-9, "{}", curve.mean(5_000));
    }

    #[test]
    fn it_never_falls_and_is_continuous_at_the_knee() {
        let curve = SeekCurve::new(&config(), 5_000).unwrap();
        let times: Vec<_> = (0..5_000).map(|d| curve.time(d)).collect();
        assert!(times.is_sorted());
        let (before, after) = (times[1_000], times[1_001]);
        assert!(after.saturating_sub(before) < Latency::from_micros(10), "{before} to {after}");
    }

    #[test]
    fn numbers_that_no_curve_has_are_refused() {
        let refused = |config: SeekConfig| SeekCurve::new(&config, 5_000).unwrap_err().parameter;
        assert_eq!(refused(SeekConfig { average: Latency::from_millis(20), ..config() }), "seek.average");
        assert_eq!(refused(SeekConfig { average: Latency::from_millis(1), ..config() }), "seek.average");
        assert_eq!(refused(SeekConfig { knee: f64::NAN, ..config() }), "seek.knee");
        assert_eq!(refused(SeekConfig { knee: 1.0, ..config() }), "seek.knee");
        let zero = Latency::ZERO;
        let still = SeekConfig { track_to_track: zero, average: zero, full_stroke: zero, knee: 0.5 };
        assert_eq!(refused(still), "seek.average");
    }
}
