//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything that a test waits for takes, also on a slow machine with a busy disk.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until the condition returns a value, and returns that value.
///
/// # Panics
///
/// Panics if there is no value after [`PATIENCE`].
#[track_caller]
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the condition is true.
///
/// # Panics
///
/// Panics if the condition is false for [`PATIENCE`].
#[track_caller]
pub fn until_true(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}
