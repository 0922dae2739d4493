//! Who is carried where, who waits, and what was promised.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use thiserror::Error;
use tidegate_units::{ByteRate, Bytes, Instant, Latency, ResourceName};

use super::capacity::Capacity;
use super::moving_average::MovingAverage;
use super::node::{Direction, Node, NodeConfig, NodeReport, NodeSample};
use super::peak::Peak;
use super::policy::{Policy, PolicyError, View};
use super::requirement::Requirement;

/// How transfers are placed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementConfig {
    /// How nodes are chosen.
    pub policy: Policy,
    /// How many transfers may wait, at least 1. Default 10 000.
    pub greatest_queue: usize,
    /// A transfer that nobody [tells anything of](Placement::progress) for so long is taken for dead, and
    /// what was reserved for it is free again. Default 10 s.
    pub lease: Duration,
    /// Lend what a transfer has reserved and does not use. Default on.
    pub lend: bool,
}

impl PlacementConfig {
    /// Every default.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy, greatest_queue: 10_000, lease: Duration::from_secs(10), lend: true }
    }
}

/// Why transfers cannot be placed this way.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlacementConfigError {
    /// A coefficient of the policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Nobody could wait.
    #[error("at least one transfer must be allowed to wait")]
    NoQueue,
    /// Every transfer would be dead at once.
    #[error("the lease must be greater than zero")]
    NoLease,
    /// There is nowhere to place anything.
    #[error("there are no storage nodes")]
    NoNodes,
    /// Two nodes have one name.
    #[error("two storage nodes are named `{0}`")]
    Twice(ResourceName),
}

/// A transfer that somebody wants to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Which way.
    pub direction: Direction,
    /// What it needs.
    pub requirement: Requirement,
    /// How much it moves.
    pub size: Bytes,
    /// The least class of availability. Of writes.
    pub availability: u8,
    /// The greatest class of cost. Of writes.
    pub cost: u8,
    /// The nodes that hold a replica. Of reads.
    pub replicas: Vec<ResourceName>,
    /// Those of them that have it on tape only, and recall it first.
    pub on_tape: Vec<ResourceName>,
    /// Nodes that must not carry it: those where it failed before, and of another replica those that hold
    /// one.
    pub except: Vec<ResourceName>,
}

/// A transfer's number, from the moment when it was asked for. None is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A transfer may begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// Which.
    pub ticket: Ticket,
    /// Where.
    pub node: ResourceName,
    /// What the policy expects it to get.
    pub expected: ByteRate,
    /// How long after its request its first byte is expected, a recall included; `None` where nothing is
    /// known of it.
    pub first_byte: Option<Latency>,
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It may begin.
    Granted(Grant),
    /// No node can carry it now: it waits for [`Placement::step`] to grant it.
    Waiting(Ticket),
}

/// What is told of a transfer under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Its rate since this was last told.
    pub rate: ByteRate,
}

/// Why a transfer is not taken.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlaceError {
    /// Nothing per second, where a rate was asked for.
    #[error("a rate of zero needs no reservation: ask for a rate above zero, or for a latency")]
    NoRate,
    /// No such node.
    #[error(transparent)]
    Unknown(#[from] UnknownNode),
    /// Nobody holds a replica.
    #[error("no storage node holds a replica: nothing can be read")]
    NoReplica,
    /// Those that could are excluded.
    #[error(
        "every storage node that could carry it is excluded: it failed there, or holds a replica already"
    )]
    Excluded,
    /// No node is of these classes.
    #[error(
        "no storage node has availability {availability} or more and cost {cost} or less: ask for less, or add a node"
    )]
    NoClass {
        /// What was asked for.
        availability: u8,
        /// What was allowed.
        cost: u8,
    },
    /// No candidate has the room.
    #[error(
        "{size} are more than any node that may be used has free ({greatest} at most): free some, or add a node"
    )]
    TooLarge {
        /// What was to be moved.
        size: Bytes,
        /// The most that one of them has free.
        greatest: Bytes,
    },
    /// No candidate carries that, however idle.
    #[error(
        "{asked} are more than the policy takes on for any node that may be used, of which the fastest moves {greatest}: it would \
         wait for ever"
    )]
    TooFast {
        /// What was asked for.
        asked: ByteRate,
        /// The most that one of them moves.
        greatest: ByteRate,
    },
    /// No candidate answers as fast.
    #[error(
        "{asked} are less than any node that may be used takes to its first byte ({least}): it would wait for ever"
    )]
    TooSoon {
        /// What was asked for.
        asked: Latency,
        /// The least that one of them takes.
        least: Latency,
    },
    /// Too many wait.
    #[error("{0} transfers wait already, which is as many as may: come back later")]
    QueueFull(usize),
}

/// No storage node has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no storage node `{0}`")]
pub struct UnknownNode(pub ResourceName);

/// A transfer that was placed.
#[derive(Debug, Clone)]
struct Active {
    node: ResourceName,
    direction: Direction,
    size: Bytes,
    /// What it was promised.
    reserved: ByteRate,
    /// Whether its data is being recalled.
    recalls: bool,
    /// What of it was lent to others.
    lent: ByteRate,
    used: MovingAverage,
    /// When anything was last heard of it.
    heard: Instant,
}

impl Active {
    /// Whether it gets less than it reserved, where it is known for long enough.
    fn falls_short(&self) -> Option<bool> {
        let mean = self.used.get().unwrap_or_default().per_second();
        self.used.is_full().then_some(mean < self.reserved.per_second() * Placement::USES)
    }
}

/// Places transfers on storage nodes.
///
/// Whoever cannot be carried waits, first come first served: nobody takes a node that somebody who came
/// before could use, and who waits for other nodes delays nobody. So everybody is carried once the nodes that
/// could have come free.
#[derive(Debug, Clone)]
pub struct Placement {
    config: PlacementConfig,
    nodes: BTreeMap<ResourceName, Node>,
    waiting: VecDeque<(Ticket, Ask)>,
    active: BTreeMap<Ticket, Active>,
    next: u64,
    /// After which node it is the next one's turn.
    turn: Option<ResourceName>,
}

impl Placement {
    /// A transfer that uses less than this part of its reservation over ten samples has some to lend.
    const USES: f64 = 0.8;

    /// So long nobody new is placed on a node where a transfer [failed](Self::failed). A node that is down
    /// would be the first choice again and again: it is idle. Five seconds: a service that is restarted is
    /// back by then, and a node that is not costs one attempt in this time.
    pub const REST: Duration = Duration::from_secs(5);

    /// What it keeps beyond what it uses, so that it can grow.
    const KEEPS: f64 = 1.25;

    /// Nobody is placed yet.
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
            if known.insert(name.clone(), Node::new(node, now)).is_some() {
                return Err(PlacementConfigError::Twice(name));
            }
        }
        let (waiting, active) = (VecDeque::new(), BTreeMap::new());
        Ok(Self { config, nodes: known, waiting, active, next: 0, turn: None })
    }

    /// Somebody wants to make a transfer.
    ///
    /// # Errors
    /// When it could never be carried, or too many wait.
    pub fn ask(&mut self, now: Instant, ask: Ask) -> Result<Answer, PlaceError> {
        self.check(&ask)?;
        let ticket = Ticket(self.next);
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
            return Ok(Answer::Granted(grant));
        }
        if self.waiting.len() >= self.config.greatest_queue {
            return Err(PlaceError::QueueFull(self.waiting.len()));
        }
        self.next += 1;
        self.waiting.push_back((ticket, ask));
        Ok(Answer::Waiting(ticket))
    }

    /// Who of those that waited may begin now. Call it after samples and ends.
    pub fn step(&mut self, now: Instant) -> Vec<Grant> {
        self.step_with_asks(now).into_iter().map(|(grant, _)| grant).collect()
    }

    /// The same, with what each asked for: whoever cannot let one begin [puts it back](Self::put_back).
    pub fn step_with_asks(&mut self, now: Instant) -> Vec<(Grant, Ask)> {
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

    /// A transfer that was granted could not begin, and waits again where it waited before: tickets are in
    /// the order of asking.
    pub fn put_back(&mut self, now: Instant, ticket: Ticket, ask: Ask) {
        self.abandoned(now, ticket);
        let place = self.waiting.partition_point(|(other, _)| *other < ticket);
        self.waiting.insert(place, (ticket, ask));
    }

    /// Whether a transfer's data is being recalled from a tape.
    #[must_use]
    pub fn recalls(&self, ticket: Ticket) -> bool {
        self.active.get(&ticket).is_some_and(|active| active.recalls)
    }

    /// A transfer that was placed before whoever keeps this was started again: it goes on where it is, and
    /// keeps its number.
    ///
    /// # Errors
    /// When its node is no more.
    pub fn resume(&mut self, now: Instant, ask: &Ask, grant: &Grant) -> Result<(), UnknownNode> {
        if !self.nodes.contains_key(&grant.node) {
            return Err(UnknownNode(grant.node.clone()));
        }
        self.next = self.next.max(grant.ticket.0.saturating_add(1));
        self.begin(now, ask, grant);
        Ok(())
    }

    /// A transfer failed by what happened at its node: nobody new is placed there for [`REST`](Self::REST).
    /// Call [`ended`](Self::ended) besides.
    pub fn failed(&mut self, now: Instant, ticket: Ticket) {
        if let Some(active) = self.active.get(&ticket)
            && let Some(node) = self.nodes.get_mut(&active.node)
        {
            node.rests_until = now + Self::REST;
        }
    }

    /// A transfer is over, whether it came to its end or not, or is no longer wanted. Whether it was there.
    /// What it was to write is taken for written until a sample says more.
    pub fn ended(&mut self, now: Instant, ticket: Ticket) -> bool {
        self.over(now, ticket, Node::wrote)
    }

    /// The same of one of which it is known that nothing of it stays: the room that it was promised is free
    /// again at once, for whoever tries it anew.
    pub fn abandoned(&mut self, now: Instant, ticket: Ticket) -> bool {
        self.over(now, ticket, Node::wrote_not)
    }

    fn over(&mut self, now: Instant, ticket: Ticket, settle: fn(&mut Node, Bytes)) -> bool {
        if let Some(active) = self.active.remove(&ticket) {
            if let Some(node) = self.nodes.get_mut(&active.node) {
                let lane = node.lane_mut(active.direction);
                if active.recalls {
                    lane.recalled(now);
                }
                lane.ended(now, active.reserved, active.lent);
                lane.known.changes(active.falls_short(), None);
                if active.direction == Direction::Write {
                    settle(node, active.size);
                }
            }
            return true;
        }
        let waiting = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        self.waiting.len() < waiting
    }

    /// What a transfer moved since this was last told. What it leaves of its reservation over ten samples is
    /// lent, and is its own again as soon as it uses more than it kept: nobody new takes it then, and who was
    /// let in stays. Whether the transfer is known: who is not, was taken for dead, and has to ask anew.
    pub fn progress(&mut self, now: Instant, ticket: Ticket, progress: Progress) -> bool {
        let Some(active) = self.active.get_mut(&ticket) else { return false };
        active.heard = now;
        let fell_short = active.falls_short();
        active.used.add(progress.rate);
        let Some(node) = self.nodes.get_mut(&active.node) else { return false };
        let lane = node.lane_mut(active.direction);
        // Of those beside it on its node and in its direction that are known for long enough, none gets what
        // it reserved: then it is the node that has less than its peak, and nobody has anything to lend.
        lane.known.changes(fell_short, None);
        let others_fall_short = lane.known.all_fall_short();
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

    /// A transfer had its first byte so long after its request: what others have to expect.
    pub fn first_byte(&mut self, now: Instant, ticket: Ticket, latency: Latency) {
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

    /// Somebody tried what a node moves in a direction. It is taken for what was learnt of its peak; where
    /// transfers were under way beside it, only if it is more: it is what they left. What is pinned stays.
    /// Returns the peak from now on.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn probed(
        &mut self,
        node: &ResourceName,
        direction: Direction,
        rate: Option<ByteRate>,
    ) -> Result<Peak, UnknownNode> {
        let known = self.nodes.get_mut(node).ok_or_else(|| UnknownNode(node.clone()))?;
        let is_used = Direction::BOTH.into_iter().any(|direction| known.lane(direction).active > 0);
        let peak = &mut known.lane_mut(direction).peak;
        if let Some(rate) = rate {
            peak.probed(rate, is_used);
        }
        Ok(*peak)
    }

    /// What was measured of a node.
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

    /// What is known of every node.
    pub fn nodes(&self) -> impl Iterator<Item = NodeReport> {
        self.nodes.values().map(|node| {
            let waiting = self.waiting.iter().filter(|(_, ask)| may_use(ask, node));
            node.report(waiting.count())
        })
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many were placed and have not ended.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Ends the transfers that nothing is heard of.
    fn bury(&mut self, now: Instant) {
        let silent = |active: &Active| now.saturating_since(active.heard) > self.config.lease;
        let dead: Vec<Ticket> =
            self.active.iter().filter(|(_, active)| silent(active)).map(|(ticket, _)| *ticket).collect();
        for ticket in dead {
            self.ended(now, ticket);
        }
    }

    fn begin(&mut self, now: Instant, ask: &Ask, grant: &Grant) {
        let reserved = ask.requirement.rate();
        let mut recalls = false;
        if let Some(node) = self.nodes.get_mut(&grant.node) {
            recalls = recall(node, ask).is_some();
            node.lane_mut(ask.direction).began(now, reserved, recalls);
            if ask.direction == Direction::Write {
                node.promised = node.promised.saturating_add(ask.size.get());
            }
        }
        self.turn = Some(grant.node.clone());
        let active = Active {
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

    /// The node that carries it best of those that can, and that nobody before it could use.
    fn choose(&self, now: Instant, ask: &Ask, awaited: &Awaited, ticket: Ticket) -> Option<Grant> {
        let policy = self.config.policy;
        let free = |node: &&Node| !awaited.0.contains(&node.config.name) && node.rests_until <= now;
        let can = |node: &&Node| {
            let has_room = ask.direction == Direction::Read || node.has_room(ask.size);
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
        let expected = |node: &Node| policy.expected(&node.lane(ask.direction).view());
        let best = match policy {
            Policy::RoundRobin => nodes.into_iter().next(),
            // Of equals the first in turn.
            _ => nodes.reduce(|best, node| if expected(node) > expected(best) { node } else { best }),
        }?;
        let node = best.config.name.clone();
        Some(Grant { ticket, node, expected: expected(best), first_byte: first_byte(now, best, ask) })
    }

    /// The nodes that a transfer may be waiting for.
    fn could_have(&self, now: Instant, ask: &Ask) -> Vec<ResourceName> {
        let has = |node: &&Node| {
            let has_room = node.config.free.is_none_or(|free| ask.size <= free);
            // Who waits for a node to become quick again loses nothing to others there: it is they from whom
            // that is learnt.
            (ask.direction == Direction::Read || has_room)
                && self.could_ever(node, ask)
                && is_soon(now, node, ask)
                // Nor is who waits for a drive in the way of who reads from the disk.
                && has_drive(node, ask)
        };
        let nodes = self.nodes.values().filter(|node| may_use(ask, node)).filter(has);
        nodes.map(|node| node.config.name.clone()).collect()
    }

    /// Whether it can be that the node carries it one day. What a node moves at best may not be known, or be
    /// learnt from those who asked for less.
    fn could_ever(&self, node: &Node, ask: &Ask) -> bool {
        match ask.requirement {
            Requirement::Latency(asked) => least_latency(node, ask).is_none_or(|least| least <= asked),
            _ => !node.lane(ask.direction).peak.is_pinned() || self.could_carry(node, ask),
        }
    }

    /// Whether a node carries it when nobody else uses it, as far as its peak says.
    fn could_carry(&self, node: &Node, ask: &Ask) -> bool {
        let peak = node.lane(ask.direction).peak.get();
        let idle = View {
            peak,
            reserved: ByteRate::ZERO,
            moving_average: ByteRate::ZERO,
            moving: ByteRate::ZERO,
            active: 0,
            recalling: 0,
            capacity: &Capacity::default(),
        };
        let policy = self.config.policy;
        policy == Policy::RoundRobin
            || ask.requirement.rate() <= peak && policy.carries(&idle, ask.requirement.rate())
    }

    /// All nodes, beginning after the one that was last taken.
    fn in_turn(&self) -> impl Iterator<Item = &Node> {
        use std::ops::Bound::{Excluded, Unbounded};
        let last = self.turn.as_ref();
        let after = self.nodes.range::<ResourceName, _>((last.map_or(Unbounded, Excluded), Unbounded));
        let before = self.nodes.iter().take_while(move |(name, _)| last.is_some_and(|last| *name <= last));
        after.chain(before).map(|(_, node)| node)
    }

    /// What can be said before anything is measured.
    fn check(&self, ask: &Ask) -> Result<(), PlaceError> {
        if !matches!(ask.requirement, Requirement::Latency(_)) && ask.requirement.rate() == ByteRate::ZERO {
            return Err(PlaceError::NoRate);
        }
        if let Some(unknown) =
            ask.replicas.iter().chain(&ask.except).find(|name| !self.nodes.contains_key(*name))
        {
            return Err(UnknownNode(unknown.clone()).into());
        }
        let candidates = || self.nodes.values().filter(|node| may_use(ask, node));
        if candidates().next().is_none() {
            let anybody = Ask { except: Vec::new(), ..ask.clone() };
            return Err(match ask.direction {
                _ if self.nodes.values().any(|node| may_use(&anybody, node)) => PlaceError::Excluded,
                Direction::Read => PlaceError::NoReplica,
                Direction::Write => PlaceError::NoClass { availability: ask.availability, cost: ask.cost },
            });
        }
        // Rooms and rates that are not known are no reason to refuse. What was promised to transfers under
        // way may come free, when they fail.
        let rooms: Option<Vec<Bytes>> = candidates().map(|node| node.config.free).collect();
        if let Some(greatest) = rooms.and_then(|rooms| rooms.into_iter().max())
            && ask.direction == Direction::Write
            && ask.size > greatest
        {
            return Err(PlaceError::TooLarge { size: ask.size, greatest });
        }
        if let Requirement::Latency(asked) = ask.requirement {
            // What was learnt may be otherwise tomorrow.
            let said: Option<Vec<Latency>> = candidates().map(|node| least_latency(node, ask)).collect();
            let least = said.and_then(|said| said.into_iter().min());
            return match least.filter(|least| *least > asked) {
                Some(least) => Err(PlaceError::TooSoon { asked, least }),
                None => Ok(()),
            };
        }
        let peak = |node: &Node| node.lane(ask.direction).peak.get();
        let greatest =
            candidates().map(peak).fold(ByteRate::ZERO, |one, other| if other > one { other } else { one });
        if !candidates().any(|node| self.could_ever(node, ask)) {
            return Err(PlaceError::TooFast { asked: ask.requirement.rate(), greatest });
        }
        Ok(())
    }
}

/// The nodes that somebody waits for who came before.
#[derive(Debug, Default)]
struct Awaited(BTreeSet<ResourceName>);

impl Awaited {
    /// Whether nobody who comes later can have any: then nobody needs to be looked at.
    fn is_all(&self, nodes: &BTreeMap<ResourceName, Node>) -> bool {
        self.0.len() == nodes.len()
    }
}

/// Whether the first byte is to be expected in time, where that is asked for. A node of which nothing is
/// known is tried: by not being tried nothing would ever be.
fn is_soon(now: Instant, node: &Node, ask: &Ask) -> bool {
    let Requirement::Latency(asked) = ask.requirement else { return true };
    first_byte(now, node, ask).is_none_or(|first_byte| first_byte <= asked)
}

/// What is to be expected from a request to its first byte; `None` where nothing is known.
fn first_byte(now: Instant, node: &Node, ask: &Ask) -> Option<Latency> {
    match (node.lane(ask.direction).first_byte.get(now), recall(node, ask)) {
        (None, None) => None,
        (known, recall) => Some(known.unwrap_or_default().saturating_add(recall.unwrap_or_default())),
    }
}

/// How long a node recalls what is asked for, if it has to.
fn recall(node: &Node, ask: &Ask) -> Option<Latency> {
    let is_read = ask.direction == Direction::Read;
    let tape = node.config.tape.filter(|_| is_read && ask.on_tape.contains(&node.config.name));
    tape.map(|tape| tape.recall)
}

/// Whether a drive is free, where one is needed. Who reads from the disk needs none, and who waits for one
/// has nothing reserved meanwhile.
fn has_drive(node: &Node, ask: &Ask) -> bool {
    recall(node, ask).is_none()
        || node.config.tape.is_some_and(|tape| node.lane(ask.direction).recalling < tape.drives)
}

/// What a node will take to the first byte at the least, as was said beforehand; `None` where nothing was.
fn least_latency(node: &Node, ask: &Ask) -> Option<Latency> {
    match (node.config.latency, recall(node, ask)) {
        (None, None) => None,
        (said, recall) => Some(said.unwrap_or_default().saturating_add(recall.unwrap_or_default())),
    }
}

/// Whether a node is of the right classes, or holds a replica, and is not excluded.
fn may_use(ask: &Ask, node: &Node) -> bool {
    if ask.except.contains(&node.config.name) {
        return false;
    }
    match ask.direction {
        Direction::Read => ask.replicas.contains(&node.config.name),
        Direction::Write => node.config.availability >= ask.availability && node.config.cost <= ask.cost,
    }
}

#[cfg(test)]
mod tests;
