//! Reasons other than the law for which requests wait.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Reason for which a consumer's requests wait to be dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The law throttles it.
    Law,
    /// It is at its configured limit.
    Limit,
    /// The depth is full, and other consumers have a part of it.
    Share,
    /// The depth is full of its own requests.
    Depth,
}

impl WaitReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Law, Self::Limit, Self::Share, Self::Depth];

    /// Returns the name in metrics and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Law => "law",
            Self::Limit => "limit",
            Self::Share => "share",
            Self::Depth => "depth",
        }
    }
}

/// Numbers of consumers that wait, and are not throttled by the law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitingConsumers {
    /// Those at their configured limits.
    pub limit: u32,
    /// Those that wait for their shares of a full depth.
    pub share: u32,
    /// Those that fill the depth alone.
    pub depth: u32,
}

impl WaitingConsumers {
    /// Returns true if no consumer waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Counts a consumer that waits for this reason.
    pub const fn add(&mut self, reason: WaitReason) {
        match reason {
            WaitReason::Law => {}
            WaitReason::Limit => self.limit += 1,
            WaitReason::Share => self.share += 1,
            WaitReason::Depth => self.depth += 1,
        }
    }
}

/// Writes a clause such as "1 at its limit, 2 waiting for their shares".
impl fmt::Display for WaitingConsumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clauses = [
            (self.limit, "at its limit", "at their limits"),
            (self.share, "waiting for its share", "waiting for their shares"),
            (self.depth, "at the depth", "at the depth"),
        ];
        let told = clauses.iter().filter(|(count, ..)| *count > 0);
        for (index, (count, one, more)) in told.enumerate() {
            let clause = if *count == 1 { one } else { more };
            write!(f, "{}{count} {clause}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_with_its_number() {
        let mut waiting = WaitingConsumers::default();
        assert!(waiting.is_empty() && waiting.to_string().is_empty());
        for reason in [WaitReason::Share, WaitReason::Share, WaitReason::Limit, WaitReason::Law] {
            waiting.add(reason);
        }
        assert_eq!(waiting.to_string(), "1 at its limit, 2 waiting for their shares");
    }
}
