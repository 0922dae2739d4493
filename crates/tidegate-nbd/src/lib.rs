//! The NBD protocol, server and client, without I/O.
//!
//! Bytes go in, bytes and events come out; sockets, buffers for payloads and deadlines belong to the caller.
//! The reference is the protocol description of the NBD project (`doc/proto.md` of NetworkBlockDevice/nbd),
//! called "the specification" here, with its branch `extension-ext-header`. Spoken: fixed newstyle with
//! `EXPORT_NAME`, `ABORT`, `LIST`, `INFO`, `GO`, `STRUCTURED_REPLY`, `EXTENDED_HEADERS`, `LIST_META_CONTEXT`
//! and `SET_META_CONTEXT`; simple, structured and extended replies; the metadata context `base:allocation`.
//! `STARTTLS` is spoken, TLS itself is the caller's. Not spoken: other metadata contexts, and resizing; a
//! peer that asks for them hears that there are none.
//!
//! The order of calls on the server's side:
//!
//! 1. [`handshake::ServerHandshake`]: send [`output`](handshake::ServerHandshake::output), feed what arrives
//!    to [`receive`](handshake::ServerHandshake::receive), answer its questions, until it reports
//!    [`Opened`](handshake::ServerEvent::Opened).
//! 2. For every [`request_size`](transmission::MessageStyle::request_size) bytes:
//!    [`WireRequest::parse`](transmission::WireRequest::parse), then [`SessionTerms::check`], which yields
//!    the [`CheckedOperation`] to carry out or the [`Errno`] to answer. A request is followed by
//!    [`payload_length`](transmission::WireRequest::payload_length) bytes even if it is refused.
//! 3. Answer with a [`ReplyFrame`](transmission::ReplyFrame) made by the session's
//!    [`MessageStyle`](transmission::MessageStyle).
//!
//! On the client's side: [`handshake::ClientHandshake`],
//! [`WireRequest::encode`](transmission::WireRequest::encode), [`ReplyParser`](transmission::ReplyParser).

#![forbid(unsafe_code)]

mod allocation;
mod errno;
mod export;
mod flags;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod handshake;
mod input;
mod terms;
pub mod transmission;

pub use allocation::{
    ALLOCATION_CONTEXT, ALLOCATION_NAME, AllocationExtent, AllocationMap, AllocationState, MOST_EXTENTS,
};
pub use errno::Errno;
pub use export::{
    BlockSizes, BlockSizesError, ExportDescription, ExportGeometry, ExportName, ExportNameError, MAX_STRING,
};
pub use flags::{CommandFlags, TransmissionFlags};
pub use terms::{CheckedOperation, SessionTerms};
