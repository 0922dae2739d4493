//! Fuzz targets: each takes bytes as a disk or a client of the broker might deliver them, and checks the
//! properties that must hold for all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs, process};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_units::{ByteRate, Bytes, Instant, ResourceName};

use crate::broker::Broker;
use crate::catalogue::{self, Catalogue};
use crate::config::BrokerConfig;
use crate::digest::Digest;
use crate::name::{ObjectName, TransferId};
use crate::serve::{RequestRefusal, read};
use crate::wire::{NodeDirection, NodeList, TransferEnd};

/// The most requests of one input.
const MOST_REQUESTS: usize = 100;

/// The longest message of a refusal, in bytes.
const LONGEST_MESSAGE: usize = 2048;

/// The nodes: a disk, a server that an agent reports on, and a disk in front of tapes.
const NODES: &str = r#"
listen = "127.0.0.1:0"
state = "unused"
policy = "sm-r1"
lease = "10s"
queue = 4
lend = true
[node.a]
place = "file:///srv/a"
peak = "30MB/s"
capacity = "1GB"
[node.b]
place = "http://127.0.0.1:8080/b"
availability = 1
cost = 2
agent = true
[node.c]
place = "file:///srv/c"
peak = "15MB/s"
recall = "90s"
drives = 1
cache = "10MB"
"#;

/// The catalogue's journal.
pub fn catalogue_journal(input: &[u8]) {
    catalogue::fuzz::journal(input);
}

/// A folder of its own, which is removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("tidegate-fuzz-{}-{number}", process::id()));
        fs::create_dir_all(&path).expect("a folder for the catalogue");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is in a folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Objects that the broker has acknowledged, and not forgotten since.
type Acknowledged = BTreeMap<ObjectName, (Bytes, Digest)>;

struct Course {
    broker: Broker,
    now: Instant,
    transfers: Vec<String>,
    acknowledged: Acknowledged,
}

fn config() -> BrokerConfig {
    BrokerConfig::parse("broker.toml", NODES, Path::new("")).expect("a valid configuration")
}

fn open(folder: &Folder, now: Instant) -> Broker {
    let catalogue = Catalogue::open(&folder.0).expect("a catalogue of our own");
    Broker::new(&config(), catalogue, now).expect("a valid configuration")
}

/// Reads a body, and checks that its written form is understood, too, and says the same.
fn body<T: DeserializeOwned + Serialize>(text: &str) -> Result<T, RequestRefusal> {
    let body: T = read(text.as_bytes())?;
    let written = serde_json::to_string(&body).expect("a document of plain fields");
    let again: T = read(written.as_bytes()).unwrap_or_else(|_| panic!("{written} is not understood"));
    // The last digit of a number may differ once.
    let settled = serde_json::to_value(&again).expect("a document of plain fields");
    let keys = |value: &serde_json::Value| value.as_object().map(|entries| entries.keys().cloned().collect());
    let keys_before: Option<Vec<_>> = keys(&serde_json::to_value(&body).expect("a document of plain fields"));
    assert_eq!(keys(&settled), keys_before, "{written}");
    Ok(body)
}

fn check_lane(lane: &NodeDirection) {
    let rates = [Some(lane.peak_bps), lane.current_bps, lane.moving_average_bps];
    let rates = rates.into_iter().flatten().chain([lane.reserved_bps, lane.lent_bps]);
    for rate in rates.map(ByteRate::per_second) {
        assert!(rate.is_finite() && rate >= 0.0, "{lane:?}");
    }
    assert!(lane.latency_s.is_none_or(|seconds| seconds.is_finite() && seconds >= 0.0), "{lane:?}");
}

fn check_nodes(nodes: &NodeList) {
    assert_eq!(nodes.nodes.len(), 3);
    for node in &nodes.nodes {
        check_lane(&node.read);
        check_lane(&node.write);
        assert!(node.waiting <= nodes.waiting);
        let capacity = Bytes::new(1_000_000_000);
        assert!(node.name.as_str() != "a" || node.free.is_some_and(|free| free <= capacity), "{node:?}");
    }
    let json = serde_json::to_string(nodes).expect("a document of plain fields");
    let again: Result<NodeList, _> = serde_json::from_str(&json);
    assert!(again.is_ok_and(|again| again.nodes.len() == 3), "{json}");
}

fn check_objects(broker: &Broker, acknowledged: &Acknowledged) {
    let known = broker.objects(None, usize::MAX).objects;
    let known: Acknowledged =
        known.into_iter().map(|object| (object.name, (object.size, object.sha256))).collect();
    assert_eq!(&known, acknowledged, "what was acknowledged is there, and nothing else");
}

impl Course {
    /// Asks one request: a page, its subject, and the body.
    fn ask(&mut self, line: &str) -> Result<(), RequestRefusal> {
        let (page, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (of, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let Self { broker, now, transfers, acknowledged } = self;
        let now = *now;
        let node = || ResourceName::new(of);
        match page {
            "place" => {
                let id: TransferId = of.parse()?;
                let wish = body(text)?;
                let reservation = broker.place(now, id.as_str(), wish)?;
                assert_eq!(reservation.id, id.as_str());
                transfers.push(reservation.id);
            }
            "reservation" => drop(broker.reservation(now, of)?),
            "progress" => broker.progress(now, of, body(text)?)?,
            "stored" => {
                let stored: crate::wire::StoredReport = body(text)?;
                let (name, what) = (stored.name.clone(), (stored.size, stored.sha256));
                broker.stored(now, of, stored)?;
                // Told again it changes nothing.
                acknowledged.entry(name).or_insert(what);
            }
            "end" => {
                let end: TransferEnd = if text.is_empty() { TransferEnd::default() } else { body(text)? };
                broker.end(now, of, &end)?;
            }
            "object" => drop(broker.object(&ObjectName::new(of)?)?),
            "remove" => {
                let removed = broker.remove(&ObjectName::new(of)?)?;
                assert!(acknowledged.remove(&removed.name).is_some());
            }
            "report" => broker.report(now, &node()?, body(text)?)?,
            "peak" => drop(broker.probed(&node()?, body(text)?)?),
            _ => {
                let millis = of.parse().unwrap_or(1_000_u32);
                self.now = now + Duration::from_millis(millis.into());
                self.broker.look(self.now, &BTreeMap::new())?;
            }
        }
        Ok(())
    }

    /// Ends everything that is under way: nothing is reserved any more.
    fn end(&mut self) {
        for id in std::mem::take(&mut self.transfers) {
            // Most have ended before.
            let _ = self.broker.end(self.now, &id, &TransferEnd::default());
        }
        let nodes = self.broker.nodes(self.now);
        assert_eq!(nodes.waiting, 0);
        for lane in nodes.nodes.iter().flat_map(|node| [node.read, node.write]) {
            assert_eq!(lane.active, 0, "{lane:?}");
            assert!(lane.reserved_bps.per_second() < 1.0, "{lane:?}");
        }
    }
}

/// Requests of clients and agents to the broker, one on each line: the page, its subject, and the body.
pub fn broker_bodies(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let folder = Folder::new();
    let broker = open(&folder, Instant::ZERO);
    let mut course =
        Course { broker, now: Instant::ZERO, transfers: Vec::new(), acknowledged: BTreeMap::new() };
    for line in text.lines().take(MOST_REQUESTS) {
        if let Err(refused) = course.ask(line) {
            let said = refused.text();
            assert!(said.len() <= LONGEST_MESSAGE, "{} bytes of message", said.len());
            assert!(!said.contains(char::is_control), "a message with control characters: {said:?}");
        }
        check_nodes(&course.broker.nodes(course.now));
        check_objects(&course.broker, &course.acknowledged);
    }
    // It is killed, and starts again.
    let Course { broker, now, transfers, acknowledged } = course;
    drop(broker);
    let broker = open(&folder, now);
    check_objects(&broker, &acknowledged);
    check_nodes(&broker.nodes(now));
    Course { broker, now, transfers, acknowledged }.end();
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("catalogue-journal", super::catalogue_journal);
        replay("broker-bodies", super::broker_bodies);
    }
}
