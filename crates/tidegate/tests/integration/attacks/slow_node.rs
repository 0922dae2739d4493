//! A storage node on a WebDAV server that is as slow as it likes, and one that takes each address as it is
//! written.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tidegate_testing::until;

/// Objects by the path under which they were stored, and all requests.
#[derive(Default)]
struct DavServer {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    asked: Mutex<Vec<String>>,
    is_slow: AtomicBool,
}

impl DavServer {
    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
        let (mut reader, mut out) = (BufReader::new(stream), stream);
        loop {
            let (mut line, mut length, mut from) = (String::new(), 0, 0);
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let (method, path) = line.split_once(' ').unwrap();
            let path = path.split(' ').next().unwrap().to_owned();
            self.asked.lock().unwrap().push(format!("{method} {path}"));
            loop {
                let mut header = String::new();
                reader.read_line(&mut header)?;
                let header = header.trim_end().to_ascii_lowercase();
                match header.split_once(": ") {
                    Some(("content-length", value)) => length = value.parse().unwrap(),
                    Some(("range", value)) => {
                        from = value.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            if method == "PUT" {
                self.objects.lock().unwrap().insert(path, body);
                out.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")?;
                continue;
            }
            let object = self.objects.lock().unwrap().get(&path).cloned();
            let Some(object) = object else {
                out.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
                continue;
            };
            if method == "DELETE" {
                self.objects.lock().unwrap().remove(&path);
                out.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
                continue;
            }
            let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
            let (length, last) = (object.len() - from, object.len() - 1);
            write!(
                out,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nLast-Modified: Wed, 21 Oct 2026 07:28:00 GMT\r\n\
                 Content-Range: bytes {from}-{last}/{}\r\n\r\n",
                object.len()
            )?;
            if method == "GET" {
                for piece in object[from..].chunks(1000) {
                    out.write_all(piece)?;
                    if self.is_slow.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(300));
                    }
                }
            }
        }
    }
}

struct Site {
    folder: tempfile::TempDir,
    broker: Child,
    url: String,
    server: Arc<DavServer>,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dav = TcpListener::bind("127.0.0.1:0").unwrap();
        let node = dav.local_addr().unwrap();
        let server = Arc::new(DavServer::default());
        let serves = Arc::clone(&server);
        thread::spawn(move || {
            for stream in dav.incoming() {
                let server = Arc::clone(&serves);
                thread::spawn(move || server.answer(&stream.unwrap()));
            }
        });
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = format!(
            "listen = '127.0.0.1:{port}'\nstate = 'state'\n\
             [node.w]\nplace = 'http://{node}/dav'\npeak = '60MB/s'\n"
        );
        fs::write(folder.path().join("broker.toml"), text).unwrap();
        fs::write(folder.path().join("up"), vec![7; 3_000_000]).unwrap();
        let broker = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["broker", "-c", "broker.toml"])
            .current_dir(folder.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the broker", || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { folder, broker, url: format!("http://127.0.0.1:{port}"), server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ask(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("transfer").args(words).args(["--broker", &self.url]);
        command.current_dir(self.folder.path()).env("TIDEGATE_NODES", self.path("broker.toml"));
        command.output().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}

#[test]
fn an_object_on_a_webdav_node_has_one_address() {
    let site = Site::new();
    let put = site.ask(&["put", "up", "--name", "run7", "--rate", "1MB/s", "--verify"]);
    assert!(put.status.success(), "{put:?}");
    let get = site.ask(&["get", "run7", "--rate", "1MB/s", "--to", "down"]);
    assert!(get.status.success(), "{get:?}");
    assert_eq!(fs::read(site.path("down")).unwrap(), fs::read(site.path("up")).unwrap());
    let removed = site.ask(&["remove", "run7"]);
    assert!(removed.status.success(), "{removed:?}");
    assert!(site.server.objects.lock().unwrap().is_empty());
    let asked = site.server.asked.lock().unwrap();
    for method in ["PUT", "HEAD", "GET", "DELETE"] {
        assert!(asked.iter().any(|line| line.starts_with(&format!("{method} /dav/run7."))), "{asked:?}");
    }
    assert!(!asked.iter().any(|line| line.contains("//")), "{asked:?}");
}

#[test]
fn a_node_that_is_slow_without_end_is_given_up() {
    let site = Site::new();
    let put = site.ask(&["put", "up", "--name", "run7", "--rate", "1MB/s"]);
    assert!(put.status.success(), "{put:?}");
    // At this rate it would take a quarter of an hour.
    site.server.is_slow.store(true, Ordering::Relaxed);
    let words = ["get", "run7", "--rate", "1MB/s", "--to", "down", "--attempts", "1", "--stall", "1s"];
    let get = site.ask(&words);
    let said = String::from_utf8_lossy(&get.stderr);
    assert!(get.status.code() == Some(1) && said.contains("it has moved only"), "{said}");
    assert!(!site.path("down").exists());
}
