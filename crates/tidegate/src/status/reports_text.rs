//! Text form of latencies that other machines report to an agent.

use std::fmt;

use tidegate_service::status::{ReporterStatus, ResourceStatus, SignalOrigin, SourceStatus};
use tidegate_units::Latency;

use crate::columns::{heading, write_rows};

/// The reports on a resource, and the source of its latency, for people.
pub(super) struct ReportsText<'a>(pub(super) &'a ResourceStatus);

impl fmt::Display for ReportsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.0.source {
            writeln!(f, "{}", sentence(source))?;
        }
        if self.0.reporters.is_empty() {
            return Ok(());
        }
        if let Some(origin) = self.0.signal_origin {
            writeln!(f, "{}", origin_words(origin))?;
        }
        let mut rows = vec![heading(&["initiator", "last report", "reads took", "use"])];
        rows.extend(self.0.reporters.iter().map(row));
        write_rows(f, &rows)
    }
}

/// Returns the origin of the signal of a resource that takes reports, in words.
const fn origin_words(origin: SignalOrigin) -> &'static str {
    match origin {
        SignalOrigin::Reports => "signal by initiators' reports: longer than what this host measures",
        SignalOrigin::Measured => "signal by this host: no report that counts is longer",
        SignalOrigin::Source => "signal by the source",
    }
}

fn sentence(source: &SourceStatus) -> String {
    let latest = match (source.latency_seconds, source.age_seconds) {
        (Some(latency), Some(age)) => format!("{}, {} ago", time(latency), time(age)),
        (None, Some(age)) => format!("no samples, {} ago: the array is idle", time(age)),
        _ => "no answer yet".to_owned(),
    };
    let old = if source.counts { "" } else { "; TOO OLD: nothing is throttled" };
    let trouble = source.trouble.as_ref().map(|why| format!("; the last question failed: {why}"));
    format!("latency by {}: {latest}{old}{}", source.place, trouble.unwrap_or_default())
}

fn row(one: &ReporterStatus) -> Vec<String> {
    let reads = one.mean_seconds.map_or_else(|| "no read".to_owned(), time);
    vec![one.host.clone(), format!("{} ago", time(one.age_seconds)), reads, one.said.clone()]
}

fn time(seconds: f64) -> String {
    Latency::from_secs_f64(seconds).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_silent_is_said() {
        let place = "object 1.3 of the SNMP agent at 10.0.0.9:161".to_owned();
        let trouble = Some("no answer within 2s".to_owned());
        let silent = SourceStatus { place, age_seconds: None, latency_seconds: None, counts: false, trouble };
        assert_eq!(
            sentence(&silent),
            "latency by object 1.3 of the SNMP agent at 10.0.0.9:161: no answer yet; TOO OLD: nothing is \
                throttled; the last question failed: no answer within 2s"
        );
        let young = SourceStatus {
            age_seconds: Some(1.5),
            latency_seconds: Some(0.0125),
            counts: true,
            trouble: None,
            ..silent
        };
        assert!(sentence(&young).ends_with(": 12.5ms, 1.50s ago"), "{}", sentence(&young));
        let idle = SourceStatus { latency_seconds: None, ..young };
        assert!(
            sentence(&idle).ends_with(": no samples, 1.50s ago: the array is idle"),
            "{}",
            sentence(&idle)
        );
    }
}
