//! The HTTP server of Tidegate's services: metrics and status of gateway and agent, and the broker.
//!
//! Its clients are not trusted, and what they can take is bounded:
//!
//! | resource | bound | beyond it |
//! |---|---|---|
//! | connections | [`MOST_CONNECTIONS`] of readers and of unknown clients, [`MOST_OPERATORS`] of operators; each through Unix sockets and from the network | the oldest of its kind that is not being answered makes room |
//! | large answers that readers have not taken | four | readers of the oldest are cut off, or 503 |
//! | time for a TLS handshake | [`HANDSHAKE_TIME`] | the connection is closed |
//! | time for a request's header | [`HEADER_TIME`] | the connection is closed |
//! | time for a request's body | [`BODY_TIME`] | 408 |
//! | size of a body | [`LARGEST_BODY`] | 413 |
//! | time between two requests | [`HEADER_TIME`] | the connection is closed |
//! | time for an answer | [`ANSWER_TIME`] | 503 |
//! | time to take an answer | [`SEND_TIME`] | the connection is closed |
//! | time to take the next bytes of a stream | [`SEND_TIME`] | the connection is closed |
//! | descriptors | all but a [reserve](descriptors) | the connection is closed |
//!
//! A request must come from a client that is no web page of another site: see [`ServerNames`]. At the listeners of an API, its [caller](caller::Caller) is known, and must be an
//! operator. [Public pages](HttpServer::with_public_pages) are for every caller.

#![forbid(unsafe_code)]

mod access;
mod answer;
pub mod caller;
mod connections;
pub mod descriptors;
mod guard;
mod listener;
mod page;
mod problem;
mod refusals;
mod server;
mod stream;
mod token;
mod unix_client;
mod unknown_names;

pub use access::{ApiAccess, ApiCredentials, ListenerTls};
pub use connections::{MOST_CONNECTIONS, MOST_OPERATORS};
pub use guard::ServerNames;
pub use listener::{HttpListener, ListenAddress, ListenAddressError, SocketFile};
pub use page::StaticPage;
pub use problem::problem;
pub use refusals::{HttpRefusals, RefusalCause};
pub use server::{ANSWER_TIME, BODY_TIME, HEADER_TIME, HttpServer, LARGEST_BODY, OpenEndedAnswer, SEND_TIME};
pub use stream::HANDSHAKE_TIME;
pub use token::{BearerToken, NoRandom, OpenTokenFile, TokenAdmission, TokenError, TokenRefused};
