//! A control interval: observe, tell the others, decide, carry out.

use tidegate_control::{Decision, LoopConfig, Observation};
use tidegate_units::Latency;

use super::{EngineEvent, NONE, Simulation, instant};
use crate::recorder::Recorder;

/// Memory that every step uses again.
#[derive(Default)]
pub(super) struct StepMemory {
    observations: Vec<(u32, Observation)>,
}

/// Returns true if a host tells the others its decision, rather than its measurements.
fn tells_decisions(law: Option<&LoopConfig>) -> bool {
    law.is_some_and(|law| law.bands.is_some() || law.law.kind().has_operating_point())
}

impl Simulation<'_> {
    /// Steps the loops of a group: first all observe and report, then all decide.
    pub(super) fn step(&mut self, group: u32, recorder: &mut dyn Recorder) {
        let mut observations = std::mem::take(&mut self.steps.observations);
        for at in 0..self.groups[group as usize].stages.len() {
            let stage = self.groups[group as usize].stages[at];
            if self.hosts[self.stages[stage as usize].host as usize].up {
                let observation = self.observe(stage);
                if !self.is_regulated(stage) {
                    continue;
                }
                self.report(stage, &observation);
                observations.push((stage, observation));
            }
        }
        for (stage, mut observation) in observations.drain(..) {
            self.decide(stage, &mut observation, recorder);
        }
        self.steps.observations = observations;
        let next = self.now.saturating_add(self.groups[group as usize].interval);
        self.queue.push(next, EngineEvent::Step { group });
    }

    /// Steps one loop between its times. Rates are divided anew as soon as a consumer comes back, not up to
    /// an interval later.
    pub(super) fn step_out_of_turn(&mut self, stage: u32, recorder: &mut dyn Recorder) {
        if self.hosts[self.stages[stage as usize].host as usize].up && self.is_regulated(stage) {
            let mut observation = self.observe(stage);
            self.decide(stage, &mut observation, recorder);
        }
    }

    /// Returns true if the stage's law decides yet. Earlier observations are thrown away, so that the first
    /// decision is about one interval.
    fn is_regulated(&self, stage: u32) -> bool {
        let host = &self.scenario.hosts[self.stages[stage as usize].host as usize];
        host.law_from <= instant(self.now)
    }

    fn observe(&mut self, stage: u32) -> Observation {
        let now = instant(self.now);
        let stage = &mut self.stages[stage as usize];
        let percentile = stage.percentile.as_mut().and_then(|latencies| latencies.end(now));
        let (queue, ports) = (&mut stage.queue, &stage.ports);
        let consumers = ports
            .iter()
            .map(|&port| {
                let port = &mut self.ports[port as usize];
                let oldest = port.at_array.map(|(oldest, _)| {
                    (oldest != NONE).then(|| instant(self.requests[oldest as usize].dispatched))
                });
                let mut consumer = queue.observe(&mut port.account, oldest, now);
                let changes = &self.scenario.vms[port.vm as usize].goal_changes;
                let due = changes.iter().filter(|change| change.at <= now);
                if let Some(change) = due.max_by_key(|change| change.at) {
                    consumer.goal = Some(change.goal);
                }
                consumer
            })
            .collect();
        Observation { percentile, ..Observation::new(stage.resource.clone(), now, consumers) }
    }

    /// Tells the others, where it steers together with them.
    fn report(&mut self, stage: u32, observation: &Observation) {
        let stage = &mut self.stages[stage as usize];
        let Some(steering) = &mut stage.steering else { return };
        // Also where it steers alone: the report says what it measured, for the time series.
        let Some(report) = stage.queue.report(observation) else { return };
        steering.local = (report.completed > 0)
            .then(|| Latency::from_nanos(report.total_latency.as_nanos() / report.completed));
        let Some(member) = steering.member else { return };
        if tells_decisions(stage.queue.law()) {
            self.cluster.prepare(member, report);
        } else {
            let messages = self.cluster.publish(member, report, self.now, &mut self.queue);
            self.work.messages += messages;
        }
    }

    /// Decides, and puts the commands into force.
    fn decide(&mut self, index: u32, observation: &mut Observation, recorder: &mut dyn Recorder) {
        let now = instant(self.now);
        let stage = &mut self.stages[index as usize];
        let Some(steering) = &mut stage.steering else { return };
        if let Some(member) = steering.member
            && let Some(law) = stage.queue.law()
        {
            observation.cluster = self.cluster.conclude(member, law.interval, self.now);
            steering.together = observation.cluster.as_ref().and_then(|cluster| cluster.mean);
        }
        recorder.observation(&self.scenario.hosts[stage.host as usize].name, observation);
        let Some((mut commands, decision)) = stage.queue.decide(observation) else { return };
        if let Some(member) = steering.member.filter(|_| tells_decisions(stage.queue.law()))
            && let Some(report) = self.cluster.prepared(member)
        {
            let report = stage.queue.decided(report);
            self.work.messages += self.cluster.publish(member, report, self.now, &mut self.queue);
        }
        steering.beta = decision.beta.or(steering.beta);
        steering.estimate = decision.estimate;
        if let Some(reserved) = &decision.reserved {
            stage.promises.judge(reserved);
        }
        stage.window.set(Some(stage.queue.window().get()), self.now);
        for &port in &stage.ports {
            stage.queue.carry_out(&mut commands, &mut self.ports[port as usize].account, now);
        }
        self.work.steps += 1;
        self.tell(index, &decision, recorder);
        self.pump(index);
    }

    fn tell(&self, stage: u32, decision: &Decision, recorder: &mut dyn Recorder) {
        let stage = &self.stages[stage as usize];
        let consumer = self.scenario.vms.get(stage.vm as usize).map(|vm| &vm.name);
        recorder.decision(&self.scenario.hosts[stage.host as usize].name, consumer, decision);
    }
}
