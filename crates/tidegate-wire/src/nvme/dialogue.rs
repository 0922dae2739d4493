//! The dialogue of a host and a controller over NVMe/TCP. A connection is one queue.

use super::format::{CAPSULE, NvmeFormat, data_length, flag, is_connect, kind, number, short};
use crate::commands::{CommandEnd, CommandKind, CommandTable, CompletedCommand, LogicalUnit, SentCommand};
use crate::connection::{Dialogue, SessionNames, Towards, shown_name};
use crate::framing::{PduEvent, PduFormat};

/// The place of a command's submission queue entry behind a head that has its first part.
const ENTRY: usize = 8;

/// The connect of a queue, and what follows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NvmeDialogue {
    names: Option<SessionNames>,
    /// The names of a connect without a response so far, with its identifier.
    connecting: Option<(u16, SessionNames)>,
    /// True for the queue 0, whose commands move no data of namespaces.
    is_administrative: bool,
    has_commands: bool,
}

impl Dialogue for NvmeDialogue {
    type Terms = ();
    type Format = NvmeFormat;

    const FIRST: () = ();

    fn possible_terms() -> Vec<()> {
        vec![()]
    }

    fn format(towards: Towards, (): ()) -> NvmeFormat {
        NvmeFormat { towards }
    }

    fn terms(_: &NvmeFormat) {}

    fn request(&mut self, event: PduEvent<'_>, commands: &mut CommandTable) {
        match event {
            PduEvent::Head { .. } => {}
            // A command's kind and size are behind the head. It is there when its header is, with its data.
            PduEvent::End { head, kept, at } => match head[0] {
                kind::COMMAND if is_connect(head) => self.connect(head, kept),
                kind::COMMAND => self.command(head, kept, at, commands),
                kind::HOST_DATA => commands.data(short(head, 8).into(), at, data_length(head)),
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
        const SUCCEEDED: u8 = flag::LAST | flag::SUCCESS;
        let PduEvent::Head { head, at } = event else { return };
        let (tag, is_good) = match head[0] {
            kind::RESPONSE => (short(head, 20), short(head, 22) >> 1 == 0),
            // There is no response then: the data say that all is well.
            kind::CONTROLLER_DATA if head[1] & SUCCEEDED == SUCCEEDED => (short(head, 8), true),
            kind::CONTROLLER_TERMINATES => {
                commands.forget();
                return;
            }
            _ => return,
        };
        if let Some((_, names)) = self.connecting.take_if(|(connecting, _)| *connecting == tag)
            && is_good
        {
            self.names = Some(names);
        }
        commands.complete(tag.into(), CommandEnd { at, is_good, residual: 0 }, each);
    }

    fn take_terms(&mut self) -> Option<()> {
        None
    }

    fn names(&self) -> Option<&SessionNames> {
        self.names.as_ref()
    }

    fn recall(&mut self, names: SessionNames) {
        self.names.get_or_insert(names);
    }

    fn is_logged_in(&self) -> bool {
        self.has_commands || self.names.is_some()
    }
}

impl NvmeDialogue {
    /// Takes a connect (NVM Express Base Specification 2.0, section 6.3).
    fn connect(&mut self, head: &[u8], kept: &[u8]) {
        const QUEUE: usize = 42;
        const SUBSYSTEM: usize = 256;
        const HOST: usize = 512;
        const NAME: usize = 256;
        let entry = [&head[ENTRY..], kept].concat();
        let digest = if head[1] & flag::HEADER_DIGEST != 0 { 4 } else { 0 };
        let data = CAPSULE - NvmeFormat::HEAD + digest;
        let name = |at: usize| {
            let bytes = kept.get(data + at..data + at + NAME)?;
            let text = bytes.split(|byte| *byte == 0).next()?;
            std::str::from_utf8(text).ok().filter(|text| !text.is_empty()).map(shown_name)
        };
        if let (Some(target), Some(initiator), true) = (name(SUBSYSTEM), name(HOST), entry.len() > QUEUE + 1)
        {
            self.is_administrative = short(&entry, QUEUE) == 0;
            self.connecting = Some((short(head, 10), SessionNames { initiator, target }));
        }
    }

    /// Takes another command. Its scatter-gather list says how many bytes it moves.
    fn command(
        &mut self,
        head: &[u8],
        kept: &[u8],
        at: Option<tidegate_units::Instant>,
        commands: &mut CommandTable,
    ) {
        const FABRICS: u8 = 0x7f;
        const WRITE: u8 = 0x01;
        const READ: u8 = 0x02;
        const LENGTH: usize = 32;
        self.has_commands = true;
        let tag = u32::from(short(head, 10));
        // Without the time of its end it yields nothing.
        let (Some(at), false) = (at, self.is_administrative || head[8] == FABRICS) else {
            return commands.abort(tag);
        };
        let entry = [&head[ENTRY..], kept].concat();
        if entry.len() < LENGTH + 4 {
            return commands.abort(tag);
        }
        let kind = match head[8] {
            READ => Some(CommandKind::Read),
            WRITE => Some(CommandKind::Write),
            _ => None,
        };
        let unit = LogicalUnit::Namespace(number(&entry, 4));
        commands.send(tag, at, SentCommand { unit, kind, bytes: number(&entry, LENGTH) });
        commands.data(tag, Some(at), data_length(head));
    }
}
