//! Reasons to wait of a gateway's consumers, for their rollups.

use tidegate_gateway::GatewaySnapshot;
use tidegate_journal::WallTime;
use tidegate_service::rollups::{LookTime, MinuteFold};

/// Takes note of the reasons to wait, and forgets consumers that are gone.
pub(crate) fn look(fold: &mut MinuteFold, wall: WallTime, snapshot: &GatewaySnapshot) {
    for pool in &snapshot.pools {
        let now = LookTime { at: pool.at, wall };
        fold.retain(&pool.name, |name| pool.consumers.iter().any(|known| known.name == *name));
        for consumer in &pool.consumers {
            fold.look(&pool.name, &consumer.name, now, consumer.waits_for);
        }
    }
}
