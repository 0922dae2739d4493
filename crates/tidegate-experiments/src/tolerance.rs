//! Tolerances: the results that agree with a paper.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An interval, ends included, written as one would say it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tolerance {
    /// So near a value, as a part of it.
    Near {
        /// The value.
        value: f64,
        /// The part: 0.1 is ten per cent to either side.
        within: f64,
    },
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
    /// Neither less nor more.
    Between(f64, f64),
}

impl Tolerance {
    /// So near a value, in per cent of it.
    #[must_use]
    pub const fn near(value: f64, per_cent: f64) -> Self {
        Self::Near { value, within: per_cent / 100.0 }
    }

    /// The least and the greatest that agree.
    #[must_use]
    pub fn bounds(self) -> (Option<f64>, Option<f64>) {
        match self {
            Self::Near { value, within } => {
                let distance = value.abs() * within;
                (Some(value - distance), Some(value + distance))
            }
            Self::AtLeast(least) => (Some(least), None),
            Self::AtMost(most) => (None, Some(most)),
            Self::Between(least, most) => (Some(least), Some(most)),
        }
    }

    /// Returns true if a result agrees. NaN and infinities never do.
    #[must_use]
    pub fn agrees(self, result: f64) -> bool {
        let (least, most) = self.bounds();
        result.is_finite()
            && least.is_none_or(|least| result >= least)
            && most.is_none_or(|most| result <= most)
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near { value, within } => write!(f, "{} ± {} %", rounded(*value), rounded(within * 100.0)),
            Self::AtLeast(least) => write!(f, "at least {}", rounded(*least)),
            Self::AtMost(most) => write!(f, "at most {}", rounded(*most)),
            Self::Between(least, most) => write!(f, "{} to {}", rounded(*least), rounded(*most)),
        }
    }
}

/// To three places: a tenth is no tenth in binary, and a quotient has no end.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_agree_and_nothing_beyond_them() {
        let cases = [
            (Tolerance::near(2.0, 10.0), &[1.8, 2.0, 2.2][..], &[1.79, 2.21][..]),
            (Tolerance::near(-2.0, 10.0), &[-2.2, -1.8], &[-1.7, 2.0]),
            (Tolerance::AtLeast(2.0), &[2.0, 1e9], &[1.999, -1e9]),
            (Tolerance::AtMost(1.1), &[1.1, -5.0], &[1.11]),
            (Tolerance::Between(0.5, 1.0), &[0.5, 0.7, 1.0], &[0.49, 1.01]),
        ];
        for (accepts, good, bad) in cases {
            assert!(good.iter().all(|result| accepts.agrees(*result)), "{accepts}");
            assert!(bad.iter().all(|result| !accepts.agrees(*result)), "{accepts}");
            for nothing in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert!(!accepts.agrees(nothing), "{accepts} takes {nothing}");
            }
        }
    }

    #[test]
    fn it_is_said_as_one_would_say_it() {
        assert_eq!(Tolerance::near(0.5, 7.0).to_string(), "0.5 ± 7 %");
        assert_eq!(Tolerance::near(1.0, 2.5).to_string(), "1 ± 2.5 %");
        assert_eq!(Tolerance::near(86.0 / 46.0, 10.0).to_string(), "1.87 ± 10 %");
        assert_eq!(Tolerance::Between(1.5, 3.0).to_string(), "1.5 to 3");
    }
}
