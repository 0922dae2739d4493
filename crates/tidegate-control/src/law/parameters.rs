//! The questions that configurations and the loop ask of every law's parameters.

use tidegate_units::{Iops, Latency, Window};

use crate::document::contract::Contract;
use crate::document::output::LawKind;

/// The parameters of a law. A law's own folder implements it; `law::registry` lists the laws.
pub trait LawParameters {
    /// Returns the kind of law.
    fn kind(&self) -> LawKind;

    /// Sets the parameter of a key of the law's table. Keys that have no effect with the other parameters
    /// change nothing.
    ///
    /// # Errors
    /// The reason why the value cannot be; bounds are checked by [`LoopConfig::validate`](crate::LoopConfig).
    fn set(&mut self, key: &str, value: KeyValue<'_>) -> Result<(), String>;

    /// Returns the keys that have no effect with the other parameters, with the reason.
    fn without_effect(&self) -> Option<(&'static [&'static str], &'static str)> {
        None
    }

    /// Returns the settings of a loop that the law allows.
    fn rules(&self) -> LoopRules {
        LoopRules::Common { scales: true }
    }

    /// Returns the default of set point over target.
    fn set_point_ratio(&self) -> f64 {
        0.8
    }

    /// Returns the use that the law makes of contracts.
    fn contract_use(&self) -> ContractUse {
        ContractUse::None
    }

    /// Returns the first rate of a consumer. `None` if the law does not command rates.
    fn first_rate(&self) -> Option<FirstRate> {
        None
    }

    /// Returns the rate that the law leaves every consumer, if it has one.
    fn floor(&self) -> Option<Iops> {
        None
    }

    /// Returns the greatest window that the law gives all consumers together, if it has one.
    fn greatest_window(&self) -> Option<Window> {
        None
    }

    /// Returns the longest delay that the law gives a request, if it delays.
    fn longest_delay(&self) -> Option<Latency> {
        None
    }
}

/// The value of a key, by its type in the table of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeyValue<'a> {
    /// A number.
    Number(f64),
    /// A time.
    Time(Latency),
    /// A rate of requests.
    Rate(Iops),
    /// A whole number.
    Whole(u32),
    /// One of the words that the key allows.
    Word(&'a str),
}

/// Settings of a loop that a law allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopRules {
    /// One signal for all consumers, of any kind.
    Common {
        /// Latencies may be scaled to one size of request.
        scales: bool,
    },
    /// Each consumer's own requests, judged by its contract.
    Contracts,
    /// Each consumer's own requests, judged by its goal.
    Goals {
        /// The goals may be of reads alone: a window throttles writes whatever they take.
        of_reads: bool,
    },
}

/// The rate at which a consumer begins under a law that commands rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FirstRate {
    /// At what was promised to it, without a contract at this rate: surplus has to be found.
    AtLeast(Iops),
    /// Without a limit, until the law has seen it.
    Released,
}

/// The use that a law makes of a consumer's contract. Gateway and simulator ask it alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContractUse {
    /// Contracts have no effect.
    None,
    /// The law commands at least the contract's rate (Lee). A bucket releases requests at the commanded rate,
    /// and response times count from the release.
    Rate,
    /// The contract's rate is a reservation, and its expected response time is the goal. Response times count
    /// from the time at which a bucket of the contract's rate would have released the request. That bucket
    /// holds nothing back: what exceeds the rate is served by shares.
    Floor,
}

impl ContractUse {
    /// Returns true if the law keeps contracts.
    #[must_use]
    pub const fn keeps(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns the contract in force, given the configured one.
    #[must_use]
    pub const fn promised(self, contract: Option<Contract>) -> Option<Contract> {
        if self.keeps() { contract } else { None }
    }

    /// Returns the rate that a contract reserves for its consumer, in requests per second.
    #[must_use]
    pub fn reserved(self, contract: Option<Contract>) -> Option<Iops> {
        contract.filter(|_| self == Self::Floor).map(|contract| contract.iops())
    }

    /// Returns a consumer's goal, given the configured goal and contract.
    #[must_use]
    pub fn goal(self, goal: Option<Latency>, contract: Option<Contract>) -> Option<Latency> {
        goal.or(contract.filter(|_| self == Self::Floor).map(|contract| contract.expected()))
    }
}
