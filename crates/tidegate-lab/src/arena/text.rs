//! The arena's result as a terminal shows it. Pure.

use std::fmt::Write;

use tidegate_experiments::arena::{ArenaDocument, ArenaSummary, FIGURES, ScenarioFigures, class_of};

/// The columns of the table: a figure, and its heading.
pub(super) const COLUMNS: [(&str, &str); 9] = [
    ("seconds_above_target", "above target"),
    ("throughput_vs_oracle", "thr : oracle"),
    ("least_served", "least served"),
    ("throughput_vs_unregulated", "thr : none"),
    ("latency_vs_unregulated", "lat : none"),
    ("settling_s", "settling s"),
    ("share_error", "share error"),
    ("oscillation", "oscillation"),
    ("harm", "harm"),
];

/// A row of the table: a class, the number of its scenarios, and median and bad end of each figure.
pub(super) struct ClassRow {
    /// Name of the class.
    pub(super) name: String,
    /// Number of its scenarios.
    pub(super) count: usize,
    /// One cell for each of [`COLUMNS`].
    pub(super) cells: Vec<String>,
}

/// Returns the rows of all classes, and one of everything.
pub(super) fn rows(document: &ArenaDocument) -> Vec<ClassRow> {
    let row = |name: &str, count: usize, summary: &ArenaSummary| ClassRow {
        name: name.to_owned(),
        count,
        cells: COLUMNS.iter().map(|(figure, _)| cell(summary, figure)).collect(),
    };
    let count = |class: &str| document.scenarios.iter().filter(|one| class_of(one) == class).count();
    let classes = document.classes.iter().map(|(name, summary)| row(name, count(name), summary));
    classes.chain([row("all", document.scenarios.len(), &document.summary)]).collect()
}

/// The median, and the percentile at the bad end: the 95th of what should be little, the 5th of the others.
fn cell(summary: &ArenaSummary, name: &str) -> String {
    let more_is_better = FIGURES.iter().any(|figure| figure.name == name && figure.more_is_better);
    match summary.get(name).copied().flatten() {
        Some(spread) => {
            let tail = if more_is_better { spread.p5 } else { spread.p95 };
            format!("{} {}", figure(spread.median), figure(tail))
        }
        None => "–".to_owned(),
    }
}

pub(super) fn figure(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Returns the table of classes and the worst scenarios.
pub(super) fn table(document: &ArenaDocument, worst: usize) -> String {
    let rows = rows(document);
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut out = heading(document);
    out.push_str("\n\n");
    let _ = write!(out, "{:<width$}  {:>3}", "class", "n");
    for (_, title) in COLUMNS {
        let _ = write!(out, "  {title:>12}");
    }
    out.push('\n');
    for row in &rows {
        let _ = write!(out, "{:<width$}  {:>3}", row.name, row.count);
        for cell in &row.cells {
            let _ = write!(out, "  {cell:>12}");
        }
        out.push('\n');
    }
    out.push_str("Each figure: median, and the percentile at its bad end (95th or 5th).\n\n");
    out.push_str(&worst_ones(document, worst));
    out
}

/// The law and the seeds.
pub(super) fn heading(document: &ArenaDocument) -> String {
    let last = document.scenarios.iter().filter_map(seed_of).max().unwrap_or(document.seed);
    format!("{}: {} scenarios, seeds {} to {last}", document.law, document.count, document.seed)
}

/// Returns the worst scenarios, a line each, with the command that replays it.
pub(super) fn worst_ones(document: &ArenaDocument, count: usize) -> String {
    let mut out = "The worst scenarios:\n".to_owned();
    for one in document.worst(count) {
        let _ = writeln!(out, "  {:<29} {}", one.id, summary_of(one));
        let _ = writeln!(out, "    {}", replay(document, one));
    }
    out
}

/// The figures of one scenario in words.
pub(super) fn summary_of(one: &ScenarioFigures) -> String {
    let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), figure);
    format!(
        "{}above target {:.1} %, throughput {} of the oracle's and {} of unregulated, least served {}, \
         harm {}",
        if one.attainable { "" } else { "unattainable, " },
        one.seconds_above_target * 100.0,
        or_dash(one.throughput_vs_oracle),
        or_dash(one.throughput_vs_unregulated),
        or_dash(one.least_served),
        figure(one.harm),
    )
}

fn seed_of(one: &ScenarioFigures) -> Option<u64> {
    one.id.rsplit('-').next()?.parse().ok()
}

/// The command that replays a scenario alone.
pub(super) fn replay(document: &ArenaDocument, one: &ScenarioFigures) -> String {
    let seed = seed_of(one).unwrap_or(document.seed);
    let file = one.file.as_ref().map(|file| format!("{file} ")).unwrap_or_default();
    format!("tidegate-lab arena {file}--seed {seed} --count 1 --law {}", document.law)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(seed: u64, above: f64, settling_s: Option<f64>) -> ScenarioFigures {
        ScenarioFigures {
            id: format!("write-back-{seed}"),
            kind: "write-back".to_owned(),
            file: None,
            attainable: true,
            seconds_above_target: above,
            throughput_vs_oracle: Some(0.98),
            throughput_vs_unregulated: Some(0.7),
            latency_vs_unregulated: Some(0.25),
            least_served: Some(0.9),
            settling_s,
            share_error: None,
            oscillation: Some(0.1),
            harm: 0.0,
        }
    }

    #[test]
    fn the_table_has_the_bad_ends_and_the_worst_seed() {
        let document = ArenaDocument::new(
            1_000_003,
            "window",
            vec![one(1_000_003, 0.01, None), one(1_000_004, 0.5, Some(12.4))],
        );
        let text = table(&document, 1);
        assert!(text.starts_with("window: 2 scenarios, seeds 1000003 to 1000004\n"), "{text}");
        let row = text.lines().find(|line| line.starts_with("write-back  ")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..4], ["write-back", "2", "0.50", "0.50"]);
        assert!(row.contains("12 12") && row.contains('–'), "{row}");
        assert!(text.contains("tidegate-lab arena --seed 1000004 --count 1 --law window"), "{text}");
        assert!(!text.contains("--seed 1000003"), "{text}");
    }
}
