//! The gateway's metrics: their names ([`ServeMetric`]) and samples ([`MetricsExposition`]).

mod exposition;
mod name;

pub use exposition::MetricsExposition;
pub use name::ServeMetric;

pub(crate) use exposition::is_held;
