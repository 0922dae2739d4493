//! A packet socket with a ring that it shares with the kernel (`AF_PACKET`, `TPACKET_V3`).
//!
//! The kernel copies the packets that the filter lets pass into blocks, and hands over a block when it is
//! full or some milliseconds old. Packets themselves go their way: a ring that is full only makes the copy be
//! dropped, and counted.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, netdevice, socket, sockopt};

use super::filter;

/// The size of a block. A packet is at most 64 KiB, unless interfaces form larger ones (BIG TCP).
const BLOCK: usize = 1 << 20;

/// The number of blocks: room for 16 MiB, a tenth of a second at 1 Gbit/s if all is captured.
const BLOCKS: usize = 16;

/// The age at which a block is handed over, in milliseconds: a tenth of the shortest control interval.
const BLOCK_AGE_MS: u32 = 10;

/// The offset of the status in a block's description.
const STATUS: usize = 8;

/// A packet socket and its ring.
#[derive(Debug)]
pub(super) struct PacketRing {
    socket: OwnedFd,
    memory: ptr::NonNull<u8>,
    /// The block that is handed over next.
    next: usize,
}

// SAFETY: the memory belongs to this value alone, and the kernel does not care which thread reads it.
unsafe impl Send for PacketRing {}

impl PacketRing {
    /// Captures what passes an interface in both directions, from now on.
    pub(super) fn open(interface: &str, ports: &BTreeSet<u16>, snap: u32) -> io::Result<Self> {
        let index = interface_index(interface)?;
        // With protocol 0 no packet arrives before the ring is set up.
        // SAFETY: a system call without pointers.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let too_many = || io::Error::new(io::ErrorKind::InvalidInput, "too many ports for a filter");
        let mut instructions = filter::program(ports, snap).ok_or_else(too_many)?;
        let len = u16::try_from(instructions.len()).map_err(|_| too_many())?;
        let program = libc::sock_fprog { len, filter: instructions.as_mut_ptr() };
        set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V3)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            // Without meaning for this version, but checked.
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCK / 2048 * BLOCKS) as u32,
            tp_retire_blk_tov: BLOCK_AGE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: the kernel chooses a free place, and the result is checked.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BLOCK * BLOCKS,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = ptr::NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = Self { socket, memory, next: 0 };
        ring.bind(index)?;
        Ok(ring)
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: all fields of this structure may be zero.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the address is a structure of this length, which the kernel only reads.
        let bound = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits until a block is handed over, at most for so long.
    ///
    /// # Errors
    /// When the interface is down or gone.
    pub(super) fn wait(&self, longest: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(longest).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::ERR)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if polled[0].revents().contains(PollFlags::ERR) {
            return Err(match sockopt::socket_error(&self.socket)? {
                Ok(()) => io::Error::other("the packet socket reports an error"),
                Err(error) => error.into(),
            });
        }
        Ok(())
    }

    /// Hands `each` the next block, and gives it back to the kernel. Returns false if none is ready.
    pub(super) fn next_block(&mut self, each: impl FnOnce(&[u8])) -> bool {
        // SAFETY: the place is within the ring. The kernel writes the status as a whole.
        let (begin, status) = unsafe {
            let begin = self.memory.add(self.next * BLOCK);
            (begin, AtomicU32::from_ptr(begin.add(STATUS).cast().as_ptr()))
        };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the block is ours until its status changes, which happens below, after the last use.
        each(unsafe { std::slice::from_raw_parts(begin.as_ptr(), BLOCK) });
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % BLOCKS;
        true
    }

    /// Returns the number of packets without room since the last call.
    pub(super) fn lost(&self) -> io::Result<u32> {
        let mut statistics = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: the kernel writes no more than `length` bytes to the structure.
        let asked = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if asked < 0 { Err(io::Error::last_os_error()) } else { Ok(statistics.tp_drops) }
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the place and length of the mapping, which nothing refers to any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK * BLOCKS) };
    }
}

/// Returns the number of an interface.
pub(super) fn interface_index(interface: &str) -> io::Result<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(netdevice::name_to_index(any, interface)?)
}

fn set_option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads the value, which is a structure of this length as the option wants it.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
