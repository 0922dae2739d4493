//! Order of the flows: start tags (SFQ) or finish tags (YFQ), and the position of v after each dispatch.

use std::hint::black_box;

use crate::tournament::WrappingTree;

/// Tag that decides between the requests at the heads of the flows; the least one goes.
///
/// Either way `S = max(v, F of the one before)` and `F = S + c/φ`, for a request of cost c in a flow of
/// weight φ. The two differ for a flow that has been idle. By start tags its request goes next, whatever it
/// costs. By finish tags a request that is small for its flow's weight goes before one that is large for it.
///
/// # Where YFQ's definition is from
///
/// J. Bruno, J. Brustoloni, E. Gabber, B. Özden, A. Silberschatz, *Disk Scheduling with Quality of Service
/// Guarantees* (ICMCS 1999) is the paper about YFQ. This code follows the summary that the same authors give
/// in *Retrofitting Quality of Service into a Time-Sharing Operating System* (USENIX 1999), about the disk
/// scheduler of Eclipse/BSD. Each queue has a start tag and a finish tag; the least finish tag goes. The
/// virtual work v is the least start tag of the queues that are busy, and the greatest finish tag once none
/// is. A request stays at the head of its queue, and the queue busy, while it is being served. They define it
/// for one request at a time. With D at a time, the request being served is here the one dispatched last, as
/// in SFQ(D). So v follows dispatches, and need not know which request of a flow is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discipline {
    /// SFQ: by start tags; v is the start tag of the request dispatched last.
    #[default]
    StartTags,
    /// YFQ: by finish tags; v is the least start tag of those that wait and of the request dispatched last.
    FinishTags,
}

/// Time at which requests may take the place of those that are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RefillTime {
    /// One by one, as each is done: as many as the window permits are outstanding while requests wait.
    #[default]
    OneByOne,
    /// In batches, when all are done. The window is then the greatest size of a batch. The storage may choose
    /// its own order within a batch, and no request from outside overtakes it. A batch takes the requests
    /// that wait when it begins. It is closed when it is full, or when nothing more waits under the window;
    /// later requests wait for the next one. The places of requests that are done stay empty until then: the
    /// price is paid in throughput.
    ///
    /// YFQ lets the disk reorder within batches of b requests. Do its authors begin the next one only when
    /// all of the last are done? Their text could not be checked for it; [`RefillTime::OneByOne`] is the
    /// other reading.
    InBatches,
}

/// Inputs of YFQ's virtual work function. Code that changes the order stays out of line: inlined, it would
/// slow down the decisions by start tags.
#[derive(Debug)]
pub(crate) struct VirtualWork {
    /// Ready flows, by the start tag of their head.
    waiting: WrappingTree,
    /// Start tag of the request that the tags chose last, while anything is outstanding.
    serving: Option<u128>,
}

impl Default for VirtualWork {
    fn default() -> Self {
        Self { waiting: WrappingTree::new(), serving: None }
    }
}

impl VirtualWork {
    /// v, not less than what it has reached: a credit may put a start tag behind it.
    #[inline(never)]
    pub(crate) fn at(&self, reached: u128) -> u128 {
        let waiting = self.waiting.first().map(|(_, start)| {
            let ahead = start.wrapping_sub(reached as u64).cast_signed();
            reached + u128::from(ahead.max(0).unsigned_abs())
        });
        self.serving.into_iter().chain(waiting).min().map_or(reached, |least| least.max(reached))
    }

    #[inline(never)]
    pub(crate) fn waits(&mut self, slot: u32, start: u128) {
        self.waiting.set(slot, start as u64);
    }

    #[inline(never)]
    pub(crate) fn waits_no_more(&mut self, slot: u32) {
        self.waiting.remove(slot);
    }

    /// The request with this start tag goes.
    pub(crate) fn serves(&mut self, start: u128) {
        self.serving = Some(start);
    }

    /// Nothing is outstanding.
    pub(crate) fn rests(&mut self) {
        self.serving = None;
    }

    /// See [`Sfq::recall`](crate::Sfq::recall).
    pub(crate) fn recall(&self, slot: u32) {
        black_box((self.serving, self.waiting.first(), self.waiting.contains(slot)));
    }
}
