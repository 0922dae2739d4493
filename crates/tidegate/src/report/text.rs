//! The statement in words and rows, for the terminal and for the page.

use std::fmt;

use tidegate_rollups::JudgedBy;
use tidegate_service::statement::{MonthStatement, PromiseFigures, SpanFigures};
use tidegate_service::status::KEPT;
use tidegate_units::{Bytes, Iops, Latency};

use crate::columns::{heading, write_rows};

/// The columns of a day's row.
pub(super) const COLUMNS: [&str; 14] = [
    "day", "kept", "judged", "missed", "idle", "unknown", "requests", "mean", "peak", "read", "written",
    "storage", "client", "waited",
];

/// The meaning of the columns, a line for each group of them.
pub(super) const LEGEND: [&str; 4] = [
    "kept: the part of the judged seconds or requests that was within the promise",
    "judged, missed, idle, unknown: minutes; missed ones are judged ones of which less than 95 % was kept",
    "storage, client: mean latency at the storage, and as the client sees it, less the network",
    "waited: time throttled by the law + at the limit; looked at four times a second",
];

/// The text of a statement.
pub(super) struct StatementText<'a>(pub(super) &'a MonthStatement);

impl fmt::Display for StatementText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statement = self.0;
        writeln!(f, "{}", headline(statement))?;
        for sentence in sentences(statement) {
            writeln!(f, "  {sentence}")?;
        }
        writeln!(f)?;
        let mut rows = vec![heading(&COLUMNS)];
        rows.extend(day_rows(statement));
        rows.push(row("month".to_owned(), &statement.total));
        write_rows(f, &rows)?;
        LEGEND.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Returns the sentence at the top: whether the promise was kept.
pub(super) fn headline(statement: &MonthStatement) -> String {
    let MonthStatement { consumer, month, .. } = statement;
    let so_far = if statement.is_over { "" } else { " so far" };
    let verdict = match statement.is_kept {
        Some(true) => "the promise was kept",
        Some(false) => "the promise was not kept",
        None if statement.total.promises.is_empty() => "nothing was promised",
        None => "it is not known whether the promise was kept: nothing was judged",
    };
    format!("{consumer} in {month}{so_far}: {verdict}")
}

/// Returns the sentences after it.
pub(super) fn sentences(statement: &MonthStatement) -> Vec<String> {
    let mut sentences: Vec<_> = statement.total.promises.iter().map(fulfilment).collect();
    let minutes = &statement.total.minutes;
    let judged = [
        (minutes.judged, "judged"),
        (minutes.idle, "idle"),
        (minutes.unpromised, "without a promise"),
        (minutes.unknown, "unknown"),
    ];
    let judged: Vec<_> = judged
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, kind)| format!("{} {kind}", grouped(number)))
        .collect();
    sentences.push(format!(
        "{} minutes: {}; in {} of the judged ones less than {} was kept",
        grouped(minutes.total),
        judged.join(", "),
        grouped(minutes.missed),
        per_cent(KEPT),
    ));
    if minutes.unknown > 0 {
        sentences.push(
            "in unknown minutes the service did not run or judged nothing; they count neither as kept nor as \
             missed"
                .to_owned(),
        );
    }
    if let Some(first) = statement.days.first().filter(|first| first.day > 1) {
        let day = day_name(statement, first.day);
        sentences.push(format!("nothing is known of the days before {day}, which are left out"));
    }
    sentences.push("days are days in UTC".to_owned());
    sentences
}

fn fulfilment(promise: &PromiseFigures) -> String {
    let within = Latency::from_secs_f64(promise.response_time_seconds);
    let unit = match promise.judged_by {
        JudgedBy::Seconds => "seconds with a mean latency",
        JudgedBy::Requests => "requests",
    };
    match promise.kept_fraction {
        Some(part) => format!(
            "{} of {} {unit} within {within}; {} or more counts as kept",
            per_cent(part),
            grouped(promise.judged),
            per_cent(KEPT),
        ),
        None => format!("within {within}: no {unit} were judged"),
    }
}

/// Returns a row for each day.
pub(super) fn day_rows(statement: &MonthStatement) -> Vec<Vec<String>> {
    statement.days.iter().map(|day| row(day_name(statement, day.day), &day.figures)).collect()
}

fn day_name(statement: &MonthStatement, day: u32) -> String {
    format!("{}-{day:02}", statement.month)
}

/// Returns the row of a day or the month, with a cell for each of [`COLUMNS`].
pub(super) fn row(name: String, figures: &SpanFigures) -> Vec<String> {
    let minutes = &figures.minutes;
    let time = |seconds: Option<f64>| {
        seconds.map_or_else(unknown, |seconds| Latency::from_secs_f64(seconds).to_string())
    };
    let rate = |iops: Option<f64>| iops.map_or_else(unknown, |iops| Iops::new(iops).to_string());
    let waited = figures.waited.law_seconds + figures.waited.limit_seconds;
    vec![
        name,
        kept(figures).unwrap_or_else(unknown),
        minutes.judged.to_string(),
        minutes.missed.to_string(),
        minutes.idle.to_string(),
        minutes.unknown.to_string(),
        figures.requests.to_string(),
        rate(figures.iops),
        rate(figures.peak_iops),
        Bytes::new(figures.read_bytes).to_string(),
        Bytes::new(figures.written_bytes).to_string(),
        time(figures.storage_seconds),
        time(figures.client_seconds),
        span(waited),
    ]
}

/// Returns the kept part of a span; of several promises the least kept one's.
pub(super) fn kept_part(figures: &SpanFigures) -> Option<f64> {
    figures.promises.iter().filter_map(|promise| promise.kept_fraction).reduce(f64::min)
}

fn kept(figures: &SpanFigures) -> Option<String> {
    kept_part(figures).map(per_cent)
}

fn unknown() -> String {
    "–".to_owned()
}

/// Writes a part in per cent, rounded down: what is missing must not look whole.
pub(super) fn per_cent(part: f64) -> String {
    let hundredths = (part * 10_000.0 + 1e-6).floor() / 100.0;
    if hundredths.fract().abs() < 1e-9 { format!("{hundredths:.0} %") } else { format!("{hundredths:.2} %") }
}

/// Writes a whole number in groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Writes a length of time that may be hours.
fn span(seconds: f64) -> String {
    match seconds {
        0.0..60.0 => format!("{seconds:.0}s"),
        60.0..3_600.0 => format!("{:.0}min", seconds / 60.0),
        _ => format!("{:.1}h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_down_and_numbers_are_grouped() {
        assert_eq!(
            [0.0, 0.95, 0.999_999, 1.0, 0.9931].map(per_cent),
            ["0 %", "95 %", "99.99 %", "100 %", "99.31 %"]
        );
        assert_eq!([0, 999, 1_000, 2_591_000].map(grouped), ["0", "999", "1,000", "2,591,000"]);
        assert_eq!([0.0, 59.4, 60.0, 3_600.0].map(span), ["0s", "59s", "1min", "1.0h"]);
    }
}
