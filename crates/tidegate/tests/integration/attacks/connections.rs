//! Clients that only connect: others must get their sessions nevertheless.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_nbd::transmission::NbdCommand;

use crate::service::Service;
use tidegate_testing::nbd::{Raw, connect};
use tidegate_testing::until;

const POOL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'file' }
[pool.p.limits]
sessions = 32
[pool.p.export.a]
path = 'disk.raw'
[pool.p.export.b]
path = 'b.raw'
protected = true
";

fn start() -> Service {
    Service::start_beside("serve", &[], POOL, &[("b.raw", 1 << 20)])
}

fn refused(service: &Service, reason: &str) -> f64 {
    service.metric(&format!("tidegate_connections_refused_total{{reason=\"{reason}\"}}")).unwrap()
}

#[test]
fn idle_sessions_of_one_export_leave_places_at_another() {
    let service = start();
    let socket = service.path("nbd.sock");
    let mut hoard = Vec::new();
    while let Some(session) = Raw::try_open(&socket, "a") {
        hoard.push(session);
        assert!(hoard.len() <= 32, "more sessions than there may be");
    }
    assert_eq!(hoard.len(), 16, "half of the pool's sessions");
    let mut victims: Vec<Raw> = (0..12).map(|_| Raw::open(&socket, "b")).collect();
    assert!(victims.iter_mut().all(|victim| victim.ask(NbdCommand::Flush, 0, 0) == 0));
    for _ in 0..50 {
        assert!(Raw::try_open(&socket, "a").is_none());
    }
    assert_eq!(refused(&service, "export_sessions") as u64, 51);
    let (_, log) = service.terminate();
    let lines = log.lines().filter(|line| line.contains("export refused")).count();
    assert!((1..40).contains(&lines), "{lines} lines");
    assert!(log.contains("export_sessions"), "{log}");
}

/// The first words of a client that asks for an export, in two parts.
fn first_words(export: &str) -> (Vec<u8>, Vec<u8>) {
    let name = export.as_bytes();
    let data = [&(name.len() as u32).to_be_bytes()[..], name, &[0, 0]].concat();
    let option = [b"IHAVEOPT", &7u32.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), &data].concat();
    (3u32.to_be_bytes().to_vec(), option)
}

/// Whether a client gets its session that pauses between its words.
fn slow_client_gets_through(socket: &std::path::Path) -> bool {
    const PAUSE: Duration = Duration::from_millis(50);
    let mut stream = connect(socket);
    let (flags, option) = first_words("b");
    thread::sleep(PAUSE);
    let mut greeting = [0; 18];
    let mut reply = [0; 20];
    let mut through = || -> std::io::Result<()> {
        stream.read_exact(&mut greeting)?;
        stream.write_all(&flags)?;
        thread::sleep(PAUSE);
        stream.write_all(&option)?;
        stream.read_exact(&mut reply)
    };
    // NBD_REP_INFO comes first.
    through().is_ok() && reply[12..16] == 3u32.to_be_bytes()
}

#[test]
fn connections_that_say_nothing_do_not_displace_a_slow_client() {
    let service = start();
    let socket = service.path("nbd.sock");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // As many in 50 ms as there were handshakes at once; half of them say half of a first word.
        scope.spawn(|| {
            let mut silent: Vec<UnixStream> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if silent.len() >= 600 {
                    silent.drain(..300);
                }
                if let Ok(mut stream) = UnixStream::connect(&socket) {
                    if silent.len().is_multiple_of(2) {
                        drop(stream.write_all(&[0, 0]));
                    }
                    silent.push(stream);
                }
            }
        });
        until("the flood", || (refused(&service, "displaced") > 0.0 || flooded(&service)).then_some(()));
        let through = (0..10).filter(|_| slow_client_gets_through(&socket)).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(through, 10);
    });
}

fn flooded(service: &Service) -> bool {
    service.metric("tidegate_handshakes_ended_total").unwrap() > 1_000.0
}
