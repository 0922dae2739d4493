//! Hosts that tell each other through a shared file, on real file systems.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::{
    CHILD, INTERVAL, assert_bursts_go_together, host, join, join_slow, mark_of, report, resource, shown,
    wait_for_more_than_an_interval, wait_until_all_hear_all,
};
use tempfile::TempDir;
use tidegate_cluster::{Carrier, ClusterConfig, ClusterHandle, ClusterName, FileConfig};
use tidegate_control::combine;
use tidegate_testing::{LoopDevice, has_namespaces, test_command, until_true};
use tidegate_units::Latency;

const BLOCK: u64 = 4096;

/// Beside the test binary: on the disk, where `/tmp` may be memory.
fn on_disk() -> TempDir {
    tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

fn carrier(path: &Path, slot: Option<u16>) -> Carrier {
    Carrier::File(FileConfig { path: path.to_owned(), slots: 8, slot })
}

#[track_caller]
fn wait_for_reason(cluster: &ClusterHandle, part: &str) {
    until_true(part, || cluster.status().reason.is_some_and(|reason| reason.contains(part)));
}

fn hear_each_other(path: &Path) -> [ClusterHandle; 3] {
    let [a, b, c] = ["a", "b", "c"].map(|name| join(name, carrier(path, None)));
    wait_until_all_hear_all(&[("a", &a), ("b", &b), ("c", &c)]);
    until_true("all are up", || [&a, &b, &c].iter().all(|cluster| cluster.status().up));
    [a, b, c]
}

#[test]
fn three_hosts_make_a_file_find_their_slots_and_hear_each_other() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let [a, b, c] = hear_each_other(&path);
    let vg0 = resource("vg0");
    let heard = a.heard(&vg0);
    assert_eq!(combine(&host("a"), &report(10), &heard, INTERVAL.saturating_mul(100)).hosts, 3);
    assert_eq!(fs::metadata(&path).unwrap().len(), 9 * BLOCK);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the file is left");

    drop(c);
    until_true("c has left", || a.heard(&vg0).len() == 1 && b.heard(&vg0).len() == 1);
    let c = join("c", carrier(&path, None));
    wait_until_all_hear_all(&[("a", &a), ("b", &b), ("c", &c)]);
    let slots = fs::read(&path).unwrap();
    let used =
        slots.chunks(BLOCK as usize).skip(1).filter(|block| block.iter().any(|byte| *byte != 0)).count();
    assert_eq!(used, 3, "c has taken its former slot");
    assert_eq!(a.status().duplicates, []);
    assert_eq!(a.status().rejected.total(), 0, "{}", shown(&a));
}

#[test]
fn on_a_disk_the_page_cache_is_passed_by() {
    let folder = on_disk();
    let clusters = hear_each_other(&folder.path().join("hosts"));
    // Every file system that a build runs on can do direct I/O, except for memory.
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(folder.path()).output().unwrap();
    if kind.stdout.starts_with(b"tmpfs") {
        wait_for_reason(&clusters[0], "without direct I/O");
    } else {
        assert_eq!(clusters[0].status().reason, None);
    }
}

#[test]
fn without_direct_io_it_works_and_says_so() {
    if !has_namespaces(&["--map-root-user", "--mount"]) {
        return;
    }
    let folder = on_disk();
    let mount = "mount -t ramfs none \"$0\" && exec \"$@\"";
    let folder = folder.path().to_str().unwrap();
    let wrapper = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, folder];
    let status = test_command(module_path!(), "on_a_file_system_in_memory", &wrapper)
        .env(CHILD, folder)
        .status()
        .unwrap();
    assert!(status.success(), "see above");
}

#[test]
#[ignore = "another test starts this one, in a mount namespace"]
fn on_a_file_system_in_memory() {
    let folder = std::env::var_os(CHILD).unwrap();
    let clusters = hear_each_other(&Path::new(&folder).join("hosts"));
    for cluster in &clusters {
        wait_for_reason(cluster, "without direct I/O");
        assert!(cluster.status().up);
    }
}

#[test]
fn a_block_device_of_zeros_is_taken() {
    let folder = on_disk();
    let image = folder.path().join("image");
    fs::write(&image, vec![0; 9 * BLOCK as usize]).unwrap();
    let Some(device) = LoopDevice::with_options(&image, &["--direct-io=on"]) else { return };
    drop(hear_each_other(device.path()));
}

#[test]
fn what_is_not_our_file_is_left_alone() {
    let folder = on_disk();
    let path = folder.path().join("data");
    let precious = [b"precious".as_slice(), &[7; 9 * BLOCK as usize]].concat();
    fs::write(&path, &precious).unwrap();
    let a = join("a", carrier(&path, None));
    wait_for_reason(&a, "it holds something else, which is not overwritten");
    drop(a);
    assert_eq!(fs::read(&path).unwrap(), precious);

    let later = [vec![0; 2 * BLOCK as usize], vec![7; 7 * BLOCK as usize]].concat();
    fs::write(&path, &later).unwrap();
    let a = join("a", carrier(&path, None));
    wait_for_reason(&a, "begins with zeros, and holds something else further on");
    drop(a);
    assert_eq!(fs::read(&path).unwrap(), later);

    fs::write(&path, vec![0; BLOCK as usize]).unwrap();
    let a = join("a", carrier(&path, None));
    wait_for_reason(&a, "too small: 8 hosts need 36864 bytes, it has 4096");
    // It is tried again, and used once it can be.
    fs::write(&path, vec![0; 9 * BLOCK as usize]).unwrap();
    until_true("the carrier is up", || a.status().up);

    let other = ClusterConfig {
        name: ClusterName::new("other").unwrap(),
        ..common::config("b", carrier(&path, None))
    };
    let other = ClusterHandle::join(other).unwrap();
    wait_for_reason(&other, "it belongs to the cluster `test`");
    let directory = join("c", carrier(folder.path(), None));
    wait_for_reason(&directory, "Is a directory");
}

#[test]
fn a_file_of_an_old_version_is_named_as_such() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    drop(hear_each_other(&path));
    fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[0, 0], 4).unwrap();
    let a = join("a", carrier(&path, None));
    wait_for_reason(&a, "an old version of the format, 0");
}

#[test]
fn a_host_that_is_dead_does_not_count_however_fresh_its_block_looks() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let [a, b, _c] = hear_each_other(&path);
    let vg0 = resource("vg0");
    // What b would leave behind if it were killed now.
    let snapshot = folder.path().join("snapshot");
    fs::copy(&path, &snapshot).unwrap();
    let late = join("d", carrier(&snapshot, None));
    until_true("d is up", || late.status().up);
    assert!(late.heard(&vg0).is_empty(), "nobody is alive in there");
    assert_eq!(late.status().taken, 0);
    // Beside it, in the living file, reports grow old as they should.
    drop(b);
    a.publish(&vg0, report(1));
    until_true("the report of c grows old", || {
        a.heard(&vg0).iter().any(|heard| heard.age > Latency::from(INTERVAL.saturating_mul(3)))
    });
}

#[test]
fn torn_and_damaged_blocks_are_counted_and_the_next_good_one_counts() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let [a, b, c] = hear_each_other(&path);
    let vg0 = resource("vg0");
    // A stranger writes rubbish over all slots, again and again.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut rubbish = 0u8;
    until_true("all see it", || {
        rubbish = rubbish.wrapping_add(1).max(1);
        file.write_all_at(&vec![rubbish; 8 * BLOCK as usize], BLOCK).unwrap();
        // The pace of the rubbish.
        std::thread::sleep(INTERVAL / 4);
        [&a, &b, &c].iter().all(|cluster| cluster.status().rejected.checksum > 0)
    });
    until_true("all go on", || {
        a.publish(&vg0, report(4_242));
        mark_of(&b, "a", &vg0) == Some(4_242) && mark_of(&c, "a", &vg0) == Some(4_242)
    });
}

#[test]
fn two_hosts_with_one_configured_slot_end_up_as_one_and_say_so() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let a = join("a", carrier(&path, Some(3)));
    let watcher = join("w", carrier(&path, Some(0)));
    wait_until_all_hear_all(&[("a", &a), ("w", &watcher)]);
    until_true("a is up", || a.status().up);
    // The second one finds the slot in use, and waits.
    let b = join("b", carrier(&path, Some(3)));
    wait_for_reason(&b, "slot 3 is in use by `a`");
    assert!(!b.status().up);
    drop(a);
    until_true("b has the slot", || b.status().up);
    wait_until_all_hear_all(&[("b", &b), ("w", &watcher)]);

    let wrong = join("x", carrier(&path, Some(8)));
    wait_for_reason(&wrong, "there is no slot 8: the file has 8, from 0");
}

#[test]
fn hosts_that_start_at_the_same_time_end_up_with_a_slot_each() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let clusters = names.map(|name| join(name, carrier(&path, None)));
    let all: Vec<_> = names.into_iter().zip(&clusters).collect();
    wait_until_all_hear_all(&all);
    until_true("all are up", || clusters.iter().all(|cluster| cluster.status().up));
    let ninth = join("i", carrier(&path, None));
    wait_for_reason(&ninth, "all 8 slots are in use");
}

/// The rule for two hosts that hold one slot after all, which takes a delayed write: here, a block put back
/// by hand.
#[test]
fn a_foreign_block_in_our_slot_is_noticed_and_one_of_the_two_gives_way() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let other_path = folder.path().join("other");
    let a = join("a", carrier(&path, Some(2)));
    let b = join("b", carrier(&other_path, Some(2)));
    until_true("both are up", || a.status().up && b.status().up);
    let (file, other) = (open(&path), open(&other_path));
    until_true("one of them says it", || {
        // Each sees the other's latest block in its slot.
        let block = |file: &fs::File| {
            let mut block = vec![0; BLOCK as usize];
            file.read_exact_at(&mut block, 3 * BLOCK).unwrap();
            block
        };
        let (from_a, from_b) = (block(&file), block(&other));
        file.write_all_at(&from_b, 3 * BLOCK).unwrap();
        other.write_all_at(&from_a, 3 * BLOCK).unwrap();
        // The time in which a host may look at its block, before the next one is put there.
        std::thread::sleep(INTERVAL / 3);
        let says = |cluster: &ClusterHandle| {
            cluster.status().reason.is_some_and(|reason| reason.contains("slot 2 is also written by"))
        };
        says(&a) && says(&b) || a.status().up != b.status().up
    });
    assert!(a.status().up || b.status().up, "one of them keeps the slot: {} {}", shown(&a), shown(&b));
}

fn open(path: &Path) -> fs::File {
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn of_two_hosts_with_one_name_one_counts_and_everyone_says_so() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let vg0 = resource("vg0");
    let first = join("a", carrier(&path, None));
    let b = join("b", carrier(&path, None));
    wait_until_all_hear_all(&[("a", &first), ("b", &b)]);
    let second = join("a", carrier(&path, None));
    until_true("all three say it", || {
        first.publish(&vg0, report(1));
        second.publish(&vg0, report(2));
        [&first, &second, &b].iter().all(|cluster| cluster.status().duplicates == [host("a")])
    });
    assert_eq!(mark_of(&b, "a", &vg0), Some(1), "the one heard first counts");
}

#[test]
fn a_file_that_goes_away_stops_nothing_and_is_used_when_it_returns() {
    let folder = on_disk();
    let mount = folder.path().join("volume");
    fs::create_dir(&mount).unwrap();
    let path = mount.join("hosts");
    let away = folder.path().join("away");
    fs::rename(&mount, &away).unwrap();
    let a = join("a", carrier(&path, None));
    wait_for_reason(&a, "cannot make");
    a.publish(&resource("vg0"), report(1));
    fs::rename(&away, &mount).unwrap();
    until_true("the carrier is up", || a.status().up);
}

#[test]
fn a_report_that_had_to_wait_for_the_volume_does_not_seem_fresh() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let [a, b] = ["a", "b"].map(|name| join_slow(name, carrier(&path, None)));
    let vg0 = resource("vg0");
    until_true("both are up", || a.status().up && b.status().up);
    a.publish(&vg0, report(1));
    until_true("b hears it", || mark_of(&b, "a", &vg0) == Some(1));

    let kept = fs::read(&path).unwrap();
    fs::write(&path, "for a while it is something else").unwrap();
    until_true("both see it", || !a.status().up && !b.status().up);
    a.publish(&vg0, report(2));
    wait_for_more_than_an_interval();
    fs::write(&path, kept).unwrap();
    let written = a.status().sent;
    until_true("a has written twice", || a.status().sent > written + 1);
    until_true("b is up", || b.status().up);
    assert_ne!(mark_of(&b, "a", &vg0), Some(2), "{}", shown(&b));
    a.publish(&vg0, report(3));
    until_true("b hears what is new", || mark_of(&b, "a", &vg0) == Some(3));
}

#[test]
fn bursts_of_reports_go_together() {
    let folder = on_disk();
    let path = folder.path().join("hosts");
    let [a, b, _c] = hear_each_other(&path);
    assert_bursts_go_together(&a, "a", &b);
}
