//! A virtual machine's part in its disk: memory, a driver of rings, and a front end, as QEMU has them.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::time::Timespec;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::PATIENCE;

pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const FLUSH: u32 = 4;
pub const IDENTIFY: u32 = 8;
pub const DISCARD: u32 = 11;
pub const ZEROES: u32 = 13;

pub const DONE: u8 = 0;
pub const FAILED: u8 = 1;
pub const UNSUPPORTED: u8 = 2;

pub const EVENT_INDEX: u64 = 1 << 29;
pub const WRITE_CACHE: u64 = 1 << 9;
const VERSION_1: u64 = 1 << 32;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const INDIRECT: u64 = 1 << 28;

const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const IS_TABLE: u16 = 4;

/// Descriptors of a ring.
pub const RING: u16 = 256;
/// The length of rings that the front end announces. QEMU 10 announces less than its guest makes of a ring.
const ANNOUNCED: u16 = 128;
/// Requests that a ring can have at once; each has three descriptors and a place in memory.
pub const SLOTS: u16 = 64;

const MEMORY: u64 = 32 << 20;
const RING_BYTES: u64 = 0x8000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x4000;
const SLOT_BYTES: u64 = 128 << 10;
/// A slot: header, status, a table of descriptors, and the data.
const STATUS: u64 = 16;
const TABLE: u64 = 64;
const DATA: u64 = 4096;

/// A virtual machine with a disk of some rings.
pub struct Machine {
    memory: GuestMemoryMmap,
    file: File,
    rings: Vec<Ring>,
    pub features: u64,
    /// Requests are put into tables of their own.
    pub indirect: bool,
    /// The back end must keep a record of requests in flight.
    pub needs_record: bool,
    in_flight: Option<(VhostUserInflight, File)>,
    front_end: Option<Frontend>,
    /// Messages of the device, and its end of their channel.
    pub messages: UnixStream,
    channel: UnixStream,
}

struct Ring {
    kick: EventFd,
    call: EventFd,
    available: u16,
    /// The available index when the device was last told.
    told: u16,
    used: u16,
}

impl Machine {
    pub fn new(rings: usize) -> Self {
        let file = File::from(memfd_create("machine", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY).unwrap();
        let shared = FileOffset::new(file.try_clone().unwrap(), 0);
        let ranges = [(GuestAddress(0), MEMORY as usize, Some(shared))];
        let ring = || Ring {
            kick: EventFd::new(EFD_NONBLOCK).unwrap(),
            call: EventFd::new(EFD_NONBLOCK).unwrap(),
            available: 0,
            told: 0,
            used: 0,
        };
        let (messages, channel) = UnixStream::pair().unwrap();
        messages.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            messages,
            channel,
            memory: GuestMemoryMmap::from_ranges_with_files(ranges).unwrap(),
            file,
            rings: (0..rings).map(|_| ring()).collect(),
            features: VERSION_1 | PROTOCOL_FEATURES | INDIRECT | WRITE_CACHE,
            indirect: false,
            needs_record: true,
            in_flight: None,
            front_end: None,
        }
    }

    /// Connects to a disk as QEMU does, and to its next gateway after one has died. It tries again while the
    /// disk is still that of the machine before: then it is hung up on.
    pub fn connect(&mut self, socket: &Path) {
        self.try_connect(socket).unwrap();
    }

    /// The same for a disk whose gateway may refuse the record of requests in flight.
    ///
    /// # Errors
    /// When it does.
    pub fn try_connect(&mut self, socket: &Path) -> Result<(), vhost::Error> {
        let end = Instant::now() + PATIENCE;
        let rings = self.rings.len() as u64;
        let begin = || {
            let front_end = Frontend::connect(socket, rings)?;
            front_end.set_owner()?;
            let offered = front_end.get_features()?;
            Ok::<_, vhost::Error>((front_end, offered))
        };
        let (mut front_end, offered) = loop {
            match begin() {
                Ok(begun) => break begun,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(self.features & !offered, 0, "{offered:#x}");
        let protocol = front_end.get_protocol_features().unwrap();
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        // QEMU's own server, which a bench compares with, keeps no record of requests in flight.
        assert!(!self.needs_record || protocol.contains(wanted), "{protocol:?}");
        let wanted = wanted & protocol;
        front_end.set_protocol_features(wanted).unwrap();
        if wanted.contains(VhostUserProtocolFeatures::BACKEND_REQ) {
            front_end.set_backend_request_fd(&self.channel).unwrap();
        }
        front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert!(front_end.get_queue_num().unwrap() >= self.rings.len() as u64);
        front_end.set_features(self.features).unwrap();
        match &self.in_flight {
            _ if !wanted.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD) => {}
            Some((kept, file)) => front_end.set_inflight_fd(kept, file.as_raw_fd())?,
            None => {
                let wanted = VhostUserInflight::new(0, 0, self.rings.len() as u16, ANNOUNCED);
                let (given, file) = front_end.get_inflight_fd(&wanted).unwrap();
                front_end.set_inflight_fd(&given, file.as_raw_fd()).unwrap();
                self.in_flight = Some((given, file));
            }
        }
        front_end.set_mem_table(&[self.region()]).unwrap();
        self.front_end = Some(front_end);
        for ring in 0..self.rings.len() {
            // What QEMU knows of a back end that has died: it had taken all that is complete.
            self.start_ring(ring, self.used_index(ring));
        }
        Ok(())
    }

    /// Starts a ring whose next request is that of `base`.
    pub fn start_ring(&mut self, index: usize, base: u16) {
        let at = |offset: u64| self.user_address() + index as u64 * RING_BYTES + offset;
        let places = VringConfigData {
            queue_max_size: RING,
            queue_size: RING,
            flags: 0,
            desc_table_addr: at(0),
            used_ring_addr: at(USED),
            avail_ring_addr: at(AVAILABLE),
            log_addr: None,
        };
        let (front_end, ring) = (self.front_end.as_mut().unwrap(), &self.rings[index]);
        front_end.set_vring_num(index, RING).unwrap();
        front_end.set_vring_base(index, base).unwrap();
        front_end.set_vring_addr(index, &places).unwrap();
        front_end.set_vring_kick(index, &ring.kick).unwrap();
        front_end.set_vring_call(index, &ring.call).unwrap();
        front_end.set_vring_enable(index, true).unwrap();
    }

    pub fn front_end(&mut self) -> &mut Frontend {
        self.front_end.as_mut().unwrap()
    }

    /// Hangs up, as a machine does that ends.
    pub fn disconnect(&mut self) {
        self.front_end = None;
    }

    /// Forgets what was in flight, as a machine that restarts does.
    pub fn reset(&mut self) {
        self.disconnect();
        self.in_flight = None;
        let zeros = vec![0; (self.rings.len() as u64 * RING_BYTES) as usize];
        self.memory.write_slice(&zeros, GuestAddress(0)).unwrap();
        for ring in &mut self.rings {
            (ring.available, ring.told, ring.used) = (0, 0, 0);
        }
    }

    /// Cuts the memory short that is shared.
    pub fn take_memory_back(&self) {
        self.file.set_len(0).unwrap();
    }

    pub fn config(&mut self, offset: u32, length: u32) -> Vec<u8> {
        let buffer = vec![0; length as usize];
        let front_end = self.front_end();
        front_end.get_config(offset, length, VhostUserConfigFlags::empty(), &buffer).unwrap().1
    }

    /// Gives a ring another event to be called by, and says whether the device uses it at once.
    pub fn is_called_anew(&mut self, ring: usize) -> bool {
        let call = EventFd::new(EFD_NONBLOCK).unwrap();
        self.front_end().set_vring_call(ring, &call).unwrap();
        self.rings[ring].call = call;
        wait_for(&self.rings[ring].call)
    }

    /// Gives a ring an event to be called by whose counter is full: a signal waits for as long as that.
    pub fn fill_call(&mut self, ring: usize) {
        let call = EventFd::new(0).unwrap();
        call.write(u64::MAX - 1).unwrap();
        self.front_end().set_vring_call(ring, &call).unwrap();
        self.rings[ring].call = call;
    }

    pub fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY,
            userspace_addr: self.user_address(),
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    fn user_address(&self) -> u64 {
        let region = self.memory.find_region(GuestAddress(0)).unwrap();
        region.get_host_address(vm_memory::MemoryRegionAddress(0)).unwrap() as u64
    }

    fn used_index(&self, ring: usize) -> u16 {
        self.memory.load(GuestAddress(ring as u64 * RING_BYTES + USED + 2), Ordering::Acquire).unwrap()
    }

    fn slot(&self, ring: usize, slot: u16) -> u64 {
        let rings = (self.rings.len() as u64 * RING_BYTES).next_multiple_of(1 << 20);
        rings + (ring as u64 * u64::from(SLOTS) + u64::from(slot)) * SLOT_BYTES
    }

    /// Sets a descriptor of a ring.
    pub fn descriptor(&self, ring: usize, index: u16, of: (u64, u32, u16, u16)) {
        self.write_descriptor(ring as u64 * RING_BYTES + u64::from(index) * 16, of);
    }

    fn write_descriptor(&self, at: u64, (address, length, flags, next): (u64, u32, u16, u16)) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        self.memory.write_slice(&bytes, GuestAddress(at)).unwrap();
    }

    /// Puts a request into a ring without telling of it. `out` is what the device reads, `room` what it may
    /// write besides the status.
    pub fn put(&mut self, ring: usize, slot: u16, kind: u32, sector: u64, out: &[u8], room: u32) {
        let place = self.slot(ring, slot);
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.memory.write_slice(&header, GuestAddress(place)).unwrap();
        self.memory.write_slice(&[0xff], GuestAddress(place + STATUS)).unwrap();
        self.memory.write_slice(out, GuestAddress(place + DATA)).unwrap();
        let mut parts = vec![(place, 16, 0)];
        if !out.is_empty() {
            parts.push((place + DATA, out.len() as u32, 0));
        }
        if room > 0 {
            parts.push((place + DATA, room, WRITABLE));
        }
        parts.push((place + STATUS, 1, WRITABLE));
        let (table, first) = if self.indirect {
            self.descriptor(ring, 3 * slot, (place + TABLE, 16 * parts.len() as u32, IS_TABLE, 0));
            (place + TABLE, 0)
        } else {
            (ring as u64 * RING_BYTES, 3 * slot)
        };
        let last = parts.len() - 1;
        for (number, (address, length, flags)) in parts.into_iter().enumerate() {
            let index = first + number as u16;
            let flags = flags | if number < last { NEXT } else { 0 };
            self.write_descriptor(table + u64::from(index) * 16, (address, length, flags, index + 1));
        }
        self.make_available(ring, 3 * slot);
    }

    /// Puts the head of a chain into the available ring.
    pub fn make_available(&mut self, ring: usize, head: u16) {
        let base = ring as u64 * RING_BYTES + AVAILABLE;
        let at = base + 4 + u64::from(self.rings[ring].available % RING) * 2;
        self.memory.write_obj(head, GuestAddress(at)).unwrap();
        let next = self.rings[ring].available.wrapping_add(1);
        self.set_available(ring, next);
    }

    pub fn set_available(&mut self, ring: usize, index: u16) {
        self.rings[ring].available = index;
        let base = ring as u64 * RING_BYTES + AVAILABLE;
        self.memory.store(index, GuestAddress(base + 2), Ordering::Release).unwrap();
        fence(Ordering::SeqCst);
    }

    /// Tells the device that there is something in a ring.
    pub fn kick(&self, ring: usize) {
        self.rings[ring].kick.write(1).unwrap();
    }

    /// The same, if the device wants to be told: it says at which index.
    pub fn kick_if_wanted(&mut self, ring: usize) {
        let event = ring as u64 * RING_BYTES + USED + 4 + 8 * u64::from(RING);
        fence(Ordering::SeqCst);
        let event: u16 = self.memory.load(GuestAddress(event), Ordering::SeqCst).unwrap();
        let (available, told) = (self.rings[ring].available, self.rings[ring].told);
        self.rings[ring].told = available;
        if available.wrapping_sub(event).wrapping_sub(1) < available.wrapping_sub(told) {
            self.kick(ring);
        }
    }

    /// The slots whose requests are complete since the last call.
    pub fn completed(&mut self, ring: usize) -> Vec<u16> {
        let mut slots = Vec::new();
        let base = ring as u64 * RING_BYTES + USED;
        while self.rings[ring].used != self.used_index(ring) {
            let at = base + 4 + u64::from(self.rings[ring].used % RING) * 8;
            let head: u32 = self.memory.read_obj(GuestAddress(at)).unwrap();
            slots.push(head as u16 / 3);
            self.rings[ring].used = self.rings[ring].used.wrapping_add(1);
        }
        if self.features & EVENT_INDEX != 0 {
            // Wants to be told of the next one.
            let event = ring as u64 * RING_BYTES + AVAILABLE + 4 + 2 * u64::from(RING);
            self.memory.store(self.rings[ring].used, GuestAddress(event), Ordering::SeqCst).unwrap();
        }
        slots
    }

    /// Waits until so many more requests are complete, and returns their slots. It looks only when the device
    /// has signalled: a signal that is missing is a request that never ends.
    pub fn await_completed(&mut self, ring: usize, count: usize) -> Vec<u16> {
        let end = Instant::now() + PATIENCE;
        let mut slots = self.completed(ring);
        while slots.len() < count {
            assert!(
                Instant::now() < end,
                "waited in vain for {count} requests, {} are complete",
                slots.len()
            );
            if wait_for(&self.rings[ring].call) {
                // Another look may have taken it.
                let _ = self.rings[ring].call.read();
                slots.extend(self.completed(ring));
            }
        }
        slots
    }

    pub fn status(&self, ring: usize, slot: u16) -> u8 {
        self.memory.read_obj(GuestAddress(self.slot(ring, slot) + STATUS)).unwrap()
    }

    pub fn data(&self, ring: usize, slot: u16, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.memory.read_slice(&mut data, GuestAddress(self.slot(ring, slot) + DATA)).unwrap();
        data
    }

    /// One request, from begin to end: its status, and what the device has written.
    pub fn request(&mut self, kind: u32, sector: u64, out: &[u8], room: u32) -> (u8, Vec<u8>) {
        self.put(0, 0, kind, sector, out, room);
        self.kick(0);
        assert_eq!(self.await_completed(0, 1), [0]);
        (self.status(0, 0), self.data(0, 0, room as usize))
    }
}

/// Waits for a signal, for a second at most; says whether it came.
fn wait_for(event: &EventFd) -> bool {
    // SAFETY: the descriptor is open for as long as the event, which outlives the call.
    let fd = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&second)).is_ok_and(|ready| ready > 0)
}
