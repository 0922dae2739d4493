//! Hosts that tell each other through a real `nats-server`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::common::server::{Server, block_on};
use crate::common::{
    INTERVAL, assert_bursts_go_together, cluster_name, config, free_addresses, host, join, join_slow,
    mark_of, report, resource, shown, wait_for_more_than_an_interval, wait_until_all_hear_all,
};
use tidegate_cluster::{
    Carrier, ClusterHandle, JoinError, NatsConfig, NatsCredentials, PolicyError, PolicyKey, ResourcePolicy,
    Secret, policy_get, policy_put,
};
use tidegate_control::combine;
use tidegate_testing::until_true;
use tidegate_units::{ConsumerName, Latency, ResourceName, Shares};

fn shares(of: &[(&str, u32)]) -> ResourcePolicy {
    let entry =
        |&(name, shares): &(&str, u32)| (ConsumerName::new(name).unwrap(), Shares::new(shares).unwrap());
    ResourcePolicy { shares: of.iter().map(entry).collect(), ..ResourcePolicy::default() }
}

fn put(
    server: &Server,
    resource: &ResourceName,
    policy: &ResourcePolicy,
    serial: u64,
    expected: u64,
) -> Result<u64, PolicyError> {
    policy_put(&server.config(), &cluster_name(), resource, (policy, serial, &server.key), expected)
}

#[track_caller]
fn wait_for_reason(cluster: &ClusterHandle, part: &str) {
    until_true(part, || cluster.status().reason.is_some_and(|reason| reason.contains(part)));
}

#[test]
fn three_hosts_hear_each_other_whatever_their_names() {
    let server = Server::with_jetstream();
    let [a, b, c] = ["a.example.org", "b > *", "ç"].map(|name| join(name, server.carrier()));
    let all = [("a.example.org", &a), ("b > *", &b), ("ç", &c)];
    wait_until_all_hear_all(&all);
    until_true("all is well", || {
        all.iter().all(|(_, cluster)| cluster.status().up && cluster.status().reason.is_none())
    });
    let vg0 = resource("vg0");
    let together = combine(&host("a.example.org"), &report(10), &a.heard(&vg0), INTERVAL.saturating_mul(100));
    assert_eq!((together.hosts, together.stale), (3, 0));
    assert_eq!(a.status().rejected.total(), 0, "{}", shown(&a));
    drop(c);
    // On a starved machine the farewell may be late, and its silence says the same.
    let is_gone = |cluster: &ClusterHandle| {
        let silent = Latency::from(INTERVAL.saturating_mul(3));
        cluster.heard(&vg0).iter().all(|peer| peer.host != host("ç") || peer.age > silent)
    };
    until_true("c has left", || is_gone(&a) && is_gone(&b));
}

#[test]
fn a_server_that_goes_stops_nothing_and_one_that_comes_back_is_found() {
    let mut server = Server::prepare(&["--jetstream"]);
    let [a, b] = ["a", "b"].map(|name| join(name, server.carrier()));
    wait_for_reason(&a, "refused");
    server.run();
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);

    let vg0 = resource("vg0");
    for round in 1..=2 {
        server.kill();
        until_true("both see it", || !a.status().up && !b.status().up);
        until_true("the peer is stale", || {
            a.publish(&vg0, report(round));
            a.heard(&vg0)[0].age > Latency::from(INTERVAL.saturating_mul(3))
        });
        let alone = combine(&host("a"), &report(10), &a.heard(&vg0), INTERVAL);
        assert_eq!((alone.hosts, alone.stale), (1, 1));
        server.run();
        let mark = 1_000_000 + round;
        until_true("both are heard again", || {
            a.publish(&vg0, report(mark));
            b.publish(&vg0, report(mark));
            mark_of(&a, "b", &vg0) == Some(mark) && mark_of(&b, "a", &vg0) == Some(mark)
        });
    }
    assert_eq!(a.status().rejected.total(), 0, "{}", shown(&a));
}

/// Until the end of the test a server is reached at another address, too.
fn forward(at: SocketAddr, to: SocketAddr) {
    let listener = TcpListener::bind(at).unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
            let ways = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
            for (from, into) in ways {
                thread::spawn(move || std::io::copy(&mut from.unwrap(), &mut into.unwrap()));
            }
        }
    });
}

#[test]
fn a_report_that_had_to_wait_for_the_server_does_not_seem_fresh() {
    let server = Server::start(&[]);
    let [way] = free_addresses("127.0.0.1");
    let lonely = NatsConfig { servers: vec![format!("nats://{way}")], ..server.config() };
    let (a, b) = (join_slow("a", Carrier::Nats(lonely)), join_slow("b", server.carrier()));
    let vg0 = resource("vg0");
    wait_for_reason(&a, "refused");
    until_true("b listens", || b.status().up);
    a.publish(&vg0, report(1));
    wait_for_more_than_an_interval();
    forward(way, server.address);
    until_true("b hears of a", || b.status().peers.iter().any(|peer| peer.host == host("a")));
    assert_eq!(mark_of(&b, "a", &vg0), None, "{}", shown(&b));
    a.publish(&vg0, report(2));
    until_true("b hears what is new", || mark_of(&b, "a", &vg0) == Some(2));
}

#[test]
fn a_policy_is_set_seen_changed_and_ended_and_survives_the_server() {
    let mut server = Server::with_jetstream();
    let [a, b] = ["a", "b"].map(|name| join(name, server.carrier()));
    let (nats, cluster, vg0) = (server.config(), cluster_name(), resource("vg0/data base"));
    let mut watches = [a.policy().unwrap(), b.policy().unwrap()];
    assert_eq!(policy_get(&nats, &cluster, &vg0).unwrap(), None);

    let first = shares(&[("database", 400), ("backup", 100)]);
    let revision = put(&server, &vg0, &first, 10, 0).unwrap();
    for watch in &mut watches {
        until_true("the policy is seen", || watch.changed().is_some());
        assert_eq!(watch.current()[&vg0].policy, first);
        assert_eq!((watch.current()[&vg0].revision, watch.current()[&vg0].serial), (revision, 10));
    }
    let stored = policy_get(&nats, &cluster, &vg0).unwrap().unwrap();
    assert_eq!((stored.revision, stored.policy), (revision, first));

    // Two change it at the same time: the second one is told.
    let second = shares(&[("database", 100), ("backup", 100)]);
    let newer = put(&server, &vg0, &second, 11, revision).unwrap();
    for expected in [0, revision, newer + 7] {
        let conflict = put(&server, &vg0, &shares(&[]), 12, expected).unwrap_err();
        assert!(
            matches!(conflict, PolicyError::Conflict { found, .. } if found == newer),
            "expected {expected}: {conflict}"
        );
    }
    until_true("the change is seen", || watches.iter().all(|watch| watch.current()[&vg0].policy == second));

    // The server is killed and returns: policies stay in force meanwhile, and changes are seen again.
    server.kill();
    until_true("both see it", || !a.status().up && !b.status().up);
    assert_eq!(watches[0].current()[&vg0].policy, second);
    assert!(matches!(policy_get(&nats, &cluster, &vg0), Err(PolicyError::Connect { .. })));
    server.run();
    let third = shares(&[("database", 1)]);
    let newest = put(&server, &vg0, &third, 13, newer).unwrap();
    until_true("the change is seen", || watches.iter().all(|watch| watch.current()[&vg0].policy == third));

    // Something else writes what is no policy: the last good one stays. It can be replaced, knowing its
    // revision.
    let key = "vg0=2Fdata=20base";
    server.scribble(key, Some("{\"version\":1,\"shares\":{\"database\":0}}"));
    let bad = policy_get(&nats, &cluster, &vg0).unwrap_err();
    assert!(matches!(&bad, PolicyError::Stored { revision, .. } if *revision == newest + 1), "{bad}");
    assert_eq!(put(&server, &vg0, &second, 14, newest + 1).unwrap(), newest + 2);
    until_true("the good one is seen", || {
        watches.iter().all(|watch| watch.current()[&vg0].revision == newest + 2)
    });

    // An empty one leaves each host what its own configuration says. And one can begin again.
    let ended = put(&server, &vg0, &ResourcePolicy::default(), 15, newest + 2).unwrap();
    until_true("it is empty", || {
        watches.iter().all(|watch| watch.current()[&vg0].policy == ResourcePolicy::default())
    });
    put(&server, &vg0, &first_again(), 16, ended).unwrap();
    until_true("it is back", || watches.iter().all(|watch| watch.current()[&vg0].policy == first_again()));

    // A host that joins later sees the last one.
    let c = join("c", server.carrier());
    let mut watch = c.policy().unwrap();
    until_true("it is seen", || watch.changed().is_some());
    assert_eq!(watch.current()[&vg0].policy, first_again());
}

fn first_again() -> ResourcePolicy {
    shares(&[("database", 400)])
}

#[test]
fn only_signed_policies_count_and_neither_an_old_one_put_back_nor_a_deletion() {
    let server = Server::with_jetstream();
    let a = join("a", server.carrier());
    let (vg0, vg1, marker) = (resource("vg0"), resource("vg1"), resource("marker"));
    let (old, good) = (shares(&[("database", 3)]), shares(&[("database", 7)]));
    let first = put(&server, &vg0, &old, 1, 0).unwrap();
    let old_text = server.stored("vg0");
    put(&server, &vg0, &good, 2, first).unwrap();
    let watch = a.policy().unwrap();
    let current =
        |watch: &tidegate_cluster::PolicyWatch| watch.current().get(&vg0).map(|it| it.policy.clone());
    until_true("the good one is seen", || current(&watch) == Some(good.clone()));

    let unsigned = shares(&[("database", 1)]).to_json().unwrap();
    for bad in ["{", "{\"version\":9}", "{\"version\":1,\"share\":{}}", &unsigned, &old_text] {
        server.scribble("vg0", Some(bad));
    }
    // One that was signed for another resource, and one by a key that no host knows.
    server.scribble("vg1", Some(&old_text));
    let stranger = PolicyKey::generate();
    let other = resource("other");
    policy_put(&server.config(), &cluster_name(), &other, (&good, 9, &stranger), 0).unwrap();
    server.scribble("no=resource", Some("{\"version\":1}"));
    server.scribble("vg0", None);
    // They come in order: when the last one is there, the bad ones were seen.
    put(&server, &marker, &good, 1, 0).unwrap();
    until_true("the last one is seen", || watch.current().contains_key(&marker));
    assert_eq!(current(&watch), Some(good.clone()));
    assert_eq!(watch.current().keys().collect::<Vec<_>>(), [&marker, &vg0]);
    assert!(!watch.current().contains_key(&vg1));

    // A host that starts now finds the latest of what is kept, whatever was written over it.
    let b = join("b", server.carrier());
    let late = b.policy().unwrap();
    until_true("it is seen", || late.current().contains_key(&marker));
    assert_eq!(current(&late), Some(good));

    let contradiction = ResourcePolicy { version: 2, ..ResourcePolicy::default() };
    let refused = put(&server, &vg0, &contradiction, 3, 1).unwrap_err();
    assert!(matches!(refused, PolicyError::Invalid(_)), "{refused}");
}

#[test]
fn without_jetstream_reports_are_exchanged_and_policies_are_missed() {
    let server = Server::start(&[]);
    let [a, b] = ["a", "b"].map(|name| join(name, server.carrier()));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    wait_for_reason(&a, "policies are not followed");
    wait_for_reason(&a, "is JetStream enabled");
    assert!(a.status().up);
    let error = policy_get(&server.config(), &cluster_name(), &resource("vg0")).unwrap_err();
    assert!(matches!(error, PolicyError::Bucket { .. }), "{error}");
}

#[test]
fn credentials_are_asked_for() {
    let server = Server::start(&["--user", "host", "--pass", "secret of hosts"]);
    let with = |password: &str| {
        let credentials = NatsCredentials::User { user: "host".to_owned(), password: Secret::new(password) };
        Carrier::Nats(NatsConfig { credentials, ..server.config() })
    };
    let none = join("none", server.carrier());
    let wrong = join("wrong", with("guessed"));
    wait_for_reason(&none, "authorization violation");
    wait_for_reason(&wrong, "authorization violation");
    let [a, b] = ["a", "b"].map(|name| join(name, with("secret of hosts")));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    assert!(!none.status().up && !wrong.status().up);
    assert!(!format!("{:?}", with("secret of hosts")).contains("secret of hosts"));

    let server = Server::start(&["--auth", "a token"]);
    let with = |token: &str| {
        Carrier::Nats(NatsConfig {
            credentials: NatsCredentials::Token(Secret::new(token)),
            ..server.config()
        })
    };
    let [a, b] = ["a", "b"].map(|name| join(name, with("a token")));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    let wrong = join("wrong", with("another token"));
    wait_for_reason(&wrong, "authorization violation");
}

#[test]
fn what_is_not_a_hosts_message_is_told_apart() {
    let server = Server::with_jetstream();
    let a = join("a", server.carrier());
    until_true("a is up", || a.status().up);
    // What b says, recorded.
    let b = join("b", server.carrier());
    let recorded = block_on(async {
        use futures_util::StreamExt as _;
        let client = async_nats::connect(server.address.to_string()).await.unwrap();
        client.subscribe("tidegate.test.stats.b").await.unwrap().next().await.unwrap().payload.to_vec()
    });
    until_true("b is heard", || a.status().peers.len() == 1);
    let changed = |place: usize, byte: u8| {
        let mut payload = recorded.clone();
        payload[place] = byte;
        payload
    };
    server.say("tidegate.test.stats.x", b"hello");
    server.say("tidegate.test.stats.x", &[]);
    server.say("tidegate.test.stats.c", &recorded);
    server.say("tidegate.test.stats.b", &[recorded.as_slice(), b"more"].concat());
    server.say("tidegate.test.stats.b", &changed(4, 0));
    server.say("tidegate.test.stats.b", &changed(4, 9));
    server.say("tidegate.test.stats.b", &recorded);
    until_true("all are counted", || a.status().rejected.total() >= 7);
    let rejected = a.status().rejected;
    assert_eq!((rejected.malformed, rejected.old_version, rejected.new_version), (4, 1, 1), "{}", shown(&a));
    assert_eq!(rejected.replayed, 1);
    drop(b);
}

#[test]
fn of_two_hosts_with_one_name_one_counts_and_everyone_says_so() {
    let server = Server::with_jetstream();
    let vg0 = resource("vg0");
    let [first, b] = ["a", "b"].map(|name| join(name, server.carrier()));
    wait_until_all_hear_all(&[("a", &first), ("b", &b)]);
    let second = join("a", server.carrier());
    until_true("all three say it", || {
        first.publish(&vg0, report(1));
        second.publish(&vg0, report(2));
        [&first, &second, &b].iter().all(|cluster| cluster.status().duplicates == [host("a")])
    });
    assert_eq!(mark_of(&b, "a", &vg0), Some(1), "the one heard first counts");
}

#[test]
fn addresses_that_cannot_be_used_are_refused() {
    let refused = |server: &str| {
        let nats = NatsConfig {
            servers: vec![server.to_owned()],
            credentials: NatsCredentials::None,
            tls: None,
            replicas: 1,
            writers: Default::default(),
        };
        ClusterHandle::join(config("a", Carrier::Nats(nats))).map(drop).unwrap_err().to_string()
    };
    assert!(refused("tls://host:4222").contains("there must be `tls = true`"));
    assert!(refused("ws://host:4222").starts_with("ws://host:4222: "));
    assert!(refused("nats://me:secret@host:4222").contains("into the credentials"));
    assert!(refused("nats://ho st").starts_with("nats://ho st: "));
    let none = NatsConfig {
        servers: vec![],
        credentials: NatsCredentials::None,
        tls: None,
        replicas: 1,
        writers: Default::default(),
    };
    assert!(matches!(ClusterHandle::join(config("a", Carrier::Nats(none))), Err(JoinError::NoServer)));
}

#[test]
fn bursts_of_reports_go_together() {
    let server = Server::with_jetstream();
    let [a, b] = ["a", "b"].map(|name| join(name, server.carrier()));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    assert_bursts_go_together(&a, "a", &b);
}
