//! The catalogue in a key-value bucket of NATS.
//!
//! The bucket has a key for each object, and a key for each transfer under way. The latter are numbered and
//! used again, so that they do not grow in number. The key `owner` names the broker that writes. There is one
//! writer. With every write it states the number of the last write of the whole bucket, as far as it knows.
//! The server refuses the write if that is wrong. So a broker that was stopped, cut off or taken for dead
//! cannot write anything once another one has written `owner`. This does not depend on the clocks of either.
//!
//! If the answer to a write is lost, it is not known whether the write is there. It carries a mark of ours,
//! and its number would be the next one. When a later write is refused, the entry under that number tells.
//! Two of them cannot both be there: each says the same number for the last.

mod connection;
mod loading;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use connection::{CONNECT, Line, SiteLink, WRITE, keep_connected, lock, make_stream, unusable};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tidegate_nats::NatsServers;
use tokio::time::timeout;

use super::{BegunTransfer, CatalogueError, CatalogueRecord, CatalogueState, NewReplica, VERSION};
use crate::name::{ObjectName, TransferId};
use crate::wire::CatalogueObject;

/// The time after an unanswered write in which none is tried: each would take its time, one after the other.
const REST: Duration = Duration::from_secs(1);

/// The time for which a copy waits for a server that does not answer.
const OUTAGE: Duration = Duration::from_secs(30);

/// The number of transfers whose end could not be written that are written off at one look. As many marks of
/// removed keys are purged.
const OWED_AT_ONCE: usize = 100;

/// The header under which a write carries its mark.
const MARK: &str = "Tidegate-Write";
const OPERATION: &str = "KV-Operation";
const OWNER: &str = "owner";
const OBJECTS: &str = "object.";
const TRANSFERS: &str = "transfer.";

/// The plan of a catalogue kept by NATS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitePlan {
    /// The servers; the first that answers is used.
    pub servers: Vec<String>,
    /// The bucket, made if it is not there.
    pub bucket: String,
    /// The number of servers that keep it, when it is made.
    pub replicas: u8,
    /// A file with a user's JWT and the seed of its key, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// Certificates of authorities. With them the connection is encrypted, whatever the server says.
    pub authorities: Option<PathBuf>,
    /// The time without a write after which a broker has left its catalogue to others.
    pub lease: Duration,
    /// True to wait until there is no other broker, instead of reporting that there is one.
    pub standby: bool,
    /// The name of the broker for others: the address on which it listens.
    pub name: String,
}

/// The document under `owner`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BucketOwner {
    version: u32,
    /// The identity in its folder: a broker that is started again has the same.
    id: String,
    name: String,
    lease_ms: u64,
    /// True if it has ended, and left the catalogue to others.
    #[serde(default)]
    released: bool,
    /// True if it copies a catalogue there, of which only a part is there.
    #[serde(default)]
    unfinished: bool,
}

/// The reason why a write is not there.
enum WriteFailure {
    /// The bucket has a later write than we know.
    Overtaken,
    /// The server did not answer.
    Silent(String),
}

/// The reason why a record is not kept.
struct Unwritten {
    error: CatalogueError,
    /// True if it was sent, and not answered.
    may_be_there: bool,
}

impl From<CatalogueError> for Unwritten {
    fn from(error: CatalogueError) -> Self {
        Self { error, may_be_there: false }
    }
}

/// The value to write under a key.
#[derive(Clone, Copy)]
enum KeyValue<'a> {
    Text(&'a [u8]),
    /// The object with one replica more than is known when it is sent.
    With(&'a NewReplica),
    Removed,
}

/// The bucket, of which this is the one writer.
#[derive(Debug)]
pub(super) struct CatalogueBucket {
    plan: SitePlan,
    owner: BucketOwner,
    link: Arc<Mutex<SiteLink>>,
    line: Line,
    /// A mark that differs each time that a broker is started.
    incarnation: String,
    /// The number of the last write in the bucket.
    last: u64,
    /// The number of the key of each transfer.
    numbers: BTreeMap<String, u32>,
    free: BTreeSet<u32>,
    /// Transfers that have ended, and still have a key.
    owed: BTreeSet<String>,
    /// Keys that were removed and whose marks were found, with their numbers.
    gone: Vec<(String, u64)>,
    written: Instant,
    rest_until: Option<Instant>,
    /// True if the last write was not answered: it may be there.
    is_unsettled: bool,
    /// True if the server did not answer when it was last told that we are there.
    is_away: bool,
    /// The reason why this broker has lost the bucket.
    over: Option<String>,
}

impl CatalogueBucket {
    /// Becomes the one writer of the bucket, and reads it. `id` is the identity in our folder, which no other
    /// broker has while we lock it.
    pub(super) fn open(plan: &SitePlan, id: &str) -> Result<(Self, CatalogueState), CatalogueError> {
        let line = Line::start().map_err(|error| unusable(plan, error))?;
        let servers = NatsServers::new(&plan.servers);
        let link = line.wait(async {
            let link = SiteLink::make(plan, &servers).await?;
            make_stream(plan, &link.context).await?;
            Ok::<_, CatalogueError>(link)
        })?;
        let link = Arc::new(Mutex::new(link));
        line.spawn(keep_connected(plan.clone(), servers, Arc::clone(&link)));
        let incarnation = TransferId::fresh().map_err(|error| unusable(plan, error))?.as_str().to_owned();
        let lease_ms = u64::try_from(plan.lease.as_millis()).unwrap_or(u64::MAX);
        let owner = BucketOwner {
            version: VERSION,
            id: id.to_owned(),
            name: plan.name.clone(),
            lease_ms,
            released: false,
            unfinished: false,
        };
        let mut site = Self {
            plan: plan.clone(),
            owner,
            link,
            line,
            incarnation,
            last: 0,
            numbers: BTreeMap::new(),
            free: BTreeSet::new(),
            owed: BTreeSet::new(),
            gone: Vec::new(),
            written: Instant::now(),
            rest_until: None,
            is_unsettled: false,
            is_away: false,
            over: None,
        };
        let mut told = false;
        loop {
            site.claim(told)?;
            match site.load() {
                // What was claimed is ours when it answers again, unless another was faster.
                Err(error @ (CatalogueError::Site { .. } | CatalogueError::TakenOver { .. }))
                    if plan.standby =>
                {
                    tracing::warn!("{error}");
                    std::thread::sleep(REST);
                    told = true;
                }
                loaded => return loaded.map(|known| (site, known)),
            }
        }
    }

    /// Writes `owner`, once no other broker does. `told`: another was seen there before.
    fn claim(&mut self, mut told: bool) -> Result<(), CatalogueError> {
        /// The time between two looks at another broker.
        const PAUSE: Duration = Duration::from_millis(200);
        let mut seen: Option<(u64, Instant)> = None;
        loop {
            let (last, owner) = match self.line.wait(self.state()) {
                Ok(state) => state,
                // A standby broker does so through an outage, too.
                Err(error) if self.plan.standby && told => {
                    tracing::warn!("{error}");
                    std::thread::sleep(CONNECT);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if owner.as_ref().is_some_and(|owner| owner.unfinished) {
                let why = "a copy of a catalogue into it is not at its end; if none is being made, delete \
                    the bucket and copy again";
                return Err(unusable(&self.plan, why));
            }
            let other = owner.filter(|owner| owner.id != self.owner.id && !owner.released);
            if let Some(other) = &other {
                let lease = Duration::from_millis(other.lease_ms);
                let since = match seen {
                    Some((number, since)) if number == last => since,
                    Some(_) if !self.plan.standby => {
                        return Err(CatalogueError::Held {
                            bucket: self.plan.bucket.clone(),
                            by: other.name.clone(),
                        });
                    }
                    _ => seen.insert((last, Instant::now())).1,
                };
                if !told {
                    tracing::info!(
                        "the catalogue in bucket `{}` is of the broker at {}; waiting for whether that is \
                            still there",
                        self.plan.bucket,
                        other.name
                    );
                    told = true;
                }
                if since.elapsed() <= lease {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                tracing::warn!(
                    "the broker at {} has written nothing for {lease:?}: its catalogue is taken over",
                    other.name
                );
            }
            self.last = last;
            let owner = self.owner_text();
            match self.put(OWNER, owner, false) {
                Ok(()) => return Ok(()),
                // Another broker was faster, or it was this one, and the answer was lost: the next round
                // tells.
                Err(WriteFailure::Overtaken) => {}
                // It may be there: the next round finds it by its id.
                Err(WriteFailure::Silent(why)) if self.plan.standby => {
                    tracing::warn!("{}", unusable(&self.plan, why));
                    told = true;
                    std::thread::sleep(REST);
                }
                Err(WriteFailure::Silent(why)) => return Err(unusable(&self.plan, why)),
            }
        }
    }

    /// Returns the number of the last write, and the owner of the bucket.
    async fn state(&self) -> Result<(u64, Option<BucketOwner>), CatalogueError> {
        let failed = |error: &dyn std::fmt::Display| unusable(&self.plan, error);
        let stream = self.link().stream;
        let info = stream.get_info().await.map_err(|error| failed(&error))?;
        let subject = self.subject(OWNER);
        let owner = match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Some(self.read::<BucketOwner>(OWNER, &message.payload)?),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => None,
            Err(error) => return Err(failed(&error)),
        };
        if let Some(owner) = &owner
            && owner.version != VERSION
        {
            let why = format!("it is of format {}, this version reads {VERSION}", owner.version);
            return Err(failed(&why));
        }
        // `owner` may have been written in between; then our claim is refused.
        Ok((info.state.last_sequence, owner))
    }

    fn link(&self) -> SiteLink {
        lock(&self.link).clone()
    }

    fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.plan.bucket)
    }

    fn owner_text(&self) -> Vec<u8> {
        serde_json::to_vec(&self.owner).unwrap_or_default()
    }

    fn read<T: serde::de::DeserializeOwned>(&self, key: &str, value: &[u8]) -> Result<T, CatalogueError> {
        serde_json::from_slice(value).map_err(|error| self.foreign(key, &error))
    }

    fn foreign(&self, key: &str, why: &dyn std::fmt::Display) -> CatalogueError {
        CatalogueError::Foreign {
            bucket: self.plan.bucket.clone(),
            key: key.to_owned(),
            why: why.to_string(),
        }
    }

    /// Says that we are there, if that was long enough ago, or may not have been heard.
    fn remain(&mut self, known: &mut CatalogueState) -> Result<(), CatalogueError> {
        if self.over.is_none() && !self.is_unsettled && self.written.elapsed() < self.plan.lease / 4 {
            return Ok(());
        }
        let owner = self.owner_text();
        self.write(known, OWNER, KeyValue::Text(&owner)).map_err(|failed| failed.error)
    }

    /// Makes the entry under a key a part of the known state.
    fn absorb(
        &mut self,
        known: &mut CatalogueState,
        key: &str,
        value: Option<&[u8]>,
    ) -> Result<(), CatalogueError> {
        if key == OWNER {
            return Ok(());
        }
        if let Some(number) = number_of(key) {
            let begun = match value {
                Some(value) => self.read::<Option<BegunTransfer>>(key, value)?,
                None => None,
            };
            match begun {
                Some(begun) => {
                    self.numbers.insert(begun.id.clone(), number);
                    known.apply(CatalogueRecord::Began(begun));
                }
                None => {
                    let id = self.numbers.iter().find(|(_, one)| **one == number).map(|(id, _)| id.clone());
                    id.iter().for_each(|id| self.written_off(id));
                }
            }
            return Ok(());
        }
        let name = key.strip_prefix(OBJECTS).and_then(|name| ObjectName::new(&name.replace("=2E", ".")).ok());
        let name = name.ok_or_else(|| self.foreign(key, &"a broker writes no such key"))?;
        let object = match value {
            Some(value) => Some(self.read::<CatalogueObject>(key, value)?),
            None => None,
        };
        known.apply(CatalogueRecord::Removed(name.clone()));
        let Some(object) = object else { return Ok(()) };
        if object.name != name {
            return Err(self.foreign(key, &"another object stands there"));
        }
        let CatalogueObject { name, size, sha256, replicas } = object;
        for replica in replicas {
            let (name, node, key) = (name.clone(), replica.node, replica.key);
            known.apply(CatalogueRecord::Stored(NewReplica { name, size, sha256, node, key, ends: None }));
        }
        Ok(())
    }

    /// Purges the mark of a deleted key: names that are used once would fill the bucket. Later entries stay,
    /// so that this does no harm, whichever broker writes meanwhile. Returns true if the mark is gone.
    fn purge(&self, key: &str, revision: u64) -> bool {
        let stream = self.link().stream;
        let purge = stream.purge().filter(self.subject(key)).sequence(revision + 1);
        matches!(self.line.wait(async { timeout(WRITE, purge).await }), Ok(Ok(_)))
    }

    /// Purges some of the marks that were found, for as long as the server answers.
    fn purge_found(&mut self) {
        for _ in 0..OWED_AT_ONCE {
            let Some((key, number)) = self.gone.pop() else { return };
            if !self.purge(&key, number) {
                self.gone.push((key, number));
                return;
            }
        }
    }

    /// Keeps a record. When this returns the server has it. The record of an end is an exception: its caller
    /// does not wait.
    pub(super) fn append(
        &mut self,
        record: CatalogueRecord,
        known: &mut CatalogueState,
    ) -> Result<(), CatalogueError> {
        match record {
            CatalogueRecord::Version(_) => Ok(()),
            CatalogueRecord::Ended(id) => {
                known.apply(CatalogueRecord::Ended(id.clone()));
                self.owed.insert(id);
                self.write_off(1, known).or_else(|error| if error.may_pass() { Ok(()) } else { Err(error) })
            }
            CatalogueRecord::Began(begun) => {
                let number = self.number(&begun.id);
                let text = serde_json::to_vec(&begun).unwrap_or_default();
                if let Err(failed) = self.write(known, &key_of_transfer(number), KeyValue::Text(&text)) {
                    // The client is told that it was not placed.
                    if failed.may_be_there {
                        self.owed.insert(begun.id);
                    } else {
                        self.written_off(&begun.id);
                    }
                    return Err(failed.error);
                }
                known.apply(CatalogueRecord::Began(begun));
                Ok(())
            }
            CatalogueRecord::Stored(new) => {
                let key = key_of_object(new.name.as_str());
                self.write(known, &key, KeyValue::With(&new)).map_err(|failed| failed.error)?;
                let ends = new.ends.clone();
                known.apply(CatalogueRecord::Stored(new));
                if let Some(id) = ends {
                    self.owed.insert(id);
                    // The object is there, which is what was asked.
                    let _ = self.write_off(1, known);
                }
                Ok(())
            }
            CatalogueRecord::Removed(name) => {
                let key = key_of_object(name.as_str());
                self.write(known, &key, KeyValue::Removed).map_err(|failed| failed.error)?;
                let at = self.last;
                known.apply(CatalogueRecord::Removed(name));
                if !self.purge(&key, at) {
                    // The next start does it.
                    tracing::debug!("the mark of `{key}`, which was removed, stays in the bucket for now");
                }
                Ok(())
            }
        }
    }

    /// Returns the number of the key under which a transfer stands, or will.
    fn number(&mut self, id: &str) -> u32 {
        if let Some(number) = self.numbers.get(id) {
            return *number;
        }
        // Those that were used are free or not.
        let unused = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = self.free.pop_first().unwrap_or(unused);
        self.numbers.insert(id.to_owned(), number);
        number
    }

    /// Writes until the entry is there, the server does not answer, or another broker has taken over. Each
    /// time the value is made anew: an unknown entry may turn out to be there.
    fn write(&mut self, known: &mut CatalogueState, key: &str, value: KeyValue<'_>) -> Result<(), Unwritten> {
        loop {
            if let Some(by) = &self.over {
                return Err(
                    CatalogueError::TakenOver { bucket: self.plan.bucket.clone(), by: by.clone() }.into()
                );
            }
            if !self.link().is_up() {
                return Err(self.away("the connection is lost").into());
            }
            if self.rest_until.is_some_and(|until| Instant::now() < until) {
                return Err(self.away("it did not answer a moment ago").into());
            }
            let text = match value {
                KeyValue::Text(text) => text.to_vec(),
                // Documents of plain fields: they can always be written.
                KeyValue::With(new) => serde_json::to_vec(&known.with(new)).unwrap_or_default(),
                KeyValue::Removed => Vec::new(),
            };
            match self.put(key, text, matches!(value, KeyValue::Removed)) {
                Ok(()) => return Ok(()),
                Err(WriteFailure::Overtaken) => self.settle(known)?,
                Err(WriteFailure::Silent(why)) => {
                    self.rest_until = Some(Instant::now() + REST);
                    self.is_unsettled = true;
                    return Err(Unwritten { error: self.away(why), may_be_there: true });
                }
            }
        }
    }

    fn away(&self, why: impl Into<String>) -> CatalogueError {
        CatalogueError::Away { servers: self.plan.servers.join(", "), why: why.into() }
    }

    /// Sends one write.
    fn put(&mut self, key: &str, value: Vec<u8>, is_removal: bool) -> Result<(), WriteFailure> {
        let mut message = PublishMessage::build()
            .payload(Bytes::from(value))
            .expected_last_sequence(self.last)
            .header(MARK, self.incarnation.as_str());
        if is_removal {
            message = message.header(OPERATION, "DEL");
        }
        let subject = self.subject(key);
        let context = self.link().context;
        let outcome = self.line.wait(async {
            let publish = async { context.send_publish(subject, message).await?.await };
            timeout(WRITE, publish).await
        });
        match outcome {
            Ok(Ok(ack)) => {
                self.last = ack.sequence;
                self.written = Instant::now();
                // One that was not answered before was not there: this one would have been refused.
                self.is_unsettled = false;
                Ok(())
            }
            Ok(Err(error)) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Err(WriteFailure::Overtaken)
            }
            Ok(Err(error)) => Err(WriteFailure::Silent(error.to_string())),
            Err(_) => Err(WriteFailure::Silent(format!("no answer within {} s", WRITE.as_secs()))),
        }
    }

    /// Finds out how the bucket went on without our knowledge: by a write of ours whose answer was lost, or
    /// by another's.
    fn settle(&mut self, known: &mut CatalogueState) -> Result<(), CatalogueError> {
        let number = self.last + 1;
        let state = self.line.wait(async { timeout(CONNECT, self.state()).await });
        let (last, owner) = match state {
            Ok(Ok(state)) => state,
            Ok(Err(error)) => return Err(self.away(error.to_string())),
            Err(_) => return Err(self.away("no answer")),
        };
        if last < number {
            // It was flushed to no disk when the power failed, or the bucket was made anew.
            let by = format!(
                "no broker, but lacks writes that the server had taken: its last is {last}, and was {}",
                self.last
            );
            return Err(self.give_up(by));
        }
        let stream = self.link().stream;
        let there = self.line.wait(async { timeout(CONNECT, stream.get_raw_message(number)).await });
        let there = match there {
            Ok(Ok(message)) => Some(message),
            // It is gone: the same key was written since.
            Ok(Err(error)) if error.kind() == LastRawMessageErrorKind::NoMessageFound => None,
            Ok(Err(error)) => return Err(self.away(error.to_string())),
            Err(_) => return Err(self.away("no answer")),
        };
        let is_ours = |message: &StreamMessage| {
            message.headers.get(MARK).is_some_and(|mark| mark.as_str() == self.incarnation)
        };
        let Some(ours) = there.filter(is_ours) else {
            let by = match owner {
                Some(owner) if owner.id != self.owner.id => format!("the broker at {}", owner.name),
                _ => "another broker".to_owned(),
            };
            return Err(self.give_up(by));
        };
        let key = ours.subject.as_str().strip_prefix(&self.subject("")).unwrap_or_default().to_owned();
        let before: BTreeSet<String> = known.under_way.keys().cloned().collect();
        let value = ours.headers.get(OPERATION).is_none().then_some(&ours.payload[..]);
        self.absorb(known, &key, value)?;
        // Who asked for one that has begun by this was told that it has not.
        let new: Vec<String> = known.under_way.keys().filter(|id| !before.contains(*id)).cloned().collect();
        for id in new {
            known.under_way.remove(&id);
            self.owed.insert(id);
        }
        self.last = number;
        self.is_unsettled = false;
        Ok(())
    }

    /// Returns the reason why the bucket may hold something that is not known: a write that was not answered,
    /// or a write of another broker.
    pub(super) fn in_doubt(&self) -> Option<CatalogueError> {
        if let Some(by) = &self.over {
            return Some(CatalogueError::TakenOver { bucket: self.plan.bucket.clone(), by: by.clone() });
        }
        self.is_unsettled.then(|| self.away("a write was not answered, and may be there"))
    }

    /// Returns true if a write would be refused now, as far as is known without trying.
    pub(super) fn is_away(&self) -> bool {
        self.is_away
            || self.over.is_some()
            || self.rest_until.is_some_and(|until| Instant::now() < until)
            || !self.link().is_up()
    }

    fn give_up(&mut self, by: String) -> CatalogueError {
        self.over = Some(by.clone());
        CatalogueError::TakenOver { bucket: self.plan.bucket.clone(), by }
    }

    /// Writes all of another catalogue into this one, which is empty. Before that is done, no broker can use
    /// it. `meanwhile` is called after each write.
    pub(super) fn fill(
        &mut self,
        from: &CatalogueState,
        mut meanwhile: impl FnMut() -> Result<(), CatalogueError>,
    ) -> Result<(), CatalogueError> {
        self.owner.unfinished = true;
        self.write_through(OWNER, &self.owner_text())?;
        for object in from.objects.values() {
            let text = serde_json::to_vec(object).unwrap_or_default();
            self.write_through(&key_of_object(object.name.as_str()), &text)?;
            meanwhile()?;
        }
        for begun in from.under_way.values() {
            let text = serde_json::to_vec(begun).unwrap_or_default();
            let number = self.number(&begun.id);
            self.write_through(&key_of_transfer(number), &text)?;
            meanwhile()?;
        }
        self.owner.unfinished = false;
        let text = self.owner_text();
        // Where this is not answered it may be called unfinished, which costs another copy.
        self.owner.unfinished = true;
        self.write_through(OWNER, &text)?;
        self.owner.unfinished = false;
        Ok(())
    }

    /// Writes, through a short outage.
    fn write_through(&mut self, key: &str, text: &[u8]) -> Result<(), CatalogueError> {
        let begun = Instant::now();
        loop {
            match self.write(&mut CatalogueState::default(), key, KeyValue::Text(text)) {
                Err(failed) if failed.error.may_pass() && begun.elapsed() < OUTAGE => {
                    std::thread::sleep(REST);
                }
                outcome => return outcome.map_err(|failed| failed.error),
            }
        }
    }

    /// Empties the keys of some transfers that have ended.
    fn write_off(&mut self, most: usize, known: &mut CatalogueState) -> Result<(), CatalogueError> {
        for _ in 0..most {
            // One that was refused, and asked for again since, is under way.
            let Some(id) = self.owed.iter().find(|id| !known.under_way.contains_key(*id)).cloned() else {
                break;
            };
            if let Some(number) = self.numbers.get(&id).copied() {
                let emptied = self.write(known, &key_of_transfer(number), KeyValue::Text(b"null"));
                emptied.map_err(|failed| failed.error)?;
            }
            self.written_off(&id);
        }
        Ok(())
    }

    fn written_off(&mut self, id: &str) {
        self.owed.remove(id);
        if let Some(number) = self.numbers.remove(id) {
            self.free.insert(number);
        }
    }

    /// Says that we are there, before another broker could take us for dead.
    pub(super) fn renew(&mut self, known: &mut CatalogueState) -> Result<(), CatalogueError> {
        let outcome = self.write_off(OWED_AT_ONCE, known).and_then(|()| self.remain(known));
        if outcome.is_ok() {
            self.purge_found();
        }
        let was_away =
            std::mem::replace(&mut self.is_away, matches!(outcome, Err(CatalogueError::Away { .. })));
        match outcome {
            Err(error) if self.is_away => {
                if !was_away {
                    tracing::warn!(
                        "{error}; transfers go on, and none is placed or acknowledged until it is back"
                    );
                }
                Ok(())
            }
            outcome => {
                if was_away {
                    tracing::info!("the catalogue's server is back");
                }
                outcome
            }
        }
    }
}

impl Drop for CatalogueBucket {
    fn drop(&mut self) {
        if self.over.is_some() || !self.link().is_up() {
            return;
        }
        // The next broker need not wait for our lease. If this is lost, it waits.
        let owner = BucketOwner { released: true, ..self.owner.clone() };
        let message = PublishMessage::build()
            .payload(Bytes::from(serde_json::to_vec(&owner).unwrap_or_default()))
            .expected_last_sequence(self.last);
        let (context, subject) = (self.link().context, self.subject(OWNER));
        let release: BoxFuture<'static, ()> = Box::pin(async move {
            if let Ok(answer) = context.send_publish(subject, message).await {
                let _ = answer.await;
            }
        });
        self.line.end_with(release);
    }
}

/// Returns the key of an object. Dots divide keys into parts, none of which may be empty: they are written
/// otherwise.
fn key_of_object(name: &str) -> String {
    format!("{OBJECTS}{}", name.replace('.', "=2E"))
}

fn key_of_transfer(number: u32) -> String {
    format!("{TRANSFERS}{number}")
}

fn number_of(key: &str) -> Option<u32> {
    key.strip_prefix(TRANSFERS)?.parse().ok()
}

#[cfg(test)]
mod tests;
