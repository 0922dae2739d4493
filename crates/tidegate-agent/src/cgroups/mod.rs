//! A block device whose control groups are regulated: a resource of the throttle `cgroup`.

mod config;

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::{
    ConsumerCommand, ConsumerObservation, ControlLoop, Decision, LoopConfigError, Observation, Operations,
    Outstanding,
};
use tidegate_host::cgroup::{IoCounters, IoLimit};
use tidegate_host::sense::{CgroupReader, DiskDelta};
use tidegate_host::throttle::Hold;
use tidegate_host::{DeviceNumber, ReadError, Root};
use tidegate_regulate::{DirectionMix, WritePace};
use tidegate_units::{Bytes, ConsumerName, Instant, Iops, Latency, ResourceName, Shares};

pub use config::CgroupConfig;
pub(super) use config::{RESOURCE_KEYS, read};

use super::kernel_limits::io_limit;
use super::watch::{Sample, Watch};
use crate::metrics::ResourceStatus;

/// A cgroup that completes at least this fraction of its limit counts as throttled by it. The kernel does not
/// say which cgroups wait for a limit.
const HELD: f64 = 0.9;

/// A device that is being regulated.
#[derive(Debug)]
pub(super) struct CgroupResource {
    config: CgroupConfig,
    control: ControlLoop,
    reader: CgroupReader,
    device: Option<DeviceNumber>,
    consumers: BTreeMap<ConsumerName, Consumer>,
    others: Consumer,
    all_others: ConsumerName,
    ahead: Ahead,
    /// Since when requests are in flight without one having completed.
    waits_since: Option<Instant>,
    /// The time of the last reading in which everything could be read.
    seen: Instant,
    since_decision: Duration,
    decision: Option<Decision>,
    delay: Latency,
    reads: Operations,
    writes: Operations,
    /// True if the cgroups that are meant have to be found anew.
    stale: bool,
}

/// A cgroup, or all who are in none of them.
#[derive(Debug, Default)]
struct Consumer {
    /// Since the last decision, of what completed.
    reads: Operations,
    writes: Operations,
    /// Requests that went to the device while none came back, so that their response time is not known yet.
    undated: IoCounters,
    outstanding_seconds: f64,
    pace: WritePace,
    mix: DirectionMix,
    /// In force; `None`: it is not held.
    rate: Option<Iops>,
}

/// Requests that cgroups were counted for before the device has completed them: a cgroup's are counted when
/// they go to the device. Whoever takes one count from the other without regard to that finds others at work
/// who are not there.
#[derive(Debug, Default)]
struct Ahead {
    reads: Lead,
    writes: Lead,
}

/// The requests of one direction that the cgroups were counted for and the device has not completed.
#[derive(Debug, Default)]
struct Lead(u64);

impl Lead {
    /// Returns the number of completed requests that came from outside the cgroups meant, after these have
    /// sent `sent` requests to the device.
    fn of_others(&mut self, completed: u64, sent: u64, in_flight: u64) -> u64 {
        let theirs = self.0.saturating_add(sent);
        // What is neither completed nor in flight was merged into something that is.
        self.0 = theirs.saturating_sub(completed).min(in_flight);
        completed.saturating_sub(theirs)
    }
}

impl CgroupResource {
    pub(super) fn new(root: &Root, config: CgroupConfig) -> Result<Self, CgroupSetUpError> {
        Ok(Self {
            control: ControlLoop::new(config.law.clone())?,
            reader: CgroupReader::new(root, config.cgroups.clone())?,
            config,
            device: None,
            consumers: BTreeMap::new(),
            others: Consumer::default(),
            all_others: ConsumerName::new("(all others)").expect("neither empty nor too long"),
            ahead: Ahead::default(),
            waits_since: None,
            seen: Instant::ZERO,
            since_decision: Duration::ZERO,
            decision: None,
            delay: Latency::ZERO,
            reads: Operations::default(),
            writes: Operations::default(),
            stale: true,
        })
    }

    /// Changes the set-up while running, without letting go of anybody in between.
    pub(super) fn reconfigure(&mut self, config: CgroupConfig) -> Result<(), LoopConfigError> {
        self.control.reconfigure(config.law.clone())?;
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
    /// When it cannot be read who did it.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        sample: Sample,
        watch: &Watch,
    ) -> Result<Option<Decision>, ReadError> {
        if self.stale || sample.looked.is_some() {
            self.device = watch.number(&self.config.device);
            // Until it works it is tried at each step.
            self.stale = true;
            self.reader.look()?;
            self.follow_cgroups();
            self.stale = false;
        }
        if let Some(device) = self.device {
            self.reader.read(device)?;
            match watch.did(device) {
                Some(done) => self.take(now, sample.elapsed, &done),
                None => self.waits_since = None,
            }
        }
        self.seen = now;
        self.since_decision = self.since_decision.saturating_add(sample.elapsed);
        // A tick that comes a little early is this interval's all the same.
        if self.since_decision + sample.elapsed / 2 < self.config.law.interval {
            return Ok(None);
        }
        let observation = self.observation(now);
        let (commands, decision) = self.control.step(now, &observation);
        self.obey(&commands.consumers);
        self.decision = Some(decision.clone());
        Ok(Some(decision))
    }

    /// Those that come begin free; those that are gone are forgotten.
    fn follow_cgroups(&mut self) {
        let mut known = std::mem::take(&mut self.consumers);
        for (name, _) in self.reader.cgroups() {
            self.consumers.insert(name.clone(), known.remove(name).unwrap_or_default());
        }
    }

    /// Adds what was done since the sample before.
    fn take(&mut self, now: Instant, elapsed: Duration, device: &DiskDelta) {
        let completed = device.reads.ios + device.writes.ios;
        let waits = device.in_flight > 0 && completed == 0;
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
        let (mut all, mut unknown) = (IoCounters::default(), false);
        for (name, cgroup) in self.reader.cgroups() {
            let Some(consumer) = self.consumers.get_mut(name) else { continue };
            all = plus(all, cgroup.done());
            unknown |= cgroup.is_new();
            consumer.take(elapsed, cgroup.done(), device);
        }
        if unknown {
            // Whose requests these were, and which of them are on their way, is not known: nobody else's are
            // seen among them.
            self.ahead = Ahead { reads: Lead(u64::MAX), writes: Lead(u64::MAX) };
        }
        // The device may merge and split what cgroups do: what is left is about what others did.
        let others = IoCounters {
            reads: self.ahead.reads.of_others(device.reads.ios, all.reads, device.in_flight),
            writes: self.ahead.writes.of_others(device.writes.ios, all.writes, device.in_flight),
            read: Bytes::new(device.reads.bytes().get().saturating_sub(all.read.get())),
            written: Bytes::new(device.writes.bytes().get().saturating_sub(all.written.get())),
        };
        self.others.take(elapsed, others, device);
        add(&mut self.reads, device.reads.ios, device.reads.bytes(), device.reads.response_time);
        add(&mut self.writes, device.writes.ios, device.writes.bytes(), device.writes.response_time);
    }

    /// Returns the observation since the last decision.
    fn observation(&mut self, now: Instant) -> Observation {
        let since = std::mem::take(&mut self.since_decision);
        let waited = self.waits_since.map(|since| now.latency_since(since));
        let nobodys = self.consumers.values().all(|consumer| consumer.undated == IoCounters::default());
        let mut consumers = Vec::with_capacity(self.consumers.len() + 1);
        let mut others = self.others.observation(self.all_others.clone(), true, since, waited);
        // Whose they are is not known, and that they wait is.
        if waited.is_some() && nobodys {
            others.reads.in_flight = others.reads.in_flight.max(1);
            others.reads.oldest_in_flight = waited;
        }
        consumers.push(others);
        for (name, consumer) in &mut self.consumers {
            let goal = self.config.goal(name);
            let observed = consumer.observation(name.clone(), false, since, waited);
            consumers.push(ConsumerObservation { goal, ..observed });
        }
        Observation::new(self.config.law.resource.clone(), now, consumers)
    }

    /// A law commands a rate, or a delay, which comes to a rate by Little's law.
    fn obey(&mut self, commands: &[ConsumerCommand]) {
        self.delay = commands.iter().filter_map(|command| command.delay).max().unwrap_or_default();
        let floor = self.config.floor;
        for command in commands {
            let Some(consumer) = self.consumers.get_mut(&command.name) else { continue };
            let delay = command.delay.unwrap_or_default();
            let rate = command.rate.or_else(|| consumer.pace.rate(delay, floor));
            consumer.rate = rate.map(|rate| if rate < floor { floor } else { rate });
        }
    }

    /// Returns the throttling that is to be in force.
    pub(super) fn hold(&self) -> Hold {
        let limit = |consumer: &Consumer| {
            let limits = consumer.rate.and_then(|rate| consumer.mix.limits(rate));
            limits.map_or(IoLimit::NONE, io_limit)
        };
        let limits = self.device.into_iter().flat_map(|device| {
            self.consumers.iter().map(move |(name, consumer)| ((name.clone(), device), limit(consumer)))
        });
        Hold {
            resource: self.config.law.resource.clone(),
            members: [].into(),
            delay: Latency::ZERO,
            limits: [].into(),
            cgroups: limits.collect(),
        }
    }

    /// Returns the time of the last reading in which everything could be read.
    pub(super) const fn seen(&self) -> Instant {
        self.seen
    }

    /// Lets go of everybody until the next decision.
    pub(super) fn let_go(&mut self) {
        self.delay = Latency::ZERO;
        for consumer in self.consumers.values_mut() {
            consumer.rate = None;
            consumer.pace.release();
        }
    }

    /// Returns the resource's state. `present` says whether the machine has the device.
    pub(super) fn status(&self, present: bool) -> ResourceStatus {
        ResourceStatus {
            name: self.config.law.resource.clone(),
            present,
            dry_run: self.config.law.dry_run,
            delay: self.delay,
            limits: BTreeMap::new(),
            decision: self.decision.clone(),
            reads: self.reads,
            writes: self.writes,
            members: self.consumers.keys().cloned().collect(),
        }
    }

    /// The goals of those that have one of their own.
    pub(super) fn goals(&self) -> impl Iterator<Item = ((ResourceName, ConsumerName), Latency)> + '_ {
        let resource = &self.config.law.resource;
        let names = self.consumers.keys();
        names.filter_map(|name| Some(((resource.clone(), name.clone()), self.config.goal(name)?)))
    }

    /// The device, as far as it is there.
    pub(super) fn device(&self) -> Option<DeviceNumber> {
        self.device
    }

    /// Those whose I/O the kernel does not account for, and so does not limit.
    pub(super) fn unaccounted(&self) -> impl Iterator<Item = &ConsumerName> {
        let silent = self.reader.cgroups().filter(|(_, cgroup)| !cgroup.is_accounted());
        silent.map(|(name, _)| name).filter(|_| self.device.is_some())
    }
}

impl Consumer {
    /// Adds what went to the device. How long that took is what everybody's took meanwhile: of each cgroup
    /// the kernel does not say.
    fn take(&mut self, elapsed: Duration, done: IoCounters, device: &DiskDelta) {
        let transferred = |count, bytes| Operations { count, bytes, ..Operations::default() };
        let (reads, writes) = (transferred(done.reads, done.read), transferred(done.writes, done.written));
        self.mix.observe(elapsed, &reads, &writes);
        self.undated = plus(self.undated, done);
        let mut seconds = Operations::default();
        if let Some(mean) = device.reads.mean_response_time() {
            let (count, bytes) =
                (std::mem::take(&mut self.undated.reads), std::mem::take(&mut self.undated.read));
            for total in [&mut self.reads, &mut seconds] {
                add(total, count, bytes, mean.scale(count as f64));
            }
        }
        if let Some(mean) = device.writes.mean_response_time() {
            let (count, bytes) =
                (std::mem::take(&mut self.undated.writes), std::mem::take(&mut self.undated.written));
            for total in [&mut self.writes, &mut seconds] {
                add(total, count, bytes, mean.scale(count as f64));
            }
        }
        let waits = self.pace.observe(elapsed, &seconds);
        self.outstanding_seconds += seconds.total_latency.as_secs_f64() + waits;
    }

    fn observation(
        &mut self,
        name: ConsumerName,
        protected: bool,
        since: Duration,
        waited: Option<Latency>,
    ) -> ConsumerObservation {
        let (mut reads, mut writes) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.writes));
        for (operations, undated) in [(&mut reads, self.undated.reads), (&mut writes, self.undated.writes)] {
            if waited.is_some() && undated > 0 {
                operations.in_flight = u32::try_from(undated).unwrap_or(u32::MAX);
                operations.oldest_in_flight = waited;
            }
        }
        let seconds = std::mem::take(&mut self.outstanding_seconds);
        let time = since.as_secs_f64();
        let could = self.rate.map(|rate| rate.per_second() * time);
        let is_held = could.is_some_and(|could| (reads.count + writes.count) as f64 >= HELD * could);
        ConsumerObservation {
            mean_outstanding: Outstanding::new(if time > 0.0 { seconds / time } else { 0.0 }),
            short_of_tokens: if is_held { Latency::from_secs_f64(time) } else { Latency::ZERO },
            reads,
            writes,
            ..ConsumerObservation::idle(name, Shares::DEFAULT, protected)
        }
    }
}

fn add(total: &mut Operations, count: u64, bytes: Bytes, time: Latency) {
    total.count = total.count.saturating_add(count);
    total.bytes = Bytes::new(total.bytes.get().saturating_add(bytes.get()));
    total.total_latency = total.total_latency.saturating_add(time);
}

fn plus(one: IoCounters, other: IoCounters) -> IoCounters {
    let bytes = |one: Bytes, other: Bytes| Bytes::new(one.get().saturating_add(other.get()));
    IoCounters {
        reads: one.reads.saturating_add(other.reads),
        writes: one.writes.saturating_add(other.writes),
        read: bytes(one.read, other.read),
        written: bytes(one.written, other.written),
    }
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
    fn what_is_on_its_way_is_not_somebody_elses() {
        let mut lead = Lead::default();
        // Sent 40, of which 30 are in flight; then these complete while as many more are sent.
        assert_eq!(lead.of_others(10, 40, 30), 0);
        assert_eq!(lead.of_others(40, 10, 0), 0);
        assert_eq!(lead.of_others(7, 5, 0), 2);
        // Two were merged into one: what never completes by itself excuses nobody for ever.
        assert_eq!(lead.of_others(5, 10, 0), 0);
        assert_eq!(lead.of_others(5, 0, 0), 5);
    }

    #[test]
    fn the_shortest_goal_that_is_said_of_a_cgroup_is_its() {
        let text =
            format!("{TOLD}law = 'self-tuning'\ngoals = {{ 'batch/*' = '30ms', 'batch/one' = '20ms' }}\n");
        let config = AgentConfig::parse("agent.toml", &text).unwrap();
        let goal = |name| config.cgroups[0].goal(&ConsumerName::new(name).unwrap());
        let found = ["batch/one", "batch/two", "batch", "batch/two/three"].map(goal);
        assert_eq!(found, [Some(Latency::from_millis(20)), Some(Latency::from_millis(30)), None, None]);
    }

    #[test]
    fn a_look_that_failed_is_done_again_at_the_next_step() {
        let tree = tempfile::tempdir().unwrap();
        unpack(TREE, tree.path()).unwrap();
        let root = Root::at(tree.path());
        let watch = Watch::new(root.clone()).unwrap();
        let config = AgentConfig::parse("agent.toml", TOLD).unwrap();
        let mut resource = CgroupResource::new(&root, config.cgroups[0].clone()).unwrap();
        let names = |resource: &CgroupResource| {
            resource.consumers.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let sample = |looked| Sample { elapsed: Duration::from_millis(100), looked, changed: false };
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
