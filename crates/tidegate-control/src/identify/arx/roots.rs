//! Roots of a polynomial of low degree.

use std::ops::{Add, Div, Mul, Sub};

/// A complex number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    pub(super) const ONE: Self = Self { re: 1.0, im: 0.0 };

    pub(super) const fn real(re: f64) -> Self {
        Self { re, im: 0.0 }
    }

    /// Returns the number of this angle on the unit circle.
    pub(super) fn unit(angle: f64) -> Self {
        Self { re: angle.cos(), im: angle.sin() }
    }

    pub(super) const fn conjugate(self) -> Self {
        Self { re: self.re, im: -self.im }
    }

    pub(super) fn magnitude(self) -> f64 {
        self.re.hypot(self.im)
    }
}

impl Add for Complex {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Complex {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Complex {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}

impl Div for Complex {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        let square = other.re * other.re + other.im * other.im;
        let Self { re, im } = self * other.conjugate();
        Self { re: re / square, im: im / square }
    }
}

/// The value of a polynomial, its coefficients given from the highest power on.
pub(super) fn value(coefficients: &[f64], at: Complex) -> Complex {
    coefficients.iter().fold(Complex::real(0.0), |sum, coefficient| sum * at + Complex::real(*coefficient))
}

/// More rounds change nothing: simple roots are exact after a dozen or two, double ones to half of the
/// digits.
const ROUNDS: u32 = 500;
/// A round that moves every root by less than this part of the greatest is the last.
const STILL: f64 = 1e-15;

/// All roots of a polynomial whose first coefficient, that of the highest power, is 1; by the method of
/// Weierstrass (Durand and Kerner), which improves all of them at once.
pub(super) fn roots(coefficients: &[f64]) -> Vec<Complex> {
    let degree = coefficients.len().saturating_sub(1);
    // Cauchy's bound: all are within. Not symmetric about the real axis, on which they would otherwise have
    // to stay.
    let within = 1.0 + coefficients.iter().skip(1).fold(0.0, |most: f64, c| most.max(c.abs()));
    let start = |at: usize| {
        let Complex { re, im } = Complex::unit(0.4 + std::f64::consts::TAU * at as f64 / degree as f64);
        Complex { re: within * re, im: within * im }
    };
    let mut roots: Vec<Complex> = (0..degree).map(start).collect();
    for _ in 0..ROUNDS {
        let mut moved: f64 = 0.0;
        for at in 0..degree {
            let mut others = Complex::ONE;
            for (other, root) in roots.iter().enumerate() {
                if other != at {
                    others = others * (roots[at] - *root);
                }
            }
            let step = value(coefficients, roots[at]) / others;
            // Two that have met are a double root: neither can be told from the other any more.
            if step.re.is_finite() && step.im.is_finite() {
                roots[at] = roots[at] - step;
                moved = moved.max(step.magnitude());
            }
        }
        if moved <= STILL * within {
            break;
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The polynomial with these real roots and pairs of conjugate ones.
    fn with_roots(real: &[f64], pairs: &[(f64, f64)]) -> Vec<f64> {
        let factors = real.iter().map(|root| vec![1.0, -root]);
        let squares = pairs.iter().map(|(re, im)| vec![1.0, -2.0 * re, re * re + im * im]);
        factors.chain(squares).fold(vec![1.0], |product, factor| {
            let mut out = vec![0.0; product.len() + factor.len() - 1];
            for (at, one) in product.iter().enumerate() {
                for (by, other) in factor.iter().enumerate() {
                    out[at + by] += one * other;
                }
            }
            out
        })
    }

    #[test]
    fn the_simplest_ones() {
        assert!(roots(&[1.0]).is_empty());
        assert_eq!(roots(&[1.0, -0.5]), [Complex::real(0.5)]);
        for root in roots(&[1.0, 0.0, 0.25]) {
            assert!(root.re.abs() < 1e-12 && (root.im.abs() - 0.5).abs() < 1e-12, "{root:?}");
        }
        for root in roots(&[1.0, 0.0, 0.0]) {
            assert!(root.magnitude() < 1e-9, "{root:?}");
        }
    }

    proptest! {
        /// Double roots are found to half of the digits, and no more is promised.
        #[test]
        fn they_are_those_that_it_was_made_of(
            real in prop::collection::vec(-1.5..1.5f64, 0..4),
            pairs in prop::collection::vec((-1.0..1.0f64, 0.05..1.0f64), 0..3)
        ) {
            let mut expected: Vec<Complex> = real.iter().map(|re| Complex::real(*re)).collect();
            for (re, im) in &pairs {
                expected.extend([Complex { re: *re, im: *im }, Complex { re: *re, im: -im }]);
            }
            let found = roots(&with_roots(&real, &pairs));
            prop_assert_eq!(found.len(), expected.len());
            let apart = expected.iter().enumerate().all(|(at, one)| {
                expected[..at].iter().all(|other| (*one - *other).magnitude() > 0.05)
            });
            let bound = if apart { 1e-6 } else { 0.05 };
            for root in expected {
                let nearest = found.iter().map(|one| (*one - root).magnitude()).fold(f64::INFINITY, f64::min);
                prop_assert!(nearest < bound, "{root:?} {nearest}");
            }
        }
    }
}
