//! Overrides: settings that operators change while a service runs, laid over its configuration.
//!
//! A restart ends all overrides, and a reload keeps them. Each of them names the caller and the time, so that
//! a difference from the file can be explained.

mod api;
mod changes;
mod document;
mod refusal;
mod request;
mod state;

pub use api::{ControlRequest, routes};
pub use changes::{ConsumerChanges, LONGEST_RELEASE, ReleaseScope, ResourceChanges};
pub use document::{
    ConsumerInForce, ConsumerOverride, OverridesDocument, ReleaseEntry, ResourceInForce, ResourceOverride,
    ServiceSettings,
};
pub use refusal::OverrideRefusal;
pub use request::{ConsumerPatch, OverrideAction, ReleaseRequest, RequestError, ResourcePatch};
pub use state::{Overrides, action_record, end_record, log_action, log_end};

#[cfg(test)]
mod tests;
