//! Rollups of a gateway's consumers, beside its decision journal.

use std::path::Path;
use std::time::Duration;

use tidegate_gateway::{ConsumerSnapshot, GatewaySnapshot, PoolSnapshot};
use tidegate_journal::WallTime;
use tidegate_rollups::{RollupError, RollupWriter};
use tidegate_service::rollups::{LookTime, MinuteFold, MinuteReading};

/// The longest time that the end of the service waits for the last minutes to be written. Chosen: a disk that
/// needs longer hangs.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The minutes of a gateway, on their way to the disk.
#[derive(Debug)]
pub(crate) struct GatewayRollups {
    fold: MinuteFold,
    writer: RollupWriter,
}

impl GatewayRollups {
    /// Begins to write beside the decision journal in this folder.
    pub(crate) fn start(journal: &Path) -> Result<Self, RollupError> {
        Ok(Self { fold: MinuteFold::default(), writer: RollupWriter::start(journal)? })
    }

    /// Adds a consumer's reading.
    pub(crate) fn note(
        &mut self,
        wall: WallTime,
        pool: &PoolSnapshot,
        consumer: &ConsumerSnapshot,
        reading: MinuteReading,
    ) {
        self.fold.note(&pool.name, &consumer.name, LookTime { at: pool.at, wall }, reading);
    }

    /// Takes note of the reasons to wait.
    pub(crate) fn look(&mut self, wall: WallTime, snapshot: &GatewaySnapshot) {
        for pool in &snapshot.pools {
            let now = LookTime { at: pool.at, wall };
            self.fold.retain(&pool.name, |name| pool.consumers.iter().any(|known| known.name == *name));
            for consumer in &pool.consumers {
                self.fold.look(&pool.name, &consumer.name, now, consumer.waits_for);
            }
        }
    }

    /// Hands over the minutes that are over, after the readings of all consumers.
    pub(crate) fn write_ended(&mut self, wall: WallTime) {
        for batch in self.fold.take_ended(wall) {
            self.writer.write(batch);
        }
    }

    /// Hands over the minutes under way, as far as they are known.
    pub(crate) fn write_all(&mut self) {
        for batch in self.fold.take_all() {
            self.writer.write(batch);
        }
    }

    /// Waits a little for the disk.
    pub(crate) fn close(self) {
        self.writer.close(LAST_WRITE);
    }
}
