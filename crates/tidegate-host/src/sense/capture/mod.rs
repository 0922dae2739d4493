//! Packets that pass an interface, and what they tell of an array that runs nothing of ours.
//!
//! A thread reads the kernel's ring as blocks come, and shows the packets to a [`WireObserver`]. Nothing of
//! it is in the way of the packets. If the thread is late, copies are lost: they are counted, and what they
//! might have told is unknown.

mod block;
mod filter;
mod ring;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;
use tidegate_units::Instant;
use tidegate_wire::WireObserver;

pub use filter::MOST_PORTS;
pub use tidegate_wire::{
    ConnectionView, Nexus, NexusReport, NexusTotals, OperationCount, RecalledSession, StorageProtocol,
    WireCounters, WireReport,
};

use self::ring::PacketRing;

/// The bytes of a packet that are captured by default: all of them.
///
/// A header can be anywhere in a packet, above all where interfaces join packets. See `docs/guide/bridge.md`
/// for what less costs and misses.
pub const WHOLE_PACKETS: u32 = 1 << 18;

/// The least bytes of a packet: the headers up to TCP, with options, and one of iSCSI.
pub const LEAST_SNAP: u32 = 192;

/// The longest sleep of the thread: it notices then that it is to end.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The time between two attempts to open a ring on an interface that went away.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// A step of the clock of real time, which packets are stamped by. Smaller changes are its adjustment.
const CLOCK_STEP: i64 = 1_000_000;

/// The reason that packets cannot be seen.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The interface cannot be watched.
    #[error("cannot watch the packets of {interface}: {source}{}", remedy(source))]
    Interface {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread that reads packets: {0}")]
    Thread(io::Error),
}

/// The remedy for a refusal of the kernel's.
fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM) => "; CAP_NET_RAW is needed",
        Some(libc::ENODEV) => "; `ip link` names the interfaces of this network namespace",
        Some(libc::EAFNOSUPPORT) => "; the kernel needs CONFIG_PACKET, or the module af_packet",
        _ => "",
    }
}

/// A capture as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureConfig {
    /// The interface that leads to the array.
    pub interface: String,
    /// The array's ports.
    pub ports: BTreeSet<u16>,
    /// The bytes of each packet that are captured.
    pub snap: u32,
}

/// A running capture.
#[derive(Debug)]
pub struct PacketCapture {
    shared: Arc<SharedCapture>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedCapture {
    config: CaptureConfig,
    observer: Mutex<WireObserver>,
    /// The reason that nothing is seen now.
    failure: Mutex<Option<io::Error>>,
    ends: AtomicBool,
}

/// The knowledge of a capture, and its time.
#[derive(Debug)]
pub struct CapturedTraffic {
    /// Everything that was seen.
    pub report: WireReport,
    /// The capture's clock now. [`NexusReport::oldest_read`] is on it.
    pub now: Instant,
}

impl PacketCapture {
    /// Begins to capture.
    ///
    /// # Errors
    /// When the interface is not there, or may not be watched.
    pub fn start(
        config: CaptureConfig,
        known: impl IntoIterator<Item = RecalledSession>,
    ) -> Result<Self, CaptureError> {
        let ring = open(&config)?;
        let mut observer = WireObserver::new(config.ports.clone());
        observer.recall(known);
        let observer = Mutex::new(observer);
        let shared = Arc::new(SharedCapture {
            config,
            observer,
            failure: Mutex::new(None),
            ends: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("capture".to_owned()).spawn(move || of_thread.run(ring));
        Ok(Self { shared, thread: Some(thread.map_err(CaptureError::Thread)?) })
    }

    /// Returns what is known now.
    ///
    /// # Errors
    /// When packets cannot be seen.
    pub fn report(&self) -> Result<CapturedTraffic, CaptureError> {
        if let Some(error) = &*lock(&self.shared.failure) {
            let source =
                error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            return Err(CaptureError::Interface { interface: self.shared.config.interface.clone(), source });
        }
        let now = monotonic();
        Ok(CapturedTraffic { report: lock(&self.shared.observer).report(now), now })
    }

    /// Returns the sessions whose names are known.
    #[must_use]
    pub fn sessions(&self) -> Vec<RecalledSession> {
        lock(&self.shared.observer).sessions().collect()
    }
}

impl Drop for PacketCapture {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported, and there is nothing left to end.
            let _ = thread.join();
        }
    }
}

/// Verifies that an interface can be watched here.
///
/// # Errors
/// When it is not there, or may not be watched.
pub fn probe(config: &CaptureConfig) -> Result<(), CaptureError> {
    open(config).map(drop)
}

fn open(config: &CaptureConfig) -> Result<PacketRing, CaptureError> {
    let CaptureConfig { interface, ports, snap } = config;
    PacketRing::open(interface, ports, *snap)
        .map_err(|source| CaptureError::Interface { interface: interface.clone(), source })
}

impl SharedCapture {
    /// Reads packets until the capture ends. When the interface goes, it is waited for.
    fn run(&self, ring: PacketRing) {
        let mut ring = Some(ring);
        let mut clock = PacketClock::now();
        while !self.ends.load(Ordering::Relaxed) {
            let Some(open_ring) = &mut ring else {
                self.sleep();
                let CaptureConfig { interface, ports, snap } = &self.config;
                match PacketRing::open(interface, ports, *snap) {
                    Ok(opened) => {
                        ring = Some(opened);
                        *lock(&self.failure) = None;
                    }
                    Err(error) => *lock(&self.failure) = Some(error),
                }
                continue;
            };
            if let Err(error) = self.read(open_ring, &mut clock) {
                // Whatever passes meanwhile is not seen.
                lock(&self.observer).interrupt();
                *lock(&self.failure) = Some(error);
                ring = None;
            }
        }
    }

    fn sleep(&self) {
        let mut slept = Duration::ZERO;
        while slept < BETWEEN_ATTEMPTS && !self.ends.load(Ordering::Relaxed) {
            thread::sleep(LONGEST_WAIT);
            slept += LONGEST_WAIT;
        }
    }

    /// Waits for packets, and shows the observer those that have come.
    fn read(&self, ring: &mut PacketRing, clock: &mut PacketClock) -> io::Result<()> {
        ring.wait(LONGEST_WAIT)?;
        let stepped = clock.follow();
        if stepped {
            lock(&self.observer).interrupt();
        }
        let offset = clock.offset;
        while ring.next_block(|block| {
            let mut observer = lock(&self.observer);
            for packet in block::packets(block) {
                observer.receive(to_monotonic(packet.at, offset), packet.frame, packet.length);
            }
        }) {}
        if stepped {
            // Packets from before and after the step cannot be told apart.
            lock(&self.observer).interrupt();
        }
        let lost = ring.lost()?;
        if lost > 0 {
            lock(&self.observer).lose(monotonic(), u64::from(lost));
        }
        Ok(())
    }
}

/// The clock of real time against the one that never steps.
#[derive(Debug)]
struct PacketClock {
    /// Nanoseconds that real time is ahead.
    offset: i64,
}

impl PacketClock {
    fn now() -> Self {
        Self { offset: offset() }
    }

    /// Follows the clock. Returns true if it stepped.
    fn follow(&mut self) -> bool {
        let before = std::mem::replace(&mut self.offset, offset());
        before.abs_diff(self.offset) > CLOCK_STEP.unsigned_abs()
    }
}

fn nanoseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn offset() -> i64 {
    nanoseconds(ClockId::Realtime) - nanoseconds(ClockId::Monotonic)
}

fn monotonic() -> Instant {
    Instant::from_nanos(nanoseconds(ClockId::Monotonic).unsigned_abs())
}

fn to_monotonic(realtime: u64, offset: i64) -> Instant {
    Instant::from_nanos(realtime.saturating_add_signed(-offset))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The observer's state is whole after each packet, whatever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
