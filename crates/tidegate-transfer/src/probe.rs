//! Probes of the rate that a node moves: a bounded amount, for a bounded time, and only on request.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes as Piece, BytesMut};
use futures_util::stream::{self, StreamExt};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{Advice, fadvise};
use thiserror::Error;
use tidegate_units::{ByteRate, Bytes};
use tokio::time::{Instant, timeout_at};

use crate::name::{NoRandom, fresh_run};
use crate::store::{DataPieces, NodePlace, NodeStore, PIECE, StoreError, ended};

/// The limits of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeLimits {
    /// The greatest amount that is written, and read again.
    pub size: Bytes,
    /// The longest time for each of the two.
    pub time: Duration,
}

/// The result for the fastest object, since a peak is the most that a node moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeResult {
    /// The rate of the object.
    pub rate: ByteRate,
    /// The size of the object.
    pub of: Bytes,
    /// The amount that was moved in all.
    pub moved: Bytes,
    /// The number of objects that were moved in all.
    pub objects: usize,
}

/// The reason why nothing was found.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The node failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are no random numbers: the written data would be compressed, or stored once.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
    /// The first object was not finished in time.
    #[error("not even {0} could be moved in the time that was given: give it more")]
    Slow(Bytes),
}

/// The size of the first object; [`LARGEST`] is that of the greatest. On a node that is too slow for more,
/// the first alone gives a rate. For the greatest, the cost beside its bytes is at most some per cent.
const FIRST: u64 = PIECE as u64;
const LARGEST: u64 = 64 * PIECE as u64;

/// The size of a block. Every block that is written is different from all others, so that none is stored once
/// for several.
const BLOCK: usize = 4096;

/// The time in which a file system that is not hung has made a file. A server that answers has called an
/// upload off in this time, too.
const CREATION: Duration = Duration::from_secs(5);

/// A probe of a node. Call [`clean_up`](Self::clean_up) at its end, whatever its result.
#[derive(Debug)]
pub struct NodeProbe {
    store: NodeStore,
    place: NodePlace,
    run: String,
    limits: ProbeLimits,
    /// The keys of the objects that were begun, and the sizes of those that were finished.
    keys: Vec<(String, Option<u64>)>,
}

impl NodeProbe {
    /// Makes a probe of a place. Nothing is moved yet.
    ///
    /// # Errors
    /// When it is not there.
    pub fn new(place: &NodePlace, limits: ProbeLimits) -> Result<Self, ProbeError> {
        let (store, run) = (NodeStore::open(place)?, fresh_run()?);
        Ok(Self { store, place: place.clone(), run, limits, keys: Vec::new() })
    }

    /// Writes objects, each twice as large as the one before, until one of the limits is reached. An object
    /// that is not finished by then does not count: it is not known how much of it has arrived. May be
    /// dropped at any time.
    ///
    /// # Errors
    /// When the node fails, or the first did not come to its end.
    pub async fn write(&mut self) -> Result<ProbeResult, ProbeError> {
        let mut noise = BytesMut::zeroed(PIECE);
        SystemRandom::new().fill(&mut noise).map_err(|_| NoRandom)?;
        let noise = noise.freeze();
        let until = Instant::now() + self.limits.time;
        let mut tally = Tally::default();
        let (mut size, mut left) = (FIRST.min(self.limits.size.get()), self.limits.size.get());
        while size > 0 {
            let key = format!("tidegate-probe.{}.{}", self.run, self.keys.len());
            // Before there can be anything of it.
            self.keys.push((key.clone(), None));
            let pieces = pieces(noise.clone(), tally.moved, size);
            let began = Instant::now();
            match timeout_at(until, self.store.put(&key, size, pieces, Arc::default())).await {
                Ok(outcome) => outcome?,
                Err(_) => break,
            }
            tally.add(size, began.elapsed());
            if let Some((_, written)) = self.keys.last_mut() {
                *written = Some(size);
            }
            left -= size;
            size = (size * 2).min(LARGEST).min(left);
        }
        tally.found().ok_or(ProbeError::Slow(Bytes::new(FIRST.min(self.limits.size.get()))))
    }

    /// Reads the written objects, the largest first. From a folder, nothing comes from this machine's memory.
    /// A server's own memory does count.
    ///
    /// # Errors
    /// When the node fails, or the first did not come to its end.
    pub async fn read(&mut self) -> Result<ProbeResult, ProbeError> {
        let until = Instant::now() + self.limits.time;
        let mut tally = Tally::default();
        let mut written: Vec<(String, u64)> =
            self.keys.iter().filter_map(|(key, size)| Some((key.clone(), (*size)?))).collect();
        written.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        let largest = written.first().map_or(0, |(_, size)| *size);
        for (key, size) in written {
            if let NodePlace::Folder(folder) = &self.place {
                forget(&folder.join(&key)).map_err(|error| StoreError::File(folder.join(&key), error))?;
            }
            let began = Instant::now();
            let fetch = async {
                let mut there = 0;
                let mut pieces = self.store.get(&key, 0).await?;
                while let Some(piece) = pieces.next().await {
                    there += piece?.len() as u64;
                }
                Ok::<_, StoreError>(there)
            };
            match timeout_at(until, fetch).await {
                Ok(there) => {
                    // If a part of it was removed, that says nothing.
                    if there? == size {
                        tally.add(size, began.elapsed());
                    }
                }
                Err(_) => break,
            }
        }
        tally.found().ok_or(ProbeError::Slow(Bytes::new(largest)))
    }

    /// Removes the objects that were begun, also those that were broken off in the middle. Returns the ones
    /// that could not be removed, with the reasons.
    #[must_use = "what is left there is to be said"]
    pub async fn clean_up(self) -> Vec<(String, StoreError)> {
        let mut left = Vec::new();
        // A file that was being made when its writer was dropped may come to be after it was removed.
        ended(CREATION).await;
        for (key, _) in self.keys {
            if let Err(error) = self.store.remove(&key).await {
                left.push((key, error));
            }
        }
        left
    }
}

/// The sum of the objects that were moved.
#[derive(Debug, Default)]
struct Tally {
    moved: u64,
    objects: usize,
    best: Option<(f64, u64)>,
}

impl Tally {
    fn add(&mut self, size: u64, took: Duration) {
        self.moved += size;
        self.objects += 1;
        let rate = size as f64 / took.as_secs_f64().max(1e-6);
        // Small ones may lie in a buffer: the larger one tells, unless it is the smaller of two that fill
        // what is left.
        let is_larger = self.best.is_none_or(|(_, of)| size > of);
        if is_larger || self.best.is_some_and(|(best, of)| size == of && rate > best) {
            self.best = Some((rate, size));
        }
    }

    fn found(&self) -> Option<ProbeResult> {
        self.best.map(|(rate, of)| ProbeResult {
            rate: ByteRate::new(rate),
            of: Bytes::new(of),
            moved: Bytes::new(self.moved),
            objects: self.objects,
        })
    }
}

/// Returns pieces of `size` bytes of which no two blocks are alike, after `before` others.
fn pieces(noise: Piece, before: u64, size: u64) -> DataPieces {
    let next = move |at: u64| {
        let noise = noise.clone();
        async move {
            let length = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
            (length > 0).then(|| {
                let mut piece = BytesMut::from(&noise[..length]);
                for (number, block) in piece.chunks_mut(BLOCK).enumerate() {
                    let stamp = (before + at + (number * BLOCK) as u64).to_le_bytes();
                    let room = block.len().min(stamp.len());
                    block[..room].copy_from_slice(&stamp[..room]);
                }
                (Ok(piece.freeze()), at + length as u64)
            })
        }
    };
    stream::unfold(0, next).boxed()
}

/// Makes the kernel forget its cache of a file that is on its disk.
fn forget(path: &Path) -> io::Result<()> {
    Ok(fadvise(std::fs::File::open(path)?, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    fn probe(folder: &Path, size: u64, time: Duration) -> NodeProbe {
        let place = NodePlace::Folder(folder.to_owned());
        NodeProbe::new(&place, ProbeLimits { size: Bytes::new(size), time }).unwrap()
    }

    #[test]
    fn it_moves_what_it_may_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        run(async {
            let mut probe = probe(folder.path(), 10 * FIRST + 7, Duration::from_secs(600));
            let written = probe.write().await.unwrap();
            // 1 + 2 + 4 MiB, and what is left of the limit.
            assert_eq!((written.objects, written.moved), (4, Bytes::new(10 * FIRST + 7)));
            assert_eq!(written.of, Bytes::new(4 * FIRST));
            assert_eq!(files(), 4);
            let read = probe.read().await.unwrap();
            assert_eq!((read.objects, read.moved, read.of), (4, written.moved, written.of));
            assert!(read.rate > ByteRate::ZERO && written.rate > ByteRate::ZERO);
            assert!(probe.clean_up().await.is_empty());
        });
        assert_eq!(files(), 0);
    }

    #[test]
    fn one_that_is_broken_off_leaves_nothing_either() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let mut probe = probe(folder.path(), 1 << 40, Duration::ZERO);
            assert!(matches!(probe.write().await, Err(ProbeError::Slow(_))));
            assert!(matches!(probe.read().await, Err(ProbeError::Slow(_))));
            // Dropped in the middle.
            let limits = ProbeLimits { size: Bytes::new(64 * FIRST), time: Duration::from_secs(600) };
            probe.limits = limits;
            tokio::select! {
                biased;
                _ = probe.write() => panic!("64 MiB in no time"),
                () = tokio::task::yield_now() => {}
            }
            assert!(!probe.keys.is_empty());
            assert!(probe.clean_up().await.is_empty());
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_two_blocks_are_alike() {
        let noise = Piece::from(vec![7; PIECE]);
        let size = 2 * PIECE as u64 + 100;
        let all: Vec<Piece> = run(async {
            let first = pieces(noise.clone(), 0, size).map(Result::unwrap).collect::<Vec<_>>().await;
            let second = pieces(noise, size.next_multiple_of(BLOCK as u64), size).map(Result::unwrap);
            first.into_iter().chain(second.collect::<Vec<_>>().await).collect()
        });
        assert_eq!(all.iter().map(|piece| piece.len() as u64).sum::<u64>(), 2 * size);
        let blocks: Vec<&[u8]> = all.iter().flat_map(|piece| piece.chunks_exact(BLOCK)).collect();
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), blocks.len());
    }
}
