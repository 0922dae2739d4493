//! Connections that got no session: counted, and told without flooding the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::stats::RefusalReason;

/// At most one line per reason in this time; the number of those not told is in the next line.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    suppressed: u64,
}

/// Refused connections since the gateway's start.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    counts: [AtomicU64; RefusalReason::ALL.len()],
    told: Mutex<[Told; RefusalReason::ALL.len()]>,
}

impl RefusalCounts {
    /// Counts a refusal. If it is to be logged now, `tell` is called with the number of those that were not.
    pub(crate) fn count(&self, refusal: RefusalReason, tell: impl FnOnce(u64)) {
        self.counts[refusal as usize].fetch_add(1, Ordering::Relaxed);
        let suppressed = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let told = &mut told[refusal as usize];
            if told.last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
                told.suppressed += 1;
                return;
            }
            told.last = Some(Instant::now());
            std::mem::take(&mut told.suppressed)
        };
        tell(suppressed);
    }

    pub(crate) fn counts(&self) -> Vec<(RefusalReason, u64)> {
        let count = |refusal: &RefusalReason| self.counts[*refusal as usize].load(Ordering::Relaxed);
        RefusalReason::ALL.iter().map(|refusal| (*refusal, count(refusal))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_counted_and_few_are_told() {
        let refusals = RefusalCounts::default();
        let mut lines = 0;
        for _ in 0..1_000 {
            refusals.count(RefusalReason::ExportSessions, |_| lines += 1);
        }
        refusals.count(RefusalReason::UnknownExport, |suppressed| lines += 10 + suppressed);
        assert!((11..20).contains(&lines), "{lines}");
        let counts = refusals.counts();
        assert!(counts.contains(&(RefusalReason::ExportSessions, 1_000)));
        assert!(counts.contains(&(RefusalReason::UnknownExport, 1)));
        assert!(RefusalReason::ALL.iter().enumerate().all(|(index, refusal)| *refusal as usize == index));
    }
}
