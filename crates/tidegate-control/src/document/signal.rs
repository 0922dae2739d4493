//! The signal: the requests whose latency a law steers by, and their report for one control interval.

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

/// Requests whose response times a law steers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalRequests {
    /// The reads of the protected consumers.
    ProtectedReads,
    /// All reads: throttled consumers are throttled for their writes.
    Reads,
    /// Everything, because no consumer is protected.
    Everything,
}

impl SignalRequests {
    /// Returns true if a request is one of these: a read or a write of a consumer that is protected or not.
    #[must_use]
    pub const fn include(self, protected: bool, is_read: bool) -> bool {
        match self {
            Self::ProtectedReads => protected && is_read,
            Self::Reads => is_read,
            Self::Everything => true,
        }
    }

    /// Returns true if these response times were promised to a consumer. They are never scaled, and their
    /// target is never chosen automatically.
    pub(crate) fn is_promise(self) -> bool {
        self != Self::Everything
    }
}

/// State of the signal in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalState {
    /// Requests completed: the law steers by their response times.
    Samples {
        /// Number of requests that completed.
        count: u64,
    },
    /// None completed, and one has been in flight for longer than the set point: the law is fed its age.
    Overload {
        /// The age of the oldest request in flight.
        oldest: Latency,
    },
    /// None completed, but some are outstanding: the command stays.
    Unknown,
    /// None completed and none is outstanding: the signal is idle, and the command decays towards release.
    Idle,
    /// No time has passed since the previous decision, or the clock jumped back. The command stays and the
    /// interval's samples are dropped, because the time they belong to is unknown.
    NoTime,
}

/// Statistic of the signal's response times that a law compares with the set point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalStatistic {
    /// Their mean.
    #[default]
    Mean,
    /// Response time that half of the requests do not exceed.
    P50,
    /// Response time that 90 % of them do not exceed.
    P90,
    /// 95 %.
    P95,
    /// 99 %.
    P99,
}

impl SignalStatistic {
    /// Every one of them, by its name in a configuration.
    pub const NAMED: [(&str, Self); 5] = [
        ("mean", Self::Mean),
        ("p50", Self::P50),
        ("p90", Self::P90),
        ("p95", Self::P95),
        ("p99", Self::P99),
    ];

    /// Returns the part of a request that counts: the mean of so many scatters, relatively, as this statistic
    /// of one. 1 for the mean. For exponentially distributed latencies, the variance of a quantile q of n
    /// requests is q / ((1 − q) · n) squared means, and the quantile itself is ln(1 / (1 − q)) means.
    pub(crate) fn weight(self) -> f64 {
        let Some(percent) = self.percent() else { return 1.0 };
        let beyond = 1.0 - f64::from(percent) / 100.0;
        beyond / (1.0 - beyond) * beyond.ln().powi(2)
    }

    /// Returns the number of requests from which on a percentile is not simply the slowest of them. 1 for the
    /// mean.
    #[must_use]
    pub const fn least_requests(self) -> u64 {
        match self.percent() {
            Some(percent) => 100 / (100 - percent) as u64,
            None => 1,
        }
    }

    /// Returns the percentage of requests that the percentile covers; `None` for the mean.
    #[must_use]
    pub const fn percent(self) -> Option<u32> {
        match self {
            Self::Mean => None,
            Self::P50 => Some(50),
            Self::P90 => Some(90),
            Self::P95 => Some(95),
            Self::P99 => Some(99),
        }
    }
}

/// A percentile of the signal's response times, from a sensor that counts each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalPercentile {
    /// The percentile.
    pub statistic: SignalStatistic,
    /// Number of requests completed since the previous report, as that sensor counts them.
    pub count: u64,
    /// Value of the percentile. It covers these requests, and as many earlier ones as it needs.
    pub latency: Latency,
    /// Value of the percentile over a stretch that ends with these requests. A stretch takes at least a
    /// second and as many requests as the percentile needs, and shares none with another stretch. `None`
    /// where no stretch ends. A promise is judged by such stretches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stretch: Option<Latency>,
}
