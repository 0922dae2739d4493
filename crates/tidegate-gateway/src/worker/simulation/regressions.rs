//! Orders of events that once broke a rule, one step at a time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use tidegate_nbd::transmission::{MessageStyle, NbdCommand};
use tidegate_nbd::{CommandFlags, Errno, SessionTerms};
use tidegate_units::Instant;

use super::NOW;
use super::client::{ClientConnection, ClientWork, NewRequest};
use super::gateway::{GatewayRules, LiveGateway, SimulatedVolume};
use super::ring::SimulatedAction;
use crate::ring::{FileAction, LentMemory};

/// One gateway before a disk, past the cache, and one client.
struct OneClient {
    live: LiveGateway,
    client: ClientConnection,
    socket: Arc<OwnedFd>,
}

impl OneClient {
    fn new() -> Self {
        NOW.set(Some(Instant::ZERO));
        let rules = GatewayRules::new(32, 1, Duration::from_secs(30), Duration::from_secs(60));
        let volume = SimulatedVolume::Disk { size: 64 << 10, direct: Some(512) };
        let live = LiveGateway::start(&rules, volume, Instant::ZERO);
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let geometry = live.geometry();
        let terms = SessionTerms { geometry, style: MessageStyle::Simple, allocation: None };
        let socket = Arc::new(theirs);
        live.open(Arc::clone(&socket), terms, "client".into());
        let client = ClientConnection::new(Arc::new(ours), terms, 0, 0);
        Self { live, client, socket }
    }

    fn ask(&mut self, command: NbdCommand, flags: CommandFlags, payload: &[u8]) -> u64 {
        let new = NewRequest { command, flags, offset: 0, length: payload.len(), payload };
        let cookie = self.client.request(new, ClientWork::Flush, 0);
        self.client.send(usize::MAX);
        self.exchange();
        cookie
    }

    /// Lets the worker have its turns, until no byte moves any more.
    fn exchange(&mut self) {
        loop {
            self.live.worker.turn(Instant::ZERO);
            let ring = self.live.worker.ring.simulated();
            let mut moved = Vec::new();
            for (key, operation) in &mut ring.operations {
                let count = match (&operation.action, &mut operation.held) {
                    (SimulatedAction::Receive { part, .. }, LentMemory::Buffer(buffer)) => {
                        let place = &mut buffer[part.start..part.start + part.length];
                        recv(&self.socket, place, RecvFlags::DONTWAIT).map_or(0, |(_, count)| count)
                    }
                    (SimulatedAction::Send(bytes), _) => {
                        send(&self.socket, bytes, SendFlags::NOSIGNAL).unwrap()
                    }
                    _ => 0,
                };
                if count > 0 {
                    moved.push((key, count));
                }
            }
            if moved.is_empty() {
                return;
            }
            moved.into_iter().for_each(|(key, count)| ring.complete(key, Ok(count)));
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

    /// Returns the requests that were answered since the last call.
    fn answers(&mut self) -> Vec<(u64, Result<(), Errno>)> {
        let mut finished = Vec::new();
        self.client.receive(1 << 16, &mut finished).unwrap();
        finished.into_iter().map(|finished| (finished.cookie, finished.result)).collect()
    }
}

/// Both sync, and the kernel gives the report of lost data to one of them. The flush must not succeed before
/// the write is known not to have it.
#[test]
fn a_flush_beside_a_durable_write_that_takes_its_report_fails() {
    for report in [true, false] {
        let mut one = OneClient::new();
        let write = one.ask(NbdCommand::Write, CommandFlags::FUA, &[1; 512]);
        let flush = one.ask(NbdCommand::Flush, CommandFlags::NONE, &[]);
        one.complete(|action| matches!(action, FileAction::Sync { .. }), Ok(0));
        assert_eq!(one.answers(), [], "the write may have the report");
        let result = if report { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(512) };
        one.complete(|action| matches!(action, FileAction::Write { durable: true, .. }), result);
        let verdict = if report { Err(Errno::Io) } else { Ok(()) };
        let mut answers = one.answers();
        answers.sort_by_key(|(cookie, _)| *cookie);
        assert_eq!(answers, [(write, verdict), (flush, verdict)]);
        NOW.set(None);
    }
}
