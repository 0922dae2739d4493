//! What is known, put together.

use std::collections::BTreeMap;

use tidegate_control::{Decision, Input, LoopConfig, Output};
use tidegate_gateway::{ConsumerSnapshot, GatewayConfig, GatewaySnapshot, PoolConfig, PoolSnapshot};
use tidegate_units::{ConsumerName, Instant, Iops, Latency, ResourceName};

use super::recent::{Recent, Total};
use super::{
    ConsumerStatus, DecisionStatus, Did, InputStatus, LawStatus, MOST_CONSUMERS, OperatingPoint,
    ResourceStatus, Service, Status,
};
use crate::metrics::{self, is_held};

/// The counters of each pool's consumers.
pub(crate) type Pools = BTreeMap<ResourceName, Recent<ConsumerName>>;

/// Takes note of what consumers did, as often as that is of use.
pub(crate) fn note(pools: &mut Pools, snapshot: &GatewaySnapshot) {
    pools.retain(|name, _| snapshot.pools.iter().any(|pool| pool.name == *name));
    for pool in &snapshot.pools {
        let recent = pools.entry(pool.name.clone()).or_default();
        if recent.is_due(pool.at) {
            let totals = pool.consumers.iter().map(|consumer| (consumer.name.clone(), total(consumer)));
            recent.note(pool.at, totals.collect());
        }
    }
}

/// Where a law releases requests, since their release, which is what it judges; otherwise at the storage.
fn total(consumer: &ConsumerSnapshot) -> Total {
    if let Some(tenant) = &consumer.tenant {
        return Total { count: tenant.released.count(), sum: tenant.released.sum() };
    }
    let of = |times: &tidegate_gateway::Histogram| Total { count: times.count(), sum: times.sum() };
    of(&consumer.reads.backend).and(of(&consumer.writes.backend))
}

/// What a gateway says, with the configuration that is in force.
pub(crate) fn of_gateway(config: &GatewayConfig, snapshot: &GatewaySnapshot, recent: &Pools) -> Status {
    let pools = snapshot.pools.iter().map(|pool| {
        let config = config.pools.iter().find(|config| config.name == pool.name);
        of_pool(config, pool, recent.get(&pool.name))
    });
    status(Service::Serve, true, pools.collect())
}

fn status(service: Service, sees: bool, resources: Vec<ResourceStatus>) -> Status {
    let program = env!("CARGO_PKG_VERSION").to_owned();
    Status { version: Status::VERSION, service, program, sees, resources }
}

fn of_pool(
    config: Option<&PoolConfig>,
    pool: &PoolSnapshot,
    recent: Option<&Recent<ConsumerName>>,
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
            goal_seconds: seconds(goal),
            ..by_law
                .get(&consumer.name)
                .copied()
                .unwrap_or_default()
                .status(&consumer.name, consumer.protected)
        }
    };
    // Of all together only where it is known of each.
    let all: Option<Vec<Did>> = pool.consumers.iter().map(did).collect();
    ResourceStatus {
        name: pool.name.to_string(),
        present: true,
        throttle_fails: false,
        law: config.and_then(|pool| pool.law.as_ref()).map(law),
        decided: pool.decision.as_ref().map(|decision| decided(decision, pool.at)),
        recent: all.and_then(|all| together(&all)),
        consumers: pool.consumers.iter().take(MOST_CONSUMERS).map(one).collect(),
        consumers_left_out: pool.consumers.len().saturating_sub(MOST_CONSUMERS),
    }
}

fn together(all: &[Did]) -> Option<Did> {
    let seconds = all.first()?.seconds;
    let iops: f64 = all.iter().map(|did| did.iops).sum();
    let busy: f64 = all.iter().filter_map(|did| Some(did.iops * did.response_time_seconds?)).sum();
    Some(Did { seconds, iops, response_time_seconds: (iops > 0.0).then(|| busy / iops) })
}

/// What an agent knows of itself.
pub(crate) struct OfAgent<'a> {
    pub(crate) now: Instant,
    pub(crate) sees: bool,
    pub(crate) resources: &'a [metrics::ResourceStatus],
    pub(crate) laws: Vec<&'a LoopConfig>,
    /// Goals of cgroups.
    pub(crate) goals: BTreeMap<(ResourceName, ConsumerName), Latency>,
    pub(crate) recent: &'a Recent<ResourceName>,
    /// Whose members are not held, although they are to be.
    pub(crate) fails: &'a dyn Fn(&ResourceName) -> bool,
}

/// The counters of an agent's resources.
pub(crate) fn totals(resources: &[metrics::ResourceStatus]) -> BTreeMap<ResourceName, Total> {
    resources.iter().map(|resource| (resource.name.clone(), done(resource))).collect()
}

fn done(resource: &metrics::ResourceStatus) -> Total {
    let of = |done: &tidegate_control::Operations| Total { count: done.count, sum: done.total_latency };
    of(&resource.reads).and(of(&resource.writes))
}

/// What an agent says.
pub(crate) fn of_agent(agent: &OfAgent<'_>) -> Status {
    let resources = agent.resources.iter().map(|resource| of_resource(agent, resource));
    status(Service::Agent, agent.sees, resources.collect())
}

fn of_resource(agent: &OfAgent<'_>, resource: &metrics::ResourceStatus) -> ResourceStatus {
    let by_law = ByLaw::of_each(resource.decision.as_ref());
    let delay = Some(resource.delay).filter(|delay| *delay > Latency::ZERO && !resource.dry_run);
    let fails = (agent.fails)(&resource.name);
    // Of members that share a delay it is the same for all; of those with rates each is held by its own.
    let held = |law: ByLaw| match law.held {
        Some(held) => held && !resource.dry_run && !fails,
        None => delay.is_some(),
    };
    let one = |name: &ConsumerName| {
        let law = by_law.get(name).copied().unwrap_or_default();
        let goal = agent.goals.get(&(resource.name.clone(), name.clone())).copied();
        ConsumerStatus {
            goal_seconds: seconds(goal),
            delay_seconds: seconds(delay),
            held: Some(held(law)),
            ..law.status(name, false)
        }
    };
    let mut law = agent.laws.iter().find(|law| law.resource == resource.name).map(|config| law(config));
    // Also where only the command line says so.
    law.iter_mut().for_each(|law| law.dry_run |= resource.dry_run);
    ResourceStatus {
        name: resource.name.to_string(),
        present: resource.present,
        throttle_fails: fails,
        law,
        decided: resource.decision.as_ref().map(|decision| decided(decision, agent.now)),
        recent: agent.recent.since(agent.now, &resource.name, done(resource)),
        consumers: resource.members.iter().take(MOST_CONSUMERS).map(one).collect(),
        consumers_left_out: resource.members.len().saturating_sub(MOST_CONSUMERS),
    }
}

fn law(config: &LoopConfig) -> LawStatus {
    LawStatus {
        kind: config.law.kind(),
        target_seconds: config.target.as_secs_f64(),
        interval_seconds: config.interval.as_secs_f64(),
        dry_run: config.dry_run,
    }
}

fn decided(decision: &Decision, now: Instant) -> DecisionStatus {
    let point = decision.point.as_ref();
    let operating_point = point.map(|point| {
        if point.is_limit() {
            OperatingPoint::Limits { iops: point.operating_point.per_second(), band: point.position }
        } else {
            OperatingPoint::HoldsNobody
        }
    });
    let holds = decision.held > 0 && !decision.dry_run;
    let delay = match decision.bounded {
        Output::Delay(delay) => Some(delay),
        Output::Window(_) | Output::Rate(_) => None,
    };
    // A window that lets everybody through is none.
    let window = decision.window().filter(|_| holds || operating_point.is_some());
    DecisionStatus {
        age_seconds: now.saturating_since(decision.at).as_secs_f64(),
        said: decision.to_string(),
        input: input(decision.input),
        measured_seconds: seconds(decision.measured),
        estimate_seconds: seconds(decision.estimate),
        set_point_seconds: decision.set_point.as_secs_f64(),
        held: decision.held,
        throttled: decision.throttled,
        operating_point,
        window_requests: window.map(|window| window.get()),
        delay_seconds: seconds(delay),
    }
}

const fn input(input: Input) -> InputStatus {
    match input {
        Input::Samples { .. } => InputStatus::Samples,
        Input::Overload { .. } => InputStatus::Overload,
        Input::Unknown => InputStatus::Unknown,
        Input::Idle => InputStatus::Idle,
        Input::NoTime => InputStatus::NoTime,
    }
}

fn seconds(latency: Option<Latency>) -> Option<f64> {
    latency.map(Latency::as_secs_f64)
}

/// What a law decided of one consumer.
#[derive(Debug, Clone, Copy, Default)]
struct ByLaw {
    set_point: Option<Latency>,
    measured: Option<Latency>,
    oldest: Option<Latency>,
    entitled: Option<Iops>,
    rate: Option<Iops>,
    held: Option<bool>,
}

impl ByLaw {
    fn of_each(decision: Option<&Decision>) -> BTreeMap<&ConsumerName, Self> {
        let mut each: BTreeMap<&ConsumerName, Self> = BTreeMap::new();
        let point = decision.and_then(|decision| decision.point.as_ref());
        for regulator in point.into_iter().flat_map(|point| &point.regulators) {
            let one = each.entry(&regulator.name).or_default();
            (one.set_point, one.measured) = (Some(regulator.goal), regulator.measured);
            one.oldest = oldest(regulator.input);
        }
        for allotment in point.into_iter().flat_map(|point| &point.allotments) {
            let one = each.entry(&allotment.name).or_default();
            one.held = Some(allotment.held);
            // With the model of a queue rates are in force only where there are bands.
            let by_rates = point.is_some_and(|point| point.window.is_none() || point.position.is_some());
            if by_rates && point.is_some_and(|point| point.is_limit()) {
                (one.entitled, one.rate) = (Some(allotment.entitled), Some(allotment.rate));
            }
        }
        for rate in decision.into_iter().flat_map(|decision| &decision.rates) {
            let one = each.entry(&rate.name).or_default();
            (one.set_point, one.measured, one.oldest) =
                (Some(rate.reference), rate.measured, oldest(rate.input));
            (one.rate, one.held) = (Some(rate.rate), Some(rate.held));
        }
        each
    }

    fn status(self, name: &ConsumerName, protected: bool) -> ConsumerStatus {
        ConsumerStatus {
            name: name.to_string(),
            protected,
            goal_seconds: None,
            set_point_seconds: seconds(self.set_point),
            measured_seconds: seconds(self.measured),
            oldest_seconds: seconds(self.oldest),
            recent: None,
            outstanding: None,
            entitled_iops: self.entitled.map(Iops::per_second),
            rate_iops: self.rate.map(Iops::per_second),
            delay_seconds: None,
            held: None,
        }
    }
}

const fn oldest(input: Input) -> Option<Latency> {
    match input {
        Input::Overload { oldest } => Some(oldest),
        _ => None,
    }
}
