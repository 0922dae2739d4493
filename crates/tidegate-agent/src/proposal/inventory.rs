//! The storage of this machine, and who uses it: over the network, or as cgroups.

use std::collections::BTreeSet;

use tidegate_host::cgroup::CgroupTree;
use tidegate_host::sense::session::TargetReading;
use tidegate_host::sense::volume::BlockDevice;
use tidegate_host::sense::{DeviceGroup, TargetSession, VolumeTree, sessions};
use tidegate_host::throttle::ThrottleMethod;
use tidegate_host::{DeviceNumber, ReadError, SystemRoot};
use tidegate_units::{ByteRate, Bytes, Latency};

use crate::config::MachineStorage;
use crate::survey::{MethodFinding, is_disk, methods};

/// The consumers of a machine's storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegulationKind {
    /// Hosts that use it over iSCSI, NVMe/TCP or NFS.
    Network,
    /// Cgroups of the machine.
    Cgroups,
}

/// The findings that a proposal is made from.
#[derive(Debug)]
pub struct MachineInventory {
    /// The consumers that there are; `None`: none, so that there is nothing to regulate.
    pub kind: Option<RegulationKind>,
    /// The storage that they may saturate.
    pub storages: Vec<FoundStorage>,
    /// The throttles, and whether they work here.
    pub methods: Vec<MethodFinding>,
}

/// A volume group or a device.
#[derive(Debug)]
pub struct FoundStorage {
    /// Its name in a configuration.
    pub storage: MachineStorage,
    /// Its size.
    pub size: Bytes,
    /// The devices whose counters add up to what it does.
    pub(super) members: Vec<DeviceNumber>,
    /// The largest of them, to read from.
    pub(super) largest: String,
    /// Its consumers.
    pub consumers: Vec<FoundConsumer>,
    /// The reads that were measured; `None`: too few.
    pub reads: Option<MeasuredReads>,
    /// The reason why there is no measurement.
    pub unmeasured: Option<String>,
}

/// A consumer of a storage.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundConsumer {
    /// Its name in a configuration.
    pub name: String,
    /// Its volume and target, or nothing.
    pub note: String,
    /// Bytes read and written per second while it was watched. `None`: not counted for it alone.
    pub rates: Option<[ByteRate; 2]>,
}

/// The origin of the reads that were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadSource {
    /// Those of the storage's users.
    Consumers,
    /// Random ones of this program, since the storage was idle.
    Own,
}

/// Reads of a storage while they were measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredReads {
    /// Their origin.
    pub source: ReadSource,
    /// Their number.
    pub count: u64,
    /// The time.
    pub seconds: u64,
    /// Their mean latency.
    pub mean: Latency,
    /// The greatest mean of a second.
    pub slowest: Latency,
}

impl FoundStorage {
    /// Returns true if an administrator may call it so.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let name = name.strip_prefix("/dev/").unwrap_or(name);
        match &self.storage {
            MachineStorage::VolumeGroup(own) | MachineStorage::Device(own) => own == name,
            MachineStorage::Devices(own) => own.iter().any(|own| own == name),
        }
    }
}

impl MachineInventory {
    /// Looks at the machine.
    pub(super) fn take(root: &SystemRoot) -> Result<Self, ReadError> {
        let volumes = VolumeTree::read(root)?;
        let found = sessions(root);
        let is_target = found.targets.iter().any(|(_, target)| matches!(target, TargetReading::Read));
        let methods = methods();
        let network = of_network(&volumes, &found.sessions, is_target);
        if !network.is_empty() {
            return Ok(Self { kind: Some(RegulationKind::Network), storages: network, methods });
        }
        let cgroups = CgroupTree::find(root).map(|tree| tree.services()).unwrap_or_default();
        let storages: Vec<_> = volumes
            .devices()
            .iter()
            .filter(|device| is_disk(device))
            .map(|device| {
                let consumers = cgroups.iter().map(|name| FoundConsumer {
                    name: name.clone(),
                    note: String::new(),
                    rates: None,
                });
                of_device(device, consumers.collect())
            })
            .collect();
        let has_consumers = !cgroups.is_empty() && !storages.is_empty();
        Ok(Self { kind: has_consumers.then_some(RegulationKind::Cgroups), storages, methods })
    }

    /// Returns the throttle to propose: the first that works.
    pub(super) fn method(&self) -> Option<ThrottleMethod> {
        let is_meant = |method: ThrottleMethod| match self.kind {
            Some(RegulationKind::Cgroups) => method == ThrottleMethod::Cgroup,
            _ => method != ThrottleMethod::Cgroup,
        };
        self.methods.iter().find(|one| is_meant(one.method) && one.works()).map(|one| one.method)
    }
}

fn of_device(device: &BlockDevice, consumers: Vec<FoundConsumer>) -> FoundStorage {
    FoundStorage {
        storage: MachineStorage::Device(device.name.clone()),
        size: device.size,
        members: vec![device.number],
        largest: device.name.clone(),
        consumers,
        reads: None,
        unmeasured: None,
    }
}

/// The storage that sessions use. On a target without sessions, all volume groups.
fn of_network(volumes: &VolumeTree, sessions: &[TargetSession], is_target: bool) -> Vec<FoundStorage> {
    let used: BTreeSet<DeviceGroup<'_>> =
        sessions.iter().filter_map(|session| volumes.group(session.device?)).collect();
    let groups = if used.is_empty() && is_target {
        volumes.volume_groups().into_iter().map(DeviceGroup::VolumeGroup).collect()
    } else {
        used
    };
    groups.into_iter().filter_map(|group| of_group(volumes, sessions, group)).collect()
}

fn of_group(
    volumes: &VolumeTree,
    sessions: &[TargetSession],
    group: DeviceGroup<'_>,
) -> Option<FoundStorage> {
    let members = volumes.members(group);
    let devices: Vec<_> = members.iter().filter_map(|number| volumes.get(*number)).collect();
    let largest = devices.iter().max_by_key(|device| device.size)?;
    let of_it = sessions
        .iter()
        .filter(|session| session.device.is_some_and(|number| volumes.group(number) == Some(group)));
    let consumers: BTreeSet<_> = of_it
        .map(|session| {
            let volume = volumes.get(session.device?).map(|device| device.name.clone())?;
            Some((session.consumer.to_string(), format!("{}, {volume}", session.via)))
        })
        .collect::<Option<_>>()?;
    Some(FoundStorage {
        storage: match group {
            DeviceGroup::VolumeGroup(name) => MachineStorage::VolumeGroup(name.to_owned()),
            DeviceGroup::Device(name) => MachineStorage::Device(name.to_owned()),
        },
        size: Bytes::new(devices.iter().map(|device| device.size.get()).sum()),
        largest: largest.name.clone(),
        members,
        consumers: consumers
            .into_iter()
            .map(|(name, note)| FoundConsumer { name, note, rates: None })
            .collect(),
        reads: None,
        unmeasured: None,
    })
}
