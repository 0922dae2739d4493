//! A percentile in the mean's place.

use std::time::Duration;

use tidegate_control::{
    AutoConfig, ConsumerObservation, ControlLoop, Decision, LawAction, LawConfig, LawKind, LoopConfig,
    LoopConfigError, MeanOutstanding, Observation, OperationTotals, PidConfig, SignalChoice,
    SignalPercentile, SignalRequests, SignalState, SignalStatistic, Smoothing,
};
use tidegate_units::{ConsumerName, Instant, Latency, ResourceName, Shares};

fn ms(millis: u64) -> Latency {
    Latency::from_millis(millis)
}

fn config(statistic: SignalStatistic) -> LoopConfig {
    let law = LawConfig::Pid(PidConfig::default());
    LoopConfig {
        signal: SignalChoice::Reads,
        statistic,
        smoothing: Smoothing::NONE,
        interval: Duration::from_millis(100),
        ..LoopConfig::new(ResourceName::new("vg0").unwrap(), ms(15), law)
    }
}

/// Ten reads of 4 ms in the mean beside a writer, and what a sensor of each says of them.
fn decided(
    control: &mut ControlLoop,
    tick: u64,
    reads: u64,
    percentile: Option<SignalPercentile>,
) -> Decision {
    let name = |name| ConsumerName::new(name).unwrap();
    let of = |count| OperationTotals { count, total_latency: ms(4 * count), ..OperationTotals::default() };
    let reader = ConsumerObservation {
        reads: of(reads),
        ..ConsumerObservation::idle(name("reader"), Shares::DEFAULT, true)
    };
    let writer = ConsumerObservation {
        writes: of(20),
        mean_outstanding: MeanOutstanding::new(8.0),
        ..ConsumerObservation::idle(name("writer"), Shares::DEFAULT, false)
    };
    let at = Instant::from_nanos(100_000_000 * tick);
    let observation = Observation::new(ResourceName::new("vg0").unwrap(), at, vec![reader, writer]);
    control.step(at, &Observation { percentile, ..observation }).1
}

fn counted(statistic: SignalStatistic, count: u64) -> Option<SignalPercentile> {
    Some(SignalPercentile { statistic, count, latency: ms(40), stretch: None })
}

#[test]
fn what_few_of_the_reads_wait_for_is_what_holds() {
    for (statistic, percent) in
        [(SignalStatistic::P90, 90), (SignalStatistic::P95, 95), (SignalStatistic::P99, 99)]
    {
        let mut control = ControlLoop::new(config(statistic)).unwrap();
        let decision = decided(&mut control, 1, 10, counted(statistic, 9));
        assert_eq!((decision.statistic, decision.input), (statistic, SignalState::Samples { count: 9 }));
        assert_eq!((decision.measured, decision.estimate), (Some(ms(40)), Some(ms(40))));
        let said = decision.to_string();
        let begin =
            format!("vg0: {percent} % of reads within {} against {}: writers throttled", ms(40), ms(12));
        assert!(said.starts_with(&begin), "{said}");
    }
    // The mean of the same reads is short, and whatever else was counted changes nothing.
    let mut control = ControlLoop::new(config(SignalStatistic::Mean)).unwrap();
    let decision = decided(&mut control, 1, 10, counted(SignalStatistic::P95, 9));
    assert_eq!((decision.measured, decision.held), (Some(ms(4)), 0));
    let said = decision.to_string();
    assert_eq!(said, format!("vg0: reads {} against {}: nothing throttled", ms(4), ms(12)));
}

#[test]
fn reads_that_nobody_counted_are_unknown_and_none_at_all_is_silence() {
    let mut control = ControlLoop::new(config(SignalStatistic::P95)).unwrap();
    let held = decided(&mut control, 1, 10, counted(SignalStatistic::P95, 9)).bounded;
    for (tick, percentile) in [(2, None), (3, counted(SignalStatistic::P99, 9))] {
        let decision = decided(&mut control, tick, 10, percentile);
        assert_eq!((decision.input, decision.action), (SignalState::Unknown, LawAction::Hold));
        assert_eq!(decision.bounded, held);
    }
    let decision = decided(&mut control, 4, 0, None);
    assert_eq!((decision.input, decision.action), (SignalState::Idle, LawAction::Relax));
}

#[test]
fn a_percentile_may_be_of_any_signal_as_it_is_and_not_of_laws_that_know_means_only() {
    let config = LoopConfig { signal: SignalChoice::default(), ..config(SignalStatistic::P95) };
    let mut control = ControlLoop::new(config.clone()).unwrap();
    let decision = decided(&mut control, 1, 10, counted(SignalStatistic::P95, 9));
    assert_eq!((decision.signal, decision.measured), (SignalRequests::ProtectedReads, Some(ms(40))));

    let refused = |config: LoopConfig| ControlLoop::new(config).unwrap_err();
    let scaled = LoopConfig { normalise: true, ..config.clone() };
    assert_eq!(refused(scaled), LoopConfigError::PercentilesAreNotScaled);
    let law = |kind| LoopConfig { law: LawConfig::of_kind(kind), ..config.clone() };
    assert_eq!(refused(law(LawKind::Integral)), LoopConfigError::ContractsHaveTheirStatistic);
    assert_eq!(refused(law(LawKind::SelfTuning)), LoopConfigError::GoalsAreTakenAsTheyAre);
}

#[test]
fn each_has_a_name_of_its_own_that_says_how_many() {
    for (name, statistic) in SignalStatistic::NAMED {
        let percent = statistic.percent().map_or("mean".to_owned(), |percent| format!("p{percent}"));
        assert_eq!(name, percent);
    }
}

/// A storage beside whose reader a writer has 64 requests. A window of `w` lets a read take 2 + w/2 ms in the
/// mean; 95 % take three times that.
struct BusyStorage {
    control: ControlLoop,
    window: f64,
}

impl BusyStorage {
    fn under_auto(target: Latency) -> Self {
        let law = LawConfig::Auto(AutoConfig::default());
        let config = LoopConfig { target, law, ..config(SignalStatistic::P95) };
        Self { control: ControlLoop::new(config).unwrap(), window: 64.0 }
    }

    /// The latency of 95 % of the reads, in milliseconds.
    fn p95(&self) -> f64 {
        3.0 * (2.0 + self.window.min(64.0) / 2.0)
    }

    /// A control interval of a tenth of a second. `stretch` is the percentile of a stretch that ends.
    fn pass(&mut self, tick: u64, stretch: Option<f64>) {
        let used = self.window.min(64.0);
        let mean_ms = self.p95() / 3.0;
        let of = |count: u64| OperationTotals {
            count,
            total_latency: Latency::from_secs_f64(mean_ms / 1e3 * count as f64),
            in_flight: 1,
            ..OperationTotals::default()
        };
        let name = |name| ConsumerName::new(name).unwrap();
        let reader = ConsumerObservation {
            reads: of(20),
            ..ConsumerObservation::idle(name("reader"), Shares::DEFAULT, true)
        };
        let writer = ConsumerObservation {
            writes: of((used / mean_ms * 100.0).round() as u64),
            mean_outstanding: MeanOutstanding::new(used),
            queued: 64 - used as u32,
            ..ConsumerObservation::idle(name("writer"), Shares::DEFAULT, false)
        };
        let at = Instant::from_nanos(100_000_000 * tick);
        let observation = Observation::new(ResourceName::new("vg0").unwrap(), at, vec![reader, writer]);
        let percentile = Some(SignalPercentile {
            statistic: SignalStatistic::P95,
            count: 20,
            latency: Latency::from_secs_f64(self.p95() / 1e3),
            stretch: stretch.map(|ms| Latency::from_secs_f64(ms / 1e3)),
        });
        let (commands, _) = self.control.step(at, &Observation { percentile, ..observation });
        self.window = commands.window.map_or(64.0, tidegate_units::Window::get);
    }
}

#[test]
fn the_law_auto_keeps_a_percentile_and_not_the_mean() {
    for target in [30, 60] {
        let mut storage = BusyStorage::under_auto(ms(target));
        let mut sum = 0.0;
        for tick in 1_u64..=600 {
            let p95 = storage.p95();
            storage.pass(tick, tick.is_multiple_of(10).then_some(p95));
            sum += if tick > 300 { p95 } else { 0.0 };
        }
        let target = target as f64;
        assert!((0.66 * target..target).contains(&(sum / 300.0)), "{} ms", sum / 300.0);
    }
}

#[test]
fn the_law_auto_leaves_room_for_the_scatter_of_the_seconds_that_are_judged() {
    let mut storage = BusyStorage::under_auto(ms(60));
    let (mut state, mut above) = (1_u64, 0);
    for tick in 1_u64..=12_000 {
        let stretch = tick.is_multiple_of(10).then(|| {
            // Twelve uniform numbers less six are normal, about. As of 20 reads, the 19th scatters by 0.3.
            let normal: f64 = (0..12).map(|_| uniform(&mut state)).sum::<f64>() - 6.0;
            storage.p95() * (0.3 * normal).exp()
        });
        above += u32::from(tick > 6_000 && stretch.is_some_and(|ms| ms > 60.0));
        storage.pass(tick, stretch);
    }
    assert!(above <= 24, "{above} of 600 seconds are above the target");
    assert!(storage.p95() > 25.0, "{} ms", storage.p95());
}

/// The next of numbers between 0 and 1, as Knuth's MMIX draws them.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}
