//! The bell of a thread that sleeps in its ring. A thread with work for it rings the bell. That costs a
//! system call only while the sleeper is asleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// The bell. Work is passed by other means, before it is rung.
#[derive(Debug)]
pub(crate) struct WorkerBell {
    wake: OwnedFd,
    rung: AtomicBool,
    asleep: AtomicBool,
}

impl WorkerBell {
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { wake, rung: AtomicBool::new(false), asleep: AtomicBool::new(false) })
    }

    /// Has the thread look for work, now or as soon as it is done with what it does.
    pub(crate) fn ring(&self) {
        // Either the thread sees `rung` before it sleeps, or it is seen asleep: all four are SeqCst.
        self.rung.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // A failed write means that the counter is at its limit: the thread is awake already.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Returns true if there may be work.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// Returns true if the bell was rung since the last call, and resets it. Call this before looking for
    /// work.
    pub(crate) fn take(&self) -> bool {
        self.is_rung() && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Announces that the thread sleeps from now on; false when it must not, because there is work.
    pub(crate) fn sleeps(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let sleeps = !self.is_rung();
        if !sleeps {
            self.wakes();
        }
        sleeps
    }

    /// Announces that the thread is awake.
    pub(crate) fn wakes(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Becomes readable when it is rung while the thread sleeps.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes the descriptor unreadable again.
    pub(crate) fn silence(&self) {
        // Nothing to read means a wake-up without a cause, which does no harm.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::ring::{CompletionWatch, IoRing};

    #[test]
    fn a_thread_that_is_rung_for_never_sleeps_over_it() {
        for watching in [CompletionWatch::Never, CompletionWatch::WhenWorthwhile] {
            let bell = Arc::new(WorkerBell::new().unwrap());
            let (work, received) = channel();
            let (report, done) = channel();
            let sleeper = {
                let bell = Arc::clone(&bell);
                move || {
                    let mut ring = IoRing::new(8, watching, Arc::clone(&bell)).unwrap();
                    for round in 0..20_000 {
                        while received.try_recv() != Ok(round) {
                            ring.submit_and_wait(None).unwrap();
                            assert!(ring.completed().is_none(), "the bell is the ring's own");
                            bell.take();
                        }
                        report.send(round).unwrap();
                    }
                }
            };
            std::thread::spawn(sleeper);
            for round in 0..20_000 {
                work.send(round).unwrap();
                bell.ring();
                // Now and then it has the time to fall asleep.
                if round % 100 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
                assert_eq!(done.recv_timeout(Duration::from_secs(10)), Ok(round), "it sleeps over its work");
            }
        }
    }
}
