//! The place where a carrier puts policies, and where watches find them.

use crate::policy::{InvalidPolicy, MOST_RESOURCES, ResourcePolicy};
use crate::policy_writer::PolicyWriter;
use crate::signature::VerifiedPolicy;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_units::ResourceName;

/// A policy as it stands in the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyRevision {
    /// Grows with every change in the cluster's store; what a compare-and-set compares.
    pub revision: u64,
    /// Grows with every change, and is signed: of two policies the one with the higher one counts.
    pub serial: u64,
    /// The key that signed it.
    pub writer: PolicyWriter,
    /// The policy.
    pub policy: ResourcePolicy,
}

impl PolicyRevision {
    pub(crate) fn new(revision: u64, verified: VerifiedPolicy) -> Self {
        let VerifiedPolicy { writer, serial, policy } = verified;
        Self { revision, serial, writer, policy }
    }
}

/// The policies of all resources that have one.
pub type PolicySource = Arc<BTreeMap<ResourceName, PolicyRevision>>;

/// Sees the policies of a cluster change.
///
/// A policy that is not valid, or not signed by a writer, is refused with a line in the log, and the last
/// good one stays; so it does when the server is away, and when a policy is deleted, since a deletion is not
/// signed. An empty policy ends one.
#[derive(Debug)]
pub struct PolicyWatch {
    board: Arc<PolicyBoard>,
    seen: u64,
}

impl PolicyWatch {
    pub(crate) fn new(board: Arc<PolicyBoard>) -> Self {
        Self { board, seen: 0 }
    }

    /// All policies now.
    #[must_use]
    pub fn current(&self) -> PolicySource {
        self.board.lock().policies.clone()
    }

    /// All policies, if any has changed since this watch was last asked. Never waits.
    pub fn changed(&mut self) -> Option<PolicySource> {
        self.wait(Duration::ZERO)
    }

    /// Waits for a change, at most so long.
    pub fn wait(&mut self, timeout: Duration) -> Option<PolicySource> {
        let seen = self.seen;
        let deadline = Instant::now() + timeout;
        let mut state = self.board.lock();
        while state.changes == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.board.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.seen = state.changes;
        Some(state.policies.clone())
    }
}

/// The reason why the board does not take a policy.
#[derive(Debug)]
pub(crate) enum PolicyRefusal {
    /// A later one was there.
    Old(InvalidPolicy),
    /// There are policies for too many resources.
    TooMany,
}

/// The place where the carrier puts policies and watches find them.
#[derive(Debug, Default)]
pub(crate) struct PolicyBoard {
    state: Mutex<BoardState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct BoardState {
    pub(crate) policies: PolicySource,
    changes: u64,
}

impl PolicyBoard {
    /// Takes a policy of a resource, unless a later one was there. Returns whether it changes anything.
    ///
    /// # Errors
    /// When it is not later than the one that was there, or there is no room.
    pub(crate) fn put(&self, resource: ResourceName, policy: PolicyRevision) -> Result<bool, PolicyRefusal> {
        let mut state = self.lock();
        match state.policies.get(&resource) {
            // The same, as it is read again after every connection.
            Some(known) if known.serial == policy.serial && known.policy == policy.policy => {
                if known.revision >= policy.revision {
                    return Ok(false);
                }
            }
            Some(known) if known.serial >= policy.serial => {
                return Err(PolicyRefusal::Old(InvalidPolicy::Old {
                    serial: policy.serial,
                    seen: known.serial,
                }));
            }
            None if state.policies.len() >= MOST_RESOURCES => return Err(PolicyRefusal::TooMany),
            Some(_) | None => {}
        }
        Arc::make_mut(&mut state.policies).insert(resource, policy);
        state.changes += 1;
        self.changed.notify_all();
        Ok(true)
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, BoardState> {
        // Nothing panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
