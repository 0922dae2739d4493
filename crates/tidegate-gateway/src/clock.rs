//! The one place where time comes from.

use tidegate_units::Instant;

/// The gateway's clock: monotonic, nanoseconds since its start, the same for all pools.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GatewayClock {
    /// The system's clock, counted from this moment.
    Monotonic { origin: std::time::Instant },
    /// The time of the simulation that runs in this thread.
    #[cfg(test)]
    Simulated,
}

impl GatewayClock {
    pub(crate) fn start() -> Self {
        Self::Monotonic { origin: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Monotonic { origin } => Instant::ZERO + origin.elapsed(),
            #[cfg(test)]
            Self::Simulated => crate::worker::simulation::now(),
        }
    }
}
