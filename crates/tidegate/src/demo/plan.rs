//! Plan of the run: the phases, their bursts, the promise. Pure: arguments become a plan or an error.

use std::fmt;
use std::ops::Range;

use serde::Serialize;
use thiserror::Error;
use tidegate_control::{AutoConfig, LawConfig, PidConfig, WindowConfig};
use tidegate_units::Latency;

/// Clients that write backups.
pub(crate) const WRITERS: usize = 12;

/// The seconds after each start of a burst that are reported separately: no law reacts to what has not
/// happened yet, and a mean over them would hide what the reaction costs.
pub(crate) const BURST_START_SECONDS: u32 = 3;

/// The longest demonstration, in seconds. It bounds what is kept of it.
const LONGEST: u32 = 24 * 3_600;

/// The greatest number of seconds for which the database runs alone.
const ALONE_SECONDS: u32 = 10;

/// The law's control interval (Bjørgeengen, appendix A). The window law's bursts begin more gently than at
/// 250 ms, and the six reads of an interval are enough for it.
pub(crate) const INTERVAL: Latency = Latency::from_millis(100);

/// Law that protects the database in the last phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DemoLaw {
    /// Window that follows from what the law learns of the array
    Auto,
    /// Window: the number of backups' requests outstanding at the array (PARDA)
    Window,
    /// Delay of each request of a backup before it is sent on (Bjørgeengen)
    Pid,
}

impl DemoLaw {
    /// The law with its defaults.
    pub(super) fn config(self) -> LawConfig {
        match self {
            Self::Auto => LawConfig::Auto(AutoConfig::default()),
            Self::Window => LawConfig::Window(WindowConfig::default()),
            Self::Pid => LawConfig::Pid(PidConfig::default()),
        }
    }

    /// The set point of the demo, as a part of the target. The law auto allows 2 % of seconds above the
    /// target, and learns the array in the first burst. With this it keeps 95 % of three minutes on nearly
    /// all seeds.
    fn set_point_ratio(self) -> f64 {
        match self {
            Self::Auto => 0.9,
            Self::Window | Self::Pid => self.config().set_point_ratio(),
        }
    }
}

impl fmt::Display for DemoLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Window => "window",
            Self::Pid => "pid",
        })
    }
}

/// The three phases, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PhaseName {
    /// The database alone.
    Alone,
    /// The database and the backups; nothing is throttled.
    Unregulated,
    /// The database and the backups; Tidegate holds the backups.
    Regulated,
}

impl fmt::Display for PhaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Alone => "alone",
            Self::Unregulated => "unregulated",
            Self::Regulated => "regulated",
        })
    }
}

/// One phase: bursts of writing, each followed by a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PhasePlan {
    pub(crate) name: PhaseName,
    /// Its whole length in seconds.
    pub(crate) seconds: u32,
    /// The number of times that the backups start and stop.
    pub(crate) bursts: u32,
}

/// Everything that is decided before anything runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DemoPlan {
    /// The promise: the greatest 1 s mean of the database's reads.
    pub(crate) target: Latency,
    /// The set point, as a share of the target.
    pub(crate) set_point_ratio: f64,
    pub(crate) law: DemoLaw,
    pub(crate) seed: u64,
    /// Length of a burst, in seconds.
    pub(crate) burst: u32,
    /// Length of the pause after it, in seconds.
    pub(crate) pause: u32,
    pub(crate) phases: [PhasePlan; 3],
}

/// Reasons why there can be no such demonstration.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum PlanError {
    #[error("--{option} {value}: give whole seconds, at least {least} s")]
    NotWholeSeconds { option: &'static str, value: Latency, least: u32 },
    #[error(
        "--duration {given}: two bursts, one without Tidegate and one with it, take at least {least} s here; \
         shorten them with --burst and --pause"
    )]
    TooShort { given: Latency, least: u32 },
    #[error("--duration {0}: at most a day")]
    TooLong(Latency),
    #[error("--target 0ms: a response time of zero cannot be promised")]
    NoTarget,
    #[error("--set-point {0}: a share of the target, above 0 and at most 1")]
    SetPoint(f64),
}

/// The demonstration that the caller asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DemoRequest {
    pub(crate) target: Latency,
    /// `None`: the law's default.
    pub(crate) set_point_ratio: Option<f64>,
    pub(crate) law: DemoLaw,
    pub(crate) seed: u64,
    pub(crate) burst: Latency,
    pub(crate) pause: Latency,
    /// The duration of the whole; time that remains after the last whole burst is not used.
    pub(crate) duration: Latency,
}

impl DemoPlan {
    /// Divides the duration: ten seconds alone (less when bursts are shorter), then as many whole bursts as
    /// fit, two fifths of them unregulated, at least one.
    pub(crate) fn new(wanted: &DemoRequest) -> Result<Self, PlanError> {
        if wanted.target == Latency::ZERO {
            return Err(PlanError::NoTarget);
        }
        let set_point_ratio = wanted.set_point_ratio.unwrap_or_else(|| wanted.law.set_point_ratio());
        if !(set_point_ratio > 0.0 && set_point_ratio <= 1.0) {
            return Err(PlanError::SetPoint(set_point_ratio));
        }
        let day = Latency::from_millis(u64::from(LONGEST) * 1_000);
        if wanted.duration > day {
            return Err(PlanError::TooLong(wanted.duration));
        }
        let burst = whole_seconds("burst", wanted.burst, BURST_START_SECONDS + 1)?;
        let pause = whole_seconds("pause", wanted.pause, 1)?;
        let (alone, cycle) = (ALONE_SECONDS.min(burst), burst + pause);
        let duration = wanted.duration.to_duration().as_secs() as u32;
        let bursts = duration.saturating_sub(alone) / cycle;
        if bursts < 2 {
            return Err(PlanError::TooShort { given: wanted.duration, least: alone + 2 * cycle });
        }
        let unregulated = (bursts * 2 / 5).max(1);
        let phase = |name, bursts| PhasePlan { name, seconds: bursts * cycle, bursts };
        Ok(Self {
            target: wanted.target,
            set_point_ratio,
            law: wanted.law,
            seed: wanted.seed,
            burst,
            pause,
            phases: [
                PhasePlan { name: PhaseName::Alone, seconds: alone, bursts: 0 },
                phase(PhaseName::Unregulated, unregulated),
                phase(PhaseName::Regulated, bursts - unregulated),
            ],
        })
    }

    /// Returns the set point, or the most that it may be if the law [finds it](Self::finds_set_point).
    pub(crate) fn set_point(&self) -> Latency {
        self.target.scale(self.set_point_ratio)
    }

    /// Returns true if the law finds its set point.
    pub(crate) fn finds_set_point(&self) -> bool {
        self.law == DemoLaw::Auto
    }

    /// Length of the whole, in seconds.
    pub(crate) fn seconds(&self) -> u32 {
        self.phases.iter().map(|phase| phase.seconds).sum()
    }

    /// The seconds in which a phase's writers are on, since the phase's start.
    pub(crate) fn bursts(&self, phase: &PhasePlan) -> Vec<Range<u32>> {
        let (burst, cycle) = (self.burst, self.burst + self.pause);
        (0..phase.bursts).map(|i| i * cycle..i * cycle + burst).collect()
    }

    /// Returns true if the decision at this second of a phase belongs in the report. These decisions show the
    /// reaction to the start of a burst, how it settles, and the rest of it after the pause. Only the first
    /// bursts are told: the later ones repeat their story.
    pub(crate) fn worth_telling(&self, at: u32) -> bool {
        const AFTER_START: [u32; 6] = [1, 2, 3, 5, 10, 20];
        const BURSTS: u32 = 2;
        let cycle = self.burst + self.pause;
        let offset = at % cycle;
        at / cycle < BURSTS && ((offset < self.burst && AFTER_START.contains(&offset)) || offset == cycle - 1)
    }
}

fn whole_seconds(option: &'static str, value: Latency, least: u32) -> Result<u32, PlanError> {
    let duration = value.to_duration();
    let whole =
        duration.subsec_nanos() == 0 && (u64::from(least)..=u64::from(LONGEST)).contains(&duration.as_secs());
    if whole {
        Ok(duration.as_secs() as u32)
    } else {
        Err(PlanError::NotWholeSeconds { option, value, least })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::demo) fn wanted() -> DemoRequest {
        DemoRequest {
            target: Latency::from_millis(15),
            set_point_ratio: Some(0.8),
            law: DemoLaw::Window,
            seed: 1,
            burst: Latency::from_millis(30_000),
            pause: Latency::from_millis(5_000),
            duration: Latency::from_millis(195_000),
        }
    }

    #[test]
    fn the_default_has_two_bursts_without_and_three_with() {
        let plan = DemoPlan::new(&wanted()).unwrap();
        let seconds: Vec<_> = plan.phases.iter().map(|phase| (phase.seconds, phase.bursts)).collect();
        assert_eq!(seconds, [(10, 0), (70, 2), (105, 3)]);
        assert_eq!(plan.bursts(&plan.phases[1]), [0..30, 35..65]);
        assert_eq!(plan.set_point(), Latency::from_millis(12));
    }

    #[test]
    fn the_shortest_has_one_whole_burst_of_each() {
        let short = DemoRequest {
            burst: Latency::from_millis(4_000),
            pause: Latency::from_millis(1_000),
            duration: Latency::from_millis(14_000),
            ..wanted()
        };
        let plan = DemoPlan::new(&short).unwrap();
        assert_eq!(plan.phases.map(|phase| phase.bursts), [0, 1, 1]);
        assert_eq!(plan.seconds(), 14);
        let shorter = DemoRequest { duration: Latency::from_millis(13_999), ..short };
        assert!(matches!(DemoPlan::new(&shorter), Err(PlanError::TooShort { least: 14, .. })));
    }

    #[test]
    fn the_report_tells_of_reactions_and_not_without_end() {
        let plan = DemoPlan::new(&wanted()).unwrap();
        let told: Vec<_> = (0..10_000).filter(|at| plan.worth_telling(*at)).collect();
        assert_eq!(told[..8], [1, 2, 3, 5, 10, 20, 34, 36]);
        assert_eq!(told.len(), 14);
    }

    #[test]
    fn what_cannot_run_is_refused_with_the_option_that_is_wrong() {
        let refused = |change: fn(&mut DemoRequest)| {
            let mut wanted = wanted();
            change(&mut wanted);
            DemoPlan::new(&wanted).unwrap_err().to_string()
        };
        assert!(refused(|w| w.target = Latency::ZERO).starts_with("--target"));
        assert!(refused(|w| w.burst = Latency::from_millis(3_000)).starts_with("--burst"));
        assert!(refused(|w| w.burst = Latency::MAX).starts_with("--burst"));
        assert!(refused(|w| w.pause = Latency::from_millis(1_500)).starts_with("--pause"));
        assert!(refused(|w| w.duration = Latency::MAX).starts_with("--duration"));
        for ratio in [0.0, -1.0, 1.01, f64::NAN, f64::INFINITY] {
            let wanted = DemoRequest { set_point_ratio: Some(ratio), ..wanted() };
            assert!(matches!(DemoPlan::new(&wanted), Err(PlanError::SetPoint(_))), "{ratio}");
        }
    }
}
