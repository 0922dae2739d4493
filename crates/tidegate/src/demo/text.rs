//! The demonstration in words and figures: what a terminal, a log and the report say. Pure.

use std::fmt::Write;

use super::judge::{DemoGoal, DemoOutcome, GoalMeasure, GoalName, PhaseResult};
use super::plan::{BURST_START_SECONDS, PhaseName, WRITERS};
use super::progress::DemoProgress;

/// The columns of the result, beside the phase's name.
pub(crate) const COLUMNS: [&str; 8] =
    ["mean", "p50", "p95", "p99", "above target", "burst peak", "MB/s", "kept"];

/// The cells of a phase under [`COLUMNS`].
pub(crate) fn cells(phase: &PhaseResult) -> [String; 8] {
    let latency = phase.victim_latency_ms;
    let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "–".to_owned());
    let wrote = phase.bursts > 0;
    [
        millis(latency.mean),
        millis(latency.p50),
        millis(latency.p95),
        millis(latency.p99),
        percent(phase.above_target_of_all_fraction),
        or_dash(phase.burst_start_peak_ms.map(millis)),
        or_dash(wrote.then(|| format!("{:.1}", phase.writers_bytes_per_s / 1e6))),
        or_dash(phase.writers_kept_fraction.map(percent)),
    ]
}

/// The result as a table.
pub(crate) fn table(outcome: &DemoOutcome) -> String {
    // With the phase 80 columns, which every terminal has.
    const WIDTHS: [usize; 8] = [8, 8, 8, 8, 13, 11, 6, 7];
    let mut out = format!("{:<11}", "");
    for (column, width) in COLUMNS.iter().zip(WIDTHS) {
        let _ = write!(out, "{column:>width$}");
    }
    for phase in &outcome.phases {
        let _ = write!(out, "\n{:<11}", phase.name);
        for (cell, width) in cells(phase).iter().zip(WIDTHS) {
            let _ = write!(out, "{cell:>width$}");
        }
    }
    out.push('\n');
    out
}

/// Returns the meaning of the columns, where their names cannot say it.
pub(crate) fn legend(outcome: &DemoOutcome) -> String {
    format!(
        "Latencies of the database's 4 KiB reads over its socket; nothing is left out. Above target: the \
         share of all seconds whose mean exceeds {}. Burst peak: the greatest 1 s mean in the \
         {BURST_START_SECONDS} s after the start of a burst. MB/s: what the {WRITERS} backups write over the \
         time they are on. Kept: their share of what they wrote unregulated.",
        millis(outcome.target_ms.as_millis_f64())
    )
}

/// Breaks a paragraph into lines that a terminal shows whole.
pub(crate) fn wrapped(paragraph: &str) -> String {
    tidegate_program::wrap(paragraph, 80)
}

/// The result in one breath: of all seconds, and beside it what the starts of bursts cost.
pub(crate) fn headline(outcome: &DemoOutcome) -> String {
    let measured = |name| outcome.phase(name).filter(|phase| phase.victim_reads > 0);
    let phases = measured(PhaseName::Unregulated).zip(measured(PhaseName::Regulated));
    let Some((without, with)) = phases else { return "Too little was measured to say anything.".to_owned() };
    let Some(kept) = with.writers_kept_fraction else {
        return "Too little was measured to say anything.".to_owned();
    };
    let within = |above: f64| percent(1.0 - above);
    let target = millis(outcome.target_ms.as_millis_f64());
    let starts = with.burst_start_peak_ms.map_or_else(String::new, |peak| {
        format!(
            ", and in {} without the first {BURST_START_SECONDS} s of each burst, of which the worst second \
             took {}",
            within(with.above_target_fraction),
            millis(peak)
        )
    });
    format!(
        "With the backups running, the database's reads took {} on average. With Tidegate they took {}, and \
         the backups kept {} of their throughput. The target of {target} was kept in {} of all \
         seconds{starts}.",
        millis(without.victim_latency_ms.mean),
        millis(with.victim_latency_ms.mean),
        percent(kept),
        within(with.above_target_of_all_fraction),
    )
}

/// A goal, what was measured, and whether that meets it.
pub(crate) fn sentence(goal: &DemoGoal) -> String {
    let (value, bound) = (measured(goal), wanted(goal));
    let what = match goal.name {
        GoalName::RegulatedWithinTargetFraction => {
            "regulated: seconds within the target, after starts of bursts"
        }
        GoalName::RegulatedMeanMs => "regulated: mean response time",
        GoalName::UnregulatedMeanMs => "unregulated: mean response time",
        GoalName::WritersKeptFraction => "regulated: throughput the backups kept",
    };
    format!("{}  {what}: {value} (goal: {bound})", if goal.met { "met   " } else { "MISSED" })
}

/// Returns the measured value of a goal.
pub(crate) fn measured(goal: &DemoGoal) -> String {
    goal.value.map_or_else(|| "not measured".to_owned(), |value| figure(goal.name, value))
}

/// Returns the bound of a goal.
pub(crate) fn wanted(goal: &DemoGoal) -> String {
    match goal.bound {
        GoalMeasure::AtLeast(least) => format!("at least {}", figure(goal.name, least)),
        GoalMeasure::AtMost(most) => format!("at most {}", figure(goal.name, most)),
    }
}

fn figure(name: GoalName, value: f64) -> String {
    match name {
        GoalName::RegulatedWithinTargetFraction | GoalName::WritersKeptFraction => percent(value),
        GoalName::RegulatedMeanMs | GoalName::UnregulatedMeanMs => millis(value),
    }
}

/// All goals and what they come to.
pub(crate) fn verdict(outcome: &DemoOutcome) -> String {
    let mut out = String::new();
    for goal in &outcome.verdict.goals {
        let _ = writeln!(out, "{}", sentence(goal));
    }
    let missed = outcome.verdict.goals.iter().filter(|goal| !goal.met).count();
    let _ = match missed {
        0 => writeln!(out, "All goals met."),
        1 => writeln!(out, "One goal was missed."),
        n => writeln!(out, "{n} goals were missed."),
    };
    out
}

/// Says when this machine was too busy to measure what it measured; nothing when it was not.
pub(crate) fn caution(outcome: &DemoOutcome) -> Option<String> {
    let latest = outcome.phases.iter().max_by(|a, b| a.woke_late_ms.total_cmp(&b.woke_late_ms))?;
    (latest.woke_late_ms > outcome.target_ms.as_millis_f64()).then(|| {
        format!(
            "Caution: this machine was busy with something else. In the phase {} the demonstration itself \
                was once \
             held up for {}, and so may have been any read.",
            latest.name,
            millis(latest.woke_late_ms)
        )
    })
}

/// A line for a log while the demonstration runs.
pub(crate) fn progress_line(progress: &DemoProgress) -> String {
    let Some(phase) = progress.phase() else { return "starting".to_owned() };
    let mut out = format!(
        "[{:>3.0}/{} s] {}: {}",
        progress.seconds_done(),
        progress.plan.seconds(),
        phase.name,
        if progress.writers_on() { "backups writing" } else { "backups silent" },
    );
    if let Some(second) = progress.latest() {
        match second.mean() {
            Some(mean) => {
                let _ = write!(out, ", reads {}", millis(mean.as_millis_f64()));
            }
            None => out.push_str(", no read completed"),
        }
        let _ = write!(out, ", backups {:.1} MB/s", second.written.get() as f64 / 1e6);
    }
    if let Some(why) = &progress.why {
        let _ = write!(out, "; {why}");
    }
    out
}

/// Milliseconds with as many digits as matter.
pub(crate) fn millis(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.1} ms"),
        value => format!("{value:.0} ms"),
    }
}

/// A share in per cent.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    // A share just below a goal must not read as the goal.
    let floored = (percent * 10.0 + 1e-9).floor() / 10.0;
    if floored.fract().abs() < 1e-9 { format!("{floored:.0} %") } else { format!("{floored:.1} %") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_units::{Bytes, Latency, Window};

    use super::super::judge::judge;
    use super::super::progress::DemoEvent;
    use super::super::timeline::ThrottleState;
    use super::super::timeline::tests::{example, second};
    use super::*;

    #[test]
    fn the_table_has_a_row_per_phase_in_straight_columns() {
        let table = table(&judge(&example()));
        let rows: Vec<_> = table.lines().collect();
        assert_eq!(rows.len(), 4);
        let width = rows[0].chars().count();
        assert!(rows.iter().all(|row| row.chars().count() == width), "{table}");
        assert!(width <= 80, "it wraps where the live view fits: {table}");
        assert!(rows[3].starts_with("regulated"));
        for cell in ["11.0 ms", "20.0 ms", "28.1", "72.1 %"] {
            assert!(rows[3].contains(cell), "{cell}: {table}");
        }
        assert!(rows[1].contains('–'), "alone nothing was written: {table}");
    }

    #[test]
    fn the_headline_counts_all_seconds_and_says_what_the_starts_of_bursts_cost() {
        let mut timeline = example();
        let said = headline(&judge(&timeline));
        let kept = "The target of 15.0 ms was kept in 94.2 % of all seconds, and in 100 % without the first \
                    3 s of each burst, of which the worst second took 20.0 ms.";
        assert!(said.ends_with(kept), "{said}");
        timeline.phases[2].distribution.count = 0;
        assert_eq!(headline(&judge(&timeline)), "Too little was measured to say anything.");
    }

    #[test]
    fn a_missed_goal_is_said_aloud() {
        let mut timeline = example();
        let good = verdict(&judge(&timeline));
        assert!(!good.contains("MISSED") && good.contains("All goals met."), "{good}");
        timeline.phases[2].distribution.mean = Latency::from_millis(16);
        let bad = verdict(&judge(&timeline));
        assert!(
            bad.contains("MISSED  regulated: mean response time: 16.0 ms (goal: at most 15.0 ms)\n"),
            "{bad}"
        );
        assert!(bad.contains("One goal was missed."), "{bad}");
    }

    #[test]
    fn paragraphs_fit_the_terminal_and_lose_nothing() {
        let paragraph = legend(&judge(&example()));
        let wrapped = wrapped(&paragraph);
        assert!(wrapped.lines().count() > 3 && wrapped.lines().all(|line| line.chars().count() <= 80));
        assert_eq!(wrapped.replace('\n', " "), paragraph);
    }

    #[test]
    fn a_busy_machine_is_named() {
        let mut timeline = example();
        assert_eq!(caution(&judge(&timeline)), None);
        timeline.phases[1].woke_late = Latency::from_millis(700);
        let caution = caution(&judge(&timeline)).unwrap();
        assert!(caution.contains("unregulated") && caution.contains("700 ms"), "{caution}");
    }

    #[test]
    fn a_share_below_the_goal_never_reads_as_the_goal() {
        assert_eq!(percent(0.6499), "64.9 %");
        assert_eq!(percent(0.65), "65 %");
        assert_eq!(percent(0.99999), "99.9 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.07), "7 %");
    }

    #[test]
    fn a_line_says_where_we_are_and_why() {
        let mut progress = DemoProgress::new(example().plan);
        assert_eq!(progress_line(&progress), "starting");
        progress.apply(DemoEvent::PhaseBegins);
        progress.apply(DemoEvent::PhaseBegins);
        progress.apply(DemoEvent::Second(second(45, Bytes::new(39_000_000))));
        progress.apply(DemoEvent::Now {
            elapsed: Duration::from_secs(2),
            held: ThrottleState { window: Some(Window::new(2.0)), ..ThrottleState::default() },
            why: Some("because".to_owned()),
        });
        assert_eq!(
            progress_line(&progress),
            "[ 12/185 s] unregulated: backups writing, reads 45.0 ms, backups 39.0 MB/s; because"
        );
    }
}
