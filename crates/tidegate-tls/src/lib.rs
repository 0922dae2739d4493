//! Encrypted connections: reading certificates and keys, the names in them, and TLS over sockets.
//!
//! 1. [`ServerFiles::load`] and [`ClientFiles::load`] read the files once and yield a [`ServerTls`] or a
//!    [`ClientTls`].
//! 2. [`TlsStream::accept`] or [`TlsStream::connect`] shakes hands on a socket; [`TlsStream::read`] and
//!    [`TlsStream::write_all`] then serve whatever has to be said before the data path takes over. All of
//!    them block, and end at a deadline.
//! 3. [`TlsStream::split`] yields a socket that carries plain text, and the [`TlsRelay`] that moves what it
//!    carries to and from the encrypted connection. The relay runs on a thread of its own until either side
//!    ends.
//!
//! TLS 1.3 and 1.2 with certificates. Sessions are never resumed, so that every connection is judged by the
//! certificates of the moment. Pre-shared keys are not offered: the library has none.

#![forbid(unsafe_code)]

mod config;
mod files;
mod name;
mod relay;
mod stream;

pub use config::{
    ClientCertificates, ClientFiles, ClientTls, ServerFiles, ServerName, ServerNameError, ServerTls,
    client_settings,
};
pub use files::{
    TlsError, TlsIdentity, check_authorities, check_certificate, check_pair, check_private_key, warn_if_open,
};
pub use name::names as certificate_names;
pub use relay::{RelayEnd, RelayError, TlsRelay};
pub use stream::{HandshakeError, TlsStream};
