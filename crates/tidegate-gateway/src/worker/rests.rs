//! Disks that rest because their memory has kept the worker waiting ([`crate::guest_memory`]).

use tidegate_units::Instant;
use tracing::warn;

use super::PoolWorker;
use crate::disk::SessionDisk;
use crate::guest_memory::MemoryUse;
use crate::session::SessionPhase;

impl PoolWorker {
    pub(super) fn begin_memory_use(&self, key: usize) -> Option<MemoryUse> {
        Some(self.sessions[key].disk.as_ref()?.memory_watch.begin(self.clock.now()))
    }

    /// Ends the use of a disk's memory, whose session may have ended meanwhile.
    pub(super) fn end_memory_use(&mut self, key: usize, used: Option<MemoryUse>) {
        let now = self.clock.now();
        if let Some(used) = used
            && let Some(session) = self.sessions.get_mut(key)
            && let Some(disk) = &mut session.disk
            && self.drain.is_none()
            && !disk.is_stopping()
            && disk.memory_watch.end(&used, now)
        {
            warn!(
                pool = %self.config.name, export = %self.exports[session.export].consumer.name(),
                peer = session.peer,
                "the machine's memory has kept the pool waiting for {} ms: its disk rests for a while, now and after \
                    each further wait; is memory taken from the machine, or in swap?",
                now.saturating_since(used.began()).as_millis()
            );
        }
    }

    /// Goes on with disks whose rest is over; during a drain, and while a ring is to stop, at once.
    pub(super) fn end_rests(&mut self, now: Instant) {
        let is_over = |disk: &SessionDisk| {
            disk.memory_watch.rests()
                && (self.drain.is_some() || disk.is_stopping() || disk.memory_watch.has_rested_until(now))
        };
        let rested = self.sessions.iter().filter(|(_, session)| session.disk.as_deref().is_some_and(is_over));
        for key in rested.map(|(key, _)| key).collect::<Vec<_>>() {
            let Some(disk) = self.sessions.get_mut(key).and_then(|session| session.disk.as_mut()) else {
                continue;
            };
            let results = disk.memory_watch.wake();
            let used = self.begin_memory_use(key);
            for (request, result) in results {
                self.put_into_ring(request, result, now);
            }
            self.end_memory_use(key, used);
            if self.sessions.get(key).is_some_and(|session| session.phase == SessionPhase::Open) {
                self.attend_to(key);
                self.read_later(key);
            }
        }
    }
}
