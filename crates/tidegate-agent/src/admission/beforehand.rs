//! What was measured of a storage beforehand, and whether requirements are within it.

use serde::Deserialize;
use tidegate_units::{Bytes, ConsumerName, Iops, Latency};

use super::standing::{Set, Verdict};

/// The answers of `tidegate admit --json`, as far as they were measured. At most some hundred: what the file is bounded to.
#[derive(Debug, Clone, PartialEq)]
pub struct Beforehand(Vec<Vec<Measured>>);

/// A tenant, and what was measured of it beside others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Measured {
    name: ConsumerName,
    iops: Iops,
    size: Bytes,
    /// RT^E and RT^T; nothing where the storage did not keep up.
    expected_s: Option<f64>,
    deliverable_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Day { periods: Vec<Answer> },
    One(Answer),
}

#[derive(Deserialize)]
struct Answer {
    tenants: Vec<Measured>,
}

impl Beforehand {
    /// Reads what `tidegate admit --json` printed.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let answers = match serde_json::from_str(text)? {
            Document::Day { periods } => periods,
            Document::One(answer) => vec![answer],
        };
        Ok(Self(answers.into_iter().map(|answer| answer.tenants).collect()))
    }

    /// A set is admitted when there is a measurement in which each of its exports was measured, at no lower rate and with no smaller
    /// requests than it is promised, and RT^T was no longer than the promise: who asks for less does not make response times longer.
    pub(super) fn judge(&self, set: &Set) -> Verdict {
        if set.is_empty() {
            return Verdict::Admitted(Vec::new());
        }
        let (demands, _) = match set.demands() {
            Ok(demands) => demands,
            Err(error) => return Verdict::Refused(error.to_string()),
        };
        let within = |measured: &Vec<Measured>| {
            let of = demands.as_slice().iter().map(|demand| {
                let of = |other: &&Measured| {
                    other.name == demand.name && other.iops >= demand.iops && other.size >= demand.size
                };
                let Measured { expected_s, deliverable_s, .. } = measured.iter().find(of)?;
                let deliverable = Latency::from_secs_f64((*deliverable_s)?);
                let expected = Latency::from_secs_f64((*expected_s)?);
                (deliverable <= demand.response_time).then(|| (demand.name.clone(), expected))
            });
            of.collect::<Option<Vec<_>>>()
        };
        self.0.iter().find_map(within).map_or_else(
            || {
                Verdict::Refused(
                    "nothing that was measured beforehand covers them: ask `tidegate admit`".to_owned(),
                )
            },
            Verdict::Admitted,
        )
    }
}
