//! A scenario under construction.

use std::time::Duration;

use tidegate_control::SignalStatistic;
use tidegate_device::{Device, DeviceConfig};
use tidegate_sim::scenario::{
    DiskPlace, OperationArrivals, OperationStep, ScenarioArray, ScenarioHost, ThinkTiming, VirtualDisk,
    VirtualMachine, Workload,
};
use tidegate_sim::{Scenario, ScenarioError};
use tidegate_units::{Bytes, ConsumerName, HostName, ResourceName, Shares};

use super::random::RandomDraw;

/// The longest judged interval, in seconds.
pub(super) const LONGEST_INTERVAL: f64 = 5.0;

/// A scenario under construction. Times are parts of its length, which is not known yet.
pub(super) struct Sketch {
    pub(super) draw: RandomDraw,
    pub(super) scenario: Scenario,
    /// The statistic that is promised.
    pub(super) statistic: SignalStatistic,
    /// The states of the storage, one after the other. The first is that of the array.
    pub(super) states: Vec<DeviceConfig>,
    /// Active parts of workloads: the consumer, the workload, and the part of the run.
    pub(super) stages: Vec<(usize, usize, (f64, f64))>,
    /// The part of the run in which all pause.
    pub(super) pause: Option<(f64, f64)>,
    /// The part of the run in which a host is down or cut off, and the host.
    pub(super) outage: Option<HostOutage>,
}

/// A host that is away for a part of the run.
#[derive(Clone, Copy)]
pub(super) enum HostOutage {
    /// The host is down.
    Down(usize),
    /// The host and the others do not hear each other.
    CutOff(usize),
}

impl Sketch {
    pub(super) fn new(name: &str, seed: u64) -> Self {
        let mut scenario = Scenario::new(name, Duration::from_secs(60));
        scenario.seed = seed;
        Self {
            draw: RandomDraw::new(seed),
            scenario,
            statistic: SignalStatistic::Mean,
            states: Vec::new(),
            stages: Vec::new(),
            pause: None,
            outage: None,
        }
    }

    pub(super) fn array(&mut self, device: DeviceConfig) {
        let name = ResourceName::new("array").expect("a valid name");
        self.states = vec![device.clone()];
        self.scenario.arrays = vec![ScenarioArray { name, device, changes: Vec::new() }];
    }

    pub(super) fn host(&mut self, name: &str) {
        let array = self.scenario.arrays[0].name.clone();
        let mut host = ScenarioHost::new(HostName::new(name).expect("a valid name"), array);
        // A queue that is no deeper than the storage is wide could never overload it.
        let least = (2.0 * self.parallelism()) as u32;
        host.depth = self.draw.pick(&[32, 64, 64, 128]).max(least);
        self.scenario.hosts.push(host);
    }

    pub(super) fn vm(&mut self, name: &str, host: usize, workload: Workload) -> &mut VirtualMachine {
        let size = self.disk_size();
        let disk = VirtualDisk { place: DiskPlace::InOrder { size }, ..VirtualDisk::default() };
        let name = ConsumerName::new(name).expect("a valid name");
        let mut vm = VirtualMachine::new(name, self.scenario.hosts[host].name.clone(), disk);
        vm.workloads.push(workload);
        self.scenario.vms.push(vm);
        self.scenario.vms.last_mut().expect("one was pushed")
    }

    /// Promises a percentile instead of a mean: one that the longest judged interval has enough reads for, at
    /// so many reads per second.
    pub(super) fn percentile(&mut self, reads: f64) {
        let enough =
            |statistic: &&SignalStatistic| reads * LONGEST_INTERVAL >= statistic.least_requests() as f64;
        let among = [SignalStatistic::P90, SignalStatistic::P95, SignalStatistic::P99];
        let among: Vec<_> = among.iter().filter(enough).copied().collect();
        self.statistic = self.draw.pick(&among);
        for host in &mut self.scenario.hosts {
            host.statistic = self.statistic;
        }
    }

    pub(super) fn shares(&mut self) -> Shares {
        Shares::new(self.draw.pick(&[50_u32, 100, 100, 100, 200, 400])).expect("within bounds")
    }

    /// Size of a virtual disk. A tenth of a small storage: one host has at most ten consumers there.
    fn disk_size(&self) -> Bytes {
        let tenth = |capacity: u64| Bytes::new(capacity / 10 / 65_536 * 65_536);
        match &self.scenario.arrays[0].device {
            DeviceConfig::Disk(_) => Bytes::from_mib(850),
            DeviceConfig::Volume(volume) => tenth(volume.capacity.get()).min(Bytes::from_gib(8)),
            _ if self.scenario.hosts.len() > 1 => Bytes::from_gib(4),
            _ => Bytes::from_gib(8),
        }
    }

    /// Shrinks the virtual disks alike if there are too many of them for the storage.
    ///
    /// # Errors
    /// When the model has no such storage.
    pub(super) fn fit_disks(&mut self) -> Result<(), ScenarioError> {
        let array = &self.scenario.arrays[0];
        let device = Device::new(&array.device, 0).map_err(|reason| ScenarioError::Device {
            array: array.name.clone(),
            reason: reason.to_string(),
        })?;
        let part = device.capacity().get() / self.scenario.vms.len().max(1) as u64;
        let most = Bytes::new(part / 65_536 * 65_536);
        for vm in &mut self.scenario.vms {
            for disk in &mut vm.disks {
                if let DiskPlace::InOrder { size } = &mut disk.place {
                    *size = (*size).min(most);
                }
            }
        }
        Ok(())
    }

    /// The number of requests that the storage works on at once, about.
    pub(super) fn parallelism(&self) -> f64 {
        fn of(device: &DeviceConfig) -> f64 {
            match device {
                DeviceConfig::Exponential(servers) => f64::from(servers.servers),
                DeviceConfig::Disk(_) => 1.0,
                DeviceConfig::Array(array) => f64::from(array.disks),
                DeviceConfig::Flash(_) => 16.0,
                DeviceConfig::Volume(volume) => {
                    volume.rate.per_second() * (volume.latency.as_secs_f64() + volume.spread.as_secs_f64())
                }
                DeviceConfig::Tiers(tiers) => of(&tiers.slow),
                DeviceConfig::Link(link) => of(&link.device),
            }
        }
        of(&self.scenario.arrays[0].device).max(1.0)
    }

    /// The requests per second that the storage completes, about.
    pub(super) fn capacity_guess(&self) -> f64 {
        fn of(device: &DeviceConfig) -> f64 {
            match device {
                DeviceConfig::Exponential(servers) => servers.rate.per_second(),
                DeviceConfig::Disk(_) => 80.0,
                DeviceConfig::Array(array) => 130.0 * f64::from(array.disks),
                DeviceConfig::Flash(_) => 10_000.0,
                DeviceConfig::Volume(volume) => volume.rate.per_second(),
                DeviceConfig::Tiers(tiers) => of(&tiers.slow) / (1.05 - tiers.hits),
                DeviceConfig::Link(link) => of(&link.device),
            }
        }
        of(&self.scenario.arrays[0].device)
    }
}

/// A closed loop without think time.
pub(super) fn closed(name: &str, outstanding: u32, step: OperationStep) -> Workload {
    Workload {
        arrivals: OperationArrivals::Closed { outstanding, think: ThinkTiming::NONE },
        steps: vec![step],
        ..Workload::random_reads(name, 1, 4_096)
    }
}
