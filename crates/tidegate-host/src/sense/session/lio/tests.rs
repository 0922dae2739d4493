use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use super::*;
use crate::sense::session::captured::{sessions_in, tree};
use crate::sense::session::{
    DeviceActivity, DoubtReason, SessionCounters, SessionReader, TargetKind, VolumeBacking,
};
use crate::trees;

fn sessions(root: &SystemRoot) -> Result<TargetFinding, ReadError> {
    let found = LioReader::default().read(root, &|_| DeviceActivity::ANY)?;
    Ok(found.unwrap_or(TargetFinding::Sessions(Vec::new())))
}

/// With counters.
fn read(root: &SystemRoot) -> Vec<TargetSession> {
    let mut lio = LioReader::default();
    let found = lio.read(root, &|_| DeviceActivity::ANY);
    let mut sessions = sessions_in(found.map(Option::unwrap));
    for (session, counters) in sessions.iter_mut().zip(lio.counters()) {
        session.counters = counters;
    }
    sessions
}

/// Consumer, device, addresses.
fn summary(sessions: &[TargetSession]) -> Vec<String> {
    let line = |session: &TargetSession| {
        let device = session.device.map_or_else(|| "-".to_owned(), |device| device.to_string());
        let addresses: Vec<String> = session.addresses.iter().map(ToString::to_string).collect();
        format!("{} {device} {}", session.consumer, addresses.join(","))
    };
    sessions.iter().map(line).collect()
}

const ACLS: &str = include_str!("../../../../tests/fixtures/lio-acls.tree");
const DUAL: &str = include_str!("../../../../tests/fixtures/lio-dual.tree");

#[test]
fn a_captured_target_with_three_initiators() {
    let (_tree, root) = tree(&[ACLS]);
    let sessions = read(&root);
    assert_eq!(
        summary(&sessions),
        [
            "iqn.2026-01.lab:initiator1 254:0 10.0.0.11",
            "iqn.2026-01.lab:initiator2 254:1 10.0.0.12",
            "iqn.2026-01.lab:initiator3 254:2 10.0.0.13",
        ]
    );
    let first = &sessions[0];
    assert_eq!((&*first.target, first.via), ("iqn.2026-01.lab:lv1", TargetKind::Iscsi));
    assert_eq!(
        *first.volume,
        VolumeBacking { name: "tpgt_1/lun_0".into(), path: Some("/dev/vg0/lv1".into()) }
    );
    assert_eq!(first.counters, None, "the device is its alone");
    assert_eq!(first.doubt, None);
}

#[test]
fn a_captured_target_with_initiators_over_ipv4_and_ipv6() {
    let (_tree, root) = tree(&[DUAL]);
    let addresses: Vec<IpAddr> = read(&root).iter().flat_map(|session| session.addresses.clone()).collect();
    assert_eq!(addresses, ["10.0.0.11", "fd00::12", "10.0.0.13"].map(|text| text.parse::<IpAddr>().unwrap()));
}

const TPG: &str = "sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv1/tpgt_1";

/// The captured tree with a change.
fn changed(change: impl FnOnce(&Path)) -> (tempfile::TempDir, SystemRoot) {
    let (tree, root) = tree(&[ACLS]);
    change(tree.path());
    (tree, root)
}

/// A second initiator of the first target, with a list of volumes.
fn add_initiator(tree: &Path, name: &str, address: &str, luns: &[(&str, &str)]) {
    let acl = format!("{TPG}/acls/{name}");
    let info = fs::read_to_string(tree.join(TPG).join("acls/iqn.2026-01.lab:initiator1/info")).unwrap();
    trees::write_file(tree, &format!("{acl}/info"), info.replace("10.0.0.11", address).as_bytes()).unwrap();
    for (mapped, lun) in luns {
        let link =
            format!("{acl}/{mapped}/some_name -> ../../../../../../../target/iscsi/iqn/tpgt_1/lun/{lun}\n");
        trees::unpack(&link, tree).unwrap();
    }
}

#[test]
fn two_initiators_of_one_volume_and_of_one_address_are_told_apart() {
    let (_tree, root) =
        changed(|tree| add_initiator(tree, "iqn.2026-01.lab:other", "10.0.0.11", &[("lun_7", "lun_0")]));
    let sessions = read(&root);
    assert_eq!(
        summary(&sessions)[..2],
        ["iqn.2026-01.lab:initiator1 254:0 10.0.0.11", "iqn.2026-01.lab:other 254:0 10.0.0.11"]
    );
    assert_eq!(sessions[0].counters, Some(SessionCounters { read_mib: 0, written_mib: 6 }));
    assert_eq!(sessions[1].counters, None, "not counted there");
}

#[test]
fn an_initiator_with_two_volumes_has_two_sessions() {
    let (_tree, root) = changed(|tree| {
        let second = format!("{TPG}/lun/lun_1/link -> ../../../../../../target/core/iblock_0/lv2\n");
        trees::unpack(&second, tree).unwrap();
        add_initiator(tree, "iqn.2026-01.lab:two", "fd00::14", &[("lun_0", "lun_1"), ("lun_1", "lun_0")]);
    });
    let sessions = read(&root);
    assert_eq!(
        summary(&sessions)[1..3],
        ["iqn.2026-01.lab:two 254:1 fd00::14", "iqn.2026-01.lab:two 254:0 fd00::14"]
    );
}

#[test]
fn a_file_behind_a_volume_loads_the_device_of_its_file_system() {
    let (tree, root) = changed(|tree| {
        let info = "Status: ACTIVATED  Max Queue Depth: 0  SectorSize: 512  HwMaxSectors: 16384\n        TCM \
            FILEIO ID: 0        \
                    File: /srv/disk.img  Size: 1073741824  Mode: O_DSYNC Async: 0\n";
        trees::write_file(tree, "sys/kernel/config/target/core/fileio_1/disk/info", info.as_bytes()).unwrap();
        trees::unpack(&format!("{TPG}/lun/lun_1/a -> ../../../../../../target/core/fileio_1/disk\n"), tree)
            .unwrap();
        add_initiator(tree, "iqn.2026-01.lab:file", "10.0.0.15", &[("lun_0", "lun_1")]);
    });
    let sessions = read(&root);
    assert_eq!(sessions[0].device, None, "no file system is mounted there");
    assert_eq!(sessions[0].volume.path.as_deref(), Some(Path::new("/srv/disk.img")));
    let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 254:7 / /srv rw - xfs /dev/vg0/files rw\n";
    trees::write_file(tree.path(), "proc/self/mountinfo", mounts.as_bytes()).unwrap();
    assert_eq!(read(&root)[0].device, Some(DeviceNumber::new(254, 7)));
}

#[test]
fn what_is_not_there_is_no_error() {
    let absence = |directory: Option<&str>| {
        let tree = tempfile::tempdir().unwrap();
        if let Some(directory) = directory {
            fs::create_dir_all(tree.path().join(directory)).unwrap();
        }
        match sessions(&SystemRoot::at(tree.path())).unwrap() {
            TargetFinding::Absent(absence) => absence,
            TargetFinding::Sessions(sessions) => panic!("{sessions:?}"),
        }
    };
    assert_eq!(absence(None), TargetAbsence::NoConfigfs);
    assert_eq!(absence(Some("sys/kernel/config")), TargetAbsence::NoConfigfs);
    assert_eq!(absence(Some("sys/kernel/config/nvmet")), TargetAbsence::NoModule("target_core_mod"));
    assert_eq!(absence(Some("sys/kernel/config/target/core")), TargetAbsence::NotConfigured);
}

#[test]
fn a_malformed_tree_is_an_error_that_names_the_file() {
    let failure = |path: &str, content: &str| {
        let (_tree, root) = changed(|tree| {
            add_initiator(tree, "iqn.2026-01.lab:other", "10.0.0.14", &[("lun_0", "lun_0")]);
            fs::write(tree.join(path), content).unwrap();
        });
        sessions(&root).unwrap_err().to_string()
    };
    let acl = format!("{TPG}/acls/iqn.2026-01.lab:initiator1");
    let info = failure(&format!("{acl}/info"), "nonsense\n");
    assert!(info.contains("initiator1/info:1: expected a heading"), "{info}");
    let counter = failure(&format!("{acl}/lun_0/statistics/scsi_auth_intr/write_mbytes"), "many\n");
    assert!(counter.contains("scsi_auth_intr/write_mbytes:1: expected a number, not `many`"), "{counter}");
    let backstore =
        failure("sys/kernel/config/target/core/iblock_0/lv1/info", "\n        Major: x Minor: 0\n");
    assert!(backstore.contains("iblock_0/lv1/info:2: expected `Major: 253 Minor: 0`"), "{backstore}");
}

#[test]
fn what_is_removed_meanwhile_is_left_out() {
    let acl = format!("{TPG}/acls/iqn.2026-01.lab:initiator1");
    for gone in [format!("{acl}/info"), format!("{acl}/lun_0/lun"), format!("{TPG}/lun/lun_0/port")] {
        let (_tree, root) = changed(|tree| fs::remove_file(tree.join(&gone)).unwrap());
        assert_eq!(read(&root).len(), 2, "{gone}");
    }
}

const DEMO: &str = include_str!("../../../../tests/fixtures/lio-demo.tree");
const IDLE: &str = include_str!("../../../../tests/fixtures/lio-idle.tree");

#[test]
fn a_captured_target_in_demo_mode_leaves_the_addresses_in_doubt() {
    let (_tree, root) = tree(&[DEMO]);
    let sessions = read(&root);
    assert_eq!(
        summary(&sessions),
        [
            "iqn.2026-01.lab:initiator1 254:0 ",
            "iqn.2026-01.lab:initiator2 254:1 ",
            "iqn.2026-01.lab:initiator3 254:2 "
        ]
    );
    for session in &sessions {
        assert_eq!(
            session.doubt.as_ref().unwrap().to_string(),
            "the target gives no addresses in demo mode; candidates: 10.0.0.11, 10.0.0.12, 10.0.0.13"
        );
    }
}

#[test]
fn an_initiator_in_demo_mode_that_is_alone_has_its_address() {
    let (tree, root) = tree(&[DEMO]);
    let table = fs::read_to_string(tree.path().join("proc/net/tcp")).unwrap();
    let alone: String = table
        .lines()
        .filter(|line| !line.contains("0C00000A:") && !line.contains("0D00000A:"))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(tree.path().join("proc/net/tcp"), alone).unwrap();
    for name in ["lv2", "lv3"] {
        let target =
            tree.path().join("sys/kernel/config/target/iscsi").join(format!("iqn.2026-01.lab:{name}"));
        fs::remove_dir_all(target).unwrap();
    }
    let sessions = read(&root);
    assert_eq!(summary(&sessions), ["iqn.2026-01.lab:initiator1 254:0 10.0.0.11"]);
    assert_eq!(sessions[0].doubt, None);
}

#[test]
fn a_captured_initiator_that_has_logged_out_has_no_session() {
    let (_tree, root) = tree(&[IDLE]);
    let sessions = read(&root);
    assert_eq!(
        summary(&sessions),
        ["iqn.2026-01.lab:initiator1 254:0 10.0.0.11", "iqn.2026-01.lab:initiator2 254:1 10.0.0.12"]
    );
    assert!(sessions.iter().all(|session| session.doubt.is_none()));
}

#[test]
fn a_second_session_that_the_kernel_does_not_show_is_found_or_said() {
    let count =
        "sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv1/fabric_statistics/iscsi_instance/sessions";
    let another = "   4: 0100000A:0CBC 0B01000A:B298 01 00000000:00000000\n";
    let add = |tree: &Path| {
        fs::write(tree.join(count), "2\n").unwrap();
        let table = fs::read_to_string(tree.join("proc/net/tcp")).unwrap();
        fs::write(tree.join("proc/net/tcp"), table + another).unwrap();
    };
    let (_tree, root) = changed(add);
    let sessions = read(&root);
    assert_eq!(summary(&sessions)[0], "iqn.2026-01.lab:initiator1 254:0 10.0.0.11,10.0.1.11");
    assert_eq!(sessions[0].doubt, None);

    let (_tree, root) = changed(|tree| {
        add(tree);
        fs::write(tree.join("proc/net/tcp"), "").unwrap();
    });
    let sessions = read(&root);
    assert_eq!(summary(&sessions)[0], "iqn.2026-01.lab:initiator1 254:0 10.0.0.11");
    assert_eq!(sessions[0].doubt.as_ref().unwrap().why, DoubtReason::NoSockets);
}

#[test]
fn a_target_is_read_again_when_somebody_has_logged_in_or_out_or_when_it_is_its_turn() {
    let (tree, root) = tree(&[ACLS]);
    let target = tree.path().join("sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv2");
    let accepts = target.join("fabric_statistics/iscsi_login_stats/accepts");
    fs::create_dir_all(accepts.parent().unwrap()).unwrap();
    fs::write(&accepts, "1\n").unwrap();
    let mut reader = SessionReader::new(root);
    let mut addresses = || {
        reader.read(|_| DeviceActivity::ANY);
        reader.sessions().sessions[1].addresses[0].to_string()
    };
    let info = target.join("tpgt_1/acls/iqn.2026-01.lab:initiator2/info");
    let move_to = |address: &str| {
        let text = fs::read_to_string(&info).unwrap().replace("10.0.0.12", "X").replace("10.0.0.22", "X");
        fs::write(&info, text.replace('X', address)).unwrap();
    };
    assert_eq!(addresses(), "10.0.0.12");
    assert_eq!(addresses(), "10.0.0.12", "its turn is the second");
    move_to("10.0.0.22");
    assert_eq!(addresses(), "10.0.0.12", "no initiator has logged in");
    fs::write(&accepts, "2\n").unwrap();
    assert_eq!(addresses(), "10.0.0.22");
    move_to("10.0.0.12");
    let turns = (1..=TURNS).position(|_| addresses() == "10.0.0.12");
    assert!(turns.is_some(), "every session's turn comes");
    fs::remove_dir_all(&target).unwrap();
    assert_eq!(addresses(), "10.0.0.13", "the third is the second now");
}

/// Two initiators of the first volume, at whose target none logs in or out, and the directory of the first
/// one's counters.
fn shared_volume() -> (tempfile::TempDir, SystemRoot, PathBuf) {
    let accepts = "fabric_statistics/iscsi_login_stats/accepts";
    let sessions = "fabric_statistics/iscsi_instance/sessions";
    let (tree, root) = changed(|tree| {
        add_initiator(tree, "iqn.2026-01.lab:other", "10.0.0.14", &[("lun_0", "lun_0")]);
        for (file, content) in [(accepts, "2\n"), (sessions, "2\n")] {
            let file = format!("sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv1/{file}");
            trees::write_file(tree, &file, content.as_bytes()).unwrap();
        }
    });
    let at = tree.path().join(TPG).join("acls/iqn.2026-01.lab:initiator1/lun_0/statistics/scsi_auth_intr");
    (tree, root, at)
}

const NOTHING: DeviceActivity = DeviceActivity { reads: false, writes: false };

#[test]
fn counters_of_an_idle_device_are_not_read_again() {
    let (_tree, root, at) = shared_volume();
    let mut reader = SessionReader::new(root);
    let mut written = |did: DeviceActivity| {
        reader.read(|_| did);
        reader.sessions().sessions[0].counters.unwrap().written_mib
    };
    assert_eq!(written(NOTHING), 6, "read once in any case");
    fs::write(at.join("write_mbytes"), "7\n").unwrap();
    assert_eq!([NOTHING; 4].map(&mut written), [6; 4]);
    let has_read = DeviceActivity { reads: true, writes: false };
    assert_eq!([has_read; 4].map(&mut written), [6; 4], "it has not written");
    // Once it has, that is not forgotten until its turn comes.
    let has_written = DeviceActivity { reads: false, writes: true };
    assert_eq!([has_written, NOTHING].map(&mut written)[1], 7);
}

#[test]
fn counters_are_read_when_it_is_their_devices_turn() {
    let (_tree, root, at) = shared_volume();
    let mut reader = SessionReader::new(root);
    let mut counted = || {
        reader.read(|_| DeviceActivity::ANY);
        let counters = reader.sessions().sessions[0].counters.unwrap();
        (counters.read_mib, counters.written_mib)
    };
    assert_eq!(counted(), (0, 6), "all at the begin");
    for round in 1..=3 {
        fs::write(at.join("read_mbytes"), format!("{round}\n")).unwrap();
        fs::write(at.join("write_mbytes"), format!("{}\n", 6 + round)).unwrap();
        let seen: Vec<_> = (0..READS_TURNS).map(|_| counted()).collect();
        assert_eq!(seen[WRITES_TURNS - 1].1, 6 + round, "{seen:?}");
        assert_eq!(seen[READS_TURNS - 1].0, round, "every session's turn comes: {seen:?}");
    }
}

#[test]
fn who_stays_is_not_said_again_and_who_comes_is() {
    let (tree, root, _) = shared_volume();
    let mut reader = SessionReader::new(root);
    let before = reader.read(|_| DeviceActivity::ANY).map(|before| before.sessions);
    assert_eq!(before, Some(Vec::new()), "before the first reading there was no session");
    for _ in 0..2 * TURNS {
        assert!(reader.read(|_| DeviceActivity::ANY).is_none());
    }
    assert_eq!(reader.sessions().sessions.len(), 4);
    add_initiator(tree.path(), "iqn.2026-01.lab:third", "10.0.0.15", &[("lun_0", "lun_0")]);
    let accepts =
        "sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv1/fabric_statistics/iscsi_login_stats/accepts";
    fs::write(tree.path().join(accepts), "3\n").unwrap();
    assert_eq!(reader.read(|_| DeviceActivity::ANY).unwrap().sessions.len(), 4);
    let consumers: Vec<_> =
        reader.sessions().sessions.iter().map(|session| session.consumer.as_str()).collect();
    assert!(consumers.contains(&"iqn.2026-01.lab:third"), "{consumers:?}");
    // A device that cannot be understood is no consumer's, until it can be again.
    fs::rename(tree.path().join("sys/kernel/config/target"), tree.path().join("gone")).unwrap();
    assert_eq!(reader.read(|_| DeviceActivity::ANY).unwrap().sessions.len(), 5);
    assert!(reader.read(|_| DeviceActivity::ANY).is_none());
    fs::rename(tree.path().join("gone"), tree.path().join("sys/kernel/config/target")).unwrap();
    assert!(reader.read(|_| DeviceActivity::ANY).is_some());
    let counted = reader.sessions().sessions.iter().filter(|session| session.counters.is_some());
    assert_eq!(counted.count(), 1, "the captured one's; what was added has no counters");
}
