//! A broker that lies, or a host on the way to one, named any path of the client's machine: the client wrote
//! there, or removed what was there.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// The attacker's answers.
#[derive(Clone, Default)]
struct Lies {
    place: String,
    key: String,
    /// Instead of the one that was asked for.
    id: Option<String>,
    /// Instead of an answer.
    redirect: Option<String>,
}

/// A false broker, and a machine with something to lose.
struct Attack {
    folder: tempfile::TempDir,
    address: String,
    lies: Arc<Mutex<Lies>>,
}

fn answer(stream: &TcpStream, lies: &Lies) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader
            .read_line(&mut header)
            .ok()
            .filter(|length| *length > 2)
            .or_else(|| Some(0).filter(|_| header == "\r\n"))?;
        if header == "\r\n" {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let named = path.rsplit('/').next()?.to_owned();
    let node = json!({ "node": "a", "place": lies.place, "key": lies.key });
    let document = if path.starts_with("/v1/objects/") {
        json!({ "name": named, "size": 8, "sha256": "0".repeat(64), "replicas": [node] })
    } else {
        let size = asked["size"].as_u64().unwrap_or(8);
        let mut granted = node;
        granted["expected_bps"] = json!(6e7);
        granted["size"] = json!(size);
        json!({ "id": lies.id.clone().unwrap_or(named), "lease_s": 10.0, "granted": granted })
    };
    let text = document.to_string();
    let mut out = stream;
    let head = match (&lies.redirect, method.as_str()) {
        (Some(to), _) => format!("HTTP/1.1 307 Elsewhere\r\nLocation: {to}\r\n"),
        (None, "POST") => "HTTP/1.1 204 Done\r\n".to_owned(),
        (None, _) => "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n".to_owned(),
    };
    let body = if head.contains("200 OK") { text.as_str() } else { "" };
    let length =
        if head.contains(" 204 ") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    write!(out, "{head}{length}Connection: close\r\n\r\n{body}").ok()
}

impl Attack {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["node", "home/.ssh"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("home/secret"), "precious").unwrap();
        fs::write(folder.path().join("up"), "evil key").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let lies = Arc::new(Mutex::new(Lies::default()));
        let told = Arc::clone(&lies);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let lies = told.lock().unwrap().clone();
                thread::spawn(move || answer(&stream.unwrap(), &lies));
            }
        });
        let attack = Self { folder, address, lies };
        let node = attack.path("node");
        fs::write(attack.path("nodes.toml"), format!("[node.a]\nplace = 'file://{}'\n", node.display()))
            .unwrap();
        attack
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, lies: Lies, nodes: Option<&str>, words: &[&str]) -> Output {
        *self.lies.lock().unwrap() = lies;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(words).current_dir(self.folder.path());
        command.args(["--broker", &format!("http://{}", self.address), "--patience", "0s"]);
        command.env("HOME", self.path("empty")).env_remove("XDG_CONFIG_HOME").env_remove("TIDEGATE_NODES");
        if let Some(nodes) = nodes {
            command.env("TIDEGATE_NODES", self.path(nodes));
        }
        command.output().unwrap()
    }

    /// Whatever is on the machine beside what belongs there.
    fn is_unharmed(&self) -> bool {
        let names = |name: &str| {
            let mut names: Vec<_> = fs::read_dir(self.path(name))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        names("home") == [".ssh", "secret"]
            && names("home/.ssh").is_empty()
            && names("node").is_empty()
            && names("") == ["home", "node", "nodes.toml", "up"]
            && fs::read_to_string(self.path("home/secret")).unwrap() == "precious"
    }
}

fn place(path: &Path) -> String {
    format!("file://{}", path.display())
}

#[test]
fn nothing_is_written_or_removed_where_a_false_broker_says() {
    let attack = Attack::new();
    let [home, node] = ["home", "node"].map(|name| place(&attack.path(name)));
    let lies =
        |place: &str, key: &str| Lies { place: place.to_owned(), key: key.to_owned(), ..Lies::default() };
    let remove = ["transfer", "remove", "run7"];
    let put = ["transfer", "put", "up", "--rate", "10MB/s"];
    let get = ["transfer", "get", "run7", "--rate", "10MB/s", "--to", "down"];
    let right = "run7.0123456789abcdef";
    let not_ours = "storage node is configured";
    let elsewhere = "find out which is right";
    let other_key = "not one of this object";
    for (lies, nodes, words, expected) in [
        (lies(&home, "secret"), None, &remove[..], other_key),
        (lies(&home, "../home/secret"), Some("nodes.toml"), &remove[..], other_key),
        (lies(&home, right), None, &remove[..], not_ours),
        (lies(&home, right), Some("nodes.toml"), &remove[..], elsewhere),
        (lies(&home, ".ssh/rc"), Some("nodes.toml"), &put[..], other_key),
        (lies(&home, ".ssh/rc"), None, &put[..], not_ours),
        (lies(&node, "../home/.ssh/rc"), Some("nodes.toml"), &put[..], other_key),
        (lies(&node, "up.0123456789abcdef"), Some("nodes.toml"), &put[..], other_key),
        (lies(&home, right), Some("nodes.toml"), &get[..], elsewhere),
        (lies(&node, "../home/secret"), Some("nodes.toml"), &get[..], other_key),
    ] {
        let output = attack.run(lies, nodes, words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(expected), "{words:?}: {said}");
        assert!(attack.is_unharmed(), "{words:?}: {said}");
    }
}

#[test]
fn a_false_broker_names_no_file_by_the_id_of_a_transfer_and_no_other_server() {
    let attack = Attack::new();
    let key = "run7.0123456789abcdef".to_owned();
    let lies = Lies { place: place(&attack.path("node")), key, ..Lies::default() };
    let get = ["transfer", "get", "run7", "--rate", "10MB/s", "--to", "down"];
    let id = Some("x/../../home/.ssh/rc".to_owned());
    let output = attack.run(Lies { id, ..lies.clone() }, Some("nodes.toml"), &get);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("answers for another transfer"), "{said}");
    assert!(attack.is_unharmed(), "{said}");
    // Redirected, a client would show its token there.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let redirect = Some(format!("http://{}/", other.local_addr().unwrap()));
    let output = attack.run(Lies { redirect, ..lies }, Some("nodes.toml"), &get);
    assert_eq!(output.status.code(), Some(1));
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "it was followed");
}
