//! A flash device: dies in parallel behind a write buffer, a controller and a link.
//!
//! A read occupies the controller's dispatch and the link, and a die for each page it touches. A write is
//! acknowledged once it is in the buffer. Pages leave the buffer for any die that is free, so reads of that
//! die wait behind the program.
//!
//! Every page written at random leaves garbage behind. Collecting it moves other pages, the more the less
//! flash is spare, and every full block is erased. Collection lags behind writes by at most the reserve of
//! erased space. A device at rest thus takes a burst at full speed, and slows down once the reserve is used.
//!
//! Writes that continue one of the last 32 streams are sequential. They overwrite whole blocks, and leave no
//! page to move.
//!
//! Left out: the placement of single pages (garbage follows from the over-provisioning), reading ahead, reads
//! of data that is still in the buffer, and wear. The buffer survives a loss of power, as a data-centre
//! drive's does, so a flush has nothing to do and completes at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{ByteRate, Bytes, Instant, Latency};

use crate::config_error::{DeviceConfigError, require};
use crate::io::{DeviceCompletion, DeviceIo, IoKind};
use crate::lane::{Lane, transfer_time};

/// A solid-state drive of NAND flash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlashConfig {
    /// Number of bytes that it offers.
    #[serde(with = "tidegate_units::text")]
    pub capacity: Bytes,
    /// Number of units that read, program and erase independently; 1 to 1024. A controller that programs
    /// several planes or dies at once has fewer, larger ones.
    pub dies: u32,
    /// Number of bytes that one program writes: a multiple of 4 KiB, up to 1 MiB. Consecutive pages lie on
    /// consecutive dies.
    #[serde(with = "tidegate_units::text")]
    pub page: Bytes,
    /// Number of pages that one erase frees; 1 to 65536.
    pub block_pages: u32,
    /// Time that a die needs to read (part of) a page.
    #[serde(with = "tidegate_units::text")]
    pub read: Latency,
    /// Time that a die needs to program a page.
    #[serde(with = "tidegate_units::text")]
    pub program: Latency,
    /// Time that a die needs to erase a block.
    #[serde(with = "tidegate_units::text")]
    pub erase: Latency,
    /// The part of page reads that need a further attempt, 0 to 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: f64,
    /// Time that the further attempt needs.
    #[serde(default = "no_time", with = "tidegate_units::text")]
    pub retry: Latency,
    /// Number of reads of a die that pass a waiting program before it is its turn.
    pub reads_first: u32,
    /// Spare flash as a part of the capacity, 0.01 to 1: it decides how many pages are moved for each page
    /// that is written at random, `(1 + s)/2s − 1`.
    pub over_provisioning: f64,
    /// Erased space of a device at rest. It takes writes while garbage collection lags behind.
    #[serde(with = "tidegate_units::text")]
    pub reserve: Bytes,
    /// Bytes of mapping tables that each write at random adds to its own.
    #[serde(with = "tidegate_units::text")]
    pub mapping: Bytes,
    /// Size of the write buffer: at least a page, up to 16 GiB.
    #[serde(with = "tidegate_units::text")]
    pub buffer: Bytes,
    /// Time for which a request occupies the controller's dispatch and the link beside its data.
    #[serde(with = "tidegate_units::text")]
    pub command: Latency,
    /// Bandwidth of the link.
    #[serde(with = "tidegate_units::text")]
    pub link: ByteRate,
    /// True if reads and writes share the link (SATA); false if each direction has all of it (PCIe).
    #[serde(default)]
    pub half_duplex: bool,
    /// Constant part of every response time: interface and firmware, which overlap between requests.
    #[serde(with = "tidegate_units::text")]
    pub latency: Latency,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    *value <= 0.0
}

const fn no_time() -> Latency {
    Latency::ZERO
}

/// Number of sequential streams that it recognises at once.
const STREAMS: usize = 32;

const KIB_4: u64 = 4096;
const MAX_BUFFER: Bytes = Bytes::from_gib(16);

#[derive(Debug, Clone)]
pub(crate) struct FlashDevice {
    page: u64,
    block_pages: u32,
    read: Latency,
    program: Latency,
    erase: Latency,
    retries: f64,
    retry: Latency,
    reads_first: u32,
    /// Bytes to move per byte written at random.
    amplification: f64,
    reserve: u64,
    mapping: u64,
    buffer: u64,
    command: Latency,
    nanos_per_byte: f64,
    half_duplex: bool,
    latency: Latency,
    rng: Pcg64,
    /// To the host; in half duplex, both directions.
    outbound: Lane,
    inbound: Lane,
    dies: Vec<Die>,
    /// Operations of dies by their ends. A die has one at most.
    working: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Dies with nothing to do; among them some that have become busy since, which is seen when they are
    /// taken.
    idle: VecDeque<u32>,
    /// Reads in progress; unused places are in `free_reads`.
    reads: Vec<ReadJob>,
    free_reads: Vec<u32>,
    /// Reads whose data is under way to the host, in the order of their ends.
    replies: VecDeque<(Instant, u64)>,
    /// Writes whose data is under way to the device, in the order of arrival.
    arriving: VecDeque<(Instant, BufferedWrite)>,
    /// Writes that wait for room in the buffer.
    waiting: VecDeque<BufferedWrite>,
    /// Acknowledgments of writes, in the order of their times.
    acknowledged: VecDeque<(Instant, u64)>,
    /// Bytes in the buffer.
    buffered: u64,
    /// The part of them for which no program has begun.
    gathered: u64,
    /// Bytes of valid data to move before the garbage is collected.
    debt: u64,
    /// Ends of the sequential streams, and the place of the next new one.
    streams: [u64; STREAMS],
    next_stream: usize,
}

#[derive(Debug, Clone, Default)]
struct Die {
    operation: Option<DieOperation>,
    /// Reads that wait, by their places.
    reads: VecDeque<u32>,
    /// Reads that have passed waiting programs.
    passed: u32,
    /// Pages programmed since the last erase.
    programmed: u32,
    /// It is in the list of idle dies.
    listed: bool,
}

#[derive(Debug, Clone, Copy)]
enum DieOperation {
    Read(u32),
    Program,
    Move,
    Erase,
}

#[derive(Debug, Clone, Copy)]
struct ReadJob {
    id: u64,
    bytes: u32,
    /// Pages that are not read yet.
    left: u32,
}

#[derive(Debug, Clone, Copy)]
struct BufferedWrite {
    id: u64,
    /// Bytes that have yet to enter the buffer.
    left: u64,
    /// True unless it continues a stream.
    random: bool,
}

impl FlashDevice {
    pub(crate) fn new(config: &FlashConfig, seed: u64) -> Result<Self, DeviceConfigError> {
        let page = config.page.get();
        require(config.capacity > Bytes::ZERO, "capacity", "more than nothing")?;
        require((1..=1024).contains(&config.dies), "dies", "between 1 and 1024")?;
        let whole = page > 0 && page.is_multiple_of(KIB_4) && page <= 1 << 20;
        require(whole, "page", "a multiple of 4 KiB, at most 1 MiB")?;
        require((1..=65_536).contains(&config.block_pages), "block-pages", "between 1 and 65536")?;
        require((0.0..=1.0).contains(&config.retries), "retries", "within 0 to 1")?;
        let spare = config.over_provisioning;
        require((0.01..=1.0).contains(&spare), "over-provisioning", "within 0.01 to 1")?;
        let holds_page = config.buffer >= config.page && config.buffer <= MAX_BUFFER;
        require(holds_page, "buffer", "at least one page, at most 16 GiB")?;
        require(config.mapping <= config.page, "mapping", "at most one page")?;
        require(config.reserve.get() <= 1 << 50, "reserve", "at most 1 PiB")?;
        require(config.link.per_second() >= 1.0, "link", "at least one byte per second")?;
        Ok(Self {
            page,
            block_pages: config.block_pages,
            read: config.read,
            program: config.program,
            erase: config.erase,
            retries: config.retries,
            retry: config.retry,
            reads_first: config.reads_first,
            // Desnoyers and others: greedy collection of uniformly written pages. A spare part of all of the
            // capacity leaves nothing to move.
            amplification: (1.0 + spare) / (2.0 * spare) - 1.0,
            reserve: config.reserve.get(),
            mapping: config.mapping.get(),
            buffer: config.buffer.get(),
            command: config.command,
            nanos_per_byte: 1e9 / config.link.per_second(),
            half_duplex: config.half_duplex,
            latency: config.latency,
            rng: Pcg64::seed_from_u64(seed),
            outbound: Lane::default(),
            inbound: Lane::default(),
            dies: vec![Die { listed: true, ..Die::default() }; config.dies as usize],
            working: BinaryHeap::new(),
            idle: (0..config.dies).collect(),
            reads: Vec::new(),
            free_reads: Vec::new(),
            replies: VecDeque::new(),
            arriving: VecDeque::new(),
            waiting: VecDeque::new(),
            acknowledged: VecDeque::new(),
            buffered: 0,
            gathered: 0,
            debt: 0,
            streams: [u64::MAX; STREAMS],
            next_stream: 0,
        })
    }

    /// Bytes in the write buffer.
    pub(crate) const fn dirty(&self) -> Bytes {
        Bytes::new(self.buffered)
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
            IoKind::Read => self.begin_read(now, id, io),
            IoKind::Write { .. } => {
                let random = !self.continues_stream(io);
                let time = self.occupied(io.bytes);
                let lane = if self.half_duplex { &mut self.outbound } else { &mut self.inbound };
                let at = lane.carry(now, time);
                let left = u64::from(io.bytes) + if random { self.mapping } else { 0 };
                self.arriving.push_back((at, BufferedWrite { id, left, random }));
            }
        }
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        let working = self.working.peek().map(|Reverse((at, _))| *at);
        let arriving = self.arriving.front().map(|(at, _)| *at);
        let reply = self.replies.front().map(|(at, _)| *at);
        let acknowledged = self.acknowledged.front().map(|(at, _)| *at);
        [working, arriving, reply, acknowledged].into_iter().flatten().min()
    }

    pub(crate) fn step(&mut self, at: Instant, done: &mut VecDeque<DeviceCompletion>) {
        for answers in [&mut self.replies, &mut self.acknowledged] {
            if let Some((_, id)) = answers.pop_front_if(|(due, _)| *due == at) {
                done.push_back(DeviceCompletion { id, at });
                return;
            }
        }
        if let Some((_, write)) = self.arriving.pop_front_if(|(due, _)| *due == at) {
            self.waiting.push_back(write);
            self.fill_buffer(at);
        } else if let Some(Reverse((_, die))) = self.working.pop() {
            self.end_operation(at, die);
        }
    }

    /// Time for which a request with so many bytes occupies its lane.
    fn occupied(&self, bytes: u32) -> Latency {
        self.command.saturating_add(transfer_time(u64::from(bytes), self.nanos_per_byte))
    }

    fn begin_read(&mut self, now: Instant, id: u64, io: DeviceIo) {
        let first = io.offset / self.page;
        let last = (io.offset + u64::from(io.bytes) - 1) / self.page;
        let job = ReadJob { id, bytes: io.bytes, left: (last - first + 1) as u32 };
        let place = match self.free_reads.pop() {
            Some(place) => {
                self.reads[place as usize] = job;
                place
            }
            None => {
                self.reads.push(job);
                (self.reads.len() - 1) as u32
            }
        };
        for page in first..=last {
            let die = (page % self.dies.len() as u64) as u32;
            self.dies[die as usize].reads.push_back(place);
            self.work(now, die);
        }
    }

    /// Returns true if a write begins where a recent one ended, and takes note of its end.
    fn continues_stream(&mut self, io: DeviceIo) -> bool {
        let end = io.offset + u64::from(io.bytes);
        if let Some(stream) = self.streams.iter_mut().find(|stream| **stream == io.offset) {
            *stream = end;
            return true;
        }
        self.streams[self.next_stream] = end;
        self.next_stream = (self.next_stream + 1) % STREAMS;
        false
    }

    /// Takes writes into the buffer as far as there is room. A write larger than the buffer passes through it
    /// piece by piece.
    fn fill_buffer(&mut self, now: Instant) {
        while let Some(write) = self.waiting.front_mut() {
            let entering = write.left.min(self.buffer - self.buffered);
            write.left -= entering;
            self.buffered += entering;
            self.gathered += entering;
            if write.random {
                self.debt += (entering as f64 * self.amplification) as u64;
            }
            if write.left > 0 {
                break;
            }
            self.acknowledged.push_back((now + self.latency, write.id));
            self.waiting.pop_front();
        }
        while self.has_write_work()
            && let Some(die) = self.idle.pop_front()
        {
            self.dies[die as usize].listed = false;
            self.work(now, die);
        }
    }

    /// Returns true if a page waits for a free die, or collection lags behind by more than the reserve.
    const fn has_write_work(&self) -> bool {
        self.gathered >= self.page || self.debt > self.reserve
    }

    /// Begins the next operation of a die unless it has one.
    fn work(&mut self, now: Instant, die: u32) {
        if self.dies[die as usize].operation.is_some() {
            return;
        }
        let Some(operation) = self.choose(die) else {
            let die_state = &mut self.dies[die as usize];
            if !die_state.listed {
                die_state.listed = true;
                self.idle.push_back(die);
            }
            return;
        };
        let time = match operation {
            DieOperation::Read(_) if self.retries > 0.0 && self.rng.random::<f64>() < self.retries => {
                self.read.saturating_add(self.retry)
            }
            DieOperation::Read(_) => self.read,
            DieOperation::Program => self.program,
            DieOperation::Move => self.read.saturating_add(self.program),
            DieOperation::Erase => self.erase,
        };
        self.dies[die as usize].operation = Some(operation);
        self.working.push(Reverse((now + time, die)));
    }

    /// Takes a die's next operation from its queue. Reads come first, but not for ever; then the erase that
    /// makes room, collection that can wait no longer, a page of the buffer, and collection that can wait.
    fn choose(&mut self, index: u32) -> Option<DieOperation> {
        let has_write_work = self.has_write_work();
        let die = &mut self.dies[index as usize];
        let must_erase = die.programmed >= self.block_pages;
        let due = must_erase || has_write_work;
        if (!due || die.passed < self.reads_first)
            && let Some(read) = die.reads.pop_front()
        {
            die.passed += u32::from(due);
            return Some(DieOperation::Read(read));
        }
        die.passed = 0;
        if must_erase {
            die.programmed = 0;
            return Some(DieOperation::Erase);
        }
        let program = self.gathered >= self.page && self.debt <= self.reserve;
        if program {
            self.gathered -= self.page;
            return Some(DieOperation::Program);
        }
        if self.debt >= self.page || self.debt > self.reserve {
            self.debt = self.debt.saturating_sub(self.page);
            return Some(DieOperation::Move);
        }
        die.reads.pop_front().map(DieOperation::Read)
    }

    fn end_operation(&mut self, at: Instant, index: u32) {
        let die = &mut self.dies[index as usize];
        match die.operation.take() {
            Some(DieOperation::Read(place)) => self.end_read(at, place),
            Some(DieOperation::Program) => {
                die.programmed += 1;
                self.buffered -= self.page;
            }
            Some(DieOperation::Move) => die.programmed += 1,
            Some(DieOperation::Erase) | None => {}
        }
        self.work(at, index);
        self.fill_buffer(at);
    }

    fn end_read(&mut self, at: Instant, place: u32) {
        let job = &mut self.reads[place as usize];
        job.left -= 1;
        if job.left == 0 {
            let ReadJob { id, bytes, .. } = *job;
            self.free_reads.push(place);
            let sent = self.outbound.carry(at, self.occupied(bytes));
            self.replies.push_back((sent + self.latency, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn config() -> FlashConfig {
        FlashConfig {
            capacity: Bytes::from_gib(1),
            dies: 4,
            page: Bytes::from_kib(16),
            block_pages: 64,
            read: Latency::from_micros(60),
            program: Latency::from_micros(800),
            erase: Latency::from_millis(3),
            retries: 0.0,
            retry: Latency::ZERO,
            reads_first: 8,
            over_provisioning: 0.25,
            reserve: Bytes::from_mib(32),
            mapping: Bytes::ZERO,
            buffer: Bytes::from_kib(256),
            command: Latency::from_micros(5),
            link: ByteRate::new(1e9),
            half_duplex: false,
            latency: Latency::from_micros(30),
        }
    }

    fn device(config: &FlashConfig) -> FlashDevice {
        FlashDevice::new(config, 1).unwrap()
    }

    fn micros(at: Instant) -> u64 {
        at.as_nanos() / 1_000
    }

    /// Runs the device to its end. Returns the completions by id and time in microseconds.
    fn finish(device: &mut FlashDevice) -> Vec<(u64, u64)> {
        let mut done = VecDeque::new();
        while let Some(at) = device.next_event() {
            device.step(at, &mut done);
        }
        done.into_iter().map(|one| (one.id, micros(one.at))).collect()
    }

    fn submit(device: &mut FlashDevice, at_micros: u64, id: u64, io: DeviceIo) {
        device.submit(Instant::from_nanos(at_micros * 1_000), id, io, &mut VecDeque::new());
    }

    #[test]
    fn a_read_takes_its_page_its_transfer_and_the_interface() {
        let mut device = device(&config());
        submit(&mut device, 0, 7, DeviceIo::read(0, 4096));
        // 60 for the page, 5 + 4.096 for the link, 30 for the interface.
        assert_eq!(finish(&mut device), [(7, 99)]);
    }

    #[test]
    fn a_read_waits_behind_the_program_of_its_die() {
        let mut device = device(&FlashConfig { dies: 1, ..config() });
        submit(&mut device, 0, 0, DeviceIo::write(0, 16 * 1024));
        // The page is in the buffer after 21 µs, and its program ends after 821.
        let mut done = VecDeque::new();
        device.step(device.next_event().unwrap(), &mut done);
        submit(&mut device, 100, 1, DeviceIo::read(0, 4096));
        assert_eq!(finish(&mut device), [(0, 51), (1, 821 + 99)]);
    }

    #[test]
    fn reads_pass_a_waiting_program_but_not_for_ever() {
        let config = FlashConfig { dies: 1, reads_first: 2, ..config() };
        let mut device = device(&config);
        for id in 0..5 {
            submit(&mut device, 0, id, DeviceIo::read(0, 4096));
        }
        submit(&mut device, 0, 9, DeviceIo::write(0, 16 * 1024));
        let reads: Vec<_> = finish(&mut device).into_iter().filter(|(id, _)| *id < 5).collect();
        // The first is being read when the write arrives; two pass its program, and two wait for it.
        assert_eq!(reads.iter().map(|(_, at)| at / 100).collect::<Vec<_>>(), [0, 1, 2, 10, 11]);
    }

    /// Writes for so long, with eight outstanding. Returns the MB/s of each tenth of a second.
    fn write_for(device: &mut FlashDevice, from: Instant, tenths: usize, random: bool) -> Vec<u64> {
        let (mut rng, mut next, mut bytes) = (Pcg64::seed_from_u64(1), 0, vec![0; tenths]);
        let mut issue = |device: &mut FlashDevice, now| {
            next = if random { rng.random_range(0..60_000) } else { (next + 1) % 60_000 };
            device.submit(now, 0, DeviceIo::write(next * 16_384, 16_384), &mut VecDeque::new());
        };
        (0..8).for_each(|_| issue(device, from));
        let mut done = VecDeque::new();
        while let Some(at) = device.next_event() {
            device.step(at, &mut done);
            for one in done.drain(..) {
                let tenth = (one.at.latency_since(from).as_nanos() / 100_000_000) as usize;
                if tenth < tenths {
                    bytes[tenth] += 16_384;
                    issue(device, one.at);
                }
            }
        }
        bytes.into_iter().map(|bytes| bytes / 100_000).collect()
    }

    #[test]
    fn sustained_random_writes_slow_down_once_the_reserve_is_used_and_rest_restores_it() {
        let mut device = device(&config());
        let rates = write_for(&mut device, Instant::ZERO, 10, true);
        // Four dies program 82 MB/s. Each byte leaves 1.5 to move, at 76 MB/s.
        assert!((70..85).contains(&rates[0]), "{rates:?}");
        assert!((28..36).contains(&rates[5]) && (28..36).contains(&rates[9]), "{rates:?}");
        let later = write_for(&mut device, Instant::from_nanos(60_000_000_000), 1, true);
        assert!((70..85).contains(&later[0]), "{later:?}");
    }

    #[test]
    fn sequential_writes_leave_nothing_to_move() {
        let rates = write_for(&mut device(&config()), Instant::ZERO, 10, false);
        assert!(rates[1..].iter().all(|rate| (70..85).contains(rate)), "{rates:?}");
    }

    #[test]
    fn more_spare_flash_means_less_to_move() {
        let rate = |over_provisioning| {
            let config = FlashConfig { over_provisioning, ..config() };
            write_for(&mut device(&config), Instant::ZERO, 10, true)[9]
        };
        assert!(rate(0.07) < rate(0.25) && rate(0.25) < rate(1.0), "{} {}", rate(0.07), rate(1.0));
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (wrong, message) in [
            (FlashConfig { dies: 0, ..config() }, "dies must be between 1 and 1024"),
            (
                FlashConfig { page: Bytes::new(5_000), ..config() },
                "page must be a multiple of 4 KiB, at most 1 MiB",
            ),
            (
                FlashConfig { buffer: Bytes::from_kib(8), ..config() },
                "buffer must be at least one page, at most 16 GiB",
            ),
            (
                FlashConfig { over_provisioning: f64::NAN, ..config() },
                "over-provisioning must be within 0.01 to 1",
            ),
            (FlashConfig { retries: 1.1, ..config() }, "retries must be within 0 to 1"),
            (
                FlashConfig { link: ByteRate::new(0.0), ..config() },
                "link must be at least one byte per second",
            ),
            (FlashConfig { block_pages: 0, ..config() }, "block-pages must be between 1 and 65536"),
        ] {
            assert_eq!(FlashDevice::new(&wrong, 1).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn dies_never_idle_while_reads_of_them_wait(pages in prop::collection::vec(0_u64..64, 1..200)) {
            let mut device = device(&config());
            let mut load = [0_u64; 4];
            for (id, page) in (0..).zip(&pages) {
                submit(&mut device, 0, id, DeviceIo::read(page * 16_384, 4096));
                load[(page % 4) as usize] += 1;
            }
            let last = finish(&mut device).last().unwrap().1;
            let busiest = load.into_iter().max().unwrap() * 60;
            // The link needs 9.1 µs for each, so it is never far behind four dies.
            let link = pages.len() as u64 * 9_096 / 1_000;
            prop_assert!(last >= busiest.max(link), "{last} µs for {busiest}");
            prop_assert!(last <= busiest.max(link) + 60 + 4 * 10 + 30, "{last} µs for {busiest} and {link}");
        }

        #[test]
        fn buffer_and_reads_in_progress_stay_bounded(
            requests in prop::collection::vec((any::<bool>(), 0_u64..MIB, 1_u32..300_000), 1..100),
        ) {
            let mut device = device(&config());
            let mut done = VecDeque::new();
            for (id, (read, offset, bytes)) in (0..).zip(&requests) {
                let (offset, bytes) = (*offset, *bytes);
                let io = if *read { DeviceIo::read(offset, bytes) } else { DeviceIo::write(offset, bytes) };
                submit(&mut device, 0, id, io);
            }
            while let Some(at) = device.next_event() {
                device.step(at, &mut done);
                prop_assert!(device.buffered <= device.buffer && device.gathered <= device.buffered);
                prop_assert!(device.idle.len() <= 4 && device.working.len() <= 4);
                prop_assert!(device.reads.len() <= requests.len());
            }
            prop_assert_eq!(done.len(), requests.len());
            prop_assert_eq!(device.free_reads.len(), device.reads.len());
            prop_assert!(device.buffered < device.page, "only an unfinished page remains");
        }
    }
}
