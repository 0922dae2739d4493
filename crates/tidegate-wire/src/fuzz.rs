//! A fuzz target: it shows the observer any packets, and checks what must hold whatever they are.

use std::net::SocketAddr;

use tidegate_units::Instant;

use crate::frame::build::{BEGIN, DATA, RESET, frame};
use crate::{WireObserver, WireReport};

/// The times between two packets, in nanoseconds, by two bits of an operation.
const STEPS: [u64; 4] = [0, 1_000, 1_000_000, 700_000_000];

/// The ports of the first and the second initiator: iSCSI and NVMe/TCP.
const PORTS: [u16; 2] = [3260, 4420];

/// Bytes of an input, taken one after the other.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Packets: each an operation, its details, and its payload.
///
/// An operation's bits say which of two initiators sends, or that the target sends to it, how time goes on,
/// and what is sent: data, data at another place of the stream, the beginning of a connection, or any frame.
pub fn packets(input: &[u8]) {
    let mut input = Input(input);
    let mut observer = WireObserver::new(PORTS.into());
    let mut next = [[1_u32; 2]; 2];
    let mut now = 0;
    let mut before = observer.report(Instant::ZERO);
    while let Some(operation) = input.byte() {
        let (initiator, is_answer) = (usize::from(operation & 1), operation & 2 != 0);
        now += STEPS[usize::from(operation >> 2 & 3)];
        let at = Instant::from_nanos(now);
        let client: SocketAddr = ([10, 0, 0, 11 + initiator as u8], 40_000).into();
        let server: SocketAddr = ([10, 0, 0, 1], PORTS[initiator]).into();
        let flow = if is_answer { (server, client) } else { (client, server) };
        let next = &mut next[initiator][usize::from(is_answer)];
        match operation >> 4 {
            0 => {
                before = check(&mut observer, at, &before);
            }
            1 => observer.lose(at, 1),
            2 | 3 => {
                let flags = if operation & 0x10 == 0 { BEGIN } else { RESET };
                let built = frame(flow, *next, flags, b"", 0);
                observer.receive(at, &built, built.len());
                *next = next.wrapping_add(u32::from(flags == BEGIN));
            }
            4 => {
                let length = usize::from(input.byte().unwrap_or_default());
                let bytes = input.take(length);
                observer.receive(at, bytes, bytes.len() + usize::from(operation & 3) * 40);
            }
            kind => {
                let length = usize::from(input.byte().unwrap_or_default());
                let (offset, uncaptured) = match kind {
                    5 | 6 => (input.byte().unwrap_or_default() as i8, 0),
                    7 | 8 => (0, usize::from(input.byte().unwrap_or_default())),
                    _ => (0, 0),
                };
                let payload = input.take(length);
                let sequence = next.wrapping_add_signed(i32::from(offset));
                let mut built = frame(flow, sequence, DATA, payload, 0);
                // The length in the header is that on the wire.
                let wire = built.len() + uncaptured;
                built[16..18].copy_from_slice(&((wire - 14) as u16).to_be_bytes());
                observer.receive(at, &built, wire);
                *next = sequence.wrapping_add((payload.len() + uncaptured) as u32);
            }
        }
    }
    check(&mut observer, Instant::from_nanos(now), &before);
}

fn check(observer: &mut WireObserver, now: Instant, before: &WireReport) -> WireReport {
    let report = observer.report(now);
    assert!(report.nexuses.windows(2).all(|pair| pair[0].nexus < pair[1].nexus), "{report:?}");
    assert!(report.counters.segments >= before.counters.segments);
    for nexus in &report.nexuses {
        for total in [nexus.totals.reads, nexus.totals.writes] {
            let longest = u128::from(total.count) * u128::from(now.as_nanos());
            assert!(u128::from(total.latency.as_nanos()) <= longest, "{nexus:?} at {now:?}");
        }
        assert!(nexus.oldest_read.is_none_or(|sent| sent <= now), "{nexus:?}");
        assert!(nexus.oldest_read.is_some() == (nexus.reads_in_flight > 0), "{nexus:?}");
        let names = [&nexus.nexus.initiator, &nexus.nexus.target, &nexus.nexus.unit];
        assert!(
            names.iter().all(|name| name.len() <= 255 && !name.chars().any(char::is_control)),
            "{nexus:?}"
        );
    }
    let sessions: Vec<_> = observer.sessions().collect();
    assert!(sessions.len() <= report.connections.len());
    report
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("storage-packets", super::packets);
    }
}
