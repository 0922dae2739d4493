//! Moves files between this machine and storage nodes.

mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::StreamExt;
use serde::Serialize;
use thiserror::Error;
use tidegate_placement::RateRecord;
use tidegate_units::{ByteRate, Bytes, Latency, ResourceName};
use tokio::fs::File;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{AskError, BrokerClient};
use crate::digest::{Digest, Hasher};
use crate::gauge::BytesGauge;
use crate::name::ObjectName;
use crate::places::{NodePlaces, PlacesError};
use crate::store::{NodeStore, StoreError};
use crate::wire::{
    DataDirection, ProgressReport, ServiceNeeds, StoredReport, TransferEnd, TransferPermit, TransferQuestion,
    TransferReservation,
};

use files::{FileReading, PartFile, SendingSource, pieces};

/// The time between two progress reports to the broker: a few in every look of the broker at its nodes.
const TELL: Duration = Duration::from_millis(250);

/// The time between two measurements of a transfer's rate, which show whether it gets what it needs.
const SAMPLE: Duration = Duration::from_secs(1);

/// The longest time that a finished transfer waits for the broker to take the time of its first byte.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The least that a node moves within the time of a stall: one slice as the store counts them, which at the
/// default of a minute is 1 kB/s.
const LEAST_MOVED: u64 = 64 * 1024;

/// The least rate of a node as a part of the rate that the transfer needs (chosen: a transfer takes at most a
/// hundred times as long as it should).
const LEAST_RATE: f64 = 0.01;

/// The settings by which files are moved.
#[derive(Debug, Clone, Copy)]
pub struct MoverSettings {
    /// The service that each transfer needs.
    pub needs: ServiceNeeds,
    /// The least class of availability of a node to write to.
    pub availability: u8,
    /// The greatest class of cost of a node to write to.
    pub cost: u8,
    /// The number of replicas that are written, each on a node of its own.
    pub copies: u8,
    /// True to read back the data that was written, and compare.
    pub verify: bool,
    /// The time after which a node that moves nothing, or next to nothing, has failed.
    pub stall: Duration,
    /// The number of attempts after which a transfer is given up.
    pub attempts: u32,
}

impl MoverSettings {
    /// Returns the settings with every default.
    #[must_use]
    pub const fn new(needs: ServiceNeeds) -> Self {
        let stall = Duration::from_secs(60);
        Self { needs, availability: 0, cost: u8::MAX, copies: 1, verify: false, stall, attempts: 5 }
    }

    /// Returns the number of bytes that a node has to move within the time of a stall.
    fn least_moved(&self) -> u64 {
        let rate = match self.needs {
            ServiceNeeds::Average(rate) | ServiceNeeds::MovingAverage(rate) | ServiceNeeds::Current(rate) => {
                rate
            }
            ServiceNeeds::Latency(_) => 0.0,
        };
        LEAST_MOVED.max((rate * LEAST_RATE * self.stall.as_secs_f64()) as u64)
    }
}

/// An event of a transfer, for observers.
#[derive(Debug)]
pub enum TransferEvent<'a> {
    /// No node can carry it now.
    Waits,
    /// It begins on a node, and is to move this size.
    Begins(&'a ResourceName, Bytes),
    /// This much was moved in this attempt, or is there from the one before.
    Moved(Bytes),
    /// It failed on a node, and will be tried on another.
    Failed(&'a ResourceName, &'a str),
}

/// A transfer that came to its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransferOutcome {
    /// The object.
    pub name: ObjectName,
    /// The file.
    pub file: PathBuf,
    /// The nodes that hold it now, or from which it was read.
    pub nodes: Vec<ResourceName>,
    /// Its size.
    pub bytes: Bytes,
    /// The time that it was under way, on its last node, without waiting; for several replicas together.
    pub seconds: f64,
    /// Bytes over seconds, of the slowest replica.
    pub rate_bps: ByteRate,
    /// The time that it waited for a node that could carry it; 0 if there was one at once.
    pub waited_s: f64,
    /// True if it got what it needed; for several replicas, if each did.
    pub kept: bool,
    /// The number of attempts that failed.
    pub failed: u32,
    /// The checksum.
    pub sha256: Digest,
}

/// The reason why a file was not moved.
#[derive(Debug, Error)]
pub enum MoveError {
    /// The file on this machine failed.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("{}: only regular files can be stored", .0.display())]
    NotAFile(PathBuf),
    /// The file was written to meanwhile.
    #[error("{}: it was changed while it was stored; nothing of it is kept", .0.display())]
    Changed(PathBuf),
    /// The broker refused, or did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// This machine is not configured for the node that the broker names, or has another place for it.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// More replicas were asked for than there are nodes for.
    #[error(
        "{copies} replicas need as many nodes, and {usable} are of these classes: ask for fewer, or add a \
            node"
    )]
    Copies {
        /// The number of replicas that was asked for.
        copies: u8,
        /// The number of nodes that may be used.
        usable: usize,
    },
    /// Some replicas were stored, and no more could be.
    #[error(
        "{} of {copies} replicas are stored, on {}, and stay: {why}; to have more of them, remove the object \
            and store it anew",
        .nodes.len(), names(.nodes)
    )]
    Partly {
        /// The number of replicas that was asked for.
        copies: u8,
        /// The nodes that hold one.
        nodes: Vec<ResourceName>,
        /// The reason why the next one failed.
        why: Box<MoveError>,
    },
    /// The broker refused after the transfer had failed on a node. Without that node it may be refused for a
    /// reason that would not be one otherwise.
    #[error("{why}; before that it failed on node `{node}`: {failed}")]
    Then {
        /// The broker's answer.
        why: AskError,
        /// The node on which it failed last.
        node: ResourceName,
        /// The reason why it failed there.
        failed: String,
    },
    /// The object was written, and the catalogue may or may not have it.
    #[error(
        "all of it is on node `{node}` as `{key}`, and whether the catalogue has it is not known: {why}; ask \
            `tidegate transfer list` \
         before you store it again"
    )]
    Unsure {
        /// The node on which it is.
        node: ResourceName,
        /// The key under which it is.
        key: String,
        /// The error that came instead of an acknowledgement.
        why: AskError,
    },
    /// Nodes failed again and again.
    #[error("given up after {attempts} attempts, the last on node `{node}`: {why}")]
    Nodes {
        /// The number of attempts.
        attempts: u32,
        /// The last one.
        node: ResourceName,
        /// The reason why it failed there.
        why: String,
    },
    /// The data that was read is not the data that was stored.
    #[error("`{name}` has the wrong checksum on every node that holds it ({}): it is damaged \
        there", names(.nodes))]
    Checksum {
        /// The name of the object.
        name: ObjectName,
        /// The nodes from which it was read.
        nodes: Vec<ResourceName>,
    },
}

fn names(nodes: &[ResourceName]) -> String {
    nodes.iter().map(ResourceName::as_str).collect::<Vec<_>>().join(", ")
}

impl MoveError {
    /// Returns true if the broker refused for this reason.
    fn is(&self, code: &str) -> bool {
        matches!(self, Self::Ask(why) | Self::Then { why, .. } if why.is(code))
    }
}

/// The broker's answers when none of the nodes that are left will ever carry a transfer.
const NEVER: [&str; 4] = ["excluded", "too-large", "too-fast", "too-soon"];

/// The reason why one attempt ended.
enum AttemptEnd {
    /// The node is to blame.
    Node(String),
    /// The broker has forgotten about it, and it has to be asked for anew.
    Lost,
    /// A further attempt is useless.
    Fatal(MoveError),
}

impl From<StoreError> for AttemptEnd {
    fn from(error: StoreError) -> Self {
        Self::Node(error.to_string())
    }
}

/// Decides what to do about a write that is not acknowledged. It may be tried again or removed only if the
/// broker says that the catalogue does not have it. Otherwise its record may be on the disk, and only the
/// answer is missing.
fn unacknowledged(error: AskError, node: ResourceName, key: &str) -> AttemptEnd {
    if error.is("gone") {
        return AttemptEnd::Lost;
    }
    let is_refused = ["duplicate", "otherwise", "unknown-object", "full"].iter().any(|code| error.is(code));
    AttemptEnd::Fatal(if is_refused {
        error.into()
    } else {
        MoveError::Unsure { node, key: key.to_owned(), why: error }
    })
}

/// The measurements that an attempt makes of itself, and reports to the broker.
struct AttemptMeter {
    moved: Arc<BytesGauge>,
    kept: RateRecord,
    /// True if the time of its first byte says something of the direction that was asked for.
    tells_first: bool,
}

/// Moves files as a broker places them.
#[derive(Debug, Clone)]
pub struct FileMover {
    client: BrokerClient,
    places: NodePlaces,
    settings: MoverSettings,
}

/// A replica that was written, or an object that was read.
struct Carried {
    node: ResourceName,
    seconds: f64,
    waited: f64,
    kept: bool,
    failed: u32,
}

impl FileMover {
    /// Makes a mover for a broker, to and from the nodes at these places.
    #[must_use]
    pub const fn new(client: BrokerClient, places: NodePlaces, settings: MoverSettings) -> Self {
        Self { client, places, settings }
    }

    /// Stores a file as an object. When this returns, the catalogue has it, and no crash makes it forget.
    ///
    /// # Errors
    /// When it could not be stored. [Replicas](MoveError::Partly) that were acknowledged before stay.
    pub async fn put(
        &self,
        file: &Path,
        name: &ObjectName,
        watch: &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> Result<TransferOutcome, MoveError> {
        let at = |source| MoveError::File { path: file.to_owned(), source };
        let about = tokio::fs::metadata(file).await.map_err(at)?;
        if !about.is_file() {
            return Err(MoveError::NotAFile(file.to_owned()));
        }
        self.places.any()?;
        let size = Bytes::new(about.len());
        self.check_copies().await?;
        let mut known: Option<Digest> = None;
        let mut carried: Vec<Carried> = Vec::new();
        for copy in 0..self.settings.copies.max(1) {
            let wish = TransferQuestion {
                name: Some(name.clone()),
                size: Some(size),
                replica: copy > 0,
                ..self.wish(DataDirection::Write)
            };
            let (one, digest) = match self.put_one(file, wish, known, watch).await {
                Ok(one) => one,
                Err(why) if carried.is_empty() => return Err(why),
                Err(why) => {
                    let nodes = carried.into_iter().map(|one| one.node).collect();
                    let copies = self.settings.copies;
                    return Err(MoveError::Partly { copies, nodes, why: Box::new(why) });
                }
            };
            known = Some(digest);
            carried.push(one);
        }
        let sha256 = known.unwrap_or_else(|| Hasher::default().finish());
        Ok(outcome(name, file, size, sha256, carried))
    }

    /// Checks that there are nodes for all replicas: otherwise the first would be stored for nothing.
    async fn check_copies(&self) -> Result<(), MoveError> {
        let MoverSettings { copies, availability, cost, .. } = self.settings;
        if copies <= 1 {
            return Ok(());
        }
        let nodes = self.client.nodes_patiently().await?.nodes;
        let usable =
            nodes.iter().filter(|node| node.availability >= availability && node.cost <= cost).count();
        if usable < usize::from(copies) {
            return Err(MoveError::Copies { copies, usable });
        }
        Ok(())
    }

    async fn put_one(
        &self,
        file: &Path,
        mut wish: TransferQuestion,
        known: Option<Digest>,
        watch: &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> Result<(Carried, Digest), MoveError> {
        let mut tries = Tries::new(self.settings.attempts);
        loop {
            let (reservation, granted) = self.grant(&mut wish, &mut tries, &[], watch).await?;
            let began = Instant::now();
            let mut meter = AttemptMeter::new(self.settings.needs);
            match self.put_once(file, &wish, known, &reservation.id, &granted, &mut meter, watch).await {
                Ok(digest) => {
                    let seconds = began.elapsed().as_secs_f64();
                    return Ok((tries.carried(granted.node, seconds, &meter), digest));
                }
                Err(AttemptEnd::Fatal(unsure @ MoveError::Unsure { .. })) => return Err(unsure),
                Err(attempt) => {
                    // The broker first: others need not try there now.
                    let failed =
                        tries.failed(self, attempt, &reservation.id, granted.node.clone(), watch).await;
                    self.clean_up(&granted).await;
                    failed?;
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what one attempt is made of")]
    async fn put_once(
        &self,
        file: &Path,
        wish: &TransferQuestion,
        known: Option<Digest>,
        id: &str,
        granted: &TransferPermit,
        meter: &mut AttemptMeter,
        watch: &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> Result<Digest, AttemptEnd> {
        let fatal = |source| AttemptEnd::Fatal(MoveError::File { path: file.to_owned(), source });
        let (store, key) = self.open(granted)?;
        let source = Arc::new(SendingSource::default());
        let input = File::open(file).await.map_err(fatal)?;
        watch(TransferEvent::Begins(&granted.node, granted.size));
        let pieces = pieces(input, granted.size.get(), Arc::clone(&source));
        let moved = Arc::clone(&meter.moved);
        let write = async {
            store.put(key, granted.size.get(), pieces, moved).await?;
            store.size(key).await
        };
        let written = self.beside(id, meter, watch, write).await;
        let FileReading { hasher, bytes: read, is_short, error } = source.take();
        if let Some(error) = error {
            return Err(fatal(error));
        }
        if is_short {
            // Whatever the node made of it: a server takes it for a broken connection.
            return Err(AttemptEnd::Fatal(MoveError::Changed(file.to_owned())));
        }
        let there = written??;
        let digest = hasher.finish();
        // It is the file that is to be stored, and not what it was in the middle of a change.
        let length = tokio::fs::metadata(file).await.map_err(fatal)?.len();
        let is_whole = read == granted.size.get() && length == read;
        if !is_whole || known.is_some_and(|known| known != digest) {
            return Err(AttemptEnd::Fatal(MoveError::Changed(file.to_owned())));
        }
        if there != read {
            return Err(AttemptEnd::Node(format!("{there} of {read} bytes arrived")));
        }
        if self.settings.verify {
            let mut back = AttemptMeter { tells_first: false, ..AttemptMeter::new(self.settings.needs) };
            let moved = Arc::clone(&back.moved);
            // How far this has come is nothing that was stored: the broker is told only that we are alive.
            let hash = async {
                let mut hasher = Hasher::default();
                let mut pieces = store.get(key, 0).await?;
                while let Some(piece) = pieces.next().await {
                    let piece = piece?;
                    hasher.add(&piece);
                    moved.add(piece.len() as u64);
                }
                Ok::<_, StoreError>(hasher.finish())
            };
            if self.beside(id, &mut back, &|_| (), hash).await?? != digest {
                return Err(AttemptEnd::Node(
                    "what it holds is not what was sent: the checksum differs".to_owned(),
                ));
            }
        }
        let Some(name) = wish.name.clone() else { return Ok(digest) };
        let stored = StoredReport { name, size: granted.size, sha256: digest };
        match self.client.stored(id, &stored).await {
            Ok(()) => Ok(digest),
            Err(error) => Err(unacknowledged(error, granted.node.clone(), key)),
        }
    }

    /// Fetches an object into a file. The file is there as a whole or not at all, and replaces one that was
    /// there.
    ///
    /// # Errors
    /// When it could not be fetched.
    pub async fn get(
        &self,
        name: &ObjectName,
        file: &Path,
        watch: &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> Result<TransferOutcome, MoveError> {
        let at = |source| MoveError::File { path: file.to_owned(), source };
        self.places.any()?;
        let mut wish = TransferQuestion { name: Some(name.clone()), ..self.wish(DataDirection::Read) };
        let mut tries = Tries::new(self.settings.attempts);
        // What was read so far, from whom. On another node it goes on where the one before stopped.
        let mut part: Option<PartFile> = None;
        let mut damaged: Vec<ResourceName> = Vec::new();
        let carried = loop {
            let granted = self.grant(&mut wish, &mut tries, &damaged, watch).await;
            let (reservation, granted) = match granted {
                Err(error) if error.is("excluded") && !damaged.is_empty() => {
                    return Err(MoveError::Checksum { name: name.clone(), nodes: damaged });
                }
                granted => granted?,
            };
            let part = match &mut part {
                Some(part) => part,
                None => match PartFile::new(file, &reservation.id).await {
                    Ok(new) => part.insert(new),
                    Err(error) => {
                        let _ = self.client.end(&reservation.id, TransferEnd::default()).await;
                        return Err(at(error));
                    }
                },
            };
            part.from.push(granted.node.clone());
            let began = Instant::now();
            let mut meter = AttemptMeter::new(self.settings.needs);
            let outcome = self.get_once(part, &reservation.id, &granted, &mut meter, watch).await;
            let seconds = began.elapsed().as_secs_f64();
            if let Err(attempt) = outcome {
                tries.failed(self, attempt, &reservation.id, granted.node, watch).await?;
                continue;
            }
            // It is over for the broker, whatever we make of it; if this is lost, its lease ends it.
            let _ = self.client.end(&reservation.id, TransferEnd::default()).await;
            let digest = part.hasher.clone().finish();
            if granted.sha256.is_some_and(|expected| expected == digest) {
                break (tries.carried(granted.node, seconds, &meter), granted.size, digest);
            }
            let why = "what it holds is not what was stored: the checksum differs";
            watch(TransferEvent::Failed(&granted.node, why));
            tries.count += 1;
            tries.last = Some((granted.node.clone(), why.to_owned()));
            // Of several nodes it cannot be said which part is wrong. Nodes that are read alone say so
            // themselves.
            let nodes = std::mem::take(&mut part.from);
            part.restart();
            if nodes.iter().all(|node| *node == granted.node) {
                damaged.push(granted.node.clone());
            }
            if tries.count >= tries.most {
                return Err(MoveError::Nodes {
                    attempts: tries.count,
                    node: granted.node,
                    why: why.to_owned(),
                });
            }
        };
        let (carried, size, digest) = carried;
        if let Some(part) = part {
            let nodes = part.from.clone();
            part.finish(file).await.map_err(at)?;
            let mut outcome = outcome(name, file, size, digest, vec![carried]);
            outcome.nodes = nodes;
            return Ok(outcome);
        }
        Ok(outcome(name, file, size, digest, vec![carried]))
    }

    async fn get_once(
        &self,
        part: &mut PartFile,
        id: &str,
        granted: &TransferPermit,
        meter: &mut AttemptMeter,
        watch: &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> Result<(), AttemptEnd> {
        let (store, key) = self.open(granted)?;
        watch(TransferEvent::Begins(&granted.node, granted.size));
        let (size, from) = (granted.size.get(), part.length);
        let moved = Arc::clone(&meter.moved);
        let fetch = async {
            part.go_on()
                .await
                .map_err(|source| AttemptEnd::Fatal(MoveError::File { path: part.path.clone(), source }))?;
            if part.length == size {
                return Ok(());
            }
            let mut pieces = store.get(key, part.length).await?;
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                if part.length + piece.len() as u64 > size {
                    return Err(AttemptEnd::Node(format!(
                        "it holds more than the {size} bytes that were stored"
                    )));
                }
                part.add(&piece).await.map_err(|source| {
                    AttemptEnd::Fatal(MoveError::File { path: part.path.clone(), source })
                })?;
                moved.add(piece.len() as u64);
            }
            match part.length {
                length if length == size => Ok(()),
                length => Err(AttemptEnd::Node(format!("it ended after {length} of {size} bytes"))),
            }
        };
        let shift = |event: TransferEvent<'_>| match event {
            TransferEvent::Moved(bytes) => watch(TransferEvent::Moved(Bytes::new(from + bytes.get()))),
            other => watch(other),
        };
        self.beside(id, meter, &shift, fetch).await?
    }

    /// Does some work and reports its progress to the broker, until it is done, stalls, or the broker has
    /// forgotten it.
    async fn beside<T>(
        &self,
        id: &str,
        meter: &mut AttemptMeter,
        watch: &(dyn Fn(TransferEvent<'_>) + Sync),
        work: impl Future<Output = T>,
    ) -> Result<T, AttemptEnd> {
        let moved = Arc::clone(&meter.moved);
        let began = Instant::now();
        let (mut last, mut since) = (0, began);
        let (mut sampled, mut sampled_at) = (0, began);
        let tells_first = meter.tells_first;
        let first_byte = || moved.first_after(began).filter(|_| tells_first).map(|first| first.as_secs_f64());
        let mut told = false;
        let least = self.settings.least_moved();
        let mut tell = Box::pin(async {
            loop {
                sleep(TELL).await;
                let bytes = moved.get();
                watch(TransferEvent::Moved(Bytes::new(bytes)));
                if bytes >= last + least {
                    (last, since) = (bytes, Instant::now());
                } else if since.elapsed() > self.settings.stall {
                    let stall = self.settings.stall.as_secs_f64();
                    return AttemptEnd::Node(match bytes - last {
                        0 => format!("it has moved nothing for {stall} s"),
                        few => format!("it has moved only {few} bytes in {stall} s"),
                    });
                }
                let elapsed = sampled_at.elapsed();
                if elapsed >= SAMPLE {
                    meter.kept.add((bytes - sampled) as f64, elapsed.as_secs_f64());
                    (sampled, sampled_at) = (bytes, Instant::now());
                }
                // A broker that is away for a moment does not stop a transfer: it may know it again when it
                // is back.
                let tells = ProgressReport { bytes: Bytes::new(bytes), first_byte_s: first_byte() };
                match self.client.progress(id, tells).await {
                    Ok(()) => told |= tells.first_byte_s.is_some(),
                    Err(error) if error.is("gone") => return AttemptEnd::Lost,
                    Err(_) => {}
                }
            }
        });
        let outcome = tokio::select! {
            outcome = work => Ok(outcome),
            attempt = &mut tell => Err(attempt),
        };
        drop(tell);
        let bytes = moved.get();
        // Where there was nothing to move, that was soon enough.
        meter.kept.began(Latency::from(moved.first_after(began).unwrap_or_else(|| began.elapsed())));
        meter.kept.add((bytes - sampled) as f64, sampled_at.elapsed().as_secs_f64());
        watch(TransferEvent::Moved(Bytes::new(bytes)));
        // From here on time is the broker's.
        if !told
            && outcome.is_ok()
            && let Some(seconds) = first_byte()
        {
            // It was over before it was told of. For others it is good to know, and no matter if it is lost.
            let tells = ProgressReport { bytes: Bytes::new(bytes), first_byte_s: Some(seconds) };
            let _ = timeout(LAST_WORD, self.client.progress(id, tells)).await;
        }
        outcome
    }

    fn wish(&self, way: DataDirection) -> TransferQuestion {
        let MoverSettings { needs, availability, cost, .. } = self.settings;
        TransferQuestion {
            way,
            name: None,
            size: None,
            needs,
            availability,
            cost,
            except: Vec::new(),
            replica: false,
        }
    }

    /// Asks for a node to carry it, and waits for one if need be. Excluded nodes are never taken. A node
    /// where it failed before is taken only if there is no other.
    async fn grant(
        &self,
        wish: &mut TransferQuestion,
        tries: &mut Tries,
        excluded: &[ResourceName],
        watch: &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> Result<(TransferReservation, TransferPermit), MoveError> {
        let since = OnceLock::new();
        loop {
            wish.except = excluded.iter().chain(&tries.failed_at).cloned().collect();
            let waits = || {
                since.get_or_init(Instant::now);
                watch(TransferEvent::Waits);
            };
            let reservation = match self.client.place_and_wait(wish, waits).await {
                // Those where it failed were given a rest, and may be the only ones that can.
                Err(error) if NEVER.iter().any(|code| error.is(code)) && !tries.failed_at.is_empty() => {
                    tries.failed_at.clear();
                    continue;
                }
                Err(why) => {
                    return Err(match tries.last.take() {
                        Some((node, failed)) => MoveError::Then { why, node, failed },
                        None => MoveError::Ask(why),
                    });
                }
                Ok(reservation) => reservation,
            };
            if let Some(granted) = reservation.granted.clone() {
                tries.waited += since.get().map_or(0.0, |since| since.elapsed().as_secs_f64());
                return Ok((reservation, granted));
            }
        }
    }

    /// Opens the node, if our own configuration has it. Returns it with the key there.
    fn open<'a>(&self, granted: &'a TransferPermit) -> Result<(NodeStore, &'a str), AttemptEnd> {
        let place =
            self.places.find(&granted.node, &granted.place).map_err(|why| AttemptEnd::Fatal(why.into()))?;
        let key =
            granted.key.as_deref().ok_or_else(|| AttemptEnd::Node("the broker names no key".to_owned()))?;
        Ok((NodeStore::open(place)?, key))
    }

    /// Removes what an attempt may have left on a node, if the node answers.
    async fn clean_up(&self, granted: &TransferPermit) {
        if let Ok((store, key)) = self.open(granted) {
            // Nothing refers to it: it costs room, and no more.
            let _ = store.remove(key).await;
        }
    }
}

/// The attempts at one transfer.
struct Tries {
    count: u32,
    most: u32,
    waited: f64,
    failed_at: Vec<ResourceName>,
    /// The node where it failed last, and the reason.
    last: Option<(ResourceName, String)>,
}

impl Tries {
    const fn new(most: u32) -> Self {
        Self { count: 0, most, waited: 0.0, failed_at: Vec::new(), last: None }
    }

    /// Gives up, or arranges that the next attempt is made elsewhere.
    async fn failed(
        &mut self,
        mover: &FileMover,
        attempt: AttemptEnd,
        id: &str,
        node: ResourceName,
        watch: &(dyn Fn(TransferEvent<'_>) + Sync),
    ) -> Result<(), MoveError> {
        let (why, to_blame) = match attempt {
            AttemptEnd::Node(why) => (why, true),
            AttemptEnd::Lost => ("the broker has forgotten about it".to_owned(), false),
            AttemptEnd::Fatal(error) => {
                let _ = mover.client.end(id, TransferEnd::default()).await;
                return Err(error);
            }
        };
        // The next attempt would be refused for this one. If it cannot be told, the lease ends it.
        let end = if to_blame { TransferEnd::failed(&why) } else { TransferEnd::default() };
        let _ = mover.client.end_patiently(id, end).await;
        watch(TransferEvent::Failed(&node, &why));
        self.count += 1;
        if self.count >= self.most {
            return Err(MoveError::Nodes { attempts: self.count, node, why });
        }
        if to_blame {
            self.failed_at.push(node.clone());
            self.last = Some((node, why));
        }
        Ok(())
    }

    fn carried(&self, node: ResourceName, seconds: f64, meter: &AttemptMeter) -> Carried {
        let kept = meter.kept.is_kept().unwrap_or(true);
        Carried { node, seconds, waited: self.waited, kept, failed: self.count }
    }
}

fn outcome(
    name: &ObjectName,
    file: &Path,
    size: Bytes,
    sha256: Digest,
    carried: Vec<Carried>,
) -> TransferOutcome {
    let slowest = carried.iter().map(|one| one.seconds).fold(0.0, f64::max);
    TransferOutcome {
        name: name.clone(),
        file: file.to_owned(),
        bytes: size,
        seconds: carried.iter().map(|one| one.seconds).sum(),
        rate_bps: ByteRate::new(if slowest > 0.0 { size.get() as f64 / slowest } else { 0.0 }),
        waited_s: carried.iter().map(|one| one.waited).sum(),
        kept: carried.iter().all(|one| one.kept),
        failed: carried.iter().map(|one| one.failed).sum(),
        nodes: carried.into_iter().map(|one| one.node).collect(),
        sha256,
    }
}

impl AttemptMeter {
    fn new(needs: ServiceNeeds) -> Self {
        Self { moved: Arc::default(), kept: RateRecord::new(needs.into()), tells_first: true }
    }
}

#[cfg(test)]
mod tests;
