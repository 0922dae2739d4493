//! Measurements made of a storage beforehand, and the judgement of requirements by them.

use serde::Deserialize;
use tidegate_units::{Bytes, ConsumerName, Iops, Latency};

use super::promises::{PromiseSet, SetVerdict};

/// The answers of `tidegate admit --json`, as far as they were measured. At most some hundred: what the file
/// is bounded to.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownAnswers(Vec<KnownAnswer>);

/// A tenant, and what was measured of it beside others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct MeasuredTenant {
    name: ConsumerName,
    iops: Iops,
    size: Bytes,
    /// Its weight in the scheduler, where that was part of what was measured.
    weight: Option<u32>,
    /// RT^E and RT^T; nothing where the storage did not keep up.
    expected_s: Option<f64>,
    deliverable_s: Option<f64>,
}

/// Arrivals of `tidegate admit` that are easier to keep up with than those in step.
const KINDER: [&str; 2] = ["even", "drawn"];

/// Returns true if the two numbers of every pair are in the same proportion.
fn are_in_proportion(pairs: &[(u32, u32)]) -> bool {
    let product = |one: u32, other: u32| u64::from(one) * u64::from(other);
    pairs.windows(2).all(|two| product(two[0].0, two[1].1) == product(two[1].0, two[0].1))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AnswerDocument {
    Day { periods: Vec<KnownAnswer> },
    One(KnownAnswer),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct KnownAnswer {
    /// The arrival of requests in the measurement.
    arrivals: Option<String>,
    tenants: Vec<MeasuredTenant>,
}

impl KnownAnswers {
    /// Reads what `tidegate admit --json` printed.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let answers = match serde_json::from_str(text)? {
            AnswerDocument::Day { periods } => periods,
            AnswerDocument::One(answer) => vec![answer],
        };
        Ok(Self(answers))
    }

    /// A set is admitted by a measurement with three properties. Each of its exports was measured, at no
    /// lower rate and with no smaller requests than it is promised. RT^T was no longer than the promise:
    /// lower demand does not make response times longer. Weights, where they are known, are in the same
    /// proportions. A measurement of load that came more kindly than buckets in step let it come, which is
    /// how contracts are regulated, says nothing.
    pub fn judge(&self, set: &PromiseSet) -> SetVerdict {
        if set.is_empty() {
            return SetVerdict::Admitted(Vec::new());
        }
        let (demands, shares) = match set.demands() {
            Ok(both) => both,
            Err(error) => return SetVerdict::Refused(error.to_string()),
        };
        let within = |KnownAnswer { arrivals, tenants: measured }: &KnownAnswer| {
            if arrivals.as_deref().is_some_and(|how| KINDER.contains(&how)) {
                return None;
            }
            let of_name = |name: &ConsumerName| measured.iter().find(|other| other.name == *name);
            let weights = demands.as_slice().iter().zip(&shares);
            let weights =
                weights.filter_map(|(demand, shares)| Some((of_name(&demand.name)?.weight?, shares.get())));
            if !are_in_proportion(&weights.collect::<Vec<_>>()) {
                return None;
            }
            let of = demands.as_slice().iter().map(|demand| {
                let of = |other: &&MeasuredTenant| {
                    other.name == demand.name && other.iops >= demand.iops && other.size >= demand.size
                };
                let MeasuredTenant { expected_s, deliverable_s, .. } = measured.iter().find(of)?;
                let deliverable = Latency::from_secs_f64((*deliverable_s)?);
                let expected = Latency::from_secs_f64((*expected_s)?);
                (deliverable <= demand.response_time).then(|| (demand.name.clone(), expected))
            });
            of.collect::<Option<Vec<_>>>()
        };
        self.0.iter().find_map(within).map_or_else(
            || {
                SetVerdict::Refused(
                    "nothing that was measured beforehand covers them: ask `tidegate admit`".to_owned(),
                )
            },
            SetVerdict::Admitted,
        )
    }
}
