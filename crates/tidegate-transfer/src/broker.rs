//! The broker: places transfers for many clients, and records what they have done.

mod error;

use std::collections::BTreeMap;
use std::time::Duration;

pub use error::BrokerError;
use tidegate_placement::{
    DirectionReport, DiskCache, FreeSpace, NodeSample, PlaceError, Placement, PlacementAnswer,
    PlacementConfig, PlacementConfigError, PlacementGrant, PlacementRequest, TransferDirection,
    TransferProgress, TransferTicket, UnknownNode,
};
use tidegate_units::{ByteRate, Bytes, Instant, Latency, ResourceName};

use crate::catalogue::{BegunTransfer, Catalogue, CatalogueError, NewReplica};
use crate::config::{BrokerConfig, NodePlan};
use crate::name::ObjectName;
use crate::sensor_reports::{DeviceSample, FASTEST, ReportError, SLOWEST, SensorHistory, SensorReport};
use crate::wire::{
    AWAY, CatalogueObject, DataDirection, NodeDirection, NodeList, NodePeaks, NodeSensor, NodeState,
    ObjectList, ObjectReplica, PeakNow, PeakReport, ProgressReport, ServiceNeeds, StoredReport, TransferEnd,
    TransferList, TransferPermit, TransferQuestion, TransferReservation, TransferState,
};

/// Measures the device of a node.
pub trait DeviceSensor: Send + std::fmt::Debug {
    /// Returns the activity since the last call, which was `elapsed` ago.
    fn sample(&mut self, elapsed: Duration) -> DeviceSample;
}

/// A transfer that a client asked for.
#[derive(Debug)]
struct UnderWay {
    ticket: TransferTicket,
    way: DataDirection,
    name: Option<ObjectName>,
    size: Bytes,
    replica: bool,
    needs: ServiceNeeds,
    /// The node where it may begin, once it may.
    granted: Option<TransferPermit>,
    heard: Instant,
    /// True if anything was heard since the last look.
    fresh: bool,
    moved: u64,
    /// True if its first byte was reported.
    has_begun: bool,
    /// The bytes that had been moved at the last look. `None` while this is unknown: a transfer that goes on
    /// after a restart has not reported yet.
    counted: Option<u64>,
}

impl UnderWay {
    /// Returns the bytes that were moved since the last call.
    fn count(&mut self) -> u64 {
        let Some(counted) = &mut self.counted else { return 0 };
        self.moved.saturating_sub(std::mem::replace(counted, self.moved))
    }
}

/// Places transfers and keeps the catalogue. The program that serves it calls [`look`](Self::look) once in an
/// interval.
#[derive(Debug)]
pub struct Broker {
    lease: Duration,
    interval: Duration,
    plans: BTreeMap<ResourceName, NodePlan>,
    placement: Placement,
    catalogue: Catalogue,
    under_way: BTreeMap<String, UnderWay>,
    ids: BTreeMap<TransferTicket, String>,
    /// The contents of the disks in front of tapes, by key, for nodes that have such disks.
    caches: BTreeMap<ResourceName, DiskCache>,
    /// The reports of sensors, for each node of the configuration that has one.
    sensed: BTreeMap<ResourceName, SensorHistory>,
    /// The bytes that were moved, since the last look, by transfers that have ended; reads first.
    ended: BTreeMap<ResourceName, [u64; 2]>,
    looked: Instant,
}

impl Broker {
    /// The most transfers that wait or are under way.
    const MOST: usize = 100_000;

    /// Makes a broker from a catalogue: transfers that were under way when it was last kept go on.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(
        config: &BrokerConfig,
        catalogue: Catalogue,
        now: Instant,
    ) -> Result<Self, PlacementConfigError> {
        let plans: BTreeMap<_, _> =
            config.nodes.iter().map(|plan| (plan.config.name.clone(), plan.clone())).collect();
        let nodes = config.nodes.iter().map(|plan| {
            let mut node = plan.config.clone();
            node.free = plan.capacity.map(|capacity| left(capacity, catalogue.held(&node.name)));
            node
        });
        // The death of a client is judged in one place, here: two books of it would differ.
        let rules = PlacementConfig { lease: Duration::MAX, ..config.placement };
        let placement = Placement::new(rules, nodes.collect(), now)?;
        let cache = |plan: &NodePlan| DiskCache::new(plan.cache.unwrap_or_default());
        let on_tape = plans.iter().filter(|(_, plan)| plan.config.tape.is_some());
        // After a start nothing is known to be on a disk.
        let caches = on_tape.map(|(name, plan)| (name.clone(), cache(plan))).collect();
        let mut broker = Self {
            caches,
            lease: config.placement.lease,
            interval: config.interval,
            plans,
            placement,
            catalogue,
            under_way: BTreeMap::new(),
            ids: BTreeMap::new(),
            sensed: BTreeMap::new(),
            ended: BTreeMap::new(),
            looked: now,
        };
        broker.resume(now);
        Ok(broker)
    }

    fn resume(&mut self, now: Instant) {
        let begun: Vec<BegunTransfer> = self.catalogue.under_way().cloned().collect();
        for (number, begun) in (0..).zip(begun) {
            let wish = TransferQuestion {
                way: begun.way,
                name: begun.name.clone(),
                size: Some(begun.size),
                needs: begun.needs,
                availability: 0,
                cost: u8::MAX,
                except: Vec::new(),
                replica: begun.replica,
            };
            let ticket = TransferTicket(number);
            let grant = PlacementGrant {
                ticket,
                node: begun.node.clone(),
                expected: ByteRate::ZERO,
                first_byte: None,
            };
            let on_tape = if begun.recalls { vec![begun.node.clone()] } else { Vec::new() };
            let asked = PlacementRequest { on_tape, ..ask(&wish, begun.size, Vec::new(), Vec::new()) };
            let resumed = self.placement.resume(now, &asked, &grant);
            let (Ok(()), Some(plan)) = (resumed, self.plans.get(&begun.node)) else {
                tracing::warn!("a transfer was under way to or from node `{}`, which is no more", begun.node);
                // Of no use, and gone with the next start if it cannot be written now.
                let _ = self.catalogue.ended(&begun.id);
                continue;
            };
            // Who asked may not have heard of the grant, and be told of it only now.
            let read = begun.name.as_ref().filter(|_| begun.way == DataDirection::Read);
            let sha256 = read.and_then(|name| self.catalogue.get(name)).map(|object| object.sha256);
            let granted = TransferPermit {
                node: begun.node,
                place: plan.place.to_string(),
                key: begun.key,
                expected_bps: ByteRate::ZERO,
                expected_first_byte_s: None,
                size: begun.size,
                sha256,
            };
            let transfer = UnderWay {
                ticket,
                way: begun.way,
                name: begun.name,
                size: begun.size,
                replica: begun.replica,
                needs: begun.needs,
                granted: Some(granted),
                heard: now,
                fresh: false,
                moved: 0,
                // What it tells again was learnt before. Of a recall it frees the drive, and teaches nothing.
                has_begun: !begun.recalls,
                counted: None,
            };
            self.ids.insert(ticket, begun.id.clone());
            self.under_way.insert(begun.id, transfer);
        }
    }

    /// Asks for a new transfer. `id` names it from now on, and was never used before. The same wish by the
    /// same id comes from a client that did not hear the answer: repeating it changes nothing.
    ///
    /// # Errors
    /// When it can never be carried, contradicts the catalogue, or there are too many.
    pub fn place(
        &mut self,
        now: Instant,
        id: &str,
        wish: TransferQuestion,
    ) -> Result<TransferReservation, BrokerError> {
        if let Some(transfer) = self.under_way.get(id) {
            let is_it = transfer.way == wish.way
                && transfer.name == wish.name
                && transfer.replica == wish.replica
                && wish.size.is_none_or(|size| size == transfer.size);
            return if is_it { self.reservation(now, id) } else { Err(BrokerError::Taken) };
        }
        // A key is written once.
        let there = wish
            .name
            .as_ref()
            .filter(|_| wish.way == DataDirection::Write)
            .and_then(|name| self.catalogue.get(name));
        if there.is_some_and(|object| object.replicas.iter().any(|one| one.key == key(&object.name, id))) {
            return Err(BrokerError::Taken);
        }
        if self.under_way.len() >= Self::MOST {
            return Err(BrokerError::TooMany(self.under_way.len()));
        }
        let (size, replicas, mut except) = self.check(&wish)?;
        let on_tape = self.on_tape(&wish);
        except.extend(wish.except.iter().cloned());
        // Of a node that is named again and again it is enough to know once.
        except.sort_unstable();
        except.dedup();
        let asked = PlacementRequest { on_tape, ..ask(&wish, size, replicas, except) };
        let answer = self.placement.ask(now, asked)?;
        let ticket = match &answer {
            PlacementAnswer::Granted(grant) => grant.ticket,
            PlacementAnswer::Waiting(ticket) => *ticket,
        };
        let transfer = UnderWay {
            ticket,
            way: wish.way,
            name: wish.name,
            size,
            replica: wish.replica,
            needs: wish.needs,
            granted: None,
            heard: now,
            fresh: true,
            moved: 0,
            has_begun: false,
            counted: Some(0),
        };
        self.ids.insert(ticket, id.to_owned());
        self.under_way.insert(id.to_owned(), transfer);
        if let PlacementAnswer::Granted(grant) = answer {
            self.grant(now, &grant).inspect_err(|_| self.forget(now, id, false))?;
        }
        self.reservation(now, id)
    }

    /// Returns the nodes whose replicas have to be recalled for a read, as far as is known.
    fn on_tape(&self, wish: &TransferQuestion) -> Vec<ResourceName> {
        let name = wish.name.as_ref().filter(|_| wish.way == DataDirection::Read);
        let Some(object) = name.and_then(|name| self.catalogue.get(name)) else { return Vec::new() };
        let is_on_tape = |replica: &&ObjectReplica| {
            self.caches.get(&replica.node).is_some_and(|cache| !cache.has(&replica.key))
        };
        object.replicas.iter().filter(is_on_tape).map(|replica| replica.node.clone()).collect()
    }

    /// Takes note that data that was moved to or from a node with tapes is on its disk.
    fn is_on_disk(&mut self, id: &str) {
        let Some(transfer) = self.under_way.get(id) else { return };
        if let Some(TransferPermit { node, key: Some(key), .. }) = &transfer.granted
            && let Some(cache) = self.caches.get_mut(node)
        {
            cache.touch(key, transfer.size);
        }
    }

    /// Checks a wish against the catalogue. Returns its size, the nodes that can be read from, and the nodes
    /// that must not be written to.
    fn check(
        &self,
        wish: &TransferQuestion,
    ) -> Result<(Bytes, Vec<ResourceName>, Vec<ResourceName>), BrokerError> {
        let known =
            |name: &ObjectName| self.catalogue.get(name).ok_or_else(|| BrokerError::NoObject(name.clone()));
        let holders = |object: &CatalogueObject| -> Vec<ResourceName> {
            let nodes = object.replicas.iter().map(|replica| replica.node.clone());
            nodes.filter(|node| self.plans.contains_key(node)).collect()
        };
        let writers = |name: &ObjectName| {
            let name = name.clone();
            self.under_way.values().filter(move |transfer| {
                transfer.way == DataDirection::Write && transfer.name.as_ref() == Some(&name)
            })
        };
        match (wish.way, &wish.name) {
            (DataDirection::Read, None) => Err(BrokerError::NoName),
            (DataDirection::Write, None) if wish.replica => Err(BrokerError::NoName),
            (DataDirection::Read, Some(name)) => {
                let object = known(name)?;
                Ok((object.size, holders(object), Vec::new()))
            }
            (DataDirection::Write, Some(name)) if wish.replica => {
                let object = known(name)?;
                let mut except = holders(object);
                let to = writers(name).filter_map(|transfer| Some(transfer.granted.as_ref()?.node.clone()));
                except.extend(to);
                Ok((object.size, Vec::new(), except))
            }
            (DataDirection::Write, name) => {
                if let Some(name) = name {
                    if self.catalogue.get(name).is_some() {
                        return Err(CatalogueError::Duplicate(name.clone()).into());
                    }
                    if writers(name).next().is_some() {
                        return Err(BrokerError::BeingWritten(name.clone()));
                    }
                }
                Ok((wish.size.ok_or(BrokerError::NoSize)?, Vec::new(), Vec::new()))
            }
        }
    }

    /// Returns the state of a transfer. The question itself shows that its client is alive.
    ///
    /// # Errors
    /// When it is not known.
    pub fn reservation(&mut self, now: Instant, id: &str) -> Result<TransferReservation, BrokerError> {
        let lease_s = self.lease.as_secs_f64();
        let transfer = self.hear(now, id)?;
        Ok(TransferReservation { id: id.to_owned(), lease_s, granted: transfer.granted.clone() })
    }

    /// Takes the progress of a transfer.
    ///
    /// # Errors
    /// When it is not known, or was not granted.
    pub fn progress(&mut self, now: Instant, id: &str, moved: ProgressReport) -> Result<(), BrokerError> {
        let transfer = self.hear(now, id)?;
        if transfer.granted.is_none() {
            return Err(BrokerError::Gone);
        }
        let first_byte = moved.first_byte_s.filter(|_| !transfer.has_begun);
        let first_byte = first_byte.map(|seconds| believable(seconds, SLOWEST)).transpose()?;
        transfer.has_begun |= first_byte.is_some();
        // Reports may overtake each other, and no more is moved than there is.
        transfer.moved = transfer.moved.max(moved.bytes.get()).min(transfer.size.get());
        if transfer.counted.is_none() {
            // How long it took for that is not known.
            (transfer.counted, transfer.fresh) = (Some(transfer.moved), false);
        }
        if let Some(seconds) = first_byte {
            let ticket = transfer.ticket;
            self.placement.first_byte(now, ticket, Latency::from_secs_f64(seconds));
        }
        Ok(())
    }

    /// Takes note that a write has come to its end. When this returns, no crash makes the catalogue forget
    /// it. Repeating it changes nothing.
    ///
    /// # Errors
    /// When it is not known, was to write something else, or the catalogue cannot keep it.
    pub fn stored(&mut self, now: Instant, id: &str, stored: StoredReport) -> Result<(), BrokerError> {
        let key = key(&stored.name, id);
        let Some(transfer) = self.under_way.get_mut(id) else {
            // It may be that only the answer was lost.
            let object = self.catalogue.get(&stored.name);
            let known = object.is_some_and(|object| object.replicas.iter().any(|replica| replica.key == key));
            if known {
                return Ok(());
            }
            // A client that hears that it is gone may remove what it wrote.
            return Err(self.catalogue.in_doubt().map_or(BrokerError::Gone, BrokerError::from));
        };
        // Who waits for the catalogue has nothing else to tell.
        transfer.heard = now;
        let Some(granted) = &transfer.granted else { return Err(BrokerError::Gone) };
        let is_it = transfer.way == DataDirection::Write
            && transfer.name.as_ref() == Some(&stored.name)
            && transfer.size == stored.size;
        if !is_it {
            let (name, asked) = (transfer.name.clone(), transfer.size);
            return Err(BrokerError::Otherwise { name, asked, stored: stored.size });
        }
        if transfer.replica && self.catalogue.get(&stored.name).is_none() {
            return Err(BrokerError::NoObject(stored.name));
        }
        transfer.moved = stored.size.get();
        let node = granted.node.clone();
        let StoredReport { name, size, sha256 } = stored;
        self.catalogue.stored(NewReplica { name, size, sha256, node, key, ends: Some(id.to_owned()) })?;
        self.is_on_disk(id);
        self.forget(now, id, true);
        // It is kept, which is what was asked; what comes of it for others is theirs.
        if let Err(error) = self.step(now) {
            tracing::error!("{error}");
        }
        Ok(())
    }

    /// Ends a transfer: it is over, or no longer wanted, or it failed because of its node.
    ///
    /// # Errors
    /// When it is not known.
    pub fn end(&mut self, now: Instant, id: &str, end: &TransferEnd) -> Result<(), BrokerError> {
        let transfer = self.under_way.get(id).ok_or(BrokerError::Gone)?;
        let failed = end.failed;
        if failed {
            if let Some(granted) = &transfer.granted {
                let why = end.why.as_deref().map(|why| TransferEnd::failed(why).why.unwrap_or_default());
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                tracing::warn!("a transfer failed at node `{}`, which is given a rest{why}", granted.node);
            }
            self.placement.failed(now, transfer.ticket);
        }
        let was_granted = transfer.granted.is_some();
        // Who gave up in the middle may have had nothing of it.
        let was_read = transfer.way == DataDirection::Read && transfer.moved > 0 && !failed;
        // What has no name is in no catalogue: its writer alone knows whether it stays.
        let has_written = transfer.name.is_none() && !failed;
        if was_read {
            self.is_on_disk(id);
        }
        self.forget(now, id, has_written);
        // Whatever the catalogue says, the freed rate is for waiting transfers.
        let kept = if was_granted { self.catalogue.ended(id) } else { Ok(()) };
        let stepped = self.step(now);
        kept?;
        stepped
    }

    /// Returns an object.
    ///
    /// # Errors
    /// When there is none of the name.
    pub fn object(&self, name: &ObjectName) -> Result<CatalogueObject, BrokerError> {
        let object = self.catalogue.get(name).ok_or_else(|| BrokerError::NoObject(name.clone()))?;
        Ok(self.with_places(object))
    }

    /// Returns at most `most` objects, after one of them.
    #[must_use]
    pub fn objects(&self, after: Option<&ObjectName>, most: usize) -> ObjectList {
        let mut objects = self.catalogue.after(after);
        let some = objects.by_ref().take(most).map(|object| self.with_places(object)).collect();
        ObjectList { objects: some, more: objects.next().is_some() }
    }

    /// Forgets an object, and returns its places: the caller removes its data there. When this returns, no
    /// crash brings the object back.
    ///
    /// # Errors
    /// When there is none, or the catalogue cannot be written.
    pub fn remove(&mut self, name: &ObjectName) -> Result<CatalogueObject, BrokerError> {
        let removed = self.catalogue.removed(name)?;
        for replica in removed.iter().flat_map(|object| &object.replicas) {
            if let Some(cache) = self.caches.get_mut(&replica.node) {
                cache.remove(&replica.key);
            }
        }
        removed.map(|object| self.with_places(&object)).ok_or_else(|| BrokerError::NoObject(name.clone()))
    }

    /// Returns the state of the nodes.
    #[must_use]
    pub fn nodes(&self, now: Instant) -> NodeList {
        let lane = |report: &DirectionReport| NodeDirection {
            peak_bps: report.peak,
            current_bps: report.current,
            moving_average_bps: report.moving_average,
            latency_s: report.latency.map(Latency::as_secs_f64),
            active: report.active,
            reserved_bps: report.reserved,
            lent_bps: report.lent,
        };
        let nodes = self.placement.nodes().filter_map(|report| {
            let plan = self.plans.get(&report.name)?;
            let [read, write] = &report.directions;
            Some(NodeState {
                place: plan.place.to_string(),
                availability: plan.config.availability,
                cost: plan.config.cost,
                free: report.free,
                read: lane(read),
                write: lane(write),
                waiting: report.waiting,
                sensor: self.sensed.get(&report.name).map(|heard| NodeSensor {
                    age_s: heard.age(now).as_secs_f64(),
                    recent: heard.is_recent(now),
                    report: heard.last().clone(),
                }),
                name: report.name,
            })
        });
        NodeList { nodes: nodes.collect(), waiting: self.placement.waiting() }
    }

    /// Returns the state of the first `most` transfers.
    #[must_use]
    pub fn transfers(&self, now: Instant, most: usize) -> TransferList {
        let transfers = self.under_way.values().take(most).map(|transfer| TransferState {
            way: transfer.way,
            name: transfer.name.clone(),
            size: transfer.size,
            moved: Bytes::new(transfer.moved),
            replica: transfer.replica,
            node: transfer.granted.as_ref().map(|granted| granted.node.clone()),
            expected_bps: transfer.granted.as_ref().map(|granted| granted.expected_bps),
            heard_s: now.saturating_since(transfer.heard).as_secs_f64(),
        });
        TransferList { transfers: transfers.collect(), all: self.under_way.len() }
    }

    /// Takes a report of a node's own sensor.
    ///
    /// # Errors
    /// When there is no such node, no reports are taken of it, or this one cannot be. What is known stays as
    /// it is.
    pub fn report(
        &mut self,
        now: Instant,
        node: &ResourceName,
        report: SensorReport,
    ) -> Result<(), BrokerError> {
        let plan = self.plans.get(node).ok_or_else(|| PlaceError::from(UnknownNode(node.clone())))?;
        if !plan.agent {
            return Err(ReportError::NotAsked(node.to_string()).into());
        }
        match self.sensed.get_mut(node) {
            Some(heard) => heard.hear(now, report)?,
            None => drop(self.sensed.insert(node.clone(), SensorHistory::first(now, report)?)),
        }
        Ok(())
    }

    /// Takes the rates that a client's probe measured on a node. Peaks that the configuration sets stay.
    ///
    /// # Errors
    /// When there is no such node, or a rate cannot be.
    pub fn probed(&mut self, node: &ResourceName, probed: PeakReport) -> Result<NodePeaks, BrokerError> {
        let rates = [probed.read_bps, probed.write_bps];
        for rate in rates.into_iter().flatten() {
            believable(rate, FASTEST)?;
        }
        let mut lane = |direction, rate: Option<f64>| {
            let rate = rate.map(ByteRate::new);
            let peak = self.placement.probed(node, direction, rate).map_err(PlaceError::from)?;
            Ok::<_, BrokerError>(PeakNow { bps: peak.get(), pinned: peak.is_pinned() })
        };
        Ok(NodePeaks {
            read: lane(TransferDirection::Read, rates[0])?,
            write: lane(TransferDirection::Write, rates[1])?,
        })
    }

    /// Passes what was moved since the last look to the rules, ends transfers that were silent for too long,
    /// and lets waiting transfers begin.
    ///
    /// # Errors
    /// When the catalogue cannot be written.
    pub fn look(
        &mut self,
        now: Instant,
        devices: &BTreeMap<ResourceName, DeviceSample>,
    ) -> Result<(), BrokerError> {
        let elapsed = now.saturating_since(self.looked);
        self.looked = now;
        if !elapsed.is_zero() {
            self.measure(now, elapsed.as_secs_f64(), devices);
        }
        // A late look says that this broker stalled, by a disk or the whole machine, and no more: messages
        // that clients sent meanwhile may still wait to be read. Leases stand still for that time.
        let held_up = elapsed.saturating_sub(self.interval);
        for transfer in self.under_way.values_mut() {
            transfer.heard = (transfer.heard + held_up).min(now);
        }
        let silent = |transfer: &UnderWay| now.saturating_since(transfer.heard) > self.lease;
        let dead: Vec<String> = self
            .under_way
            .iter()
            .filter(|(_, transfer)| silent(transfer))
            .map(|(id, _)| id.clone())
            .collect();
        let mut kept = self.catalogue.renew();
        // All of them first: who waits and is dead must not be granted what another leaves.
        for id in dead {
            tracing::info!("nothing was heard of transfer {id} for longer than its lease: it is over");
            let Some(transfer) = self.under_way.get(&id) else { continue };
            let (was_granted, has_written) = (transfer.granted.is_some(), transfer.name.is_none());
            self.forget(now, &id, has_written);
            if was_granted {
                kept = kept.and(self.catalogue.ended(&id));
            }
        }
        let stepped = self.step(now);
        kept?;
        stepped
    }

    fn measure(&mut self, now: Instant, elapsed: f64, devices: &BTreeMap<ResourceName, DeviceSample>) {
        let mut moved = std::mem::take(&mut self.ended);
        for transfer in self.under_way.values_mut() {
            let bytes = transfer.count();
            let Some(granted) = &transfer.granted else { continue };
            let lane = &mut moved.entry(granted.node.clone()).or_default()[lane(transfer.way)];
            *lane = lane.saturating_add(bytes);
            if std::mem::take(&mut transfer.fresh) && transfer.counted.is_some() {
                let rate = ByteRate::new(bytes as f64 / elapsed);
                self.placement.progress(now, transfer.ticket, TransferProgress { rate });
            }
        }
        for (name, plan) in &self.plans {
            // One of the two at most: so the configuration was read.
            let heard = self.sensed.get_mut(name).and_then(|heard| heard.sample(now));
            let device = devices.get(name).copied().or(heard);
            let own = moved.get(name).copied().unwrap_or_default();
            let own = own.map(|bytes| ByteRate::new(bytes as f64 / elapsed));
            let may_fill = plan.capacity.map(|capacity| left(capacity, self.catalogue.held(name)));
            let has = device.and_then(|device| device.free);
            // What a sensor said before it fell silent is not known any more.
            let free =
                [may_fill, has].into_iter().flatten().min().map_or(FreeSpace::Unknown, FreeSpace::Free);
            let [read, write] = own;
            let lanes = device.map(|device| device.lanes).unwrap_or_default();
            let sample = NodeSample { read, write, device: lanes, free };
            // All of them are nodes of the configuration, of which the placement was made.
            let _ = self.placement.observe(now, name, &sample);
        }
    }

    /// Lets all waiting transfers begin that may. None may be left out: it would wait for ever. While the
    /// catalogue is away none may begin, and all keep their places.
    fn step(&mut self, now: Instant) -> Result<(), BrokerError> {
        if self.catalogue.is_away() {
            return Ok(());
        }
        let mut outcome = Ok(());
        for (grant, ask) in self.placement.step_with_asks(now) {
            match self.grant(now, &grant) {
                Ok(()) => {}
                // It was noticed only by this.
                Err(error) if error.code() == AWAY => self.placement.put_back(now, grant.ticket, ask),
                Err(error) => {
                    if let Some(id) = self.ids.get(&grant.ticket).cloned() {
                        self.forget(now, &id, false);
                    }
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// Returns true if a transfer would write a replica of an object to a node that has one, or is being
    /// written one. That was decided while it waited.
    fn is_second(&self, id: &str, node: &ResourceName) -> bool {
        let Some(UnderWay { way: DataDirection::Write, replica: true, name: Some(name), .. }) =
            self.under_way.get(id)
        else {
            return false;
        };
        let is_there = |object: &CatalogueObject| object.replicas.iter().any(|replica| replica.node == *node);
        self.catalogue.get(name).is_some_and(is_there)
            || self.under_way.values().any(|other| {
                let to = other.granted.as_ref().map(|granted| &granted.node);
                other.way == DataDirection::Write && other.name.as_ref() == Some(name) && to == Some(node)
            })
    }

    /// Lets a transfer begin, once the catalogue knows of it. If the catalogue cannot write it, it has not
    /// begun.
    fn grant(&mut self, now: Instant, grant: &PlacementGrant) -> Result<(), BrokerError> {
        if let Some(id) = self.ids.get(&grant.ticket).cloned()
            && self.is_second(&id, &grant.node)
        {
            // It asks anew, and is placed elsewhere.
            self.forget(now, &id, false);
            return Ok(());
        }
        let known =
            self.ids.get(&grant.ticket).and_then(|id| Some((id.clone(), self.under_way.get_mut(id)?)));
        let (Some((id, transfer)), Some(plan)) = (known, self.plans.get(&grant.node)) else {
            self.placement.ended(now, grant.ticket);
            return Ok(());
        };
        let object = transfer.name.as_ref().and_then(|name| self.catalogue.get(name));
        let key = match transfer.way {
            DataDirection::Write => transfer.name.as_ref().map(|name| key(name, &id)),
            DataDirection::Read => object
                .and_then(|object| object.replicas.iter().find(|replica| replica.node == grant.node))
                .map(|replica| replica.key.clone()),
        };
        let sha256 = object.filter(|_| transfer.way == DataDirection::Read).map(|object| object.sha256);
        if transfer.way == DataDirection::Read && key.is_none() {
            // It was removed while this waited.
            self.forget(now, &id, false);
            return Ok(());
        }
        let granted = TransferPermit {
            node: grant.node.clone(),
            place: plan.place.to_string(),
            key: key.clone(),
            expected_bps: grant.expected,
            expected_first_byte_s: grant.first_byte.map(Latency::as_secs_f64),
            size: transfer.size,
            sha256,
        };
        let begun = BegunTransfer {
            id: id.clone(),
            way: transfer.way,
            name: transfer.name.clone(),
            size: transfer.size,
            needs: transfer.needs,
            node: grant.node.clone(),
            key,
            replica: transfer.replica,
            recalls: self.placement.recalls(grant.ticket),
        };
        self.catalogue.began(begun)?;
        transfer.granted = Some(granted);
        Ok(())
    }

    fn hear(&mut self, now: Instant, id: &str) -> Result<&mut UnderWay, BrokerError> {
        let transfer = self.under_way.get_mut(id).ok_or(BrokerError::Gone)?;
        transfer.heard = now;
        transfer.fresh = true;
        Ok(transfer)
    }

    /// Forgets a transfer and frees its reservation. The room on the node is free again, too, unless
    /// something was written.
    fn forget(&mut self, now: Instant, id: &str, has_written: bool) {
        let Some(mut transfer) = self.under_way.remove(id) else { return };
        self.ids.remove(&transfer.ticket);
        if has_written {
            self.placement.ended(now, transfer.ticket);
        } else {
            self.placement.abandoned(now, transfer.ticket);
        }
        let bytes = transfer.count();
        if let Some(granted) = transfer.granted {
            let lane = &mut self.ended.entry(granted.node).or_default()[lane(transfer.way)];
            *lane = lane.saturating_add(bytes);
        }
    }

    #[cfg(test)]
    pub(crate) fn fill_disk(&mut self) {
        self.catalogue.fill_disk();
    }

    fn with_places(&self, object: &CatalogueObject) -> CatalogueObject {
        let mut object = object.clone();
        for replica in &mut object.replicas {
            replica.place = self.plans.get(&replica.node).map(|plan| plan.place.to_string());
        }
        object
    }
}

/// Returns the key of an object on its node. It is used once. So data that a dead client left behind is never
/// taken for the object, and never overwrites it.
fn key(name: &ObjectName, id: &str) -> String {
    format!("{name}.{id}")
}

fn ask(
    wish: &TransferQuestion,
    size: Bytes,
    replicas: Vec<ResourceName>,
    except: Vec<ResourceName>,
) -> PlacementRequest {
    PlacementRequest {
        direction: TransferDirection::from(wish.way),
        requirement: wish.needs.into(),
        size,
        availability: wish.availability,
        cost: wish.cost,
        replicas,
        on_tape: Vec::new(),
        except,
    }
}

/// Returns a number that a client reported, if it is in range.
fn believable(number: f64, greatest: f64) -> Result<f64, BrokerError> {
    // Written so that NaN is refused as well.
    if (0.0..=greatest).contains(&number) { Ok(number) } else { Err(BrokerError::Unbelievable(number)) }
}

const fn lane(way: DataDirection) -> usize {
    match way {
        DataDirection::Read => 0,
        DataDirection::Write => 1,
    }
}

fn left(capacity: Bytes, held: Bytes) -> Bytes {
    Bytes::new(capacity.get().saturating_sub(held.get()))
}

#[cfg(test)]
mod tests;
