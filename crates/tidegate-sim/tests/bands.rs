//! Bands and goals (Triage) in the simulator: table 1 of the paper on a storage whose capacity grows.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail like the test")]

use tidegate_sim::{Outcome, Scenario, Silent, simulate};

/// Two workloads with more to do than there is room for, on a storage that serves one request after the other, in a random time.
const SCENARIO: &str = include_str!("../../../scenarios/examples/bands.toml");

fn run(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse("bands.toml", text).unwrap();
    simulate(&scenario, seed, &mut Silent).unwrap()
}

fn iops(outcome: &Outcome, name: &str) -> f64 {
    outcome.consumers.iter().find(|(consumer, _)| consumer.as_str() == name).unwrap().1.iops
}

fn latency(outcome: &Outcome) -> f64 {
    outcome.resources.iter().next().unwrap().1.latency_ms.as_ref().unwrap().mean
}

/// From 15 s after the change on, on each of five seeds: the goal leaves between 700 and 885 of 1100 IO/s, as requests come at random (M/M/1)
/// or evenly (D/M/1), and before the change 500 to 680 of 900. Buckets release them evenly, and there are two. The first 400 of them
/// are nearly all the business's; how nearly depends on how much the law swings, and is not tested here.
#[test]
fn what_the_goal_leaves_goes_by_bands_before_and_after_the_capacity_has_grown() {
    let before = SCENARIO
        .replace("duration = \"120s\"", "duration = \"60s\"")
        .replace("warmup = \"75s\"", "warmup = \"15s\"");
    for seed in 1..=5 {
        let early = run(&before, seed);
        let (business, mining) = (iops(&early, "business"), iops(&early, "mining"));
        assert!((450.0..=680.0).contains(&(business + mining)), "seed {seed}: {business} and {mining}");
        // By shares they would have the same.
        assert!(business > 1.2 * mining, "seed {seed}: {business} beside {mining}");
        let late = run(SCENARIO, seed);
        let (then, now) = (business + mining, iops(&late, "business") + iops(&late, "mining"));
        assert!(now > 1.1 * then && now <= 885.0, "seed {seed}: {then}, then {now}");
    }
}

#[test]
fn without_bands_it_goes_by_shares_and_a_goal_of_its_own_counts() {
    let start = SCENARIO.find("bands = [").unwrap();
    let end = start + SCENARIO[start..].find("\n]\n").unwrap() + 3;
    let text = SCENARIO.replace(&SCENARIO[start..end], "");
    let outcome = run(&text, 1);
    let (business, mining) = (iops(&outcome, "business"), iops(&outcome, "mining"));
    assert!((business / mining - 1.0).abs() < 0.05, "{business} {mining}");
    let wider =
        text.replace("goal = \"2.5ms\"", "goal = \"5ms\"").replace("target = \"2.5ms\"", "target = \"5ms\"");
    assert!(latency(&run(&wider, 1)) > 1.4 * latency(&outcome));
}

#[test]
fn bands_name_virtual_machines_of_the_host() {
    let text = SCENARIO.replace("mining = 0.5", "minig = 0.5");
    let error = Scenario::parse("bands.toml", &text).unwrap_err().to_string();
    assert!(
        error.contains("band 0 of host `gateway` refers to the unprotected virtual machine `minig`"),
        "{error}"
    );
    // Who is never held has no part that anybody could hold him to.
    let text = SCENARIO.replace("[vm.mining]\n", "[vm.mining]\nprotected = true\n");
    assert_ne!(text, SCENARIO);
    let error = Scenario::parse("bands.toml", &text).unwrap_err().to_string();
    assert!(error.contains("refers to the unprotected virtual machine `mining`"), "{error}");
}
