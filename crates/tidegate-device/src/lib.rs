//! Event-driven models of storage devices.
//!
//! A [`Device`] holds no clock. Its caller says what time it is, in virtual time (a simulator) or in real
//! time (the gateway's emulated array). The order of calls:
//!
//! 1. [`Device::submit`] a request at a time, under an id of the caller's choice;
//! 2. [`Device::next_event`] says when to come back;
//! 3. [`Device::advance`] to the present, and collect the [`DeviceCompletion`]s that were due.
//!
//! The model moves from event to event at the events' own times. A caller that comes late (real time always
//! does) receives completions that carry the time at which the *model* finished them, and its lateness
//! changes nothing about when the queued requests finish: no error accumulates. A clock that jumps back is
//! read as a clock that stands still.
//!
//! Same configuration, same seed, same calls: same completions, byte for byte.
//!
//! Models move no data. They give times, and no contents.
//!
//! ```
//! use tidegate_device::{Device, DeviceIo, Preset};
//! use tidegate_units::{Instant, Latency};
//!
//! let mut device = Device::new(&Preset::Dnes309170w.config(), 1)?;
//! device.submit(Instant::ZERO, 7, DeviceIo::read(1 << 30, 4096))?;
//! let mut done = Vec::new();
//! while let Some(at) = device.next_event() {
//!     device.advance(at, &mut done);
//! }
//! assert_eq!(done[0].id, 7);
//! assert!(done[0].at < Instant::ZERO + Latency::from_millis(22));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod array;
mod cache;
mod config;
mod config_error;
mod device;
mod disk;
mod disk_config;
mod exponential;
mod flash;
mod io;
mod lane;
mod layout;
mod link;
mod mechanism;
mod nested;
pub mod preset;
mod read_ahead;
mod seek;
mod storage_node;
mod tiers;
mod unloaded;
mod volume;

pub use array::ArrayConfig;
pub use cache::CacheConfig;
pub use config::DeviceConfig;
pub use config_error::DeviceConfigError;
pub use device::{Device, FixedRate, MAX_IN_FLIGHT};
pub use disk_config::{DiskConfig, QueueConfig};
pub use exponential::{ExponentialChange, ExponentialConfig};
pub use flash::FlashConfig;
pub use io::{DeviceCompletion, DeviceIo, IoKind, SubmitError};
pub use layout::RaidLevel;
pub use link::LinkConfig;
pub use preset::{Preset, UnknownPreset};
pub use read_ahead::ReadAheadConfig;
pub use seek::SeekConfig;
pub use storage_node::{StorageNode, StorageNodeConfig};
pub use tiers::{HitChange, TiersConfig};
pub use volume::{BurstConfig, VolumeConfig};
