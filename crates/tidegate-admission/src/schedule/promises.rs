//! Promises that hold together at some time, and the answer about them.

use tidegate_admission::{DemandError, TenantDemand, TenantDemands};
use tidegate_config::contract::ContractRequirement;
use tidegate_units::{ConsumerName, DailyPeriod, Latency, Shares};

/// The promises that hold together at some time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromiseSet {
    /// Its first period in a day.
    pub(crate) period: DailyPeriod,
    pub(crate) requirements: Vec<(ConsumerName, Shares, Option<ContractRequirement>)>,
}

/// The answer about a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SetVerdict {
    /// It can be kept; with RT^E of each export in it.
    Admitted(Vec<(ConsumerName, Latency)>),
    /// It cannot, or it could not be found out, for this reason.
    Refused(String),
    /// There is no question.
    Unjudged,
}

impl PromiseSet {
    pub(super) fn held(&self) -> impl Iterator<Item = (&ConsumerName, Shares, ContractRequirement)> {
        self.requirements.iter().filter_map(|(name, shares, held)| Some((name, *shares, (*held)?)))
    }

    /// Returns true if nothing is promised to any export.
    pub(crate) fn is_empty(&self) -> bool {
        self.held().next().is_none()
    }

    /// Returns the demands of the set, with the weight of each. A size that is not given counts as no bytes,
    /// which is refused.
    pub(crate) fn demands(&self) -> Result<(TenantDemands, Vec<Shares>), DemandError> {
        let demand = |(name, shares, ContractRequirement { given, size, .. }): (
            &ConsumerName,
            Shares,
            ContractRequirement,
        )| {
            let (iops, response_time) = (given.contract.iops(), given.contract.response_time());
            (TenantDemand { name: name.clone(), iops, size: size.unwrap_or_default(), response_time }, shares)
        };
        let (demands, shares) = self.held().map(demand).unzip();
        Ok((TenantDemands::new(demands)?, shares))
    }
}
