//! Reservations through the whole loop: hosts on one saturated server, each with a scheduler that serves
//! reservations first.

use std::time::Duration;

use tidegate_control::{
    ConsumerObservation, ControlLoop, Decision, HeardReport, LawConfig, LawOutput, LoopConfig,
    MeanOutstanding, Observation, OperationTotals, OutputBound, PidConfig, ReservationConditions,
    ReservationShortage, WindowConfig, combine, feasible,
};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares, Window};

const INTERVAL: Duration = Duration::from_secs(2);

/// One host: a consumer with a reservation, and one without that always has work.
struct Host {
    name: HostName,
    control: ControlLoop,
    shares: [u32; 2],
    reserved: f64,
    /// How many requests the reserved consumer keeps outstanding.
    depth: f64,
    window: f64,
    /// Completions not yet reported, because a report counts whole ones.
    rest: [f64; 2],
    completed: [f64; 2],
    decision: Option<Decision>,
}

impl Host {
    fn new(name: &str, shares: [u32; 2], reserved: f64, greatest: f64) -> Self {
        let law = LawConfig::Window(WindowConfig {
            greatest: Window::new(greatest),
            ..WindowConfig::across_hosts()
        });
        let config = LoopConfig {
            interval: INTERVAL,
            set_point_ratio: 1.0,
            ..LoopConfig::new(ResourceName::new("array").unwrap(), Latency::from_millis(20), law)
        };
        Self {
            name: HostName::new(name).unwrap(),
            control: ControlLoop::new(config).unwrap(),
            shares,
            reserved,
            depth: 1_000.0,
            window: greatest,
            rest: [0.0; 2],
            completed: [0.0; 2],
            decision: None,
        }
    }

    fn consumer(&mut self, index: usize, rate: f64, latency: Latency) -> ConsumerObservation {
        let exact = rate * INTERVAL.as_secs_f64() + self.rest[index];
        let count = exact.floor();
        self.rest[index] = exact - count;
        self.completed[index] = rate;
        let name = ConsumerName::new(["reserved", "other"][index]).unwrap();
        ConsumerObservation {
            reservation: (index == 0 && self.reserved > 0.0).then(|| Iops::new(self.reserved)),
            reads: OperationTotals {
                count: count as u64,
                bytes: Bytes::new(count as u64 * 4_096),
                total_latency: Latency::from_secs_f64(count * latency.as_secs_f64()),
                in_flight: 1,
                oldest_in_flight: Some(latency),
            },
            mean_outstanding: MeanOutstanding::new([self.depth, 1_000.0][index]),
            queued: 10,
            ..ConsumerObservation::idle(name, Shares::new(self.shares[index]).unwrap(), false)
        }
    }
}

/// So many intervals of hosts on a FIFO server: by Little's law L = Σw/C, and each host completes w/L.
fn run(hosts: &mut [Host], capacity: f64, intervals: u32) -> f64 {
    let mut latency = 0.0;
    for interval in 1..=intervals {
        let now = Instant::ZERO + INTERVAL * interval;
        latency = hosts.iter().map(|host| host.window).sum::<f64>() / capacity;
        let mut observations = Vec::new();
        for host in hosts.iter_mut() {
            let rate = host.window / latency;
            let by_shares = rate * f64::from(host.shares[0]) / f64::from(host.shares[0] + host.shares[1]);
            let first = host.reserved.min(rate * 128.0 / 129.0).max(by_shares).min(host.depth / latency);
            let seen = Latency::from_secs_f64(latency);
            let consumers = vec![host.consumer(0, first, seen), host.consumer(1, rate - first, seen)];
            let observation = Observation::new(host.control.config().resource.clone(), now, consumers);
            let report = host.control.report(&observation);
            observations.push((observation, report));
        }
        for (index, host) in hosts.iter_mut().enumerate() {
            let others = observations.iter().enumerate().filter(|(other, _)| *other != index);
            let peers: Vec<_> = others
                .map(|(other, (_, report))| HeardReport {
                    host: HostName::new(&format!("peer-{other}")).unwrap(),
                    age: Latency::ZERO,
                    report: report.clone(),
                })
                .collect();
            let (observation, report) = &observations[index];
            let mut observation = observation.clone();
            observation.cluster = Some(combine(&host.name, report, &peers, INTERVAL));
            let (commands, decision) = host.control.step(now, &observation);
            host.window = commands.window.unwrap().get();
            host.decision = Some(decision);
        }
    }
    latency
}

#[test]
fn the_window_keeps_a_reservation_against_a_host_with_five_times_the_shares() {
    let mut with = [Host::new("a", [50, 50], 300.0, 64.0), Host::new("b", [10, 490], 0.0, 64.0)];
    let latency = run(&mut with, 1_000.0, 200);
    assert!(with[0].completed[0] >= 300.0, "{:?}", with[0].completed);
    let decision = with[0].decision.as_ref().unwrap();
    assert_eq!(decision.bound, Some(OutputBound::Reservation));
    assert_eq!(decision.reserved.unwrap().missed, None);
    assert!(decision.to_string().contains("the least that keeps reservations (300 IO/s at "), "{decision}");
    // The other gives way: with w_a = 1.05·300·L and w_b = β_b/(1 − 𝓛/L), of which β_b is 5, and L = (w_a +
    // w_b)/C, the response time is 𝓛 + β_b/(0.685·C).
    assert!((latency - 0.0273).abs() < 0.0005, "{latency}");

    let mut without = [Host::new("a", [50, 50], 0.0, 64.0), Host::new("b", [10, 490], 0.0, 64.0)];
    run(&mut without, 1_000.0, 200);
    assert!(
        (without[0].completed[0] - 83.3).abs() < 2.0,
        "the test is worth something: {:?}",
        without[0].completed
    );
}

/// 2 · 475 IO/s of 1 000: the floors alone nearly fill the server, and the response time still settles.
#[test]
fn floors_settle_while_the_sum_of_reservations_is_below_the_capacity() {
    let host = |name| Host::new(name, [50, 50], 470.0, 64.0);
    let mut hosts = [host("a"), host("b")];
    let latency = run(&mut hosts, 1_000.0, 400);
    assert!(latency < 0.030, "{latency}");
    for host in &hosts {
        assert!(host.completed[0] >= 470.0, "{:?}", host.completed);
        assert_eq!(host.decision.as_ref().unwrap().reserved.unwrap().missed, None);
    }
}

#[test]
fn reservations_beyond_the_capacity_are_missed_where_the_window_ends_and_the_storage_is_named() {
    let host = |name, reserved| Host::new(name, [50, 50], reserved, 64.0);
    let mut hosts = [host("a", 800.0), host("b", 400.0)];
    run(&mut hosts, 1_000.0, 400);
    let decision = hosts[0].decision.as_ref().unwrap();
    let reserved = decision.reserved.unwrap();
    assert_eq!(reserved.everywhere, Iops::new(1_200.0));
    assert!(hosts[0].completed[0] < 600.0 && hosts[0].window >= 64.0, "{:?}", hosts[0].completed);
    assert!(hosts[1].completed[0] >= 400.0, "{:?}", hosts[1].completed);
    assert_eq!(reserved.missed, Some(ReservationShortage::Storage), "no window would help: {decision}");
    assert!(decision.to_string().contains("completes less than 1200 IO/s for all hosts"), "{decision}");
    let judged = feasible(&ReservationConditions {
        here: Iops::new(800.0),
        everywhere: reserved.everywhere,
        latency: reserved.latency,
        greatest: Window::new(1_000.0),
        capacity: Some(Iops::new(1_000.0)),
    });
    assert!(!judged.is_kept() && judged.shortage == ReservationShortage::Storage, "{judged:?}");
}

#[test]
fn too_small_a_greatest_window_is_named_as_the_cause() {
    let mut hosts = [Host::new("a", [50, 50], 300.0, 4.0), Host::new("b", [100, 4_900], 0.0, 64.0)];
    run(&mut hosts, 1_000.0, 200);
    let decision = hosts[0].decision.as_ref().unwrap();
    assert_eq!(decision.reserved.unwrap().missed, Some(ReservationShortage::Window));
    assert!(decision.to_string().contains("more than is allowed"), "{decision}");
}

#[test]
fn who_does_not_use_its_reservation_widens_no_window() {
    let mut hosts = [Host::new("a", [50, 50], 300.0, 64.0), Host::new("b", [100, 4_900], 0.0, 64.0)];
    hosts[0].depth = 0.1;
    run(&mut hosts, 1_000.0, 200);
    let decision = hosts[0].decision.as_ref().unwrap();
    assert_ne!(decision.bound, Some(OutputBound::Reservation), "{decision}");
    assert!(decision.reserved.unwrap().window <= Window::new(0.1), "{decision:?}");
}

#[test]
fn a_delay_leaves_a_consumer_what_is_reserved_for_it() {
    let config = LoopConfig::new(
        ResourceName::new("array").unwrap(),
        Latency::from_millis(5),
        LawConfig::Pid(PidConfig::default()),
    );
    let mut control = ControlLoop::new(config).unwrap();
    let mut last = None;
    for interval in 1..=100 {
        let now = Instant::ZERO + Duration::from_millis(250) * interval;
        let busy = |name: &str, reserved: f64| ConsumerObservation {
            reservation: (reserved > 0.0).then(|| Iops::new(reserved)),
            reads: OperationTotals {
                count: 20,
                total_latency: Latency::from_millis(20 * 30),
                ..OperationTotals::default()
            },
            mean_outstanding: MeanOutstanding::new(8.0),
            ..ConsumerObservation::idle(ConsumerName::new(name).unwrap(), Shares::DEFAULT, false)
        };
        let consumers = vec![busy("reserved", 100.0), busy("unused", 1_000.0), busy("other", 0.0)];
        let observation = Observation::new(ResourceName::new("array").unwrap(), now, consumers);
        last = Some(control.step(now, &observation));
    }
    let (commands, decision) = last.unwrap();
    let delays: Vec<_> = commands.consumers.iter().map(|consumer| consumer.delay).collect();
    // 8 outstanding at 100 IO/s are 80 ms, of which the resource takes 30.
    assert_eq!(delays[0], Some(Latency::from_millis(50)), "{decision}");
    assert_eq!(delays[1], None, "8 ms are less than the resource takes");
    assert!(delays[2] > Some(Latency::from_millis(500)), "{decision}");
    assert_eq!(delays[2].map(LawOutput::Delay), Some(decision.bounded));
}
