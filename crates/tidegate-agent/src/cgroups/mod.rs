//! A block device whose control groups are regulated: a resource of the throttle `cgroup`.

pub(crate) mod config;

use std::collections::BTreeMap;

use tidegate_control::{Decision, LoopConfigError, OperationTotals};
use tidegate_host::cgroup::{IoCounters, IoLimit};
use tidegate_host::sense::{CgroupReader, DiskDelta, UncountedDevice, diskstats::CompletedRequests};
use tidegate_host::throttle::{ThrottleInForce, ThrottleRequest};
use tidegate_host::{DeviceNumber, ReadError, SystemRoot};
use tidegate_journal::{ConsumerReading, LimitReading, ThrottleReading};
use tidegate_regulate::{
    DeviceLoad, EligibleConsumer, RegulatedResource, SentLoad, StorageLoad, ThrottleKind,
};
use tidegate_units::{ConsumerName, Instant, Latency, ResourceName};

pub use config::CgroupConfig;

use super::kernel_limits::io_limit;
use super::load_watch::LoadWatch;
use super::watch::MachineSample;
use crate::metrics::ResourceStatus;

/// A device that is being regulated.
#[derive(Debug)]
pub(super) struct CgroupResource {
    config: CgroupConfig,
    regulated: RegulatedResource,
    reader: CgroupReader,
    device: Option<DeviceNumber>,
    /// The time of the last reading in which everything could be read.
    seen: Instant,
    /// True if the cgroups that are meant have to be found anew.
    stale: bool,
    /// The device, if the kernel did not count its requests at the last rescan: nothing is known then.
    uncounted: Option<UncountedDevice>,
    /// What the services beside the eligible cgroups had done when they were first seen, and since.
    protected: BTreeMap<ConsumerName, (IoCounters, IoCounters)>,
}

impl CgroupResource {
    pub(super) fn new(root: &SystemRoot, config: CgroupConfig) -> Result<Self, CgroupSetUpError> {
        Ok(Self {
            regulated: RegulatedResource::new(config.law.clone(), throttle(&config))?,
            reader: CgroupReader::new(root, config.cgroups.clone())?,
            config,
            device: None,
            seen: Instant::ZERO,
            stale: true,
            uncounted: None,
            protected: BTreeMap::new(),
        })
    }

    /// Changes the set-up while running, without a release in between.
    pub(super) fn reconfigure(&mut self, config: CgroupConfig) -> Result<(), LoopConfigError> {
        self.regulated.reconfigure(config.law.clone(), throttle(&config))?;
        self.reader.mean(config.cgroups.clone());
        self.config = config;
        self.stale = true;
        Ok(())
    }

    pub(super) fn config(&self) -> &CgroupConfig {
        &self.config
    }

    /// Takes what was done, and decides when the interval is over.
    ///
    /// # Errors
    /// When the counters of the cgroups cannot be read.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        sample: MachineSample,
        watch: &LoadWatch,
    ) -> Result<Option<Decision>, ReadError> {
        if self.stale || sample.looked.is_some() {
            self.device = watch.number(&self.config.device);
            self.uncounted = self.device.and_then(|device| watch.uncounted(device));
            // A rescan that fails is tried again at each step.
            self.stale = true;
            self.reader.look()?;
            let names = self.reader.cgroups().map(|(name, _)| name);
            let eligible = |name: &ConsumerName| EligibleConsumer {
                goal: self.config.goal(name),
                ..EligibleConsumer::new(name.clone())
            };
            self.regulated.set_consumers(names.map(eligible));
            self.follow_protected();
            self.stale = false;
        }
        if let Some(device) = self.device {
            self.reader.read(device)?;
            if self.uncounted.is_some() {
                self.seen = now;
                self.regulated.lose_sight();
                return Ok(None);
            }
            match watch.did(device) {
                Some(done) => self.take(now, sample, &done),
                None => self.regulated.device_unknown(),
            }
        }
        self.seen = now;
        Ok(self.regulated.pass(sample.elapsed).map(|_| self.regulated.decide(now, None)))
    }

    fn follow_protected(&mut self) {
        let known = std::mem::take(&mut self.protected);
        let beside = self.device.map(|device| self.reader.beside(device)).unwrap_or_default();
        self.protected.extend(beside.into_iter().map(|(name, now)| {
            let first = known.get(&name).map_or(now, |(first, _)| *first);
            // One that was made anew begins with nothing.
            let (first, since) =
                now.since(first).map_or((IoCounters::default(), now), |since| (first, since));
            (name, (first, since))
        }));
    }

    /// Adds what was done since the sample before.
    fn take(&mut self, now: Instant, sample: MachineSample, device: &DiskDelta) {
        let known: Vec<_> = self
            .reader
            .cgroups()
            .filter_map(|(name, cgroup)| Some((self.regulated.place_of(name)?, cgroup)))
            .collect();
        let is_new = known.iter().any(|(_, cgroup)| cgroup.is_new());
        let sent = known.iter().map(|(place, cgroup)| (*place, sent(cgroup.done())));
        let device = DeviceLoad {
            reads: completed(&device.reads),
            writes: completed(&device.writes),
            in_flight: device.in_flight,
        };
        self.regulated.send(now, sample.elapsed, sent, is_new, &device);
    }

    /// Returns the throttling that is to be in force.
    pub(super) fn throttling(&self) -> ThrottleRequest {
        let limits = self.device.into_iter().flat_map(|device| {
            let kept = move |(name, limits): (&ConsumerName, Option<_>)| {
                let limits = limits.filter(|_| !self.config.released.contains(name));
                ((name.clone(), device), limits.map_or(IoLimit::NONE, io_limit))
            };
            self.regulated.limits().map(kept)
        });
        ThrottleRequest {
            resource: self.config.law.resource.clone(),
            members: [].into(),
            delay: Latency::ZERO,
            own_delays: [].into(),
            limits: [].into(),
            cgroups: limits.collect(),
        }
    }

    /// Returns the regulation of the device.
    pub(super) const fn regulated(&self) -> &RegulatedResource {
        &self.regulated
    }

    /// Returns the limits in force of each eligible cgroup.
    pub(super) fn reading(&self, in_force: &ThrottleInForce) -> ThrottleReading {
        let read = |name: &ConsumerName| {
            let key = self.device.map(|device| (name.clone(), device));
            let limit = key.and_then(|key| in_force.cgroups.get(&key)).copied().unwrap_or_default();
            ConsumerReading {
                reads: LimitReading { rate: limit.read_rate(), bytes: limit.read_byte_rate() },
                writes: LimitReading { rate: limit.write_rate(), bytes: limit.write_byte_rate() },
                ..ConsumerReading::unlimited(name.clone())
            }
        };
        ThrottleReading { window: None, consumers: self.regulated.consumers().map(read).collect() }
    }

    /// Returns the time of the last reading in which everything could be read.
    pub(super) const fn seen(&self) -> Instant {
        self.seen
    }

    /// Releases all cgroups until the next decision.
    pub(super) fn release(&mut self) {
        self.regulated.release();
    }

    /// Returns the resource's state. `present` says whether the machine has the device.
    pub(super) fn status(&self, present: bool) -> ResourceStatus {
        let protected = self.protected.iter().filter(|(_, (_, since))| *since != IoCounters::default());
        let protected = protected.map(|(name, (_, since))| {
            let SentLoad { reads, writes } = sent(*since);
            (name.clone(), StorageLoad { reads, writes, ..StorageLoad::default() })
        });
        ResourceStatus {
            protected: protected.collect(),
            names: self.reader.names().clone(),
            uncounted: self.uncounted.iter().map(ToString::to_string).collect(),
            ..ResourceStatus::of(&self.regulated, present, BTreeMap::new())
        }
    }

    /// Returns the device, if the kernel does not count its requests.
    pub(super) fn uncounted(&self) -> Option<&UncountedDevice> {
        self.uncounted.as_ref()
    }

    /// The goals of those that have one of their own.
    pub(super) fn goals(&self) -> impl Iterator<Item = ((ResourceName, ConsumerName), Latency)> + '_ {
        let resource = &self.config.law.resource;
        let names = self.regulated.consumers();
        names.filter_map(|name| Some(((resource.clone(), name.clone()), self.config.goal(name)?)))
    }

    /// The device, as far as it is there.
    pub(super) fn device(&self) -> Option<DeviceNumber> {
        self.device
    }

    /// Cgroups whose I/O the kernel does not account for, and so does not limit.
    pub(super) fn unaccounted(&self) -> impl Iterator<Item = &ConsumerName> {
        let silent = self.reader.cgroups().filter(|(_, cgroup)| !cgroup.is_accounted());
        silent.map(|(name, _)| name).filter(|_| self.device.is_some())
    }
}

const fn throttle(config: &CgroupConfig) -> ThrottleKind {
    ThrottleKind::Rates { floor: config.floor, longest: config.longest }
}

fn sent(done: IoCounters) -> SentLoad {
    let requests = |count, bytes| OperationTotals { count, bytes, ..OperationTotals::default() };
    SentLoad { reads: requests(done.reads, done.read), writes: requests(done.writes, done.written) }
}

fn completed(done: &CompletedRequests) -> OperationTotals {
    let (bytes, total_latency) = (done.bytes(), done.response_time);
    OperationTotals { count: done.ios, bytes, total_latency, ..OperationTotals::default() }
}

/// The reasons why a device cannot be regulated.
#[derive(Debug, thiserror::Error)]
pub enum CgroupSetUpError {
    /// Its law.
    #[error(transparent)]
    Law(#[from] LoopConfigError),
    /// This machine's cgroups.
    #[error("cannot see this machine's cgroups: {0}")]
    Blind(#[from] ReadError),
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use tidegate_host::trees::unpack;

    use super::super::config::AgentConfig;
    use super::*;

    const TREE: &str = "proc/self/mountinfo
  30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
proc/diskstats
  8 0 sda 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
sys/block/sda/dev
  8:0
sys/block/sda/size
  2097152
sys/fs/cgroup/cgroup.controllers
  io
sys/fs/cgroup/batch/one/io.stat
";

    const TOLD: &str =
        "throttle = 'cgroup'\n[resource.disk]\ndevice = 'sda'\ntarget = '10ms'\ncgroups = ['batch/*']\n";

    #[test]
    fn a_cgroup_has_the_shortest_goal_that_its_patterns_have() {
        let text =
            format!("{TOLD}law = 'self-tuning'\ngoals = {{ 'batch/*' = '30ms', 'batch/one' = '20ms' }}\n");
        let config = AgentConfig::parse("agent.toml", &text).unwrap();
        let goal = |name| config.cgroups[0].goal(&ConsumerName::new(name).unwrap());
        let found = ["batch/one", "batch/two", "batch", "batch/two/three"].map(goal);
        assert_eq!(found, [Some(Latency::from_millis(20)), Some(Latency::from_millis(30)), None, None]);
    }

    #[test]
    fn a_cgroup_that_a_name_selects_has_that_name_in_the_status() {
        let tree = tempfile::tempdir().unwrap();
        unpack(&format!("{TREE}sys/fs/cgroup/system.slice/backup.service/io.stat\n"), tree.path()).unwrap();
        let text = TOLD.replace("'batch/*'", "'batch/*', 'unit:backup'");
        let config = AgentConfig::parse("agent.toml", &text).unwrap();
        let resource = CgroupResource::new(&SystemRoot::at(tree.path()), config.cgroups[0].clone()).unwrap();
        let path = ConsumerName::new("system.slice/backup.service").unwrap();
        assert_eq!(resource.status(true).names, [(path, "unit:backup.service".to_owned())].into());
    }

    #[test]
    fn services_that_use_the_device_beside_the_eligible_ones_are_told_as_protected() {
        let tree = tempfile::tempdir().unwrap();
        unpack(TREE, tree.path()).unwrap();
        let counted = |service: &str, reads: u64| {
            let path = format!("sys/fs/cgroup/{service}/io.stat");
            let text = format!("8:0 rbytes={} wbytes=0 rios={reads} wios=0\n", 4096 * reads);
            tidegate_host::trees::write_file(tree.path(), &path, text.as_bytes()).unwrap();
        };
        let root = SystemRoot::at(tree.path());
        let watch = LoadWatch::Machine(Box::new(
            crate::watch::MachineWatch::new(root.clone(), Default::default()).unwrap(),
        ));
        let config = AgentConfig::parse("agent.toml", TOLD).unwrap();
        let mut resource = CgroupResource::new(&root, config.cgroups[0].clone()).unwrap();
        let mut seconds = 0;
        let mut protected = |resource: &mut CgroupResource| {
            seconds += 1;
            let elapsed = Duration::from_secs(1);
            let sample = MachineSample { elapsed, looked: Some(elapsed), changed: false };
            resource.observe(Instant::from_nanos(seconds * 1_000_000_000), sample, &watch).unwrap();
            let told = resource.status(true).protected.into_iter();
            told.map(|(name, load)| (name.to_string(), load.reads.count)).collect::<Vec<_>>()
        };
        for (service, reads) in [("system.slice/db", 7), ("system.slice/idle", 7), ("batch/one", 7)] {
            counted(service, reads);
        }
        assert_eq!(protected(&mut resource), []);
        counted("system.slice/db", 12);
        counted("batch/one", 12);
        assert_eq!(protected(&mut resource), [("system.slice/db".to_owned(), 5)]);
        counted("system.slice/db", 2);
        assert_eq!(protected(&mut resource), [("system.slice/db".to_owned(), 2)], "it was made anew");
    }

    #[test]
    fn while_the_kernel_does_not_count_the_device_nothing_is_known_and_no_cgroup_is_limited() {
        let tree = tempfile::tempdir().unwrap();
        unpack(&format!("{TREE}sys/block/sda/mq/\n"), tree.path()).unwrap();
        let switch = |text: &str| {
            tidegate_host::trees::write_file(tree.path(), "sys/block/sda/queue/iostats", text.as_bytes())
                .unwrap();
        };
        switch("1\n");
        let root = SystemRoot::at(tree.path());
        let machine = crate::watch::MachineWatch::new(root.clone(), Default::default()).unwrap();
        let mut watch = LoadWatch::Machine(Box::new(machine));
        let config = AgentConfig::parse("agent.toml", TOLD).unwrap();
        let mut resource = CgroupResource::new(&root, config.cgroups[0].clone()).unwrap();
        let mut seconds = 0;
        let mut decides = |resource: &mut CgroupResource, looks: bool| {
            seconds += 1;
            let (now, elapsed) = (Instant::from_nanos(seconds * 1_000_000_000), Duration::from_secs(1));
            watch.sample(now).unwrap();
            let sample = MachineSample { elapsed, looked: looks.then_some(elapsed), changed: false };
            resource.observe(now, sample, &watch).unwrap().is_some()
        };
        assert!(decides(&mut resource, true));
        switch("0\n");
        assert!(!decides(&mut resource, true) && !decides(&mut resource, false));
        assert_eq!(resource.regulated.decision(), None, "the last one says nothing of now");
        assert!(resource.throttling().cgroups.values().all(|limit| *limit == IoLimit::NONE));
        assert_eq!(resource.status(true).uncounted.len(), 1);
        switch("1\n");
        assert!(decides(&mut resource, true));
        assert!(resource.status(true).uncounted.is_empty());
    }

    #[test]
    fn a_rescan_that_failed_is_done_again_at_the_next_step() {
        let tree = tempfile::tempdir().unwrap();
        unpack(TREE, tree.path()).unwrap();
        let root = SystemRoot::at(tree.path());
        let watch = LoadWatch::Machine(Box::new(
            crate::watch::MachineWatch::new(root.clone(), Default::default()).unwrap(),
        ));
        let config = AgentConfig::parse("agent.toml", TOLD).unwrap();
        let mut resource = CgroupResource::new(&root, config.cgroups[0].clone()).unwrap();
        let names = |resource: &CgroupResource| {
            resource.regulated.consumers().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let sample = |looked| MachineSample { elapsed: Duration::from_millis(100), looked, changed: false };
        let at = |tenths: u64| Instant::from_nanos(tenths * 100_000_000);
        resource.observe(at(1), sample(None), &watch).unwrap();
        assert_eq!(names(&resource), "batch/one");

        let (batch, away) = (tree.path().join("sys/fs/cgroup/batch"), tree.path().join("away"));
        fs::rename(&batch, &away).unwrap();
        symlink("batch", &batch).unwrap();
        resource.observe(at(2), sample(Some(Duration::from_secs(1))), &watch).unwrap_err();
        assert_eq!(names(&resource), "batch/one");

        fs::remove_file(&batch).unwrap();
        fs::rename(&away, &batch).unwrap();
        fs::create_dir(batch.join("two")).unwrap();
        resource.observe(at(3), sample(None), &watch).unwrap();
        assert_eq!(names(&resource), "batch/one batch/two");
    }
}
