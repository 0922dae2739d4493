//! Data that the kernel could not write back, and the client that is told that it is safe.
//!
//! The storage is a device of 16 MiB that has room for 2 MiB: writes go to the page cache and are answered,
//! and most of them cannot be written back. The kernel tells of that once.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command as Process, Stdio};

use tidegate_nbd::Errno;
use tidegate_nbd::transmission::NbdCommand;

use crate::attacks::storage::MemoryDevice;
use crate::service::Service;
use tidegate_testing::nbd::Raw;
use tidegate_testing::{has_programs, until};

const MIB: u64 = 1 << 20;
const EIO: u32 = Errno::Io.code();
const POISONED: &str = "tidegate_poisoned{pool=\"p\",consumer=\"x\"}";
const TOLD: &str = "the storage has failed to store written data";

fn storage() -> Option<MemoryDevice> {
    MemoryDevice::on("tmpfs", "size=2M", 16 * MIB)
}

fn serving(pool: &str) -> String {
    format!("listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\n{pool}")
}

/// The export `y` stays when `x` goes: a pool has at least one.
fn without_x() -> String {
    serving("backend = { kind = 'file' }\n[pool.p.export.y]\npath = 'disk.raw'\n")
}

fn on_file(storage: &MemoryDevice) -> String {
    format!("{}[pool.p.export.x]\npath = '{}'\n", without_x(), storage.path().display())
}

/// A client that has written what fits, durably, and 4 MiB that do not, without an error.
fn client_with_lost_data(service: &Service, storage: &MemoryDevice) -> Raw {
    let mut client = Raw::open(&service.path("nbd.sock"), "x");
    assert_eq!((client.write_fua(0, &[1; 4096]), client.ask(NbdCommand::Flush, 0, 0)), (0, 0));
    client.send_write(1, 4 * MIB, &vec![2; 4 * MIB as usize]);
    assert_eq!(client.answer(), (1, 0));
    storage.write_back();
    client
}

fn every_flush_and_fua_fails(service: &Service, client: &mut Raw) {
    for _ in 0..3 {
        assert_eq!((client.ask(NbdCommand::Flush, 0, 0), client.write_fua(0, &[1; 4096])), (EIO, EIO));
    }
    let mut newcomer = Raw::open(&service.path("nbd.sock"), "x");
    assert_eq!(newcomer.ask(NbdCommand::Flush, 0, 0), EIO, "a new session is told as well");
    newcomer.send_write(1, 0, &[3; 4096]);
    assert_eq!(newcomer.answer(), (1, 0), "a plain write promises nothing, and goes on");
    assert_eq!(service.metric(POISONED), Some(1.0));
    assert!(service.get("/v1/status").contains("\"poisoned\": true"));
    service.await_log(TOLD);
    assert_eq!(service.log().matches(TOLD).count(), 1, "{}", service.log());
}

#[test]
fn a_failed_fua_write_does_not_make_the_next_flush_succeed() {
    let Some(storage) = storage() else { return };
    let service = Service::start("serve", &on_file(&storage));
    let mut client = client_with_lost_data(&service, &storage);
    assert_eq!(service.metric(POISONED), Some(0.0));
    // To a block that has its place: this write can be stored, and its sync tells of the others.
    assert_eq!(client.write_fua(0, &[1; 4096]), EIO);
    every_flush_and_fua_fails(&service, &mut client);

    service.configure(&without_x());
    service.await_log("reloaded ");
    assert_eq!(client.ask(NbdCommand::Flush, 0, 0), EIO, "the sessions that are left are not deceived");
    drop(client);
    service.configure(&on_file(&storage));
    until("the reload", || (service.log().matches("reloaded ").count() == 2).then_some(()));
    let mut client = Raw::open(&service.path("nbd.sock"), "x");
    assert_eq!((client.ask(NbdCommand::Flush, 0, 0), client.write_fua(0, &[1; 4096])), (0, 0));
    until("health", || (service.metric(POISONED) == Some(0.0)).then_some(()));
}

/// Several syncs of one open file share its one report: the first takes it, and the others succeed without
/// their data.
#[test]
fn of_many_fua_writes_at_once_none_succeeds_without_its_data() {
    const LENGTH: u32 = 4_096;
    // Room for half of them. With gaps, so that the kernel makes one request of each: a loop device answers
    // one that fits in part as if all of it did.
    let Some(storage) = MemoryDevice::on("tmpfs", "size=200k", 16 * MIB) else { return };
    let service = Service::start("serve", &on_file(&storage));
    let mut client = Raw::open(&service.path("nbd.sock"), "x");
    let place = |cookie: u64| 4 * MIB + 2 * cookie * u64::from(LENGTH);
    let data = |cookie: u64| vec![cookie as u8 + 1; LENGTH as usize];
    let mut answered = Vec::new();
    for cookie in 0..100 {
        client.send_write_fua(cookie, place(cookie), &data(cookie));
    }
    for _ in 0..100 {
        answered.push(client.answer());
    }
    assert!(answered.iter().any(|(_, error)| *error != 0), "all of them do not fit");
    storage.write_back();
    for (cookie, _) in answered.iter().filter(|(_, error)| *error == 0) {
        client.send(NbdCommand::Read, *cookie, place(*cookie), LENGTH);
        assert!(client.data(LENGTH as usize).1 == data(*cookie), "{cookie} was said to be stored");
    }
    every_flush_and_fua_fails(&service, &mut client);
}

struct Upstream(Child);

impl Drop for Upstream {
    fn drop(&mut self) {
        // Already ended, in a test that failed for this.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_upstream_that_fails_a_fua_write_is_not_believed_when_it_flushes() {
    let Some(storage) = storage().filter(|_| has_programs(&["nbdkit"])) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("up.sock");
    let mut nbdkit = Process::new("nbdkit");
    nbdkit.arg("-f").arg("-U").arg(&socket).arg("file").arg(storage.path());
    let _upstream = Upstream(nbdkit.stderr(Stdio::null()).spawn().unwrap());
    until("nbdkit", || UnixStream::connect(&socket).ok());
    let configuration = serving(&format!(
        "backend = {{ kind = 'nbd', address = 'unix:{}' }}\n[pool.p.export.x]\nupstream = ''",
        socket.display()
    ));
    let service = Service::start("serve", &configuration);
    let mut client = client_with_lost_data(&service, &storage);
    assert_ne!(client.write_fua(0, &[1; 4096]), 0);
    every_flush_and_fua_fails(&service, &mut client);
}
