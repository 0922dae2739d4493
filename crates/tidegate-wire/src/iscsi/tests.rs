//! Connections against what their peers did: cut, repeated, reordered, truncated and with packets missing.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidegate_units::{Instant, Latency};

use super::IscsiDialogue;
use super::peers::{self, PeerDigests};
use crate::commands::{CommandKind, CompletedCommand};
use crate::connection::{Connection, Dialogue as _, Towards};
use crate::direction::DirectionSegment;

type IscsiConnection = Connection<IscsiDialogue>;

/// A segment on the wire.
#[derive(Debug, Clone)]
struct WireSegment {
    at: Instant,
    is_to_target: bool,
    sequence: u32,
    bytes: Vec<u8>,
}

/// A command that a script sends.
#[derive(Debug, Clone)]
enum Step {
    Read {
        kib: u8,
    },
    /// Immediate data, and as many PDUs of data that the target calls for.
    Write {
        immediate: u16,
        calls: u8,
    },
    /// The oldest command is answered.
    Answer {
        fails: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u8..20).prop_map(|kib| Step::Read { kib }),
        (0u16..600, 0u8..4).prop_map(|(immediate, calls)| Step::Write { immediate, calls }),
        prop::bool::weighted(0.1).prop_map(|fails| Step::Answer { fails }),
        Just(Step::Answer { fails: false }),
    ]
}

/// The peers of a connection, and the truth about their commands.
struct Peers {
    digests: PeerDigests,
    now: u64,
    streams: [Vec<u8>; 2],
    /// The number of the first byte of each stream that no segment has yet.
    sent: [u32; 2],
    segments: Vec<WireSegment>,
    cuts: Vec<u16>,
    next_cut: usize,
    turn: usize,
    outstanding: Vec<(u32, CommandKind, u64)>,
    /// The ends of commands, or of the last of their data, in their stream; and of their responses' heads.
    ends: BTreeMap<u64, (CommandKind, u32)>,
    answers: BTreeMap<u64, u32>,
}

impl Peers {
    fn new(digests: PeerDigests, cuts: Vec<u16>, first: [u32; 2]) -> Self {
        Self {
            digests,
            now: 0,
            streams: [Vec::new(), Vec::new()],
            sent: first,
            segments: Vec::new(),
            cuts,
            next_cut: 0,
            turn: 0,
            outstanding: Vec::new(),
            ends: BTreeMap::new(),
            answers: BTreeMap::new(),
        }
    }

    /// Says something; returns the number of the byte after it. All that the other said has been sent before.
    fn say(&mut self, side: usize, pdu: &[u8]) -> u32 {
        self.now += 1;
        if self.turn != side {
            self.flush();
            self.turn = side;
        }
        self.streams[side].extend_from_slice(pdu);
        self.sent[side].wrapping_add(u32::try_from(self.streams[side].len()).unwrap())
    }

    /// Cuts what was said into segments.
    fn flush(&mut self) {
        let side = self.turn;
        let bytes = std::mem::take(&mut self.streams[side]);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            self.next_cut += 1;
            let cut =
                self.cuts.get(self.next_cut % self.cuts.len().max(1)).map_or(1448, |cut| usize::from(*cut));
            let (now, later) = rest.split_at(cut.clamp(1, rest.len()));
            self.segments.push(WireSegment {
                at: Instant::from_nanos(self.now * 1_000_000 + self.next_cut as u64),
                is_to_target: side == 0,
                sequence: self.sent[side],
                bytes: now.to_vec(),
            });
            self.sent[side] = self.sent[side].wrapping_add(u32::try_from(now.len()).unwrap());
            rest = later;
        }
    }

    fn play(&mut self, step: &Step) {
        let digests = self.digests;
        match *step {
            Step::Read { kib } => {
                let (tag, id) = self.tag(CommandKind::Read, u64::from(kib) << 10);
                let pdu = peers::read(tag, 3, u32::try_from(id).unwrap(), digests);
                let end = self.say(0, &pdu).wrapping_sub(u32::try_from(pdu.len() - 48).unwrap());
                self.ends.insert(id, (CommandKind::Read, end));
            }
            Step::Write { immediate, calls } => {
                let bytes = u64::from(immediate) + 1000 * u64::from(calls);
                // The bytes tell commands apart, so that every write has some more.
                let (tag, id) = self.tag(CommandKind::Write, bytes);
                let more = id - bytes;
                let first = vec![0x5a; usize::from(immediate) + usize::try_from(more).unwrap()];
                let mut end = self.say(0, &peers::write(tag, 3, u32::try_from(id).unwrap(), &first, digests));
                for call in 0..calls {
                    self.say(1, &peers::ready_to_transfer(tag, digests));
                    end = self.say(0, &peers::data_out(tag, &[0; 1000], call + 1 == calls, digests));
                }
                self.ends.insert(id, (CommandKind::Write, end));
            }
            Step::Answer { fails } => self.answer(fails),
        }
    }

    fn answer(&mut self, fails: bool) {
        if self.outstanding.is_empty() {
            return;
        }
        let (tag, kind, id) = self.outstanding.remove(0);
        let digests = self.digests;
        let data = vec![0x21; usize::try_from(id).unwrap()];
        let (before, pdu) = match (kind, fails) {
            (_, true) => (0, peers::response(tag, 2, digests)),
            (CommandKind::Write, false) => (0, peers::response(tag, 0, digests)),
            (CommandKind::Read, false) => {
                let half = data.len() / 2;
                self.say(1, &peers::data_in(tag, &data[..half], false, digests));
                let last = peers::data_in(tag, &data[half..], true, digests);
                (last.len() - 48, last)
            }
        };
        let end = self.say(1, &pdu);
        if !fails {
            // The end of the response's head.
            let length = u32::try_from(pdu.len() - before).unwrap();
            let head_end = end.wrapping_sub(u32::try_from(pdu.len()).unwrap()).wrapping_add(48);
            assert!(length >= 48);
            self.answers.insert(id, head_end);
        }
    }

    /// A tag, soon used again, and a number of bytes that no other command has.
    fn tag(&mut self, kind: CommandKind, at_least: u64) -> (u32, u64) {
        if self.outstanding.len() >= 8 {
            self.answer(false);
        }
        let used: BTreeSet<_> = self.outstanding.iter().map(|(tag, ..)| *tag).collect();
        let tag = (0..).find(|tag| !used.contains(tag)).unwrap();
        let id = (at_least..).find(|id| !self.ends.contains_key(id) && *id > 0).unwrap();
        self.outstanding.push((tag, kind, id));
        (tag, id)
    }

    /// The latency of every command that succeeded.
    fn latencies(&self) -> BTreeMap<u64, Latency> {
        let at = |is_to_target, end: u32| {
            let last = end.wrapping_sub(1);
            let holds = |segment: &&WireSegment| {
                segment.is_to_target == is_to_target
                    && (last.wrapping_sub(segment.sequence) as usize) < segment.bytes.len()
            };
            self.segments.iter().find(holds).unwrap().at
        };
        let latency = |(id, head_end): (&u64, &u32)| {
            let (_, end) = self.ends[id];
            (*id, at(false, *head_end).latency_since(at(true, end)))
        };
        self.answers.iter().map(latency).collect()
    }
}

/// Plays a script: all its segments, and the latency of each command by its bytes.
fn play(
    steps: &[Step],
    digests: PeerDigests,
    cuts: &[u16],
    first: [u32; 2],
) -> (Vec<WireSegment>, BTreeMap<u64, Latency>) {
    let mut peers = Peers::new(digests, cuts.to_vec(), first);
    peers.say(0, &peers::login("iqn.2026-01.lab:a", "iqn.2026-01.lab:array", digests));
    peers.say(1, &peers::login_response(digests));
    steps.iter().for_each(|step| peers.play(step));
    peers.flush();
    let latencies = peers.latencies();
    (peers.segments, latencies)
}

/// Shows segments to a connection, each cut after `snap` bytes.
fn show(
    connection: &mut IscsiConnection,
    segments: &[WireSegment],
    snap: usize,
) -> (Vec<CompletedCommand>, usize) {
    let (mut completed, mut gaps) = (Vec::new(), 0);
    for segment in segments {
        let piece = DirectionSegment {
            at: segment.at,
            sequence: segment.sequence,
            payload: &segment.bytes[..snap.min(segment.bytes.len())],
            length: u32::try_from(segment.bytes.len()).unwrap(),
        };
        let towards = if segment.is_to_target { Towards::Target } else { Towards::Initiator };
        let events = connection.take(towards, piece, &mut |command| completed.push(command));
        gaps += usize::from(events.direction.gap);
    }
    (completed, gaps)
}

fn begun(first: [u32; 2]) -> IscsiConnection {
    let mut connection = IscsiConnection::from_the_middle();
    connection.begin(Towards::Target, first[0]);
    connection.begin(Towards::Initiator, first[1]);
    connection
}

/// No latency is wrong, whatever was missed.
fn check(completed: &[CompletedCommand], truth: &BTreeMap<u64, Latency>) -> Result<(), TestCaseError> {
    let mut seen = BTreeSet::new();
    for command in completed {
        prop_assert!(seen.insert(command.bytes), "{command:?} completes twice");
        let expected = truth.get(&command.bytes);
        prop_assert!(expected.is_some(), "{command:?} did not succeed");
        prop_assert!(
            command.latency.is_none_or(|latency| Some(&latency) == expected),
            "{command:?} {expected:?}"
        );
    }
    Ok(())
}

fn digests() -> impl Strategy<Value = PeerDigests> {
    (any::<bool>(), any::<bool>()).prop_map(|(header, data)| PeerDigests { header, data })
}

/// Lengths of segments: of one byte, of packets, and of super-packets of many PDUs.
fn cuts() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(prop_oneof![1u16..100, Just(1448), 1000u16..60_000], 1..20)
}

fn script() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn however_a_stream_is_cut_repeated_and_swapped_every_command_has_its_latency(
        (steps, digests, cuts) in (script(), digests(), cuts()),
        first in any::<[u32; 2]>(),
        repeated in prop::collection::vec(any::<bool>(), 1..40),
        swapped in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let (segments, truth) = play(&steps, digests, &cuts, first);
        let mut shown: Vec<WireSegment> = Vec::new();
        for (at, segment) in segments.iter().enumerate() {
            shown.push(segment.clone());
            if repeated[at % repeated.len()] {
                shown.push(segment.clone());
            }
        }
        let mut at = 1;
        while at < shown.len() {
            if swapped[at % swapped.len()] && shown[at - 1].is_to_target == shown[at].is_to_target {
                shown.swap(at - 1, at);
                at += 1;
            }
            at += 1;
        }
        let mut connection = begun(first);
        let (completed, gaps) = show(&mut connection, &shown, usize::MAX);
        prop_assert_eq!(gaps, 0);
        check(&completed, &truth)?;
        prop_assert_eq!(completed.len(), truth.len());
        // The end of a write's data may come out of order, and is not waited for.
        let is_in_order = !swapped.contains(&true);
        let is_timed = |command: &CompletedCommand| {
            command.latency.is_some() || command.kind == CommandKind::Write && !is_in_order
        };
        prop_assert!(completed.iter().all(is_timed));
        let names = connection.dialogue().names().unwrap();
        prop_assert_eq!((&*names.initiator, &*names.target), ("iqn.2026-01.lab:a", "iqn.2026-01.lab:array"));
    }

    #[test]
    fn what_was_not_captured_is_never_a_latency(
        (steps, digests, cuts) in (script(), digests(), cuts()),
        first in any::<[u32; 2]>(),
        missed in prop::collection::vec(prop::bool::weighted(0.1), 1..60),
        snap in prop_oneof![Just(usize::MAX), 48usize..2000],
    ) {
        let (segments, truth) = play(&steps, digests, &cuts, first);
        let is_shown = |at: usize| !missed[at % missed.len()];
        let shown = segments.into_iter().enumerate().filter(|(at, _)| is_shown(*at));
        let shown: Vec<_> = shown.map(|(_, segment)| segment).collect();
        check(&show(&mut begun(first), &shown, snap).0, &truth)?;
    }

    #[test]
    fn a_session_seen_from_its_middle_is_understood_or_yields_nothing(
        (steps, digests, cuts) in (script(), digests(), cuts()),
        first in any::<[u32; 2]>(),
        from in 2usize..40,
    ) {
        let (segments, truth) = play(&steps, digests, &cuts, first);
        let shown = segments.get(from..).unwrap_or_default();
        let mut connection = IscsiConnection::from_the_middle();
        check(&show(&mut connection, shown, usize::MAX).0, &truth)?;
        prop_assert_eq!(connection.dialogue().names(), None);
    }
}

#[test]
fn a_session_of_packets_is_understood_from_its_middle_with_any_digests() {
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let digests = PeerDigests { header, data };
        let steps: Vec<Step> = (0..40)
            .flat_map(|round| {
                [
                    Step::Read { kib: 4 },
                    Step::Write { immediate: 512, calls: round % 2 },
                    Step::Answer { fails: false },
                ]
            })
            .collect();
        let (segments, truth) = play(&steps, digests, &[1448], [7, 9]);
        let mut connection = IscsiConnection::from_the_middle();
        let (completed, gaps) = show(&mut connection, &segments[segments.len() / 3..], usize::MAX);
        assert!(connection.is_understood(), "{digests:?}");
        assert!(completed.len() > truth.len() / 3, "{digests:?}: {} of {}", completed.len(), truth.len());
        check(&completed, &truth).unwrap();
        assert!(gaps <= 1, "{digests:?}: {gaps}");
    }
}

#[test]
fn a_command_that_is_aborted_is_not_in_flight_any_more() {
    let none = PeerDigests::default();
    let mut connection = begun([0, 0]);
    let mut sequence = 0;
    let mut say = |connection: &mut IscsiConnection, pdu: Vec<u8>| {
        let segment = WireSegment { at: Instant::from_nanos(5), is_to_target: true, sequence, bytes: pdu };
        sequence += u32::try_from(segment.bytes.len()).unwrap();
        show(connection, &[segment], usize::MAX);
    };
    say(&mut connection, peers::login("i", "t", none));
    say(&mut connection, peers::read(9, 3, 4096, none));
    let unit = connection.units().next().unwrap();
    assert_eq!(unit.to_string(), "3");
    assert_eq!(connection.reads_in_flight(unit).oldest, Some(Instant::from_nanos(5)));
    say(&mut connection, peers::abort(10, 9, none));
    assert_eq!(connection.reads_in_flight(unit).count, 0);
    say(&mut connection, peers::read(11, 3, 4096, none));
    assert_eq!(connection.reads_in_flight(unit).count, 1);
    connection.doubt(Instant::from_nanos(6));
    assert_eq!(connection.reads_in_flight(unit).count, 0, "its response may have been missed");
}
