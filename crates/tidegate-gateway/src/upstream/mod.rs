//! An export of another NBD server as a backend: the upstream.
//!
//! [`UpstreamExport`] owns the connections to one upstream export and everything that is under way on them.
//! Like all of a pool it lives on the pool's worker thread, and its sockets on the pool's ring; only
//! connecting and the handshake ([`connect`]) happen elsewhere. The other parts are
//!
//! - [`plan`]: the geometry that clients are told, and the way their requests are passed on;
//! - [`ledger`]: the changes that each flush covers, across connections that come and go;
//! - [`outage`]: the times of new attempts.
//!
//! A request is at the upstream once at a time. When its connection breaks, it is sent again if that does no
//! harm: if it had not left completely, or is a read or a flush. A change that had left may still be carried
//! out by the old server, however late, and over a newer one if it were sent again; so it is answered with
//! EIO, unless the configuration says that the upstream drops such requests
//! ([`crate::config::ReplayRule::All`]).

mod connect;
mod flight;
pub(crate) mod ledger;
pub(crate) mod link;
mod loss;
mod outage;
mod plan;
mod traffic;

use std::collections::VecDeque;

use slab::Slab;
use tidegate_nbd::{CheckedOperation, Errno, ExportGeometry, ExportName};
use tidegate_tls::ClientFiles;
use tidegate_units::{ConsumerName, Instant, ResourceName};
use tracing::{debug, error, info, warn};

pub use connect::UpstreamError;
pub(crate) use connect::{UpstreamConnection, open};
pub(crate) use ledger::{ChangeLedger, FlushedRange};
pub use plan::UpstreamMismatch;

use crate::buffer::BufferPool;
use crate::config::{ListenEndpoint, UpstreamConfig};
use crate::identity::VolumeIdentity;
use crate::request::ClientRequest;
use crate::ring::WorkerRing;
use crate::stats::UpstreamSnapshot;
use crate::zeroing::ZeroingStorage;
use flight::{JobFlight, UpstreamJob, UpstreamWork};
use link::{LinkState, UpstreamLink};
use outage::UpstreamReachability;
use plan::UpstreamPlan;
use traffic::send;

/// The unit in which QEMU and the kernel count the size of a disk.
const SECTOR: u64 = 512;

/// The parts of the worker that are lent for a call.
pub(crate) struct WorkerLoan<'a> {
    pub(crate) ring: &'a mut WorkerRing,
    pub(crate) buffers: &'a mut BufferPool,
    pub(crate) requests: &'a mut Slab<ClientRequest>,
    /// The finished work, for the worker to answer.
    pub(crate) done: &'a mut Vec<UpstreamEvent>,
    /// The worker's key of the export.
    pub(crate) export: usize,
    pub(crate) now: Instant,
}

/// Something that the upstream has finished.
#[derive(Debug)]
pub(crate) enum UpstreamEvent {
    /// A request; a successful change that must be durable may still need a flush.
    Request { key: usize, result: Result<(), Errno>, flush: bool },
    /// The flush that was asked for.
    Flush(Result<FlushedRange, Errno>),
}

#[derive(Debug, Default)]
struct Counters {
    lost: u64,
    reconnects: u64,
    replayed: u64,
    failed: u64,
}

/// The location of an upstream export.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamTarget {
    pub(crate) address: ListenEndpoint,
    pub(crate) export: ExportName,
    /// The authorities to trust and the certificate to show, if the connection is encrypted.
    pub(crate) tls: Option<ClientFiles>,
}

/// One upstream export.
#[derive(Debug)]
pub(crate) struct UpstreamExport {
    pool: ResourceName,
    name: ConsumerName,
    target: UpstreamTarget,
    config: UpstreamConfig,
    plan: UpstreamPlan,
    links: Slab<UpstreamLink>,
    /// Connections opened so far.
    opened: u64,
    flights: Slab<JobFlight>,
    serial: u64,
    /// For a connection, in the order in which they are to be sent.
    waiting: VecDeque<UpstreamJob>,
    ledger: ChangeLedger,
    reachability: UpstreamReachability,
    counters: Counters,
    /// Some connection has something to send.
    to_send: bool,
    /// The reason for the outage, as it was reported.
    complaint: Option<String>,
    /// True while it is being given up: nothing is sent any more.
    closing: bool,
    /// An error in its answer that may have been its one report of lost data.
    reported_loss: Option<Errno>,
}

impl UpstreamExport {
    /// Takes the first connection.
    pub(crate) fn new(
        pool: ResourceName,
        name: ConsumerName,
        target: UpstreamTarget,
        config: UpstreamConfig,
        first: UpstreamConnection,
        now: Instant,
    ) -> Self {
        let ledger = ChangeLedger::default();
        let mut links = Slab::new();
        let plan = UpstreamPlan::new(&first.terms.geometry);
        let UpstreamConnection { socket, terms } = first;
        if !terms.geometry.size.is_multiple_of(SECTOR) {
            let size = terms.geometry.size;
            warn!(
                pool = %pool, export = %name,
                "its upstream has {size} bytes, no multiple of {SECTOR}: clients such as QEMU and the kernel miss the rest"
            );
        }
        links.insert(UpstreamLink::new(socket, &terms, 1, ledger.mark(), now));
        Self {
            pool,
            name,
            target,
            plan,
            links,
            opened: 1,
            flights: Slab::new(),
            serial: 0,
            waiting: VecDeque::new(),
            ledger,
            reachability: UpstreamReachability::new(config.reconnect, now),
            counters: Counters::default(),
            to_send: false,
            complaint: None,
            closing: false,
            reported_loss: None,
            config,
        }
    }

    /// Returns the geometry that clients are told.
    pub(crate) fn geometry(&self, read_only: bool) -> ExportGeometry {
        self.plan.geometry(read_only)
    }

    pub(crate) fn identity(&self) -> VolumeIdentity {
        VolumeIdentity::of_upstream(&self.target.address, &self.target.export)
    }

    /// Returns the kind of storage: [`ZeroingStorage::FastZeroes`] if the upstream says which ranges it can
    /// zero without writing.
    pub(crate) fn zeroing(&self) -> ZeroingStorage {
        if self.plan.knows_fast_zeroes() { ZeroingStorage::FastZeroes } else { ZeroingStorage::Silent }
    }

    pub(crate) fn ledger(&mut self) -> &mut ChangeLedger {
        &mut self.ledger
    }

    pub(crate) fn snapshot(&self) -> UpstreamSnapshot {
        UpstreamSnapshot {
            connections: self.open_links(),
            wanted: self.wanted_links(),
            reconnects: self.counters.reconnects,
            replayed: self.counters.replayed,
            failed: self.counters.failed,
            unflushed_losses: self.ledger.losses(),
        }
    }

    /// An error of a flush, or of a change with FUA, that the upstream has answered since the last call. Its
    /// kernel or its storage may have told of lost data by it, and takes the data for clean now.
    pub(crate) fn take_reported_loss(&mut self) -> Option<Errno> {
        self.reported_loss.take()
    }

    /// Begins to listen to the connection that it was made with.
    pub(crate) fn begin(&mut self, hands: &mut WorkerLoan<'_>) {
        let keys: Vec<usize> = self.links.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.receive(key, hands));
    }

    /// Passes on a scheduled request.
    pub(crate) fn start(&mut self, key: usize, hands: &mut WorkerLoan<'_>) {
        let request = &mut hands.requests[key];
        if let CheckedOperation::Read { length, .. } = request.operation {
            request.buffer = Some(hands.buffers.take(length as usize));
        }
        self.submit(UpstreamJob::new(UpstreamWork::Request(key)), hands);
    }

    /// Has the upstream flush; at most one flush is asked for at a time.
    pub(crate) fn flush(&mut self, hands: &mut WorkerLoan<'_>) {
        self.submit(UpstreamJob::new(UpstreamWork::Flush), hands);
    }

    /// Returns the time when [`turn`](Self::turn) has something to do though nothing completes.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let attempt = if self.wants_link() { self.reachability.next_attempt() } else { None };
        let give_up = if self.waiting.is_empty() { None } else { self.patience_ends() };
        [attempt, give_up].into_iter().flatten().min()
    }

    /// Sends what there is to send, gives up what has waited too long, and says whether to try to connect.
    pub(crate) fn turn(&mut self, hands: &mut WorkerLoan<'_>) -> Option<UpstreamTarget> {
        if !self.waiting.is_empty() && self.has_lost_patience(hands.now) {
            warn!(
                pool = %self.pool, export = %self.name, upstream = %self.target.address,
                waiting = self.waiting.len(),
                "the upstream is not back; until it is, requests are answered with EIO"
            );
            self.fail_waiting(hands);
        }
        if std::mem::take(&mut self.to_send) {
            for (key, link) in &mut self.links {
                send(key, link, hands);
            }
        }
        let due = self.wants_link() && self.reachability.next_attempt().is_some_and(|next| next <= hands.now);
        due.then(|| {
            self.reachability.begin_attempt();
            self.target.clone()
        })
    }

    /// An attempt to connect has ended.
    pub(crate) fn connected(
        &mut self,
        outcome: Result<UpstreamConnection, UpstreamError>,
        hands: &mut WorkerLoan<'_>,
    ) {
        let outcome = outcome.and_then(|connected| {
            self.plan.check(&connected.terms.geometry)?;
            Ok(connected)
        });
        match outcome {
            Ok(connected) => self.adopt(connected, hands),
            Err(error) => {
                self.reachability.failed(matches!(error, UpstreamError::Mismatch(_)), hands.now);
                let none = self.open_links() == 0;
                let why = error.to_string();
                if none && self.complaint.as_ref() != Some(&why) {
                    error!(
                        pool = %self.pool, export = %self.name, upstream = %self.target.address,
                        "cannot connect to upstream export {:?}: {why}; trying again",
                        self.target.export.as_str()
                    );
                    self.complaint = Some(why);
                } else {
                    debug!(pool = %self.pool, export = %self.name, "cannot connect to the upstream: {why}");
                }
            }
        }
    }

    fn adopt(&mut self, connected: UpstreamConnection, hands: &mut WorkerLoan<'_>) {
        if self.closing {
            return;
        }
        self.reachability.connected(!self.waiting.is_empty(), hands.now);
        self.complaint = None;
        if self.counters.reconnects < self.counters.lost {
            self.counters.reconnects += 1;
            info!(
                pool = %self.pool, export = %self.name, upstream = %self.target.address,
                waiting = self.waiting.len(), "connected to the upstream again"
            );
        }
        self.opened += 1;
        let key = self.links.insert(UpstreamLink::new(
            connected.socket,
            &connected.terms,
            self.opened,
            self.ledger.mark(),
            hands.now,
        ));
        self.receive(key, hands);
        self.pump(hands);
    }

    /// Breaks connections on which requests have waited too long for any progress.
    pub(crate) fn check_silence(&mut self, hands: &mut WorkerLoan<'_>) {
        let (limit, now) = (self.config.timeout, hands.now);
        let silent: Vec<usize> =
            self.links.iter().filter(|(_, link)| link.is_silent(limit, now)).map(|(key, _)| key).collect();
        for key in silent {
            self.break_off(key, "it has answered nothing for too long", hands);
        }
    }

    /// Gives everything up: requests under way fail, connections end.
    pub(crate) fn close(&mut self, hands: &mut WorkerLoan<'_>) {
        if std::mem::replace(&mut self.closing, true) {
            return;
        }
        self.fail_waiting(hands);
        let keys: Vec<usize> = self.links.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.break_off(key, "it is not needed any more", hands));
    }

    /// Returns true if the kernel holds no part of it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.links.is_empty()
    }

    /// Ends every connection after the worker has failed.
    pub(crate) fn hang_up(&mut self) {
        self.links.iter_mut().for_each(|(_, link)| link.break_off());
    }

    fn open_links(&self) -> usize {
        self.links.iter().filter(|(_, link)| link.state == LinkState::Open).count()
    }

    fn wanted_links(&self) -> usize {
        if self.plan.allows_many_connections() { self.config.connections.get() as usize } else { 1 }
    }

    fn wants_link(&self) -> bool {
        let wanted = self.wanted_links();
        // Those that end slowly do not keep others from taking their place, and do not pile up either.
        !self.closing && self.links.len() < 2 * wanted && self.open_links() < wanted
    }

    /// Returns the time until which requests without a connection wait for one.
    fn patience_ends(&self) -> Option<Instant> {
        self.reachability.patience_ends().filter(|_| self.open_links() == 0)
    }

    fn has_lost_patience(&self, now: Instant) -> bool {
        self.patience_ends().is_some_and(|end| end <= now)
    }
}
