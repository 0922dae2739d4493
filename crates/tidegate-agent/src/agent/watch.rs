//! Who loads which resource, and how: counters of devices, brought together with sessions and volumes.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use tidegate_control::{Operations, Outstanding};
use tidegate_host::sense::session::{SessionReader, Via};
use tidegate_host::sense::{Change, DiskDelta, DiskStats, Group, Session, Sessions, Volumes};
use tidegate_host::{DeviceNumber, ReadError, Root};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency};

use super::addresses::Addresses;
use super::config::Storage;

/// Initiators log in and out: this often is looked.
const LOOK: Duration = Duration::from_secs(1);

/// Volumes are looked at when devices came or went, and this often anyway, since a volume can be renamed or grow.
const LOOK_AT_VOLUMES: Duration = Duration::from_secs(30);

/// The machine as the agent sees it.
#[derive(Debug)]
pub(super) struct Watch {
    root: Root,
    stats: DiskStats,
    previous: DiskStats,
    sampled: Option<Instant>,
    volumes: Volumes,
    /// The devices when volumes were looked at.
    devices_then: DiskStats,
    volumes_looked: Instant,
    reader: SessionReader,
    sessions: Sessions,
    looked: Instant,
    devices: BTreeMap<DeviceNumber, Device>,
    /// Those of `devices` that share a fate.
    groups: BTreeMap<Storage, Vec<DeviceNumber>>,
    addresses: Addresses,
}

/// A device that consumers load.
#[derive(Debug, Default)]
struct Device {
    /// Who, and which part of the load is whose.
    users: Vec<User>,
    /// Since when reads are in flight without one having completed.
    reads_wait_since: Option<Instant>,
}

#[derive(Debug)]
struct User {
    consumer: ConsumerName,
    /// What it did to the device lately, in the target's units; one for each where nobody did anything.
    weight: u64,
}

/// What one consumer did to one resource since the sample before.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Load {
    pub(super) reads: Operations,
    pub(super) writes: Operations,
    /// How long its requests were outstanding at the storage, all together, in seconds: without what waits in the network.
    pub(super) outstanding_seconds: f64,
}

impl Watch {
    pub(super) fn new(root: Root) -> Result<Self, ReadError> {
        let stats = DiskStats::read(&root)?;
        let mut reader = SessionReader::new(root.clone());
        let mut watch = Self {
            volumes: Volumes::read(&root)?,
            devices_then: stats.clone(),
            volumes_looked: Instant::ZERO,
            stats,
            previous: DiskStats::default(),
            sampled: None,
            sessions: reader.read(|_| true),
            reader,
            looked: Instant::ZERO,
            devices: BTreeMap::new(),
            groups: BTreeMap::new(),
            addresses: Addresses::default(),
            root,
        };
        watch.attribute(&BTreeMap::new());
        Ok(watch)
    }

    /// Reads the counters, and now and then who is there. Gives the time since the sample before; `None` at the first.
    pub(super) fn sample(&mut self, now: Instant) -> Result<Option<Duration>, ReadError> {
        std::mem::swap(&mut self.stats, &mut self.previous);
        if let Err(error) = self.stats.read_again(&self.root) {
            // The counters before are still good to count from.
            std::mem::swap(&mut self.stats, &mut self.previous);
            return Err(error);
        }
        if now.saturating_since(self.looked) >= LOOK {
            self.look(now)?;
        }
        let elapsed = self.sampled.map(|sampled| now.saturating_since(sampled));
        self.sampled = Some(now);
        self.watch_silence(now);
        Ok(elapsed)
    }

    fn look(&mut self, now: Instant) -> Result<(), ReadError> {
        let due = now.saturating_since(self.volumes_looked) >= LOOK_AT_VOLUMES;
        if due || !self.stats.same_devices(&self.devices_then) {
            self.volumes = Volumes::read(&self.root)?;
            self.devices_then.clone_from(&self.stats);
            self.volumes_looked = now;
        }
        let (stats, previous) = (&self.stats, &self.previous);
        let is_active = |number| {
            let change = stats.change(previous, number).and_then(Change::delta);
            change.is_none_or(|delta| delta.reads.ios + delta.writes.ios > 0)
        };
        let before = std::mem::replace(&mut self.sessions, self.reader.read(is_active));
        self.looked = now;
        self.attribute(&before.sessions.iter().map(|session| (identity(session), session)).collect());
        Ok(())
    }

    /// Says whose each device's load is, by what the sessions did since `before`.
    fn attribute(&mut self, before: &BTreeMap<Identity<'_>, &Session>) {
        let mut devices: BTreeMap<DeviceNumber, Device> = BTreeMap::new();
        for session in &self.sessions.sessions {
            let Some(number) = session.device else { continue };
            let device = devices.entry(number).or_default();
            let weight = before.get(&identity(session)).map_or(0, |old| work_since(session, old));
            match device.users.iter_mut().find(|user| user.consumer == session.consumer) {
                Some(user) => user.weight += weight,
                None => device.users.push(User { consumer: session.consumer.clone(), weight }),
            }
        }
        for (number, device) in &mut devices {
            if device.users.iter().all(|user| user.weight == 0) {
                device.users.iter_mut().for_each(|user| user.weight = 1);
            }
            device.reads_wait_since = self.devices.get(number).and_then(|known| known.reads_wait_since);
        }
        self.devices = devices;
        self.groups.clear();
        for number in self.devices.keys() {
            let storage = match self.volumes.group(*number) {
                Some(Group::VolumeGroup(name)) => Storage::VolumeGroup(name.to_owned()),
                Some(Group::Device(name)) => Storage::Device(name.to_owned()),
                None => continue,
            };
            self.groups.entry(storage).or_default().push(*number);
        }
        self.addresses = Addresses::new(&self.sessions.sessions);
    }

    /// Follows since when each device's reads have waited: counters say how many are in flight, and not how old they are.
    fn watch_silence(&mut self, now: Instant) {
        for (number, device) in &mut self.devices {
            let delta = self.stats.change(&self.previous, *number).and_then(Change::delta);
            let disk = self.stats.get(*number);
            device.reads_wait_since = match (disk, delta) {
                (Some(disk), Some(delta)) if delta.in_flight > 0 => {
                    let waiting = delta.reads.ios > 0 || reads_in_flight(&self.root, disk.name.as_str()) > 0;
                    let since = device.reads_wait_since.filter(|_| delta.reads.ios == 0);
                    waiting.then(|| since.unwrap_or(now))
                }
                _ => None,
            };
        }
    }

    /// The devices of a resource that sessions load. A device by itself may be a volume of a group, or have partitions.
    pub(super) fn devices_of(&self, storage: &Storage) -> Vec<DeviceNumber> {
        let group = self.groups.get(storage).map_or(&[][..], Vec::as_slice);
        let itself = match storage {
            Storage::VolumeGroup(_) => None,
            Storage::Device(name) => self.volumes.find(name).map(|device| device.number),
        };
        let itself = itself.filter(|number| self.devices.contains_key(number) && !group.contains(number));
        group.iter().copied().chain(itself).collect()
    }

    /// Whether this machine has the storage at all.
    pub(super) fn has(&self, storage: &Storage) -> bool {
        match storage {
            Storage::VolumeGroup(name) => !self.volumes.members(Group::VolumeGroup(name)).is_empty(),
            Storage::Device(name) => self.volumes.find(name).is_some(),
        }
    }

    /// The consumers of a resource; one that has several of its volumes may come several times.
    pub(super) fn consumers(&self, storage: &Storage) -> impl Iterator<Item = &ConsumerName> {
        let users = |number| &self.devices[&number].users;
        self.devices_of(storage).into_iter().flat_map(users).map(|user| &user.consumer)
    }

    /// What the consumers of a resource did since the sample before. Those that did nothing, and wait for nothing, are left out.
    pub(super) fn loads(&self, storage: &Storage, now: Instant) -> BTreeMap<ConsumerName, Load> {
        let mut loads: BTreeMap<ConsumerName, Load> = BTreeMap::new();
        for number in self.devices_of(storage) {
            let device = &self.devices[&number];
            let delta = self.stats.change(&self.previous, number).and_then(Change::delta);
            let delta = delta.unwrap_or_default();
            if delta == DiskDelta::default() && device.reads_wait_since.is_none() {
                continue;
            }
            for (user, part) in device.parts() {
                let load = loads.entry(user.consumer.clone()).or_default();
                load.add(&delta, &part, device.reads_wait_since.map(|since| now.latency_since(since)));
            }
        }
        loads
    }

    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The machine's devices.
    pub(super) fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// What the targets said, and what they are silent about.
    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }
}

impl Device {
    fn parts(&self) -> impl Iterator<Item = (&User, Part)> {
        let of = self.users.iter().map(|user| user.weight).sum();
        let mut before = 0;
        self.users.iter().map(move |user| {
            let part = Part { from: before, to: before + user.weight, of };
            before = part.to;
            (user, part)
        })
    }
}

/// A part of what a device did. The parts of all its users add up to the whole, whatever is divided.
struct Part {
    from: u64,
    to: u64,
    of: u64,
}

impl Part {
    fn share(&self, whole: u64) -> u64 {
        let up_to = |bound: u64| match whole.checked_mul(bound) {
            Some(product) => product / self.of.max(1),
            // Rare, and ten times as slow.
            None => (u128::from(whole) * u128::from(bound) / u128::from(self.of.max(1))) as u64,
        };
        up_to(self.to) - up_to(self.from)
    }
}

impl Load {
    fn add(&mut self, delta: &DiskDelta, part: &Part, reads_wait: Option<Latency>) {
        for (done, operations) in [(&delta.reads, &mut self.reads), (&delta.writes, &mut self.writes)] {
            operations.count += part.share(done.ios);
            operations.bytes = Bytes::new(operations.bytes.get() + part.share(done.bytes().get()));
            let waited = Latency::from_nanos(part.share(done.response_time.as_nanos()));
            operations.total_latency = operations.total_latency.saturating_add(waited);
        }
        if reads_wait.is_some() {
            self.reads.in_flight = self.reads.in_flight.saturating_add(1);
            self.reads.oldest_in_flight = self.reads.oldest_in_flight.max(reads_wait);
        }
        let part = (part.to - part.from) as f64 / part.of.max(1) as f64;
        self.outstanding_seconds += delta.weighted.as_secs_f64() * part;
    }

    /// Adds what followed: what has waited since before has its age of now.
    pub(super) fn plus(&mut self, more: &Self) {
        for (sum, more) in [(&mut self.reads, more.reads), (&mut self.writes, more.writes)] {
            sum.count += more.count;
            sum.bytes = Bytes::new(sum.bytes.get() + more.bytes.get());
            sum.total_latency = sum.total_latency.saturating_add(more.total_latency);
            sum.in_flight = more.in_flight;
            sum.oldest_in_flight = more.oldest_in_flight;
        }
        self.outstanding_seconds += more.outstanding_seconds;
    }

    /// What the throttle takes for the consumer's requests under way, by Little's law: those at the storage, and those that
    /// its delay holds.
    pub(super) fn outstanding_with(&self, delay: Latency, elapsed: Duration) -> Outstanding {
        let held_seconds = (self.reads.count + self.writes.count) as f64 * delay.as_secs_f64();
        Outstanding::new((self.outstanding_seconds + held_seconds) / elapsed.as_secs_f64())
    }
}

/// What makes a session the same from one look to the next.
type Identity<'a> = (Via, &'a ConsumerName, &'a str, &'a str);

fn identity(session: &Session) -> Identity<'_> {
    (session.via, &session.consumer, &session.target, &session.volume.name)
}

/// What a session did, as far as its target counts it, in MiB. Counters wrap.
fn work_since(new: &Session, old: &Session) -> u64 {
    new.counters.zip(old.counters).map_or(0, |(new, old)| {
        u64::from(new.read_mib.wrapping_sub(old.read_mib))
            + u64::from(new.written_mib.wrapping_sub(old.written_mib))
    })
}

/// How many reads a device has in flight now. None where the kernel does not say.
fn reads_in_flight(root: &Root, name: &str) -> u64 {
    let path = root.path(format!("/sys/block/{}/inflight", name.replace('/', "!")));
    fs::read_to_string(path).ok().and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_did_to_one_device_adds_up_to_what_it_did() {
        for weights in [[1, 1, 1], [7, 1, 2], [0, 5, 0]] {
            let users = weights.map(|weight| User { consumer: ConsumerName::new("c").unwrap(), weight });
            let device = Device { users: users.into(), reads_wait_since: None };
            for whole in [0, 1, 10, 1_001, u64::MAX] {
                let parts: u64 = device.parts().map(|(_, part)| part.share(whole)).sum();
                assert_eq!(parts, whole, "{weights:?}");
            }
        }
    }
}
