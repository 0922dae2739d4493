//! The laws, and how each is told what a scenario is about.

use tidegate_control::{
    ContractStatistic, IntegralConfig, LawConfig, LineLearning, LoopConfig, PidConfig, QueueLearning,
    RegulationMethod, SelfTuningConfig, SelfTuningVariant, WindowConfig,
};
use tidegate_sim::Scenario;
use tidegate_units::{Instant, Iops, Window};

use super::Contest;

/// The laws that take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrant {
    /// PARDA's window law.
    Window,
    /// Bjørgeengen's single-sided PID.
    Pid,
    /// Lee's integral law, of means, since targets are of means here.
    Integral,
    /// Triage's self-tuning regulator by its words (§4.2), but for directional forgetting, a normalised
    /// regressor and no controller exempt at random. Only this one is told what the storage can do, its
    /// u_max.
    TriageLiteral,
    /// The same as Tidegate has it by default.
    SelfTuning,
    /// The regulator with the model of a queue, of no paper.
    QueueingModel,
}

impl Entrant {
    /// All of them, the papers' in the order of this crate's other experiments.
    pub const ALL: [Self; 6] =
        [Self::Window, Self::Pid, Self::Integral, Self::TriageLiteral, Self::SelfTuning, Self::QueueingModel];

    /// Returns the law's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Pid => "pid",
            Self::Integral => "integral",
            Self::TriageLiteral => "self-tuning, literal",
            Self::SelfTuning => "self-tuning",
            Self::QueueingModel => "queueing-model",
        }
    }

    /// Returns true if each workload has a goal of its own, which may change. Only such a law may have bands.
    const fn keeps_goals(self) -> bool {
        matches!(self, Self::TriageLiteral | Self::SelfTuning | Self::QueueingModel)
    }

    /// Returns the reason why the law cannot take part, if it cannot.
    #[must_use]
    pub fn does_not_apply(self, contest: &Contest) -> Option<&'static str> {
        let changes = contest.scenario.vms.iter().any(|vm| !vm.goal_changes.is_empty());
        (changes && !self.keeps_goals()).then_some("its target cannot change while it runs")
    }

    fn law(self, contest: &Contest) -> LawConfig {
        let adaptive =
            |variant| RegulationMethod::Adaptive(LineLearning { variant, ..LineLearning::default() });
        match self {
            Self::Window => {
                // The gateway's defaults for one host, those for hosts that share where there are several.
                let several = contest.scenario.hosts.len() > 1;
                let usual = WindowConfig::for_resource(several);
                let depth = contest.scenario.hosts.iter().map(|host| host.depth).max().unwrap_or_default();
                LawConfig::Window(WindowConfig { greatest: Window::new(f64::from(depth)), ..usual })
            }
            Self::Pid => LawConfig::Pid(PidConfig::default()),
            Self::Integral => LawConfig::Integral(IntegralConfig {
                statistic: ContractStatistic::Mean,
                ..IntegralConfig::default()
            }),
            Self::TriageLiteral => LawConfig::SelfTuning(SelfTuningConfig {
                regulation: adaptive(SelfTuningVariant::LITERAL),
                greatest: Iops::new(contest.capacity),
                ..SelfTuningConfig::default()
            }),
            Self::SelfTuning => LawConfig::SelfTuning(SelfTuningConfig::default()),
            Self::QueueingModel => LawConfig::SelfTuning(SelfTuningConfig {
                regulation: RegulationMethod::Queueing(QueueLearning::default()),
                ..SelfTuningConfig::default()
            }),
        }
    }

    /// The scenario with this law on every host.
    #[must_use]
    pub fn on(self, contest: &Contest) -> Scenario {
        let mut scenario = contest.scenario.clone();
        for host in &mut scenario.hosts {
            let mut config = LoopConfig::new(host.array.clone(), contest.target(), self.law(contest));
            if self.keeps_goals() {
                config.bands.clone_from(&contest.bands);
            }
            host.law = Some(config);
            host.law_from = Instant::ZERO + contest.begins;
        }
        if self != Self::Integral {
            // A contract is of no effect on another law, and its bucket is.
            for vm in &mut scenario.vms {
                vm.contract = None;
            }
        }
        scenario
    }
}
