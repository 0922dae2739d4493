//! The dialogue of an iSCSI initiator and a target.

use super::format::{Digests, IscsiFormat, data_length, number, opcode, request, response};
use super::login::LoginTexts;
use crate::commands::{CommandEnd, CommandKind, CommandTable, CompletedCommand, LogicalUnit, SentCommand};
use crate::connection::{Dialogue, SessionNames, Towards};
use crate::framing::PduEvent;

/// The login of a connection, and what follows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct IscsiDialogue {
    login: LoginTexts,
    names: Option<SessionNames>,
    /// Set for a moment when a login has ended.
    digests: Option<Digests>,
    is_logged_in: bool,
}

impl Dialogue for IscsiDialogue {
    type Terms = Digests;
    type Format = IscsiFormat;

    const FIRST: Digests = Digests { header: false, data: false };

    fn possible_terms() -> Vec<Digests> {
        let all = [(false, false), (true, true), (true, false), (false, true)];
        all.map(|(header, data)| Digests { header, data }).into()
    }

    fn format(towards: Towards, digests: Digests) -> IscsiFormat {
        IscsiFormat { towards, digests }
    }

    fn terms(format: &IscsiFormat) -> Digests {
        format.digests
    }

    fn request(&mut self, event: PduEvent<'_>, commands: &mut CommandTable) {
        match event {
            PduEvent::Head { head, at } => match opcode(head) {
                request::COMMAND => {
                    self.is_logged_in = true;
                    let (unit, kind) = (unit_of(head), kind_of(&head[32..]));
                    commands.send(tag_of(head), at, SentCommand { unit, kind, bytes: number(head, 20) });
                }
                request::TASK_MANAGEMENT => abort(head, commands),
                request::LOGOUT => _ = commands.forget(),
                _ => {}
            },
            PduEvent::End { head, kept, at } => match opcode(head) {
                request::COMMAND | request::DATA_OUT => commands.data(tag_of(head), at, data_length(head)),
                request::LOGIN => self.login.request(head, kept),
                _ => {}
            },
        }
    }

    fn response(
        &mut self,
        event: PduEvent<'_>,
        commands: &mut CommandTable,
        each: &mut impl FnMut(CompletedCommand),
    ) {
        const STATUS_IN_DATA: u8 = 0x01;
        const UNDERFLOW: u8 = 0x02;
        match event {
            PduEvent::Head { head, at } => {
                let is_data = opcode(head) == response::DATA_IN;
                let has_status =
                    opcode(head) == response::COMMAND || is_data && head[1] & STATUS_IN_DATA != 0;
                if has_status {
                    let is_good = (is_data || head[2] == 0) && head[3] == 0;
                    let residual = if head[1] & UNDERFLOW != 0 { number(head, 44) } else { 0 };
                    commands.complete(tag_of(head), CommandEnd { at, is_good, residual }, each);
                } else if opcode(head) == response::REJECT {
                    commands.forget();
                }
            }
            PduEvent::End { head, kept, .. } if opcode(head) == response::LOGIN => {
                if let Some(login) = self.login.response(head, kept) {
                    self.names = login.names;
                    self.digests = Some(login.digests);
                    self.is_logged_in = true;
                }
            }
            PduEvent::End { .. } => {}
        }
    }

    fn take_terms(&mut self) -> Option<Digests> {
        self.digests.take()
    }

    fn names(&self) -> Option<&SessionNames> {
        self.names.as_ref()
    }

    fn recall(&mut self, names: SessionNames) {
        self.names.get_or_insert(names);
    }

    fn is_logged_in(&self) -> bool {
        self.is_logged_in
    }
}

fn tag_of(head: &[u8]) -> u32 {
    number(head, 16)
}

fn unit_of(head: &[u8]) -> LogicalUnit {
    let mut unit = [0; 8];
    unit.copy_from_slice(&head[8..16]);
    LogicalUnit::Scsi(unit)
}

/// Forgets commands that a task management request ends.
fn abort(head: &[u8], commands: &mut CommandTable) {
    const ABORT_TASK: u8 = 1;
    const OF_A_LOGICAL_UNIT: [u8; 3] = [2, 3, 5];
    match head[1] & 0x7f {
        ABORT_TASK => commands.abort(number(head, 20)),
        function if OF_A_LOGICAL_UNIT.contains(&function) => commands.abort_unit(unit_of(head)),
        _ => _ = commands.forget(),
    }
}

/// Returns the kind of a command by its CDB (SBC-4).
fn kind_of(cdb: &[u8]) -> Option<CommandKind> {
    match cdb[0] {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(CommandKind::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(CommandKind::Write),
        // READ (32) and WRITE (32).
        0x7f => match [cdb[8], cdb[9]] {
            [0, 0x09] => Some(CommandKind::Read),
            [0, 0x0b | 0x0c] => Some(CommandKind::Write),
            _ => None,
        },
        _ => None,
    }
}
