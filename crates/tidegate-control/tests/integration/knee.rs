//! The automatic set point against modelled devices whose knee is known by sweep.
//! `cargo test -p tidegate-control --test integration knee -- --nocapture` prints the figures.

use crate::plant::{Load, Plant};
use tidegate_control::{KneeConfig, LawConfig, LoopConfig, SetPointReason, WindowConfig};
use tidegate_device::{DeviceConfig, ExponentialConfig, Preset};
use tidegate_units::{Bytes, Iops, Latency, ResourceName};

const SEEDS: std::ops::Range<u64> = 0..10;

fn servers(rate: f64, servers: u32) -> DeviceConfig {
    let capacity = Bytes::from_kib(1 << 20);
    DeviceConfig::Exponential(ExponentialConfig { rate: Iops::new(rate), servers, capacity })
}

/// Steers to `ceiling`, or to what is chosen below it.
fn config(ceiling_ms: f64, knee: Option<KneeConfig>) -> LoopConfig {
    let law = LawConfig::Window(WindowConfig::default());
    let resource = ResourceName::new("array").unwrap();
    LoopConfig {
        set_point_ratio: 1.0,
        knee,
        ..LoopConfig::new(resource, Latency::from_millis_f64(ceiling_ms), law)
    }
}

fn automatic(ceiling_ms: f64) -> LoopConfig {
    config(ceiling_ms, Some(KneeConfig::default()))
}

/// More requests than any of the devices needs, less than the queue limits of the scheduler.
const BUSY: Load = Load::Closed(128);

/// A device and the ceiling it is used under.
struct Model {
    name: &'static str,
    device: DeviceConfig,
    ceiling_ms: f64,
}

fn models() -> [Model; 4] {
    [
        Model { name: "one exponential server", device: servers(400.0, 1), ceiling_ms: 100.0 },
        Model { name: "four exponential servers", device: servers(400.0, 4), ceiling_ms: 100.0 },
        Model { name: "dnes-309170w", device: Preset::Dnes309170w.config(), ceiling_ms: 200.0 },
        Model { name: "sata-stripe", device: Preset::SataStripe.config(), ceiling_ms: 200.0 },
    ]
}

/// Fixed set points and what they give: set point in ms, IO/s, response time in ms.
fn sweep(model: &Model) -> Vec<(f64, f64, f64)> {
    let mut points = Vec::new();
    let mut set_point = model.ceiling_ms;
    loop {
        let mut plant = Plant::new(&model.device, &[BUSY], &config(set_point, None), 99);
        plant.run(65.0);
        let (iops, latency) = plant.measured(5.0);
        points.push((set_point, iops, latency));
        if iops < 0.5 * points[0].1 {
            return points;
        }
        set_point /= 1.08;
    }
}

/// The least set point of a sweep that gives 95 % of its most, between two of its points, and the most.
fn knee(sweep: &[(f64, f64, f64)]) -> (f64, f64) {
    let most = sweep.iter().map(|point| point.1).fold(0.0, f64::max);
    let less = sweep.iter().position(|point| point.1 < 0.95 * most).unwrap();
    let (low, high) = (sweep[less], sweep[less - 1]);
    let part = (0.95 * most - low.1) / (high.1 - low.1);
    (low.0 + part * (high.0 - low.0), most)
}

#[test]
fn finds_the_knee_that_a_sweep_finds() {
    for model in models() {
        let (knee, most) = knee(&sweep(&model));
        println!("{}: {most:.0} IO/s at most, the knee is at {knee:.2} ms", model.name);
        for seed in SEEDS {
            let mut plant = Plant::new(&model.device, &[BUSY], &automatic(model.ceiling_ms), seed);
            plant.run(900.0);
            let (iops, latency) = plant.measured(500.0);
            let (chosen, given) = (plant.set_point(0, 500.0) / knee, iops / most);
            println!("  {chosen:.2} of the knee, {given:.3} of the most at {latency:.1} ms");
            // What is given includes what looking further down costs while it is done often, in the first
            // minutes.
            assert!((0.8..1.3).contains(&chosen), "{}, seed {seed}: {chosen} of the knee", model.name);
            assert!(given > 0.9, "{}, seed {seed}: {given} of the most", model.name);
        }
    }
}

#[test]
fn power_is_no_choice_for_a_device_that_sorts() {
    for model in models() {
        let sweep = sweep(&model);
        let (_, most) = knee(&sweep);
        let power = sweep.iter().max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2))).unwrap();
        let given = power.1 / most;
        println!(
            "{}: power is greatest at {:.2} ms, which gives {given:.3} of the most",
            model.name, power.0
        );
        if model.name == "sata-stripe" {
            assert!(given < 0.75, "{given}");
        }
    }
}

#[test]
fn follows_a_change_of_capacity() {
    for seed in SEEDS {
        let mut plant = Plant::new(&servers(400.0, 1), &[BUSY], &automatic(100.0), seed);
        plant.run(600.0);
        let quick = plant.set_point(0, 400.0);
        plant.set_rate(100.0);
        plant.run(60.0);
        let (starved, _) = plant.measured(600.0);
        plant.run(240.0);
        let (slow_iops, slow_latency) = plant.measured(660.0);
        let slow = plant.set_point(0, 660.0);
        plant.set_rate(400.0);
        plant.run(300.0);
        let (again_iops, _) = plant.measured(900.0);
        plant.run(300.0);
        let again = plant.set_point(0, 1_200.0);
        println!(
            "400 IO/s: {quick:.1} ms; 100 IO/s: {starved:.0} IO/s in the first minute, then {slow_iops:.0} \
                IO/s at \
             {slow_latency:.1} ms, set point {slow:.1} ms; 400 IO/s again: {again_iops:.0} IO/s, set point \
             {again:.1} ms"
        );
        assert!(starved > 60.0 && slow_iops > 85.0 && again_iops > 370.0);
        assert!((10.0 * 0.85..25.0).contains(&slow), "{slow}");
        assert!((2.5 * 0.85..2.5 * 1.5).contains(&again), "{again}");
    }
}

#[test]
fn a_light_load_changes_nothing() {
    for seed in SEEDS {
        let mut plant = Plant::new(&servers(400.0, 4), &[Load::Open(120.0)], &automatic(100.0), seed);
        plant.run(300.0);
        let never = plant.ticks.last().unwrap().decision.choice.clone().unwrap();
        assert_eq!(never.reason, SetPointReason::Unknown);
        plant.set_load(0, BUSY);
        plant.run(600.0);
        let busy = plant.set_point(0, 800.0);
        plant.set_load(0, Load::Open(120.0));
        // What was busy is still queued.
        plant.run(10.0);
        let from = plant.seconds();
        plant.run(600.0);
        let (iops, _) = plant.measured(from);
        let light = plant.set_point(0, from);
        println!("busy {busy:.1} ms, light {light:.1} ms, {iops:.0} IO/s");
        assert!((light / busy - 1.0).abs() < 0.12, "{busy} {light}");
        assert!(iops > 110.0, "{iops}");
    }
}

#[test]
fn an_open_overload_does_not_run_away() {
    for seed in SEEDS {
        // A tenth more than the array can do, for ten minutes: the queue grows without end.
        let mut plant = Plant::new(&servers(400.0, 4), &[Load::Open(440.0)], &automatic(100.0), seed);
        plant.run(600.0);
        let (iops, latency) = plant.measured(400.0);
        let set_point = plant.set_point(0, 400.0);
        println!("set point {set_point:.1} ms, {iops:.0} IO/s at {latency:.1} ms");
        assert!(iops > 380.0 && (8.5..13.0).contains(&set_point));
    }
}

#[test]
fn a_knee_above_the_ceiling_is_not_chosen() {
    let mut plant = Plant::new(&Preset::SataStripe.config(), &[BUSY], &automatic(40.0), 1);
    plant.run(600.0);
    assert!(plant.ticks.iter().all(|tick| tick.decision.set_point <= Latency::from_millis(40)));
    // At 40 ms the stripe set gives about 410 IO/s: that is the most under this ceiling.
    let (iops, _) = plant.measured(200.0);
    println!("{iops:.0} IO/s, set point {:.1} ms", plant.set_point(0, 200.0));
    assert!(iops > 0.9 * 410.0, "{iops}");
}

#[test]
fn hosts_use_the_leaders_set_point_and_survive_its_death() {
    for seed in SEEDS {
        let mut plant = Plant::new(&servers(400.0, 4), &[BUSY, BUSY, BUSY], &automatic(100.0), seed);
        plant.run(600.0);
        // Whoever is not the leader uses in an interval what the leader published at its beginning.
        let recent = |plant: &Plant, host: usize| -> Vec<Latency> {
            let ticks = plant.ticks.iter().filter(|tick| tick.host == host);
            ticks.rev().take(400).map(|tick| tick.decision.set_point).collect()
        };
        assert_eq!(recent(&plant, 0), recent(&plant, 1));
        assert_eq!(recent(&plant, 0), recent(&plant, 2));
        let before = recent(&plant, 1)[0].as_millis_f64();
        plant.kill(0);
        plant.run(0.5);
        let after = recent(&plant, 1)[0].as_millis_f64();
        plant.run(200.0);
        let (iops, latency) = plant.measured(620.0);
        let settled = plant.set_point(1, 620.0);
        println!(
            "{before:.1} ms, then {after:.1} ms, then {settled:.1} ms: {iops:.0} IO/s at {latency:.1} ms"
        );
        assert_eq!(recent(&plant, 1), recent(&plant, 2));
        assert!((after / before - 1.0).abs() < 0.16, "{before} {after}");
        assert!((8.5..13.0).contains(&settled) && iops > 370.0, "{settled} {iops}");
    }
}

#[test]
fn where_shares_alone_keep_the_array_busy_it_does_not_look_further_down() {
    // β = 1 for each of three hosts: three requests are outstanding at the one server whatever the set point.
    let law = LawConfig::Window(WindowConfig::across_hosts());
    let config = LoopConfig { law, ..automatic(100.0) };
    let mut plant = Plant::new(&servers(400.0, 1), &[BUSY, BUSY, BUSY], &config, 1);
    plant.run(900.0);
    let least = plant.ticks.iter().map(|tick| tick.decision.set_point).min().unwrap();
    assert!(least > Latency::from_millis(3), "{least}");
    let (iops, latency) = plant.measured(500.0);
    let set_point = plant.set_point(0, 500.0);
    println!("set point {set_point:.1} ms, {iops:.0} IO/s at {latency:.1} ms");
    // It stops where the shares make half of the set point's response time as much again, Σβ/C = 7.5 ms, and
    // steers to what it saw there: 22.5 ms, to which the shares add theirs.
    assert!(iops > 390.0 && latency < 32.0, "{iops} {latency}");
}

#[test]
fn what_was_learnt_survives_a_reload() {
    let mut plant = Plant::new(&servers(400.0, 4), &[BUSY], &automatic(100.0), 3);
    plant.run(600.0);
    let knee = plant.ticks.last().unwrap().decision.choice.clone().unwrap().knee.unwrap().as_millis_f64();
    plant.reconfigure(0, automatic(90.0));
    plant.run(1.0);
    let after = plant.ticks.last().unwrap().decision.set_point.as_millis_f64();
    assert!((after / knee - 1.0).abs() < 0.16, "{knee} {after}");
    plant.reconfigure(0, automatic(5.0));
    plant.run(1.0);
    assert_eq!(plant.ticks.last().unwrap().decision.set_point, Latency::from_millis(5));
}

#[test]
fn a_leader_that_lies_is_bounded() {
    let mut plant = Plant::new(&servers(400.0, 4), &[BUSY, BUSY], &automatic(100.0), 4);
    plant.run(400.0);
    plant.published_by_first = Some(Latency::from_nanos(1));
    plant.run(60.0);
    let set_point = plant.set_point(1, 410.0);
    assert!(set_point > 2.0, "{set_point}");
    plant.published_by_first = Some(Latency::MAX);
    plant.run(60.0);
    assert!(plant.ticks.iter().all(|tick| tick.decision.set_point <= Latency::from_millis(100)));
}
