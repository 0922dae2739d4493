//! What an administrator reads in the log: one clear line of a kind, however often it happens.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use crate::common::{free_addresses, host, join, key, report, resource, udp, wait_until_all_hear_all};
use tidegate_cluster::{Carrier, CarrierReach, ClusterKey, RejectionCounts, UdpConfig};
use tidegate_testing::until_true;

/// The log is the process's, and so is that of all tests here: each looks for what only its own lines have.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::DEBUG);
    subscriber.with_writer(move || writer.clone()).init();
    log
});

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn lines_with(&self, part: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_says_once(&self, part: &str) {
        let said = self.lines_with(part);
        assert_eq!(said.len(), 1, "`{part}`: {said:#?}");
    }
}

fn notice(level: &str, what: &str) -> String {
    format!("{level} tidegate_cluster::notice: cluster test: {what}")
}

/// Stands where a host's peer is. Its address, in the log, is how one finds who it is.
fn stranger() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn heard_by(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2_000];
    let length = socket.recv(&mut buffer).expect("the host sends");
    buffer[..length].to_vec()
}

#[test]
fn a_secret_that_anyone_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    fs::write(&path, "what only the hosts of this cluster know\n").unwrap();
    let said =
        format!("WARN tidegate_tls::files: the secret {} is open to everyone on this host", path.display());
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let log = &*LOG;
    assert_eq!(ClusterKey::from_file(&path).unwrap(), key());
    assert_eq!(log.lines_with(&said).len(), 0);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(ClusterKey::from_file(&path).unwrap(), key());
    log.assert_says_once(&format!("{said} (mode 644): `chmod o-rwx {}`", path.display()));
}

#[test]
fn a_host_with_another_key() {
    let log = &*LOG;
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let a = join("a", udp(a_at, &[b_at]));
    let wrong = ClusterKey::new(b"what another cluster's hosts know").unwrap();
    let _b = join(
        "b",
        Carrier::Udp(UdpConfig { listen: b_at, reach: CarrierReach::Peers(vec![a_at.into()]), key: wrong }),
    );
    until_true("many are rejected", || a.status().rejected.bad_key > 5);
    let what =
        format!("a message from {b_at} does not count: it was not made with our key, or damaged on its way");
    log.assert_says_once(&notice("WARN", &what));
}

#[test]
fn what_was_damaged_is_of_other_versions_or_no_message() {
    let log = &*LOG;
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let (stranger, from) = stranger();
    let a = join("a", udp(a_at, &[b_at, from]));
    let b = join("b", udp(b_at, &[a_at]));
    let whole = heard_by(&stranger);
    until_true("b is up", || b.status().up);
    let changed = |place: usize, byte: u8| {
        let mut datagram = whole.clone();
        datagram[place] = byte;
        datagram
    };
    for _ in 0..5 {
        for datagram in [
            &*changed(40, whole[40] ^ 0x10),
            &changed(4, 0),
            &changed(4, 4),
            b"GET / HTTP/1.1\r\n\r\n",
            &whole[..9],
            &[],
        ] {
            stranger.send_to(datagram, b_at).unwrap();
        }
    }
    let rejected = || b.status().rejected;
    // Host a's first words may be among what is rejected: it has yet to prove that they are no replay.
    until_true("all are rejected", || rejected().total() - rejected().unproved >= 30);
    let RejectionCounts { bad_key, old_version, new_version, malformed, .. } = rejected();
    assert_eq!((bad_key, old_version, new_version, malformed), (5, 5, 5, 15), "{:?}", rejected());
    for why in [
        "it was not made with our key, or damaged on its way",
        "it has the old version 0 of the format, and this is version 3: upgrade its sender",
        "it has version 4 of the format, and this host knows only version 3: upgrade this host",
        "it is malformed: ",
    ] {
        let what = format!("a message from {from} does not count: {why}");
        log.assert_says_once(&notice("WARN", &what));
    }
    // Nothing of it has harmed the hosts.
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
}

#[test]
fn a_replay_from_another_address() {
    let log = &*LOG;
    let [a_at, b_at]: [SocketAddr; 2] = free_addresses("127.0.0.1");
    let (recorder, from) = stranger();
    let b = join("b", udp(b_at, &[a_at]));
    let a = join("a", udp(a_at, &[b_at, from]));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    until_true("many are refused", || {
        let recorded = heard_by(&recorder);
        recorder.send_to(&recorded, b_at).unwrap();
        recorder.send_to(&recorded, b_at).unwrap();
        b.status().rejected.unknown_peer > 10
    });
    let what = format!("a message from {from} does not count: its address is not among `peers`");
    log.assert_says_once(&notice("WARN", &what));
    assert_eq!(b.status().duplicates, []);
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
}

#[test]
fn two_hosts_with_one_name() {
    let log = &*LOG;
    let [first_at, second_at, b_at]: [SocketAddr; 3] = free_addresses("127.0.0.1");
    let all = [first_at, second_at, b_at];
    let b = join("b", udp(b_at, &all));
    let first = join("a", udp(first_at, &all));
    wait_until_all_hear_all(&[("a", &first), ("b", &b)]);
    let second = join("a", udp(second_at, &all));
    until_true("all three say it", || {
        first.publish(&resource("vg0"), report(1));
        second.publish(&resource("vg0"), report(2));
        [&first, &second, &b].iter().all(|cluster| cluster.status().rejected.duplicate_name > 5)
    });
    let said = |from: SocketAddr| {
        let why = "does not count: two hosts bear its name; the one heard first counts";
        log.lines_with(&notice("WARN", &format!("a message of host `a` from {from} {why}"))).len()
    };
    // By b, which counts the first; by the first of the second; and by the second of the first.
    assert_eq!((said(second_at), said(first_at)), (2, 1));
    assert_eq!(b.status().duplicates, [host("a")]);
}
