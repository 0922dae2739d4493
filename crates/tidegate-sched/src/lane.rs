//! A lane: flows that share by their tags, and their virtual time.

use std::hint::black_box;

use tidegate_units::Bytes;

use crate::cost::RequestCost;
use crate::discipline::{Discipline, VirtualWork};
use crate::flow::{LaneName, StorageExtent};
use crate::tournament::WrappingTree;

/// Bounds within which the scheduler stays with a flow whose requests are close to each other (PARDA §3.3).
/// The paper groups I/Os "as long as they exhibit some spatial locality (within a few MB)", and gives no
/// number for the bound of the group.
///
/// Requests that follow the one that the tags chose are paid for like any other, only later. So a batch
/// changes the order within the fairness bound stated at [`Sfq`](crate::Sfq), and no long-run share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowBatch {
    /// The greatest distance from the end of a request to the beginning of the next.
    pub locality: Bytes,
    /// Greatest number of requests that may follow the one that the tags chose.
    pub requests: u32,
    /// Greatest cost that may follow the request that the tags chose.
    pub cost: RequestCost,
}

impl Default for FlowBatch {
    /// 4 MiB, seven requests, eight I/Os: half a mebibyte of a stream in one go at 64 KiB per I/O.
    fn default() -> Self {
        Self { locality: Bytes::from_mib(4), requests: 7, cost: RequestCost::from_ios(8) }
    }
}

/// A batch in progress.
#[derive(Debug, Clone, Copy)]
struct Run {
    slot: u32,
    end: u64,
    requests_left: u32,
    cost_left: u64,
}

/// A scheduler's lanes. Few schedulers need more than the one under the window: the others are made when they
/// are first used, so that thousands of schedulers stay small.
#[derive(Debug)]
pub(crate) struct ReadyLanes {
    pub(crate) discipline: Discipline,
    windowed: ReadyLane,
    exempt: Option<Box<ReadyLane>>,
    surplus: Option<Box<ReadyLane>>,
}

impl ReadyLanes {
    pub(crate) fn new(discipline: Discipline) -> Self {
        Self { discipline, windowed: ReadyLane::new(discipline), exempt: None, surplus: None }
    }

    fn get(&self, name: LaneName) -> Option<&ReadyLane> {
        match name {
            LaneName::Exempt => self.exempt.as_deref(),
            LaneName::Windowed => Some(&self.windowed),
            LaneName::Surplus => self.surplus.as_deref(),
        }
    }

    /// To be changed.
    pub(crate) fn get_mut(&mut self, name: LaneName) -> &mut ReadyLane {
        let discipline = self.discipline;
        let made = || Box::new(ReadyLane::new(discipline));
        match name {
            LaneName::Exempt => self.exempt.get_or_insert_with(made),
            LaneName::Windowed => &mut self.windowed,
            LaneName::Surplus => self.surplus.get_or_insert_with(made),
        }
    }

    pub(crate) fn has_ready(&self, name: LaneName) -> bool {
        self.get(name).is_some_and(|lane| !lane.ready.is_empty())
    }

    pub(crate) fn is_ready(&self, name: LaneName, slot: u32) -> bool {
        self.get(name).is_some_and(|lane| lane.ready.contains(slot))
    }

    pub(crate) fn virtual_time(&self, name: LaneName) -> u128 {
        self.get(name).map_or(0, ReadyLane::virtual_time)
    }

    /// The flow has no eligible request any more, or is no longer of this lane.
    pub(crate) fn withdraw(&mut self, name: LaneName, slot: u32) {
        if self.get(name).is_some() {
            self.get_mut(name).withdraw(slot);
        }
    }

    /// See [`Sfq::recall`](crate::Sfq::recall).
    pub(crate) fn recall(&self, slot: u32) {
        let ReadyLane { ready, work, reached, greatest_finish, run } = &self.windowed;
        black_box((*reached, *greatest_finish, *run, ready.first(), ready.contains(slot)));
        if let Some(work) = work {
            work.recall(slot);
        }
    }

    /// A request is done, and so many are still outstanding outside of the window and under it.
    pub(crate) fn completed(&mut self, exempt: u32, windowed: u32) {
        if let Some(lane) = &mut self.exempt {
            lane.completed(exempt);
        }
        self.windowed.completed(windowed);
        if let Some(lane) = &mut self.surplus {
            lane.completed(windowed);
        }
    }
}

/// Ready flows by the tag of their head that the [`Discipline`] goes by, and the virtual time v.
///
/// Tags are 128 bits wide: the greatest step is 2⁵⁸, so they do not overflow. Their low 64
/// bits are compared, which is exact because tags of ready flows lie within a few such steps of each other.
#[derive(Debug)]
pub(crate) struct ReadyLane {
    pub(crate) ready: WrappingTree,
    /// Inputs of v with finish tags.
    work: Option<Box<VirtualWork>>,
    /// With start tags v itself, with finish tags a value that v has reached.
    reached: u128,
    /// The greatest finish tag of any request dispatched.
    greatest_finish: u128,
    run: Option<Run>,
}

impl ReadyLane {
    fn new(discipline: Discipline) -> Self {
        let work = match discipline {
            Discipline::StartTags => None,
            Discipline::FinishTags => Some(Box::default()),
        };
        Self { ready: WrappingTree::new(), work, reached: 0, greatest_finish: 0, run: None }
    }

    /// v: no request that arrives now starts before it.
    #[inline]
    pub(crate) fn virtual_time(&self) -> u128 {
        self.work.as_ref().map_or(self.reached, |work| work.at(self.reached))
    }

    /// A flow with an eligible request takes its place in the order. The finish tag is asked for only where
    /// it counts: it takes the size of the request, which need not be fetched from memory before its turn
    /// otherwise.
    pub(crate) fn make_ready(&mut self, slot: u32, start: u128, finish: impl FnOnce() -> u128) {
        let tag = match &mut self.work {
            None => start,
            Some(work) => {
                work.waits(slot, start);
                finish()
            }
        };
        self.ready.set(slot, tag as u64);
    }

    /// The flow has no eligible request any more, or is no longer of this lane.
    pub(crate) fn withdraw(&mut self, slot: u32) {
        self.ready.remove(slot);
        if let Some(work) = &mut self.work {
            self.reached = work.at(self.reached);
            work.waits_no_more(slot);
        }
        if self.run.is_some_and(|run| run.slot == slot) {
            self.run = None;
        }
    }

    /// The flow whose batch goes on, if its next request permits that.
    pub(crate) fn following(
        &self,
        batch: &FlowBatch,
        head: impl Fn(u32) -> (StorageExtent, RequestCost),
    ) -> Option<u32> {
        let run = self.run.filter(|run| run.requests_left > 0)?;
        let (extent, cost) = head(run.slot);
        let near = run.end.abs_diff(extent.offset) <= batch.locality.get();
        (near && cost.raw() <= run.cost_left).then_some(run.slot)
    }

    /// The request chosen by the tags goes, and a batch may begin. With start tags v becomes the request's,
    /// and does not go back where a credit put a tag behind it.
    pub(crate) fn chose(
        &mut self,
        slot: u32,
        start: u128,
        finish: u128,
        extent: StorageExtent,
        batch: Option<&FlowBatch>,
    ) {
        match &mut self.work {
            None => self.reached = self.reached.max(start),
            Some(work) => {
                self.reached = work.at(self.reached);
                work.serves(start);
            }
        }
        self.greatest_finish = self.greatest_finish.max(finish);
        self.run = batch.map(|batch| Run {
            slot,
            end: extent.end(),
            requests_left: batch.requests,
            cost_left: batch.cost.raw(),
        });
    }

    /// A request goes because it follows another. It does not move v, which may not run past the tags of
    /// waiting requests.
    pub(crate) fn followed(&mut self, finish: u128, extent: StorageExtent, cost: RequestCost) {
        self.greatest_finish = self.greatest_finish.max(finish);
        if let Some(run) = &mut self.run {
            run.end = extent.end();
            run.requests_left -= 1;
            run.cost_left -= cost.raw();
        }
    }

    /// A request goes by its reservation. It does not move v: the flow may be far ahead of waiting ones.
    /// `finish` is where its reservation has taken it, with a bound to that; the result is its finish tag.
    ///
    /// mClock charges a reserved request to the shares like any other, so that a flow gets the larger of its
    /// reservation and its share, not both; but its tags remember what the reservation gave beyond the share
    /// for ever. Here that is forgiven beyond [`FlowReservation::ahead`]: a flow pays for what it had lately,
    /// as an idle one gets nothing for what it did not have. It also keeps all tags of a lane within reach of
    /// each other.
    ///
    /// [`FlowReservation::ahead`]: crate::reservation::FlowReservation::ahead
    pub(crate) fn reserved(&mut self, slot: u32, finish: u128, farthest: u128) -> u128 {
        let finish = finish.min(self.virtual_time() + farthest);
        self.greatest_finish = self.greatest_finish.max(finish);
        if self.run.is_some_and(|run| run.slot == slot) {
            self.run = None;
        }
        finish
    }

    /// At the end of a busy period v becomes the greatest finish tag (Goyal, Vin, Cheng 1996; Bruno et al.
    /// 1999).
    fn completed(&mut self, outstanding: u32) {
        if outstanding > 0 {
            return;
        }
        if let Some(work) = &mut self.work {
            self.reached = work.at(self.reached);
            work.rests();
        }
        if self.ready.is_empty() {
            self.reached = self.reached.max(self.greatest_finish);
            self.run = None;
        }
    }

    #[cfg(test)]
    pub(crate) fn start_at(&mut self, virtual_time: u128) {
        self.reached = virtual_time;
        self.greatest_finish = virtual_time;
    }
}
