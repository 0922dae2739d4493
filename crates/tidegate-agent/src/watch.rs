//! The load of each resource by each consumer: counters of devices, brought together with sessions and
//! volumes.
//!
//! The load of devices is known at each sample. The load of sessions is read once a second, at a *rescan*
//! (`look`), since that takes a file for each session. The load of a device between two rescans is divided by
//! what its sessions did meanwhile. Its load until the next rescan is divided by the same measure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_control::OperationTotals;
use tidegate_host::sense::session::{ServedPortals, SessionCounters, SessionReader, TargetKind};
use tidegate_host::sense::{
    DeviceActivity, DeviceGroup, DiskDelta, DiskStats, TargetSession, TargetSessions, UncountedDevice,
    VolumeTree, diskstats::CompletedRequests, uncounted,
};
use tidegate_host::throttle::rate::reaches;
use tidegate_host::{DeviceNumber, ReadError, SystemRoot};
use tidegate_regulate::StorageLoad;
use tidegate_units::{Bytes, ConsumerName, Instant, Latency};

use super::addresses::{ConsumerAddresses, ToldSessions};
use super::config::MachineStorage;

/// Time between two rescans unless a shorter one is configured: initiators log in and out.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Volumes are looked at when devices came or went, and this often anyway, since a volume can be renamed or
/// grow.
const LOOK_AT_VOLUMES: Duration = Duration::from_secs(30);

/// The machine as the agent sees it.
#[derive(Debug)]
pub(super) struct MachineWatch {
    root: SystemRoot,
    stats: DiskStats,
    previous: DiskStats,
    sampled: Option<Instant>,
    volumes: VolumeTree,
    /// The devices when volumes were looked at.
    devices_then: DiskStats,
    volumes_looked: Instant,
    reader: SessionReader,
    /// The device and user that each session loads, and the target's counters at the rescan before.
    places: Vec<Place>,
    look_every: Duration,
    since_look: Duration,
    /// The next sample is a look.
    look_now: bool,
    /// The devices that sessions load, in the order of their numbers.
    devices: Vec<WatchedDevice>,
    /// Places of those of `devices` that share a fate.
    groups: BTreeMap<MachineStorage, Vec<usize>>,
    addresses: ConsumerAddresses,
    /// Addresses and portals that the configuration tells.
    told: ToldSessions,
}

/// The scope of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct MachineSample {
    /// The time since the sample before.
    pub(super) elapsed: Duration,
    /// The time since the look before, if this was one.
    pub(super) looked: Option<Duration>,
    /// True if the rescan found other sessions or volumes. Devices, their places and their users are others
    /// then, and addresses may be.
    pub(super) changed: bool,
}

/// A device that consumers load.
#[derive(Debug)]
pub(super) struct WatchedDevice {
    /// `None`: a LUN of an array, which is no device of this machine.
    number: Option<DeviceNumber>,
    /// The consumers that load it, and the part of each.
    users: Vec<User>,
    /// Since the sample before.
    delta: DiskDelta,
    /// Since the look before.
    written: Bytes,
    read: Bytes,
    /// Since when reads are in flight without one having completed.
    reads_wait_since: Option<Instant>,
}

/// The bytes that a consumer moved between two rescans.
#[derive(Debug, Clone, Copy)]
pub(super) struct MovedBytes<'a> {
    pub(super) consumer: &'a ConsumerName,
    pub(super) read: Bytes,
    pub(super) written: Bytes,
}

#[derive(Debug)]
struct User {
    consumer: ConsumerName,
    /// The recent load on the device, in the target's units. It is one for each consumer if none was seen to
    /// do anything.
    weights: Weights,
    /// The target's count since the rescan before.
    counted: Weights,
    /// From the look before the last one to the last.
    written: Bytes,
    read: Bytes,
    /// True if its writes can be limited (`throttle = "rate"`).
    reached: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Weights {
    reads: u64,
    writes: u64,
}

/// A session's place among devices and their users.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// `None` if it is of no device.
    user: Option<(usize, usize)>,
    counters: Option<SessionCounters>,
}

impl MachineWatch {
    pub(super) fn new(root: SystemRoot, told: ToldSessions) -> Result<Self, ReadError> {
        let stats = DiskStats::read(&root)?;
        let volumes = VolumeTree::read(&root)?;
        let mut reader = SessionReader::new(root.clone());
        reader.serve(served(&told, &volumes));
        reader.read(|_| DeviceActivity::ANY);
        let mut watch = Self {
            volumes,
            devices_then: stats.clone(),
            volumes_looked: Instant::ZERO,
            stats,
            previous: DiskStats::default(),
            sampled: None,
            reader,
            places: Vec::new(),
            look_every: LOOK,
            since_look: Duration::ZERO,
            look_now: false,
            devices: Vec::new(),
            groups: BTreeMap::new(),
            addresses: ConsumerAddresses::default(),
            told,
            root,
        };
        watch.attribute(&[]);
        watch.group();
        watch.divide();
        Ok(watch)
    }

    /// Takes the addresses and portals that the configuration tells now. Clients of portals are found at the
    /// next rescan.
    pub(super) fn tell(&mut self, told: ToldSessions) {
        self.told = told;
        self.reader.serve(served(&self.told, &self.volumes));
        self.addresses = ConsumerAddresses::new(&self.reader.sessions().sessions, &self.told.addresses);
    }

    /// Rescans consumers each second, or more often if configured.
    pub(super) fn look_every(&mut self, interval: Duration) {
        self.look_every = interval.min(LOOK);
    }

    /// Makes the next sample a rescan.
    pub(super) const fn look_now(&mut self) {
        self.look_now = true;
    }

    /// Reads the counters, and at a rescan the consumers. Returns `None` at the first call: nothing is known
    /// of the time before.
    pub(super) fn sample(&mut self, now: Instant) -> Result<Option<MachineSample>, ReadError> {
        std::mem::swap(&mut self.stats, &mut self.previous);
        let elapsed = self.sampled.map_or(Duration::ZERO, |sampled| now.saturating_since(sampled));
        if let Err(error) = self.stats.read_next(&self.root, &self.previous, elapsed) {
            // The counters before are still good to count from.
            std::mem::swap(&mut self.stats, &mut self.previous);
            return Err(error);
        }
        self.follow_devices(now);
        let Some(before) = self.sampled.replace(now) else { return Ok(None) };
        let elapsed = now.saturating_since(before);
        self.since_look = self.since_look.saturating_add(elapsed);
        // A sample that comes a little early is this look's all the same.
        if !std::mem::take(&mut self.look_now) && self.since_look + elapsed / 2 < self.look_every {
            return Ok(Some(MachineSample { elapsed, looked: None, changed: false }));
        }
        let changed = self.look(now)?;
        Ok(Some(MachineSample { elapsed, looked: Some(std::mem::take(&mut self.since_look)), changed }))
    }

    /// Takes what each device did, and follows since when its reads have waited: counters say how many are in
    /// flight, and not how old they are.
    fn follow_devices(&mut self, now: Instant) {
        let mut changes = self.stats.since(&self.previous).peekable();
        for device in &mut self.devices {
            while changes.next_if(|(disk, _)| Some(disk.number) < device.number).is_some() {}
            let change = changes.next_if(|(disk, _)| Some(disk.number) == device.number);
            let delta = change.and_then(|(_, change)| change.delta());
            let waits_since = match (change, delta) {
                (Some((disk, _)), Some(delta)) if delta.in_flight > 0 => {
                    let waiting =
                        delta.reads.ios > 0 || self.stats.reads_in_flight(&self.root, disk.number) > 0;
                    let since = device.reads_wait_since.filter(|_| delta.reads.ios == 0);
                    waiting.then(|| since.unwrap_or(now))
                }
                _ => None,
            };
            device.observe(delta.unwrap_or_default(), waits_since);
            if self.sampled.is_none() {
                // Nothing is known of the time before.
                (device.written, device.read) = (Bytes::ZERO, Bytes::ZERO);
            }
        }
    }

    /// Rescans the consumers and their loads. Returns true if any came or went.
    fn look(&mut self, now: Instant) -> Result<bool, ReadError> {
        let due = now.saturating_since(self.volumes_looked) >= LOOK_AT_VOLUMES;
        let volumes_changed = due || !self.stats.same_devices(&self.devices_then);
        if volumes_changed {
            self.volumes = VolumeTree::read(&self.root)?;
            self.reader.serve(served(&self.told, &self.volumes));
            self.devices_then.clone_from(&self.stats);
            self.volumes_looked = now;
        }
        let devices = &self.devices;
        let did = |number| match place_of(devices, number) {
            Some(place) => DeviceActivity {
                reads: devices[place].read > Bytes::ZERO,
                writes: devices[place].written > Bytes::ZERO,
            },
            None => DeviceActivity::ANY,
        };
        let before = self.reader.read(did);
        if let Some(before) = &before {
            self.attribute(&before.sessions);
        }
        let changed = before.is_some() || volumes_changed;
        if changed {
            self.group();
        }
        self.divide();
        Ok(changed)
    }

    /// Finds the devices and users of sessions that are others than those `before`.
    fn attribute(&mut self, before: &[TargetSession]) {
        let mut users: BTreeMap<DeviceNumber, Vec<User>> = BTreeMap::new();
        let sessions = &self.reader.sessions().sessions;
        for session in sessions {
            let Some(number) = session.device else { continue };
            let users = users.entry(number).or_default();
            if users.iter().all(|user| user.consumer != session.consumer) {
                users.push(User::new(session.consumer.clone(), reaches(session.via)));
            }
        }
        let known = std::mem::take(&mut self.devices);
        let device = |(number, users)| match place_of(&known, number) {
            Some(place) => known[place].with(users),
            None => WatchedDevice::new(Some(number), users),
        };
        self.devices = users.into_iter().map(device).collect();
        let counted: BTreeMap<_, _> = before.iter().map(|old| (identity(old), old.counters)).collect();
        let place = |session: &TargetSession| Place {
            user: session.device.and_then(|number| {
                let device = place_of(&self.devices, number)?;
                let is_it = |user: &User| user.consumer == session.consumer;
                Some((device, self.devices[device].users.iter().position(is_it)?))
            }),
            counters: counted.get(&identity(session)).copied().flatten(),
        };
        self.places = sessions.iter().map(place).collect();
        self.addresses = ConsumerAddresses::new(sessions, &self.told.addresses);
    }

    /// Finds the devices of each storage.
    fn group(&mut self) {
        self.groups.clear();
        for (place, device) in self.devices.iter().enumerate() {
            let Some(number) = device.number else { continue };
            let storage = match self.volumes.group(number) {
                Some(DeviceGroup::VolumeGroup(name)) => MachineStorage::VolumeGroup(name.to_owned()),
                Some(DeviceGroup::Device(name)) => MachineStorage::Device(name.to_owned()),
                None => continue,
            };
            self.groups.entry(storage).or_default().push(place);
        }
    }

    /// Divides what devices did since the look before by what sessions did.
    fn divide(&mut self) {
        for (session, place) in self.reader.sessions().sessions.iter().zip(&mut self.places) {
            let then = std::mem::replace(&mut place.counters, session.counters);
            if let (Some((device, user)), Some(then), Some(now)) = (place.user, then, session.counters) {
                self.devices[device].users[user].counted.add(then, now);
            }
        }
        self.devices.iter_mut().for_each(WatchedDevice::divide);
    }

    /// The places of the devices of a resource that sessions load. A device by itself may be a volume of a
    /// group, or have partitions.
    pub(super) fn devices_of(&self, storage: &MachineStorage) -> Vec<usize> {
        let names = match storage {
            MachineStorage::VolumeGroup(_) => return self.groups.get(storage).cloned().unwrap_or_default(),
            MachineStorage::Device(name) => std::slice::from_ref(name),
            MachineStorage::Devices(names) => names,
        };
        let mut places = BTreeSet::new();
        for device in names.iter().flat_map(|name| self.volumes.find_all(name)) {
            places.extend(place_of(&self.devices, device.number));
            // A partition is by itself, and no other partition of its disk.
            if let Some(DeviceGroup::Device(name)) = self.volumes.group(device.number)
                && self.volumes.find(name).is_some_and(|own| own.number == device.number)
            {
                let group = self.groups.get(&MachineStorage::Device(name.to_owned()));
                places.extend(group.into_iter().flatten());
            }
        }
        places.into_iter().collect()
    }

    /// A device, by its place of [`devices_of`](Self::devices_of): good until the next look.
    pub(super) fn device(&self, place: usize) -> &WatchedDevice {
        &self.devices[place]
    }

    /// Returns true if this machine has the storage at all.
    pub(super) fn has(&self, storage: &MachineStorage) -> bool {
        match storage {
            MachineStorage::VolumeGroup(name) => {
                !self.volumes.members(DeviceGroup::VolumeGroup(name)).is_empty()
            }
            MachineStorage::Device(name) => self.volumes.find(name).is_some(),
            MachineStorage::Devices(names) => {
                names.iter().any(|name| !self.volumes.find_all(name).is_empty())
            }
        }
    }

    /// A block device's number, while it is there.
    pub(super) fn number(&self, device: &str) -> Option<DeviceNumber> {
        self.volumes.find(device).map(|device| device.number)
    }

    /// Returns the load of any device since the sample before; `None` if that is not known.
    pub(super) fn did(&self, number: DeviceNumber) -> Option<DiskDelta> {
        self.stats.change(&self.previous, number)?.delta()
    }

    /// Returns a device, with the reason, if the kernel does not count its requests now.
    pub(super) fn uncounted(&self, number: DeviceNumber) -> Option<UncountedDevice> {
        uncounted(&self.root, &self.volumes, &self.stats, number)
    }

    /// Returns the devices of a storage whose requests the kernel does not count now, whether or not consumers load
    /// them.
    pub(super) fn uncounted_of(&self, storage: &MachineStorage) -> Vec<UncountedDevice> {
        let devices = numbers_of(&self.volumes, storage).into_iter();
        devices.filter_map(|number| self.uncounted(number)).collect()
    }

    pub(super) fn addresses(&self) -> &ConsumerAddresses {
        &self.addresses
    }

    /// Sessions of a resource whose writes cannot be limited (`throttle = "rate"`).
    pub(super) fn beyond_limits(&self, storage: &MachineStorage) -> impl Iterator<Item = &TargetSession> {
        let devices: Vec<_> =
            self.devices_of(storage).into_iter().filter_map(|place| self.device(place).number()).collect();
        self.sessions().sessions.iter().filter(move |session| {
            !reaches(session.via) && session.device.is_some_and(|number| devices.contains(&number))
        })
    }

    /// The machine's devices.
    pub(super) fn volumes(&self) -> &VolumeTree {
        &self.volumes
    }

    /// Returns the sessions that the targets showed, and the state of each kind of target.
    pub(super) fn sessions(&self) -> &TargetSessions {
        self.reader.sessions()
    }
}

/// Returns the devices behind the portals that the configuration tells.
fn served(told: &ToldSessions, volumes: &VolumeTree) -> ServedPortals {
    let devices_of = |storage: &MachineStorage| {
        let named = |number| Some((number, volumes.get(number)?.name.clone()));
        numbers_of(volumes, storage).into_iter().filter_map(named).collect()
    };
    let devices = told.portals.iter().map(|(portal, storage)| (*portal, devices_of(storage)));
    ServedPortals { devices: devices.collect(), names: told.names() }
}

/// Returns the devices of a storage, whether or not consumers load them.
fn numbers_of(volumes: &VolumeTree, storage: &MachineStorage) -> BTreeSet<DeviceNumber> {
    match storage {
        MachineStorage::VolumeGroup(name) => {
            volumes.members(DeviceGroup::VolumeGroup(name)).into_iter().collect()
        }
        MachineStorage::Device(name) => volumes.find_all(name).iter().map(|it| it.number).collect(),
        MachineStorage::Devices(names) => {
            names.iter().flat_map(|name| volumes.find_all(name)).map(|it| it.number).collect()
        }
    }
}

/// Returns the place of a device among devices in the order of their numbers.
fn place_of(devices: &[WatchedDevice], number: DeviceNumber) -> Option<usize> {
    devices.binary_search_by_key(&Some(number), |device| device.number).ok()
}

impl User {
    fn new(consumer: ConsumerName, reached: bool) -> Self {
        // Little beside what has been counted of others, and as much as others where nothing ever is.
        let weights = Weights { reads: 1, writes: 1 };
        Self {
            consumer,
            weights,
            counted: Weights::default(),
            written: Bytes::ZERO,
            read: Bytes::ZERO,
            reached,
        }
    }
}

impl Weights {
    /// Adds what a session did, as far as its target counts it, in MiB. Counters wrap.
    fn add(&mut self, then: SessionCounters, now: SessionCounters) {
        self.reads += u64::from(now.read_mib.wrapping_sub(then.read_mib));
        self.writes += u64::from(now.written_mib.wrapping_sub(then.written_mib));
    }
}

impl WatchedDevice {
    fn new(number: Option<DeviceNumber>, users: Vec<User>) -> Self {
        Self {
            number,
            users,
            delta: DiskDelta::default(),
            written: Bytes::ZERO,
            read: Bytes::ZERO,
            reads_wait_since: None,
        }
    }

    /// A LUN of an array as one initiator uses it: another's use is another device.
    pub(super) fn of_one_user(consumer: ConsumerName) -> Self {
        Self::new(None, vec![User::new(consumer, false)])
    }

    /// Takes what it did since the sample before, and since when reads have waited.
    pub(super) fn observe(&mut self, delta: DiskDelta, reads_wait_since: Option<Instant>) {
        (self.delta, self.reads_wait_since) = (delta, reads_wait_since);
        self.written = Bytes::new(self.written.get().saturating_add(delta.writes.bytes().get()));
        self.read = Bytes::new(self.read.get().saturating_add(delta.reads.bytes().get()));
    }

    /// The same device with other users, of whom those that were here before weigh what they did.
    fn with(&self, mut users: Vec<User>) -> Self {
        for user in &mut users {
            if let Some(known) = self.users.iter().find(|known| known.consumer == user.consumer) {
                user.weights = known.weights;
            }
        }
        let Self { number, delta, written, read, reads_wait_since, .. } = *self;
        Self { number, users, delta, written, read, reads_wait_since }
    }

    /// Divides what the device did since the look before by what its users did.
    pub(super) fn divide(&mut self) {
        let written = std::mem::replace(&mut self.written, Bytes::ZERO);
        let read = std::mem::replace(&mut self.read, Bytes::ZERO);
        // Sessions are not counted anew at each look: without news the proportion stays.
        let mut news = Weights::default();
        for user in &self.users {
            news.reads += user.counted.reads;
            news.writes += user.counted.writes;
        }
        for user in &mut self.users {
            let counted = std::mem::take(&mut user.counted);
            if news.reads > 0 {
                user.weights.reads = counted.reads;
            }
            if news.writes > 0 {
                user.weights.writes = counted.writes;
            }
        }
        let all = self.weights();
        for user in &mut self.users {
            if all.reads == 0 {
                user.weights.reads = 1;
            }
            if all.writes == 0 {
                user.weights.writes = 1;
            }
        }
        let all = self.weights();
        let mut of_writes = Division::new([written.get()], all.writes);
        let mut of_reads = Division::new([read.get()], all.reads);
        for user in &mut self.users {
            let ([written], [read]) =
                (of_writes.part(user.weights.writes), of_reads.part(user.weights.reads));
            (user.written, user.read) = (Bytes::new(written), Bytes::new(read));
        }
    }

    /// Returns its number, if it is a device of this machine.
    pub(super) const fn number(&self) -> Option<DeviceNumber> {
        self.number
    }

    /// Returns the consumers that load it.
    pub(super) fn consumers(&self) -> impl Iterator<Item = &ConsumerName> {
        self.users.iter().map(|user| &user.consumer)
    }

    /// Those of them whose writes can be limited.
    pub(super) fn reached(&self) -> impl Iterator<Item = &ConsumerName> {
        self.users.iter().filter(|user| user.reached).map(|user| &user.consumer)
    }

    /// Returns the part of all writes of each of [`consumers`](Self::consumers).
    pub(super) fn parts_of_writes(&self) -> impl Iterator<Item = f64> {
        let all = self.weights().writes as f64;
        self.users.iter().map(move |user| user.weights.writes as f64 / all)
    }

    /// Returns the bytes that each of its consumers moved from the rescan before the last one to the last.
    pub(super) fn moved(&self) -> impl Iterator<Item = MovedBytes<'_>> {
        self.users.iter().map(|user| MovedBytes {
            consumer: &user.consumer,
            read: user.read,
            written: user.written,
        })
    }

    /// Returns its load since the sample before.
    pub(super) fn load(&self) -> StorageLoad {
        StorageLoad {
            reads: operations(numbers(&self.delta.reads)),
            writes: operations(numbers(&self.delta.writes)),
            outstanding_seconds: self.delta.weighted.as_secs_f64(),
        }
    }

    /// The same, divided among [`consumers`](Self::consumers): all parts together are the whole.
    pub(super) fn loads(&self) -> impl Iterator<Item = StorageLoad> {
        let delta = &self.delta;
        let all = self.weights();
        let mut of_reads = Division::new(numbers(&delta.reads), all.reads);
        let mut of_writes = Division::new(numbers(&delta.writes), all.writes);
        // Since 5.0 what was outstanding is what response times add up to. Before, requests that have not
        // completed count, too, of which it is not known what they are.
        let [reading, writing] = [&delta.reads, &delta.writes].map(|done| done.response_time.as_secs_f64());
        let reading = if reading + writing > 0.0 { reading / (reading + writing) } else { 0.5 };
        let reading_seconds = delta.weighted.as_secs_f64() * reading;
        let writing_seconds = delta.weighted.as_secs_f64() - reading_seconds;
        let (per_read, per_write) = (reading_seconds / all.reads as f64, writing_seconds / all.writes as f64);
        self.users.iter().map(move |User { weights, .. }| StorageLoad {
            reads: operations(of_reads.part(weights.reads)),
            writes: operations(of_writes.part(weights.writes)),
            outstanding_seconds: weights.reads as f64 * per_read + weights.writes as f64 * per_write,
        })
    }

    /// Returns the sum of all users' weights; never zero, as soon as there are any.
    fn weights(&self) -> Weights {
        let mut all = Weights::default();
        for user in &self.users {
            all.reads += user.weights.reads;
            all.writes += user.weights.writes;
        }
        all
    }

    /// For how long reads have waited without one having completed; `None` if none wait.
    pub(super) fn reads_wait(&self, now: Instant) -> Option<Latency> {
        self.reads_wait_since.map(|since| now.latency_since(since))
    }
}

/// Divides what a device did into parts, one after the other. All of them add up to the whole, whatever is
/// divided.
#[derive(Debug)]
struct Division<const N: usize> {
    whole: [u64; N],
    of: u64,
    /// The weight of the parts so far, and what they were given.
    up_to: u64,
    given: [u64; N],
}

impl<const N: usize> Division<N> {
    /// Among users whose weights have the sum `of`.
    const fn new(whole: [u64; N], of: u64) -> Self {
        Self { whole, of, up_to: 0, given: [0; N] }
    }

    /// The part of the next user.
    fn part(&mut self, weight: u64) -> [u64; N] {
        self.up_to += weight;
        let mut parts = [0; N];
        for ((part, whole), given) in parts.iter_mut().zip(self.whole).zip(&mut self.given) {
            let up_to = match whole.checked_mul(self.up_to) {
                Some(product) => product / self.of.max(1),
                // Rare, and ten times as slow.
                None => (u128::from(whole) * u128::from(self.up_to) / u128::from(self.of.max(1))) as u64,
            };
            *part = up_to - std::mem::replace(given, up_to);
        }
        parts
    }
}

/// Returns the completed requests as numbers that can be divided.
fn numbers(done: &CompletedRequests) -> [u64; 3] {
    [done.ios, done.bytes().get(), done.response_time.as_nanos()]
}

fn operations([count, bytes, nanos]: [u64; 3]) -> OperationTotals {
    OperationTotals {
        count,
        bytes: Bytes::new(bytes),
        total_latency: Latency::from_nanos(nanos),
        ..OperationTotals::default()
    }
}

/// The fields by which a session is the same from one rescan to the next.
type Identity<'a> = (TargetKind, &'a ConsumerName, &'a str, &'a str);

fn identity(session: &TargetSession) -> Identity<'_> {
    (session.via, &session.consumer, &session.target, &session.volume.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(names: &[&str]) -> Vec<User> {
        names.iter().map(|name| User::new(ConsumerName::new(name).unwrap(), true)).collect()
    }

    fn written(device: &mut WatchedDevice, bytes: u64) -> Vec<u64> {
        device.written = Bytes::new(bytes);
        device.divide();
        device.moved().map(|moved| moved.written.get()).collect()
    }

    #[test]
    fn who_comes_where_nothing_is_counted_did_as_much_as_the_others() {
        let mut device = WatchedDevice::new(Some(DeviceNumber::new(254, 0)), users(&["a", "b"]));
        assert_eq!(written(&mut device, 600), [300, 300]);
        let mut device = device.with(users(&["a", "b", "c"]));
        assert_eq!(written(&mut device, 600), [200, 200, 200]);
    }

    #[test]
    fn what_was_counted_divides_until_it_is_counted_again() {
        let mut device = WatchedDevice::new(Some(DeviceNumber::new(254, 0)), users(&["reader", "writer"]));
        device.users[0].counted = Weights { reads: 50, writes: 0 };
        device.users[1].counted = Weights { reads: 0, writes: 9 };
        assert_eq!(written(&mut device, 600), [0, 600]);
        assert_eq!(written(&mut device, 900), [0, 900], "without news");
        // The consumers that are left account for all of the load.
        let mut device = device.with(users(&["reader"]));
        assert_eq!(written(&mut device, 600), [600]);
    }

    #[test]
    fn what_several_did_to_one_device_adds_up_to_what_it_did() {
        for weights in [[1, 1, 1], [7, 1, 2], [0, 5, 0]] {
            for whole in [0, 1, 10, 1_001, u64::MAX] {
                let mut division = Division::new([whole, 7], weights.iter().sum());
                let parts = weights.map(|weight| division.part(weight));
                let sum = |which: usize| parts.iter().map(|part| part[which]).sum::<u64>();
                assert_eq!((sum(0), sum(1)), (whole, 7), "{weights:?}");
            }
        }
    }
}
