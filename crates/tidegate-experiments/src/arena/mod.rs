//! The arena: laws on random storage, beside doing nothing and beside the best static setting.

mod draw;
mod figures;
mod kind;
mod oracle;
mod report;

pub use figures::RunFigures;
pub use kind::ScenarioKind;
pub use oracle::{ArenaOracle, StaticSetting, StretchFront};
pub use report::{ArenaDocument, ArenaSummary, FigureSpread, ScenarioFigures};

use tidegate_control::{LawConfig, LawKind, LoopConfig, WindowConfig};
use tidegate_sim::{Scenario, ScenarioError, simulate};
use tidegate_units::Latency;

use crate::SeriesRecorder;

/// The version of scenarios and figures. A cached oracle of another version is of no use.
pub const ENGINE: u32 = 1;

/// How it is known if the target can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attainability {
    /// By the oracle.
    Measured,
    /// The target was drawn below or near the unloaded latency.
    Drawn,
}

/// A scenario of the arena.
#[derive(Debug, Clone)]
pub struct ArenaScenario {
    /// `kind-seed`.
    pub id: String,
    /// Its kind.
    pub kind: ScenarioKind,
    /// The seed that draws and runs it.
    pub seed: u64,
    /// The scenario, without laws.
    pub scenario: Scenario,
    /// The latency promised.
    pub target: Latency,
    /// The unloaded latency of the slowest judged consumer.
    pub unloaded: Latency,
    /// The consumers whose latencies are judged: the protected ones, or all.
    pub judged: Vec<String>,
    /// Times of changes, in seconds.
    pub changes: Vec<f64>,
    attainability: Attainability,
}

impl ArenaScenario {
    /// Draws the scenario of a seed.
    ///
    /// # Errors
    /// When the scenario cannot be simulated.
    pub fn draw(seed: u64) -> Result<Self, ScenarioError> {
        draw::draw(seed)
    }

    /// Returns its length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.scenario.duration.as_secs_f64()
    }

    fn is_eligible(&self, consumer: &str) -> bool {
        self.scenario.vms.iter().any(|vm| vm.name.as_str() == consumer && !vm.protected)
    }

    /// The scenario with this law on every host, with the gateway's defaults.
    #[must_use]
    pub fn with_law(&self, kind: LawKind) -> Scenario {
        let several = self.scenario.hosts.len() > 1;
        let mut scenario = self.scenario.clone();
        for host in &mut scenario.hosts {
            let law = match kind {
                LawKind::Window if several => WindowConfig::across_hosts().into(),
                kind => LawConfig::of_kind(kind),
            };
            host.law = Some(LoopConfig::new(host.array.clone(), self.target, law));
        }
        scenario
    }

    /// Runs the scenario under a law; `None`: unregulated.
    ///
    /// # Errors
    /// When the scenario cannot be simulated.
    pub fn run(&self, law: Option<LawKind>, oracle: &ArenaOracle) -> Result<RunFigures, ScenarioError> {
        let scenario = law.map_or_else(|| self.scenario.clone(), |kind| self.with_law(kind));
        let mut tracks = SeriesRecorder::default();
        let outcome = simulate(&scenario, self.seed, &mut tracks)?;
        let best = oracle.best(oracle::ALLOWED);
        Ok(RunFigures::of(self, &tracks.with(outcome, &scenario), &best))
    }
}
