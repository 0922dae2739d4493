//! Hosts, virtual machines and workloads come and go.

use tidegate_units::Instant;

use super::plan::nanos;
use super::{EngineEvent, NONE, Simulation, StageSteering, instant, queue};
use crate::scenario::ScenarioSpan;

/// Something comes or goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum LifeChange {
    Host { host: u32, up: bool },
    Vm { vm: u32, on: bool },
    Stream { stream: u32, during: bool },
}

impl Simulation<'_> {
    /// Plans all that is known at the beginning.
    pub(super) fn plan_everything(&mut self) {
        let scenario = self.scenario;
        for (host, spec) in (0u32..).zip(&scenario.hosts) {
            for span in &spec.down {
                self.plan_span(*span, |begins| LifeChange::Host { host, up: !begins });
            }
        }
        for (array, spec) in (0u32..).zip(&scenario.arrays) {
            for (change, at) in (0u32..).zip(spec.changes.iter().map(|change| change.at)) {
                self.queue.push(at.as_nanos(), EngineEvent::Becomes { array, change });
            }
        }
        let mut stream = 0u32;
        for (vm, spec) in (0u32..).zip(&scenario.vms) {
            for span in &spec.on {
                self.plan_span(*span, |begins| LifeChange::Vm { vm, on: begins });
            }
            for workload in &spec.workloads {
                for span in &workload.during {
                    self.plan_span(*span, |begins| LifeChange::Stream { stream, during: begins });
                }
                if let Some(cycle) = workload.cycle {
                    self.queue.push(cycle.delay.as_nanos(), EngineEvent::Cycle { stream });
                }
                stream += 1;
            }
        }
        for (group, plan) in (0u32..).zip(&self.groups) {
            self.queue.push(plan.interval.saturating_add(plan.phase), EngineEvent::Step { group });
        }
        self.queue.push(nanos(scenario.warmup), EngineEvent::Measure);
        self.queue.push(nanos(scenario.series_interval), EngineEvent::Sample);
    }

    fn plan_span(&mut self, span: ScenarioSpan, change: impl Fn(bool) -> LifeChange) {
        for (at, begins) in [(span.from, true), (span.to, false)] {
            if at < Instant::MAX {
                let event = EngineEvent::Life { change: self.changes.len() as u32 };
                self.changes.push(change(begins));
                self.queue.push(at.as_nanos(), event);
            }
        }
    }

    pub(super) fn change(&mut self, change: u32) {
        match self.changes[change as usize] {
            LifeChange::Host { host, up: false } => self.fail(host),
            LifeChange::Host { host, up: true } => self.recover(host),
            LifeChange::Vm { vm, on } => {
                self.vms[vm as usize].on = on;
                self.reconsider_vm(vm);
            }
            LifeChange::Stream { stream, during } => {
                self.streams[stream as usize].during = during;
                self.reconsider(stream);
            }
        }
    }

    /// A workload's cycle turns from pause to activity, or back.
    pub(super) fn turn(&mut self, index: u32) {
        let stream = &mut self.streams[index as usize];
        let Some(cycle) = stream.cycle_times() else { return };
        stream.cycle = !stream.cycle;
        let lasts = if stream.cycle { cycle.on } else { cycle.off };
        self.queue.push(self.now.saturating_add(lasts.as_nanos()), EngineEvent::Cycle { stream: index });
        self.reconsider(index);
    }

    fn reconsider_vm(&mut self, vm: u32) {
        for stream in self.vms[vm as usize].streams.clone() {
            self.reconsider(stream);
        }
    }

    /// A host fails: its queued and outstanding requests belong to no host any more. The array completes
    /// those that it has.
    fn fail(&mut self, host: u32) {
        let state = &mut self.hosts[host as usize];
        if !std::mem::replace(&mut state.up, false) {
            return;
        }
        self.cluster.forget(host);
        for stage in self.hosts[host as usize].stages.clone() {
            let spec = &self.scenario.hosts[host as usize];
            let state = &mut self.stages[stage as usize];
            // Everything that was queued goes with the queue, and its law begins anew.
            state.queue = queue(spec, state.queue.depth(), state.queue.law().cloned())
                .expect("it was valid when the simulation began");
            state.life += 1;
            state.window.set(None, self.now);
            for &port in &state.ports {
                let port = &mut self.ports[port as usize];
                state.queue.add_again(&mut port.account, instant(self.now));
                port.at_array = [(NONE, NONE); 2];
                port.series = (0, 0);
            }
        }
        for stream in 0..self.streams.len() as u32 {
            let vm = self.streams[stream as usize].vm;
            if self.host_of(vm) == host {
                self.reset_stream(stream);
                self.reconsider(stream);
            }
        }
    }

    /// A host is back: its law begins anew.
    fn recover(&mut self, host: u32) {
        if std::mem::replace(&mut self.hosts[host as usize].up, true) {
            return;
        }
        for &stage in &self.hosts[host as usize].stages {
            let state = &mut self.stages[stage as usize];
            if let Some(steering) = &mut state.steering {
                let member = steering.member;
                **steering =
                    StageSteering { member, beta: None, local: None, together: None, estimate: None };
            }
            for &port in &state.ports {
                self.ports[port as usize].account.skip_mean(instant(self.now));
            }
            state.window.set(Some(state.queue.window().get()), self.now);
            if let Some(percentile) = &mut state.percentile {
                percentile.begin_anew(instant(self.now));
            }
        }
        for stream in 0..self.streams.len() as u32 {
            if self.host_of(self.streams[stream as usize].vm) == host {
                self.reconsider(stream);
            }
        }
    }
}
