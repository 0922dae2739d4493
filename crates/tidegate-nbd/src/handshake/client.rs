//! The client's side of the handshake.

use std::fmt;

use thiserror::Error;

use super::{
    FIXED_NEWSTYLE, MAX_DATA, NBD_MAGIC, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, Opened, Output, ZEROES,
    info, option, reply,
};
use crate::allocation::ALLOCATION_NAME;
use crate::export::{BlockSizes, BlockSizesError, ExportGeometry, ExportName};
use crate::flags::TransmissionFlags;
use crate::input::{MessageCollector, MessageFields};
use crate::terms::SessionTerms;
use crate::transmission::MessageStyle;

/// Replies to one option: exports in a list, or pieces of information.
const MAX_REPLIES: usize = 10_000;

/// Names and descriptions of one list, in bytes.
const MAX_LIST_BYTES: usize = 1 << 20;

/// The magic number of oldstyle negotiation, where a newstyle server says `IHAVEOPT`.
const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;

/// One export of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportListing {
    /// The name to ask for.
    pub name: ExportName,
    /// For people; often empty.
    pub description: String,
}

/// A report of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// Transmission begins; the rest of the input is replies.
    Opened(Opened),
    /// The server's exports. The goodbye is in the output: send it, then close.
    Listed(Vec<ExportListing>),
    /// The server is ready for TLS: shake hands by TLS, and call [`ClientHandshake::secured`]. What arrived
    /// in plain text must not be fed any more.
    TlsReady,
}

/// The grounds on which a server refused an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionRefusal {
    /// The server does not know the option.
    Unsupported,
    /// The server's policy forbids it.
    Policy,
    /// The server finds the option malformed.
    Invalid,
    /// The server's platform cannot do it.
    Platform,
    /// The server insists on TLS.
    TlsRequired,
    /// There is no such export.
    Unknown,
    /// The server is about to end.
    Shutdown,
    /// The server insists on telling its block sizes first.
    BlockSizeRequired,
    /// The option or its reply is too large.
    TooBig,
    /// The server insists on extended headers.
    ExtendedHeadersRequired,
    /// Something that the specification does not know.
    Other(u32),
}

impl OptionRefusal {
    fn from_code(code: u32) -> Self {
        match code {
            reply::ERR_UNSUP => Self::Unsupported,
            reply::ERR_POLICY => Self::Policy,
            reply::ERR_INVALID => Self::Invalid,
            reply::ERR_PLATFORM => Self::Platform,
            reply::ERR_TLS_REQD => Self::TlsRequired,
            reply::ERR_UNKNOWN => Self::Unknown,
            reply::ERR_SHUTDOWN => Self::Shutdown,
            reply::ERR_BLOCK_SIZE_REQD => Self::BlockSizeRequired,
            reply::ERR_TOO_BIG => Self::TooBig,
            reply::ERR_EXT_HEADER_REQD => Self::ExtendedHeadersRequired,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for OptionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "the option is not supported",
            Self::Policy => "forbidden by policy",
            Self::Invalid => "the option is invalid",
            Self::Platform => "not supported on the server's platform",
            Self::TlsRequired => "TLS is required",
            Self::Unknown => "no such export",
            Self::Shutdown => "the server is shutting down",
            Self::BlockSizeRequired => "block sizes must be negotiated",
            Self::TooBig => "too big",
            Self::ExtendedHeadersRequired => "extended headers are required",
            Self::Other(code) => return write!(f, "error {code:#010x}"),
        })
    }
}

/// The reasons why a handshake failed. Send the output (it may hold a goodbye), then close the connection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The server that answers is no NBD server.
    #[error("this is not an NBD server: it greets with {0:#018x}")]
    NotNbd(u64),
    /// The server speaks the abandoned oldstyle negotiation.
    #[error("the server speaks oldstyle negotiation only")]
    Oldstyle,
    /// A list was wanted from a server without fixed newstyle, which cannot have one.
    #[error("the server cannot list its exports")]
    CannotList,
    /// The server says no.
    #[error("the server refuses: {}", said(.refusal, .message))]
    Refused {
        /// The grounds.
        refusal: OptionRefusal,
        /// The server's own words; often empty.
        message: String,
    },
    /// TLS is wanted, and the server will not or cannot have it.
    #[error("the server does not offer TLS: {}", said(.refusal, .message))]
    NoTls {
        /// The grounds.
        refusal: OptionRefusal,
        /// The server's own words; often empty.
        message: String,
    },
    /// TLS is wanted from a server without fixed newstyle, which cannot have it.
    #[error("the server is too old to offer TLS")]
    TooOldForTls,
    /// Bytes follow the server's readiness for TLS. They came in plain text, and could be taken for what
    /// comes by TLS.
    #[error("the server sends plain text where TLS begins")]
    PlainTextBehindStartTls,
    /// The bytes at the place of a reply to our option are not a reply.
    #[error("the server's reply begins with {0:#018x}, which is no reply to an option")]
    BadReplyMagic(u64),
    /// The server replies to something that was not asked, or not in this way.
    #[error("the server sent a reply of type {kind:#010x} to option {option}, which makes no sense here")]
    Unexpected {
        /// The option that it replies to.
        option: u32,
        /// The type of the reply.
        kind: u32,
    },
    /// A reply is too long to be kept.
    #[error("the server sent a reply of {0} bytes to an option; at most {MAX_DATA} are taken")]
    ReplyTooLong(u32),
    /// The replies to one option have no end.
    #[error("the server keeps replying to the same option")]
    TooManyReplies,
    /// A reply whose fields do not add up.
    #[error("the server sent a malformed {0}")]
    Malformed(&'static str),
    /// The server opens the export without a word about it.
    #[error("the server did not say what the export is")]
    NoExportInfo,
    /// The server's size constraints break the specification.
    #[error("the server advertises impossible block sizes: {0}")]
    BlockSizes(#[from] BlockSizesError),
}

fn said(refusal: &OptionRefusal, message: &str) -> String {
    if message.is_empty() { refusal.to_string() } else { message.to_owned() }
}

#[derive(Debug, Clone, Copy)]
enum Goal {
    /// Messages of this style are wished for, or else simpler ones.
    Open {
        style: MessageStyle,
        allocation: bool,
    },
    List,
}

#[derive(Debug)]
enum ClientState {
    Greeting,
    /// An option is under way: waiting for the head of a reply.
    ReplyHeader {
        option: u32,
    },
    ReplyData {
        option: u32,
        kind: u32,
        length: u32,
    },
    /// `EXPORT_NAME` is under way; its reply has a format of its own.
    ExportNameReply,
    /// Waiting for [`ClientHandshake::secured`].
    AwaitingTls,
    Over(ClientEvent),
    Failed(ClientError),
}

/// The client's side of a handshake: opens one export, or lists all.
///
/// In a loop: send [`ClientHandshake::output`] and say so by [`ClientHandshake::sent`]; call
/// [`ClientHandshake::receive`] with what has arrived, and drop what it took, until it reports an event. To
/// open an export it asks for the wished style and for the metadata context, then by `GO`, and falls back to
/// `EXPORT_NAME` with servers that do not know `GO`. Such a server closes the connection to say that there is
/// no such export.
///
/// It holds at most 64 KiB of input, 1 MiB of a list, and an output of a few hundred bytes beside the name.
#[derive(Debug)]
pub struct ClientHandshake {
    goal: Goal,
    /// The export to open; empty where none is.
    name: ExportName,
    state: ClientState,
    input: MessageCollector,
    output: Output,
    no_zeroes: bool,
    style: MessageStyle,
    /// The server's id of `base:allocation`, once it was told.
    allocation: Option<u32>,
    /// TLS is wanted, and nothing is asked without it.
    tls: bool,
    hears_shutdown: bool,
    /// The number of replies that the option under way has had.
    reply_count: usize,
    size_and_flags: Option<(u64, TransmissionFlags)>,
    blocks: BlockSizes,
    listings: Vec<ExportListing>,
    listed_bytes: usize,
}

impl ClientHandshake {
    /// Wants to open an export, with messages of this style. A server that does not know it is asked for
    /// structured replies instead of extended headers, and then goes on with simple replies.
    #[must_use]
    pub fn open(name: ExportName, style: MessageStyle) -> Self {
        Self::new(Goal::Open { style, allocation: false }, name)
    }

    /// Wants the metadata context `base:allocation` besides, if the style and the server have it.
    #[must_use]
    pub fn with_allocation(mut self) -> Self {
        if let Goal::Open { allocation, .. } = &mut self.goal {
            *allocation = true;
        }
        self
    }

    /// Says that the client understands [`Errno::Shutdown`](crate::Errno::Shutdown): see
    /// [`SessionTerms::hears_shutdown`].
    #[must_use]
    pub fn hearing_shutdown(mut self) -> Self {
        self.hears_shutdown = true;
        self
    }

    /// Wants the list of exports.
    #[must_use]
    pub fn list() -> Self {
        Self::new(Goal::List, ExportName::default())
    }

    /// Wants TLS before anything else, and nothing without it.
    #[must_use]
    pub fn by_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Answers [`ClientEvent::TlsReady`]: from here on everything is sent and received by TLS. Without effect
    /// when the server was not ready.
    pub fn secured(&mut self) {
        if matches!(self.state, ClientState::AwaitingTls) {
            self.ask();
        }
    }

    fn new(goal: Goal, name: ExportName) -> Self {
        Self {
            goal,
            name,
            state: ClientState::Greeting,
            input: MessageCollector::default(),
            output: Output::default(),
            no_zeroes: false,
            style: MessageStyle::Simple,
            allocation: None,
            tls: false,
            hears_shutdown: false,
            reply_count: 0,
            size_and_flags: None,
            blocks: BlockSizes::DEFAULT,
            listings: Vec::new(),
            listed_bytes: 0,
        }
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

    /// Takes bytes from the server: says how many it took, and what happened. Without an event it took
    /// everything.
    ///
    /// # Errors
    /// When the handshake failed; every further call says the same.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<ClientEvent>), ClientError> {
        let mut rest = bytes;
        let outcome = self.advance(&mut rest);
        if let Err(error) = &outcome {
            // Only a client that was understood so far can say goodbye; there it is asked to.
            if let (
                ClientError::Refused { .. } | ClientError::NoTls { .. },
                ClientState::ReplyHeader { .. },
            ) = (error, &self.state)
            {
                self.send_option(option::ABORT, &[]);
            }
            self.state = ClientState::Failed(error.clone());
        }
        Ok((bytes.len() - rest.len(), outcome?))
    }

    /// Returns the number of bytes of input kept.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        self.input.held()
    }

    fn advance(&mut self, rest: &mut &[u8]) -> Result<Option<ClientEvent>, ClientError> {
        loop {
            match &self.state {
                ClientState::Greeting => {
                    let Some(greeting) = self.input.take::<18>(rest) else { return Ok(None) };
                    self.greet(&greeting)?;
                }
                ClientState::ReplyHeader { option } => {
                    let option = *option;
                    let Some(header) = self.input.take::<20>(rest) else { return Ok(None) };
                    self.state = self.begin_reply(option, &header)?;
                }
                ClientState::ReplyData { option, kind, length } => {
                    let (option, kind, length) = (*option, *kind, *length as usize);
                    let Some(data) = self.input.take_vec(rest, length) else { return Ok(None) };
                    self.state = ClientState::ReplyHeader { option };
                    self.understand(option, kind, &data)?;
                }
                ClientState::ExportNameReply => {
                    let length = if self.no_zeroes { 10 } else { 10 + ZEROES };
                    let Some(data) = self.input.take_vec(rest, length) else { return Ok(None) };
                    self.size_and_flags = Some(size_and_flags(&data[..10])?);
                    self.state = ClientState::Over(self.opened()?);
                }
                ClientState::AwaitingTls if !rest.is_empty() => {
                    return Err(ClientError::PlainTextBehindStartTls);
                }
                ClientState::AwaitingTls => return Ok(Some(ClientEvent::TlsReady)),
                ClientState::Over(event) => return Ok(Some(event.clone())),
                ClientState::Failed(error) => return Err(error.clone()),
            }
        }
    }

    fn greet(&mut self, greeting: &[u8; 18]) -> Result<(), ClientError> {
        const SHORT: ClientError = ClientError::Malformed("greeting");
        let mut fields = MessageFields(greeting);
        match (fields.u64().ok_or(SHORT)?, fields.u64().ok_or(SHORT)?) {
            (NBD_MAGIC, OPTION_MAGIC) => {}
            (NBD_MAGIC, OLDSTYLE_MAGIC) => return Err(ClientError::Oldstyle),
            (NBD_MAGIC, other) | (other, _) => return Err(ClientError::NotNbd(other)),
        }
        // Flags that we do not know are to be ignored; those we know are returned.
        let flags = fields.u16().ok_or(SHORT)? & (FIXED_NEWSTYLE | NO_ZEROES);
        self.no_zeroes = flags & NO_ZEROES != 0;
        self.output.put(&u32::from(flags).to_be_bytes());
        let fixed = flags & FIXED_NEWSTYLE != 0;
        match self.goal {
            _ if self.tls && !fixed => return Err(ClientError::TooOldForTls),
            _ if self.tls => self.send_option(option::STARTTLS, &[]),
            Goal::List if !fixed => return Err(ClientError::CannotList),
            Goal::Open { .. } if !fixed => self.send_export_name(),
            Goal::List | Goal::Open { .. } => self.ask(),
        }
        Ok(())
    }

    /// Begins with what it is here for.
    fn ask(&mut self) {
        match self.goal {
            Goal::List => self.send_option(option::LIST, &[]),
            Goal::Open { style: MessageStyle::Extended, .. } => {
                self.send_option(option::EXTENDED_HEADERS, &[]);
            }
            Goal::Open { style: MessageStyle::Structured, .. } => {
                self.send_option(option::STRUCTURED_REPLY, &[]);
            }
            Goal::Open { style: MessageStyle::Simple, .. } => self.send_go(),
        }
    }

    /// The style is settled: goes on with the metadata context, or with the export.
    fn settled(&mut self, style: MessageStyle) {
        self.style = style;
        if !style.has_chunks() || !matches!(self.goal, Goal::Open { allocation: true, .. }) {
            return self.send_go();
        }
        let (name, query) = (self.name.clone(), ALLOCATION_NAME.as_bytes());
        let name = name.as_str().as_bytes();
        let length = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes();
        self.send_option(
            option::SET_META_CONTEXT,
            &[&length(name), name, &1u32.to_be_bytes(), &length(query), query],
        );
    }

    fn send_option(&mut self, option: u32, parts: &[&[u8]]) {
        // The longest option is GO: a name of at most 4096 bytes and a few numbers.
        let length = parts.iter().map(|part| part.len() as u32).sum::<u32>();
        self.output.put(&OPTION_MAGIC.to_be_bytes()).put(&option.to_be_bytes()).put(&length.to_be_bytes());
        for part in parts {
            self.output.put(part);
        }
        self.reply_count = 0;
        self.state = ClientState::ReplyHeader { option };
    }

    fn send_go(&mut self) {
        let name = self.name.clone();
        let name = name.as_str().as_bytes();
        let asked = [info::BLOCK_SIZE, info::HEARS_SHUTDOWN].map(u16::to_be_bytes);
        let asked = &asked[..if self.hears_shutdown { 2 } else { 1 }];
        self.send_option(
            option::GO,
            &[
                &(name.len() as u32).to_be_bytes(),
                name,
                &(asked.len() as u16).to_be_bytes(),
                asked.as_flattened(),
            ],
        );
    }

    fn send_export_name(&mut self) {
        let name = self.name.clone();
        self.send_option(option::EXPORT_NAME, &[name.as_str().as_bytes()]);
        self.state = ClientState::ExportNameReply;
    }

    fn begin_reply(&mut self, option: u32, header: &[u8; 20]) -> Result<ClientState, ClientError> {
        const SHORT: ClientError = ClientError::Malformed("reply");
        let mut fields = MessageFields(header);
        let magic = fields.u64().ok_or(SHORT)?;
        if magic != OPTION_REPLY_MAGIC {
            return Err(ClientError::BadReplyMagic(magic));
        }
        let answered = fields.u32().ok_or(SHORT)?;
        let kind = fields.u32().ok_or(SHORT)?;
        let length = fields.u32().ok_or(SHORT)?;
        if answered != option {
            return Err(ClientError::Unexpected { option: answered, kind });
        }
        if length > MAX_DATA {
            return Err(ClientError::ReplyTooLong(length));
        }
        self.reply_count += 1;
        if self.reply_count > MAX_REPLIES {
            return Err(ClientError::TooManyReplies);
        }
        Ok(ClientState::ReplyData { option, kind, length })
    }

    fn understand(&mut self, option: u32, kind: u32, data: &[u8]) -> Result<(), ClientError> {
        match (option, kind) {
            (option::STARTTLS, reply::ACK) => self.state = ClientState::AwaitingTls,
            (option::STARTTLS, kind) if kind & reply::ERROR_BIT != 0 => {
                return Err(ClientError::NoTls {
                    refusal: OptionRefusal::from_code(kind),
                    message: printable(data),
                });
            }
            (option::EXTENDED_HEADERS, reply::ACK) => self.settled(MessageStyle::Extended),
            // The style is a wish, like the context. A server about to end says so again to GO.
            (option::EXTENDED_HEADERS, kind) if kind & reply::ERROR_BIT != 0 => {
                self.send_option(option::STRUCTURED_REPLY, &[]);
            }
            (option::STRUCTURED_REPLY, reply::ACK) => self.settled(MessageStyle::Structured),
            (option::STRUCTURED_REPLY, kind) if kind & reply::ERROR_BIT != 0 => {
                self.settled(MessageStyle::Simple);
            }
            (option::SET_META_CONTEXT, reply::META_CONTEXT) => self.note_context(data)?,
            (option::SET_META_CONTEXT, reply::ACK) => self.send_go(),
            (option::SET_META_CONTEXT, kind) if kind & reply::ERROR_BIT != 0 => {
                self.allocation = None;
                self.send_go();
            }
            (option::GO, reply::ERR_UNSUP) if self.style != MessageStyle::Extended => {
                self.send_export_name();
            }
            (option::GO, reply::INFO) => self.learn(data)?,
            (option::GO, reply::ACK) => self.state = ClientState::Over(self.opened()?),
            (option::LIST, reply::SERVER) => self.note_listing(data)?,
            (option::LIST, reply::ACK) => {
                self.send_option(option::ABORT, &[]);
                self.state = ClientState::Over(ClientEvent::Listed(std::mem::take(&mut self.listings)));
            }
            (_, kind) if kind & reply::ERROR_BIT != 0 => {
                return Err(ClientError::Refused {
                    refusal: OptionRefusal::from_code(kind),
                    message: printable(data),
                });
            }
            (option, kind) => return Err(ClientError::Unexpected { option, kind }),
        }
        Ok(())
    }

    /// Takes one piece of information about the export.
    fn learn(&mut self, data: &[u8]) -> Result<(), ClientError> {
        const BAD: ClientError = ClientError::Malformed("piece of information about the export");
        let mut fields = MessageFields(data);
        match fields.u16().ok_or(BAD)? {
            info::EXPORT => self.size_and_flags = Some(size_and_flags(fields.0)?),
            info::BLOCK_SIZE => {
                let mut size = || fields.u32().ok_or(BAD);
                let (minimum, preferred, maximum) = (size()?, size()?, size()?);
                self.blocks = BlockSizes::new(minimum, preferred, maximum)?;
            }
            // What is unknown must be ignored.
            _ => {}
        }
        Ok(())
    }

    /// Takes a metadata context that the server has selected.
    fn note_context(&mut self, data: &[u8]) -> Result<(), ClientError> {
        let mut fields = MessageFields(data);
        let id = fields.u32().ok_or(ClientError::Malformed("metadata context"))?;
        if fields.0 != ALLOCATION_NAME.as_bytes() || self.allocation.replace(id).is_some() {
            return Err(ClientError::Malformed("selection of metadata contexts"));
        }
        Ok(())
    }

    fn note_listing(&mut self, data: &[u8]) -> Result<(), ClientError> {
        const BAD: ClientError = ClientError::Malformed("entry of its list");
        self.listed_bytes += data.len();
        if self.listed_bytes > MAX_LIST_BYTES {
            return Err(ClientError::TooManyReplies);
        }
        let mut fields = MessageFields(data);
        let length = fields.u32().ok_or(BAD)?;
        let name = fields.bytes(length as usize).ok_or(BAD)?;
        let name = ExportName::from_wire(name).map_err(|_| BAD)?;
        self.listings.push(ExportListing { name, description: printable(fields.0) });
        Ok(())
    }

    fn opened(&self) -> Result<ClientEvent, ClientError> {
        let (size, flags) = self.size_and_flags.ok_or(ClientError::NoExportInfo)?;
        Ok(ClientEvent::Opened(Opened {
            name: self.name.clone(),
            terms: SessionTerms {
                geometry: ExportGeometry { size, flags, blocks: self.blocks },
                style: self.style,
                allocation: self.allocation,
                hears_shutdown: self.hears_shutdown,
            },
        }))
    }
}

fn size_and_flags(data: &[u8]) -> Result<(u64, TransmissionFlags), ClientError> {
    let mut fields = MessageFields(data);
    match (fields.u64(), fields.u16(), fields.0) {
        (Some(size), Some(flags), []) => Ok((size, TransmissionFlags::from_bits(flags))),
        _ => Err(ClientError::Malformed("description of the export")),
    }
}

/// A server's text, safe to show on a terminal.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).collect()
}
