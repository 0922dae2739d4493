//! The verdict, for people.

use std::fmt;

use tidegate_admission::LatencyMargin;
use tidegate_serve::admission::AdmissionAnswer;

use crate::columns::{heading, write_rows};

/// The answer, as it is printed.
pub(super) struct AdmitOutput<'a> {
    pub(super) answer: AdmissionAnswer<'a>,
    /// The way in which it was measured.
    pub(super) how: String,
    /// The meaning of the case that no part of the rates was found to be admitted.
    pub(super) nothing: &'static str,
}

impl fmt::Display for AdmitOutput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answer, how, .. } = self;
        write!(f, "{} IO/s together", rate(answer.contracts.total().per_second()))?;
        if let Some(capacity) = answer.capacity {
            write!(f, ", of at most {:.1}", capacity.per_second())?;
        }
        writeln!(f, "; {how}\n")?;
        let columns = ["tenant", "IO/s", "size", "promised", "RT^E", "RT^T", "margin", "verdict"];
        let mut rows = vec![heading(&columns)];
        for (contract, judged) in answer.tenants() {
            let [expected, deliverable] = match judged.measured {
                Some((expected, deliverable)) => [expected, deliverable].map(|time| time.to_string()),
                None => ["-", "-"].map(str::to_owned),
            };
            let (margin, verdict) = match judged.margin() {
                LatencyMargin::Spare(spare) => (format!("+{spare}"), "kept"),
                LatencyMargin::Short(short) => (format!("-{short}"), "broken"),
                LatencyMargin::Unbounded => ("-".to_owned(), "overloaded"),
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
        if answer.decided.verdict.is_admitted() {
            return writeln!(f, "admitted");
        }
        writeln!(f, "refused. What could be admitted instead:")?;
        match answer.response_times() {
            Some(all) => {
                let said: Vec<_> = all.iter().map(|(name, time)| format!("{name} {time}")).collect();
                writeln!(f, "- at these rates, response times of: {}", said.join(", "))?;
            }
            None => writeln!(f, "- at these rates, nothing: the storage does not keep up with them")?,
        }
        match answer.decided.instead {
            Some((scale, _)) => {
                let contracts = answer.contracts.as_slice().iter();
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
            None => writeln!(f, "- with these response times, {}", self.nothing),
        }
    }
}

/// A rate without its unit, rounded down to what is said of it: what is proposed must not be more than was
/// measured.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_is_not_more_than_what_was_measured() {
        assert_eq!([40.0, 36.56, 0.0919, 12_345.6].map(rate), ["40", "36.5", "0.091", "12345"]);
    }
}
