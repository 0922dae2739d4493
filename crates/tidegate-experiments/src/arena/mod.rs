//! The arena: laws on random storage, beside doing nothing and beside the best static setting.
//!
//! A seed draws one scenario ([`ArenaScenario::draw`]), and the seed alone replays it. The kind is the seed
//! modulo 17, and one seed in 20 draws a percentile ([`ScenarioKind::of`]). So any run of seeds has the kinds
//! about evenly. A saturated closed loop on plain servers is easy for every law, and must not hide the other
//! kinds.
//!
//! # The distribution
//!
//! Bounds of rates, servers, depths and targets are uniform in the logarithm, parts are uniform.
//!
//! | part | distribution |
//! |---|---|
//! | exponential storage | 1 to 128 servers, 50 to 200,000 IO/s; narrower in most kinds |
//! | disks | the presets of one disk, a SATA stripe, RAID 0 of 6 and of 10 |
//! | RAID 5 | 4 to 12 disks, a write-back cache of 16 to 256 MiB |
//! | flash | three drives fitted to data sheets, with an erased reserve of 64 to 256 MiB |
//! | cloud volume | gp2 with credits for half of the run, or gp3; 33 to 700 GiB |
//! | tiers | disks or servers behind a fast tier, hit ratios of 0.2 to 0.9 that change twice |
//! | link | 0.3 to 3 times the bandwidth that the array behind it needs |
//! | hosts | one, or 2 to 32 with 1 to 8 consumers each; queues of 32 to 128 |
//! | backlog | 2 to 16 times what the storage works on at once |
//! | shares | 50 to 400 |
//! | varying load | on for 3 to 20 s and off for 2 to 20 s, ramps, or a common pause; 40 % in open loops |
//! | protected reader | 3 to 20 % of the capacity, 10 to 400 reads per second; at times with its log |
//! | changes | capacity by 2 to 8 times, twice; hosts that fail, are cut off, lie, or are slow |
//! | target | 1.5 to 20 times the unloaded latency, below 0.9 of the latency without a law |
//! | percentile | one seed in 20: p90, p95 or p99 of a protected reader, on disks or servers, as target |
//! | unattainable target | 0.3 to 1.25 times the unloaded latency, backlog of 0.4 to 8 times |
//! | length | 250,000 requests within 40 to 120 s; 10 s and more of fast storage; 180 s of slow volumes |
//!
//! Where the target is a percentile, the latencies that bound it are that percentile, too.
//!
//! # The figures
//!
//! An interval of one second is judged for each consumer: its mean latency at the storage, or the percentile
//! that is promised, against the target. If there are protected consumers, only those that read are judged.
//! The interval is up to 5 s long where the slowest consumer completes fewer than 10 requests in a second, or
//! fewer than a percentile needs. The first 3 s are not judged, nor are 3 s (or 300 requests of the slowest
//! judged consumer) after a change. Where the target is drawn as unattainable, the first minute is not
//! judged.
//!
//! A law's throughput is compared in requests and in cost (64 KiB cost one), and the worse of both counts.
//! See [`ScenarioFigures`] for each figure, and [`ArenaOracle`] for the static settings.

mod draw;
mod figures;
mod kind;
mod loads;
mod oracle;
mod random;
mod report;
mod scenario;
mod sketch;
mod storage;
#[cfg(test)]
mod tests;
mod written;

pub use figures::RunFigures;
pub use kind::ScenarioKind;
pub use oracle::{ALLOWED_ABOVE, ArenaOracle, OracleThroughput, SettingResult, StaticSetting, StretchFront};
pub use report::{
    ArenaDocument, ArenaSummary, FIGURES, FigureSpread, ScenarioFigures, SummaryFigure, class_of,
};
pub use scenario::ArenaScenario;
pub use written::NotJudged;

use tidegate_control::LawKind;

/// The version of scenarios and figures. A cached oracle of another version is of no use.
pub const ENGINE: u32 = 6;

/// The name of no law at all.
pub const NO_LAW: &str = "none";

/// There is no law with this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no law `{0}`; there are {NO_LAW}, {names}",
    names = LawKind::ALL.map(LawKind::name).join(", ")
)]
pub struct UnknownLaw(pub String);

/// Returns the law with this name; `None` for [`NO_LAW`].
///
/// # Errors
/// When there is none.
pub fn law_named(name: &str) -> Result<Option<LawKind>, UnknownLaw> {
    if name == NO_LAW {
        return Ok(None);
    }
    let law = LawKind::ALL.into_iter().find(|law| law.name() == name);
    law.map(Some).ok_or_else(|| UnknownLaw(name.to_owned()))
}
