//! Response times of one control interval.

use tidegate_units::Latency;

/// A store of response times, from which a law's percentile is read.
///
/// The gateway keeps buckets whose bounds never change, because its metrics add them up. The simulator keeps
/// only the buckets in use, because it has thousands of consumers. The two round differently.
pub trait LatencySamples: Default {
    /// Adds a response time.
    fn record(&mut self, latency: Latency);

    /// Returns the response time that this fraction of the samples does not exceed, and forgets all samples.
    /// `None` without samples.
    fn take_quantile(&mut self, fraction: f64) -> Option<Latency>;
}
