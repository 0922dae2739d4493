//! What the tests of the carriers have in common: reports, hosts, and waiting for a condition.

pub(crate) mod server;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tidegate_cluster::{
    Carrier, CarrierReach, ClusterConfig, ClusterHandle, ClusterKey, ClusterName, UdpConfig,
};
use tidegate_control::{HostReport, SignalRequests};
use tidegate_testing::{PATIENCE, until_true};
use tidegate_units::{HostName, Iops, Latency, ResourceName};

pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).unwrap()
}

pub(crate) fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

pub(crate) fn cluster_name() -> ClusterName {
    ClusterName::new("test").unwrap()
}

pub(crate) fn report(completed: u64) -> HostReport {
    HostReport {
        interval: Latency::from(INTERVAL),
        signal: SignalRequests::Everything,
        completed,
        total_latency: Latency::from_millis(5 * completed),
        outstanding: true,
        oldest: None,
        window: None,
        active_shares: 100.0,
        reserved: Iops::ZERO,
        set_point: None,
        point: None,
        load: None,
    }
}

pub(crate) fn key() -> ClusterKey {
    ClusterKey::new(b"what only the hosts of this cluster know").unwrap()
}

pub(crate) fn config(name: &str, carrier: Carrier) -> ClusterConfig {
    ClusterConfig { name: cluster_name(), host: host(name), interval: INTERVAL, carrier }
}

pub(crate) fn udp(listen: SocketAddr, peers: &[SocketAddr]) -> Carrier {
    Carrier::Udp(UdpConfig {
        listen,
        reach: CarrierReach::Peers(peers.iter().copied().map(Into::into).collect()),
        key: key(),
    })
}

pub(crate) fn join(name: &str, carrier: Carrier) -> ClusterHandle {
    ClusterHandle::join(config(name, carrier)).unwrap()
}

/// Of a cluster in which an outage of less than three intervals can be made.
const SLOW: Duration = Duration::from_secs(2);

pub(crate) fn join_slow(name: &str, carrier: Carrier) -> ClusterHandle {
    ClusterHandle::join(ClusterConfig { interval: SLOW, ..config(name, carrier) }).unwrap()
}

/// Of [`join_slow`]'s cluster. There is no other condition to wait for: it is the time itself.
pub(crate) fn wait_for_more_than_an_interval() {
    std::thread::sleep(SLOW + SLOW / 20);
}

/// So many different addresses at which nobody listens. They are below the range from which the kernel gives
/// ports to whoever connects: one of those a connection of another test could keep for as long as that runs.
pub(crate) fn free_addresses<const N: usize>(ip: &str) -> [SocketAddr; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each test is a process, and several run at once: each begins at another place.
    let begin = std::process::id() * 97;
    std::array::from_fn(|_| {
        loop {
            let next = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            let port = FIRST_PORT + (begin + next) % PORTS;
            let address: SocketAddr = format!("{ip}:{port}").parse().unwrap();
            if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
                return address;
            }
        }
    })
}

const FIRST_PORT: u32 = 12_000;
const PORTS: u32 = 20_000;

/// What `cluster` has of `peer` about `resource`: the count of completed requests, which the tests use as a
/// mark.
pub(crate) fn mark_of(cluster: &ClusterHandle, peer: &str, resource: &ResourceName) -> Option<u64> {
    cluster
        .heard(resource)
        .into_iter()
        .find(|heard| heard.host.as_str() == peer)
        .map(|heard| heard.report.completed)
}

/// Publishes a growing mark everywhere until every cluster has heard every other one.
#[track_caller]
pub(crate) fn wait_until_all_hear_all(clusters: &[(&str, &ClusterHandle)]) {
    let vg0 = resource("vg0");
    let mut mark = 0;
    let begun = Instant::now();
    loop {
        mark += 1;
        for (_, cluster) in clusters {
            cluster.publish(&vg0, report(mark));
        }
        // The pace of the reports.
        std::thread::sleep(INTERVAL / 10);
        let all = clusters.iter().all(|(name, cluster)| {
            clusters.iter().all(|(other, _)| name == other || mark_of(cluster, other, &vg0).is_some())
        });
        if all {
            return;
        }
        let statuses = || clusters.iter().map(|(_, cluster)| shown(cluster)).collect::<Vec<_>>().join("\n");
        assert!(begun.elapsed() < PATIENCE, "every host should hear every other one:\n{}", statuses());
    }
}

/// A line of JSON of the status, for messages of failed tests.
pub(crate) fn shown(cluster: &ClusterHandle) -> String {
    serde_json::to_string(&cluster.status()).unwrap()
}

/// The variable that tells a test that another test starts what it is to do.
pub(crate) const CHILD: &str = "TIDEGATE_TEST_CHILD";

/// Publishes far more often than is sensible: what is said goes together, and the latest of it arrives. A
/// busy disk may keep it until it is too old to be heard. Then another burst follows.
#[track_caller]
pub(crate) fn assert_bursts_go_together(from: &ClusterHandle, name: &str, to: &ClusterHandle) {
    let vg0 = resource("vg0");
    let mut mark = 500_000;
    until_true("the latest report is heard", || {
        let (first, before, begun) = (mark, from.status().sent, Instant::now());
        while begun.elapsed() < 4 * INTERVAL {
            mark += 1;
            from.publish(&vg0, report(mark));
            // The pace of the reports.
            std::thread::sleep(Duration::from_micros(200));
        }
        // A twentieth of an interval lies between two messages, and some were due before.
        let most = 3 + u64::try_from(begun.elapsed().as_micros() / (INTERVAL / 20).as_micros()).unwrap();
        let sent = from.status().sent - before;
        assert!(sent <= most, "{sent} messages for {} reports, at most {most} are expected", mark - first);
        while begun.elapsed() < 14 * INTERVAL && mark_of(to, name, &vg0) != Some(mark) {
            std::thread::sleep(INTERVAL / 10);
        }
        mark_of(to, name, &vg0) == Some(mark)
    });
}
