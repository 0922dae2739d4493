//! Clients that make one export's requests occupy the pool's memory: other exports must not notice.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use tidegate_nbd::transmission::NbdCommand;

use crate::service::Service;
use tidegate_testing::nbd::{Raw, request};
use tidegate_testing::until;

const MIB: u32 = 1 << 20;

/// The margins are wide because the machine may be busy: before, each of these waits took a minute.
const SOON: Duration = Duration::from_secs(20);

const POOL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'file' }
law = 'window'
target = '15ms'
[pool.p.limits]
pool_memory = '128MiB'
[pool.p.export.database]
path = 'disk.raw'
protected = true
[pool.p.export.backup]
path = 'backup.raw'
shares = 1
limit = { iops = '1 IO/s', bandwidth = '1MiB/s' }
";

fn start() -> Service {
    Service::start_beside("serve", &[], POOL, &[("backup.raw", 64 << 20)])
}

fn buffered(service: &Service) -> f64 {
    service.metric("tidegate_pool_buffered_bytes{pool=\"p\"}").unwrap()
}

/// Requests of the protected export are answered at once, small and large ones.
fn victim_is_served(service: &Service) {
    let mut victim = Raw::open(&service.path("nbd.sock"), "database");
    let began = Instant::now();
    for cookie in 0..20 {
        victim.send(NbdCommand::Read, cookie, 0, 4096);
        assert_eq!(victim.data(4096).0, cookie);
    }
    victim.send_write(20, 0, &vec![1; 4 * MIB as usize]);
    assert_eq!(victim.answer(), (20, 0));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

fn hoarders(service: &Service, count: usize) -> Vec<Raw> {
    (0..count).map(|_| Raw::open(&service.path("nbd.sock"), "backup")).collect()
}

#[test]
fn announced_payloads_that_never_come() {
    let service = start();
    let mut hoarders = hoarders(&service, 16);
    hoarders.iter_mut().for_each(|hoarder| hoarder.send(NbdCommand::Write, 1, 0, 32 * MIB));
    until("the headers to arrive", || (buffered(&service) >= f64::from(16 * MIB)).then_some(()));
    assert!(buffered(&service) <= f64::from(32 * MIB), "{}", buffered(&service));
    victim_is_served(&service);
    drop(hoarders);
    let began = Instant::now();
    until("the memory to come back", || (buffered(&service) == 0.0).then_some(()));
    assert!(began.elapsed() < SOON);
}

#[test]
fn payloads_that_come_in_part() {
    let service = start();
    let mut hoarders = hoarders(&service, 8);
    let part = vec![0; 9 * MIB as usize];
    for hoarder in &mut hoarders {
        hoarder.send(NbdCommand::Write, 1, 0, 32 * MIB);
        hoarder.0.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Those that are not read from any more take less than a part.
        drop(hoarder.0.write_all(&part));
    }
    victim_is_served(&service);
}

#[test]
fn replies_that_are_not_taken_and_requests_that_are_queued() {
    let service = start();
    let mut hoarders = hoarders(&service, 32);
    for hoarder in &mut hoarders {
        let requests: Vec<u8> =
            (0..128).flat_map(|cookie| request(NbdCommand::Read, cookie, 0, MIB)).collect();
        hoarder.0.write_all(&requests).unwrap();
    }
    until("the hoard", || (buffered(&service) >= f64::from(24 * MIB)).then_some(()));
    victim_is_served(&service);
    // The limit of the export would keep what is queued for minutes.
    drop(hoarders);
    let began = Instant::now();
    until("the memory to come back", || (buffered(&service) <= f64::from(2 * MIB)).then_some(()));
    assert!(began.elapsed() < SOON);
}

/// Each part comes or goes in time, and the whole takes for ever.
#[test]
fn a_client_that_drips_its_requests_or_takes_its_replies_in_drops_is_cut() {
    let pool = POOL.replace("pool_memory = '128MiB'", "pool_memory = '128MiB'\nreply_deadline = '1s'");
    let service = Service::start_beside("serve", &[], &pool, &[("backup.raw", 64 << 20)]);
    let open = || Raw::open(&service.path("nbd.sock"), "database");
    let [mut idle, mut header, mut payload, mut replies] = [open(), open(), open(), open()];
    header.0.write_all(&request(NbdCommand::Flush, 1, 0, 0)[..27]).unwrap();
    payload.send(NbdCommand::Write, 1, 0, MIB);
    until("the end of the payload's connection", || payload.0.write_all(&[0]).is_err().then_some(()));
    assert!(header.is_closed());
    replies.send(NbdCommand::Read, 1, 0, 8 * MIB);
    until("the end of the reply's connection", || {
        replies.0.read_exact(&mut [0; 4096]).unwrap();
        service.log().contains("the client does not take its replies").then_some(())
    });
    // Between two requests a client may wait.
    assert_eq!(idle.ask(NbdCommand::Flush, 0, 0), 0);
}
