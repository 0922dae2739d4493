//! Hundreds of writes of single bytes at once to blocks that the storage moves as a whole.
//!
//! The gateway reads such a block, changes it, and writes it back: one change after the other.

use crate::attacks::storage::MemoryDevice;
use crate::service::Service;
use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::Raw;

const BLOCK: u64 = 512;
const SESSIONS: u64 = 8;
const EACH: u64 = BLOCK / SESSIONS;

fn value(offset: u64) -> u8 {
    (offset % 251) as u8 + 1
}

#[test]
fn bytes_that_are_written_at_once_to_one_block_are_all_there() {
    let Some(storage) = MemoryDevice::on("ramfs", "rw", 1 << 20) else { return };
    let service = Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\n\
             backend = {{ kind = 'file', direct = true }}\n[pool.p.export.x]\npath = '{}'\n",
            storage.path().display()
        ),
    );
    let socket = service.path("nbd.sock");
    let mut clients: Vec<Raw> = (0..SESSIONS).map(|_| Raw::open(&socket, "x")).collect();
    // Each client has its bytes of the first block, and parts of the next ones that span two of them.
    for round in 0..EACH {
        for (client, connection) in (0..).zip(&mut clients) {
            let offset = round * SESSIONS + client;
            connection.send_write(round, offset, &[value(offset)]);
            let spanning = (2 + 2 * client) * BLOCK - EACH + 2 * round;
            connection.send_write(EACH + round, spanning, &[value(spanning), value(spanning + 1)]);
        }
    }
    for connection in &mut clients {
        for _ in 0..2 * EACH {
            assert_eq!(connection.answer().1, 0);
        }
    }
    let length = (2 * SESSIONS + 1) * BLOCK;
    clients[0].send(NbdCommand::Read, 1, 0, length as u32);
    let (_, data) = clients[0].data(length as usize);
    let is_written = |offset: u64| {
        offset < BLOCK
            || (0..SESSIONS).any(|client| {
                let first = (2 + 2 * client) * BLOCK - EACH;
                (first..first + 2 * EACH).contains(&offset)
            })
    };
    for (offset, byte) in (0..).zip(data) {
        let expected = if is_written(offset) { value(offset) } else { 0 };
        assert_eq!(byte, expected, "at {offset}");
    }
}
