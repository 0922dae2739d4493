use super::*;
use crate::trees::{unpack, write_file};

struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new(kernel: &str, tree: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        unpack(tree, folder.path()).unwrap();
        write_file(folder.path(), "proc/sys/kernel/osrelease", kernel.as_bytes()).unwrap();
        Self { folder }
    }

    fn uncounted(&self, device: &str) -> Option<String> {
        let root = SystemRoot::at(self.folder.path());
        let (volumes, stats) = (VolumeTree::read(&root).unwrap(), DiskStats::read(&root).unwrap());
        let number = volumes.find(device).unwrap().number;
        uncounted(&root, &volumes, &stats, number).map(|it| it.to_string())
    }

    fn switch(&self, device: &str, text: &str) {
        write_file(self.folder.path(), switch(device).trim_start_matches('/'), text.as_bytes()).unwrap();
    }
}

/// A disk with a partition, a volume on the partition, an array, and two devices with drivers of their own.
const LAYERS: &str = "proc/diskstats
  8 0 sda 5 0 40 5 0 0 0 0 0 5 5
  8 1 sda1 5 0 40 5 0 0 0 0 0 5 5
  253 0 dm-0 5 0 40 5 0 0 0 0 0 5 5
  9 0 md0 5 0 40 5 0 0 0 0 0 5 5
  147 0 drbd0 5 0 40 5 0 0 0 0 0 5 5
  1 0 ram0 0 0 0 0 0 0 0 0 0 0 0
sys/block/sda/dev
  8:0
sys/block/sda/size
  2048
sys/block/sda/mq/0/cpu_list
  0
sys/block/sda/queue/iostats
  0
sys/block/sda/sda1/partition
  1
sys/block/sda/sda1/dev
  8:1
sys/block/sda/sda1/size
  1024
sys/block/dm-0/dev
  253:0
sys/block/dm-0/size
  1024
sys/block/dm-0/dm/name
  secret
sys/block/dm-0/dm/uuid
  CRYPT-LUKS2-0-secret
sys/block/dm-0/queue/iostats
  1
sys/block/md0/dev
  9:0
sys/block/md0/size
  1024
sys/block/md0/md/level
  raid1
sys/block/md0/queue/iostats
  0
sys/block/drbd0/dev
  147:0
sys/block/drbd0/size
  1024
sys/block/drbd0/queue/iostats
  0
sys/block/ram0/dev
  1:0
sys/block/ram0/size
  1024
sys/block/ram0/queue/iostats
  0
";

#[test]
fn each_layer_counts_by_the_switch_that_its_driver_heeds() {
    let machine = Machine::new("6.12.0-40-amd64\n", LAYERS);
    let why = |device: &str, queue: &str| {
        let remedy = format!("echo 1 > /sys/block/{queue}/queue/iostats");
        Some(format!("the kernel does not count the requests of {device}; run `{remedy}`"))
    };
    assert_eq!(machine.uncounted("sda"), why("sda", "sda"));
    assert_eq!(machine.uncounted("sda1"), why("sda1", "sda"));
    assert_eq!(machine.uncounted("secret"), None, "the switches below it do not matter");
    assert_eq!(machine.uncounted("md0"), why("md0", "md0"));
    assert_eq!(machine.uncounted("drbd0"), None, "counts whatever the switch says");
    let never = machine.uncounted("ram0").unwrap();
    assert!(never.starts_with("the kernel has not counted any request of ram0 yet"), "{never}");
    machine.switch("dm-0", "0\n");
    machine.switch("sda", "1\n");
    assert_eq!(machine.uncounted("secret"), why("dm-0", "dm-0"));
    assert_eq!((machine.uncounted("sda"), machine.uncounted("sda1")), (None, None));
}

#[test]
fn before_they_heeded_the_switch_volumes_and_arrays_always_counted() {
    let machine = Machine::new("6.1.0-40-amd64\n", LAYERS);
    machine.switch("dm-0", "0\n");
    assert_eq!((machine.uncounted("secret"), machine.uncounted("md0")), (None, None));
    assert!(machine.uncounted("sda").is_some());
}

/// A head of NVMe multipath with two paths and a partition, as Linux 6.1 shows them.
const MULTIPATH: &str = "proc/diskstats
  259 0 nvme0c0n1 5 0 40 4294967290 7 0 56 9 1 5 4294967295
  259 1 nvme0n1 0 0 0 0 0 0 0 0 0 0 0
  259 2 nvme0c1n1 6 0 48 10 0 0 0 0 2 6 11
  259 3 nvme0n1p1 0 0 0 0 0 0 0 0 0 0 0
sys/block/nvme0n1/dev
  259:1
sys/block/nvme0n1/size
  2048
sys/block/nvme0n1/queue/iostats
  0
sys/block/nvme0n1/nvme0n1p1/partition
  1
sys/block/nvme0n1/nvme0n1p1/dev
  259:3
sys/block/nvme0n1/nvme0n1p1/size
  1024
sys/block/nvme0c0n1/queue/iostats
  1
sys/block/nvme0c0n1/inflight
         1        0
sys/block/nvme0c1n1/queue/iostats
  1
sys/block/nvme0c1n1/inflight
         2        0
";

#[test]
fn a_multipath_head_that_the_kernel_does_not_count_has_the_sums_of_its_paths() {
    let machine = Machine::new("6.1.0-40-amd64\n", MULTIPATH);
    let root = SystemRoot::at(machine.folder.path());
    let head = DeviceNumber::new(259, 1);
    let stats = DiskStats::read(&root).unwrap();
    let reading = stats.get(head).unwrap();
    let counters = reading.counters;
    assert_eq!((reading.paths, counters.reads.ios, counters.writes.ios), (2, 11, 7));
    assert_eq!((counters.reads.ms, counters.weighted_ms), (4, 10), "the sums wrap at 32 bits");
    assert_eq!((counters.in_flight, stats.reads_in_flight(&root, head)), (3, 3));
    assert_eq!(machine.uncounted("nvme0n1"), None);
    let part = machine.uncounted("nvme0n1p1").unwrap();
    assert!(part.contains("name the whole device nvme0n1"), "{part}");
    machine.switch("nvme0c1n1", "0\n");
    let off = machine.uncounted("nvme0n1").unwrap();
    assert!(off.ends_with("run `echo 1 > /sys/block/nvme0c1n1/queue/iostats`"), "{off}");
}

#[test]
fn a_multipath_head_that_the_kernel_counts_is_not_counted_twice() {
    let counted = MULTIPATH.replace("nvme0n1 0 0 0 0 0 0 0 0 0 0 0", "nvme0n1 11 0 88 4 7 0 56 9 3 9 10");
    let machine = Machine::new("6.12.0\n", &counted);
    let stats = DiskStats::read(&SystemRoot::at(machine.folder.path())).unwrap();
    let reading = stats.get(DeviceNumber::new(259, 1)).unwrap();
    assert_eq!((reading.paths, reading.counters.reads.ios, reading.counters.in_flight), (0, 11, 3));
    let off = machine.uncounted("nvme0n1").unwrap();
    assert!(off.ends_with("run `echo 1 > /sys/block/nvme0n1/queue/iostats`"), "{off}");
    machine.switch("nvme0n1", "1\n");
    assert_eq!(machine.uncounted("nvme0n1"), None);
}

#[test]
fn of_an_interval_in_which_a_path_went_nothing_is_known() {
    let machine = Machine::new("6.1.0\n", MULTIPATH);
    let root = SystemRoot::at(machine.folder.path());
    let before = DiskStats::read(&root).unwrap();
    let left = MULTIPATH.replace("  259 0 nvme0c0n1 5 0 40 4294967290 7 0 56 9 1 5 4294967295\n", "");
    unpack(&left.replace("nvme0c1n1 6", "nvme0c1n1 99"), machine.folder.path()).unwrap();
    let after = DiskStats::read(&root).unwrap();
    let change = after.change(&before, DeviceNumber::new(259, 1)).unwrap();
    assert_eq!(change.delta(), None, "{change:?}");
}

/// The real thing: a device that is read while its switch is off.
#[test]
fn a_device_of_this_machine_is_known_not_to_be_counted() {
    use std::io::Read;

    let backing = tempfile::NamedTempFile::new().unwrap();
    backing.as_file().set_len(1 << 20).unwrap();
    let Some(device) = tidegate_testing::LoopDevice::over(backing.path()) else { return };
    let name = device.name();
    let root = SystemRoot::default();
    let volumes = VolumeTree::read(&root).unwrap();
    let number = volumes.find(name).unwrap().number;
    let look = || {
        let stats = DiskStats::read(&root).unwrap();
        let is_uncounted = uncounted(&root, &volumes, &stats, number).is_some();
        (is_uncounted, stats.get(number).unwrap().counters.reads.ios)
    };
    assert!(!look().0);
    std::fs::write(switch(name), "0").unwrap();
    let (_, counted) = look();
    let mut bytes = Vec::new();
    std::fs::File::open(device.path()).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(
        (bytes.len(), look()),
        (1 << 20, (true, counted)),
        "it was read, and its counters stood still"
    );
    std::fs::write(switch(name), "1").unwrap();
    assert!(!look().0);
}
