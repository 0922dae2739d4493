//! The HTTP server of Tidegate's services: metrics and status of gateway and agent, and the broker.
//!
//! Its clients are not trusted, and what they can take is bounded:
//!
//! | resource | bound | beyond it |
//! |---|---|---|
//! | connections | [`MOST_CONNECTIONS`] | the oldest one without a request makes room |
//! | time for a request's header | [`HEADER_TIME`] | the connection is closed |
//! | time for a request's body | [`BODY_TIME`] | 408 |
//! | size of a body | [`LARGEST_BODY`] | 413 |
//! | time between two requests | [`HEADER_TIME`] | the connection is closed |
//! | time for an answer | [`ANSWER_TIME`] | 503 |
//! | time to take an answer | [`SEND_TIME`] | the connection is closed |
//! | descriptors | all but a [reserve](descriptors) | the connection is closed |
//!
//! A request that changes something must come from a client that is no web page of another site: see
//! [`ServerNames`].

#![forbid(unsafe_code)]

pub mod caller;
mod connections;
pub mod descriptors;
mod guard;
mod problem;
mod refusals;
mod server;
mod token;

pub use connections::MOST_CONNECTIONS;
pub use guard::ServerNames;
pub use problem::problem;
pub use refusals::{HttpRefusals, RefusalCause};
pub use server::{ANSWER_TIME, BODY_TIME, HEADER_TIME, HttpServer, LARGEST_BODY, SEND_TIME};
pub use token::{BearerToken, NoRandom, TokenAdmission, TokenError, TokenRefused};
