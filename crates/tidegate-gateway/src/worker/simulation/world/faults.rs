//! Faults of whole parts: connections, gateways, the power.

use std::time::Duration;

use super::{GatewayEnd, SimulatedWorld, WorldEvent};
use crate::worker::door::SessionFate;

/// The frequencies of faults, of a thousand occasions.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultRates {
    pub(super) error: u32,
    pub(super) short: u32,
    pub(super) hang: u32,
    pub(super) disconnect: u32,
    /// The mean time between faults of whole parts, in microseconds; none without.
    pub(super) interval: Option<u64>,
    /// Faults of whole parts in a round.
    pub(super) most: u32,
}

impl FaultRates {
    /// Returns true if every outage ends soon, and no request meets more of them than are bridged. Reads then
    /// succeed, except at the gateway that is lost itself.
    pub(super) fn are_bridged(&self) -> bool {
        self.error == 0 && self.hang == 0 && self.most <= 4
    }
}

/// A fault of a whole part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorldFault {
    Break,
    Slow,
    WriteBack,
    Kill(usize),
    Power,
    Drain(usize),
}

impl SimulatedWorld {
    pub(super) fn fault(&mut self) {
        let Some(interval) = self.rates.interval.filter(|_| self.faulty && self.faults_left > 0) else {
            return;
        };
        self.faults_left -= 1;
        let place = self.dice.below(self.places.len());
        let fault = match self.dice.below(20) {
            0..5 => WorldFault::Break,
            5..8 => WorldFault::Slow,
            8..11 if self.rates.error > 0 => WorldFault::WriteBack,
            8..15 => WorldFault::Kill(place),
            15..17 => WorldFault::Power,
            _ if self.rates.are_bridged() => WorldFault::Break,
            _ => WorldFault::Drain(place),
        };
        self.log(format_args!("{fault:?}"));
        match fault {
            WorldFault::Break if self.connections.is_empty() => {}
            WorldFault::Break => {
                let recent = self.connections.len().min(8);
                let at = self.connections.len() - 1 - self.dice.below(recent);
                self.break_connection(at);
            }
            WorldFault::Slow => {
                let spell = self.dice.between(1_000, 50_000);
                self.slow_until = self.now + Duration::from_micros(spell);
            }
            WorldFault::WriteBack => {
                self.disk.fail_write_back(&mut self.dice);
            }
            WorldFault::Kill(place) => self.end(place, GatewayEnd::Killed),
            WorldFault::Power => self.end(0, GatewayEnd::PowerLost),
            WorldFault::Drain(place) => {
                let patience = Duration::from_millis(self.dice.between(0, 500));
                let deadline = self.now + patience;
                let fate = if self.dice.hits(500) { SessionFate::Suspend } else { SessionFate::Close };
                if let Some(live) = &self.places[place].live {
                    live.drain(deadline, fate);
                }
            }
        }
        let next = self.dice.between(1, 2 * interval);
        self.schedule(Duration::from_micros(next), WorldEvent::Fault);
    }
}
