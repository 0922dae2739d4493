//! Sockets that systemd opens: clients may connect before the gateway runs, and while it restarts.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tidegate_testing::until;

/// Passes its streams on as the descriptors that systemd would pass.
const PASS: &str = "export LISTEN_PID=$$ LISTEN_FDS=3 LISTEN_FDNAMES=nbd:nbd-unix:metrics; \
    exec \"$0\" serve -c \"$1\" 3<&0 4<&1 5<&2 2>\"$2\" </dev/null >/dev/null";

/// The sockets of a unit, and a gateway's configuration that names their addresses.
struct SocketUnit {
    folder: TempDir,
    tcp: TcpListener,
    unix: UnixListener,
    metrics: TcpListener,
}

impl SocketUnit {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("disk.raw")).unwrap().set_len(1 << 20).unwrap();
        let unix = UnixListener::bind(folder.path().join("nbd.sock")).unwrap();
        let [tcp, metrics] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        Self { folder, tcp, unix, metrics }
    }

    fn address(listener: &TcpListener) -> SocketAddr {
        listener.local_addr().unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn start(&self, metrics: &str) -> Child {
        let folder = self.folder.path();
        let config = format!(
            "listen = ['tcp:{}', 'unix:nbd.sock']\n{metrics}\n[pool.p]\nbackend = {{ kind = 'file' }}\n\
             [pool.p.export.a]\npath = 'disk.raw'\n",
            Self::address(&self.tcp)
        );
        fs::write(folder.join("tidegate.toml"), config).unwrap();
        let passed = |socket: OwnedFd| Stdio::from(socket);
        Command::new("sh")
            .args(["-c", PASS, env!("CARGO_BIN_EXE_tidegate")])
            .args([folder.join("tidegate.toml"), folder.join("log")])
            .stdin(passed(self.tcp.try_clone().unwrap().into()))
            .stdout(passed(self.unix.try_clone().unwrap().into()))
            .stderr(passed(self.metrics.try_clone().unwrap().into()))
            .spawn()
            .unwrap()
    }
}

/// Waits for the first bytes of a server's handshake.
fn is_greeted(mut client: impl Read) {
    let mut greeting = [0; 8];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGIC");
}

fn end(mut gateway: Child) {
    let done = Command::new("kill").args(["-TERM", &gateway.id().to_string()]).status().unwrap();
    assert!(done.success());
    assert!(until("the end of the gateway", || gateway.try_wait().unwrap()).success());
}

fn connect(path: &Path) -> UnixStream {
    UnixStream::connect(path).unwrap()
}

#[test]
fn clients_that_connect_while_no_gateway_runs_are_served_by_the_next_one() {
    let unit = SocketUnit::new();
    for round in 0..2 {
        let tcp = TcpStream::connect(SocketUnit::address(&unit.tcp)).unwrap();
        let unix = connect(&unit.socket());
        let mut scrape = TcpStream::connect(SocketUnit::address(&unit.metrics)).unwrap();
        let gateway = unit.start(&format!("metrics = '{}'", SocketUnit::address(&unit.metrics)));
        is_greeted(tcp);
        is_greeted(unix);
        scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        scrape.read_to_string(&mut page).unwrap();
        assert!(page.contains("tidegate_build_info"), "round {round}: {page}");
        end(gateway);
        assert!(unit.socket().exists(), "the socket's file is systemd's");
    }
    assert!(!unit.log().contains("systemd listens"), "{}", unit.log());
}

#[test]
fn a_socket_that_no_key_names_is_logged() {
    let unit = SocketUnit::new();
    let gateway = unit.start("");
    let expected = format!("systemd listens on {} (metrics)", SocketUnit::address(&unit.metrics));
    until("the warning", || unit.log().contains(&expected).then_some(()));
    end(gateway);
}
