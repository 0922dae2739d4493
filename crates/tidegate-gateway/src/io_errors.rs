//! Errors that clients are answered, counted by their kind, apart from clients' own mistakes.

use std::time::Duration;

use serde::Serialize;
use tidegate_control::IoErrorKind;
use tidegate_nbd::Errno;
use tidegate_units::Instant;

/// Errors further apart than this are not of the same spell.
pub const ERROR_PAUSE: Duration = Duration::from_secs(60);

/// Errors that one consumer was answered since the gateway's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IoErrors {
    /// In the order of [`IoErrorKind::ALL`].
    counts: [u64; IoErrorKind::ALL.len()],
    /// The first and the last error of the latest spell.
    spell: Option<(Instant, Instant)>,
    /// Requests refused because they are not allowed, such as a write to a read-only export or a read beyond
    /// the end.
    mistakes: u64,
}

impl IoErrors {
    /// Counts a request that the storage failed, or the gateway.
    pub fn count(&mut self, kind: IoErrorKind, now: Instant) {
        // Invariant: kinds are listed in the order of their declaration.
        self.counts[kind as usize] += 1;
        self.spell = match self.spell {
            Some((first, last)) if now.saturating_since(last) < ERROR_PAUSE => Some((first, now)),
            _ => Some((now, now)),
        };
    }

    /// Counts a request that was carried out and failed.
    pub(crate) fn count_failed(&mut self, errno: Errno, now: Instant) {
        if let Some(kind) = kind_of(errno) {
            self.count(kind, now);
        }
    }

    /// Counts a request that is refused when it is read: a mistake of the client, unless memory is short.
    pub(crate) fn count_refused(&mut self, errno: Errno, now: Instant) {
        match errno {
            Errno::NoMem => self.count(IoErrorKind::NoMemory, now),
            _ => self.count_mistake(),
        }
    }

    /// Counts a request that is not allowed.
    pub(crate) fn count_mistake(&mut self) {
        self.mistakes += 1;
    }

    /// Returns the number of errors of each kind.
    pub fn kinds(&self) -> impl Iterator<Item = (IoErrorKind, u64)> {
        IoErrorKind::ALL.into_iter().zip(self.counts)
    }

    /// Returns what was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        for (count, before) in counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        Self { counts, spell: self.spell, mistakes: self.mistakes.saturating_sub(earlier.mistakes) }
    }

    /// Returns the number of errors of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the number of requests of the client that were not allowed.
    #[must_use]
    pub const fn mistakes(&self) -> u64 {
        self.mistakes
    }

    /// Returns the times of the first and the last error of the latest spell, in which no two errors are
    /// further apart than [`ERROR_PAUSE`]. `None`: there was no error.
    #[must_use]
    pub const fn spell(&self) -> Option<(Instant, Instant)> {
        self.spell
    }
}

/// Returns the kind of an error of the storage, or of the gateway itself. `None`: it answers a client's question
/// whether zeroes are fast.
const fn kind_of(errno: Errno) -> Option<IoErrorKind> {
    Some(match errno {
        Errno::NotSup => return None,
        Errno::NoSpc => IoErrorKind::NoSpace,
        Errno::Perm => IoErrorKind::NotPermitted,
        Errno::Inval => IoErrorKind::Invalid,
        Errno::NoMem => IoErrorKind::NoMemory,
        Errno::Shutdown => IoErrorKind::ShuttingDown,
        Errno::Io | Errno::Overflow => IoErrorKind::Io,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64) -> Instant {
        Instant::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn a_kind_has_its_place() {
        for (index, kind) in IoErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{}", kind.name());
        }
    }

    #[test]
    fn a_spell_ends_with_a_minute_without_errors() {
        let mut errors = IoErrors::default();
        assert_eq!(errors.spell(), None);
        for at in [5, 64, 120] {
            errors.count_failed(Errno::NoSpc, second(at));
        }
        assert_eq!(errors.spell(), Some((second(5), second(120))));
        errors.count_failed(Errno::Io, second(180));
        assert_eq!(errors.spell(), Some((second(180), second(180))));
        let counted: Vec<_> = errors.kinds().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(IoErrorKind::Io, 1), (IoErrorKind::NoSpace, 3)]);
    }

    #[test]
    fn mistakes_of_clients_are_no_errors_of_the_storage() {
        let mut errors = IoErrors::default();
        for errno in [Errno::Inval, Errno::Perm, Errno::NoSpc, Errno::Overflow] {
            errors.count_refused(errno, second(1));
        }
        assert_eq!((errors.mistakes(), errors.spell()), (4, None));
        errors.count_failed(Errno::NotSup, second(1));
        assert_eq!(errors.spell(), None, "zeroes that are not fast are no error");
        errors.count_refused(Errno::NoMem, second(2));
        assert_eq!((errors.mistakes(), errors.spell()), (4, Some((second(2), second(2)))));
    }
}
