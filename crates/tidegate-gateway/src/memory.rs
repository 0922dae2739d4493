//! Payload memory: the shares of it that each export and each session of a pool may occupy.
//!
//! A part of the pool's memory is set aside for each export as its **reserve** ([`PoolLimits::reserves`]);
//! the rest is shared. Bytes beyond the reserve are **drawn** from the shared part. Both the draws of an
//! export and the bytes of a session obey a dynamic threshold: a request may be granted only while at least
//! as much is free as its owner would then occupy (Choudhury and Hahne, "Dynamic queue length thresholds for
//! shared-memory packet switches", 1998, with α = 1). So hoarders at one export never take another export's
//! reserve, and leave a part of the shared memory.

use slab::Slab;

use crate::config::PoolLimits;

/// The part of a pool's memory that one export may charge for large payloads before they arrive. Chosen: at
/// the default of 256 MiB it is one payload of 32 MiB, or sixteen of 2 MiB as `qemu-img` sends them.
const AHEAD: u64 = 8;

/// Larger requests leave an eighth of what their export may draw to requests up to this size. Chosen:
/// databases and file systems read and write less at a time, copies more.
const SMALL: u64 = 64 << 10;

/// A payload larger than this is charged as it arrives, where too much is charged ahead of arrival already.
pub(crate) const FIRST_CHARGE: u64 = 1 << 20;

/// An export's account with the pool's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccountKey(usize);

#[derive(Debug)]
struct Account {
    protected: bool,
    reserve: u64,
    used: u64,
    /// Charged for payloads that have not arrived completely, without waiting for their bytes.
    ahead: u64,
    /// Sessions of the export may try again since something of theirs was returned.
    returned: bool,
    /// True if they may try again in this round.
    retries: bool,
    /// The number of times memory was returned.
    returns: u64,
}

impl Account {
    fn drawn(&self) -> u64 {
        self.used.saturating_sub(self.reserve)
    }
}

/// The payload memory of a pool.
#[derive(Debug)]
pub(crate) struct PoolMemory {
    limits: PoolLimits,
    used: u64,
    peak: u64,
    accounts: Slab<Account>,
    /// The bytes outside all reserves, and how many of them are drawn.
    shared: u64,
    drawn: u64,
    /// Something was returned to the shared part: any session may try again.
    shared_returned: bool,
    /// Something was returned at all since the last round.
    returned: bool,
    claim: Option<Claim>,
}

/// An export that draws nothing has a request for which the shared part has too little. Until the request is
/// granted or given up, no other export draws more: otherwise small requests would always be faster.
#[derive(Debug)]
struct Claim {
    account: AccountKey,
    bytes: u64,
}

impl PoolMemory {
    pub(crate) fn new(limits: &PoolLimits) -> Self {
        Self {
            limits: limits.clone(),
            used: 0,
            peak: 0,
            accounts: Slab::new(),
            shared: limits.pool_bytes.get(),
            drawn: 0,
            shared_returned: false,
            returned: false,
            claim: None,
        }
    }

    pub(crate) fn set_limits(&mut self, limits: &PoolLimits) {
        self.limits = limits.clone();
        self.divide();
    }

    /// An account for a new export.
    pub(crate) fn open(&mut self, protected: bool) -> AccountKey {
        let key = self.accounts.insert(Account {
            protected,
            reserve: 0,
            used: 0,
            ahead: 0,
            returned: false,
            retries: false,
            returns: 0,
        });
        self.divide();
        AccountKey(key)
    }

    pub(crate) fn set_protected(&mut self, account: AccountKey, protected: bool) {
        if std::mem::replace(&mut self.accounts[account.0].protected, protected) != protected {
            self.divide();
        }
    }

    /// Closes the account of an export that occupies nothing.
    pub(crate) fn close(&mut self, account: AccountKey) {
        self.withdraw_claim(account);
        let closed = self.accounts.remove(account.0);
        debug_assert_eq!((closed.used, closed.ahead), (0, 0), "an export leaves nothing behind");
        self.divide();
    }

    /// Gives every account its reserve. Bytes in use stay where they are: until those beyond the new reserves
    /// have come back, `limit` alone bounds the whole.
    fn divide(&mut self) {
        let protected = self.accounts.iter().filter(|(_, account)| account.protected).count();
        let reserves = self.limits.reserves(protected, self.accounts.len() - protected);
        let (mut reserved, mut drawn) = (0, 0);
        for (_, account) in &mut self.accounts {
            let reserve = if account.protected { reserves.protected } else { reserves.other };
            account.reserve = reserve.get();
            reserved += account.reserve;
            drawn += account.drawn();
        }
        self.shared = self.limits.pool_bytes.get().saturating_sub(reserved);
        self.drawn = drawn;
        (self.shared_returned, self.returned) = (true, true);
    }

    /// The right of one session to occupy memory, on its export's account.
    pub(crate) fn allowance<'a>(
        &'a mut self,
        account: AccountKey,
        session_bytes: &'a mut u64,
    ) -> MemoryAllowance<'a> {
        MemoryAllowance { memory: self, account, session_bytes }
    }

    /// Returns whether a request that occupies `held` may occupy `held + wanted`; the caller then charges it.
    ///
    /// The request is judged as a whole, as if it were new: a payload that has begun is not refused for the
    /// bytes that it holds itself.
    fn has_room(&mut self, key: AccountKey, session_bytes: u64, held: u64, wanted: u64) -> bool {
        let account = &self.accounts[key.0];
        let (used, session_bytes, whole) = (account.used - held, session_bytes - held, held + wanted);
        let drawn_before = used.saturating_sub(account.reserve);
        let drawn = (used + whole).saturating_sub(account.reserve);
        let shared_free = self.shared.saturating_sub(self.drawn - account.drawn() + drawn_before);
        let free = account.reserve.saturating_sub(used) + shared_free;
        let session = session_bytes + whole;
        if session > self.limits.session_bytes.get() || session > free {
            // Without a share of the shared part, the session's own bytes cannot be what is in the way.
            if session_bytes == 0 && drawn_before == 0 && drawn <= self.shared {
                self.claim.get_or_insert(Claim { account: key, bytes: whole });
            }
            return false;
        }
        let fair = if drawn_before > 0 && whole > SMALL {
            let left = shared_free.saturating_sub(drawn - drawn_before);
            drawn <= left - left / 8
        } else {
            drawn <= shared_free
        };
        let others_claim = self.claim.as_ref().is_some_and(|claim| claim.account != key);
        let may_draw = drawn == drawn_before || (fair && !others_claim);
        if !may_draw || self.used + wanted > self.limits.pool_bytes.get() {
            return false;
        }
        if self.claim.as_ref().is_some_and(|claim| whole >= claim.bytes || drawn > drawn_before) {
            self.withdraw_claim(key);
        }
        true
    }

    fn charge(&mut self, key: AccountKey, session_bytes: &mut u64, bytes: u64) {
        let account = &mut self.accounts[key.0];
        let before = account.drawn();
        account.used += bytes;
        self.drawn += account.drawn() - before;
        *session_bytes += bytes;
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    /// Returns bytes that were charged to a session.
    pub(crate) fn release(&mut self, key: AccountKey, session_bytes: &mut u64, bytes: u64) {
        let account = &mut self.accounts[key.0];
        debug_assert!(bytes <= *session_bytes && bytes <= account.used, "released more than was granted");
        let before = account.drawn();
        account.used -= bytes;
        account.returned = true;
        account.returns += u64::from(bytes > 0);
        self.shared_returned |= account.drawn() < before;
        self.drawn -= before - account.drawn();
        *session_bytes -= bytes;
        self.used -= bytes;
        self.returned = true;
    }

    /// A payload that was charged ahead of its arrival has arrived, or never will.
    pub(crate) fn arrived(&mut self, key: AccountKey, ahead: u64) {
        self.accounts[key.0].ahead -= ahead;
    }

    /// Something else than memory that sessions of an export may wait for has become free.
    pub(crate) fn wake_waiting(&mut self, key: AccountKey) {
        self.accounts[key.0].returned = true;
        self.returned = true;
    }

    /// A session of the export no longer waits; a claim that others of its sessions still have is made again.
    pub(crate) fn withdraw_claim(&mut self, key: AccountKey) {
        if self.claim.as_ref().is_some_and(|claim| claim.account == key) {
            self.claim = None;
            (self.shared_returned, self.returned) = (true, true);
        }
    }

    /// Returns whether sessions that wait may try again.
    pub(crate) fn has_returned(&self) -> bool {
        self.returned
    }

    /// Begins a round in which sessions try again; see [`may_retry`](Self::may_retry).
    pub(crate) fn begin_round(&mut self) {
        self.returned = false;
        let shared = std::mem::take(&mut self.shared_returned);
        for (_, account) in &mut self.accounts {
            account.retries = std::mem::take(&mut account.returned) || shared;
        }
    }

    /// Returns whether something that a session of the export may wait for came back before this round.
    pub(crate) fn may_retry(&self, key: AccountKey) -> bool {
        self.accounts[key.0].retries
    }

    /// Returns the number of times memory of the export was returned. While it changes, requests that wait
    /// for memory have a prospect.
    pub(crate) fn returns(&self, key: AccountKey) -> u64 {
        self.accounts[key.0].returns
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }
}

/// One session's way to the memory of its pool.
#[derive(Debug)]
pub(crate) struct MemoryAllowance<'a> {
    memory: &'a mut PoolMemory,
    account: AccountKey,
    session_bytes: &'a mut u64,
}

/// Memory that a payload has been given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadCharge {
    /// Bytes of its buffer, all of them charged.
    pub(crate) bytes: u64,
    /// Charged ahead of arrival: to be given to [`PoolMemory::arrived`] once.
    pub(crate) ahead: u64,
}

impl MemoryAllowance<'_> {
    /// Grants the memory that a request without payload occupies, or refuses.
    pub(crate) fn grant(&mut self, bytes: u64) -> bool {
        let granted = self.memory.has_room(self.account, *self.session_bytes, 0, bytes);
        if granted {
            self.memory.charge(self.account, self.session_bytes, bytes);
        }
        granted
    }

    /// Grants a payload of `whole` bytes its first memory: all of it, where that is little or little is
    /// charged ahead of arrival; otherwise [`FIRST_CHARGE`].
    pub(crate) fn begin_payload(&mut self, whole: u64) -> Option<PayloadCharge> {
        if !self.memory.has_room(self.account, *self.session_bytes, 0, whole) {
            return None;
        }
        let most_ahead = self.memory.limits.pool_bytes.get() / AHEAD;
        let ahead = &mut self.memory.accounts[self.account.0].ahead;
        let charge = if whole <= FIRST_CHARGE {
            PayloadCharge { bytes: whole, ahead: 0 }
        } else if *ahead + whole <= most_ahead {
            *ahead += whole;
            PayloadCharge { bytes: whole, ahead: whole }
        } else {
            PayloadCharge { bytes: FIRST_CHARGE, ahead: 0 }
        };
        self.memory.charge(self.account, self.session_bytes, charge.bytes);
        Some(charge)
    }

    /// Grants a payload that occupies `held` bytes another `step`, if there is room for all of its `whole`.
    /// So the payload that grew last can always become complete, and payloads that grow never wait for each
    /// other in a circle.
    pub(crate) fn grow_payload(&mut self, held: u64, step: u64, whole: u64) -> bool {
        let granted = self.memory.has_room(self.account, *self.session_bytes, held, whole - held);
        if granted {
            self.memory.charge(self.account, self.session_bytes, step);
        }
        granted
    }

    /// A payload that was charged ahead of its arrival has arrived.
    pub(crate) fn arrived(&mut self, ahead: u64) {
        self.memory.arrived(self.account, ahead);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::Bytes;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn memory(pool: u64, session: u64) -> PoolMemory {
        PoolMemory::new(&PoolLimits {
            pool_bytes: Bytes::new(pool),
            session_bytes: Bytes::new(session),
            ..PoolLimits::default()
        })
    }

    /// Sessions of the account take `bytes` at a time until none gets more.
    fn hoard(memory: &mut PoolMemory, account: AccountKey, sessions: usize, bytes: u64) -> Vec<u64> {
        let mut hoarders = vec![0; sessions];
        for session in &mut hoarders {
            while memory.allowance(account, session).grant(bytes) {}
        }
        hoarders
    }

    #[test]
    fn hoarders_at_one_export_leave_another_its_reserve_and_half_of_the_shared_part() {
        for bytes in [4096, MIB, 32 * MIB] {
            let mut memory = memory(256 * MIB, 64 * MIB);
            let (database, backup) = (memory.open(true), memory.open(false));
            hoard(&mut memory, backup, 300, bytes);
            assert!(memory.used() >= 64 * MIB, "{bytes}: the hoarders hoard");
            let mut victim = 0;
            for _ in 0..4 {
                assert!(memory.allowance(database, &mut victim).grant(16 * MIB), "{bytes}");
            }
        }
    }

    #[test]
    fn hoarders_at_every_other_export_leave_the_reserve() {
        let mut memory = memory(256 * MIB, 64 * MIB);
        let others: Vec<AccountKey> = (0..99).map(|_| memory.open(false)).collect();
        let protected = memory.open(true);
        for other in others {
            hoard(&mut memory, other, 50, 64 * 1024);
        }
        assert!(memory.used() > 150 * MIB, "{}", memory.used());
        let mut victim = 0;
        for _ in 0..16 {
            assert!(memory.allowance(protected, &mut victim).grant(MIB));
        }
    }

    #[test]
    fn hundreds_of_busy_exports_do_not_starve_a_large_request() {
        let mut memory = memory(256 * MIB, 64 * MIB);
        let accounts: Vec<AccountKey> = (0..300).map(|_| memory.open(false)).collect();
        let (busy, idle) = accounts.split_at(299);
        let mut sessions = vec![0u64; busy.len()];
        let mut large = 0;
        let fill = |memory: &mut PoolMemory, sessions: &mut Vec<u64>| {
            for (account, session) in busy.iter().zip(sessions) {
                while memory.allowance(*account, session).grant(256 * 1024) {}
            }
        };
        fill(&mut memory, &mut sessions);
        assert!(!memory.allowance(idle[0], &mut large).grant(32 * MIB), "the shared part is drawn");
        for round in 0..1_000 {
            for (account, session) in busy.iter().zip(&mut sessions) {
                if *session > 0 {
                    memory.release(*account, session, 256 * 1024);
                }
            }
            // The busy exports are faster.
            fill(&mut memory, &mut sessions);
            if memory.allowance(idle[0], &mut large).grant(32 * MIB) {
                assert!(round < 100, "{round}");
                memory.begin_round();
                assert!(memory.may_retry(busy[0]), "the others draw again");
                return;
            }
        }
        panic!("the large request starves");
    }

    #[test]
    fn a_claim_ends_with_its_session() {
        let mut memory = memory(64 * MIB, 64 * MIB);
        let (one, two) = (memory.open(false), memory.open(false));
        let mut session = 0;
        assert!(memory.allowance(one, &mut session).grant(16 * MIB));
        assert!(!memory.allowance(two, &mut 0).grant(50 * MIB));
        let more = &mut 0;
        assert!(!memory.allowance(one, more).grant(4 * MIB), "the other export is first");
        memory.withdraw_claim(two);
        assert!(memory.allowance(one, more).grant(4 * MIB));
    }

    #[test]
    fn payloads_that_grow_never_wait_for_each_other_in_a_circle() {
        let mut memory = memory(64 * MIB, 64 * MIB);
        let account = memory.open(false);
        let whole = 32 * MIB;
        let mut sessions = [0u64; 8];
        let mut held = [0u64; 8];
        // Taken: others charge ahead of arrival.
        memory.accounts[account.0].ahead = memory.limits.pool_bytes.get();
        let mut done = 0;
        for _ in 0..1_000 {
            for (session, held) in sessions.iter_mut().zip(&mut held) {
                let mut allowance = memory.allowance(account, session);
                if *held == 0 {
                    *held = allowance.begin_payload(whole).map_or(0, |charge| charge.bytes);
                } else if *held < whole && allowance.grow_payload(*held, *held, whole) {
                    *held *= 2;
                }
                if *held == whole {
                    memory.release(account, session, whole);
                    (*held, done) = (0, done + 1);
                }
            }
        }
        assert!(done > 100, "{done} payloads became complete");
    }

    #[test]
    fn what_is_charged_ahead_of_arrival_is_bounded() {
        let mut memory = memory(256 * MIB, 64 * MIB);
        let account = memory.open(false);
        let charges: Vec<u64> = (0..40)
            .map(|_| memory.allowance(account, &mut 0).begin_payload(32 * MIB))
            .map(|charge| charge.map_or(0, |charge| charge.bytes))
            .collect();
        assert_eq!(charges[0], 32 * MIB);
        assert!(charges[1..].iter().all(|bytes| *bytes == FIRST_CHARGE), "{charges:?}");
    }

    #[test]
    fn only_sessions_that_something_came_back_for_try_again() {
        let mut memory = memory(256 * MIB, 64 * MIB);
        let (one, two) = (memory.open(false), memory.open(false));
        memory.begin_round();
        let (mut small, mut large) = (0, 0);
        assert!(memory.allowance(one, &mut small).grant(4096));
        assert!(memory.allowance(two, &mut large).grant(32 * MIB));
        memory.release(one, &mut small, 4096);
        assert!(memory.has_returned());
        memory.begin_round();
        assert!(memory.may_retry(one) && !memory.may_retry(two), "it was of the reserve");
        memory.release(two, &mut large, 32 * MIB);
        memory.begin_round();
        assert!(memory.may_retry(one) && memory.may_retry(two));
    }

    proptest! {
        #[test]
        fn never_more_than_the_limits_and_every_reserve_is_there(
            protected in prop::collection::vec(any::<bool>(), 1..6),
            steps in prop::collection::vec((0usize..6, 0usize..4, 1u64..40_000_000, 0u8..5), 0..200),
        ) {
            let (pool, session_limit) = (100 * MIB, 40 * MIB);
            let mut memory = memory(pool, session_limit);
            let accounts: Vec<AccountKey> = protected.iter().map(|protected| memory.open(*protected))
                .collect();
            let mut sessions = vec![[0u64; 4]; accounts.len()];
            for (export, session, bytes, action) in steps {
                let export = export % accounts.len();
                let (account, held) = (accounts[export], &mut sessions[export][session]);
                match action {
                    0 | 1 => {
                        let bytes = bytes.min(*held);
                        memory.release(account, held, bytes);
                    }
                    2 => {
                        if let Some(charge) = memory.allowance(account, held).begin_payload(bytes) {
                            memory.arrived(account, charge.ahead);
                        }
                    }
                    3 => {
                        let half = *held / 2;
                        memory.allowance(account, held).grow_payload(half, bytes / 2, half + bytes);
                    }
                    _ => {
                        memory.allowance(account, held).grant(bytes);
                    }
                }
                prop_assert_eq!(memory.used(), sessions.iter().flatten().sum::<u64>());
                prop_assert!(memory.used() <= pool && sessions.iter().flatten()
                    .all(|used| *used <= session_limit));
                let drawn: u64 = memory.accounts.iter().map(|(_, account)| account.drawn()).sum();
                prop_assert_eq!(memory.drawn, drawn);
                prop_assert!(drawn <= memory.shared);
                for (key, sessions) in accounts.iter().zip(&sessions) {
                    let account = &memory.accounts[key.0];
                    prop_assert_eq!(account.used, sessions.iter().sum::<u64>());
                    let (left, mut newcomer) = (account.reserve.saturating_sub(account.used), 0);
                    if left > 0 {
                        prop_assert!(memory.allowance(*key, &mut newcomer).grant(left), "the reserve is \
                            there");
                        memory.release(*key, &mut newcomer, left);
                    }
                }
            }
        }

        #[test]
        fn reserves_leave_room_for_the_largest_request(
            pool in 32u64..4096, protected in 0usize..400, others in 0usize..400,
        ) {
            let limits = PoolLimits { pool_bytes: Bytes::from_mib(pool), ..PoolLimits::default() };
            let reserves = limits.reserves(protected, others);
            let sum = reserves.protected.get() * protected as u64 + reserves.other.get() * others as u64;
            prop_assert!(sum + 32 * MIB <= pool * MIB && sum <= pool * MIB / 2);
            prop_assert!(protected == 0 || reserves.protected >= reserves.other);
        }
    }
}
