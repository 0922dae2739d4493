//! Nodes, the sensor, the placement and the clients, through virtual time.

use std::collections::BTreeMap;

use tidegate_device::{DeviceCompletion, StorageNode};
use tidegate_placement::{
    DeviceLane, DiskCache, FreeSpace, NodeConfig, NodePeak, NodeSample, NodeTapes, Placement,
    PlacementAnswer, PlacementConfig, PlacementGrant, PlacementRequest, TransferDirection, TransferProgress,
    TransferRequirement, TransferTicket,
};
use tidegate_units::{ByteRate, Bytes, Instant, Latency, ResourceName};

use super::plan::{InvalidPlan, NodePlan, TransferPlan};
use super::{PlanFindings, TransferFindings};
use crate::random::RandomStream;

/// Simulates a plan. Same plan, same seed: same findings.
///
/// # Errors
/// When the plan contradicts itself.
pub fn simulate(plan: &TransferPlan, seed: u64) -> Result<PlanFindings, InvalidPlan> {
    let mut engine = TransferEngine::new(plan, seed)?;
    while let Some(now) = engine.next() {
        engine.happen(now)?;
    }
    Ok(engine.findings)
}

/// A node, its measurements, and its transfers.
struct SimulatedNode {
    model: StorageNode,
    plan: NodePlan,
    random: RandomStream,
    /// Time at which others take another part of it.
    changes: Option<Instant>,
    /// Bytes that it had moved at the last sample.
    sampled: Bytes,
    /// Bytes that others had moved at the last sample.
    sampled_of_others: Bytes,
    /// Transfers that the node carries.
    carries: Vec<TransferTicket>,
    /// Those of `carries` whose data does not move yet. Each has the time of its start, and the object that
    /// it reads.
    begins: Vec<(TransferTicket, Instant, Option<u32>)>,
    /// Objects on its disk, where it is a disk in front of tapes: the real ones, and those that the placement
    /// knows of. The placement does not know of the objects that were on the disk from the beginning.
    on_disk: Option<[DiskCache; 2]>,
}

/// A transfer that was asked for.
#[derive(Clone, Copy)]
struct Wanted {
    asked: Instant,
    /// The object that it reads; `None`: it writes.
    object: Option<u32>,
    /// Time within which its first byte is needed; `None`: it needs a rate.
    soon: Option<Latency>,
}

struct TransferEngine<'a> {
    plan: &'a TransferPlan,
    placement: Placement,
    nodes: Vec<SimulatedNode>,
    /// Time at which the next transfer is asked for; `None` while a transfer that writes waits, and after the
    /// last.
    asks: Option<Instant>,
    waiting: BTreeMap<TransferTicket, Wanted>,
    asked: u32,
    /// Chooses the objects that are read.
    random: RandomStream,
    samples: Instant,
    end: Instant,
    /// Index of each transfer in the findings.
    places: BTreeMap<TransferTicket, usize>,
    findings: PlanFindings,
}

impl<'a> TransferEngine<'a> {
    fn new(plan: &'a TransferPlan, seed: u64) -> Result<Self, InvalidPlan> {
        plan.validate()?;
        let nodes = plan.nodes.iter().map(|node| SimulatedNode::new(node, plan, seed));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let known = plan.nodes.iter().map(|node| {
            let drives = node.model.drives.unwrap_or(u32::MAX);
            let peak = match plan.learns_peaks {
                true => NodePeak::learnt(ByteRate::ZERO),
                false => NodePeak::pinned(node.model.peak),
            };
            let is_described = node.tapes.is_none_or(|tapes| tapes.described);
            NodeConfig {
                name: node.name.clone(),
                read: peak,
                write: peak,
                availability: 0,
                cost: 0,
                // The recall is told of apart, or has to be learnt.
                latency: is_described.then_some(Latency::ZERO),
                tape: node
                    .tapes
                    .filter(|_| is_described)
                    .map(|_| NodeTapes { recall: node.model.recall, drives }),
                free: None,
            }
        });
        // A sensor's figure for a transfer is a sign of life: between two samples none is dead.
        let lease = plan.sample.saturating_mul(10);
        let config = PlacementConfig { lease, lend: plan.lend, ..PlacementConfig::new(plan.policy) };
        let placement = Placement::new(config, known.collect(), Instant::ZERO)?;
        Ok(Self {
            plan,
            placement,
            nodes,
            asks: (plan.transfers > 0).then_some(Instant::ZERO),
            waiting: BTreeMap::new(),
            asked: 0,
            random: RandomStream::of(seed, &["reads"]),
            samples: Instant::ZERO + plan.sample,
            end: Instant::ZERO + plan.duration,
            places: BTreeMap::new(),
            findings: PlanFindings { transfers: Vec::new(), ended_s: 0.0, events: 0 },
        })
    }

    /// Returns the time of the next event; `None` when the simulation is over.
    fn next(&self) -> Option<Instant> {
        if self.asks.is_none() && self.waiting.is_empty() && self.placement.active() == 0 {
            return None;
        }
        let nodes = self.nodes.iter().flat_map(|node| [node.model.next_event(), node.changes]);
        let next = nodes.chain([self.asks, Some(self.samples)]).flatten().min()?;
        (next <= self.end).then_some(next)
    }

    /// Handles all events of a time. Their order is: ends, samples, changes from outside, and last the next
    /// transfer, so that it sees them all.
    fn happen(&mut self, now: Instant) -> Result<(), InvalidPlan> {
        let mut done: Vec<DeviceCompletion> = Vec::new();
        for node in &mut self.nodes {
            let first = done.len();
            node.model.advance(now, &mut done);
            node.begins.retain(|&(ticket, since, object)| {
                let moves = !node.model.is_recalling(ticket.0);
                if moves {
                    touch(&mut node.on_disk, object, self.plan.size);
                    self.placement.first_byte(now, ticket, now.latency_since(since));
                    if let Some(place) = self.places.get(&ticket) {
                        self.findings.transfers[*place].moved_s = Some(now.as_secs_f64());
                    }
                }
                !moves
            });
            node.carries.retain(|ticket| done[first..].iter().all(|one| one.id != ticket.0));
        }
        for DeviceCompletion { id, at } in &done {
            self.findings.events += 1;
            self.placement.ended(*at, TransferTicket(*id));
            if let Some(place) = self.places.remove(&TransferTicket(*id)) {
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
            if let Some(wanted) = self.waiting.remove(&grant.ticket) {
                self.begin(now, &grant, wanted);
            }
        }
        self.share_processor();
        self.findings.ended_s = now.as_secs_f64();
        Ok(())
    }

    /// Gives each process that moves data its part of the processor.
    fn share_processor(&mut self) {
        let Some(processor) = self.plan.processor else { return };
        let moving: usize = self.nodes.iter().map(|node| node.model.moving()).sum();
        let each = (moving > 0).then(|| ByteRate::new(processor.per_second() / moving as f64));
        for node in &mut self.nodes {
            node.model.set_process(each);
        }
    }

    fn sample(&mut self, now: Instant) {
        self.findings.events += 1;
        let seconds = self.plan.sample.as_secs_f64();
        self.samples = now + self.plan.sample;
        for node in &mut self.nodes {
            let moved = node.model.moved();
            let others = node.model.moved_by_others();
            let since = |now: Bytes, before: &mut Bytes| {
                let more = now.get() - std::mem::replace(before, now).get();
                more as f64 / seconds
            };
            let own = since(moved, &mut node.sampled);
            let all = own + since(others, &mut node.sampled_of_others);
            // The model has one bandwidth for both directions, and external load uses it as the simulated
            // transfers do.
            let lane = usize::from(self.plan.reads.is_none());
            let (mut lanes, mut device) = ([ByteRate::ZERO; 2], [DeviceLane::default(); 2]);
            lanes[lane] = ByteRate::new(own);
            if self.plan.senses {
                device[lane].rate = Some(ByteRate::new(all));
            }
            let [read, write] = lanes;
            let sample = NodeSample { read, write, free: FreeSpace::NotAsked, device };
            // Its name is known: the placement was made of these nodes.
            let known = self.placement.observe(now, &node.plan.name, &sample);
            debug_assert_eq!(known, Ok(()));
            let moving = node.carries.len() - node.begins.len();
            let each = ByteRate::new(own / moving.max(1) as f64);
            for ticket in &node.carries {
                let waits = node.begins.iter().any(|(other, ..)| other == ticket);
                let rate = if waits { ByteRate::ZERO } else { each };
                self.placement.progress(now, *ticket, TransferProgress { rate });
            }
        }
    }

    fn ask(&mut self, now: Instant) -> Result<(), InvalidPlan> {
        self.findings.events += 1;
        self.asked += 1;
        self.asks = None;
        let mut wanted = Wanted { asked: now, object: None, soon: None };
        let mut ask = PlacementRequest {
            direction: TransferDirection::Write,
            requirement: TransferRequirement::Average(self.plan.asks),
            size: self.plan.size,
            availability: 0,
            cost: 0,
            replicas: Vec::new(),
            on_tape: Vec::new(),
            except: Vec::new(),
        };
        if let Some(reads) = self.plan.reads {
            self.asks_next(now);
            wanted.soon = (self.asked % 2 == 1).then_some(reads.soon);
            let object = self.draw(reads.objects, wanted.soon.is_some());
            wanted.object = Some(object);
            ask.direction = TransferDirection::Read;
            ask.requirement = wanted.soon.map_or(ask.requirement, TransferRequirement::Latency);
            ask.replicas = self.plan.holders(object).map(|node| node.name.clone()).collect();
            ask.on_tape = self.on_tape(object, &ask.replicas);
        }
        match self.placement.ask(now, ask)? {
            PlacementAnswer::Granted(grant) => self.begin(now, &grant, wanted),
            PlacementAnswer::Waiting(ticket) => drop(self.waiting.insert(ticket, wanted)),
        }
        Ok(())
    }

    fn asks_next(&mut self, now: Instant) {
        self.asks = (self.asked < self.plan.transfers).then(|| now + self.plan.every);
    }

    /// Draws an object, each as likely. With `soon`, only objects on a node without tapes are drawn. There is
    /// at least one, since the plan was checked.
    fn draw(&mut self, objects: u32, soon: bool) -> u32 {
        loop {
            let object = (self.random.fraction() * f64::from(objects)) as u32 % objects;
            if !soon || self.plan.is_on_a_disk(object) {
                return object;
            }
        }
    }

    /// Returns the nodes whose replicas have to be recalled, as far as the placement can know.
    fn on_tape(&self, object: u32, replicas: &[ResourceName]) -> Vec<ResourceName> {
        let has_not = |node: &&SimulatedNode| {
            let described = node.plan.tapes.is_some_and(|tapes| tapes.described);
            let known = node.on_disk.as_ref().is_some_and(|[_, known]| known.has(&object.to_string()));
            described && !known && replicas.contains(&node.plan.name)
        };
        self.nodes.iter().filter(has_not).map(|node| node.plan.name.clone()).collect()
    }

    /// Begins a transfer. After a pause the next is asked for.
    fn begin(&mut self, now: Instant, grant: &PlacementGrant, wanted: Wanted) {
        self.findings.events += 1;
        let mut moved_s = None;
        if let Some(node) = self.nodes.iter_mut().find(|node| node.plan.name == grant.node) {
            node.start(grant.ticket, self.plan.size, wanted.object);
            node.carries.push(grant.ticket);
            if node.model.is_recalling(grant.ticket.0) {
                node.begins.push((grant.ticket, now, wanted.object));
            } else {
                touch(&mut node.on_disk, wanted.object, self.plan.size);
                moved_s = Some(now.as_secs_f64());
                self.placement.first_byte(now, grant.ticket, Latency::ZERO);
            }
        }
        self.places.insert(grant.ticket, self.findings.transfers.len());
        self.findings.transfers.push(TransferFindings {
            node: grant.node.clone(),
            size: self.plan.size,
            asked_s: wanted.asked.as_secs_f64(),
            began_s: now.as_secs_f64(),
            moved_s,
            ended_s: None,
            soon: wanted.soon,
        });
        if self.plan.reads.is_none() {
            self.asks_next(now);
        }
    }
}

impl SimulatedNode {
    fn new(plan: &NodePlan, all: &TransferPlan, seed: u64) -> Result<Self, InvalidPlan> {
        let mut random = RandomStream::of(seed, &["node", plan.name.as_str()]);
        let model = StorageNode::new(plan.model.clone(), random.seed())?;
        let mut node = Self {
            model,
            plan: plan.clone(),
            random: RandomStream::of(seed, &["external", plan.name.as_str()]),
            changes: None,
            sampled: Bytes::ZERO,
            sampled_of_others: Bytes::ZERO,
            carries: Vec::new(),
            begins: Vec::new(),
            on_disk: plan.tapes.map(|tapes| {
                let (mut is, known) = (DiskCache::new(tapes.cache), DiskCache::new(tapes.cache));
                let objects = 0..all.reads.map_or(0, |reads| reads.objects);
                for object in objects.filter(|object| plan.holds(*object)) {
                    is.touch(&object.to_string(), all.size);
                }
                [is, known]
            }),
        };
        node.change(Instant::ZERO);
        Ok(node)
    }

    fn start(&mut self, ticket: TransferTicket, size: Bytes, object: Option<u32>) {
        let is_on_disk = match (&self.on_disk, object) {
            (Some([is, _]), Some(object)) => is.has(&object.to_string()),
            _ => false,
        };
        if is_on_disk {
            self.model.start_on_disk(ticket.0, size);
        } else {
            self.model.start(ticket.0, size);
        }
    }

    fn change(&mut self, now: Instant) {
        let Some(external) = self.plan.external else { return };
        let part = external.least + (external.greatest - external.least) * self.random.fraction();
        self.model.set_external(part);
        self.changes = Some(now + external.every);
    }
}

/// Puts the object that moves onto the disk in front of the tapes, if there is one.
fn touch(on_disk: &mut Option<[DiskCache; 2]>, object: Option<u32>, size: Bytes) {
    if let (Some(caches), Some(object)) = (on_disk, object) {
        for cache in caches {
            cache.touch(&object.to_string(), size);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_device::StorageNodeConfig;
    use tidegate_placement::PlacementPolicy;
    use tidegate_units::{Latency, ResourceName};

    use super::super::plan::{ExternalLoad, ReadTransfers, TapeModel};
    use super::*;

    const MB: f64 = 1e6;

    fn plan(policy: PlacementPolicy, peaks: &[f64], transfers: u32) -> TransferPlan {
        let node = |(place, peak): (usize, &f64)| NodePlan {
            name: ResourceName::new(&format!("node-{place}")).unwrap(),
            model: StorageNodeConfig {
                peak: ByteRate::new(peak * MB),
                concurrency_cost: 0.0,
                client: None,
                recall: Latency::ZERO,
                drives: None,
                jitter: 0.0,
            },
            external: None,
            holds_one_in: 1,
            tapes: None,
        };
        TransferPlan {
            name: "test".to_owned(),
            duration: Duration::from_secs(3600),
            policy,
            processor: None,
            lend: true,
            senses: false,
            learns_peaks: false,
            nodes: peaks.iter().enumerate().map(node).collect(),
            transfers,
            size: Bytes::new(100_000_000),
            asks: ByteRate::new(10.0 * MB),
            every: Duration::from_secs(1),
            sample: Duration::from_secs(1),
            reads: None,
        }
    }

    const R1: PlacementPolicy = PlacementPolicy::SmR1 { overhead: 1.0 };

    #[test]
    fn a_transfer_that_finds_nobody_waits_and_the_next_is_asked_for_after_it() {
        // 25 MB/s carry two reservations of 10. The first moves 25 MB alone, then both have 12.5 MB/s: it
        // ends at 7 s. The third was asked for at 2 s.
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
            PlacementPolicy::RoundRobin,
            PlacementPolicy::StaticQos { overhead: 1.25 },
            R1,
            PlacementPolicy::SmR2 { overhead: 1.0 },
            PlacementPolicy::SM_R3,
            PlacementPolicy::Learnt,
        ] {
            let mut plan = plan(policy, &[20.0, 300.0, 60.0], 50);
            for node in &mut plan.nodes {
                node.model.concurrency_cost = 0.02;
                node.model.jitter = 0.1;
                node.external =
                    Some(ExternalLoad { least: 0.1, greatest: 0.6, every: Duration::from_secs(5) });
            }
            let findings = simulate(&plan, 3).unwrap();
            assert_eq!(findings.transfers.len(), 50, "{policy:?}");
            assert!(findings.transfers.iter().all(|one| one.ended_s.is_some()), "{policy:?}");
            assert_eq!(findings, simulate(&plan, 3).unwrap());
            assert_ne!(findings, simulate(&plan, 4).unwrap());
        }
    }

    #[test]
    fn a_sensor_sees_what_others_move() {
        // Others take half of 100 MB/s. What transfers move leaves room for one more at any time; what moves
        // leaves none.
        let mut plan = plan(PlacementPolicy::SmR2 { overhead: 1.0 }, &[100.0], 15);
        plan.nodes[0].external =
            Some(ExternalLoad { least: 0.5, greatest: 0.5, every: Duration::from_secs(20) });
        let waited = |plan: &TransferPlan| {
            let transfers = simulate(plan, 1).unwrap().transfers;
            transfers.iter().filter(|one| one.began_s > one.asked_s).count()
        };
        assert_eq!(waited(&plan), 0);
        plan.senses = true;
        assert!(waited(&plan) > 0);
    }

    #[test]
    fn processes_share_the_processor_of_all_nodes() {
        // Two nodes of 100 MB/s, and a processor for 50: each of two transfers has 25 MB/s.
        let shared = TransferPlan {
            processor: Some(ByteRate::new(50.0 * MB)),
            every: Duration::from_nanos(1),
            ..plan(R1, &[100.0, 100.0], 2)
        };
        let ends: Vec<_> =
            simulate(&shared, 1).unwrap().transfers.iter().map(|one| one.ended_s.unwrap()).collect();
        assert!(ends.iter().all(|end| (end - 4.0).abs() < 1e-3), "{ends:?}");
    }

    /// A disk with every other object, and a store with all of them on tape, whose disk holds two.
    fn reads(described: bool) -> TransferPlan {
        let mut plan = TransferPlan {
            reads: Some(ReadTransfers { objects: 12, soon: Latency::from_millis(1_000) }),
            every: Duration::from_secs(5),
            asks: ByteRate::new(MB),
            ..plan(PlacementPolicy::SM_R3, &[60.0, 300.0], 40)
        };
        plan.nodes[0].holds_one_in = 2;
        plan.nodes[1].model.recall = Latency::from_millis(60_000);
        plan.nodes[1].model.drives = Some(2);
        plan.nodes[1].tapes = Some(TapeModel { cache: Bytes::new(200_000_000), described });
        plan
    }

    #[test]
    fn a_grant_waits_for_no_drive_where_tapes_are_known() {
        let longest = |findings: &PlanFindings| {
            let waits = findings.transfers.iter().map(|one| one.moved_s.unwrap() - one.began_s);
            waits.fold(0.0, f64::max)
        };
        for seed in 1..4 {
            let findings = simulate(&reads(true), seed).unwrap();
            assert_eq!(findings.transfers.len(), 40);
            assert!((longest(&findings) - 60.0).abs() < 1e-6, "a recall, and no more");
            // Recalls are under way at once, and who reads from the disk in front of the tapes does not wait
            // for them.
            let recalls: Vec<_> =
                findings.transfers.iter().filter(|one| one.moved_s.unwrap() > one.began_s).collect();
            assert!(recalls.windows(2).any(|two| two[1].began_s < two[0].moved_s.unwrap()));
            let late = findings.transfers.iter().filter(|one| {
                one.soon.is_some_and(|soon| one.moved_s.unwrap() - one.began_s > soon.as_secs_f64())
            });
            assert_eq!(late.count(), 0);
            assert_eq!(findings, simulate(&reads(true), seed).unwrap());
        }
    }

    #[test]
    fn what_does_not_end_in_time_says_so() {
        let short = TransferPlan { duration: Duration::from_secs(2), ..plan(R1, &[25.0], 1) };
        let findings = simulate(&short, 1).unwrap();
        assert_eq!((findings.transfers[0].ended_s, findings.transfers[0].rate()), (None, None));
    }

    #[test]
    fn plans_that_contradict_themselves_are_refused() {
        let good = || plan(R1, &[25.0], 1);
        assert_eq!(simulate(&TransferPlan { size: Bytes::ZERO, ..good() }, 1), Err(InvalidPlan::Nothing));
        assert_eq!(simulate(&TransferPlan { transfers: u32::MAX, ..good() }, 1), Err(InvalidPlan::Many));
        let mut external = good();
        external.nodes[0].external =
            Some(ExternalLoad { least: 0.5, greatest: 0.4, every: Duration::from_secs(1) });
        assert!(matches!(simulate(&external, 1), Err(InvalidPlan::External(_))));
        assert!(matches!(
            simulate(&TransferPlan { nodes: vec![], ..good() }, 1),
            Err(InvalidPlan::Placement(_))
        ));
        let unheld = |change: fn(&mut TransferPlan)| {
            let mut plan = reads(true);
            change(&mut plan);
            simulate(&plan, 1)
        };
        assert_eq!(unheld(|plan| plan.nodes[1].holds_one_in = 0), Err(InvalidPlan::Unheld));
        assert_eq!(unheld(|plan| plan.nodes[1].holds_one_in = 3), Err(InvalidPlan::Unheld), "1 is nowhere");
        assert_eq!(unheld(|plan| plan.nodes[0].tapes = plan.nodes[1].tapes), Err(InvalidPlan::Unheld));
        let much = TransferPlan { asks: ByteRate::new(26.0 * MB), ..good() };
        assert!(matches!(simulate(&much, 1), Err(InvalidPlan::Refused(_))));
    }
}
