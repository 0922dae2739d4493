//! A false server of NATS, or a host on the way to one without TLS, that sends more than anyone can keep.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use tidegate_nbd::transmission::NbdCommand;

use crate::service::Service;
use tidegate_testing::nbd::Raw;
use tidegate_testing::until;

/// The bytes that the server sends on a connection, at most.
const MOST_SENT: usize = 256 << 20;

/// The memory that the connection may cost: buffers of the kernel's size, and messages that are allowed.
const ALLOWED_KIB: u64 = 96 << 10;

const INFO: &str = "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n";

/// What the server sends instead of what it should, again and again; the first part comes once.
struct Flood {
    is_introduced: bool,
    begin: &'static str,
    piece: Vec<u8>,
}

fn floods() -> Vec<Flood> {
    let allowed = [b"MSG tidegate.c.stats.x 1 131072\r\n", &[0; 131_072][..], b"\r\n"].concat();
    let floods = [
        (false, "INFO {\"server_id\":\"", vec![b'x'; 65_536]),
        (true, "INFO {\"server_id\":\"", vec![b'x'; 65_536]),
        (true, "MSG tidegate.c.stats.x 1 4000000000\r\n", vec![0; 65_536]),
        (true, "MSG tidegate.c.stats.x 1 67108864\r\n", vec![0; 65_536]),
        (true, "HMSG tidegate.c.stats.x 1 67108864 67108864\r\nNATS/1.0\r\n", b"a: b\r\n".to_vec()),
        (true, "", b"PING\r\n".to_vec()),
        (true, "", allowed),
    ];
    floods.into_iter().map(|(is_introduced, begin, piece)| Flood { is_introduced, begin, piece }).collect()
}

impl Flood {
    /// Serves a connection until the other side has enough of it.
    fn send(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut out = stream;
        out.set_write_timeout(Some(Duration::from_secs(1)))?;
        if self.is_introduced {
            out.write_all(INFO.as_bytes())?;
            // Until the client waits for an answer; nothing is read from it afterwards.
            let (mut said, mut byte) = (Vec::new(), [0]);
            while !said.ends_with(b"PING\r\n") {
                out.read_exact(&mut byte)?;
                said.extend(byte);
            }
            out.write_all(b"PONG\r\n")?;
        }
        out.write_all(self.begin.as_bytes())?;
        let piece = self.piece.repeat(65_536usize.div_ceil(self.piece.len()));
        for _ in 0..MOST_SENT / piece.len() {
            out.write_all(&piece)?;
        }
        Ok(())
    }
}

/// Returns the address of a server that sends one flood after the other, and the floods that are over.
fn false_server(floods: Vec<Flood>) -> (String, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (over, done) = channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            // A client that goes away ends its flood, which is what it should do.
            let _ = floods[number % floods.len()].send(&stream.unwrap());
            let _ = over.send(number);
        }
    });
    (address, done)
}

fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches(" kB").trim().parse().unwrap()
}

#[test]
fn a_false_nats_server_fills_no_memory_of_a_host() {
    let floods = floods();
    let count = floods.len();
    let (address, done) = false_server(floods);
    let service = Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock']
            metrics = '127.0.0.1:0'
            [cluster]
            name = 'c'
            host = 'h'
            carrier = {{ kind = 'nats', servers = ['nats://{address}'] }}
            [pool.p]
            backend = {{ kind = 'file' }}
            cluster = true
            target = '15ms'
            [pool.p.export.x]
            path = 'disk.raw'
            "
        ),
    );
    let before = peak_kib(service.pid());
    for number in 0..count {
        until(&format!("flood {number}"), || done.try_recv().ok());
        let peak = peak_kib(service.pid());
        assert!(peak < before + ALLOWED_KIB, "after flood {number} {peak} KiB, before the first {before}");
    }
    let mut client = Raw::open(&service.path("nbd.sock"), "x");
    client.send(NbdCommand::Read, 1, 0, 4096);
    assert_eq!(client.data(4096).0, 1);
    let log = service.log();
    assert!(log.contains("it sent a line of more than 65536 bytes"), "{log}");
    assert!(log.contains("it announced a message of 4000000000 bytes"), "{log}");
}

#[test]
fn a_false_nats_server_ends_the_start_of_a_broker_with_its_reason() {
    let line = |is_introduced| Flood { is_introduced, begin: "-ERR\r\n", piece: b"\r\n".to_vec() };
    let no_protocol = "not of the protocol of NATS";
    for (flood, reasons) in [
        (floods().remove(0), ["it sent a line of more than 65536 bytes"; 2]),
        (line(false), [no_protocol; 2]),
        // The client library ends with a panic by this line. The request under way may fail first.
        (line(true), ["is JetStream enabled on the server?", no_protocol]),
    ] {
        let (address, _done) = false_server(vec![flood]);
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("broker.toml");
        fs::create_dir(folder.path().join("a")).unwrap();
        let node = folder.path().join("a");
        fs::write(
            &config,
            format!(
                "listen = '127.0.0.1:0'\nstate = 'state'\n[catalogue]\nnats = ['nats://{address}']\n\
                 [node.a]\nplace = 'file://{}'\npeak = '60MB/s'\n",
                node.display()
            ),
        )
        .unwrap();
        let broker = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["broker", "-c"]).arg(config).output();
        let broker = broker.unwrap();
        let said = String::from_utf8_lossy(&broker.stderr);
        let is_said = reasons.iter().any(|reason| said.contains(reason));
        assert!(broker.status.code() == Some(1) && is_said, "{:?}: {said}", broker.status);
    }
}
