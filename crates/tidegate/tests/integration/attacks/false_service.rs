//! Another user listens where the command line looks for a service: no token goes there, nothing is believed, and
//! nothing of an answer changes the terminal.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
use rustix::process::geteuid;
use tidegate_testing::{Lack, in_own_network, skip};

use super::strangers::as_nobody;
use crate::service::{Service, text};

const GATEWAY: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
export.volume = { size = '64MiB' }
";

const TOKEN: &str = "the-token-of-the-operators";

/// Answers every request of a listener with the same document, and keeps what was asked.
fn answer(listener: TcpListener, status: &'static str, document: String) -> Arc<Mutex<String>> {
    let asked = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or_default();
            kept.lock().unwrap().push_str(&String::from_utf8_lossy(&request[..length]));
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{document}",
                document.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    asked
}

/// A refusal that would clear the screen, and read backwards.
const REFUSAL: &str = "{\"error\":\"\\u001b[2J\\u202egone\u{9b}31m\"}";

/// Returns the program with a token, where no service has an operator's socket.
fn with_token(folder: &Path, arguments: &[&str]) -> Command {
    let token = folder.join("token");
    fs::write(&token, TOKEN).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env("TIDEGATE_RUN_DIR", folder).env("TIDEGATE_TOKEN_FILE", token);
    command
}

fn tidegate(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    with_token(folder.path(), arguments).output().unwrap()
}

#[test]
fn a_stranger_at_a_port_of_this_machine_gets_no_token_and_releases_nothing() {
    if !geteuid().is_root() {
        skip(Lack::Root, "another user");
        return;
    }
    // What a gateway answers that throttles nothing.
    let status = Service::start("serve", GATEWAY).get("/v1/status");
    in_own_network(move || {
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let listener = as_nobody(|| TcpListener::bind("127.0.0.1:9809").unwrap());
        let asked = answer(listener, "200 OK", status);
        let url = "http://127.0.0.1:9809";
        // Whoever was named may be asked questions, and no more.
        for command in [&["release", "--url", url][..], &["release", "--end", "--url", url]] {
            let done = tidegate(command);
            let said = text(&done.stderr);
            assert_eq!(done.status.code(), Some(1), "{said}");
            assert!(!text(&done.stdout).contains("released until"), "{said}");
        }
        // Nobody was named.
        for command in [&["status"][..], &["release", "--end"]] {
            let done = tidegate(command);
            let said = text(&done.stderr);
            assert_eq!(done.status.code(), Some(1), "{said}");
            assert!(said.contains("is not asked: user 65534 listens there"), "{said}");
        }
        let listing = tidegate(&["transfer", "list", "--broker", url]);
        assert!(text(&listing.stderr).contains("gets no token: user 65534 listens there"));
        let asked = asked.lock().unwrap();
        assert!(!asked.contains(TOKEN) && !asked.contains("POST") && !asked.contains("DELETE"), "{asked}");
    });
}

#[test]
fn a_stranger_on_all_addresses_of_ipv6_keeps_no_token_from_a_service_on_ipv4() {
    if !geteuid().is_root() {
        skip(Lack::Root, "another user");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _stranger = as_nobody(move || {
        let socket = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        sockopt::set_ipv6_v6only(&socket, true).unwrap();
        bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).unwrap();
        listen(&socket, 8).unwrap();
        socket
    });
    let asked = answer(listener, "403 Forbidden", REFUSAL.to_owned());
    tidegate(&["release", "--url", &format!("http://127.0.0.1:{port}")]);
    assert!(asked.lock().unwrap().contains(TOKEN));
}

#[test]
fn a_service_of_another_user_that_a_file_names_is_read_and_gets_no_token() {
    if !geteuid().is_root() {
        skip(Lack::Root, "another user");
        return;
    }
    let status = Service::start("serve", GATEWAY).get("/v1/status");
    let listener = as_nobody(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap().to_string();
    let asked = answer(listener, "200 OK", status);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, GATEWAY.replace("127.0.0.1:0", &address)).unwrap();
    let file = file.to_str().unwrap();
    let shown = tidegate(&["status", "-c", file]);
    assert!(shown.status.success() && text(&shown.stdout).contains(&address), "{}", text(&shown.stderr));
    let refused = tidegate(&["release", "-c", file]);
    assert!(text(&refused.stderr).contains("user 65534 listens there"), "{}", text(&refused.stderr));
    let asked = asked.lock().unwrap();
    assert!(asked.contains("GET /v1/status") && !asked.contains(TOKEN) && !asked.contains("POST"), "{asked}");
}

#[test]
fn a_stranger_who_takes_a_brokers_port_while_a_client_waits_gets_no_token() {
    if !geteuid().is_root() {
        skip(Lack::Root, "another user");
        return;
    }
    in_own_network(|| {
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let broker = TcpListener::bind("127.0.0.1:7311").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["transfer", "remove", "x", "--broker", "http://127.0.0.1:7311", "--patience", "60s"];
        let client = with_token(folder.path(), &arguments).stderr(Stdio::piped()).spawn().unwrap();
        // The broker of this user takes the question, and ends.
        let (mut asks, mut question) = (broker.accept().unwrap().0, [0; 4096]);
        let length = asks.read(&mut question).unwrap();
        assert!(String::from_utf8_lossy(&question[..length]).contains(TOKEN));
        drop((asks, broker));
        let asked =
            answer(as_nobody(|| TcpListener::bind("127.0.0.1:7311").unwrap()), "200 OK", String::new());
        let done = client.wait_with_output().unwrap();
        let said = text(&done.stderr);
        assert!(said.contains("gets no token: user 65534 listens there"), "{said}");
        assert_eq!(*asked.lock().unwrap(), "");
    });
}

#[test]
fn the_token_goes_to_a_service_of_this_user_and_controls_in_answers_do_not_reach_the_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = answer(listener, "403 Forbidden", REFUSAL.to_owned());
    for command in ["status", "explain", "release"] {
        let done = tidegate(&[command, "--url", &url]);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains(r"\u001b[2J\u202egone\u009b31m"), "{said:?}");
        assert!(said.contains("token is open to everyone on this host (mode 644)"), "{said:?}");
        assert!(!said.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{said:?}");
    }
    assert!(asked.lock().unwrap().contains(TOKEN));
}
