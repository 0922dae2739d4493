//! The outcome of a simulation for people.

use std::fmt;

use tidegate_sim::{LatencySummary, MissedShares, SimulationOutcome, WindowOutcome};
use tidegate_units::{ByteRate, Iops};

use crate::columns::{heading, write_rows};

/// The outcome as tables.
pub(super) struct OutcomeTable<'a>(pub(super) &'a SimulationOutcome);

impl fmt::Display for OutcomeTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.0;
        writeln!(
            f,
            "{}: {} s, statistics from {} s on, seed {}\n",
            outcome.scenario, outcome.duration_s, outcome.warmup_s, outcome.seed
        )?;
        let mut rows = vec![heading(&["array", "IO/s", "bytes/s", "mean ms", "p50", "p95", "p99"])];
        for (name, resource) in outcome.resources.iter() {
            let mut row = vec![name.to_string(), iops(resource.iops), bytes(resource.bytes_per_s)];
            row.extend(latencies(resource.latency_ms));
            rows.push(row);
        }
        write_rows(f, &rows)?;
        let mut rows = vec![heading(&[
            "host",
            "array",
            "IO/s",
            "bytes/s",
            "array ms",
            "window",
            "at the end",
            "beta",
            "reservations",
        ])];
        for (name, host) in outcome.hosts.iter() {
            let [mean, last] = window(Some(host.window));
            let (rate, bytes) = (iops(host.iops), bytes(host.bytes_per_s));
            let (latency, beta) = (number(host.device_latency_ms), number(host.beta));
            rows.push(vec![
                name.to_string(),
                host.resource.to_string(),
                rate,
                bytes,
                latency,
                mean,
                last,
                beta,
                reservations(host.reservations_missed),
            ]);
        }
        write_rows(f, &rows)?;
        let mut rows = vec![heading(&[
            "consumer",
            "host",
            "shares",
            "IO/s",
            "bytes/s",
            "ops/s",
            "mean ms",
            "p50",
            "p95",
            "p99",
            "array ms",
            "outstanding",
            "above target",
        ])];
        for (name, consumer) in outcome.consumers.iter() {
            let mut row = vec![name.to_string(), consumer.host.to_string(), consumer.shares.to_string()];
            row.extend([iops(consumer.iops), bytes(consumer.bytes_per_s), iops(consumer.ops_per_s)]);
            row.extend(latencies(consumer.latency_ms));
            row.extend([number(consumer.device_latency_ms), number(Some(consumer.outstanding))]);
            row.push(
                consumer
                    .above_target_fraction
                    .map_or(NONE.to_owned(), |part| format!("{:.1} %", part * 100.0)),
            );
            rows.push(row);
        }
        write_rows(f, &rows)
    }
}

const NONE: &str = "-";

fn iops(per_second: f64) -> String {
    let text = Iops::new(per_second).to_string();
    text.strip_suffix(" IO/s").map_or(text.clone(), str::to_owned)
}

fn bytes(per_second: f64) -> String {
    ByteRate::new(per_second).to_string()
}

fn number(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{value:.2}"))
}

fn latencies(latencies: Option<LatencySummary>) -> [String; 4] {
    match latencies {
        Some(LatencySummary { mean, p50, p95, p99 }) => {
            [mean, p50, p95, p99].map(|value| number(Some(value)))
        }
        None => [(); 4].map(|()| NONE.to_owned()),
    }
}

fn window(window: Option<WindowOutcome>) -> [String; 2] {
    window.map_or([(); 2].map(|()| NONE.to_owned()), |window| {
        [window.mean, window.last].map(|w| number(Some(w)))
    })
}

/// Returns the text on reservations: kept, or how much is missed and which side is short.
fn reservations(missed: Option<MissedShares>) -> String {
    let Some(MissedShares { window, storage }) = missed else { return NONE.to_owned() };
    if window + storage <= 0.0 {
        return "kept".to_owned();
    }
    let short = if window > storage { "window" } else { "storage" };
    format!("missed {:.1} %: {short}", (window + storage) * 100.0)
}
