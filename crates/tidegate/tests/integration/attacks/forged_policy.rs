//! One message of any client of the NATS server that would limit a protected export, or end all limits.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::service::Service;
use tidegate_testing::{Lack, lacks, until};

/// A server that asks nobody who it is. `None`: there is no `nats-server` on this machine.
struct NatsServer {
    address: String,
    process: Child,
    store: TempDir,
}

impl NatsServer {
    /// Says that the test is skipped, and returns `None`, without the program.
    fn start() -> Option<Self> {
        let store = tempfile::tempdir().unwrap();
        let process = Command::new("nats-server")
            .args(["--addr", "127.0.0.1", "--port", "-1", "--jetstream", "--store_dir"])
            .arg(store.path())
            .arg("--ports_file_dir")
            .arg(store.path())
            .stderr(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return lacks(Lack::Program("nats-server"), error);
            }
            Err(error) => panic!("{error}"),
        };
        let mut server = Self { address: String::new(), process, store };
        server.address = until("the server's port", || server.chosen());
        until("the server listens", || TcpStream::connect(&server.address).ok());
        Some(server)
    }

    fn chosen(&self) -> Option<String> {
        let file = self.store.path().join(format!("nats-server_{}.ports", self.process.id()));
        let ports: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        Some(ports["nats"][0].as_str()?.strip_prefix("nats://")?.to_owned())
    }

    /// Writes into the bucket of the policies, as any client can.
    fn scribble(&self, resource: &str, text: &str) {
        let mut client = self.client();
        write!(client, "PUB $KV.tidegate-c.{resource} {}\r\n{text}\r\nPING\r\n", text.len()).unwrap();
        hear(&mut client, "PONG");
    }

    /// A client that hears what others write there.
    fn spy(&self) -> TcpStream {
        let mut client = self.client();
        client.write_all(b"SUB $KV.tidegate-c.> 1\r\nPING\r\n").unwrap();
        hear(&mut client, "PONG");
        client
    }

    fn client(&self) -> TcpStream {
        let mut client = TcpStream::connect(&self.address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.write_all(b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\n").unwrap();
        client
    }

    /// A host that follows policies of these writers.
    fn host(&self, policy: &str) -> Service {
        Service::start(
            "serve",
            &format!(
                "listen = ['unix:nbd.sock']
                metrics = '127.0.0.1:0'
                [cluster]
                name = 'c'
                carrier = {{ kind = 'nats', servers = ['nats://{}'] }}
                {policy}
                [pool.array]
                backend = {{ kind = 'emulated', exponential = {{ rate = '2kIO/s', capacity = '64MiB' }} }}
                cluster = true
                law = 'window'
                target = '50ms'
                export.database = {{ size = '16MiB', protected = true }}
                export.vm = {{ size = '16MiB' }}",
                self.address
            ),
        )
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the server says, up to this text.
fn hear(client: &mut TcpStream, last: &str) -> String {
    let (mut heard, mut bytes) = (String::new(), [0; 4_096]);
    while !heard.contains(last) {
        let length = client.read(&mut bytes).unwrap();
        assert!(length > 0, "{heard}");
        heard += &String::from_utf8_lossy(&bytes[..length]);
    }
    heard
}

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// How many reads are answered in a second.
fn reads(host: &Service, export: &str) -> u64 {
    let output = tidegate(&["load", &host.uri(export), "--duration", "1s", "--depth", "4", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    document["reads"]["requests"].as_u64().unwrap()
}

const POISON: &str = r#"{"version":1,"limits":{"database":"1 IO/s","vm":"1 IO/s"}}"#;

#[test]
fn a_policy_that_nobody_signed_changes_nothing_and_the_log_says_what_to_do() {
    let Some(server) = NatsServer::start() else { return };
    let host = server.host("");
    host.await_log("neither `tls` nor credentials");
    host.await_log("NATS is up");
    // Before the host has made the bucket, messages to it are lost.
    until("the policy is refused", || {
        server.scribble("array", POISON);
        host.log()
            .contains("it is not signed: write it anew with `tidegate policy set --replace --key FILE`")
            .then_some(())
    });
    assert!(reads(&host, "database") >= 20, "{}", host.log());
    assert!(reads(&host, "vm") >= 20, "{}", host.log());
}

#[test]
fn a_signed_policy_keeps_to_its_bounds_and_nobody_puts_an_old_one_back() {
    let Some(server) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let seed = folder.path().join("policy.seed").display().to_string();
    let writer = said(&tidegate(&["policy", "key", &seed]));
    let host = server.host(&format!("policy = {{ writers = ['{writer}'] }}"));
    let config = host.path("tidegate.toml").display().to_string();
    let set = |more: &[&str]| {
        tidegate(&[&["policy", "set", "-c", &config, "--key", &seed, "array"], more].concat())
    };
    let starving = set(&["--limit", "vm=0.000001 IO/s"]);
    let error = String::from_utf8_lossy(&starving.stderr).into_owned();
    assert!(!starving.status.success() && error.contains("must be 1 to 10,000,000 IO/s"), "{error}");

    let mut spy = server.spy();
    // A limit of a protected export takes the consent of its host.
    said(&set(&["--limit", "vm=3 IO/s", "--limit", "database=3 IO/s"]));
    host.await_log("`may_limit`");
    host.await_log("policies are in force");
    assert!(reads(&host, "database") >= 20, "{}", host.log());
    let held = reads(&host, "vm");
    assert!(held <= 10, "{held} reads");

    // Neither who has no key nor an old text, nor a deletion, ends it.
    let heard = hear(&mut spy, "\"}\r\n");
    let text = &heard[heard.find("{\"version\"").unwrap()..];
    let old = text.lines().next().unwrap();
    said(&set(&["--limit", "vm=4 IO/s"]));
    until("the later one is in force", || {
        (host.log().matches("policies are in force").count() >= 2).then_some(())
    });
    server.scribble("array", old);
    host.await_log("an old policy was put back");
    server.scribble("array", r#"{"version":1}"#);
    host.await_log("is refused, the last good one stays");
    let held = reads(&host, "vm");
    assert!(held <= 10, "{held} reads: {}", host.log());
    assert!(reads(&host, "database") >= 20, "{}", host.log());
}
