//! What `/metrics` shows: names ([`Metric`]), their samples at one moment ([`Exposition`]), and the HTTP server.

mod exposition;
mod http;
mod name;

pub use exposition::{Exposition, InputCounts, ReloadCounts};
pub use name::{Kind, Metric, Spec};

pub(crate) use http::{MetricsError, MetricsServer, Scrape};
