//! The end of connections, and what becomes of what they carried.

use tidegate_nbd::Errno;
use tidegate_units::Instant;
use tracing::{debug, info, warn};

use super::flight::{JobFlight, UpstreamJob, UpstreamWork, give_back};
use super::link::LinkState;
use super::{UpstreamEvent, UpstreamExport, WorkerLoan};
use crate::config::ReplayRule;

impl UpstreamExport {
    /// The upstream says that it is about to end.
    pub(super) fn leave(&mut self, link_key: usize, now: Instant) {
        let link = &mut self.links[link_key];
        if link.state == LinkState::Open {
            link.state = LinkState::Leaving;
            self.counters.lost += 1;
            let none_left = self.open_links() == 0;
            self.reachability.lost(none_left, now);
            info!(pool = %self.pool, export = %self.name,
                "the upstream is shutting down; its last replies are waited for");
        }
    }

    pub(super) fn end_if_left(&mut self, link_key: usize, hands: &mut WorkerLoan<'_>) {
        let link = &self.links[link_key];
        if link.state == LinkState::Leaving && link.in_flight == 0 {
            self.break_off(link_key, "the upstream is shutting down", hands);
        }
    }

    /// Ends a connection, and once the kernel is done with it settles what was under way there.
    pub(super) fn break_off(&mut self, link_key: usize, reason: &str, hands: &mut WorkerLoan<'_>) {
        let link = &mut self.links[link_key];
        let was = link.state;
        link.break_off();
        if was == LinkState::Open {
            self.counters.lost += 1;
            let none_left = self.open_links() == 0;
            self.reachability.lost(none_left, hands.now);
            if self.closing {
                debug!(pool = %self.pool, export = %self.name, "connection to the upstream closed");
            } else {
                warn!(
                    pool = %self.pool, export = %self.name, upstream = %self.target.address,
                    in_flight = self.links[link_key].in_flight, "connection to the upstream lost: {reason}"
                );
            }
        }
        self.settle_at_rest(link_key, hands);
    }

    pub(super) fn settle_at_rest(&mut self, link_key: usize, hands: &mut WorkerLoan<'_>) {
        if self.links[link_key].is_at_rest() {
            self.settle(link_key, hands);
        }
    }

    /// Decides what becomes of everything that was under way on a connection that is over.
    fn settle(&mut self, link_key: usize, hands: &mut WorkerLoan<'_>) {
        let mut link = self.links.remove(link_key);
        let (flights, requests) = (&mut self.flights, &mut *hands.requests);
        if let Some(message) = &mut link.message {
            message.abandon(|outgoing| {
                flights[outgoing.flight].begun = true;
                give_back(outgoing, flights, requests);
            });
        }
        link.queue.drain(..).for_each(|outgoing| {
            give_back(outgoing, flights, requests);
        });

        let mut left: Vec<(u64, usize)> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.link == link_key)
            .map(|(key, flight)| (flight.serial, key))
            .collect();
        left.sort_unstable();
        let (mut again, mut replayed, mut failed) = (Vec::new(), 0u64, 0u64);
        for (_, key) in left {
            let JobFlight { mut job, begun, sent, part, .. } = self.flights.remove(key);
            let harmless = !sent || !part.changes();
            // What only waited for its turn is not to blame for anything.
            let may = !(begun || sent) || job.may_try_again(link.ordinal, self.opened);
            if !self.closing && may && (harmless || self.config.replay == ReplayRule::All) {
                replayed += u64::from(sent);
                again.push(job);
            } else {
                failed += 1;
                fail(job, hands);
            }
        }
        self.counters.replayed += replayed;
        self.counters.failed += failed;
        again.into_iter().rev().for_each(|job| self.waiting.push_front(job));
        if failed > 0 && !self.closing {
            warn!(
                pool = %self.pool, export = %self.name, upstream = %self.target.address, failed, replayed,
                "what it had carried is answered with EIO; changes among it may have been made, or may yet be"
            );
        }
        self.pump(hands);
    }

    pub(super) fn fail_waiting(&mut self, hands: &mut WorkerLoan<'_>) {
        self.counters.failed += self.waiting.len() as u64;
        self.waiting.drain(..).for_each(|job| fail(job, hands));
    }
}

/// Answers a job with EIO.
pub(super) fn fail(job: UpstreamJob, hands: &mut WorkerLoan<'_>) {
    hands.done.push(match job.work {
        UpstreamWork::Request(key) => UpstreamEvent::Request { key, result: Err(Errno::Io), flush: false },
        UpstreamWork::Flush => UpstreamEvent::Flush(Err(Errno::Io)),
    });
}
