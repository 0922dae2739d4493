//! SIGKILL of the gateway at any moment: the kernel keeps what was written, so every block that was
//! acknowledged must read back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tidegate_nbd::CommandFlags;
use tidegate_nbd::transmission::NbdCommand;

use super::client::Client;
use super::gateway::Gateway;
use super::{Chance, report, rounds, seed};

const BLOCK: u64 = 4096;
const SIZE: u64 = 64 << 20;
const SESSIONS: u64 = 6;
/// Each session has its own part of the volume.
const BLOCKS: u64 = SIZE / BLOCK / SESSIONS;
/// Requests under way per session.
const DEPTH: usize = 16;

/// What a block may hold: the stamps of writes that were acknowledged last, or may have been carried out
/// since.
type Blocks = BTreeMap<u64, BTreeSet<u64>>;

#[derive(Debug, Default, Serialize)]
struct Counts {
    experiment: &'static str,
    volume: &'static str,
    seed: u64,
    kills: u64,
    acknowledged: u64,
    blocks_checked: u64,
    lost: u64,
    refused: u64,
}

/// A request that waits for its answer.
struct Under {
    first: u64,
    count: u64,
    stamp: Option<u64>,
}

/// Writes until the connection ends: what its blocks may hold afterwards, how many requests were
/// acknowledged, and how many refused.
fn write_until_killed(
    mut client: Client,
    number: u64,
    mut blocks: Blocks,
    mut chance: Chance,
) -> (Blocks, u64, u64) {
    let (mut under, mut busy) = (BTreeMap::<u64, Under>::new(), BTreeSet::new());
    let (mut acknowledged, mut refused, mut serial) = (0, 0, chance.next() << 24);
    let mut turn = |under: &mut BTreeMap<u64, Under>, blocks: &mut Blocks| -> io::Result<()> {
        while under.len() < DEPTH {
            let count = [1, 1, 2, 8, 64, 200][chance.below(6) as usize];
            let first = number * BLOCKS + chance.below(BLOCKS - count);
            if (first..first + count).any(|block| busy.contains(&block)) {
                if under.is_empty() { continue } else { break }
            }
            let mut flags = if chance.percent(20) { CommandFlags::FUA } else { CommandFlags::NONE };
            let kind = chance.below(10);
            serial += 1;
            let (command, stamp) = match kind {
                0 => (NbdCommand::Flush, None),
                1 => (NbdCommand::WriteZeroes, Some(0)),
                _ => (NbdCommand::Write, Some(serial)),
            };
            if command == NbdCommand::WriteZeroes && chance.percent(50) {
                flags = flags | CommandFlags::NO_HOLE;
            }
            let count = if stamp.is_some() { count } else { 0 };
            if let Some(stamp) = stamp {
                for block in first..first + count {
                    busy.insert(block);
                    // Nothing was ever written there: it reads as zeroes.
                    blocks.entry(block).or_insert_with(|| [0].into()).insert(stamp);
                }
            }
            let payload: Vec<u8> = match command {
                NbdCommand::Write => serial.to_be_bytes().repeat((count * BLOCK / 8) as usize),
                _ => Vec::new(),
            };
            let (offset, flags) = match command {
                NbdCommand::Flush => (0, CommandFlags::NONE),
                _ => (first * BLOCK, flags),
            };
            let cookie = client.send(command, flags, offset, (count * BLOCK) as u32, &payload)?;
            under.insert(cookie, Under { first, count, stamp });
        }
        let reply = client.reply()?;
        let Under { first, count, stamp } = under.remove(&reply.cookie).unwrap();
        for block in first..first + count {
            busy.remove(&block);
            if let Some(stamp) = stamp.filter(|_| reply.error == 0) {
                blocks.insert(block, [stamp].into());
            }
        }
        if reply.error == 0 {
            acknowledged += 1;
        } else {
            refused += 1;
        }
        Ok(())
    };
    // The connection ends when the gateway does.
    while turn(&mut under, &mut blocks).is_ok() {}
    (blocks, acknowledged, refused)
}

/// Compares the volume with what it may hold, and settles on what it does.
fn check(gateway: &Gateway, sessions: &mut [Blocks], counts: &mut Counts) {
    const AT_ONCE: u64 = 256;
    let mut client = gateway.client().unwrap();
    for start in (0..SIZE / BLOCK).step_by(AT_ONCE as usize) {
        let data = client.read(start * BLOCK, (AT_ONCE * BLOCK) as u32).unwrap();
        for (block, page) in (start..).zip(data.chunks_exact(BLOCK as usize)) {
            let blocks = sessions.get_mut((block / BLOCKS) as usize);
            let Some(allowed) = blocks.and_then(|blocks| blocks.get_mut(&block)) else { continue };
            let words: BTreeSet<u64> =
                page.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().unwrap())).collect();
            counts.blocks_checked += 1;
            // A write that was not acknowledged may be torn; what it is mixed with must be allowed, too.
            if !words.is_subset(allowed) {
                counts.lost += 1;
                eprintln!("block {block} holds {words:x?}, and may hold {allowed:x?}");
            }
            *allowed = words;
        }
    }
}

fn kill_again_and_again(volume: &'static str, direct: bool, law: &str, kills: u64) {
    let mut gateway = Gateway::new(|folder| {
        File::create(folder.join("x")).unwrap().set_len(SIZE).unwrap();
        format!(
            "listen = ['unix:{}/s']\n[pool.p]\nbackend = {{ kind = 'file', direct = {direct} \
                }}\n{law}[pool.p.export.x]\npath = 'x'\n",
            folder.display()
        )
    });
    let mut counts = Counts { experiment: "kill", volume, seed: seed(), kills, ..Counts::default() };
    let mut chance = Chance::new(counts.seed);
    let mut blocks: Vec<Blocks> = (0..SESSIONS).map(|_| Blocks::new()).collect();
    gateway.start();
    for _ in 0..kills {
        let sessions: Vec<_> = (0..)
            .zip(std::mem::take(&mut blocks))
            .map(|(number, blocks)| {
                let (client, chance) = (gateway.client().unwrap(), Chance::new(chance.next()));
                thread::spawn(move || write_until_killed(client, number, blocks, chance))
            })
            .collect();
        // A moment by chance: no condition is waited for.
        thread::sleep(Duration::from_millis(50 + chance.below(500)));
        gateway.kill();
        for session in sessions {
            let (session_blocks, acknowledged, refused) = session.join().unwrap();
            blocks.push(session_blocks);
            counts.acknowledged += acknowledged;
            counts.refused += refused;
        }
        gateway.start();
        check(&gateway, &mut blocks, &mut counts);
    }
    report(&counts);
    assert!(counts.acknowledged > 0 && counts.blocks_checked > 0, "nothing was tried");
    assert_eq!((counts.lost, counts.refused), (0, 0), "acknowledged blocks that are not there");
}

#[test]
fn what_was_acknowledged_outlives_sigkill() {
    kill_again_and_again("file", false, "", rounds(3));
}

#[test]
fn what_was_acknowledged_outlives_sigkill_with_direct_io_and_a_law() {
    kill_again_and_again("file, direct, law = window", true, "law = 'window'\ntarget = '5ms'\n", rounds(2));
}
