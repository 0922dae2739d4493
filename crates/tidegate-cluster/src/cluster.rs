//! A host's place in its cluster.

use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate_control::{HeardReport, HostReport};
use tidegate_units::ResourceName;

use crate::config::{Carrier, ClusterConfig, JoinError};
use crate::file::SharedFile;
use crate::nats::NatsCarrier;
use crate::policy_board::{PolicyBoard, PolicyWatch};
use crate::shared::SharedState;
use crate::status::ClusterStatus;
use crate::udp::UdpCarrier;

/// A carrier that hangs, in a system call to a dead file server for example, is not waited for any longer.
const LONGEST_GOODBYE: Duration = Duration::from_secs(2);

/// A host's place in its cluster: tells the others what this host measures, and hears what they do.
///
/// Nothing here ever waits for the carrier, and a carrier that fails stops nothing: the peers' reports grow
/// old, and [`combine`](tidegate_control::combine) then leaves them out. [`ClusterHandle::status`] says what
/// is wrong.
///
/// Dropping it ends the exchange: the others are told, where the carrier still can, and count this host out
/// at once.
pub struct ClusterHandle {
    shared: Arc<SharedState>,
    board: Option<Arc<PolicyBoard>>,
    /// Behind a lock only so that the cluster may be shared between threads.
    ended: Mutex<Receiver<()>>,
}

impl ClusterHandle {
    /// Starts to take part. The carrier works in a thread of its own, and tries for ever.
    ///
    /// # Errors
    /// When the configuration contradicts itself, or the system gives no thread, descriptor or random number.
    /// That the network or the server is not there is no error: see [`ClusterStatus::up`].
    pub fn join(config: ClusterConfig) -> Result<Self, JoinError> {
        config.check()?;
        let shared = Arc::new(SharedState::new(&config)?);
        let (end, ended) = channel();
        let carried = Arc::clone(&shared);
        let mut board = None;
        let run: Box<dyn FnOnce() + Send> = match config.carrier {
            Carrier::Udp(udp) => Box::new(move || UdpCarrier::new(carried, udp).run()),
            Carrier::File(file) => Box::new(move || SharedFile::new(carried, file).run()),
            Carrier::Nats(nats) => {
                let posted = Arc::default();
                board = Some(Arc::clone(&posted));
                Box::new(move || NatsCarrier::new(carried, nats, posted).run())
            }
        };
        let watch = Watch { shared: Arc::clone(&shared), _end: end };
        thread::Builder::new().name("tidegate-cluster".to_owned()).spawn(move || {
            let _watch = watch;
            run();
        })?;
        Ok(Self { shared, board, ended: Mutex::new(ended) })
    }

    /// Tells the others what this host measured at a resource. Never waits: what was not sent yet is
    /// replaced. A host tells of at most 64 resources; reports on more are not sent, counted, and said in the
    /// log.
    pub fn publish(&self, resource: &ResourceName, report: HostReport) {
        self.shared.publish(resource, report);
    }

    /// Returns the latest reports of the other hosts on a resource, each with its age since it arrived here.
    /// Old reports stay among them for 150 intervals: [`combine`](tidegate_control::combine) judges whether
    /// they still count.
    #[must_use]
    pub fn heard(&self, resource: &ResourceName) -> Vec<HeardReport> {
        self.shared.peers().reports(self.shared.now(), resource)
    }

    /// Returns the same reports, each with the address of its host where the carrier shows one.
    #[must_use]
    pub fn heard_from(&self, resource: &ResourceName) -> Vec<(HeardReport, Option<IpAddr>)> {
        self.shared.peers().reports_from(self.shared.now(), resource)
    }

    /// Sees policies change: where the carrier brings them, which is NATS only.
    #[must_use]
    pub fn policy(&self) -> Option<PolicyWatch> {
        self.board.as_ref().map(|board| PolicyWatch::new(Arc::clone(board)))
    }

    /// Returns the state of the exchange with the other hosts.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        self.shared.status()
    }
}

impl fmt::Debug for ClusterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedState { cluster, host, .. } = &*self.shared;
        write!(f, "Cluster({cluster}, {host})")
    }
}

impl Drop for ClusterHandle {
    fn drop(&mut self) {
        self.shared.stop();
        // It ends by the sender being dropped: nothing is ever received.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(LONGEST_GOODBYE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                "cluster {}: the carrier hangs, and is left behind; the other hosts count this one out once it has \
                    been silent for some intervals",
                self.shared.cluster
            );
        }
    }
}

/// Says that the carrier's thread has ended, whatever ended it.
struct Watch {
    shared: Arc<SharedState>,
    _end: Sender<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.shared.stopped() {
            self.shared.set_line(false, Some("its thread has ended: restart this host's service".to_owned()));
        }
    }
}
