//! A ring: requests out of it, results into it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use thiserror::Error;
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_ID_BYTES;
use virtio_bindings::bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

use crate::event::EventDescriptor;
use crate::features::LONGEST_RING;
use crate::in_flight::RingRecord;
use crate::memory::GuestMemory;
use crate::request::{DescriptorTable, DiskRequest, MalformedRequest, RequestStatus};

/// The reasons why a ring cannot go on. The device then ends.
#[derive(Debug, Error)]
pub enum RingError {
    /// A request is malformed.
    #[error(transparent)]
    Request(#[from] MalformedRequest),
    /// The ring itself is: its size, its place, or an index in it.
    #[error("a ring is malformed: {0}")]
    Ring(virtio_queue::Error),
    /// A ring or a record lies in memory that the guest does not have.
    #[error("a ring names memory that is not there: {0}")]
    Memory(#[from] GuestMemoryError),
    /// The front end has cut short the memory that it had shared.
    #[error("the front end took back memory that it had shared")]
    MemoryLost,
}

impl From<virtio_queue::Error> for RingError {
    fn from(error: virtio_queue::Error) -> Self {
        Self::Ring(error)
    }
}

/// The place of a ring in the guest's memory, and its state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingPlace {
    pub(crate) length: u16,
    pub(crate) descriptors: GuestAddress,
    pub(crate) available: GuestAddress,
    pub(crate) used: GuestAddress,
    /// The index of the next request.
    pub(crate) base: u16,
    /// Both sides say at which index they want to be woken.
    pub(crate) event_index: bool,
}

/// The result of a request that is complete.
#[derive(Debug)]
pub enum CompletedRequest<'a> {
    /// A read that succeeded, with its data.
    Data(&'a [u8]),
    /// The answer to [`Identify`](crate::DiskCommand::Identify).
    Serial(&'a str),
    /// Another outcome.
    Status(RequestStatus),
}

/// A ring that has started.
pub struct DiskRing {
    queue: Queue,
    kick: Arc<EventDescriptor>,
    record: Option<RingRecord>,
    /// Heads that a gateway before this one had taken and not completed, and those that were put back.
    again: VecDeque<u16>,
    /// The heads in `again` are taken, and no others.
    stopping: bool,
}

impl fmt::Debug for DiskRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskRing").field("queue", &self.queue.state()).finish_non_exhaustive()
    }
}

impl DiskRing {
    pub(crate) fn new(
        place: RingPlace,
        memory: &GuestMemory,
        kick: Arc<EventDescriptor>,
        mut record: Option<RingRecord>,
    ) -> Result<Self, RingError> {
        let mut queue = Queue::new(LONGEST_RING)?;
        queue.try_set_size(place.length)?;
        queue.try_set_desc_table_address(place.descriptors)?;
        queue.try_set_avail_ring_address(place.available)?;
        queue.try_set_used_ring_address(place.used)?;
        queue.set_event_idx(place.event_index);
        queue.set_ready(true);
        if !queue.is_valid(memory.mapped()) {
            return Err(RingError::Ring(virtio_queue::Error::QueueNotReady));
        }
        let used = queue.used_idx(memory.mapped(), Ordering::Acquire)?.0;
        queue.set_next_used(used);
        let again: VecDeque<u16> = match &mut record {
            Some(record) => record.recover(used)?.into(),
            None => VecDeque::new(),
        };
        // A front end whose back end has died knows only what is completed. All that is in flight was taken
        // after that.
        let base = if again.is_empty() { place.base } else { used.wrapping_add(again.len() as u16) };
        queue.set_next_avail(base);
        Ok(Self { queue, kick, record, again, stopping: false })
    }

    /// The event by which the guest says that there are requests.
    #[must_use]
    pub fn kick(&self) -> &Arc<EventDescriptor> {
        &self.kick
    }

    /// The next request, which is then in flight.
    ///
    /// # Errors
    /// When the ring or the request is malformed.
    pub fn next(&mut self, memory: &GuestMemory) -> Result<Option<DiskRequest>, RingError> {
        let next = self.look(memory);
        // Zeros in the place of memory that is gone look like a ring of any kind.
        if memory.is_lost() { Err(RingError::MemoryLost) } else { next }
    }

    fn look(&mut self, memory: &GuestMemory) -> Result<Option<DiskRequest>, RingError> {
        let mapped = memory.mapped();
        let table =
            DescriptorTable { address: GuestAddress(self.queue.desc_table()), length: self.queue.size() };
        if let Some(head) = self.again.pop_front() {
            // Noted already.
            return Ok(Some(DiskRequest::read(mapped, table, head)?));
        }
        if self.stopping {
            return Ok(None);
        }
        let head = self.queue.iter(mapped)?.next().map(|chain| chain.head_index());
        let Some(head) = head else { return Ok(None) };
        let request = DiskRequest::read(mapped, table, head)?;
        if let Some(record) = &mut self.record {
            record.taken(head)?;
        }
        Ok(Some(request))
    }

    /// Takes a request back that came out and was not begun: the next one is this.
    pub fn put_back(&mut self, request: &DiskRequest) {
        self.again.push_front(request.head);
    }

    /// Copies a write's data, as it is now, to the front of `buffer`.
    ///
    /// # Errors
    /// When it lies in memory that is not there any more.
    ///
    /// # Panics
    /// If the buffer is shorter than the data.
    pub fn read_data(
        &self,
        memory: &GuestMemory,
        request: &DiskRequest,
        buffer: &mut [u8],
    ) -> Result<(), RingError> {
        let mut rest = buffer;
        for part in &request.data {
            let (into, left) = rest.split_at_mut(part.length as usize);
            memory.mapped().read_slice(into, part.address)?;
            rest = left;
        }
        if memory.is_lost() { Err(RingError::MemoryLost) } else { Ok(()) }
    }

    /// Puts a result into the ring.
    ///
    /// # Errors
    /// When its place is in memory that is not there any more.
    pub fn complete(
        &mut self,
        memory: &GuestMemory,
        request: &DiskRequest,
        completed: &CompletedRequest<'_>,
    ) -> Result<(), RingError> {
        let (status, written) = match completed {
            CompletedRequest::Data(data) => (RequestStatus::Done, write_parts(memory, request, data)?),
            CompletedRequest::Serial(serial) => {
                let mut id = [0; VIRTIO_BLK_ID_BYTES as usize];
                let length = serial.len().min(id.len());
                id[..length].copy_from_slice(&serial.as_bytes()[..length]);
                (RequestStatus::Done, write_parts(memory, request, &id)?)
            }
            CompletedRequest::Status(status) => (*status, 0),
        };
        let mapped = memory.mapped();
        mapped.write_obj(status.code(), request.status)?;
        if memory.is_lost() {
            // The guest does not hear that something is done whose data went nowhere.
            return Err(RingError::MemoryLost);
        }
        if let Some(record) = &self.record {
            record.before_used(request.head)?;
        }
        self.queue.add_used(mapped, request.head, written.saturating_add(1))?;
        if let Some(record) = &self.record {
            record.after_used(request.head, self.queue.next_used())?;
        }
        Ok(())
    }

    /// Returns true if the guest wants to be told of what was completed since the last call.
    ///
    /// # Errors
    /// When the ring is not there any more.
    pub fn wants_signal(&mut self, memory: &GuestMemory) -> Result<bool, RingError> {
        if self.queue.event_idx_enabled() {
            return Ok(self.queue.needs_notification(memory.mapped())?);
        }
        // Pairs with the guest's fence between its change of the flag and its look at the used index.
        fence(Ordering::SeqCst);
        let flags: u16 = memory.mapped().load(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed)?;
        Ok(u16::from_le(flags) & VRING_AVAIL_F_NO_INTERRUPT as u16 == 0)
    }

    /// Asks the guest to say nothing of new requests.
    ///
    /// # Errors
    /// When the ring is not there any more.
    pub fn hush(&mut self, memory: &GuestMemory) -> Result<(), RingError> {
        Ok(self.queue.disable_notification(memory.mapped())?)
    }

    /// Asks the guest to tell of new requests. Returns true if there are some already.
    ///
    /// # Errors
    /// When the ring is not there any more.
    pub fn listen(&mut self, memory: &GuestMemory) -> Result<bool, RingError> {
        Ok(self.queue.enable_notification(memory.mapped())?)
    }

    /// Takes no further requests but those that it [owes](Self::owes).
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Returns true if it takes no further requests.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Returns true if requests wait here that were taken out of the guest's ring.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.again.is_empty()
    }

    /// The index of the next request, for the front end.
    #[must_use]
    pub fn base(&self) -> u16 {
        self.queue.next_avail()
    }
}

/// Writes data to a request's parts; returns its length.
fn write_parts(memory: &GuestMemory, request: &DiskRequest, data: &[u8]) -> Result<u32, RingError> {
    let mut rest = data;
    for part in &request.data {
        let (now, left) = rest.split_at(rest.len().min(part.length as usize));
        memory.mapped().write_slice(now, part.address)?;
        rest = left;
    }
    Ok(request.length().min(data.len() as u32))
}
