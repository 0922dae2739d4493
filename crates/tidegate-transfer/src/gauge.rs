//! How much was moved, and when that began.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How much of an object was moved, for whoever watches. It never falls.
#[derive(Debug, Default)]
pub struct Gauge {
    bytes: AtomicU64,
    first: OnceLock<Instant>,
}

impl Gauge {
    /// So many bytes more.
    pub fn add(&self, bytes: u64) {
        if bytes > 0 {
            self.first.get_or_init(Instant::now);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// So many all together; more stays more.
    pub fn reach(&self, bytes: u64) {
        if bytes > 0 {
            self.first.get_or_init(Instant::now);
            self.bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How long after this the first byte was moved.
    pub(crate) fn first_after(&self, began: Instant) -> Option<Duration> {
        self.first.get().map(|first| first.saturating_duration_since(began))
    }
}
