//! A finding of the survey: something that works, or why it does not.

use serde::Serialize;

/// Something that works, or why it does not.
#[derive(Debug, Serialize)]
pub struct SurveyFinding {
    /// The sensor, the part of the throttle or the node that was tried.
    pub what: String,
    /// True if it works.
    pub works: bool,
    /// Its purpose; if it does not work, also why, and what would help.
    pub detail: String,
}
