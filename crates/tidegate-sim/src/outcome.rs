//! The findings of a simulation.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tidegate_units::{ConsumerName, HostName, ResourceName, Shares};

/// The result of a simulation, over the time after the warm-up. Serialised, it is the document of
/// `tidegate sim run --json`; the same scenario and seed always give the same one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulationOutcome {
    /// The scenario's name.
    pub scenario: String,
    /// The seed that was used.
    pub seed: u64,
    /// Simulated time, warm-up included.
    pub duration_s: f64,
    /// Warm-up: the time at the beginning that is not in the statistics.
    pub warmup_s: f64,
    /// The arrays, by name, in the order of the scenario.
    pub resources: NamedValues<ResourceName, ResourceOutcome>,
    /// The hosts.
    pub hosts: NamedValues<HostName, HostOutcome>,
    /// The virtual machines.
    pub consumers: NamedValues<ConsumerName, ConsumerOutcome>,
    /// The engine's work, warm-up included.
    pub work: EngineWork,
}

/// The engine's work, in numbers of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct EngineWork {
    /// Everything that happened: arrivals, dispatches and completions of requests, control steps, messages,
    /// timers.
    pub events: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Control steps of all loops.
    pub steps: u64,
    /// Reports that went from host to host. Where the network is ideal, all see one board and none are sent.
    pub messages: u64,
}

/// Load and response times of an array.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResourceOutcome {
    /// Time from a request's submission to the array until its answer; `None` without requests.
    pub latency_ms: Option<LatencySummary>,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

/// Load, response times and window of a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostOutcome {
    /// Its main array.
    pub resource: ResourceName,
    /// Requests per second, on all arrays.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Mean response time of the arrays for this host, its own queue not included; `None` without requests.
    pub device_latency_ms: Option<f64>,
    /// Its issue queue on its main array: the window that its law allows, or its depth. With a law for each
    /// virtual machine, all of their windows together.
    pub window: WindowOutcome,
    /// β of its law at its last decision; that of all virtual machines together when each has a law. `None`
    /// without a window law, or before it decided.
    pub beta: Option<f64>,
    /// Fractions of decisions in which reservations of its virtual machines were missed. `None` where its law
    /// saw no reservations at work.
    pub reservations_missed: Option<MissedShares>,
}

/// Fractions of a law's decisions at which waiting machines had got less than 95 % of their reservations over
/// the seconds before. The two fractions tell the causes apart. Only decisions that saw reservations at work
/// count. Both are 0 where all reservations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MissedShares {
    /// Reservations take a larger window than the host's greatest: [`ReservationShortage::Window`].
    ///
    /// [`ReservationShortage::Window`]: tidegate_control::ReservationShortage::Window
    pub window: f64,
    /// The array completes less than is reserved: [`ReservationShortage::Storage`].
    ///
    /// [`ReservationShortage::Storage`]: tidegate_control::ReservationShortage::Storage
    pub storage: f64,
}

/// Service that a virtual machine got.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConsumerOutcome {
    /// The host on which it runs.
    pub host: HostName,
    /// Shares to which it is entitled.
    pub shares: Shares,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Operations per second; an operation is one I/O or several, as its workloads say.
    pub ops_per_s: f64,
    /// Response time as the virtual machine feels it: from issuing a request to its completion, its host's
    /// queue included. `None` without requests.
    pub latency_ms: Option<LatencySummary>,
    /// Mean response time of the arrays for it.
    pub device_latency_ms: Option<f64>,
    /// Percentile of the arrays' response times for it, exact to one per cent; of a protected virtual
    /// machine, only reads count. `None` if its host's statistic is the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_percentile_ms: Option<f64>,
    /// The window under which it runs. It is its host's, shared with the host's other virtual machines, or
    /// its own where each has a law. `None` for a protected virtual machine, which no window limits.
    pub window: Option<WindowOutcome>,
    /// Mean number of its outstanding requests, its host's queue included.
    pub outstanding: f64,
    /// Fraction of the time series' intervals in which its mean response time at the array was above its
    /// host's target, or the percentile that is its host's statistic. Intervals in which it completed nothing
    /// do not count. Of a protected virtual machine, only reads count. `None` without a law, and when
    /// it did nothing.
    pub above_target_fraction: Option<f64>,
    /// Account of its contract. `None` without one, and where no law keeps contracts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<ContractOutcome>,
    /// Operations of open-loop workloads that did not take place, because too many were under way.
    pub dropped: u64,
}

/// A contract, and the response times that were achieved under it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ContractOutcome {
    /// The rate that was promised.
    pub iops: f64,
    /// The response time that was promised.
    pub response_time_ms: f64,
    /// RT^E, the law's reference.
    pub expected_ms: f64,
    /// Time from a request's release by the leaky bucket to its completion; `None` without requests.
    pub release_to_completion_ms: Option<LatencySummary>,
    /// The fraction of the requests that took longer than was promised, from their release on.
    pub late_fraction: Option<f64>,
}

/// A distribution of response times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Exact.
    pub mean: f64,
    /// The median; percentiles are exact to one per cent.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// A window over time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WindowOutcome {
    /// Its mean over time.
    pub mean: f64,
    /// Its size at the end.
    #[serde(rename = "final")]
    pub last: f64,
}

/// Values by name, in an order of their own. They are serialised as a map.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedValues<N, T>(Vec<(N, T)>);

impl<N: AsRef<str>, T> NamedValues<N, T> {
    /// The value under a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(own, _)| own.as_ref() == name).map(|(_, value)| value)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&N, &T)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N, T> FromIterator<(N, T)> for NamedValues<N, T> {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<N: AsRef<str>, T: Serialize> Serialize for NamedValues<N, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name.as_ref(), value)?;
        }
        map.end()
    }
}
