//! The gateway's metrics: their names ([`Metric`]) and samples ([`Exposition`]).

mod exposition;
mod name;

pub use exposition::Exposition;
pub use name::Metric;

pub(crate) use exposition::is_held;
