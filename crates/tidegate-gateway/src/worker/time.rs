//! The worker's work at set times: the law's steps, deadlines of sessions, and the drain.

use tidegate_units::Instant;

use tracing::warn;

use super::{HOUSEKEEPING, KERNEL_GRACE, PoolWorker, VolumeWatch, WorkerDrain, WorkerEnd, WorkerExport};
use crate::request::ClientRequest;
use crate::session::{ClientSession, SessionPhase};
use crate::stage::kind_of;
use crate::worker::door::SessionFate;

impl PoolWorker {
    pub(super) fn step_law(&mut self, now: Instant) {
        if self.stage.next_step().is_none_or(|next| next > now) {
            return;
        }
        let mut oldest = vec![[None::<Instant>; 2]; self.exports.capacity()];
        for (_, request) in &self.requests {
            if let (Some(dispatched), Some(kind)) = (request.dispatched, kind_of(&request.operation))
                && !request.syncing
            {
                let age = &mut oldest[request.export][kind as usize];
                *age = Some(age.map_or(dispatched, |other| other.min(dispatched)));
            }
        }
        let consumers = self.exports.iter_mut().map(|(key, export)| (key, &mut export.consumer));
        self.stage.step(now, consumers, |key| oldest[key]);
    }

    pub(super) fn housekeeping(&mut self, now: Instant) {
        self.next_housekeeping = now + if self.drain.is_some() { HOUSEKEEPING / 5 } else { HOUSEKEEPING };
        if self.has_removed {
            self.forget_removed(now);
        }
        let has_protected_session =
            |(_, export): (usize, &WorkerExport)| export.sessions > 0 && export.consumer.is_protected();
        self.set_beside_protected(self.exports.iter().any(has_protected_session));
        let overdue = now - self.config.limits.reply_deadline;
        let forced = self.drain.is_some_and(|drain| drain.deadline <= now);
        if let Some(drain) = &mut self.drain
            && forced
            && drain.cut_off.is_none()
        {
            let unanswered =
                |session: &ClientSession| session.phase != SessionPhase::Closed && session.requests > 0;
            drain.cut_off = Some(self.sessions.iter().filter(|(_, session)| unanswered(session)).count());
        }
        let keys: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            let session = &self.sessions[key];
            if forced {
                self.close(key, "the drain's deadline has come", now);
            } else if session.phase != SessionPhase::Closed && session.is_sending_since(overdue) {
                self.close(key, "the client does not take its replies", now);
            } else if session.phase == SessionPhase::Open && session.is_awaiting_request_since(overdue) {
                self.close(key, "the client does not send the request that it has begun", now);
            } else if matches!(session.phase, SessionPhase::Suspending { .. }) {
                self.try_to_suspend(key, now);
            } else if matches!(session.phase, SessionPhase::Lingering(until) if until <= now) {
                self.close(key, "drained", now);
            }
        }
        self.watch_stalled(now);
        self.end_rests(now);
        self.watch_upstreams(forced, now);
        self.watch_volumes(VolumeWatch::Idle, now);
        for key in self.file_volumes() {
            self.notice_shrinkage(key, true);
        }
    }

    pub(super) fn begin_drain(&mut self, deadline: Instant, fate: SessionFate, now: Instant) {
        self.drain = Some(WorkerDrain { deadline, fate, cut_off: None });
        self.next_housekeeping = now.min(deadline);
        let keys: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| match fate {
            SessionFate::Close => self.attend_to(key),
            SessionFate::Suspend => self.suspend(key, now),
        });
        if deadline <= now {
            self.housekeeping(now);
        }
    }

    /// Returns what a drain has come to, once it is at its end.
    pub(super) fn drained(&mut self, now: Instant) -> Option<WorkerEnd> {
        let drain = self.drain?;
        let overdue = now >= drain.deadline + KERNEL_GRACE;
        let sessions_ended = self.sessions.iter().all(|(_, session)| session.ends_with_ring());
        if sessions_ended && !self.close_upstreams(now) && !overdue {
            return None;
        }
        // After the deadline only the kernel is waited for, and that not for ever: it may still write to
        // memory that is lent to it, which the ring leaves to it.
        let only_wake = self.ring.outstanding() <= 1
            && self.exports.iter().all(|(_, export)| export.path.outstanding() == 0);
        let given_up = only_wake || overdue;
        let is_over = sessions_ended || (drain.cut_off.is_some() && given_up);
        if !is_over {
            return None;
        }
        let is_left = |request: &ClientRequest| request.dispatched.is_some() || request.syncing;
        let hung = self.requests.iter().filter(|(_, request)| is_left(request)).count();
        if hung > 0 {
            warn!(
                pool = %self.config.name,
                "{hung} requests are left at storage that hangs; if the process does not vanish, the kernel \
                    keeps it \
                 (state D) until that storage answers; its listeners and sockets are closed"
            );
        }
        Some(WorkerEnd { cut_off: drain.cut_off.unwrap_or(0), suspended: self.suspended() })
    }
}
