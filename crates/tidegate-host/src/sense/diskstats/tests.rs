use std::fs;

use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> DiskStats {
    let mut stats = DiskStats::default();
    parse::disks(text.as_bytes(), &mut stats.disks).unwrap();
    stats
}

fn problem(text: &str) -> parse::DiskstatsFault {
    parse::disks(text.as_bytes(), &mut Vec::new()).unwrap_err()
}

const DM: DeviceNumber = DeviceNumber::new(253, 0);

/// Three kernels' lines of one device.
const BEFORE_4_18: &str = " 253       0 dm-0 10 1 80 40 20 2 160 90 3 100 130\n";
const BEFORE_5_5: &str = " 253       0 dm-0 10 1 80 40 20 2 160 90 3 100 130 5 0 4096 7\n";
const CURRENT: &str = " 253       0 dm-0 10 1 80 40 20 2 160 90 3 100 130 5 0 4096 7 6 8\n";

#[test]
fn every_column_of_every_kernel_is_read() {
    let old = parsed(BEFORE_4_18).disks[0].counters;
    assert_eq!(old.reads, TransferCounters { ios: 10, merged: 1, sectors: 80, ms: 40 });
    assert_eq!(old.writes, TransferCounters { ios: 20, merged: 2, sectors: 160, ms: 90 });
    assert_eq!((old.in_flight, old.busy_ms, old.weighted_ms), (3, 100, 130));
    assert_eq!((old.discards, old.flushes), (None, None));

    let discards = Some(TransferCounters { ios: 5, merged: 0, sectors: 4096, ms: 7 });
    assert_eq!(parsed(BEFORE_5_5).disks[0].counters, DiskCounters { discards, ..old });
    let current = parsed(CURRENT).disks[0];
    assert_eq!(
        current.counters,
        DiskCounters { discards, flushes: Some(FlushCounters { ios: 6, ms: 8 }), ..old }
    );
    assert_eq!((current.number, current.name.as_str()), (DM, "dm-0"));

    // A kernel that adds columns adds them at the end.
    let newer = CURRENT.replace(" 6 8\n", " 6 8 9 10 11\n");
    assert_eq!(parsed(&newer).disks[0], current);
}

#[test]
fn this_machines_own_file_is_read() {
    let stats = DiskStats::read(&SystemRoot::default()).unwrap();
    assert!(!stats.disks().is_empty());
    assert!(stats.disks().is_sorted_by_key(|disk| disk.number));
}

#[test]
fn a_malformed_line_is_named_with_its_column() {
    for (text, line, part) in [
        ("253 0 dm-0 1 2 3\n", 1, "column 7 (milliseconds of reading) is missing"),
        ("\n253 0 dm-0 1 2 3 4 5 6 7 8 9 10 11 12\n", 2, "column 16 (discards merged) is missing"),
        (
            "253 0 dm-0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
            1,
            "column 20 (milliseconds of flushing) is missing",
        ),
        ("253 0 dm-0 1 2 x3 4 5 6 7 8 9 10 11\n", 1, "column 6 (sectors read): expected a number, not `x3`"),
        ("253 0 dm-0 1 2 -3 4 5 6 7 8 9 10 11\n", 1, "column 6 (sectors read): expected a number, not `-3`"),
        ("253 0 dm-0 1 2 99999999999999999999 4 5 6 7 8 9 10 11\n", 1, "column 6 (sectors read)"),
        ("fd 0 dm-0 1 2 3 4 5 6 7 8 9 10 11\n", 1, "column 1 (major): expected a number, not `fd`"),
        ("253\n", 1, "column 2 (minor) is missing"),
        ("253 0\n", 1, "column 3 (name) is missing"),
    ] {
        let wrong = problem(text);
        assert_eq!(wrong.line, line, "{text}");
        assert!(wrong.problem.contains(part), "{}", wrong.problem);
    }
    let long = format!("253 0 {} 1 2 3 4 5 6 7 8 9 10 11\n", "x".repeat(41));
    assert!(problem(&long).problem.contains("column 3 (name)"));
}

#[test]
fn an_error_names_the_file_and_leaves_no_half_of_a_reading() {
    let tree = tempfile::tempdir().unwrap();
    let root = SystemRoot::at(tree.path());
    let unreadable = DiskStats::read(&root).unwrap_err().to_string();
    assert!(unreadable.contains("/proc/diskstats"), "{unreadable}");

    fs::create_dir(tree.path().join("proc")).unwrap();
    let file = tree.path().join("proc/diskstats");
    fs::write(&file, CURRENT).unwrap();
    let mut stats = DiskStats::read(&root).unwrap();
    fs::write(&file, format!("{CURRENT}253 1 dm-1 1 2\n")).unwrap();
    let malformed = stats.read_again(&root).unwrap_err().to_string();
    assert!(malformed.contains("/proc/diskstats:2: column 6"), "{malformed}");
    assert!(stats.disks().is_empty());
}

#[test]
fn a_delta_is_what_happened_between_two_readings() {
    let old = parsed(CURRENT);
    let new = parsed(" 253       0 dm-0 14 1 112 72 21 4 168 98 7 180 450 5 0 4096 7 7 10\n");
    let delta = new.change(&old, DM).unwrap().delta().unwrap();
    assert_eq!(
        delta.reads,
        CompletedRequests { ios: 4, merged: 0, sectors: 32, response_time: Latency::from_millis(32) }
    );
    assert_eq!(delta.reads.mean_response_time(), Some(Latency::from_millis(8)));
    assert_eq!(delta.reads.bytes(), Bytes::from_kib(16));
    assert_eq!(
        delta.writes,
        CompletedRequests { ios: 1, merged: 2, sectors: 8, response_time: Latency::from_millis(8) }
    );
    assert_eq!(delta.discards, Some(CompletedRequests::default()));
    assert_eq!(delta.flushes.unwrap().mean_response_time(), Some(Latency::from_millis(2)));
    assert_eq!((delta.in_flight, delta.busy), (7, Latency::from_millis(80)));
    assert_eq!(delta.mean_outstanding(Duration::from_millis(100)), Some(3.2));
    assert_eq!(delta.mean_outstanding(Duration::ZERO), None);

    let idle = new.change(&new, DM).unwrap().delta().unwrap();
    assert_eq!(idle.reads.mean_response_time(), None, "no requests say nothing");
    assert_eq!(new.change(&old, DeviceNumber::new(8, 0)), None);
}

#[test]
fn columns_of_milliseconds_wrap_at_32_bits() {
    let old = parsed("8 0 sda 1 0 8 4294967290 1 0 8 4294967295 0 4294967295 4294967200\n");
    let new = parsed("8 0 sda 2 0 16 10 2 0 16 0 0 99 100\n");
    let delta = new.change(&old, DeviceNumber::new(8, 0)).unwrap().delta().unwrap();
    assert_eq!(delta.reads.response_time, Latency::from_millis(16));
    assert_eq!(delta.writes.response_time, Latency::from_millis(1));
    assert_eq!(delta.busy, Latency::from_millis(100));
    assert_eq!(delta.weighted, Latency::from_millis(196));
}

#[test]
fn counters_of_requests_wrap_on_32_bit_kernels_only() {
    let old = parsed("8 0 sda 4294967290 0 4294967288 0 0 0 0 0 0 0 0\n").disks[0];
    let new = parsed("8 0 sda 4 0 8 0 0 0 0 0 0 0 0\n").disks[0];
    let wrapped = new.since_with(Some(&old), 32).delta().unwrap();
    assert_eq!((wrapped.reads.ios, wrapped.reads.sectors), (10, 16));
    assert_eq!(
        new.since_with(Some(&old), 64),
        DiskChange::New(ResetReason::WentBack { counter: "reads completed" })
    );

    // A 32-bit program on a 64-bit kernel sees numbers that do not fit 32 bits: they did not wrap there.
    let beyond = parsed("8 0 sda 4294967300 0 0 0 0 0 0 0 0 0 0\n").disks[0];
    assert!(matches!(new.since_with(Some(&beyond), 32), DiskChange::New(_)));
}

#[test]
fn a_device_made_again_under_the_same_name_is_new() {
    let old = parsed(CURRENT);
    let again = parsed(" 253       0 dm-0 2 0 16 3 0 0 0 0 0 3 3 0 0 0 0 0 0\n");
    assert_eq!(
        again.change(&old, DM),
        Some(DiskChange::New(ResetReason::WentBack { counter: "reads completed" }))
    );
    // Reads went on, but the time of the reads went back by more than a wrap explains.
    let odd = parsed(" 253       0 dm-0 11 1 88 30 20 2 160 90 3 100 130 5 0 4096 7 6 8\n");
    assert_eq!(
        odd.change(&old, DM),
        Some(DiskChange::New(ResetReason::WentBack { counter: "milliseconds of reading" }))
    );
}

#[test]
fn a_number_with_another_name_is_another_device() {
    let old = parsed(CURRENT);
    let renamed = parsed(&CURRENT.replace("dm-0", "nbd0"));
    let was = old.disks[0].name;
    assert_eq!(renamed.change(&old, DM), Some(DiskChange::New(ResetReason::OtherName { was })));
    assert!(!renamed.same_devices(&old) && old.same_devices(&parsed(&CURRENT.replace(" 10 ", " 11 "))));
}

#[test]
fn a_weighted_time_that_old_kernels_take_back_makes_no_new_device() {
    let old = parsed(BEFORE_4_18);
    let new = parsed(&BEFORE_4_18.replace("100 130", "99 128").replace(" 3 ", " 4294967295 "));
    let delta = new.change(&old, DM).unwrap().delta().unwrap();
    assert_eq!((delta.busy, delta.weighted, delta.in_flight), (Latency::ZERO, Latency::ZERO, 0));
}

#[test]
fn devices_come_and_go_in_any_order() {
    let line = |minor: u32, ios: u64| format!("253 {minor} dm-{minor} {ios} 0 0 0 0 0 0 0 0 0 0\n");
    // The kernel lists in the order of creation.
    let old = parsed(&[line(5, 1), line(0, 1), line(3, 1)].concat());
    let new = parsed(&[line(7, 2), line(5, 4), line(0, 3)].concat());
    let seen: Vec<_> = new
        .since(&old)
        .map(|(disk, change)| (disk.number.minor, change.delta().map(|delta| delta.reads.ios)))
        .collect();
    assert_eq!(seen, [(0, Some(2)), (5, Some(3)), (7, None)]);
    // Removed and made again while the kernel wrote the list.
    let twice = parsed(&[line(5, 9), line(0, 3), line(5, 1)].concat());
    assert_eq!(twice.disks().len(), 2);
    assert_eq!(twice.get(DeviceNumber::new(253, 5)).unwrap().counters.reads.ios, 1);
}

#[test]
fn a_second_reading_into_the_same_memory_allocates_nothing() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("proc")).unwrap();
    fs::write(tree.path().join("proc/diskstats"), CURRENT.repeat(3)).unwrap();
    let root = SystemRoot::at(tree.path());
    let mut stats = DiskStats::read(&root).unwrap();
    let before = (stats.text.as_ptr(), stats.disks.as_ptr());
    stats.read_again(&root).unwrap();
    assert_eq!((stats.text.as_ptr(), stats.disks.as_ptr()), before);
}

fn counters() -> impl Strategy<Value = String> {
    let columns = prop_oneof![Just(11_usize), Just(15), Just(17), Just(20)];
    columns
        .prop_flat_map(|count| prop::collection::vec(prop_oneof![0..200_u64, any::<u64>()], count))
        .prop_map(|values| values.iter().map(|value| format!(" {value}")).collect())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse::disks(&bytes, &mut Vec::new());
    }

    #[test]
    fn arbitrary_words_never_panic(text in "([0-9a-z -]{0,9}[ \n]){0,60}") {
        let _ = parse::disks(text.as_bytes(), &mut Vec::new());
    }

    #[test]
    fn any_two_readings_compare(old in counters(), new in counters()) {
        let (old, new) = (parsed(&format!("8 0 sda{old}\n")), parsed(&format!("8 0 sda{new}\n")));
        for long in [32, 64] {
            let _ = new.disks[0].since_with(Some(&old.disks[0]), long);
        }
    }

    #[test]
    fn a_step_is_what_was_added_modulo_the_width(old in 0..(1_u64 << 32), added in 0..(1_u64 << 31)) {
        prop_assert_eq!(step(old, (old + added) % (1 << 32), 32), Some(added));
        prop_assert_eq!(step(old, old + added, 64), Some(added));
    }
}

#[test]
fn a_file_that_stands_still_while_requests_are_under_way_is_an_error_where_the_kernel_counts_them() {
    let tree = tempfile::tempdir().unwrap();
    let root = SystemRoot::at(tree.path());
    fs::create_dir_all(tree.path().join("proc/sys/kernel")).unwrap();
    let write = |file: &str, text: &str| fs::write(tree.path().join("proc").join(file), text).unwrap();
    let idle = CURRENT.replace(" 3 100 ", " 0 100 ");
    let other = " 254 0 vda 10 1 80 40 20 2 160 90 0 100 130 5 0 4096 7 6 8\n";
    let second = Duration::from_secs(1);
    for (kernel, text, elapsed, succeeds) in [
        ("6.18.1", CURRENT, second, false),
        ("6.18.1", CURRENT, Duration::from_millis(5), true),
        ("6.18.1", idle.as_str(), second, true),
        ("6.1.0", CURRENT, second, true),
    ] {
        write("sys/kernel/osrelease", kernel);
        write("diskstats", text);
        let before = DiskStats::read(&root).unwrap();
        let mut next = DiskStats::default();
        assert_eq!(next.read_next(&root, &before, elapsed).is_ok(), succeeds, "{kernel} {text} {elapsed:?}");
        // Another device moves.
        write("diskstats", &format!("{text}{other}"));
        next.read_next(&root, &before, elapsed).unwrap();
    }
}
