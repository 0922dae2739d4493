//! The report in words and rows, for the terminal and for the page.

use std::fmt;

use tidegate_control::SignalRequests;
use tidegate_rehearsal::{
    ConsumerPrediction, DemandKind, Estimate, ModelReport, Prediction, RehearsalOutcome, RehearsalReport,
};
use tidegate_units::{Bytes, Latency};

use super::RehearsedResource;
use crate::columns::{heading, write_rows};

/// The columns of a consumer's row.
pub(super) const COLUMNS: [&str; 8] =
    ["consumer", "demand", "requests", "bytes", "latency", "with the law", "throughput", "later by"];

/// The meaning of the columns, a line for each group of them.
pub(super) const LEGEND: [&str; 4] = [
    "latency: mean at the storage, as recorded and with the law; the range of all runs in parentheses",
    "throughput: while the consumer was active, as a part of the recorded one",
    "later by: the greatest delay of the end of a consumer's work; its work is never lost",
    "demand: open arrives whatever the latency, closed keeps a number outstanding; unknown is taken as both",
];

/// Throughput within this part of the recorded one counts as the same.
const SAME: f64 = 0.02;

/// Delays below this, in seconds, are not worth a word.
const SOON: f64 = 2.0;

/// The text of all reports.
pub(super) struct RehearsalText<'a>(pub(super) &'a [RehearsedResource]);

impl fmt::Display for RehearsalText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rehearsed in self.0 {
            writeln!(f, "{}: {}", rehearsed.report.resource, headline(&rehearsed.report))?;
            for sentence in sentences(rehearsed) {
                writeln!(f, "  {sentence}")?;
            }
            writeln!(f)?;
            if let RehearsalOutcome::Predicted(prediction) = &rehearsed.report.outcome {
                let mut rows = vec![heading(&COLUMNS)];
                rows.extend(prediction.consumers.iter().map(row));
                write_rows(f, &rows)?;
            }
        }
        if self.0.iter().any(|one| matches!(one.report.outcome, RehearsalOutcome::Predicted(_))) {
            LEGEND.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        }
        Ok(())
    }
}

/// Returns the sentence at the top.
pub(super) fn headline(report: &RehearsalReport) -> String {
    let requests = match report.signal {
        SignalRequests::ProtectedReads => "protected reads",
        SignalRequests::Reads => "reads",
        SignalRequests::Everything => "requests",
    };
    let target = Latency::from_secs_f64(report.target_seconds);
    let measured = percent(report.measured.above_fraction);
    match &report.outcome {
        RehearsalOutcome::Predicted(prediction) => format!(
            "with the law, {requests} above {target} in {} of seconds instead of {measured}",
            percent_range(&prediction.above_fraction)
        ),
        RehearsalOutcome::Refused(_) => {
            format!("nothing can be claimed; {requests} were above {target} in {measured} of seconds")
        }
    }
}

/// Returns the sentences after it.
pub(super) fn sentences(rehearsed: &RehearsedResource) -> Vec<String> {
    let report = &rehearsed.report;
    let mut sentences = Vec::new();
    match &report.outcome {
        RehearsalOutcome::Predicted(prediction) => {
            sentences.extend(of_consumers(prediction));
            sentences.push(format!(
                "the law throttles in {} of the time; the mean latency is {} instead of {}",
                percent_range(&prediction.throttled_fraction),
                time_range(&prediction.latency_seconds),
                time(report.measured.latency_seconds),
            ));
        }
        RehearsalOutcome::Refused(reasons) => sentences.extend(reasons.iter().map(ToString::to_string)),
    }
    let law = report.law.map_or_else(String::new, |law| format!(" under the law {}", law.name()));
    sentences.push(format!(
        "rehearsed{law}: {} of recorded time, from {} to {}",
        span(report.recorded_seconds),
        rehearsed.from,
        rehearsed.to
    ));
    sentences.extend(report.model.iter().flat_map(of_model));
    sentences
}

fn of_consumers(prediction: &Prediction) -> impl Iterator<Item = String> + '_ {
    prediction.consumers.iter().filter(|consumer| !consumer.protected).filter_map(|consumer| {
        let slower = 1.0 - consumer.throughput.likely;
        let later = consumer.later_seconds;
        let pace = if slower > SAME {
            let range = Estimate {
                likely: slower,
                low: (1.0 - consumer.throughput.high).max(0.0),
                high: 1.0 - consumer.throughput.low,
            };
            format!("{} slower while it was active", percent_range(&range))
        } else if later.high >= SOON {
            "as fast as it was".to_owned()
        } else {
            return None;
        };
        let late = if later.likely >= SOON || later.high >= 2.0 * SOON {
            format!(", and done later by up to {}", span_range(&later))
        } else {
            String::new()
        };
        Some(format!("{}: {pace}{late}", consumer.name))
    })
}

fn of_model(model: &ModelReport) -> Vec<String> {
    let throughput = model
        .throughput_error
        .map_or_else(String::new, |error| format!(", and throughputs by {}", percent(error)));
    vec![
        format!(
            "the model misses ten-second latencies of unseen blocks by {} (median; 90 % by less than {})\
             {throughput}",
            percent(model.signal_error),
            percent(model.signal_error_p90),
        ),
        format!(
            "for the recorded time without the law, the model gives {} of seconds above the target",
            percent(model.reproduced_above_fraction)
        ),
    ]
}

/// Returns the row of a consumer, with a cell for each of [`COLUMNS`].
pub(super) fn row(consumer: &ConsumerPrediction) -> Vec<String> {
    let demand = match consumer.demand {
        DemandKind::Open => "open",
        DemandKind::Closed => "closed",
        DemandKind::Unknown => "unknown",
    };
    vec![
        consumer.name.to_string(),
        demand.to_owned(),
        format!("{:.0}", consumer.requests),
        Bytes::new(consumer.bytes as u64).to_string(),
        time(consumer.measured_latency_seconds),
        time_range(&consumer.latency_seconds),
        percent_range(&consumer.throughput),
        span_range(&consumer.later_seconds),
    ]
}

/// Returns a fraction in per cent.
pub(super) fn percent(part: f64) -> String {
    let hundred = 100.0 * part;
    if hundred < 10.0 { format!("{hundred:.1} %") } else { format!("{hundred:.0} %") }
}

fn percent_range(figure: &Estimate) -> String {
    range(figure, percent)
}

fn time(seconds: f64) -> String {
    Latency::from_secs_f64(seconds).rounded(10).to_string()
}

fn time_range(figure: &Estimate) -> String {
    range(figure, time)
}

/// Returns a length of time in words: in seconds, minutes or hours.
fn span(seconds: f64) -> String {
    if !seconds.is_finite() {
        "an unknown time".to_owned()
    } else if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7_200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3_600.0)
    }
}

fn span_range(figure: &Estimate) -> String {
    range(figure, span)
}

/// Returns a figure with its range. A range that rounds to one value is left out.
fn range(figure: &Estimate, text: impl Fn(f64) -> String) -> String {
    let [likely, low, high] = [figure.likely, figure.low, figure.high].map(text);
    if low == high { likely } else { format!("{likely} ({low} to {high})") }
}
