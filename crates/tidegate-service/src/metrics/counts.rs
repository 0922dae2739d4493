//! The counts that services keep about themselves.

use tidegate_control::SignalState;

/// Reloads since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReloadCounts {
    /// Applied.
    pub applied: u64,
    /// Refused: the old configuration went on.
    pub refused: u64,
}

/// Decisions about one resource since the start, by what the signal said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputCounts {
    samples: u64,
    overload: u64,
    unknown: u64,
    idle: u64,
    no_time: u64,
}

impl InputCounts {
    /// Counts one decision.
    pub fn add(&mut self, input: SignalState) {
        *match input {
            SignalState::Samples { .. } => &mut self.samples,
            SignalState::Overload { .. } => &mut self.overload,
            SignalState::Unknown => &mut self.unknown,
            SignalState::Idle => &mut self.idle,
            SignalState::NoTime => &mut self.no_time,
        } += 1;
    }

    /// By the names that the metrics have for them.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("samples", self.samples),
            ("overload", self.overload),
            ("unknown", self.unknown),
            ("idle", self.idle),
            ("no_time", self.no_time),
        ]
    }
}
