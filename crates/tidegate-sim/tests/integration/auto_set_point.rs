//! The example of the automatic set point against every fixed one.
//! `cargo test -p tidegate-sim --test integration auto_set_point -- --nocapture` prints the figures.

use std::time::Duration;

use tidegate_sim::{Scenario, SilentRecorder, SimulationOutcome, simulate};

const EXAMPLE: &str = include_str!("../../../../scenarios/examples/auto-set-point.toml");

const SEEDS: std::ops::Range<u64> = 0..3;

/// Requests per second, and the array's mean response time in ms.
fn given(outcome: &SimulationOutcome) -> (f64, f64) {
    let array = outcome.resources.get("lun").unwrap();
    (array.iops, array.latency_ms.unwrap().mean)
}

fn fixed(ratio: f64) -> (f64, f64) {
    let text = EXAMPLE.replacen("\"auto\"", &format!("{ratio:.6}"), 1);
    let mut scenario = Scenario::parse("fixed", &text).unwrap();
    (scenario.duration, scenario.warmup) = (Duration::from_secs(30), Duration::from_secs(10));
    given(&simulate(&scenario, 7, &mut SilentRecorder).unwrap())
}

#[test]
fn gives_what_the_best_fixed_set_point_gives_without_being_told_it() {
    // Downwards by a tenth at a time from the ceiling of 200 ms, until half of the throughput is gone.
    let sweep: Vec<(f64, f64, f64)> = (0..60)
        .map(|step| 0.9f64.powi(step))
        .scan(false, |ended, ratio| {
            let (iops, latency) = fixed(ratio);
            let going_on = !*ended;
            *ended = iops < 1_700.0;
            going_on.then_some((200.0 * ratio, iops, latency))
        })
        .collect();
    let most = sweep.iter().map(|point| point.1).fold(0.0, f64::max);
    let best = sweep.iter().rfind(|point| point.1 >= 0.95 * most).unwrap();
    for (set_point, iops, latency) in sweep.iter().step_by(4) {
        println!("fixed {set_point:6.2} ms: {iops:.0} IO/s at {latency:.2} ms");
    }
    println!("best of the fixed ones: {:.2} ms, {:.0} IO/s at {:.2} ms", best.0, best.1, best.2);

    let scenario = Scenario::parse("auto", EXAMPLE).unwrap();
    for seed in SEEDS {
        let outcome = simulate(&scenario, seed, &mut SilentRecorder).unwrap();
        let (iops, latency) = given(&outcome);
        let of = |name: &str| outcome.consumers.get(name).unwrap().iops;
        let ratio = (of("three") + of("four")) / (of("one") + of("two"));
        println!("found, seed {seed}: {iops:.0} IO/s at {latency:.2} ms, shares 2 : {:.3}", 2.0 / ratio);
        assert!(iops > 0.93 * most, "seed {seed}: {iops}");
        assert!(latency < 1.35 * best.2, "seed {seed}: {latency} against {}", best.2);
        assert!((ratio / 2.0 - 1.0).abs() < 0.1, "seed {seed}: {ratio}");
    }
}
