//! Exports whose upstream could not be reached when the gateway started. Their pool is served without them;
//! each is tried again, on a thread of its own, until its upstream answers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use tidegate_units::ConsumerName;
use tracing::{debug, error};

use crate::config::{BackendConfig, ExportConfig, ExportStore, PoolConfig};
use crate::upstream::{self, UpstreamConnection, UpstreamError, UpstreamTarget};
use crate::worker::door::ExportPin;

/// The first pause between two attempts; they double up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Upstreams that are tried at once at the start.
const AT_ONCE: usize = 64;

/// A handshake keeps its buffers on the heap; its thread needs little more than frames.
const STACK: usize = 256 * 1024;

/// The result of the first attempt for each export that has an upstream.
pub(super) type FirstAttempts = BTreeMap<ConsumerName, Result<UpstreamConnection, UpstreamError>>;

/// An upstream that was reached, for the export of this number.
pub(super) type ReachedUpstream = (u64, UpstreamConnection);

/// An export without its upstream.
#[derive(Debug)]
pub(super) struct AwaitedExport {
    pub(super) id: u64,
    pub(super) config: ExportConfig,
    /// The reason why the upstream was not reached.
    pub(super) reason: String,
    /// The thread of the attempts goes on for as long as this pin exists.
    pin: ExportPin,
}

impl AwaitedExport {
    /// Begins to try, and says why that is needed.
    pub(super) fn begin(
        id: u64,
        pool: &PoolConfig,
        export: &ExportConfig,
        reason: &UpstreamError,
        reached: Sender<ReachedUpstream>,
    ) -> io::Result<Self> {
        let target = target(pool, export).ok_or(io::ErrorKind::InvalidInput)?;
        error!(
            pool = %pool.name, export = %export.name, upstream = %target.address,
            "the export is not served yet: upstream export `{}`: {reason}; trying again", target.export
        );
        let pin = ExportPin::default();
        let is_awaited = Arc::downgrade(&pin);
        let attempts = move || {
            let mut pause = FIRST_PAUSE;
            while is_awaited.strong_count() > 0 {
                thread::sleep(pause);
                pause = (2 * pause).min(LONGEST_PAUSE);
                match upstream::open(&target) {
                    // An export that is gone needs no connection.
                    Ok(connected) => return drop(reached.send((id, connected))),
                    Err(error) => debug!(upstream = %target.address, "cannot connect: {error}"),
                }
            }
        };
        thread::Builder::new().name("tg-await".into()).stack_size(STACK).spawn(attempts)?;
        Ok(Self { id, config: export.clone(), reason: reason.to_string(), pin })
    }

    /// The same with another configuration.
    pub(super) fn with(&self, config: &ExportConfig) -> Self {
        let (reason, pin) = (self.reason.clone(), ExportPin::clone(&self.pin));
        Self { id: self.id, config: config.clone(), reason, pin }
    }
}

/// Tries every upstream once, up to `AT_ONCE` at a time. One that does not answer delays at most those of
/// the next group.
pub(super) fn first_attempts(pools: &[PoolConfig]) -> FirstAttempts {
    let exports = pools.iter().flat_map(|pool| pool.exports.iter().map(move |export| (pool, export)));
    let targets: Vec<_> =
        exports.filter_map(|(pool, export)| Some((&export.name, target(pool, export)?))).collect();
    let mut attempts = FirstAttempts::new();
    for some in targets.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let begin = |(name, target)| {
                let attempt = thread::Builder::new().stack_size(STACK);
                (name, attempt.spawn_scoped(scope, move || upstream::open(target)))
            };
            let begun: Vec<_> = some.iter().map(|(name, target)| begin((*name, target))).collect();
            for (name, attempt) in begun {
                let panicked = |_| Err(UpstreamError::Io(io::Error::other("the attempt failed")));
                let outcome = match attempt {
                    Ok(attempt) => attempt.join().unwrap_or_else(panicked),
                    Err(error) => Err(UpstreamError::Io(error)),
                };
                attempts.insert(name.clone(), outcome);
            }
        });
    }
    attempts
}

/// Returns the location of the export's upstream; `None` for an export that has none.
pub(super) fn target(pool: &PoolConfig, export: &ExportConfig) -> Option<UpstreamTarget> {
    match (&pool.backend, &export.store) {
        (BackendConfig::Nbd(config), ExportStore::Upstream(name)) => {
            let (address, tls) = (config.address.clone(), config.tls.clone());
            Some(UpstreamTarget { address, export: name.clone(), tls })
        }
        _ => None,
    }
}
