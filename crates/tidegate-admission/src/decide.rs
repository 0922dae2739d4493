//! The whole procedure: the measurements and their order, until there is an answer.

use crate::admission::{AdmissionRule, AdmissionVerdict, OfferResult, WrongCount, judge};
use crate::demand::TenantDemands;
use crate::scale::ScaleSearch;

/// The answer to contracts, and to the question that follows a refusal.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionDecision {
    /// The answer to the contracts as they stand.
    pub verdict: AdmissionVerdict,
    /// The greatest part of all rates that was found to be admitted after a refusal, and the verdict there.
    pub instead: Option<(f64, AdmissionVerdict)>,
}

/// A load generator that can offer the tenants' load to a storage, or to a model of it.
pub trait LoadGenerator {
    /// The reason why it cannot.
    type Error: From<WrongCount>;

    /// Offers this many times the rate of every tenant, and returns the result.
    ///
    /// # Errors
    /// When it cannot be measured.
    fn at(&mut self, scale: f64) -> Result<OfferResult, Self::Error>;

    /// Returns true if it can and should measure at this part of all rates, only to know what could be
    /// admitted. Loading real storage takes time, so that not every part can be measured there.
    fn is_worth(&self, scale: f64) -> bool {
        let _ = scale;
        true
    }
}

/// Decides about contracts: measures at their rates, and after a refusal at parts of them as [`ScaleSearch`]
/// has it, for as long as that is worth it.
///
/// # Errors
/// When it cannot be measured, or what was measured is about another number of tenants.
pub fn decide<M: LoadGenerator>(
    contracts: &TenantDemands,
    rule: &AdmissionRule,
    storage: &mut M,
) -> Result<AdmissionDecision, M::Error> {
    let verdict = judge(contracts, rule, &storage.at(1.0)?)?;
    let mut search = ScaleSearch::new();
    if !verdict.is_admitted() {
        while let Some(scale) = search.next_part().filter(|&scale| storage.is_worth(scale)) {
            search.answer(judge(contracts, rule, &storage.at(scale)?)?);
        }
    }
    let instead = search.best().map(|(scale, verdict)| (scale, verdict.clone()));
    Ok(AdmissionDecision { verdict, instead })
}

#[cfg(test)]
mod tests {
    use tidegate_units::Latency;

    use super::*;
    use crate::demand::tests::contract;

    /// A storage whose response time is 20 ms at the whole rate, and grows with it.
    struct Linear {
        worth: f64,
        asked: Vec<f64>,
    }

    impl LoadGenerator for Linear {
        type Error = WrongCount;

        fn at(&mut self, scale: f64) -> Result<OfferResult, WrongCount> {
            self.asked.push(scale);
            Ok(OfferResult::Sustained(vec![Latency::from_millis_f64(20.0 * scale)]))
        }

        fn is_worth(&self, scale: f64) -> bool {
            scale >= self.worth
        }
    }

    fn decided(millis: f64, worth: f64) -> (Vec<f64>, AdmissionDecision) {
        let contracts = TenantDemands::new(vec![contract("w", 40.0, millis)]).unwrap();
        let mut storage = Linear { worth, asked: Vec::new() };
        let decided = decide(&contracts, &AdmissionRule::default(), &mut storage).unwrap();
        (storage.asked, decided)
    }

    #[test]
    fn after_a_refusal_it_goes_on_as_long_as_it_is_worth_it() {
        let (asked, all) = decided(12.0, 0.0);
        assert_eq!((asked[0], asked.len()), (1.0, 1 + ScaleSearch::MEASUREMENTS as usize));
        // Half of the rates halves 1.2 times 20 ms.
        assert!(all.instead.is_some_and(|(scale, _)| (scale - 0.5).abs() < f64::EPSILON));
        let (asked, none) = decided(12.0, 0.6);
        assert_eq!((asked, none.instead), (vec![1.0], None));
        assert!(!none.verdict.is_admitted());
    }

    #[test]
    fn who_is_admitted_is_measured_once() {
        let (asked, decided) = decided(24.0, 0.0);
        assert!(decided.verdict.is_admitted() && decided.instead.is_none());
        assert_eq!(asked, [1.0]);
    }
}
