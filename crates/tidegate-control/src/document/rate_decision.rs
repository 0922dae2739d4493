//! The decision on each consumer's rate, with its reason.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, Iops, Latency};

use crate::document::contract::Contract;
use crate::document::output::{LawAction, OutputBound};
use crate::document::signal::SignalState;

/// A sentence names so many consumers, and counts the others.
const NAMED: usize = 3;

/// Decision of the integral law on one consumer. [`Display`](fmt::Display) writes it as a clause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateDecision {
    /// Name of the consumer.
    pub name: ConsumerName,
    /// Its contract, if it has one.
    pub contract: Option<Contract>,
    /// State of its own signal in this interval.
    pub input: SignalState,
    /// Time of its requests from release to completion, by the law's
    /// [`ContractStatistic`](crate::ContractStatistic). `None` without samples.
    pub measured: Option<Latency>,
    /// Reference that it was compared with: RT^E of its contract. Without a contract it is the loop's set
    /// point, or the least RT^E of the active consumers with one, if that is less.
    pub reference: Latency,
    /// Some of its requests waited for their release.
    pub held: bool,
    /// Action on its rate.
    pub action: LawAction,
    /// The rate that the law would have given without bounds.
    pub raw: Iops,
    /// The rate now.
    pub rate: Iops,
    /// The bound that made the difference.
    pub bound: Option<OutputBound>,
}

impl RateDecision {
    /// The excess over the reference, in whole nanoseconds. Consumers below it come last, in no order.
    fn excess(&self) -> u64 {
        let seen = match self.input {
            SignalState::Overload { oldest } => oldest,
            _ => self.measured.unwrap_or_default(),
        };
        seen.saturating_sub(self.reference).as_nanos()
    }
}

impl fmt::Display for RateDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, reference, rate, .. } = self;
        match (self.input, self.measured) {
            (SignalState::Overload { oldest }, _) => {
                write!(f, "{name} completes nothing, its oldest waits {oldest} against {reference}")?;
            }
            (SignalState::Samples { .. }, Some(measured)) => {
                write!(f, "{name} {measured} against {reference}")?;
            }
            (SignalState::Idle, _) => write!(f, "{name} idle")?,
            (SignalState::Samples { .. } | SignalState::Unknown | SignalState::NoTime, _) => {
                write!(f, "{name} completed nothing yet")?;
            }
        }
        write!(f, ": {rate}")?;
        match (self.bound, &self.contract) {
            (Some(OutputBound::Least), Some(_)) => f.write_str(", as promised"),
            (Some(OutputBound::Least), None) => f.write_str(", the least that is allowed"),
            (Some(OutputBound::Greatest), _) => f.write_str(", the most that is allowed"),
            (Some(OutputBound::Demand), _) => f.write_str(", more would not be used"),
            (Some(OutputBound::Return), _) => f.write_str(", surplus given back"),
            (Some(OutputBound::Departure), _) => f.write_str(", surplus taken over"),
            _ => Ok(()),
        }
    }
}

/// Surplus that was taken back because a consumer with a contract came back from a pause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaveWay {
    /// Consumer that came back; the first, if there are several.
    pub to: ConsumerName,
    /// Number of consumers that came back.
    pub returned: u32,
    /// Throughput that the storage sustains, as far as it is known. It is about the greatest rate of all
    /// requests at which all response times were within their references. It is at least the sum of the
    /// active consumers' promised rates.
    pub sustained: Iops,
    /// By how much rates were cut, in all.
    pub given_back: Iops,
}

impl fmt::Display for GaveWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        match self.returned {
            0 | 1 => f.write_str(" is back")?,
            several => write!(f, " and {} more are back", several - 1)?,
        }
        write!(
            f,
            ": {} of surplus given back, for {} that the storage sustains",
            self.given_back, self.sustained
        )
    }
}

/// The consumers that a sentence should name: those furthest beyond their references, then the throttled
/// ones, then the others, each in the order of the observation. And the number left over.
pub(crate) fn most_affected(rates: &[RateDecision]) -> (Vec<&RateDecision>, usize) {
    let mut order: Vec<&RateDecision> = rates.iter().collect();
    order.sort_by_key(|rate| std::cmp::Reverse((rate.excess(), rate.held)));
    let rest = order.len().saturating_sub(NAMED);
    order.truncate(NAMED);
    (order, rest)
}
