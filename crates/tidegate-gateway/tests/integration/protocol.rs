//! The protocol beyond reads and writes: block status, extended headers, fast zeroes, caching, and options in
//! any order.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use crate::common::chunked::{Chunked, WholeReply};
use crate::common::{MIB, Served, emulated_pool, file, file_pool, pool_name, qemu_io, run};
use crate::upstream::servers::{Server, upstream_pool};
use tidegate_gateway::BackendConfig;
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, WireRequest};
use tidegate_nbd::{AllocationExtent, AllocationState, CommandFlags, Errno, MOST_EXTENTS, TransmissionFlags};

const CHUNKED: [MessageStyle; 2] = [MessageStyle::Structured, MessageStyle::Extended];

/// The volume of these tests: 64 MiB with data in 1 MiB at 16 MiB, and 64 KiB at 40 MiB.
fn fill(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&vec![0xa5; MIB as usize], 16 * MIB).unwrap();
    file.write_all_at(&[0x5a; 65_536], 40 * MIB).unwrap();
}

fn extents() -> Vec<AllocationExtent> {
    let (data, hole) = (AllocationState::DATA, AllocationState::HOLE);
    [(16 * MIB, hole), (MIB, data), (23 * MIB, hole), (65_536, data), (24 * MIB - 65_536, hole)]
        .map(|(length, state)| AllocationExtent { length, state })
        .to_vec()
}

/// A sparse volume in a file, and one on an emulated device.
fn sparse() -> Vec<Served> {
    let files = Served::start(|directory| {
        let pool = file_pool(directory, &["vol"], 64 * MIB);
        fill(&directory.join("vol"));
        vec![pool]
    });
    let emulated = Served::start(|_| vec![emulated_pool(&["other", "vol"], 64 * MIB, 20_000.0)]);
    qemu_io(&emulated.uri("other"), &["write -P 1 63M 1M"]);
    qemu_io(&emulated.uri("vol"), &["write -P 0xa5 16M 1M", "write -P 0x5a 40M 64k"]);
    vec![files, emulated]
}

/// A gateway over each kind of server that tells of allocation, each with the volume of these tests.
fn over_each(directory: &Path) -> Vec<(Server, Served)> {
    let image = |label: &str| {
        std::fs::create_dir(directory.join(label)).unwrap();
        let image = file(&directory.join(label), "image", 64 * MIB);
        fill(&image);
        image
    };
    let nbdkit = Server::nbdkit(&directory.join("nbdkit.sock"), &["file", image("a").to_str().unwrap()]);
    let qemu = Server::qemu_nbd(&directory.join("qemu.sock"), &image("b"), "disk");
    let over = |server: &Server, export: &str| {
        Served::start(|_| vec![upstream_pool(&server.socket, &[("vol", export)])])
    };
    let (first, second) = (over(&nbdkit, ""), over(&qemu, "disk"));
    vec![(nbdkit, first), (qemu, second)]
}

/// Offset, length and description of each extent, as `nbdinfo` prints them.
fn nbdinfo_map(uri: &str) -> Vec<(u64, u64, String)> {
    let said = run("nbdinfo", &["--map", uri]);
    let extent = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next().unwrap().parse().unwrap();
        let (offset, length) = (number(), number());
        (offset, length, words.last().unwrap().to_owned())
    };
    said.lines().map(extent).collect()
}

fn expected_map() -> Vec<(u64, u64, String)> {
    let mut at = 0;
    let told = extents().into_iter().map(|AllocationExtent { length, state }| {
        let offset = at;
        at += length;
        (offset, length, if state.hole { "hole,zero" } else { "data" }.to_owned())
    });
    told.collect()
}

#[test]
fn nbdinfo_and_qemu_img_see_the_holes() {
    let directory = tempfile::tempdir().unwrap();
    let (servers, over): (Vec<Server>, Vec<Served>) = over_each(directory.path()).into_iter().unzip();
    let mut all = sparse();
    all.extend(over);
    let own = all[0].socket();
    all.push(Served::start(|_| vec![upstream_pool(&own, &[("vol", "vol")])]));
    for served in &all {
        assert_eq!(nbdinfo_map(&served.uri("vol")), expected_map());
        let told = run("qemu-img", &["map", "--output=json", "-f", "raw", &served.uri("vol")]);
        let data: Vec<&str> = told.lines().filter(|line| line.contains("\"data\": true")).collect();
        assert_eq!(data.len(), 2, "{told}");
        assert!(data[0].contains("\"start\": 16777216, \"length\": 1048576"), "{told}");
    }
    drop(servers);
}

#[test]
fn a_copy_of_a_sparse_volume_is_sparse() {
    let directory = tempfile::tempdir().unwrap();
    for served in sparse() {
        let copy = directory.path().join("copy");
        run("nbdcopy", &[&served.uri("vol"), copy.to_str().unwrap()]);
        let blocks = std::fs::metadata(&copy).unwrap().blocks() * 512;
        assert!(blocks <= 2 * MIB, "{blocks} bytes are allocated");
        // And back again, over data: zeroes are written as holes.
        let back = Served::start(|directory| vec![file_pool(directory, &["vol"], 64 * MIB)]);
        qemu_io(&back.uri("vol"), &["write -P 1 0 64M"]);
        run("nbdcopy", &[copy.to_str().unwrap(), &back.uri("vol")]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", copy.to_str().unwrap(), &back.uri("vol")]);
        assert_eq!(nbdinfo_map(&back.uri("vol")), expected_map());
        std::fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn a_block_status_is_told_in_both_styles_and_within_what_was_asked() {
    for served in sparse() {
        for style in CHUNKED {
            let mut client = Chunked::open(&served.socket(), "vol", style);
            let whole = client.ask(NbdCommand::BlockStatus, 0, 64 * MIB);
            assert_eq!(whole.extents, extents());
            let one = client.ask_with(NbdCommand::BlockStatus, CommandFlags::REQ_ONE, 16 * MIB, 8 * MIB);
            assert_eq!(one.extents, [AllocationExtent { length: MIB, state: AllocationState::DATA }]);
            let part = client.ask(NbdCommand::BlockStatus, 15 * MIB, 2 * MIB);
            let lengths: Vec<u64> = part.extents.iter().map(|extent| extent.length).collect();
            assert_eq!(lengths, [MIB, MIB]);
            let beyond = client.ask(NbdCommand::BlockStatus, 0, 64 * MIB + 1);
            assert_eq!(beyond.failed, Some(Errno::Inval));
            let changed = client.ask(NbdCommand::WriteZeroes, 16 * MIB, MIB);
            assert_eq!(changed, WholeReply::default());
            let now = client.ask_with(NbdCommand::BlockStatus, CommandFlags::REQ_ONE, 0, 40 * MIB);
            assert_eq!(now.extents, [AllocationExtent { length: 40 * MIB, state: AllocationState::HOLE }]);
            qemu_io(&served.uri("vol"), &["write -P 0xa5 16M 1M"]);
        }
    }
}

#[test]
fn a_volume_in_many_pieces_is_told_in_answers_of_bounded_length() {
    let served = Served::start(|directory| {
        let pool = file_pool(directory, &["vol"], 64 * MIB);
        let file = File::options().write(true).open(directory.join("vol")).unwrap();
        (0..4096).for_each(|at| file.write_all_at(&[1; 4096], 16_384 * at).unwrap());
        vec![pool]
    });
    let mut client = Chunked::open(&served.socket(), "vol", MessageStyle::Extended);
    let first = client.ask(NbdCommand::BlockStatus, 0, 64 * MIB).extents;
    assert_eq!(first.len(), MOST_EXTENTS);
    assert_eq!(first[1], AllocationExtent { length: 12_288, state: AllocationState::HOLE });
    assert_eq!(nbdinfo_map(&served.uri("vol")).len(), 2 * 4096);
    served.wait_until(|pool| pool.bytes_in_use.get() == 0);
}

/// Two terabytes and more: lengths that compact headers cannot say.
#[test]
fn requests_beyond_4_gib_are_one_request_under_extended_headers() {
    const SIZE: u64 = 1 << 36;
    const WRITTEN: u64 = 48 << 30;
    let served = Served::start(|directory| vec![file_pool(directory, &["vol"], SIZE)]);
    let through = Served::start(|_| vec![upstream_pool(&served.socket(), &[("vol", "vol")])]);
    for gateway in [&served, &through] {
        qemu_io(&gateway.uri("vol"), &["write -P 7 48G 64k"]);
        let mut client = Chunked::open(&gateway.socket(), "vol", MessageStyle::Extended);
        let told = client.ask(NbdCommand::BlockStatus, 0, SIZE).extents;
        assert_eq!(told.first().map(|extent| extent.length), Some(WRITTEN));
        assert_eq!(told.iter().map(|extent| extent.length).sum::<u64>(), SIZE);
        let one = client.ask_with(NbdCommand::BlockStatus, CommandFlags::REQ_ONE, WRITTEN, SIZE - WRITTEN);
        assert_eq!(one.extents, [AllocationExtent { length: 65_536, state: AllocationState::DATA }]);
        let zeroes = client.ask_with(NbdCommand::WriteZeroes, CommandFlags::FAST_ZERO, 0, SIZE);
        assert_eq!(zeroes, WholeReply::default());
        let told = client.ask(NbdCommand::BlockStatus, 0, SIZE).extents;
        assert_eq!(told, [AllocationExtent { length: SIZE, state: AllocationState::HOLE }]);
        assert_eq!(client.ask(NbdCommand::Trim, SIZE / 2, SIZE / 2), WholeReply::default());
        let long = client.ask(NbdCommand::Read, 0, 1 << 33);
        assert_eq!(long.failed, Some(Errno::Overflow));
        let beyond = client.ask(NbdCommand::BlockStatus, 0, 1 << 63);
        assert_eq!(beyond.failed, Some(Errno::Inval));
    }
    // Old clients with compact headers go on step by step.
    let map = nbdinfo_map(&served.uri("vol"));
    assert_eq!(map, [(0, SIZE, "hole,zero".to_owned())]);
}

#[test]
fn long_writes_go_through_two_gateways_under_extended_headers() {
    let served = Served::start(|directory| vec![file_pool(directory, &["vol"], 64 * MIB)]);
    let through = Served::start(|_| vec![upstream_pool(&served.socket(), &[("vol", "vol")])]);
    let mut client = Chunked::open(&through.socket(), "vol", MessageStyle::Extended);
    for (cookie, length) in [(1000, 512), (1001, 65_536), (1002, MIB), (1003, 32 * MIB)] {
        let write = WireRequest::new(NbdCommand::Write, CommandFlags::NONE, cookie, MIB, length);
        let payload = vec![cookie as u8; length as usize];
        assert_eq!(client.send(&write, &payload), WholeReply::default(), "{length}");
        assert!(client.ask(NbdCommand::Read, MIB, length).data == payload, "{length}");
    }
    assert_eq!(client.ask(NbdCommand::Flush, 0, 0), WholeReply::default());
}

/// QEMU's client does, up to version 10 at least.
#[test]
fn a_write_without_the_flag_for_its_payload_is_a_write() {
    let served = Served::start(|directory| vec![file_pool(directory, &["vol"], 64 * MIB)]);
    let mut client = Chunked::open(&served.socket(), "vol", MessageStyle::Extended);
    let write = WireRequest::new(NbdCommand::Write, CommandFlags::NONE, 1000, MIB, 512u32);
    let mut bytes = write.encode(MessageStyle::Extended).to_vec();
    bytes[5] &= !0x20;
    client.stream.write_all(&[&bytes[..], &[7; 512]].concat()).unwrap();
    let mut reply = [0; 32];
    client.stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0, 1, 0, 0], "done, without an error");
    assert_eq!(client.ask(NbdCommand::Read, MIB, 512).data, [7; 512]);
}

#[test]
fn contexts_may_be_named_in_the_request_and_other_payloads_are_refused() {
    let [served, _] = &sparse()[..] else { unreachable!() };
    let mut client = Chunked::open(&served.socket(), "vol", MessageStyle::Extended);
    assert!(client.terms.geometry.flags.contains(TransmissionFlags::BLOCK_STATUS_PAYLOAD));
    let named = WireRequest {
        has_payload: true,
        ..WireRequest::new(NbdCommand::BlockStatus, CommandFlags::NONE, 70, 16 * MIB, 12u32)
    };
    let query = |length: u64, id: u32| [&length.to_be_bytes()[..], &id.to_be_bytes()].concat();
    let context = client.terms.allocation.unwrap();
    let told = client.send(&named, &query(MIB, context));
    assert_eq!(told.extents, [AllocationExtent { length: MIB, state: AllocationState::DATA }]);
    for (length, payload) in [
        (12u64, query(MIB, context + 1)),
        (12, query(u64::MAX, context)),
        (8, MIB.to_be_bytes().to_vec()),
        (16, [query(MIB, context), context.to_be_bytes().to_vec()].concat()),
        (100_000, vec![1; 100_000]),
    ] {
        let refused = client.send(&WireRequest { length, ..named }, &payload);
        assert_eq!(refused.failed, Some(Errno::Inval), "{length}");
    }
    let read = WireRequest { command: NbdCommand::Read, length: 4096, ..named };
    assert_eq!(client.send(&read, &[7; 4096]).failed, Some(Errno::Inval));
    assert_eq!(client.ask(NbdCommand::Read, 16 * MIB, 4096).data, [0xa5; 4096], "still in step");
}

#[test]
fn a_read_of_zeroes_is_a_hole_where_replies_have_chunks() {
    for served in sparse() {
        for style in CHUNKED {
            let mut client = Chunked::open(&served.socket(), "vol", style);
            let zeroes = client.ask(NbdCommand::Read, MIB, 65_536);
            assert_eq!((zeroes.data.len(), &zeroes.holes[..]), (0, &[(MIB, 65_536)][..]));
            let mixed = client.ask(NbdCommand::Read, 16 * MIB - 4096, 8192);
            assert_eq!((mixed.data.len(), mixed.holes.len()), (8192, 0));
            // Whole reads are asked for, and one hole is whole.
            let whole = client.ask_with(NbdCommand::Read, CommandFlags::DF, 16 * MIB - 4096, 8192);
            assert_eq!(whole.data, mixed.data);
        }
        let mut simple = tidegate_testing::nbd::Raw::open(&served.socket(), "vol");
        simple.send(NbdCommand::Read, 1, MIB, 4096);
        assert_eq!(simple.data(4096), (1, vec![0; 4096]));
    }
}

#[test]
fn zeroes_are_fast_or_refused_at_once() {
    let [served, _] = &sparse()[..] else { unreachable!() };
    let json = run("nbdinfo", &["--json", &served.uri("vol")]);
    assert!(json.contains("\"can_fast_zero\": true"), "{json}");
    qemu_io(&served.uri("vol"), &["write -P 3 0 4M", "write -z -u -n 1M 2M", "read -P 0 1M 2M"]);
    let mut client = Chunked::open(&served.socket(), "vol", MessageStyle::Structured);
    let fast = |client: &mut Chunked, offset, length| {
        client.ask_with(NbdCommand::WriteZeroes, CommandFlags::FAST_ZERO, offset, length).failed
    };
    assert_eq!(fast(&mut client, 0, MIB), None);
    assert_eq!(fast(&mut client, 3 * MIB + 512, 8192), Some(Errno::NotSup), "its edges would be written");
    assert_eq!(client.ask(NbdCommand::Read, 3 * MIB, 65_536).data, [3; 65_536], "and nothing was done");
    assert_eq!(client.ask(NbdCommand::WriteZeroes, 3 * MIB + 512, 8192).failed, None);
}

#[test]
fn what_is_cached_is_read_once_and_counts() {
    let directory = tempfile::tempdir().unwrap();
    let (_servers, over): (Vec<Server>, Vec<Served>) = over_each(directory.path()).into_iter().unzip();
    let mut all = over;
    all.extend(sparse().into_iter().take(1));
    let caching: Vec<&Served> = all.iter().filter(|served| can_cache(served)).collect();
    assert!(caching.len() >= 2, "a file, and an upstream with a cache");
    for served in caching {
        // nbdinfo reads the beginning.
        let reads = served.pool().consumers[0].reads.count;
        let mut client = Chunked::open(&served.socket(), "vol", MessageStyle::Structured);
        assert_eq!(client.ask(NbdCommand::Cache, 8 * MIB, 32 * MIB), WholeReply::default());
        let beyond = client.ask(NbdCommand::Cache, 60 * MIB, 8 * MIB);
        assert_eq!(beyond.failed, Some(Errno::Inval));
        let flagged = client.ask_with(NbdCommand::Cache, CommandFlags::DF, 0, 4096);
        assert_eq!(flagged.failed, Some(Errno::Inval));
        let consumer = served.pool().consumers.remove(0);
        assert_eq!((consumer.caches, consumer.reads.count), (1, reads));
        served.wait_until(|pool| pool.bytes_in_use.get() == 0);
    }
}

fn can_cache(served: &Served) -> bool {
    run("nbdinfo", &["--json", &served.uri("vol")]).contains("\"can_cache\": true")
}

#[test]
fn what_has_no_cache_does_not_offer_one() {
    let direct = Served::start(|directory| {
        let mut pool = file_pool(directory, &["vol"], MIB);
        pool.name = pool_name("direct");
        pool.backend = BackendConfig::File { direct: true };
        vec![pool]
    });
    assert!(!can_cache(&direct));
    let mut client = Chunked::open(&direct.socket(), "vol", MessageStyle::Extended);
    assert_eq!(client.ask(NbdCommand::Cache, 0, 4096).failed, Some(Errno::Inval));
}

/// libnbd's shell asks for options one by one.
#[test]
fn libnbds_shell_asks_for_options_in_its_own_order() {
    let [served, _] = &sparse()[..] else { unreachable!() };
    let script = format!(
        "h.set_opt_mode(True)\n\
         h.add_meta_context('base:allocation')\n\
         h.add_meta_context('qemu:dirty-bitmap:none')\n\
         h.connect_uri('{}')\n\
         found = []\n\
         h.opt_list_meta_context(lambda name: found.append(name) or 0)\n\
         assert found == ['base:allocation'], found\n\
         h.opt_info()\n\
         assert h.can_meta_context('base:allocation')\n\
         names = []\n\
         h.opt_list(lambda name, text: names.append(name) or 0)\n\
         assert names == ['vol'], names\n\
         h.opt_go()\n\
         assert h.can_meta_context('base:allocation') and h.can_cache() and h.can_fast_zero()\n\
         assert not h.can_meta_context('qemu:dirty-bitmap:none')\n\
         told = []\n\
         h.block_status(64 << 20, 0, lambda c, o, e, err: told.append((c, o, e)) or 0)\n\
         assert told[0][2][:4] == [16 << 20, 3, 1 << 20, 0], told\n\
         h.block_status(1 << 20, 16 << 20, lambda c, o, e, err: told.append(e) or 0, nbd.CMD_FLAG_REQ_ONE)\n\
         assert told[1] == [1 << 20, 0], told\n\
         h.cache(1 << 20, 16 << 20)\n\
         assert h.pread(512, 16 << 20) == b'\\xa5' * 512\n\
         chunks = []\n\
         note = lambda data, offset, kind, err: chunks.append((offset, len(data), kind)) or 0\n\
         assert h.pread_structured(8192, (16 << 20) - 4096, note, nbd.CMD_FLAG_DF) is not None\n\
         assert chunks == [((16 << 20) - 4096, 8192, nbd.READ_DATA)], chunks\n\
         h.pread_structured(4096, 0, note)\n\
         assert chunks[1] == (0, 4096, nbd.READ_HOLE), chunks\n\
         h.zero(1 << 20, 16 << 20, nbd.CMD_FLAG_FAST_ZERO)\n\
         print('whole')",
        served.uri("vol")
    );
    // Debian's Python, which has libnbd, and not another one that comes first.
    let mut shell = Command::new("nbdsh");
    let output = shell.env("PATH", "/usr/bin:/bin").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("whole"), "{output:?}");
}

/// An upstream without block status: everything may hold data.
#[test]
fn an_upstream_that_tells_nothing_is_data() {
    let directory = tempfile::tempdir().unwrap();
    let image = file(directory.path(), "image", 8 * MIB);
    let socket = directory.path().join("nbdkit.sock");
    let image = image.to_str().unwrap();
    let server = Server::nbdkit(&socket, &["--no-sr", "file", image]);
    let served = Served::start(|_| vec![upstream_pool(&server.socket, &[("vol", "")])]);
    for style in CHUNKED {
        let mut client = Chunked::open(&served.socket(), "vol", style);
        let told = client.ask(NbdCommand::BlockStatus, 4096, 8 * MIB - 4096).extents;
        assert_eq!(told, [AllocationExtent { length: 8 * MIB - 4096, state: AllocationState::DATA }]);
    }
}
