//! The commands of other threads to the worker.

use std::sync::Arc;

use tidegate_units::{Bytes, Instant};
use tracing::debug;

use super::{NewExport, ParkedRequests, PendingSyncs, PoolChange, PoolWorker, WorkerCommand, WorkerExport};
use crate::backend::{ExportVolume, SubmissionPath, VolumeSilence};
use crate::block_order::BlockOrder;
use crate::stats::{ConsumerSnapshot, PoolSnapshot};
use crate::upstream::UpstreamExport;
use crate::zeroing::ZeroingBehaviour;

impl PoolWorker {
    pub(super) fn take_commands(&mut self, now: Instant) {
        if !self.door.bell().take() {
            return;
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                WorkerCommand::Session(new) => self.begin(new, now),
                // The thread that asked may have gone.
                WorkerCommand::Snapshot(reply) => drop(reply.send(self.snapshot(now))),
                WorkerCommand::MakeRoom { bound, export, source, reply } => {
                    // The newcomer may have lost patience.
                    let _ = reply.send(self.make_room(bound, export, source, now));
                }
                WorkerCommand::Change(change) => self.change(*change, now),
                WorkerCommand::Drain { deadline, fate } => self.begin_drain(deadline, fate, now),
                WorkerCommand::Disk { disk, order, done } => {
                    if self.disk_order(disk, order, now) {
                        // The front end may have been displaced.
                        let _ = done.send(());
                    }
                }
                WorkerCommand::Completed(completed) => self.put_off(completed, now),
                WorkerCommand::Connected { export, outcome } => {
                    self.upstream_connected(export, *outcome, now);
                }
            }
        }
    }

    pub(super) fn add_export(&mut self, new: NewExport, now: Instant) {
        let consumer = self.stage.add(&new.config, now);
        let zeroing = ZeroingBehaviour::new(new.volume.zeroing());
        let key = self.exports.insert(WorkerExport {
            id: new.id,
            volume: new.volume,
            path: SubmissionPath::default(),
            silence: VolumeSilence::None,
            silent_since: now,
            parked: ParkedRequests::default(),
            consumer,
            account: self.memory.open(new.config.protected),
            sessions: 0,
            removed: false,
            pin: new.pin,
            syncs: PendingSyncs::default(),
            blocks: BlockOrder::default(),
            zeroing,
        });
        if matches!(self.exports[key].volume, ExportVolume::Upstream(_)) {
            self.upstreams.push(key);
            self.at_upstream(key, now, UpstreamExport::begin);
        }
    }

    fn change(&mut self, change: PoolChange, now: Instant) {
        self.stage.reconfigure(change.depth, change.law.as_ref(), change.release, now);
        self.memory.set_limits(&change.limits);
        for (id, config) in &change.changed {
            if let Some((_, export)) = self.exports.iter_mut().find(|(_, export)| export.id == *id) {
                self.stage.reconfigure_consumer(&mut export.consumer, config, now);
                self.memory.set_protected(export.account, config.protected);
            }
        }
        for (id, size) in &change.resized {
            if let Some((_, export)) = self.exports.iter().find(|(_, export)| export.id == *id)
                && let ExportVolume::File(file) = &export.volume
            {
                file.file().promise(*size);
            }
            self.resize_disks(*id, *size);
        }
        for (_, export) in &mut self.exports {
            self.stage.settle(&mut export.consumer, now);
            export.removed |= change.removed.contains(&export.id);
        }
        self.config.depth = change.depth;
        self.config.law = change.law;
        self.config.release = change.release;
        self.config.limits = change.limits;
        for export in change.added {
            self.add_export(export, now);
        }
        self.forget_removed(now);
        debug!(pool = %self.config.name, "configuration applied");
    }

    pub(super) fn forget_removed(&mut self, now: Instant) {
        let removed = self.exports.iter().filter(|(_, export)| export.removed);
        let keys: Vec<usize> = removed.map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.forget_if_unused(key, now));
        self.has_removed = self.exports.iter().any(|(_, export)| export.removed);
    }

    /// A removed export goes with the last that uses it.
    pub(super) fn forget_if_unused(&mut self, key: usize, now: Instant) {
        let export = &self.exports[key];
        let expected = Arc::strong_count(&export.pin) > 1;
        if export.removed
            && !expected
            && export.sessions == 0
            && export.consumer.is_idle()
            && !export.syncs.busy
        {
            if !self.close_upstream(key, now) {
                // Its connections are not at their end yet; that comes by here again.
                return;
            }
            let export = self.exports.remove(key);
            self.upstreams.retain(|upstream| *upstream != key);
            self.stage.remove(&export.consumer);
            self.memory.close(export.account);
            self.chores.forget(key);
        }
    }

    fn snapshot(&self, now: Instant) -> PoolSnapshot {
        let mut disks = vec![0; self.exports.capacity()];
        for (_, session) in self.sessions.iter().filter(|(_, session)| session.is_disk()) {
            disks[session.export] += 1;
        }
        let consumers = self.exports.iter().map(|(key, export)| {
            let upstream = match &export.volume {
                ExportVolume::Upstream(upstream) => Some(upstream.snapshot()),
                ExportVolume::File(_) | ExportVolume::Region { .. } => None,
            };
            let consumer = self.stage.snapshot(&export.consumer, export.sessions, export.removed, now);
            let hung = export.silence == VolumeSilence::Hung;
            let (poisoned, queued) = (export.syncs.poisoned, consumer.queued + export.parked.len());
            ConsumerSnapshot { upstream, hung, poisoned, queued, disks: disks[key], ..consumer }
        });
        PoolSnapshot {
            name: self.config.name.clone(),
            at: now,
            consumers: consumers.collect(),
            awaited: Vec::new(),
            sessions: self.sessions.len(),
            bytes_in_use: Bytes::new(self.memory.used()),
            bytes_in_use_peak: Bytes::new(self.memory.peak()),
            in_flight: self.exports.iter().map(|(_, export)| export.consumer.in_flight()).sum(),
            window: self.stage.window(),
            decision: self.stage.recent().back().cloned(),
            recent_decisions: self.stage.recent().iter().cloned().collect(),
            decisions: self.stage.decisions(),
        }
    }
}
