//! Promises that hold together at some time, and the answer about them.

use tidegate_config::contract::ContractRequirement;
use tidegate_units::{ConsumerName, DailyPeriod, Latency, Shares};

use crate::demand::{DemandError, TenantDemand, TenantDemands};

/// The promises that hold together at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct PromiseSet {
    /// Its first period in a day.
    pub period: DailyPeriod,
    /// Each export, its weight, and its requirements, if it has any then.
    pub requirements: Vec<(ConsumerName, Shares, Option<ContractRequirement>)>,
}

/// The answer about a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetVerdict {
    /// It can be kept; with RT^E of each export in it.
    Admitted(Vec<(ConsumerName, Latency)>),
    /// It cannot, or it could not be found out, for this reason.
    Refused(String),
    /// There is no question.
    Unjudged,
}

impl PromiseSet {
    /// Returns the exports that are promised something.
    pub fn promised(&self) -> impl Iterator<Item = (&ConsumerName, Shares, ContractRequirement)> {
        self.requirements.iter().filter_map(|(name, shares, promised)| Some((name, *shares, (*promised)?)))
    }

    /// Returns true if nothing is promised to any export.
    pub fn is_empty(&self) -> bool {
        self.promised().next().is_none()
    }

    /// Returns the demands of the set, with the weight of each. A size that is not given counts as no bytes,
    /// which is refused.
    ///
    /// # Errors
    /// When the demands contradict each other, or themselves.
    pub fn demands(&self) -> Result<(TenantDemands, Vec<Shares>), DemandError> {
        let demand = |(name, shares, ContractRequirement { given, size, .. }): (
            &ConsumerName,
            Shares,
            ContractRequirement,
        )| {
            let (iops, response_time) = (given.contract.iops(), given.contract.response_time());
            (TenantDemand { name: name.clone(), iops, size: size.unwrap_or_default(), response_time }, shares)
        };
        let (demands, shares) = self.promised().map(demand).unzip();
        Ok((TenantDemands::new(demands)?, shares))
    }
}
