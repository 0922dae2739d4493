//! Connections that were refused or closed, counted by their cause.

use std::sync::atomic::{AtomicU64, Ordering};

/// The cause for which a connection was closed before it had its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// It had no request, and made room for a newer connection.
    Displaced,
    /// Every other connection was being answered.
    Full,
    /// The process was short of descriptors.
    Descriptors,
    /// Its TLS handshake or its request did not arrive in time, or its answer was not taken in time.
    Slow,
    /// Its TLS handshake failed.
    Handshake,
}

impl RefusalCause {
    /// Every cause.
    pub const ALL: [Self; 5] = [Self::Displaced, Self::Full, Self::Descriptors, Self::Slow, Self::Handshake];

    /// The cause as a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Displaced => "displaced",
            Self::Full => "full",
            Self::Descriptors => "descriptors",
            Self::Slow => "slow",
            Self::Handshake => "handshake",
        }
    }
}

/// Counters of refused connections, shared with whatever shows them.
#[derive(Debug, Default)]
pub struct HttpRefusals([AtomicU64; RefusalCause::ALL.len()]);

impl HttpRefusals {
    /// Counts one.
    pub(crate) fn count(&self, cause: RefusalCause) {
        self.0[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many there were for a cause.
    #[must_use]
    pub fn of(&self, cause: RefusalCause) -> u64 {
        self.0[cause as usize].load(Ordering::Relaxed)
    }

    /// Returns how many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        RefusalCause::ALL.into_iter().map(|cause| self.of(cause)).sum()
    }
}
