//! What `/metrics` shows: the gateway's names ([`Metric`]) and samples ([`Exposition`]), the agent's
//! ([`AgentMetric`], [`AgentExposition`]), and the HTTP server.

mod agent;
mod counts;
mod exposition;
mod http;
mod name;
mod paced;
mod samples;
mod spec;

pub use agent::{AgentExposition, AgentMetric, ResourceStatus};
pub use counts::{InputCounts, ReloadCounts};
pub use exposition::Exposition;
pub use name::Metric;
pub use spec::{Kind, Spec};

pub(crate) use exposition::is_held;
pub(crate) use http::{MetricsError, MetricsServer, PATIENCE, Scrape};
pub(crate) use paced::Paced;
