//! The shared-file carrier: one thread that writes this host's block, and reads the blocks of all. In a service a
//! process of its own does so for the thread ([`helper`]).

mod helper;
pub(crate) mod layout;
mod medium;
mod slots;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidegate_units::{HostName, Instant};

use self::helper::{FileHelper, OpenFile};
pub use self::helper::{serve_shared_file, use_file_helper};
use self::layout::{FileHeader, ROOM, read_header, read_slot, write_slot};
use self::medium::{AlignedBlocks, MediumError};
use self::slots::{SeenSlot, SlotChoice, SlotChooser, SlotContent};
use crate::config::FileConfig;
use crate::rejection::MessageRejection;
use crate::shared::SharedState;

/// The pause before the shared file is opened, read or written again after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// The number of intervals for which the status tells that another host wrote to our slot, too.
const CONTESTED_INTERVALS: u32 = 12;

pub(crate) struct SharedFile {
    shared: Arc<SharedState>,
    config: FileConfig,
    medium: Option<OpenFile>,
    helper: Option<Rc<RefCell<FileHelper>>>,
    tried: Option<Instant>,
    /// The blocks as they were read last: a block that has not changed since says nothing new.
    seen: Option<Seen>,
    place: Place,
    read: Option<Instant>,
    written: Option<Instant>,
    sequence: u64,
    /// The slot at which the next search for a free one begins.
    start: usize,
    /// The host that last wrote to our slot, too, and the time.
    contested: Option<(Instant, HostName)>,
}

#[derive(Debug)]
struct Seen {
    blocks: AlignedBlocks,
    slots: Vec<SeenSlot>,
}

/// Our slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// Written to, and to be looked at again after this time.
    Claimed {
        slot: usize,
        until: Instant,
    },
    Held {
        slot: usize,
    },
}

impl SharedFile {
    pub(crate) fn new(shared: Arc<SharedState>, config: FileConfig) -> Self {
        let mut hasher = DefaultHasher::new();
        shared.host.hash(&mut hasher);
        Self {
            start: hasher.finish() as usize,
            shared,
            config,
            medium: None,
            helper: None,
            tried: None,
            seen: None,
            place: Place::Nowhere,
            read: None,
            written: None,
            sequence: 0,
            contested: None,
        }
    }

    /// Runs until it is told to stop, and then takes its leave.
    pub(crate) fn run(mut self) {
        loop {
            if self.shared.stopped() {
                self.leave();
                return;
            }
            if let Err(error) = self.turn() {
                self.medium = None;
                self.shared.set_line(false, Some(error.to_string()));
            }
            self.wait();
            self.shared.clear_wake();
        }
    }

    fn turn(&mut self) -> Result<(), MediumError> {
        let now = self.shared.now();
        if self.medium.is_none() {
            if !due(now, self.tried, RETRY).is_zero() {
                return Ok(());
            }
            self.tried = Some(now);
            self.open()?;
        }
        if self.wait_to_read(now).is_zero() {
            self.read(now)?;
            self.settle(now)?;
            self.shared.review_members(now);
            self.shared.set_slot(match self.place {
                Place::Held { slot } => Some(slot),
                Place::Nowhere | Place::Claimed { .. } => None,
            });
        }
        if matches!(self.place, Place::Held { .. }) && self.wait_to_write(now).is_zero() {
            self.write(now, false)?;
        }
        Ok(())
    }

    /// Twice in an interval: a report is then at most half an interval older than it seems.
    fn wait_to_read(&self, now: Instant) -> Duration {
        due(now, self.read, self.shared.interval / 2)
    }

    fn wait_to_write(&self, now: Instant) -> Duration {
        let pause = self.shared.pause();
        due(now, self.written, pause)
    }

    fn wait(&self) {
        let now = self.shared.now();
        let timeout = match (&self.medium, self.place) {
            (None, _) => due(now, self.tried, RETRY),
            (Some(_), Place::Held { .. }) => self.wait_to_read(now).min(self.wait_to_write(now)),
            (Some(_), _) => self.wait_to_read(now),
        };
        let mut ready = [PollFd::new(self.shared.woken(), PollFlags::IN)];
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // It fails when a signal comes, or memory is short: either way the next turn looks at everything.
        let _ = poll(&mut ready, Some(&timeout));
    }

    fn open(&mut self) -> Result<(), MediumError> {
        let FileConfig { path, slots, .. } = &self.config;
        let helper = &mut self.helper;
        let medium = self.shared.during_io(|| OpenFile::open(path, &self.shared.cluster, *slots, helper))?;
        if self.seen.as_ref().is_some_and(|seen| seen.slots.len() != usize::from(medium.slots())) {
            self.seen = None;
        }
        if self.seen.is_none() {
            self.place = Place::Nowhere;
        }
        self.medium = Some(medium);
        Ok(())
    }

    /// Reads all blocks, and hears those that have changed.
    fn read(&mut self, now: Instant) -> Result<(), MediumError> {
        let Some(medium) = &self.medium else { return Ok(()) };
        self.read = Some(now);
        let count = usize::from(medium.slots());
        let mut blocks = AlignedBlocks::zeroed(count + 1);
        self.shared.during_io(|| medium.read(&mut blocks))?;
        let now = self.shared.now();
        match read_header(&self.shared.cluster, blocks.block(0)) {
            FileHeader::Ours { slots } if slots == medium.slots() => {}
            _ => {
                self.seen = None;
                let why = "its header has changed: it was made anew".to_owned();
                return Err(MediumError::Wrong { path: self.config.path.clone(), why });
            }
        }
        let former = self.seen.take();
        let mut slots = Vec::with_capacity(count);
        for index in 0..count {
            let block = blocks.block(index + 1);
            let known = former.as_ref().map(|seen| (&seen.slots[index], seen.blocks.block(index + 1)));
            match known {
                Some((slot, before)) if before == block => slots.push(slot.clone()),
                _ => {
                    let read = read_slot(&self.shared.cluster, block);
                    let content = match &read {
                        Ok(message) => SlotContent::of(message.as_ref()),
                        Err(_) => SlotContent::Unreadable,
                    };
                    slots.push(SeenSlot { content, changed: now, alive: known.is_some() });
                    // What stood there before we came may be of any age: only what changes is alive.
                    if known.is_some() {
                        self.hear(now, index, read);
                    }
                }
            }
        }
        self.seen = Some(Seen { blocks, slots });
        Ok(())
    }

    fn hear(&self, now: Instant, index: usize, read: Result<Option<crate::wire::Message>, MessageRejection>) {
        if let Some(heard) = read.transpose() {
            self.shared.hear(now, heard, &format_args!("slot {index}"), None);
        }
    }

    /// Finds a slot, or sees whether ours is still ours.
    fn settle(&mut self, now: Instant) -> Result<(), MediumError> {
        let Some(seen) = &self.seen else { return Ok(()) };
        match self.place {
            Place::Nowhere => {
                let chooser = SlotChooser {
                    host: &self.shared.host,
                    interval: self.shared.interval,
                    configured: self.config.slot.map(usize::from),
                    start: self.start,
                };
                match chooser.choose(now, &seen.slots) {
                    SlotChoice::Wait(why) => {
                        self.shared.set_line(false, Some(format!("{}: {why}", self.config.path.display())));
                    }
                    SlotChoice::Claim(slot) => {
                        // Two readings later, and not at the same time as another host that claims the same
                        // slot.
                        let jitter =
                            self.shared.interval.mul_f64((self.shared.incarnation.0 % 256) as f64 / 512.0);
                        self.place = Place::Claimed { slot, until: now + self.shared.interval + jitter };
                        self.write(now, false)?;
                    }
                }
            }
            Place::Claimed { slot, until } if now >= until => {
                if self.is_ours(&seen.slots[slot]) {
                    self.place = Place::Held { slot };
                    self.defend(now, slot);
                } else {
                    self.place = Place::Nowhere;
                    self.start = slot + 1;
                }
            }
            Place::Claimed { .. } => {}
            Place::Held { slot } => self.defend(now, slot),
        }
        Ok(())
    }

    fn is_ours(&self, slot: &SeenSlot) -> bool {
        matches!(slot.content, SlotContent::Used { incarnation, .. }
            if incarnation == self.shared.incarnation)
    }

    /// A foreign block is in our slot: the host with the greater incarnation gives way, so that exactly one
    /// does.
    fn defend(&mut self, now: Instant, index: usize) {
        let path = self.config.path.display();
        let slot = self.seen.as_ref().map(|seen| &seen.slots[index].content);
        if let Some(SlotContent::Used { host, incarnation, leaving: false }) = slot
            && *incarnation != self.shared.incarnation
        {
            if *incarnation < self.shared.incarnation {
                let reason = format!("{path}: slot {index} is also written by `{host}`, and left to it");
                self.shared.set_line(false, Some(reason));
                self.place = Place::Nowhere;
                self.start = index + 1;
                return;
            }
            self.contested = Some((now, host.clone()));
            self.written = None;
        }
        let recent = |seen: Instant| {
            now.saturating_since(seen) <= self.shared.interval.saturating_mul(CONTESTED_INTERVALS)
        };
        let reason = match &self.contested {
            Some((seen, host)) if recent(*seen) => {
                Some(format!("{path}: slot {index} is also written by `{host}`, which is to give way"))
            }
            _ if self.medium.as_ref().is_some_and(OpenFile::is_direct) => None,
            _ => Some(format!(
                "{path} is on a file system without direct I/O: right only while all hosts are on this \
                    machine, or \
                 their file systems show each other's writes at once"
            )),
        };
        self.shared.set_line(true, reason);
    }

    /// Writes our block, with all that we told of lately: who missed one reading finds it in the next.
    fn write(&mut self, now: Instant, leaving: bool) -> Result<(), MediumError> {
        let (Some(medium), Place::Claimed { slot, .. } | Place::Held { slot }) = (&self.medium, self.place)
        else {
            return Ok(());
        };
        self.written = Some(now);
        self.sequence += 1;
        let reports = if leaving { vec![] } else { self.shared.take_recent() };
        let mut message = self.shared.message(self.sequence, reports, leaving);
        let mut bytes = Vec::with_capacity(ROOM);
        loop {
            bytes.clear();
            message.write(&self.shared.cluster, &mut bytes);
            if bytes.len() <= ROOM {
                break;
            }
            // Invariant: without reports a message fits, so that there is one to leave out.
            if let Some(left_out) = message.reports.pop() {
                self.shared.leave_out(
                    now,
                    &left_out.resource,
                    "this host's block in the shared file is full",
                );
            }
        }
        let mut block = AlignedBlocks::zeroed(1);
        write_slot(&bytes, block.bytes_mut());
        self.shared.during_io(|| medium.write(slot + 1, &block))?;
        self.shared.count_sent();
        Ok(())
    }

    fn leave(&mut self) {
        if matches!(self.place, Place::Held { .. }) {
            // A host that cannot read the file finds us silent.
            let _ = self.write(self.shared.now(), true);
        }
    }
}

/// Returns the part of `pause` since `then` that is left; zero without `then`.
fn due(now: Instant, then: Option<Instant>, pause: Duration) -> Duration {
    then.map_or(Duration::ZERO, |then| pause.saturating_sub(now.saturating_since(then)))
}
