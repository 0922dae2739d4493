//! Encrypted connections to a real `nats-server`, with certificates that `openssl` made, and credentials of
//! its kind.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::common::server::Server;
use crate::common::{cluster_name, join, mark_of, report, resource, shown, wait_until_all_hear_all};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::{KeyPair, KeyPairType};
use tempfile::TempDir;
use tidegate_cluster::{
    Carrier, ClusterHandle, NatsConfig, NatsCredentials, ResourcePolicy, Secret, TlsError, TlsIdentity,
    TlsSettings, check_authorities, check_certificate, check_credentials, check_private_key, policy_get,
    policy_put,
};
use tidegate_testing::until_true;

/// An authority of the test's own, in a folder with what it has signed.
struct Authority(TempDir);

impl Authority {
    fn new(name: &str) -> Self {
        let authority = Self(tempfile::tempdir().unwrap());
        let [key, certificate] = ["ca.key", "ca.pem"].map(|name| authority.path(name));
        authority.openssl(&["req", "-x509", "-nodes", "-subj", &format!("/CN={name}")], &key, &certificate);
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Certificate and key of `name`, which is reached by `at`.
    fn identity(&self, name: &str, at: &str) -> TlsIdentity {
        let [key, request, certificate, extensions] =
            ["key", "csr", "pem", "ext"].map(|kind| self.path(&format!("{name}.{kind}")));
        self.openssl(&["req", "-nodes", "-subj", &format!("/CN={name}")], &key, &request);
        fs::write(&extensions, format!("subjectAltName={at}")).unwrap();
        let words = ["x509", "-req", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        let mut command = self.command(&words);
        command.arg("-in").arg(&request).arg("-extfile").arg(&extensions).arg("-out").arg(&certificate);
        run(&mut command);
        TlsIdentity { certificate, private_key: key }
    }

    fn openssl(&self, words: &[&str], key: &Path, out: &Path) {
        let mut command = self.command(words);
        command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        run(command.arg("-keyout").arg(key).arg("-out").arg(out));
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("openssl");
        command.current_dir(self.0.path()).args(words);
        command
    }

    /// A server that shows a certificate of this authority, for 127.0.0.1 only.
    fn server(&self, options: &[&str]) -> Server {
        let TlsIdentity { certificate, private_key } = self.identity("server", "IP:127.0.0.1");
        let (certificate, private_key) = (certificate.to_str().unwrap(), private_key.to_str().unwrap());
        let encrypted = ["--tls", "--tlscert", certificate, "--tlskey", private_key];
        Server::start(&[&encrypted, options].concat())
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("`openssl` is there: `apt-get install openssl`");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn trusting(authority: &Authority) -> TlsSettings {
    TlsSettings { authorities: Some(authority.ca()), identity: None }
}

fn user(password: &str) -> NatsCredentials {
    NatsCredentials::User { user: "host".to_owned(), password: Secret::new(password) }
}

#[track_caller]
fn wait_for_reason(cluster: &ClusterHandle, part: &str) {
    until_true(part, || {
        let status = cluster.status();
        !status.up && status.reason.is_some_and(|reason| reason.contains(part))
    });
}

#[test]
fn encrypted_hosts_with_a_password_hear_each_other_and_have_policies() {
    let authority = Authority::new("ours");
    let server = authority.server(&["--jetstream", "--user", "host", "--pass", "secret of hosts"]);
    let nats = NatsConfig {
        servers: vec![format!("tls://{}", server.address)],
        credentials: user("secret of hosts"),
        tls: Some(trusting(&authority)),
        replicas: 1,
        writers: [server.key.writer()].into(),
    };
    // `nats://` says only where, and so does no other way to write the address make it less encrypted.
    let bare = NatsConfig { servers: vec![format!("nats://{}", server.address)], ..nats.clone() };
    let [a, b] = [("a", &nats), ("b", &bare)].map(|(name, nats)| join(name, Carrier::Nats(nats.clone())));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);

    let vg0 = resource("vg0");
    let revision =
        policy_put(&nats, &cluster_name(), &vg0, (&ResourcePolicy::default(), 1, &server.key), 0).unwrap();
    assert_eq!(policy_get(&bare, &cluster_name(), &vg0).unwrap().unwrap().revision, revision);

    // Who is refused goes on alone, and is not waited for.
    let wrong = join("wrong", Carrier::Nats(NatsConfig { credentials: user("guessed"), ..nats.clone() }));
    wait_for_reason(&wrong, "authorization violation");
    wrong.publish(&vg0, report(1));
    assert!(wrong.heard(&vg0).is_empty());
    let error = policy_get(&NatsConfig { credentials: user("guessed"), ..nats }, &cluster_name(), &vg0);
    assert!(error.unwrap_err().to_string().contains("authorization violation"));
    assert!(a.status().up && b.status().up);
}

#[test]
fn a_server_that_is_not_who_it_says_is_not_spoken_to() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let server = authority.server(&[]);
    let with = |name: &str, address: &str, authority: &Authority| {
        let servers = vec![format!("nats://{address}:{}", server.address.port())];
        join(name, Carrier::Nats(NatsConfig { servers, tls: Some(trusting(authority)), ..server.config() }))
    };
    let right = with("right", "127.0.0.1", &authority);
    until_true("it is up", || right.status().up);
    wait_for_reason(
        &with("stranger", "127.0.0.1", &other),
        "its certificate is not accepted: invalid peer certificate: UnknownIssuer",
    );
    wait_for_reason(&with("elsewhere", "localhost", &authority), "not valid for name");
    // Nor one whom only the system's authorities would vouch for.
    let system = NatsConfig { tls: Some(TlsSettings::default()), ..server.config() };
    wait_for_reason(&join("system", Carrier::Nats(system)), "UnknownIssuer");
}

/// What somebody on the way would do: answer as a server that knows no encryption.
#[test]
fn a_password_is_not_sent_to_who_offers_no_encryption() {
    let authority = Authority::new("ours");
    let impostor = TcpListener::bind("127.0.0.1:0").unwrap();
    let nats = NatsConfig {
        servers: vec![format!("nats://{}", impostor.local_addr().unwrap())],
        credentials: user("secret of hosts"),
        tls: Some(trusting(&authority)),
        replicas: 1,
        writers: Default::default(),
    };
    let a = join("a", Carrier::Nats(nats));
    let (mut stream, _) = impostor.accept().unwrap();
    let greeting = r#"{"server_id":"x","version":"2.9.10","max_payload":1048576,"proto":1,"headers":true}"#;
    stream.write_all(format!("INFO {greeting}\r\n").as_bytes()).unwrap();
    let mut said = [0; 3];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(said[..2], [22, 3], "the beginning of a TLS handshake");
    drop(stream);
    drop(impostor);
    until_true("it is down", || {
        !a.status().up && a.status().reason.is_some_and(|why| why.contains("refused"))
    });

    let plain = Server::start(&[]);
    let a = join("a", Carrier::Nats(NatsConfig { tls: Some(trusting(&authority)), ..plain.config() }));
    until_true("it fails", || a.status().reason.is_some_and(|why| why.contains("127.0.0.1")));
    assert!(!a.status().up, "{}", shown(&a));
}

#[test]
fn an_address_that_a_host_on_the_way_announces_is_never_connected_to() {
    let authority = Authority::new("ours");
    let server = authority.server(&[]);
    let [way, elsewhere] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let nats = NatsConfig {
        servers: vec![format!("tls://{}", way.local_addr().unwrap())],
        tls: Some(trusting(&authority)),
        ..server.config()
    };
    let a = join("a", Carrier::Nats(nats));
    let (host, _) = way.accept().unwrap();
    let real = TcpStream::connect(server.address).unwrap();
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        (&real).read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    let line = String::from_utf8(line).unwrap();
    let announced = format!("INFO {{\"connect_urls\":[\"{}\"],", elsewhere.local_addr().unwrap());
    let changed = line.replacen("INFO {", &announced, 1);
    assert!(changed != line && changed.matches("connect_urls").count() == 1, "{changed}");
    (&host).write_all(changed.as_bytes()).unwrap();
    for (from, to) in [(&host, &real), (&real, &host)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut to));
    }
    until_true("it is up", || a.status().up);
    drop(way);
    host.shutdown(Shutdown::Both).unwrap();
    // By then every address that is known was tried.
    wait_for_reason(&a, "refused");
    elsewhere.set_nonblocking(true).unwrap();
    assert_eq!(elsewhere.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_server_that_asks_for_certificates_gets_ours() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let ca = authority.ca();
    let server = authority.server(&["--tlsverify", "--tlscacert", ca.to_str().unwrap()]);
    let with = |name: &str, identity: Option<TlsIdentity>| {
        let tls = Some(TlsSettings { identity, ..trusting(&authority) });
        join(name, Carrier::Nats(NatsConfig { tls, ..server.config() }))
    };
    let ours = authority.identity("host", "DNS:host");
    let [a, b] = ["a", "b"].map(|name| with(name, Some(ours.clone())));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    let (none, stranger) = (with("none", None), with("stranger", Some(other.identity("host", "DNS:host"))));
    for refused in [&none, &stranger] {
        until_true("it is refused", || {
            let why = "it refuses our certificate, or asks for one: ";
            refused.status().reason.is_some_and(|reason| reason.contains(why))
        });
        assert!(!refused.status().up, "{}", shown(refused));
    }
}

#[test]
fn a_file_that_is_missing_is_named_and_one_that_is_renewed_is_used() {
    let authority = Authority::new("ours");
    let server = authority.server(&[]);
    let path = authority.path("later.pem");
    let tls = Some(TlsSettings { authorities: Some(path.clone()), identity: None });
    let a = join("a", Carrier::Nats(NatsConfig { tls, ..server.config() }));
    wait_for_reason(&a, &format!("cannot read {}: No such file", path.display()));
    fs::write(&path, "nothing").unwrap();
    wait_for_reason(&a, &format!("{} holds no certificate in PEM form", path.display()));
    // Meanwhile the host goes on: nothing waits for the carrier.
    let vg0 = resource("vg0");
    a.publish(&vg0, report(1));
    assert_eq!(mark_of(&a, "b", &vg0), None);
    fs::copy(authority.ca(), &path).unwrap();
    until_true("it is up", || a.status().up);
}

#[test]
fn files_of_another_kind_are_told_apart() {
    let authority = Authority::new("ours");
    let [one, other] = ["one", "other"].map(|name| authority.identity(name, "DNS:host"));
    check_authorities(&authority.ca()).unwrap();
    check_certificate(&one.certificate).unwrap();
    check_private_key(&one.private_key).unwrap();
    assert!(matches!(check_authorities(&one.private_key), Err(TlsError::NoCertificate(_))));
    assert!(matches!(check_certificate(&one.private_key), Err(TlsError::NoCertificate(_))));
    assert!(matches!(check_private_key(&one.certificate), Err(TlsError::NoPrivateKey(_))));
    assert!(matches!(check_private_key(authority.0.path()), Err(TlsError::Read { .. })));
    assert!(check_credentials(&one.private_key).unwrap_err().to_string().contains("holds no credentials"));
    let pair = |certificate: &TlsIdentity, key: &TlsIdentity| {
        let (certificate, private_key) = (certificate.certificate.clone(), key.private_key.clone());
        TlsSettings { authorities: None, identity: Some(TlsIdentity { certificate, private_key }) }.check()
    };
    pair(&one, &one).unwrap();
    let mixed = pair(&one, &other).unwrap_err();
    assert!(matches!(mixed, TlsError::Pair { .. }), "{mixed}");
    assert!(mixed.to_string().contains("do not go together"), "{mixed}");
}

/// What `nsc` makes: claims about `subject`, signed by `issuer`.
fn jwt(issuer: &KeyPair, subject: &KeyPair, nats: &serde_json::Value) -> String {
    let claims = serde_json::json!({
        "jti": "one", "iat": 1_700_000_000, "iss": issuer.public_key(), "name": "test",
        "sub": subject.public_key(), "nats": nats,
    });
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed =
        format!("{}.{}", encoded(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#), encoded(&claims.to_string()));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap()))
}

fn key_pair(kind: KeyPairType, seed: u8) -> KeyPair {
    KeyPair::new_from_raw(kind, [seed; 32]).unwrap()
}

#[test]
fn a_user_is_known_by_the_signature_of_its_key() {
    let operator = key_pair(KeyPairType::Operator, 1);
    let account = key_pair(KeyPairType::Account, 2);
    let operator_jwt = jwt(&operator, &operator, &serde_json::json!({ "type": "operator", "version": 2 }));
    let account_jwt = jwt(
        &operator,
        &account,
        &serde_json::json!({
            "type": "account", "version": 2,
            "limits": {
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
                "conn": -1, "leaf": -1,
            },
        }),
    );
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("server.conf");
    fs::write(
        &config,
        format!(
            "operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload: {{ {}: {account_jwt} }}\n",
            account.public_key()
        ),
    )
    .unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);

    let user = key_pair(KeyPairType::User, 3);
    let user_claims =
        serde_json::json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let creds = |name: &str, jwt: &str, key: &KeyPair| {
        let path = folder.path().join(name);
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            key.seed().unwrap()
        );
        fs::write(&path, text).unwrap();
        path
    };
    let good = creds("good.creds", &jwt(&account, &user, &user_claims), &user);
    // A user of an account that the server does not know.
    let foreign = key_pair(KeyPairType::Account, 4);
    let bad = creds("bad.creds", &jwt(&foreign, &user, &user_claims), &user);
    check_credentials(&good).unwrap();
    let with = |name: &str, path: &Path| {
        let credentials = NatsCredentials::File(path.to_owned());
        join(name, Carrier::Nats(NatsConfig { credentials, ..server.config() }))
    };
    let [a, b] = ["a", "b"].map(|name| with(name, &good));
    wait_until_all_hear_all(&[("a", &a), ("b", &b)]);
    let refused = with("refused", &bad);
    wait_for_reason(&refused, "authorization violation");
    let missing = folder.path().join("missing.creds");
    let later = with("later", &missing);
    wait_for_reason(&later, "missing.creds: No such file");
    fs::write(&missing, "nothing").unwrap();
    wait_for_reason(&later, "missing.creds holds no credentials");
    fs::copy(&good, &missing).unwrap();
    until_true("it is up", || later.status().up);
}
