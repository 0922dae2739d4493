//! One holder of the cluster's key that poses as twelve hosts, from the address of one.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_cluster::{
    Carrier, CarrierReach, ClusterConfig, ClusterHandle, ClusterKey, ClusterName, UdpConfig,
};
use tidegate_control::{HostReport, SignalRequests};
use tidegate_testing::until;
use tidegate_units::{HostName, Iops, Latency, ResourceName};

use crate::service::Service;

const KEY: &str = "0123456789abcdef0123456789abcdef";
const NAMES: usize = 12;

fn free() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// A host that shares its storage with the others.
fn honest(name: &str, listen: SocketAddr, peers: &[SocketAddr], key_file: &str) -> Service {
    let peers = peers.iter().map(|peer| format!("'{peer}'")).collect::<Vec<_>>().join(", ");
    Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock']
            metrics = '127.0.0.1:0'
            [cluster]
            name = 'c'
            host = '{name}'
            carrier = {{ kind = 'udp', listen = '{listen}', peers = [{peers}], key_file = '{key_file}' }}
            [pool.array]
            backend = {{ kind = 'emulated', preset = 'sata-stripe' }}
            cluster = true
            law = 'window'
            interval = '100ms'
            target = '15ms'
            export.{name} = {{ size = '16MiB' }}"
        ),
    )
}

/// Posing hosts, with everything that hosts say, whose datagrams all leave from one address.
struct Poser {
    hosts: Vec<ClusterHandle>,
    ended: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
}

impl Poser {
    fn start(socket: UdpSocket, honest: Vec<SocketAddr>) -> Self {
        let relay_at = socket.local_addr().unwrap();
        let reserved: Vec<UdpSocket> = (0..NAMES).map(|_| free()).collect();
        let inside: Vec<SocketAddr> = reserved.iter().map(|socket| socket.local_addr().unwrap()).collect();
        drop(reserved);
        let join = |(name, listen): (usize, &SocketAddr)| {
            let key = ClusterKey::new(KEY.as_bytes()).unwrap();
            let reach = CarrierReach::Peers(vec![relay_at.into()]);
            ClusterHandle::join(ClusterConfig {
                name: ClusterName::new("c").unwrap(),
                host: HostName::new(&format!("liar{name}")).unwrap(),
                interval: Duration::from_millis(100),
                carrier: Carrier::Udp(UdpConfig { listen: *listen, reach, key }),
            })
            .unwrap()
        };
        let hosts = inside.iter().enumerate().map(join).collect();
        let ended = Arc::new(AtomicBool::new(false));
        let relay = thread::spawn({
            let ended = Arc::clone(&ended);
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            move || {
                let mut bytes = [0; 2_000];
                while !ended.load(Ordering::Relaxed) {
                    let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
                    let to = if inside.contains(&from) { &honest } else { &inside };
                    for address in to {
                        let _ = socket.send_to(&bytes[..length], address);
                    }
                }
            }
        });
        Self { hosts, ended, relay: Some(relay) }
    }

    /// Each of them tells of a day-long response time.
    fn lie(&self) {
        let array = ResourceName::new("array").unwrap();
        for host in &self.hosts {
            let lie = HostReport {
                interval: Latency::from_millis(100),
                signal: SignalRequests::Everything,
                completed: 1_000,
                total_latency: Latency::from_nanos(1_000 * 86_399_000_000_000),
                outstanding: true,
                oldest: None,
                window: None,
                active_shares: 100.0,
                reserved: Iops::ZERO,
                set_point: None,
                point: None,
                load: None,
            };
            host.publish(&array, lie);
        }
    }
}

impl Drop for Poser {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
    }
}

#[test]
fn twelve_names_from_one_address_are_one_host() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, KEY).unwrap();
    let key_file = key_file.display().to_string();
    let poser = free();
    let [one, two] = [free(), free()].map(|socket| socket.local_addr().unwrap());
    let all = [one, two, poser.local_addr().unwrap()];
    let hosts = [honest("one", one, &all, &key_file), honest("two", two, &all, &key_file)];
    let live = |host: &Service| host.metric("tidegate_pool_hosts{pool=\"array\",state=\"live\"}");
    until("the honest hosts hear each other", || {
        hosts.iter().all(|host| live(host) == Some(2.0)).then_some(())
    });

    let poser = Poser::start(poser, vec![one, two]);
    let refused = "tidegate_cluster_messages_total{outcome=\"other_name\"}";
    until("its other names are refused", || {
        poser.lie();
        // The pace of the lies.
        thread::sleep(Duration::from_millis(50));
        hosts.iter().all(|host| host.metric(refused) >= Some(100.0)).then_some(())
    });
    for host in &hosts {
        assert!(live(host) <= Some(3.0), "{:?} hosts count: {}", live(host), host.log());
        host.await_log("one address is one host");
    }
}
