//! Sums of consumers' measurements.

use tidegate_units::Latency;

use crate::document::host_report::ClusterSignal;
use crate::document::observation::{ConsumerObservation, OperationTotals};
use crate::document::signal::{SignalPercentile, SignalRequests, SignalState};

/// Sums of the measurements of the signal's consumers.
#[derive(Default)]
pub(crate) struct SignalSamples {
    pub(crate) count: u64,
    pub(crate) total_nanos: u128,
    pub(crate) outstanding: bool,
    pub(crate) oldest: Option<Latency>,
}

impl SignalSamples {
    pub(crate) fn of(consumers: &[ConsumerObservation], signal: SignalRequests) -> Self {
        let mut heard = Self::default();
        for operations in operations(consumers, signal) {
            heard.count = heard.count.saturating_add(operations.count);
            if operations.count > 0 {
                heard.total_nanos += u128::from(operations.total_latency.as_nanos());
            }
            heard.outstanding |= operations.in_flight > 0;
            if operations.in_flight > 0 {
                heard.oldest = heard.oldest.max(operations.oldest_in_flight);
            }
        }
        // Reads alone: the outstanding requests may be writes, and consumers throttled for them would never
        // be released.
        heard.outstanding |= signal != SignalRequests::Reads
            && signal_consumers(consumers, signal).any(|consumer| consumer.queued > 0);
        heard
    }

    /// The same by a percentile instead of the mean. What completed uncounted says nothing, and is still no
    /// silence.
    pub(crate) fn by(self, percentile: Option<&SignalPercentile>) -> Self {
        let (count, latency) =
            percentile.map_or((0, Latency::ZERO), |counted| (counted.count, counted.latency));
        Self {
            count,
            total_nanos: u128::from(latency.as_nanos()) * u128::from(count),
            outstanding: self.outstanding || self.count > 0,
            oldest: self.oldest,
        }
    }

    /// Returns the sums of all hosts together.
    pub(crate) fn by_all(cluster: &ClusterSignal) -> Self {
        let mean = cluster.mean.unwrap_or_default().as_nanos();
        Self {
            // A mean of nothing is no sample, whatever was counted.
            count: if cluster.mean.is_some() { cluster.completed } else { 0 },
            total_nanos: u128::from(mean) * u128::from(cluster.completed),
            outstanding: cluster.outstanding,
            oldest: cluster.oldest,
        }
    }

    pub(crate) fn input(&self, set_point: Latency) -> SignalState {
        match self.oldest {
            _ if self.count > 0 => SignalState::Samples { count: self.count },
            Some(oldest) if oldest > set_point => SignalState::Overload { oldest },
            _ if self.outstanding => SignalState::Unknown,
            _ => SignalState::Idle,
        }
    }

    /// Returns true if a request completed, or is outstanding.
    pub(crate) fn is_active(&self) -> bool {
        self.count > 0 || self.outstanding
    }

    pub(crate) fn mean(&self) -> Latency {
        let mean = self.total_nanos / u128::from(self.count.max(1));
        Latency::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

/// Returns the eligible consumers.
pub(crate) fn throttled(
    consumers: &[ConsumerObservation],
) -> impl Iterator<Item = &ConsumerObservation> + Clone {
    consumers.iter().filter(|consumer| !consumer.protected)
}

fn signal_consumers(
    consumers: &[ConsumerObservation],
    signal: SignalRequests,
) -> impl Iterator<Item = &ConsumerObservation> {
    consumers.iter().filter(move |consumer| signal.include(consumer.protected, true))
}

/// The operations whose response times are the signal.
pub(crate) fn operations(
    consumers: &[ConsumerObservation],
    signal: SignalRequests,
) -> impl Iterator<Item = &OperationTotals> {
    signal_consumers(consumers, signal).flat_map(move |consumer| {
        let writes = signal.include(consumer.protected, false).then_some(&consumer.writes);
        std::iter::once(&consumer.reads).chain(writes)
    })
}
