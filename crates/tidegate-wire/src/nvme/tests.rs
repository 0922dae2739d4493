//! A queue against what its host and controller did.

use tidegate_units::{Instant, Latency};

use super::NvmeDialogue;
use crate::commands::{CommandKind, CompletedCommand};
use crate::connection::{Connection, Dialogue as _, Towards};
use crate::direction::DirectionSegment;

/// A PDU: type, flags, the rest of its header, and data at a multiple of four bytes, with digests of any
/// value.
fn pdu(kind: u8, flags: u8, header: &[u8], data: &[u8]) -> Vec<u8> {
    let length = 8 + header.len();
    let digest = |flag: u8| if flags & flag != 0 { 4 } else { 0 };
    let offset = if data.is_empty() { 0 } else { length + digest(1) };
    let whole = if data.is_empty() { length + digest(1) } else { offset + data.len() + digest(2) };
    let mut pdu = vec![kind, flags, length as u8, offset as u8];
    pdu.extend_from_slice(&u32::try_from(whole).unwrap().to_le_bytes());
    pdu.extend_from_slice(header);
    pdu.resize(length + digest(1), 0xd1);
    pdu.extend_from_slice(data);
    pdu.resize(whole, 0xd2);
    pdu
}

/// A command's submission queue entry.
fn entry(opcode: u8, tag: u16, namespace: u32, bytes: u32) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = opcode;
    entry[2..4].copy_from_slice(&tag.to_le_bytes());
    entry[4..8].copy_from_slice(&namespace.to_le_bytes());
    entry[32..36].copy_from_slice(&bytes.to_le_bytes());
    entry
}

fn connect(flags: u8, queue: u16) -> Vec<u8> {
    let mut entry = entry(0x7f, 7, 1, 1024);
    entry[42..44].copy_from_slice(&queue.to_le_bytes());
    let mut data = [0; 1024];
    data[256..265].copy_from_slice(b"nqn.array");
    data[512..520].copy_from_slice(b"nqn.host");
    pdu(4, flags, &entry, &data)
}

fn response(flags: u8, tag: u16, status: u16) -> Vec<u8> {
    let mut completion = [0; 16];
    completion[12..14].copy_from_slice(&tag.to_le_bytes());
    completion[14..16].copy_from_slice(&(status << 1).to_le_bytes());
    pdu(5, flags, &completion, &[])
}

fn data(kind: u8, flags: u8, tag: u16, bytes: usize) -> Vec<u8> {
    let mut header = [0; 16];
    header[..2].copy_from_slice(&tag.to_le_bytes());
    header[8..12].copy_from_slice(&u32::try_from(bytes).unwrap().to_le_bytes());
    pdu(kind, flags, &header, &vec![0x5a; bytes])
}

/// A queue whose PDUs pass in segments of some bytes.
struct Queue {
    connection: Connection<NvmeDialogue>,
    next: [u32; 2],
    segment: usize,
    completed: Vec<CompletedCommand>,
}

impl Queue {
    fn new(segment: usize, begun: bool) -> Self {
        let mut connection = Connection::from_the_middle();
        if begun {
            connection.begin(Towards::Target, 1);
            connection.begin(Towards::Initiator, 1);
        }
        Self { connection, next: [1, 1], segment, completed: Vec::new() }
    }

    fn say(&mut self, at_ms: u64, towards: Towards, pdu: &[u8]) {
        let next = &mut self.next[usize::from(towards == Towards::Initiator)];
        for bytes in pdu.chunks(self.segment) {
            let length = u32::try_from(bytes.len()).unwrap();
            let at = Instant::from_nanos(at_ms * 1_000_000);
            let segment = DirectionSegment { at, sequence: *next, payload: bytes, length };
            let completed = &mut self.completed;
            let events = self.connection.take(towards, segment, &mut |command| completed.push(command));
            assert!(!events.direction.gap);
            *next = next.wrapping_add(length);
        }
    }

    fn initialize(&mut self, flags: u8, queue: u16) {
        self.say(0, Towards::Target, &pdu(0, 0, &[0; 120], &[]));
        self.say(0, Towards::Initiator, &pdu(1, 0, &[0; 120], &[]));
        self.say(0, Towards::Target, &connect(flags, queue));
        self.say(0, Towards::Initiator, &response(flags & 1, 7, 0));
    }
}

#[test]
fn reads_and_writes_have_their_latency_with_any_digests_and_any_segments() {
    for (digests, segment) in [(0, 4096), (3, 4096), (1, 7), (2, 1000), (3, 1)] {
        let mut queue = Queue::new(segment, true);
        queue.initialize(digests, 1);
        let (host, controller) = (Towards::Target, Towards::Initiator);
        let header = digests & 1;
        queue.say(10, host, &pdu(4, header, &entry(2, 1, 5, 8192), &[]));
        queue.say(14, controller, &data(7, digests, 1, 4096));
        // The last data say that all is well: no response follows.
        queue.say(15, controller, &data(7, digests | 0xc, 1, 4096));
        queue.say(20, host, &pdu(4, digests, &entry(1, 1, 5, 512), &[3; 512]));
        queue.say(23, controller, &response(header, 1, 0));
        queue.say(30, host, &pdu(4, header, &entry(1, 2, 5, 3000), &[]));
        queue.say(31, controller, &pdu(9, header, &[0; 16], &[]));
        queue.say(40, host, &data(6, digests | 4, 2, 3000));
        queue.say(42, controller, &response(header, 2, 0));
        // An error is no sample.
        queue.say(50, host, &pdu(4, header, &entry(2, 3, 5, 4096), &[]));
        queue.say(51, controller, &response(header, 3, 0x81));
        let seen: Vec<_> = queue
            .completed
            .iter()
            .map(|command| (command.kind, command.bytes, command.latency.unwrap(), command.unit.to_string()))
            .collect();
        let unit = || "5".to_owned();
        let ms = Latency::from_millis;
        assert_eq!(
            seen,
            [
                (CommandKind::Read, 8192, ms(5), unit()),
                (CommandKind::Write, 512, ms(3), unit()),
                (CommandKind::Write, 3000, ms(2), unit()),
            ],
            "{digests} {segment}"
        );
        let names = queue.connection.dialogue().names().unwrap();
        assert_eq!((&*names.initiator, &*names.target), ("nqn.host", "nqn.array"));
    }
}

#[test]
fn the_administrative_queue_moves_no_data_of_namespaces() {
    let mut queue = Queue::new(1448, true);
    queue.initialize(0, 0);
    // Get Log Page has the opcode of a read.
    queue.say(1, Towards::Target, &pdu(4, 0, &entry(2, 1, u32::MAX, 512), &[]));
    queue.say(2, Towards::Initiator, &data(7, 0xc, 1, 512));
    assert_eq!(queue.completed, []);
    assert_eq!(queue.connection.units().len(), 0);
}

#[test]
fn a_queue_is_understood_from_its_middle() {
    let mut queue = Queue::new(1448, false);
    for round in 0..10 {
        let tag = round % 3;
        queue.say(10 * u64::from(round), Towards::Target, &pdu(4, 0, &entry(2, tag, 1, 4096), &[]));
        queue.say(10 * u64::from(round) + 4, Towards::Initiator, &data(7, 0xc, tag, 4096));
    }
    assert!(queue.connection.is_understood());
    assert!(queue.completed.len() >= 5, "{:?}", queue.completed);
    assert!(queue.completed.iter().all(|command| command.latency == Some(Latency::from_millis(4))));
}
