//! A gateway's status.

use std::collections::BTreeMap;

use tidegate_cluster::PeerStatus;
use tidegate_gateway::{ConsumerSnapshot, GatewayConfig, GatewaySnapshot, PoolConfig, PoolSnapshot};
use tidegate_service::status::{
    ByLaw, ClusterStatus, ConsumerStatus, ConsumerTotal, LoadFigures, MOST_CONSUMERS, MemberStatus,
    RecentCounters, ResourceStatus, ServiceKind, ServiceStatus, decided, law, seconds,
};
use tidegate_units::{Bytes, ConsumerName, Latency, ResourceName};

use crate::metrics::is_held;

/// The counters of each pool's consumers.
pub(crate) type PoolCounters = BTreeMap<ResourceName, RecentCounters<ConsumerName>>;

/// Takes note of what consumers did, as often as that is of use.
pub(crate) fn note(pools: &mut PoolCounters, snapshot: &GatewaySnapshot) {
    pools.retain(|name, _| snapshot.pools.iter().any(|pool| pool.name == *name));
    for pool in &snapshot.pools {
        let recent = pools.entry(pool.name.clone()).or_default();
        if recent.is_due(pool.at) {
            let totals = pool.consumers.iter().map(|consumer| (consumer.name.clone(), total(consumer)));
            recent.note(pool.at, totals.collect());
        }
    }
}

/// Returns the requests of a consumer and their time. Where a law releases requests, it is the time since
/// their release, which the law judges; otherwise it is the time at the storage.
fn total(consumer: &ConsumerSnapshot) -> ConsumerTotal {
    let (read, written) = (Bytes::new(consumer.reads.bytes), Bytes::new(consumer.writes.bytes));
    if let Some(tenant) = &consumer.tenant {
        let (count, sum) = (tenant.released.count(), tenant.released.sum());
        return ConsumerTotal { count, sum, read, written };
    }
    let (reads, writes) = (&consumer.reads.backend, &consumer.writes.backend);
    let (count, sum) = (reads.count() + writes.count(), reads.sum().saturating_add(writes.sum()));
    ConsumerTotal { count, sum, read, written }
}

/// Returns the exchange with other hosts.
pub(crate) fn of_cluster(cluster: &tidegate_cluster::ClusterStatus) -> ClusterStatus {
    let member = |peer: &PeerStatus| MemberStatus {
        name: peer.host.to_string(),
        report_age_seconds: seconds(peer.report_age),
        heard_age_seconds: peer.age.as_secs_f64(),
        stale: peer.stale,
        pools: peer.resources.iter().map(ToString::to_string).collect(),
    };
    ClusterStatus {
        name: cluster.cluster.to_string(),
        host: cluster.host.to_string(),
        carrier: cluster.carrier.label().to_owned(),
        up: cluster.up,
        reason: cluster.reason.clone(),
        slot: cluster.slot,
        members: cluster.peers.iter().map(member).collect(),
        duplicates: cluster.duplicates.iter().map(ToString::to_string).collect(),
    }
}

/// Returns a gateway's status, with the configuration that is in force.
pub(crate) fn of_gateway(
    config: &GatewayConfig,
    snapshot: &GatewaySnapshot,
    recent: &PoolCounters,
) -> ServiceStatus {
    let pools = snapshot.pools.iter().map(|pool| {
        let config = config.pools.iter().find(|config| config.name == pool.name);
        of_pool(config, pool, recent.get(&pool.name))
    });
    ServiceStatus::new(ServiceKind::Serve, true, pools.collect())
}

fn of_pool(
    config: Option<&PoolConfig>,
    pool: &PoolSnapshot,
    recent: Option<&RecentCounters<ConsumerName>>,
) -> ResourceStatus {
    let by_law = ByLaw::of_each(pool.decision.as_ref());
    let did = |consumer: &ConsumerSnapshot| recent?.since(pool.at, &consumer.name, total(consumer));
    let one = |consumer: &ConsumerSnapshot| {
        let export = config.and_then(|pool| pool.exports.iter().find(|export| export.name == consumer.name));
        let promised = consumer.tenant.as_ref().and_then(|tenant| tenant.contract?.contract);
        let goal = promised.map(|terms| terms.response_time()).or_else(|| export?.goal);
        ConsumerStatus {
            recent: did(consumer),
            outstanding: Some((consumer.queued + consumer.in_flight) as u64),
            delay_seconds: seconds(Some(consumer.delay).filter(|delay| *delay > Latency::ZERO)),
            held: Some(is_held(pool, consumer)),
            poisoned: consumer.poisoned,
            removed: consumer.removed,
            goal_seconds: seconds(goal),
            ..by_law
                .get(&consumer.name)
                .copied()
                .unwrap_or_default()
                .status(&consumer.name, consumer.protected)
        }
    };
    // Of all together only where it is known of each.
    let all: Option<Vec<LoadFigures>> = pool.consumers.iter().map(did).collect();
    ResourceStatus {
        name: pool.name.to_string(),
        present: pool.awaited.is_empty() || !pool.consumers.is_empty(),
        throttle_fails: false,
        law: config.and_then(|pool| pool.law.as_ref()).map(law),
        decided: pool.decision.as_ref().map(|decision| decided(decision, pool.at)),
        recent: all.and_then(|all| together(&all)),
        consumers: pool.consumers.iter().take(MOST_CONSUMERS).map(one).collect(),
        consumers_left_out: pool.consumers.len().saturating_sub(MOST_CONSUMERS),
    }
}

fn together(all: &[LoadFigures]) -> Option<LoadFigures> {
    let seconds = all.first()?.seconds;
    let iops: f64 = all.iter().map(|did| did.iops).sum();
    let busy: f64 = all.iter().filter_map(|did| Some(did.iops * did.response_time_seconds?)).sum();
    Some(LoadFigures {
        seconds,
        iops,
        response_time_seconds: (iops > 0.0).then(|| busy / iops),
        read_bytes_per_second: all.iter().map(|did| did.read_bytes_per_second).sum(),
        written_bytes_per_second: all.iter().map(|did| did.written_bytes_per_second).sum(),
    })
}
