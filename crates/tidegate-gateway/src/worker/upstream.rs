//! Exports of other servers: the worker's part in their connections, and its reactions to their answers.

use std::sync::Arc;

use tidegate_nbd::{CheckedOperation, Errno};
use tidegate_units::Instant;
use tracing::{error, warn};

use super::syncs::DataLoss;
use super::{PoolWorker, WorkerCommand, WorkerExport};
use crate::backend::ExportVolume;
use crate::upstream::{
    self, FlushedRange, UpstreamConnection, UpstreamError, UpstreamEvent, UpstreamExport, UpstreamTarget,
    WorkerLoan,
};

/// A handshake keeps its buffers on the heap; its thread needs little more than frames.
const STACK: usize = 256 * 1024;

impl PoolWorker {
    /// Lets an export's upstream do something, and takes what it has finished.
    pub(super) fn at_upstream(
        &mut self,
        key: usize,
        now: Instant,
        act: impl FnOnce(&mut UpstreamExport, &mut WorkerLoan<'_>),
    ) {
        let ExportVolume::Upstream(upstream) = &mut self.exports[key].volume else {
            unreachable!("only an upstream has connections");
        };
        // Answers may come by here again; they get a list of their own then.
        let mut done = std::mem::take(&mut self.done);
        let mut hands = WorkerLoan {
            ring: &mut self.ring,
            buffers: &mut self.buffers,
            requests: &mut self.requests,
            done: &mut done,
            export: key,
            now,
        };
        act(upstream, &mut hands);
        if let Some(errno) = upstream.take_reported_loss() {
            // Before anything is answered that it may be about.
            self.poison(key, DataLoss::Reported(errno));
        }
        for done in done.drain(..) {
            match done {
                UpstreamEvent::Request { key, result, flush } => self.backend_done(key, result, flush, now),
                UpstreamEvent::Flush(result) => self.upstream_synced(key, result, now),
            }
        }
        self.done = done;
    }

    /// Sends the requests for upstreams, and looks after their connections. Called once per turn.
    pub(super) fn turn_upstreams(&mut self, now: Instant) {
        for at in 0..self.upstreams.len() {
            // One that is removed meanwhile lets another take its place, whose turn comes with the next.
            let Some(&key) = self.upstreams.get(at) else { return };
            let mut wanted = None;
            self.at_upstream(key, now, |upstream, hands| wanted = upstream.turn(hands));
            // What it gave up may have been the last thing that kept it.
            if let Some(target) = wanted
                && let Some(export) = self.exports.get(key)
            {
                self.begin_to_connect(export.id, target, now);
            }
        }
    }

    /// Connects on a thread of its own, which is bound in time.
    fn begin_to_connect(&mut self, export: u64, target: UpstreamTarget, now: Instant) {
        #[cfg(test)]
        if self.ring.connects(export) {
            return;
        }
        let door = Arc::clone(&self.door);
        let connect = move || {
            let outcome = Box::new(upstream::open(&target));
            // A worker that is not there any more needs no connection.
            door.send(WorkerCommand::Connected { export, outcome });
        };
        let spawned = std::thread::Builder::new().name("tg-connect".into()).stack_size(STACK).spawn(connect);
        if let Err(error) = spawned {
            self.upstream_connected(export, Err(UpstreamError::Io(error)), now);
        }
    }

    pub(super) fn upstream_connected(
        &mut self,
        export: u64,
        outcome: Result<UpstreamConnection, UpstreamError>,
        now: Instant,
    ) {
        // The export may have been removed meanwhile.
        if let Some((key, _)) = self.exports.iter().find(|(_, entry)| entry.id == export) {
            self.at_upstream(key, now, |upstream, hands| upstream.connected(outcome, hands));
        }
    }

    pub(super) fn next_upstream_event(&self) -> Option<Instant> {
        let events = self.upstreams.iter().filter_map(|key| match &self.exports[*key].volume {
            ExportVolume::Upstream(upstream) => upstream.next_event(),
            ExportVolume::File(_) | ExportVolume::Region { .. } => None,
        });
        events.min()
    }

    /// Looks for connections that have fallen silent; with `give_up`, ends them all.
    pub(super) fn watch_upstreams(&mut self, give_up: bool, now: Instant) {
        for key in self.upstreams.clone() {
            self.at_upstream(
                key,
                now,
                if give_up { UpstreamExport::close } else { UpstreamExport::check_silence },
            );
        }
    }

    /// Ends the connections of all upstreams; says whether they have come to their end.
    pub(super) fn close_upstreams(&mut self, now: Instant) -> bool {
        let mut gone = true;
        for key in self.upstreams.clone() {
            gone &= self.close_upstream(key, now);
        }
        gone
    }

    /// Ends the connections of an export, if it has any; says whether they have come to their end.
    pub(super) fn close_upstream(&mut self, key: usize, now: Instant) -> bool {
        if !matches!(self.exports[key].volume, ExportVolume::Upstream(_)) {
            return true;
        }
        self.at_upstream(key, now, UpstreamExport::close);
        self.exports.get(key).is_none_or(|export| match &export.volume {
            ExportVolume::Upstream(upstream) => upstream.is_gone(),
            ExportVolume::File(_) | ExportVolume::Region { .. } => true,
        })
    }

    pub(super) fn forget_if_removed(&mut self, key: usize, now: Instant) {
        if self.exports.get(key).is_some_and(|export| export.removed) {
            self.forget_if_unused(key, now);
        }
    }

    /// Concludes a flush, here or there: each request that waited for it gets the verdict that applies to it.
    fn upstream_synced(&mut self, key: usize, result: Result<FlushedRange, Errno>, now: Instant) {
        let WorkerExport { syncs, consumer, volume, .. } = &mut self.exports[key];
        let ExportVolume::Upstream(upstream) = volume else {
            unreachable!("only an upstream flushes this way");
        };
        let (ledger, name) = (upstream.ledger(), consumer.name());
        let known = std::mem::replace(&mut syncs.losses, ledger.losses());
        if known < ledger.losses() {
            error!(
                pool = %self.config.name, export = %name,
                "changes that were answered may be lost: the upstream was lost before they were flushed; \
                 the next flush of every session fails"
            );
        }
        if let Err(errno) = result
            && !syncs.poisoned
        {
            warn!(pool = %self.config.name, export = %name, "a flush failed: {errno}");
        }
        let covered = std::mem::take(&mut syncs.running);
        let mut verdicts = Vec::with_capacity(covered.len());
        for key in covered {
            let request = &self.requests[key];
            let verdict = match (result, request.operation) {
                (Ok(_), CheckedOperation::Flush) | (Err(_), CheckedOperation::Flush) => {
                    let lost = ledger.tell(&mut self.sessions[request.session].heard_losses);
                    result.map(drop).and(if lost { Err(Errno::Io) } else { Ok(()) })
                }
                (Ok(flushed), _) if request.change.is_none_or(|change| flushed.covers(change)) => Ok(()),
                (Ok(_), _) => Err(Errno::Io),
                (Err(errno), _) => Err(errno),
            };
            verdicts.push((key, verdict));
        }
        for (key, verdict) in verdicts {
            self.conclude(key, verdict, now);
        }
        self.sync_again(key, now);
    }
}
