//! Admission: compares what was measured with what is asked for.

use thiserror::Error;
use tidegate_units::{ConsumerName, Latency};

use crate::demand::TenantDemands;

/// The rule that makes a promise from response times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdmissionRule {
    quantile: f64,
    margin: f64,
}

impl Default for AdmissionRule {
    /// The 95th percentile, and a fifth more (Lee §2: "95th percentile of all response times", "a 20%
    /// margin").
    fn default() -> Self {
        Self { quantile: 0.95, margin: 1.2 }
    }
}

impl AdmissionRule {
    /// The greatest margin.
    pub const GREATEST_MARGIN: f64 = 100.0;

    /// Makes another rule. `None` unless the quantile is above 0 and at most 1, and the margin 1 to 100.
    #[must_use]
    pub fn new(quantile: f64, margin: f64) -> Option<Self> {
        let right = quantile > 0.0 && quantile <= 1.0 && (1.0..=Self::GREATEST_MARGIN).contains(&margin);
        right.then_some(Self { quantile, margin })
    }

    /// The quantile to measure: the part of a tenant's response times that do not exceed RT^E.
    #[must_use]
    pub const fn quantile(&self) -> f64 {
        self.quantile
    }

    /// RT^T over RT^E.
    #[must_use]
    pub const fn margin(&self) -> f64 {
        self.margin
    }

    /// RT^T: the response time that can be promised, given the measured RT^E.
    fn deliverable(&self, expected: Latency) -> Latency {
        expected.scale(self.margin)
    }
}

/// The result of offering all tenants' requests together, mixed in the proportion of their rates.
#[derive(Debug, Clone, PartialEq)]
pub enum OfferResult {
    /// RT^E of each tenant, in the order of the contracts: the [quantile](AdmissionRule::quantile) of its
    /// response times, from a request's arrival to its answer.
    Sustained(Vec<Latency>),
    /// The storage did not keep up: its queue grew, and response times with it, for as long as the load
    /// lasted.
    Overloaded,
}

/// A measurement that is not about these contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("these are {contracts} contracts, and response times of {measured} tenants")]
pub struct WrongCount {
    /// The number of contracts.
    pub contracts: usize,
    /// The number of tenants whose response times were measured.
    pub measured: usize,
}

/// The answer to contracts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionVerdict {
    tenants: Vec<JudgedContract>,
}

/// The answer to one contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedContract {
    /// The tenant whose contract it is.
    pub name: ConsumerName,
    /// rt, the response time that it asks for.
    pub asked: Latency,
    /// RT^E and RT^T: the response time that was measured, and the one that can be promised. `None` if the
    /// storage did not keep up, so that nothing can be promised.
    pub measured: Option<(Latency, Latency)>,
}

/// The difference between the response time that is asked for and the one that can be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyMargin {
    /// The amount by which the promise is better than what is asked for.
    Spare(Latency),
    /// The amount by which the promise falls short.
    Short(Latency),
    /// No response time could be promised.
    Unbounded,
}

impl JudgedContract {
    /// Returns the margin between the promise and the response time that is asked for.
    #[must_use]
    pub fn margin(&self) -> LatencyMargin {
        match self.measured {
            Some((_, deliverable)) if deliverable <= self.asked => {
                LatencyMargin::Spare(self.asked.saturating_sub(deliverable))
            }
            Some((_, deliverable)) => LatencyMargin::Short(deliverable.saturating_sub(self.asked)),
            None => LatencyMargin::Unbounded,
        }
    }

    /// Returns true if this contract can be promised beside the others.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self.margin(), LatencyMargin::Spare(_))
    }
}

impl AdmissionVerdict {
    /// Returns true if all contracts can be promised. They are admitted together or not at all: response
    /// times were measured with the load of all tenants.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.tenants.iter().all(JudgedContract::is_kept)
    }

    /// The answers to the contracts, in their order.
    #[must_use]
    pub fn tenants(&self) -> &[JudgedContract] {
        &self.tenants
    }
}

/// Decides whether the storage can keep these contracts: RT^T_i = m · RT^E_i ≤ rt_i for every tenant, where m
/// is the rule's [margin](AdmissionRule::margin) (Lee §2, "Simple Admission Control"; 1.2 there).
///
/// The paper's text has the inequality the other way round ("if rt_i ≤ RT^T for all i"). Its own example is
/// admitted with response times of 35 and 38 ms. These are *above* the RT^T of 34 and 37 ms in its table 3. A
/// promise of less than can be delivered could not be kept, so this function follows the example.
///
/// # Errors
/// When `measured` is about another number of tenants.
pub fn judge(
    contracts: &TenantDemands,
    rule: &AdmissionRule,
    measured: &OfferResult,
) -> Result<AdmissionVerdict, WrongCount> {
    let contracts = contracts.as_slice();
    let expected: Vec<Option<Latency>> = match measured {
        OfferResult::Overloaded => vec![None; contracts.len()],
        OfferResult::Sustained(expected) => expected.iter().copied().map(Some).collect(),
    };
    if expected.len() != contracts.len() {
        return Err(WrongCount { contracts: contracts.len(), measured: expected.len() });
    }
    let tenants = contracts.iter().zip(expected).map(|(contract, expected)| JudgedContract {
        name: contract.name.clone(),
        asked: contract.response_time,
        measured: expected.map(|expected| (expected, rule.deliverable(expected))),
    });
    Ok(AdmissionVerdict { tenants: tenants.collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::demand::tests::contract;

    fn sustained(micros: &[u64]) -> OfferResult {
        OfferResult::Sustained(micros.iter().map(|&micros| Latency::from_micros(micros)).collect())
    }

    /// Lee's tables 2 and 3: RT^E of 29.08 and 31.38 ms, for which the paper rounds RT^T down to 34 and 37
    /// ms.
    #[test]
    fn the_papers_example_is_admitted_and_its_converse_is_not() {
        let table_3 = sustained(&[29_080, 31_380]);
        let ask = |first, second| {
            let asked = TenantDemands::new(vec![contract("w1", 40.0, first), contract("w2", 20.0, second)]);
            judge(&asked.unwrap(), &AdmissionRule::default(), &table_3).unwrap()
        };
        let verdict = ask(35.0, 38.0);
        assert!(verdict.is_admitted());
        assert_eq!(verdict.tenants()[0].measured.unwrap().1, Latency::from_micros(34_896));
        assert_eq!(verdict.tenants()[0].margin(), LatencyMargin::Spare(Latency::from_micros(104)));
        let verdict = ask(35.0, 37.0);
        assert!(!verdict.is_admitted());
        assert!(verdict.tenants()[0].is_kept());
        assert_eq!(verdict.tenants()[1].margin(), LatencyMargin::Short(Latency::from_micros(656)));
    }

    #[test]
    fn nothing_is_promised_where_the_storage_does_not_keep_up() {
        let contracts = TenantDemands::new(vec![contract("w", 40.0, 1e9)]).unwrap();
        let verdict = judge(&contracts, &AdmissionRule::default(), &OfferResult::Overloaded).unwrap();
        assert_eq!(verdict.tenants()[0].margin(), LatencyMargin::Unbounded);
        assert!(!verdict.is_admitted());
    }

    #[test]
    fn a_measurement_of_others_is_no_measurement() {
        let contracts = TenantDemands::new(vec![contract("w", 40.0, 35.0)]).unwrap();
        for measured in [sustained(&[]), sustained(&[1, 2])] {
            assert!(judge(&contracts, &AdmissionRule::default(), &measured).is_err());
        }
    }

    #[test]
    fn a_rule_has_bounds() {
        for (quantile, margin) in [(0.0, 1.2), (1.1, 1.2), (f64::NAN, 1.2), (0.9, 0.9), (0.9, 101.0)] {
            assert_eq!(AdmissionRule::new(quantile, margin), None);
        }
        assert!(AdmissionRule::new(1.0, 1.0).is_some());
    }

    proptest! {
        /// One nanosecond decides, for every tenant and all numbers.
        #[test]
        fn what_can_be_delivered_is_the_least_that_is_admitted(
            expected in prop::collection::vec(1u64..1 << 50, 1..6),
            margin in 1.0..10.0f64,
            tightest in 0usize..6,
        ) {
            let rule = AdmissionRule::new(0.95, margin).unwrap();
            let expected: Vec<_> = expected.into_iter().map(Latency::from_nanos).collect();
            let tightest = tightest % expected.len();
            let ask = |short: u64| {
                let contracts = expected.iter().enumerate().map(|(at, expected)| {
                    let mut asked = contract(&format!("w{at}"), 1.0, 1.0);
                    let least = rule.deliverable(*expected);
                    let short = if at == tightest { short } else { 0 };
                    asked.response_time = least.saturating_sub(Latency::from_nanos(short));
                    asked
                });
                contracts.collect::<Vec<_>>()
            };
            let measured = OfferResult::Sustained(expected.clone());
            let verdict = |short| Some(judge(&TenantDemands::new(ask(short)).ok()?, &rule, &measured)
                .unwrap());
            prop_assert!(verdict(0).unwrap().is_admitted());
            if let Some(refused) = verdict(1) {
                prop_assert!(!refused.is_admitted());
                let short = refused.tenants().iter().filter(|tenant| !tenant.is_kept()).count();
                prop_assert_eq!(short, 1);
            }
        }
    }
}
