//! Tests with a real `nats-server` (Debian: nats-server).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;
use tidegate_testing::until_true;
use tidegate_units::{Bytes as Size, ResourceName};

use async_nats::jetstream;

use super::*;
use crate::broker::Broker;
use crate::catalogue::Catalogue;
use crate::config::BrokerConfig;
use crate::digest::Hasher;
use crate::wire::{DataDirection, ServiceNeeds, StoredReport, TransferEnd, TransferQuestion};

/// A server that keeps its port and its store when it is stopped.
struct Server {
    address: SocketAddr,
    store: TempDir,
    process: Option<Child>,
}

impl Server {
    fn start() -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut server = Self { address, store: tempfile::tempdir().unwrap(), process: None };
        server.run();
        server
    }

    fn run(&mut self) {
        let mut command = Command::new("nats-server");
        command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &self.address.port().to_string()]);
        command.arg("--store_dir").arg(self.store.path()).stderr(Stdio::null());
        let mut start = || command.spawn().expect("`nats-server`: lab/packages names it");
        let mut process = start();
        let address = self.address;
        until_true("nats-server", || {
            // While it was not there, the kernel may have given its port to a connection, which does not have
            // it for long.
            if process.try_wait().unwrap().is_some() {
                process = start();
            }
            let mut greeting = [0; 4];
            let heard = TcpStream::connect(address).and_then(|mut stream| {
                stream.set_read_timeout(Some(Duration::from_secs(1)))?;
                stream.read_exact(&mut greeting)
            });
            heard.is_ok() && &greeting == b"INFO"
        });
        self.process = Some(process);
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn plan(&self) -> SitePlan {
        SitePlan {
            servers: vec![format!("nats://{}", self.address)],
            bucket: "test".to_owned(),
            replicas: 1,
            credentials: None,
            authorities: None,
            lease: Duration::from_secs(2),
            standby: false,
            name: "10.0.0.1:7311".to_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A relay between a broker and its server: it can swallow what the server says.
struct Between {
    address: SocketAddr,
    silent: Arc<AtomicBool>,
    /// The request from which on it is silent, once.
    silent_at: Arc<Mutex<Option<&'static str>>>,
    /// The time that each KiB from the server takes.
    pace: Arc<Mutex<Duration>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Between {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (silent, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let silent_at = Arc::new(Mutex::new(None::<&'static str>));
        let (quiet, at) = (Arc::clone(&silent), Arc::clone(&silent_at));
        let pace = Arc::new(Mutex::new(Duration::ZERO));
        let slow = Arc::clone(&pace);
        let between = Self { address, silent: Arc::clone(&silent), silent_at, pace, open: Arc::clone(&open) };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
                open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (mut from, mut into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (quiet, at) = (Arc::clone(&quiet), Arc::clone(&at));
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        let text = String::from_utf8_lossy(&bytes[..read]);
                        if at.lock().unwrap().take_if(|what| text.contains(*what)).is_some() {
                            quiet.store(true, Ordering::SeqCst);
                        }
                        if into.write_all(&bytes[..read]).is_err() {
                            return;
                        }
                    }
                });
                let (mut from, mut into, silent) = (server, client, Arc::clone(&silent));
                let slow = Arc::clone(&slow);
                thread::spawn(move || {
                    let mut bytes = [0; 1024];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        if silent.load(Ordering::SeqCst) {
                            return;
                        }
                        let pace = *slow.lock().unwrap();
                        thread::sleep(pace.mul_f64(f64::from(u16::try_from(read).unwrap()) / 1024.0));
                        if into.write_all(&bytes[..read]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        between
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        self.silent.store(false, Ordering::SeqCst);
    }
}

fn new(name: &str, node: &str) -> NewReplica {
    NewReplica {
        name: ObjectName::new(name).unwrap(),
        size: Size::new(3),
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
        size: Size::new(1),
        needs: ServiceNeeds::Average(1.0),
        node: ResourceName::new("a").unwrap(),
        key: None,
        replica: false,
        recalls: false,
    }
}

fn names(catalogue: &Catalogue) -> Vec<String> {
    catalogue.after(None).map(|object| object.name.to_string()).collect()
}

fn ids(catalogue: &Catalogue) -> Vec<String> {
    catalogue.under_way().map(|begun| begun.id.clone()).collect()
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// Returns the broker that writes the bucket, and whether it has left it.
fn owner(server: &Server) -> BucketOwner {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(server.address.to_string()).await.unwrap();
        let stream = jetstream::new(client).get_stream("KV_test").await.unwrap();
        let message = stream.get_last_raw_message_by_subject("$KV.test.owner").await.unwrap();
        serde_json::from_slice(&message.payload).unwrap()
    })
}

/// Returns the number of messages in the bucket.
fn messages(server: &Server) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(server.address.to_string()).await.unwrap();
        let stream = jetstream::new(client).get_stream("KV_test").await.unwrap();
        stream.get_info().await.unwrap().state.messages
    })
}

#[test]
fn what_was_acknowledged_is_there_for_the_next_broker() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut catalogue = Catalogue::open_at_site(folder.path(), &server.plan()).unwrap();
    for id in ["1", "2"] {
        catalogue.began(begun(id)).unwrap();
    }
    catalogue.stored(NewReplica { ends: Some("1".to_owned()), ..new("run..7.h5.", "n") }).unwrap();
    catalogue.stored(new("run..7.h5.", "m")).unwrap();
    catalogue.stored(new("gone", "n")).unwrap();
    assert!(catalogue.removed(&name("gone")).unwrap().is_some());
    let expected = catalogue.get(&name("run..7.h5.")).unwrap().clone();
    drop(catalogue);
    // Another broker, which finds that the one before has left.
    let other = tempfile::tempdir().unwrap();
    let mut catalogue = Catalogue::open_at_site(other.path(), &server.plan()).unwrap();
    assert_eq!((names(&catalogue), ids(&catalogue)), (vec!["run..7.h5.".to_owned()], vec!["2".to_owned()]));
    assert_eq!(catalogue.get(&name("run..7.h5.")), Some(&expected));
    assert_eq!(catalogue.held(&ResourceName::new("n").unwrap()).get(), 3);
    // And what begins and ends, or comes and goes, leaves nothing behind.
    let before = messages(&server);
    for number in 0..50 {
        catalogue.began(begun(&format!("t{number}"))).unwrap();
        catalogue
            .stored(NewReplica { ends: Some(format!("t{number}")), ..new(&format!("o{number}"), "n") })
            .unwrap();
        catalogue.removed(&name(&format!("o{number}"))).unwrap();
    }
    assert!(messages(&server) <= before + 1, "{} messages, {before} before", messages(&server));
}

#[test]
fn a_server_that_was_killed_takes_up_where_it_was() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut catalogue = Catalogue::open_at_site(folder.path(), &server.plan()).unwrap();
    catalogue.began(begun("1")).unwrap();
    catalogue.stored(new("before", "n")).unwrap();
    server.kill();
    until_true("it is noticed", || {
        matches!(catalogue.stored(new("during", "n")), Err(CatalogueError::Away { .. }))
    });
    assert!(matches!(catalogue.began(begun("2")), Err(CatalogueError::Away { .. })));
    catalogue.ended("1").unwrap();
    catalogue.renew().unwrap();
    assert_eq!(names(&catalogue), ["before"]);
    server.run();
    until_true("it is back", || match catalogue.stored(new("after", "n")) {
        Ok(()) => true,
        Err(error) => {
            assert!(error.may_pass(), "{error}");
            false
        }
    });
    catalogue.renew().unwrap();
    drop(catalogue);
    let catalogue = Catalogue::open_at_site(folder.path(), &server.plan()).unwrap();
    let there = names(&catalogue);
    assert!(["before", "after"].iter().all(|name| there.contains(&(*name).to_owned())), "{there:?}");
    assert_eq!(
        ids(&catalogue),
        Vec::<String>::new(),
        "the end of the one was written later, the other was never placed"
    );
}

#[test]
fn a_write_whose_answer_was_lost_is_found_by_the_next() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let between = Between::start(server.address);
    let plan = SitePlan { servers: vec![format!("nats://{}", between.address)], ..server.plan() };
    let mut catalogue = Catalogue::open_at_site(folder.path(), &plan).unwrap();
    catalogue.stored(new("a", "n")).unwrap();
    let retry = |catalogue: &mut Catalogue, what: &NewReplica| {
        until_true("the line is back", || match catalogue.stored(what.clone()) {
            Ok(()) => true,
            Err(error) => {
                assert!(error.may_pass(), "{error}");
                false
            }
        });
    };
    // A replica, whose answer is lost; then another of the same object must not undo it.
    between.silent.store(true, Ordering::SeqCst);
    assert!(matches!(catalogue.stored(new("a", "m")), Err(CatalogueError::Away { .. })));
    assert_eq!(catalogue.get(&name("a")).unwrap().replicas.len(), 1);
    between.cut();
    retry(&mut catalogue, &new("a", "o"));
    assert_eq!(catalogue.get(&name("a")).unwrap().replicas.len(), 3);
    // A transfer that was refused, and stands there: it belongs to no client.
    between.silent.store(true, Ordering::SeqCst);
    assert!(matches!(catalogue.began(begun("1")), Err(CatalogueError::Away { .. })));
    between.cut();
    retry(&mut catalogue, &new("b", "n"));
    assert_eq!(ids(&catalogue), Vec::<String>::new());
    catalogue.renew().unwrap();
    drop(catalogue);
    let catalogue = Catalogue::open_at_site(folder.path(), &server.plan()).unwrap();
    assert_eq!(catalogue.get(&name("a")).unwrap().replicas.len(), 3);
    assert_eq!((names(&catalogue), ids(&catalogue)), (vec!["a".to_owned(), "b".to_owned()], Vec::new()));
}

#[test]
fn one_broker_at_a_time_and_who_was_taken_for_dead_can_write_nothing() {
    let server = Server::start();
    let [first, second, third] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    // Longer than a busy machine holds up a thread that writes fifty times a second.
    let lasting = SitePlan { lease: Duration::from_secs(6), ..server.plan() };
    let mut one = Catalogue::open_at_site(first.path(), &lasting).unwrap();
    one.stored(new("a", "n")).unwrap();
    one.began(begun("1")).unwrap();
    // As long as it writes, no other may.
    let over = AtomicBool::new(false);
    let other = SitePlan { name: "10.0.0.2:7311".to_owned(), ..server.plan() };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                one.began(begun("1")).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
        });
        let held = Catalogue::open_at_site(second.path(), &other);
        over.store(true, Ordering::SeqCst);
        assert!(matches!(held.unwrap_err(), CatalogueError::Held { by, .. } if by == "10.0.0.1:7311"));
    });
    // It stalls; the standby takes over what it has.
    let mut two =
        Catalogue::open_at_site(second.path(), &SitePlan { standby: true, ..other.clone() }).unwrap();
    assert_eq!((names(&two), ids(&two)), (vec!["a".to_owned()], vec!["1".to_owned()]));
    let error = one.stored(new("b", "n")).unwrap_err();
    assert!(
        matches!(&error, CatalogueError::TakenOver { by, .. } if by.contains("10.0.0.2:7311")),
        "{error}"
    );
    assert!(matches!(one.renew(), Err(CatalogueError::TakenOver { .. })));
    two.stored(new("b", "m")).unwrap();
    drop(one);
    assert_eq!(two.get(&name("b")).unwrap().replicas[0].node.as_str(), "m");
    // Killed and started again, it need not wait: no other broker can have its identity.
    std::fs::copy(second.path().join("broker-id"), third.path().join("broker-id")).unwrap();
    let patient = SitePlan { lease: Duration::from_secs(3600), ..other };
    let again = Catalogue::open_at_site(third.path(), &patient).unwrap();
    assert_eq!(names(&again), ["a", "b"]);
    assert!(matches!(two.stored(new("c", "m")), Err(CatalogueError::TakenOver { .. })));
}

#[test]
fn what_somebody_else_writes_into_the_bucket_is_noticed() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut catalogue = Catalogue::open_at_site(folder.path(), &server.plan()).unwrap();
    catalogue.stored(new("a", "n")).unwrap();
    let write = |key: &str, value: &'static str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = async_nats::connect(server.address.to_string()).await.unwrap();
            let bucket = jetstream::new(client).get_key_value("test").await.unwrap();
            bucket.put(key, value.into()).await.unwrap();
        });
    };
    write("object.a", "{}");
    assert!(matches!(catalogue.stored(new("b", "n")), Err(CatalogueError::TakenOver { .. })));
    drop(catalogue);
    let error = Catalogue::open_at_site(folder.path(), &server.plan()).unwrap_err();
    assert!(matches!(&error, CatalogueError::Foreign { key, .. } if key == "object.a"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let plan = SitePlan { servers: vec!["nats://127.0.0.1:1".to_owned()], ..Server::start().plan() };
    let error = Catalogue::open_at_site(Path::new(folder.path()), &plan).unwrap_err();
    assert!(
        matches!(&error, CatalogueError::Site { servers, .. } if servers == "nats://127.0.0.1:1"),
        "{error}"
    );
}

const NODES: &str = r#"
listen = "127.0.0.1:0"
state = "unused"
policy = "sm-r1"
lease = "10s"
[node.a]
place = "file:///srv/a"
peak = "15MB/s"
"#;

fn at(seconds: u32) -> tidegate_units::Instant {
    tidegate_units::Instant::ZERO + Duration::from_secs(seconds.into())
}

/// Makes a broker of one node that carries one of these transfers at a time.
fn broker(folder: &Path, plan: &SitePlan) -> Broker {
    let config = BrokerConfig::parse("broker.toml", NODES, Path::new("")).unwrap();
    Broker::new(&config, Catalogue::open_at_site(folder, plan).unwrap(), at(0)).unwrap()
}

fn write(text: &str) -> TransferQuestion {
    TransferQuestion {
        way: DataDirection::Write,
        name: Some(name(text)),
        size: Some(Size::new(3)),
        needs: ServiceNeeds::Average(10e6),
        availability: 0,
        cost: u8::MAX,
        except: Vec::new(),
        replica: false,
    }
}

fn stored(text: &str) -> StoredReport {
    StoredReport { name: name(text), size: Size::new(3), sha256: Hasher::default().finish() }
}

fn look(broker: &mut Broker, seconds: std::ops::RangeInclusive<u32>) {
    for second in seconds {
        broker.look(at(second), &BTreeMap::new()).unwrap();
    }
}

#[test]
fn what_a_lost_answer_had_acknowledged_was_called_gone_and_removed() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let between = Between::start(server.address);
    let plan = SitePlan { servers: vec![format!("nats://{}", between.address)], ..server.plan() };
    let mut broker = broker(folder.path(), &plan);
    // Asked again and again for longer than its lease, it is alive.
    broker.place(at(0), "1", write("x")).unwrap();
    between.silent.store(true, Ordering::SeqCst);
    for second in 1..=3 {
        assert_eq!(broker.stored(at(9 * second), "1", stored("x")).unwrap_err().code(), "catalogue-away");
        look(&mut broker, 9 * second + 1..=9 * second + 8);
    }
    broker.reservation(at(35), "1").unwrap();
    // A transfer that was silent, and is over, is not known.
    look(&mut broker, 36..=60);
    assert_eq!(broker.reservation(at(60), "1").unwrap_err().code(), "gone");
    assert_eq!(broker.stored(at(60), "1", stored("x")).unwrap_err().code(), "catalogue-away");
    between.cut();
    until_true("the line is back", || match broker.stored(at(61), "1", stored("x")) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.code(), "catalogue-away", "{error}");
            look(&mut broker, 61..=61);
            false
        }
    });
    assert_eq!(broker.object(&name("x")).unwrap().replicas[0].key, "x.1");
    // What never was is gone again.
    assert_eq!(broker.stored(at(62), "2", stored("y")).unwrap_err().code(), "gone");
}

#[test]
fn an_outage_of_the_catalogue_threw_everybody_who_waited_out_of_the_queue() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let between = Between::start(server.address);
    let plan = SitePlan { servers: vec![format!("nats://{}", between.address)], ..server.plan() };
    let mut broker = broker(folder.path(), &plan);
    broker.place(at(0), "1", write("x")).unwrap();
    for id in ["2", "3"] {
        assert!(broker.place(at(0), id, write(id)).unwrap().granted.is_none());
    }
    // The node rests for five seconds. Then the first grant notices that the line is dead, and is put back.
    broker.end(at(1), "1", &TransferEnd::failed("it is full")).unwrap();
    between.silent.store(true, Ordering::SeqCst);
    look(&mut broker, 2..=9);
    for id in ["2", "3"] {
        assert!(broker.reservation(at(9), id).unwrap().granted.is_none());
    }
    between.cut();
    until_true("the first of them begins", || {
        look(&mut broker, 10..=10);
        broker.reservation(at(10), "2").unwrap().granted.is_some()
    });
    assert!(broker.reservation(at(10), "3").unwrap().granted.is_none(), "it came later");
    broker.end(at(11), "2", &TransferEnd::default()).unwrap();
    until_true("the second", || {
        look(&mut broker, 11..=11);
        broker.reservation(at(11), "3").unwrap().granted.is_some()
    });
}

#[test]
fn who_meets_a_broker_that_was_replaced_is_told_to_ask_again() {
    let (server, [one, two]) = (Server::start(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
    let mut replaced = broker(one.path(), &server.plan());
    replaced.place(at(0), "1", write("x")).unwrap();
    let mut heir = broker(two.path(), &server.plan());
    assert_eq!(replaced.stored(at(1), "1", stored("x")).unwrap_err().code(), "catalogue-away");
    assert_eq!(replaced.stored(at(1), "2", stored("y")).unwrap_err().code(), "catalogue-away");
    let small = TransferQuestion { needs: ServiceNeeds::Average(1e6), ..write("z") };
    assert_eq!(replaced.place(at(1), "3", small).unwrap_err().code(), "catalogue-away");
    heir.stored(at(1), "1", stored("x")).unwrap();
}

#[test]
fn a_standby_outlives_a_server_that_hesitates_while_it_takes_over() {
    let server = Server::start();
    for silent_at in ["HPUB $KV.test.owner", "$JS.API.CONSUMER.CREATE"] {
        let folder = tempfile::tempdir().unwrap();
        let between = Between::start(server.address);
        let servers = vec![format!("nats://{}", between.address)];
        let plan = SitePlan { servers, standby: true, ..server.plan() };
        *between.silent_at.lock().unwrap() = Some(silent_at);
        thread::scope(|scope| {
            let opening = scope.spawn(|| Catalogue::open_at_site(folder.path(), &plan));
            until_true("it is silent", || between.silent.load(Ordering::SeqCst));
            // Long enough for the answer not to come in time.
            thread::sleep(WRITE + Duration::from_millis(500));
            between.cut();
            let mut catalogue = opening.join().unwrap().unwrap();
            catalogue.stored(new("a", "n")).unwrap();
        });
    }
}

#[test]
fn a_bucket_that_takes_longer_to_read_than_the_lease_was_taken_over_meanwhile() {
    const OBJECTS: usize = 900;
    let (server, [first, reader, rival]) = (Server::start(), [(); 3].map(|()| tempfile::tempdir().unwrap()));
    // A hundred KiB and more, one every tenth of a second: longer than a lease in any case.
    let lease = Duration::from_secs(12);
    let mut filled = Catalogue::open_at_site(first.path(), &server.plan()).unwrap();
    for number in 0..OBJECTS {
        filled.stored(new(&format!("o{number}"), "a-node-with-a-name-of-some-length")).unwrap();
    }
    drop(filled);
    let between = Between::start(server.address);
    let slow = SitePlan {
        servers: vec![format!("nats://{}", between.address)],
        lease,
        name: "10.0.0.9:7311".to_owned(),
        ..server.plan()
    };
    *between.pace.lock().unwrap() = Duration::from_millis(100);
    thread::scope(|scope| {
        let reading = scope.spawn(|| Catalogue::open_at_site(reader.path(), &slow));
        until_true("it is claimed", || owner(&server).name == slow.name);
        // It says that it is there while it reads.
        let outcome = Catalogue::open_at_site(rival.path(), &server.plan()).map(drop);
        let still = !reading.is_finished();
        *between.pace.lock().unwrap() = Duration::ZERO;
        assert!(matches!(&outcome, Err(CatalogueError::Held { by, .. }) if *by == slow.name), "{outcome:?}");
        assert!(still, "all was read before another broker could take it over");
        let mut catalogue = reading.join().unwrap().unwrap();
        assert_eq!(names(&catalogue).len(), OBJECTS);
        catalogue.stored(new("after", "n")).unwrap();
    });
}

#[test]
fn marks_of_removed_keys_that_stayed_are_gone_soon_after_the_next_start() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut catalogue = Catalogue::open_at_site(folder.path(), &server.plan()).unwrap();
    catalogue.stored(new("kept", "n")).unwrap();
    drop(catalogue);
    let marks = 2 * OWED_AT_ONCE + 1;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(server.address.to_string()).await.unwrap();
        let bucket = jetstream::new(client).get_key_value("test").await.unwrap();
        for number in 0..marks {
            bucket.delete(format!("object.gone{number}")).await.unwrap();
        }
    });
    let with_marks = messages(&server);
    let mut catalogue = Catalogue::open_at_site(folder.path(), &server.plan()).unwrap();
    assert_eq!(names(&catalogue), ["kept"]);
    assert_eq!(messages(&server), with_marks, "nothing is purged before it is ours to the end");
    for _ in 0..3 {
        catalogue.renew().unwrap();
    }
    assert_eq!(messages(&server), with_marks - marks as u64);
    catalogue.stored(new("after", "n")).unwrap();
}

#[test]
fn a_catalogue_is_copied_into_a_bucket_and_back_whole_or_not_at_all() {
    let (server, [first, second]) = (Server::start(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
    let plan = server.plan();
    let mut catalogue = Catalogue::open(first.path()).unwrap();
    for (name, node) in [("run..7.h5.", "n"), ("run..7.h5.", "m"), ("b", "n")] {
        catalogue.stored(new(name, node)).unwrap();
    }
    for id in ["1", "2", "3"] {
        catalogue.began(begun(id)).unwrap();
    }
    catalogue.ended("2").unwrap();
    let all = |catalogue: &Catalogue| {
        let objects: Vec<_> = catalogue.after(None).cloned().collect();
        (
            objects,
            catalogue.under_way().cloned().collect::<Vec<_>>(),
            catalogue.held(&ResourceName::new("n").unwrap()),
        )
    };
    let expected = all(&catalogue);
    let (journal, bucket, back) = ((first.path(), None), (first.path(), Some(&plan)), (second.path(), None));
    assert!(matches!(Catalogue::copy(journal, bucket), Err(CatalogueError::InUse(_))));
    drop(catalogue);
    // What is there already is not mixed with it; and a folder without a catalogue is none.
    assert!(matches!(Catalogue::copy(journal, journal), Err(CatalogueError::NotEmpty { objects: 2, .. })));
    assert!(matches!(Catalogue::copy(back, bucket), Err(CatalogueError::Io { .. })));
    // A broker's folder stays its own, whether its catalogue is in it or in a bucket.
    let copied = Catalogue::copy(journal, bucket).unwrap();
    assert_eq!((copied.objects, copied.under_way), (2, 2));
    let mut there = Catalogue::open_at_site(first.path(), &plan).unwrap();
    assert_eq!(all(&there), expected);
    there.ended("1").unwrap();
    there.stored(new("c", "n")).unwrap();
    let changed = all(&there);
    drop(there);
    assert!(matches!(Catalogue::copy(journal, bucket), Err(CatalogueError::NotEmpty { objects: 3, .. })));
    Catalogue::copy(bucket, back).unwrap();
    assert_eq!(all(&Catalogue::open(second.path()).unwrap()), changed);
    assert_eq!(all(&Catalogue::open(first.path()).unwrap()), expected, "what was copied is as it was");

    // One that ends in the middle.
    let half = SitePlan { bucket: "half".to_owned(), ..server.plan() };
    let (mut site, _) = CatalogueBucket::open(&half, "0123456789abcdef").unwrap();
    let known = Catalogue::open(first.path()).unwrap().known;
    assert!(site.fill(&known, || Err(CatalogueError::Full(1))).is_err());
    drop(site);
    let error = Catalogue::open_at_site(second.path(), &half).unwrap_err();
    assert!(error.to_string().contains("delete the bucket and copy again"), "{error}");
}
