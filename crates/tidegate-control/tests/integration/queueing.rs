//! The law with the model of a queue in the loop: windows and bands on a storage that saturates, and what it
//! does with silence, with measurements that say nothing, at its bounds, and when the clock jumps.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tidegate_control::{
    Band, Bands, Commands, ConsumerObservation, ControlLoop, Decision, HeardReport, LawConfig, LoopConfig,
    Observation, OperationTotals, QueueLearning, RegulationMethod, SelfTuningConfig, combine,
};
use tidegate_units::{ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares, Window};

fn name(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap()
}

/// Goals of 10 ms.
fn config(bands: Option<Bands>) -> LoopConfig {
    let regulation = RegulationMethod::Queueing(QueueLearning::default());
    let law = LawConfig::SelfTuning(SelfTuningConfig { regulation, ..SelfTuningConfig::default() });
    let config = LoopConfig::new(ResourceName::new("lun").unwrap(), Latency::from_millis(10), law);
    LoopConfig { bands, set_point_ratio: 1.0, ..config }
}

/// Two clients with many requests each on a single server: with n of them there a response takes n over the
/// capacity.
struct Run {
    control: ControlLoop,
    now: Instant,
    commands: Commands,
    capacity: f64,
    clients: f64,
}

impl Run {
    fn new(config: LoopConfig) -> Self {
        let control = ControlLoop::new(config).unwrap();
        Self {
            control,
            now: Instant::from_nanos(7),
            commands: Commands::default(),
            capacity: 1_000.0,
            clients: 32.0,
        }
    }

    fn window(&self) -> f64 {
        self.commands.window.map_or(self.clients, |window| window.get().min(self.clients))
    }

    fn consumer(name_of: &str, count: u64, mean: Latency, queued: u32) -> ConsumerObservation {
        let total_latency = Latency::from_nanos(mean.as_nanos().saturating_mul(count));
        ConsumerObservation {
            reads: OperationTotals { count, total_latency, ..OperationTotals::default() },
            queued,
            ..ConsumerObservation::idle(name(name_of), Shares::DEFAULT, false)
        }
    }

    /// A second in which both have as much to do as there is room for. The mean response time in ms, and what
    /// each did.
    fn second(&mut self) -> (f64, [f64; 2]) {
        let rate = |place: usize| {
            let rate = self.commands.consumers.get(place).and_then(|command| command.rate);
            rate.map_or(f64::INFINITY, Iops::per_second)
        };
        let half = self.capacity / 2.0;
        let first = rate(0).min(half.max(self.capacity - rate(1)));
        let did = [first, rate(1).min(self.capacity - first)];
        let done: f64 = did.iter().sum();
        // Below the capacity nobody waits.
        let response =
            if done < self.capacity * 0.999 { 1e3 / self.capacity } else { self.window() / done * 1e3 };
        let mean = Latency::from_millis_f64(response);
        let consumers = ["a", "b"].into_iter().zip(did);
        self.step(
            Duration::from_secs(1),
            consumers.map(|(name, did)| Self::consumer(name, did as u64, mean, 9)).collect(),
        );
        (response, did)
    }

    fn step(&mut self, elapsed: Duration, consumers: Vec<ConsumerObservation>) -> Decision {
        self.now = self.now + elapsed;
        let observation = Observation::new(self.control.config().resource.clone(), self.now, consumers);
        let (commands, decision) = self.control.step(self.now, &observation);
        self.commands = commands;
        if let Some(window) = self.commands.window {
            assert!(window.get().is_finite() && window.get() >= 0.25, "{decision:?}");
        }
        for rate in self.commands.consumers.iter().filter_map(|command| command.rate) {
            assert!(rate.per_second().is_finite() && rate.per_second() >= 2.0, "{decision:?}");
        }
        decision
    }

    fn seconds(&mut self, count: usize) -> (f64, [f64; 2]) {
        (0..count).map(|_| self.second()).last().unwrap()
    }
}

#[test]
fn it_has_a_window_for_the_goal_after_one_second_and_after_each_change_of_the_storage() {
    let mut run = Run::new(config(None));
    for capacity in [1_000.0, 200.0, 2_400.0] {
        run.capacity = capacity;
        let (response, did) = run.seconds(3);
        assert!((response / 10.0 - 1.0).abs() < 0.02, "{capacity}: {response} ms");
        assert!((run.window() / (capacity / 100.0) - 1.0).abs() < 0.02, "{capacity}: {}", run.window());
        assert!(did.iter().all(|did| (did / (capacity / 2.0) - 1.0).abs() < 0.01));
    }
    assert!(run.commands.consumers.iter().all(|command| command.rate.is_none()), "shares divide a window");
}

#[test]
fn bands_divide_what_the_window_lets_through() {
    let ratios = vec![(name("a"), 0.9), (name("b"), 0.1)];
    let bands = Bands::new(vec![Band { up_to: Iops::new(5_000.0), ratios }]).unwrap();
    let mut run = Run::new(config(Some(bands)));
    for _ in 0..10 {
        run.second();
    }
    // At the capacity and a little below it, by turns: the rates are its edge.
    for _ in 0..20 {
        let (_, [a, b]) = run.second();
        assert!((b / (a + b) - 0.1).abs() < 0.03 && a + b > 700.0, "{a} {b}");
    }
}

#[test]
fn without_samples_nothing_is_known_and_nobody_is_held() {
    let mut run = Run::new(config(None));
    let idle = || ["a", "b"].map(|name| Run::consumer(name, 0, Latency::ZERO, 0)).to_vec();
    for _ in 0..100 {
        run.step(Duration::from_secs(1), idle());
        assert_eq!(run.commands.window, None);
    }
    // An hour of silence after a regulation lets go of it, and what was learnt stays.
    run.seconds(5);
    for _ in 0..3_600 {
        run.step(Duration::from_secs(1), idle());
    }
    assert!(run.window() >= run.clients);
    assert!((run.seconds(2).0 / 10.0 - 1.0).abs() < 0.1);
}

#[test]
fn equal_samples_and_none_at_all_and_extreme_ones_leave_it_able_to_regulate() {
    let extreme = [Latency::ZERO, Latency::from_nanos(1), Latency::from_secs_f64(600.0), Latency::MAX];
    for mean in extreme {
        let mut run = Run::new(config(None));
        run.seconds(3);
        for count in [1, 6, 1_000, u64::MAX] {
            for _ in 0..50 {
                run.step(
                    Duration::from_secs(1),
                    ["a", "b"].map(|name| Run::consumer(name, count, mean, 1)).to_vec(),
                );
            }
        }
        // From the least window and the greatest, by doubling.
        let (response, _) = run.seconds(60);
        assert!((response / 10.0 - 1.0).abs() < 0.1, "{mean}: {response} ms");
    }
}

#[test]
fn an_hour_at_a_bound_winds_nothing_up() {
    let mut run = Run::new(config(None));
    // So slow that the goal cannot be met.
    run.capacity = 10.0;
    run.seconds(3_600);
    run.capacity = 1_000.0;
    assert!((run.seconds(15).0 / 10.0 - 1.0).abs() < 0.1);
    // So little to do that nobody needs to be held.
    run.clients = 1.0;
    run.seconds(3_600);
    run.clients = 32.0;
    assert!((run.seconds(3).0 / 10.0 - 1.0).abs() < 0.1, "{}", run.window());
}

#[test]
fn a_clock_that_stands_still_or_jumps_back_changes_nothing_and_a_jump_ahead_counts_as_one_interval() {
    let mut run = Run::new(config(None));
    run.seconds(5);
    let window = run.commands.window;
    let busy = || ["a", "b"].map(|name| Run::consumer(name, 500, Latency::from_millis(10), 9)).to_vec();
    run.step(Duration::ZERO, busy());
    assert_eq!(run.commands.window, window);
    run.now = Instant::from_nanos(3);
    run.step(Duration::ZERO, busy());
    assert_eq!(run.commands.window, window);
    run.step(Duration::from_secs(86_400), busy());
    assert!((run.seconds(30).0 / 10.0 - 1.0).abs() < 0.1);
}

/// What one export does.
#[derive(Clone, Copy)]
enum Does {
    /// As much as the window lets through.
    Much,
    /// Reads, fifty a second, that nothing holds.
    ProtectedReads,
    Nothing,
}

/// One host of several that share a single server, with its exports.
struct Host {
    name: HostName,
    control: ControlLoop,
    /// Whose, what it does, its goal, and how much longer than others' its requests take.
    exports: Vec<(ConsumerName, Does, u64, f64)>,
    window: f64,
}

/// A host of a number, and its exports with their goals in ms.
fn host(number: usize, exports: &[(Does, u64, f64)]) -> Host {
    let regulation = RegulationMethod::Queueing(QueueLearning::default());
    let law = LawConfig::SelfTuning(SelfTuningConfig { regulation, ..SelfTuningConfig::default() });
    // All hosts know the shortest goal: else one host alone is believed only as far as a quarter.
    let target = Latency::from_millis(5);
    let config = LoopConfig::new(ResourceName::new("lun").unwrap(), target, law);
    let exports = exports
        .iter()
        .enumerate()
        .map(|(at, (does, goal, longer))| (name(&format!("export-{number}-{at}")), *does, *goal, *longer));
    Host {
        name: HostName::new(&format!("host-{number}")).unwrap(),
        control: ControlLoop::new(LoopConfig { set_point_ratio: 1.0, ..config }).unwrap(),
        exports: exports.collect(),
        window: 32.0,
    }
}

/// Seconds on a storage of a thousand requests a second, as all measure them: with what chance adds, each its
/// own. Of the last two hundred how long requests took, n over the capacity, in ms; and how many each host
/// had at the storage on average.
fn together(mut hosts: Vec<Host>) -> (Vec<f64>, Vec<f64>) {
    const CAPACITY: f64 = 1_000.0;
    const SECONDS: usize = 300;
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let mut responses = Vec::new();
    // Of the interval before.
    let mut told: Vec<HeardReport> = Vec::new();
    let mut had = vec![0.0; hosts.len()];
    for second in 0..SECONDS {
        let now = Instant::from_nanos(1_000_000_000 * (second as u64 + 1));
        let mut tells = Vec::new();
        let busy = |host: &Host| host.exports.iter().filter(|export| matches!(export.1, Does::Much)).count();
        let there: Vec<f64> =
            hosts.iter().map(|host| if busy(host) > 0 { host.window.min(32.0) } else { 0.0 }).collect();
        let all: f64 = there.iter().sum();
        let response = all / CAPACITY * 1e3;
        let observations: Vec<Observation> = hosts
            .iter()
            .zip(&there)
            .map(|(host, there)| {
                let consumers = host.exports.iter().map(|(name, does, goal, longer)| {
                    let took = response * longer * random.random_range(0.85..1.15);
                    let mean = Latency::from_millis_f64(took);
                    let protected = matches!(does, Does::ProtectedReads);
                    // By Little's law of its part of the window, in as much time as its requests take.
                    let (count, queued) = match does {
                        Does::Much => (there / busy(host) as f64 / (response * longer) * 1e3, 20),
                        Does::ProtectedReads => (50.0, 0),
                        Does::Nothing => (0.0, 0),
                    };
                    let observed = Run::consumer(name.as_str(), count as u64, mean, queued);
                    ConsumerObservation { protected, goal: Some(Latency::from_millis(*goal)), ..observed }
                });
                let resource = host.control.config().resource.clone();
                Observation::new(resource, now, consumers.collect())
            })
            .collect();
        for (at, (host, mut observation)) in hosts.iter_mut().zip(observations).enumerate() {
            let report = host.control.report(&observation);
            let peers: Vec<_> = told.iter().filter(|heard| heard.host != host.name).cloned().collect();
            if !peers.is_empty() {
                let interval = host.control.config().interval;
                observation.cluster = Some(combine(&host.name, &report, &peers, interval));
            }
            let (commands, _) = host.control.step(now, &observation);
            host.window = commands.window.map_or(32.0, Window::get);
            let report = host.control.decided(report);
            tells.push(HeardReport { host: host.name.clone(), age: Latency::ZERO, report });
            if second >= SECONDS - 200 {
                had[at] += there[at] / 200.0;
            }
        }
        told = tells;
        if second >= SECONDS - 200 {
            responses.push(response);
        }
    }
    (responses, had)
}

/// The window is for a goal: on average, and no more than a few seconds are far above it.
fn keeps(responses: &[f64], goal: f64) {
    let mean = responses.iter().sum::<f64>() / responses.len() as f64;
    let above = responses.iter().filter(|response| **response > goal * 1.25).count();
    assert!((mean / goal - 1.0).abs() < 0.1 && above <= responses.len() / 20, "{mean} for {goal}, {above}");
}

/// The throughput of one server is the same for every goal, so that it cannot be by throughput whose window
/// is the least.
#[test]
fn of_several_goals_on_one_server_the_one_that_takes_the_least_window_is_kept() {
    use Does::Much;
    keeps(&together(vec![host(1, &[(Much, 8, 1.0), (Much, 32, 1.0)])]).0, 8.0);
    keeps(&together(vec![host(1, &[(Much, 8, 1.0)]), host(2, &[(Much, 32, 1.0)])]).0, 8.0);
    // One goal, and requests of one that take three times as long: for its sake a third of the window.
    keeps(&together(vec![host(1, &[(Much, 24, 1.0), (Much, 24, 3.0)])]).0, 8.0);
}

#[test]
fn what_idle_exports_of_a_host_leave_is_not_in_two_windows() {
    use Does::{Much, Nothing};
    for idle in [1, 9] {
        let mut exports = vec![(Much, 8, 1.0)];
        exports.extend(vec![(Nothing, 8, 1.0); idle]);
        let (responses, had) = together(vec![host(1, &exports), host(2, &[(Much, 8, 1.0)])]);
        keeps(&responses, 8.0);
        // And each host has its half: what the one's idle exports leave is nobody's more than the other's.
        assert!(had.iter().all(|had| (had / 4.0 - 1.0).abs() < 0.1), "{had:?}");
    }
}

#[test]
fn for_a_protected_reader_alone_on_its_host_other_hosts_writers_are_held() {
    use Does::{Much, ProtectedReads};
    for longer in [1.0, 3.0] {
        let (responses, _) =
            together(vec![host(1, &[(ProtectedReads, 5, 1.0)]), host(2, &[(Much, 50, longer)])]);
        keeps(&responses, 5.0);
    }
}
