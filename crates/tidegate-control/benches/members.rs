//! Members of a cluster in virtual time, with real control loops and folds, on one modelled array: the time
//! until all agree after a change, with lost reports and with a partition, and the cost of a fold.
//!
//! `cargo bench -p tidegate-control --bench members -- --members 10000 --json FILE`; without a number 1 000,
//! and with 1 % and 10 % of the reports lost. `--loss` and `--intervals` say otherwise. As a test it runs for
//! a moment, so that it does not rot.
//!
//! The array is a queue with a capacity: latency is the larger of 2 ms and requests outstanding over
//! capacity. Each member has one consumer that always wants eight requests outstanding, and an array that is
//! up to 15 % slower or faster for it, and measures with chance. Members take their steps in four groups, a
//! quarter of an interval apart. A member knows of each other one the last report that was not lost, with its
//! age.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench measures and prints")]
#![allow(clippy::disallowed_methods, reason = "a bench measures time and writes its result")]

use std::thread;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Normal};
use rand_pcg::Pcg64;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tidegate_control::{
    AutoConfig, ConsumerObservation, ControlLoop, HeardReport, HostReport, LawConfig, LoopConfig,
    MeanOutstanding, Observation, OperationTotals, combine,
};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Latency, ResourceName, Shares, Window};

const INTERVAL: Duration = Duration::from_secs(2);
const TARGET: f64 = 20e-3;
const UNLOADED: f64 = 2e-3;

/// Requests per second of the array, for each member.
const CAPACITY: f64 = 100.0;

/// Requests that a member's consumer wants outstanding.
const DEMAND: f64 = 8.0;

const GROUPS: usize = 4;

/// Reports of a member that are remembered, for receivers that lost the later ones.
const REMEMBERED: usize = 4;

/// Members agree while so many of them have decided on a window of all hosts so close to the median.
const AGREED: (f64, f64) = (0.95, 0.1);

/// A stretch of a run.
#[derive(Clone, Copy)]
struct Stretch {
    name: &'static str,
    intervals: usize,
    /// Part of the array's capacity.
    capacity: f64,
    /// The members' two halves do not hear each other.
    parted: bool,
}

struct Member {
    name: HostName,
    control: ControlLoop,
    /// The array's latency for it, relative to the mean.
    placement: f64,
    window: f64,
    observation: Observation,
    /// The reports, the youngest first.
    reports: Vec<HostReport>,
    rng: Pcg64,
    /// The window of all hosts that it decided.
    total: Option<f64>,
    folding: Duration,
    folds: u32,
}

impl Member {
    fn new(number: usize) -> Self {
        let resource = ResourceName::new("vg0").unwrap();
        let law = LawConfig::Auto(AutoConfig::default());
        let config = LoopConfig {
            interval: INTERVAL,
            ..LoopConfig::new(resource.clone(), Latency::from_secs_f64(TARGET), law)
        };
        let mut rng = Pcg64::seed_from_u64(1_000_000 + number as u64);
        let consumer = ConsumerObservation::idle(ConsumerName::new("vm").unwrap(), Shares::DEFAULT, false);
        Self {
            name: HostName::new(&format!("host-{number:05}")).unwrap(),
            control: ControlLoop::new(config).unwrap(),
            placement: rng.random_range(0.85..1.15),
            window: DEMAND,
            observation: Observation::new(resource, Instant::ZERO, vec![consumer]),
            reports: Vec::new(),
            rng,
            total: None,
            folding: Duration::ZERO,
            folds: 0,
        }
    }

    fn used(&self) -> f64 {
        self.window.min(DEMAND)
    }

    /// Measures an interval at the array and reports it.
    fn report(&mut self, now: Instant, latency: f64) {
        let latency = latency * self.placement;
        let expected = self.used() / latency * INTERVAL.as_secs_f64();
        let chance = Normal::new(0.0, 1.0).unwrap();
        let count = (expected + expected.sqrt() * chance.sample(&mut self.rng)).round().max(1.0);
        // Response times of single requests scatter as exponential ones do.
        let mean = latency * (1.0 + chance.sample(&mut self.rng) / count.sqrt()).max(0.1);
        self.observation.at = now;
        let waits = DEMAND - self.used();
        let consumer = &mut self.observation.consumers[0];
        consumer.reads = OperationTotals {
            count: count as u64,
            bytes: Bytes::from_kib(4 * count as u64),
            total_latency: Latency::from_secs_f64(mean * count),
            in_flight: (DEMAND - waits).ceil() as u32,
            oldest_in_flight: Some(Latency::from_secs_f64(mean)),
        };
        consumer.mean_outstanding = MeanOutstanding::new(DEMAND);
        consumer.queued = waits as u32;
        let report = self.control.report(&self.observation);
        self.reports.insert(0, report);
        self.reports.truncate(REMEMBERED);
    }

    /// Folds what it heard, and decides.
    fn decide(&mut self, now: Instant, heard: &[HeardReport]) {
        let begin = processor_time();
        let signal = combine(&self.name, &self.reports[0], heard, INTERVAL);
        self.folding += processor_time() - begin;
        self.folds += 1;
        self.observation.cluster = Some(signal);
        let (commands, _) = self.control.step(now, &self.observation);
        self.window = commands.window.unwrap().get();
        // The others hear of it, too.
        self.reports[0] = self.control.decided(self.reports[0].clone());
        self.total = self.reports[0].load.as_ref().and_then(|load| load.total_window).map(Window::get);
    }
}

/// The reports that a half of the members has of all, if none is lost.
#[derive(Clone)]
struct Board {
    heard: Vec<HeardReport>,
    /// The quarter of an interval in which each was published.
    published: Vec<usize>,
}

struct Cluster {
    members: Vec<Member>,
    boards: [Board; 2],
    loss: f64,
    /// Quarters of intervals that have passed.
    quarter: usize,
}

impl Cluster {
    fn new(count: usize, loss: f64) -> Self {
        let mut members: Vec<Member> = (0..count).map(Member::new).collect();
        let latency = (DEMAND * count as f64 / (CAPACITY * count as f64)).max(UNLOADED);
        for member in &mut members {
            member.report(Instant::ZERO, latency);
        }
        let heard = |member: &Member| HeardReport {
            host: member.name.clone(),
            age: Latency::ZERO,
            report: member.reports[0].clone(),
        };
        let board = Board { heard: members.iter().map(heard).collect(), published: vec![0; count] };
        Self { members, boards: [board.clone(), board], loss, quarter: 0 }
    }

    /// One interval. Returns the mean latency over the target.
    fn interval(&mut self, capacity: f64, parted: bool) -> f64 {
        let mut latency_sum = 0.0;
        for group in 0..GROUPS {
            self.quarter += 1;
            let now = Instant::ZERO + INTERVAL / GROUPS as u32 * self.quarter as u32;
            let used: f64 = self.members.iter().map(Member::used).sum();
            let latency = (used / (capacity * CAPACITY * self.members.len() as f64)).max(UNLOADED);
            latency_sum += latency;
            self.steps(now, group, latency);
            self.publish(group, parted);
        }
        latency_sum / GROUPS as f64 / TARGET
    }

    /// The steps of a group, on as many threads as there are cores.
    fn steps(&mut self, now: Instant, group: usize, latency: f64) {
        let (count, loss, quarter) = (self.members.len(), self.loss, self.quarter);
        for board in &mut self.boards {
            for (heard, published) in board.heard.iter_mut().zip(&board.published) {
                heard.age = age(quarter - published);
            }
        }
        let histories: Vec<Vec<HostReport>> =
            self.members.iter().map(|member| member.reports.clone()).collect();
        let boards = &self.boards;
        let threads = thread::available_parallelism().map_or(1, Into::into);
        let chunk = count.div_ceil(threads);
        thread::scope(|scope| {
            for (index, members) in self.members.chunks_mut(chunk).enumerate() {
                let histories = &histories;
                scope.spawn(move || {
                    let mut views = boards.clone();
                    for (at, member) in members.iter_mut().enumerate() {
                        let receiver = index * chunk + at;
                        if receiver % GROUPS != group {
                            continue;
                        }
                        member.report(now, latency);
                        let half = half_of(receiver, count);
                        let view = &mut views[half];
                        let lost = lose(view, receiver, quarter, loss, histories);
                        member.decide(now, &view.heard);
                        for sender in lost {
                            view.heard[sender] = boards[half].heard[sender].clone();
                        }
                    }
                });
            }
        });
    }

    /// The group's reports reach the half of their sender, and the other one unless they are parted.
    fn publish(&mut self, group: usize, parted: bool) {
        for sender in (group..self.members.len()).step_by(GROUPS) {
            let own = half_of(sender, self.members.len());
            for (half, board) in self.boards.iter_mut().enumerate() {
                if half == own || !parted {
                    board.heard[sender].report.clone_from(&self.members[sender].reports[0]);
                    board.published[sender] = self.quarter;
                }
            }
        }
    }

    /// The part of members whose decision is close to the median of those that they hear; the largest
    /// distance from it and the standard deviation, as logarithms; the median of all, per member. `None`
    /// while not all have decided.
    fn spread(&self, parted: bool) -> Option<[f64; 4]> {
        let totals: Vec<f64> =
            self.members.iter().map(|member| member.total.map(f64::ln)).collect::<Option<_>>()?;
        let halves = totals.split_at(if parted { totals.len() / 2 } else { 0 });
        let (mut close, mut widest, mut squares) = (0.0, 0.0_f64, 0.0);
        for half in [halves.0, halves.1].into_iter().filter(|half| !half.is_empty()) {
            let middle = median(half);
            for total in half {
                let apart = (total - middle).abs();
                close += f64::from(u8::from(apart <= AGREED.1));
                widest = widest.max(apart);
                squares += apart.powi(2);
            }
        }
        let count = totals.len() as f64;
        Some([close / count, widest, (squares / count).sqrt(), median(&totals).exp() / count])
    }

    /// The coefficient of variation of the windows in force, which should be equal.
    fn windows(&self) -> f64 {
        let count = self.members.len() as f64;
        let mean = self.members.iter().map(|member| member.window).sum::<f64>() / count;
        let squares: f64 = self.members.iter().map(|member| (member.window - mean).powi(2)).sum();
        (squares / count).sqrt() / mean
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn half_of(member: usize, count: usize) -> usize {
    usize::from(member >= count / 2)
}

fn age(quarters: usize) -> Latency {
    Latency::from(INTERVAL / GROUPS as u32 * quarters as u32)
}

/// Replaces the reports that a receiver lost by the last ones that it did not lose, and returns their
/// senders.
fn lose(
    view: &mut Board,
    receiver: usize,
    quarter: usize,
    loss: f64,
    histories: &[Vec<HostReport>],
) -> Vec<usize> {
    let mut lost = Vec::new();
    if loss <= 0.0 {
        return lost;
    }
    for (sender, history) in histories.iter().enumerate() {
        let published = view.published[sender];
        let is_lost = |back: usize| {
            published >= back * GROUPS && chance(receiver, sender, published - back * GROUPS) < loss
        };
        if published == 0 || !is_lost(0) {
            continue;
        }
        let back = (1..REMEMBERED).find(|back| !is_lost(*back)).unwrap_or(REMEMBERED);
        let heard = &mut view.heard[sender];
        heard.age = age(quarter - published + back * GROUPS);
        if let Some(report) = history.get(back) {
            heard.report.clone_from(report);
        }
        lost.push(sender);
    }
    lost
}

/// A number from 0 to 1 for a report and its receiver (SplitMix64).
fn chance(receiver: usize, sender: usize, published: usize) -> f64 {
    let seed = ((receiver as u64) << 40) ^ ((sender as u64) << 20) ^ published as u64;
    let mut mixed = seed.wrapping_add(1_000_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}

fn run(count: usize, loss: f64, stretches: &[Stretch]) -> Value {
    let mut cluster = Cluster::new(count, loss);
    let mut results = Vec::new();
    for stretch in stretches {
        let mut rows = Vec::new();
        for _ in 0..stretch.intervals {
            let latency = cluster.interval(stretch.capacity, stretch.parted);
            let spread = cluster.spread(stretch.parted);
            rows.push(json!({
                "latency_over_target": round(latency),
                "close": spread.map(|[close, ..]| round(close)),
                "widest": spread.map(|[_, widest, ..]| round(widest)),
                "deviation": spread.map(|[.., deviation, _]| round(deviation)),
                "total_window_per_member": spread.map(|[.., median]| round(median)),
                "windows_deviation": round(cluster.windows()),
            }));
        }
        let is_apart = |row: &Value| row["close"].as_f64().is_none_or(|close| close < AGREED.0);
        let agreed = rows.iter().rposition(is_apart).map_or(0, |apart| apart + 1);
        let last = &rows[rows.len() - 1];
        let peak = rows.iter().filter_map(|row| row["latency_over_target"].as_f64()).fold(0.0, f64::max);
        println!(
            "{count:>7}  {:>5.1}  {:>9}  {:>9}  {:>9.3}  {:>9.3}  {peak:>7.2}  {:>7.2}",
            100.0 * loss,
            stretch.name,
            if agreed < rows.len() { agreed.to_string() } else { "never".to_owned() },
            last["deviation"].as_f64().unwrap_or(f64::NAN),
            last["windows_deviation"].as_f64().unwrap(),
            last["latency_over_target"].as_f64().unwrap(),
        );
        results.push(json!({
            "stretch": stretch.name, "capacity": stretch.capacity, "parted": stretch.parted,
            "intervals_until_agreed": (agreed < rows.len()).then_some(agreed), "intervals": rows,
        }));
    }
    let folding: Duration = cluster.members.iter().map(|member| member.folding).sum();
    let folds: u32 = cluster.members.iter().map(|member| member.folds).sum();
    let fold_us = 1e6 * folding.as_secs_f64() / f64::from(folds);
    println!("{count:>7}  {:>5.1}  a fold takes {fold_us:.0} µs", 100.0 * loss);
    json!({ "members": count, "loss": loss, "fold_us": round(fold_us), "stretches": results })
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let full = arguments.iter().any(|argument| argument == "--bench");
    let value = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let number = |name: &str| value(name).and_then(|value| value.parse::<f64>().ok());
    let count = number("--members").unwrap_or(if full { 1_000.0 } else { 40.0 }) as usize;
    let intervals = number("--intervals").unwrap_or(if full { 20.0 } else { 3.0 }) as usize;
    let losses = number("--loss").map_or(vec![0.01, 0.1], |loss| vec![loss]);
    let stretch = |name, capacity, parted| Stretch { name, intervals, capacity, parted };
    let stretches = [
        Stretch { intervals: 2 * intervals, ..stretch("start", 1.0, false) },
        stretch("half", 0.5, false),
        stretch("parted", 0.5, true),
        stretch("healed", 0.5, false),
    ];
    println!(
        "{:>7}  {:>5}  {:>9}  {:>9}  {:>9}  {:>9}  {:>7}  {:>7}",
        "members", "loss%", "stretch", "agreed", "totals", "windows", "peak", "latency"
    );
    let results: Vec<Value> = losses.into_iter().map(|loss| run(count, loss, &stretches)).collect();
    if let Some(path) = value("--json") {
        std::fs::write(path, format!("{}\n", json!(results))).unwrap();
    }
}
