//! The agent's metrics: their names ([`AgentMetric`]) and samples ([`AgentExposition`]).

mod exposition;
mod name;

pub use exposition::{AgentExposition, BridgeStatus, ResourceStatus};
pub use name::AgentMetric;
