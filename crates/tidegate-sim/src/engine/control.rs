//! A control interval: observe, tell the others, decide, carry out.

use tidegate_control::{
    Commands, ConsumerObservation, ControlLoop, Decision, Observation, Operations,
    Outstanding as MeanOutstanding,
};
use tidegate_sched::CostModel;
use tidegate_units::{Bytes, Latency};

use super::{Event, NONE, Port, Simulation, instant};
use crate::recorder::Recorder;

/// Memory that every step uses again.
#[derive(Default)]
pub(super) struct Scratch {
    observations: Vec<(u32, Observation)>,
}

/// Returns true if a host tells the others its decision, rather than its measurements.
fn tells_decisions(control: &ControlLoop) -> bool {
    control.config().law.kind().has_operating_point()
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
        self.queue.push(next, Event::Step { group });
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
        let stage = &self.stages[stage as usize];
        let consumers = stage
            .ports
            .iter()
            .map(|&port| {
                let port = &mut self.ports[port as usize];
                let oldest = port.at_array.map(|(oldest, _)| {
                    let dispatched = (oldest != NONE).then(|| self.requests[oldest as usize].dispatched);
                    dispatched.map(|at| Latency::from_nanos(self.now - at))
                });
                let vm = &self.scenario.vms[port.vm as usize];
                let [reads, writes] = port.take_interval(oldest);
                let (requests, bytes) = port.sizes;
                let in_requests = |rate| CostModel::default().in_requests(rate, requests, bytes);
                let mut consumer = ConsumerObservation {
                    reservation: vm.reservation.map(in_requests),
                    reads,
                    writes,
                    mean_outstanding: MeanOutstanding::new(
                        port.observed.mean(port.outstanding.integral(self.now), self.now),
                    ),
                    queued: port.queued,
                    ..ConsumerObservation::idle(vm.name.clone(), vm.shares, vm.protected)
                };
                if let Some(tenant) = &mut port.tenant {
                    let now = instant(self.now);
                    tenant.observe(&mut consumer, stage.scheduler.status(port.flow, now), now);
                }
                consumer
            })
            .collect();
        Observation::new(stage.resource.clone(), instant(self.now), consumers)
    }

    /// Tells the others, where it steers together with them.
    fn report(&mut self, stage: u32, observation: &Observation) {
        let Some(law) = &mut self.stages[stage as usize].law else { return };
        // Also where it steers alone: the report says what it measured, for the time series.
        let report = law.control.report(observation);
        law.local = (report.completed > 0)
            .then(|| Latency::from_nanos(report.total_latency.as_nanos() / report.completed));
        let Some(member) = law.member else { return };
        if tells_decisions(&law.control) {
            self.cluster.prepare(member, report);
        } else {
            let messages = self.cluster.publish(member, report, self.now, &mut self.queue);
            self.work.messages += messages;
        }
    }

    fn decide(&mut self, stage: u32, observation: &mut Observation, recorder: &mut dyn Recorder) {
        let now = instant(self.now);
        let Some(law) = &mut self.stages[stage as usize].law else { return };
        if let Some(member) = law.member {
            observation.cluster = self.cluster.conclude(member, law.config.interval, self.now);
            law.together = observation.cluster.as_ref().and_then(|cluster| cluster.mean);
        }
        let (commands, decision) = law.control.step(now, observation);
        if let Some(member) = law.member.filter(|_| tells_decisions(&law.control))
            && let Some(report) = self.cluster.prepared(member)
        {
            let report = law.control.decided(report);
            self.work.messages += self.cluster.publish(member, report, self.now, &mut self.queue);
        }
        law.beta = decision.beta.or(law.beta);
        law.estimate = decision.estimate;
        if let Some(reserved) = &decision.reserved {
            self.stages[stage as usize].promises.judge(reserved);
        }
        self.work.steps += 1;
        self.tell(stage, &decision, recorder);
        self.carry_out(stage, &commands);
    }

    fn tell(&self, stage: u32, decision: &Decision, recorder: &mut dyn Recorder) {
        let stage = &self.stages[stage as usize];
        let consumer = self.scenario.vms.get(stage.vm as usize).map(|vm| &vm.name);
        recorder.decision(&self.scenario.hosts[stage.host as usize].name, consumer, decision);
    }

    /// Puts commands into force. Consumers without a command are released.
    fn carry_out(&mut self, index: u32, commands: &Commands) {
        let now = instant(self.now);
        let stage = &mut self.stages[index as usize];
        stage.commanded = commands.window;
        let window = stage.in_force();
        stage.scheduler.set_window(Some(window), now);
        stage.scheduler.set_spacing(commands.spacing.unwrap_or_default());
        stage.window.set(Some(window.get()), self.now);
        // Commands come in the order of the observation, which is that of the ports, less the protected ones.
        let mut commands = commands.consumers.iter().peekable();
        for &port in &stage.ports {
            let port = &mut self.ports[port as usize];
            let name = &self.scenario.vms[port.vm as usize].name;
            let command = commands.next_if(|command| command.name == *name);
            let delay = command.and_then(|command| command.delay).unwrap_or_default();
            if let Some(tenant) = &mut port.tenant {
                let rate = command.and_then(|command| command.rate);
                tenant.hold(rate, &mut stage.scheduler, port.flow, now);
            }
            if delay != port.delay {
                port.delay = delay;
                let known = stage.scheduler.set_delay(port.flow, delay, now);
                debug_assert!(known.is_ok(), "the scheduler knows every port's flow");
            }
        }
        self.pump(index);
    }
}

impl Port {
    /// Reads and writes since the last time.
    fn take_interval(&mut self, oldest: [Option<Latency>; 2]) -> [Operations; 2] {
        let mut taken = self.interval;
        for (kind, operations) in self.interval.iter_mut().enumerate() {
            taken[kind].oldest_in_flight = oldest[kind];
            *operations = Operations { in_flight: operations.in_flight, ..Operations::default() };
        }
        let requests = taken[0].count + taken[1].count;
        if requests > 0 {
            self.sizes = (requests, Bytes::new(taken[0].bytes.get() + taken[1].bytes.get()));
        }
        taken
    }
}
