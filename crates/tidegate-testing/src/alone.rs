//! A lock for tests that set limits of the whole machine, and a namespace for tests that must not see such
//! limits.

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Lack, skip};

/// The time in which an agent of another test, or its guardian, ends.
const GUARDIANS_WORK: Duration = Duration::from_secs(15);

/// A command that runs its arguments in a network namespace of its own, whose loopback interface is up, and
/// where no cgroups are mounted: a program there undoes nothing of other programs, and finds no other agent.
pub const ALONE: [&str; 6] = [
    "unshare",
    "--net",
    "--mount",
    "sh",
    "-c",
    "umount --recursive --lazy /sys/fs/cgroup 2>/dev/null; ip link set lo up; exec \"$0\" \"$@\"",
];

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

/// Returns true if no agent limits the cgroups of this hierarchy. Otherwise says that the test is skipped: an
/// agent that no test has started runs on this machine. To be called with the lock of [`limits_alone`],
/// without which the agent may be that of another test.
///
/// # Panics
///
/// Panics if the folder of the hierarchy cannot be opened.
#[must_use]
pub fn has_free_cgroups(hierarchy: &Path) -> bool {
    let end = Instant::now() + GUARDIANS_WORK;
    let claim = hierarchy.join("tidegate.claim");
    while let Ok(Err(error)) = File::open(&claim).map(|claim| claim.try_lock()) {
        if Instant::now() >= end {
            skip(Lack::FreeCgroups, format_args!("another agent has {}: {error}", hierarchy.display()));
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}
