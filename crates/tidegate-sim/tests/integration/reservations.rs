//! The published scenario of reservations: one that is kept, which shares alone would not keep, and two that
//! cannot be, which the law says.

use tidegate_control::{Decision, OutputBound, ReservationShortage};
use tidegate_sim::{MissedShares, Recorder, Scenario, SilentRecorder, SimulationOutcome, simulate};
use tidegate_units::{ConsumerName, HostName, Window};

const EXAMPLE: &str = include_str!("../../../../scenarios/examples/reservations.toml");

fn scenario() -> Scenario {
    Scenario::parse("reservations.toml", EXAMPLE).unwrap()
}

fn iops<const N: usize>(outcome: &SimulationOutcome, names: [&str; N]) -> [f64; N] {
    names.map(|name| outcome.consumers.get(name).unwrap().iops)
}

fn missed(outcome: &SimulationOutcome, host: &str) -> Option<MissedShares> {
    outcome.hosts.get(host).unwrap().reservations_missed
}

/// The decisions of a host after a minute.
struct Decisions {
    of: &'static str,
    all: Vec<Decision>,
}

impl Recorder for Decisions {
    fn decision(&mut self, host: &HostName, _: Option<&ConsumerName>, decision: &Decision) {
        if host.as_str() == self.of && decision.at.as_secs_f64() > 60.0 {
            self.all.push(decision.clone());
        }
    }

    fn wants_rows(&self) -> bool {
        false
    }
}

fn decisions(scenario: &Scenario, of: &'static str) -> Vec<Decision> {
    let mut decisions = Decisions { of, all: Vec::new() };
    simulate(scenario, scenario.seed, &mut decisions).unwrap();
    assert_eq!(decisions.all.len(), 90, "one every two seconds");
    decisions.all
}

#[test]
fn a_reservation_is_kept_against_another_host_and_shares_and_limits_hold_besides() {
    for seed in [1, 2, 3] {
        let outcome = simulate(&scenario(), seed, &mut SilentRecorder).unwrap();
        let rates = iops(&outcome, ["database", "copies", "batch", "scans"]);
        let [database, copies, batch, scans] = rates;
        assert!((297.0..=330.0).contains(&database), "300 to 1 %, and little more: {rates:?}");
        assert!((140.0..=151.0).contains(&copies), "the limit holds while others wait: {rates:?}");
        assert!((batch / scans - 2.0).abs() < 0.1, "shares 2:1: {rates:?}");
        let array = outcome.resources.get("lun").unwrap();
        assert!((array.iops / 1_000.0 - 1.0).abs() < 0.02, "nothing is lost: {}", array.iops);
        // Of L·C requests at the array, host a has w_a = 1.05·300·L and host b, by PARDA's equation 2 in
        // equilibrium, w_b = β_b/(1 − 𝓛/L), of which β_b is 9: L = 𝓛 + 9/(1 000 − 315) s.
        let latency = array.latency_ms.unwrap().mean;
        assert!((latency / 38.1 - 1.0).abs() < 0.1, "{latency} ms");
        let missed = missed(&outcome, "a").unwrap();
        assert!(missed.window + missed.storage < 0.05, "{missed:?}");
        assert_eq!(self::missed(&outcome, "b"), None, "nothing is reserved there");
    }
}

#[test]
fn without_the_reservation_shares_alone_decide() {
    let mut scenario = scenario();
    scenario.vms[0].reservation = None;
    let outcome = simulate(&scenario, 1, &mut SilentRecorder).unwrap();
    let [database, neighbour] = iops(&outcome, ["database", "neighbour"]);
    assert!(database < 60.0, "50 of 1 100 shares: {database}");
    assert!((neighbour / database - 3.0).abs() < 0.3, "its host's own, 1:3: {database} and {neighbour}");
    assert_eq!(missed(&outcome, "a"), None);
}

#[test]
fn the_law_says_what_the_window_is_held_open_for() {
    let decisions = decisions(&scenario(), "a");
    let held = decisions.iter().filter(|one| one.bound == Some(OutputBound::Reservation)).count();
    assert!(held > 80, "{held} of {}", decisions.len());
    for decision in &decisions {
        let reserved = decision.reserved.unwrap();
        assert!((reserved.rate.per_second() - 300.0).abs() < 1e-6, "{decision}");
    }
    let said = decisions.iter().find(|one| one.bound == Some(OutputBound::Reservation)).unwrap().to_string();
    assert!(said.contains(", the least that keeps reservations (300 IO/s at "), "{said}");
}

#[test]
fn reservations_beyond_the_array_are_missed_by_the_same_part_and_the_law_says_why() {
    let scenario = scenario();
    let outcome = simulate(&scenario, 1, &mut SilentRecorder).unwrap();
    let [orders, reports] = iops(&outcome, ["orders", "reports"]);
    assert!((orders + reports - 200.0).abs() < 10.0, "all of the array: {orders} and {reports}");
    assert!((orders / reports - 2.0).abs() < 0.1, "as they are reserved: {orders} and {reports}");
    let missed = missed(&outcome, "c").unwrap();
    assert!(missed.storage > 0.95 && missed.window < 0.05, "{missed:?}");
    let decisions = decisions(&scenario, "c");
    let because =
        |decision: &&Decision| decision.reserved.unwrap().missed == Some(ReservationShortage::Storage);
    assert!(decisions.iter().filter(because).count() > 85);
    let said = decisions.iter().find(because).unwrap().to_string();
    assert!(said.ends_with("; reservations are missed: the storage completes less than 300 IO/s"), "{said}");
}

#[test]
fn a_window_that_is_too_narrow_misses_a_reservation_that_the_array_could_keep() {
    let mut scenario = scenario();
    // At 25 ms and more, 300 IO/s take a window of 7.9 and more.
    let law = scenario.hosts[0].law.as_mut().unwrap();
    let tidegate_control::LawConfig::Window(window) = &mut law.law else { panic!("a window law") };
    window.greatest = Window::new(6.0);
    let outcome = simulate(&scenario, 1, &mut SilentRecorder).unwrap();
    let [database] = iops(&outcome, ["database"]);
    assert!(database < 250.0, "{database}");
    let missed = missed(&outcome, "a").unwrap();
    assert!(missed.window > 0.95 && missed.storage < 0.05, "{missed:?}");
    let said = decisions(&scenario, "a").pop().unwrap().to_string();
    assert!(
        said.contains("; reservations are missed: 300 IO/s at ") && said.ends_with(", more than is allowed"),
        "{said}"
    );
}
