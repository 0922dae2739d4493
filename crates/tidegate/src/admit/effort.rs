//! Effort of measuring a storage model.

use clap::ValueEnum;
use tidegate_sim::offer::ArrivalPattern;

/// Effort of measuring a storage model.
#[derive(clap::Args)]
pub(crate) struct MeasuringEffort {
    /// Arrivals of requests
    #[arg(long, value_enum, default_value_t = ArrivalKind::InStep)]
    pub(crate) arrivals: ArrivalKind,

    /// Seed of the first simulation; the others have the next ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Simulations of each rate that are taken together
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32)
        .range(1..=1_000))]
    pub(crate) seeds: u32,

    /// Requests that are measured in each simulation
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32)
        .range(100..=10_000_000))]
    pub(crate) requests: u32,
}

impl MeasuringEffort {
    /// Has it measured so.
    pub(crate) fn apply(&self, offer: &mut tidegate_sim::offer::LoadOffer) {
        offer.arriving = self.arrivals.arriving();
        (offer.seed, offer.seeds, offer.requests) = (self.seed, self.seeds, self.requests);
    }

    /// Returns the name of the arrivals on the command line.
    pub(crate) fn arrivals_name(&self) -> String {
        self.arrivals.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the seeds of all simulations.
    pub(super) fn all_seeds(&self) -> Vec<u64> {
        (0..self.seeds).map(|at| self.seed.wrapping_add(at.into())).collect()
    }

    /// "seeds 1 to 10, 2000 requests each, arrivals in-step".
    pub(crate) fn said(&self) -> String {
        let arrivals = self.arrivals_name();
        let last = self.seed.wrapping_add(u64::from(self.seeds) - 1);
        let seeds =
            if self.seeds == 1 { format!("seed {last}") } else { format!("seeds {} to {last}", self.seed) };
        format!("{seeds}, {} requests each, arrivals {arrivals}", self.requests)
    }
}

/// Arrivals of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalKind {
    /// Evenly, as buckets let them through, and all buckets at once: the worst that can be while each keeps
    /// to its rate
    InStep,
    /// Evenly, and each bucket begins at random
    Even,
    /// Evenly in one stream, each request assigned to a tenant by chance
    Drawn,
    /// At random, as of many independent users
    Poisson,
}

impl ArrivalKind {
    pub(crate) const fn arriving(self) -> ArrivalPattern {
        match self {
            Self::InStep => ArrivalPattern::InStep,
            Self::Even => ArrivalPattern::Even,
            Self::Drawn => ArrivalPattern::Drawn,
            Self::Poisson => ArrivalPattern::Poisson,
        }
    }
}
