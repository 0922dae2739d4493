//! An agent's status.

use std::collections::BTreeMap;

use tidegate_control::{LoopConfig, OperationTotals};
use tidegate_regulate::StorageLoad;
use tidegate_service::status::{
    ByLaw, ConsumerStatus, ConsumerTotal, LoadFigures, MOST_CONSUMERS, PromiseStatus, RecentCounters,
    ReporterStatus, ResourceStatus, ServiceKind, ServiceStatus, SourceStatus, decided, law, seconds,
};
use tidegate_units::{ConsumerName, Instant, Latency, ResourceName};

use crate::initiators::intake::Reporter;
use crate::metrics;
use crate::source::SourceReading;

/// The state of an agent, as it knows it.
pub(crate) struct OfAgent<'a> {
    pub(crate) now: Instant,
    pub(crate) sees: bool,
    pub(crate) resources: &'a [metrics::ResourceStatus],
    pub(crate) laws: Vec<&'a LoopConfig>,
    /// Goals of cgroups.
    pub(crate) goals: BTreeMap<(ResourceName, ConsumerName), Latency>,
    pub(crate) recent: &'a RecentCounters<LoadKey>,
    pub(crate) promises: BTreeMap<ResourceName, PromiseStatus>,
    /// A predicate, true for resources whose members are not throttled, although they are to be.
    pub(crate) fails: &'a dyn Fn(&ResourceName) -> bool,
    /// A predicate, true for consumers that an operator has released.
    pub(crate) is_released: &'a dyn Fn(&ResourceName, &ConsumerName) -> bool,
}

/// A load that is counted: that of a resource, or of one of its consumers.
pub(crate) type LoadKey = (ResourceName, Option<ConsumerName>);

/// The counters of an agent's resources, and of their consumers. Resources that are not known now are left
/// out.
pub(crate) fn totals(resources: &[metrics::ResourceStatus]) -> BTreeMap<LoadKey, ConsumerTotal> {
    // Counters that stand still are no load of zero.
    let seen = resources.iter().filter(|resource| resource.uncounted.is_empty());
    let of_each = seen.flat_map(|resource| {
        let whole = ((resource.name.clone(), None), total(&resource.reads, &resource.writes));
        let members = resource.members.iter().chain(&resource.protected).map(|(name, load)| {
            ((resource.name.clone(), Some(name.clone())), total(&load.reads, &load.writes))
        });
        std::iter::once(whole).chain(members)
    });
    of_each.collect()
}

/// Returns the totals of reads and writes together.
pub(crate) fn total(reads: &OperationTotals, writes: &OperationTotals) -> ConsumerTotal {
    ConsumerTotal {
        count: reads.count.saturating_add(writes.count),
        sum: reads.total_latency.saturating_add(writes.total_latency),
        read: reads.bytes,
        written: writes.bytes,
        ..ConsumerTotal::default()
    }
}

/// Returns an agent's status.
pub(crate) fn of_agent(agent: &OfAgent<'_>) -> ServiceStatus {
    let resources = agent.resources.iter().map(|resource| of_resource(agent, resource));
    ServiceStatus::new(ServiceKind::Agent, agent.sees, resources.collect())
}

fn of_resource(agent: &OfAgent<'_>, resource: &metrics::ResourceStatus) -> ResourceStatus {
    let by_law = ByLaw::of_each(resource.decision.as_ref());
    let delay = Some(resource.delay).filter(|delay| *delay > Latency::ZERO && !resource.dry_run);
    let fails = (agent.fails)(&resource.name);
    // Members that share a delay have the same one. Members with rates have one each.
    let held = |law: ByLaw| match law.held {
        Some(held) => held && !resource.dry_run && !fails,
        None => delay.is_some(),
    };
    // Of a device that several consumers load, the kernel does not say whose requests took how long.
    let recent = |consumer: Option<&ConsumerName>, reads: &OperationTotals, writes: &OperationTotals| {
        let key = (resource.name.clone(), consumer.cloned());
        let is_known = resource.uncounted.is_empty();
        agent.recent.since(agent.now, &key, total(reads, writes)).filter(|_| is_known)
    };
    let did = |name: &ConsumerName, load: &StorageLoad| {
        let did = recent(Some(name), &load.reads, &load.writes)?;
        Some(LoadFigures { response_time_seconds: None, ..did })
    };
    let one = |(name, load): (&ConsumerName, &StorageLoad)| {
        let law = by_law.get(name).copied().unwrap_or_default();
        let goal = agent.goals.get(&(resource.name.clone(), name.clone())).copied();
        ConsumerStatus {
            selected_as: resource.names.get(name).cloned(),
            goal_seconds: seconds(goal),
            delay_seconds: seconds(delay.map(|delay| resource.divided.get(name).copied().unwrap_or(delay))),
            held: Some(held(law)),
            recent: did(name, load),
            ..law.status(name, false)
        }
    };
    let protected = |(name, load): (&ConsumerName, &StorageLoad)| {
        let released = (agent.is_released)(&resource.name, name);
        ConsumerStatus {
            held: Some(false),
            released,
            recent: did(name, load),
            ..ByLaw::default().status(name, !released)
        }
    };
    let consumers = resource.members.iter().map(one).chain(resource.protected.iter().map(protected));
    let all = resource.members.len() + resource.protected.len();
    let mut law = agent.laws.iter().find(|law| law.resource == resource.name).map(|config| law(config));
    // Also where only the command line says so.
    law.iter_mut().for_each(|law| law.dry_run |= resource.dry_run);
    let promise = agent.promises.get(&resource.name).copied();
    ResourceStatus {
        name: resource.name.to_string(),
        present: resource.present,
        errors: None,
        uncounted: resource.uncounted.clone(),
        throttle_fails: fails,
        law,
        promise,
        decided: resource.decision.as_ref().map(|decision| decided(decision, agent.now)),
        recent: recent(None, &resource.reads, &resource.writes),
        promises: promise.into_iter().collect(),
        consumers: consumers.take(MOST_CONSUMERS).collect(),
        consumers_left_out: all.saturating_sub(MOST_CONSUMERS),
        reporters: resource.reporters.iter().take(MOST_CONSUMERS).map(reporter).collect(),
        source: resource.source.as_ref().map(source),
        signal_origin: resource.decision.as_ref().map(|_| resource.signal_origin),
    }
}

fn reporter(one: &Reporter) -> ReporterStatus {
    ReporterStatus {
        host: one.host.to_string(),
        consumer: one.consumer.as_ref().map(ToString::to_string),
        age_seconds: one.age.as_secs_f64(),
        mean_seconds: seconds(one.mean),
        counts: one.reading.counts(),
        said: one.reading.to_string(),
    }
}

fn source(reading: &SourceReading) -> SourceStatus {
    SourceStatus {
        place: reading.place.clone(),
        age_seconds: seconds(reading.latest.map(|(age, _)| age)),
        latency_seconds: seconds(reading.latest.and_then(|(_, latency)| latency)),
        counts: reading.counts,
        trouble: reading.trouble.clone(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_control::{
        BandPosition, ControlLoop, Decision, LawConfig, LawKind, LawOutput, Observation, PidConfig,
        PointDecision, SelfTuningConfig,
    };
    use tidegate_service::status::{DecisionStatus, InputStatus, OperatingPoint, SignalOrigin};
    use tidegate_units::{Bytes, Iops, Window};

    use super::*;

    fn name() -> ResourceName {
        ResourceName::new("vg0").unwrap()
    }

    fn config() -> LoopConfig {
        LoopConfig::new(name(), Latency::from_millis(15), LawConfig::Pid(PidConfig::default()))
    }

    fn decision() -> Decision {
        let at = Instant::from_nanos(1_000_000_000);
        ControlLoop::new(config()).unwrap().step(at, &Observation::new(name(), at, Vec::new())).1
    }

    /// A consumer that has read 6 times 4 KiB, and written 3 times 1 KiB.
    fn member(at: usize) -> (ConsumerName, StorageLoad) {
        let done = |count, size| OperationTotals {
            count,
            bytes: Bytes::new(count * size),
            total_latency: Latency::from_millis(count),
            ..OperationTotals::default()
        };
        let load = StorageLoad { reads: done(6, 4_096), writes: done(3, 1_024), outstanding_seconds: 0.0 };
        (ConsumerName::new(&format!("iqn.{at:05}")).unwrap(), load)
    }

    fn resource(members: usize) -> metrics::ResourceStatus {
        metrics::ResourceStatus {
            name: name(),
            present: true,
            dry_run: false,
            delay: Latency::from_millis(8),
            divided: BTreeMap::new(),
            limits: BTreeMap::new(),
            decision: Some(decision()),
            reads: OperationTotals { count: 9, ..OperationTotals::default() },
            writes: OperationTotals::default(),
            members: (0..members).map(member).collect(),
            protected: BTreeMap::from([member(99_998), member(99_999)]),
            reporters: Vec::new(),
            source: None,
            signal_origin: SignalOrigin::Reports,
            uncounted: Vec::new(),
            names: BTreeMap::from([(ConsumerName::new("iqn.00000").unwrap(), "pod:shop/db".to_owned())]),
        }
    }

    fn said(resource: metrics::ResourceStatus, fails: bool) -> ResourceStatus {
        let config = config();
        let mut recent = RecentCounters::default();
        let idle = totals(std::slice::from_ref(&resource)).into_keys();
        recent.note(Instant::ZERO, idle.map(|key| (key, ConsumerTotal::default())).collect());
        let status = of_agent(&OfAgent {
            now: Instant::from_nanos(3_000_000_000),
            sees: true,
            resources: &[resource],
            laws: vec![&config],
            goals: BTreeMap::new(),
            recent: &recent,
            promises: BTreeMap::new(),
            fails: &|_| fails,
            is_released: &|_, name| name.as_str() == "iqn.99998",
        });
        status.resources.into_iter().next().unwrap()
    }

    #[test]
    fn members_share_a_delay_and_are_told_of_up_to_a_bound() {
        let told = said(resource(MOST_CONSUMERS + 7), false);
        assert_eq!((told.consumers.len(), told.consumers_left_out), (MOST_CONSUMERS, 9));
        let one = &told.consumers[0];
        assert_eq!((one.held, one.delay_seconds, one.outstanding), (Some(true), Some(0.008), None));
        let expected = LoadFigures {
            seconds: 3.0,
            iops: 3.0,
            response_time_seconds: None,
            client_seconds: None,
            read_bytes_per_second: 8_192.0,
            written_bytes_per_second: 1_024.0,
            ..LoadFigures::default()
        };
        assert_eq!(one.recent, Some(expected));
        let decided = told.decided.unwrap();
        assert!((decided.age_seconds - 2.0).abs() < 1e-9);
        assert_eq!((decided.input, decided.measured_seconds), (InputStatus::Idle, None));
        assert_eq!(told.recent.map(|did| did.iops), Some(3.0));
        assert_eq!((one.name.as_str(), one.shown_name()), ("iqn.00000", "pod:shop/db"));
        assert_eq!(told.consumers[1].shown_name(), "iqn.00001");
        assert_eq!(told.signal_origin, Some(SignalOrigin::Reports));
    }

    #[test]
    fn protected_and_released_consumers_follow_the_eligible_ones_with_their_load() {
        let told = said(resource(1), false);
        let of = |one: &ConsumerStatus| (one.name.clone(), one.protected, one.released);
        let all: Vec<_> = told.consumers.iter().map(of).collect();
        let named = |name: &str, protected, released| (name.to_owned(), protected, released);
        let expected = [
            named("iqn.00000", false, false),
            named("iqn.99998", false, true),
            named("iqn.99999", true, false),
        ];
        assert_eq!(all, expected);
        let one = &told.consumers[2];
        assert_eq!((one.held, one.delay_seconds), (Some(false), None));
        assert_eq!(one.recent.map(|did| did.iops), Some(3.0));
    }

    #[test]
    fn counters_that_stand_still_are_no_load_of_zero() {
        let why = "the kernel does not count the requests of sdb".to_owned();
        let unseen = metrics::ResourceStatus { uncounted: vec![why.clone()], ..resource(1) };
        assert!(totals(std::slice::from_ref(&unseen)).is_empty());
        let told = said(metrics::ResourceStatus { decision: None, ..unseen }, false);
        assert_eq!((told.recent, told.consumers[0].recent, told.uncounted), (None, None, vec![why]));
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

    /// Returns the status of one consumer that is entitled to 350 of 500 IO/s.
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
            allotments: vec![tidegate_control::PointAllotment {
                name: who,
                entitled: iops,
                rate: iops,
                held: true,
            }],
            window: None,
        };
        change(&mut point);
        let law = LawKind::SelfTuning;
        let decided = Decision {
            law,
            bounded: LawOutput::Rate(point.operating_point),
            point: Some(point),
            ..decision()
        };
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
