//! What a host of a large cluster pays for the exchange: many hosts in this one process, one resource, 2 s.
//!
//!     cargo run --release -p tidegate-cluster --example cost -- udp 100
//!     cargo run --release -p tidegate-cluster --example cost -- file:/path/to/file 100
//!     cargo run --release -p tidegate-cluster --example cost -- nats://127.0.0.1:4222 100
//!
//! By UDP every host sends to every other one; a multicast group costs each sender one datagram instead. The
//! CPU time is that of this process, the kernel's part of sending and receiving included, that of a NATS
//! server not.

#![allow(clippy::print_stdout, reason = "the figure is the result")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_cluster::{
    Carrier, CarrierReach, ClusterConfig, ClusterHandle, ClusterKey, ClusterName, FileConfig, NatsConfig,
    NatsCredentials, UdpConfig,
};
use tidegate_control::{HostReport, SignalRequests};
use tidegate_units::{HostName, Iops, Latency, ResourceName};

const MEASURED: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(kind), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("say which carrier, and how many hosts".into());
    };
    let count: u16 = count.parse()?;
    let interval = ClusterConfig::DEFAULT_INTERVAL;
    let clusters = (0..count)
        .map(|number| {
            Ok(ClusterHandle::join(ClusterConfig {
                name: ClusterName::new("cost")?,
                host: HostName::new(&format!("host-{number}"))?,
                interval,
                carrier: carrier(&kind, number, count)?,
            })?)
        })
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;

    let resource = ResourceName::new("vg0")?;
    let heard = |cluster: &ClusterHandle| cluster.heard(&resource).len() + 1 == usize::from(count);
    while !clusters.iter().all(heard) {
        publish_for(interval, &clusters, &resource);
    }
    let (began, cpu) = (Instant::now(), cpu_time());
    while began.elapsed() < MEASURED {
        publish_for(interval, &clusters, &resource);
    }
    let share = (cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64() / f64::from(count);
    let stale = clusters.iter().flat_map(|cluster| cluster.status().peers).filter(|peer| peer.stale).count();
    println!("{kind}, {count} hosts: {:.3} % of a core per host; {stale} peers stale", 100.0 * share);
    Ok(())
}

/// One interval, in which every host publishes once, at a time of its own.
fn publish_for(interval: Duration, clusters: &[ClusterHandle], resource: &ResourceName) {
    for cluster in clusters {
        let report = HostReport {
            interval: interval.into(),
            signal: SignalRequests::Everything,
            completed: 1_000,
            total_latency: Latency::from_millis(10_000),
            outstanding: true,
            oldest: None,
            window: None,
            active_shares: 100.0,
            reserved: Iops::ZERO,
            set_point: None,
            point: None,
            load: None,
        };
        cluster.publish(resource, report);
        std::thread::sleep(interval / clusters.len() as u32);
    }
}

fn carrier(kind: &str, number: u16, count: u16) -> Result<Carrier, Box<dyn Error>> {
    let address = |number: u16| SocketAddr::from(([127, 84, 0, 1], 20_000 + number));
    Ok(match kind.split_once(':') {
        None if kind == "udp" => Carrier::Udp(UdpConfig {
            listen: address(number),
            reach: CarrierReach::Peers(
                (0..count).filter(|other| *other != number).map(|other| address(other).into()).collect(),
            ),
            key: ClusterKey::new(b"a key for a measurement")?,
        }),
        Some(("file", path)) => {
            Carrier::File(FileConfig { path: path.into(), slots: count, slot: Some(number) })
        }
        Some(("nats", _)) => Carrier::Nats(NatsConfig {
            servers: vec![kind.to_owned()],
            credentials: NatsCredentials::None,
            tls: None,
            replicas: 1,
            writers: Default::default(),
        }),
        _ => return Err(format!("`{kind}` is no carrier: udp, file:PATH or nats://HOST:PORT").into()),
    })
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
