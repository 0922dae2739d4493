//! What systemd hears of a service: that it is ready, reads its configuration again, lives, and ends; and
//! that a service that does its work no more falls silent.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_testing::until;

const GATEWAY: &str = "listen = ['unix:nbd.sock']\n[pool.p]\nbackend = { kind = 'file' \
    }\n[pool.p.export.a]\npath = 'disk.raw'\n";
const AGENT: &str = "[resource.gone]\ndevice = 'no-such-device'\ntarget = '15ms'\ndry_run = true\n";

const BROKER: &str = "listen = '127.0.0.1:0'\nstate = 'state'\n[node.a]\nplace = 'file:///nowhere'\n";

struct Supervised {
    process: Child,
    socket: UnixDatagram,
    _folder: TempDir,
}

impl Supervised {
    fn start(command: &str, configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join("disk.raw")).unwrap().set_len(1 << 20).unwrap();
        let config = folder.path().join("tidegate.toml");
        fs::write(&config, configuration).unwrap();
        let address = folder.path().join("notify.sock");
        let socket = UnixDatagram::bind(&address).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([command, "-c"])
            .arg(config)
            .env("NOTIFY_SOCKET", &address)
            .env("WATCHDOG_USEC", "1000000")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, socket, _folder: folder }
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// The next thing that is said within that time.
    fn said_within(&self, limit: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(limit)).unwrap();
        let mut text = [0; 256];
        let length = self.socket.recv(&mut text).ok()?;
        Some(String::from_utf8(text[..length].to_vec()).unwrap())
    }

    fn hears(&self, what: &str) {
        until(what, || self.said_within(Duration::from_secs(1)).filter(|said| said.contains(what)));
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Already ended, in a test that passed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn systemd_hears_how_a_service_stands_and_that_one_that_hangs_is_silent() {
    for (command, configuration) in [("serve", GATEWAY), ("agent", AGENT)] {
        let mut service = Supervised::start(command, configuration);
        service.hears("READY=1");
        service.hears("WATCHDOG=1");
        service.signal("-HUP");
        service.hears("RELOADING=1\nMONOTONIC_USEC=");
        service.hears("READY=1");
        service.signal("-STOP");
        until("silence", || service.said_within(Duration::from_secs(2)).is_none().then_some(()));
        service.signal("-CONT");
        service.hears("WATCHDOG=1");
        service.signal("-TERM");
        service.hears("STOPPING=1\nEXTEND_TIMEOUT_USEC=");
        assert!(until("its end", || service.process.try_wait().unwrap()).success());
    }
}

#[test]
fn systemd_hears_that_a_broker_answers() {
    let mut broker = Supervised::start("broker", BROKER);
    broker.hears("READY=1");
    broker.signal("-TERM");
    assert!(until("its end", || broker.process.try_wait().unwrap()).success());
}
