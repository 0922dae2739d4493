//! The fixed properties of a metric.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// The kinds of metric in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only goes up, from zero at the start of the service.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
    /// Always 1; its labels are the information.
    Info,
}

impl MetricKind {
    /// Returns its name in the exposition.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    pub(super) const fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Histogram => MetricType::Histogram,
            Self::Info => MetricType::Info,
        }
    }
}

/// The fixed properties of a metric.
#[derive(Debug, Clone)]
pub struct MetricSpec {
    /// Without unit and suffix: the encoder adds them.
    pub stem: &'static str,
    /// Follows the stem in the name.
    pub unit: Option<Unit>,
    /// One sentence for readers of the exposition.
    pub help: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its labels, in the order of the exposition.
    pub labels: &'static [&'static str],
}

impl MetricSpec {
    /// Returns the metric of every service for the version that runs.
    pub const fn build() -> Self {
        Self {
            stem: "tidegate_build",
            unit: None,
            help: "The version that runs",
            kind: MetricKind::Info,
            labels: &["version"],
        }
    }

    /// Returns the metric of every service for changes of its configuration, applied and refused.
    pub const fn reloads() -> Self {
        Self {
            stem: "tidegate_reloads",
            unit: None,
            help: "Reloads of the configuration, applied and refused",
            kind: MetricKind::Counter,
            labels: &["result"],
        }
    }

    /// Returns the metric of every service for refused connections to this page.
    pub const fn http_refused() -> Self {
        Self {
            stem: "tidegate_http_refused_connections",
            unit: None,
            help: "HTTP connections refused or closed before they had an answer, by reason",
            kind: MetricKind::Counter,
            labels: &["reason"],
        }
    }

    /// Returns the metric of every service for messages that its log lacks.
    pub const fn log() -> Self {
        Self {
            stem: "tidegate_log_missing_messages",
            unit: None,
            help: "Messages that the log lacks: dropped because stderr did not take them, or too many of one \
                cause",
            kind: MetricKind::Counter,
            labels: &["reason"],
        }
    }

    /// The name by which a query asks for it: with unit, and `_total` or `_info`. A histogram's samples add
    /// `_bucket`, `_sum` and `_count`.
    #[must_use]
    pub fn name(&self) -> String {
        let unit = self.unit.as_ref().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        format!("{}{unit}{suffix}", self.stem)
    }
}
