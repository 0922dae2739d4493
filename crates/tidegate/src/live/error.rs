//! Reasons why a live pool was not measured.

use super::neighbours::NeighboursError;
use std::time::Duration;
use thiserror::Error;
use tidegate_load::LoadError;
use tidegate_units::{ConsumerName, Iops};

/// So many tenants: each has a connection with two threads.
pub(super) const MOST_TENANTS: usize = 64;

/// Reasons why a live pool was not measured.
#[derive(Debug, Error)]
pub(crate) enum LiveError {
    /// The export.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Requests were answered with errors: their response times say nothing.
    #[error("{errors} requests were answered with an error, the first with: {first}")]
    Answers {
        /// The number of failed requests.
        errors: u64,
        /// The first error.
        first: String,
    },
    /// Other consumers use the pool, or it is not known.
    #[error(transparent)]
    Neighbours(#[from] NeighboursError),
    /// Too many connections.
    #[error(
        "{0} tenants, and each takes a connection: at most {MOST_TENANTS}, and no more than --depth, are \
            measured live"
    )]
    Tenants(usize),
    /// A percentile of a handful of requests is none.
    #[error(
        "`{name}` sends {requests:.0} requests in {lasts:?}, too few for a 95th percentile: --requests \
            {needed}"
    )]
    TooFew {
        /// The tenant.
        name: ConsumerName,
        /// The number of requests that it sends.
        requests: f64,
        /// The duration of a measurement.
        lasts: Duration,
        /// The number of requests of all tenants that are needed.
        needed: u64,
    },
    /// There is not even time for one.
    #[error(
        "a measurement of {requests} requests takes {lasts:?}, longer than --within: fewer --requests, or \
            more time"
    )]
    TooLong {
        /// The number of requests of all tenants.
        requests: u32,
        /// The time that they take.
        lasts: Duration,
    },
    /// Something else has taken the time.
    #[error("no time is left --within for a measurement of {lasts:?}: fewer --requests, or more time")]
    NoTime {
        /// The time that it would take.
        lasts: Duration,
    },
    /// A profile was not finished.
    #[error(
        "no time or too few requests to measure {rate}: more --requests, more time --within, or fewer \
            --points"
    )]
    Unprofiled {
        /// At which rate.
        rate: Iops,
    },
    /// Nothing came back.
    #[error("no request of `{0}` was answered")]
    Nothing(ConsumerName),
    /// By a signal.
    #[error("interrupted: nothing is sent any more, and nothing was decided")]
    Interrupted,
}
