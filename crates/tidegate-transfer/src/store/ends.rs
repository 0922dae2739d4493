//! Work that goes on after its writer was dropped, so that nothing of it stays: a file is still being made,
//! an upload called off.
//!
//! Dropping cannot wait. A process waits at its end instead, for all of its stores: their owners are gone by
//! then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

static GOING_ON: AtomicUsize = AtomicUsize::new(0);
static ENDED: Notify = Notify::const_new();

/// A guard that counts one piece of work that goes on. It ends with its runtime, too.
struct One;

impl One {
    fn new() -> Self {
        GOING_ON.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for One {
    fn drop(&mut self) {
        GOING_ON.fetch_sub(1, Ordering::SeqCst);
        ENDED.notify_waiters();
    }
}

/// Runs work by itself, if there is a runtime for it.
pub(super) fn go_on(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let one = One::new();
        runtime.spawn(async move {
            work.await;
            drop(one);
        });
    }
}

/// Waits until writes that were given up have removed their remains or failed to, and no longer than
/// `patience`. Returns true if all have ended.
pub async fn ended(patience: Duration) -> bool {
    let all = async {
        loop {
            // Before it is looked: what ends in between is heard of.
            let next = ENDED.notified();
            if GOING_ON.load(Ordering::SeqCst) == 0 {
                return;
            }
            next.await;
        }
    };
    timeout(patience, all).await.is_ok()
}
