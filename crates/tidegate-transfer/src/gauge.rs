//! The count of bytes that were moved, and the time of the first.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The number of bytes of an object that were moved, for observers. It never falls.
#[derive(Debug, Default)]
pub struct BytesGauge {
    bytes: AtomicU64,
    first: OnceLock<Instant>,
}

impl BytesGauge {
    /// Adds this many bytes.
    pub fn add(&self, bytes: u64) {
        if bytes > 0 {
            self.first.get_or_init(Instant::now);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Raises the total to this many bytes; a greater total stays.
    pub fn reach(&self, bytes: u64) {
        if bytes > 0 {
            self.first.get_or_init(Instant::now);
            self.bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the time from `began` to the first byte; `None` before the first byte.
    pub(crate) fn first_after(&self, began: Instant) -> Option<Duration> {
        self.first.get().map(|first| first.saturating_duration_since(began))
    }
}
