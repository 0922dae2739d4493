//! Fuzz targets: each takes bytes as another host or the policies' bucket might send them, and checks what
//! must hold whatever they are.

use std::sync::OnceLock;
use std::time::Duration;

use nkeys::{KeyPair, KeyPairType};
use tidegate_control::{HeardReport, HostReport, MOST_CLAIMS, SignalRequests, combine};
use tidegate_units::{HostName, Iops, Latency, ResourceName, Window};

use crate::file::layout::{BLOCK, ROOM, read_header, read_slot, write_slot};
use crate::key::ClusterKey;
use crate::name::ClusterName;
use crate::policy::{InvalidPolicy, ResourcePolicy};
use crate::policy_board::{PolicyBoard, PolicyRevision};
use crate::rejection::MessageRejection;
use crate::signature::{PolicyKey, PolicyWriters, VerifiedPolicy, sign, statement, verify};
use crate::udp::datagram::{DatagramSeal, LONGEST};
use crate::wire::{MOST_RESOURCES, Message, NumberedReport};

/// The key that makes datagrams authentic here.
const KEY: &[u8] = b"the key of the cluster";

/// Longer messages are not for a line of the log. Chosen: what the longest names and some words need.
const LONGEST_MESSAGE: usize = 1024;

fn cluster() -> ClusterName {
    ClusterName::new("test").expect("a valid name")
}

fn resource() -> ResourceName {
    ResourceName::new("array").expect("a valid name")
}

fn written(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&cluster(), &mut bytes);
    bytes
}

/// A sender leaves out claims for which a report has no room; everything else of it is kept.
fn check_kept(read: &NumberedReport, again: &NumberedReport) {
    let mut kept = read.clone();
    if let (Some(kept), Some(again)) = (&mut kept.report.point, &again.report.point) {
        assert!(again.claims.iter().all(|claim| kept.claims.contains(claim)), "a claim that no host made");
        kept.claims.clone_from(&again.claims);
    }
    assert_eq!(&kept, again, "nothing of a report is lost");
}

/// Numbers of a report that a control law works with.
fn check_numbers(report: &HostReport) {
    let mut numbers = vec![report.active_shares, report.reserved.per_second()];
    numbers.extend(report.window.map(Window::get));
    if let Some(point) = &report.point {
        assert!(point.claims.len() <= MOST_CLAIMS);
        numbers.extend([Some(point.done.per_second()), point.outstanding].into_iter().flatten());
        for rest in [point.rest, point.content].into_iter().flatten() {
            numbers.extend([Some(rest.shares), rest.most.map(Iops::per_second)].into_iter().flatten());
        }
        if let Some(wish) = point.wish {
            numbers.push(wish.operating_point.per_second());
            numbers.extend(wish.turn.map(|turn| turn.room));
        }
    }
    assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{numbers:?}");
}

/// Checks that the report, combined with that of a host that measures little itself, gives sound numbers.
fn check_combined(report: &HostReport) {
    let name = |text| HostName::new(text).expect("a valid name");
    let own = HostReport {
        interval: Latency::from_millis(2_000),
        signal: SignalRequests::Everything,
        completed: 10,
        total_latency: Latency::from_millis(100),
        outstanding: true,
        oldest: None,
        window: None,
        active_shares: 100.0,
        reserved: Iops::ZERO,
        set_point: None,
        point: None,
        load: None,
    };
    for count in 1..=3 {
        let peers = ["a", "b", "c"][..count].iter().map(|peer| HeardReport {
            host: name(peer),
            age: Latency::ZERO,
            report: report.clone(),
        });
        let peers: Vec<_> = peers.collect();
        let together = combine(&name("own"), &own, &peers, Duration::from_secs(2));
        assert!(together.iops.per_second().is_finite() && together.reserved.per_second().is_finite());
    }
}

fn check_message(message: &Message) {
    assert!(message.reports.len() <= MOST_RESOURCES);
    for (at, numbered) in message.reports.iter().enumerate() {
        let others = &message.reports[..at];
        assert!(
            others.iter().all(|other| other.resource != numbered.resource),
            "two reports on one resource"
        );
        check_numbers(&numbered.report);
        check_combined(&numbered.report);
    }
    let bytes = written(message);
    let (again, rest) = Message::read(&cluster(), &bytes).expect("a message of our own");
    assert!(rest.is_empty());
    assert_eq!((&again.sender, again.sequence), (&message.sender, message.sequence));
    assert_eq!((again.leaving, again.reports.len()), (message.leaving, message.reports.len()));
    for (read, again) in message.reports.iter().zip(&again.reports) {
        check_kept(read, again);
    }
    assert_eq!(written(&again), bytes, "what is written stays as it is");
    assert!(Message::read(&cluster(), &bytes[..bytes.len() - 1]).is_err(), "half a message");
}

/// Reads a host's message: by itself, in an authentic datagram, and in a block of a shared file.
pub fn message(input: &[u8]) {
    let read = Message::read(&cluster(), input);
    match &read {
        Ok((message, rest)) => {
            assert!(input.ends_with(rest));
            check_message(message);
        }
        Err(rejection) => assert!(rejection.to_string().len() <= LONGEST_MESSAGE),
    }
    datagram(input);
    block(input, read.ok());
}

/// The input has all of a datagram but its tag.
fn datagram(input: &[u8]) {
    let seal = |key| DatagramSeal::new(cluster(), &ClusterKey::new(key).expect("a valid key"));
    assert!(seal(KEY).open(input).is_err(), "a datagram without a tag");
    let authentic = seal(KEY).authenticated(input.to_vec());
    match seal(KEY).open(&authentic) {
        Ok(datagram) => {
            assert!(authentic.len() <= LONGEST);
            assert_eq!(seal(&[1; 16]).open(&authentic), Err(MessageRejection::BadKey));
            let closed = seal(KEY).begin(&datagram.message, datagram.nonce).close(&datagram.echoes);
            let again = seal(KEY).open(&closed).expect("a datagram of our own");
            assert_eq!((again.nonce, &again.echoes), (datagram.nonce, &datagram.echoes));
            assert_eq!(written(&again.message), written(&datagram.message));
            let mut changed = authentic.clone();
            changed[input.len() / 2] ^= 1;
            assert!(seal(KEY).open(&changed).is_err(), "a datagram that was changed");
        }
        Err(rejection) => assert_ne!(rejection, MessageRejection::BadKey),
    }
}

/// The same message in a slot, and the input as a block by itself.
fn block(input: &[u8], read: Option<(Message, &[u8])>) {
    let mut block = vec![0; BLOCK];
    block[..input.len().min(BLOCK)].copy_from_slice(&input[..input.len().min(BLOCK)]);
    let _ = read_slot(&cluster(), &block);
    let _ = read_header(&cluster(), &block);
    let fits = &input[..input.len().min(ROOM)];
    write_slot(fits, &mut block);
    match (read_slot(&cluster(), &block), read) {
        (Ok(Some(in_slot)), Some((message, rest))) if fits == input => {
            assert_eq!(in_slot, message);
            assert!(rest.is_empty());
        }
        (Ok(_), None) if fits == input => panic!("a block with what is no message"),
        _ => {}
    }
}

/// A key that is the same in every run: what it signs can be kept in the corpus.
fn key(seed: u8) -> PolicyKey {
    PolicyKey::from(KeyPair::new_from_raw(KeyPairType::User, [seed; 32]).expect("a valid seed"))
}

fn writers() -> &'static (PolicyKey, PolicyWriters, PolicyWriters) {
    static WRITERS: OnceLock<(PolicyKey, PolicyWriters, PolicyWriters)> = OnceLock::new();
    WRITERS.get_or_init(|| {
        let (ours, other) = (key(7), key(8));
        let (of_ours, of_other) = ([ours.writer()].into(), [other.writer()].into());
        (ours, of_ours, of_other)
    })
}

fn check_reason(reason: &InvalidPolicy) {
    let said = reason.to_string();
    assert!(said.len() <= LONGEST_MESSAGE, "{} bytes of message", said.len());
    assert!(!said.contains(char::is_control), "a message with control characters: {said:?}");
}

fn check_policy(policy: &ResourcePolicy) {
    let least = 1.0;
    for (name, rate) in policy.reservations.iter().chain(&policy.limits) {
        assert!(rate.per_second().is_finite() && rate.per_second() >= least, "{name} gets {rate:?}");
    }
    for (name, reservation) in &policy.reservations {
        assert!(policy.limits.get(name).is_none_or(|limit| limit >= reservation));
    }
    let json = policy.to_json().expect("a policy that was read");
    let again = ResourcePolicy::from_json(json.as_bytes()).expect("a policy of our own");
    assert_eq!(&again, policy, "nothing is rounded");
}

/// A policy counts under the key that signed it only, and an older one does not count after it.
fn check_signed(policy: &ResourcePolicy, serial: u64) {
    let (key, ours, others) = writers();
    let (cluster, resource) = (cluster(), resource());
    let Ok(json) = sign(key, &cluster, &resource, serial, policy) else { panic!("a policy that was read") };
    let verified = verify(json.as_bytes(), ours, &cluster, &resource).expect("a policy of our own");
    assert_eq!(verified, VerifiedPolicy { writer: key.writer(), serial, policy: policy.clone() });
    for writers in [others, &PolicyWriters::new()] {
        let refused = verify(json.as_bytes(), writers, &cluster, &resource);
        assert!(matches!(refused, Err(InvalidPolicy::UnknownWriter(_))), "{refused:?}");
    }
    let elsewhere = ResourceName::new("tapes").expect("a valid name");
    let refused = verify(json.as_bytes(), ours, &cluster, &elsewhere);
    assert!(matches!(refused, Err(InvalidPolicy::OtherPlace { .. })), "{refused:?}");
    let posed = json.replace(&key.writer().to_string(), &others.first().expect("a key").to_string());
    let refused = verify(posed.as_bytes(), others, &cluster, &resource);
    assert!(matches!(refused, Err(InvalidPolicy::Signature)), "{refused:?}");

    let board = PolicyBoard::default();
    let put = |serial, revision, policy| {
        let verified = VerifiedPolicy { writer: key.writer(), serial, policy };
        board.put(resource.clone(), PolicyRevision::new(revision, verified))
    };
    assert!(put(serial, 1, policy.clone()).is_ok_and(|changed| changed));
    assert!(put(serial, 1, policy.clone()).is_ok_and(|changed| !changed), "the same again");
    if let Some(before) = serial.checked_sub(1) {
        assert!(put(before, 2, policy.clone()).is_err(), "an old policy was put back");
    }
    let other = ResourcePolicy { target: Some(Latency::from_millis(11)), ..ResourcePolicy::default() };
    assert!(*policy == other || put(serial, 2, other.clone()).is_err(), "two policies with one number");
    if let Some(after) = serial.checked_add(1) {
        assert!(put(after, 2, other).is_ok_and(|changed| changed));
    }
}

/// A policy: by itself, what a writer signed, and the document in the bucket.
pub fn policy(input: &[u8]) {
    match ResourcePolicy::from_json(input) {
        Ok(policy) => {
            check_policy(&policy);
            check_signed(&policy, 7);
        }
        Err(reason) => check_reason(&reason),
    }
    let (cluster, resource) = (cluster(), resource());
    if let Ok(text) = std::str::from_utf8(input) {
        match statement(text, &cluster, &resource) {
            Ok((serial, policy)) => {
                check_policy(&policy);
                check_signed(&policy, serial);
            }
            Err(reason) => check_reason(&reason),
        }
    }
    let (_, ours, others) = writers();
    match verify(input, ours, &cluster, &resource) {
        Ok(VerifiedPolicy { policy, .. }) => check_policy(&policy),
        Err(reason) => check_reason(&reason),
    }
    for writers in [others, &PolicyWriters::new()] {
        let refused = verify(input, writers, &cluster, &resource).expect_err("no host here knows that key");
        check_reason(&refused);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("cluster-message", super::message);
        replay("cluster-policy", super::policy);
    }
}
