//! A caller of the API did more than it may: it changed something as a reader, with no token, with another
//! one, or with a certificate that names no operator. Or it held the server up by half a handshake.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use tidegate_testing::until;
use tidegate_tls::{ClientFiles, TlsIdentity, TlsStream};

use crate::attacks::pki::Authority;
use crate::attacks::strangers::as_nobody;
use crate::service::Service;

const READERS: &str = "the-token-of-the-readers";
const OPERATORS: &str = "the-token-of-the-operators";

/// A request that changes something. There is no such page: an operator is told so, and no other caller is.
const CHANGE: &str = "DELETE /v1/status";
const READ: &str = "GET /v1/status";

const POOL: &str = "[pool.p]\nbackend = { kind = 'file' }\nexport.a = { path = 'disk.raw' }\n";

/// A folder with the tokens' files.
fn tokens() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("readers"), READERS).unwrap();
    fs::write(folder.path().join("operators"), OPERATORS).unwrap();
    folder
}

fn configuration(api: &str) -> String {
    format!("listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n[api]\n{api}\n{POOL}")
}

/// The TCP address of the API of this service, as its log says.
fn address(service: &Service) -> String {
    let log = service.log();
    let addresses = log.lines().find_map(|line| line.split_once("API at ")).unwrap().1;
    let tcp = addresses.split(", ").find(|address| !address.starts_with("unix:")).unwrap();
    tcp.replace("0.0.0.0", "127.0.0.1")
}

fn request(request: &str, token: Option<&str>) -> String {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n")
}

/// The status of an answer.
fn status(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("{answer}"))
}

fn ask_over(mut stream: impl Read + Write, asked: &str, token: Option<&str>) -> u16 {
    stream.write_all(request(asked, token).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    status(&answer)
}

fn ask(address: &str, asked: &str, token: Option<&str>) -> u16 {
    ask_over(TcpStream::connect(address).unwrap(), asked, token)
}

#[test]
fn over_loopback_only_the_operators_token_changes_something() {
    let tokens = tokens();
    let file = |name: &str| tokens.path().join(name).display().to_string();
    let service = Service::start(
        "serve",
        &configuration(&format!("listen = ['127.0.0.1:0']\noperators = '{}'", file("operators"))),
    );
    let api = address(&service);
    assert_eq!(ask(&api, READ, None), 200, "as at the address of the metrics");
    assert_eq!(ask(&api, CHANGE, None), 401);
    for wrong in ["the-token-of-the-operator", "the-token-of-the-operatorss", "x", READERS] {
        assert_eq!(ask(&api, CHANGE, Some(wrong)), 401, "{wrong}");
        assert_eq!(ask(&api, READ, Some(wrong)), 401, "{wrong}");
    }
    assert_eq!(ask(&api, CHANGE, Some(OPERATORS)), 405, "an operator is told that there is no such page");
    assert_eq!(ask(&api, "POST /v1/nothing", None), 401, "whether a page exists is not told");
    // At the address of the metrics no caller is known.
    assert_eq!(ask(&service.address(), CHANGE, Some(OPERATORS)), 401);
    service.await_log("shows a token that is not accepted");

    // From now on readers need a token, and the operators' old one is void.
    fs::write(tokens.path().join("operators"), "the-new-token-of-the-operators").unwrap();
    service.configure(&configuration(&format!(
        "listen = ['127.0.0.1:0']\noperators = '{}'\nreaders = '{}'",
        file("operators"),
        file("readers")
    )));
    service.await_log("reloaded ");
    assert_eq!(ask(&api, READ, None), 401);
    assert_eq!(ask(&api, READ, Some(READERS)), 200);
    assert_eq!(ask(&api, CHANGE, Some(READERS)), 403);
    assert_eq!(ask(&api, CHANGE, Some(OPERATORS)), 401);
    assert_eq!(ask(&api, CHANGE, Some("the-new-token-of-the-operators")), 405);
}

/// Asks as another user.
fn ask_as_nobody(socket: &Path, asked: &'static str, token: Option<&'static str>) -> Option<u16> {
    let socket = socket.to_owned();
    let asking = move || {
        let stream = UnixStream::connect(socket).ok()?;
        Some(ask_over(stream, asked, token))
    };
    as_nobody(asking)
}

#[test]
fn through_a_socket_root_changes_something_and_another_user_does_not() {
    let tokens = tokens();
    let operators = tokens.path().join("operators");
    let service = Service::start(
        "serve",
        &configuration(&format!("listen = ['unix:api.sock']\noperators = '{}'", operators.display())),
    );
    let socket = service.path("api.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    let connect = || UnixStream::connect(&socket).unwrap();
    assert_eq!(ask_over(connect(), READ, None), 200);
    assert_eq!(ask_over(connect(), CHANGE, None), 405, "the service's own user is an operator");
    assert_eq!(ask_over(connect(), CHANGE, Some(READERS)), 401, "a token that is shown decides");
    if geteuid().is_root() {
        fs::set_permissions(service.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(ask_as_nobody(&socket, READ, None), None, "it may not connect");
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(ask_as_nobody(&socket, READ, None), Some(200));
        assert_eq!(ask_as_nobody(&socket, CHANGE, None), Some(403));
        assert_eq!(ask_as_nobody(&socket, CHANGE, Some(OPERATORS)), Some(405));
    }
    assert!(service.terminate().0.success());
    assert!(!socket.exists(), "its file went with the service");
}

#[test]
fn a_socket_that_a_service_listens_on_is_not_taken_from_it() {
    let service = Service::start("serve", &configuration("listen = ['unix:api.sock']"));
    let socket = service.path("api.sock");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("second.toml");
    fs::File::create(folder.path().join("disk.raw")).unwrap().set_len(1 << 20).unwrap();
    fs::write(&config, configuration(&format!("listen = ['unix:{}']", socket.display()))).unwrap();
    let second =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["serve", "-c"]).arg(&config).output().unwrap();
    let error = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{error}");
    assert!(error.contains("another service listens there"), "{error}");
    assert_eq!(ask_over(UnixStream::connect(&socket).unwrap(), READ, None), 200);
}

#[test]
fn beyond_loopback_nothing_is_served_in_plain_text() {
    let folder = tokens();
    let config = folder.path().join("tidegate.toml");
    fs::File::create(folder.path().join("disk.raw")).unwrap().set_len(1 << 20).unwrap();
    for (listen, column) in [("['0.0.0.0:9810']", 11), ("['127.0.0.1:1', '10.0.0.1:9810']", 26)] {
        fs::write(&config, configuration(&format!("listen = {listen}\noperators = 'operators'"))).unwrap();
        for command in [&["check"][..], &["serve"]] {
            let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(command)
                .arg("-c")
                .arg(&config)
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command:?}: {error}");
            assert!(error.contains(&format!("tidegate.toml:4:{column}: ")), "{error}");
            assert!(error.contains("can be reached from other hosts, and would not be encrypted"), "{error}");
        }
    }
}

/// A TLS connection to the API, with a certificate from this folder. `None`: without any.
fn encrypted(authority: &Authority, client: Option<&Path>, address: &str) -> Option<TlsStream> {
    let identity = client.map(|folder| TlsIdentity {
        certificate: folder.join("client-cert.pem"),
        private_key: folder.join("client-key.pem"),
    });
    let files = ClientFiles { authorities: authority.ca(), identity, server: "127.0.0.1".parse().unwrap() };
    let socket = TcpStream::connect(address).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    TlsStream::connect(socket.into(), &files.load().unwrap(), deadline).ok()
}

/// The status of an answer by TLS. `None`: the server broke off.
fn ask_encrypted(stream: Option<TlsStream>, asked: &str, token: Option<&str>) -> Option<u16> {
    let (mut stream, deadline) = (stream?, Instant::now() + Duration::from_secs(60));
    stream.write_all(request(asked, token).as_bytes(), deadline).ok()?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part, deadline) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&part[..length]),
            Err(_) => break,
        }
    }
    (!answer.is_empty()).then(|| status(&String::from_utf8_lossy(&answer)))
}

#[test]
fn by_tls_only_a_certificate_with_an_operators_name_changes_something() {
    let (authority, other_authority) = (Authority::new(), Authority::new());
    let server = authority.sign("server", "gateway", "IP:127.0.0.1");
    let [operator, reader] =
        ["ops.example", "monitor.example"].map(|name| authority.sign("client", name, &format!("DNS:{name}")));
    let stranger = other_authority.sign("client", "ops.example", "DNS:ops.example");
    let tokens = tokens();
    let service = Service::start(
        "serve",
        &configuration(&format!(
            "listen = ['0.0.0.0:0']\n{}\noperator_names = ['ops.example']\nreaders = '{}'",
            authority.table(&server),
            tokens.path().join("readers").display()
        )),
    );
    let api = address(&service);
    let ask = |client: Option<&Path>, asked: &str, token: Option<&str>| {
        ask_encrypted(encrypted(&authority, client, &api), asked, token)
    };
    assert_eq!(ask(None, READ, None), Some(401));
    assert_eq!(ask(None, READ, Some(READERS)), Some(200));
    assert_eq!(ask(None, CHANGE, Some(READERS)), Some(403));
    assert_eq!(ask(None, CHANGE, Some(OPERATORS)), Some(401), "there is no such token");
    assert_eq!(ask(Some(&reader), READ, None), Some(200));
    assert_eq!(ask(Some(&reader), CHANGE, None), Some(403));
    assert_eq!(ask(Some(&operator), CHANGE, None), Some(405));
    assert_eq!(ask(Some(&stranger), READ, None), None, "the name of an operator by another authority");
    // Plain text is not answered.
    let mut plain = TcpStream::connect(&api).unwrap();
    plain.write_all(request(READ, Some(READERS)).as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let failed = "tidegate_http_refused_connections_total{reason=\"handshake\"}";
    // A connection ends before it is counted.
    until("both failed handshakes", || service.metric(failed).filter(|count| *count >= 2.0));

    // The command line, which shows the same.
    let status = |options: &[&str]| {
        let url = format!("https://{api}");
        let ca = authority.ca();
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["status", "--url", &url, "--ca", ca.to_str().unwrap()])
            .args(options)
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = status(&[]);
    assert!(code == 1 && error.contains("refuses (401): show the token of `readers`"), "{error}");
    assert_eq!(status(&["--token-file", tokens.path().join("readers").to_str().unwrap()]).0, 0);
    let [certificate, key] = ["client-cert.pem", "client-key.pem"].map(|name| reader.join(name));
    let pair = ["--certificate", certificate.to_str().unwrap(), "--private-key", key.to_str().unwrap()];
    assert_eq!(status(&pair), (0, String::new()));
}

#[test]
fn half_a_handshake_is_not_waited_for_and_keeps_nobody_waiting() {
    let authority = Authority::new();
    let server = authority.sign("server", "gateway", "IP:127.0.0.1");
    let tokens = tokens();
    let service = Service::start(
        "serve",
        &configuration(&format!(
            "listen = ['0.0.0.0:0']\n{}\nreaders = '{}'",
            authority.table(&server),
            tokens.path().join("readers").display()
        )),
    );
    let api = address(&service);
    // The first bytes of a handshake, and then nothing.
    let hung: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(&api).unwrap();
            // It may be closed already.
            let _ = stream.write_all(&[22, 3, 1, 2, 0, 1]);
            stream
        })
        .collect();
    assert_eq!(ask_encrypted(encrypted(&authority, None, &api), READ, Some(READERS)), Some(200));
    let mut last = hung.last().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Closed with or without an alert.
    let _ = last.read_to_end(&mut Vec::new());
    let slow = "tidegate_http_refused_connections_total{reason=\"slow\"}";
    until("the end of the rest", || service.metric(slow).filter(|count| *count > 0.0));
}
