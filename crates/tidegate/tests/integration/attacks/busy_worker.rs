//! Clients that keep the worker of a pool busy with requests that cost the storage nothing.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::{Raw, request};
use tidegate_testing::until;

use crate::service::Service;

const MIB: u32 = 1 << 20;

const POOL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'file' }
target = '15ms'
[pool.p.export.database]
path = 'disk.raw'
protected = true
[pool.p.export.backup]
path = 'backup.raw'
";

fn start() -> Service {
    Service::start_beside("serve", &[], POOL, &[("backup.raw", 64 << 20)])
}

/// Neither limit nor window holds reads of cached data. The worker must not do thousands of them before it
/// looks at a protected one. Counted in their data, and not in time: the machine may be slow for both.
#[test]
fn a_protected_read_waits_for_few_of_the_reads_that_keep_the_worker_busy() {
    let service = start();
    let received = Arc::new(AtomicUsize::new(0));
    let hogs: Vec<_> = (0..4)
        .map(|_| {
            let mut hog = Raw::open(&service.path("nbd.sock"), "backup").0;
            let (mut answers, received) = (hog.try_clone().unwrap(), Arc::clone(&received));
            let taker = std::thread::spawn(move || {
                let mut buffer = vec![0; MIB as usize];
                while let Ok(count @ 1..) = answers.read(&mut buffer) {
                    received.fetch_add(count, Ordering::Relaxed);
                }
            });
            let control = hog.try_clone().unwrap();
            let requests: Vec<u8> =
                (0..32).flat_map(|cookie| request(NbdCommand::Read, cookie, 0, MIB)).collect();
            let sender = std::thread::spawn(move || while hog.write_all(&requests).is_ok() {});
            (control, sender, taker)
        })
        .collect();
    until("the hogs to be busy", || (received.load(Ordering::Relaxed) > 256 * MIB as usize).then_some(()));
    let mut victim = Raw::open(&service.path("nbd.sock"), "database");
    let mut meanwhile: Vec<usize> = (0..200)
        .map(|cookie| {
            let before = received.load(Ordering::Relaxed);
            victim.send(NbdCommand::Read, cookie, cookie * 4096, 4096);
            assert_eq!(victim.data(4096).0, cookie);
            received.load(Ordering::Relaxed) - before
        })
        .collect();
    for (control, sender, taker) in hogs {
        control.shutdown(Shutdown::Both).unwrap();
        sender.join().unwrap();
        taker.join().unwrap();
    }
    meanwhile.sort_unstable();
    // Before, it was some 20 MiB. A quarter of the reads tells: in the others the client itself may have
    // waited for a processor.
    let quarter = meanwhile[meanwhile.len() / 4];
    assert!(quarter < 3 * MIB as usize, "{} KiB of other reads during a protected one", quarter >> 10);
}

/// A read in parts goes on only while somebody waits for it.
#[test]
fn a_read_is_not_carried_out_to_its_end_for_a_client_that_has_gone() {
    let service = start();
    for _ in 0..40 {
        let mut hog = Raw::open(&service.path("nbd.sock"), "backup");
        (0..4).for_each(|cookie| hog.send(NbdCommand::Read, cookie, 0, 32 * MIB));
    }
    let sessions = "tidegate_sessions{pool=\"p\",consumer=\"backup\"}";
    until("the sessions to end", || (service.metric(sessions) == Some(0.0)).then_some(()));
    until("the memory to come back", || {
        (service.metric("tidegate_pool_buffered_bytes{pool=\"p\"}") == Some(0.0)).then_some(())
    });
    let io = std::fs::read_to_string(format!("/proc/{}/io", service.pid())).unwrap();
    let bytes: u64 = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap();
    assert!(bytes < 40 * u64::from(32 * MIB), "{} MiB were read for nobody", bytes >> 20);
}
