//! Cancelled requests: no client waits for them any more.

use tidegate_units::Instant;

use super::Sfq;
use crate::error::UnknownFlow;
use crate::flow::FlowId;

impl<T> Sfq<T> {
    /// Takes the queued requests of a flow out that are `gone`, and returns them, oldest first: their sender
    /// has hung up. The ones behind move up, also in front of a bucket. A token that one of them has taken on
    /// its way through the bucket is spent.
    ///
    /// Takes time in proportion to the flow's queue.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn cancel(
        &mut self,
        id: FlowId,
        now: Instant,
        mut gone: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, UnknownFlow> {
        let now = self.clock.read(now);
        let flow = self.flow_mut(id)?;
        let was_first = flow.queue.front().is_some_and(|head| gone(&head.request));
        flow.settle_bucket(now);
        let (requests, bytes) = flow.cancel(gone);
        self.queued -= requests.len();
        self.queued_bytes -= bytes;
        if was_first {
            // Tags, and what a limit says, are of the request at the head.
            self.withdraw(id.slot, now);
            self.place(id.slot, now);
        }
        Ok(requests)
    }
}
