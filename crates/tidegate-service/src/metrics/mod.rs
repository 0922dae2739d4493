//! `/metrics` and `/healthz`: the HTTP server, and samples as text. Each service has names and values of its
//! own.

mod counts;
mod format;
mod http;
mod paced;
mod samples;
mod spec;

pub use counts::{InputCounts, ReloadCounts};
pub use http::{PATIENCE, ScrapeRequest, routes};
pub use paced::{PacedAnswer, SharedPage};
pub use samples::{
    MetricSamples, SampleValue, band, encode, flag, http_refused, log_samples, number, seconds, to_text,
};
pub use spec::{MetricKind, MetricSpec};
