//! Reports of initiators, over real sockets, to the regulation of a captured machine: three initiators with a
//! volume each of volume group vg0, whose disks are idle.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use tempfile::TempDir;
use tidegate_agent::{AgentConfig, MachineRegulator, ReportUse};
use tidegate_cluster::{
    Carrier, CarrierReach, ClusterConfig, ClusterHandle, ClusterKey, ClusterName, UdpConfig,
};
use tidegate_control::{HeardReport, HostReport, SignalRequests};
use tidegate_host::SystemRoot;
use tidegate_host::trees::unpack;
use tidegate_service::status::SignalOrigin;
use tidegate_testing::until_true;
use tidegate_units::{HostName, Instant, Iops, Latency, ResourceName};

const TREE: &str = include_str!("../../../tidegate-host/tests/fixtures/lio-acls.tree");

/// As between two decisions on reports.
const INTERVAL: Duration = Duration::from_millis(250);

fn name(number: u8) -> HostName {
    HostName::new(&format!("iqn.2026-01.lab:initiator{number}")).unwrap()
}

fn vg0() -> ResourceName {
    ResourceName::new("vg0").unwrap()
}

fn report(mean_ms: u64) -> HostReport {
    HostReport {
        interval: INTERVAL.into(),
        signal: SignalRequests::ProtectedReads,
        completed: 20,
        total_latency: Latency::from_millis(20 * mean_ms),
        outstanding: true,
        oldest: None,
        window: None,
        active_shares: 0.0,
        reserved: Iops::ZERO,
        set_point: None,
        point: None,
        load: None,
    }
}

fn join(host: HostName, listen: SocketAddr, peers: &[SocketAddr], key: &str) -> ClusterHandle {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    fs::write(&file, key).unwrap();
    let peers = peers.iter().map(|peer| peer.to_string().parse().unwrap()).collect();
    let key = ClusterKey::from_checked_file(&file).unwrap();
    let carrier = Carrier::Udp(UdpConfig { listen, reach: CarrierReach::Peers(peers), key });
    let name = ClusterName::new("san-a").unwrap();
    ClusterHandle::join(ClusterConfig { name, host, interval: INTERVAL, carrier }).unwrap()
}

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";

/// The target's agent, and its initiators.
struct Site {
    tree: TempDir,
    regulator: MachineRegulator,
    cluster: Arc<ClusterHandle>,
    initiators: Vec<ClusterHandle>,
    now: Instant,
    done: u64,
}

impl Site {
    fn new(reports: &str, names: &[HostName]) -> Self {
        Self::with_key(reports, names, KEY)
    }

    fn with_key(reports: &str, names: &[HostName], key: &str) -> Self {
        let sockets: Vec<_> = (0..=names.len()).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        drop(sockets);
        let cluster = join(HostName::new("target").unwrap(), addresses[0], &addresses[1..], KEY);
        let cluster = Arc::new(cluster);
        let each = names.iter().zip(&addresses[1..]);
        let initiators =
            each.map(|(name, address)| join(name.clone(), *address, &addresses[..1], key)).collect();
        let tree = tempfile::tempdir().unwrap();
        unpack(TREE, tree.path()).unwrap();
        let text = format!("[resource.vg0]\ntarget = '15ms'\nreports = {reports}\n");
        let carrier = "[cluster]\nname = 'san-a'\nhost = 'target'\ncarrier = { kind = 'udp', listen = \
                       '127.0.0.1:0', peers = ['127.0.0.1:1'], key_file = 'key' }\n";
        let config = AgentConfig::parse("agent.toml", &format!("{text}{carrier}")).unwrap();
        let mut regulator = MachineRegulator::new(SystemRoot::at(tree.path()), &config).unwrap();
        regulator.hear(Arc::clone(&cluster), HostName::new("target").unwrap());
        Self { tree, regulator, cluster, initiators, now: Instant::ZERO, done: 0 }
    }

    /// Waits until a report of each of these initiators has arrived that is younger than this moment.
    fn tell(&self, means: &[(usize, u64)]) {
        let told = Clock::now();
        let is_new = |age: Latency| age.to_duration() < told.elapsed();
        until_true("new reports", || {
            // The first of all is not proved to be new, and is not heard.
            for (place, mean) in means {
                self.initiators[*place].publish(&vg0(), report(*mean));
            }
            self.cluster.heard(&vg0()).iter().filter(|heard| is_new(heard.age)).count() >= means.len()
        });
    }

    /// An interval in which volume 1 reads quickly, and the others write.
    fn step(&mut self) {
        self.done += 1;
        let lines = (0..3).map(|minor| {
            let done = self.done;
            let (reads, writes) = if minor == 0 { (15 * done, 0) } else { (0, 100 * done) };
            format!(
                "254 {minor} dm-{minor} {reads} 0 {} {reads} {writes} 0 {} {writes} 0 0 {} 0 0 0 0 0 0\n",
                8 * reads,
                128 * writes,
                reads + writes
            )
        });
        fs::write(self.tree.path().join("proc/diskstats"), lines.collect::<String>()).unwrap();
        self.now = self.now + INTERVAL;
        assert!(self.regulator.step(self.now).blind.is_none());
    }

    fn delay_after(&mut self, steps: usize, means: &[(usize, u64)]) -> Latency {
        for _ in 0..steps {
            self.tell(means);
            self.step();
        }
        self.regulator.holds()[0].delay
    }

    fn members(&self) -> Vec<IpAddr> {
        self.regulator.holds()[0].members.iter().copied().collect()
    }

    fn origin(&self) -> SignalOrigin {
        self.regulator.status()[0].signal_origin
    }

    fn uses(&self) -> Vec<ReportUse> {
        self.regulator.status()[0].reporters.iter().map(|reporter| reporter.reading).collect()
    }
}

fn addresses(numbers: &[u8]) -> Vec<IpAddr> {
    numbers.iter().map(|number| IpAddr::from([10, 0, 0, 10 + number])).collect()
}

#[test]
fn writers_are_throttled_for_what_a_believed_initiator_waits_for_and_released_when_it_is_silent() {
    let mut site = Site::new("{ believe = '*:initiator1' }", &[name(1)]);
    let delay = site.delay_after(12, &[(0, 40)]);
    assert!(delay > Latency::from_millis(2), "{delay}");
    assert_eq!((site.members(), site.uses()), (addresses(&[2, 3]), vec![ReportUse::Believed]));
    assert_eq!(site.origin(), SignalOrigin::Reports);
    // Nothing of it for three intervals: the disks are idle, and no writer is delayed any more.
    let is_old = |heard: &HeardReport| heard.age > Latency::from(3 * INTERVAL);
    until_true("an old report", || site.cluster.heard(&vg0()).iter().all(is_old));
    for _ in 0..80 {
        site.step();
    }
    assert_eq!((site.regulator.holds()[0].delay, site.uses()), (Latency::ZERO, vec![ReportUse::Old]));
    assert_eq!(site.origin(), SignalOrigin::Measured);
}

#[test]
fn a_lie_of_one_initiator_throttles_no_consumer() {
    let mut site = Site::new("true", &[name(1)]);
    assert_eq!(site.delay_after(12, &[(0, 5_000)]), Latency::ZERO);
    assert_eq!((site.uses(), site.origin()), (vec![ReportUse::Counts], SignalOrigin::Measured));
    // Nor does a host that is no consumer, whatever is believed.
    let stranger = HostName::new("stranger").unwrap();
    let mut site = Site::new("{ believe = '*' }", &[stranger]);
    assert_eq!(site.delay_after(12, &[(0, 5_000)]), Latency::ZERO);
    assert_eq!(site.uses(), [ReportUse::NoConsumer]);
}

#[test]
fn a_report_with_another_key_is_not_heard() {
    let mut site = Site::with_key("{ believe = '*' }", &[name(1)], &KEY.replace('0', "9"));
    site.initiators[0].publish(&vg0(), report(5_000));
    until_true("a refusal", || site.cluster.status().rejected != Default::default());
    site.step();
    assert_eq!(site.uses(), []);
}

#[test]
fn consumers_without_an_agent_are_throttled_first() {
    let mut site = Site::new("{ without_agent = 'first', believe = '*:initiator1' }", &[name(1), name(2)]);
    let delay = site.delay_after(12, &[(0, 40), (1, 40)]);
    assert!(delay > Latency::ZERO);
    assert_eq!(site.members(), addresses(&[3]), "initiator 2 writes as much, and has an agent");
    // That does not suffice for the longest delay: it is the turn of all. Its own report counts no longer.
    for _ in 0..120 {
        site.delay_after(1, &[(0, 40), (1, 40)]);
        if site.members() == addresses(&[2, 3]) {
            assert_eq!(site.uses()[0], ReportUse::Believed);
            return;
        }
    }
    panic!("initiator 2 is never throttled: {}", site.regulator.holds()[0].delay);
}
