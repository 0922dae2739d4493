//! Placement of transfers: the node that carries each one, the ones that wait, and the promises to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use thiserror::Error;
use tidegate_units::{ByteRate, Bytes, Instant, Latency, ResourceName};

use super::capacity::NodeCapacity;
use super::moving_average::MovingAverage;
use super::node::{NodeConfig, NodeReport, NodeSample, PlacementNode, TransferDirection};
use super::peak::NodePeak;
use super::policy::{NodeView, PlacementPolicy, PolicyError};
use super::requirement::TransferRequirement;

/// The configuration of a placement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementConfig {
    /// The rule by which nodes are chosen.
    pub policy: PlacementPolicy,
    /// The number of transfers that may wait, at least 1. Default 10 000.
    pub greatest_queue: usize,
    /// The time after which a transfer without [progress reports](Placement::progress) is taken for dead. Its
    /// reservation is then free again. Default 10 s.
    pub lease: Duration,
    /// True to lend the part of a reservation that its transfer does not use. Default on.
    pub lend: bool,
}

impl PlacementConfig {
    /// Returns the configuration with every default.
    #[must_use]
    pub const fn new(policy: PlacementPolicy) -> Self {
        Self { policy, greatest_queue: 10_000, lease: Duration::from_secs(10), lend: true }
    }
}

/// The reason why transfers cannot be placed this way.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlacementConfigError {
    /// A coefficient of the policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No transfer could wait.
    #[error("at least one transfer must be allowed to wait")]
    NoQueue,
    /// Every transfer would be dead at once.
    #[error("the lease must be greater than zero")]
    NoLease,
    /// There is no node to place anything on.
    #[error("there are no storage nodes")]
    NoNodes,
    /// Two nodes have one name.
    #[error("two storage nodes are named `{0}`")]
    Twice(ResourceName),
}

/// A request for a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementRequest {
    /// The direction.
    pub direction: TransferDirection,
    /// The service that it needs.
    pub requirement: TransferRequirement,
    /// The amount of data that it moves.
    pub size: Bytes,
    /// The least class of availability, for writes.
    pub availability: u8,
    /// The greatest class of cost, for writes.
    pub cost: u8,
    /// The nodes that hold a replica, for reads.
    pub replicas: Vec<ResourceName>,
    /// Those of them that have it on tape only, and recall it first.
    pub on_tape: Vec<ResourceName>,
    /// Nodes that must not carry it: those on which it failed before. For a further replica also those that
    /// hold one.
    pub except: Vec<ResourceName>,
}

/// A transfer's number, from the moment when it was asked for. None is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferTicket(pub u64);

/// The answer that a transfer may begin.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementGrant {
    /// The transfer's ticket.
    pub ticket: TransferTicket,
    /// The node that carries it.
    pub node: ResourceName,
    /// The rate that the policy expects it to get.
    pub expected: ByteRate,
    /// The expected time from its request to its first byte, a recall included; `None` if it is not known.
    pub first_byte: Option<Latency>,
}

/// The answer to a request for a transfer.
#[derive(Debug, Clone, PartialEq)]
pub enum PlacementAnswer {
    /// It may begin.
    Granted(PlacementGrant),
    /// No node can carry it now: it waits for [`Placement::step`] to grant it.
    Waiting(TransferTicket),
}

/// A report on a transfer under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransferProgress {
    /// Its rate since the last report.
    pub rate: ByteRate,
}

/// The reason why a transfer is not taken.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlaceError {
    /// A rate was asked for, and it is zero.
    #[error("a rate of zero needs no reservation: ask for a rate above zero, or for a latency")]
    NoRate,
    /// There is no such node.
    #[error(transparent)]
    Unknown(#[from] UnknownNode),
    /// No node holds a replica.
    #[error("no storage node holds a replica: nothing can be read")]
    NoReplica,
    /// The nodes that could carry it are excluded.
    #[error(
        "every storage node that could carry it is excluded: it failed there, or holds a replica already"
    )]
    Excluded,
    /// No node is of these classes.
    #[error(
        "no storage node has availability {availability} or more and cost {cost} or less: ask for less, or \
            add a node"
    )]
    NoClass {
        /// The class of availability that was asked for.
        availability: u8,
        /// The class of cost that was allowed.
        cost: u8,
    },
    /// No candidate has the room.
    #[error(
        "{size} are more than any node that may be used has free ({greatest} at most): free some, or add a \
            node"
    )]
    TooLarge {
        /// The size that was to be moved.
        size: Bytes,
        /// The most that one of them has free.
        greatest: Bytes,
    },
    /// No candidate carries that rate, however idle.
    #[error(
        "{asked} are more than the policy takes on for any node that may be used, of which the fastest moves \
            {greatest}: it would \
         wait for ever"
    )]
    TooFast {
        /// The rate that was asked for.
        asked: ByteRate,
        /// The most that one of them moves.
        greatest: ByteRate,
    },
    /// No candidate answers as fast.
    #[error(
        "{asked} are less than any node that may be used takes to its first byte ({least}): it would wait \
            for ever"
    )]
    TooSoon {
        /// The latency that was asked for.
        asked: Latency,
        /// The least that one of them takes.
        least: Latency,
    },
    /// Too many transfers wait.
    #[error("{0} transfers wait already, which is as many as may: come back later")]
    QueueFull(usize),
}

/// No storage node has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no storage node `{0}`")]
pub struct UnknownNode(pub ResourceName);

/// A transfer that was placed.
#[derive(Debug, Clone)]
struct ActiveTransfer {
    node: ResourceName,
    direction: TransferDirection,
    size: Bytes,
    /// The rate that it was promised.
    reserved: ByteRate,
    /// True while its data is being recalled.
    recalls: bool,
    /// The part of its reservation that was lent to others.
    lent: ByteRate,
    used: MovingAverage,
    /// The time of the last report on it.
    heard: Instant,
}

impl ActiveTransfer {
    /// Returns true if it gets less than it reserved; `None` until its rate has been known for long enough.
    fn falls_short(&self) -> Option<bool> {
        let mean = self.used.get().unwrap_or_default().per_second();
        self.used.is_full().then_some(mean < self.reserved.per_second() * Placement::USES)
    }
}

/// Places transfers on storage nodes.
///
/// Transfers that no node can carry wait, first come first served. A transfer never takes a node that an
/// earlier one could use, and a transfer that waits for other nodes delays none. So every transfer is carried
/// once the nodes that could carry it have come free.
#[derive(Debug, Clone)]
pub struct Placement {
    config: PlacementConfig,
    nodes: BTreeMap<ResourceName, PlacementNode>,
    waiting: VecDeque<(TransferTicket, PlacementRequest)>,
    active: BTreeMap<TransferTicket, ActiveTransfer>,
    next: u64,
    /// The node that was taken last in turn; the next one follows.
    turn: Option<ResourceName>,
}

impl Placement {
    /// A transfer that uses less than this part of its reservation over ten samples has some to lend.
    const USES: f64 = 0.8;

    /// The time in which no new transfer is placed on a node after a transfer [failed](Self::failed) there.
    /// Without it, a node that is down would be the first choice again and again: it is idle. Five seconds: a
    /// restarted service is back by then, and a node that is not costs one attempt in this time.
    pub const REST: Duration = Duration::from_secs(5);

    /// The rate that a transfer keeps when it lends, as a multiple of the rate it uses, so that it can grow.
    const KEEPS: f64 = 1.25;

    /// Makes a placement without transfers.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(
        config: PlacementConfig,
        nodes: Vec<NodeConfig>,
        now: Instant,
    ) -> Result<Self, PlacementConfigError> {
        config.policy.validate()?;
        if config.greatest_queue == 0 {
            return Err(PlacementConfigError::NoQueue);
        }
        if config.lease.is_zero() {
            return Err(PlacementConfigError::NoLease);
        }
        if nodes.is_empty() {
            return Err(PlacementConfigError::NoNodes);
        }
        let mut known = BTreeMap::new();
        for node in nodes {
            let name = node.name.clone();
            if known.insert(name.clone(), PlacementNode::new(node, now)).is_some() {
                return Err(PlacementConfigError::Twice(name));
            }
        }
        let (waiting, active) = (VecDeque::new(), BTreeMap::new());
        Ok(Self { config, nodes: known, waiting, active, next: 0, turn: None })
    }

    /// Asks for a new transfer.
    ///
    /// # Errors
    /// When it could never be carried, or too many wait.
    pub fn ask(&mut self, now: Instant, ask: PlacementRequest) -> Result<PlacementAnswer, PlaceError> {
        self.check(&ask)?;
        let ticket = TransferTicket(self.next);
        let mut awaited = Awaited::default();
        for (_, earlier) in &self.waiting {
            if awaited.is_all(&self.nodes) {
                break;
            }
            awaited.0.extend(self.could_have(now, earlier));
        }
        if let Some(grant) = self.choose(now, &ask, &awaited, ticket) {
            self.next += 1;
            self.begin(now, &ask, &grant);
            return Ok(PlacementAnswer::Granted(grant));
        }
        if self.waiting.len() >= self.config.greatest_queue {
            return Err(PlaceError::QueueFull(self.waiting.len()));
        }
        self.next += 1;
        self.waiting.push_back((ticket, ask));
        Ok(PlacementAnswer::Waiting(ticket))
    }

    /// Returns the transfers that waited and may begin now. Call it after samples and ends.
    pub fn step(&mut self, now: Instant) -> Vec<PlacementGrant> {
        self.step_with_asks(now).into_iter().map(|(grant, _)| grant).collect()
    }

    /// Returns the same grants, each with what it asked for. A caller that cannot begin one [puts it
    /// back](Self::put_back).
    pub fn step_with_asks(&mut self, now: Instant) -> Vec<(PlacementGrant, PlacementRequest)> {
        self.bury(now);
        let mut granted = Vec::new();
        let mut awaited = Awaited::default();
        let mut place = 0;
        while let Some((ticket, ask)) = self.waiting.get(place)
            && !awaited.is_all(&self.nodes)
        {
            match self.choose(now, ask, &awaited, *ticket) {
                Some(grant) => {
                    if let Some((_, ask)) = self.waiting.remove(place) {
                        self.begin(now, &ask, &grant);
                        granted.push((grant, ask));
                    }
                }
                None => {
                    awaited.0.extend(self.could_have(now, ask));
                    place += 1;
                }
            }
        }
        granted
    }

    /// Returns a granted transfer that could not begin to its place in the queue: tickets are in the order of
    /// asking.
    pub fn put_back(&mut self, now: Instant, ticket: TransferTicket, ask: PlacementRequest) {
        self.abandoned(now, ticket);
        let place = self.waiting.partition_point(|(other, _)| *other < ticket);
        self.waiting.insert(place, (ticket, ask));
    }

    /// Returns true if a transfer's data is being recalled from a tape.
    #[must_use]
    pub fn recalls(&self, ticket: TransferTicket) -> bool {
        self.active.get(&ticket).is_some_and(|active| active.recalls)
    }

    /// Resumes a transfer that was placed before the program was started again: it goes on where it is, and
    /// keeps its number.
    ///
    /// # Errors
    /// When its node is no more.
    pub fn resume(
        &mut self,
        now: Instant,
        ask: &PlacementRequest,
        grant: &PlacementGrant,
    ) -> Result<(), UnknownNode> {
        if !self.nodes.contains_key(&grant.node) {
            return Err(UnknownNode(grant.node.clone()));
        }
        self.next = self.next.max(grant.ticket.0.saturating_add(1));
        self.begin(now, ask, grant);
        Ok(())
    }

    /// Takes note that a transfer failed because of its node: no new transfer is placed there for
    /// [`REST`](Self::REST). Call [`ended`](Self::ended) besides.
    pub fn failed(&mut self, now: Instant, ticket: TransferTicket) {
        if let Some(active) = self.active.get(&ticket)
            && let Some(node) = self.nodes.get_mut(&active.node)
        {
            node.rests_until = now + Self::REST;
        }
    }

    /// Ends a transfer, whether it was finished or not, or takes it out of the queue. Returns true if it was
    /// there. Its write counts as written in full until a sample reports the free space.
    pub fn ended(&mut self, now: Instant, ticket: TransferTicket) -> bool {
        self.over(now, ticket, PlacementNode::wrote)
    }

    /// Ends a transfer of which nothing stays: the room that it was promised is free again at once, for the
    /// next attempt. Otherwise like [`ended`](Self::ended).
    pub fn abandoned(&mut self, now: Instant, ticket: TransferTicket) -> bool {
        self.over(now, ticket, PlacementNode::wrote_not)
    }

    fn over(&mut self, now: Instant, ticket: TransferTicket, settle: fn(&mut PlacementNode, Bytes)) -> bool {
        if let Some(active) = self.active.remove(&ticket) {
            if let Some(node) = self.nodes.get_mut(&active.node) {
                let lane = node.lane_mut(active.direction);
                if active.recalls {
                    lane.recalled(now);
                }
                lane.ended(now, active.reserved, active.lent);
                lane.known.changes(active.falls_short(), None);
                if active.direction == TransferDirection::Write {
                    settle(node, active.size);
                }
            }
            return true;
        }
        let waiting = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        self.waiting.len() < waiting
    }

    /// Takes the rate of a transfer since its last report, and lends the part of its reservation that it does
    /// not use over ten samples. The transfer has that part back as soon as it uses more than it kept. From
    /// then on no new transfer gets that part; those that were placed on it stay. Returns true if the
    /// transfer is known. One that is not known was taken for dead, and has to ask anew.
    pub fn progress(&mut self, now: Instant, ticket: TransferTicket, progress: TransferProgress) -> bool {
        let Some(active) = self.active.get_mut(&ticket) else { return false };
        active.heard = now;
        let fell_short = active.falls_short();
        active.used.add(progress.rate);
        let Some(node) = self.nodes.get_mut(&active.node) else { return false };
        let lane = node.lane_mut(active.direction);
        // None of the transfers beside it on its node and in its direction, as far as they are known for long
        // enough, gets what it reserved. Then the node has less than its peak, and there is nothing to lend;
        // unless a sensor sees that the node does less than it can: then it is the clients that are slow.
        lane.known.changes(fell_short, None);
        let is_seen_free = lane.is_seen_below(Self::USES);
        let others_fall_short = lane.known.all_fall_short() && !is_seen_free;
        let (reserved, lent) = (active.reserved.per_second(), active.lent.per_second());
        let mean = active.used.get().unwrap_or_default().per_second();
        let uses_little = active.used.is_full() && mean < reserved * Self::USES;
        // Others being slow, too, it may be the node that holds it back: then it has nothing to lend.
        let is_free = lane.view().moving_average.per_second() < lane.peak.get().per_second() * Self::USES;
        let lends = if progress.rate.per_second() >= reserved - lent {
            // What it did before it grew says nothing any more.
            active.used = MovingAverage::default();
            0.0
        } else if others_fall_short {
            0.0
        } else if self.config.lend && uses_little && is_free {
            (reserved - mean * Self::KEEPS).max(0.0)
        } else {
            lent
        };
        let lends = ByteRate::new(lends);
        lane.lends(std::mem::replace(&mut active.lent, lends), lends);
        lane.known.changes(None, active.falls_short());
        true
    }

    /// Takes the time from a transfer's request to its first byte: others have to expect the same.
    pub fn first_byte(&mut self, now: Instant, ticket: TransferTicket, latency: Latency) {
        if let Some(active) = self.active.get_mut(&ticket)
            && let Some(node) = self.nodes.get_mut(&active.node)
        {
            let lane = node.lane_mut(active.direction);
            if std::mem::take(&mut active.recalls) {
                // What it took says nothing of what is on the disk.
                lane.recalled(now);
            } else {
                lane.first_byte.add(now, latency);
            }
        }
    }

    /// Takes the rate that a probe measured on a node in a direction. It replaces the learnt peak. If
    /// transfers were under way during the probe, it does so only if it is higher: the probe got the rest. A
    /// pinned peak stays. Returns the new peak.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn probed(
        &mut self,
        node: &ResourceName,
        direction: TransferDirection,
        rate: Option<ByteRate>,
    ) -> Result<NodePeak, UnknownNode> {
        let known = self.nodes.get_mut(node).ok_or_else(|| UnknownNode(node.clone()))?;
        let is_used = TransferDirection::BOTH.into_iter().any(|direction| known.lane(direction).active > 0);
        let peak = &mut known.lane_mut(direction).peak;
        if let Some(rate) = rate {
            peak.probed(rate, is_used);
        }
        Ok(*peak)
    }

    /// Takes a sample of a node.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn observe(
        &mut self,
        now: Instant,
        node: &ResourceName,
        sample: &NodeSample,
    ) -> Result<(), UnknownNode> {
        let known = self.nodes.get_mut(node).ok_or_else(|| UnknownNode(node.clone()))?;
        known.observe(now, sample);
        Ok(())
    }

    /// Returns the state of every node.
    pub fn nodes(&self) -> impl Iterator<Item = NodeReport> {
        self.nodes.values().map(|node| {
            let waiting = self.waiting.iter().filter(|(_, ask)| may_use(ask, node));
            node.report(waiting.count())
        })
    }

    /// Returns the number of transfers that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of transfers that were placed and have not ended.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Ends the transfers that sent no report for longer than the lease.
    fn bury(&mut self, now: Instant) {
        let silent = |active: &ActiveTransfer| now.saturating_since(active.heard) > self.config.lease;
        let dead: Vec<TransferTicket> =
            self.active.iter().filter(|(_, active)| silent(active)).map(|(ticket, _)| *ticket).collect();
        for ticket in dead {
            self.ended(now, ticket);
        }
    }

    fn begin(&mut self, now: Instant, ask: &PlacementRequest, grant: &PlacementGrant) {
        let reserved = ask.requirement.rate();
        let mut recalls = false;
        if let Some(node) = self.nodes.get_mut(&grant.node) {
            recalls = recall(node, ask).is_some();
            node.lane_mut(ask.direction).began(now, reserved, recalls);
            if ask.direction == TransferDirection::Write {
                node.promised = node.promised.saturating_add(ask.size.get());
            }
        }
        self.turn = Some(grant.node.clone());
        let active = ActiveTransfer {
            node: grant.node.clone(),
            direction: ask.direction,
            size: ask.size,
            reserved,
            recalls,
            lent: ByteRate::ZERO,
            used: MovingAverage::default(),
            heard: now,
        };
        self.active.insert(grant.ticket, active);
    }

    /// Chooses the node that carries it best, of those that can carry it and that no earlier transfer could
    /// use.
    fn choose(
        &self,
        now: Instant,
        ask: &PlacementRequest,
        awaited: &Awaited,
        ticket: TransferTicket,
    ) -> Option<PlacementGrant> {
        let policy = self.config.policy;
        let free = |node: &&PlacementNode| !awaited.0.contains(&node.config.name) && node.rests_until <= now;
        let can = |node: &&PlacementNode| {
            let has_room = ask.direction == TransferDirection::Read || node.has_room(ask.size);
            let view = node.lane(ask.direction).view();
            // Of a node that never carried anything nothing is known, and by carrying nothing nothing would
            // ever be.
            let is_new = view.active == 0 && view.peak == ByteRate::ZERO;
            has_room
                && self.could_ever(node, ask)
                && is_soon(now, node, ask)
                && has_drive(node, ask)
                && (is_new || policy.carries(&view, ask.requirement.rate()))
        };
        let nodes = self.in_turn().filter(|node| may_use(ask, node)).filter(free).filter(can);
        let expected = |node: &PlacementNode| policy.expected(&node.lane(ask.direction).view());
        let best = match policy {
            PlacementPolicy::RoundRobin => nodes.into_iter().next(),
            // Of equals the first in turn.
            _ => nodes.reduce(|best, node| if expected(node) > expected(best) { node } else { best }),
        }?;
        let node = best.config.name.clone();
        Some(PlacementGrant {
            ticket,
            node,
            expected: expected(best),
            first_byte: first_byte(now, best, ask),
        })
    }

    /// The nodes that a transfer may be waiting for.
    fn could_have(&self, now: Instant, ask: &PlacementRequest) -> Vec<ResourceName> {
        let has = |node: &&PlacementNode| {
            let has_room = node.config.free.is_none_or(|free| ask.size <= free);
            // Who waits for a node to become quick again loses nothing to others there: it is they from whom
            // that is learnt.
            (ask.direction == TransferDirection::Read || has_room)
                && self.could_ever(node, ask)
                && is_soon(now, node, ask)
                // Nor is who waits for a drive in the way of who reads from the disk.
                && has_drive(node, ask)
        };
        let nodes = self.nodes.values().filter(|node| may_use(ask, node)).filter(has);
        nodes.map(|node| node.config.name.clone()).collect()
    }

    /// Returns true if the node might carry it one day. The most that a node moves may not be known, or be
    /// learnt from transfers that asked for less.
    fn could_ever(&self, node: &PlacementNode, ask: &PlacementRequest) -> bool {
        match ask.requirement {
            TransferRequirement::Latency(asked) => {
                least_latency(node, ask).is_none_or(|least| least <= asked)
            }
            _ => !node.lane(ask.direction).peak.is_pinned() || self.could_carry(node, ask),
        }
    }

    /// Returns true if a node carries it when no other transfer uses the node, as far as its peak says.
    fn could_carry(&self, node: &PlacementNode, ask: &PlacementRequest) -> bool {
        let peak = node.lane(ask.direction).peak.get();
        let idle = NodeView {
            peak,
            reserved: ByteRate::ZERO,
            moving_average: ByteRate::ZERO,
            moving: ByteRate::ZERO,
            active: 0,
            recalling: 0,
            capacity: &NodeCapacity::default(),
        };
        let policy = self.config.policy;
        policy == PlacementPolicy::RoundRobin
            || ask.requirement.rate() <= peak && policy.carries(&idle, ask.requirement.rate())
    }

    /// Returns all nodes, beginning after the one that was last taken.
    fn in_turn(&self) -> impl Iterator<Item = &PlacementNode> {
        use std::ops::Bound::{Excluded, Unbounded};
        let last = self.turn.as_ref();
        let after = self.nodes.range::<ResourceName, _>((last.map_or(Unbounded, Excluded), Unbounded));
        let before = self.nodes.iter().take_while(move |(name, _)| last.is_some_and(|last| *name <= last));
        after.chain(before).map(|(_, node)| node)
    }

    /// Checks a request as far as that is possible before anything is measured.
    fn check(&self, ask: &PlacementRequest) -> Result<(), PlaceError> {
        if !matches!(ask.requirement, TransferRequirement::Latency(_))
            && ask.requirement.rate() == ByteRate::ZERO
        {
            return Err(PlaceError::NoRate);
        }
        if let Some(unknown) =
            ask.replicas.iter().chain(&ask.except).find(|name| !self.nodes.contains_key(*name))
        {
            return Err(UnknownNode(unknown.clone()).into());
        }
        let candidates = || self.nodes.values().filter(|node| may_use(ask, node));
        if candidates().next().is_none() {
            let anybody = PlacementRequest { except: Vec::new(), ..ask.clone() };
            return Err(match ask.direction {
                _ if self.nodes.values().any(|node| may_use(&anybody, node)) => PlaceError::Excluded,
                TransferDirection::Read => PlaceError::NoReplica,
                TransferDirection::Write => {
                    PlaceError::NoClass { availability: ask.availability, cost: ask.cost }
                }
            });
        }
        // Rooms and rates that are not known are no reason to refuse. What was promised to transfers under
        // way may come free, when they fail.
        let rooms: Option<Vec<Bytes>> = candidates().map(|node| node.config.free).collect();
        if let Some(greatest) = rooms.and_then(|rooms| rooms.into_iter().max())
            && ask.direction == TransferDirection::Write
            && ask.size > greatest
        {
            return Err(PlaceError::TooLarge { size: ask.size, greatest });
        }
        if let TransferRequirement::Latency(asked) = ask.requirement {
            // What was learnt may be otherwise tomorrow.
            let said: Option<Vec<Latency>> = candidates().map(|node| least_latency(node, ask)).collect();
            let least = said.and_then(|said| said.into_iter().min());
            return match least.filter(|least| *least > asked) {
                Some(least) => Err(PlaceError::TooSoon { asked, least }),
                None => Ok(()),
            };
        }
        let peak = |node: &PlacementNode| node.lane(ask.direction).peak.get();
        let greatest =
            candidates().map(peak).fold(ByteRate::ZERO, |one, other| if other > one { other } else { one });
        if !candidates().any(|node| self.could_ever(node, ask)) {
            return Err(PlaceError::TooFast { asked: ask.requirement.rate(), greatest });
        }
        Ok(())
    }
}

/// The nodes for which an earlier transfer waits.
#[derive(Debug, Default)]
struct Awaited(BTreeSet<ResourceName>);

impl Awaited {
    /// Returns true if no later transfer can have any: then later ones are not looked at.
    fn is_all(&self, nodes: &BTreeMap<ResourceName, PlacementNode>) -> bool {
        self.0.len() == nodes.len()
    }
}

/// Returns true if the first byte is to be expected in time, or no time was asked for. A node whose time is
/// not known is tried: it could never become known otherwise.
fn is_soon(now: Instant, node: &PlacementNode, ask: &PlacementRequest) -> bool {
    let TransferRequirement::Latency(asked) = ask.requirement else { return true };
    first_byte(now, node, ask).is_none_or(|first_byte| first_byte <= asked)
}

/// Returns the time to expect from a request to its first byte; `None` if it is not known.
fn first_byte(now: Instant, node: &PlacementNode, ask: &PlacementRequest) -> Option<Latency> {
    match (node.lane(ask.direction).first_byte.get(now), recall(node, ask)) {
        (None, None) => None,
        (known, recall) => Some(known.unwrap_or_default().saturating_add(recall.unwrap_or_default())),
    }
}

/// Returns the time in which a node recalls what is asked for; `None` if it need not recall it.
fn recall(node: &PlacementNode, ask: &PlacementRequest) -> Option<Latency> {
    let is_read = ask.direction == TransferDirection::Read;
    let tape = node.config.tape.filter(|_| is_read && ask.on_tape.contains(&node.config.name));
    tape.map(|tape| tape.recall)
}

/// Returns true if a drive is free, or none is needed. A transfer that reads from the disk needs none, and
/// one that waits for a drive has nothing reserved meanwhile.
fn has_drive(node: &PlacementNode, ask: &PlacementRequest) -> bool {
    recall(node, ask).is_none()
        || node.config.tape.is_some_and(|tape| node.lane(ask.direction).recalling < tape.drives)
}

/// Returns the least time to the first byte on a node, by its configuration; `None` if none is configured.
fn least_latency(node: &PlacementNode, ask: &PlacementRequest) -> Option<Latency> {
    match (node.config.latency, recall(node, ask)) {
        (None, None) => None,
        (said, recall) => Some(said.unwrap_or_default().saturating_add(recall.unwrap_or_default())),
    }
}

/// Returns true if a node is of the right classes, or holds a replica, and is not excluded.
fn may_use(ask: &PlacementRequest, node: &PlacementNode) -> bool {
    if ask.except.contains(&node.config.name) {
        return false;
    }
    match ask.direction {
        TransferDirection::Read => ask.replicas.contains(&node.config.name),
        TransferDirection::Write => {
            node.config.availability >= ask.availability && node.config.cost <= ask.cost
        }
    }
}

#[cfg(test)]
mod tests;
