//! Relays between real sockets, with peers that behave, hang, hang up, or are tampered with.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_tls::{
    ClientFiles, ClientTls, HandshakeError, RelayEnd, RelayError, ServerFiles, ServerTls, TlsIdentity,
    TlsStream,
};

/// Longer than anything here takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A certificate that is its own authority, for both sides.
struct Pki(TempDir);

impl Pki {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let arguments = format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=Self \
             -addext subjectAltName=DNS:gateway.example -addext basicConstraints=CA:false \
             -keyout {0}/key.pem -out {0}/cert.pem",
            folder.path().display()
        );
        let output = Command::new("openssl").args(arguments.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        Path::join(self.0.path(), file)
    }

    fn identity(&self) -> TlsIdentity {
        TlsIdentity { certificate: self.path("cert.pem"), private_key: self.path("key.pem") }
    }

    fn server(&self) -> ServerTls {
        let client_authorities = Some(self.path("cert.pem"));
        ServerFiles { identity: self.identity(), client_authorities }.load().unwrap()
    }

    fn client(&self, name: &str) -> ClientTls {
        let identity = Some(self.identity());
        let server = name.parse().unwrap();
        ClientFiles { authorities: self.path("cert.pem"), identity, server }.load().unwrap()
    }
}

fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// A client's stream, the plain end of its server's relay, and the relay's thread. The client's socket is
/// `remote`, too.
struct Relayed {
    client: TlsStream,
    remote: UnixStream,
    plain: UnixStream,
    relay: JoinHandle<Result<RelayEnd, RelayError>>,
}

fn relayed() -> Relayed {
    let pki = Pki::new();
    let (one, other) = UnixStream::pair().unwrap();
    let tls = pki.server();
    let server = thread::spawn(move || TlsStream::accept(OwnedFd::from(other), &tls, deadline()).unwrap());
    let remote = one.try_clone().unwrap();
    let client = TlsStream::connect(one.into(), &pki.client("gateway.example"), deadline()).unwrap();
    let server = server.join().unwrap();
    assert!(server.is_peer_known());
    assert_eq!(server.peer_names(), ["gateway.example"]);
    let (plain, relay) = server.split().unwrap();
    Relayed { client, remote, plain: plain.into(), relay: thread::spawn(move || relay.run()) }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn megabytes_pass_in_both_directions_at_once_and_ends_pass_too() {
    let Relayed { client, plain, relay, .. } = relayed();
    let (client_plain, client_relay) = client.split().unwrap();
    let client_relay = thread::spawn(move || client_relay.run());
    let client_plain = UnixStream::from(client_plain);
    let bytes = pattern(3_000_001);
    let send = |stream: &UnixStream| {
        let (mut stream, bytes) = (stream.try_clone().unwrap(), bytes.clone());
        thread::spawn(move || {
            stream.write_all(&bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        })
    };
    let senders = [send(&client_plain), send(&plain)];
    let receive = |stream: UnixStream| {
        thread::spawn(move || {
            let mut received = Vec::new();
            (&stream).read_to_end(&mut received).unwrap();
            received
        })
    };
    for received in [receive(plain), receive(client_plain)] {
        assert!(received.join().unwrap() == bytes);
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!(client_relay.join().unwrap().unwrap(), RelayEnd::Orderly);
    assert_eq!(relay.join().unwrap().unwrap(), RelayEnd::Orderly);
}

#[test]
fn an_end_without_goodbye_is_an_end_and_said_to_be_cut_off() {
    let Relayed { mut client, remote, mut plain, relay } = relayed();
    client.write_all(b"half a requ", deadline()).unwrap();
    remote.shutdown(std::net::Shutdown::Both).unwrap();
    let mut received = Vec::new();
    plain.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"half a requ");
    drop(plain);
    assert_eq!(relay.join().unwrap().unwrap(), RelayEnd::Truncated);
}

#[test]
fn what_was_tampered_with_ends_the_connection_and_reaches_nobody() {
    let Relayed { mut remote, mut plain, relay, .. } = relayed();
    // A record of application data that no key has made.
    remote.write_all(&[23, 3, 3, 0, 32]).unwrap();
    remote.write_all(&[7; 32]).unwrap();
    let mut received = Vec::new();
    let _ = plain.read_to_end(&mut received);
    assert!(received.is_empty());
    assert!(matches!(relay.join().unwrap(), Err(RelayError::Tls(_))));
}

#[test]
fn a_side_that_takes_nothing_holds_up_the_other_and_not_the_end() {
    let Relayed { client, remote, plain, relay } = relayed();
    plain.set_nonblocking(true).unwrap();
    let (chunk, mut taken, mut quiet_since) = (pattern(64 << 10), 0, Instant::now());
    // Until nothing moves: the bound is what sockets and the relay hold.
    while quiet_since.elapsed() < Duration::from_millis(300) {
        match (&plain).write(&chunk) {
            Ok(count) => (taken, quiet_since) = (taken + count, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
        assert!(taken < 16 << 20, "the relay takes without an end");
    }
    drop(plain);
    assert_eq!(relay.join().unwrap().unwrap(), RelayEnd::Abandoned);
    drop((client, remote));
}

#[test]
fn a_server_of_another_name_is_not_believed_and_plain_text_is_no_tls() {
    let pki = Pki::new();
    let (one, other) = UnixStream::pair().unwrap();
    let tls = pki.server();
    let server = thread::spawn(move || TlsStream::accept(OwnedFd::from(other), &tls, deadline()).map(drop));
    let client = TlsStream::connect(one.into(), &pki.client("other.example"), deadline());
    assert!(matches!(client, Err(HandshakeError::Tls(_))));
    assert!(matches!(server.join().unwrap(), Err(HandshakeError::Tls(_))));

    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(b"IHAVEOPT, in plain text").unwrap();
    let refused = TlsStream::accept(other.into(), &pki.server(), deadline());
    assert!(matches!(refused, Err(HandshakeError::Tls(_))));

    let (_one, other) = UnixStream::pair().unwrap();
    let soon = Instant::now() + Duration::from_millis(50);
    let silent = TlsStream::accept(other.into(), &pki.server(), soon);
    assert!(matches!(silent, Err(HandshakeError::Deadline)));
}
