//! The law `auto` on the storages on which other laws did harm.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate_control::{LawConfig, LawKind, LoopConfig};
use tidegate_sim::{Scenario, SilentRecorder, SimulationOutcome, simulate};

/// Design seeds.
const SEED: u64 = 1_000_500;

fn scenario(name: &str, seconds: u64) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/harm").join(name);
    let mut scenario = Scenario::parse(name, &fs::read_to_string(path).unwrap()).unwrap();
    scenario.duration = Duration::from_secs(seconds);
    scenario.warmup = scenario.warmup.min(Duration::from_secs(seconds / 3));
    scenario
}

fn run(scenario: &Scenario, law: Option<LawKind>) -> SimulationOutcome {
    let mut scenario = scenario.clone();
    for host in &mut scenario.hosts {
        let target = host.law.as_ref().unwrap().target;
        host.law = law.map(|kind| LoopConfig::new(host.array.clone(), target, LawConfig::of_kind(kind)));
    }
    simulate(&scenario, SEED, &mut SilentRecorder).unwrap()
}

fn iops(outcome: &SimulationOutcome) -> f64 {
    outcome.consumers.iter().map(|(_, consumer)| consumer.iops).sum()
}

/// The greatest part of seconds above the target.
fn above(outcome: &SimulationOutcome) -> f64 {
    outcome.consumers.iter().filter_map(|(_, consumer)| consumer.above_target_fraction).fold(0.0, f64::max)
}

#[test]
fn throttling_that_shortens_nothing_takes_nothing() {
    let scenario = scenario("below-unloaded.toml", 40);
    let (free, auto) = (run(&scenario, None), run(&scenario, Some(LawKind::Auto)));
    assert!(iops(&auto) > 0.97 * iops(&free), "{} of {} IO/s", iops(&auto), iops(&free));
    let window = run(&scenario, Some(LawKind::Window));
    assert!(iops(&window) < 0.5 * iops(&free), "the scenario no longer shows the harm of a fixed margin");
}

#[test]
fn six_hosts_keep_the_target_and_their_shares_though_the_capacity_changes() {
    let outcome = run(&scenario("capacity-steps.toml", 180), Some(LawKind::Auto));
    assert!(above(&outcome) < 0.05, "{}", above(&outcome));
    let total = iops(&outcome);
    for (name, consumer) in outcome.consumers.iter() {
        let due = consumer.shares.as_f64() / 1_200.0;
        assert!(
            (consumer.iops / total / due - 1.0).abs() < 0.05,
            "{name} got {} of {due}",
            consumer.iops / total
        );
    }
}

#[test]
fn one_liar_does_not_throttle_all_others() {
    let scenario = scenario("one-liar.toml", 60);
    let (free, auto) = (run(&scenario, None), run(&scenario, Some(LawKind::Auto)));
    assert!(iops(&auto) > 0.8 * iops(&free), "{} of {} IO/s", iops(&auto), iops(&free));
    assert!(above(&auto) < 0.1, "{}", above(&auto));
}

#[test]
fn responses_that_outlast_the_interval_do_not_make_it_swing() {
    let scenario = scenario("slow-volume.toml", 200);
    let (free, auto) = (run(&scenario, None), run(&scenario, Some(LawKind::Auto)));
    assert!(iops(&auto) > 0.95 * iops(&free), "{} of {} IO/s", iops(&auto), iops(&free));
    assert!(above(&auto) < 0.08, "{}", above(&auto));
}

#[test]
fn a_write_back_cache_is_not_filled_again_and_again() {
    let scenario = scenario("write-back.toml", 120);
    let (window, auto) = (run(&scenario, Some(LawKind::Window)), run(&scenario, Some(LawKind::Auto)));
    assert!(above(&auto) < 0.08, "{}", above(&auto));
    assert!(above(&auto) < 0.3 * above(&window), "{} beside {}", above(&auto), above(&window));
}
