//! The contract: a promise to a consumer.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{Iops, Latency};

/// A promise to one consumer that admission control found the storage able to keep: as long as it asks for no
/// more than `iops`, its requests are answered within `response_time`. What it asks for beyond that is served
/// from the surplus.
///
/// The paper's `{iops_i, size_i, rt_i}` (Lee §2) with RT^E, what its admission control measured, in the place
/// of the size, which matters only there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Terms", into = "Terms")]
pub struct Contract {
    iops: Iops,
    response_time: Latency,
    expected: Latency,
}

impl Contract {
    /// A contract over `iops` at `response_time`, of which admission control expects `expected`.
    ///
    /// # Errors
    /// When one of them is zero, or when more is expected than was promised: such a contract is not admitted.
    pub fn new(iops: Iops, response_time: Latency, expected: Latency) -> Result<Self, ContractError> {
        if iops == Iops::ZERO {
            return Err(ContractError::Iops);
        }
        if response_time == Latency::ZERO {
            return Err(ContractError::ResponseTime);
        }
        if expected == Latency::ZERO || expected > response_time {
            return Err(ContractError::Expected { expected, response_time });
        }
        Ok(Self { iops, response_time, expected })
    }

    /// iops_i: the rate that was promised, in requests per second. No law takes the consumer below it.
    #[must_use]
    pub const fn iops(&self) -> Iops {
        self.iops
    }

    /// rt_i: the response time that was promised. What takes longer is a violation.
    #[must_use]
    pub const fn response_time(&self) -> Latency {
        self.response_time
    }

    /// RT^E: the 95th percentile of the response times while all consumers ask for what was promised to them.
    /// The reference of the integral law (Lee §4.3).
    #[must_use]
    pub const fn expected(&self) -> Latency {
        self.expected
    }
}

/// Reason that a contract is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ContractError {
    /// A rate of nothing is no promise.
    #[error("a contract's rate must be greater than zero")]
    Iops,
    /// No storage answers in no time.
    #[error("a contract's response time must be greater than zero")]
    ResponseTime,
    /// It is missed from the beginning.
    #[error(
        "a contract's expected response time must be above zero and at most the promised one, they are \
         {expected} and {response_time}"
    )]
    Expected {
        /// The expected one.
        expected: Latency,
        /// The promised one.
        response_time: Latency,
    },
}

/// A contract as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    iops: Iops,
    response_time: Latency,
    expected: Latency,
}

impl TryFrom<Terms> for Contract {
    type Error = ContractError;

    fn try_from(terms: Terms) -> Result<Self, ContractError> {
        Self::new(terms.iops, terms.response_time, terms.expected)
    }
}

impl From<Contract> for Terms {
    fn from(contract: Contract) -> Self {
        let Contract { iops, response_time, expected } = contract;
        Self { iops, response_time, expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Latency {
        Latency::from_millis(millis)
    }

    #[test]
    fn what_nobody_can_keep_is_refused() {
        let contract = |iops, promised, expected| Contract::new(Iops::new(iops), ms(promised), ms(expected));
        assert!(contract(40.0, 35, 35).is_ok());
        assert_eq!(contract(0.0, 35, 29), Err(ContractError::Iops));
        assert_eq!(contract(-40.0, 35, 29), Err(ContractError::Iops));
        assert_eq!(contract(f64::NAN, 35, 29), Err(ContractError::Iops));
        assert_eq!(contract(40.0, 0, 0), Err(ContractError::ResponseTime));
        let (expected, response_time) = (ms(36), ms(35));
        assert_eq!(contract(40.0, 35, 36), Err(ContractError::Expected { expected, response_time }));
        assert!(matches!(contract(40.0, 35, 0), Err(ContractError::Expected { .. })));
    }

    #[test]
    fn what_is_read_is_checked_like_what_is_made() {
        let contract = Contract::new(Iops::new(40.0), ms(35), ms(29)).unwrap();
        let text = r#"{"iops":40.0,"response_time":35000000,"expected":29000000}"#;
        assert_eq!(serde_json::to_string(&contract).unwrap(), text);
        assert_eq!(serde_json::from_str::<Contract>(text).unwrap(), contract);
        let wrong = text.replace("40.0", "0.0");
        assert!(
            serde_json::from_str::<Contract>(&wrong).unwrap_err().to_string().contains("greater than zero")
        );
    }
}
