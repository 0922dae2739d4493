//! Who may occupy how much payload memory.

/// The payload memory of a pool, shared by its sessions.
///
/// A session may grow up to its own bound, and only as long as as much is still free as it would then occupy
/// (a dynamic threshold: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
/// switches", 1998, with α = 1). So a client that never takes its replies gets half of what it finds free at most, and
/// there is some left for a newcomer.
#[derive(Debug)]
pub(crate) struct Memory {
    used: u64,
    peak: u64,
    limit: u64,
    session_limit: u64,
    /// Somebody who waits may try again: something was returned since the last [`take_released`](Self::take_released).
    released: bool,
}

impl Memory {
    pub(crate) fn new(limit: u64, session_limit: u64) -> Self {
        Self { used: 0, peak: 0, limit, session_limit, released: false }
    }

    pub(crate) fn set_limits(&mut self, limit: u64, session_limit: u64) {
        (self.limit, self.session_limit, self.released) = (limit, session_limit, true);
    }

    /// Grants `bytes` to a session that occupies `session_bytes`, or refuses.
    pub(crate) fn grant(&mut self, session_bytes: &mut u64, bytes: u64) -> bool {
        let free = self.limit.saturating_sub(self.used);
        let wanted = *session_bytes + bytes;
        let fair = *session_bytes == 0 || (wanted <= self.session_limit && wanted <= free);
        if bytes > free || !fair {
            return false;
        }
        *session_bytes = wanted;
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        true
    }

    pub(crate) fn release(&mut self, session_bytes: &mut u64, bytes: u64) {
        debug_assert!(bytes <= *session_bytes && bytes <= self.used, "released more than was granted");
        *session_bytes -= bytes;
        self.used -= bytes;
        self.released = true;
    }

    /// Something else than memory that a session may wait for has become free.
    pub(crate) fn wake_waiting(&mut self) {
        self.released = true;
    }

    pub(crate) fn has_released(&self) -> bool {
        self.released
    }

    pub(crate) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hoarders_leave_room_for_a_newcomer() {
        for hoarders in 1..10u64 {
            let mut memory = Memory::new(256 << 20, 256 << 20);
            for _ in 0..hoarders {
                let mut session = 0;
                while memory.grant(&mut session, 4096) {}
            }
            assert!(memory.limit - memory.used >= (256 << 20) >> hoarders, "{hoarders}");
            assert!(memory.grant(&mut 0, 4096));
        }
    }

    proptest! {
        #[test]
        fn never_more_than_the_limits(grants in prop::collection::vec((0usize..4, 1u64..5_000, any::<bool>()), 0..300)) {
            let mut memory = Memory::new(20_000, 8_000);
            let mut sessions = [0u64; 4];
            for (session, bytes, release) in grants {
                if release {
                    let bytes = bytes.min(sessions[session]);
                    memory.release(&mut sessions[session], bytes);
                } else {
                    memory.grant(&mut sessions[session], bytes);
                }
                prop_assert_eq!(memory.used(), sessions.iter().sum::<u64>());
                prop_assert!(memory.used() <= 20_000 && sessions.iter().all(|used| *used <= 8_000));
            }
        }
    }
}
