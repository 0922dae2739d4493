//! What goes on after its writer was dropped, so that nothing of it stays: a file is still being made, an
//! upload called off.
//!
//! Dropping cannot wait, so whoever ends a process does: for all of its stores, since their owners are gone
//! by then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

static GOING_ON: AtomicUsize = AtomicUsize::new(0);
static ENDED: Notify = Notify::const_new();

/// One of those that go on. They end with their runtime, too.
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

/// Goes on by itself, where there is a runtime to do so.
pub(super) fn go_on(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let one = One::new();
        runtime.spawn(async move {
            work.await;
            drop(one);
        });
    }
}

/// Waits until writes that were given up have left nothing behind, or could not be kept from it, and no
/// longer than this. Returns whether all have ended.
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
