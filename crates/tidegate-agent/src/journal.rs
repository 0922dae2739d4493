//! The agent's part of the decision journal: the decisions of each step, with the throttling in force before.

use std::collections::BTreeSet;

use tidegate_control::Decision;
use tidegate_host::throttle::{ThrottleInForce, ThrottleMethod, ThrottleRequest};
use tidegate_journal::{
    ActionRecord, JournalConfig, JournalError, JournalWriter, ResourceJournal, ThrottleMechanism,
    ThrottleReading,
};
use tidegate_units::{Instant, ResourceName};

use super::regulator::MachineRegulator;

/// The decision journal of an agent that keeps one.
#[derive(Debug)]
pub(super) struct AgentJournal {
    writer: JournalWriter,
    mechanism: ThrottleMechanism,
    /// In the order of [`MachineRegulator::regulated`].
    resources: Vec<RecordedResource>,
}

#[derive(Debug)]
struct RecordedResource {
    name: ResourceName,
    journal: ResourceJournal,
    /// The throttling that was in force after the step before. `None`: the resource is on a dry run.
    reading: Option<ThrottleReading>,
}

impl AgentJournal {
    /// Begins a journal of all resources. `now` is the time of the steps.
    pub(super) fn start(
        config: JournalConfig,
        method: ThrottleMethod,
        regulator: &MachineRegulator,
        now: Instant,
    ) -> Result<Self, JournalError> {
        let writer = JournalWriter::start(config, now)?;
        let mut journal = Self { writer, mechanism: mechanism(method), resources: Vec::new() };
        journal.take_loops(regulator, now);
        Ok(journal)
    }

    /// Records an action that changed the configuration, and the loops as they are now.
    pub(super) fn reconfigured(&mut self, action: ActionRecord, regulator: &MachineRegulator, now: Instant) {
        self.take_loops(regulator, now);
        self.writer.action(action);
    }

    fn take_loops(&mut self, regulator: &MachineRegulator, now: Instant) {
        let mut known = std::mem::take(&mut self.resources);
        for regulated in regulator.regulated() {
            let (control, name) = (regulated.control(), &regulated.law().resource);
            let resource = match known.iter().position(|known| known.name == *name) {
                Some(place) => {
                    let mut resource = known.swap_remove(place);
                    resource.journal.checkpoint(control);
                    resource
                }
                None => RecordedResource {
                    name: name.clone(),
                    journal: self.writer.resource_throttled_by(self.mechanism, control, now),
                    reading: None,
                },
            };
            self.resources.push(resource);
        }
    }

    /// Records the decisions of the step at `now`. Of the resources that are `unheld` no consumer is
    /// throttled, whatever was decided.
    pub(super) fn record(
        &mut self,
        regulator: &MachineRegulator,
        now: Instant,
        unheld: &BTreeSet<ResourceName>,
    ) {
        for (resource, regulated) in self.resources.iter_mut().zip(regulator.regulated()) {
            let Some(last) = regulated.last().filter(|last| last.observation.at == now) else { continue };
            let is_unheld = unheld.contains(&resource.name);
            let unheld = is_unheld.then(|| Decision { held: 0, ..last.decision.clone() });
            resource.journal.record(
                regulated.control(),
                &last.observation,
                &last.commands,
                unheld.as_ref().unwrap_or(&last.decision),
                resource.reading.as_ref(),
            );
        }
    }

    /// Takes note of the throttling that is in force until the next step. `in_force` tells it for a request.
    pub(super) fn read_back(
        &mut self,
        regulator: &MachineRegulator,
        in_force: impl Fn(&ThrottleRequest) -> ThrottleInForce,
    ) {
        let readings = regulator.readings(in_force);
        for (resource, reading) in self.resources.iter_mut().zip(readings) {
            resource.reading = reading;
        }
    }

    /// Writes everything, and ends the journal.
    pub(super) fn close(&self) {
        self.writer.close();
    }
}

const fn mechanism(method: ThrottleMethod) -> ThrottleMechanism {
    match method {
        ThrottleMethod::Netem | ThrottleMethod::Edt => ThrottleMechanism::PacketDelay,
        ThrottleMethod::Rate => ThrottleMechanism::DeviceLimit,
        ThrottleMethod::Cgroup => ThrottleMechanism::CgroupLimit,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use tempfile::TempDir;
    use tidegate_host::SystemRoot;
    use tidegate_host::trees::{unpack, write_file};
    use tidegate_journal::{EntryContent, EntryFilter, JournalReader, LoopReplay, ReplayedDecision};
    use tidegate_service::explain::{ExplanationFold, ResourceExplanation};
    use tidegate_service::journal::reload_record;

    use super::*;
    use crate::config::AgentConfig;

    const VOLUMES: &str = include_str!("../../tidegate-host/tests/fixtures/lio-acls.tree");

    const VOLUME_GROUP: &str = "[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\n";

    const CGROUPS: &str = "proc/self/mountinfo
  30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
proc/diskstats
  8 0 sda 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
sys/block/sda/dev
  8:0
sys/block/sda/size
  2097152
sys/fs/cgroup/cgroup.controllers
  cpu io memory
sys/fs/cgroup/batch/io.stat
";

    const DISK: &str = "throttle = 'cgroup'\n[resource.disk]\ndevice = 'sda'\nlaw = 'pid'\ntarget = '10ms'\n\
        cgroups = ['ba*']\n";

    /// A machine whose storage answers too slowly, and its agent with a journal.
    struct SlowMachine {
        tree: TempDir,
        regulator: MachineRegulator,
        journal: AgentJournal,
        now: Instant,
    }

    impl SlowMachine {
        fn new(tree_text: &str, config: &str) -> Self {
            let tree = tempfile::tempdir().unwrap();
            unpack(tree_text, tree.path()).unwrap();
            let config = AgentConfig::parse("agent.toml", config).unwrap();
            let regulator = MachineRegulator::new(SystemRoot::at(tree.path()), &config).unwrap();
            let kept = JournalConfig::new(tree.path().join("journal"), "test".to_owned());
            let journal = AgentJournal::start(kept, config.throttle, &regulator, Instant::ZERO).unwrap();
            Self { tree, regulator, journal, now: Instant::ZERO }
        }

        /// Steps of a tenth of a second. `write_counters` writes what was done by then, from the number of
        /// the step.
        fn run(&mut self, steps: u64, unheld: &[&str], write_counters: impl Fn(&Path, u64)) {
            let unheld = unheld.iter().map(|name| ResourceName::new(name).unwrap()).collect();
            for _ in 0..steps {
                self.now = self.now + Duration::from_millis(100);
                write_counters(self.tree.path(), self.now.as_nanos() / 100_000_000);
                let step = self.regulator.step(self.now);
                assert!(step.blind.is_none(), "{:?}", step.blind);
                self.journal.record(&self.regulator, self.now, &unheld);
                // A kernel that confirms everything.
                self.journal.read_back(&self.regulator, |wanted| ThrottleInForce {
                    delay: wanted.delay,
                    own_delays: wanted.own_delays.clone(),
                    limits: wanted.limits.clone(),
                    cgroups: wanted.cgroups.clone(),
                });
            }
        }

        fn reload(&mut self, config: &str) {
            self.regulator.reconfigure(&AgentConfig::parse("agent.toml", config).unwrap()).unwrap();
            let action = reload_record(Path::new("agent.toml"));
            self.journal.reconfigured(action, &self.regulator, self.now);
        }

        fn replayed(&self) -> (Vec<ReplayedDecision>, ResourceExplanation) {
            self.journal.close();
            let reader = JournalReader::open(&self.tree.path().join("journal")).unwrap();
            let mut replay = reader.replay(EntryFilter::default(), LoopReplay::as_recorded()).unwrap();
            let (mut decisions, mut fold) = (Vec::new(), ExplanationFold::default());
            while let Some(replayed) = replay.next() {
                let replayed = replayed.unwrap();
                let (loops, name) = (replay.loops(), replayed.recorded.resource());
                fold.take(&replayed, loops.config(name).unwrap(), loops.mechanism(name).unwrap());
                decisions.push(replayed);
            }
            let entries = reader.entries(EntryFilter::default()).unwrap().map(|entry| entry.unwrap().content);
            let reloads = entries.filter(|entry| matches!(entry, EntryContent::Action(_))).count();
            assert_eq!(reloads, 1);
            (decisions, fold.explain(None).remove(0))
        }
    }

    /// One volume is read slowly, two are written.
    fn volumes(root: &Path, step: u64) {
        let (reads, writes) = (6 * step, 40 * step);
        let line = |minor: u64, reads: u64, writes: u64| {
            let (read_ms, write_ms) = (40 * reads, 20 * writes);
            let (read, written, all_ms) = (8 * reads, 128 * writes, read_ms + write_ms);
            format!(
                "254 {minor} dm-{minor} {reads} 0 {read} {read_ms} {writes} 0 {written} {write_ms} 0 0 \
                 {all_ms} 0 0 0 0 0 0\n"
            )
        };
        let text = [line(0, reads, 0), line(1, 0, writes), line(2, 0, writes)].concat();
        fs::write(root.join("proc/diskstats"), text).unwrap();
    }

    /// A cgroup and others read a disk slowly.
    fn disk(root: &Path, step: u64) {
        let (own, all) = (45 * step, 50 * step);
        let text = format!("8 0 sda {all} 0 {} {} 0 0 0 0 1 0 0 0 0 0 0 0 0\n", 8 * all, 20 * all);
        write_file(root, "proc/diskstats", text.as_bytes()).unwrap();
        let text = format!("8:0 rbytes={} wbytes=0 rios={own} wios=0 dbytes=0 dios=0\n", own * 4_096);
        write_file(root, "sys/fs/cgroup/batch/io.stat", text.as_bytes()).unwrap();
    }

    #[test]
    fn delays_of_packets_are_replayed_bit_for_bit_and_explained_with_what_was_in_force() {
        let mut machine = SlowMachine::new(VOLUMES, VOLUME_GROUP);
        machine.run(40, &[], volumes);
        machine.reload(&VOLUME_GROUP.replace("15ms", "14ms"));
        machine.run(40, &[], volumes);
        let (decisions, told) = machine.replayed();
        assert_eq!(decisions.len(), 79, "the first step has no counters to compare with");
        assert!(decisions.iter().all(ReplayedDecision::agrees));
        assert_eq!(told.mechanism, ThrottleMechanism::PacketDelay);
        assert!((told.signal.target_seconds - 0.014).abs() < 1e-9, "{told:?}");
        let writers: Vec<_> = told.consumers.iter().filter(|consumer| !consumer.protected).collect();
        assert_eq!(writers.len(), 2);
        for writer in writers {
            let delay = writer.in_force.as_ref().unwrap().delay_seconds.unwrap();
            assert!(writer.throttled && delay > 0.0, "{writer:?}");
            // The decision before this one put it into force.
            let before = &decisions[77].recorded;
            let command = before.commands().consumers.iter().find(|one| one.name.as_str() == writer.name);
            let commanded = command.unwrap().delay.unwrap().as_secs_f64();
            assert!((delay - commanded).abs() < 1e-9, "{delay} after {commanded}");
        }
    }

    #[test]
    fn limits_of_cgroups_are_replayed_bit_for_bit_and_explained_with_what_was_in_force() {
        let mut machine = SlowMachine::new(CGROUPS, DISK);
        machine.run(40, &[], disk);
        machine.reload(DISK);
        machine.run(40, &[], disk);
        let (decisions, told) = machine.replayed();
        assert_eq!(decisions.len(), 79, "the first step has no counters to compare with");
        assert!(decisions.iter().all(ReplayedDecision::agrees));
        assert_eq!(told.mechanism, ThrottleMechanism::CgroupLimit);
        let batch = told.consumers.iter().find(|consumer| consumer.name == "batch").unwrap();
        let in_force = batch.in_force.as_ref().unwrap();
        assert!(batch.throttled && in_force.read_iops.unwrap() < 450.0, "{batch:?}");
        assert_eq!(in_force.delay_seconds, None, "no packet is delayed");
    }

    #[test]
    fn a_throttle_that_failed_is_no_throttling() {
        let mut machine = SlowMachine::new(CGROUPS, DISK);
        machine.run(40, &["disk"], disk);
        machine.reload(DISK);
        let (decisions, told) = machine.replayed();
        assert!(decisions.iter().all(ReplayedDecision::agrees));
        assert!(told.consumers.iter().all(|consumer| !consumer.throttled), "{told:?}");
        assert!(decisions.iter().all(|replayed| replayed.recorded.held() == 0));
    }
}
