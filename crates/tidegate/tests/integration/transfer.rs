//! `tidegate broker`, `place` and `transfer`: the real binary, folders, nginx as a WebDAV server (Debian:
//! nginx-light), `s3s-fs` as one of S3.

use tidegate_testing::s3;
use tidegate_testing::until;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A broker, its nodes, and files to be moved.
struct Site {
    folder: tempfile::TempDir,
    broker: Option<Child>,
    port: u16,
}

/// A port that nobody uses now. It is none of those that the kernel gives to connections by itself: a broker
/// that is started again could not have it back then.
fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Programs of tests that run at the same time begin elsewhere.
    let first = std::process::id().wrapping_mul(97);
    let next = |_| first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
    let mut ports = (0..10_000).map(next).map(|number| u16::try_from(20_000 + number % 12_000).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("of so many one is free")
}

impl Site {
    /// `FOLDER` and `PORT` in the configuration are what they are.
    fn new(keys: &str, nodes: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        for name in ["a", "b", "c"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let text = format!("listen = \"127.0.0.1:{port}\"\nstate = \"state\"\n{keys}\n{nodes}");
        let text = text.replace("FOLDER", folder.path().to_str().unwrap());
        fs::write(folder.path().join("broker.toml"), text).unwrap();
        let mut site = Self { folder, broker: None, port };
        site.start();
        site
    }

    /// Three folders, of which `a` is the fastest and `c` the slowest, and each carries at least 5 MB/s.
    fn of_folders() -> Self {
        Self::new("policy = \"sm-r1\"\nlease = \"10s\"\ninterval = \"200ms\"", FOLDERS)
    }

    fn start(&mut self) {
        let log = fs::File::options().append(true).create(true).open(self.path("log")).unwrap();
        let broker = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["broker", "-c"])
            .arg(self.path("broker.toml"))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        self.broker = Some(broker);
        let port = self.port;
        until("the broker", || TcpStream::connect(("127.0.0.1", port)).ok());
    }

    /// SIGKILL: nothing is put in order.
    fn kill(&mut self) {
        let mut broker = self.broker.take().unwrap();
        broker.kill().unwrap();
        broker.wait().unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, length: usize) -> PathBuf {
        let path = self.path(name);
        // Every piece of it is different.
        let bytes: Vec<u8> = (0..length as u64 / 8 + 1)
            .flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
            .take(length)
            .collect();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(words).current_dir(self.folder.path());
        command.env("TIDEGATE_BROKER", format!("http://127.0.0.1:{}", self.port));
        // The configuration of the broker says where its nodes are, and is a client's as well.
        command.env("TIDEGATE_NODES", self.path("broker.toml"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The JSON document of a command that worked.
    #[track_caller]
    fn ask(&self, words: &[&str]) -> Value {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "{words:?}: {said}\n{}",
            fs::read_to_string(self.path("log")).unwrap()
        );
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    #[track_caller]
    fn refused(&self, words: &[&str], status: i32, expected: &str) {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(status) && said.contains(expected), "{words:?}: {said}");
    }

    /// Transfers on all nodes, and what is reserved for them.
    fn active(&self) -> (u64, f64) {
        let nodes = self.ask(&["transfer", "nodes", "--json"]);
        let lanes =
            || nodes["nodes"].as_array().unwrap().iter().flat_map(|node| [&node["read"], &node["write"]]);
        let active = lanes().map(|lane| lane["active"].as_u64().unwrap()).sum();
        (active, lanes().map(|lane| lane["reserved_bps"].as_f64().unwrap()).sum())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(broker) = &mut self.broker {
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }
}

const FOLDERS: &str = r#"
[node.a]
place = "file://FOLDER/a"
peak = "300MB/s"
availability = 2
[node.b]
place = "file://FOLDER/b"
peak = "60MB/s"
[node.c]
place = "file://FOLDER/c"
peak = "20MB/s"
capacity = "1GB"
"#;

/// nginx as a storage node that takes so many bytes per second: of a download by itself, of an upload as fast
/// as it comes.
struct Nginx {
    process: Child,
}

impl Nginx {
    fn start(site: &Path, name: &str, port: u16, limit: &str) -> Self {
        let base = site.join(format!("nginx-{name}"));
        fs::create_dir_all(&base).unwrap();
        let (base, root) = (base.display(), site.join(name));
        let root = root.display();
        // As root its workers would be somebody else, who may not write to our folders.
        let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
        let text = format!(
            "{user} daemon off; master_process off; pid {base}/pid; error_log {base}/error.log;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; client_body_temp_path {base}/body; proxy_temp_path {base}/p; \
             fastcgi_temp_path {base}/f;\n\
             uwsgi_temp_path {base}/u; scgi_temp_path {base}/s; client_max_body_size 0;\n\
             server {{ listen 127.0.0.1:{port}; location / {{ root {root}; dav_methods PUT DELETE; \
             limit_rate {limit}; }} }} }}\n"
        );
        let config = site.join(format!("nginx-{name}.conf"));
        fs::write(&config, text).unwrap();
        let nginx = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let process = Command::new(nginx)
            .arg("-c")
            .arg(&config)
            .arg("-p")
            .arg(site)
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{nginx}: {error}; lab/packages names nginx-light"));
        until("nginx", || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { process }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.kill();
    }
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

#[test]
fn what_is_put_is_got_and_is_where_the_rules_say() {
    let site = Site::of_folders();
    let file = site.file("data.bin", 3_000_001);
    let put = site.ask(&["transfer", "put", "data.bin", "--rate", "10MB/s", "--verify", "--json"]);
    let outcome = &put["transfers"][0];
    assert_eq!(outcome["nodes"][0], "a", "where it gets most");
    assert_eq!(outcome["bytes"], 3_000_001);
    let sum = Command::new("sha256sum").arg(&file).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert!(sum.starts_with(outcome["sha256"].as_str().unwrap()), "{sum}");

    let got = site.ask(&["transfer", "get", "data.bin", "--rate", "10MB/s", "--to", "back.bin", "--json"]);
    assert_eq!(got["transfers"][0]["nodes"][0], "a");
    assert!(same(&file, &site.path("back.bin")));
    site.refused(
        &["transfer", "get", "data.bin", "--rate", "1MB/s", "--to", "back.bin"],
        1,
        "is there already",
    );
    site.refused(&["transfer", "get", "data.bin", "--rate", "1MB/s", "--to", "absent/x"], 1, "No such file");
    assert_eq!(site.active().0, 0, "nothing is reserved any more");

    // Nothing is as good a file as any.
    fs::write(site.path("empty"), "").unwrap();
    site.ask(&["transfer", "put", "empty", "--rate", "10MB/s", "--copies", "2", "--json"]);
    site.ask(&["transfer", "get", "empty", "--latency", "1s", "--to", "empty.back", "--json"]);
    assert_eq!(fs::read(site.path("empty.back")).unwrap(), b"");

    let list = site.ask(&["transfer", "list", "--json"]);
    let names: Vec<_> = list["objects"].as_array().unwrap().iter().map(|object| &object["name"]).collect();
    assert_eq!(names, ["data.bin", "empty"]);
    assert_eq!(list["objects"][1]["replicas"].as_array().unwrap().len(), 2);
    site.ask(&["transfer", "remove", "data.bin", "empty", "--json"]);
    assert_eq!(site.ask(&["transfer", "list", "--json"])["objects"], Value::Array(Vec::new()));
    for node in ["a", "b", "c"] {
        assert_eq!(fs::read_dir(site.path(node)).unwrap().count(), 0, "something is left on {node}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    let site = Site::of_folders();
    site.file("data.bin", 1000);
    site.ask(&["transfer", "put", "data.bin", "--rate", "1MB/s", "--json"]);
    for (words, status, expected) in [
        (&["transfer", "put", "data.bin", "--rate", "1MB/s"][..], 1, "there is an object `data.bin` already"),
        (&["transfer", "put", "data.bin", "--rate", "0MB/s"], 2, "a rate of zero needs no reservation"),
        (&["place", "--write", "1MB", "--rate", "0"], 2, "a rate of zero needs no reservation"),
        (&["place", "--write", "1MB", "--rate", "5"], 2, "for example `256KiB/s`"),
        (&["transfer", "put", "data.bin"], 2, "--rate"),
        (&["transfer", "put", "absent", "--rate", "1MB/s"], 1, "No such file"),
        (&["transfer", "put", "a", "--rate", "1MB/s"], 1, "only regular files"),
        (&["transfer", "get", "absent", "--rate", "1MB/s"], 1, "there is no object `absent`"),
        (
            &["transfer", "put", "data.bin", "--name", "a/b", "--rate", "1MB/s"],
            2,
            "cannot be the name of an object",
        ),
        (&["transfer", "remove", "absent"], 1, "there is no object `absent`"),
        (
            &["place", "--write", "1MB", "--rate", "1MB/s", "--except", "tape"],
            1,
            "there is no storage node `tape`",
        ),
        (&["place", "--write", "1MB", "--rate", "400MB/s"], 1, "it would wait for ever"),
        (&["place", "--write", "1MB", "--rate", "1MB/s", "--availability", "3"], 1, "availability 3 or more"),
        (
            &["place", "--write", "2GB", "--rate", "1MB/s", "--except", "a", "--except", "b"],
            1,
            "are more than any node that may be used has free",
        ),
        (&["place", "--write", "1MB"], 2, "--rate"),
    ] {
        site.refused(words, status, expected);
    }
    let away = ["place", "--write", "1MB", "--rate", "1MB/s", "--broker", "http://127.0.0.1:1"];
    site.refused(&away, 1, "is `tidegate broker` running there?");
    fs::write(
        site.path("wrong.toml"),
        "listen = \"127.0.0.1:0\"\nstate = \"s\"\npolcy = \"rr\"\n[node.a]\nplace = \"file:///\"\n",
    )
    .unwrap();
    for command in ["broker", "check"] {
        site.refused(&[command, "-c", "wrong.toml"], 2, "wrong.toml:3:1: unknown key `polcy`");
    }
    let checked = site.ask(&["check", "--json", "-c", "broker.toml"]);
    assert_eq!(checked["places_on"]["nodes"].as_array().unwrap().len(), 3, "{checked}");
    assert_eq!(checked["places_on"]["absent"], serde_json::json!([]));
    let text = fs::read_to_string(site.path("broker.toml")).unwrap();
    fs::write(site.path("absent.toml"), text.replace("/a\"", "/absent\"")).unwrap();
    let absent = site.ask(&["check", "--json", "-c", "absent.toml"]);
    assert_eq!(absent["places_on"]["absent"], serde_json::json!(["a"]));
    fs::write(site.path("no-nodes.toml"), "listen = \"127.0.0.1:0\"\nstate = \"s\"\n").unwrap();
    site.refused(&["check", "-c", "no-nodes.toml"], 2, "the configuration has no storage nodes");
    fs::copy(site.path("broker.toml"), site.path("other.toml")).unwrap();
    site.refused(&["broker", "-c", "other.toml"], 1, "another broker keeps its catalogue there");
}

#[test]
fn replicas_that_were_stored_before_one_failed_were_not_told_of() {
    let site = Site::of_folders();
    // The third is not there.
    site.file("data.bin", 3_000_000);
    fs::remove_dir(site.path("c")).unwrap();
    let words = ["transfer", "put", "data.bin", "--rate", "1MB/s", "--attempts", "1"];
    let put = |more: &[&str]| site.run(&[&words, more].concat());
    let more = put(&["--copies", "4"]);
    let said = String::from_utf8_lossy(&more.stderr).into_owned();
    assert!(said.contains("4 replicas need as many nodes, and 3 are of these classes"), "{said}");
    let dear = put(&["--copies", "2", "--availability", "2"]);
    assert!(String::from_utf8_lossy(&dear.stderr).contains("2 replicas need as many nodes, and 1 are"));
    assert_eq!(
        site.ask(&["transfer", "list", "--json"])["objects"],
        Value::Array(Vec::new()),
        "nothing is begun"
    );

    let partly = put(&["--copies", "3", "--json"]);
    let said = String::from_utf8_lossy(&partly.stderr).into_owned();
    assert!(said.contains("2 of 3 replicas are stored, on a, b, and stay: "), "{said}");
    let document: Value = serde_json::from_slice(&partly.stdout).unwrap();
    let outcome = &document["transfers"][0];
    assert_eq!((&outcome["code"], &outcome["nodes"]), (&"partly".into(), &serde_json::json!(["a", "b"])));
    assert_eq!(
        site.ask(&["transfer", "list", "--json"])["objects"][0]["replicas"].as_array().unwrap().len(),
        2
    );
}

#[test]
fn a_reservation_comes_back_when_nobody_speaks_for_it_and_who_waits_proceeds() {
    // Longer than a busy machine takes for the few commands that come before anybody may be dead.
    let lease = Duration::from_secs(15);
    let site = Site::new(
        &format!("policy = \"sm-r1\"\nlease = \"{}s\"\ninterval = \"100ms\"", lease.as_secs()),
        "[node.a]\nplace = \"file://FOLDER/a\"\npeak = \"25MB/s\"",
    );
    let begun = Instant::now();
    // Both fit, and a third does not. None of them is ever heard of again: their client is dead.
    for _ in 0..2 {
        let placed = site.ask(&["place", "--write", "1GB", "--rate", "10MB/s", "--json"]);
        assert_eq!(placed["granted"]["node"], "a");
    }
    site.refused(&["place", "--write", "1GB", "--rate", "10MB/s"], 1, "no storage node can carry it now");
    assert_eq!(site.active(), (2, 20e6));
    site.file("data.bin", 1000);
    let put = site.ask(&["transfer", "put", "data.bin", "--rate", "10MB/s", "--json"]);
    assert!(begun.elapsed() > lease, "the place of the living was given to another");
    assert!(put["transfers"][0]["waited_s"].as_f64().unwrap() > 0.0, "{put}");
    until("the other reservation's end", || (site.active() == (0, 0.0)).then_some(()));
}

#[test]
fn a_damaged_replica_is_told_from_a_good_one() {
    let site = Site::of_folders();
    let file = site.file("data.bin", 2_000_000);
    let put = site.ask(&["transfer", "put", "data.bin", "--rate", "5MB/s", "--copies", "2", "--json"]);
    assert_eq!(put["transfers"][0]["nodes"].as_array().unwrap().len(), 2);
    let damage = |node: &str| {
        let key = fs::read_dir(site.path(node)).unwrap().next().unwrap().unwrap().path();
        let mut bytes = fs::read(&key).unwrap();
        bytes[1_500_000] ^= 1;
        fs::write(&key, bytes).unwrap();
    };
    damage("a");
    // The good one is too slow: why the other is not asked has to be said.
    let words = ["transfer", "get", "data.bin", "--rate", "100MB/s", "--to", "other.bin"];
    site.refused(&words, 1, "failed on node `a`: what it holds is not what was stored");
    let got = site.ask(&["transfer", "get", "data.bin", "--rate", "5MB/s", "--to", "back.bin", "--json"]);
    assert_eq!(got["transfers"][0]["nodes"], serde_json::json!(["b"]), "{got}");
    assert!(same(&file, &site.path("back.bin")));
    damage("b");
    let words = ["transfer", "get", "data.bin", "--rate", "5MB/s", "--to", "other.bin"];
    site.refused(&words, 1, "has the wrong checksum on every node that holds it (a, b)");
    assert!(!site.path("other.bin").exists());
    let left = fs::read_dir(site.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().ends_with(".part")), "a part is left behind");
}

#[test]
fn a_restart_of_the_broker_loses_nothing_that_it_acknowledged() {
    let (one, two) = (free_port(), free_port());
    let nodes = format!(
        "[node.a]\nplace = \"http://127.0.0.1:{one}/\"\npeak = \"30MB/s\"\n\
         [node.b]\nplace = \"http://127.0.0.1:{two}/\"\npeak = \"20MB/s\""
    );
    let mut site = Site::new("policy = \"sm-r1\"\nlease = \"5s\"\ninterval = \"200ms\"", &nodes);
    let _nginx =
        [Nginx::start(site.folder.path(), "a", one, "1m"), Nginx::start(site.folder.path(), "b", two, "1m")];
    let file = site.file("data.bin", 12_000_000);
    site.ask(&["transfer", "put", "data.bin", "--rate", "10MB/s", "--json"]);
    // Twelve seconds, as fast as nginx gives it: time for a busy machine. The broker is killed in the middle,
    // and comes back.
    let words = ["transfer", "get", "data.bin", "--rate", "10MB/s", "--to", "back.bin", "--json"];
    let getting = site.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    until("the transfer", || (site.active().0 == 1).then_some(()));
    site.kill();
    site.start();
    assert_eq!(site.active(), (1, 10e6), "it is known, and so is what it reserved");
    let output = getting.wait_with_output().unwrap();
    let got: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(got["transfers"][0]["failed"], 0, "the transfer did not notice: {got}");
    assert!(same(&file, &site.path("back.bin")));
    assert_eq!(site.ask(&["transfer", "list", "--json"])["objects"][0]["name"], "data.bin");
}

#[test]
fn a_node_that_dies_is_left_for_another_from_where_it_stopped() {
    let (one, two) = (free_port(), free_port());
    let nodes = format!(
        "[node.a]\nplace = \"http://127.0.0.1:{one}/\"\npeak = \"30MB/s\"\n\
         [node.b]\nplace = \"http://127.0.0.1:{two}/\"\npeak = \"20MB/s\""
    );
    let site = Site::new("policy = \"sm-r1\"\nlease = \"5s\"\ninterval = \"200ms\"", &nodes);
    let mut a = Nginx::start(site.folder.path(), "a", one, "4m");
    let _b = Nginx::start(site.folder.path(), "b", two, "16m");
    let file = site.file("data.bin", 12_000_000);
    let put =
        site.ask(&["transfer", "put", "data.bin", "--rate", "10MB/s", "--copies", "2", "--verify", "--json"]);
    assert_eq!(put["transfers"][0]["nodes"], serde_json::json!(["a", "b"]));
    let words = ["transfer", "get", "data.bin", "--rate", "10MB/s", "--to", "back.bin", "--json"];
    let getting = site.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let part = || {
        let entries = fs::read_dir(site.folder.path()).unwrap().map(|entry| entry.unwrap());
        let mut parts = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".part"));
        parts.find_map(|entry| entry.metadata().ok()).map(|about| about.len())
    };
    until("something to have come", || part().filter(|length| *length > 2_000_000));
    a.kill();
    let output = getting.wait_with_output().unwrap();
    let got: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(got["transfers"][0]["nodes"], serde_json::json!(["a", "b"]), "{got}");
    assert_eq!(got["transfers"][0]["failed"], 1);
    assert!(same(&file, &site.path("back.bin")));

    until("word of it", || {
        let log = fs::read_to_string(site.path("log")).unwrap();
        log.contains("a transfer failed at node `a`, which is given a rest: ").then_some(())
    });

    // And what is written goes where somebody is.
    site.file("more.bin", 1_000_000);
    let put = site.ask(&["transfer", "put", "more.bin", "--rate", "10MB/s", "--json"]);
    assert_eq!(put["transfers"][0]["nodes"], serde_json::json!(["b"]));
    assert_eq!(site.active().0, 0);
}

#[test]
fn a_client_that_is_killed_gives_back_what_it_reserved_and_its_name() {
    let port = free_port();
    let nodes = format!("[node.a]\nplace = \"http://127.0.0.1:{port}/\"\npeak = \"15MB/s\"");
    let site = Site::new("policy = \"sm-r1\"\nlease = \"6s\"\ninterval = \"200ms\"", &nodes);
    let _nginx = Nginx::start(site.folder.path(), "a", port, "1m");
    let file = site.file("data.bin", 12_000_000);
    site.ask(&["transfer", "put", "data.bin", "--rate", "10MB/s", "--json"]);
    let words = ["transfer", "get", "data.bin", "--rate", "10MB/s", "--to", "never.bin"];
    let mut killed = site.command(&words).spawn().unwrap();
    let parts = || {
        let names = fs::read_dir(site.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".part")).count()
    };
    until("its part", || (parts() == 1).then_some(()));
    assert_eq!(site.active(), (1, 10e6));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(parts(), 1, "SIGKILL leaves what there was");
    // This one waits until the lease is over, and then proceeds.
    let got = site.ask(&["transfer", "get", "data.bin", "--rate", "10MB/s", "--to", "back.bin", "--json"]);
    assert!(got["transfers"][0]["waited_s"].as_f64().unwrap() > 0.0, "{got}");
    assert!(same(&file, &site.path("back.bin")));
    assert!(!site.path("never.bin").exists());
    // Whoever is asked to end puts things in order.
    let mut ended = site.command(&words).stderr(Stdio::piped()).spawn().unwrap();
    until("its part", || (parts() == 2).then_some(()));
    Command::new("kill").args(["-INT", &ended.id().to_string()]).status().unwrap();
    assert_eq!(ended.wait().unwrap().code(), Some(1));
    assert_eq!(parts(), 1);
}

#[test]
fn a_bucket_is_a_node_and_who_may_use_it_the_client_says() {
    let server = s3::Server::start();
    let node = format!(
        "[node.bucket]\nplace = \"s3://data/runs\"\nendpoint = \"{}\"\npeak = \"100MB/s\"\n",
        server.url()
    );
    let site = Site::new("policy = \"sm-r1\"\ninterval = \"200ms\"", &node);
    let file = site.file("data.bin", 30_000_001);
    let aws = site.path("credentials");
    let words = |words: &[&str], profile: &str| {
        let mut command = site.command(words);
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
            command.env_remove(name);
        }
        command.env("AWS_SHARED_CREDENTIALS_FILE", &aws).env("AWS_PROFILE", profile).output().unwrap()
    };
    let put = ["transfer", "put", "data.bin", "--rate", "1MB/s", "--verify", "--attempts", "1"];
    let said = |output: Output| {
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains(s3::SECRET), "{said}");
        (output.status.code(), said)
    };
    let (status, without) = said(words(&put, "lab"));
    assert!(status == Some(1) && without.contains("set AWS_ACCESS_KEY_ID and"), "{without}");
    server.credentials(&aws);
    let (status, denied) = said(words(&put, "default"));
    assert!(status == Some(1) && denied.contains("access is denied"), "{denied}");
    // The node is given a rest after that, and the transfer waits for it.
    let (status, right) = said(words(&put, "lab"));
    assert_eq!(status, Some(0), "{right}");
    let (status, got) =
        said(words(&["transfer", "get", "data.bin", "--rate", "1MB/s", "--to", "back.bin"], "lab"));
    assert!(status == Some(0) && same(&file, &site.path("back.bin")), "{got}");
    let stored = server.folder().join("data/runs");
    assert_eq!(fs::read_dir(&stored).unwrap().count(), 1);
    let (status, removed) = said(words(&["transfer", "remove", "data.bin"], "lab"));
    assert_eq!((status, fs::read_dir(&stored).unwrap().count()), (Some(0), 0), "{removed}");
    let log = fs::read_to_string(site.path("log")).unwrap();
    assert!(!log.contains(s3::SECRET) && !log.contains(s3::ID), "{log}");
    // Interrupted in the middle, it takes back what it sent.
    fs::File::create(site.path("large")).unwrap().set_len(4 << 30).unwrap();
    let uploads = || {
        let names = fs::read_dir(server.folder()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("upload")).count()
    };
    let mut command = site.command(&["transfer", "put", "large", "--rate", "1MB/s"]);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
        command.env_remove(name);
    }
    command.env("AWS_SHARED_CREDENTIALS_FILE", &aws).env("AWS_PROFILE", "lab");
    command.stderr(fs::File::create(site.path("said")).unwrap());
    let mut putting = command.spawn().unwrap();
    // The server has begun the upload. The client may not know that yet, or may send parts already.
    until("an upload", || (uploads() > 1).then_some(()));
    let id = rustix::process::Pid::from_child(&putting);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert!(!putting.wait().unwrap().success());
    let said = fs::read_to_string(site.path("said")).unwrap();
    let names: Vec<_> =
        fs::read_dir(server.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(uploads(), 0, "parts that nobody sees are paid for: {names:?} {said}");
}

#[test]
fn several_are_moved_at_once_and_one_that_fails_stops_no_other() {
    let site = Site::of_folders();
    let names: Vec<_> = (0..6).map(|number| format!("f{number}")).collect();
    for name in &names {
        site.file(name, 200_000);
    }
    let mut words = vec!["transfer", "put", "--rate", "2MB/s", "--parallel", "3", "--json", "absent"];
    words.extend(names.iter().map(String::as_str));
    let output = site.run(&words);
    assert_eq!(output.status.code(), Some(1));
    let put: Value = serde_json::from_slice(&output.stdout).unwrap();
    let put = put["transfers"].as_array().unwrap();
    assert_eq!(put[0]["code"], "file");
    // In the order of the command, whichever ended first.
    let order: Vec<_> = put[1..].iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(order, names);
    fs::create_dir(site.path("back")).unwrap();
    let mut words = vec!["transfer", "get", "--rate", "2MB/s", "--to", "back", "--json"];
    words.extend(names.iter().map(String::as_str));
    site.ask(&words);
    for name in &names {
        assert!(same(&site.path(name), &site.path("back").join(name)), "{name}");
    }
    site.refused(&["transfer", "get", "f0", "f0", "--rate", "1MB/s", "--force"], 2, "`f0` is named twice");
    site.refused(&["transfer", "put", "f0", "--rate", "1MB/s", "--parallel", "0"], 2, "--parallel");
}

/// Stopped, it keeps its port and its store.
struct Nats {
    folder: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

impl Nats {
    fn start() -> Self {
        let mut nats = Self { folder: tempfile::tempdir().unwrap(), port: free_port(), process: None };
        nats.run();
        nats
    }

    fn run(&mut self) {
        let mut command = Command::new("nats-server");
        command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &self.port.to_string(), "--store_dir"]);
        let process = command.arg(self.folder.path()).stderr(Stdio::null()).spawn();
        self.process = Some(process.expect("`nats-server`: lab/packages names it"));
        let port = self.port;
        until("nats-server", || TcpStream::connect(("127.0.0.1", port)).ok());
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_catalogue_in_nats_outlives_its_server_and_its_broker() {
    let mut nats = Nats::start();
    let keys = format!(
        "policy = \"sm-r1\"\ninterval = \"200ms\"\n[catalogue]\nnats = [\"nats://127.0.0.1:{}\"]\nlease = \
            \"2s\"\nstandby = true",
        nats.port
    );
    let mut site = Site::new(&keys, FOLDERS);
    let words = |name: &'static str| ["transfer", "put", name, "--rate", "1MB/s", "--json"];
    for name in ["one", "two", "three", "four"] {
        site.file(name, 500_000);
    }
    site.ask(&words("one"));
    // The server is away while a file is put: it waits for it.
    nats.kill();
    let waiting = site.command(&words("two")).stdout(Stdio::piped()).spawn().unwrap();
    until("the outage", || {
        let log = fs::read_to_string(site.path("log")).unwrap();
        log.contains("does not answer").then_some(())
    });
    nats.run();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", fs::read_to_string(site.path("log")).unwrap());
    // The broker is killed, and need not wait for its own lease.
    site.kill();
    site.start();
    site.ask(&words("three"));
    // Another one, which stands by, takes over when the first is killed.
    let text = fs::read_to_string(site.path("broker.toml")).unwrap();
    fs::write(site.path("broker.toml"), text.replace("state = \"state\"", "state = \"other\"")).unwrap();
    site.kill();
    site.start();
    site.ask(&words("four"));
    let list = site.ask(&["transfer", "list", "--json"]);
    let names: Vec<_> =
        list["objects"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["four", "one", "three", "two"]);
    site.ask(&["transfer", "get", "two", "--rate", "1MB/s", "--to", "back", "--json"]);
    assert!(same(&site.path("two"), &site.path("back")));
}

/// `tidegate agent` as the sensor of nodes, until it is dropped.
struct Agent(Child);

impl Agent {
    fn start(site: &Site, name: &str, sensors: &str) -> Self {
        let path = site.path(&format!("{name}.toml"));
        let text = format!("brokers = [\"http://127.0.0.1:{}\"]\n{sensors}", site.port);
        fs::write(&path, text.replace("FOLDER", site.folder.path().to_str().unwrap())).unwrap();
        let log = fs::File::options().append(true).create(true).open(site.path("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        Self(command.args(["agent", "-c"]).arg(path).stderr(Stdio::from(log)).spawn().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    fn node(&self, name: &str) -> Value {
        let nodes = self.ask(&["transfer", "nodes", "--json"]);
        nodes["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap().clone()
    }
}

/// What `a` and `b` have in common: an agent each, which reports ten times a second.
fn sensor(node: &str, kind: &str) -> String {
    format!("[sensor.{node}]\npath = \"FOLDER/{node}\"\nkind = \"{kind}\"\ninterval = \"100ms\"\n")
}

#[test]
fn agents_say_what_their_nodes_do_and_one_that_is_killed_is_silent_by_itself() {
    let nodes =
        FOLDERS.replace("availability = 2", "agent = true").replace("peak = \"60MB/s\"", "agent = true");
    let site = Site::new("policy = \"sm-r2\"\ninterval = \"100ms\"", &nodes);
    assert!(site.node("a")["sensor"].is_null());
    let first = Agent::start(&site, "first", &sensor("a", "array"));
    let second = Agent::start(&site, "second", &(sensor("b", "disk") + &sensor("c", "disk")));
    let heard = |name: &str| {
        until("a recent report", || Some(site.node(name)).filter(|node| node["sensor"]["recent"] == true))
    };
    let (a, b) = (heard("a"), heard("b"));
    assert_eq!(
        (&a["sensor"]["report"]["kind"], &b["sensor"]["report"]["kind"]),
        (&"array".into(), &"disk".into())
    );
    // Both are on one file system, of which it says the same to everybody.
    assert!(until("the next look", || site.node("a")["free"].as_u64()) > 0);
    let size = |node: &Value| node["sensor"]["report"]["size"].as_u64().unwrap();
    assert_eq!(size(&a), size(&b));
    // Of a node that takes no reports they are refused, and the others do not suffer.
    assert!(site.node("c")["sensor"].is_null());
    until("a complaint", || {
        fs::read_to_string(site.path("log")).unwrap().contains("add `agent = true`").then_some(())
    });
    let said = String::from_utf8(site.run(&["transfer", "nodes"]).stdout).unwrap();
    assert!(said.contains("sensor") && said.contains("array"), "{said}");

    drop(first);
    let silent = until("silence", || Some(site.node("a")).filter(|node| node["sensor"]["recent"] == false));
    // An agent that was woken late may have reported after less than its interval.
    let last = &silent["sensor"];
    let interval = last["report"]["interval_s"].as_f64().unwrap();
    assert!(last["age_s"].as_f64().unwrap() > 2.9 * interval, "{last}");
    heard("b");
    // A node without a sensor carries what it did without one.
    let file = site.file("x", 100_000);
    site.ask(&["transfer", "put", file.to_str().unwrap(), "--rate", "1kB/s", "--json"]);
    // The broker forgets its sensors when it is started again, and hears of them again.
    let mut site = site;
    site.kill();
    site.start();
    until("a report", || Some(site.node("b")).filter(|node| node["sensor"]["recent"] == true));
    let again = Agent::start(&site, "again", &sensor("a", "array"));
    until("a report", || Some(site.node("a")).filter(|node| node["sensor"]["recent"] == true));
    drop((second, again));
}

#[test]
fn a_broker_with_a_token_answers_who_has_it_and_an_agent_for_its_own_node() {
    let nodes = FOLDERS
        .replace("availability = 2", "agent = true\nagent_token_file = \"FOLDER/token-of-a\"")
        .replace("peak = \"60MB/s\"", "agent = true");
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("token");
    fs::write(&tokens, "what-everybody-shows\n").unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o644)).unwrap();
    let of_a = folder.path().join("token-of-a");
    fs::write(&of_a, "what-node-a-shows\n").unwrap();
    let nodes = nodes.replace("FOLDER/token-of-a", of_a.to_str().unwrap());
    let keys = format!("policy = \"sm-r2\"\ninterval = \"100ms\"\ntoken_file = \"{}\"", tokens.display());
    let site = Site::new(&keys, &nodes);
    let file = site.file("x", 100_000);
    let put = ["transfer", "put", file.to_str().unwrap(), "--rate", "1kB/s", "--json"];
    site.refused(&put, 1, "--token-file");
    site.refused(&["transfer", "list", "--token-file", of_a.to_str().unwrap()], 1, "not one for this");
    site.refused(&["transfer", "list", "--token-file", "none"], 2, "cannot read the token in none");
    let shown = |words: &[&str]| {
        let output = site.command(words).env("TIDEGATE_TOKEN_FILE", &tokens).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    shown(&put);
    site.ask(&["transfer", "list", "--json", "--token-file", tokens.to_str().unwrap()]);
    // An agent that lies about another node than its own is not heard.
    let text =
        format!("broker_token_file = \"{}\"\n{}{}", of_a.display(), sensor("a", "disk"), sensor("b", "disk"));
    let _agent = Agent::start(&site, "agent", &text);
    let node = |name: &str| {
        let nodes = shown(&["transfer", "nodes", "--json"]);
        nodes["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap().clone()
    };
    until("a report", || Some(node("a")).filter(|node| node["sensor"]["recent"] == true));
    until("a complaint", || {
        fs::read_to_string(site.path("log")).unwrap().contains("not one for this").then_some(())
    });
    assert!(node("b")["sensor"].is_null());
    let log = fs::read_to_string(site.path("log")).unwrap();
    assert!(log.contains("token is open to everyone on this host (mode 644)"), "{log}");
    assert!(!log.contains("what-everybody-shows") && !log.contains("what-node-a-shows"));
}

#[test]
fn the_first_byte_is_learnt_from_transfers() {
    let site = Site::of_folders();
    assert!(site.node("a")["write"]["latency_s"].is_null());
    let file = site.file("x", 3_000_000);
    site.ask(&["transfer", "put", file.to_str().unwrap(), "--rate", "1MB/s", "--json"]);
    site.ask(&["transfer", "get", "x", "--rate", "1MB/s", "--to", "back", "--json"]);
    for way in ["read", "write"] {
        let latency = until("a latency", || site.node("a")[way]["latency_s"].as_f64());
        assert!(latency > 0.0 && latency < 10.0, "{way}: {latency}");
    }
}

#[test]
fn a_probe_finds_a_peak_leaves_nothing_and_changes_no_pinned_one() {
    let site = Site::new("policy = \"sm-r1\"", &FOLDERS.replace("peak = \"60MB/s\"", ""));
    let empty = |name: &str| fs::read_dir(site.path(name)).unwrap().count() == 0;
    let peak = |name: &str| site.node(name)["write"]["peak_bps"].as_f64().unwrap();
    assert!(peak("b") < 1.0);
    let found = site.ask(&["transfer", "probe", "b", "--size", "3MiB", "--time", "60s", "--json"]);
    let wrote = found["write"]["bps"].as_f64().unwrap();
    assert_eq!(
        (found["write"]["moved_bytes"].as_u64(), found["read"]["moved_bytes"].as_u64()),
        (Some(3 << 20), Some(3 << 20))
    );
    assert!(wrote > 0.0 && empty("b"));
    assert_eq!((peak("b"), &found["peaks"]["write"]["pinned"]), (wrote, &false.into()));
    let pinned = site.ask(&["transfer", "probe", "a", "--size", "1MiB", "--time", "60s", "--json"]);
    assert_eq!((&pinned["peaks"]["write"]["pinned"], peak("a")), (&true.into(), 300e6));
    site.ask(&["transfer", "probe", "b", "--size", "1MiB", "--time", "60s", "--keep", "--json"]);
    assert!((peak("b") - wrote).abs() < 1.0, "nobody was told");
    site.refused(&["transfer", "probe", "nobody"], 2, "there is no storage node `nobody`");
    site.refused(&["transfer", "probe", "c", "--size", "2GiB"], 2, "give less");
    site.refused(&["transfer", "probe", "b", "--size", "1kB"], 2, "`--size` is within");
    site.refused(&["transfer", "probe", "b", "--time", "1h"], 2, "`--time` is within");

    // Interrupted in the middle.
    let mut probe = site.command(&["transfer", "probe", "b", "--size", "64GiB", "--time", "300s"]);
    let mut probe = probe.stderr(Stdio::piped()).spawn().unwrap();
    until("the middle", || (!empty("b")).then_some(()));
    let id = rustix::process::Pid::from_child(&probe);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(probe.wait().unwrap().code(), Some(1));
    assert!(empty("b"));
}
