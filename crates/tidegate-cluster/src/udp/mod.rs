//! The UDP carrier: one thread that sends what was published, and takes what arrives.

pub(crate) mod datagram;
mod freshness;
mod socket;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidegate_units::Instant;

use self::datagram::{Datagram, DatagramSeal, DatagramStart, LONGEST, OVERHEAD};
use self::freshness::{DatagramFreshness, DatagramStamp, MOST_PER_ADDRESS};
use self::socket::DatagramSocket;
use crate::config::{CarrierReach, UdpConfig};
use crate::origin::plain;
use crate::rejection::MessageRejection;
use crate::shared::SharedState;
use crate::wire::{Message, NumberedReport, length as length_of};

/// A socket that cannot be opened is tried again after so long.
const REOPEN: Duration = Duration::from_secs(1);

/// So many datagrams are taken before the thread continues: a flood cannot keep it from sending.
const MOST_PER_TURN: usize = 256;

/// Places for echoes to a group that reports may not take.
const KEPT_ECHOES: usize = 24;

/// A datagram for all receivers, but for its echoes.
struct Draft {
    start: DatagramStart,
    echoes: Echoes,
}

/// Echoes of what was heard from receivers.
enum Echoes {
    /// To each peer of a list its own.
    Each(HashMap<SocketAddr, Vec<u64>>),
    /// To a group those of all.
    All(Vec<u64>),
}

impl Draft {
    fn to(&self, target: &SocketAddr) -> Vec<u8> {
        self.start.close(match &self.echoes {
            Echoes::Each(each) => each.get(&plain(*target)).map_or(&[], Vec::as_slice),
            Echoes::All(all) => all,
        })
    }
}

pub(crate) struct UdpCarrier {
    shared: Arc<SharedState>,
    config: UdpConfig,
    seal: DatagramSeal,
    freshness: DatagramFreshness,
    socket: Option<DatagramSocket>,
    tried: Option<Instant>,
    sent: Option<Instant>,
    sequence: u64,
}

impl UdpCarrier {
    pub(crate) fn new(shared: Arc<SharedState>, config: UdpConfig) -> Self {
        let seal = DatagramSeal::new(shared.cluster.clone(), &config.key);
        let freshness = DatagramFreshness::new(shared.interval);
        Self { shared, config, seal, freshness, socket: None, tried: None, sent: None, sequence: 0 }
    }

    /// Runs until it is told to stop, and then takes its leave.
    pub(crate) fn run(mut self) {
        loop {
            let now = self.shared.now();
            if self.shared.stopped() {
                self.send(now, vec![], true);
                return;
            }
            if self.socket.is_none() && self.wait_to_reopen(now).is_zero() {
                self.open(now);
            }
            if self.wait_to_send(now).is_zero() {
                let news = self.shared.take_news();
                self.send(now, news, false);
                self.shared.review_members(now);
            }
            self.wait();
            self.shared.clear_wake();
            self.receive();
        }
    }

    fn wait_to_reopen(&self, now: Instant) -> Duration {
        self.tried.map_or(Duration::ZERO, |tried| REOPEN.saturating_sub(now.saturating_since(tried)))
    }

    /// Returns the time until the next datagram is due: news after the gap, a sign of life after an interval.
    fn wait_to_send(&self, now: Instant) -> Duration {
        let Some(sent) = self.sent else { return Duration::ZERO };
        let pause = self.shared.pause();
        pause.saturating_sub(now.saturating_since(sent))
    }

    fn wait(&self) {
        let now = self.shared.now();
        let mut timeout = self.wait_to_send(now);
        let mut ready = vec![PollFd::new(self.shared.woken(), PollFlags::IN)];
        match &self.socket {
            Some(socket) => ready.push(PollFd::new(&socket.socket, PollFlags::IN)),
            None => timeout = timeout.min(self.wait_to_reopen(now)),
        }
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // It fails when a signal comes, or memory is short: either way the next turn looks at everything.
        let _ = poll(&mut ready, Some(&timeout));
    }

    fn open(&mut self, now: Instant) {
        self.tried = Some(now);
        match DatagramSocket::open(&self.config) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.shared.set_line(true, None);
            }
            Err(error) => {
                self.shared
                    .set_line(false, Some(format!("cannot listen on {}: {error}", self.config.listen)));
            }
        }
    }

    fn receive(&mut self) {
        // One byte more than the longest, so that a longer one shows.
        let mut buffer = [0; LONGEST + 1];
        for _ in 0..MOST_PER_TURN {
            let Some(socket) = &self.socket else { return };
            match socket.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let now = self.shared.now();
                    if let Some(heard) = self.judge(now, &buffer[..length], from).transpose() {
                        self.shared.hear(now, heard, &from, Some(from));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Also a pending error of the socket, which is taken by reporting it. Sending finds out what
                // it means.
                Err(_) => return,
            }
        }
    }

    /// `None`: it was our own.
    fn judge(
        &mut self,
        now: Instant,
        bytes: &[u8],
        from: SocketAddr,
    ) -> Result<Option<Message>, MessageRejection> {
        let Datagram { message, nonce, echoes } = self.seal.open(bytes)?;
        let sender = &message.sender;
        if sender.incarnation == self.shared.incarnation {
            return Ok(None);
        }
        if !self.shared.peers().knows(from) {
            return Err(MessageRejection::UnknownPeer);
        }
        let stamp = DatagramStamp { sequence: message.sequence, nonce, echoes: &echoes };
        self.freshness.check(now, from, &sender.host, sender.incarnation, &stamp)?;
        Ok(Some(message))
    }

    /// Sends in as many datagrams as it takes, at least in one: it is a sign of life, too.
    fn send(&mut self, now: Instant, mut reports: Vec<NumberedReport>, leaving: bool) {
        self.sent = Some(now);
        loop {
            let (draft, rest) = match self.make(now, reports, leaving) {
                Ok(made) => made,
                Err(reason) => return self.shared.set_line(false, Some(reason)),
            };
            reports = rest;
            self.send_to_all(&draft);
            if reports.is_empty() {
                return;
            }
        }
    }

    /// A datagram with as many reports as fit, and the reports that did not.
    fn make(
        &mut self,
        now: Instant,
        mut reports: Vec<NumberedReport>,
        leaving: bool,
    ) -> Result<(Draft, Vec<NumberedReport>), String> {
        self.sequence += 1;
        let mut message = self.shared.message(self.sequence, vec![], leaving);
        let length = |message: &Message| {
            let mut bytes = Vec::with_capacity(LONGEST);
            message.write(self.seal.cluster(), &mut bytes);
            bytes.len() + OVERHEAD
        };
        let kept = 8 * match self.config.reach {
            CarrierReach::Peers(_) => MOST_PER_ADDRESS,
            CarrierReach::Multicast { .. } => self.freshness.due(now).min(KEPT_ECHOES),
        };
        let mut left = LONGEST - length(&message) - kept;
        let mut taken = 0;
        for report in &reports {
            let needs = length_of(report);
            if needs > left {
                break;
            }
            left -= needs;
            taken += 1;
        }
        let rest = reports.split_off(taken);
        message.reports = reports;
        let room = (LONGEST - length(&message)) / 8;
        let no_numbers = |_| "the system gives no random numbers".to_owned();
        let nonce = self.freshness.nonce(now).map_err(no_numbers)?;
        let echoes = match self.config.reach {
            CarrierReach::Peers(_) => Echoes::Each(self.freshness.echoes_by_address(now)),
            CarrierReach::Multicast { .. } => Echoes::All(self.freshness.echoes(now, room)),
        };
        Ok((Draft { start: self.seal.begin(&message, nonce), echoes }, rest))
    }

    fn send_to_all(&mut self, draft: &Draft) {
        let Some(socket) = &self.socket else { return };
        let mut failed: Option<(io::Error, usize)> = None;
        for target in &socket.targets {
            if let Err(error) = socket.socket.send_to(&draft.to(target), target) {
                let count = failed.map_or(0, |(_, count)| count);
                failed = Some((error, count + 1));
            }
        }
        match failed {
            None => {
                self.shared.count_sent();
                self.shared.set_line(true, None);
            }
            Some((error, count)) if count == socket.targets.len() => {
                self.shared.set_line(false, Some(format!("cannot send: {error}")));
                // The interface may have gone and come back, and the group's membership with it.
                self.socket = None;
            }
            Some((error, count)) => {
                self.shared.count_sent();
                let of = socket.targets.len();
                self.shared.set_line(true, Some(format!("cannot send to {count} of {of} peers: {error}")));
            }
        }
    }
}
