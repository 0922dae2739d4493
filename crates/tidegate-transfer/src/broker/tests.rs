use std::path::Path;

use proptest::prelude::*;
use tidegate_placement::DeviceLane;
use tidegate_units::Latency;

use super::*;
use crate::digest::{Digest, Hasher};
use crate::sensor_reports::{NodeKind, SensedLane};
use crate::wire::ServiceNeeds;

const TWO: &str = r#"
listen = "127.0.0.1:0"
state = "unused"
policy = "sm-r1"
lease = "10s"
[node.a]
place = "file:///srv/a"
peak = "30MB/s"
capacity = "1GB"
[node.b]
place = "http://127.0.0.1:8080/b"
peak = "15MB/s"
"#;

fn config() -> BrokerConfig {
    BrokerConfig::parse("broker.toml", TWO, Path::new("")).unwrap()
}

fn broker(folder: &Path, now: f64) -> Broker {
    Broker::new(&config(), Catalogue::open(folder).unwrap(), at(now)).unwrap()
}

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Latency::from_secs_f64(seconds)
}

/// Looks once in a second, after a second and until another.
fn look(broker: &mut Broker, after: u32, until: u32) {
    for second in after + 1..=until {
        broker.look(at(f64::from(second)), &BTreeMap::new()).unwrap();
    }
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn digest() -> Digest {
    Hasher::default().finish()
}

fn write(object: &str) -> TransferQuestion {
    TransferQuestion {
        way: DataDirection::Write,
        name: Some(name(object)),
        size: Some(Bytes::new(1_000_000)),
        needs: ServiceNeeds::Average(10e6),
        availability: 0,
        cost: u8::MAX,
        except: Vec::new(),
        replica: false,
    }
}

fn read(object: &str) -> TransferQuestion {
    TransferQuestion { way: DataDirection::Read, size: None, ..write(object) }
}

fn stored(object: &str) -> StoredReport {
    StoredReport { name: name(object), size: Bytes::new(1_000_000), sha256: digest() }
}

const fn moved(bytes: Bytes) -> ProgressReport {
    ProgressReport { bytes, first_byte_s: None }
}

fn node(reservation: &TransferReservation) -> Option<&str> {
    reservation.granted.as_ref().map(|granted| granted.node.as_str())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, BrokerError>, code: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
}

#[test]
fn an_object_goes_where_it_can_be_carried_and_comes_back_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    let put = broker.place(at(0.0), "1", write("x")).unwrap();
    let granted = put.granted.unwrap();
    assert_eq!((granted.node.as_str(), granted.place.as_str()), ("a", "file:///srv/a"));
    assert_eq!(granted.key.as_deref(), Some("x.1"));
    refused(broker.place(at(0.0), "2", write("x")), "duplicate");
    refused(broker.place(at(0.0), "2", read("x")), "unknown-object");
    broker.stored(at(1.0), "1", stored("x")).unwrap();
    broker.stored(at(1.0), "1", stored("x")).unwrap();
    refused(broker.stored(at(1.0), "2", stored("x")), "gone");
    refused(broker.place(at(1.0), "2", write("x")), "duplicate");

    let copy = broker.place(at(1.0), "3", TransferQuestion { replica: true, ..write("x") }).unwrap();
    assert_eq!(node(&copy), Some("b"), "the other one holds it already");
    refused(broker.place(at(1.0), "4", TransferQuestion { replica: true, ..write("x") }), "excluded");
    refused(broker.stored(at(2.0), "3", StoredReport { size: Bytes::new(1), ..stored("x") }), "otherwise");
    let other: Digest = "00".repeat(32).parse().unwrap();
    refused(broker.stored(at(2.0), "3", StoredReport { sha256: other, ..stored("x") }), "duplicate");
    broker.stored(at(2.0), "3", stored("x")).unwrap();

    let get = broker.place(at(3.0), "5", read("x")).unwrap().granted.unwrap();
    assert_eq!((get.node.as_str(), get.key.as_deref(), get.sha256), ("a", Some("x.1"), Some(digest())));
    assert_eq!(broker.remove(&name("x")).unwrap().replicas.len(), 2);
    refused(broker.object(&name("x")), "unknown-object");
}

#[test]
fn a_removed_object_does_not_rise_again_by_a_replica_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    broker.place(at(0.0), "1", write("x")).unwrap();
    broker.stored(at(0.0), "1", stored("x")).unwrap();
    broker.place(at(0.0), "2", TransferQuestion { replica: true, ..write("x") }).unwrap();
    broker.remove(&name("x")).unwrap();
    refused(broker.stored(at(1.0), "2", stored("x")), "unknown-object");
}

#[test]
fn rates_are_what_transfers_moved_between_two_looks() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    broker.place(at(0.0), "1", write("x")).unwrap();
    broker.place(at(0.0), "2", write("y")).unwrap();
    let none = BTreeMap::new();
    broker.progress(at(0.5), "1", moved(Bytes::new(400_000))).unwrap();
    broker.progress(at(0.9), "1", moved(Bytes::new(600_000))).unwrap();
    // One that came too late says nothing, and one that has ended counts as well.
    broker.progress(at(0.9), "1", moved(Bytes::new(500_000))).unwrap();
    broker.stored(at(0.95), "2", stored("y")).unwrap();
    broker.look(at(2.0), &none).unwrap();
    let lane = |broker: &Broker| broker.nodes(broker.looked).nodes[0].write;
    assert_eq!(lane(&broker).current_bps, Some(ByteRate::new(800_000.0)));
    broker.look(at(3.0), &none).unwrap();
    assert_eq!(lane(&broker).current_bps, Some(ByteRate::ZERO));
    assert_eq!(lane(&broker).moving_average_bps, Some(ByteRate::new(400_000.0)));
    let report = &broker.nodes(broker.looked).nodes[0];
    assert_eq!(
        report.free,
        Some(Bytes::new(998_000_000)),
        "of 1 GB one object is there, and one is promised"
    );
    assert_eq!((report.write.active, report.write.reserved_bps), (1, ByteRate::new(10e6)));
    // What others do to its device is not what its transfers get; what is free there is free.
    let lane = |rate| DeviceLane { rate: Some(ByteRate::new(rate)), latency: Some(Latency::from_millis(7)) };
    let device = DeviceSample { lanes: [lane(1.0), lane(2.0)], free: Some(Bytes::new(5_000_000)) };
    broker.look(at(4.0), &BTreeMap::from([(ResourceName::new("a").unwrap(), device)])).unwrap();
    let report = &broker.nodes(at(4.0)).nodes[0];
    assert_eq!(report.read.current_bps, Some(ByteRate::ZERO));
    assert_eq!(report.read.latency_s, Some(0.007), "nothing better is known");
    assert_eq!(report.free, Some(Bytes::new(4_000_000)), "as much is promised");
}

#[test]
fn who_told_of_more_than_there_is_ended_with_less_than_nothing_moved() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    broker.place(at(0.0), "1", write("x")).unwrap();
    broker.progress(at(0.5), "1", moved(Bytes::new(u64::MAX))).unwrap();
    look(&mut broker, 0, 1);
    let rate = |broker: &Broker| broker.nodes(broker.looked).nodes[0].write.current_bps;
    assert_eq!(rate(&broker), Some(ByteRate::new(1e6)));
    broker.stored(at(1.5), "1", stored("x")).unwrap();
    look(&mut broker, 1, 2);
    assert_eq!(rate(&broker), Some(ByteRate::ZERO));
}

#[test]
fn who_is_silent_is_dead_whether_he_waited_or_moved() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    for (id, expected) in [("1", Some("a")), ("2", Some("a")), ("3", Some("b")), ("4", None), ("5", None)] {
        assert_eq!(node(&broker.place(at(0.0), id, write(id)).unwrap()), expected, "{id}");
    }
    look(&mut broker, 0, 6);
    broker.progress(at(6.0), "1", moved(Bytes::ZERO)).unwrap();
    broker.reservation(at(6.0), "5").unwrap();
    look(&mut broker, 6, 11);
    for id in ["2", "3", "4"] {
        refused(broker.reservation(at(11.0), id), "gone");
    }
    assert_eq!(node(&broker.reservation(at(11.0), "5").unwrap()), Some("a"), "it was its turn");
    assert_eq!(broker.nodes(broker.looked).waiting, 0);
}

#[test]
fn a_pause_of_the_broker_was_taken_for_the_silence_of_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    for id in ["1", "2", "3"] {
        broker.place(at(0.0), id, write(id)).unwrap();
    }
    look(&mut broker, 0, 4);
    // The broker stalls for a minute. One client is heard before the broker looks, another only afterwards.
    broker.stored(at(64.0), "3", stored("3")).unwrap();
    assert_eq!(
        broker.nodes(broker.looked).nodes[0].write.reserved_bps,
        ByteRate::new(20e6),
        "both are still there"
    );
    broker.progress(at(64.0), "1", moved(Bytes::ZERO)).unwrap();
    broker.look(at(64.1), &BTreeMap::new()).unwrap();
    broker.progress(at(64.2), "2", moved(Bytes::ZERO)).unwrap();
    // From then on their leases are as long as any.
    look(&mut broker, 65, 74);
    assert_eq!(broker.nodes(broker.looked).nodes[0].write.active, 2);
    look(&mut broker, 74, 76);
    assert_eq!(broker.nodes(broker.looked).nodes[0].write.active, 0);
}

#[test]
fn who_spoke_just_within_his_lease_lost_his_reservation() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    broker.place(at(0.0), "1", write("x")).unwrap();
    broker.place(at(0.0), "2", write("y")).unwrap();
    look(&mut broker, 0, 9);
    broker.progress(at(9.9), "1", moved(Bytes::ZERO)).unwrap();
    broker.stored(at(10.5), "2", stored("y")).unwrap();
    assert_eq!(broker.nodes(broker.looked).nodes[0].write.active, 1);
}

#[test]
fn one_grant_that_could_not_be_kept_left_the_others_waiting_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    for id in ["1", "2", "3"] {
        assert!(broker.place(at(0.0), id, write(id)).unwrap().granted.is_some());
    }
    // Two that wait for what one leaves.
    let large = TransferQuestion { needs: ServiceNeeds::Average(14e6), ..write("large") };
    assert!(broker.place(at(0.0), "large", large).unwrap().granted.is_none());
    let other = TransferQuestion { needs: ServiceNeeds::Average(5e6), ..write("other") };
    assert!(broker.place(at(0.0), "other", other).unwrap().granted.is_none());
    broker.fill_disk();
    for id in ["1", "2", "3"] {
        refused(broker.end(at(1.0), id, &TransferEnd::default()), "catalogue");
    }
    // They are told, and ask anew.
    refused(broker.reservation(at(1.0), "large"), "gone");
    refused(broker.reservation(at(1.0), "other"), "gone");
    assert!(broker.nodes(broker.looked).nodes.iter().all(|node| node.write.active == 0));
}

#[test]
fn what_a_failed_write_did_not_write_was_missing_when_it_was_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    let b = ResourceName::new("b").unwrap();
    let wish = TransferQuestion { size: Some(Bytes::new(600_000_000)), except: vec![b], ..write("x") };
    assert_eq!(node(&broker.place(at(0.0), "1", wish.clone()).unwrap()), Some("a"));
    broker.end(at(0.1), "1", &TransferEnd::failed("it is full")).unwrap();
    // It rests, and has the room.
    assert!(broker.place(at(0.2), "2", wish.clone()).unwrap().granted.is_none());
    broker.end(at(0.3), "2", &TransferEnd::default()).unwrap();
    assert_eq!(broker.nodes(broker.looked).nodes[0].free, Some(Bytes::new(1_000_000_000)));
    // What was stored has taken its room, before anything is measured.
    look(&mut broker, 0, 6);
    broker.place(at(6.0), "3", wish.clone()).unwrap();
    broker.stored(at(6.1), "3", StoredReport { size: Bytes::new(600_000_000), ..stored("x") }).unwrap();
    refused(broker.place(at(6.2), "4", TransferQuestion { name: Some(name("y")), ..wish }), "too-large");
}

#[test]
fn who_did_not_hear_the_answer_was_refused_for_his_own_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = broker(folder.path(), 0.0);
    let granted = first.place(at(0.0), "1", write("x")).unwrap();
    assert_eq!(first.place(at(0.1), "1", write("x")).unwrap(), granted);
    refused(first.place(at(0.1), "1", write("y")), "taken");
    refused(first.place(at(0.1), "1", TransferQuestion { size: Some(Bytes::new(1)), ..write("x") }), "taken");
    assert_eq!(first.nodes(first.looked).nodes[0].write.active, 1);
    drop(first);
    let mut broker = broker(folder.path(), 0.0);
    assert_eq!(node(&broker.place(at(0.1), "1", write("x")).unwrap()), Some("a"));
    assert_eq!(broker.nodes(broker.looked).nodes[0].write.active, 1);
    broker.stored(at(0.2), "1", stored("x")).unwrap();
    // Its key is never written again.
    refused(broker.place(at(0.3), "1", TransferQuestion { replica: true, ..write("x") }), "taken");
    let waits = TransferQuestion { needs: ServiceNeeds::Average(14e6), ..write("z") };
    broker
        .place(at(0.3), "2", TransferQuestion { needs: ServiceNeeds::Average(29e6), ..write("y") })
        .unwrap();
    broker.place(at(0.3), "3", waits.clone()).unwrap();
    broker.place(at(0.3), "4", TransferQuestion { name: Some(name("w")), ..waits.clone() }).unwrap();
    assert!(
        broker
            .place(at(0.3), "4", TransferQuestion { name: Some(name("w")), ..waits })
            .unwrap()
            .granted
            .is_none()
    );
    assert_eq!(broker.nodes(broker.looked).waiting, 1);
}

#[test]
fn two_replicas_that_waited_were_given_one_node() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    let b = ResourceName::new("b").unwrap();
    broker.place(at(0.0), "0", TransferQuestion { except: vec![b], ..write("x") }).unwrap();
    broker.stored(at(0.0), "0", stored("x")).unwrap();
    // Node b is full, and holds none yet.
    let a = ResourceName::new("a").unwrap();
    broker.place(at(0.0), "1", TransferQuestion { except: vec![a], ..write("y") }).unwrap();
    for id in ["2", "3"] {
        let copy = TransferQuestion { replica: true, needs: ServiceNeeds::Average(5e6), ..write("x") };
        assert!(broker.place(at(0.0), id, copy).unwrap().granted.is_none());
    }
    broker.end(at(1.0), "1", &TransferEnd::default()).unwrap();
    assert_eq!(node(&broker.reservation(at(1.0), "2").unwrap()), Some("b"));
    refused(broker.reservation(at(1.0), "3"), "gone");
}

#[test]
fn a_node_that_was_excluded_thousands_of_times_was_kept_thousands_of_times() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    let a = ResourceName::new("a").unwrap();
    broker
        .place(
            at(0.0),
            "1",
            TransferQuestion {
                except: vec![a.clone(); 5_000],
                needs: ServiceNeeds::Average(14e6),
                ..write("x")
            },
        )
        .unwrap();
    let waits = TransferQuestion { except: vec![a; 5_000], needs: ServiceNeeds::Average(14e6), ..write("y") };
    assert!(broker.place(at(0.0), "2", waits).unwrap().granted.is_none());
    let kept = format!("{broker:?}").matches("except: [").count();
    assert_eq!(kept, 1, "of the one that waits");
    assert!(format!("{broker:?}").len() < 50_000);
}

#[test]
fn after_a_restart_everybody_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    {
        let mut broker = broker(folder.path(), 0.0);
        broker.place(at(0.0), "0", write("before")).unwrap();
        broker.stored(at(0.0), "0", stored("before")).unwrap();
        broker.place(at(0.0), "1", write("x")).unwrap();
        broker.place(at(0.0), "2", read("before")).unwrap();
        broker.place(at(0.0), "3", TransferQuestion { name: None, ..write("y") }).unwrap();
        broker.end(at(0.0), "3", &TransferEnd::default()).unwrap();
    }
    let mut broker = broker(folder.path(), 0.0);
    let report = &broker.nodes(broker.looked).nodes[0];
    assert_eq!((report.read.active, report.write.active), (1, 1));
    assert_eq!(report.write.reserved_bps, ByteRate::new(10e6));
    refused(broker.place(at(0.0), "4", write("x")), "duplicate");
    broker.progress(at(1.0), "2", moved(Bytes::new(9))).unwrap();
    broker.stored(at(1.0), "1", stored("x")).unwrap();
    assert_eq!(broker.object(&name("x")).unwrap().replicas[0].key, "x.1");
    look(&mut broker, 0, 12);
    assert!(
        broker.nodes(broker.looked).nodes.iter().all(|node| node.read.active + node.write.active == 0),
        "leases go on, too"
    );
}

#[test]
fn who_was_granted_a_read_and_heard_it_after_a_restart_took_the_object_for_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = broker(folder.path(), 0.0);
    first.place(at(0.0), "0", write("x")).unwrap();
    first.stored(at(0.0), "0", stored("x")).unwrap();
    let before = first.place(at(0.0), "1", read("x")).unwrap().granted.unwrap();
    drop(first);
    let after = broker(folder.path(), 1.0).reservation(at(1.0), "1").unwrap().granted.unwrap();
    assert_eq!((after.key, after.sha256), (before.key, Some(digest())));
}

#[test]
fn all_that_was_moved_before_a_restart_was_taken_for_the_rate_of_the_first_second() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = broker(folder.path(), 0.0);
    let large = TransferQuestion { size: Some(Bytes::new(500_000_000)), ..write("x") };
    first.place(at(0.0), "1", large).unwrap();
    drop(first);
    let mut broker = broker(folder.path(), 0.0);
    let rate = |broker: &Broker| broker.nodes(broker.looked).nodes[0].write.current_bps;
    broker.progress(at(0.2), "1", moved(Bytes::new(400_000_000))).unwrap();
    broker.progress(at(0.8), "1", moved(Bytes::new(406_000_000))).unwrap();
    look(&mut broker, 0, 1);
    assert_eq!(rate(&broker), Some(ByteRate::new(6e6)));
    broker.progress(at(1.8), "1", moved(Bytes::new(416_000_000))).unwrap();
    look(&mut broker, 1, 2);
    assert_eq!(rate(&broker), Some(ByteRate::new(10e6)));
}

#[derive(Debug, Clone)]
enum Step {
    Write(u8),
    Read(u8),
    Copy(u8),
    Tell(u8),
    Store(u8),
    End(u8, bool),
    Remove(u8),
    Look(u8),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..6u8).prop_map(Step::Write),
        2 => (0..6u8).prop_map(Step::Read),
        1 => (0..6u8).prop_map(Step::Copy),
        3 => any::<u8>().prop_map(Step::Tell),
        3 => any::<u8>().prop_map(Step::Store),
        2 => any::<(u8, bool)>().prop_map(|(which, failed)| Step::End(which, failed)),
        1 => (0..6u8).prop_map(Step::Remove),
        3 => (1..8u8).prop_map(Step::Look),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Acknowledged objects are there after any sequence of events. Nothing stays reserved once all clients
    /// are silent.
    #[test]
    fn nothing_acknowledged_is_lost_and_nothing_stays_reserved(steps in proptest::collection::vec(step(),
        1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let mut broker = broker(folder.path(), 0.0);
        let mut now = 0.0;
        let mut ids: Vec<(String, ObjectName)> = Vec::new();
        let mut there: BTreeMap<ObjectName, usize> = BTreeMap::new();
        let none = BTreeMap::new();
        for step in steps {
            let pick = |which: u8| ids.get(usize::from(which) % ids.len().max(1)).cloned();
            match step {
                Step::Write(object) | Step::Read(object) | Step::Copy(object) => {
                    let object = format!("o{object}");
                    let id = ids.len().to_string();
                    let wish = match step {
                        Step::Write(_) => write(&object),
                        Step::Read(_) => read(&object),
                        _ => TransferQuestion { replica: true, ..write(&object) },
                    };
                    if broker.place(at(now), &id, wish).is_ok() {
                        ids.push((id, name(&object)));
                    }
                }
                Step::Tell(which) => if let Some((id, _)) = pick(which) {
                    let _ = broker.progress(at(now), &id, moved(Bytes::new(u64::from(which) * 1000)));
                },
                Step::Store(which) => if let Some((id, object)) = pick(which) {
                    let known = broker.object(&object).map_or(0, |object| object.replicas.len());
                    if broker.stored(at(now), &id, stored(object.as_str())).is_ok() {
                        let holders = broker.object(&object).unwrap().replicas.len();
                        prop_assert!(holders == known || holders == known + 1);
                        there.insert(object, holders);
                    }
                },
                Step::End(which, failed) => if let Some((id, _)) = pick(which) {
                    let _ = broker.end(at(now), &id, &TransferEnd { failed, why: None });
                },
                Step::Remove(object) => {
                    let object = name(&format!("o{object}"));
                    prop_assert_eq!(broker.remove(&object).is_ok(), there.remove(&object).is_some());
                }
                Step::Look(seconds) => {
                    now += f64::from(seconds);
                    broker.look(at(now), &none).unwrap();
                }
                Step::Restart => {
                    drop(broker);
                    broker = self::broker(folder.path(), now);
                }
            }
            let found: BTreeMap<_, _> =
                broker.objects(None, 100).objects.into_iter()
                    .map(|object| (object.name, object.replicas.len())).collect();
            prop_assert_eq!(&found, &there);
        }
        for _ in 0..33 {
            now += 1.0;
            broker.look(at(now), &none).unwrap();
        }
        let nodes = broker.nodes(broker.looked);
        prop_assert_eq!(nodes.waiting, 0);
        for node in nodes.nodes {
            for lane in [node.read, node.write] {
                prop_assert_eq!((lane.active, lane.reserved_bps), (0, ByteRate::ZERO));
            }
        }
        prop_assert!(broker.under_way.is_empty() && broker.ids.is_empty() && broker.catalogue.under_way()
            .count() == 0);
    }
}

/// The configuration in which an agent reports on node `b`.
const REPORTED: &str = r#"
listen = "127.0.0.1:0"
state = "unused"
policy = "sm-r2"
[node.a]
place = "file:///srv/a"
peak = "30MB/s"
[node.b]
place = "file:///srv/b"
peak = "60MB/s"
agent = true
"#;

fn reported(sequence: u64, at_s: f64, rate: f64) -> SensorReport {
    let lane = SensedLane { current_bps: Some(rate), latency_s: Some(0.5), ..SensedLane::default() };
    SensorReport {
        run: "0123456789abcdef".to_owned(),
        sequence,
        at_s,
        interval_s: 1.0,
        kind: NodeKind::Disk,
        read: lane,
        write: lane,
        free: Some(Bytes::new(7_000_000)),
        size: None,
    }
}

#[test]
fn what_an_agent_says_counts_while_it_is_new_and_of_its_own_node() {
    let folder = tempfile::tempdir().unwrap();
    let config = BrokerConfig::parse("broker.toml", REPORTED, Path::new("")).unwrap();
    let mut broker = Broker::new(&config, Catalogue::open(folder.path()).unwrap(), at(0.0)).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| ResourceName::new(name).unwrap());
    refused(broker.report(at(0.0), &a, reported(1, 0.0, 0.0)), "no-agent");
    refused(broker.report(at(0.0), &c, reported(1, 0.0, 0.0)), "unknown-node");
    refused(broker.report(at(0.0), &b, reported(1, 0.0, -1.0)), "unbelievable");
    assert_eq!(broker.nodes(at(0.0)).nodes[1].sensor, None);
    // For ten seconds others have nearly all of b: a is left.
    for second in 1..=10u32 {
        let now = f64::from(second);
        broker.report(at(now - 0.1), &b, reported(u64::from(second), now, 58e6)).unwrap();
        refused(broker.report(at(now - 0.1), &b, reported(u64::from(second), now, 58e6)), "another-report");
        broker.look(at(now), &BTreeMap::new()).unwrap();
    }
    let nodes = broker.nodes(at(10.0)).nodes;
    let sensor = nodes[1].sensor.as_ref().unwrap();
    assert!(sensor.recent && (sensor.age_s - 0.1).abs() < 0.02 && sensor.report.kind == NodeKind::Disk);
    assert_eq!((nodes[1].free, nodes[1].read.latency_s), (Some(Bytes::new(7_000_000)), Some(0.5)));
    assert_eq!(node(&broker.place(at(10.0), "1", write("x")).unwrap()), Some("a"));
    // It is silent: nothing is known of others any more, nor of the latency, and b has its transfers' word
    // only.
    for second in 11..=30u32 {
        broker.look(at(f64::from(second)), &BTreeMap::new()).unwrap();
        broker.reservation(at(f64::from(second)), "1").unwrap();
    }
    let nodes = broker.nodes(at(30.0)).nodes;
    assert!(!nodes[1].sensor.as_ref().unwrap().recent);
    assert_eq!(nodes[1].read.latency_s, None, "unknown, and not at once");
    assert_eq!(nodes[1].free, None, "everything may have been removed since");
    assert_eq!(node(&broker.place(at(30.0), "2", write("y")).unwrap()), Some("b"));
}

#[test]
fn a_first_byte_is_learnt_once_from_each_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = broker(folder.path(), 0.0);
    broker.place(at(0.0), "1", write("x")).unwrap();
    let tells = |seconds| ProgressReport { bytes: Bytes::new(1), first_byte_s: Some(seconds) };
    refused(broker.progress(at(0.5), "1", tells(f64::NAN)), "unbelievable");
    refused(broker.progress(at(0.5), "1", tells(-1.0)), "unbelievable");
    for seconds in [0.25, 99.0] {
        broker.progress(at(0.5), "1", tells(seconds)).unwrap();
    }
    look(&mut broker, 0, 1);
    assert_eq!(broker.nodes(at(1.0)).nodes[0].write.latency_s, Some(0.25));
    let soon = TransferQuestion { needs: ServiceNeeds::Latency(0.1), ..write("y") };
    assert_eq!(node(&broker.place(at(1.0), "2", soon).unwrap()), Some("b"), "a is too slow for that now");
}

#[test]
fn a_probe_is_the_learnt_peak_and_changes_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let text = TWO.replace("peak = \"30MB/s\"", "peak_read = \"30MB/s\"");
    let config = BrokerConfig::parse("broker.toml", &text, Path::new("")).unwrap();
    let mut broker = Broker::new(&config, Catalogue::open(folder.path()).unwrap(), at(0.0)).unwrap();
    let a = ResourceName::new("a").unwrap();
    let found = PeakReport { read_bps: Some(90e6), write_bps: Some(40e6) };
    let peaks = broker.probed(&a, found).unwrap();
    assert_eq!(peaks.read, PeakNow { bps: ByteRate::new(30e6), pinned: true });
    assert_eq!(peaks.write, PeakNow { bps: ByteRate::new(40e6), pinned: false });
    // Beside a transfer it found what that left.
    broker.place(at(0.0), "1", write("x")).unwrap();
    let less = PeakReport { read_bps: None, write_bps: Some(5e6) };
    assert_eq!(broker.probed(&a, less).unwrap().write.bps, ByteRate::new(40e6));
    refused(broker.probed(&a, PeakReport { read_bps: Some(f64::INFINITY), write_bps: None }), "unbelievable");
    refused(broker.probed(&ResourceName::new("c").unwrap(), found), "unknown-node");
}

#[test]
fn an_object_is_recalled_once_it_is_not_on_the_disk_in_front_of_the_tapes() {
    let folder = tempfile::tempdir().unwrap();
    let text = "listen = '127.0.0.1:0'\nstate = 's'\npolicy = 'sm-r1'\n[node.hsm]\nplace = \
        'file:///srv/hsm'\npeak = '300MB/s'\n\
                recall = '90s'\ncache = '2MB'\n";
    let config = BrokerConfig::parse("broker.toml", text, Path::new("")).unwrap();
    let mut broker = Broker::new(&config, Catalogue::open(folder.path()).unwrap(), at(0.0)).unwrap();
    for object in ["x", "y", "z"] {
        broker.place(at(0.0), object, write(object)).unwrap();
        broker.stored(at(1.0), object, stored(object)).unwrap();
    }
    // Of 1 MB each, y and z are on the disk.
    let soon = |object| TransferQuestion { needs: ServiceNeeds::Latency(1.0), ..read(object) };
    refused(broker.place(at(2.0), "1", soon("x")), "too-soon");
    assert_eq!(node(&broker.place(at(2.0), "2", soon("z")).unwrap()), Some("hsm"));
    // x is recalled, by the only drive there is; y is made to go by it.
    broker.place(at(2.0), "3", read("x")).unwrap();
    let first = ProgressReport { bytes: Bytes::new(500_000), first_byte_s: Some(88.0) };
    broker.progress(at(3.0), "3", first).unwrap();
    broker.end(at(4.0), "3", &TransferEnd::default()).unwrap();
    assert_eq!(node(&broker.place(at(5.0), "4", soon("x")).unwrap()), Some("hsm"));
    refused(broker.place(at(5.0), "5", soon("y")), "too-soon");
}

#[test]
fn after_a_restart_a_recall_was_taken_for_the_latency_of_the_disk_and_held_no_drive() {
    let folder = tempfile::tempdir().unwrap();
    let text = "listen = '127.0.0.1:0'\nstate = 's'\npolicy = 'sm-r1'\n[node.hsm]\nplace = \
        'file:///srv/hsm'\npeak = '300MB/s'\n\
                recall = '90s'\ndrives = 1\n";
    let config = BrokerConfig::parse("broker.toml", text, Path::new("")).unwrap();
    let start = || Broker::new(&config, Catalogue::open(folder.path()).unwrap(), at(0.0)).unwrap();
    {
        let mut first = start();
        for object in ["x", "y"] {
            first.place(at(0.0), object, write(object)).unwrap();
            first.stored(at(1.0), object, stored(object)).unwrap();
        }
    }
    // Nothing is on the disk after a start.
    assert_eq!(node(&start().place(at(2.0), "1", read("x")).unwrap()), Some("hsm"));
    let mut broker = start();
    assert_eq!(node(&broker.place(at(3.0), "2", read("y")).unwrap()), None, "there is one drive");
    let first = ProgressReport { bytes: Bytes::new(500_000), first_byte_s: Some(88.0) };
    broker.progress(at(4.0), "1", first).unwrap();
    look(&mut broker, 3, 5);
    assert_eq!(node(&broker.reservation(at(5.0), "2").unwrap()), Some("hsm"), "the drive is free");
    assert_eq!(broker.nodes(at(5.0)).nodes[0].read.latency_s, None);
}

#[test]
fn a_first_byte_that_was_learnt_before_a_restart_is_not_learnt_again() {
    let folder = tempfile::tempdir().unwrap();
    broker(folder.path(), 0.0).place(at(0.0), "1", write("x")).unwrap();
    let mut broker = broker(folder.path(), 0.0);
    broker.progress(at(0.5), "1", ProgressReport { bytes: Bytes::new(1), first_byte_s: Some(7.0) }).unwrap();
    look(&mut broker, 0, 1);
    assert_eq!(broker.nodes(at(1.0)).nodes[0].write.latency_s, None);
}
