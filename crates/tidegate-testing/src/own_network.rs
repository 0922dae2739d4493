//! A network namespace for a test.

use std::thread;

use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::{Lack, skip};

/// Runs a test in a network namespace of its own, on a thread of its own. Skips the test if this process has
/// no right to make a namespace.
///
/// # Panics
///
/// Panics if the test does, or if there is no namespace for another reason.
pub fn in_own_network(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        // SAFETY: only this thread changes its network namespace, before it opens anything.
        match unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            Ok(()) => test(),
            Err(error) => {
                assert_eq!(error, Errno::PERM, "no network namespace");
                skip(Lack::Root, "a network namespace");
            }
        }
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
