//! Orders of events that once broke a rule, one step at a time.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use tidegate_nbd::transmission::NbdCommand;
use tidegate_nbd::{CommandFlags, Errno, SessionTerms};
use tidegate_sockets::aside::PeerSocket;
use tidegate_units::Instant;

use super::NOW;
use super::client::{ClientConnection, ClientWork, NewRequest};
use super::gateway::{GatewayRules, LiveGateway, SimulatedVolume};
use super::ring::SimulatedAction;
use crate::backend::ExportVolume;
use crate::ring::{FileAction, LentMemory};
use crate::suspension::SuspendedSession;
use crate::worker::door::SessionFate;

/// One gateway before a disk, past the cache, and its clients.
struct ServedClients {
    live: LiveGateway,
    clients: Vec<ServedClient>,
    /// The sessions that the gateway has left to the next one at its end.
    suspended: Option<Vec<SuspendedSession>>,
}

/// A client, and the gateway's end of its connection.
struct ServedClient {
    connection: ClientConnection,
    socket: Arc<PeerSocket>,
}

impl ServedClients {
    fn new(count: usize) -> Self {
        Self::with_depth(count, 32)
    }

    /// The same with a pool of this depth.
    fn with_depth(count: usize, depth: u32) -> Self {
        NOW.set(Some(Instant::ZERO));
        let rules = GatewayRules::new(depth, 1, Duration::from_secs(30), Duration::from_secs(60));
        let volume = SimulatedVolume::Disk { size: 64 << 10, direct: Some(512) };
        let live = LiveGateway::start(&rules, volume, Instant::ZERO);
        let geometry = live.geometry();
        let terms = SessionTerms::simple(geometry);
        let connect = |_| {
            let flags = SocketFlags::CLOEXEC;
            let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            let [ours, socket] = [ours, theirs].map(|end| Arc::new(PeerSocket::to_this_process(end)));
            live.open(Arc::clone(&socket), terms, "client".into());
            ServedClient { connection: ClientConnection::new(ours, terms, 0, 0), socket }
        };
        let clients = (0..count).map(connect).collect();
        Self { live, clients, suspended: None }
    }

    fn ask(&mut self, client: usize, command: NbdCommand, flags: CommandFlags, payload: &[u8]) -> u64 {
        self.ask_at(0, client, command, flags, payload)
    }

    fn ask_at(
        &mut self,
        offset: usize,
        client: usize,
        command: NbdCommand,
        flags: CommandFlags,
        payload: &[u8],
    ) -> u64 {
        let new = NewRequest { command, flags, offset, length: payload.len(), payload };
        let connection = &mut self.clients[client].connection;
        let cookie = connection.request(new, ClientWork::Flush, 0);
        connection.send(usize::MAX);
        self.exchange();
        cookie
    }

    /// Lets the worker have its turns, until no byte moves any more.
    fn exchange(&mut self) {
        while self.suspended.is_none() {
            let ended = self.live.worker.turn(Instant::ZERO);
            self.suspended = ended.map(|ended| ended.suspended);
            let ring = self.live.worker.ring.simulated();
            let mut moved = Vec::new();
            for (key, operation) in &mut ring.operations {
                let Some(client) =
                    self.clients.iter().find(|client| client.socket.as_raw_fd() == operation.fd)
                else {
                    continue;
                };
                let count = match (&operation.action, &mut operation.held) {
                    (SimulatedAction::Receive { part, .. }, LentMemory::Buffer(buffer)) => {
                        let place = &mut buffer[part.start..part.start + part.length];
                        recv(&client.socket, place, RecvFlags::DONTWAIT).map_or(0, |(_, count)| count)
                    }
                    (SimulatedAction::Send(bytes), _) => {
                        send(&client.socket, bytes, SendFlags::NOSIGNAL).unwrap()
                    }
                    _ => 0,
                };
                if count > 0 {
                    moved.push((key, count));
                }
            }
            let is_quiet = moved.is_empty() && ring.completed.is_empty();
            moved.into_iter().for_each(|(key, count)| ring.complete(key, Ok(count)));
            if is_quiet {
                return;
            }
        }
    }

    /// Completes the operation on the disk that is meant.
    fn complete(&mut self, is_meant: impl Fn(&FileAction) -> bool, result: io::Result<usize>) {
        let ring = self.live.worker.ring.simulated();
        let meant = ring.operations.iter().find_map(|(key, operation)| match &operation.action {
            SimulatedAction::File(action) if is_meant(action) => Some(key),
            _ => None,
        });
        ring.complete(meant.unwrap(), result);
        self.exchange();
    }

    /// Returns the requests of a client that were answered since the last call.
    fn answers(&mut self, client: usize) -> Vec<(u64, Result<(), Errno>)> {
        let mut finished = Vec::new();
        self.clients[client].connection.receive(1 << 16, &mut finished).unwrap();
        finished.into_iter().map(|finished| (finished.cookie, finished.result)).collect()
    }
}

/// Both sync, and the kernel gives the report of lost data to one of them. The flush must not succeed before
/// the write is known not to have it.
#[test]
fn a_flush_beside_a_durable_write_that_takes_its_report_fails() {
    for report in [true, false] {
        let mut served = ServedClients::new(1);
        let write = served.ask(0, NbdCommand::Write, CommandFlags::FUA, &[1; 512]);
        let flush = served.ask(0, NbdCommand::Flush, CommandFlags::NONE, &[]);
        served.complete(|action| matches!(action, FileAction::Sync { .. }), Ok(0));
        assert_eq!(served.answers(0), [], "the write may have the report");
        let result = if report { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(512) };
        served.complete(|action| matches!(action, FileAction::Write { durable: true, .. }), result);
        let verdict = if report { Err(Errno::Io) } else { Ok(()) };
        let mut answers = served.answers(0);
        answers.sort_by_key(|(cookie, _)| *cookie);
        assert_eq!(answers, [(write, verdict), (flush, verdict)]);
        NOW.set(None);
    }
}

/// The kernel reports lost data once. A session that was suspended before another one's flush took that
/// report would never hear of it in the next process.
#[test]
fn a_suspended_session_ends_if_another_one_takes_the_report_of_lost_data() {
    for report in [true, false] {
        let mut served = ServedClients::new(2);
        let flush = served.ask(1, NbdCommand::Flush, CommandFlags::NONE, &[]);
        served.live.drain(Instant::ZERO + Duration::from_secs(1), SessionFate::Suspend);
        served.exchange();
        assert_eq!(served.live.sessions(), 1, "the idle client's session is suspended");
        let result = if report { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(0) };
        served.complete(|action| matches!(action, FileAction::Sync { .. }), result);
        assert_eq!(served.answers(1), [(flush, if report { Err(Errno::Io) } else { Ok(()) })]);
        assert_eq!(served.suspended.map(|suspended| suspended.len()), Some(if report { 0 } else { 2 }));
        NOW.set(None);
    }
}

fn is_write(action: &FileAction) -> bool {
    matches!(action, FileAction::Write { .. })
}

/// A sync takes as long as it takes, and one answers all flushes that wait. They must not fill the window of the
/// other exports meanwhile.
#[test]
fn flushes_have_one_slot_of_the_window_together() {
    let mut served = ServedClients::with_depth(1, 2);
    let flushes: Vec<u64> =
        (0..10).map(|_| served.ask(0, NbdCommand::Flush, CommandFlags::NONE, &[])).collect();
    let write = served.ask(0, NbdCommand::Write, CommandFlags::NONE, &[1; 512]);
    served.complete(is_write, Ok(512));
    assert_eq!(served.answers(0), [(write, Ok(()))], "the other slot was free");
    for answered in [&flushes[..1], &flushes[1..]] {
        served.complete(|action| matches!(action, FileAction::Sync { .. }), Ok(0));
        let answers: Vec<(u64, Result<(), Errno>)> = answered.iter().map(|flush| (*flush, Ok(()))).collect();
        assert_eq!(served.answers(0), answers, "those that came later share the next sync");
    }
    assert!(served.live.is_at_rest());
    NOW.set(None);
}

/// On a healthy disk that has much to write, a sync takes seconds.
#[test]
fn a_sync_that_takes_long_gives_its_slot_to_requests_that_wait() {
    let mut served = ServedClients::with_depth(1, 1);
    let flush = served.ask(0, NbdCommand::Flush, CommandFlags::NONE, &[]);
    let write = served.ask(0, NbdCommand::Write, CommandFlags::NONE, &[1; 512]);
    let mut has_begun = || {
        let operations = &served.live.worker.ring.simulated().operations;
        operations.iter().any(
            |(_, operation)| matches!(&operation.action, SimulatedAction::File(action) if is_write(action)),
        )
    };
    assert!(!has_begun(), "the window has one slot");
    let later = Instant::ZERO + Duration::from_millis(30);
    assert!(served.live.worker.turn(later).is_none());
    served.complete(is_write, Ok(512));
    assert_eq!(served.answers(0), [(write, Ok(()))]);
    served.complete(|action| matches!(action, FileAction::Sync { .. }), Ok(0));
    assert_eq!(served.answers(0), [(flush, Ok(()))]);
    assert!(served.live.is_at_rest());
    NOW.set(None);
}

/// The last block is changed in part, and the next change of it waits. Meanwhile the volume is seen to have shrunk: the
/// next one would make it as long as before.
#[test]
fn changes_beyond_the_end_of_a_volume_that_shrinks_while_they_wait_fail() {
    let mut served = ServedClients::new(1);
    let end = served.live.geometry().size as usize;
    let write = |served: &mut ServedClients, at: usize| {
        served.ask_at(end - at, 0, NbdCommand::Write, CommandFlags::NONE, &[1; 100])
    };
    let first = write(&mut served, 512);
    let waiting = [400, 300, 200].map(|at| write(&mut served, at));
    let (_, export) = served.live.worker.exports.iter().next().unwrap();
    let ExportVolume::File(file) = &export.volume else { unreachable!("a disk is a file") };
    file.file().ends_at(end as u64 - 4096);
    served.complete(|action| matches!(action, FileAction::Read { .. }), Ok(512));
    assert_eq!(served.answers(0), []);
    served.complete(is_write, Ok(512));
    let mut expected = vec![(first, Ok(()))];
    expected.extend(waiting.map(|cookie| (cookie, Err(Errno::Io))));
    let mut answers = served.answers(0);
    answers.sort_by_key(|(cookie, _)| *cookie);
    assert_eq!(answers, expected);
    assert!(served.live.is_at_rest());
    NOW.set(None);
}
