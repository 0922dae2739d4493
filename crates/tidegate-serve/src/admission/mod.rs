//! Decisions about contracts, as documents: the same for the command line and over HTTP.

pub(crate) mod api;
mod measuring;
mod standings;

use serde::{Serialize, Serializer};
pub(crate) use tidegate_admission::schedule::{AnswerSubject, SetChange, StandingAnswer as MeasuredSet};
pub use tidegate_admission::schedule::{
    ContractsStatus, JudgementBasis, KnownAnswers, PoolContracts, StorageModel,
};
use tidegate_admission::{
    AdmissionDecision, AdmissionRule, JudgedContract, LatencyMargin, TenantDemand, TenantDemands,
};
use tidegate_units::{Bytes, ConsumerName, DailyPeriod, Iops, Latency, Shares, TimeOfDay};

pub(crate) use api::MOST_TENANTS;
pub(crate) use measuring::begin;
pub(crate) use standings::PoolStandings;

/// An answer: the question, the finding, and the way in which it was measured.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionAnswer<'a> {
    /// The contracts that were asked for.
    pub contracts: &'a TenantDemands,
    /// By which rule it was judged.
    pub rule: &'a AdmissionRule,
    /// The greatest rate that the storage completes, where it is known.
    pub capacity: Option<Iops>,
    /// The finding.
    pub decided: &'a AdmissionDecision,
    /// The arrival of requests in the measurement.
    pub arrivals: &'a str,
    /// The weights that the contracts had in the scheduler, in their order; none where that was no part of
    /// what was measured.
    pub weights: &'a [Shares],
    /// The seeds of what was measured.
    pub seeds: &'a [u64],
}

/// The JSON document. Times in seconds, rates in requests per second.
#[derive(Debug, Serialize)]
pub struct AdmissionDocument<'a> {
    admitted: bool,
    iops: Iops,
    /// The greatest rate that the storage completes; nothing where it was not overloaded to find out.
    capacity_iops: Option<Iops>,
    quantile: f64,
    margin: f64,
    arrivals: &'a str,
    seeds: &'a [u64],
    tenants: Vec<TenantDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instead: Option<Instead<'a>>,
}

/// The JSON document about requirements that change over the day.
#[derive(Debug, Serialize)]
pub struct DayDocument<'a> {
    /// At all times.
    admitted: bool,
    periods: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    impossible: Vec<ImpossiblePart>,
}

/// A part of a day in which the requirements cannot be on this storage, so that they were not measured.
#[derive(Debug, Serialize)]
struct ImpossiblePart {
    #[serde(serialize_with = "as_text")]
    from: TimeOfDay,
    #[serde(serialize_with = "as_text")]
    until: TimeOfDay,
    error: String,
}

#[derive(Debug, Serialize)]
struct Part<'a> {
    /// In UTC.
    #[serde(serialize_with = "as_text")]
    from: TimeOfDay,
    #[serde(serialize_with = "as_text")]
    until: TimeOfDay,
    #[serde(flatten)]
    document: AdmissionDocument<'a>,
}

fn as_text<S: Serializer>(time: &TimeOfDay, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

impl<'a> DayDocument<'a> {
    /// Returns the document of the answers in each part of a day. `impossible` has the parts in which the
    /// requirements cannot be, with the reason.
    #[must_use]
    pub fn of(
        answers: &[(DailyPeriod, AdmissionAnswer<'a>)],
        impossible: Vec<(DailyPeriod, String)>,
    ) -> Self {
        let parts = answers.iter().map(|(period, answer)| Part {
            from: period.from(),
            until: period.until(),
            document: answer.document(),
        });
        let periods: Vec<_> = parts.collect();
        let impossible = impossible.into_iter().map(|(period, error)| ImpossiblePart {
            from: period.from(),
            until: period.until(),
            error,
        });
        let impossible: Vec<_> = impossible.collect();
        let admitted = impossible.is_empty() && periods.iter().all(|part| part.document.admitted);
        Self { admitted, periods, impossible }
    }
}

#[derive(Debug, Serialize)]
struct TenantDocument<'a> {
    name: &'a ConsumerName,
    iops: Iops,
    size: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    promised_s: f64,
    /// RT^E; nothing where the storage does not keep up.
    expected_s: Option<f64>,
    /// RT^T.
    deliverable_s: Option<f64>,
    /// Above nothing: to spare.
    margin_s: Option<f64>,
    kept: bool,
}

/// The loads that could be admitted instead.
#[derive(Debug, Serialize)]
struct Instead<'a> {
    /// At the same rates; nothing where the storage does not keep up with them.
    response_times: Option<Vec<ResponseTime<'a>>>,
    /// With the same response times; nothing where they cannot be kept at any rate, and where no lower rate
    /// was measured: live there may be no time for it, or too few requests.
    rates: Option<Rates<'a>>,
}

#[derive(Debug, Serialize)]
struct ResponseTime<'a> {
    name: &'a ConsumerName,
    response_time_s: f64,
}

#[derive(Debug, Serialize)]
struct Rates<'a> {
    scale: f64,
    tenants: Vec<RateDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct RateDocument<'a> {
    name: &'a ConsumerName,
    iops: Iops,
}

impl<'a> AdmissionAnswer<'a> {
    /// Each contract, and the answer to it.
    pub fn tenants(&self) -> impl Iterator<Item = (&'a TenantDemand, &'a JudgedContract)> {
        self.contracts.as_slice().iter().zip(self.decided.verdict.tenants())
    }

    /// The response times that could be promised at these rates; `None` where the storage does not keep up
    /// with them.
    #[must_use]
    pub fn response_times(&self) -> Option<Vec<(&'a ConsumerName, Latency)>> {
        let tenants = self.decided.verdict.tenants().iter();
        tenants.map(|tenant| Some((&tenant.name, said_up(tenant.measured?.1)))).collect()
    }

    /// Returns the answer as JSON.
    #[must_use]
    pub fn document(&self) -> AdmissionDocument<'a> {
        let tenants = self.tenants().enumerate().map(|(at, (contract, judged))| TenantDocument {
            name: &contract.name,
            iops: contract.iops,
            size: contract.size,
            weight: self.weights.get(at).map(|weight| weight.get()),
            promised_s: contract.response_time.as_secs_f64(),
            expected_s: judged.measured.map(|(expected, _)| expected.as_secs_f64()),
            deliverable_s: judged.measured.map(|(_, deliverable)| deliverable.as_secs_f64()),
            margin_s: match judged.margin() {
                LatencyMargin::Spare(spare) => Some(spare.as_secs_f64()),
                LatencyMargin::Short(short) => Some(-short.as_secs_f64()),
                LatencyMargin::Unbounded => None,
            },
            kept: judged.is_kept(),
        });
        let admitted = self.decided.verdict.is_admitted();
        let instead = || {
            let response_times = self.response_times().map(|all| {
                let said = all.into_iter();
                said.map(|(name, time)| ResponseTime { name, response_time_s: time.as_secs_f64() }).collect()
            });
            let rates = self.decided.instead.as_ref().map(|&(scale, _)| {
                let contracts = self.contracts.as_slice().iter();
                let tenants = contracts.map(|contract| RateDocument {
                    name: &contract.name,
                    iops: Iops::new(scale * contract.iops.per_second()),
                });
                Rates { scale, tenants: tenants.collect() }
            });
            Instead { response_times, rates }
        };
        AdmissionDocument {
            admitted,
            iops: self.contracts.total(),
            capacity_iops: self.capacity,
            quantile: self.rule.quantile(),
            margin: self.rule.margin(),
            arrivals: self.arrivals,
            seeds: self.seeds,
            tenants: tenants.collect(),
            instead: (!admitted).then(instead),
        }
    }
}

/// Rounded up to three digits, as it is shown: what is proposed must not be less than was measured.
fn said_up(time: Latency) -> Latency {
    let digits = time.as_nanos().checked_ilog10().unwrap_or(0);
    let step = 10u64.pow(digits.saturating_sub(2));
    Latency::from_nanos(time.as_nanos().div_ceil(step).saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_is_not_less_than_what_was_measured() {
        let said = |nanos| said_up(Latency::from_nanos(nanos)).to_string();
        assert_eq!(
            [0, 7, 33_210_001, 33_300_000, 999_100_000].map(said),
            ["0ms", "7ns", "33.3ms", "33.3ms", "1.00s"]
        );
    }
}
