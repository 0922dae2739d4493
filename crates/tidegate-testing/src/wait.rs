//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at a condition: at least this, and at most a second.
const PAUSE: Duration = Duration::from_millis(10);

/// Longer than anything that a test waits for takes, also on a slow machine with a busy disk.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until the condition returns a value, and returns that value. A tenth of the time that it has waited
/// passes between two looks, since a look may start a program.
///
/// # Panics
///
/// Panics if there is no value after [`PATIENCE`].
#[track_caller]
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        let waited = begin.elapsed();
        assert!(waited < PATIENCE, "waited in vain for {what}");
        thread::sleep((waited / 10).clamp(PAUSE, Duration::from_secs(1)));
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
