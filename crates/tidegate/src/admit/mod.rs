//! `tidegate admit`.

pub(crate) mod effort;
pub(crate) mod error;
pub(crate) mod file;
mod measuring;
mod output;

use self::effort::MeasuringEffort;
use self::error::AdmitError;
use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use tidegate_admission::{AdmissionDecision, AdmissionRule, DemandError, decide};
use tidegate_load::LoadTarget;
use tidegate_serve::admission::{AdmissionAnswer, DayDocument};
use tidegate_units::{DailyPeriod, Iops, Shares};

use crate::failure::CommandFailure;
use crate::live::error::LiveError;
use crate::live::{LiveLoading, LiveTenant};
use crate::out;
use file::{ContractFile, RequirementSet};
use measuring::MeasuredStorage;
use output::AdmitOutput;

/// Decide whether a storage can keep the contracts of all its tenants
///
/// Offers the load of all of them together to a model of the storage, and compares: each tenant is promised
/// 1.2 times the 95th percentile of its response times, and all are admitted when no contract asks for less.
/// When one does, it says what could be admitted instead. Where requirements change over the day, everything
/// that holds together at some time is judged.
///
/// With --live it reads an export of the storage itself, at the rates of the contracts, for as long as it
/// takes to send --requests of them: once, and after a refusal a few times more slowly. With --overwrite it
/// writes as well, as far as the contracts say so, and the export's content is lost. It sends nothing
/// while other consumers use the pool. It stops at once when another consumer begins, when a request waits
/// ten times as long as was promised (and a second at least), and at Ctrl-C.
///
/// Exit status: 0 admitted, 1 refused or failed, 2 wrong usage or file.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The storage and the contracts; see docs/guide/contracts.md
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Measure the storage itself instead of a model, through this export: nbd://HOST[:PORT]/EXPORT or
    /// nbd+unix:///EXPORT?socket=PATH
    #[arg(long, value_name = "URI", conflicts_with = "seeds")]
    live: Option<LoadTarget>,

    /// With --live: write what the contracts say is written. The content of the export is lost
    #[arg(long, requires = "live")]
    overwrite: bool,

    #[command(flatten)]
    loading: LiveLoading,

    #[command(flatten)]
    effort: MeasuringEffort,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn counted(contracts: usize) -> String {
    if contracts == 1 { "1 contract could".to_owned() } else { format!("{contracts} contracts could") }
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let file = ContractFile::read(&args.config)?;
    if file.sets.is_empty() {
        let finding = file.impossible(&DemandError::Nobody, None);
        return Err(CommandFailure::InvalidContracts(vec![finding]));
    }
    let rule = AdmissionRule::default();
    let arrivals = args.effort.arrivals_name();
    let mut all: Vec<(&RequirementSet, Result<SetFinding, DemandError>)> = Vec::new();
    for set in &file.sets {
        // The same requirements at another time of day are the same question.
        let known =
            all.iter().find(|(other, _)| other.contracts == set.contracts && other.loads == set.loads);
        let found = match known {
            Some((_, found)) => found.clone(),
            None => find(args, &file, set, &rule)?,
        };
        all.push((set, found));
    }
    // What cannot be at one time of the day takes nothing from what was found, perhaps in hours, of the
    // others.
    let answers = all.iter().filter_map(|(set, found)| {
        let SetFinding { capacity, decided, seeds, weights, .. } = found.as_ref().ok()?;
        let (contracts, capacity, arrivals) = (&set.contracts, *capacity, arrivals.as_str());
        Some((
            set.period,
            AdmissionAnswer { contracts, rule: &rule, capacity, decided, arrivals, weights, seeds },
        ))
    });
    let answers: Vec<_> = answers.collect();
    let founds: Vec<_> = all.iter().filter_map(|(_, found)| found.as_ref().ok()).collect();
    let impossible = all.iter().filter_map(|(set, found)| Some((*set, found.as_ref().err()?)));
    let impossible: Vec<_> = impossible.collect();
    let mut out = out::stdout();
    match &answers[..] {
        [] => {}
        [(period, answer)] if period.is_whole() => {
            if args.json {
                print_json(&answer.document())?;
            } else {
                let SetFinding { how, nothing, .. } = founds[0];
                write!(out, "{}", AdmitOutput { answer: *answer, how: how.clone(), nothing })?;
            }
        }
        _ if args.json => {
            let unanswered = impossible.iter().map(|(set, error)| (set.period, error.to_string()));
            print_json(&DayDocument::of(&answers, unanswered.collect()))?;
        }
        _ => {
            for ((period, answer), SetFinding { how, nothing, .. }) in answers.iter().zip(&founds) {
                writeln!(
                    out,
                    "{period} (UTC): {}",
                    AdmitOutput { answer: *answer, how: how.clone(), nothing }
                )?;
            }
        }
    }
    let broken = answers.iter().filter_map(|(period, answer)| refusal(*period, answer));
    let broken: Vec<_> = broken.collect();
    let refused = (!broken.is_empty()).then(|| AdmitError::Refused(broken.join("; ")));
    if impossible.is_empty() {
        return refused.map_or(Ok(()), |refused| Err(refused.into()));
    }
    let said = impossible.iter().map(|(set, error)| file.impossible(error, Some(set)).to_string());
    let said = said.chain(refused.map(|refused| refused.to_string()));
    Err(AdmitError::Impossible(said.collect()).into())
}

/// The findings on requirements that hold together, and the way in which they were measured.
#[derive(Clone)]
struct SetFinding {
    capacity: Option<Iops>,
    decided: AdmissionDecision,
    seeds: Vec<u64>,
    weights: Vec<Shares>,
    how: String,
    nothing: &'static str,
}

/// Measures; or why what is asked for cannot be, which takes less.
fn find(
    args: &Args,
    file: &ContractFile,
    set: &RequirementSet,
    rule: &AdmissionRule,
) -> Result<Result<SetFinding, DemandError>, CommandFailure> {
    let contracts = &set.contracts;
    let mut measuring = match &args.live {
        None => {
            let mut offer = file.offer(set.loads.clone())?;
            offer.quantile = rule.quantile();
            args.effort.apply(&mut offer);
            MeasuredStorage::Model(Box::new(offer))
        }
        Some(target) => {
            file.check_live(set, args.overwrite)?;
            let tenants = contracts.as_slice().iter().zip(&set.loads).map(|(contract, load)| LiveTenant {
                name: contract.name.clone(),
                rate: contract.iops,
                size: contract.size,
                reads: load.reads,
                patience: LiveTenant::patience_for(contract.response_time),
            });
            let live = args.loading.begin(target, tenants.collect(), &args.effort)?;
            MeasuredStorage::Live(Box::new(live))
        }
    };
    let ability = measuring.ability()?;
    if let Err(error) = contracts.check(&ability) {
        return Ok(Err(error));
    }
    let decided = decide(contracts, rule, &mut measuring)?;
    let (seeds, how, nothing) = match &measuring {
        MeasuredStorage::Model(_) => {
            (args.effort.all_seeds(), args.effort.said(), "not even 1 % of the rates")
        }
        MeasuredStorage::Live(live) => {
            let nothing = "none of the rates that there was time to measure";
            (
                vec![args.effort.seed],
                format!("{}, arrivals {}", live.said(), args.effort.arrivals_name()),
                nothing,
            )
        }
    };
    // A live storage has the requests of all of them as those of one consumer.
    let weights = match &measuring {
        MeasuredStorage::Model(_) => set.loads.iter().map(|load| load.shares).collect(),
        MeasuredStorage::Live(_) => Vec::new(),
    };
    Ok(Ok(SetFinding { capacity: ability.capacity, decided, seeds, weights, how, nothing }))
}

fn print_json(document: &impl Serialize) -> Result<(), CommandFailure> {
    let mut out = out::stdout();
    serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// Returns the refusal of contracts that hold together; `None` if they are admitted.
fn refusal(period: DailyPeriod, answer: &AdmissionAnswer<'_>) -> Option<String> {
    let broken = answer.tenants().filter(|(_, judged)| !judged.is_kept()).count();
    let all = answer.contracts.as_slice().len();
    let when = if period.is_whole() { String::new() } else { format!("{period} ") };
    (broken > 0).then(|| format!("{when}{} not be kept, of {all}", counted(broken)))
}

impl From<LiveError> for CommandFailure {
    fn from(error: LiveError) -> Self {
        Self::Admit(error.into())
    }
}
