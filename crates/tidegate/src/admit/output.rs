//! The verdict, for people and for programs.

use std::fmt;

use serde::Serialize;
use tidegate_place::{AdmissionRule, Demand, Demands, Judged, Margin, Verdict};
use tidegate_units::{Bytes, ConsumerName, Iops, Latency};

use super::Effort;
use crate::columns::{heading, write_rows};

/// What was found.
pub(super) struct Answer<'a> {
    pub(super) contracts: &'a Demands,
    pub(super) rule: &'a AdmissionRule,
    /// What the storage completes at the most.
    pub(super) capacity: Iops,
    pub(super) verdict: &'a Verdict,
    /// After a refusal: the part of all rates that could be admitted, and the verdict there.
    pub(super) instead: Option<(f64, &'a Verdict)>,
    pub(super) effort: &'a Effort,
}

/// The JSON document. Times in seconds, rates in requests per second.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    admitted: bool,
    iops: Iops,
    capacity_iops: Iops,
    quantile: f64,
    margin: f64,
    arrivals: String,
    seeds: Vec<u64>,
    tenants: Vec<Tenant<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instead: Option<Instead<'a>>,
}

#[derive(Serialize)]
struct Tenant<'a> {
    name: &'a ConsumerName,
    iops: Iops,
    size: Bytes,
    promised_s: f64,
    /// RT^E; nothing where the storage does not keep up.
    expected_s: Option<f64>,
    /// RT^T.
    deliverable_s: Option<f64>,
    /// Above nothing: to spare.
    margin_s: Option<f64>,
    kept: bool,
}

/// What could be admitted instead.
#[derive(Serialize)]
struct Instead<'a> {
    /// At the same rates; nothing where the storage does not keep up with them.
    response_times: Option<Vec<ResponseTime<'a>>>,
    /// With the same response times; nothing where they cannot be kept at any rate.
    rates: Option<Rates<'a>>,
}

#[derive(Serialize)]
struct ResponseTime<'a> {
    name: &'a ConsumerName,
    response_time_s: f64,
}

#[derive(Serialize)]
struct Rates<'a> {
    scale: f64,
    tenants: Vec<Rate<'a>>,
}

#[derive(Serialize)]
struct Rate<'a> {
    name: &'a ConsumerName,
    iops: Iops,
}

impl<'a> Answer<'a> {
    fn tenants(&self) -> impl Iterator<Item = (&'a Demand, &'a Judged)> {
        self.contracts.as_slice().iter().zip(self.verdict.tenants())
    }

    /// The response times that could be promised at these rates.
    fn response_times(&self) -> Option<Vec<(&'a ConsumerName, Latency)>> {
        let tenants = self.verdict.tenants().iter();
        tenants.map(|tenant| Some((&tenant.name, said_up(tenant.measured?.1)))).collect()
    }

    pub(super) fn document(&self) -> Document<'a> {
        let tenants = self.tenants().map(|(contract, judged)| Tenant {
            name: &contract.name,
            iops: contract.iops,
            size: contract.size,
            promised_s: contract.response_time.as_secs_f64(),
            expected_s: judged.measured.map(|(expected, _)| expected.as_secs_f64()),
            deliverable_s: judged.measured.map(|(_, deliverable)| deliverable.as_secs_f64()),
            margin_s: match judged.margin() {
                Margin::Spare(spare) => Some(spare.as_secs_f64()),
                Margin::Short(short) => Some(-short.as_secs_f64()),
                Margin::Unbounded => None,
            },
            kept: judged.is_kept(),
        });
        let admitted = self.verdict.is_admitted();
        let instead = || {
            let response_times = self.response_times().map(|all| {
                let said = all.into_iter();
                said.map(|(name, time)| ResponseTime { name, response_time_s: time.as_secs_f64() }).collect()
            });
            let rates = self.instead.map(|(scale, _)| {
                let contracts = self.contracts.as_slice().iter();
                let tenants = contracts.map(|contract| Rate {
                    name: &contract.name,
                    iops: Iops::new(scale * contract.iops.per_second()),
                });
                Rates { scale, tenants: tenants.collect() }
            });
            Instead { response_times, rates }
        };
        let Effort { seed, seeds, .. } = *self.effort;
        Document {
            admitted,
            iops: self.contracts.total(),
            capacity_iops: self.capacity,
            quantile: self.rule.quantile(),
            margin: self.rule.margin(),
            arrivals: self.effort.arrivals_name(),
            seeds: (0..seeds).map(|at| seed.wrapping_add(at.into())).collect(),
            tenants: tenants.collect(),
            instead: (!admitted).then(instead),
        }
    }
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, capacity) = (self.contracts.total().per_second(), self.capacity.per_second());
        writeln!(f, "{} IO/s together, of at most {capacity:.1}; {}\n", rate(asked), self.effort.said())?;
        let columns = ["tenant", "IO/s", "size", "promised", "RT^E", "RT^T", "margin", "verdict"];
        let mut rows = vec![heading(&columns)];
        for (contract, judged) in self.tenants() {
            let [expected, deliverable] = match judged.measured {
                Some((expected, deliverable)) => [expected, deliverable].map(|time| time.to_string()),
                None => ["-", "-"].map(str::to_owned),
            };
            let (margin, verdict) = match judged.margin() {
                Margin::Spare(spare) => (format!("+{spare}"), "kept"),
                Margin::Short(short) => (format!("-{short}"), "broken"),
                Margin::Unbounded => ("-".to_owned(), "overloaded"),
            };
            rows.push(vec![
                contract.name.to_string(),
                rate(contract.iops.per_second()),
                contract.size.to_string(),
                contract.response_time.to_string(),
                expected,
                deliverable,
                margin,
                verdict.to_owned(),
            ]);
        }
        write_rows(f, &rows)?;
        if self.verdict.is_admitted() {
            return writeln!(f, "admitted");
        }
        writeln!(f, "refused. What could be admitted instead:")?;
        match self.response_times() {
            Some(all) => {
                let said: Vec<_> = all.iter().map(|(name, time)| format!("{name} {time}")).collect();
                writeln!(f, "- at these rates, response times of: {}", said.join(", "))?;
            }
            None => writeln!(f, "- at these rates, nothing: the storage does not keep up with them")?,
        }
        match self.instead {
            Some((scale, _)) => {
                let contracts = self.contracts.as_slice().iter();
                let said = contracts.map(|contract| {
                    let iops = scale * contract.iops.per_second();
                    format!("{} {} IO/s", contract.name, rate(iops))
                });
                let said: Vec<_> = said.collect();
                writeln!(
                    f,
                    "- with these response times, {:.0} % of the rates: {}",
                    (100.0 * scale).floor(),
                    said.join(", ")
                )
            }
            None => writeln!(f, "- with these response times, not even 1 % of the rates"),
        }
    }
}

/// A rate without its unit, rounded down to what is said of it: what is proposed must not be more than was measured.
fn rate(per_second: f64) -> String {
    let decimals = match per_second {
        ..1.0 => 3,
        1.0..1_000.0 => 1,
        _ => 0,
    };
    let parts = 10f64.powi(decimals);
    // What is 40 by all that matters is not said to be 39.9.
    let down = (per_second * parts + 1e-6).floor() / parts;
    let decimals = if down.fract() > 0.0 { decimals as usize } else { 0 };
    format!("{down:.decimals$}")
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
    fn what_is_proposed_is_on_the_safe_side_of_what_was_measured() {
        let said = |nanos| said_up(Latency::from_nanos(nanos)).to_string();
        assert_eq!(
            [0, 7, 33_210_001, 33_300_000, 999_100_000].map(said),
            ["0ms", "7ns", "33.3ms", "33.3ms", "1.00s"]
        );
        assert_eq!([40.0, 36.56, 0.0919, 12_345.6].map(rate), ["40", "36.5", "0.091", "12345"]);
    }
}
