//! Clients without credentials that take all places for connections and events, and hold pages in memory: the
//! operator was refused, and the service grew by a page for each of them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use tidegate_testing::PATIENCE;

use crate::service::Service;

/// More than readers have places.
const STRANGERS: usize = 80;

const TOKEN: &str = "the-token-of-the-operators";

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks over a connection that stays open. Returns the status, if there is an answer.
fn ask(stream: &mut (impl Read + Write), request: &str) -> Option<u16> {
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    std::str::from_utf8(&answer[9..]).ok()?.parse().ok()
}

/// Runs `commands` while strangers keep their connections busy with small pages.
fn beside_strangers(address: &str, page: &str, commands: impl FnOnce()) {
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..STRANGERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = connect(address);
                    while !stop.load(Ordering::Relaxed)
                        && ask(&mut stream, &format!("GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
                            .is_some()
                    {
                        answered.fetch_add(1, Ordering::Relaxed);
                        // The rest of the answer; it may come with the next one.
                        let _ = stream.read(&mut [0; 65_536]);
                        thread::sleep(std::time::Duration::from_millis(100));
                    }
                }
            });
        }
        while answered.load(Ordering::Relaxed) < 2 * STRANGERS {
            thread::yield_now();
        }
        commands();
        stop.store(true, Ordering::Relaxed);
    });
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn busy_connections_of_strangers_leave_the_operator_in() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    let service = Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\napi.listen = ['127.0.0.1:0', 'unix:api.sock']\n\
             api.operators = '{}'\n[pool.p]\nbackend = {{ kind = 'file' }}\nexport.a = {{ path = 'disk.raw' }}\n",
            token.display()
        ),
    );
    let log = service.log();
    let api = log.lines().find_map(|line| line.split_once("API at ")?.1.split(',').next()).unwrap();
    let release = "{\"for_seconds\":60}";
    let release = format!(
        "POST /v1/releases HTTP/1.1\r\nHost: {api}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{release}",
        release.len()
    );
    for address in [service.address(), api.to_owned()] {
        beside_strangers(&address, "/v1/caller", || {
            for _ in 0..5 {
                let status = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                    .args(["status", "-c"])
                    .arg(service.path("tidegate.toml"))
                    .env("TIDEGATE_RUN_DIR", service.path(""))
                    .output();
                succeeds(&status.unwrap());
                assert_eq!(ask(&mut connect(api), &release), Some(200), "with the token, by TCP");
            }
        });
    }
}

#[test]
fn busy_connections_of_strangers_leave_a_brokers_clients_in() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    let config = format!(
        "listen = '127.0.0.1:0'\nstate = 'state'\ntoken_file = '{}'\n[node.a]\nplace = 'file://{}'\n\
         peak = '60MB/s'\n",
        token.display(),
        folder.path().display()
    );
    let service = Service::start("broker", &config);
    let log = service.log();
    let address =
        log.lines().find_map(|line| line.split_once("on http://")?.1.strip_suffix(" ready")).unwrap();
    beside_strangers(address, "/v1/nodes", || {
        for _ in 0..5 {
            let nodes = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(["transfer", "nodes", "--broker", &format!("http://{address}"), "--token-file"])
                .arg(&token)
                .output();
            succeeds(&nodes.unwrap());
        }
    });
}

#[test]
fn streams_of_strangers_leave_the_operators_events() {
    let service = Service::start(
        "serve",
        "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\napi.listen = ['unix:api.sock']\n[pool.p]\n\
         backend = { kind = 'file' }\nexport.a = { path = 'disk.raw' }\n",
    );
    let events = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut streams: Vec<_> = (0..20).map(|_| connect(&service.address())).collect();
    let answers: Vec<_> = streams.iter_mut().map(|stream| ask(stream, events).unwrap()).collect();
    assert!(answers.contains(&503), "{answers:?}");
    let mut operator = UnixStream::connect(service.path("api.sock")).unwrap();
    operator.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(ask(&mut operator, events), Some(200));
}

#[test]
fn slow_readers_share_few_pages() {
    const READERS: usize = 48;
    let exports: String = (0..1_000).map(|at| format!("export.e{at} = {{ size = '1MiB' }}\n")).collect();
    let service = Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\n\
             backend = {{ kind = 'emulated', preset = 'dc-s4500', memory = '1MiB' }}\n{exports}"
        ),
    );
    let memory = || -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    };
    let page = service.get("/metrics").len();
    let before = memory();
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let mut reader = connect(&service.address());
            set_socket_recv_buffer_size(&reader, 4096).unwrap();
            // Its head comes: the page is made, and held.
            let answer = ask(&mut reader, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(answer, Some(200));
            reader
        })
        .collect();
    let grown = memory().saturating_sub(before);
    // Two forms of a few pages, where each reader had a page of its own.
    assert!(grown < READERS / 2 * page, "{grown} bytes more, for pages of {page}");
    drop(readers);
    assert!(service.get("/metrics").contains("e999"));
}

#[test]
fn a_page_whose_name_was_pointed_here_reads_nothing() {
    let service = Service::start(
        "serve",
        "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[pool.p]\nbackend = { kind = 'file' }\n\
         export.a = { path = 'disk.raw' }\n",
    );
    for page in ["/metrics", "/v1/status", "/v1/events"] {
        let request = |host: &str| format!("GET {page} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let asked = |host: &str| ask(&mut connect(&service.address()), &request(host));
        assert_eq!(asked("evil.example:9809"), Some(403), "{page}");
        assert_eq!(asked("localhost.evil.example"), Some(403), "{page}");
        for ours in ["127.0.0.1", "localhost:9809", "[::1]", "gateway"] {
            assert_eq!(asked(ours), Some(200), "{page} {ours}");
        }
    }
}
