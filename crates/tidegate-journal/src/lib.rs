//! The decision journal: every decision of the loops with its inputs, on disk, to be read and replayed.
//!
//! # Writing
//!
//! [`JournalWriter::start`] begins a segment and a thread. Each loop has a [`ResourceJournal`], and hands
//! over each decision after its step. That never waits for the disk: what finds no room is dropped and
//! counted.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate_control::{AutoConfig, ControlLoop, LoopConfig, Observation};
//! use tidegate_journal::{EntryFilter, JournalConfig, JournalReader, JournalWriter, LoopReplay};
//! use tidegate_units::{Instant, Latency, ResourceName};
//!
//! let folder = tempfile::tempdir()?;
//! let config = JournalConfig::new(folder.path().to_owned(), "tidegate 0.1.0".to_owned());
//! let mut now = Instant::ZERO;
//! let journal = JournalWriter::start(config, now)?;
//!
//! let name = ResourceName::new("vg0")?;
//! let law = AutoConfig::default().into();
//! let mut control = ControlLoop::new(LoopConfig::new(name.clone(), Latency::from_millis(15), law))?;
//! let mut resource = journal.resource(&control, now);
//!
//! now = now + Duration::from_millis(250);
//! let observation = Observation::new(name, now, Vec::new());
//! let (commands, decision) = control.step(now, &observation);
//! resource.record(&control, &observation, &commands, &decision, None);
//! journal.close();
//!
//! let reader = JournalReader::open(folder.path())?;
//! for replayed in reader.replay(EntryFilter::default(), LoopReplay::as_recorded())? {
//!     let replayed = replayed?;
//!     assert!(replayed.agrees());
//!     assert_eq!(replayed.recorded.commands(), &commands);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Reading
//!
//! [`JournalReader::entries`] gives the entries of a span of time as they were written.
//! [`JournalReader::replay`] gives each decision with its figures and reasons, recomputed from the checkpoint
//! before it, and says where recorded and recomputed commands part. [`LoopReplay`] does the same without
//! files.
//!
//! `docs/reference/journal.md` documents the files.

#![forbid(unsafe_code)]

mod bit_coder;
mod block;
mod decision_code;
mod error;
mod folder_lock;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handle;
mod number;
mod queue;
mod quiet;
mod reader;
mod record;
mod replay;
mod segment;
mod time;
mod writer;

pub use error::{JournalError, VersionedPart};
pub use folder_lock::FolderLock;
pub use handle::{JournalConfig, JournalWriter, ResourceJournal};
pub use reader::{Entries, EntryFilter, JournalReader};
pub use record::{
    ActionRecord, CheckpointRecord, ConsumerReading, DecisionRecord, EntryContent, GapCause, GapRecord,
    JournalEntry, LimitReading, ThrottleMechanism, ThrottleReading,
};
pub use replay::{CheckpointError, ConfigChange, LoopReplay, Replay, ReplayedDecision};
pub use time::{ClockAnchor, WallTime};
pub use writer::Retention;
