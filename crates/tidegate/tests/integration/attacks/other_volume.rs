//! Clients and guests that come back after a restart, when their export leads to another volume.

use std::fs;
use std::path::Path;
use std::process::Child;

use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::Raw;
use tidegate_testing::until;
use tidegate_testing::vhost::{DONE, FLUSH, Machine, READ, SLOTS, WRITE};

use crate::restart::{DescriptorStore, log, stop};
use crate::service::Service;

const MIB: usize = 1 << 20;

fn exports(x: &str, y: &str) -> String {
    format!(
        "listen = ['unix:nbd.sock']\n[pool.p]\nbackend = {{ kind = 'file' }}\n\
         [pool.p.export.x]\npath = '{x}'\n[pool.p.export.y]\npath = '{y}'\n"
    )
}

/// A service that was restarted, and the clients that it had.
struct Restarted {
    folder: tempfile::TempDir,
    service: Child,
    x: Raw,
    y: Raw,
}

impl Restarted {
    /// Restarts a service with a client of each export, and changes something between its end and the next
    /// start.
    fn after(change: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (file, content) in [("one", 1), ("two", 2)] {
            fs::write(folder.path().join(file), vec![content; MIB]).unwrap();
        }
        fs::write(folder.path().join("tidegate.toml"), exports("one", "two")).unwrap();
        let store = DescriptorStore::start(folder.path());
        let service = store.service(folder.path());
        until("a gateway", || log(&folder).contains("ready").then_some(()));
        let socket = folder.path().join("nbd.sock");
        let (x, y) = (Raw::open(&socket, "x"), Raw::open(&socket, "y"));
        until("both sessions", || (log(&folder).matches("session opened").count() == 2).then_some(()));
        stop(service);
        change(folder.path());
        let service = store.service(folder.path());
        until("the next gateway", || log(&folder).contains("that go on: ").then_some(()));
        Self { folder, service, x, y }
    }

    fn says(&self, what: &str) {
        assert!(log(&self.folder).contains(what), "{what}: {}", log(&self.folder));
    }
}

#[test]
fn clients_do_not_go_on_over_each_others_volumes_after_their_paths_were_swapped() {
    let mut after = Restarted::after(|folder| {
        fs::write(folder.join("tidegate.toml"), exports("two", "one")).unwrap();
    });
    assert!(after.x.is_closed() && after.y.is_closed());
    after.says("that go on: 0 of 2");
    after.says("its client has had ");
    after.says("the client must connect again");
    // Whoever connects now asks for what the configuration says.
    let mut client = Raw::open(&after.folder.path().join("nbd.sock"), "x");
    client.send(NbdCommand::Read, 1, 0, 512);
    assert_eq!(client.data(512), (1, vec![2; 512]));
    stop(after.service);
}

#[test]
fn a_client_does_not_go_on_over_a_file_that_took_the_place_of_its_own() {
    // A file that is made anew at once often has the same inode.
    let mut after = Restarted::after(|folder| {
        fs::remove_file(folder.join("one")).unwrap();
        fs::write(folder.join("one"), vec![3; MIB]).unwrap();
    });
    assert!(after.x.is_closed());
    assert_eq!(after.y.ask(NbdCommand::Flush, 0, 0), 0, "the other one goes on");
    after.says("that go on: 1 of 2");
    stop(after.service);
}

#[test]
fn clients_go_on_where_another_path_leads_to_the_same_volume() {
    let mut after = Restarted::after(|folder| {
        fs::rename(folder.join("one"), folder.join("moved")).unwrap();
        fs::write(folder.join("tidegate.toml"), exports("moved", "two")).unwrap();
    });
    assert_eq!((after.x.write_fua(0, &[7; 512]), after.y.ask(NbdCommand::Flush, 0, 0)), (0, 0));
    assert_eq!(fs::read(after.folder.path().join("moved")).unwrap()[..512], [7; 512]);
    stop(after.service);
}

#[test]
fn a_guest_with_requests_in_flight_is_not_put_over_another_volume() {
    let disk = |path: &str| {
        format!(
            "listen = ['unix:nbd.sock']\n[pool.p]\nbackend = {{ kind = 'file' }}\n\
             [pool.p.export.disk]\npath = '{path}'\nlisten = ['vhost-user:disk.sock']\n\
             limit = {{ iops = '100 IO/s', burst = '1ms' }}\n"
        )
    };
    let mut service = Service::start_beside("serve", &[], &disk("disk.raw"), &[("other.raw", 8 << 20)]);
    let mut machine = Machine::new(1);
    machine.connect(&service.path("disk.sock"));
    for slot in 0..SLOTS {
        machine.put(0, slot, WRITE, u64::from(slot), &[5; 512], 0);
    }
    machine.kick(0);
    let mut slots = machine.await_completed(0, 4);
    machine.disconnect();
    fs::write(service.path("tidegate.toml"), disk("other.raw")).unwrap();
    service.kill_and_restart();
    assert!(machine.try_connect(&service.path("disk.sock")).is_err());
    service.await_log("the virtual machine has had another volume");
    assert!(fs::read(service.path("other.raw")).unwrap().iter().all(|byte| *byte == 0), "it is as it was");

    // The way out that the log names: the export gets its volume back.
    fs::write(service.path("tidegate.toml"), disk("disk.raw")).unwrap();
    service.kill_and_restart();
    machine.connect(&service.path("disk.sock"));
    slots.extend(machine.await_completed(0, usize::from(SLOTS) - slots.len()));
    assert!((0..SLOTS).all(|slot| machine.status(0, slot) == DONE));
    assert_eq!(machine.request(FLUSH, 0, &[], 0).0, DONE);
    assert_eq!(machine.request(READ, 0, &[], 512), (DONE, vec![5; 512]));
}
