//! Nodes, the sensor, the placement and whoever asks, through virtual time.

use std::collections::BTreeMap;

use tidegate_device::{Completion, StorageNode};
use tidegate_place::transfer::{
    Answer, Ask, Direction, Grant, NodeConfig, NodeSample, Peak, Placement, PlacementConfig, Progress,
    Requirement, Room, Ticket,
};
use tidegate_units::{ByteRate, Bytes, Instant};

use super::plan::{InvalidPlan, NodePlan, Plan};
use super::{Findings, TransferFindings};
use crate::random::Random;

/// Simulates a plan. Same plan, same seed: same findings.
///
/// # Errors
/// When the plan contradicts itself.
pub fn simulate(plan: &Plan, seed: u64) -> Result<Findings, InvalidPlan> {
    let mut engine = Engine::new(plan, seed)?;
    while let Some(now) = engine.next() {
        engine.happen(now)?;
    }
    Ok(engine.findings)
}

/// A node, and what is measured and done with it.
struct Node {
    model: StorageNode,
    plan: NodePlan,
    random: Random,
    /// When others take another part of it.
    changes: Option<Instant>,
    /// What it had moved at the last sample.
    sampled: Bytes,
    /// Who is carried.
    carries: Vec<Ticket>,
}

struct Engine<'a> {
    plan: &'a Plan,
    placement: Placement,
    nodes: Vec<Node>,
    /// When the next transfer is asked for; `None` while one waits, and after the last.
    asks: Option<Instant>,
    /// When the transfer that waits was asked for.
    waits_since: Option<Instant>,
    asked: u32,
    samples: Instant,
    end: Instant,
    /// Where in the findings a transfer is.
    places: BTreeMap<Ticket, usize>,
    findings: Findings,
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan, seed: u64) -> Result<Self, InvalidPlan> {
        plan.validate()?;
        let nodes = plan.nodes.iter().map(|node| Node::new(node, seed)).collect::<Result<Vec<_>, _>>()?;
        let known = plan.nodes.iter().map(|node| NodeConfig {
            name: node.name.clone(),
            read: Peak::pinned(node.model.peak),
            write: Peak::pinned(node.model.peak),
            availability: 0,
            cost: 0,
            latency: Some(node.model.recall),
            tape: None,
            free: None,
        });
        // What a sensor tells of a transfer is a sign of life: between two samples nobody is dead.
        let lease = plan.sample.saturating_mul(10);
        let config = PlacementConfig { lease, ..PlacementConfig::new(plan.policy) };
        let placement = Placement::new(config, known.collect(), Instant::ZERO)?;
        Ok(Self {
            plan,
            placement,
            nodes,
            asks: (plan.transfers > 0).then_some(Instant::ZERO),
            waits_since: None,
            asked: 0,
            samples: Instant::ZERO + plan.sample,
            end: Instant::ZERO + plan.duration,
            places: BTreeMap::new(),
            findings: Findings { transfers: Vec::new(), ended_s: 0.0, events: 0 },
        })
    }

    /// When something happens next; `None` when it is over.
    fn next(&self) -> Option<Instant> {
        if self.asks.is_none() && self.waits_since.is_none() && self.placement.active() == 0 {
            return None;
        }
        let nodes = self.nodes.iter().flat_map(|node| [node.model.next_event(), node.changes]);
        let next = nodes.chain([self.asks, Some(self.samples)]).flatten().min()?;
        (next <= self.end).then_some(next)
    }

    /// In this order at one time: ends, samples, changes from outside, and last who wants something, so that it sees them all.
    fn happen(&mut self, now: Instant) -> Result<(), InvalidPlan> {
        let mut done: Vec<Completion> = Vec::new();
        for node in &mut self.nodes {
            let first = done.len();
            node.model.advance(now, &mut done);
            node.carries.retain(|ticket| done[first..].iter().all(|one| one.id != ticket.0));
        }
        for Completion { id, at } in &done {
            self.findings.events += 1;
            self.placement.ended(*at, Ticket(*id));
            if let Some(place) = self.places.remove(&Ticket(*id)) {
                self.findings.transfers[place].ended_s = Some(at.as_secs_f64());
            }
        }
        if now >= self.samples {
            self.sample(now);
        }
        for node in &mut self.nodes {
            if node.changes.is_some_and(|at| at <= now) {
                self.findings.events += 1;
                node.change(now);
            }
        }
        if self.asks.is_some_and(|at| at <= now) {
            self.ask(now)?;
        }
        for grant in self.placement.step(now) {
            self.begin(now, &grant);
        }
        self.findings.ended_s = now.as_secs_f64();
        Ok(())
    }

    fn sample(&mut self, now: Instant) {
        self.findings.events += 1;
        let seconds = self.plan.sample.as_secs_f64();
        self.samples = now + self.plan.sample;
        for node in &mut self.nodes {
            let moved = node.model.moved();
            let write = (moved.get() - node.sampled.get()) as f64 / seconds;
            node.sampled = moved;
            let sample = NodeSample {
                read: ByteRate::ZERO,
                write: ByteRate::new(write),
                free: Room::NotAsked,
                device: Default::default(),
            };
            // Its name is known: the placement was made of these nodes.
            let known = self.placement.observe(now, &node.plan.name, &sample);
            debug_assert_eq!(known, Ok(()));
            let each = ByteRate::new(write / node.carries.len().max(1) as f64);
            for ticket in &node.carries {
                self.placement.progress(now, *ticket, Progress { rate: each });
            }
        }
    }

    fn ask(&mut self, now: Instant) -> Result<(), InvalidPlan> {
        self.findings.events += 1;
        self.asked += 1;
        self.asks = None;
        let ask = Ask {
            direction: Direction::Write,
            requirement: Requirement::Average(self.plan.asks),
            size: self.plan.size,
            availability: 0,
            cost: 0,
            replicas: Vec::new(),
            on_tape: Vec::new(),
            except: Vec::new(),
        };
        self.waits_since = Some(now);
        match self.placement.ask(now, ask)? {
            Answer::Granted(grant) => self.begin(now, &grant),
            Answer::Waiting(_) => {}
        }
        Ok(())
    }

    /// It begins, and after a pause the next is asked for.
    fn begin(&mut self, now: Instant, grant: &Grant) {
        self.findings.events += 1;
        let asked = self.waits_since.take().unwrap_or(now);
        if let Some(node) = self.nodes.iter_mut().find(|node| node.plan.name == grant.node) {
            node.model.start(grant.ticket.0, self.plan.size);
            node.carries.push(grant.ticket);
        }
        self.places.insert(grant.ticket, self.findings.transfers.len());
        self.findings.transfers.push(TransferFindings {
            node: grant.node.clone(),
            size: self.plan.size,
            asked_s: asked.as_secs_f64(),
            began_s: now.as_secs_f64(),
            ended_s: None,
        });
        self.asks = (self.asked < self.plan.transfers).then(|| now + self.plan.every);
    }
}

impl Node {
    fn new(plan: &NodePlan, seed: u64) -> Result<Self, InvalidPlan> {
        let mut random = Random::of(seed, &["node", plan.name.as_str()]);
        let model = StorageNode::new(plan.model.clone(), random.seed())?;
        let mut node = Self {
            model,
            plan: plan.clone(),
            random: Random::of(seed, &["external", plan.name.as_str()]),
            changes: None,
            sampled: Bytes::ZERO,
            carries: Vec::new(),
        };
        node.change(Instant::ZERO);
        Ok(node)
    }

    fn change(&mut self, now: Instant) {
        let Some(external) = self.plan.external else { return };
        let part = external.least + (external.greatest - external.least) * self.random.fraction();
        self.model.set_external(part);
        self.changes = Some(now + external.every);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_device::StorageNodeConfig;
    use tidegate_place::transfer::Policy;
    use tidegate_units::{Latency, ResourceName};

    use super::super::plan::External;
    use super::*;

    const MB: f64 = 1e6;

    fn plan(policy: Policy, peaks: &[f64], transfers: u32) -> Plan {
        let node = |(place, peak): (usize, &f64)| NodePlan {
            name: ResourceName::new(&format!("node-{place}")).unwrap(),
            model: StorageNodeConfig {
                peak: ByteRate::new(peak * MB),
                concurrency_cost: 0.0,
                recall: Latency::ZERO,
                drives: None,
                jitter: 0.0,
            },
            external: None,
        };
        Plan {
            name: "test".to_owned(),
            duration: Duration::from_secs(3600),
            policy,
            nodes: peaks.iter().enumerate().map(node).collect(),
            transfers,
            size: Bytes::new(100_000_000),
            asks: ByteRate::new(10.0 * MB),
            every: Duration::from_secs(1),
            sample: Duration::from_secs(1),
        }
    }

    const R1: Policy = Policy::SmR1 { overhead: 1.0 };

    #[test]
    fn a_transfer_that_finds_nobody_waits_and_the_next_is_asked_for_after_it() {
        // 25 MB/s carry two reservations of 10. The first moves 25 MB alone, then both have 12.5 MB/s: it ends at 7 s. The third was
        // asked for at 2 s.
        let findings = simulate(&plan(R1, &[25.0], 4), 1).unwrap();
        let times: Vec<_> =
            findings.transfers.iter().map(|one| (one.asked_s, one.began_s, one.ended_s.unwrap())).collect();
        assert!((times[0].2 - 7.0).abs() < 1e-6, "{times:?}");
        assert!((times[2].0 - 2.0).abs() < 1e-9 && (times[2].1 - 7.0).abs() < 1e-6, "{times:?}");
        assert!((times[3].0 - 8.0).abs() < 1e-6, "a second after the third began: {times:?}");
        assert!(findings.transfers.iter().all(|one| one.rate().unwrap() >= 10.0 * MB));
    }

    #[test]
    fn all_transfers_are_made_and_the_same_seed_gives_the_same() {
        for policy in [
            Policy::RoundRobin,
            Policy::StaticQos { overhead: 1.25 },
            R1,
            Policy::SmR2 { overhead: 1.0 },
            Policy::SM_R3,
            Policy::Learnt,
        ] {
            let mut plan = plan(policy, &[20.0, 300.0, 60.0], 50);
            for node in &mut plan.nodes {
                node.model.concurrency_cost = 0.02;
                node.model.jitter = 0.1;
                node.external = Some(External { least: 0.1, greatest: 0.6, every: Duration::from_secs(5) });
            }
            let findings = simulate(&plan, 3).unwrap();
            assert_eq!(findings.transfers.len(), 50, "{policy:?}");
            assert!(findings.transfers.iter().all(|one| one.ended_s.is_some()), "{policy:?}");
            assert_eq!(findings, simulate(&plan, 3).unwrap());
            assert_ne!(findings, simulate(&plan, 4).unwrap());
        }
    }

    #[test]
    fn what_does_not_end_in_time_says_so() {
        let short = Plan { duration: Duration::from_secs(2), ..plan(R1, &[25.0], 1) };
        let findings = simulate(&short, 1).unwrap();
        assert_eq!((findings.transfers[0].ended_s, findings.transfers[0].rate()), (None, None));
    }

    #[test]
    fn plans_that_contradict_themselves_are_refused() {
        let good = || plan(R1, &[25.0], 1);
        assert_eq!(simulate(&Plan { size: Bytes::ZERO, ..good() }, 1), Err(InvalidPlan::Nothing));
        assert_eq!(simulate(&Plan { transfers: u32::MAX, ..good() }, 1), Err(InvalidPlan::Many));
        let mut external = good();
        external.nodes[0].external =
            Some(External { least: 0.5, greatest: 0.4, every: Duration::from_secs(1) });
        assert!(matches!(simulate(&external, 1), Err(InvalidPlan::External(_))));
        assert!(matches!(simulate(&Plan { nodes: vec![], ..good() }, 1), Err(InvalidPlan::Placement(_))));
        let much = Plan { asks: ByteRate::new(26.0 * MB), ..good() };
        assert!(matches!(simulate(&much, 1), Err(InvalidPlan::Refused(_))));
    }
}
