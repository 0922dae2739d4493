//! Hosts that tell each other by datagrams, over real sockets.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command};
use std::time::Duration;

use crate::common::{
    CHILD, INTERVAL, assert_bursts_go_together, cluster_name, config, free_addresses, host, join, key,
    mark_of, report, resource, shown, udp, wait_until_all_hear_all,
};
use tidegate_cluster::{
    Carrier, CarrierReach, ClusterConfig, ClusterHandle, ClusterKey, JoinError, PeerAddress, UdpConfig,
};
use tidegate_control::combine;
use tidegate_testing::{has_namespaces, test_command, until_true};
use tidegate_units::Latency;

fn multicast(group: &str, port: u16) -> Carrier {
    let (group, interface) = (group.parse().unwrap(), Some("v0".to_owned()));
    let listen = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port);
    Carrier::Udp(UdpConfig {
        listen,
        reach: CarrierReach::Multicast { group, interface, hops: 1 },
        key: key(),
    })
}

#[test]
fn three_hosts_of_a_list_hear_each_other_and_combine_what_they_hear() {
    let all: [SocketAddr; 3] = free_addresses("127.0.0.1");
    let [a, b, c] = ["a", "b", "c"].map(|name| {
        let listen = all[usize::from(name.as_bytes()[0] - b'a')];
        join(name, udp(listen, &all))
    });
    wait_until_all_hear_all(&[("a", &a), ("b", &b), ("c", &c)]);
    let vg0 = resource("vg0");
    let heard = a.heard(&vg0);
    let together = combine(&host("a"), &report(10), &heard, INTERVAL.saturating_mul(100));
    assert_eq!((together.hosts, together.stale), (3, 0));
    // Each of them heard its own datagrams, too: its address is in the list.
    assert_eq!(a.status().duplicates, []);
    assert!(a.heard(&resource("vg1")).is_empty());

    // Who takes its leave is gone at once, and may return at once.
    drop(c);
    until_true("c has left", || a.heard(&vg0).len() == 1 && b.heard(&vg0).len() == 1);
    let c = join("c", udp(all[2], &all));
    wait_until_all_hear_all(&[("a", &a), ("b", &b), ("c", &c)]);
    assert_eq!(a.status().rejected.duplicate_name, 0, "{}", shown(&a));
    assert_eq!(a.status().rejected.restarting, 0, "{}", shown(&a));
}

#[test]
fn ipv6_and_both_families_at_once() {
    let [a6, b6]: [SocketAddr; 2] = free_addresses("[::1]");
    let [c4]: [SocketAddr; 1] = free_addresses("127.0.0.1");
    let a = join("a", udp(a6, &[b6]));
    // b listens for both families, on the port that a knows.
    let b = join("b", udp(SocketAddr::new("::".parse().unwrap(), b6.port()), &[a6, c4]));
    let c = join("c", udp(c4, &[SocketAddr::new("127.0.0.1".parse().unwrap(), b6.port())]));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    wait_until_all_hear_all(&[("b", &b), ("c", &c)]);
}

#[test]
fn multicast_of_both_families_and_a_network_that_goes_and_comes_back() {
    if !has_namespaces(&["--map-root-user", "--net"]) {
        return;
    }
    let network = "ip link set lo up && ip link add v0 type veth peer name v1 && ip link set v1 up \
        && ip addr add 10.84.0.1/24 dev v0 && ip link set v0 up && exec \"$0\" \"$@\"";
    let wrapper = ["unshare", "--map-root-user", "--net", "sh", "-c", network];
    let status = test_command(module_path!(), "within_a_network_of_its_own", &wrapper).status().unwrap();
    assert!(status.success(), "see above");
}

#[test]
#[ignore = "another test starts this one, in a network namespace"]
fn within_a_network_of_its_own() {
    let ip = |words: &str| assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
    for (group, port) in [("239.84.68.1", 47_001), ("ff02::5444", 47_002)] {
        let [a, b, c] = ["a", "b", "c"].map(|name| join(name, multicast(group, port)));
        let all = [("a", &a), ("b", &b), ("c", &c)];
        wait_until_all_hear_all(&all);
        assert_eq!(a.status().duplicates, []);
        assert!(a.status().up, "{}", shown(&a));

        ip("link set v0 down");
        until_true("the network is seen to be down", || all.iter().all(|(_, cluster)| !cluster.status().up));
        until_true("the peers are stale", || a.status().peers.iter().all(|peer| peer.stale));
        ip("link set v0 up");
        until_true("the network is seen to be up", || all.iter().all(|(_, cluster)| cluster.status().up));
        until_true("a is heard again", || {
            a.publish(&resource("vg0"), report(1_000_000));
            mark_of(&b, "a", &resource("vg0")) == Some(1_000_000)
        });
    }
}

#[test]
fn an_interface_that_is_not_there_is_said_and_tried_again() {
    let group = "239.84.68.2".parse().unwrap();
    let reach = CarrierReach::Multicast { group, interface: Some("nonesuch0".to_owned()), hops: 1 };
    let udp = UdpConfig { listen: "0.0.0.0:47000".parse().unwrap(), reach, key: key() };
    let a = join("a", Carrier::Udp(udp));
    until_true("the status says it", || {
        a.status().reason.is_some_and(|reason| reason.contains("interface `nonesuch0`"))
    });
    assert!(!a.status().up);
    a.publish(&resource("vg0"), report(1));
}

#[test]
fn a_taken_port_is_said_and_used_when_it_is_free() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let [peer]: [SocketAddr; 1] = free_addresses("127.0.0.1");
    let a = join("a", udp(taken.local_addr().unwrap(), &[peer]));
    until_true("the status says it", || a.status().reason.is_some_and(|reason| reason.contains("in use")));
    drop(taken);
    until_true("the carrier is up", || a.status().up);
}

#[test]
fn a_wrong_key_is_counted_and_nothing_of_it_is_heard() {
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let a = join("a", udp(a_at, &[b_at]));
    let wrong = ClusterKey::new(b"what another cluster's hosts know").unwrap();
    let b = UdpConfig { listen: b_at, reach: CarrierReach::Peers(vec![a_at.into()]), key: wrong };
    let b = join("b", Carrier::Udp(b));
    until_true("both count it", || a.status().rejected.bad_key > 3 && b.status().rejected.bad_key > 3);
    assert_eq!(a.status().taken + b.status().taken, 0);
    assert!(a.status().peers.is_empty());
}

#[test]
fn whoever_has_the_key_and_is_no_peer_is_counted_and_nothing_of_it_is_heard() {
    let [a_at, b_at, c_at]: [SocketAddr; 3] = free_addresses("127.0.0.1");
    let (a, b) = (join("a", udp(a_at, &[b_at])), join("b", udp(b_at, &[a_at])));
    let stranger = join("c", udp(c_at, &[a_at, b_at]));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    until_true("both count it", || {
        stranger.publish(&resource("vg0"), report(1));
        [&a, &b].iter().all(|host| host.status().rejected.unknown_peer > 3)
    });
    assert_eq!(a.status().peers.len(), 1, "{}", shown(&a));
}

#[test]
fn a_peer_with_a_configured_name_is_heard_under_that_name_only() {
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let named = |name: &str| {
        let peer = PeerAddress { host: Some(host(name)), address: b_at };
        Carrier::Udp(UdpConfig { listen: a_at, reach: CarrierReach::Peers(vec![peer]), key: key() })
    };
    let b = join("b", udp(b_at, &[a_at]));
    let a = join("a", named("other"));
    until_true("its name does not count", || a.status().rejected.other_name > 3);
    assert!(a.status().peers.is_empty(), "{}", shown(&a));
    drop(a);
    let a = join("a", named("b"));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
}

/// A host in a process of its own: it can be killed, and its clock can be another one.
struct HostProcess(Child);

impl HostProcess {
    /// Runs [`host_process`] under `wrapper`.
    fn start(name: &str, listen: SocketAddr, peer: SocketAddr, wrapper: &[&str]) -> Self {
        let told = format!("{name} {listen} {peer}");
        Self(test_command(module_path!(), "host_process", wrapper).env(CHILD, told).spawn().unwrap())
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: what [`HostProcess`] runs. It publishes until it is killed.
#[test]
#[ignore = "other tests start this one"]
fn host_process() {
    let told = std::env::var(CHILD).unwrap();
    let words: Vec<_> = told.split(' ').collect();
    let [name, listen, peer] = words[..] else { panic!("{told}") };
    let cluster = join(name, udp(listen.parse().unwrap(), &[peer.parse().unwrap()]));
    let parent = std::os::unix::process::parent_id();
    for mark in 1.. {
        cluster.publish(&resource("vg0"), report(mark));
        std::thread::sleep(INTERVAL);
        if std::os::unix::process::parent_id() != parent {
            return;
        }
    }
}

#[test]
fn a_host_that_is_killed_grows_old_and_counts_again_after_its_restart() {
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let a = join("a", udp(a_at, &[b_at]));
    let vg0 = resource("vg0");
    let b = HostProcess::start("b", b_at, a_at, &[]);
    until_true("b is heard", || mark_of(&a, "b", &vg0).is_some_and(|mark| mark > 5));
    drop(b);
    until_true("b is stale", || a.status().peers.iter().any(|peer| peer.stale));
    let heard = a.heard(&vg0);
    assert!(heard[0].age > Latency::from(INTERVAL.saturating_mul(3)), "{}", heard[0].age);
    let together = combine(&host("a"), &report(10), &heard, INTERVAL);
    assert_eq!((together.hosts, together.stale), (1, 1));

    let _b = HostProcess::start("b", b_at, a_at, &[]);
    until_true("b is heard again", || mark_of(&a, "b", &vg0).is_some_and(|mark| mark < 4));
    assert_eq!(a.status().duplicates, []);
    assert_eq!(a.status().rejected.duplicate_name, 0, "{}", shown(&a));
}

#[test]
fn clocks_that_are_ten_hours_apart_do_not_matter() {
    if !has_namespaces(&["--map-root-user", "--time"]) {
        return;
    }
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let a = join("a", udp(a_at, &[b_at]));
    let vg0 = resource("vg0");
    // A time namespace shifts the clock that the product reads; the wall clock it never reads (clippy.toml).
    let shifted = ["unshare", "--map-root-user", "--time", "--monotonic", "36000", "--boottime", "36000"];
    let _b = HostProcess::start("b", b_at, a_at, &shifted);
    until_true("b is heard", || mark_of(&a, "b", &vg0).is_some_and(|mark| mark > 3));
    until_true("and is fresh", || a.heard(&vg0)[0].age < Latency::from(INTERVAL));
}

/// Stands where a host's peer is, and records what the host sends.
fn recorded(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut buffer = [0; 2000];
    let mut datagrams = Vec::new();
    while datagrams.len() < count {
        let length = socket.recv(&mut buffer).expect("the host sends");
        datagrams.push(buffer[..length].to_vec());
    }
    datagrams
}

#[test]
fn recorded_datagrams_do_not_count_again_not_even_after_their_sender_restarted() {
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let recorder = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Even from an address that may speak.
    let player = UdpSocket::bind("127.0.0.1:0").unwrap();
    let vg0 = resource("vg0");
    let b = join("b", udp(b_at, &[a_at, player.local_addr().unwrap()]));
    let a_config = udp(a_at, &[b_at, recorder.local_addr().unwrap()]);
    let a = join("a", a_config.clone());
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    a.publish(&vg0, report(77));
    until_true("b hears the mark", || mark_of(&b, "a", &vg0) == Some(77));
    let datagrams = recorded(&recorder, 10);

    let send_again = |b: &ClusterHandle| {
        let before = b.status();
        for datagram in &datagrams {
            player.send_to(datagram, b_at).unwrap();
        }
        let refused = |b: &ClusterHandle| b.status().rejected.replayed + b.status().rejected.unproved;
        let before = before.rejected.replayed + before.rejected.unproved;
        until_true("every one of them is refused", || refused(b) >= before + datagrams.len() as u64);
    };
    send_again(&b);

    // The sender starts again, and says something else: what its former self said does not come back.
    drop(a);
    until_true("a has left", || b.heard(&vg0).is_empty());
    send_again(&b);
    assert!(b.heard(&vg0).is_empty());
    let a = join("a", a_config);
    until_true("a counts again", || {
        a.publish(&vg0, report(88));
        mark_of(&b, "a", &vg0) == Some(88)
    });
    for _ in 0..20 {
        send_again(&b);
        assert_eq!(mark_of(&b, "a", &vg0), Some(88));
    }
    assert_eq!(b.status().duplicates, [], "a replay makes no second host");

    // A receiver that starts again has no memory of them, and does not take them either.
    drop(b);
    let b = join("b", udp(b_at, &[player.local_addr().unwrap()]));
    until_true("b is up", || b.status().up);
    send_again(&b);
    assert_eq!(b.status().taken, 0, "{}", shown(&b));
}

#[test]
fn old_newer_foreign_and_malformed_datagrams_are_told_apart() {
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let recorder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _a = join("a", udp(a_at, &[recorder.local_addr().unwrap()]));
    let b = join("b", udp(b_at, &[recorder.local_addr().unwrap()]));
    until_true("b is up", || b.status().up);
    let valid = recorded(&recorder, 1).remove(0);
    let changed = |place: usize, byte: u8| {
        let mut datagram = valid.clone();
        datagram[place] = byte;
        datagram
    };
    for datagram in
        [changed(4, 0), changed(4, 4), changed(7, b'T'), changed(0, b'X'), changed(40, valid[40] ^ 1)]
    {
        recorder.send_to(&datagram, b_at).unwrap();
    }
    recorder.send_to(&[], b_at).unwrap();
    recorder.send_to(&[valid.as_slice(), &[0; 2000]].concat(), b_at).unwrap();
    until_true("all are counted", || b.status().rejected.total() >= 7);
    let rejected = b.status().rejected;
    assert_eq!((rejected.old_version, rejected.new_version, rejected.other_cluster), (1, 1, 1));
    assert_eq!((rejected.malformed, rejected.bad_key), (3, 1));
    assert_eq!(b.status().taken, 0);
}

#[test]
fn of_two_hosts_with_one_name_one_counts_and_everyone_says_so() {
    let [first_at, second_at, b_at]: [SocketAddr; 3] = free_addresses("127.0.0.1");
    let all = [first_at, second_at, b_at];
    let vg0 = resource("vg0");
    let b = join("b", udp(b_at, &all));
    let first = join("a", udp(first_at, &all));
    wait_until_all_hear_all(&[("a", &first), ("b", &b)]);
    let second = join("a", udp(second_at, &all));
    until_true("all three say it", || {
        first.publish(&vg0, report(1));
        second.publish(&vg0, report(2));
        [&first, &second, &b].iter().all(|cluster| {
            let status = cluster.status();
            status.duplicates == [host("a")] && status.rejected.duplicate_name > 0
        })
    });
    assert_eq!(mark_of(&b, "a", &vg0), Some(1), "the one heard first counts");
    assert!(first.heard(&vg0).iter().all(|heard| heard.host != host("a")));
    // The first leaves: the second takes its place.
    drop(first);
    until_true("the second counts", || {
        second.publish(&vg0, report(3));
        mark_of(&b, "a", &vg0) == Some(3)
    });
}

#[test]
fn reports_on_more_resources_than_fit_into_one_datagram_all_arrive() {
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let (a, b) = (join("a", udp(a_at, &[b_at])), join("b", udp(b_at, &[a_at])));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    // One of the 64 that a host may tell of is `vg0`.
    let long = "x".repeat(240);
    let names: Vec<_> = (0..64).map(|n| resource(&format!("{long}{n}"))).collect();
    until_true("63 of them are heard", || {
        for (mark, name) in names.iter().enumerate() {
            a.publish(name, report(mark as u64));
        }
        names.iter().enumerate().take(63).all(|(mark, name)| mark_of(&b, "a", name) == Some(mark as u64))
    });
    assert!(a.status().unpublished > 0);
    // `vg0` was not published for ten intervals: its place goes to the last one.
    until_true("the last one is heard", || {
        a.publish(&names[63], report(63));
        mark_of(&b, "a", &names[63]) == Some(63)
    });
}

#[test]
fn what_contradicts_itself_is_refused() {
    let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
    let refused = |config: ClusterConfig| ClusterHandle::join(config).map(drop).unwrap_err().to_string();
    assert_eq!(
        refused(config("a", udp(at("0.0.0.0:1"), &[at("[::1]:1")]))),
        "cannot reach [::1]:1 from 0.0.0.0:1: listen on an address of the same family, or on [::] for both"
    );
    assert_eq!(
        refused(config("a", udp(at("[::]:1"), &[at("127.0.0.1:0")]))),
        "127.0.0.1:0: the port must not be 0"
    );
    assert!(refused(config("a", udp(at("[::]:1"), &[]))).contains("1 to 1024 addresses"));
    let mut short = config("a", udp(at("127.0.0.1:1"), &[at("127.0.0.1:2")]));
    short.interval = Duration::from_millis(1);
    assert!(matches!(ClusterHandle::join(short), Err(JoinError::Interval(_))));
    assert!(refused(config("a", multicast("10.0.0.1", 5))).contains("not a multicast address"));
}

#[test]
fn the_status_is_a_document() {
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let (a, b) = (join("a", udp(a_at, &[b_at])), join("b", udp(b_at, &[a_at])));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    until_true("a is up", || a.status().up);
    let mut status = serde_json::to_value(a.status()).unwrap();
    assert!(status["sent"].as_u64().unwrap() > 0);
    assert!(status["taken"].as_u64().unwrap() > 0);
    assert!(status["peers"][0]["age"].as_u64().unwrap() < 30_000_000_000);
    assert_eq!(status["rejected"].as_object().unwrap().len(), 15);
    for varying in ["sent", "taken", "rejected"] {
        status.as_object_mut().unwrap().remove(varying);
    }
    let peer = status["peers"][0].as_object_mut().unwrap();
    for age in ["age", "report_age"] {
        assert!(peer.remove(age).unwrap().as_u64().unwrap() < 30_000_000_000, "{age}");
    }
    let expected = serde_json::json!({
        "cluster": cluster_name(), "host": "a", "carrier": "udp", "up": true, "reason": null,
        "peers": [{ "host": "b", "stale": false, "resources": ["vg0"] }],
        "duplicates": [], "slot": null, "unpublished": 0,
    });
    assert_eq!(status, expected);
}

#[test]
fn bursts_of_reports_go_together() {
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let (a, b) = (join("a", udp(a_at, &[b_at])), join("b", udp(b_at, &[a_at])));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    assert_bursts_go_together(&a, "a", &b);
}
