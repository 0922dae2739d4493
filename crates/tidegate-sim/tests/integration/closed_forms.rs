//! The engine against what queueing theory and the papers' equations say.

use std::time::Duration;

use crate::common::{add_busy_host, host, on_server, parda, vm};
use tidegate_sim::scenario::{
    ArrivalSpacing, OperationArrivals, SignalSource, ThinkTime, ThinkTiming, Workload,
};
use tidegate_sim::{Scenario, SilentRecorder, SimulationOutcome, simulate};
use tidegate_units::{Iops, Latency};

fn run(scenario: &Scenario) -> SimulationOutcome {
    simulate(scenario, scenario.seed, &mut SilentRecorder).unwrap()
}

fn near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < tolerance, "{what}: {found}, expected {expected}");
}

fn open(rate: f64, spacing: ArrivalSpacing) -> Workload {
    let arrivals = OperationArrivals::Open { rate: Iops::new(rate), spacing, limit: 100_000 };
    Workload { arrivals, ..Workload::random_reads("reads", 1, 16_384) }
}

#[test]
fn poisson_arrivals_at_one_server_wait_as_m_m_1() {
    let mut scenario = on_server(1_000.0, 1, 1_000);
    scenario.warmup = Duration::from_secs(10);
    scenario.hosts.push(tidegate_sim::scenario::ScenarioHost { depth: 1_024, ..host("h") });
    scenario.vms.push(vm("vm", "h", 100, open(800.0, ArrivalSpacing::Poisson)));
    let outcome = run(&scenario);
    let array = outcome.resources.get("array").unwrap();
    let latency = array.latency_ms.unwrap();
    // T = 1/(µ − λ), and T is exponential: the quantiles are −T·ln(1 − q).
    near(array.iops, 800.0, 0.01, "rate");
    near(latency.mean, 5.0, 0.03, "mean");
    near(latency.p50, 5.0 * 2f64.ln(), 0.04, "median");
    near(latency.p99, 5.0 * 100f64.ln(), 0.06, "99th percentile");
    // Nothing is held, so that the consumer feels what the array does.
    let consumer = outcome.consumers.get("vm").unwrap();
    near(consumer.latency_ms.unwrap().mean, latency.mean, 1e-9, "felt");
    near(consumer.outstanding, 800.0 * latency.mean / 1e3, 0.01, "Little's law");
}

#[test]
fn a_closed_loop_with_think_time_is_a_machine_repairman() {
    // N machines, exponential repair µ and time to failure 1/Z: utilisation from the finite sum.
    let (n, mu, think) = (10u32, 100.0, 0.1);
    let ratio = 1.0 / (mu * think);
    let mut terms = vec![1.0];
    for k in 0..n {
        terms.push(terms[k as usize] * f64::from(n - k) * ratio);
    }
    let throughput = mu * (1.0 - 1.0 / terms.iter().sum::<f64>());
    let mut scenario = on_server(mu, 1, 2_000);
    scenario.hosts.push(host("h"));
    let think_time =
        ThinkTiming { mean: Latency::from_secs_f64(think), distribution: ThinkTime::Exponential };
    let arrivals = OperationArrivals::Closed { outstanding: n, think: think_time };
    scenario.vms.push(vm("vm", "h", 100, Workload { arrivals, ..Workload::random_reads("reads", 1, 4_096) }));
    let consumer = run(&scenario).consumers.get("vm").unwrap().clone();
    near(consumer.iops, throughput, 0.01, "throughput");
    near(consumer.latency_ms.unwrap().mean, (f64::from(n) / throughput - think) * 1e3, 0.03, "response time");
}

#[test]
fn windows_settle_where_equation_3_says() {
    let (capacity, set_point, k) = (2_000.0, 0.05, 2.0);
    let mut scenario = on_server(capacity, 1, 600);
    scenario.warmup = Duration::from_secs(300);
    for (name, shares) in [("h1", 100), ("h2", 100), ("h3", 200), ("h4", 200)] {
        add_busy_host(&mut scenario, name, shares, 64, Some(parda(Latency::from_secs_f64(set_point), k)));
    }
    let outcome = run(&scenario);
    let betas = [k, k, 2.0 * k, 2.0 * k];
    let sum: f64 = betas.iter().sum();
    for ((name, host), beta) in outcome.hosts.iter().zip(betas) {
        let expected = beta + beta * capacity * set_point / sum;
        near(host.window.mean, expected, 0.05, name.as_str());
        near(host.beta.unwrap(), beta, 1e-9, "beta");
        near(host.iops, capacity * beta / sum, 0.03, "throughput in proportion");
    }
    let array = outcome.resources.get("array").unwrap();
    near(array.latency_ms.unwrap().mean, (set_point + sum / capacity) * 1e3, 0.05, "𝓛 + Σβ/C");
    near(array.iops, capacity, 0.01, "work conserving");
}

#[test]
fn at_one_server_hosts_need_not_hear_each_other() {
    let mut scenario = on_server(400.0, 1, 400);
    scenario.warmup = Duration::from_secs(200);
    for (name, shares) in [("h1", 100), ("h2", 200), ("h3", 300)] {
        add_busy_host(&mut scenario, name, shares, 64, Some(parda(Latency::from_millis(200), 1.0)));
    }
    for host in &mut scenario.hosts {
        host.signal = SignalSource::Local;
    }
    let outcome = run(&scenario);
    let iops: Vec<f64> = outcome.hosts.iter().map(|(_, host)| host.iops).collect();
    near(iops[1] / iops[0], 2.0, 0.1, "1:2");
    near(iops[2] / iops[0], 3.0, 0.1, "1:3");
}

#[test]
fn a_hosts_scheduler_divides_its_window_by_shares() {
    let mut scenario = on_server(1_000.0, 1, 120);
    add_busy_host(&mut scenario, "h", 100, 64, Some(parda(Latency::from_millis(25), 1.0)));
    scenario.vms.push(vm("other", "h", 300, Workload::random_reads("reads", 64, 16_384)));
    let outcome = run(&scenario);
    let iops = |name: &str| outcome.consumers.get(name).unwrap().iops;
    near(iops("other") / iops("vm-h"), 3.0, 0.02, "1:3");
    near(iops("other") + iops("vm-h"), 1_000.0, 0.02, "all");
}
