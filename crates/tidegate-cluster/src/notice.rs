//! Log lines about input from outside: at most one of a kind per minute, so that input cannot fill the log.

use std::collections::HashMap;
use std::fmt::Display;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use tidegate_units::{HostName, Instant, ResourceName};

use crate::name::ClusterName;
use crate::rejection::MessageRejection;

const PAUSE: Duration = Duration::from_secs(60);

/// For each kind of line, the time when it was last written and the number left out since. It has at most as
/// many entries as there are kinds.
#[derive(Debug, Default)]
pub(crate) struct LogNotices {
    rejections: HashMap<Discriminant<MessageRejection>, LogNotice>,
    left_out: LogNotice,
}

/// The time when a line was last written, and the number of lines left out since.
#[derive(Debug, Default)]
pub(crate) struct LogNotice {
    written: Option<Instant>,
    left_out: u64,
}

impl LogNotice {
    /// Returns the number of lines left out before this one if it may be written now, otherwise `None`.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        if self.written.is_some_and(|written| now.saturating_since(written) < PAUSE) {
            self.left_out += 1;
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The lines of one kind that may still be written in this minute.
#[derive(Debug, Default)]
pub(crate) struct LogBudget {
    since: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LogBudget {
    /// Lines of one kind per minute. Chosen: enough for the restarts of some hosts by hand.
    const MOST: u32 = 10;

    /// Returns the number of lines left out before this one if it may be written now, otherwise `None`.
    pub(crate) fn take(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_since(since) >= PAUSE) {
            (self.since, self.written) = (Some(now), 0);
        }
        if self.written >= Self::MOST {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl LogNotices {
    pub(crate) fn say_rejected(
        &mut self,
        now: Instant,
        cluster: &ClusterName,
        rejection: MessageRejection,
        host: Option<&HostName>,
        from: &dyn Display,
    ) {
        let Some(left_out) = self.rejections.entry(discriminant(&rejection)).or_default().due(now) else {
            return;
        };
        let host = host.map(|host| format!(" of host `{host}`")).unwrap_or_default();
        let more =
            if left_out > 0 { format!(" ({left_out} more since the last such line)") } else { String::new() };
        match rejection {
            // These belong to ordinary life: duplicates on the way, starts, neighbours on the same wire.
            MessageRejection::Replayed
            | MessageRejection::Unproved
            | MessageRejection::Restarting
            | MessageRejection::OtherCluster => {
                tracing::debug!(
                    "cluster {cluster}: a message{host} from {from} does not count: {rejection}{more}"
                );
            }
            _ => tracing::warn!(
                "cluster {cluster}: a message{host} from {from} does not count: {rejection}{more}"
            ),
        }
    }

    pub(crate) fn say_left_out(
        &mut self,
        now: Instant,
        cluster: &ClusterName,
        resource: &ResourceName,
        why: &str,
    ) {
        if self.left_out.due(now).is_some() {
            tracing::warn!("cluster {cluster}: nothing is told of `{resource}`: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_and_the_count_of_the_others() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut notice = LogNotice::default();
        assert_eq!(notice.due(at(0)), Some(0));
        assert_eq!((notice.due(at(1)), notice.due(at(59))), (None, None));
        assert_eq!(notice.due(at(60)), Some(2));
        assert_eq!(notice.due(at(61)), None);
    }

    #[test]
    fn some_lines_a_minute_and_the_count_of_the_others() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut budget = LogBudget::default();
        let written = (0..15).filter(|second| budget.take(at(*second)).is_some()).count();
        assert_eq!(written, 10);
        assert_eq!((budget.take(at(60)), budget.take(at(61))), (Some(5), Some(0)));
    }
}
