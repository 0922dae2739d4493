//! A snapshot of the gateway as text in the OpenMetrics format.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tidegate_cluster::ClusterStatus;
use tidegate_control::{Decision, LawOutput, ReservationShortage, WaitReason};
use tidegate_gateway::{
    ConsumerSnapshot, GatewaySnapshot, OpSnapshot, PoolSnapshot, TenantSnapshot, UpstreamSnapshot,
};
use tidegate_http::HttpRefusals;
use tidegate_units::{ConsumerName, Latency, ResourceName};

use super::name::ServeMetric;
use crate::admission::ContractsStatus;
use tidegate_service::log::LogCounts;
use tidegate_service::metrics::{InputCounts, ReloadCounts};
use tidegate_service::metrics::{
    MetricSamples, SampleValue, band, encode, flag, http_refused, log_samples, number, seconds, to_text,
};
use tidegate_service::status::PromiseStatus;

/// Everything that is exposed, at one moment.
#[derive(Debug, Clone)]
pub struct MetricsExposition {
    /// The gateway.
    pub gateway: GatewaySnapshot,
    /// Its pools' decisions.
    pub decisions: BTreeMap<ResourceName, InputCounts>,
    /// Reloads.
    pub reloads: ReloadCounts,
    /// HTTP connections that were refused.
    pub http_refused: Option<Arc<HttpRefusals>>,
    /// Messages that the log lacks.
    pub log: LogCounts,
    /// The exchange with other hosts; `None` without a cluster.
    pub cluster: Option<ClusterStatus>,
    /// The state of the pools' promises; pools without contracts are not in it.
    pub contracts: BTreeMap<ResourceName, ContractsStatus>,
    /// The promises to consumers, and how much of them was kept.
    pub promises: BTreeMap<(ResourceName, ConsumerName), PromiseStatus>,
}

impl MetricsExposition {
    /// Returns the exposition as OpenMetrics text.
    #[must_use]
    pub fn to_text(&self) -> String {
        to_text(self.clone())
    }

    fn samples(&self, metric: ServeMetric) -> MetricSamples<'_> {
        let mut samples = MetricSamples::default();
        match metric {
            ServeMetric::Build => samples.add(&[env!("CARGO_PKG_VERSION")], SampleValue::Info),
            ServeMetric::Reloads => {
                samples.add(&["applied"], SampleValue::Count(self.reloads.applied));
                samples.add(&["refused"], SampleValue::Count(self.reloads.refused));
            }
            ServeMetric::HttpRefused => http_refused(self.http_refused.as_deref(), &mut samples),
            ServeMetric::Log => log_samples(self.log, &mut samples),
            ServeMetric::Handshakes => samples.add(&[], number(self.gateway.handshakes)),
            ServeMetric::HandshakesEnded => {
                samples.add(&[], SampleValue::Count(self.gateway.handshakes_ended));
            }
            ServeMetric::ConnectionsRefused => {
                for (refusal, count) in &self.gateway.refused {
                    samples.add(&[refusal.name()], SampleValue::Count(*count));
                }
            }
            ServeMetric::GuestMemory => {
                samples.add(&[], SampleValue::Number(self.gateway.guest_memory as f64));
            }
            ServeMetric::ClusterUp | ServeMetric::ClusterPeers | ServeMetric::ClusterMessages => {
                if let Some(status) = &self.cluster {
                    cluster_samples(metric, status, &mut samples);
                }
            }
            ServeMetric::PoolUp => {
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

    fn pool_samples<'a>(
        &'a self,
        metric: ServeMetric,
        pool: &'a PoolSnapshot,
        samples: &mut MetricSamples<'a>,
    ) {
        let name = pool.name.as_str();
        let decision = pool.decision.as_ref();
        let point = decision.and_then(|decision| decision.point.as_ref());
        let choice = decision.and_then(|decision| decision.choice.as_ref());
        let reserved = decision.and_then(|decision| decision.reserved.as_ref());
        let value = match metric {
            ServeMetric::PoolSessions => Some(number(pool.sessions)),
            ServeMetric::PoolInFlight => Some(number(pool.in_flight)),
            ServeMetric::PoolBuffered => Some(SampleValue::Number(pool.bytes_in_use.get() as f64)),
            ServeMetric::PoolBufferedPeak => Some(SampleValue::Number(pool.bytes_in_use_peak.get() as f64)),
            ServeMetric::PoolLaw => {
                if let Some(decision) = decision {
                    samples.add(&[name, decision.law.name()], SampleValue::Info);
                }
                None
            }
            ServeMetric::PoolWindow => Some(SampleValue::Number(pool.window.get())),
            ServeMetric::PoolBeta => decision.and_then(|decision| decision.beta).map(SampleValue::Number),
            ServeMetric::PoolShareCompensation => {
                decision.and_then(|decision| decision.compensation).map(SampleValue::Number)
            }
            ServeMetric::PoolHosts => {
                if let Some(cluster) = decision.and_then(|decision| decision.cluster.as_ref()) {
                    let states =
                        [("live", cluster.hosts), ("stale", cluster.stale), ("adjusted", cluster.adjusted)];
                    for (state, hosts) in states {
                        samples.add(&[name, state], SampleValue::Number(f64::from(hosts)));
                    }
                }
                None
            }
            ServeMetric::PoolOperatingPoint => {
                point.map(|point| SampleValue::Number(point.operating_point.per_second()))
            }
            ServeMetric::PoolBand => point.and_then(|point| point.position).map(band),
            ServeMetric::PoolSetPoint => decision.map(|decision| seconds(decision.steered_to())),
            ServeMetric::PoolSetPointCeiling => decision.and_then(Decision::set_point_ceiling).map(seconds),
            ServeMetric::PoolKnee => choice.and_then(|choice| choice.knee).map(seconds),
            ServeMetric::PoolMost => {
                choice.and_then(|choice| choice.most).map(|most| SampleValue::Number(most.per_second()))
            }
            ServeMetric::PoolEstimate => decision.and_then(Decision::compared).map(seconds),
            ServeMetric::PoolReserved => reserved.map(|reserved| SampleValue::Number(reserved.window.get())),
            ServeMetric::PoolShortage => {
                if let Some(reserved) = reserved {
                    for (cause, shortage) in
                        [("window", ReservationShortage::Window), ("storage", ReservationShortage::Storage)]
                    {
                        samples.add(&[name, cause], flag(reserved.missed == Some(shortage)));
                    }
                }
                None
            }
            ServeMetric::PoolHeld => decision.map(|decision| SampleValue::Number(f64::from(decision.held))),
            ServeMetric::PoolThrottled => {
                decision.map(|decision| SampleValue::Number(f64::from(decision.throttled)))
            }
            ServeMetric::PoolDryRun => decision.map(|decision| flag(decision.dry_run)),
            ServeMetric::PoolDecisions => {
                let counts = self.decisions.get(&pool.name).copied().unwrap_or_default();
                for (input, count) in counts.named() {
                    samples.add(&[name, input], SampleValue::Count(count));
                }
                None
            }
            ServeMetric::PoolAdmitted => {
                self.contracts.get(&pool.name).and_then(|status| status.admitted).map(flag)
            }
            ServeMetric::PoolOverdue => self.contracts.get(&pool.name).map(|status| flag(status.overdue)),
            ServeMetric::PoolContractChanges => {
                if let Some(status) = self.contracts.get(&pool.name) {
                    samples.add(&[name, "begun"], SampleValue::Count(status.begun));
                    samples.add(&[name, "refused"], SampleValue::Count(status.refused));
                }
                None
            }
            _ => {
                // Of an export that is not served yet only its upstream is known: there is none.
                for awaited in pool.awaited.iter().filter(|_| metric == ServeMetric::UpstreamConnections) {
                    for (state, connections) in [("up", 0), ("wanted", 1)] {
                        samples.add(&[name, awaited.name.as_str(), state], number(connections));
                    }
                }
                for consumer in &pool.consumers {
                    self.consumer_samples(metric, pool, consumer, samples);
                }
                None
            }
        };
        if let Some(value) = value {
            samples.add(&[name], value);
        }
    }

    fn consumer_samples<'a>(
        &'a self,
        metric: ServeMetric,
        pool: &'a PoolSnapshot,
        consumer: &'a ConsumerSnapshot,
        samples: &mut MetricSamples<'a>,
    ) {
        if !matches!(metric, ServeMetric::Promised | ServeMetric::PromiseKept) {
            return consumer_samples(metric, pool, consumer, samples);
        }
        let key = (pool.name.clone(), consumer.name.clone());
        let Some(promise) = self.promises.get(&key) else { return };
        let labels = [pool.name.as_str(), consumer.name.as_str()];
        if metric == ServeMetric::Promised {
            samples.add(&labels, SampleValue::Number(promise.response_time_seconds));
            return;
        }
        for (over, kept) in promise.spans() {
            samples.add(&[labels[0], labels[1], over], SampleValue::Number(kept));
        }
    }
}

fn cluster_samples<'a>(metric: ServeMetric, status: &'a ClusterStatus, samples: &mut MetricSamples<'a>) {
    match metric {
        ServeMetric::ClusterUp => samples.add(&[status.carrier.label()], flag(status.up)),
        ServeMetric::ClusterPeers => {
            let stale = status.peers.iter().filter(|peer| peer.stale).count();
            samples.add(&["live"], number(status.peers.len() - stale));
            samples.add(&["stale"], number(stale));
        }
        _ => {
            for (outcome, count) in [("sent", status.sent), ("taken", status.taken)] {
                samples.add(&[outcome], SampleValue::Count(count));
            }
            for (reason, count) in status.rejected.named() {
                samples.add(&[reason], SampleValue::Count(count));
            }
        }
    }
}

fn consumer_samples<'a>(
    metric: ServeMetric,
    pool: &'a PoolSnapshot,
    consumer: &'a ConsumerSnapshot,
    samples: &mut MetricSamples<'a>,
) {
    let labels = [pool.name.as_str(), consumer.name.as_str()];
    let mut operations = |value: fn(&'a OpSnapshot) -> SampleValue| {
        let kinds = [("read", &consumer.reads), ("write", &consumer.writes), ("flush", &consumer.flushes)];
        // A flush has no payload.
        let most = if metric == ServeMetric::Payload { 2 } else { 3 };
        for (op, snapshot) in kinds.into_iter().take(most) {
            samples.add(&[labels[0], labels[1], op], value(snapshot));
        }
    };
    let value = match metric {
        ServeMetric::Requests => {
            operations(|op| SampleValue::Count(op.count));
            for (op, count) in [
                ("trim", consumer.trims),
                ("cache", consumer.caches),
                ("block_status", consumer.block_statuses),
            ] {
                samples.add(&[labels[0], labels[1], op], SampleValue::Count(count));
            }
            return;
        }
        ServeMetric::Payload => return operations(|op| SampleValue::Count(op.bytes)),
        ServeMetric::ResponseTime => {
            return operations(|op| SampleValue::times(op.total.sum(), op.total.cumulative()));
        }
        ServeMetric::BackendTime => {
            return operations(|op| SampleValue::times(op.backend.sum(), op.backend.cumulative()));
        }
        ServeMetric::Errors => {
            for (kind, count) in consumer.errors.kinds() {
                samples.add(&[labels[0], labels[1], kind.name()], SampleValue::Count(count));
            }
            return;
        }
        ServeMetric::Mistakes => SampleValue::Count(consumer.errors.mistakes()),
        ServeMetric::Poisoned => flag(consumer.poisoned),
        ServeMetric::Sessions => number(consumer.sessions),
        ServeMetric::Disks => number(consumer.disks),
        ServeMetric::Queued => number(consumer.queued),
        ServeMetric::InFlight => number(consumer.in_flight),
        ServeMetric::Hung => flag(consumer.hung),
        ServeMetric::Replaced => flag(consumer.replaced),
        ServeMetric::Delay => seconds(consumer.delay),
        ServeMetric::Held => flag(is_held(pool, consumer)),
        ServeMetric::Waiting => {
            for reason in WaitReason::ALL {
                let waits = flag(consumer.waits_for == Some(reason));
                samples.add(&[labels[0], labels[1], reason.name()], waits);
            }
            return;
        }
        ServeMetric::Released => flag(consumer.released),
        ServeMetric::Shares => SampleValue::Number(consumer.shares.as_f64()),
        ServeMetric::Protected => flag(consumer.protected),
        ServeMetric::Reserved
        | ServeMetric::ReservedBacklog
        | ServeMetric::ReservedServed
        | ServeMetric::ReservedMissed => {
            let Some(reserved) = &consumer.reserved else { return };
            match metric {
                ServeMetric::Reserved => SampleValue::Number(reserved.rate.per_second()),
                ServeMetric::ReservedBacklog => SampleValue::Amount(reserved.backlogged.as_secs_f64()),
                ServeMetric::ReservedServed => SampleValue::Amount(reserved.served_ios),
                _ => SampleValue::Amount(reserved.missed.as_secs_f64()),
            }
        }
        ServeMetric::Rate
        | ServeMetric::ReleaseTime
        | ServeMetric::Contract
        | ServeMetric::ContractTime
        | ServeMetric::ContractRequests
        | ServeMetric::ContractLate
        | ServeMetric::ContractActive => {
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
fn tenant_value(metric: ServeMetric, tenant: &TenantSnapshot) -> Option<SampleValue> {
    let contract = tenant.contract.as_ref();
    let terms = contract.and_then(|kept| kept.contract);
    match metric {
        ServeMetric::Rate => tenant.rate.map(|rate| SampleValue::Number(rate.per_second())),
        ServeMetric::ReleaseTime => {
            Some(SampleValue::times(tenant.released.sum(), tenant.released.cumulative()))
        }
        ServeMetric::Contract => terms.map(|terms| SampleValue::Number(terms.iops().per_second())),
        ServeMetric::ContractTime => terms.map(|terms| seconds(terms.response_time())),
        ServeMetric::ContractRequests => contract.map(|kept| SampleValue::Count(kept.requests)),
        ServeMetric::ContractLate => contract.map(|kept| SampleValue::Count(kept.late)),
        _ => contract.map(|kept| SampleValue::Amount(kept.active.as_secs_f64())),
    }
}

fn upstream_samples<'a>(
    metric: ServeMetric,
    labels: [&'a str; 2],
    upstream: &UpstreamSnapshot,
    samples: &mut MetricSamples<'a>,
) {
    let count = match metric {
        ServeMetric::UpstreamConnections => {
            for (state, connections) in [("up", upstream.connections), ("wanted", upstream.wanted)] {
                samples.add(&[labels[0], labels[1], state], number(connections));
            }
            return;
        }
        ServeMetric::UpstreamReconnects => upstream.reconnects,
        ServeMetric::UpstreamReplayed => upstream.replayed,
        ServeMetric::UpstreamFailed => upstream.failed,
        ServeMetric::UpstreamLosses => upstream.unflushed_losses,
        // Every other metric was answered for the gateway, its pools or its consumers.
        _ => return,
    };
    samples.add(&labels, SampleValue::Count(count));
}

/// A delay throttles each consumer that has one. A window throttles those whose requests wait for it, a rate
/// those that it has kept waiting since the decision before.
pub(crate) fn is_held(pool: &PoolSnapshot, consumer: &ConsumerSnapshot) -> bool {
    let is_windowed =
        |decision: &Decision| matches!(decision.bounded, LawOutput::Window(_)) && !decision.dry_run;
    let waits =
        pool.decision.as_ref().is_some_and(is_windowed) && consumer.waits_for == Some(WaitReason::Law);
    let rated = pool.decision.as_ref().is_some_and(|decision| {
        let allotments = decision.point.iter().flat_map(|point| &point.allotments);
        let rates = decision.rates.iter().map(|rate| (rate.held, &rate.name));
        !decision.dry_run
            && rates
                .chain(allotments.map(|allotment| (allotment.held, &allotment.name)))
                .any(|(held, name)| held && *name == consumer.name)
    });
    !consumer.protected && !consumer.released && (rated || consumer.delay > Latency::ZERO || waits)
}

impl Collector for MetricsExposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        ServeMetric::ALL
            .iter()
            .try_for_each(|metric| encode(&mut encoder, &metric.spec(), &self.samples(*metric)))
    }
}
