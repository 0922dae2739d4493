//! Reports of hosts to each other, and their way through the network.
//!
//! On an ideal network, all reports on an array hang on one board. Hosts that step at the same time read it
//! together: their conclusion is the same, and is drawn once. Otherwise every host has a view of its own, and
//! a report is a message for each of the others.

use slab::Slab;
use tidegate_control::{ClusterSignal, HeardReport, HostReport, combine};
use tidegate_units::{ConsumerName, HostName, Iops, Latency};

use super::{EngineEvent, HostState, instant};
use crate::queue::EventQueue;
use crate::random::RandomStream;
use crate::scenario::{ReportNetwork, Scenario, ScenarioHost};

/// Number of live reports from which on [`combine`] gives the same to all members.
const SAME_FOR_ALL: u32 = 3;

/// The hosts that steer together.
pub(super) struct SteeringHosts {
    network: ReportNetwork,
    ideal: bool,
    seed: u64,
    /// For each partition, and each host of the scenario: true if it is cut off.
    cut_off: Vec<Vec<bool>>,
    members: Vec<Member>,
    /// One board for each array.
    boards: Vec<Board>,
    messages: Slab<ReportMessage>,
}

struct Member {
    name: HostName,
    host: u32,
    array: u32,
    /// Factor by which its reported response times are multiplied.
    factor: f64,
    random: RandomStream,
    own: Option<HostReport>,
    /// Its index on its board.
    position: Option<usize>,
    view: View,
}

/// Reports, with the times of their arrival.
#[derive(Default)]
struct View {
    heard: Vec<HeardReport>,
    /// For each report: the times of its arrival and its sending, and the sender.
    arrived: Vec<(u64, u64, u32)>,
}

#[derive(Default)]
struct Board {
    members: Vec<u32>,
    view: View,
    /// The last conclusion from it: its time, its control interval, and the signal.
    concluded: Option<(u64, std::time::Duration, ClusterSignal)>,
}

struct ReportMessage {
    from: u32,
    to: u32,
    sent: u64,
    report: HostReport,
}

impl SteeringHosts {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        let network = scenario.network.clone();
        let cut_off = network
            .partitions
            .iter()
            .map(|partition| scenario.hosts.iter().map(|host| partition.hosts.contains(&host.name)).collect())
            .collect();
        Self {
            ideal: network.is_ideal(),
            network,
            seed,
            cut_off,
            members: Vec::new(),
            boards: scenario.arrays.iter().map(|_| Board::default()).collect(),
            messages: Slab::new(),
        }
    }

    /// Adds a control loop that steers together with the others on its array. Returns its place.
    pub(super) fn join(
        &mut self,
        index: u32,
        host: &ScenarioHost,
        vm: Option<&ConsumerName>,
        array: u32,
    ) -> u32 {
        // Each virtual machine with a law of its own reports for itself. A name that would be too long or
        // contain what a name must not cannot arise from two valid ones but by length: then its own has to
        // do.
        let name = vm
            .and_then(|vm| HostName::new(&format!("{}/{vm}", host.name)).ok())
            .unwrap_or_else(|| host.name.clone());
        let place = self.members.len() as u32;
        let random = RandomStream::of(self.seed, &["network", name.as_str()]);
        let factor = Some(host.reported_factor).filter(|factor| factor.is_finite() && *factor >= 0.0);
        self.members.push(Member {
            name,
            host: index,
            array,
            factor: factor.unwrap_or(1.0),
            random,
            own: None,
            position: None,
            view: View::default(),
        });
        self.boards[array as usize].members.push(place);
        place
    }

    /// Keeps the report that a member will publish once it has decided.
    pub(super) fn prepare(&mut self, place: u32, report: HostReport) {
        self.members[place as usize].own = Some(report);
    }

    /// Returns the report that a member has prepared.
    pub(super) fn prepared(&self, place: u32) -> Option<HostReport> {
        self.members[place as usize].own.clone()
    }

    /// Tells the others a member's measurements. Returns the number of messages that this takes.
    pub(super) fn publish(
        &mut self,
        place: u32,
        mut report: HostReport,
        now: u64,
        queue: &mut EventQueue<EngineEvent>,
    ) -> u64 {
        let member = &mut self.members[place as usize];
        member.own = Some(report.clone());
        // A liar believes itself, and misleads the others.
        report.total_latency = report.total_latency.scale(member.factor);
        if let Some(load) = &mut report.load {
            load.recent_mean = load.recent_mean.scale(member.factor);
            load.worst = load.worst.scale(member.factor);
        }
        if let Some(outstanding) = report.point.as_mut().and_then(|point| point.outstanding.as_mut()) {
            *outstanding *= member.factor;
        }
        if let Some(wish) = report.point.as_mut().and_then(|point| point.wish.as_mut()) {
            // Whose response times are said to be so many times as long asks for that much less.
            wish.operating_point = Iops::new(wish.operating_point.per_second() / member.factor);
        }
        let board = &mut self.boards[member.array as usize];
        board.concluded = None;
        if self.ideal {
            let position = *member.position.get_or_insert(board.view.heard.len());
            board.view.put(position, place, &member.name, report, now, now);
            return 0;
        }
        let mut sent = 0;
        let (from_host, array) = (member.host, member.array);
        for at in 0..self.boards[array as usize].members.len() {
            let to = self.boards[array as usize].members[at];
            if to == place {
                continue;
            }
            sent += 1;
            let to_host = self.members[to as usize].host;
            let random = &mut self.members[place as usize].random;
            // Both are drawn whatever becomes of the message, so that a partition changes no later message.
            let (lost, late) = (random.fraction() < self.network.loss, random.fraction());
            if lost || self.cut(from_host, to_host, now) {
                continue;
            }
            let delay = self.network.delay.saturating_add(self.network.jitter.scale(late));
            let message =
                self.messages.insert(ReportMessage { from: place, to, sent: now, report: report.clone() });
            queue
                .push(now.saturating_add(delay.as_nanos()), EngineEvent::Message { message: message as u32 });
        }
        sent
    }

    fn cut(&self, one: u32, other: u32, now: u64) -> bool {
        self.network.partitions.iter().zip(&self.cut_off).any(|(partition, cut_off)| {
            partition.during.contains(instant(now)) && cut_off[one as usize] != cut_off[other as usize]
        })
    }

    pub(super) fn deliver(&mut self, message: u32, now: u64, hosts: &[HostState]) {
        let ReportMessage { from, to, sent, report } = self.messages.remove(message as usize);
        let sender = self.members[from as usize].name.clone();
        let receiver = &mut self.members[to as usize];
        if !hosts[receiver.host as usize].up {
            return;
        }
        let known = receiver.view.arrived.iter().position(|(_, _, who)| *who == from);
        let position = known.unwrap_or(receiver.view.heard.len());
        // A message that was overtaken says nothing new.
        if known.is_none_or(|known| receiver.view.arrived[known].1 <= sent) {
            receiver.view.put(position, from, &sender, report, now, sent);
        }
    }

    /// Forgets all that the members of a failed host have heard and prepared.
    pub(super) fn forget(&mut self, host: u32) {
        for member in self.members.iter_mut().filter(|member| member.host == host) {
            member.view = View::default();
            member.own = None;
        }
    }

    /// Returns the signal of all hosts together, as concluded by a member that has just published.
    pub(super) fn conclude(
        &mut self,
        place: u32,
        interval: std::time::Duration,
        now: u64,
    ) -> Option<ClusterSignal> {
        let member = &mut self.members[place as usize];
        let own = member.own.as_ref()?;
        if !self.ideal {
            member.view.age(now);
            return Some(combine(&member.name, own, &member.view.heard, interval));
        }
        let board = &mut self.boards[member.array as usize];
        if let Some((at, of, signal)) = &board.concluded
            && (*at, *of) == (now, interval)
        {
            return Some(signal.clone());
        }
        board.view.age(now);
        // Its own report hangs on the board too, and counts once: under its own name a peer's does not count.
        let signal = combine(&member.name, own, &board.view.heard, interval);
        // What others ask for is not the same for all: each has the others'.
        if signal.points.is_empty() && signal.hosts >= SAME_FOR_ALL && member.factor.total_cmp(&1.0).is_eq() {
            board.concluded = Some((now, interval, signal.clone()));
        }
        Some(signal)
    }
}

impl View {
    fn put(&mut self, position: usize, from: u32, name: &HostName, report: HostReport, now: u64, sent: u64) {
        if position == self.heard.len() {
            self.heard.push(HeardReport { host: name.clone(), age: Latency::ZERO, report });
            self.arrived.push((now, sent, from));
        } else {
            self.heard[position].report = report;
            self.arrived[position] = (now, sent, from);
        }
    }

    fn age(&mut self, now: u64) {
        for (heard, (arrived, ..)) in self.heard.iter_mut().zip(&self.arrived) {
            heard.age = Latency::from_nanos(now - arrived);
        }
    }
}
