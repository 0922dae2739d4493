//! Two devices behind one address space: a fast one that serves the hits, and a slow one for the rest.
//!
//! The slow device has the size of the whole. A hit lies on the fast device at its own address, folded into
//! that device's size. The model moves no data between the tiers. The hit ratio says how much of the data is
//! on the fast one, and a schedule changes it.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, Instant, Latency};

use crate::Device;
use crate::config::DeviceConfig;
use crate::config_error::{DeviceConfigError, require};
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

#[cfg(test)]
mod tests {
    use tidegate_units::{ByteRate, Iops};

    use super::*;
    use crate::{LinkConfig, VolumeConfig};

    /// A device with this latency and next to no limit.
    fn tier(latency: Latency, capacity: Bytes) -> Box<DeviceConfig> {
        Box::new(DeviceConfig::Volume(VolumeConfig {
            capacity,
            rate: Iops::new(1e9),
            burst: None,
            throughput: ByteRate::new(1e15),
            io_size: Bytes::from_gib(1),
            slack: Latency::ZERO,
            latency,
            spread: Latency::ZERO,
        }))
    }

    fn config() -> TiersConfig {
        TiersConfig {
            fast: tier(Latency::from_millis(1), Bytes::from_mib(64)),
            slow: tier(Latency::from_millis(10), Bytes::from_gib(1)),
            hits: 0.7,
            extent: None,
            changes: Vec::new(),
        }
    }

    /// Reads 4 KiB at each of these offsets, one read a second. Returns which of them hit the fast device.
    fn hits(config: &TiersConfig, offsets: impl Iterator<Item = u64>) -> Vec<bool> {
        let mut device = Device::new(&DeviceConfig::Tiers(config.clone()), 1).unwrap();
        let (mut done, mut hits) = (Vec::new(), Vec::new());
        for (second, offset) in (0..).zip(offsets) {
            let now = Instant::from_nanos(second * 1_000_000_000);
            device.submit(now, second, DeviceIo::read(offset, 4096)).unwrap();
            while let Some(at) = device.next_event() {
                device.advance(at, &mut done);
            }
            hits.extend(done.drain(..).map(|one| one.at.latency_since(now) < Latency::from_millis(5)));
        }
        hits
    }

    fn part(hits: &[bool]) -> f64 {
        hits.iter().filter(|hit| **hit).count() as f64 / hits.len() as f64
    }

    #[test]
    fn the_hit_ratio_is_the_part_that_the_fast_device_serves() {
        let found = part(&hits(&config(), std::iter::repeat_n(0, 10_000)));
        assert!((0.68..0.72).contains(&found), "{found}");
        let never = TiersConfig { hits: 0.0, ..config() };
        assert!(hits(&never, std::iter::repeat_n(0, 100)).iter().all(|hit| !hit));
        let always = TiersConfig { hits: 1.0, ..config() };
        assert!(hits(&always, std::iter::repeat_n(0, 100)).iter().all(|hit| *hit));
    }

    #[test]
    fn an_extent_stays_on_its_tier_and_a_higher_ratio_only_adds_extents() {
        let by_extent = |hits| TiersConfig { hits, extent: Some(Bytes::from_kib(256)), ..config() };
        let places = || (0..4_000_u64).map(|number| number * 256 * 1024);
        let [low, again, high] = [0.3, 0.3, 0.6].map(|ratio| hits(&by_extent(ratio), places()));
        assert_eq!(low, again);
        assert!(low.iter().zip(&high).all(|(low, high)| !low || *high));
        assert!((0.27..0.33).contains(&part(&low)) && (0.57..0.63).contains(&part(&high)));
    }

    #[test]
    fn the_ratio_changes_by_the_schedule() {
        let change = |seconds: u64, hits| HitChange { after: Latency::from_millis(seconds * 1_000), hits };
        let scheduled =
            TiersConfig { hits: 1.0, changes: vec![change(100, 0.0), change(200, 1.0)], ..config() };
        let found = hits(&scheduled, std::iter::repeat_n(0, 300));
        assert!((0..300).all(|second| found[second] != (100..200).contains(&second)));
    }

    #[test]
    fn a_flush_waits_for_both_devices() {
        // A link makes each device's flush take its latency.
        let linked = |device: Box<DeviceConfig>, millis: u64| {
            Box::new(DeviceConfig::Link(LinkConfig {
                rate: ByteRate::new(1e9),
                overhead: Latency::ZERO,
                latency: Latency::from_millis(millis),
                half_duplex: false,
                device,
            }))
        };
        let TiersConfig { fast, slow, .. } = config();
        let both = TiersConfig { fast: linked(fast, 1), slow: linked(slow, 10), ..config() };
        let mut device = Device::new(&DeviceConfig::Tiers(both), 1).unwrap();
        device.submit(Instant::ZERO, 3, DeviceIo::flush()).unwrap();
        let mut done = Vec::new();
        while let Some(at) = device.next_event() {
            device.advance(at, &mut done);
        }
        assert_eq!(done, [DeviceCompletion { id: 3, at: Instant::from_nanos(20_000_000) }]);
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let change = |millis: u64, hits| HitChange { after: Latency::from_millis(millis), hits };
        let with = |changes| TiersConfig { changes, ..config() };
        for (wrong, message) in [
            (TiersConfig { hits: f64::NAN, ..config() }, "hits must be within 0 to 1"),
            (TiersConfig { extent: Some(Bytes::ZERO), ..config() }, "extent must be more than nothing"),
            (with(vec![change(1, 2.0)]), "changes.hits must be within 0 to 1"),
            (with(vec![change(2, 0.5), change(1, 0.5)]), "changes must be in the order of time"),
            (with(vec![change(1, 0.5); 1025]), "changes must be 1024 at most"),
        ] {
            let refused = Device::new(&DeviceConfig::Tiers(wrong), 1).unwrap_err();
            assert_eq!(refused.to_string(), message);
        }
    }

    #[test]
    fn a_document_names_presets_or_describes_models() {
        let document = "model = 'tiers'\nfast = 'ebs-gp3'\nhits = 0.5\nextent = '1MiB'\n\
            changes = [{ after = '60s', hits = 0.9 }]\n\
            [slow]\nmodel = 'link'\nrate = '100MB/s'\ndevice = { model = 'exponential', rate = '100 IO/s', \
            servers = 1, capacity = '1GiB' }";
        let read: DeviceConfig = toml::from_str(document).unwrap();
        let DeviceConfig::Tiers(tiers) = &read else { panic!("{read:?}") };
        assert_eq!(*tiers.fast, crate::Preset::EbsGp3.config());
        let written = toml::to_string(&read).unwrap();
        assert!(toml::from_str::<DeviceConfig>(&written).is_ok(), "{written}");
        let error = |document: &str| toml::from_str::<DeviceConfig>(document).unwrap_err().to_string();
        let wrong = document.replace("ebs-gp3", "ebs-gp4");
        assert!(error(&wrong).contains("there is no device preset `ebs-gp4`"), "{}", error(&wrong));
        let wrong = document.replace("servers", "server");
        assert!(error(&wrong).contains("unknown field `server`"), "{}", error(&wrong));
        let wrong = document.replace("'ebs-gp3'", "3");
        assert!(error(&wrong).contains("a table with a `model`"), "{}", error(&wrong));
    }
}
