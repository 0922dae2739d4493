//! An upstream with a volatile cache that crashes: a flush or FUA write that the gateway acknowledges must be
//! stable there.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tidegate_nbd::CommandFlags;
use tidegate_nbd::transmission::NbdCommand;

use super::client::Client;
use super::gateway::Gateway;
use super::upstream::{BLOCK, Upstream};
use super::{Chance, report, rounds, seed};

const SESSIONS: u64 = 5;
/// Each session writes to blocks of its own.
const BLOCKS: u64 = 200;
/// Requests under way per session.
const DEPTH: usize = 12;

#[derive(Debug, Default, Serialize)]
struct Counts {
    experiment: &'static str,
    replay: &'static str,
    ends: &'static str,
    seed: u64,
    crashes: u64,
    lost_upstream: u64,
    writes: u64,
    writes_failed: u64,
    flushes: u64,
    flushes_failed: u64,
    violations: Vec<String>,
}

/// How the upstream ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    Crashes,
    /// Crashes, orderly ends, and single connections that break.
    Mixed,
}

enum Under {
    Write {
        block: u64,
        stamp: u64,
        fua: bool,
    },
    /// What was acknowledged before it was sent.
    Flush(BTreeMap<u64, u64>),
}

/// One connection to the gateway: writes, and a flush now and then, until it has sent enough or all is over.
fn session(
    mut client: Client,
    number: u64,
    upstream: &Upstream,
    stamps: &AtomicU64,
    is_over: &AtomicBool,
    chance: &mut Chance,
    counts: &mut Counts,
) -> io::Result<()> {
    let mut under = BTreeMap::<u64, Under>::new();
    // Writes that were acknowledged and not yet flushed.
    let mut acknowledged = BTreeMap::<u64, u64>::new();
    let mut left = 200 + chance.below(3_800);
    loop {
        while under.len() < DEPTH && left > 0 && !is_over.load(Ordering::Relaxed) {
            left -= 1;
            let (cookie, request) = if chance.percent(85) {
                let block = number * 256 + chance.below(BLOCKS);
                let is_busy =
                    |under: &Under| matches!(under, Under::Write { block: busy, .. } if *busy == block);
                if under.values().any(is_busy) {
                    break;
                }
                let (stamp, fua) = (stamps.fetch_add(1, Ordering::Relaxed), chance.percent(10));
                let flags = if fua { CommandFlags::FUA } else { CommandFlags::NONE };
                let payload = stamp.to_be_bytes().repeat(BLOCK as usize / 8);
                let cookie = client.send(NbdCommand::Write, flags, block * BLOCK, BLOCK as u32, &payload)?;
                (cookie, Under::Write { block, stamp, fua })
            } else if under.values().any(|under| matches!(under, Under::Flush(_))) {
                continue;
            } else {
                let cookie = client.send(NbdCommand::Flush, CommandFlags::NONE, 0, 0, &[])?;
                (cookie, Under::Flush(acknowledged.clone()))
            };
            under.insert(cookie, request);
        }
        if under.is_empty() {
            return Ok(());
        }
        let reply = client.reply()?;
        match (under.remove(&reply.cookie).unwrap(), reply.error) {
            (Under::Write { block, stamp, fua }, 0) => {
                counts.writes += 1;
                acknowledged.insert(block, stamp);
                if fua && upstream.stable(block) < stamp {
                    counts
                        .violations
                        .push(format!("block {block}: a FUA write was acknowledged and is not stable"));
                }
            }
            (Under::Write { .. }, _) => counts.writes_failed += 1,
            (Under::Flush(covered), 0) => {
                counts.flushes += 1;
                for (block, stamp) in covered {
                    let is_still_unflushed = acknowledged.get(&block).is_some_and(|last| *last >= stamp);
                    if is_still_unflushed && upstream.stable(block) < stamp {
                        counts
                            .violations
                            .push(format!("block {block}: a flush succeeded and it is not stable"));
                    }
                    if acknowledged.get(&block) == Some(&stamp) {
                        acknowledged.remove(&block);
                    }
                }
            }
            (Under::Flush(_), _) => {
                // The client knows: what was not flushed before may be gone.
                counts.flushes_failed += 1;
                acknowledged.clear();
            }
        }
    }
}

fn sessions(
    gateway_socket: &std::path::Path,
    number: u64,
    upstream: &Upstream,
    stamps: &AtomicU64,
    is_over: &AtomicBool,
    mut chance: Chance,
) -> Counts {
    let mut counts = Counts::default();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(client) = Client::open(gateway_socket, "x") else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let outcome = session(client, number, upstream, stamps, is_over, &mut chance, &mut counts);
        if let Err(error) = outcome {
            counts.violations.push(format!("session {number}: the gateway ended it: {error}"));
        }
    }
    counts
}

fn crash_again_and_again(replay: &'static str, ends: Ends, crashes: u64) {
    let mut gateway = Gateway::new(|folder| {
        let folder = folder.display();
        format!(
            "listen = ['unix:{folder}/s']\n[pool.p]\nbackend = {{ kind = 'nbd', address = \
                'unix:{folder}/up', connections = 4, \
             reconnect = '20s', replay = '{replay}' }}\n[pool.p.export.x]\nupstream = ''\n"
        )
    });
    let upstream = Upstream::start(&gateway.path("up"));
    gateway.start();
    let (stamps, is_over) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
    let mut chance = Chance::new(seed());
    let threads: Vec<_> = (0..SESSIONS)
        .map(|number| {
            let (socket, upstream, chance) =
                (gateway.path("s"), upstream.clone(), Chance::new(chance.next()));
            let (stamps, is_over) = (Arc::clone(&stamps), Arc::clone(&is_over));
            thread::spawn(move || sessions(&socket, number, &upstream, &stamps, &is_over, chance))
        })
        .collect();
    for _ in 0..crashes {
        // A moment by chance: no condition is waited for.
        thread::sleep(Duration::from_millis(20 + chance.below(230)));
        let kind = chance.below(100);
        let away = Duration::from_millis([0, 10, 100][chance.below(3) as usize]);
        match ends {
            Ends::Mixed if kind < 50 => upstream.cut(&mut chance),
            Ends::Mixed if kind < 70 => upstream.end(false, away),
            _ => upstream.end(true, away),
        }
    }
    // The time after the last crash, in which the sessions go on.
    thread::sleep(Duration::from_millis(300));
    is_over.store(true, Ordering::Relaxed);
    let name = if ends == Ends::Mixed { "mixed" } else { "crashes" };
    let mut counts =
        Counts { experiment: "lossy upstream", replay, ends: name, seed: seed(), ..Counts::default() };
    for thread in threads {
        let other = thread.join().unwrap();
        counts.writes += other.writes;
        counts.writes_failed += other.writes_failed;
        counts.flushes += other.flushes;
        counts.flushes_failed += other.flushes_failed;
        counts.violations.extend(other.violations);
    }
    (counts.crashes, counts.lost_upstream) = (crashes, upstream.lost());
    report(&counts);
    assert!(gateway.is_running(), "the gateway ended");
    assert!(counts.writes > 0 && counts.flushes > 0, "nothing was tried");
    assert_eq!(counts.violations, Vec::<String>::new());
}

#[test]
fn a_flush_through_the_gateway_means_what_it_says_though_the_upstream_crashes() {
    crash_again_and_again("reads", Ends::Crashes, rounds(8));
}

#[test]
fn a_flush_through_the_gateway_means_what_it_says_though_connections_break() {
    crash_again_and_again("all", Ends::Mixed, rounds(12));
}
