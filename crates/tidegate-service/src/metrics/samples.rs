//! Values with their labels, and how they become text in the OpenMetrics format.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::registry::Registry;
use tidegate_control::BandPosition;
use tidegate_http::{HttpRefusals, RefusalCause};
use tidegate_units::Latency;

use super::spec::{MetricKind, MetricSpec};
use crate::log::LogCounts;

/// Everything that a service exposes, as OpenMetrics text.
#[must_use]
pub fn to_text(exposition: impl Collector) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(exposition));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("writing to a String does not fail");
    text
}

/// The value of a sample.
#[derive(Debug, Clone)]
pub enum SampleValue {
    /// A counter.
    Count(u64),
    /// A gauge.
    Number(f64),
    /// A counter of what is no whole number.
    Amount(f64),
    /// A distribution of times.
    Times(TimeBuckets),
    /// Always 1: the labels are the information.
    Info,
}

/// A distribution of times, in the buckets that are exposed.
#[derive(Debug, Clone)]
pub struct TimeBuckets {
    sum: Latency,
    buckets: Vec<(f64, u64)>,
    count: u64,
}

impl SampleValue {
    /// Returns a histogram: the sum of all times, and for each bound the number of times that are at most as
    /// long.
    #[must_use]
    pub fn times(sum: Latency, cumulative: impl Iterator<Item = (Latency, u64)>) -> Self {
        let (buckets, count) = buckets(cumulative);
        Self::Times(TimeBuckets { sum, buckets, count })
    }
}

/// A gauge of a count.
#[must_use]
pub fn number(count: usize) -> SampleValue {
    SampleValue::Number(count as f64)
}

/// A gauge of a time.
#[must_use]
pub fn seconds(latency: Latency) -> SampleValue {
    SampleValue::Number(latency.as_secs_f64())
}

/// The band, and the part of it as a fraction; beyond the last how many there are.
pub fn band(position: BandPosition) -> SampleValue {
    SampleValue::Number(match position {
        BandPosition::In { band, part } => f64::from(band) + part,
        BandPosition::Beyond { bands, .. } => f64::from(bands),
    })
}

/// A gauge that is 1 or 0.
#[must_use]
pub fn flag(on: bool) -> SampleValue {
    SampleValue::Number(if on { 1.0 } else { 0.0 })
}

/// Label values, in the order of the metric's labels, with a value.
#[derive(Default)]
pub struct MetricSamples<'a>(Vec<(Vec<&'a str>, SampleValue)>);

impl<'a> MetricSamples<'a> {
    /// Adds a value under these labels.
    pub fn add(&mut self, labels: &[&'a str], value: SampleValue) {
        self.0.push((labels.to_vec(), value));
    }
}

/// Counters of refused connections; none where no address is served.
pub fn http_refused(refusals: Option<&HttpRefusals>, samples: &mut MetricSamples<'_>) {
    for cause in refusals.iter().flat_map(|_| RefusalCause::ALL) {
        samples.add(&[cause.name()], SampleValue::Count(refusals.map_or(0, |refusals| refusals.of(cause))));
    }
}

/// Messages that the log lacks.
pub fn log_samples(counts: LogCounts, samples: &mut MetricSamples<'_>) {
    samples.add(&["dropped"], SampleValue::Count(counts.dropped));
    samples.add(&["repeated"], SampleValue::Count(counts.repeated));
}

/// Writes all samples of one metric.
///
/// # Errors
/// A value that does not fit the metric's kind.
pub fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    spec: &MetricSpec,
    samples: &MetricSamples<'_>,
) -> fmt::Result {
    let mut family =
        encoder.encode_descriptor(spec.stem, spec.help, spec.unit.as_ref(), spec.kind.metric_type())?;
    for (values, value) in &samples.0 {
        let labels: Vec<_> = spec.labels.iter().copied().zip(values.iter().copied()).collect();
        match spec.kind {
            MetricKind::Info => family.encode_info(&labels)?,
            _ if labels.is_empty() => write_value(&mut family, value)?,
            _ => write_value(&mut family.encode_family(&labels)?, value)?,
        }
    }
    Ok(())
}

fn write_value(encoder: &mut MetricEncoder<'_>, value: &SampleValue) -> fmt::Result {
    match value {
        SampleValue::Count(count) => encoder.encode_counter::<NoLabelSet, _, u64>(count, None),
        SampleValue::Number(number) => encoder.encode_gauge(number),
        SampleValue::Amount(amount) => encoder.encode_counter::<NoLabelSet, _, f64>(amount, None),
        SampleValue::Times(TimeBuckets { sum, buckets, count }) => {
            encoder.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), *count, buckets, None)
        }
        SampleValue::Info => Err(fmt::Error),
    }
}

/// Exposed bounds begin at 2^15 ns (33 µs)…
const FIRST_BOUND: u64 = 1 << 15;
/// …and end at 2^34 ns (17 s): longer is counted in the last bucket.
const LAST_BOUND: u64 = 1 << 34;

/// Two buckets per octave of eight: 39 series per histogram instead of 210, and a percentile is still known
/// to within a third. And how many samples there are.
fn buckets(cumulative: impl Iterator<Item = (Latency, u64)>) -> (Vec<(f64, u64)>, u64) {
    let (mut below, mut all) = (0, 0);
    let mut buckets = Vec::new();
    for (bound, within) in cumulative {
        all = within;
        if is_exposed(bound.as_nanos()) {
            buckets.push((bound.as_secs_f64(), within - below));
            below = within;
        }
    }
    buckets.push((f64::INFINITY, all - below));
    (buckets, all)
}

fn is_exposed(bound: u64) -> bool {
    let power = bound.is_power_of_two();
    let half_way = bound.is_multiple_of(3) && (bound / 3).is_power_of_two();
    (FIRST_BOUND..=LAST_BOUND).contains(&bound) && (power || half_way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposed_buckets_are_two_per_octave_and_miss_nothing() {
        let times = [1, 33, 34, 15_000, 20_000_000, 100_000_000].map(Latency::from_micros);
        // The bounds of the services' own histograms: eight per octave.
        let bounds = (10..40).flat_map(|octave| (8..16).map(move |part| (1u64 << octave) / 8 * part));
        let cumulative = bounds.map(|bound| {
            let bound = Latency::from_nanos(bound);
            (bound, times.iter().filter(|time| **time <= bound).count() as u64)
        });
        let (buckets, count) = buckets(cumulative);
        assert_eq!((buckets.len(), count), (40, 6));
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 6);
        let above_17_s = buckets[39];
        assert!(above_17_s.0.is_infinite() && above_17_s.1 == 2);
        let with_15_ms = buckets.iter().find(|(bound, _)| *bound >= 0.015).unwrap();
        assert_eq!(*with_15_ms, (f64::from(1 << 24) / 1e9, 1));
    }
}
