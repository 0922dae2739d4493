//! Response times scaled to one request size (PARDA §3.2: a linear model of request cost).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Latency};

/// Request size that response times are scaled to, as in PARDA.
const REFERENCE: Bytes = Bytes::from_kib(8);

/// Half-life of a sample's weight. It is long against a control interval, so that the fit rests on many
/// sizes. It is short against the hours in which an array's state or its use changes.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// The most that one sample counts: bounds the sums, and keeps one burst of one size from pushing out the
/// rest.
const GREATEST_COUNT: u64 = 10_000;

/// Sizes must vary by this share of their mean (as a standard deviation) before a slope means anything.
const LEAST_VARIATION: f64 = 0.05;

/// Response time as fixed cost plus cost per byte, fitted on line by weighted least squares with forgetting.
///
/// Fed with response times as they are, waiting included: under load waiting swells the fixed part, and the
/// correction becomes milder. It never becomes wrong in sign: with a negative fitted slope, without enough
/// variation of sizes, or without samples there is no correction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SizeModel {
    // Weighted sums; x in units of the reference size, y in seconds, so that both are near 1 and the
    // determinant keeps its digits.
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl SizeModel {
    /// Lets the samples so far fade by the time that has passed.
    pub fn forget(&mut self, elapsed: Duration) {
        let keep = (-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        for sum in [&mut self.weight, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= keep;
        }
    }

    /// Takes `count` requests of mean size `bytes` and mean response time `latency`.
    pub fn add(&mut self, bytes: Bytes, latency: Latency, count: u64) {
        let weight = count.min(GREATEST_COUNT) as f64;
        let (x, y) = (in_references(bytes), latency.as_secs_f64());
        self.weight += weight;
        self.x += weight * x;
        self.y += weight * y;
        self.xx += weight * x * x;
        self.xy += weight * x * y;
    }

    /// The fixed cost and the cost of one byte, in seconds; both ≥ 0 and not both 0. `None` while the samples
    /// do not determine them.
    #[must_use]
    pub fn fit(&self) -> Option<(f64, f64)> {
        if self.weight < 1.0 {
            return None;
        }
        let (mean_x, mean_y) = (self.x / self.weight, self.y / self.weight);
        let variance = self.xx / self.weight - mean_x * mean_x;
        if variance <= (LEAST_VARIATION * mean_x).powi(2) {
            return None;
        }
        let slope = (self.xy / self.weight - mean_x * mean_y) / variance;
        let fixed = mean_y - slope * mean_x;
        // A negative fixed cost is noise: the best line through the origin then.
        let (fixed, slope) = if fixed < 0.0 { (0.0, self.xy / self.xx) } else { (fixed, slope) };
        let valid = slope > 0.0 && slope.is_finite() && fixed.is_finite();
        valid.then(|| (fixed, slope / REFERENCE.get() as f64))
    }

    /// Returns the time that a request of 8 KiB would have taken, instead of `latency` for `bytes`. Returns
    /// `latency` itself while there is no fit.
    #[must_use]
    pub fn normalise(&self, bytes: Bytes, latency: Latency) -> Latency {
        let Some((fixed, per_byte)) = self.fit() else { return latency };
        let cost = |bytes: Bytes| fixed + per_byte * bytes.get() as f64;
        let actual = cost(bytes);
        if actual > 0.0 { latency.scale(cost(REFERENCE) / actual) } else { latency }
    }
}

fn in_references(bytes: Bytes) -> f64 {
    bytes.get() as f64 / REFERENCE.get() as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cost(fixed_ms: f64, ms_per_8k: f64, bytes: Bytes) -> Latency {
        Latency::from_millis_f64(fixed_ms + ms_per_8k * in_references(bytes))
    }

    fn fed(fixed_ms: f64, ms_per_8k: f64) -> SizeModel {
        let mut model = SizeModel::default();
        for kib in [4, 8, 64, 256] {
            let bytes = Bytes::from_kib(kib);
            model.add(bytes, cost(fixed_ms, ms_per_8k, bytes), 100);
        }
        model
    }

    #[test]
    fn a_large_request_is_scaled_to_what_8_kib_would_have_taken() {
        let model = fed(5.0, 0.1);
        let large = model.normalise(Bytes::from_kib(256), cost(5.0, 0.1, Bytes::from_kib(256)));
        assert!((large.as_millis_f64() - 5.1).abs() < 1e-3, "{large}");
    }

    #[test]
    fn one_size_alone_determines_nothing() {
        let mut model = SizeModel::default();
        for millis in 1..50 {
            model.add(Bytes::from_kib(64), Latency::from_millis(millis), 3);
        }
        assert_eq!(model.fit(), None);
        assert_eq!(model.normalise(Bytes::from_kib(64), Latency::from_millis(7)), Latency::from_millis(7));
    }

    #[test]
    fn larger_but_quicker_is_not_believed() {
        let mut model = SizeModel::default();
        model.add(Bytes::from_kib(4), Latency::from_millis(9), 10);
        model.add(Bytes::from_kib(256), Latency::from_millis(1), 10);
        assert_eq!(model.fit(), None);
    }

    #[test]
    fn a_negative_fixed_cost_becomes_a_line_through_the_origin() {
        let mut model = SizeModel::default();
        model.add(Bytes::from_kib(8), Latency::from_micros(500), 10);
        model.add(Bytes::from_kib(16), Latency::from_millis(2), 10);
        let (fixed, per_byte) = model.fit().unwrap();
        assert!(fixed.abs() < 1e-12 && per_byte > 0.0);
    }

    #[test]
    fn the_past_is_forgotten() {
        let mut model = fed(50.0, 0.0001);
        model.forget(HALF_LIFE * 40);
        for kib in [4, 256] {
            let bytes = Bytes::from_kib(kib);
            model.add(bytes, cost(1.0, 0.5, bytes), 10);
        }
        let (fixed, per_byte) = model.fit().unwrap();
        assert!((fixed - 1e-3).abs() < 1e-5, "{fixed}");
        assert!((per_byte * 8192.0 - 0.5e-3).abs() < 1e-6, "{per_byte}");
    }

    proptest! {
        #[test]
        fn finds_the_model_behind_exact_samples(fixed in 0.01..50.0, slope in 0.01..5.0) {
            let (found_fixed, found_slope) = fed(fixed, slope).fit().unwrap();
            prop_assert!((found_fixed * 1e3 / fixed - 1.0).abs() < 0.01);
            prop_assert!((found_slope * 8192e3 / slope - 1.0).abs() < 0.01);
        }

        #[test]
        fn is_harmless_whatever_comes(
            samples in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..30), bytes: u64
        ) {
            let mut model = SizeModel::default();
            for (size, nanos, count) in samples {
                model.add(Bytes::new(size), Latency::from_nanos(nanos), count);
                model.forget(Duration::from_nanos(nanos));
            }
            if let Some((fixed, per_byte)) = model.fit() {
                prop_assert!(fixed >= 0.0 && per_byte > 0.0 && (fixed + per_byte).is_finite());
            }
            // The reference size is never changed by more than rounding.
            let same = model.normalise(REFERENCE, Latency::from_millis(10)).as_millis_f64();
            prop_assert!((same - 10.0).abs() < 1e-5, "{same}");
            let _defined_for_all = model.normalise(Bytes::new(bytes), Latency::MAX);
        }
    }
}
