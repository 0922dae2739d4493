use std::fs;

use super::*;
use crate::sense::DiskStats;
use crate::trees;

const ACLS: &str = include_str!("../../../tests/fixtures/lio-acls.tree");

fn read(text: &str) -> VolumeTree {
    let tree = tempfile::tempdir().unwrap();
    trees::unpack(text, tree.path()).unwrap();
    VolumeTree::read(&SystemRoot::at(tree.path())).unwrap()
}

fn number(volumes: &VolumeTree, name: &str) -> DeviceNumber {
    volumes.find(name).unwrap_or_else(|| panic!("no {name}")).number
}

fn names(volumes: &VolumeTree, numbers: &[DeviceNumber]) -> Vec<String> {
    numbers.iter().map(|number| volumes.get(*number).unwrap().name.clone()).collect()
}

/// A device as text of a tree.
fn device(name: &str, number: &str, slaves: &[&str]) -> String {
    let mut text = format!("sys/block/{name}/dev\n  {number}\nsys/block/{name}/size\n  2048\n");
    for slave in slaves {
        text += &format!("sys/block/{name}/slaves/{slave} -> ../../{slave}\n");
    }
    text
}

fn dm(name: &str, number: &str, dm_name: &str, uuid: &str, slaves: &[&str]) -> String {
    format!(
        "{}sys/block/{name}/dm/name\n  {dm_name}\nsys/block/{name}/dm/uuid\n  {uuid}\n",
        device(name, number, slaves)
    )
}

fn lvm(part: &str) -> String {
    format!("LVM-{}{}{part}", "g".repeat(32), "v".repeat(32))
}

#[test]
fn a_captured_volume_group_over_four_devices() {
    let volumes = read(ACLS);
    assert_eq!(volumes.devices().len(), 18);
    assert_eq!(volumes.volume_groups(), ["vg0"]);
    let lv1 = volumes.find("vg0/lv1").unwrap();
    assert_eq!(
        (lv1.number, lv1.name.as_str(), lv1.size),
        (DeviceNumber::new(254, 0), "dm-0", Bytes::from_mib(64))
    );
    let DeviceKind::Lvm(volume) = &lv1.kind else { panic!("{lv1:?}") };
    assert_eq!((volume.group.as_str(), volume.name.as_str(), &volume.part), ("vg0", "lv1", &None));
    assert_eq!(volume.group_uuid, "rZ2Jog1v2yib7CqhZ04fSM1rhRFxpcoI");
    assert_eq!(names(&volumes, &volumes.physical(lv1.number)), ["loop0", "loop1", "loop2", "loop3"]);
    let members = volumes.members(volumes.group(lv1.number).unwrap());
    assert_eq!(names(&volumes, &members), ["dm-0", "dm-1", "dm-2"]);
    for (name, kind) in [("loop0", DeviceKind::Loop), ("null0", DeviceKind::Disk), ("sda", DeviceKind::Disk)]
    {
        let device = volumes.find(name).unwrap();
        assert_eq!(device.kind, kind);
        assert_eq!(volumes.group(device.number), Some(DeviceGroup::Device(name)));
        assert_eq!(volumes.members(DeviceGroup::Device(name)), [device.number]);
        assert_eq!(volumes.physical(device.number), [device.number]);
    }
}

#[test]
fn a_path_below_nvme_multipath_has_counters_and_no_place_in_sysfs() {
    let tree = tempfile::tempdir().unwrap();
    trees::unpack(include_str!("../../../tests/fixtures/nvmet.tree"), tree.path()).unwrap();
    let root = SystemRoot::at(tree.path());
    let (volumes, stats) = (VolumeTree::read(&root).unwrap(), DiskStats::read(&root).unwrap());
    let unknown: Vec<_> = stats
        .disks()
        .iter()
        .filter(|disk| volumes.get(disk.number).is_none())
        .map(|disk| disk.name.to_string())
        .collect();
    assert_eq!(unknown, ["nvme0c0n1", "nvme1c1n1"]);
    assert_eq!(volumes.group(number(&volumes, "nvme0n1")), Some(DeviceGroup::Device("nvme0n1")));
}

#[test]
fn a_device_is_found_by_whatever_people_call_it() {
    let volumes = read(
        &[
            dm("dm-0", "253:0", "my--vg-my--lv", &lvm(""), &["sda"]),
            device("sda", "8:0", &[]),
            device("cciss!c0d0", "104:0", &[]),
        ]
        .concat(),
    );
    for name in
        ["dm-0", "/dev/dm-0", "my-vg/my-lv", "/dev/my-vg/my-lv", "my--vg-my--lv", "/dev/mapper/my--vg-my--lv"]
    {
        assert_eq!(number(&volumes, name), DeviceNumber::new(253, 0), "{name}");
    }
    assert_eq!(number(&volumes, "/dev/cciss/c0d0"), DeviceNumber::new(104, 0));
    for name in ["", "/dev/", "dm-1", "/dev/mapper/dm-0", "my-vg", "/dev/disk/by-id/x"] {
        assert_eq!(volumes.find(name), None, "{name}");
    }
}

#[test]
fn links_of_udev_are_followed() {
    let text = [
        device("sda", "8:0", &[]),
        "dev/disk/by-id/x -> ../../sda\ndev/abs -> /dev/disk/by-id/x\ndev/loop -> loop\n".to_owned(),
    ]
    .concat();
    let tree = tempfile::tempdir().unwrap();
    trees::unpack(&text, tree.path()).unwrap();
    let root = SystemRoot::at(tree.path());
    let volumes = VolumeTree::read(&root).unwrap();
    let find = |path: &str| volumes.find_path(&root, Path::new(path));
    for path in ["/dev/sda", "/dev/disk/by-id/x", "/dev/abs"] {
        assert_eq!(find(path), Some(DeviceNumber::new(8, 0)), "{path}");
    }
    for path in ["/dev/loop", "/dev/none", "/srv/file", "sda/x", ""] {
        assert_eq!(find(path), None, "{path}");
    }
}

#[test]
fn hidden_parts_are_of_the_group_and_are_not_counted_with_it() {
    let volumes = read(
        &[
            dm("dm-0", "253:0", "vg-pool_tmeta", &lvm("-tmeta"), &["sda2"]),
            dm("dm-1", "253:1", "vg-pool_tdata", &lvm("-tdata"), &["sda2", "sdb"]),
            dm("dm-2", "253:2", "vg-pool-tpool", &lvm("-tpool"), &["dm-0", "dm-1"]),
            dm("dm-3", "253:3", "vg-thin", &lvm(""), &["dm-2"]),
            dm("dm-4", "253:4", "secret", "CRYPT-LUKS2-0123-secret", &["dm-3"]),
            device("sda", "8:0", &[]),
            "sys/block/sda/sda2/partition\n  2\nsys/block/sda/sda2/dev\n  8:2\nsys/block/sda/sda2/size\n  \
            1024\n"
                .to_owned(),
            device("sdb", "8:16", &[]),
        ]
        .concat(),
    );
    let group = DeviceGroup::VolumeGroup("vg");
    for name in ["dm-0", "dm-1", "dm-2", "dm-3", "secret"] {
        assert_eq!(volumes.group(number(&volumes, name)), Some(group), "{name}");
    }
    assert_eq!(names(&volumes, &volumes.members(group)), ["dm-3"]);
    assert_eq!(names(&volumes, &volumes.physical(number(&volumes, "secret"))), ["sda", "sdb"]);
    let partition = volumes.find("sda2").unwrap();
    assert_eq!((&partition.kind, partition.size), (&DeviceKind::Partition, Bytes::from_kib(512)));
    assert_eq!(volumes.group(partition.number), Some(DeviceGroup::Device("sda")));
}

#[test]
fn what_spans_two_groups_is_a_group_of_its_own() {
    let volumes = read(
        &[
            dm("dm-0", "253:0", "a-lv", &lvm(""), &["sda"]),
            dm("dm-1", "253:1", "b-lv", &lvm(""), &["sdb"]),
            device("md0", "9:0", &["dm-0", "dm-1"]),
            "sys/block/md0/md/\n".to_owned(),
            dm("dm-2", "253:2", "mpatha", "mpath-36001405", &["sda", "sdb"]),
            device("sda", "8:0", &[]),
            device("sdb", "8:16", &[]),
            device("zd16", "230:16", &[]),
        ]
        .concat(),
    );
    let group = |name| volumes.group(number(&volumes, name));
    assert_eq!(group("md0"), Some(DeviceGroup::Device("md0")));
    assert_eq!(group("mpatha"), Some(DeviceGroup::Device("mpatha")));
    assert_eq!(group("zd16"), Some(DeviceGroup::Device("zd16")));
    assert_eq!(volumes.find("md0").unwrap().kind, DeviceKind::Md);
    assert_eq!(volumes.find("zd16").unwrap().kind, DeviceKind::Zvol);
    assert_eq!(names(&volumes, &volumes.physical(number(&volumes, "md0"))), ["sda", "sdb"]);
    assert_eq!(group("mpatha").unwrap().to_string(), "mpatha");
}

#[test]
fn a_circle_of_devices_ends() {
    let volumes =
        read(&[dm("dm-0", "253:0", "x", "", &["dm-1"]), dm("dm-1", "253:1", "y", "", &["dm-0"])].concat());
    assert_eq!(volumes.physical(DeviceNumber::new(253, 0)), []);
    assert_eq!(volumes.group(DeviceNumber::new(253, 0)), Some(DeviceGroup::Device("x")));
}

#[test]
fn a_device_made_again_has_another_sequence() {
    let sequence = |sequence: &str| {
        let text = format!("{}sys/block/sda/diskseq\n  {sequence}\n", device("sda", "8:0", &[]));
        read(&text).find("sda").unwrap().sequence
    };
    assert_eq!(sequence("7"), Some(7));
    assert_eq!(read(&device("sda", "8:0", &[])).find("sda").unwrap().sequence, None);
}

#[test]
fn a_malformed_file_is_named_and_a_missing_one_means_that_the_device_has_gone() {
    let failure = |file: &str, content: &str| {
        let tree = tempfile::tempdir().unwrap();
        trees::unpack(&device("sda", "8:0", &[]), tree.path()).unwrap();
        trees::write_file(tree.path(), &format!("sys/block/sda/{file}"), content.as_bytes()).unwrap();
        VolumeTree::read(&SystemRoot::at(tree.path())).unwrap_err().to_string()
    };
    assert!(
        failure("dev", "8-0\n")
            .ends_with("/sys/block/sda/dev:1: expected a device number such as `253:0`, not `8-0`")
    );
    assert!(
        failure("size", "big\n").ends_with("/sys/block/sda/size:1: expected a number of sectors, not `big`")
    );
    assert!(failure("diskseq", "x\n").contains("/sys/block/sda/diskseq:1:"));

    for file in ["dev", "size"] {
        let tree = tempfile::tempdir().unwrap();
        trees::unpack(&[device("sda", "8:0", &[]), device("sdb", "8:16", &[])].concat(), tree.path())
            .unwrap();
        fs::remove_file(tree.path().join("sys/block/sda").join(file)).unwrap();
        assert_eq!(VolumeTree::read(&SystemRoot::at(tree.path())).unwrap().devices().len(), 1);
    }
    let empty = tempfile::tempdir().unwrap();
    let error = VolumeTree::read(&SystemRoot::at(empty.path())).unwrap_err().to_string();
    assert!(error.contains("/sys/block: no block devices"), "{error}");
}

#[test]
fn this_machines_own_sysfs_is_read() {
    let volumes = VolumeTree::read(&SystemRoot::default()).unwrap();
    assert!(!volumes.devices().is_empty());
}

#[test]
fn patterns_mean_devices_by_their_names_and_no_hidden_parts() {
    let text = [
        dm("dm-2", "253:2", "vg-pool-tpool", &lvm("-tpool"), &["sda"]),
        dm("dm-3", "253:3", "vg-thin1", &lvm(""), &["dm-2"]),
        dm("dm-4", "253:4", "vg-thin2", &lvm(""), &["dm-2"]),
        dm("dm-5", "253:5", "mpatha", "mpath-3600", &["sda"]),
        device("sda", "8:0", &[]),
        device("zd0", "230:0", &[]),
        device("zd16", "230:16", &[]),
    ]
    .concat();
    let volumes = read(&text);
    let found = |pattern: &str| -> Vec<_> {
        volumes.find_all(pattern).iter().map(|device| device.name.clone()).collect()
    };
    assert_eq!(found("zd*"), ["zd0", "zd16"]);
    assert_eq!(found("vg/*"), ["dm-3", "dm-4"]);
    assert_eq!(found("/dev/mapper/mpath*"), ["dm-5"]);
    assert_eq!(found("/dev/sd*"), ["sda"]);
    assert_eq!(found("vg/thin1"), ["dm-3"]);
    assert_eq!(found("none*"), [] as [&str; 0]);
}
