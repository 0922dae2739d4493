//! The objects and the nodes that hold them: a journal on disk, or a key-value bucket of NATS ([`site`]), and
//! its state in memory.
//!
//! The journal is one file, appended to, one line with a checksum per record ([`lines`]). Acknowledged records
//! were flushed to the disk before. Beginnings and ends of transfers are not acknowledged to clients, and not
//! flushed. When the power fails any of their pages may be there, a later one without an earlier one. So
//! everything is cut off from the first line on that a crash has torn, if only such records follow it. Objects
//! are written only after all earlier records are on the disk. A torn line *before* one, and a line that no
//! crash leaves, come from a broken disk or an editor. They are refused: the missing records cannot be known,
//! and may have been acknowledged. When the journal has become several times as long as its state, it is
//! written anew beside itself and takes its own place by a rename.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod lines;
mod nats;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_journal::FolderLock;
use tidegate_units::{Bytes, ResourceName};

use crate::digest::Digest;
use crate::name::{ObjectName, TransferId};
use crate::wire::{CatalogueObject, DataDirection, ObjectReplica, ServiceNeeds};

use lines::{LONGEST_LINE, checked_json, is_left_by_crash, sealed_line};
use nats::CatalogueBucket;
pub use nats::SitePlan;

const JOURNAL: &str = "catalogue";
const REWRITTEN: &str = "catalogue.new";
const IDENTITY: &str = "broker-id";
const VERSION: u32 = 1;

/// The shortest journal that is worth writing anew.
const SHORT: usize = 4_096;

/// The reason why the catalogue cannot be read or written.
#[derive(Debug, Error)]
pub enum CatalogueError {
    /// The system returned an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another broker uses it.
    #[error("{}: another broker keeps its catalogue there", .0.display())]
    InUse(PathBuf),
    /// A line is damaged, and not as a crash leaves it.
    #[error(
        "{}:{line}: this line is damaged, and no crash does that: a disk or an editor has changed it. Restore \
         the file from a copy; or remove the line, and the catalogue forgets what it recorded",
        path.display()
    )]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// It was written by another version.
    #[error("{}: written in format {found}, this version reads {VERSION}", path.display())]
    Version {
        /// The path of the file.
        path: PathBuf,
        /// The format that it names.
        found: u32,
    },
    /// A write failed before, so that the state of the file's end is unknown.
    #[error("{}: could not be written before: restart the broker once there is room", .0.display())]
    Broken(PathBuf),
    /// The bucket cannot be used.
    #[error("cannot use the bucket `{bucket}` of NATS at {servers}: {why}")]
    Site {
        /// The servers that were tried.
        servers: String,
        /// The bucket.
        bucket: String,
        /// The reason.
        why: String,
    },
    /// Another broker keeps its catalogue there.
    #[error(
        "the catalogue in the bucket `{bucket}` is kept by the broker at {by}: stop that first, or stand by \
            with `standby = true`"
    )]
    Held {
        /// The name of the bucket.
        bucket: String,
        /// The name that the other broker gives itself.
        by: String,
    },
    /// Another broker took over the catalogue.
    #[error(
        "the catalogue in the bucket `{bucket}` was taken over by {by}: this broker can acknowledge nothing \
            any more, and ends"
    )]
    TakenOver {
        /// The bucket.
        bucket: String,
        /// The name of the broker that has it now.
        by: String,
    },
    /// An entry that no broker writes.
    #[error("what stands under `{key}` in the bucket `{bucket}` is not understood: {why}")]
    Foreign {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// The error in it.
        why: String,
    },
    /// The server does not answer. It may be back in a moment.
    #[error("the catalogue cannot be written now: NATS at {servers} does not answer ({why}); ask again")]
    Away {
        /// The servers.
        servers: String,
        /// The reason.
        why: String,
    },
    /// The destination has a catalogue already, which would be mixed with the copied one.
    #[error("{place} has a catalogue already, of {objects} objects: nothing is copied over it")]
    NotEmpty {
        /// The place.
        place: String,
        /// The number of objects that it has.
        objects: usize,
    },
    /// The catalogue holds as many objects as it may.
    #[error("the catalogue holds {0} objects, which is as many as it may")]
    Full(usize),
    /// Another object has the name.
    #[error("there is an object `{0}` already: choose another name, or remove it first")]
    Duplicate(ObjectName),
}

impl CatalogueError {
    /// Returns true if the same operation may succeed in a moment.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Away { .. })
    }
}

/// A transfer that was placed, with all that is needed to resume it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BegunTransfer {
    pub(crate) id: String,
    pub(crate) way: DataDirection,
    pub(crate) name: Option<ObjectName>,
    pub(crate) size: Bytes,
    pub(crate) needs: ServiceNeeds,
    pub(crate) node: ResourceName,
    pub(crate) key: Option<String>,
    /// True if it writes a further replica of an object that is there.
    pub(crate) replica: bool,
    /// True if its data was to be recalled from a tape.
    #[serde(default)]
    pub(crate) recalls: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CatalogueRecord {
    Version(u32),
    Began(BegunTransfer),
    Ended(String),
    Stored(NewReplica),
    Removed(ObjectName),
}

/// A replica that was written to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewReplica {
    pub(crate) name: ObjectName,
    pub(crate) size: Bytes,
    pub(crate) sha256: Digest,
    pub(crate) node: ResourceName,
    pub(crate) key: String,
    /// The transfer that is over by this.
    pub(crate) ends: Option<String>,
}

/// The state to which the records add up.
#[derive(Debug, Default, PartialEq)]
struct CatalogueState {
    objects: BTreeMap<ObjectName, CatalogueObject>,
    under_way: BTreeMap<String, BegunTransfer>,
    /// The number of bytes of objects on each node.
    held: BTreeMap<ResourceName, u64>,
}

impl CatalogueState {
    /// Checks that the record may be kept.
    fn check(&self, new: &NewReplica) -> Result<(), CatalogueError> {
        match self.objects.get(&new.name) {
            Some(there) if there.size != new.size || there.sha256 != new.sha256 => {
                Err(CatalogueError::Duplicate(new.name.clone()))
            }
            None if self.objects.len() >= Catalogue::MOST => Err(CatalogueError::Full(self.objects.len())),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, record: CatalogueRecord) {
        match record {
            CatalogueRecord::Version(_) => {}
            CatalogueRecord::Began(begun) => {
                self.under_way.insert(begun.id.clone(), begun);
            }
            CatalogueRecord::Ended(id) => {
                self.under_way.remove(&id);
            }
            CatalogueRecord::Stored(new) => {
                if let Some(id) = &new.ends {
                    self.under_way.remove(id);
                }
                let NewReplica { name, size, sha256, node, key, .. } = new;
                let object = self.objects.entry(name.clone());
                let object = object.or_insert(CatalogueObject { name, size, sha256, replicas: Vec::new() });
                if object.replicas.iter().all(|replica| replica.key != key) {
                    let held = self.held.entry(node.clone()).or_default();
                    *held = held.saturating_add(object.size.get());
                    object.replicas.push(ObjectReplica { node, key, place: None });
                }
            }
            CatalogueRecord::Removed(name) => {
                let Some(object) = self.objects.remove(&name) else { return };
                for replica in &object.replicas {
                    if let Some(held) = self.held.get_mut(&replica.node) {
                        *held = held.saturating_sub(object.size.get());
                    }
                }
            }
        }
    }

    /// Returns the object as it will be.
    fn with(&self, new: &NewReplica) -> CatalogueObject {
        let NewReplica { name, size, sha256, node, key, .. } = new.clone();
        let there = self.objects.get(&name).cloned();
        let mut object = there.unwrap_or(CatalogueObject { name, size, sha256, replicas: Vec::new() });
        if object.replicas.iter().all(|replica| replica.key != key) {
            object.replicas.push(ObjectReplica { node, key, place: None });
        }
        object
    }

    fn records(&self) -> impl Iterator<Item = CatalogueRecord> {
        let stored = self.objects.values().flat_map(|object| {
            object.replicas.iter().map(|replica| {
                CatalogueRecord::Stored(NewReplica {
                    name: object.name.clone(),
                    size: object.size,
                    sha256: object.sha256,
                    node: replica.node.clone(),
                    key: replica.key.clone(),
                    ends: None,
                })
            })
        });
        let begun = self.under_way.values().cloned().map(CatalogueRecord::Began);
        std::iter::once(CatalogueRecord::Version(VERSION)).chain(stored).chain(begun)
    }

    fn lines(&self) -> usize {
        1 + self.under_way.len() + self.objects.values().map(|object| object.replicas.len()).sum::<usize>()
    }
}

/// The objects, the nodes that hold them, and the transfers under way. One process at a time has it.
#[derive(Debug)]
pub struct Catalogue {
    known: CatalogueState,
    keeper: Keeper,
    /// The lock on the folder, kept as long as this lives.
    _lock: Arc<FolderLock>,
}

/// The place where a broker keeps its catalogue: its folder, and the bucket if there is one.
pub type CataloguePlace<'a> = (&'a Path, Option<&'a SitePlan>);

/// The result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyResult {
    /// The number of objects.
    pub objects: usize,
    /// The number of transfers that are under way.
    pub under_way: usize,
}

/// The kind of place where it is kept.
#[derive(Debug)]
enum Keeper {
    Journal(Journal),
    Site(Box<CatalogueBucket>),
}

/// Locks a folder: it belongs to one broker as long as the lock lives.
fn lock(folder: &Path) -> Result<FolderLock, CatalogueError> {
    fs::create_dir_all(folder).map_err(at(folder))?;
    let lock = FolderLock::take(folder).map_err(at(&FolderLock::path(folder)))?;
    lock.ok_or_else(|| CatalogueError::InUse(folder.to_owned()))
}

fn at(path: &Path) -> impl Fn(io::Error) -> CatalogueError + use<> {
    let path = path.to_owned();
    move |source| CatalogueError::Io { path: path.clone(), source }
}

/// Returns the identity of a broker, kept in its folder. A broker that locks the same folder later is the
/// same one, and the one before is gone.
fn identity(folder: &Path) -> Result<String, CatalogueError> {
    let path = folder.join(IDENTITY);
    match fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
        _ => {}
    }
    let id = TransferId::fresh().map_err(|error| at(&path)(io::Error::other(error)))?.as_str().to_owned();
    let mut file = File::create(&path).map_err(at(&path))?;
    file.write_all(id.as_bytes()).and_then(|()| file.sync_all()).map_err(at(&path))?;
    Ok(id)
}

impl Catalogue {
    /// The greatest number of objects.
    pub const MOST: usize = 1_000_000;

    /// Reads the catalogue in a folder, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or is another broker's.
    pub fn open(folder: &Path) -> Result<Self, CatalogueError> {
        Self::open_locked((folder, None), Arc::new(lock(folder)?))
    }

    /// Becomes the one writer of a bucket of NATS, and reads it. The folder holds our identity. Waits while
    /// another broker may still be there. Must not be called within a runtime.
    ///
    /// # Errors
    /// When the server does not answer, or the bucket is another broker's or no catalogue.
    pub fn open_at_site(folder: &Path, plan: &SitePlan) -> Result<Self, CatalogueError> {
        Self::open_locked((folder, Some(plan)), Arc::new(lock(folder)?))
    }

    fn open_locked(
        (folder, site): CataloguePlace<'_>,
        lock: Arc<FolderLock>,
    ) -> Result<Self, CatalogueError> {
        let (keeper, known) = match site {
            None => {
                let (journal, known) = Journal::open(folder)?;
                (Keeper::Journal(journal), known)
            }
            Some(plan) => {
                let (site, known) = CatalogueBucket::open(plan, &identity(folder)?)?;
                (Keeper::Site(Box::new(site)), known)
            }
        };
        Ok(Self { known, keeper, _lock: lock })
    }

    /// Copies a catalogue that no broker uses to a place that has none. The original stays where it is. An
    /// incomplete copy is not taken for a catalogue. Must not be called within a runtime.
    ///
    /// # Errors
    /// When either is in use or cannot be read or written, or there is a catalogue already where it is copied
    /// to.
    pub fn copy(from: CataloguePlace<'_>, to: CataloguePlace<'_>) -> Result<CopyResult, CatalogueError> {
        let journal = from.0.join(JOURNAL);
        if from.1.is_none() {
            fs::metadata(&journal).map_err(at(&journal))?;
        }
        let own = Arc::new(lock(from.0)?);
        fs::create_dir_all(to.0).map_err(at(to.0))?;
        let is_same = fs::canonicalize(from.0).ok() == fs::canonicalize(to.0).ok();
        let other = if is_same { Arc::clone(&own) } else { Arc::new(lock(to.0)?) };
        // No broker is waited for here: one that is there is in the way.
        let [from_site, to_site] =
            [from.1, to.1].map(|site| Some(SitePlan { standby: false, ..site?.clone() }));
        let mut source = Self::open_locked((from.0, from_site.as_ref()), own)?;
        let mut goal = Self::open_locked((to.0, to_site.as_ref()), other)?;
        if !goal.known.objects.is_empty() || !goal.known.under_way.is_empty() {
            let place = to
                .1
                .map_or_else(|| to.0.display().to_string(), |site| format!("the bucket `{}`", site.bucket));
            return Err(CatalogueError::NotEmpty { place, objects: goal.known.objects.len() });
        }
        match &mut goal.keeper {
            Keeper::Journal(journal) => journal.rewrite(&source.known)?,
            Keeper::Site(site) => {
                let Self { known, keeper, .. } = &mut source;
                let mut seen = CatalogueState::default();
                site.fill(known, || match keeper {
                    Keeper::Journal(_) => Ok(()),
                    // It is not written, and nothing is taken from it here.
                    Keeper::Site(source) => source.renew(&mut seen),
                })?;
            }
        }
        Ok(CopyResult { objects: source.known.objects.len(), under_way: source.known.under_way.len() })
    }

    /// Returns an object.
    #[must_use]
    pub fn get(&self, name: &ObjectName) -> Option<&CatalogueObject> {
        self.known.objects.get(name)
    }

    /// Returns all objects by their names, or only those after one of them.
    pub fn after(&self, name: Option<&ObjectName>) -> impl Iterator<Item = &CatalogueObject> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = name.map_or(Unbounded, Excluded);
        self.known.objects.range::<ObjectName, _>((from, Unbounded)).map(|(_, object)| object)
    }

    /// Returns the total size of the objects on a node.
    #[must_use]
    pub fn held(&self, node: &ResourceName) -> Bytes {
        Bytes::new(self.known.held.get(node).copied().unwrap_or_default())
    }

    /// Returns the transfers that were placed and have not ended, as far as is known.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &BegunTransfer> {
        self.known.under_way.values()
    }

    /// Records that a transfer was placed. Not flushed: if the machine crashes, the client asks anew.
    pub(crate) fn began(&mut self, begun: BegunTransfer) -> Result<(), CatalogueError> {
        self.append(CatalogueRecord::Began(begun), false)
    }

    /// Records that a transfer is over. Not flushed: if the machine crashes, its lease ends it again.
    pub(crate) fn ended(&mut self, id: &str) -> Result<(), CatalogueError> {
        self.append(CatalogueRecord::Ended(id.to_owned()), false)
    }

    /// Records that a replica was written. When this returns, no crash undoes it.
    pub(crate) fn stored(&mut self, new: NewReplica) -> Result<(), CatalogueError> {
        self.known.check(&new)?;
        self.append(CatalogueRecord::Stored(new), true)
    }

    /// Removes an object. When this returns, no crash undoes it.
    pub(crate) fn removed(&mut self, name: &ObjectName) -> Result<Option<CatalogueObject>, CatalogueError> {
        let Some(object) = self.get(name).cloned() else { return Ok(None) };
        self.append(CatalogueRecord::Removed(name.clone()), true)?;
        Ok(Some(object))
    }

    /// Returns the reason why the place may hold more than is known, if it may: an unknown record may turn
    /// out to be there.
    pub(crate) fn in_doubt(&self) -> Option<CatalogueError> {
        match &self.keeper {
            Keeper::Journal(_) => None,
            Keeper::Site(site) => site.in_doubt(),
        }
    }

    /// Returns true if it cannot be written for now, as far as is known.
    pub(crate) fn is_away(&self) -> bool {
        match &self.keeper {
            Keeper::Journal(_) => false,
            Keeper::Site(site) => site.is_away(),
        }
    }

    /// Renews the claim to a site's catalogue; to be called now and then. It belongs to a broker that is seen
    /// to be there.
    pub(crate) fn renew(&mut self) -> Result<(), CatalogueError> {
        match &mut self.keeper {
            Keeper::Journal(_) => Ok(()),
            Keeper::Site(site) => site.renew(&mut self.known),
        }
    }

    /// Appends a record. After an error, the record may or may not be there at the next start. Until then it
    /// is not, unless a later write to NATS finds it.
    fn append(&mut self, record: CatalogueRecord, flush: bool) -> Result<(), CatalogueError> {
        match &mut self.keeper {
            Keeper::Journal(journal) => journal.append(record, flush, &mut self.known),
            Keeper::Site(site) => site.append(record, &mut self.known),
        }
    }

    /// Makes the disk full from now on.
    #[cfg(test)]
    pub(crate) fn fill_disk(&mut self) {
        self.journal().journal =
            OpenOptions::new().write(true).open("/dev/full").expect("every Linux has one");
    }

    #[cfg(test)]
    fn journal(&mut self) -> &mut Journal {
        match &mut self.keeper {
            Keeper::Journal(journal) => journal,
            Keeper::Site(_) => panic!("it is kept elsewhere"),
        }
    }
}

/// The journal's file in a locked folder.
#[derive(Debug)]
struct Journal {
    folder: PathBuf,
    journal: File,
    /// The number of lines of the journal.
    lines: usize,
    /// True if its end may not be on the disk.
    is_unflushed: bool,
    /// The number of lines from which writing it anew is tried again, after it failed.
    retry: usize,
    broken: bool,
}

impl Journal {
    fn open(folder: &Path) -> Result<(Self, CatalogueState), CatalogueError> {
        // Of a crash in the middle of rewriting; the journal itself is whole then.
        match fs::remove_file(folder.join(REWRITTEN)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(at(&folder.join(REWRITTEN))(error));
            }
            _ => {}
        }
        let path = folder.join(JOURNAL);
        let journal = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut journal = journal.map_err(at(&path))?;
        let (mut known, lines, whole) = read(&path, &mut journal)?;
        let length = journal.metadata().map_err(at(&path))?.len();
        if whole < length {
            tracing::warn!(
                "{}: of the last {} bytes a crash has left parts, and they are cut off; nothing of them was \
                    acknowledged",
                path.display(),
                length - whole
            );
            journal.set_len(whole).map_err(at(&path))?;
        }
        journal.seek(SeekFrom::End(0)).map_err(at(&path))?;
        let folder = folder.to_owned();
        let mut opened = Self { folder, journal, lines, is_unflushed: true, retry: 0, broken: false };
        if opened.lines == 0 {
            opened.append(CatalogueRecord::Version(VERSION), true, &mut known)?;
            opened.sync_folder()?;
        }
        Ok((opened, known))
    }

    fn append(
        &mut self,
        record: CatalogueRecord,
        flush: bool,
        known: &mut CatalogueState,
    ) -> Result<(), CatalogueError> {
        let path = self.folder.join(JOURNAL);
        if self.broken {
            return Err(CatalogueError::Broken(path));
        }
        let mut write = || {
            let line = line(&record)?;
            if flush && self.is_unflushed {
                // Otherwise it could be there after a crash, and what comes before it not.
                self.journal.sync_data()?;
            }
            self.journal.write_all(line.as_bytes())?;
            if flush { self.journal.sync_data() } else { Ok(()) }
        };
        if let Err(source) = write() {
            // Part of it may be there, and after a failed flush it is not known which.
            self.broken = true;
            return Err(CatalogueError::Io { path, source });
        }
        self.is_unflushed = !flush;
        known.apply(record);
        self.lines += 1;
        // The record is kept, whatever comes of this: a client that was told otherwise would remove the
        // object that it refers to.
        if self.lines > self.retry.max(SHORT + 4 * known.lines())
            && let Err(error) = self.rewrite(known)
        {
            tracing::error!("the catalogue grows, since it could not be written anew: {error}");
            // There may be no room for a second copy: not with every record.
            self.retry = self.lines + SHORT;
        }
        Ok(())
    }

    /// Writes the journal anew, as short as it can be.
    fn rewrite(&mut self, known: &CatalogueState) -> Result<(), CatalogueError> {
        let path = self.folder.join(REWRITTEN);
        let write = || {
            let mut file =
                OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
            let mut out = io::BufWriter::new(&mut file);
            for record in known.records() {
                out.write_all(line(&record)?.as_bytes())?;
            }
            out.flush()?;
            drop(out);
            file.sync_all()?;
            fs::rename(&path, self.folder.join(JOURNAL))?;
            Ok(file)
        };
        // The old one is whole, and stays in use.
        let file = write().map_err(|source| CatalogueError::Io { path: path.clone(), source })?;
        self.journal = file;
        self.is_unflushed = false;
        self.lines = known.lines();
        // Before that a crash may bring the old one back, which lacks what is appended from now on.
        self.sync_folder().inspect_err(|_| self.broken = true)
    }

    fn sync_folder(&self) -> Result<(), CatalogueError> {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| CatalogueError::Io { path: self.folder.clone(), source })
    }
}

fn line(record: &CatalogueRecord) -> io::Result<String> {
    Ok(sealed_line(&serde_json::to_string(record)?))
}

fn parsed(line: &[u8]) -> Option<CatalogueRecord> {
    serde_json::from_str(checked_json(line)?).ok()
}

/// Returns the journal's state, the number of its lines, and the length of its undamaged part in bytes.
fn read(path: &Path, journal: impl Read) -> Result<(CatalogueState, usize, u64), CatalogueError> {
    let at = |source| CatalogueError::Io { path: path.to_owned(), source };
    let mut input = BufReader::new(journal);
    let mut known = CatalogueState::default();
    let (mut lines, mut whole, mut number) = (0, 0, 0);
    let (mut offset, mut torn) = (0, None);
    // Zeros that a crash left go on to the next newline, in as many pieces as it takes.
    let mut is_in_tear = false;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let length = Read::take(&mut input, LONGEST_LINE as u64).read_until(b'\n', &mut bytes).map_err(at)?;
        if length == 0 {
            return Ok((known, lines, whole));
        }
        number += 1;
        let start = offset;
        offset += length as u64;
        let record = parsed(&bytes);
        if record.is_none() || torn.is_some() {
            let line = *torn.get_or_insert(number);
            let may_be_lost = match record {
                Some(record) => matches!(record, CatalogueRecord::Began(_) | CatalogueRecord::Ended(_)),
                None => is_in_tear || is_left_by_crash(&bytes, start),
            };
            if !may_be_lost {
                return Err(CatalogueError::Damaged { path: path.to_owned(), line });
            }
            is_in_tear = !bytes.ends_with(b"\n");
            continue;
        }
        let Some(record) = record else { continue };
        if let CatalogueRecord::Version(found) = record
            && found != VERSION
        {
            return Err(CatalogueError::Version { path: path.to_owned(), found });
        }
        known.apply(record);
        lines += 1;
        whole += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Hasher;

    fn new(name: &str, node: &str) -> NewReplica {
        NewReplica {
            name: ObjectName::new(name).unwrap(),
            size: Bytes::new(3),
            sha256: Hasher::default().finish(),
            node: ResourceName::new(node).unwrap(),
            key: format!("{name}.{node}"),
            ends: None,
        }
    }

    fn begun(id: &str) -> BegunTransfer {
        BegunTransfer {
            id: id.to_owned(),
            way: DataDirection::Write,
            name: None,
            size: Bytes::new(1),
            needs: ServiceNeeds::Average(1.0),
            node: ResourceName::new("a").unwrap(),
            key: None,
            replica: false,
            recalls: false,
        }
    }

    fn names(catalogue: &Catalogue) -> Vec<&str> {
        catalogue.after(None).map(|object| object.name.as_str()).collect()
    }

    #[test]
    fn what_was_acknowledged_is_there_after_a_crash_at_any_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL);
        let mut acknowledged = Vec::new();
        {
            let mut catalogue = Catalogue::open(folder.path()).unwrap();
            for number in 0..3 {
                catalogue.began(begun(&number.to_string())).unwrap();
                catalogue
                    .stored(NewReplica { ends: Some(number.to_string()), ..new(&format!("o{number}"), "a") })
                    .unwrap();
                acknowledged.push((fs::metadata(&path).unwrap().len(), number + 1));
            }
        }
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            // Sectors that were not written are zeros, from the end of one that was or of an earlier write.
            let is_end = length % 512 == 0 || whole[..length].ends_with(b"\n");
            let ends = [&b""[..], b"\0\0\0\0"];
            for garbage in if is_end { &ends[..] } else { &ends[..1] } {
                let mut torn = whole[..length].to_vec();
                torn.extend_from_slice(garbage);
                fs::write(&path, &torn).unwrap();
                let expected =
                    acknowledged.iter().rfind(|(end, _)| *end <= length as u64).map_or(0, |(_, n)| *n);
                let mut catalogue = Catalogue::open(folder.path()).unwrap();
                assert_eq!(names(&catalogue).len(), expected, "cut at {length}");
                // And it can be gone on with.
                catalogue.stored(new("more", "a")).unwrap();
                drop(catalogue);
                assert_eq!(names(&Catalogue::open(folder.path()).unwrap()).len(), expected + 1);
            }
        }
    }

    #[test]
    fn damage_before_what_is_whole_is_refused_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL);
        {
            let mut catalogue = Catalogue::open(folder.path()).unwrap();
            catalogue.stored(new("a", "n")).unwrap();
            catalogue.stored(new("b", "n")).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap().replace("\"a\"", "\"c\"");
        fs::write(&path, text).unwrap();
        let error = Catalogue::open(folder.path()).unwrap_err();
        assert!(matches!(error, CatalogueError::Damaged { line: 2, .. }), "{error}");
    }

    #[test]
    fn a_flipped_bit_in_the_last_line_dropped_an_acknowledged_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL);
        let mut catalogue = Catalogue::open(folder.path()).unwrap();
        catalogue.stored(new("a", "n")).unwrap();
        catalogue.stored(new("b", "n")).unwrap();
        drop(catalogue);
        let whole = fs::read(&path).unwrap();
        let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        // Every bit of it, the newline's included.
        for bit in last * 8..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match read(&path, &flipped[..]) {
                Err(CatalogueError::Damaged { line: 3, .. }) => {}
                Ok((known, 3, _)) => assert_eq!(known.objects.len(), 2, "bit {bit}"),
                other => panic!("bit {bit}: {other:?}"),
            }
            if bit % 97 == 0 {
                fs::write(&path, &flipped).unwrap();
                assert!(matches!(Catalogue::open(folder.path()), Err(CatalogueError::Damaged { .. })));
                assert_eq!(fs::read(&path).unwrap(), flipped, "nothing is cut off");
            }
        }
    }

    #[test]
    fn pages_that_a_loss_of_power_left_out_were_taken_for_a_broken_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL);
        let mut catalogue = Catalogue::open(folder.path()).unwrap();
        catalogue.stored(new("a", "n")).unwrap();
        let from = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
        for number in 0..200 {
            catalogue.began(begun(&number.to_string())).unwrap();
            catalogue.ended(&number.to_string()).unwrap();
        }
        drop(catalogue);
        let mut text = fs::read(&path).unwrap();
        assert!(from < 8_192 && text.len() > 28_672);
        // Pages in the middle never reached the disk.
        text[8_192..24_576].fill(0);
        fs::write(&path, &text).unwrap();
        let mut catalogue = Catalogue::open(folder.path()).unwrap();
        assert_eq!(names(&catalogue), ["a"]);
        let cut = fs::metadata(&path).unwrap().len();
        assert!(from as u64 <= cut && cut <= 8_192, "{cut}");
        catalogue.stored(new("b", "n")).unwrap();
        drop(catalogue);
        assert_eq!(names(&Catalogue::open(folder.path()).unwrap()), ["a", "b"]);
        // Nothing that was acknowledged is cut off.
        fs::write(&path, [&text[..], &fs::read(&path).unwrap()[usize::try_from(cut).unwrap()..]].concat())
            .unwrap();
        assert!(matches!(Catalogue::open(folder.path()), Err(CatalogueError::Damaged { .. })));
    }

    #[test]
    fn it_is_written_anew_before_it_grows_without_bound() {
        let folder = tempfile::tempdir().unwrap();
        let mut catalogue = Catalogue::open(folder.path()).unwrap();
        catalogue.stored(new("kept", "n")).unwrap();
        catalogue.began(begun("under-way")).unwrap();
        for number in 0..3 * SHORT {
            catalogue.began(begun(&number.to_string())).unwrap();
            catalogue.ended(&number.to_string()).unwrap();
        }
        let lines = fs::read_to_string(folder.path().join(JOURNAL)).unwrap().lines().count();
        assert_eq!(lines, catalogue.journal().lines);
        assert!(lines < 2 * SHORT, "{lines} lines");
        drop(catalogue);
        let catalogue = Catalogue::open(folder.path()).unwrap();
        assert_eq!(names(&catalogue), ["kept"]);
        assert_eq!(catalogue.under_way().map(|begun| begun.id.as_str()).collect::<Vec<_>>(), ["under-way"]);
    }

    #[test]
    fn what_was_kept_was_refused_when_there_was_no_room_to_write_the_journal_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut catalogue = Catalogue::open(folder.path()).unwrap();
        // In the way of the new journal.
        fs::create_dir(folder.path().join(REWRITTEN)).unwrap();
        let long = |catalogue: &mut Catalogue| {
            let known = catalogue.known.lines();
            catalogue.journal().lines > SHORT + 4 * known
        };
        while !long(&mut catalogue) {
            catalogue.ended("nobody").unwrap();
        }
        let journal = catalogue.journal();
        assert!(journal.retry > journal.lines, "it was tried, and is not tried again with every record");
        catalogue.stored(new("kept", "n")).unwrap();
        fs::remove_dir(folder.path().join(REWRITTEN)).unwrap();
        while catalogue.journal().lines > SHORT {
            catalogue.ended("nobody").unwrap();
        }
        drop(catalogue);
        assert_eq!(names(&Catalogue::open(folder.path()).unwrap()), ["kept"]);
    }

    #[test]
    fn a_name_is_one_content() {
        let folder = tempfile::tempdir().unwrap();
        let mut catalogue = Catalogue::open(folder.path()).unwrap();
        catalogue.stored(new("a", "n")).unwrap();
        catalogue.stored(new("a", "m")).unwrap();
        let other = NewReplica { size: Bytes::new(4), ..new("a", "o") };
        assert!(matches!(catalogue.stored(other), Err(CatalogueError::Duplicate(_))));
        assert_eq!(catalogue.after(None).next().unwrap().replicas.len(), 2);
        let (n, m) = (ResourceName::new("n").unwrap(), ResourceName::new("m").unwrap());
        assert_eq!([&n, &m].map(|node| catalogue.held(node).get()), [3, 3]);
        let gone = catalogue.removed(&ObjectName::new("a").unwrap()).unwrap();
        assert_eq!(gone.unwrap().replicas.len(), 2);
        assert!(names(&catalogue).is_empty());
        assert_eq!([&n, &m].map(|node| catalogue.held(node).get()), [0, 0]);
    }

    #[test]
    fn two_brokers_cannot_have_one_catalogue() {
        let folder = tempfile::tempdir().unwrap();
        let first = Catalogue::open(folder.path()).unwrap();
        assert!(matches!(Catalogue::open(folder.path()), Err(CatalogueError::InUse(_))));
        drop(first);
        Catalogue::open(folder.path()).unwrap();
    }
}
