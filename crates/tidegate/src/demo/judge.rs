//! Judgement of a run. Pure.
//!
//! The promise is about 1 s means of the protected consumer's reads: a second keeps the target when the mean
//! over the reads completed in it is at most the target. A second in which nothing was completed although
//! reads were outstanding has broken it; one in which nothing was asked says nothing and is not counted.
//!
//! The three seconds after each start of a burst are not judged but reported, with their greatest mean and
//! their greatest single response time. Means and percentiles of a phase leave nothing out.

use serde::{Serialize, Serializer};
use tidegate_units::{ByteRate, Latency};

use super::plan::{BURST_START_SECONDS, DemoLaw, DemoPlan, PhaseName};
use super::timeline::{DemoTimeline, MeasuredPhase, PhaseSecond};

/// The goals, as the project states them for this scenario.
const WITHIN_TARGET: f64 = 0.95;
const UNREGULATED_TARGETS: f64 = 2.0;
/// Bjørgeengen: 33 of 39 MB/s at a mild threshold, 26 of 39 at a sharper one.
const WRITERS_KEPT: f64 = 0.65;

/// Response times of a phase, all requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct LatencyMillis {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// The result of one phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PhaseResult {
    pub(crate) name: PhaseName,
    pub(crate) seconds: usize,
    pub(crate) bursts: usize,
    pub(crate) victim_reads: u64,
    pub(crate) victim_latency_ms: LatencyMillis,
    /// Seconds that were judged.
    pub(crate) judged_seconds: usize,
    /// The share of them in which the target was not kept.
    pub(crate) above_target_fraction: f64,
    /// The same of all seconds, those after the start of a burst too.
    pub(crate) above_target_of_all_fraction: f64,
    /// Seconds after starts of bursts, reported and not judged.
    pub(crate) burst_start_seconds: usize,
    /// The greatest 1 s mean among them.
    pub(crate) burst_start_peak_ms: Option<f64>,
    /// The greatest single response time among them.
    pub(crate) burst_start_greatest_ms: Option<f64>,
    /// The backups' mean write rate, over the time in which they were on.
    pub(crate) writers_bytes_per_s: f64,
    /// The same as a share of the unregulated phase.
    pub(crate) writers_kept_fraction: Option<f64>,
    /// The greatest lateness of the measuring thread, which a busy machine may have added to any response
    /// time.
    pub(crate) woke_late_ms: f64,
}

/// The measure of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GoalMeasure {
    AtLeast(f64),
    AtMost(f64),
}

/// A goal, and whether it was met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DemoGoal {
    pub(crate) name: GoalName,
    /// Nothing when it could not be measured: then it was not met.
    pub(crate) value: Option<f64>,
    #[serde(flatten)]
    pub(crate) bound: GoalMeasure,
    pub(crate) met: bool,
}

/// The subject of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GoalName {
    /// Share of the regulated phase's judged seconds that kept the target.
    RegulatedWithinTargetFraction,
    /// Mean of the regulated phase.
    RegulatedMeanMs,
    /// Mean of the unregulated phase: without a problem there is nothing to show.
    UnregulatedMeanMs,
    /// Share of their throughput that the writers kept.
    WritersKeptFraction,
}

/// All goals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DemoVerdict {
    pub(crate) met: bool,
    pub(crate) goals: [DemoGoal; 4],
}

/// The whole result; serialised, it is the document that `--json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DemoOutcome {
    #[serde(serialize_with = "as_millis")]
    pub(crate) target_ms: Latency,
    pub(crate) law: DemoLaw,
    #[serde(serialize_with = "as_millis")]
    pub(crate) set_point_ms: Latency,
    pub(crate) seed: u64,
    pub(crate) burst_s: u32,
    pub(crate) pause_s: u32,
    pub(crate) phases: Vec<PhaseResult>,
    pub(crate) verdict: DemoVerdict,
}

fn as_millis<S: Serializer>(latency: &Latency, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(latency.as_millis_f64())
}

impl DemoOutcome {
    /// The result of one phase, when it ran.
    pub(crate) fn phase(&self, name: PhaseName) -> Option<&PhaseResult> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

/// Judges a run.
pub(crate) fn judge(timeline: &DemoTimeline) -> DemoOutcome {
    let plan = &timeline.plan;
    let mut phases: Vec<_> = timeline.phases.iter().map(|phase| judge_phase(phase, plan)).collect();
    let unregulated = phases
        .iter()
        .find(|phase| phase.name == PhaseName::Unregulated)
        .map(|phase| phase.writers_bytes_per_s)
        .filter(|rate| *rate > 0.0);
    for phase in phases.iter_mut().filter(|phase| phase.bursts > 0) {
        phase.writers_kept_fraction = unregulated.map(|rate| phase.writers_bytes_per_s / rate);
    }
    let verdict = verdict(&phases, plan.target.as_millis_f64());
    DemoOutcome {
        target_ms: plan.target,
        law: plan.law,
        set_point_ms: plan.set_point(),
        seed: plan.seed,
        burst_s: plan.burst,
        pause_s: plan.pause,
        phases,
        verdict,
    }
}

fn judge_phase(phase: &MeasuredPhase, plan: &DemoPlan) -> PhaseResult {
    let starts = |at: u32| {
        phase
            .bursts
            .iter()
            .any(|burst| (burst.start..burst.start.saturating_add(BURST_START_SECONDS)).contains(&at))
    };
    let (start_seconds, rest): (Vec<_>, Vec<_>) =
        (0u32..).zip(&phase.seconds).partition(|(at, _)| starts(*at));
    let kept: Vec<bool> = rest.iter().filter_map(|(_, second)| keeps(second, plan.target)).collect();
    let starting = start_seconds.iter().filter_map(|(_, second)| keeps(second, plan.target));
    let all: Vec<bool> = kept.iter().copied().chain(starting).collect();
    let written: u64 = phase.seconds.iter().map(|second| second.written.get()).sum();
    let distribution = &phase.distribution;
    PhaseResult {
        name: phase.name,
        seconds: phase.seconds.len(),
        bursts: phase.bursts.len(),
        victim_reads: distribution.count,
        victim_latency_ms: LatencyMillis {
            mean: distribution.mean.as_millis_f64(),
            p50: distribution.p50.as_millis_f64(),
            p95: distribution.p95.as_millis_f64(),
            p99: distribution.p99.as_millis_f64(),
            max: distribution.max.as_millis_f64(),
        },
        judged_seconds: kept.len(),
        above_target_fraction: broken_part(&kept),
        above_target_of_all_fraction: broken_part(&all),
        burst_start_seconds: start_seconds.len(),
        burst_start_peak_ms: start_seconds
            .iter()
            .filter_map(|(_, second)| second.mean())
            .max()
            .map(Latency::as_millis_f64),
        burst_start_greatest_ms: start_seconds
            .iter()
            .filter(|(_, second)| second.reads > 0)
            .map(|(_, second)| second.latency_max)
            .max()
            .map(Latency::as_millis_f64),
        writers_bytes_per_s: match phase.seconds_on() {
            0 => 0.0,
            on => ByteRate::new(written as f64 / f64::from(on)).per_second(),
        },
        writers_kept_fraction: None,
        woke_late_ms: phase.woke_late.as_millis_f64(),
    }
}

/// Returns the part of judged seconds that did not keep the target; 0 of none.
fn broken_part(kept: &[bool]) -> f64 {
    let broken = kept.iter().filter(|kept| !**kept).count();
    if kept.is_empty() { 0.0 } else { broken as f64 / kept.len() as f64 }
}

/// Returns true if a second kept the target; `None` if it cannot be said.
fn keeps(second: &PhaseSecond, target: Latency) -> Option<bool> {
    match second.mean() {
        Some(mean) => Some(mean <= target),
        None if second.outstanding > 0 => Some(false),
        None => None,
    }
}

fn verdict(phases: &[PhaseResult], target: f64) -> DemoVerdict {
    let of = |name| phases.iter().find(|phase| phase.name == name);
    let regulated = of(PhaseName::Regulated);
    let mean = |phase: &PhaseResult| phase.victim_latency_ms.mean;
    // A phase without a completed read has a mean of zero and judged nothing: that is no success.
    let measured = |phase: &&PhaseResult| phase.victim_reads > 0;
    let goals = [
        goal(
            GoalName::RegulatedWithinTargetFraction,
            regulated.filter(|phase| phase.judged_seconds > 0).map(|phase| 1.0 - phase.above_target_fraction),
            GoalMeasure::AtLeast(WITHIN_TARGET),
        ),
        goal(GoalName::RegulatedMeanMs, regulated.filter(measured).map(mean), GoalMeasure::AtMost(target)),
        goal(
            GoalName::UnregulatedMeanMs,
            of(PhaseName::Unregulated).filter(measured).map(mean),
            GoalMeasure::AtLeast(UNREGULATED_TARGETS * target),
        ),
        goal(
            GoalName::WritersKeptFraction,
            regulated.and_then(|phase| phase.writers_kept_fraction),
            GoalMeasure::AtLeast(WRITERS_KEPT),
        ),
    ];
    DemoVerdict { met: goals.iter().all(|goal| goal.met), goals }
}

fn goal(name: GoalName, value: Option<f64>, bound: GoalMeasure) -> DemoGoal {
    let met = value.is_some_and(|value| match bound {
        GoalMeasure::AtLeast(least) => value >= least,
        GoalMeasure::AtMost(most) => value <= most,
    });
    DemoGoal { name, value, bound, met }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;
    use tidegate_units::Bytes;

    use super::super::timeline::PhaseLatencies;
    use super::super::timeline::tests::{example, second};
    use super::*;

    fn regulated(seconds: Vec<PhaseSecond>, bursts: Vec<std::ops::Range<u32>>) -> PhaseResult {
        let phase = MeasuredPhase {
            name: PhaseName::Regulated,
            seconds,
            bursts,
            distribution: PhaseLatencies::default(),
            decisions: Vec::new(),
            woke_late: Latency::ZERO,
        };
        judge_phase(&phase, &example().plan)
    }

    fn quiet(millis: u64) -> PhaseSecond {
        second(millis, Bytes::ZERO)
    }

    #[test]
    fn a_good_run_meets_every_goal() {
        let outcome = judge(&example());
        assert!(outcome.verdict.met, "{:?}", outcome.verdict);
        let [alone, unregulated, regulated] = &outcome.phases[..] else { panic!("three phases") };
        assert_eq!(alone.writers_kept_fraction, None);
        assert!((unregulated.writers_bytes_per_s - 39e6).abs() < 1.0);
        assert_eq!(unregulated.writers_kept_fraction, Some(1.0));
        assert_eq!((regulated.judged_seconds, regulated.burst_start_seconds), (96, 9));
        // 2 of every 30 seconds at 30 MB/s, the rest at 28.
        assert!((regulated.writers_bytes_per_s - (2.0 * 30e6 + 28.0 * 28e6) / 30.0).abs() < 1.0);
        assert_eq!(regulated.burst_start_peak_ms, Some(20.0));
        assert_eq!(regulated.burst_start_greatest_ms, Some(40.0));
    }

    #[test]
    fn a_mean_equal_to_the_target_keeps_it_and_one_above_does_not() {
        assert!((regulated(vec![quiet(15)], vec![]).above_target_fraction).abs() < 1e-12);
        assert!((regulated(vec![quiet(15), quiet(16)], vec![]).above_target_fraction - 0.5).abs() < 1e-12);
    }

    #[test]
    fn silence_with_reads_outstanding_is_above_the_target_and_without_says_nothing() {
        let stuck = PhaseSecond { outstanding: 3, ..PhaseSecond::default() };
        let idle = PhaseSecond::default();
        let result = regulated(vec![quiet(6), stuck, idle], vec![]);
        assert_eq!(result.judged_seconds, 2);
        assert!((result.above_target_fraction - 0.5).abs() < 1e-12);
    }

    #[test]
    fn exactly_three_seconds_after_each_burst_start_are_reported_apart() {
        let mut seconds = vec![quiet(6); 20];
        for at in [5, 6, 7] {
            seconds[at] = quiet(90);
        }
        let result = regulated(seconds.clone(), vec![5..15, 18..20]);
        assert_eq!((result.judged_seconds, result.burst_start_seconds), (15, 5));
        assert!(result.above_target_fraction.abs() < 1e-12);
        assert!((result.above_target_of_all_fraction - 3.0 / 20.0).abs() < 1e-12, "all seconds count here");
        assert_eq!(result.burst_start_peak_ms, Some(90.0));
        seconds[8] = quiet(90);
        let result = regulated(seconds, vec![5..15, 18..20]);
        assert!((result.above_target_fraction - 1.0 / 15.0).abs() < 1e-12, "the fourth second is judged");
    }

    #[test]
    fn each_goal_can_be_missed_by_itself() {
        let misses = |change: fn(&mut DemoTimeline)| {
            let mut timeline = example();
            change(&mut timeline);
            let verdict = judge(&timeline).verdict;
            assert_eq!(verdict.met, verdict.goals.iter().all(|goal| goal.met));
            verdict.goals.iter().filter(|goal| !goal.met).map(|goal| goal.name).collect::<Vec<_>>()
        };
        assert_eq!(misses(|_| ()), []);
        assert_eq!(
            misses(|run| run.phases[2].seconds[10..20].fill(second(16, Bytes::new(39_000_000)))),
            [GoalName::RegulatedWithinTargetFraction]
        );
        assert_eq!(
            misses(|run| run.phases[2].distribution.mean = Latency::from_micros(15_001)),
            [GoalName::RegulatedMeanMs]
        );
        assert_eq!(
            misses(|run| run.phases[1].distribution.mean = Latency::from_micros(29_999)),
            [GoalName::UnregulatedMeanMs]
        );
        assert_eq!(
            misses(|run| {
                for second in &mut run.phases[2].seconds {
                    second.written = Bytes::new(second.written.get() / 2);
                }
            }),
            [GoalName::WritersKeptFraction]
        );
    }

    #[test]
    fn a_run_that_measured_nothing_meets_nothing() {
        let mut timeline = example();
        for phase in &mut timeline.phases {
            phase.seconds.fill(PhaseSecond::default());
            phase.distribution = PhaseLatencies::default();
        }
        let verdict = judge(&timeline).verdict;
        assert!(verdict.goals.iter().all(|goal| !goal.met && goal.value.is_none()), "{verdict:?}");
    }

    /// Programs read this document: a key that goes or changes its meaning breaks them.
    #[test]
    fn the_documents_keys_are_pinned() {
        let document = serde_json::to_value(judge(&example())).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            keys(&document),
            ["burst_s", "law", "pause_s", "phases", "seed", "set_point_ms", "target_ms", "verdict"]
        );
        for phase in document["phases"].as_array().unwrap() {
            assert_eq!(
                keys(phase),
                [
                    "above_target_fraction",
                    "above_target_of_all_fraction",
                    "burst_start_greatest_ms",
                    "burst_start_peak_ms",
                    "burst_start_seconds",
                    "bursts",
                    "judged_seconds",
                    "name",
                    "seconds",
                    "victim_latency_ms",
                    "victim_reads",
                    "woke_late_ms",
                    "writers_bytes_per_s",
                    "writers_kept_fraction",
                ]
            );
            assert_eq!(keys(&phase["victim_latency_ms"]), ["max", "mean", "p50", "p95", "p99"]);
        }
        let names: Vec<_> =
            document["phases"].as_array().unwrap().iter().map(|phase| &phase["name"]).collect();
        assert_eq!(names, ["alone", "unregulated", "regulated"]);
        assert_eq!((&document["target_ms"], &document["law"]), (&15.0.into(), &"window".into()));
        assert_eq!(keys(&document["verdict"]), ["goals", "met"]);
        let goals = document["verdict"]["goals"].as_array().unwrap();
        assert_eq!(keys(&goals[0]), ["at_least", "met", "name", "value"]);
        assert_eq!(keys(&goals[1]), ["at_most", "met", "name", "value"]);
        let names: Vec<_> = goals.iter().map(|goal| goal["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "regulated_within_target_fraction",
                "regulated_mean_ms",
                "unregulated_mean_ms",
                "writers_kept_fraction"
            ]
        );
    }

    proptest! {
        /// Against the obvious oracle: walk the seconds one by one.
        #[test]
        fn judged_like_the_slow_way(
            means in prop::collection::vec(prop::option::of(0u64..40), 0..60),
            starts in prop::collection::vec(0u32..60, 0..3),
        ) {
            let seconds: Vec<_> = means
                .iter()
                .map(|mean| mean.map_or(PhaseSecond { outstanding: 1, ..PhaseSecond::default() }, quiet))
                .collect();
            let bursts: Vec<_> = starts.iter().map(|start| *start..start + 4).collect();
            let result = regulated(seconds, bursts);
            let (mut judged, mut above) = (0, 0);
            for (at, mean) in means.iter().enumerate() {
                let at = at as u32;
                if starts.iter().any(|start| at == *start || at == start + 1 || at == start + 2) {
                    continue;
                }
                judged += 1;
                above += u32::from(mean.is_none_or(|mean| mean > 15));
            }
            prop_assert_eq!(result.judged_seconds, judged);
            prop_assert_eq!(result.judged_seconds + result.burst_start_seconds, means.len());
            prop_assert!((result.above_target_fraction * judged as f64 - f64::from(above)).abs() < 1e-6);
            prop_assert!((0.0..=1.0).contains(&result.above_target_fraction));
        }
    }
}
