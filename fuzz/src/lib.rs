//! The frame around the targets, which stand beside the code that they try: `fuzz.rs` in each crate.
//!
//! `scripts/fuzz` builds and runs them; `fuzz/README.md` says how.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(any(
    feature = "agent",
    feature = "cluster",
    feature = "journal",
    feature = "nats",
    feature = "nbd",
    feature = "sim",
    feature = "transfer",
    feature = "wire"
))]
pub use libfuzzer_sys;

/// Counts the bytes in use, and the most of them since [`run`] began.
#[derive(Debug)]
pub struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory but the two
// counters.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = IN_USE.fetch_add(layout.size(), Relaxed).wrapping_add(layout.size());
        MOST.fetch_max(used, Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs a target on one input, and checks that it never used more than `most` bytes of memory beyond what was
/// in use before.
///
/// # Panics
/// When it used more, or an invariant of the target does not hold.
pub fn run(target: fn(&[u8]), input: &[u8], most: usize) {
    let before = IN_USE.load(Relaxed);
    MOST.store(before, Relaxed);
    target(input);
    let used = MOST.load(Relaxed).saturating_sub(before);
    assert!(used <= most, "{} bytes of input took {used} bytes of memory, more than {most}", input.len());
}

/// The `main` of a target: the function that takes the input, and the most memory that it may use, in bytes.
#[macro_export]
macro_rules! target {
    ($target:path, at_most: $most:expr) => {
        #[global_allocator]
        static ALLOCATOR: $crate::Counting = $crate::Counting;

        $crate::libfuzzer_sys::fuzz_target!(|input: &[u8]| $crate::run($target, input, $most));
    };
}
