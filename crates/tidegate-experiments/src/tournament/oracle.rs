//! The best static throttle of each phase.

use std::time::Duration;

use tidegate_sched::{BeyondLimit, ConsumerLimit};
use tidegate_sim::scenario::ScenarioHost;
use tidegate_sim::{Scenario, ScenarioError, simulate};
use tidegate_units::{HostName, Iops};

use super::Contest;
use super::contest::{SET_POINT, SETTLES, StoragePhase};
use super::measures::{due, eligible_iops, ratio};
use crate::{SeriesRecorder, TimeSpan};

/// Halvings of the interval of rates: down to a part in 256.
const HALVINGS: u32 = 8;

/// A burst of this length may go at once after a pause: as the default of a limit.
const BURST: Duration = Duration::from_millis(100);

/// Returns the throughput of all eligible consumers in each phase under the best static throttle, in requests
/// per second.
pub(super) fn search(contest: &Contest, seed: u64) -> Result<Vec<f64>, ScenarioError> {
    contest.phases().iter().map(|phase| of_phase(contest, phase, seed)).collect()
}

fn of_phase(contest: &Contest, phase: &StoragePhase, seed: u64) -> Result<f64, ScenarioError> {
    let base = contest.alone(phase);
    let open = run(contest, &base, phase, seed)?;
    if open.ratio <= SET_POINT {
        return Ok(open.throughput);
    }
    let mut best: f64 = 0.0;
    // Limits count large requests as several I/Os.
    let (mut least, mut most) = (0.0, open.throughput * contest.ios_per_request);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(least, most);
        let found = run(contest, &by_rate(contest, &base, middle), phase, seed)?;
        if found.ratio <= SET_POINT {
            (least, best) = (middle, best.max(found.throughput));
        } else {
            most = middle;
        }
    }
    let base = apart(base);
    let (mut fits, mut beyond) = (0, contest.scenario.hosts.iter().map(|host| host.depth).max().unwrap_or(1));
    while beyond - fits > 1 {
        let middle = u32::midpoint(fits, beyond);
        let found = run(contest, &by_window(&base, middle), phase, seed)?;
        if found.ratio <= SET_POINT {
            (fits, best) = (middle, best.max(found.throughput));
        } else {
            beyond = middle;
        }
    }
    Ok(best)
}

struct OracleFinding {
    ratio: f64,
    throughput: f64,
}

fn run(
    contest: &Contest,
    scenario: &Scenario,
    phase: &StoragePhase,
    seed: u64,
) -> Result<OracleFinding, ScenarioError> {
    let mut tracks = SeriesRecorder::default();
    let outcome = simulate(scenario, seed, &mut tracks)?;
    let result = tracks.with(outcome, scenario);
    let span = TimeSpan::new(SETTLES, phase.seconds());
    // Targets are of the whole run's time, and this one begins at nothing.
    let contest = contest.from(phase);
    Ok(OracleFinding {
        // Where nothing completes there is no response time, and nothing done.
        ratio: ratio(&contest, &result, span).unwrap_or(0.0),
        throughput: eligible_iops(&contest, &result, span).unwrap_or(0.0),
    })
}

/// One rate, divided as is due.
fn by_rate(contest: &Contest, base: &Scenario, rate: f64) -> Scenario {
    let mut scenario = base.clone();
    let parts = due(contest, rate / contest.ios_per_request);
    for (vm, part) in scenario.vms.iter_mut().filter(|vm| !vm.protected).zip(parts) {
        let iops = Some(Iops::new(rate * part));
        vm.limit = Some(ConsumerLimit { iops, bytes_per_s: None, burst: BURST, beyond: BeyondLimit::Wait });
    }
    scenario
}

/// The protected consumers on a host of their own: under a law, a window is of the eligible ones.
fn apart(mut scenario: Scenario) -> Scenario {
    let Some(host) = scenario.vms.iter().find(|vm| vm.protected).map(|vm| vm.host.clone()) else {
        return scenario;
    };
    let apart: Vec<ScenarioHost> = scenario
        .hosts
        .iter()
        .filter(|own| own.name == host)
        .filter_map(|own| Some(ScenarioHost { name: HostName::new("protected").ok()?, ..own.clone() }))
        .collect();
    for (vm, host) in scenario.vms.iter_mut().filter(|vm| vm.protected).zip(apart.iter().cycle()) {
        vm.host = host.name.clone();
    }
    scenario.hosts.extend(apart);
    scenario
}

/// One window for each host, the greatest for that with the most shares.
fn by_window(base: &Scenario, window: u32) -> Scenario {
    let mut scenario = base.clone();
    let shares = |scenario: &Scenario, host: usize| -> f64 {
        let name = &scenario.hosts[host].name;
        scenario.vms.iter().filter(|vm| vm.host == *name && !vm.protected).map(|vm| vm.shares.as_f64()).sum()
    };
    let all: Vec<f64> = (0..scenario.hosts.len()).map(|host| shares(&scenario, host)).collect();
    let most = all.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    // A host without an eligible consumer is left alone.
    for (host, shares) in scenario.hosts.iter_mut().zip(all).filter(|(_, shares)| *shares > 0.0) {
        host.depth = ((f64::from(window) * shares / most).round() as u32).max(1);
    }
    scenario
}
