//! What is known, put together.

use std::collections::BTreeMap;

use tidegate_control::{Decision, Input, LoopConfig, Output, PointDecision};
use tidegate_gateway::{ConsumerSnapshot, GatewayConfig, GatewaySnapshot, PoolConfig, PoolSnapshot};
use tidegate_units::{ConsumerName, Instant, Iops, Latency, ResourceName, Window};

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
            poisoned: consumer.poisoned,
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
        present: pool.awaited.is_empty() || !pool.consumers.is_empty(),
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
        window_requests: window.map(Window::get),
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
            if by_rates && point.is_some_and(PointDecision::is_limit) {
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
            poisoned: false,
        }
    }
}

const fn oldest(input: Input) -> Option<Latency> {
    match input {
        Input::Overload { oldest } => Some(oldest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_control::{
        BandPosition, ControlLoop, Law, LawKind, Observation, Operations, PidConfig, SelfTuningConfig,
    };

    use super::*;

    fn name() -> ResourceName {
        ResourceName::new("vg0").unwrap()
    }

    fn config() -> LoopConfig {
        LoopConfig::new(name(), Latency::from_millis(15), Law::Pid(PidConfig::default()))
    }

    fn decision() -> Decision {
        let at = Instant::from_nanos(1_000_000_000);
        ControlLoop::new(config()).unwrap().step(at, &Observation::new(name(), at, Vec::new())).1
    }

    fn resource(members: usize) -> metrics::ResourceStatus {
        metrics::ResourceStatus {
            name: name(),
            present: true,
            dry_run: false,
            delay: Latency::from_millis(8),
            limits: BTreeMap::new(),
            decision: Some(decision()),
            reads: Operations { count: 9, ..Operations::default() },
            writes: Operations::default(),
            members: (0..members).map(|at| ConsumerName::new(&format!("iqn.{at:05}")).unwrap()).collect(),
        }
    }

    fn said(resource: metrics::ResourceStatus, fails: bool) -> ResourceStatus {
        let config = config();
        let mut recent = Recent::default();
        recent.note(Instant::ZERO, BTreeMap::from([(name(), Total::default())]));
        let status = of_agent(&OfAgent {
            now: Instant::from_nanos(3_000_000_000),
            sees: true,
            resources: &[resource],
            laws: vec![&config],
            goals: BTreeMap::new(),
            recent: &recent,
            fails: &|_| fails,
        });
        status.resources.into_iter().next().unwrap()
    }

    #[test]
    fn members_share_a_delay_and_are_told_of_up_to_a_bound() {
        let told = said(resource(MOST_CONSUMERS + 7), false);
        assert_eq!((told.consumers.len(), told.consumers_left_out), (MOST_CONSUMERS, 7));
        let one = &told.consumers[0];
        assert_eq!(
            (one.held, one.delay_seconds, one.recent, one.outstanding),
            (Some(true), Some(0.008), None, None)
        );
        let decided = told.decided.unwrap();
        assert!((decided.age_seconds - 2.0).abs() < 1e-9);
        assert_eq!((decided.input, decided.measured_seconds), (InputStatus::Idle, None));
        assert_eq!(told.recent.map(|did| did.iops), Some(3.0));
    }

    #[test]
    fn on_a_dry_run_and_by_a_throttle_that_fails_nobody_is_held() {
        let dry = said(metrics::ResourceStatus { dry_run: true, ..resource(1) }, false);
        assert!(dry.law.unwrap().dry_run, "also where only the command line says so");
        assert_eq!((dry.consumers[0].held, dry.consumers[0].delay_seconds), (Some(false), None));
        let mut failing = resource(1);
        failing.not_held();
        let failing = said(failing, true);
        assert_eq!((failing.throttle_fails, failing.consumers[0].held), (true, Some(false)));
    }

    /// Of one consumer that is entitled to 350 of 500 IO/s.
    fn divided(change: impl Fn(&mut PointDecision)) -> (DecisionStatus, ConsumerStatus) {
        let who = ConsumerName::new("iqn.00000").unwrap();
        let iops = Iops::new(350.0);
        let mut point = PointDecision {
            operating_point: Iops::new(500.0),
            applied: Iops::new(480.0),
            position: Some(BandPosition::In { band: 2, part: 0.2 }),
            decided_by: None,
            host: None,
            doubted: false,
            regulators: Vec::new(),
            allotments: vec![tidegate_control::Allotment {
                name: who,
                entitled: iops,
                rate: iops,
                held: true,
            }],
            window: None,
        };
        change(&mut point);
        let law = LawKind::SelfTuning;
        let decided =
            Decision { law, bounded: Output::Rate(point.operating_point), point: Some(point), ..decision() };
        let mut told = said(metrics::ResourceStatus { decision: Some(decided), ..resource(1) }, false);
        (told.decided.unwrap(), told.consumers.remove(0))
    }

    #[test]
    fn a_rate_is_told_of_where_it_is_in_force() {
        let (decided, one) = divided(|_| ());
        let band = Some(BandPosition::In { band: 2, part: 0.2 });
        assert_eq!(decided.operating_point, Some(OperatingPoint::Limits { iops: 500.0, band }));
        assert_eq!((one.entitled_iops, one.rate_iops, one.held), (Some(350.0), Some(350.0), Some(true)));
        let (decided, one) = divided(|point| point.operating_point = SelfTuningConfig::UNBOUNDED);
        assert_eq!(decided.operating_point, Some(OperatingPoint::HoldsNobody));
        assert_eq!((one.entitled_iops, one.rate_iops), (None, None));
        // The model of a queue without bands: the window alone.
        let (decided, one) = divided(|point| {
            (point.position, point.window) = (None, Some(Window::new(4.5)));
        });
        assert_eq!((decided.window_requests, one.rate_iops), (Some(4.5), None));
    }
}
