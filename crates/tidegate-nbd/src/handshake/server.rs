//! The server's side of the handshake.

use thiserror::Error;

use super::{
    FIXED_NEWSTYLE, MAX_DATA, NBD_MAGIC, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, Opened, Output, ZEROES,
    info, option, reply,
};
use crate::allocation::{ALLOCATION_CONTEXT, ALLOCATION_NAME};
use crate::export::{ExportDescription, ExportName, ExportNameError, MAX_STRING};
use crate::input::{MessageCollector, MessageFields, skip};
use crate::terms::SessionTerms;
use crate::transmission::MessageStyle;

/// Options per handshake. `qemu-nbd --list` asks two per export, so that this is enough for thousands of
/// exports; the deadline that the caller puts on the handshake is the tighter bound for a client that
/// dawdles.
const MAX_OPTIONS: u32 = 8192;

/// An option longer than the kept input is dropped and refused; one longer than this ends the handshake.
const MAX_SKIPPED: u32 = 1 << 20;

/// With this much output waiting, input is left alone.
const OUTPUT_HIGH_WATER: usize = 64 << 10;

/// A question of the server to its caller, or a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// The client names an export: [`ServerHandshake::answer`] is expected.
    ExportWanted {
        /// The name; empty for the default export.
        name: ExportName,
        /// `true`: to open it; `false`: only to learn about it.
        open: bool,
    },
    /// The client wants to know the exports: [`ServerHandshake::answer_list`] is expected.
    ListWanted,
    /// The client wants TLS: send the output, shake hands by TLS, and call [`ServerHandshake::secured`]. What
    /// arrived in plain text must not be fed any more.
    TlsWanted,
    /// The handshake is over, transmission begins: send the output, then the rest of the input is requests.
    Opened(Opened),
    /// The client said goodbye: send the output, then close.
    Aborted,
}

/// The caller's answer to [`ServerEvent::ExportWanted`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportAnswer {
    /// Here it is. The flags may include [`TransmissionFlags::SEND_DF`]: it is told only to clients whose
    /// replies consist of chunks. [`TransmissionFlags::HAS_FLAGS`] is added, and
    /// [`TransmissionFlags::BLOCK_STATUS_PAYLOAD`] where it has a meaning.
    Found(ExportDescription),
    /// There is no such export.
    Unknown,
    /// There is one, and it cannot be used now: nothing is known of it, not even its size.
    Unavailable,
    /// There is, but no room for another session now.
    AtCapacity,
    /// There is, but this client may not use it.
    Forbidden,
    /// There is, but only for clients that speak by TLS, which this one does not do yet.
    TlsRequired,
    /// The server is about to end.
    ShuttingDown,
}

/// The reasons why a handshake cannot go on. Send the output, then close the connection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerError {
    /// The client's flags include some that were not offered: the specification demands to close.
    #[error("the client sets unknown handshake flags {0:#010x}")]
    UnknownFlags(u32),
    /// The bytes at the place of an option are not an option.
    #[error("an option begins with IHAVEOPT, not with {0:#018x}")]
    BadMagic(u64),
    /// An option is so long that waiting for its end would be of no use.
    #[error("option {option} has {length} bytes of data, more than {MAX_SKIPPED}")]
    OptionTooLong {
        /// The option's number.
        option: u32,
        /// Its announced length in bytes.
        length: u32,
    },
    /// The client keeps asking.
    #[error("the client sent more than {MAX_OPTIONS} options")]
    TooManyOptions,
    /// `EXPORT_NAME` carries no valid name; that option has no error reply.
    #[error("the client asks for an export by an invalid name: {0}")]
    InvalidName(#[from] ExportNameError),
    /// The export cannot be had, and was asked for by `EXPORT_NAME`, which has no error reply.
    #[error("the client asks for export `{0}`, which it cannot have now")]
    Refused(ExportName),
    /// TLS is required, and an export was asked for by `EXPORT_NAME`, which has no error reply.
    #[error("the client asks for an export in plain text, and TLS is required")]
    Insecure,
    /// An export was asked for by `EXPORT_NAME` after extended headers were agreed on. The specification
    /// forbids that, and the option has no error reply.
    #[error("the client asks for an export by EXPORT_NAME, which extended headers exclude")]
    ExtendedExportName,
    /// Bytes follow `STARTTLS` before it was answered. They came in plain text, and could be taken for what
    /// comes by TLS.
    #[error("the client sends plain text behind its request for TLS")]
    PlainTextBehindStartTls,
}

/// The use of TLS in a handshake: the modes of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// NOTLS: `STARTTLS` is an unknown option.
    #[default]
    Off,
    /// SELECTIVETLS: a client may ask for TLS. Which exports need it is the caller's to say
    /// ([`ExportAnswer::TlsRequired`]).
    Offered,
    /// FORCEDTLS: without TLS a client can ask for TLS or say goodbye, and nothing else.
    Required,
}

#[derive(Debug)]
enum ServerState {
    /// Waiting for the client's flags.
    Flags,
    /// Waiting for the head of an option.
    Header,
    /// Collecting the data of an option that has a use for it.
    Data { option: u32, length: u32 },
    /// Dropping the data of an option, to reply to it afterwards.
    Skipping { option: u32, remaining: u64, verdict: Verdict },
    /// Waiting for [`ServerHandshake::answer`].
    AwaitingExport(Wanted),
    /// Waiting for the same, about an export whose metadata contexts are asked for.
    AwaitingContexts(WantedContexts),
    /// Waiting for [`ServerHandshake::answer_list`].
    AwaitingList,
    /// Waiting for [`ServerHandshake::secured`].
    AwaitingTls,
    /// Everything is said.
    Over(ServerEvent),
    /// The handshake failed.
    Failed(ServerError),
}

/// The reaction to an option whose data does not matter.
#[derive(Debug, Clone, Copy)]
enum Verdict {
    Refuse(u32, &'static str),
    Abort,
    List,
    StartTls,
    Style(MessageStyle),
}

/// The export that an option names, and how the reply is to be made.
#[derive(Debug, Clone)]
struct Wanted {
    option: u32,
    name: ExportName,
    name_requested: bool,
    description_requested: bool,
    hears_shutdown: bool,
}

/// The metadata contexts that an option asks for.
#[derive(Debug, Clone)]
struct WantedContexts {
    option: u32,
    export: ExportName,
    /// The one context that there is, is among them.
    allocation: bool,
}

/// The server's side of a handshake.
///
/// In a loop: send [`ServerHandshake::output`] and say so by [`ServerHandshake::sent`]; call
/// [`ServerHandshake::receive`] with what has arrived, and drop what it took. A question
/// ([`ServerEvent::ExportWanted`], [`ServerEvent::ListWanted`]) must be answered before anything else is
/// taken; until then `receive` repeats it.
///
/// It holds at most 64 KiB of input. Output grows by the reply to one list, or 64 KiB and a little: with more
/// than that waiting, `receive` takes nothing.
#[derive(Debug)]
pub struct ServerHandshake {
    state: ServerState,
    input: MessageCollector,
    output: Output,
    options: u32,
    no_zeroes: bool,
    /// The richest style that is spoken.
    richest: MessageStyle,
    style: MessageStyle,
    /// The export for which the metadata context `base:allocation` is selected.
    allocation: Option<ExportName>,
    tls: TlsMode,
    /// TLS is in use.
    secured: bool,
    /// Options that were refused because it is not.
    insecure_options: u32,
}

impl Default for ServerHandshake {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerHandshake {
    /// A handshake at its beginning, without TLS; the greeting is in the output.
    #[must_use]
    pub fn new() -> Self {
        Self::with_tls(TlsMode::Off)
    }

    /// The same, with this use of TLS.
    #[must_use]
    pub fn with_tls(tls: TlsMode) -> Self {
        let mut output = Output::default();
        output
            .put(&NBD_MAGIC.to_be_bytes())
            .put(&OPTION_MAGIC.to_be_bytes())
            .put(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        Self {
            state: ServerState::Flags,
            input: MessageCollector::default(),
            output,
            options: 0,
            no_zeroes: false,
            richest: MessageStyle::Extended,
            style: MessageStyle::Simple,
            allocation: None,
            tls,
            secured: false,
            insecure_options: 0,
        }
    }

    /// Speaks styles up to this one; options for others are unknown, as they are to older servers.
    #[must_use]
    pub fn up_to(mut self, richest: MessageStyle) -> Self {
        self.richest = richest;
        self
    }

    /// Returns the bytes to be sent.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output.bytes
    }

    /// `count` bytes of the output have been sent.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
    }

    /// Takes bytes from the client: says how many it took, and what happened. Without an event it took
    /// everything, or there is output to be sent first.
    ///
    /// # Errors
    /// When the handshake cannot go on; every further call says the same.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<ServerEvent>), ServerError> {
        let mut rest = bytes;
        let outcome = self.advance(&mut rest);
        if let Err(error) = &outcome {
            self.state = ServerState::Failed(error.clone());
        }
        Ok((bytes.len() - rest.len(), outcome?))
    }

    /// Answers [`ServerEvent::ExportWanted`]; without effect when that was not asked. What comes of it is the
    /// business of the next [`ServerHandshake::receive`], which may be called without new bytes.
    pub fn answer(&mut self, answer: ExportAnswer) {
        let option = match &self.state {
            ServerState::AwaitingExport(wanted) => wanted.option,
            ServerState::AwaitingContexts(wanted) => wanted.option,
            _ => return,
        };
        self.state = match (answer, std::mem::replace(&mut self.state, ServerState::Header)) {
            (ExportAnswer::Found(export), ServerState::AwaitingExport(wanted)) => match option {
                option::EXPORT_NAME => self.open_by_name(wanted, &export),
                _ => self.inform(wanted, &export),
            },
            (ExportAnswer::Found(_), ServerState::AwaitingContexts(wanted)) => self.tell_contexts(wanted),
            (_, ServerState::AwaitingExport(wanted)) if option == option::EXPORT_NAME => {
                ServerState::Failed(ServerError::Refused(wanted.name))
            }
            (refused, _) => {
                let (error, message) = refusal(&refused);
                self.refuse(option, error, message);
                ServerState::Header
            }
        };
    }

    /// Answers [`ServerEvent::ListWanted`] with names and descriptions (`""` for none); without effect when
    /// that was not asked.
    pub fn answer_list<'a>(&mut self, exports: impl IntoIterator<Item = (&'a ExportName, &'a str)>) {
        if !matches!(self.state, ServerState::AwaitingList) {
            return;
        }
        for (name, description) in exports {
            let name = name.as_str().as_bytes();
            let description = sendable(description);
            self.reply(
                option::LIST,
                reply::SERVER,
                &[&(name.len() as u32).to_be_bytes(), name, description.as_bytes()],
            );
        }
        self.reply(option::LIST, reply::ACK, &[]);
        self.state = ServerState::Header;
    }

    /// Answers [`ServerEvent::TlsWanted`]: from here on everything is sent and received by TLS. Without
    /// effect when that was not asked. What the client had chosen in plain text is forgotten: another may
    /// have chosen it.
    pub fn secured(&mut self) {
        if matches!(self.state, ServerState::AwaitingTls) {
            self.secured = true;
            self.style = MessageStyle::Simple;
            self.allocation = None;
            self.state = ServerState::Header;
        }
    }

    /// Returns the number of options that were refused because TLS is required.
    #[must_use]
    pub fn refused_without_tls(&self) -> u32 {
        self.insecure_options
    }

    /// Returns the number of bytes of input kept.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        self.input.held()
    }

    fn advance(&mut self, rest: &mut &[u8]) -> Result<Option<ServerEvent>, ServerError> {
        while self.output.bytes.len() < OUTPUT_HIGH_WATER {
            match &mut self.state {
                ServerState::Flags => {
                    let Some(flags) = self.input.take(rest) else { return Ok(None) };
                    let flags = u32::from_be_bytes(flags);
                    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
                        return Err(ServerError::UnknownFlags(flags));
                    }
                    self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
                    self.state = ServerState::Header;
                }
                ServerState::Header => {
                    let Some(header) = self.input.take::<16>(rest) else { return Ok(None) };
                    self.state = self.begin_option(header)?;
                }
                ServerState::Data { option, length } => {
                    let (option, length) = (*option, *length as usize);
                    let Some(data) = self.input.take_vec(rest, length) else { return Ok(None) };
                    self.state = self.understand(option, &data)?;
                }
                ServerState::Skipping { option, remaining, verdict } => {
                    if !skip(rest, remaining) {
                        return Ok(None);
                    }
                    let (option, verdict) = (*option, *verdict);
                    if matches!(verdict, Verdict::StartTls) && !rest.is_empty() {
                        return Err(ServerError::PlainTextBehindStartTls);
                    }
                    self.state = self.conclude(option, verdict);
                }
                ServerState::AwaitingExport(wanted) => {
                    return Ok(Some(ServerEvent::ExportWanted {
                        name: wanted.name.clone(),
                        open: wanted.option != option::INFO,
                    }));
                }
                ServerState::AwaitingContexts(wanted) => {
                    return Ok(Some(ServerEvent::ExportWanted { name: wanted.export.clone(), open: false }));
                }
                ServerState::AwaitingList => return Ok(Some(ServerEvent::ListWanted)),
                ServerState::AwaitingTls => return Ok(Some(ServerEvent::TlsWanted)),
                ServerState::Over(event) => return Ok(Some(event.clone())),
                ServerState::Failed(error) => return Err(error.clone()),
            }
        }
        Ok(None)
    }

    fn begin_option(&mut self, header: [u8; 16]) -> Result<ServerState, ServerError> {
        let [m0, m1, m2, m3, m4, m5, m6, m7, o0, o1, o2, o3, l0, l1, l2, l3] = header;
        let magic = u64::from_be_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
        let option = u32::from_be_bytes([o0, o1, o2, o3]);
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        if magic != OPTION_MAGIC {
            return Err(ServerError::BadMagic(magic));
        }
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return Err(ServerError::TooManyOptions);
        }
        if length > MAX_SKIPPED {
            return Err(ServerError::OptionTooLong { option, length });
        }
        let verdict = match option {
            option::STARTTLS => self.judge_start_tls(length),
            option::EXPORT_NAME if self.needs_tls() => return Err(ServerError::Insecure),
            option if option != option::ABORT && self.needs_tls() => {
                self.insecure_options += 1;
                Verdict::Refuse(reply::ERR_TLS_REQD, "TLS is required")
            }
            option::EXPORT_NAME if self.style == MessageStyle::Extended => {
                return Err(ServerError::ExtendedExportName);
            }
            option::EXPORT_NAME if length as usize > MAX_STRING => {
                return Err(ExportNameError::TooLong(length as usize).into());
            }
            option::EXPORT_NAME => return Ok(ServerState::Data { option, length }),
            option::INFO | option::GO if length <= MAX_DATA => {
                return Ok(ServerState::Data { option, length });
            }
            option::INFO | option::GO => Verdict::Refuse(reply::ERR_TOO_BIG, "too much data"),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT if self.richest.has_chunks() => {
                if option == option::SET_META_CONTEXT {
                    // It replaces what was selected before, also when it fails.
                    self.allocation = None;
                }
                if !self.style.has_chunks() {
                    Verdict::Refuse(reply::ERR_INVALID, "structured replies or extended headers come first")
                } else if length > MAX_DATA {
                    Verdict::Refuse(reply::ERR_TOO_BIG, "too much data")
                } else {
                    return Ok(ServerState::Data { option, length });
                }
            }
            // The specification lets ABORT carry data, and tells servers to ignore it.
            option::ABORT => Verdict::Abort,
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS if length != 0 => {
                Verdict::Refuse(reply::ERR_INVALID, "this option carries no data")
            }
            option::LIST => Verdict::List,
            option::STRUCTURED_REPLY if self.style == MessageStyle::Extended => {
                Verdict::Refuse(reply::ERR_EXT_HEADER_REQD, "extended headers are in use already")
            }
            option::STRUCTURED_REPLY if self.richest.has_chunks() => Verdict::Style(MessageStyle::Structured),
            option::EXTENDED_HEADERS if self.richest == MessageStyle::Extended => {
                Verdict::Style(MessageStyle::Extended)
            }
            _ => Verdict::Refuse(reply::ERR_UNSUP, "this option is not supported"),
        };
        Ok(ServerState::Skipping { option, remaining: u64::from(length), verdict })
    }

    fn needs_tls(&self) -> bool {
        self.tls == TlsMode::Required && !self.secured
    }

    fn judge_start_tls(&self, length: u32) -> Verdict {
        match self.tls {
            TlsMode::Off => Verdict::Refuse(reply::ERR_UNSUP, "TLS is not configured here"),
            _ if self.secured => Verdict::Refuse(reply::ERR_INVALID, "TLS is in use already"),
            _ if length != 0 => Verdict::Refuse(reply::ERR_INVALID, "this option carries no data"),
            TlsMode::Offered | TlsMode::Required => Verdict::StartTls,
        }
    }

    fn conclude(&mut self, option: u32, verdict: Verdict) -> ServerState {
        match verdict {
            Verdict::Refuse(error, message) => {
                self.refuse(option, error, message);
                ServerState::Header
            }
            Verdict::Abort => {
                self.reply(option, reply::ACK, &[]);
                ServerState::Over(ServerEvent::Aborted)
            }
            Verdict::List => ServerState::AwaitingList,
            Verdict::StartTls => {
                self.reply(option, reply::ACK, &[]);
                ServerState::AwaitingTls
            }
            Verdict::Style(style) => {
                self.style = style;
                self.reply(option, reply::ACK, &[]);
                ServerState::Header
            }
        }
    }

    /// Reads the data of an option that names an export.
    fn understand(&mut self, option: u32, data: &[u8]) -> Result<ServerState, ServerError> {
        if option == option::EXPORT_NAME {
            let name = ExportName::from_wire(data)?;
            return Ok(ServerState::AwaitingExport(Wanted {
                option,
                name,
                name_requested: false,
                description_requested: false,
                hears_shutdown: false,
            }));
        }
        if matches!(option, option::LIST_META_CONTEXT | option::SET_META_CONTEXT) {
            return Ok(match parse_contexts(option, data) {
                Ok(wanted) => ServerState::AwaitingContexts(wanted),
                Err(complaint) => {
                    self.refuse(option, reply::ERR_INVALID, complaint);
                    ServerState::Header
                }
            });
        }
        Ok(match parse_query(option, data) {
            Ok(wanted) => ServerState::AwaitingExport(wanted),
            Err(complaint) => {
                self.refuse(option, reply::ERR_INVALID, complaint);
                ServerState::Header
            }
        })
    }

    /// Tells the metadata contexts that were asked for, and notes the selected ones.
    fn tell_contexts(&mut self, wanted: WantedContexts) -> ServerState {
        let WantedContexts { option, export, allocation } = wanted;
        let selects = option == option::SET_META_CONTEXT;
        if allocation {
            // The ids of a list mean nothing.
            let id = if selects { ALLOCATION_CONTEXT } else { 0 };
            self.reply(option, reply::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION_NAME.as_bytes()]);
        }
        if selects {
            self.allocation = allocation.then_some(export);
        }
        self.reply(option, reply::ACK, &[]);
        ServerState::Header
    }

    fn opened(&self, name: ExportName, export: &ExportDescription) -> Opened {
        let allocation = (self.allocation.as_ref() == Some(&name)).then_some(ALLOCATION_CONTEXT);
        Opened { name, terms: SessionTerms::told(export.geometry, self.style, allocation) }
    }

    fn open_by_name(&mut self, wanted: Wanted, export: &ExportDescription) -> ServerState {
        let opened = self.opened(wanted.name, export);
        let geometry = opened.terms.geometry;
        self.output.put(&geometry.size.to_be_bytes()).put(&geometry.flags.bits().to_be_bytes());
        if !self.no_zeroes {
            self.output.put(&[0; ZEROES]);
        }
        ServerState::Over(ServerEvent::Opened(opened))
    }

    /// Replies to `INFO` or `GO`. The size constraints are told without being asked for, too: a client that
    /// does not know them ignores them, and one that does meets no surprise.
    fn inform(&mut self, wanted: Wanted, export: &ExportDescription) -> ServerState {
        let Wanted { option, name, name_requested, description_requested, hears_shutdown } = wanted;
        let mut opened = self.opened(name, export);
        opened.terms.hears_shutdown = hears_shutdown;
        let geometry = opened.terms.geometry;
        self.info(
            option,
            info::EXPORT,
            &[&geometry.size.to_be_bytes(), &geometry.flags.bits().to_be_bytes()],
        );
        let blocks = geometry.blocks;
        self.info(
            option,
            info::BLOCK_SIZE,
            &[
                &blocks.minimum().to_be_bytes(),
                &blocks.preferred().to_be_bytes(),
                &blocks.maximum().to_be_bytes(),
            ],
        );
        if name_requested {
            self.info(option, info::NAME, &[opened.name.as_str().as_bytes()]);
        }
        if description_requested && !export.description.is_empty() {
            self.info(option, info::DESCRIPTION, &[sendable(&export.description).as_bytes()]);
        }
        self.reply(option, reply::ACK, &[]);
        match option {
            option::GO => ServerState::Over(ServerEvent::Opened(opened)),
            _ => ServerState::Header,
        }
    }

    fn info(&mut self, option: u32, kind: u16, parts: &[&[u8]]) {
        let mut all: Vec<&[u8]> = Vec::with_capacity(parts.len() + 1);
        let kind = kind.to_be_bytes();
        all.push(&kind);
        all.extend_from_slice(parts);
        self.reply(option, reply::INFO, &all);
    }

    fn refuse(&mut self, option: u32, error: u32, message: &'static str) {
        self.reply(option, error, &[message.as_bytes()]);
    }

    fn reply(&mut self, option: u32, kind: u32, parts: &[&[u8]]) {
        // Every part is a number or a string of at most 4096 bytes: the sum is far from overflowing.
        let length = parts.iter().map(|part| part.len() as u32).sum::<u32>();
        self.output
            .put(&OPTION_REPLY_MAGIC.to_be_bytes())
            .put(&option.to_be_bytes())
            .put(&kind.to_be_bytes())
            .put(&length.to_be_bytes());
        for part in parts {
            self.output.put(part);
        }
    }
}

/// Returns the reply that refuses an export, and its message.
fn refusal(answer: &ExportAnswer) -> (u32, &'static str) {
    match answer {
        ExportAnswer::Found(_) | ExportAnswer::Unknown => (reply::ERR_UNKNOWN, "no such export"),
        ExportAnswer::Unavailable => {
            (reply::ERR_UNKNOWN, "the export's storage is not reached; try again later")
        }
        ExportAnswer::AtCapacity => (reply::ERR_POLICY, "too many sessions; try again later"),
        ExportAnswer::Forbidden => (reply::ERR_POLICY, "access denied"),
        ExportAnswer::TlsRequired => (reply::ERR_TLS_REQD, "this export needs TLS"),
        ExportAnswer::ShuttingDown => (reply::ERR_SHUTDOWN, "the server is shutting down"),
    }
}

const TRUNCATED: &str = "the data ends early";

/// Reads the name of an export, which begins the data of several options.
fn parse_name(fields: &mut MessageFields<'_>) -> Result<ExportName, &'static str> {
    let length = fields.u32().ok_or(TRUNCATED)?;
    let name = fields.bytes(length as usize).ok_or(TRUNCATED)?;
    ExportName::from_wire(name).map_err(|_| "an export name is at most 4096 bytes of UTF-8 without NUL")
}

/// Reads the data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`. Queries for contexts that there are not, in
/// whatever namespace, are ignored.
fn parse_contexts(option: u32, data: &[u8]) -> Result<WantedContexts, &'static str> {
    let mut fields = MessageFields(data);
    let export = parse_name(&mut fields)?;
    let lists = option == option::LIST_META_CONTEXT;
    let queries = fields.u32().ok_or(TRUNCATED)?;
    let mut allocation = lists && queries == 0;
    for _ in 0..queries {
        let length = fields.u32().ok_or(TRUNCATED)? as usize;
        if length > MAX_STRING {
            return Err("a query is at most 4096 bytes long");
        }
        let query = fields.bytes(length).ok_or(TRUNCATED)?;
        // In a list `base:` stands for everything in its namespace.
        allocation |= query == ALLOCATION_NAME.as_bytes() || (lists && query == b"base:");
    }
    if !fields.0.is_empty() {
        return Err("bytes are left over after the list of queries");
    }
    Ok(WantedContexts { option, export, allocation })
}

/// Reads the data of `INFO` and `GO`.
fn parse_query(option: u32, data: &[u8]) -> Result<Wanted, &'static str> {
    let mut fields = MessageFields(data);
    let name = parse_name(&mut fields)?;
    let mut wanted =
        Wanted { option, name, name_requested: false, description_requested: false, hears_shutdown: false };
    for _ in 0..fields.u16().ok_or(TRUNCATED)? {
        match fields.u16().ok_or(TRUNCATED)? {
            info::NAME => wanted.name_requested = true,
            info::DESCRIPTION => wanted.description_requested = true,
            info::HEARS_SHUTDOWN => wanted.hears_shutdown = true,
            // Export and block sizes are told anyway; what is unknown must be ignored.
            _ => {}
        }
    }
    if fields.0.is_empty() { Ok(wanted) } else { Err("bytes are left over after the list of requests") }
}

/// Returns the beginning of a description, as long as one string of the protocol may be.
fn sendable(description: &str) -> &str {
    &description[..description.floor_char_boundary(MAX_STRING)]
}
