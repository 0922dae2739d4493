//! The output of a law: its kind, the law behind it, and the bounds on it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency, Window};

/// The kind of law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LawKind {
    /// The law `auto`: a window, by what it learns of the storage.
    Auto,
    /// The window law (PARDA).
    Window,
    /// The single-sided PID (Bjørgeengen).
    Pid,
    /// The integral law (Lee).
    Integral,
    /// The self-tuning regulator (Triage).
    SelfTuning,
    /// The same with the model of a queue, and a window.
    QueueingModel,
}

impl LawKind {
    /// Every kind of law, in the order of documents.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Window, Self::Pid, Self::Integral, Self::SelfTuning, Self::QueueingModel];

    /// Returns the id of the table with the keys of its parameters.
    #[must_use]
    pub const fn table(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Window => "window",
            Self::Pid => "pid",
            Self::Integral => "integral",
            Self::SelfTuning | Self::QueueingModel => "self_tuning",
        }
    }

    /// Returns its name in configurations, in the log and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Window => "window",
            Self::Pid => "pid",
            Self::Integral => "integral",
            Self::SelfTuning => "self-tuning",
            Self::QueueingModel => "queueing-model",
        }
    }

    /// Returns true if the law commands a rate for each consumer, instead of one output for all. With the
    /// model of a queue this holds if there are bands.
    #[must_use]
    pub const fn is_by_rates(self) -> bool {
        matches!(self, Self::Integral) || self.has_operating_point()
    }

    /// Returns true if bands can divide the throughput under the law.
    #[must_use]
    pub const fn has_bands(self) -> bool {
        matches!(self, Self::Auto) || self.has_operating_point()
    }

    /// Returns true if the law decides an operating point, which follows from goals and is divided by bands.
    #[must_use]
    pub const fn has_operating_point(self) -> bool {
        matches!(self, Self::SelfTuning | Self::QueueingModel)
    }
}

impl fmt::Display for LawKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The output of a law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LawOutput {
    /// Requests that may be outstanding.
    Window(Window),
    /// Delay of each request; a negative output is no delay.
    Delay(Latency),
    /// The rates of all throttled consumers together; of the self-tuning law the operating point that they
    /// are made of.
    Rate(Iops),
}

/// A bound on what a law may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputBound {
    /// The least output: the smallest window, or no delay, or the rate that was promised, without a contract
    /// the floor, or the least operating point.
    Least,
    /// The greatest output that the configuration allows.
    Greatest,
    /// A longer delay would take the throttled below their floor rate, or below what is reserved for them
    /// (Little's law).
    FloorRate,
    /// A smaller window would not keep the reservations (Little's law): see
    /// [`ReservationDecision`](crate::ReservationDecision). The response time may then stay above the set
    /// point.
    Reservation,
    /// A greater rate would not be used: see [`IntegralVariant::raise_only_used`](crate::IntegralVariant).
    Demand,
    /// A consumer with a contract has gone, and this one has its part of the surplus.
    Departure,
    /// Surplus was given back to who returned: see [`GaveWay`](crate::GaveWay).
    Return,
}

/// Action on the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LawAction {
    /// The law decided.
    Regulate,
    /// It was kept, because nothing is known.
    Hold,
    /// It decays towards release, because the signal is idle, or because there is no eligible consumer: the
    /// signal is then not the effect of the command.
    Relax,
}
