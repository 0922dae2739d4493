//! Latencies that other machines report to an agent, as the document has them.

use serde::{Deserialize, Serialize};

/// An initiator that reports what it waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReporterStatus {
    /// Its name in the cluster.
    pub host: String,
    /// The consumer of the resource that it is. `null`: none, by its name and address.
    pub consumer: Option<String>,
    /// The time since its last report arrived.
    pub age_seconds: f64,
    /// The mean latency of its reads. `null`: none completed.
    pub mean_seconds: Option<f64>,
    /// True if the report is a part of the signal.
    pub counts: bool,
    /// The use that is made of it, in words.
    pub said: String,
}

/// The origin of the latency that a law steers by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalOrigin {
    /// The service measures it.
    #[default]
    Measured,
    /// Initiators report it, and it is longer than what the service measures.
    Reports,
    /// An array, or a monitoring system, publishes it.
    Source,
}

/// The place where an array publishes its latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// The place, in words.
    pub place: String,
    /// The time since the last answer. `null`: there was none.
    pub age_seconds: Option<f64>,
    /// The latency in it. `null`: it has no samples, or there was no answer.
    pub latency_seconds: Option<f64>,
    /// True if it has a latency that is young enough to count. Nothing is throttled once the last such latency is
    /// too old.
    pub counts: bool,
    /// The reason why the last question had no answer. `null`: it had one.
    pub trouble: Option<String>,
}
