//! The HTTP API of a service: its listeners and its callers, and the pages that both services have.

mod caller;
mod dashboard;
mod events;
mod explanation;
mod history;
mod journal_desk;
mod server;
mod settings;

pub use events::{EventFeed, MOST_SUBSCRIBERS};
pub use server::{ApiRoutes, OPENAPI, ServerError, ServiceServer};
pub use settings::{ApiSettings, CredentialsError, PlacedApi, needs_restart};
