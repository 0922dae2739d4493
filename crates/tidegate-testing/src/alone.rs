//! The lock for tests that set limits of the whole machine.

use std::fs::File;

/// Waits until no other test sets or undoes limits of the whole machine. Other tests wait while the file
/// is open.
///
/// # Panics
///
/// Panics if the folder for temporary files cannot be written.
#[must_use]
pub fn limits_alone() -> File {
    let path = std::env::temp_dir().join("tidegate-tests-with-limits.lock");
    let lock = File::create(path).expect("the folder for temporary files can be written");
    lock.lock().expect("a file of our own can be locked");
    lock
}
