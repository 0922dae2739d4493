//! The one place where time comes from.

use tidegate_units::Instant;

/// The gateway's clock: monotonic, nanoseconds since its start, the same for all pools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatewayClock {
    origin: std::time::Instant,
}

impl GatewayClock {
    pub(crate) fn start() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }
}
