//! A front end's messages: what it shares, and when rings start and stop.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result as HandlerResult, VhostUserBackendReqHandlerMut,
};
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use crate::budget::MemoryAccount;
use crate::event::EventDescriptor;
use crate::features::{CACHE_OFFSET, DiskProperties, LONGEST_RING, MOST_QUEUES, has, may_cache};
use crate::in_flight::InFlightRegion;
use crate::memory::{GuestMemory, MOST_REGIONS, MemoryTable};
use crate::ring::{DiskRing, RingPlace};
use crate::size::DiskSize;

/// The longest configuration space that a front end may ask for.
const LONGEST_CONFIG: usize = 256;

/// The owner of the rings is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the owner of the rings has ended")]
pub struct OwnerGone;

/// The part that owns the rings of a device while they are started. Calls come from the thread of
/// [`serve`], in the order of the front end's messages. Each returns once it is done, so that a front end
/// cannot give more orders than the owner carries out.
pub trait DiskOwner {
    /// The guest's memory is this from now on; `None` only while no ring is started.
    ///
    /// # Errors
    /// When the owner has ended.
    fn set_memory(&mut self, memory: Option<GuestMemory>) -> Result<(), OwnerGone>;

    /// A ring starts. There may be requests in it already.
    ///
    /// # Errors
    /// When the owner has ended.
    fn start(&mut self, index: u16, ring: DiskRing) -> Result<(), OwnerGone>;

    /// A ring stops. Returns the index of its next request once all that were taken are complete; `None` if
    /// it had not started.
    ///
    /// # Errors
    /// When the owner has ended.
    fn stop(&mut self, index: u16) -> Result<Option<u16>, OwnerGone>;

    /// The event by which the guest is told of results; `None`: it looks for itself.
    ///
    /// # Errors
    /// When the owner has ended.
    fn set_call(&mut self, index: u16, call: Option<EventDescriptor>) -> Result<(), OwnerGone>;

    /// Writes that are answered must be on stable storage, or need not be.
    ///
    /// # Errors
    /// When the owner has ended.
    fn set_cache(&mut self, may_cache: bool) -> Result<(), OwnerGone>;

    /// The front end is no longer served. Returns once the owner has dropped its rings and its memory, which
    /// then end with the calling thread.
    fn end(&mut self, reason: &FrontEndError);
}

/// The reason for which a front end is no longer served.
#[derive(Debug, Error)]
pub enum FrontEndError {
    /// It hung up, or its connection was ended here.
    #[error("the front end hung up")]
    HungUp,
    /// It does not keep to the protocol, or asks for what is not offered.
    #[error("{0}")]
    Protocol(Error),
    /// The owner of the rings has ended.
    #[error(transparent)]
    Owner(#[from] OwnerGone),
}

/// Serves a front end until it hangs up or does not keep to the protocol.
///
/// The calling thread should have no other work. It closes every descriptor that the front end has passed,
/// and should then close the socket, in which there may be more. Closing one can take as long as the front end
/// likes: a socket with SO_LINGER, a file of its own file system.
pub fn serve(socket: &UnixStream, disk: DiskProperties, size: &Arc<DiskSize>, owner: impl DiskOwner) {
    let front_end = Arc::new(Mutex::new(FrontEnd::new(disk, Arc::clone(size), owner)));
    let end = take_messages(socket, size, &front_end);
    // No message is being handled, and a panic in one leaves the owner as it was.
    front_end.lock().unwrap_or_else(PoisonError::into_inner).owner.end(&end);
    size.close_channel();
}

/// Takes the messages of a front end until its end.
fn take_messages<O: DiskOwner>(
    socket: &UnixStream,
    size: &DiskSize,
    front_end: &Arc<Mutex<FrontEnd<O>>>,
) -> FrontEndError {
    let Ok(share) = socket.try_clone() else { return FrontEndError::HungUp };
    let mut messages = BackendReqHandler::from_stream(share, Arc::clone(front_end));
    let mut pace = MessagePace::new();
    let error = loop {
        pace.wait();
        if let Err(error) = size.look_for_channel(socket) {
            break Error::SocketBroken(error);
        }
        if let Err(error) = messages.handle_request() {
            break error;
        }
    };
    match error {
        Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_) => FrontEndError::HungUp,
        Error::ReqHandlerError(error) if is_owner_gone(&error) => OwnerGone.into(),
        error => FrontEndError::Protocol(error),
    }
}

/// The pace at which messages are taken. Those that a machine sends when it starts or plugs memory in come at
/// once. One that sends messages all the time costs the owner less than a hundredth of a processor.
struct MessagePace {
    at: Instant,
    /// Rises with each message, and falls with the time.
    level: Duration,
}

/// Messages that need not wait. Chosen: some twenty for each ring of the largest disk, and as many regions.
const AT_ONCE: u32 = 2048;

/// The time between messages beyond that.
const EACH: Duration = Duration::from_millis(2);

impl MessagePace {
    fn new() -> Self {
        Self { at: Instant::now(), level: Duration::ZERO }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        self.level = self.level.saturating_sub(now - self.at) + EACH;
        self.at = now;
        thread::sleep(self.level.saturating_sub(EACH * AT_ONCE));
    }
}

/// A ring before it starts.
#[derive(Debug, Default)]
struct RingSetup {
    length: u16,
    /// The places of the descriptors, the used and the available ring, as the front end has them.
    places: Option<[u64; 3]>,
    base: u16,
    kick: Option<Arc<EventDescriptor>>,
    is_enabled: bool,
    is_started: bool,
}

struct FrontEnd<O> {
    disk: DiskProperties,
    size: Arc<DiskSize>,
    owner: O,
    account: MemoryAccount,
    table: MemoryTable,
    memory: Option<GuestMemory>,
    features: u64,
    cache: bool,
    in_flight: Option<InFlightRegion>,
    rings: Vec<RingSetup>,
    /// True once the front end was told to look at the size. The disk may have grown before it came, and QEMU
    /// looks by itself only when it begins.
    has_told_size: bool,
}

fn is_owner_gone(error: &io::Error) -> bool {
    error.get_ref().and_then(|cause| cause.downcast_ref::<OwnerGone>()).is_some()
}

/// An error of the handler with its reason.
fn refused(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(error))
}

impl<O: DiskOwner> FrontEnd<O> {
    fn new(disk: DiskProperties, size: Arc<DiskSize>, owner: O) -> Self {
        let rings = (0..MOST_QUEUES).map(|_| RingSetup::default()).collect();
        Self {
            disk,
            size,
            owner,
            account: MemoryAccount::default(),
            table: MemoryTable::default(),
            memory: None,
            features: 0,
            cache: true,
            in_flight: None,
            rings,
            has_told_size: false,
        }
    }

    fn ring(&mut self, index: u32) -> HandlerResult<(u16, &mut RingSetup)> {
        let ring = self.rings.get_mut(index as usize).ok_or(Error::InvalidParam)?;
        // Invariant: there are `MOST_QUEUES` of them.
        Ok((index as u16, ring))
    }

    /// Starts a ring if it has everything that it needs.
    fn start(&mut self, index: u32) -> HandlerResult<()> {
        let (features, memory) = (self.features, self.memory.clone());
        let (index, ring) = self.ring(index)?;
        let (Some(memory), Some(places), true, false) =
            (memory, ring.places, ring.is_enabled && ring.length > 0, ring.is_started)
        else {
            return Ok(());
        };
        let Some(kick) = ring.kick.clone() else { return Ok(()) };
        let (length, base) = (ring.length, ring.base);
        let place = |user| {
            self.table.guest_address(user).ok_or_else(|| refused("a ring lies in memory that is not shared"))
        };
        let [descriptors, used, available] = places;
        let place = RingPlace {
            length,
            descriptors: place(descriptors)?,
            available: place(available)?,
            used: place(used)?,
            base,
            event_index: has(features, VIRTIO_RING_F_EVENT_IDX),
        };
        let record = match &self.in_flight {
            Some(region) => {
                let fits = region.ring(index, length);
                Some(fits.ok_or_else(|| refused("the region for requests in flight lacks a ring"))?)
            }
            None => None,
        };
        let started = DiskRing::new(place, &memory, kick, record).map_err(refused)?;
        self.owner.start(index, started).map_err(refused)?;
        self.rings[usize::from(index)].is_started = true;
        // Before its first ring starts QEMU does not listen.
        if !std::mem::replace(&mut self.has_told_size, true) {
            self.size.tell();
        }
        Ok(())
    }

    /// Stops a ring if it has started.
    fn stop(&mut self, index: u32) -> HandlerResult<()> {
        let (index, ring) = self.ring(index)?;
        if std::mem::take(&mut ring.is_started)
            && let Some(base) = self.owner.stop(index).map_err(refused)?
        {
            self.rings[usize::from(index)].base = base;
        }
        Ok(())
    }

    fn stop_all(&mut self) -> HandlerResult<()> {
        (0..u32::from(MOST_QUEUES)).try_for_each(|index| self.stop(index))
    }

    /// Has the owner use the regions as they are now. The owner has dropped others when this returns.
    fn set_memory(&mut self, table: MemoryTable) -> HandlerResult<()> {
        let memory = table.memory().map_err(refused)?;
        if memory.is_none() {
            self.need_no_ring()?;
        }
        self.owner.set_memory(memory.clone()).map_err(refused)?;
        (self.table, self.memory) = (table, memory);
        Ok(())
    }

    /// Refuses what only a front end without a started ring may do.
    fn need_no_ring(&self) -> HandlerResult<()> {
        let is_started = self.rings.iter().any(|ring| ring.is_started);
        if is_started { Err(refused("a started ring needs what it has been given")) } else { Ok(()) }
    }

    fn tell_cache(&mut self) -> HandlerResult<()> {
        self.owner.set_cache(may_cache(self.features, self.cache)).map_err(refused)
    }

    fn has_protocol_features(&self) -> bool {
        self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0
    }
}

impl<O: DiskOwner> VhostUserBackendReqHandlerMut for FrontEnd<O> {
    fn set_owner(&mut self) -> HandlerResult<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> HandlerResult<()> {
        self.stop_all()
    }

    fn reset_device(&mut self) -> HandlerResult<()> {
        self.stop_all()?;
        self.rings.iter_mut().for_each(|ring| *ring = RingSetup::default());
        self.features = 0;
        Ok(())
    }

    fn get_features(&mut self) -> HandlerResult<u64> {
        Ok(self.disk.features() | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits())
    }

    fn set_features(&mut self, features: u64) -> HandlerResult<()> {
        if features & !self.get_features()? != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features = features;
        if !self.has_protocol_features() {
            // There will be no message that says so.
            self.rings.iter_mut().for_each(|ring| ring.is_enabled = true);
        }
        self.tell_cache()
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> HandlerResult<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mut table = MemoryTable::default();
        for (region, file) in regions.iter().zip(files) {
            table.add(&self.account, region, &file).map_err(refused)?;
        }
        self.set_memory(table)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, length: u32) -> HandlerResult<()> {
        let length = u16::try_from(length).ok().filter(|length| *length <= LONGEST_RING);
        self.ring(index)?.1.length = length.ok_or(Error::InvalidParam)?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> HandlerResult<()> {
        self.ring(index)?.1.places = Some([descriptors, used, available]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> HandlerResult<()> {
        self.ring(index)?.1.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> HandlerResult<VhostUserVringState> {
        self.stop(index)?;
        let (_, ring) = self.ring(index)?;
        ring.kick = None;
        Ok(VhostUserVringState::new(index, u32::from(ring.base)))
    }

    fn set_vring_kick(&mut self, index: u8, kick: Option<File>) -> HandlerResult<()> {
        // Without one the device would have to look at the ring all the time.
        let kick = kick.ok_or_else(|| refused("a ring without a kick descriptor is not supported"))?;
        let kick = EventDescriptor::new(kick).map_err(refused)?;
        let index = u32::from(index);
        self.stop(index)?;
        self.ring(index)?.1.kick = Some(Arc::new(kick));
        self.start(index)
    }

    fn set_vring_call(&mut self, index: u8, call: Option<File>) -> HandlerResult<()> {
        let (index, _) = self.ring(u32::from(index))?;
        let call = call.map(EventDescriptor::new).transpose().map_err(refused)?;
        self.owner.set_call(index, call).map_err(refused)
    }

    fn set_vring_err(&mut self, index: u8, _error: Option<File>) -> HandlerResult<()> {
        // A device that cannot go on hangs up, which the front end notices too.
        self.ring(u32::from(index)).map(drop)
    }

    fn get_protocol_features(&mut self) -> HandlerResult<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _features: u64) -> HandlerResult<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> HandlerResult<u64> {
        Ok(u64::from(MOST_QUEUES))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> HandlerResult<()> {
        self.ring(index)?.1.is_enabled = enable;
        if enable { self.start(index) } else { self.stop(index) }
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> HandlerResult<Vec<u8>> {
        let mut config = [0; LONGEST_CONFIG];
        let known = self.disk.config(self.size.bytes(), self.cache);
        config[..known.len()].copy_from_slice(&known);
        let end = offset.checked_add(size).ok_or(Error::InvalidParam)? as usize;
        config.get(offset as usize..end).map(<[u8]>::to_vec).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, offset: u32, bytes: &[u8], _flags: VhostUserConfigFlags) -> HandlerResult<()> {
        match (offset, bytes) {
            (CACHE_OFFSET, [cache @ (0 | 1)]) => {
                self.cache = *cache == 1;
                self.tell_cache()
            }
            _ => Err(Error::InvalidOperation("only the write cache can be set")),
        }
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> HandlerResult<()> {
        Err(Error::InvalidOperation("this is a disk"))
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> HandlerResult<File> {
        Err(Error::InvalidOperation("this is a disk"))
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> HandlerResult<(VhostUserInflight, File)> {
        self.need_no_ring()?;
        let VhostUserInflight { num_queues, queue_size, .. } = *wanted;
        let (file, size) = InFlightRegion::create(num_queues).map_err(refused)?;
        let volume = self.disk.volume;
        let region = InFlightRegion::open(&self.account, &file, 0, size, num_queues, queue_size, volume);
        self.in_flight = Some(region.map_err(refused)?);
        Ok((VhostUserInflight::new(size, 0, num_queues, queue_size), file))
    }

    fn set_inflight_fd(&mut self, kept: &VhostUserInflight, file: File) -> HandlerResult<()> {
        self.need_no_ring()?;
        let VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = *kept;
        let region = InFlightRegion::open(
            &self.account,
            &file,
            mmap_offset,
            mmap_size,
            num_queues,
            queue_size,
            self.disk.volume,
        );
        self.in_flight = Some(region.map_err(refused)?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> HandlerResult<u64> {
        Ok(MOST_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy_listening: Option<bool>,
    ) -> HandlerResult<Option<VhostUserMemoryRegionBase>> {
        let mut table = self.table.clone();
        table.add(&self.account, region, &file).map_err(refused)?;
        self.set_memory(table)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> HandlerResult<()> {
        let mut table = self.table.clone();
        if !table.remove(region) {
            return Err(Error::InvalidParam);
        }
        self.set_memory(table)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> HandlerResult<Option<File>> {
        Err(Error::InvalidOperation("a disk has no state of its own"))
    }

    fn check_device_state(&mut self) -> HandlerResult<()> {
        Err(Error::InvalidOperation("a disk has no state of its own"))
    }

    fn get_shmem_config(&mut self) -> HandlerResult<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("a disk shares no memory of its own"))
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> HandlerResult<()> {
        Err(Error::InvalidOperation("changes to memory are not logged"))
    }
}
