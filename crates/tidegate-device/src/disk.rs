//! One mechanical disk: a queue in front of a mechanism.
//!
//! The controller's overhead delays a request between its arrival and the moment the arm may move for it; it
//! overlaps with the service of others, so a disk with a queue never waits for its controller. Left out,
//! because no experiment here needs them: zones (the media rate is the same everywhere) and the drive's own
//! buffer (no read-ahead, no write cache). A flush therefore has nothing to do and completes at once.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_units::{Bytes, Instant, Latency};

use crate::config_error::{DeviceConfigError, require};
use crate::disk_config::{DiskConfig, QueueConfig};
use crate::io::{DeviceCompletion, DeviceIo, IoKind};
use crate::mechanism::{Mechanism, SECTOR, SectorRange};

/// A disk as part of something: requests carry a tag, and a completed tag is handed back.
#[derive(Debug, Clone)]
pub(crate) struct Spindle {
    mechanism: Mechanism,
    overhead: Latency,
    order: Order,
    depth: usize,
    max_age: Latency,
    /// Requests in order of arrival.
    queue: VecDeque<Queued>,
    serving: Option<(Instant, u64)>,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Upwards,
    Nearest,
}

#[derive(Debug, Clone)]
struct Queued {
    tag: u64,
    extent: SectorRange,
    arrived: Instant,
    /// The controller is done with it.
    ready: Instant,
}

impl Spindle {
    /// The random number decides where the platter stands at the origin of the clock.
    pub(crate) fn new(config: &DiskConfig, random: u64) -> Result<Self, DeviceConfigError> {
        let (order, depth, max_age, parameter) = match config.queue {
            QueueConfig::Fifo => (Order::Upwards, 1, Latency::MAX, "queue"),
            QueueConfig::Elevator { depth, max_age } => {
                (Order::Upwards, depth, max_age, "queue.elevator.depth")
            }
            QueueConfig::ShortestSeek { depth, max_age } => {
                (Order::Nearest, depth, max_age, "queue.shortest-seek.depth")
            }
        };
        require((1..=1024).contains(&depth), parameter, "between 1 and 1024")?;
        Ok(Self {
            mechanism: Mechanism::new(config, random)?,
            overhead: config.overhead,
            order,
            depth: depth as usize,
            max_age,
            queue: VecDeque::new(),
            serving: None,
        })
    }

    pub(crate) const fn capacity(&self) -> Bytes {
        Bytes::new(self.mechanism.sectors() * SECTOR)
    }

    pub(crate) fn submit(&mut self, now: Instant, tag: u64, extent: SectorRange) {
        self.queue.push_back(Queued { tag, extent, arrived: now, ready: now + self.overhead });
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        match self.serving {
            Some((ends, _)) => Some(ends),
            None => self.queue.front().map(|queued| queued.ready),
        }
    }

    /// Carries out the event due at `at`. Returns the tag of the request that is done, if one is.
    pub(crate) fn step(&mut self, at: Instant) -> Option<u64> {
        let done = self.serving.take().map(|(_, tag)| tag);
        if let Some(next) = self.choose(at).and_then(|index| self.queue.remove(index)) {
            self.serving = Some((self.mechanism.access(at, next.extent), next.tag));
        }
        done
    }

    fn choose(&self, at: Instant) -> Option<usize> {
        let oldest = self.queue.front().filter(|queued| queued.ready <= at)?;
        if self.depth == 1 || at.latency_since(oldest.arrived) > self.max_age {
            return Some(0);
        }
        // Ready in the order of arrival, since the overhead is the same for all.
        let ready = self.queue.iter().take(self.depth).take_while(|queued| queued.ready <= at).enumerate();
        let head = self.mechanism.head();
        let chosen = match self.order {
            Order::Upwards => {
                ready.min_by_key(|(_, queued)| (queued.extent.first < head, queued.extent.first))
            }
            Order::Nearest => ready.min_by_key(|(_, queued)| queued.extent.first.abs_diff(head)),
        };
        chosen.map(|(index, _)| index)
    }
}

/// A disk on its own.
#[derive(Debug, Clone)]
pub(crate) struct SingleDisk {
    spindle: Spindle,
}

impl SingleDisk {
    pub(crate) fn new(config: &DiskConfig, seed: u64) -> Result<Self, DeviceConfigError> {
        let random = Pcg64::seed_from_u64(seed).next_u64();
        Ok(Self { spindle: Spindle::new(config, random)? })
    }

    pub(crate) const fn capacity(&self) -> Bytes {
        self.spindle.capacity()
    }

    pub(crate) fn submit(
        &mut self,
        now: Instant,
        id: u64,
        io: DeviceIo,
        done: &mut VecDeque<DeviceCompletion>,
    ) {
        match io.kind {
            IoKind::Flush => done.push_back(DeviceCompletion { id, at: now }),
            IoKind::Read => self.queue(now, id, io, false),
            IoKind::Write { .. } => self.queue(now, id, io, true),
        }
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        self.spindle.next_event()
    }

    pub(crate) fn step(&mut self, at: Instant, done: &mut VecDeque<DeviceCompletion>) {
        done.extend(self.spindle.step(at).map(|id| DeviceCompletion { id, at }));
    }

    fn queue(&mut self, now: Instant, id: u64, io: DeviceIo, write: bool) {
        self.spindle.submit(now, id, SectorRange::of_bytes(write, io.offset, u64::from(io.bytes)));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::seek::SeekConfig;

    pub(crate) fn config() -> DiskConfig {
        DiskConfig {
            rpm: 7_200,
            cylinders: 1_000,
            heads: 4,
            sectors_per_track: 500,
            seek: SeekConfig {
                track_to_track: Latency::from_micros(800),
                average: Latency::from_micros(8_500),
                full_stroke: Latency::from_millis(18),
                knee: 0.2,
            },
            head_switch: Latency::from_micros(1_000),
            write_settle: Latency::from_micros(500),
            overhead: Latency::from_micros(200),
            queue: QueueConfig::Fifo,
        }
    }

    fn order_of(queue: QueueConfig, sectors: &[u64]) -> Vec<u64> {
        let mut disk = Spindle::new(&DiskConfig { queue, ..config() }, 0).unwrap();
        for (tag, first) in (0..).zip(sectors) {
            disk.submit(Instant::ZERO, tag, SectorRange { write: false, first: *first, sectors: 8 });
        }
        let mut order = Vec::new();
        while let Some(at) = disk.next_event() {
            order.extend(disk.step(at).map(|tag| sectors[tag as usize]));
        }
        order
    }

    #[test]
    fn fifo_serves_as_they_came() {
        assert_eq!(order_of(QueueConfig::Fifo, &[900, 100, 500]), [900, 100, 500]);
    }

    #[test]
    fn the_elevator_goes_up_and_starts_over_among_those_it_sees() {
        let elevator = |depth| QueueConfig::Elevator { depth, max_age: Latency::MAX };
        // The arm starts at sector 0, so the first round is from the lowest.
        assert_eq!(order_of(elevator(32), &[900, 100, 500, 300]), [100, 300, 500, 900]);
        // Two in sight: after 100 the choice is between 900 and 500, then between 900 and 300.
        assert_eq!(order_of(elevator(2), &[900, 100, 500, 300]), [100, 500, 900, 300]);
    }

    #[test]
    fn the_nearest_is_served_next_among_those_it_sees() {
        let nearest = |depth| QueueConfig::ShortestSeek { depth, max_age: Latency::MAX };
        // After 100 the head stands behind it, at 108: 300 is nearer than 900, and 260 nearer than both.
        assert_eq!(order_of(nearest(32), &[900, 100, 260, 300, 40]), [40, 100, 260, 300, 900]);
        // Three in sight: 260 comes into sight only once 100 is gone, and 40 once 260 is.
        assert_eq!(order_of(nearest(3), &[900, 100, 300, 260, 40]), [100, 260, 300, 40, 900]);
    }

    #[test]
    fn a_stream_just_ahead_of_the_arm_starves_nobody() {
        let max_age = Latency::from_millis(50);
        let queue = QueueConfig::Elevator { depth: 32, max_age };
        let mut disk = Spindle::new(&DiskConfig { queue, ..config() }, 0).unwrap();
        let stream = |n: u64| SectorRange { write: true, first: 10_000 + n * 8, sectors: 8 };
        for n in 0..4 {
            disk.submit(Instant::ZERO, 0, stream(n));
        }
        // Once the stream is being served, the lone request lies below the arm.
        let begun = disk.next_event().unwrap();
        disk.step(begun);
        disk.submit(begun, 1, SectorRange { write: false, first: 0, sectors: 8 });
        let mut n = 4;
        let victim_done = loop {
            let at = disk.next_event().unwrap();
            if disk.step(at) == Some(1) {
                break at;
            }
            disk.submit(at, 0, stream(n));
            n += 1;
        };
        assert!(victim_done.latency_since(Instant::ZERO) < Latency::from_millis(100), "{victim_done:?}");
    }
}
