//! A restart of the service under load: the real binary, and a service manager that keeps its descriptors as
//! systemd does.

use std::fs::{self, File};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tempfile::TempDir;
use tidegate_testing::until;

const GATEWAY: &str = "
listen = ['unix:nbd.sock']
[pool.p]
backend = { kind = 'file' }
[pool.p.export.a]
path = 'a.raw'
limit = { iops = '2000 IO/s' }
[pool.p.export.b]
path = 'b.raw'
";

/// Passes its streams on as the descriptors that systemd kept.
const PASS: &str =
    "export LISTEN_PID=$$; exec \"$0\" serve -c \"$1\" 3<&0 4<&1 5<&2 2>>\"$2\" </dev/null >/dev/null";

/// The part of systemd in a restart: it keeps what it is sent, and says when it has read everything.
pub(crate) struct DescriptorStore {
    address: PathBuf,
    kept: Arc<Mutex<Vec<(String, OwnedFd)>>>,
}

impl DescriptorStore {
    pub(crate) fn start(folder: &Path) -> Self {
        let address = folder.join("notify.sock");
        let socket = UnixDatagram::bind(&address).unwrap();
        let kept: Arc<Mutex<Vec<(String, OwnedFd)>>> = Arc::default();
        let store = Arc::clone(&kept);
        std::thread::spawn(move || {
            loop {
                let (text, descriptors) = received(&socket);
                let name =
                    text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("").to_owned();
                let mut kept = store.lock().unwrap();
                if text.lines().any(|line| line == "FDSTORE=1") {
                    kept.extend(descriptors.into_iter().map(|descriptor| (name.clone(), descriptor)));
                } else if text.lines().any(|line| line == "FDSTOREREMOVE=1") {
                    kept.retain(|(known, _)| *known != name);
                }
            }
        });
        Self { address, kept }
    }

    /// Starts the service with what is kept.
    pub(crate) fn service(&self, folder: &Path) -> Child {
        let kept: Vec<(String, OwnedFd)> = self
            .kept
            .lock()
            .unwrap()
            .iter()
            .map(|(name, fd)| (name.clone(), fd.try_clone().unwrap()))
            .collect();
        let names: Vec<&str> = kept.iter().map(|(name, _)| &**name).collect();
        let mut command = Command::new("sh");
        command.args(["-c", PASS, env!("CARGO_BIN_EXE_tidegate")]);
        command.args([folder.join("tidegate.toml"), folder.join("log")]);
        command.env("NOTIFY_SOCKET", &self.address).env("FDSTORE", "16");
        if !names.is_empty() {
            command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        }
        let mut streams = kept.into_iter().map(|(_, fd)| Stdio::from(fd));
        command.stdin(streams.next().unwrap_or_else(Stdio::null));
        command.stdout(streams.next().unwrap_or_else(Stdio::null));
        command.stderr(streams.next().unwrap_or_else(Stdio::null));
        assert!(streams.next().is_none(), "this test passes three descriptors at most");
        command.spawn().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.kept.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }
}

/// The next message, with the descriptors that came with it.
fn received(socket: &UnixDatagram) -> (String, Vec<OwnedFd>) {
    let mut text = [0; 512];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message =
        recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    (String::from_utf8_lossy(&text[..message.bytes]).into_owned(), descriptors)
}

pub(crate) fn log(folder: &TempDir) -> String {
    fs::read_to_string(folder.path().join("log")).unwrap_or_default()
}

pub(crate) fn stop(mut service: Child) {
    let done = Command::new("kill").args(["-TERM", &service.id().to_string()]).status().unwrap();
    assert!(done.success());
    assert!(until("the end of the service", || service.try_wait().unwrap()).success());
}

fn fio(folder: &Path, export: &str) -> Child {
    let uri = format!("nbd+unix:///{export}?socket={}", folder.join("nbd.sock").display());
    Command::new("fio")
        .args([
            "--name=load",
            "--ioengine=nbd",
            "--rw=randrw",
            "--bsrange=4k-64k",
            "--size=8m",
            "--iodepth=16",
        ])
        .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fsync=32", "--loops=8"])
        .arg(format!("--uri={uri}"))
        .stdout(Stdio::null())
        .spawn()
        .expect("fio; install the packages listed in lab/packages")
}

#[test]
fn verifying_clients_work_on_through_restarts_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["a.raw", "b.raw"] {
        File::create(folder.path().join(file)).unwrap().set_len(8 << 20).unwrap();
    }
    fs::write(folder.path().join("tidegate.toml"), GATEWAY).unwrap();
    let store = DescriptorStore::start(folder.path());
    let mut service = store.service(folder.path());
    until("a gateway", || log(&folder).contains("ready").then_some(()));
    let mut clients = ["a", "b"].map(|export| fio(folder.path(), export));
    // fio connects twice, and not again where it finds no socket.
    until("both clients", || {
        let sessions = |export: &str| {
            let lines = log(&folder);
            lines.lines().filter(|line| line.contains("session opened") && line.contains(export)).count()
        };
        (sessions("export=a") >= 2 && sessions("export=b") >= 2).then_some(())
    });
    for count in 1..=4 {
        // The time between two restarts, in which the clients do some work.
        std::thread::sleep(Duration::from_millis(300));
        if !clients.iter_mut().any(|client| client.try_wait().unwrap().is_none()) {
            // On a busy disk a restart takes as long as the load.
            assert!(count > 1, "the load is too short");
            break;
        }
        stop(service);
        assert_eq!(store.names().first().map(|name| &**name), Some("stored-connections"));
        service = store.service(folder.path());
        until("another gateway", || (log(&folder).matches("that go on: ").count() == count).then_some(()));
        // What systemd keeps open would outlive its client.
        until("an empty store", || store.names().is_empty().then_some(()));
    }
    for client in &mut clients {
        assert!(client.wait().unwrap().success(), "{}", log(&folder));
    }
    stop(service);
    assert!(!log(&folder).contains("ERROR"), "{}", log(&folder));
}

/// A state that the next program does not understand ends the sessions, and nothing else.
#[test]
fn sessions_of_an_unknown_version_end_and_the_service_starts() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["a.raw", "b.raw"] {
        File::create(folder.path().join(file)).unwrap().set_len(1 << 20).unwrap();
    }
    fs::write(folder.path().join("tidegate.toml"), GATEWAY).unwrap();
    let store = DescriptorStore::start(folder.path());
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let state = folder.path().join("state");
    fs::write(&state, "{\"version\":999,\"table\":[]}\n").unwrap();
    store.kept.lock().unwrap().extend([
        ("stored-connections".to_owned(), theirs.into()),
        ("stored-connections-state".to_owned(), File::open(&state).unwrap().into()),
    ]);
    let service = store.service(folder.path());
    until("a gateway", || log(&folder).contains("ready").then_some(()));
    until("an empty store", || store.names().is_empty().then_some(()));
    until("word of it", || {
        log(&folder).contains("of the last process that end: 1; their state has version 999").then_some(())
    });
    let mut ours = ours;
    ours.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(std::io::Read::read(&mut ours, &mut [0; 8]).unwrap(), 0, "the connection is closed");
    stop(service);
}
