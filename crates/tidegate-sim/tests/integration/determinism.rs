//! The same scenario and seed give the same bytes; another seed gives others; what is added changes no
//! other's load.

use crate::common::{add_busy_host, on_server, parda, vm};
use tidegate_sim::scenario::{ArrivalSpacing, OperationArrivals, ReportNetwork, Workload};
use tidegate_sim::{Scenario, SilentRecorder, TimeSeries, simulate};
use tidegate_units::{Iops, Latency};

fn scenario() -> Scenario {
    let mut scenario = on_server(500.0, 2, 30);
    for (name, shares) in [("h1", 100), ("h2", 300), ("h3", 50)] {
        add_busy_host(&mut scenario, name, shares, 32, Some(parda(Latency::from_millis(40), 1.0)));
    }
    let arrivals =
        OperationArrivals::Open { rate: Iops::new(50.0), spacing: ArrivalSpacing::Poisson, limit: 1_000 };
    let workload = Workload { arrivals, ..Workload::random_reads("open", 1, 4_096) };
    scenario.vms.push(vm("open", "h1", 100, workload));
    scenario
}

fn bytes(scenario: &Scenario, seed: u64) -> (String, String) {
    let mut series = TimeSeries::default();
    let outcome = simulate(scenario, seed, &mut series).unwrap();
    (serde_json::to_string(&outcome).unwrap(), format!("{:?}", series.rows()))
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    assert_eq!(bytes(&scenario(), 7), bytes(&scenario(), 7));
    assert_ne!(bytes(&scenario(), 7), bytes(&scenario(), 8));
}

#[test]
fn listening_changes_nothing() {
    let silent = simulate(&scenario(), 7, &mut SilentRecorder).unwrap();
    assert_eq!(serde_json::to_string(&silent).unwrap(), bytes(&scenario(), 7).0);
}

#[test]
fn a_lossy_network_is_repeatable_too() {
    let network = ReportNetwork {
        delay: Latency::from_millis(3),
        jitter: Latency::from_millis(2),
        loss: 0.3,
        ..ReportNetwork::default()
    };
    let lossy = Scenario { network, ..scenario() };
    assert_eq!(bytes(&lossy, 7), bytes(&lossy, 7));
    assert_ne!(bytes(&lossy, 7), bytes(&scenario(), 7));
}

#[test]
fn a_workload_that_is_added_changes_no_others_arrivals() {
    // Arrivals of an open loop depend on nothing but its own numbers: as many as before, to the last one.
    let arrived = |scenario: &Scenario| {
        let outcome = simulate(scenario, 3, &mut SilentRecorder).unwrap();
        let open = outcome.consumers.get("open").unwrap();
        (open.iops * outcome.duration_s).round() as i64
    };
    let mut alone = scenario();
    alone.hosts.iter_mut().for_each(|host| host.law = None);
    alone.vms.retain(|vm| vm.name.as_str() == "open");
    let mut with_another = alone.clone();
    with_another.vms.insert(0, vm("another", "h2", 100, Workload::random_reads("reads", 1, 4_096)));
    assert!((arrived(&alone) - arrived(&with_another)).abs() <= 2, "but for those under way at the end");
}
