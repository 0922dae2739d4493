//! Reads a whole bucket when a broker starts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use bytes::Bytes;
use futures_util::stream::StreamExt;
use tokio::time::timeout;

use super::connection::{CONNECT, LARGEST_BATCH, unusable};
use super::{CatalogueBucket, OPERATION, REST, number_of};
use crate::catalogue::{BegunTransfer, CatalogueError, CatalogueState};
use crate::wire::{CatalogueObject, DataDirection};

/// The number of entries that are asked for at first; then twice as many for as long as they come quickly.
const FIRST_BATCH: usize = 64;

/// The time without a question after which the server forgets a reader of the bucket. It is longer than a
/// write that is not answered takes.
const READER: Duration = Duration::from_secs(60);

/// An entry of the bucket: a key, the number of its write, and its value; `None` if it was removed.
struct Entry {
    key: String,
    number: u64,
    value: Option<Bytes>,
}

impl CatalogueBucket {
    /// Reads all of it, up to our own `owner`: after that only we write. It may take longer than the lease,
    /// so that we say in between that we are there. Each request asks for no more entries than arrive in a
    /// part of the lease. Nothing is changed in the bucket before all is read.
    pub(super) fn load(&mut self) -> Result<CatalogueState, CatalogueError> {
        (self.numbers, self.free, self.owed) = Default::default();
        (self.gone, self.over) = Default::default();
        let mut known = CatalogueState::default();
        let mut next = 0;
        let consumer = self.line.wait(self.reader())?;
        // `owner` is written again while we read, and stands at the end then.
        let claimed = self.last;
        let (mut read, mut most) = (0, FIRST_BATCH);
        loop {
            let asked = Instant::now();
            let entries = self.line.wait(self.batch(&consumer, read, most, claimed))?;
            read += entries.len() as u64;
            let quick = asked.elapsed() < self.plan.lease / 16;
            most = if quick { most.saturating_mul(2) } else { most / 2 }.clamp(1, LARGEST_BATCH);
            let is_read = entries.last().is_none_or(|entry| entry.number >= claimed);
            for Entry { key, number, value } in entries {
                if let Some(place) = number_of(&key) {
                    next = next.max(place.saturating_add(1));
                }
                self.absorb(&mut known, &key, value.as_deref())?;
                if value.is_none() {
                    self.gone.push((key, number));
                }
            }
            match self.remain(&mut known) {
                // It may be there, and the next round finds it.
                Err(error) if error.may_pass() => tracing::debug!("{error}"),
                outcome => outcome?,
            }
            if is_read {
                break;
            }
        }
        // It is all there is only if it was ours up to now.
        let ended = Instant::now();
        while let Err(error) = self.remain(&mut known) {
            match error {
                CatalogueError::Away { .. } if ended.elapsed() < CONNECT => std::thread::sleep(REST),
                CatalogueError::Away { why, .. } => return Err(unusable(&self.plan, why)),
                error => return Err(error),
            }
        }
        let taken: BTreeSet<u32> = self.numbers.values().copied().collect();
        self.free = (0..next).filter(|number| !taken.contains(number)).collect();
        // Between an object and the end of its transfer the broker may have died.
        let stored = |begun: &&BegunTransfer| {
            let object = begun.name.as_ref().and_then(|name| known.objects.get(name));
            let is_there = |object: &CatalogueObject| {
                object.replicas.iter().any(|one| Some(&one.key) == begun.key.as_ref())
            };
            begun.way == DataDirection::Write && object.is_some_and(is_there)
        };
        let over: Vec<String> =
            known.under_way.values().filter(stored).map(|begun| begun.id.clone()).collect();
        for id in over {
            known.under_way.remove(&id);
            self.owed.insert(id);
        }
        Ok(known)
    }

    /// Returns a reader of the bucket, from its beginning.
    async fn reader(&self) -> Result<PullConsumer, CatalogueError> {
        let config = pull::Config {
            ack_policy: AckPolicy::None,
            inactive_threshold: READER,
            memory_storage: true,
            ..pull::Config::default()
        };
        let made = timeout(CONNECT, self.link().stream.create_consumer(config)).await;
        let made = made.map_err(|_| unusable(&self.plan, "it is not told to its end"))?;
        made.map_err(|error| unusable(&self.plan, error))
    }

    /// Returns the next entries, after the ones that were read: as many as are asked for, or up to the last
    /// one.
    async fn batch(
        &self,
        consumer: &PullConsumer,
        read: u64,
        most: usize,
        last: u64,
    ) -> Result<Vec<Entry>, CatalogueError> {
        let torn = || unusable(&self.plan, "it is not told to its end");
        let failed = |error: &dyn std::fmt::Display| unusable(&self.plan, error);
        let batch = consumer.batch().max_messages(most).expires(CONNECT).messages();
        let mut messages = batch.await.map_err(|error| failed(&error))?;
        let prefix = self.subject("");
        let mut entries = Vec::new();
        while entries.len() < most {
            let message = timeout(CONNECT, messages.next()).await.ok().flatten().ok_or_else(torn)?;
            let message = message.map_err(|error| failed(&error))?;
            let info = message.info().map_err(|error| failed(&error))?;
            let (number, order) = (info.stream_sequence, info.consumer_sequence);
            if order != read + 1 + entries.len() as u64 {
                return Err(torn());
            }
            let headers = message.headers.as_ref();
            let is_put = headers.is_none_or(|headers| headers.get(OPERATION).is_none());
            entries.push(Entry {
                key: message.subject.strip_prefix(&prefix).unwrap_or_default().to_owned(),
                number,
                value: is_put.then(|| message.payload.clone()),
            });
            if number >= last {
                break;
            }
        }
        Ok(entries)
    }
}
