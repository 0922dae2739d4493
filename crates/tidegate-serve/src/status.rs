//! A gateway's status.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::{SignalState, SignalStatistic};
use tidegate_gateway::{
    ConsumerSnapshot, GatewayConfig, GatewaySnapshot, IoErrors, OpSnapshot, PoolConfig, PoolSnapshot,
};
use tidegate_service::rollups::MinuteReading;
use tidegate_service::status::{
    ByLaw, ConsumerStatus, ConsumerTotal, ErrorCount, ErrorsStatus, Judgement, LoadFigures, MOST_CONSUMERS,
    PromiseCounters, PromiseReading, PromiseRecord, PromiseStatus, RecentCounters, ResourceStatus,
    ServiceKind, ServiceStatus, decided, law, seconds,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, ResourceName};

use crate::metrics::is_held;

/// The records of each pool's consumers.
pub(crate) type PoolRecords = BTreeMap<ResourceName, PoolRecord>;

/// The recent load of a pool's consumers, and their promises.
#[derive(Debug, Default)]
pub(crate) struct PoolRecord {
    recent: RecentCounters<ConsumerName>,
    promises: BTreeMap<ConsumerName, PromiseRecord>,
    /// The time of the last look at promises.
    judged: Option<Instant>,
}

/// Promises are judged this often.
const JUDGED: Duration = Duration::from_secs(1);

/// Returns true if it is time to [`note`] what consumers did.
pub(crate) fn is_due(pools: &PoolRecords, snapshot: &GatewaySnapshot) -> bool {
    let judged = |pool: &PoolSnapshot| pools.get(&pool.name)?.judged;
    let is_due =
        |pool: &PoolSnapshot| judged(pool).is_none_or(|judged| pool.at.saturating_since(judged) >= JUDGED);
    snapshot.pools.iter().any(is_due)
}

/// Takes note of what consumers did, under the configuration in force, and gives each consumer's reading to
/// `rollups`.
pub(crate) fn note(
    pools: &mut PoolRecords,
    config: &GatewayConfig,
    snapshot: &GatewaySnapshot,
    mut rollups: impl FnMut(&PoolSnapshot, &ConsumerSnapshot, MinuteReading),
) {
    // A pool that is silent for a while has broken promises by then, which its record will say.
    let is_there = |name: &ResourceName| {
        snapshot.silent.contains(name) || snapshot.pools.iter().any(|pool| pool.name == *name)
    };
    pools.retain(|name, _| is_there(name));
    for pool in &snapshot.pools {
        let record = pools.entry(pool.name.clone()).or_default();
        record.judged = Some(pool.at);
        if record.recent.is_due(pool.at) {
            let totals = pool.consumers.iter().map(|consumer| (consumer.name.clone(), total(consumer)));
            record.recent.note(pool.at, totals.collect());
        }
        let config = config.pools.iter().find(|config| config.name == pool.name);
        record.promises.retain(|name, _| pool.consumers.iter().any(|consumer| consumer.name == *name));
        for consumer in &pool.consumers {
            let reading = reading(config, pool, consumer);
            let judgement = match reading {
                Some(reading) => {
                    let promise = record.promises.entry(consumer.name.clone()).or_default();
                    promise.note(pool.at, reading)
                }
                None => {
                    record.promises.remove(&consumer.name);
                    Judgement::default()
                }
            };
            let minute = MinuteReading {
                total: total(consumer),
                promise: reading.map(|reading| reading.terms()),
                judgement,
                is_outstanding: consumer.queued + consumer.in_flight > 0,
            };
            rollups(pool, consumer, minute);
        }
    }
}

/// Returns the counters of a consumer's promise. `None`: it was promised nothing.
///
/// A contract promises the time from a request's release to its completion. Otherwise a goal, or the pool's
/// target, is about the time at the storage: of the protected consumers' reads if there are protected
/// consumers, and of all requests if there are none.
fn reading(
    config: Option<&PoolConfig>,
    pool: &PoolSnapshot,
    consumer: &ConsumerSnapshot,
) -> Option<PromiseReading> {
    let contract = consumer.tenant.as_ref().and_then(|tenant| tenant.contract);
    if let Some(record) = contract
        && let Some(terms) = record.contract
    {
        let counters = PromiseCounters::Contract { requests: record.requests, late: record.late };
        return Some(PromiseReading { promised: terms.response_time(), counters });
    }
    let config = config?;
    let law = config.law.as_ref()?;
    let goal = config.exports.iter().find(|export| export.name == consumer.name)?.goal;
    let has_protected = pool.consumers.iter().any(|consumer| consumer.protected);
    // Totals do not tell a percentile.
    let is_mean = law.statistic == SignalStatistic::Mean;
    let target = (is_mean && (consumer.protected || !has_protected)).then_some(law.target);
    // Other laws judge goals only where the pool's signal is of everything.
    let is_judged = consumer.protected || !has_protected || law.law.kind().has_operating_point();
    let promised = goal.filter(|_| is_judged).or(target)?;
    let total = if consumer.protected { reads(consumer) } else { total(consumer) };
    let oldest = pool.decision.as_ref().and_then(|decision| match decision.input {
        SignalState::Overload { oldest } if consumer.in_flight > 0 => Some(oldest),
        _ => None,
    });
    let counters = PromiseCounters::Latencies { count: total.count, sum: total.sum, oldest };
    Some(PromiseReading { promised, counters })
}

fn reads(consumer: &ConsumerSnapshot) -> ConsumerTotal {
    let times = &consumer.reads.backend;
    ConsumerTotal { count: times.count(), sum: times.sum(), ..ConsumerTotal::default() }
}

/// Returns the requests of a consumer and their time. Where a law releases requests, it is the time since
/// their release, which the law judges; otherwise it is the time at the storage.
fn total(consumer: &ConsumerSnapshot) -> ConsumerTotal {
    let of = |operations: &OpSnapshot| {
        (
            operations.backend.count(),
            operations.backend.sum(),
            operations.total.count(),
            operations.total.sum(),
        )
    };
    let (reads, writes, flushes) = (of(&consumer.reads), of(&consumer.writes), of(&consumer.flushes));
    let (count, sum) = match &consumer.tenant {
        Some(tenant) => (tenant.released.count(), tenant.released.sum()),
        None => (reads.0 + writes.0, reads.1.saturating_add(writes.1)),
    };
    ConsumerTotal {
        count,
        sum,
        client: (reads.2 + writes.2, reads.3.saturating_add(writes.3)),
        read: Bytes::new(consumer.reads.bytes),
        written: Bytes::new(consumer.writes.bytes),
        flushes: (flushes.0, flushes.1),
    }
}

/// Returns the promises to all consumers, and how much of them was kept.
pub(crate) fn promises(records: &PoolRecords) -> BTreeMap<(ResourceName, ConsumerName), PromiseStatus> {
    let of_pool = |(pool, record): (&ResourceName, &PoolRecord)| {
        let kept = |(name, promise): (&ConsumerName, &PromiseRecord)| {
            Some(((pool.clone(), name.clone()), promise.status()?))
        };
        record.promises.iter().filter_map(kept).collect::<Vec<_>>()
    };
    records.iter().flat_map(of_pool).collect()
}

/// Returns a gateway's status, with the configuration that is in force.
pub(crate) fn of_gateway(
    config: &GatewayConfig,
    snapshot: &GatewaySnapshot,
    records: &PoolRecords,
) -> ServiceStatus {
    let pools = snapshot.pools.iter().map(|pool| {
        let config = config.pools.iter().find(|config| config.name == pool.name);
        of_pool(config, pool, records.get(&pool.name))
    });
    ServiceStatus::new(ServiceKind::Serve, true, pools.collect())
}

fn of_pool(config: Option<&PoolConfig>, pool: &PoolSnapshot, record: Option<&PoolRecord>) -> ResourceStatus {
    let by_law = ByLaw::of_each(pool.decision.as_ref());
    let did = |consumer: &ConsumerSnapshot| record?.recent.since(pool.at, &consumer.name, total(consumer));
    let promise = |consumer: &ConsumerSnapshot| record?.promises.get(&consumer.name)?.status();
    let one = |consumer: &ConsumerSnapshot| {
        let export = config.and_then(|pool| pool.exports.iter().find(|export| export.name == consumer.name));
        let promised = consumer.tenant.as_ref().and_then(|tenant| tenant.contract?.contract);
        let goal = promised.map(|terms| terms.response_time()).or_else(|| export?.goal);
        ConsumerStatus {
            recent: did(consumer),
            outstanding: Some((consumer.queued + consumer.in_flight) as u64),
            delay_seconds: seconds(Some(consumer.delay).filter(|delay| *delay > Latency::ZERO)),
            held: Some(is_held(pool, consumer)),
            released: consumer.released,
            waits_for: consumer.waits_for,
            promise: promise(consumer),
            errors: errors_status(&consumer.errors, pool.at),
            poisoned: consumer.poisoned,
            replaced: consumer.replaced,
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
        errors: pool
            .consumers
            .iter()
            .filter_map(|one| errors_status(&one.errors, pool.at))
            .reduce(|all, one| all.and(&one)),
        uncounted: Vec::new(),
        throttle_fails: false,
        law: config.and_then(|pool| pool.law.as_ref()).map(law),
        promise: None,
        decided: pool.decision.as_ref().map(|decision| decided(decision, pool.at)),
        recent: all.and_then(|all| together(&all)),
        promises: pool.consumers.iter().filter_map(promise).collect(),
        consumers: pool.consumers.iter().take(MOST_CONSUMERS).map(one).collect(),
        consumers_left_out: pool.consumers.len().saturating_sub(MOST_CONSUMERS),
        reporters: Vec::new(),
        source: None,
        signal_origin: None,
    }
}

/// Returns a consumer's errors as documents have them. `None`: none.
pub(crate) fn errors_status(errors: &IoErrors, now: Instant) -> Option<ErrorsStatus> {
    if errors.total() == 0 && errors.mistakes() == 0 {
        return None;
    }
    let kinds = errors.kinds().filter(|(_, count)| *count > 0);
    let age = |at: Instant| now.saturating_since(at).as_secs_f64();
    let (first, last) = errors.spell().unzip();
    Some(ErrorsStatus {
        kinds: kinds.map(|(kind, count)| ErrorCount { kind, count }).collect(),
        since_seconds: first.map(age),
        last_seconds: last.map(age),
        mistakes: errors.mistakes(),
    })
}

fn together(all: &[LoadFigures]) -> Option<LoadFigures> {
    let seconds = all.first()?.seconds;
    let iops: f64 = all.iter().map(|did| did.iops).sum();
    let busy: f64 = all.iter().filter_map(|did| Some(did.iops * did.response_time_seconds?)).sum();
    let waited: f64 = all.iter().filter_map(|did| Some(did.iops * did.client_seconds?)).sum();
    let flushes: f64 = all.iter().map(|did| did.flushes_per_second).sum();
    let flushed: f64 = all.iter().filter_map(|did| Some(did.flushes_per_second * did.flush_seconds?)).sum();
    let mean = |sum: f64| (iops > 0.0).then(|| sum / iops);
    Some(LoadFigures {
        seconds,
        iops,
        response_time_seconds: mean(busy),
        client_seconds: mean(waited),
        read_bytes_per_second: all.iter().map(|did| did.read_bytes_per_second).sum(),
        written_bytes_per_second: all.iter().map(|did| did.written_bytes_per_second).sum(),
        flushes_per_second: flushes,
        flush_seconds: (flushes > 0.0).then(|| flushed / flushes),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use tidegate_control::Contract;
    use tidegate_gateway::{ContractSnapshot, FineHistogram, TenantSnapshot};
    use tidegate_units::{Iops, Shares, Window};

    use super::*;

    fn name() -> ResourceName {
        ResourceName::new("disk").unwrap()
    }

    /// A pool after so many seconds, with a consumer under a contract that had so many late requests of 100.
    pub(crate) fn pool(second: u64, requests: u64, late: u64) -> PoolSnapshot {
        let terms = Contract::new(Iops::new(10.0), Latency::from_millis(10), Latency::from_millis(8));
        let contract = ContractSnapshot {
            contract: Some(terms.unwrap()),
            requests,
            late,
            active: Duration::from_secs(second),
        };
        let consumer = ConsumerSnapshot {
            name: ConsumerName::new("w1").unwrap(),
            shares: Shares::DEFAULT,
            protected: false,
            released: false,
            removed: false,
            sessions: 1,
            disks: 0,
            queued: 0,
            waits_for: None,
            in_flight: 1,
            delay: Latency::ZERO,
            window: None,
            reads: OpSnapshot { bytes: 4_096 * requests, ..OpSnapshot::default() },
            writes: OpSnapshot::default(),
            flushes: OpSnapshot::default(),
            trims: 0,
            caches: 0,
            block_statuses: 0,
            hung: false,
            replaced: false,
            errors: IoErrors::default(),
            poisoned: false,
            reserved: None,
            tenant: Some(TenantSnapshot {
                rate: None,
                released: FineHistogram::default(),
                contract: Some(contract),
            }),
            upstream: None,
        };
        PoolSnapshot {
            name: name(),
            at: Instant::from_nanos(second * 1_000_000_000),
            consumers: vec![consumer],
            awaited: Vec::new(),
            sessions: 1,
            bytes_in_use: Bytes::ZERO,
            bytes_in_use_peak: Bytes::ZERO,
            in_flight: 1,
            window: Window::new(32.0),
            decision: None,
            recent_decisions: Vec::new(),
            decisions: 0,
        }
    }

    #[test]
    fn a_pool_that_was_silent_is_judged_for_that_time_when_it_answers_again() {
        let config = GatewayConfig::new(Vec::new(), Vec::new());
        let mut records = PoolRecords::new();
        let mut noted = Vec::new();
        let mut note = |pools: Vec<PoolSnapshot>| {
            let silent = if pools.is_empty() { vec![name()] } else { Vec::new() };
            let snapshot = GatewaySnapshot {
                pools,
                silent,
                handshakes: 0,
                handshakes_ended: 0,
                guest_memory: 0,
                refused: Vec::new(),
            };
            super::note(&mut records, &config, &snapshot, |_, _, reading| noted.push(reading));
        };
        note(vec![pool(0, 0, 0)]);
        note(vec![pool(1, 100, 0)]);
        note(Vec::new());
        note(vec![pool(60, 200, 100)]);
        let judgements: Vec<_> = noted.iter().map(|reading| reading.judgement).collect();
        let judged = |judged, kept| Judgement { judged, kept };
        assert_eq!(judgements, [judged(0, 0), judged(100, 100), judged(100, 0)]);
        assert_eq!(noted[2].total.read, Bytes::new(819_200));
        let consumer = ConsumerName::new("w1").unwrap();
        let status = records[&name()].promises[&consumer].status().unwrap();
        assert_eq!(status.hour, Some(0.5), "the hour before the silence is not forgotten");
    }
}
