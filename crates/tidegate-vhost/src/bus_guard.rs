//! A guard against shared memory that goes away.
//!
//! The process that shares a file can cut it short. An access beyond its new end raises SIGBUS, which ends
//! the process that reads. So a handler puts zeroed memory in the place of a region that is gone, marks the
//! region as lost, and lets the access go on. The owner of the region sees the mark.
//!
//! SIGBUS anywhere else goes to the handler that was there before.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{from_mut, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::budget::MOST;

/// Regions of all devices at once: as many as may be mapped.
const REGIONS: usize = MOST.mappings as usize;

struct GuardedRegion {
    /// Zero: free. One: taken, and not guarded yet.
    start: AtomicUsize,
    length: AtomicUsize,
    lost: AtomicBool,
}

const TAKEN: usize = 1;

static GUARDED: [GuardedRegion; REGIONS] = [const {
    GuardedRegion { start: AtomicUsize::new(0), length: AtomicUsize::new(0), lost: AtomicBool::new(false) }
}; REGIONS];

/// The handler that was there before, once ours is installed; `None` if the system refused.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// A region that is guarded for as long as this lives. It must end before the region is unmapped.
#[derive(Debug)]
pub(crate) struct BusGuard {
    at: usize,
}

impl BusGuard {
    /// Guards mapped memory.
    ///
    /// # Safety
    /// The range is a mapping of the caller's, whole pages that nothing but volatile access reads, and stays
    /// mapped for longer than the guard lives.
    ///
    /// # Errors
    /// When too much is guarded already, or the system takes no handler.
    pub(crate) unsafe fn new(start: *mut u8, length: usize) -> io::Result<Self> {
        if BEFORE.get_or_init(install).is_none() {
            return Err(io::Error::other("the system takes no handler for SIGBUS"));
        }
        let free = |region: &GuardedRegion| {
            region.start.load(Ordering::Relaxed) == 0
                && region.start.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(at) = GUARDED.iter().position(free) else {
            return Err(io::Error::other("too many regions of memory are shared with this process"));
        };
        GUARDED[at].lost.store(false, Ordering::Relaxed);
        GUARDED[at].length.store(length, Ordering::Relaxed);
        GUARDED[at].start.store(start as usize, Ordering::Release);
        Ok(Self { at })
    }

    /// Returns true if the memory was gone when it was used.
    pub(crate) fn is_lost(&self) -> bool {
        GUARDED[self.at].lost.load(Ordering::Relaxed)
    }
}

impl Drop for BusGuard {
    fn drop(&mut self) {
        GUARDED[self.at].start.store(0, Ordering::Release);
    }
}

fn install() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a sigaction of zeros is valid, and both outlive the call. The handler keeps to what a handler
    // may do: atomics and system calls.
    unsafe {
        let fields = action.as_mut_ptr();
        (*fields).sa_sigaction = handle as *const () as usize;
        (*fields).sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut (*fields).sa_mask);
        let result = libc::sigaction(libc::SIGBUS, action.as_ptr(), before.as_mut_ptr());
        (result == 0).then(|| before.assume_init())
    }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO, and SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for region in &GUARDED {
        let start = region.start.load(Ordering::Acquire);
        let length = region.length.load(Ordering::Relaxed);
        if start <= TAKEN || address < start || address - start >= length {
            continue;
        }
        // SAFETY: errno belongs to this thread. The range is a mapping of the guard's owner. The owner
        // permits volatile access alone, and keeps it mapped while the guard lives. The thread that has run
        // into it is one that uses it. So new memory in its place changes values, as the other process could.
        let mapped = unsafe {
            let errno = libc::__errno_location();
            let saved = *errno;
            let mapped = libc::mmap(
                start as *mut libc::c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            *errno = saved;
            mapped
        };
        if mapped != libc::MAP_FAILED {
            region.lost.store(true, Ordering::Relaxed);
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Leaves the signal to the handler that was there before.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().and_then(Option::as_ref);
    match before.map(|before| (before.sa_sigaction, before.sa_flags)) {
        Some((handler, flags)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            // SAFETY: the system had this address as a handler of the kind that the flags say.
            unsafe {
                if flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
        _ => {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: a sigaction of zeros is the default action. The access then happens again, and ends the
            // process as it would have without us.
            unsafe {
                libc::sigaction(signal, from_mut(action.assume_init_mut()), null_mut());
            }
        }
    }
}
