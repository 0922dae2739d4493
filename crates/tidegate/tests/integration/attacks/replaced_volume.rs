//! Volumes that are replaced, removed or cut short under the exports that serve them.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use tidegate_nbd::Errno;
use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::LoopDevice;
use tidegate_testing::nbd::Raw;
use tidegate_testing::until;

use crate::attacks::storage::run;
use crate::service::{Service, text, tidegate_beside};

const MIB: u64 = 1 << 20;
const EIO: u32 = Errno::Io.code();
const POISONED: &str = "tidegate_poisoned{pool=\"p\",consumer=\"x\"}";

fn export(name: &str, path: &Path) -> String {
    format!("[pool.p.export.{name}]\npath = '{}'\n", path.display())
}

/// The export `y` stays when `x` goes: a pool has at least one.
fn serving(pool: &str, exports: &str) -> String {
    format!(
        "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\nbackend = {{ kind = 'file'{pool} }}\n\
         [pool.p.export.y]\npath = 'disk.raw'\n{exports}"
    )
}

/// A way to put something else in the place of a volume.
type Displacement = fn(&Path);

#[test]
fn a_reload_is_refused_while_a_path_leads_elsewhere_than_to_the_served_volume() {
    let displacements: [(&str, Displacement); 3] = [
        ("its path leads to another volume now", |volume| {
            fs::write(volume.with_extension("new"), vec![2; MIB as usize]).unwrap();
            fs::rename(volume.with_extension("new"), volume).unwrap();
        }),
        ("its path leads to another volume now", |volume| {
            fs::rename(volume, volume.with_extension("old")).unwrap();
            fs::write(volume.with_extension("new"), vec![2; MIB as usize]).unwrap();
            symlink(volume.with_extension("new"), volume).unwrap();
        }),
        ("that was deleted or moved away", |volume| fs::remove_file(volume).unwrap()),
    ];
    for (says, displace) in displacements {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::write(&volume, vec![1; MIB as usize]).unwrap();
        let with_x = serving("", &export("x", &volume));
        let service = Service::start("serve", &with_x);
        let mut client = Raw::open(&service.path("nbd.sock"), "x");
        displace(&volume);
        service.signal("-HUP");
        service.await_log("not reloaded");
        assert!(service.log().contains(says), "{says}: {}", service.log());
        assert_eq!(client.write_fua(0, &[3; 512]), 0, "its clients go on");

        // The way that the log names: the export is removed, and added again.
        service.configure(&serving("", ""));
        service.await_log("reloaded ");
        drop(client);
        if !volume.exists() {
            continue;
        }
        service.configure(&with_x);
        until("the reload", || (service.log().matches(" reloaded ").count() == 2).then_some(()));
        let mut client = Raw::open(&service.path("nbd.sock"), "x");
        client.send(NbdCommand::Read, 1, 0, 512);
        assert_eq!(client.data(512), (1, vec![2; 512]));
    }
}

#[test]
fn a_path_that_leads_elsewhere_is_noticed_without_a_reload() {
    const REPLACED: &str = "tidegate_replaced{pool=\"p\",consumer=\"x\"}";
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::write(&volume, vec![1; MIB as usize]).unwrap();
    let service = Service::start("serve", &serving("", &export("x", &volume)));
    assert_eq!(service.metric(REPLACED), Some(0.0));
    let aside = folder.path().join("aside");
    for _ in 0..2 {
        fs::rename(&volume, &aside).unwrap();
        fs::write(&volume, vec![2; MIB as usize]).unwrap();
        until("a look", || (service.metric(REPLACED) == Some(1.0)).then_some(()));
        let status: serde_json::Value = serde_json::from_str(&service.get("/v1/status")).unwrap();
        let shown = status["resources"][0]["consumers"].as_array().unwrap();
        let shown = shown.iter().find(|consumer| consumer["name"] == "x").unwrap();
        assert_eq!(shown["replaced"], true, "{status}");
        fs::rename(&aside, &volume).unwrap();
        until("another look", || (service.metric(REPLACED) == Some(0.0)).then_some(()));
    }
    let log = service.log();
    assert_eq!(log.matches("its path leads to another volume now").count(), 2, "each time once: {log}");
    assert_eq!(log.matches("its path leads to its volume again").count(), 2, "{log}");
}

#[test]
fn a_check_names_a_volume_that_was_replaced_under_the_running_service() {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::write(&volume, vec![1; MIB as usize]).unwrap();
    let service = Service::start("serve", &serving("", &export("x", &volume)));
    let config = service.path("tidegate.toml");
    let check = || tidegate_beside(config.parent().unwrap(), &["check", "-c", config.to_str().unwrap()]);
    assert!(!text(&check().stderr).contains("another file"));
    fs::write(folder.path().join("new"), vec![2; MIB as usize]).unwrap();
    fs::rename(folder.path().join("new"), &volume).unwrap();
    let said = text(&check().stderr);
    assert!(said.contains("the running service serves another file as `x`"), "{said}");
}

fn cut(volume: &Path, size: u64) {
    File::options().write(true).open(volume).unwrap().set_len(size).unwrap();
}

fn is_poisoned(service: &Service, client: &mut Raw) {
    for _ in 0..2 {
        assert_eq!((client.ask(NbdCommand::Flush, 0, 0), client.write_fua(0, &[1; 4096])), (EIO, EIO));
    }
    service.await_log("the volume has shrunk: clients were told 4194304 bytes, and it had 1048576");
    assert_eq!(service.metric(POISONED), Some(1.0));
    let mut newcomer = Raw::open(&service.path("nbd.sock"), "x");
    assert_eq!(newcomer.ask(NbdCommand::Flush, 0, 0), EIO, "a new session is told as well");
    assert_eq!(newcomer.ask(NbdCommand::Read, 2 * MIB, 4096), EIO, "no zeros in the place of lost data");
    newcomer.send(NbdCommand::Read, 1, MIB - 4096, 4096);
    assert_eq!(newcomer.data(4096), (1, vec![1; 4096]));
    newcomer.send_write(2, MIB - 4096, &[1; 4096]);
    assert_eq!(newcomer.answer(), (2, 0), "a plain write promises nothing, and goes on");
}

#[test]
fn a_file_that_is_cut_and_written_at_its_old_end_poisons_its_export() {
    for pool in ["", ", direct = true"] {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::write(&volume, vec![1; 4 * MIB as usize]).unwrap();
        let service = Service::start("serve", &serving(pool, &export("x", &volume)));
        let mut client = Raw::open(&service.path("nbd.sock"), "x");
        assert_eq!((client.write_fua(2 * MIB, &[7; 4096]), client.ask(NbdCommand::Flush, 0, 0)), (0, 0));
        // The write would make the file as long as before.
        cut(&volume, MIB);
        client.send_write(1, 4 * MIB - 4096, &[8; 4096]);
        assert_eq!(client.answer(), (1, EIO));
        assert_eq!(volume.metadata().unwrap().len(), MIB);
        is_poisoned(&service, &mut client);
    }
}

#[test]
fn a_file_that_is_cut_poisons_its_export_with_the_next_flush_read_or_look() {
    type Touch = fn(&Service, &mut Raw);
    let touches: [Touch; 4] = [
        |_, client| assert_eq!(client.ask(NbdCommand::Flush, 0, 0), EIO),
        |_, client| assert_eq!(client.write_fua(0, &[1; 4096]), EIO),
        |_, client| {
            assert_eq!(client.ask(NbdCommand::Read, MIB, 4096), EIO);
        },
        |service, _| until("a look", || (service.metric(POISONED) == Some(1.0)).then_some(())),
    ];
    for touch in touches {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::write(&volume, vec![1; 4 * MIB as usize]).unwrap();
        let service = Service::start("serve", &serving("", &export("x", &volume)));
        let mut client = Raw::open(&service.path("nbd.sock"), "x");
        assert_eq!(client.write_fua(2 * MIB, &[7; 4096]), 0);
        cut(&volume, MIB);
        touch(&service, &mut client);
        // What was lost does not come back with the length.
        cut(&volume, 4 * MIB);
        is_poisoned(&service, &mut client);
    }
}

#[test]
fn a_device_that_shrinks_poisons_its_export() {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::write(&volume, vec![1; 4 * MIB as usize]).unwrap();
    let Some(device) = LoopDevice::over(&volume) else { return };
    let service = Service::start("serve", &serving("", &export("x", device.path())));
    let mut client = Raw::open(&service.path("nbd.sock"), "x");
    assert_eq!((client.write_fua(2 * MIB, &[7; 4096]), client.ask(NbdCommand::Flush, 0, 0)), (0, 0));
    cut(&volume, MIB);
    let shown = device.path().to_str().unwrap();
    run("losetup", &["--set-capacity", shown]).expect("a loop device takes the size of its file");
    is_poisoned(&service, &mut client);
    drop(client);
    assert!(service.terminate().0.success());
}
