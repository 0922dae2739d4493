//! A snapshot of the gateway as text in the OpenMetrics format.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tidegate_cluster::ClusterStatus;
use tidegate_control::{LawKind, Shortage};
use tidegate_gateway::{
    ConsumerSnapshot, GatewaySnapshot, OpSnapshot, PoolSnapshot, TenantSnapshot, UpstreamSnapshot,
};
use tidegate_http::Refusals;
use tidegate_units::{Latency, ResourceName};

use super::name::Metric;
use crate::admission::ContractsStatus;
use tidegate_service::log::LogCounts;
use tidegate_service::metrics::{InputCounts, ReloadCounts};
use tidegate_service::metrics::{
    Samples, Value, band, encode, flag, http_refused, log_samples, number, seconds, to_text,
};

/// Everything that is exposed, at one moment.
#[derive(Debug, Clone)]
pub struct Exposition {
    /// The gateway.
    pub gateway: GatewaySnapshot,
    /// Its pools' decisions.
    pub decisions: BTreeMap<ResourceName, InputCounts>,
    /// Reloads.
    pub reloads: ReloadCounts,
    /// HTTP connections that were refused.
    pub http_refused: Option<Arc<Refusals>>,
    /// Messages that the log lacks.
    pub log: LogCounts,
    /// The exchange with other hosts; `None` without a cluster.
    pub cluster: Option<ClusterStatus>,
    /// The state of the pools' promises; pools without contracts are not in it.
    pub contracts: BTreeMap<ResourceName, ContractsStatus>,
}

impl Exposition {
    /// Returns the exposition as OpenMetrics text.
    #[must_use]
    pub fn to_text(&self) -> String {
        to_text(self.clone())
    }

    fn samples(&self, metric: Metric) -> Samples<'_> {
        let mut samples = Samples::default();
        match metric {
            Metric::Build => samples.add(&[env!("CARGO_PKG_VERSION")], Value::Info),
            Metric::Reloads => {
                samples.add(&["applied"], Value::Count(self.reloads.applied));
                samples.add(&["refused"], Value::Count(self.reloads.refused));
            }
            Metric::HttpRefused => http_refused(self.http_refused.as_deref(), &mut samples),
            Metric::Log => log_samples(self.log, &mut samples),
            Metric::Handshakes => samples.add(&[], number(self.gateway.handshakes)),
            Metric::HandshakesEnded => samples.add(&[], Value::Count(self.gateway.handshakes_ended)),
            Metric::ConnectionsRefused => {
                for (refusal, count) in &self.gateway.refused {
                    samples.add(&[refusal.name()], Value::Count(*count));
                }
            }
            Metric::ClusterUp | Metric::ClusterPeers | Metric::ClusterMessages => {
                if let Some(status) = &self.cluster {
                    cluster_samples(metric, status, &mut samples);
                }
            }
            Metric::PoolUp => {
                let up = self.gateway.pools.iter().map(|pool| (&pool.name, true));
                let silent = self.gateway.silent.iter().map(|pool| (pool, false));
                for (pool, up) in up.chain(silent) {
                    samples.add(&[pool.as_str()], flag(up));
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
        let point = decision.and_then(|decision| decision.point.as_ref());
        let choice = decision.and_then(|decision| decision.choice.as_ref());
        let reserved = decision.and_then(|decision| decision.reserved.as_ref());
        let value = match metric {
            Metric::PoolSessions => Some(number(pool.sessions)),
            Metric::PoolInFlight => Some(number(pool.in_flight)),
            Metric::PoolBuffered => Some(Value::Number(pool.bytes_in_use.get() as f64)),
            Metric::PoolBufferedPeak => Some(Value::Number(pool.bytes_in_use_peak.get() as f64)),
            Metric::PoolLaw => {
                if let Some(decision) = decision {
                    samples.add(&[name, decision.law.name()], Value::Info);
                }
                None
            }
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
            Metric::PoolOperatingPoint => {
                point.map(|point| Value::Number(point.operating_point.per_second()))
            }
            Metric::PoolBand => point.and_then(|point| point.position).map(band),
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
            Metric::PoolAdmitted => {
                self.contracts.get(&pool.name).and_then(|status| status.admitted).map(flag)
            }
            Metric::PoolOverdue => self.contracts.get(&pool.name).map(|status| flag(status.overdue)),
            Metric::PoolContractChanges => {
                if let Some(status) = self.contracts.get(&pool.name) {
                    samples.add(&[name, "begun"], Value::Count(status.begun));
                    samples.add(&[name, "refused"], Value::Count(status.refused));
                }
                None
            }
            _ => {
                // Of an export that is not served yet only its upstream is known: there is none.
                for awaited in pool.awaited.iter().filter(|_| metric == Metric::UpstreamConnections) {
                    for (state, connections) in [("up", 0), ("wanted", 1)] {
                        samples.add(&[name, awaited.name.as_str(), state], number(connections));
                    }
                }
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
    let mut operations = |value: fn(&'a OpSnapshot) -> Value| {
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
        Metric::ResponseTime => return operations(|op| Value::times(op.total.sum(), op.total.cumulative())),
        Metric::BackendTime => {
            return operations(|op| Value::times(op.backend.sum(), op.backend.cumulative()));
        }
        Metric::Errors => Value::Count(consumer.errors),
        Metric::Poisoned => flag(consumer.poisoned),
        Metric::Sessions => number(consumer.sessions),
        Metric::Queued => number(consumer.queued),
        Metric::InFlight => number(consumer.in_flight),
        Metric::Hung => flag(consumer.hung),
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
        Metric::Rate
        | Metric::ReleaseTime
        | Metric::Contract
        | Metric::ContractTime
        | Metric::ContractRequests
        | Metric::ContractLate
        | Metric::ContractActive => {
            let Some(value) = consumer.tenant.as_ref().and_then(|tenant| tenant_value(metric, tenant)) else {
                return;
            };
            value
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

/// Returns the value of a metric of a consumer in a pool whose law commands rates.
fn tenant_value(metric: Metric, tenant: &TenantSnapshot) -> Option<Value> {
    let contract = tenant.contract.as_ref();
    let terms = contract.and_then(|kept| kept.contract);
    match metric {
        Metric::Rate => tenant.rate.map(|rate| Value::Number(rate.per_second())),
        Metric::ReleaseTime => Some(Value::times(tenant.released.sum(), tenant.released.cumulative())),
        Metric::Contract => terms.map(|terms| Value::Number(terms.iops().per_second())),
        Metric::ContractTime => terms.map(|terms| seconds(terms.response_time())),
        Metric::ContractRequests => contract.map(|kept| Value::Count(kept.requests)),
        Metric::ContractLate => contract.map(|kept| Value::Count(kept.late)),
        _ => contract.map(|kept| Value::Amount(kept.active.as_secs_f64())),
    }
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

/// A delay holds whoever has one; a window holds those whose requests wait for it; a rate those that it has
/// kept waiting since the decision before.
pub(crate) fn is_held(pool: &PoolSnapshot, consumer: &ConsumerSnapshot) -> bool {
    let windowed = pool
        .decision
        .as_ref()
        .is_some_and(|decision| decision.law == LawKind::Window && decision.held > 0 && !decision.dry_run);
    let rated = pool.decision.as_ref().is_some_and(|decision| {
        let allotments = decision.point.iter().flat_map(|point| &point.allotments);
        let rates = decision.rates.iter().map(|rate| (rate.held, &rate.name));
        !decision.dry_run
            && rates
                .chain(allotments.map(|allotment| (allotment.held, &allotment.name)))
                .any(|(held, name)| held && *name == consumer.name)
    });
    !consumer.protected && (rated || consumer.delay > Latency::ZERO || (windowed && consumer.queued > 0))
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        Metric::ALL.iter().try_for_each(|metric| encode(&mut encoder, &metric.spec(), &self.samples(*metric)))
    }
}
