//! The NBD protocol, server and client, without I/O.
//!
//! Bytes go in, bytes and events come out; sockets, buffers for payloads and deadlines belong to the caller.
//! The reference is the protocol description of the NBD project (`doc/proto.md` of NetworkBlockDevice/nbd),
//! called "the specification" here. Spoken: fixed newstyle with `EXPORT_NAME`, `ABORT`, `LIST`, `INFO`, `GO`
//! and `STRUCTURED_REPLY`; simple and structured replies. `STARTTLS` is spoken, TLS itself is the caller's.
//! Not spoken: metadata contexts, extended headers; a peer that asks for them hears "unsupported".
//!
//! The order of calls on the server's side:
//!
//! 1. [`handshake::ServerHandshake`]: send [`output`](handshake::ServerHandshake::output), feed what arrives
//!    to [`receive`](handshake::ServerHandshake::receive), answer its questions, until it reports
//!    [`Opened`](handshake::ServerEvent::Opened).
//! 2. For every [`REQUEST_SIZE`](transmission::REQUEST_SIZE) bytes:
//!    [`WireRequest::parse`](transmission::WireRequest::parse), then [`ExportGeometry::check`], which yields
//!    the [`CheckedOperation`] to carry out or the [`Errno`] to answer. A `WRITE` is followed by
//!    [`payload_length`](transmission::WireRequest::payload_length) bytes even if it is refused.
//! 3. Answer with a [`ReplyFrame`](transmission::ReplyFrame) made by the session's
//!    [`ReplyStyle`](transmission::ReplyStyle).
//!
//! On the client's side: [`handshake::ClientHandshake`],
//! [`WireRequest::encode`](transmission::WireRequest::encode), [`ReplyParser`](transmission::ReplyParser).

#![forbid(unsafe_code)]

mod errno;
mod export;
mod flags;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod handshake;
mod input;
pub mod transmission;

pub use errno::Errno;
pub use export::{
    BlockSizes, BlockSizesError, CheckedOperation, ExportDescription, ExportGeometry, ExportName,
    ExportNameError, MAX_STRING,
};
pub use flags::{CommandFlags, TransmissionFlags};
