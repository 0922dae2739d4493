//! The search for rates that could be admitted instead.

use crate::admission::AdmissionVerdict;

/// The search for the greatest part of all rates at which the response times that are asked for hold.
///
/// The search is by bisection: response times grow with the rates. The caller measures at
/// [`next_part`](Self::next_part) times every contract's rate, gives the verdict to [`answer`](Self::answer),
/// and goes on until there is nothing more to measure. That is so after [`ScaleSearch::MEASUREMENTS`] of
/// them, when the answer is known to 1 %. The answer has been measured and was admitted; nothing is
/// interpolated.
#[derive(Debug, Clone)]
pub struct ScaleSearch {
    /// Steps of 1/128: at `admitted` it is known to hold (nothing always does), at `refused` not to.
    admitted: u32,
    refused: u32,
    best: Option<AdmissionVerdict>,
}

/// Seven halvings.
const STEPS: u32 = 1 << ScaleSearch::MEASUREMENTS;

impl Default for ScaleSearch {
    fn default() -> Self {
        Self { admitted: 0, refused: STEPS, best: None }
    }
}

impl ScaleSearch {
    /// The number of measurements that the search takes.
    pub const MEASUREMENTS: u32 = 7;

    /// Begins a search, after all rates as they stand were refused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The part of all rates to measure next, above 0 and below 1; `None` when the search is over.
    #[must_use]
    pub fn next_part(&self) -> Option<f64> {
        (self.refused - self.admitted > 1).then(|| part(self.middle()))
    }

    /// Takes the verdict at the part that [`next_part`](Self::next_part) gave. Without effect when the search
    /// is over.
    pub fn answer(&mut self, verdict: AdmissionVerdict) {
        if self.next_part().is_none() {
            return;
        }
        if verdict.is_admitted() {
            self.admitted = self.middle();
            self.best = Some(verdict);
        } else {
            self.refused = self.middle();
        }
    }

    /// The greatest part of all rates that was found to be admitted so far, and the verdict there. `None` if
    /// none was: the response times hold for less than 1 % of what is asked for, if at all.
    #[must_use]
    pub fn best(&self) -> Option<(f64, &AdmissionVerdict)> {
        Some((part(self.admitted), self.best.as_ref()?))
    }

    const fn middle(&self) -> u32 {
        u32::midpoint(self.admitted, self.refused)
    }
}

fn part(steps: u32) -> f64 {
    f64::from(steps) / f64::from(STEPS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::Latency;

    use super::*;
    use crate::demand::tests::contract;
    use crate::{AdmissionRule, OfferResult, TenantDemands, judge};

    fn verdict(admitted: bool) -> AdmissionVerdict {
        let contracts = TenantDemands::new(vec![contract("w", 40.0, 12.0)]).unwrap();
        let measured = OfferResult::Sustained(vec![Latency::from_millis(if admitted { 10 } else { 11 })]);
        judge(&contracts, &AdmissionRule::default(), &measured).unwrap()
    }

    fn search(holds: impl Fn(f64) -> bool) -> (u32, ScaleSearch) {
        let (mut search, mut measured) = (ScaleSearch::new(), 0);
        while let Some(scale) = search.next_part() {
            assert!(scale > 0.0 && scale < 1.0);
            search.answer(verdict(holds(scale)));
            measured += 1;
        }
        (measured, search)
    }

    #[test]
    fn what_never_holds_is_said_to() {
        let (measured, search) = search(|_| false);
        assert_eq!((measured, search.best()), (ScaleSearch::MEASUREMENTS, None));
    }

    #[test]
    fn an_answer_too_many_changes_nothing() {
        let (_, mut search) = search(|scale| scale <= 0.5);
        search.answer(verdict(true));
        assert_eq!(search.best().unwrap(), (0.5, &verdict(true)));
    }

    proptest! {
        #[test]
        fn the_answer_holds_and_one_per_cent_more_does_not(threshold in 0.0..1.0f64) {
            let (measured, search) = search(|scale| scale <= threshold);
            prop_assert_eq!(measured, ScaleSearch::MEASUREMENTS);
            let found = search.best().map_or(0.0, |(scale, _)| scale);
            prop_assert!(found <= threshold && found + 0.01 > threshold, "{found} for {threshold}");
        }
    }
}
