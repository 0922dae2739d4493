//! Rollups: what each consumer was promised and got in each minute, on disk for 13 months.
//!
//! [`RollupWriter`] takes the minutes of a service and never makes it wait. [`RollupReader`] gives the
//! minutes of a month back. Minutes that come twice are added up. So a service that was killed can write the
//! rest of its last minute, and a clock that was set back does no harm.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate_journal::WallTime;
//! use tidegate_rollups::{MinuteBatch, MinuteCounts, Minute, RollupKey, RollupReader, RollupWriter};
//! use tidegate_units::{ConsumerName, ResourceName};
//!
//! let journal = tempfile::tempdir()?;
//! let (resource, consumer) = (ResourceName::new("disk")?, ConsumerName::new("w1")?);
//! let key = RollupKey { resource, consumer, promise: None };
//! let minute = Minute::of(WallTime::from_nanos(1_790_000_000_000_000_000));
//! let counts = MinuteCounts { requests: 7, ..MinuteCounts::default() };
//!
//! let mut writer = RollupWriter::start(journal.path())?;
//! writer.write(MinuteBatch { minute, rollups: vec![(key.clone(), counts)] });
//! writer.close(std::time::Duration::from_secs(9));
//!
//! let reader = RollupReader::open(journal.path())?;
//! let damage = reader.read(minute.month(), |minute, key, counts| {
//!     assert_eq!((key.consumer.as_str(), counts.requests), ("w1", 7));
//! })?;
//! assert!(damage.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! `docs/reference/rollups.md` documents the files.

#![forbid(unsafe_code)]

mod calendar;
mod code;
mod error;
mod file;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod number;
mod reader;
mod rollup;
mod writer;

pub use calendar::{InvalidMonth, Minute, Month};
pub use error::RollupError;
pub use reader::RollupReader;
pub use rollup::{JudgedBy, MinuteBatch, MinuteCounts, PromiseTerms, RollupKey};
pub use writer::{KEPT_MONTHS, RollupWriter};
