//! Response times of every request to the resources' devices, for `histograms = true` and for a percentile as
//! `statistic`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use tidegate_host::DeviceNumber;
use tidegate_host::sense::BlockLatency;
use tidegate_host::sense::latency::{LatencyBuckets, ReadsAndWrites, WatchError};
use tidegate_units::{Instant, ResourceName};

use super::config::AgentConfig;
use super::regulator::{DevicesOf, MachineRegulator};

/// Devices come and go: this often is looked, as often as who uses them.
const LOOK: Duration = Duration::from_secs(1);

/// Room for devices at least…
const LEAST_ROOM: usize = 64;

/// …and for so many times those that are there at the start.
const ROOM_TO_GROW: usize = 2;

/// The sensor, and what it counted for each resource since the start.
#[derive(Debug)]
pub(super) struct LatencyHistograms {
    sensor: BlockLatency,
    looked: Option<Instant>,
    devices: DevicesOf,
    /// The last reading of each device.
    read: BTreeMap<DeviceNumber, ReadsAndWrites>,
    totals: BTreeMap<ResourceName, ReadsAndWrites>,
    /// The reads that a regulator was told of.
    told: BTreeMap<ResourceName, LatencyBuckets>,
}

impl LatencyHistograms {
    /// With room for twice as many devices as there are now, and 64 at least.
    pub(super) fn new(devices: &DevicesOf) -> io::Result<Self> {
        let room = LEAST_ROOM.max(ROOM_TO_GROW * all(devices).len());
        Ok(Self {
            sensor: BlockLatency::new(u32::try_from(room).unwrap_or(u32::MAX))?,
            looked: None,
            devices: BTreeMap::new(),
            read: BTreeMap::new(),
            totals: BTreeMap::new(),
            told: BTreeMap::new(),
        })
    }

    /// Those that a configuration needs: `None` if it needs none.
    pub(super) fn needed(config: &AgentConfig, regulator: &MachineRegulator) -> io::Result<Option<Self>> {
        config.needs_histograms().then(|| Self::new(&regulator.devices())).transpose()
    }

    /// Tells a regulator which reads completed since it was told last, and counts at its devices.
    pub(super) fn tell(&mut self, now: Instant, regulator: &mut MachineRegulator) -> Result<(), WatchError> {
        let watched = if self.is_due(now) { self.watch(now, regulator.devices()) } else { Ok(()) };
        if regulator.steers_by_percentile() {
            for (resource, reads) in self.news()? {
                regulator.count(&resource, &reads);
            }
            regulator.counted(now);
        }
        watched
    }

    /// The reads that completed since it was asked for them last.
    fn news(&mut self) -> io::Result<Vec<(ResourceName, LatencyBuckets)>> {
        self.collect()?;
        let new = |(resource, total): (&ResourceName, &ReadsAndWrites)| {
            let told = self.told.entry(resource.clone()).or_default();
            let reads = total.reads.since(told);
            told.clone_from(&total.reads);
            (resource.clone(), reads)
        };
        Ok(self.totals.iter().map(new).collect())
    }

    /// Returns true if it is time to [`watch`](Self::watch).
    fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.saturating_since(looked) >= LOOK)
    }

    /// Counts at these devices from now on. What is as it was costs nothing.
    fn watch(&mut self, now: Instant, devices: DevicesOf) -> Result<(), WatchError> {
        self.looked = Some(now);
        let wanted = all(&devices);
        if devices != self.devices {
            // What a device did so far was its resource's.
            self.collect()?;
            self.devices = devices;
            self.read.retain(|device, _| wanted.contains(device));
            let resources: BTreeSet<_> = self.devices.keys().collect();
            self.totals.retain(|resource, _| resources.contains(resource));
            self.told.retain(|resource, _| resources.contains(resource));
        }
        self.sensor.watch(&wanted)
    }

    /// Returns the counts of each resource since it appeared. They only grow, whatever devices come and go.
    pub(super) fn totals(&mut self) -> io::Result<BTreeMap<ResourceName, ReadsAndWrites>> {
        self.collect()?;
        Ok(self.totals.clone())
    }

    /// Reads every device once, and gives what is new to its resources.
    fn collect(&mut self) -> io::Result<()> {
        let mut new = BTreeMap::new();
        for device in all(&self.devices) {
            let Some(now) = self.sensor.read(device)? else { continue };
            let before = self.read.entry(device).or_default();
            new.insert(device, now.since(before));
            *before = now;
        }
        for (resource, devices) in &self.devices {
            let total = self.totals.entry(resource.clone()).or_default();
            devices.iter().filter_map(|device| new.get(device)).for_each(|new| total.merge(new));
        }
        Ok(())
    }
}

fn all(devices: &DevicesOf) -> BTreeSet<DeviceNumber> {
    devices.values().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{ErrorKind, Write};
    use std::process::Command;

    use tidegate_testing::{Lack, LoopDevice, lacks};

    use super::*;

    /// A file as a block device; gone when it is not needed any more.
    struct Loop {
        device: LoopDevice,
        _file: tempfile::NamedTempFile,
    }

    impl Loop {
        const SIZE: usize = 1 << 20;

        fn new() -> Option<Self> {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&vec![1; Self::SIZE]).unwrap();
            Some(Self { device: LoopDevice::over(file.path())?, _file: file })
        }

        fn number(&self) -> DeviceNumber {
            self.device.number().parse().unwrap()
        }

        fn write(&self) {
            let mut device = OpenOptions::new().write(true).open(self.device.path()).unwrap();
            device.write_all(&vec![2; Self::SIZE]).unwrap();
            device.sync_all().unwrap();
        }

        /// Not from the page cache: 16 reads.
        fn read(&self) {
            let [from, to] = [format!("if={}", self.device.path().display()), "of=/dev/null".to_owned()];
            let read = Command::new("dd").args([&from, &to, "iflag=direct", "bs=64k"]).output().unwrap();
            assert!(read.status.success(), "{read:?}");
        }
    }

    /// Says that the test is skipped, and returns `None`, without the right to load programs.
    fn loaded() -> Option<LatencyHistograms> {
        match LatencyHistograms::new(&DevicesOf::new()) {
            Ok(histograms) => Some(histograms),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => lacks(Lack::Bpf, error),
            Err(error) => panic!("{error}"),
        }
    }

    /// On the kernel that runs here. It takes root, and loop devices.
    #[test]
    fn each_read_is_news_once() {
        let (Some(mut histograms), Some(device)) = (loaded(), Loop::new()) else { return };
        let name = ResourceName::new("vg0").unwrap();
        histograms.watch(Instant::ZERO, [(name.clone(), [device.number()].into())].into()).unwrap();
        let count = |histograms: &mut LatencyHistograms| {
            let news = histograms.news().unwrap();
            assert!(news.iter().all(|(resource, _)| *resource == name));
            news.iter().map(|(_, reads)| reads.count()).sum::<u64>()
        };
        count(&mut histograms);
        for _ in 0..2 {
            device.read();
            assert_eq!(count(&mut histograms), 16);
            assert_eq!(count(&mut histograms), 0);
        }
    }

    /// On the kernel that runs here. It takes root, and loop devices.
    #[test]
    fn what_was_counted_stays_the_resources_when_its_devices_go() {
        let (Some(mut histograms), Some(device)) = (loaded(), Loop::new()) else { return };
        let name = ResourceName::new("vg0").unwrap();
        let with: DevicesOf = [(name.clone(), [device.number()].into())].into();
        let without: DevicesOf = [(name.clone(), BTreeSet::new())].into();
        let mut written = |devices: &DevicesOf| {
            histograms.watch(Instant::ZERO, devices.clone()).unwrap();
            device.write();
            let total = histograms.totals().unwrap()[&name].writes.count();
            // Read again it is the same.
            assert_eq!(histograms.totals().unwrap()[&name].writes.count(), total);
            total
        };
        let first = written(&with);
        assert!(first > 0);
        assert_eq!(written(&without), first);
        let second = written(&with);
        assert!(second > first);
        // A resource that the configuration has no more is forgotten.
        histograms.watch(Instant::ZERO, DevicesOf::new()).unwrap();
        assert!(histograms.totals().unwrap().is_empty());
    }
}
