//! Every law on every scenario. What is measured, and how, is `tidegate_experiments::tournament`'s business.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use tidegate_experiments::tournament::{LawResult, TournamentReport, tournament};
use tidegate_experiments::{SEEDS, SHORT_SEEDS};

use super::error::ReproduceError;
use super::text::figure;
use crate::parallel::ParallelRunner;

/// The tournament's name among the experiments.
pub(super) const NAME: &str = "tournament";

/// Runs it, and says what came of it.
///
/// # Errors
/// When a scenario cannot be simulated.
pub(super) fn run(short: bool, json: bool) -> Result<String, ReproduceError> {
    let tournament = tournament(if short { SHORT_SEEDS } else { SEEDS });
    let results = ParallelRunner::new(io::stderr().is_terminal()).each(
        tournament.matches(),
        |one| format!("{}, seed {}", tournament.name(one), one.seed),
        |one| {
            let what = tournament.name(one);
            tournament.run(one).map_err(|source| ReproduceError::Tournament { what, source })
        },
    )?;
    let report = tournament.report(&results);
    if json {
        let json =
            serde_json::to_string_pretty(&report).map_err(|error| ReproduceError::Output(error.into()))?;
        return Ok(format!("{json}\n"));
    }
    Ok(table(&report))
}

/// The columns of the table.
pub(super) const COLUMNS: [&str; 6] =
    ["law", "above target", "overshoot", "settling, s", "throughput : oracle", "share error"];

/// A row of the table, without the scenario. Also of the document.
pub(super) fn cells(law: &LawResult, seeds: usize) -> [String; 6] {
    let number = |value: Option<f64>| value.map_or("–".to_owned(), figure);
    let settling = match law.settling_s {
        Some(settling) if law.settled < seeds => format!("{} ({} of {seeds})", figure(settling), law.settled),
        None if law.reason.is_none() => "never".to_owned(),
        settling => number(settling),
    };
    [
        law.name.clone(),
        number(law.above_target_fraction),
        number(law.overshoot),
        settling,
        number(law.throughput_vs_oracle),
        number(law.share_error),
    ]
}

fn table(report: &TournamentReport) -> String {
    let mut out = String::new();
    let seeds = report.seeds.len();
    for scenario in &report.scenarios {
        let _ = writeln!(out, "{}  {}", scenario.id, scenario.title);
        let rows = scenario.laws.iter().map(|law| (cells(law, seeds), law.reason.as_deref()));
        for (row, reason) in std::iter::once((COLUMNS.map(ToOwned::to_owned), None)).chain(rows) {
            let [law, above, overshoot, settling, throughput, share] = row;
            let line = format!(
                "    {law:<20}  {above:>12}  {overshoot:>9}  {settling:>14}  {throughput:>19}  {share:>11}"
            );
            let _ = match reason {
                Some(reason) => writeln!(out, "{line}  {reason}"),
                None => writeln!(out, "{line}"),
            };
        }
    }
    let _ = writeln!(out, "Means over {seeds} seeds. Every law has one set of parameters for all scenarios.");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(settling_s: Option<f64>, settled: usize, reason: Option<&str>) -> LawResult {
        LawResult {
            name: "window".to_owned(),
            above_target_fraction: Some(0.25),
            overshoot: None,
            settling_s,
            throughput_vs_oracle: Some(1.0),
            share_error: None,
            settled,
            reason: reason.map(ToOwned::to_owned),
            spread: None,
        }
    }

    #[test]
    fn what_settles_at_times_never_or_is_not_there_is_told_apart() {
        let settling = |law: &LawResult| cells(law, 2)[3].clone();
        assert_eq!(settling(&law(Some(3.0), 2, None)), "3");
        assert_eq!(settling(&law(Some(3.0), 1, None)), "3 (1 of 2)");
        assert_eq!(settling(&law(None, 0, None)), "never");
        assert_eq!(settling(&law(None, 0, Some("it does not apply"))), "–");
    }
}
