//! A simulated gateway: the real worker of a pool with one export, its door, and nothing else of a gateway.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use tidegate_nbd::{ExportGeometry, ExportName, SessionTerms};
use tidegate_sockets::aside::PeerSocket;
use tidegate_units::{ConsumerName, Instant, ResourceName};

use crate::backend::{ExportVolume, FileVolume};
use crate::clock::GatewayClock;
use crate::config::{BackendConfig, ExportConfig, ExportStore, ListenEndpoint, PoolConfig, UpstreamConfig};
use crate::peers::PoolPartners;
use crate::seats::ConnectionSource;
use crate::suspension::SuspendedSession;
use crate::upstream::{UpstreamConnection, UpstreamExport, UpstreamTarget};
use crate::worker::door::{ExportPin, NewExport, NewSession, SessionFate, WorkerCommand, WorkerDoor};
use crate::worker::{PoolWorker, WorkerParts};

/// The identity of the only export.
const EXPORT: u64 = 1;

/// The rules of one gateway that stay for a whole run.
#[derive(Debug, Clone)]
pub(super) struct GatewayRules {
    pub(super) depth: u32,
    pub(super) upstream: UpstreamConfig,
}

impl GatewayRules {
    pub(super) fn new(depth: u32, connections: u16, reconnect: Duration, timeout: Duration) -> Self {
        let address = ListenEndpoint::Unix(PathBuf::from("simulated"));
        let connections = NonZeroU16::new(connections).unwrap_or(NonZeroU16::MIN);
        let upstream = UpstreamConfig { connections, reconnect, timeout, ..UpstreamConfig::new(address) };
        Self { depth, upstream }
    }
}

/// A gateway that runs.
pub(super) struct LiveGateway {
    pub(super) worker: PoolWorker,
    pub(super) door: Arc<WorkerDoor>,
    pin: ExportPin,
    geometry: ExportGeometry,
    /// The time of its next turn, if nothing happens before.
    pub(super) due: Option<Instant>,
    /// A turn of it is an event already.
    pub(super) scheduled: bool,
    /// The greatest cookie of each session's writes that went to the disk.
    pub(super) started: BTreeSet<(usize, u64)>,
}

/// The volume of a gateway that starts.
pub(super) enum SimulatedVolume {
    /// The disk, of this size.
    Disk { size: usize, direct: Option<u32> },
    /// The first connection to the gateway behind it.
    Upstream(UpstreamConnection),
}

impl LiveGateway {
    pub(super) fn start(rules: &GatewayRules, volume: SimulatedVolume, now: Instant) -> Self {
        let name = ConsumerName::new("volume").unwrap();
        let pool = ResourceName::new("pool").unwrap();
        let (volume, store, backend) = match volume {
            SimulatedVolume::Disk { size, direct } => {
                // A file in memory of which only the descriptor is used. Everything goes to the ring then.
                let file = memfd_create("disk", MemfdFlags::CLOEXEC).unwrap();
                ftruncate(&file, size as u64).unwrap();
                let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                let store = ExportStore::Path(path.clone());
                let config =
                    ExportConfig { shared_volume: true, ..ExportConfig::new(name.clone(), store.clone()) };
                let volume = FileVolume::open(&path, false, &config).unwrap();
                let volume = match direct {
                    Some(alignment) => volume.past_the_cache(alignment),
                    None => volume,
                };
                (ExportVolume::File(volume), store, BackendConfig::File { direct: direct.is_some() })
            }
            SimulatedVolume::Upstream(first) => {
                let export = ExportName::new("volume").unwrap();
                let target = UpstreamTarget {
                    address: rules.upstream.address.clone(),
                    export: export.clone(),
                    tls: None,
                };
                let config = rules.upstream.clone();
                let upstream = UpstreamExport::new(pool.clone(), name.clone(), target, config, first, now);
                let backend = BackendConfig::Nbd(rules.upstream.clone());
                (ExportVolume::Upstream(Box::new(upstream)), ExportStore::Upstream(export), backend)
            }
        };
        let geometry = volume.geometry(false);
        let config = ExportConfig { shared_volume: true, ..ExportConfig::new(name, store) };
        let pool = PoolConfig { depth: rules.depth, ..PoolConfig::new(pool, backend, vec![config.clone()]) };
        let (sender, commands) = channel();
        let door = Arc::new(WorkerDoor::new(sender).unwrap());
        door.configure(&pool.limits, &[(EXPORT, false)]);
        let pin = ExportPin::default();
        let export = NewExport { id: EXPORT, volume, config, pin: ExportPin::clone(&pin) };
        let parts = WorkerParts {
            config: pool,
            partners: PoolPartners::default(),
            clock: GatewayClock::Simulated,
            door: Arc::clone(&door),
            commands,
            emulated: None,
            exports: vec![export],
        };
        let worker = PoolWorker::new(parts).unwrap();
        let started = BTreeSet::new();
        Self { worker, door, pin, geometry, due: Some(now), scheduled: false, started }
    }

    pub(super) fn geometry(&self) -> ExportGeometry {
        self.geometry
    }

    /// Takes a session whose handshake is over.
    pub(super) fn open(&self, socket: Arc<PeerSocket>, terms: SessionTerms, peer: String) {
        self.take(socket, terms, peer, Vec::new());
    }

    /// Goes on with a session of the gateway before.
    pub(super) fn resume(&self, session: SuspendedSession) {
        let SuspendedSession { socket, terms, peer, unread, .. } = session;
        self.take(socket, terms, peer, unread);
    }

    fn take(&self, socket: Arc<PeerSocket>, terms: SessionTerms, peer: String, already: Vec<u8>) {
        let slot = self.door.reserve(EXPORT, ConnectionSource::Unknown).expect("there are places enough");
        self.door.send(WorkerCommand::Session(Box::new(NewSession {
            socket,
            peer,
            export: EXPORT,
            terms,
            disk: None,
            device: None,
            already,
            relayed: false,
            slot: Arc::new(slot),
            _pin: ExportPin::clone(&self.pin),
        })));
    }

    pub(super) fn drain(&self, deadline: Instant, fate: SessionFate) {
        self.door.send(WorkerCommand::Drain { deadline, fate });
    }

    pub(super) fn has_work(&mut self) -> bool {
        !self.worker.ring.simulated().completed.is_empty()
            || self.door.bell().is_rung()
            || self.worker.has_more()
    }

    /// Returns true if no request is here, no slot of the window is taken, and no memory is in use.
    pub(super) fn is_at_rest(&self) -> bool {
        self.worker.requests.is_empty()
            && self.worker.exports.iter().all(|(_, export)| export.consumer.is_idle())
            && self.worker.memory.used() == 0
            && self.worker.sessions.iter().all(|(_, session)| session.requests == 0)
    }

    pub(super) fn sessions(&self) -> usize {
        self.worker.sessions.len()
    }

    /// Says of each session what keeps it.
    pub(super) fn describe_sessions(&self) -> String {
        let sessions = self.worker.sessions.iter().map(|(key, session)| {
            let (phase, requests, receives) = (session.phase, session.requests, session.receiving);
            let (peer, stalled) = (&session.peer, session.stalled);
            format!(
                "\n    {key} of {peer}: {phase:?}, {requests} requests, receives {receives}, \
                 stalled {stalled}"
            )
        });
        sessions.collect()
    }
}
