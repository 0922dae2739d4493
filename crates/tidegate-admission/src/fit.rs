//! Straight lines through measurements.

/// A straight line fitted to points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FittedLine {
    /// The value at x = 0.
    pub(crate) intercept: f64,
    /// The rise per unit of x.
    pub(crate) slope: f64,
    /// R²: the part of the points' variance that it explains, 0 to 1; 1 for points that do not vary.
    pub(crate) r_squared: f64,
}

impl FittedLine {
    /// The line with the least sum of squared distances in y. `None` unless there are two points with
    /// different x, and numbers can say how far they are apart.
    pub(crate) fn through(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Self> {
        let (count, x, y) = points.clone().fold((0u32, 0.0, 0.0), |(n, x, y), p| (n + 1, x + p.0, y + p.1));
        let (x, y) = (x / f64::from(count), y / f64::from(count));
        // About the means: sums of squares of the numbers themselves would cancel.
        let (xx, xy, yy) = points.fold((0.0, 0.0, 0.0), |(xx, xy, yy), point| {
            let (dx, dy) = (point.0 - x, point.1 - y);
            (xx + dx * dx, xy + dx * dy, yy + dy * dy)
        });
        if count == 0 || xx <= 0.0 || !xx.is_finite() {
            return None;
        }
        let slope = xy / xx;
        let r_squared = if yy > 0.0 { (slope * xy / yy).clamp(0.0, 1.0) } else { 1.0 };
        let intercept = y - slope * x;
        (slope.is_finite() && intercept.is_finite()).then_some(Self { intercept, slope, r_squared })
    }

    /// Its value at x.
    pub(crate) fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_place_is_no_line() {
        assert_eq!(FittedLine::through([].into_iter()), None);
        assert_eq!(FittedLine::through([(1.0, 2.0), (1.0, 3.0)].into_iter()), None);
        assert_eq!(FittedLine::through([(0.0, 2.0), (f64::MAX, 3.0)].into_iter()), None);
        assert_eq!(FittedLine::through([(0.0, 2.0), (1e-300, 3.0)].into_iter()), None);
        let flat = FittedLine::through([(1.0, 2.0), (5.0, 2.0)].into_iter()).unwrap();
        assert_eq!((flat.slope, flat.r_squared), (0.0, 1.0));
    }

    proptest! {
        /// No line that differs a little comes closer to the points.
        #[test]
        fn it_is_the_closest(ys in prop::collection::vec(-100.0..100.0f64, 3..20), by in -1.0..1.0f64) {
            let points: Vec<_> = ys.iter().zip(1u32..).map(|(y, x)| (f64::from(x), *y)).collect();
            let line = FittedLine::through(points.iter().copied()).unwrap();
            let squares = |line: &FittedLine| points.iter().map(|(x, y)| (y - line.at(*x)).powi(2))
                .sum::<f64>();
            let least = squares(&line);
            for other in [FittedLine { slope: line.slope + by, ..line },
                FittedLine { intercept: line.intercept + by, ..line }] {
                prop_assert!(squares(&other) >= least - 1e-6);
            }
            let mean = ys.iter().sum::<f64>() / ys.len() as f64;
            let about = ys.iter().map(|y| (y - mean).powi(2)).sum::<f64>();
            prop_assert!((line.r_squared - (1.0 - least / about)).abs() < 1e-6 || about < 1e-9);
        }
    }
}
