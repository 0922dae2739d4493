//! A snapshot of the gateway as text in the OpenMetrics format.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::registry::Registry;
use tidegate_cluster::ClusterStatus;
use tidegate_control::{Input, LawKind, Shortage};
use tidegate_gateway::{
    ConsumerSnapshot, GatewaySnapshot, Histogram, OpSnapshot, PoolSnapshot, UpstreamSnapshot,
};
use tidegate_units::{Latency, ResourceName};

use super::name::{Kind, Metric};

/// Reloads since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReloadCounts {
    /// Applied.
    pub applied: u64,
    /// Refused: the old configuration went on.
    pub refused: u64,
}

/// Decisions of one pool since the start, by what the signal said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputCounts {
    samples: u64,
    overload: u64,
    unknown: u64,
    idle: u64,
    no_time: u64,
}

impl InputCounts {
    /// Counts one decision.
    pub fn add(&mut self, input: Input) {
        *match input {
            Input::Samples { .. } => &mut self.samples,
            Input::Overload { .. } => &mut self.overload,
            Input::Unknown => &mut self.unknown,
            Input::Idle => &mut self.idle,
            Input::NoTime => &mut self.no_time,
        } += 1;
    }

    const fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("samples", self.samples),
            ("overload", self.overload),
            ("unknown", self.unknown),
            ("idle", self.idle),
            ("no_time", self.no_time),
        ]
    }
}

/// Everything that is exposed, at one moment.
#[derive(Debug, Clone)]
pub struct Exposition {
    /// The gateway.
    pub gateway: GatewaySnapshot,
    /// Its pools' decisions.
    pub decisions: BTreeMap<ResourceName, InputCounts>,
    /// Reloads.
    pub reloads: ReloadCounts,
    /// The exchange with other hosts; `None` without a cluster.
    pub cluster: Option<ClusterStatus>,
}

impl Exposition {
    /// As OpenMetrics text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut exposition = String::new();
        text::encode(&mut exposition, &registry).expect("writing to a String does not fail");
        exposition
    }

    fn samples(&self, metric: Metric) -> Samples<'_> {
        let mut samples = Samples(Vec::new());
        match metric {
            Metric::Build => samples.add(&[env!("CARGO_PKG_VERSION")], Value::Info),
            Metric::Reloads => {
                samples.add(&["applied"], Value::Count(self.reloads.applied));
                samples.add(&["refused"], Value::Count(self.reloads.refused));
            }
            Metric::Handshakes => samples.add(&[], number(self.gateway.handshakes)),
            Metric::HandshakesEnded => samples.add(&[], Value::Count(self.gateway.handshakes_ended)),
            Metric::ClusterUp | Metric::ClusterPeers | Metric::ClusterMessages => {
                if let Some(status) = &self.cluster {
                    cluster_samples(metric, status, &mut samples);
                }
            }
            _ => {
                for pool in &self.gateway.pools {
                    self.pool_samples(metric, pool, &mut samples);
                }
            }
        }
        samples
    }

    fn pool_samples<'a>(&'a self, metric: Metric, pool: &'a PoolSnapshot, samples: &mut Samples<'a>) {
        let name = pool.name.as_str();
        let decision = pool.decision.as_ref();
        let choice = decision.and_then(|decision| decision.choice.as_ref());
        let reserved = decision.and_then(|decision| decision.reserved.as_ref());
        let value = match metric {
            Metric::PoolSessions => Some(number(pool.sessions)),
            Metric::PoolInFlight => Some(number(pool.in_flight)),
            Metric::PoolBuffered => Some(Value::Number(pool.bytes_in_use.get() as f64)),
            Metric::PoolBufferedPeak => Some(Value::Number(pool.bytes_in_use_peak.get() as f64)),
            Metric::PoolWindow => Some(Value::Number(pool.window.get())),
            Metric::PoolBeta => decision.and_then(|decision| decision.beta).map(Value::Number),
            Metric::PoolShareCompensation => {
                decision.and_then(|decision| decision.compensation).map(Value::Number)
            }
            Metric::PoolHosts => {
                if let Some(cluster) = decision.and_then(|decision| decision.cluster.as_ref()) {
                    let states =
                        [("live", cluster.hosts), ("stale", cluster.stale), ("adjusted", cluster.adjusted)];
                    for (state, hosts) in states {
                        samples.add(&[name, state], Value::Number(f64::from(hosts)));
                    }
                }
                None
            }
            Metric::PoolSetPoint => decision.map(|decision| seconds(decision.set_point)),
            Metric::PoolSetPointCeiling => choice.map(|choice| seconds(choice.ceiling)),
            Metric::PoolKnee => choice.and_then(|choice| choice.knee).map(seconds),
            Metric::PoolMost => {
                choice.and_then(|choice| choice.most).map(|most| Value::Number(most.per_second()))
            }
            Metric::PoolEstimate => decision.and_then(|decision| decision.estimate).map(seconds),
            Metric::PoolReserved => reserved.map(|reserved| Value::Number(reserved.window.get())),
            Metric::PoolShortage => {
                if let Some(reserved) = reserved {
                    for (cause, shortage) in [("window", Shortage::Window), ("storage", Shortage::Storage)] {
                        samples.add(&[name, cause], flag(reserved.missed == Some(shortage)));
                    }
                }
                None
            }
            Metric::PoolHeld => decision.map(|decision| Value::Number(f64::from(decision.held))),
            Metric::PoolThrottled => decision.map(|decision| Value::Number(f64::from(decision.throttled))),
            Metric::PoolDryRun => decision.map(|decision| flag(decision.dry_run)),
            Metric::PoolDecisions => {
                let counts = self.decisions.get(&pool.name).copied().unwrap_or_default();
                for (input, count) in counts.named() {
                    samples.add(&[name, input], Value::Count(count));
                }
                None
            }
            _ => {
                for consumer in &pool.consumers {
                    consumer_samples(metric, pool, consumer, samples);
                }
                None
            }
        };
        if let Some(value) = value {
            samples.add(&[name], value);
        }
    }
}

fn cluster_samples<'a>(metric: Metric, status: &'a ClusterStatus, samples: &mut Samples<'a>) {
    match metric {
        Metric::ClusterUp => samples.add(&[status.carrier.label()], flag(status.up)),
        Metric::ClusterPeers => {
            let stale = status.peers.iter().filter(|peer| peer.stale).count();
            samples.add(&["live"], number(status.peers.len() - stale));
            samples.add(&["stale"], number(stale));
        }
        _ => {
            for (outcome, count) in [("sent", status.sent), ("taken", status.taken)] {
                samples.add(&[outcome], Value::Count(count));
            }
            for (reason, count) in status.rejected.named() {
                samples.add(&[reason], Value::Count(count));
            }
        }
    }
}

fn consumer_samples<'a>(
    metric: Metric,
    pool: &'a PoolSnapshot,
    consumer: &'a ConsumerSnapshot,
    samples: &mut Samples<'a>,
) {
    let labels = [pool.name.as_str(), consumer.name.as_str()];
    let mut operations = |value: fn(&'a OpSnapshot) -> Value<'a>| {
        for (op, snapshot) in [("read", &consumer.reads), ("write", &consumer.writes)] {
            samples.add(&[labels[0], labels[1], op], value(snapshot));
        }
    };
    let value = match metric {
        Metric::Requests => {
            operations(|op| Value::Count(op.count));
            for (op, count) in [("flush", consumer.flushes), ("trim", consumer.trims)] {
                samples.add(&[labels[0], labels[1], op], Value::Count(count));
            }
            return;
        }
        Metric::Payload => return operations(|op| Value::Count(op.bytes)),
        Metric::ResponseTime => return operations(|op| Value::Times(&op.total)),
        Metric::BackendTime => return operations(|op| Value::Times(&op.backend)),
        Metric::Errors => Value::Count(consumer.errors),
        Metric::Sessions => number(consumer.sessions),
        Metric::Queued => number(consumer.queued),
        Metric::InFlight => number(consumer.in_flight),
        Metric::Delay => seconds(consumer.delay),
        Metric::Held => flag(is_held(pool, consumer)),
        Metric::Shares => Value::Number(consumer.shares.as_f64()),
        Metric::Protected => flag(consumer.protected),
        Metric::Reserved | Metric::ReservedBacklog | Metric::ReservedServed | Metric::ReservedMissed => {
            let Some(reserved) = &consumer.reserved else { return };
            match metric {
                Metric::Reserved => Value::Number(reserved.rate.per_second()),
                Metric::ReservedBacklog => Value::Amount(reserved.backlogged.as_secs_f64()),
                Metric::ReservedServed => Value::Amount(reserved.served_ios),
                _ => Value::Amount(reserved.missed.as_secs_f64()),
            }
        }
        _ => {
            if let Some(upstream) = &consumer.upstream {
                upstream_samples(metric, labels, upstream, samples);
            }
            return;
        }
    };
    samples.add(&labels, value);
}

fn upstream_samples<'a>(
    metric: Metric,
    labels: [&'a str; 2],
    upstream: &UpstreamSnapshot,
    samples: &mut Samples<'a>,
) {
    let count = match metric {
        Metric::UpstreamConnections => {
            for (state, connections) in [("up", upstream.connections), ("wanted", upstream.wanted)] {
                samples.add(&[labels[0], labels[1], state], number(connections));
            }
            return;
        }
        Metric::UpstreamReconnects => upstream.reconnects,
        Metric::UpstreamReplayed => upstream.replayed,
        Metric::UpstreamFailed => upstream.failed,
        Metric::UpstreamLosses => upstream.unflushed_losses,
        // Every other metric was answered for the gateway, its pools or its consumers.
        _ => return,
    };
    samples.add(&labels, Value::Count(count));
}

/// A delay holds whoever has one; a window holds those whose requests wait for it.
fn is_held(pool: &PoolSnapshot, consumer: &ConsumerSnapshot) -> bool {
    let windowed = pool
        .decision
        .as_ref()
        .is_some_and(|decision| decision.law == LawKind::Window && decision.held > 0 && !decision.dry_run);
    !consumer.protected && (consumer.delay > Latency::ZERO || (windowed && consumer.queued > 0))
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Count(u64),
    Number(f64),
    /// A counter of what is no whole number.
    Amount(f64),
    Times(&'a Histogram),
    Info,
}

fn number(count: usize) -> Value<'static> {
    Value::Number(count as f64)
}

fn seconds(latency: Latency) -> Value<'static> {
    Value::Number(latency.as_secs_f64())
}

fn flag(on: bool) -> Value<'static> {
    Value::Number(if on { 1.0 } else { 0.0 })
}

/// Label values, in the order of the metric's labels, with a value.
struct Samples<'a>(Vec<(Vec<&'a str>, Value<'a>)>);

impl<'a> Samples<'a> {
    fn add(&mut self, labels: &[&'a str], value: Value<'a>) {
        self.0.push((labels.to_vec(), value));
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in Metric::ALL {
            let samples = self.samples(metric);
            let spec = metric.spec();
            let mut family = encoder.encode_descriptor(
                spec.stem,
                spec.help,
                spec.unit.as_ref(),
                spec.kind.metric_type(),
            )?;
            for (values, value) in &samples.0 {
                let labels: Vec<_> = spec.labels.iter().copied().zip(values.iter().copied()).collect();
                match spec.kind {
                    Kind::Info => family.encode_info(&labels)?,
                    _ if labels.is_empty() => write_value(&mut family, *value)?,
                    _ => write_value(&mut family.encode_family(&labels)?, *value)?,
                }
            }
        }
        Ok(())
    }
}

fn write_value(encoder: &mut MetricEncoder<'_>, value: Value<'_>) -> fmt::Result {
    match value {
        Value::Count(count) => encoder.encode_counter::<NoLabelSet, _, u64>(&count, None),
        Value::Number(number) => encoder.encode_gauge(&number),
        Value::Amount(amount) => encoder.encode_counter::<NoLabelSet, _, f64>(&amount, None),
        Value::Times(histogram) => encoder.encode_histogram::<NoLabelSet>(
            histogram.sum().as_secs_f64(),
            histogram.count(),
            &buckets(histogram),
            None,
        ),
        Value::Info => Err(fmt::Error),
    }
}

/// Exposed bounds begin at 2^15 ns (33 µs)…
const FIRST_BOUND: u64 = 1 << 15;
/// …and end at 2^34 ns (17 s): longer is counted in the last bucket.
const LAST_BOUND: u64 = 1 << 34;

/// Two buckets per octave of the gateway's eight: 39 series per histogram instead of 210, and a percentile is still
/// known to within a third.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut buckets = Vec::new();
    for (bound, count) in histogram.cumulative().filter(|(bound, _)| is_exposed(bound.as_nanos())) {
        buckets.push((bound.as_secs_f64(), count - below));
        below = count;
    }
    buckets.push((f64::INFINITY, histogram.count() - below));
    buckets
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
        let mut histogram = Histogram::default();
        for micros in [1, 33, 34, 15_000, 20_000_000, 100_000_000] {
            histogram.record(Latency::from_micros(micros));
        }
        let buckets = buckets(&histogram);
        assert_eq!(buckets.len(), 40);
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 6);
        let above_17_s = buckets[39];
        assert!(above_17_s.0.is_infinite() && above_17_s.1 == 2);
        let with_15_ms = buckets.iter().find(|(bound, _)| *bound >= 0.015).unwrap();
        assert_eq!(*with_15_ms, (f64::from(1 << 24) / 1e9, 1));
    }
}
