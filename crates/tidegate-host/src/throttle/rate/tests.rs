//! Tests of what is found on a machine, and of what is left alone. Files of a tree take what is written to
//! them and do nothing: the kernel's reaction is tested in the lab.

use tempfile::TempDir;
use tidegate_units::{ByteRate, Iops};

use super::*;
use crate::trees::unpack;

const MOUNTED: &str = "proc/self/mountinfo
  22 1 8:1 / / rw - ext4 /dev/sda1 rw
  30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
sys/fs/cgroup/cgroup.controllers
  cpu io memory
sys/fs/cgroup/cgroup.subtree_control
  cpu memory
sys/fs/cgroup/cgroup.procs
  1
";

const THREADS: &str = "proc/2/task/2/children
  7 218 227 240
proc/7/stat
  7 (kworker/0:0) S 2 0 0 0 -1 69238880 0 0
proc/7/cgroup
  0::/
proc/218/stat
  218 (iscsi_trx) S 2 0 0 0 -1 2129984 0 0
proc/218/cgroup
  0::/
proc/227/stat
  227 (iscsi_trx) S 2 0 0 0 -1 2129984 0 0
proc/227/cgroup
  0::/storage
proc/900/stat
  900 (iscsi_trx) S 1 900 900 0 -1 4194304 0 0
proc/900/cgroup
  0::/
";

fn machine(texts: &[&str]) -> (TempDir, SystemRoot) {
    let tree = tempfile::tempdir().unwrap();
    for text in texts {
        unpack(text, tree.path()).unwrap();
    }
    let root = SystemRoot::at(tree.path());
    (tree, root)
}

fn why(root: SystemRoot) -> String {
    Rate::new(root).unwrap_err().to_string()
}

#[test]
fn what_is_missing_is_named() {
    assert!(why(machine(&[]).1).contains("cgroup v2 is not mounted"));
    let without = MOUNTED.replace("  cpu io memory", "  cpu memory");
    assert!(why(machine(&[&without]).1).contains("has no controller io"));
    let (tree, root) = machine(&[MOUNTED]);
    std::fs::remove_file(tree.path().join("sys/fs/cgroup/cgroup.procs")).unwrap();
    assert!(why(root.clone()).contains("cgroup.procs"));
    for capability in probe(&machine(&[]).1) {
        assert!(capability.works.is_err(), "{}", capability.what);
    }
}

#[test]
fn two_agents_do_not_limit_the_same_machine() {
    let (_tree, root) = machine(&[MOUNTED]);
    let first = Rate::new(root.clone()).unwrap();
    assert!(why(root.clone()).contains("another agent"));
    drop(first);
    assert!(Rate::new(root).is_ok());
}

#[test]
fn nothing_is_there_while_nobody_is_held() {
    let (tree, root) = machine(&[MOUNTED, THREADS]);
    let mut rate = Rate::new(root.clone()).unwrap();
    rate.apply(Instant::ZERO, &[]).unwrap();
    let there = std::fs::read_dir(tree.path().join("sys/fs/cgroup")).unwrap().count();
    assert_eq!(there, 4, "as it was, and the claim");
    assert!(!undo(&root, false).unwrap());
    assert!(!undo(&machine(&[]).1, false).unwrap(), "where there are no cgroups, either");
}

#[test]
fn the_kernels_threads_are_taken_that_nobody_else_has() {
    for parent in ["proc/2/task/2/children", "proc/2/none"] {
        let (_tree, root) = machine(&[&THREADS.replace("proc/2/task/2/children", parent)]);
        let threads = threads::KernelThreads::new(root);
        assert_eq!(threads.at_the_root(&[].into()).unwrap(), [218], "{parent}");
        assert_eq!(threads.at_the_root(&[218].into()).unwrap(), [0_u32; 0], "{parent}");
    }
}

#[test]
fn a_cgroup_of_the_same_name_with_somebody_else_in_it_is_left_alone() {
    let somebody = "sys/fs/cgroup/tidegate/cgroup.procs\n  900\nsys/fs/cgroup/tidegate/io.max\n";
    let (tree, root) = machine(&[MOUNTED, THREADS, somebody]);
    let hierarchy = IoHierarchy::find(&root).unwrap();
    let error = hierarchy.clear().unwrap_err().to_string();
    assert!(error.contains("process 900 is in it"), "{error}");
    assert!(!undo(&root, false).unwrap());
    assert!(tree.path().join("sys/fs/cgroup/tidegate/io.max").exists());
}

#[test]
fn of_a_device_that_two_resources_have_the_lower_limit_counts() {
    let device = DeviceNumber::new(254, 0);
    let hold = |name: &str, writes: f64, bytes: f64| ThrottleRequest {
        resource: tidegate_units::ResourceName::new(name).unwrap(),
        members: [].into(),
        delay: tidegate_units::Latency::from_millis(1),
        own_delays: [].into(),
        limits: [(device, WriteLimit::new(Iops::new(writes), ByteRate::new(bytes)))].into(),
        cgroups: [].into(),
    };
    let both = limits(&[hold("a", 100.0, 4e6), hold("b", 200.0, 1e6)]);
    assert_eq!(both, hold("a", 100.0, 1e6).limits);
}
