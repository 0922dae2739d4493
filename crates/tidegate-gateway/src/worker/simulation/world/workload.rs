//! The clients of the world: they connect, ask, and judge what they hear.

use std::ops::Range;
use std::time::Duration;

use tidegate_nbd::transmission::{NbdCommand, ReadCoverage};
use tidegate_nbd::{CommandFlags, Errno, TransmissionFlags};

use super::{Broken, SOCKET, SimulatedWorld, WorldEvent};
use crate::worker::simulation::client::{
    ClientConnection, ClientReceived, ClientWork, FinishedRequest, NewRequest,
};
use crate::worker::simulation::model::{NewWrite, Ordinal, fill};

impl SimulatedWorld {
    pub(super) fn wake_client(&mut self, client: usize) {
        if !std::mem::replace(&mut self.clients[client].scheduled, true) {
            self.schedule_soon(WorldEvent::Client(client));
        }
    }

    pub(super) fn client(&mut self, client: usize) -> Result<(), Broken> {
        self.clients[client].scheduled = false;
        if self.clients[client].session.is_none() {
            if self.connecting {
                self.open_client(client);
                self.wake_client(client);
            }
            return Ok(());
        }
        let most = if self.dice.hits(200) { self.dice.between(1, 200) as usize } else { SOCKET };
        let mut finished = Vec::new();
        let Some(session) = &mut self.clients[client].session else { return Ok(()) };
        let received = session.receive(most, &mut finished)?;
        for finished in finished {
            self.conclude(client, finished)?;
        }
        let hangs_up = self.faulty && self.dice.hits(self.rates.disconnect);
        if received == ClientReceived::Closed || hangs_up {
            self.close_client(client, received == ClientReceived::Closed)?;
            if self.quota > 0 {
                self.wake_client(client);
            }
            return Ok(());
        }
        let depth = self.clients[client].depth;
        let pending = self.clients[client].session.as_ref().map_or(0, |session| session.pending.len());
        let leaving = self.clients[client].session.as_ref().is_some_and(|session| session.leaving);
        if self.quota > 0 && !leaving && pending < depth && self.dice.hits(700) {
            self.quota -= 1;
            self.make_request(client);
        }
        let leaves = self.faulty && !leaving && self.dice.hits(2);
        let most = if self.dice.hits(200) { self.dice.between(1, 200) as usize } else { SOCKET / 2 };
        if let Some(session) = &mut self.clients[client].session {
            // Clients differ in their way to leave.
            match client % 2 {
                _ if !leaves => {}
                0 => session.say_goodbye(),
                _ => session.close_sending(),
            }
            session.send(most);
            if self.quota > 0 && self.faulty && self.dice.hits(10) {
                self.lull(client);
            } else if self.quota > 0 {
                self.wake_client(client);
            }
        }
        Ok(())
    }

    /// Lets a client do nothing for a time in which outages come and go, and a late write is carried out.
    fn lull(&mut self, client: usize) {
        let millis =
            if self.dice.hits(500) { self.dice.between(500, 12_000) } else { self.dice.between(1, 50) };
        self.clients[client].scheduled = true;
        self.schedule(Duration::from_millis(millis), WorldEvent::Client(client));
    }

    pub(super) fn open_client(&mut self, client: usize) {
        let server = self.clients[client].gateway;
        if let Some((socket, terms)) = self.connect(None, server) {
            let front = (server as u64) << 32 | self.places[server].life;
            let opened = self.model.tick();
            self.clients[client].session = Some(ClientConnection::new(socket, terms, front, opened));
            self.log(format_args!("client {client} connects to gateway {server}, {:?}", terms.style));
        }
    }

    pub(super) fn close_client(&mut self, client: usize, closed: bool) -> Result<(), Broken> {
        let Some(session) = self.clients[client].session.take() else { return Ok(()) };
        session.hang_up();
        let left = session.pending.len();
        self.log(format_args!("client {client}: closed {closed}, {left} requests open"));
        if closed && self.undisturbed && !(session.leaving && left == 0) {
            return Err(format!("the gateway ends client {client}'s connection without a cause"));
        }
        Ok(())
    }

    pub(super) fn make_request(&mut self, client: usize) {
        let cells = self.disk.size() / self.cell;
        let longest = match self.dice.below(10) {
            0..6 => 4,
            6..9 => 40,
            _ => cells,
        };
        let length = self.dice.between(1, longest.min(cells) as u64) as usize;
        let room = cells - length;
        let hot = if self.dice.hits(600) { room.min(12) } else { room };
        let first = self.dice.between(0, hot as u64) as usize;
        let range = self.as_allowed(client, first..first + length);
        let flags = if self.dice.hits(250) { CommandFlags::FUA } else { CommandFlags::NONE };
        let zeroing =
            [CommandFlags::NONE, CommandFlags::NO_HOLE, CommandFlags::FAST_ZERO][self.dice.below(3)];
        match self.dice.below(100) {
            0..28 => self.read(client, range),
            28..73 => self.change(client, NbdCommand::Write, range, flags),
            73..82 => self.change(client, NbdCommand::WriteZeroes, range, flags.with(zeroing)),
            82..86 => self.change(client, NbdCommand::Trim, range, flags),
            86..88 => self.cache(client, range),
            _ => self.flush(client),
        }
    }

    /// Returns the least range around these cells that the client may ask for.
    fn as_allowed(&self, client: usize, cells: Range<usize>) -> Range<usize> {
        let session = self.clients[client].session.as_ref();
        let Some(blocks) = session.map(|session| session.terms.geometry.blocks) else { return cells };
        let unit = if blocks.serves_parts() { 1 } else { (blocks.minimum() as usize).div_ceil(self.cell) };
        cells.start / unit * unit..cells.end.next_multiple_of(unit)
    }

    pub(super) fn cache(&mut self, client: usize, cells: Range<usize>) {
        let Some(session) = &self.clients[client].session else { return };
        if !session.terms.geometry.flags.contains(TransmissionFlags::SEND_CACHE) {
            return self.read(client, cells);
        }
        let (offset, length) = (cells.start * self.cell, cells.len() * self.cell);
        let issued = self.model.tick();
        let (command, flags) = (NbdCommand::Cache, CommandFlags::NONE);
        let new = NewRequest { command, flags, offset, length, payload: &[] };
        self.ask(client, new, ClientWork::Cache, issued);
    }

    pub(super) fn read(&mut self, client: usize, cells: Range<usize>) {
        let (offset, length) = (cells.start * self.cell, cells.len() * self.cell);
        let issued = self.model.tick();
        let work = ClientWork::Read { offset, bytes: vec![0; length], coverage: ReadCoverage::default() };
        let new =
            NewRequest { command: NbdCommand::Read, flags: CommandFlags::NONE, offset, length, payload: &[] };
        self.ask(client, new, work, issued);
    }

    pub(super) fn change(
        &mut self,
        client: usize,
        command: NbdCommand,
        cells: Range<usize>,
        flags: CommandFlags,
    ) {
        let (offset, length) = (cells.start * self.cell, cells.len() * self.cell);
        let mut payload = Vec::new();
        let mut value = 0;
        if command == NbdCommand::Write {
            self.values += 1;
            value = self.values;
            payload = vec![0; length];
            fill(&mut payload, value);
        }
        let Some(front) = self.clients[client].session.as_ref().map(|session| session.front) else { return };
        let is_advice = command == NbdCommand::Trim;
        let write = self.model.issue(NewWrite { cells: cells.clone(), value, front, is_advice });
        let issued = self.model.tick();
        let work = ClientWork::Change { write, cells, fua: flags.contains(CommandFlags::FUA) };
        self.ask(client, NewRequest { command, flags, offset, length, payload: &payload }, work, issued);
        if value > 0 {
            self.log(format_args!("    that is write {value}"));
        }
    }

    pub(super) fn flush(&mut self, client: usize) {
        let issued = self.model.tick();
        let new = NewRequest {
            command: NbdCommand::Flush,
            flags: CommandFlags::NONE,
            offset: 0,
            length: 0,
            payload: &[],
        };
        self.ask(client, new, ClientWork::Flush, issued);
    }

    pub(super) fn ask(&mut self, client: usize, new: NewRequest<'_>, work: ClientWork, issued: Ordinal) {
        let Some(session) = &mut self.clients[client].session else { return };
        let cookie = session.request(new, work, issued);
        let NewRequest { command, flags, offset, length, .. } = new;
        let (first, cells) = (offset / self.cell, length / self.cell);
        self.log(format_args!(
            "client {client} asks {cookie}: {command:?} of {cells} cells from {first}, {flags:?} [{issued}]"
        ));
    }

    /// Judges a reply.
    pub(super) fn conclude(&mut self, client: usize, finished: FinishedRequest) -> Result<(), Broken> {
        let FinishedRequest { cookie, request, result } = finished;
        let heard = self.model.tick();
        self.log(format_args!("client {client} hears of {cookie}: {result:?} [{heard}]"));
        let at_storage = self.clients[client].gateway == 0;
        let issued = request.issued;
        let forgotten = self.reported.is_some_and(|reported| reported < issued);
        let durable = match &request.work {
            ClientWork::Flush => true,
            ClientWork::Change { fua, .. } => *fua,
            ClientWork::Read { .. } | ClientWork::Cache => false,
        };
        if let Err(errno) = result
            && self.undisturbed
            && errno != Errno::NotSup
        {
            return Err(format!("client {client}'s request {cookie} fails without a cause: {errno}"));
        }
        if forgotten && durable && result.is_ok() {
            return Err(format!(
                "client {client}'s request {cookie} claims to be durable, although the disk has reported \
                 that it lost data"
            ));
        }
        match (request.work, result) {
            (ClientWork::Read { offset, bytes, .. }, Ok(())) => {
                self.read_failed = false;
                self.model.check_read(offset / self.cell, &bytes, issued)
            }
            (ClientWork::Read { .. }, Err(errno)) => {
                self.read_failed = true;
                match errno {
                    Errno::Io if !at_storage && self.rates.are_bridged() => Err(format!(
                        "client {client}'s read {cookie} fails, although its upstream was back soon"
                    )),
                    _ => Ok(()),
                }
            }
            (ClientWork::Change { write, cells, fua }, Ok(())) => {
                self.model.acknowledge(write, fua);
                if fua { self.model.check_durable(cells, self.disk.durable()) } else { Ok(()) }
            }
            (ClientWork::Change { write, .. }, Err(errno)) => {
                // In front of it, the storage may still carry it out.
                if at_storage || errno == Errno::NotSup {
                    self.model.refuse(write);
                }
                Ok(())
            }
            (ClientWork::Cache, _) => Ok(()),
            (ClientWork::Flush, result) => {
                let cells = 0..self.disk.size() / self.cell;
                let Some(session) = &mut self.clients[client].session else { return Ok(()) };
                if result.is_err() {
                    session.told = self.model.tick();
                    return Ok(());
                }
                self.model.flushed(issued, session.front, session.told);
                self.model.check_durable(cells, self.disk.durable())
            }
        }
    }
}
