//! Clients that may not: in plain text where TLS is required, with the wrong certificate, from the wrong
//! address, as the wrong user. And those that may, by TLS, with the clients that others have written.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::attacks::pki::{Authority, fail, succeed};
use crate::service::Service;
use tidegate_testing::{has_programs, until};

const CLIENTS: &[&str] = &["openssl", "nbdinfo", "nbdcopy", "qemu-img"];

/// The exports of these tests: one for certificates, others that this client never fits.
const EXPORTS: &str = r#"
metrics = "127.0.0.1:0"

[pool.p]
backend = { kind = "file" }

[pool.p.export.data]
path = "disk.raw"
allow = [{ certificate = "db1" }]
"#;

fn port(service: &Service) -> u16 {
    let log = service.log();
    let line = log.lines().find(|line| line.contains("ready, listening on")).unwrap();
    let (_, rest) = line.split_once("tcp:127.0.0.1:").unwrap();
    rest.split(',').next().unwrap().trim().parse().unwrap()
}

fn uri(port: u16, export: &str, certificates: &Path) -> String {
    format!("nbds://127.0.0.1:{port}/{export}?tls-certificates={}", certificates.display())
}

fn refusals(service: &Service, reason: &str) -> u64 {
    let series = format!("tidegate_connections_refused_total{{reason=\"{reason}\"}} ");
    let metrics = service.get("/metrics");
    metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

#[test]
fn by_tls_the_right_certificate_opens_and_every_other_one_is_refused() {
    if !has_programs(CLIENTS) {
        return;
    }
    let (ours, others) = (Authority::new(), Authority::new());
    let server = ours.sign("server", "gateway", "DNS:localhost,IP:127.0.0.1");
    // One name as subjectAltName, and one as common name alone.
    let db1 = ours.sign("client", "whatever", "DNS:db1");
    let by_common_name = ours.sign("client", "db1", "");
    let db2 = ours.sign("client", "db2", "DNS:db2");
    let stranger = others.sign("client", "db1", "DNS:db1");
    fs::copy(ours.ca(), stranger.join("ca-cert.pem")).unwrap();
    let misled = ours.sign("client", "misled", "DNS:db1");
    fs::copy(others.ca(), misled.join("ca-cert.pem")).unwrap();
    let service = Service::start(
        "serve",
        &format!(
            "listen = [{{ address = \"tcp:127.0.0.1:0\", tls = \"required\" }}]\n{}\n{EXPORTS}",
            ours.table(&server)
        ),
    );
    let port = port(&service);

    for good in [&db1, &by_common_name] {
        assert!(
            succeed("nbdinfo", &[&uri(port, "data", good)]).contains("protocol: newstyle-fixed with TLS")
        );
    }
    assert!(succeed("nbdinfo", &["--list", &uri(port, "", &db1)]).contains("export=\"data\""));
    // 8 MiB there and back, over several connections.
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let bytes: Vec<u8> = (0..8u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&from, &bytes).unwrap();
    let there = uri(port, "data", &db1);
    succeed("nbdcopy", &["--flush", from.to_str().unwrap(), &there]);
    succeed("nbdcopy", &[&there, to.to_str().unwrap()]);
    assert!(fs::read(&to).unwrap() == bytes, "what came back is not what was sent");
    let object = format!("tls-creds-x509,id=tls0,endpoint=client,dir={}", db1.display());
    let image = format!("driver=nbd,host=127.0.0.1,port={port},export=data,tls-creds=tls0");
    let info = succeed("qemu-img", &["info", "--object", &object, "--image-opts", &image]);
    assert!(info.contains("8 MiB"), "{info}");

    // Nothing was refused so far.
    for reason in ["tls_required", "tls_failed", "certificate"] {
        assert_eq!(refusals(&service, reason), 0, "{reason}");
    }
    let plain = fail("nbdinfo", &[&format!("nbd://127.0.0.1:{port}/data")]);
    assert!(plain.contains("replied with error"), "{plain}");
    assert_eq!(refusals(&service, "tls_required"), 1);
    fail("nbdinfo", &[&uri(port, "data", &stranger)]);
    until("the stranger's refusal", || (refusals(&service, "tls_failed") == 1).then_some(()));
    fail("nbdinfo", &[&uri(port, "data", &misled)]);
    until("the misled client's goodbye", || (refusals(&service, "tls_failed") == 2).then_some(()));
    fail("nbdinfo", &[&uri(port, "data", &db2)]);
    assert_eq!(refusals(&service, "certificate"), 1);
    assert!(!succeed("nbdinfo", &["--list", &uri(port, "", &db2)]).contains("export=\"data\""));
    let log = service.log();
    for reason in ["what needs TLS", "TLS: ", "`allow` names no such certificate"] {
        assert!(log.contains(reason), "{reason} is not in the log:\n{log}");
    }
}

#[test]
fn plain_text_behind_starttls_is_not_taken_for_what_comes_by_tls() {
    if !has_programs(CLIENTS) {
        return;
    }
    let ours = Authority::new();
    let server = ours.sign("server", "gateway", "IP:127.0.0.1");
    let configuration = format!(
        "listen = [\"unix:nbd.sock\", {{ address = \"tcp:127.0.0.1:0\", tls = \"offered\" }}]\n{}\n{EXPORTS}",
        ours.table(&server)
    );
    let service = Service::start("serve", &configuration);
    let mut stream = TcpStream::connect(("127.0.0.1", port(&service))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    let option = |number: u32, data: &[u8]| {
        let length = (data.len() as u32).to_be_bytes();
        [&b"IHAVEOPT"[..], &number.to_be_bytes(), &length, data].concat()
    };
    // Structured replies behind STARTTLS in one segment.
    let attack = [vec![0, 0, 0, 3], option(5, b""), option(8, b"")].concat();
    stream.write_all(&attack).unwrap();
    let mut answer = Vec::new();
    // A reset is as good an end as any.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty(), "the server goes on: {answer:?}");
    service.await_log("plain text behind its request for TLS");
}

#[test]
fn other_users_and_addresses_are_refused_and_see_nothing() {
    if !has_programs(CLIENTS) {
        return;
    }
    let configuration = r#"
        listen = [{ address = "unix:nbd.sock", mode = "0600" }, "tcp:127.0.0.1:0"]
        metrics = "127.0.0.1:0"

        [pool.p]
        backend = { kind = "emulated", preset = "sata-stripe" }
        [pool.p.export.user]
        size = "1MiB"
        allow = [{ user = "64055" }, { group = "64055" }]
        [pool.p.export.network]
        size = "1MiB"
        allow = [{ network = "192.0.2.0/24" }]
        [pool.p.export.local]
        size = "1MiB"
    "#;
    let service = Service::start("serve", configuration);
    let tcp = |export: &str| format!("nbd://127.0.0.1:{}/{export}", port(&service));
    assert_eq!(fs::metadata(service.path("nbd.sock")).unwrap().permissions().mode() & 0o777, 0o600);
    fail("nbdinfo", &[&service.uri("user")]);
    fail("nbdinfo", &[&service.uri("network")]);
    assert_eq!(refusals(&service, "user"), 2);
    fail("nbdinfo", &[&tcp("network")]);
    fail("nbdinfo", &[&tcp("user")]);
    assert_eq!(refusals(&service, "address"), 2);
    for local in [service.uri("local"), tcp("local")] {
        succeed("nbdinfo", &[&local]);
    }
    for list in [service.uri(""), tcp("")] {
        let listed = succeed("nbdinfo", &["--list", &list]);
        assert!(listed.contains("local") && !listed.contains("user"), "{listed}");
    }
    // The same client under another name of its own is let in.
    let uid = own_uid();
    service.configure(&configuration.replace("{ user = \"64055\" }", &format!("{{ user = \"{uid}\" }}")));
    service.await_log("reloaded");
    succeed("nbdinfo", &[&service.uri("user")]);
}

fn own_uid() -> String {
    succeed("id", &["-u"]).trim().to_owned()
}

#[test]
fn a_reload_shows_the_new_certificate_and_leaves_sessions_alone() {
    if !has_programs(CLIENTS) {
        return;
    }
    let (old, new) = (Authority::new(), Authority::new());
    let server = old.sign("server", "gateway", "IP:127.0.0.1");
    let before = old.sign("client", "db1", "DNS:db1");
    let after = old.sign("client", "later", "DNS:db1");
    fs::copy(new.ca(), after.join("ca-cert.pem")).unwrap();
    let configuration = format!("listen = [\"tcp:127.0.0.1:0\"]\n{}\n{EXPORTS}", old.table(&server));
    let service = Service::start("serve", &configuration);
    let port = port(&service);
    succeed("nbdinfo", &[&uri(port, "data", &before)]);
    fail("nbdinfo", &[&uri(port, "data", &after)]);
    let renewed = new.sign("server", "gateway", "IP:127.0.0.1");
    for file in ["server-cert.pem", "server-key.pem"] {
        fs::copy(renewed.join(file), server.join(file)).unwrap();
    }
    service.signal("-HUP");
    service.await_log("reloaded");
    succeed("nbdinfo", &[&uri(port, "data", &after)]);
    fail("nbdinfo", &[&uri(port, "data", &before)]);
    // A file that cannot be used changes nothing.
    fs::write(server.join("server-cert.pem"), "nothing").unwrap();
    service.signal("-HUP");
    service.await_log("not reloaded");
    succeed("nbdinfo", &[&uri(port, "data", &after)]);
}

/// One name, and behind it a consumer for each certificate.
#[test]
fn a_certificate_decides_which_consumer_a_client_is() {
    if !has_programs(CLIENTS) {
        return;
    }
    let ours = Authority::new();
    let server = ours.sign("server", "gateway", "DNS:localhost,IP:127.0.0.1");
    let db1 = ours.sign("client", "db1", "DNS:db1");
    let db2 = ours.sign("client", "db2", "DNS:db2");
    let stranger = ours.sign("client", "db3", "DNS:db3");
    let export = |name: &str| {
        format!(
            "[pool.p.export.{name}]\npath = \"disk.raw\"\nserved_as = \"data\"\nshared_volume = true\n\
             allow = [{{ certificate = \"{name}\" }}]\n"
        )
    };
    let service = Service::start(
        "serve",
        &format!(
            "listen = [{{ address = \"tcp:127.0.0.1:0\", tls = \"required\" }}]\n{}\n\
             metrics = \"127.0.0.1:0\"\n[pool.p]\nbackend = {{ kind = \"file\" }}\n{}{}",
            ours.table(&server),
            export("db1"),
            export("db2")
        ),
    );
    let port = port(&service);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    for (client, times) in [(&db1, 1), (&db2, 2)] {
        for _ in 0..times {
            succeed("nbdcopy", &[file.to_str().unwrap(), &uri(port, "data", client)]);
        }
        // The only name that there is.
        succeed("nbdinfo", &[&uri(port, "", client)]);
        let list = succeed("nbdinfo", &["--list", &uri(port, "", client)]);
        assert_eq!(list.matches("export=\"data\"").count(), 1, "{list}");
    }
    fail("nbdinfo", &[&uri(port, "data", &stranger)]);
    assert_eq!(refusals(&service, "certificate"), 1);
    let written = |consumer: &str| {
        let series =
            format!("tidegate_payload_bytes_total{{pool=\"p\",consumer=\"{consumer}\",op=\"write\"}}");
        service.metric(&series).unwrap()
    };
    assert_eq!((written("db1"), written("db2")), (1_048_576.0, 2_097_152.0));
}
