use proptest::prelude::*;

use super::super::node::{DeviceLane, FreeSpace};
use super::super::peak::NodePeak;
use super::super::tape::NodeTapes;
use super::*;
use crate::node::SettledTransfers;

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

fn mb(rate: f64) -> ByteRate {
    ByteRate::new(rate * 1e6)
}

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Latency::from_secs_f64(seconds)
}

fn node(text: &str, peak: f64) -> NodeConfig {
    let peak = NodePeak::pinned(mb(peak));
    NodeConfig {
        name: name(text),
        read: peak,
        write: peak,
        availability: 1,
        cost: 1,
        latency: Some(Latency::from_millis(10)),
        tape: None,
        free: None,
    }
}

/// The paper's three: 20, 300 and 60 MB/s.
fn three(policy: PlacementPolicy) -> Placement {
    let nodes = vec![node("lustre", 20.0), node("array", 300.0), node("disk", 60.0)];
    Placement::new(PlacementConfig::new(policy), nodes, Instant::ZERO).unwrap()
}

fn one(policy: PlacementPolicy, peak: f64) -> Placement {
    Placement::new(PlacementConfig::new(policy), vec![node("disk", peak)], Instant::ZERO).unwrap()
}

fn write(rate: f64) -> PlacementRequest {
    PlacementRequest {
        direction: TransferDirection::Write,
        requirement: TransferRequirement::Average(mb(rate)),
        size: Bytes::new(1_000_000_000),
        availability: 0,
        cost: 9,
        replicas: Vec::new(),
        on_tape: Vec::new(),
        except: Vec::new(),
    }
}

#[track_caller]
fn granted(answer: Result<PlacementAnswer, PlaceError>) -> PlacementGrant {
    match answer {
        Ok(PlacementAnswer::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
fn waits(answer: Result<PlacementAnswer, PlaceError>) -> TransferTicket {
    match answer {
        Ok(PlacementAnswer::Waiting(ticket)) => ticket,
        other => panic!("does not wait: {other:?}"),
    }
}

const R1: PlacementPolicy = PlacementPolicy::SmR1 { overhead: 1.0 };

#[test]
fn round_robin_takes_each_in_turn() {
    let mut placement = three(PlacementPolicy::RoundRobin);
    let nodes: Vec<_> = (0..4).map(|_| granted(placement.ask(at(0.0), write(10.0))).node).collect();
    assert_eq!(nodes, ["array", "disk", "lustre", "array"].map(name));
}

#[test]
fn the_others_take_the_node_where_it_gets_most() {
    let mut placement = three(R1);
    let nodes: Vec<_> = (0..26).map(|_| granted(placement.ask(at(0.0), write(10.0))).node).collect();
    assert_eq!(nodes[..24], vec![name("array"); 24], "until it has no more left than the disk");
    assert_eq!(nodes[24..], [name("disk"), name("array")], "of equals the next in turn");
}

#[test]
fn who_waits_is_granted_when_somebody_ends() {
    let mut placement = one(R1, 25.0);
    let first = granted(placement.ask(at(0.0), write(10.0)));
    granted(placement.ask(at(0.0), write(10.0)));
    let third = waits(placement.ask(at(0.0), write(10.0)));
    assert!(placement.step(at(1.0)).is_empty());
    assert!(placement.ended(at(2.0), first.ticket));
    let now = placement.step(at(2.0));
    assert_eq!(now.iter().map(|grant| grant.ticket).collect::<Vec<_>>(), [third]);
    assert!(!placement.ended(at(3.0), first.ticket), "only once");
}

#[test]
fn nobody_passes_by_who_waits_for_the_same_node() {
    let mut placement = one(R1, 25.0);
    granted(placement.ask(at(0.0), write(10.0)));
    let large = waits(placement.ask(at(0.0), write(20.0)));
    let small = waits(placement.ask(at(0.0), write(1.0)));
    assert!(placement.step(at(1.0)).is_empty(), "the small one would fit, and come first for ever");
    assert!(placement.ended(at(2.0), large), "who waits may go");
    assert_eq!(placement.step(at(2.0))[0].ticket, small);
}

#[test]
fn who_waits_for_other_nodes_delays_nobody() {
    let dear = NodeConfig { cost: 5, ..node("dear", 25.0) };
    let nodes = vec![NodeConfig { availability: 0, ..node("plain", 25.0) }, dear];
    let mut placement = Placement::new(PlacementConfig::new(R1), nodes, at(0.0)).unwrap();
    let safe = PlacementRequest { availability: 1, ..write(20.0) };
    granted(placement.ask(at(0.0), safe.clone()));
    waits(placement.ask(at(0.0), safe));
    let cheap = granted(placement.ask(at(0.0), PlacementRequest { cost: 1, ..write(20.0) }));
    assert_eq!(cheap.node, name("plain"));
}

#[test]
fn reads_go_to_a_replica() {
    let mut placement = three(R1);
    let read = PlacementRequest {
        direction: TransferDirection::Read,
        replicas: vec![name("lustre"), name("disk")],
        ..write(10.0)
    };
    assert_eq!(granted(placement.ask(at(0.0), read.clone())).node, name("disk"));
    let nowhere = PlacementRequest { replicas: Vec::new(), ..read.clone() };
    assert_eq!(placement.ask(at(0.0), nowhere), Err(PlaceError::NoReplica));
    let unknown = PlacementRequest { replicas: vec![name("tape")], ..read };
    assert_eq!(placement.ask(at(0.0), unknown), Err(PlaceError::Unknown(UnknownNode(name("tape")))));
}

#[test]
fn what_can_never_be_carried_is_refused() {
    let mut placement = three(R1);
    assert_eq!(placement.ask(at(0.0), write(0.0)), Err(PlaceError::NoRate));
    assert!(matches!(placement.ask(at(0.0), write(301.0)), Err(PlaceError::TooFast { .. })));
    assert!(
        matches!(placement.ask(at(0.0), write(300.0)), Err(PlaceError::TooFast { .. })),
        "all that there is, is not more than what is asked for: eq. 1 would never hold"
    );
    let soon =
        PlacementRequest { requirement: TransferRequirement::Latency(Latency::from_millis(9)), ..write(0.0) };
    assert!(matches!(placement.ask(at(0.0), soon), Err(PlaceError::TooSoon { .. })));
    let safe = PlacementRequest { availability: 2, ..write(10.0) };
    assert_eq!(placement.ask(at(0.0), safe), Err(PlaceError::NoClass { availability: 2, cost: 9 }));
    assert_eq!(placement.active() + placement.waiting(), 0);
}

#[test]
fn room_is_promised_once() {
    let config = NodeConfig { free: Some(Bytes::new(1_500_000_000)), ..node("disk", 60.0) };
    let mut placement = Placement::new(PlacementConfig::new(R1), vec![config], at(0.0)).unwrap();
    let huge = PlacementRequest { size: Bytes::new(2_000_000_000), ..write(10.0) };
    assert!(matches!(placement.ask(at(0.0), huge), Err(PlaceError::TooLarge { .. })));
    let first = granted(placement.ask(at(0.0), write(10.0)));
    let second = waits(placement.ask(at(0.0), write(10.0)));
    placement.ended(at(1.0), first.ticket);
    assert!(placement.step(at(1.0)).is_empty(), "what was written takes room");
    let freed = NodeSample {
        read: ByteRate::ZERO,
        write: ByteRate::ZERO,
        free: FreeSpace::Free(Bytes::new(1_500_000_000)),
        device: Default::default(),
    };
    placement.observe(at(2.0), &name("disk"), &freed).unwrap();
    assert_eq!(placement.step(at(2.0))[0].ticket, second);
}

#[test]
fn what_was_free_is_forgotten_once_nobody_knows() {
    let config = NodeConfig { free: Some(Bytes::new(1_500_000_000)), ..node("disk", 60.0) };
    let mut placement = Placement::new(PlacementConfig::new(R1), vec![config], at(0.0)).unwrap();
    let huge = PlacementRequest { size: Bytes::new(2_000_000_000), ..write(10.0) };
    let mut idle = |free| {
        let sample =
            NodeSample { read: ByteRate::ZERO, write: ByteRate::ZERO, free, device: Default::default() };
        placement.observe(at(1.0), &name("disk"), &sample).unwrap();
        placement.ask(at(1.0), huge.clone())
    };
    assert!(matches!(idle(FreeSpace::NotAsked), Err(PlaceError::TooLarge { .. })));
    granted(idle(FreeSpace::Unknown));
}

#[test]
fn who_waits_for_what_a_node_never_has_does_not_keep_it_from_others() {
    let mut placement = three(R1);
    granted(placement.ask(at(0.0), write(250.0)));
    waits(placement.ask(at(0.0), write(100.0)));
    let small = granted(placement.ask(at(0.0), write(15.0)));
    assert_eq!(small.node, name("disk"), "100 MB/s are never the disk's to give");
}

#[test]
fn a_node_of_which_nothing_is_known_is_tried() {
    let fixed = PlacementPolicy::StaticQos { overhead: 1.25 };
    for policy in
        [fixed, R1, PlacementPolicy::SmR2 { overhead: 1.0 }, PlacementPolicy::SM_R3, PlacementPolicy::Learnt]
    {
        let unknown = NodePeak::learnt(ByteRate::ZERO);
        let new = NodeConfig { read: unknown, write: unknown, ..node("new", 0.0) };
        let mut placement = Placement::new(PlacementConfig::new(policy), vec![new], at(0.0)).unwrap();
        granted(placement.ask(at(0.0), write(10.0)));
        waits(placement.ask(at(0.0), write(10.0)));
    }
}

#[test]
fn the_queue_is_bounded() {
    let config = PlacementConfig { greatest_queue: 1, ..PlacementConfig::new(R1) };
    let mut placement = Placement::new(config, vec![node("disk", 15.0)], at(0.0)).unwrap();
    granted(placement.ask(at(0.0), write(10.0)));
    waits(placement.ask(at(0.0), write(10.0)));
    assert_eq!(placement.ask(at(0.0), write(10.0)), Err(PlaceError::QueueFull(1)));
}

#[test]
fn a_transfer_that_died_gives_back_what_it_had() {
    let mut placement = one(R1, 15.0);
    let dead = granted(placement.ask(at(0.0), write(10.0)));
    let heir = waits(placement.ask(at(0.0), write(10.0)));
    assert!(placement.progress(at(5.0), dead.ticket, TransferProgress { rate: mb(10.0) }));
    assert!(placement.step(at(15.0)).is_empty(), "its lease is not over");
    assert_eq!(placement.step(at(15.1))[0].ticket, heir);
    assert!(
        !placement.progress(at(16.0), dead.ticket, TransferProgress { rate: mb(10.0) }),
        "it has to ask anew"
    );
    assert_eq!(placement.nodes().next().unwrap().directions[1].reserved, mb(10.0), "of the heir only");
}

/// One sample of the node a second, and of a transfer that moves this much.
fn tell(placement: &mut Placement, ticket: TransferTicket, seconds: std::ops::Range<u32>, rate: f64) {
    for second in seconds {
        let now = at(f64::from(second));
        let sample = NodeSample {
            read: ByteRate::ZERO,
            write: mb(rate),
            free: FreeSpace::NotAsked,
            device: Default::default(),
        };
        placement.observe(now, &name("disk"), &sample).unwrap();
        assert!(placement.progress(now, ticket, TransferProgress { rate: mb(rate) }));
    }
}

fn reserved(placement: &Placement) -> ByteRate {
    placement.nodes().next().unwrap().directions[1].reserved
}

#[test]
fn what_is_reserved_and_not_used_is_lent_and_taken_back() {
    let mut placement = one(R1, 60.0);
    let slow = granted(placement.ask(at(0.0), write(50.0)));
    let other = waits(placement.ask(at(0.0), write(20.0)));
    tell(&mut placement, slow.ticket, 1..10, 8.0);
    assert_eq!(reserved(&placement), mb(50.0), "nine samples are not ten");
    tell(&mut placement, slow.ticket, 10..11, 8.0);
    assert_eq!(reserved(&placement), mb(10.0), "what it uses, and a quarter to grow");
    let report = placement.nodes().next().unwrap();
    assert_eq!((report.directions[1].lent, report.waiting), (mb(40.0), 1));
    assert_eq!(placement.step(at(10.0))[0].ticket, other);

    tell(&mut placement, slow.ticket, 11..12, 12.0);
    assert_eq!(reserved(&placement), mb(70.0), "it uses more than it kept: all of it is its own again");
    let report = placement.nodes().next().unwrap();
    assert_eq!((report.directions[1].lent, report.waiting), (ByteRate::ZERO, 0));
    tell(&mut placement, slow.ticket, 12..13, 9.0);
    assert_eq!(reserved(&placement), mb(70.0), "one sample is not ten");
    placement.ended(at(12.0), slow.ticket);
    assert_eq!(reserved(&placement), mb(20.0));
}

#[test]
fn nothing_is_lent_where_everybody_gets_too_little() {
    let mut placement = one(R1, 60.0);
    let both = [0, 1].map(|_| granted(placement.ask(at(0.0), write(20.0))).ticket);
    for second in 1..30 {
        let now = at(f64::from(second));
        let sample = NodeSample {
            read: ByteRate::ZERO,
            write: mb(10.0),
            free: FreeSpace::NotAsked,
            device: Default::default(),
        };
        placement.observe(now, &name("disk"), &sample).unwrap();
        for ticket in both {
            placement.progress(now, ticket, TransferProgress { rate: mb(5.0) });
        }
    }
    assert_eq!(reserved(&placement), mb(40.0), "others take the node, and it moves less than it could");
}

#[test]
fn nothing_is_lent_while_the_node_is_what_holds_a_transfer_back() {
    let mut placement = one(R1, 60.0);
    let slow = granted(placement.ask(at(0.0), write(50.0)));
    for second in 1..30 {
        let now = at(f64::from(second));
        let busy = NodeSample {
            read: ByteRate::ZERO,
            write: mb(55.0),
            free: FreeSpace::NotAsked,
            device: Default::default(),
        };
        placement.observe(now, &name("disk"), &busy).unwrap();
        placement.progress(now, slow.ticket, TransferProgress { rate: mb(8.0) });
    }
    assert_eq!(reserved(&placement), mb(50.0));
}

/// Two transfers of slow clients that reserved 10 MB/s each and move 5. Returns what stays reserved when a
/// sensor reports this rate of all data, or none.
fn reserved_by_slow_clients(seen: Option<f64>) -> ByteRate {
    let mut placement = one(R1, 60.0);
    let both = [(); 2].map(|()| granted(placement.ask(at(0.0), write(10.0))));
    for second in 1..30 {
        let now = at(f64::from(second));
        let mut device: [DeviceLane; 2] = Default::default();
        device[1].rate = seen.map(mb);
        let sample = NodeSample { read: ByteRate::ZERO, write: mb(10.0), free: FreeSpace::NotAsked, device };
        placement.observe(now, &name("disk"), &sample).unwrap();
        for grant in &both {
            placement.progress(now, grant.ticket, TransferProgress { rate: mb(5.0) });
        }
    }
    reserved(&placement)
}

#[test]
fn slow_clients_lend_where_a_sensor_sees_that_it_is_not_the_node() {
    // A quarter more than they use.
    assert_eq!(reserved_by_slow_clients(Some(10.0)), mb(12.5));
    assert_eq!(reserved_by_slow_clients(Some(55.0)), mb(20.0), "others take the node");
    assert_eq!(reserved_by_slow_clients(None), mb(20.0), "nothing tells slow clients from a slow node");
}

#[test]
fn nothing_is_lent_where_that_is_not_wanted() {
    let config = PlacementConfig { lend: false, ..PlacementConfig::new(R1) };
    let mut placement = Placement::new(config, vec![node("disk", 60.0)], at(0.0)).unwrap();
    let slow = granted(placement.ask(at(0.0), write(50.0)));
    tell(&mut placement, slow.ticket, 1..30, 1.0);
    assert_eq!(reserved(&placement), mb(50.0));
}

#[test]
fn a_configuration_that_contradicts_itself_is_refused() {
    let with = |config, nodes| Placement::new(config, nodes, at(0.0)).map(|_| ()).unwrap_err();
    let good = PlacementConfig::new(R1);
    assert_eq!(with(good, vec![]), PlacementConfigError::NoNodes);
    assert_eq!(
        with(good, vec![node("one", 1.0), node("one", 2.0)]),
        PlacementConfigError::Twice(name("one"))
    );
    let nodes = || vec![node("one", 1.0)];
    assert_eq!(with(PlacementConfig { greatest_queue: 0, ..good }, nodes()), PlacementConfigError::NoQueue);
    assert_eq!(
        with(PlacementConfig { lease: Duration::ZERO, ..good }, nodes()),
        PlacementConfigError::NoLease
    );
    let wrong = PlacementConfig::new(PlacementPolicy::SmR1 { overhead: 0.0 });
    assert!(matches!(with(wrong, nodes()), PlacementConfigError::Policy(_)));
}

#[test]
fn an_unknown_node_is_named() {
    let sample = NodeSample {
        read: ByteRate::ZERO,
        write: ByteRate::ZERO,
        free: FreeSpace::NotAsked,
        device: Default::default(),
    };
    let error = three(R1).observe(at(1.0), &name("tape"), &sample).unwrap_err();
    assert_eq!(error.to_string(), "there is no storage node `tape`");
}

/// An event that happens to a placement.
#[derive(Debug, Clone)]
enum Event {
    Ask(f64),
    End(usize),
    Sample(f64),
    Silence,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        // What any of the three could carry.
        4 => (1.0..15.0f64).prop_map(Event::Ask),
        3 => (0..50usize).prop_map(Event::End),
        2 => (0.0..300.0f64).prop_map(Event::Sample),
        1 => Just(Event::Silence),
    ]
}

fn policy() -> impl Strategy<Value = PlacementPolicy> {
    prop_oneof![
        Just(PlacementPolicy::RoundRobin),
        Just(PlacementPolicy::StaticQos { overhead: 1.25 }),
        Just(R1),
        Just(PlacementPolicy::SmR2 { overhead: 1.0 }),
        Just(PlacementPolicy::SM_R3),
        Just(PlacementPolicy::SmR3OfNode { overhead: 1.0 }),
        Just(PlacementPolicy::Learnt),
    ]
}

/// Returns true if each lane's record of its transfers equals the count of them.
fn is_known_as_counted(placement: &Placement) -> bool {
    placement.nodes.iter().all(|(name, node)| {
        [TransferDirection::Read, TransferDirection::Write].into_iter().all(|direction| {
            let here = |active: &&ActiveTransfer| active.node == *name && active.direction == direction;
            let mut counted = SettledTransfers::default();
            placement
                .active
                .values()
                .filter(here)
                .for_each(|active| counted.changes(None, active.falls_short()));
            node.lane(direction).known == counted
        })
    })
}

proptest! {
    /// No transfer that was asked for is forgotten: each is granted or waits until its end, once. When all
    /// have ended, nothing is reserved and none waits.
    #[test]
    fn nobody_is_forgotten(policy in policy(), events in prop::collection::vec(event(), 1..120)) {
        let mut placement = three(policy);
        let (mut waiting, mut running): (Vec<TransferTicket>, Vec<TransferTicket>) = (Vec::new(), Vec::new());
        let mut now = 0.0;
        for event in events {
            now += 1.0;
            match event {
                Event::Ask(rate) => match placement.ask(at(now), write(rate)) {
                    Ok(PlacementAnswer::Granted(grant)) => running.push(grant.ticket),
                    Ok(PlacementAnswer::Waiting(ticket)) => waiting.push(ticket),
                    Err(error) => prop_assert!(false, "{}", error),
                },
                Event::End(which) if !running.is_empty() => {
                    let ticket = running.remove(which % running.len());
                    prop_assert!(placement.ended(at(now), ticket));
                }
                Event::End(_) | Event::Silence => now += 0.5,
                Event::Sample(rate) => {
                    let sample = NodeSample { read: ByteRate::ZERO, write: mb(rate),
                        free: FreeSpace::NotAsked, device: Default::default() };
                    placement.observe(at(now), &name("array"), &sample).unwrap();
                }
            }
            for ticket in &running {
                let progress = TransferProgress { rate: mb(5.0) };
                prop_assert!(placement.progress(at(now), *ticket, progress));
            }
            for grant in placement.step(at(now)) {
                let place = waiting.iter().position(|ticket| *ticket == grant.ticket);
                prop_assert!(place == Some(0), "first come, first served: all may use the same nodes");
                running.push(waiting.remove(0));
            }
            prop_assert_eq!((placement.waiting(), placement.active()), (waiting.len(), running.len()));
            prop_assert!(is_known_as_counted(&placement));
        }
        // Ends one by one; every waiting transfer is carried in the end.
        while let Some(ticket) = running.pop() {
            now += 1.0;
            placement.ended(at(now), ticket);
            for ticket in &running {
                placement.progress(at(now), *ticket, TransferProgress { rate: mb(5.0) });
            }
            for node in ["array", "disk", "lustre"] {
                let idle = NodeSample { read: ByteRate::ZERO, write: ByteRate::ZERO,
                    free: FreeSpace::NotAsked, device: Default::default() };
                placement.observe(at(now), &name(node), &idle).unwrap();
            }
            for grant in placement.step(at(now)) {
                waiting.retain(|ticket| *ticket != grant.ticket);
                running.push(grant.ticket);
            }
        }
        prop_assert!(waiting.is_empty() && placement.waiting() == 0);
        for node in placement.nodes() {
            prop_assert_eq!(node.directions.map(|one| (one.active, one.reserved)), [(0, ByteRate::ZERO); 2]);
        }
    }
}

#[test]
fn a_node_that_failed_rests_and_is_not_the_first_choice_for_being_idle() {
    let mut placement = three(R1);
    let first = granted(placement.ask(at(0.0), write(10.0)));
    assert_eq!(first.node, name("array"));
    placement.failed(at(1.0), first.ticket);
    assert!(placement.ended(at(1.0), first.ticket));
    assert_eq!(granted(placement.ask(at(1.0), write(10.0))).node, name("disk"));
    // No other node could carry that: it waits, and is not lost.
    let fast = waits(placement.ask(at(2.0), write(100.0)));
    assert!(placement.step(at(5.9)).is_empty());
    let now = placement.step(at(6.0));
    assert_eq!((now[0].ticket, &now[0].node), (fast, &name("array")));
}

#[test]
fn who_is_excluded_carries_nothing() {
    let mut placement = three(R1);
    let ask = PlacementRequest { except: vec![name("array")], ..write(10.0) };
    assert_eq!(granted(placement.ask(at(0.0), ask.clone())).node, name("disk"));
    let all = ["array", "disk", "lustre"].map(name).to_vec();
    assert_eq!(
        placement.ask(at(0.0), PlacementRequest { except: all, ..ask.clone() }),
        Err(PlaceError::Excluded)
    );
    let unknown = PlacementRequest { except: vec![name("tape")], ..ask };
    assert_eq!(placement.ask(at(0.0), unknown), Err(UnknownNode(name("tape")).into()));
}

#[test]
fn a_transfer_that_goes_on_keeps_its_number_and_what_it_reserved() {
    let mut placement = one(R1, 25.0);
    let grant = PlacementGrant {
        ticket: TransferTicket(7),
        node: name("disk"),
        expected: mb(25.0),
        first_byte: None,
    };
    placement.resume(at(0.0), &write(20.0), &grant).unwrap();
    assert_eq!(placement.nodes().next().unwrap().directions[1].reserved, mb(20.0));
    let next = waits(placement.ask(at(1.0), write(10.0)));
    assert!(next > grant.ticket, "no number is given twice");
    assert!(placement.ended(at(2.0), grant.ticket));
    assert_eq!(placement.step(at(2.0))[0].ticket, next);
    let gone = PlacementGrant { node: name("tape"), ..grant };
    assert_eq!(placement.resume(at(3.0), &write(1.0), &gone), Err(UnknownNode(name("tape"))));
}

/// One of which nothing is said beforehand.
fn unsaid(text: &str, peak: f64) -> NodeConfig {
    NodeConfig { latency: None, ..node(text, peak) }
}

fn soon(millis: u64) -> PlacementRequest {
    PlacementRequest { requirement: TransferRequirement::Latency(Latency::from_millis(millis)), ..write(0.0) }
}

#[test]
fn a_first_byte_that_was_late_keeps_those_away_who_need_it_soon_and_nobody_else() {
    let nodes = vec![unsaid("array", 300.0), unsaid("disk", 60.0)];
    let mut placement = Placement::new(PlacementConfig::new(R1), nodes, at(0.0)).unwrap();
    let first = granted(placement.ask(at(0.0), soon(20)));
    assert_eq!(first.node, name("array"), "nothing is known of it: it is tried");
    placement.first_byte(at(1.0), first.ticket, Latency::from_millis(80));
    assert_eq!(granted(placement.ask(at(2.0), soon(20))).node, name("disk"));
    assert_eq!(granted(placement.ask(at(2.0), soon(100))).node, name("array"));
    let only = PlacementRequest { except: vec![name("disk")], ..soon(20) };
    let late = waits(placement.ask(at(2.0), only));
    assert_eq!(
        granted(placement.ask(at(3.0), write(10.0))).node,
        name("array"),
        "who waits does not keep it"
    );
    assert!(placement.step(at(61.0)).is_empty());
    assert_eq!(placement.step(at(62.0))[0].ticket, late, "after a minute it may be otherwise");
}

#[test]
fn what_others_move_counts_for_what_is_left_and_not_for_what_transfers_get() {
    let busy = |mine: f64, all: f64| NodeSample {
        read: ByteRate::ZERO,
        write: mb(mine),
        device: [DeviceLane::default(), DeviceLane { rate: Some(mb(all)), latency: None }],
        free: FreeSpace::NotAsked,
    };
    // SM-R3: of 60 MB/s its one transfer gets 12, whatever else moves; half of that is not 10.
    let mut r3 = one(PlacementPolicy::SM_R3, 60.0);
    granted(r3.ask(at(0.0), write(10.0)));
    r3.observe(at(1.0), &name("disk"), &busy(12.0, 58.0)).unwrap();
    waits(r3.ask(at(1.0), write(10.0)));
    // SM-R2: 2 MB/s are left.
    let mut r2 = one(PlacementPolicy::SmR2 { overhead: 1.0 }, 60.0);
    granted(r2.ask(at(0.0), write(10.0)));
    r2.observe(at(1.0), &name("disk"), &busy(12.0, 58.0)).unwrap();
    let waiting = waits(r2.ask(at(1.0), write(10.0)));
    // A sensor that says that nothing moves does not make nothing of what transfers move.
    for second in 2..12 {
        r2.observe(at(f64::from(second)), &name("disk"), &busy(55.0, 0.0)).unwrap();
    }
    assert!(r2.step(at(12.0)).is_empty());
    for second in 12..22 {
        r2.observe(at(f64::from(second)), &name("disk"), &busy(12.0, 0.0)).unwrap();
    }
    assert_eq!(r2.step(at(22.0))[0].ticket, waiting);
}

#[test]
fn what_lies_on_tape_takes_a_drive_until_its_first_byte_and_what_is_on_the_disk_takes_none() {
    let tape = Some(NodeTapes { recall: Latency::from_millis(90_000), drives: 2 });
    let nodes = vec![NodeConfig { tape, ..node("hsm", 300.0) }];
    // A recall is longer than the usual lease, which clients keep by saying that they wait.
    let config = PlacementConfig { lease: Duration::from_secs(1000), ..PlacementConfig::new(R1) };
    let mut placement = Placement::new(config, nodes, at(0.0)).unwrap();
    let on_disk =
        PlacementRequest { direction: TransferDirection::Read, replicas: vec![name("hsm")], ..write(10.0) };
    let on_tape = PlacementRequest { on_tape: vec![name("hsm")], ..on_disk.clone() };
    let first = granted(placement.ask(at(0.0), on_tape.clone()));
    assert_eq!(first.first_byte, Some(Latency::from_millis(90_010)), "which is told");
    let second = granted(placement.ask(at(0.0), on_tape.clone()));
    let third = waits(placement.ask(at(0.0), on_tape.clone()));
    placement.first_byte(at(91.0), first.ticket, Latency::from_millis(91_000));
    assert_eq!(placement.step(at(91.0))[0].ticket, third, "a drive is free");
    // A client that dies gives its drive back.
    let fourth = waits(placement.ask(at(92.0), on_tape.clone()));
    assert!(placement.ended(at(93.0), second.ticket));
    assert_eq!(placement.step(at(93.0))[0].ticket, fourth);
    // 10 ms to the first byte, and the recall.
    let by = |millis, ask: &PlacementRequest| PlacementRequest {
        requirement: TransferRequirement::Latency(Latency::from_millis(millis)),
        ..ask.clone()
    };
    assert!(matches!(placement.ask(at(94.0), by(90_000, &on_tape)), Err(PlaceError::TooSoon { .. })));
    granted(placement.ask(at(94.0), by(10, &on_disk)));
    let least = placement.ask(at(94.0), by(1, &on_tape));
    let expected =
        PlaceError::TooSoon { asked: Latency::from_millis(1), least: Latency::from_millis(90_010) };
    assert_eq!(least, Err(expected));
}

#[test]
fn who_waits_for_a_drive_keeps_nobody_from_the_disk() {
    let tape = Some(NodeTapes { recall: Latency::from_millis(90_000), drives: 1 });
    let nodes = vec![NodeConfig { tape, ..node("hsm", 300.0) }];
    let mut placement = Placement::new(PlacementConfig::new(R1), nodes, at(0.0)).unwrap();
    let on_disk =
        PlacementRequest { direction: TransferDirection::Read, replicas: vec![name("hsm")], ..write(10.0) };
    let on_tape = PlacementRequest { on_tape: vec![name("hsm")], ..on_disk.clone() };
    granted(placement.ask(at(0.0), on_tape.clone()));
    waits(placement.ask(at(0.0), on_tape));
    granted(placement.ask(at(0.0), on_disk));
}
