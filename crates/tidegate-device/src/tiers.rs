//! Two devices behind one address space: a fast one that serves the hits, and a slow one that serves the rest.
//!
//! The slow device has the size of the whole. A hit lies on the fast device at its own address, folded into
//! that device's size. The model moves no data between the tiers. The hit ratio says how much of the data is
//! on the fast one, and a schedule changes it.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Instant, Latency};

use crate::config::{DeviceConfig, DeviceConfigError, require};
use crate::device::Device;
use crate::io::{DeviceCompletion, DeviceIo, IoKind};
use crate::nested::{self, Slots};

/// A fast and a slow device. A part of the requests hits the fast one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TiersConfig {
    /// The device that serves the hits.
    #[serde(deserialize_with = "nested::deserialize")]
    pub fast: Box<DeviceConfig>,
    /// The device that serves everything else.
    #[serde(deserialize_with = "nested::deserialize")]
    pub slow: Box<DeviceConfig>,
    /// The part of the requests, or of the extents, that hits the fast device: 0 to 1.
    pub hits: f64,
    /// Size of the extents of which each lies as a whole on one tier, by its address. Without it, chance
    /// decides for each request.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_text")]
    pub extent: Option<Bytes>,
    /// Changes of the hit ratio, in the order of time; at most 1024.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<HitChange>,
}

/// A change of the hit ratio of two tiers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HitChange {
    /// Time after the first request of all.
    #[serde(with = "tidegate_units::text")]
    pub after: Latency,
    /// The hit ratio from then on, 0 to 1. A higher one leaves the extents on the fast device that are there.
    pub hits: f64,
}

mod optional_text {
    use serde::{Deserializer, Serializer};
    use tidegate_units::Bytes;

    #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
    pub(super) fn serialize<S: Serializer>(size: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
        match size {
            Some(size) => tidegate_units::text::serialize(size, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
        tidegate_units::text::deserialize(deserializer).map(Some)
    }
}

/// The most changes of one device.
const MAX_CHANGES: usize = 1024;

/// Alignment to which addresses are folded into the fast device.
const ALIGNMENT: u64 = 4096;

#[derive(Debug, Clone)]
pub(crate) struct TieredDevice {
    fast: Device,
    slow: Device,
    hits: f64,
    extent: Option<u64>,
    /// Changes still to come.
    changes: VecDeque<HitChange>,
    /// Time of the first request.
    begun: Option<Instant>,
    rng: Pcg64,
    /// Number that decides which extents lie on the fast device.
    salt: u64,
    /// Requests in progress.
    requests: Slots<TieredRequest>,
    completed: Vec<DeviceCompletion>,
}

#[derive(Debug, Clone)]
struct TieredRequest {
    id: u64,
    /// Devices that have yet to complete it.
    left: u8,
}

impl TieredDevice {
    pub(crate) fn new(config: &TiersConfig, seed: u64, depth: u32) -> Result<Self, DeviceConfigError> {
        let ratio = |hits: f64| (0.0..=1.0).contains(&hits);
        require(ratio(config.hits), "hits", "within 0 to 1")?;
        require(config.extent != Some(Bytes::ZERO), "extent", "more than nothing")?;
        require(config.changes.len() <= MAX_CHANGES, "changes", "1024 at most")?;
        require(config.changes.iter().all(|change| ratio(change.hits)), "changes.hits", "within 0 to 1")?;
        require(config.changes.is_sorted_by_key(|change| change.after), "changes", "in the order of time")?;
        let mut rng = Pcg64::seed_from_u64(seed);
        Ok(Self {
            fast: Device::nested(&config.fast, rng.random(), depth + 1)?,
            slow: Device::nested(&config.slow, rng.random(), depth + 1)?,
            hits: config.hits,
            extent: config.extent.map(Bytes::get),
            changes: config.changes.clone().into(),
            begun: None,
            salt: rng.random(),
            rng,
            requests: Slots::default(),
            completed: Vec::new(),
        })
    }

    pub(crate) const fn capacity(&self) -> Bytes {
        self.slow.capacity()
    }

    pub(crate) fn dirty(&self) -> Bytes {
        Bytes::new(self.fast.dirty().get().saturating_add(self.slow.dirty().get()))
    }

    pub(crate) fn submit(&mut self, now: Instant, id: u64, io: DeviceIo) {
        let begun = *self.begun.get_or_insert(now);
        while let Some(change) = self.changes.pop_front_if(|change| begun + change.after <= now) {
            self.hits = change.hits;
        }
        let is_flush = io.kind == IoKind::Flush;
        let request = self.requests.insert(TieredRequest { id, left: if is_flush { 2 } else { 1 } });
        if is_flush {
            forward(&mut self.fast, now, request, io);
            forward(&mut self.slow, now, request, io);
        } else if let Some(offset) = self.place_on_fast(io) {
            forward(&mut self.fast, now, request, DeviceIo { offset, ..io });
        } else {
            forward(&mut self.slow, now, request, io);
        }
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        [self.fast.next_event(), self.slow.next_event()].into_iter().flatten().min()
    }

    pub(crate) fn step(&mut self, at: Instant, done: &mut VecDeque<DeviceCompletion>) {
        self.fast.advance(at, &mut self.completed);
        self.slow.advance(at, &mut self.completed);
        for completion in self.completed.drain(..) {
            let Some(request) = self.requests.get_mut(completion.id) else {
                debug_assert!(false, "a tier completed what it was not given");
                continue;
            };
            request.left -= 1;
            if request.left == 0 {
                done.push_back(DeviceCompletion { id: request.id, at });
                self.requests.remove(completion.id);
            }
        }
    }

    /// Returns the place of a request on the fast device if it is a hit.
    fn place_on_fast(&mut self, io: DeviceIo) -> Option<u64> {
        let point = match self.extent {
            // The first byte decides for a request that crosses extents.
            Some(extent) => unit_interval(mix(self.salt ^ mix(io.offset / extent))),
            None => self.rng.random::<f64>(),
        };
        let room = self.fast.capacity().get().checked_sub(u64::from(io.bytes))?;
        let folded =
            if io.offset <= room { io.offset } else { io.offset % (room + 1) / ALIGNMENT * ALIGNMENT };
        (point < self.hits).then_some(folded)
    }
}

/// Gives a request to a device inside another one.
pub(crate) fn forward(device: &mut Device, now: Instant, request: u64, io: DeviceIo) {
    let taken = device.submit(now, request, io);
    debug_assert!(
        taken.is_ok(),
        "the outer device has checked the range and the number in flight: {taken:?}"
    );
}

/// Mixes the bits of a number (the finaliser of SplitMix64).
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Maps a number to 0 to 1, without 1.
const fn unit_interval(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}
