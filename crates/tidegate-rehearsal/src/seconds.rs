//! Seconds of the signal, each within the target or above it.

use tidegate_control::SignalRequests;

/// Seconds judged by the mean latency of the signal's requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct JudgedSeconds {
    target: f64,
    length: f64,
    count: f64,
    total: f64,
    /// Seconds with requests, and those above the target.
    pub(crate) judged: f64,
    pub(crate) above: f64,
    /// Requests of all seconds, and the sum of their latencies.
    pub(crate) requests: f64,
    pub(crate) latency: f64,
}

impl JudgedSeconds {
    pub(crate) fn new(target: f64) -> Self {
        Self { target, ..Self::default() }
    }

    /// Takes requests of an interval.
    pub(crate) fn add(&mut self, count: f64, total: f64) {
        self.count += count;
        self.total += total;
    }

    /// Ends an interval.
    pub(crate) fn pass(&mut self, seconds: f64) {
        self.length += seconds;
        if self.length < 1.0 - 1e-3 {
            return;
        }
        if self.count > 0.0 {
            self.judged += self.length;
            let is_above = self.total > self.target * self.count;
            self.above += if is_above { self.length } else { 0.0 };
        }
        self.requests += self.count;
        self.latency += self.total;
        (self.length, self.count, self.total) = (0.0, 0.0, 0.0);
    }

    /// Returns the fraction of judged seconds that were above the target.
    pub(crate) fn above_fraction(&self) -> f64 {
        self.above / self.judged.max(1.0)
    }

    /// Returns the mean latency of all requests, in seconds.
    pub(crate) fn mean(&self) -> f64 {
        self.latency / self.requests.max(1.0)
    }
}

/// Returns true for the kinds of requests of a consumer that are the signal: reads and writes.
pub(crate) fn signal_kinds(signal: SignalRequests, protected: bool) -> [bool; 2] {
    [signal.include(protected, true), signal.include(protected, false)]
}
