//! A web page on the administrator's machine asked a service to do something: by its own name that it had
//! pointed at the service's address, or across sites. And a question that costs seconds was answered to
//! anything that asked.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::service::Service;
use tidegate_testing::until;

const TOKEN: &str = "a-token-that-is-long-enough";

fn gateway(admit: &str) -> Service {
    Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n{admit}\n[pool.disk]\n\
             backend = {{ kind = 'emulated', preset = 'dnes-309170w' }}\nscheduler = 'yfq'\nexport.w1 = {{ \
             size = '4MiB' }}\n"
        ),
    )
}

fn question(tenants: usize) -> String {
    let tenant = |at| json!({ "name": format!("t{at}"), "iops": 0.05, "size": 4096, "response_time_s": 0.4 });
    json!({ "pool": "disk", "tenants": (0..tenants).map(tenant).collect::<Vec<_>>() }).to_string()
}

/// Takes as long as a question may: one of many tenants has a thousand times the requests of each other one.
fn long_question() -> String {
    let tenant = |at: u32| {
        let iops = if at == 0 { 1000.0 } else { 1.0 };
        json!({ "name": format!("t{at}"), "iops": iops, "size": 512, "response_time_s": 1.0 })
    };
    json!({ "pool": "disk", "tenants": (0..256).map(tenant).collect::<Vec<_>>() }).to_string()
}

fn send(address: &str, request: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

fn ask(address: &str, request: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut answer = String::new();
    send(address, request, headers, body).read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer}")), answer)
}

#[test]
fn admission_is_not_answered_without_a_token() {
    let service = gateway("");
    let address = service.address();
    let headers = [("Host", address.as_str()), ("Content-Type", "application/json")];
    let (status, said) = ask(&address, "POST /v1/admit", &headers, &question(1));
    assert!(status == 403 && said.contains("admit = { token_file"), "{said}");
}

#[test]
fn a_web_page_asks_in_vain() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, TOKEN).unwrap();
    let service = gateway(&format!("admit = {{ token_file = '{}' }}", file.display()));
    let address = service.address();
    let bearer = format!("Bearer {TOKEN}");
    let right = [
        ("Host", address.as_str()),
        ("Content-Type", "application/json"),
        ("Authorization", bearer.as_str()),
    ];
    let (status, said) = ask(&address, "POST /v1/admit", &right, &question(1));
    assert_eq!(status, 200, "{said}");
    let with = |name: &'static str, value: &'static str| {
        let mut headers: Vec<_> = right.into_iter().filter(|(known, _)| *known != name).collect();
        headers.push((name, value));
        ask(&address, "POST /v1/admit", &headers, &question(1)).0
    };
    assert_eq!(with("Host", "evil.example"), 403, "a name that was pointed here");
    assert_eq!(with("Origin", "http://evil.example"), 403);
    assert_eq!(with("Origin", "null"), 403);
    assert_eq!(with("Sec-Fetch-Site", "cross-site"), 403);
    assert_eq!(with("Content-Type", "text/plain"), 415, "as a page may send it without a question");
    assert_eq!(with("Authorization", "Bearer another-token-of-any-length"), 401);
    assert_eq!(ask(&address, "POST /v1/admit", &right[..2], &question(1)).0, 401);
    let read = |host| ask(&address, "GET /v1/status", &[("Host", host)], "").0;
    assert_eq!(read("evil.example"), 403, "a page that only says something");
    assert_eq!(read(&address), 200);

    // A question that takes long is given up when its asker is gone.
    let long = until("a long question that keeps others waiting", || {
        let long = send(&address, "POST /v1/admit", &right, &long_question());
        (ask(&address, "POST /v1/admit", &right, &question(1)).0 == 503).then_some(long)
    });
    drop(long);
    until("the next answer", || {
        (ask(&address, "POST /v1/admit", &right, &question(1)).0 == 200).then_some(())
    });
}

/// Behind a proxy every reader asks by the proxy's name: the administrator must learn what to write where.
#[test]
fn a_refused_name_is_logged_once_with_the_key_that_makes_it_known() {
    let read =
        |service: &Service| ask(&service.address(), "GET /metrics", &[("Host", "Storage.example:443")], "").0;
    let service = gateway("");
    assert_eq!([read(&service), read(&service), read(&service)], [403; 3]);
    service.await_log("its `Host` Storage.example:443 is no known name of this service");
    let (_, log) = service.terminate();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("Storage.example")).collect();
    assert!(lines.len() == 1 && lines[0].contains("add it to `names` of `[api]`"), "{log}");
    // For metrics alone the table needs nothing else.
    assert_eq!(read(&gateway("api = { names = ['storage.example'] }")), 200);
}

#[test]
fn a_web_page_removes_nothing_from_a_catalogue() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "listen = '127.0.0.1:0'\nnames = ['broker.example']\nstate = 'state'\n[node.a]\nplace = \
            'file://{}'\npeak = '60MB/s'\n",
        folder.path().display()
    );
    let service = Service::start("broker", &config);
    let log = service.log();
    let ready = log.lines().find_map(|line| line.split_once("on http://")?.1.strip_suffix(" ready"));
    let address = ready.unwrap().to_owned();
    let remove = |headers: &[(&str, &str)]| ask(&address, "DELETE /v1/objects/x", headers, "").0;
    assert_eq!(remove(&[("Host", "evil.example")]), 403);
    assert_eq!(remove(&[("Host", &address), ("Origin", "http://evil.example")]), 403);
    let place = |kind: &str| {
        let wish = r#"{"way":"write","name":"x","size":1,"needs":{"average":1}}"#;
        ask(&address, "POST /v1/place", &[("Host", "broker.example:7311"), ("Content-Type", kind)], wish).0
    };
    assert_eq!((place("text/plain"), place("application/json")), (415, 200));
    assert_eq!(remove(&[("Host", "localhost")]), 404, "there is none of the name");
}
