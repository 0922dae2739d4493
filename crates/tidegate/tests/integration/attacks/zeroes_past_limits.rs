//! One request that says "4 GiB of zeros", where the storage has to write each of them.
//!
//! A loop device over a file in ramfs can neither punch holes nor zero ranges: what is to be zero is written.

use std::thread;
use std::time::Duration;

use tidegate_nbd::CommandFlags;
use tidegate_nbd::transmission::NbdCommand;

use crate::attacks::storage::MemoryDevice;
use crate::service::Service;
use tidegate_testing::nbd::Raw;

const MIB: u32 = 1 << 20;
/// At 8 MiB/s this takes 64 s.
const RANGE: u32 = 512 * MIB;

fn start(storage: &MemoryDevice) -> Service {
    Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\nbackend = {{ kind = 'file' }}\n\
             [pool.p.export.backup]\npath = '{}'\nlimit = {{ bandwidth = '8MiB/s' }}\n\
             [pool.p.export.database]\npath = 'disk.raw'\n",
            storage.path().display()
        ),
    )
}

fn written(service: &Service) -> f64 {
    let page = service.get("/metrics");
    let sum = "tidegate_payload_bytes_total{pool=\"p\",consumer=\"backup\",op=\"write\"}";
    page.lines().find_map(|line| line.strip_prefix(sum)?.trim().parse().ok()).unwrap_or_default()
}

#[test]
fn zeroes_that_have_to_be_written_keep_to_the_limit_and_end_with_their_session() {
    let Some(storage) = MemoryDevice::on("ramfs", "rw", u64::from(RANGE)) else { return };
    let service = start(&storage);
    let socket = service.path("nbd.sock");
    for flags in [CommandFlags::NONE, CommandFlags::NO_HOLE] {
        let mut greedy = Raw::open(&socket, "backup");
        for cookie in 0..20 {
            greedy.send_flagged(NbdCommand::WriteZeroes, flags, cookie, 0, RANGE);
        }
        // Somebody else's requests go in between.
        let mut database = Raw::open(&socket, "database");
        for _ in 0..50 {
            database.send(NbdCommand::Read, 1, 0, 4096);
            database.data(4096);
        }
        // Without a limit they are all done by now.
        thread::sleep(Duration::from_secs(2));
        greedy.0.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let mut byte = [0];
        assert!(std::io::Read::read(&mut greedy.0, &mut byte).is_err(), "an answer after 2 s of 64 s");
        assert!(written(&service) < f64::from(RANGE));
        drop(greedy);
        // Neither what is left of them nor what they would have cost holds another session up.
        let mut modest = Raw::open(&socket, "backup");
        modest.send_write(1, 0, &[1; 4096]);
        assert_eq!(modest.answer(), (1, 0));
    }
}

#[test]
fn ranges_are_zero_afterwards_and_what_lies_beside_them_is_not() {
    let Some(storage) = MemoryDevice::on("ramfs", "rw", 16 << 20) else { return };
    let service = start(&storage);
    for export in ["backup", "database"] {
        let mut client = Raw::open(&service.path("nbd.sock"), export);
        for (from, length) in [(1000, 600_000), (4096, 8192), (1, 3), (MIB / 2, MIB / 2), (0, 2 * MIB)] {
            for flags in [CommandFlags::NONE, CommandFlags::NO_HOLE | CommandFlags::FUA] {
                client.send_write(1, 0, &vec![7; MIB as usize]);
                assert_eq!(client.answer(), (1, 0));
                client.send_flagged(NbdCommand::WriteZeroes, flags, 2, from.into(), length);
                assert_eq!(client.answer(), (2, 0));
                client.send(NbdCommand::Read, 3, 0, MIB);
                let (_, data) = client.data(MIB as usize);
                let (from, until) = (from as usize, (from + length).min(MIB) as usize);
                assert!(
                    data[from..until].iter().all(|byte| *byte == 0),
                    "{export} {from} {length} {flags:?}"
                );
                assert!(data[..from].iter().chain(&data[until..]).all(|byte| *byte == 7));
            }
        }
    }
}
