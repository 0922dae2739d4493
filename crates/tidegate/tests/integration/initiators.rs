//! Latencies that other machines measure, by real programs: an initiator's agent and the one that takes its
//! reports, a Prometheus server, an SNMP agent. On a dry run they need no privileges, and touch nothing.

use std::fs::{self, Permissions};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::service::{Service, text, tidegate};
use tidegate_testing::until;

const KEY: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0MTI=";

/// A port that is free now.
fn port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The same for TCP.
fn tcp_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn cluster(host: &str, own: u16, peer: u16, key: &Path) -> String {
    format!(
        "metrics = '127.0.0.1:0'
        [cluster]
        name = 'san-a'
        host = '{host}'
        carrier = {{ kind = 'udp', listen = '127.0.0.1:{own}', peers = ['127.0.0.1:{peer}'], key_file = '{}' }}
        ",
        key.display()
    )
}

/// The first block device of this machine.
fn device() -> String {
    let stats = fs::read_to_string("/proc/diskstats").unwrap();
    stats.lines().find_map(|line| line.split_whitespace().nth(2)).expect("a block device").to_owned()
}

/// Makes a file with a key.
fn key(folder: &Path, name: &str, key: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::write(&path, key).unwrap();
    path
}

fn initiator(own: u16, peer: u16, key: &Path) -> String {
    let device = device();
    format!("{}[report_to.vg0]\ndevice = '{device}'\ninterval = '100ms'\n", cluster("db1", own, peer, key))
}

/// The first reporter of the resource in the status; `None` while there is none.
fn reporter(agent: &Service) -> Option<Value> {
    let status: Value = serde_json::from_str(&agent.get("/v1/status")).unwrap();
    status["resources"][0]["reporters"].get(0).cloned()
}

#[test]
fn an_initiator_reports_to_the_agent_of_its_storage_until_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (target, client) = (port(), port());
    let key_file = key(folder.path(), "key", KEY);
    let regulator = Service::start(
        "agent",
        &format!(
            "{}[resource.vg0]\ndevice = 'no-such-device'\ntarget = '15ms'\ndry_run = true\nreports = true\n",
            cluster("target", target, client, &key_file)
        ),
    );
    // Without the key it is not heard.
    let wrong = key(folder.path(), "wrong", &KEY.replace('c', "d"));
    let stranger = Service::start("agent", &initiator(client, target, &wrong));
    regulator.await_log("does not count: it was not made with our key");
    assert_eq!(reporter(&regulator), None);
    let (status, log) = stranger.terminate();
    assert!(status.success(), "{log}");

    let initiator = Service::start("agent", &initiator(client, target, &key_file));
    let heard = until("a report", || reporter(&regulator));
    assert_eq!(heard["host"], "db1");
    // Its target has no session of it.
    assert_eq!((&heard["consumer"], &heard["counts"]), (&Value::Null, &Value::Bool(false)));
    let age = "tidegate_resource_report_age_seconds{resource=\"vg0\",host=\"db1\"}";
    until("a young report", || regulator.metric(age).filter(|age| *age < 0.5));
    // On a busy machine a report may be too old at the moment of the question.
    let said = until("the use of a young report", || {
        let said = text(&tidegate(&["status", "--url", &format!("http://{}", regulator.address())]).stdout);
        let reading = "does not count: no consumer of the resource by its name or address";
        Some(said).filter(|said| said.contains(reading))
    });
    assert!(said.contains("cluster san-a: this host is target, carrier udp, up"), "{said}");
    assert!(said.contains("signal by this host: no report that counts is longer"), "{said}");

    drop(initiator);
    until("that it is silent", || reporter(&regulator).filter(|one| one["said"] == "too old to count"));
}

#[test]
fn check_names_what_an_initiator_reports_and_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = key(folder.path(), "key", KEY);
    let path = folder.path().join("agent.toml");
    let check = |config: &str| {
        fs::write(&path, config).unwrap();
        text_of(&tidegate(&["check", "-c", path.to_str().unwrap()]))
    };
    let config = initiator(port(), port(), &key_file);
    let said = check(&config);
    assert!(said.contains("report on vg0") && said.contains(&device()), "{said}");
    let said = check(&config.replace(&device(), "no-such-device"));
    assert!(said.contains("there is no device no-such-device here"), "{said}");
    let said = check(&config.replace("[cluster]", "[elsewhere]"));
    assert!(said.contains("elsewhere"), "{said}");
    let said = check("[report_to.vg0]\ndevice = 'sda'\n");
    assert!(said.contains("add a table `[cluster]`"), "{said}");
    fs::remove_file(&key_file).unwrap();
    let said = check(&config);
    assert!(said.contains(&key_file.display().to_string()), "{said}");
}

/// A program that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, arguments: &[String], folder: &Path) -> Ends {
    let log = fs::File::create(folder.join("program.log")).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).env("SNMP_PERSISTENT_DIR", folder).stdout(Stdio::null()).stderr(log);
    Ends(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; see lab/packages")))
}

fn by_source(source: &str) -> Service {
    let resource = "[resource.array]\ndevice = 'no-such-device'\ntarget = '15ms'\ndry_run = true\n";
    Service::start(
        "agent",
        &format!("metrics = '127.0.0.1:0'\n{resource}source = {{ {source}, unit = 'ms' }}\n"),
    )
}

fn source(agent: &Service) -> Value {
    let status: Value = serde_json::from_str(&agent.get("/v1/status")).unwrap();
    status["resources"][0]["source"].clone()
}

fn await_latency(agent: &Service) {
    until("the latency", || {
        source(agent)["latency_seconds"].as_f64().filter(|found| (found - 0.0125).abs() < 1e-9)
    });
    let estimate = "tidegate_resource_estimate_seconds{resource=\"array\"}";
    until("a decision by it", || agent.metric(estimate).filter(|found| (found - 0.0125).abs() < 1e-9));
}

/// Starts a Prometheus server without metrics of its own, and returns the place of a source there.
fn prometheus(folder: &Path) -> (Ends, String) {
    fs::write(folder.join("prometheus.yml"), "scrape_configs: []\n").unwrap();
    let address = format!("127.0.0.1:{}", tcp_port());
    let arguments = [
        format!("--config.file={}", folder.join("prometheus.yml").display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address={address}"),
    ];
    let server = start("prometheus", &arguments, folder);
    (server, format!("prometheus = 'http://{address}', every = '200ms'"))
}

#[test]
fn a_prometheus_server_is_asked_and_its_silence_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (server, place) = prometheus(folder.path());
    let agent = by_source(&format!("{place}, query = 'vector(12.5)'"));
    await_latency(&agent);
    drop(server);
    until("that it is too old", || (source(&agent)["counts"] == false).then_some(()));
    assert!(source(&agent)["trouble"].is_string());
    agent.await_log("no latency from the Prometheus server at");
}

#[test]
fn a_source_without_samples_is_unknown_and_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, place) = prometheus(folder.path());
    for (value, trouble) in [
        ("0 / 0", Value::Null),
        ("1 / 0", "inf is no latency in this unit: is `unit` right?".into()),
        ("-1", "-1 is no latency in this unit: is `unit` right?".into()),
    ] {
        let agent = by_source(&format!("{place}, query = 'vector({value})'"));
        let seen = until("an answer", || {
            let seen = source(&agent);
            let is_there =
                if trouble.is_null() { seen["age_seconds"].is_number() } else { seen["trouble"] == trouble };
            is_there.then_some(seen)
        });
        assert_eq!((&seen["counts"], &seen["latency_seconds"]), (&false.into(), &Value::Null), "{value}");
    }
}

/// An SNMP agent with a community and two users. The second user has no encryption.
struct SnmpAgent {
    folder: tempfile::TempDir,
    address: String,
    running: Option<Ends>,
}

/// nsExtendOutput1Line."latency"
const LATENCY: &str = "1.3.6.1.4.1.8072.1.3.2.3.1.1.7.108.97.116.101.110.99.121";

impl SnmpAgent {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = "rocommunity secret 127.0.0.1\nextend latency /bin/echo 12.5\n\
            createUser monitor SHA-256 'how it is signed' AES 'how it is hidden'\nrouser monitor priv\n\
            createUser plain SHA 'how it is signed'\nrouser plain auth\n";
        // The agent itself writes a file snmpd.conf into this folder.
        fs::write(folder.path().join("agent.conf"), config).unwrap();
        let mut agent = Self { folder, address: format!("127.0.0.1:{}", port()), running: None };
        agent.restart();
        agent
    }

    fn restart(&mut self) {
        self.running = None;
        let config = self.folder.path().join("agent.conf");
        let arguments = ["-f", "-Lo", "-C", "-c"].map(str::to_owned);
        let place = [config.display().to_string(), format!("udp:{}", self.address)];
        let arguments = [&arguments[..], &place].concat();
        self.running = Some(start("snmpd", &arguments, self.folder.path()));
    }

    /// Returns a file with a secret.
    fn secret(&self, secret: &str) -> String {
        let path = key(self.folder.path(), &secret.replace(' ', "-"), secret);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        path.display().to_string()
    }

    /// Returns a source with this object and these credentials.
    fn source(&self, object: &str, credentials: &str) -> String {
        format!("snmp = '{}', oid = '{object}', {credentials}, every = '500ms'", self.address)
    }

    fn community(&self, object: &str, community: &str) -> String {
        self.source(object, &format!("community_file = '{}'", self.secret(community)))
    }

    fn user(&self, object: &str, (name, signed, hidden): (&str, &str, Option<&str>)) -> String {
        let hidden = hidden.map(|secret| format!(", privacy_file = '{}'", self.secret(secret)));
        let signed = self.secret(signed);
        let (hidden, signed) = (hidden.unwrap_or_default(), format!("authentication_file = '{signed}'"));
        self.source(object, &format!("user = '{name}', {signed}{hidden}"))
    }
}

/// The same source, with two seconds for an answer: only the first trouble is logged, and on a busy machine
/// that could be a late answer.
fn patient(source: &str) -> String {
    source.replace("every = '500ms'", "every = '5s'")
}

#[test]
fn an_object_of_an_snmp_agent_is_got_and_a_wrong_community_is_said() {
    let agent = SnmpAgent::start();
    await_latency(&by_source(&agent.community(LATENCY, "secret")));
    by_source(&agent.community(LATENCY, "wrong")).await_log("no answer within 500ms: is the community right");
    let unknown = patient(&agent.community("1.3.6.1.4.1.8072.9999.1", "secret"));
    by_source(&unknown).await_log("has no object 1.3.6.1.4.1.8072.9999.1");
}

#[test]
fn a_user_of_snmp_version_3_is_believed_and_found_again_after_the_agents_restart() {
    let mut agent = SnmpAgent::start();
    let (signed, hidden) = ("how it is signed", "how it is hidden");
    let service = by_source(&agent.user(LATENCY, ("monitor", signed, Some(hidden))));
    await_latency(&service);
    // As of every secret.
    service.await_log("how-it-is-hidden is open to everyone on this host (mode 644)");
    agent.running = None;
    until("that it is silent", || source(&service)["trouble"].as_str().map(str::to_owned));
    service.await_log("no answer within 500ms: does an agent with version 3 listen there, and are");
    agent.restart();
    service.await_log("answers again");
    await_latency(&service);
    let sha1 = agent.user(LATENCY, ("plain", signed, None)) + ", authentication = 'sha1'";
    await_latency(&by_source(&sha1));
}

#[test]
fn what_an_snmp_agent_refuses_of_a_user_is_said_with_the_key_that_is_wrong() {
    let agent = SnmpAgent::start();
    // It answers, or the first trouble would be that it does not yet.
    await_latency(&by_source(&agent.community(LATENCY, "secret")));
    let (signed, hidden) = ("how it is signed", "how it is hidden");
    for (user, more, said) in [
        (("stranger", signed, Some(hidden)), "", "the agent knows no user stranger: is `user` right?"),
        (("monitor", "another one", Some(hidden)), "", "refuses the authentication of user monitor"),
        (("monitor", signed, Some("another one")), "", "the passphrase in `privacy_file`"),
        (("monitor", signed, None), "", "does not let this host read it"),
        (("plain", signed, Some(hidden)), ", authentication = 'sha1'", "has no encryption for user plain"),
    ] {
        let service = by_source(&patient(&(agent.user(LATENCY, user) + more)));
        service.await_log(said);
        let (_, log) = service.terminate();
        assert_eq!(log.matches("no latency from").count(), 1, "{log}");
        assert!(!log.contains("ERROR"), "the library is silent: {log}");
    }
    let unknown = agent.user("1.3.6.1.4.1.8072.9999.1", ("monitor", signed, Some(hidden)));
    by_source(&patient(&unknown)).await_log("has no object 1.3.6.1.4.1.8072.9999.1");
}

#[test]
fn passphrases_of_snmp_are_checked_as_files_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    let check = |file: &str| {
        let source = format!(
            "snmp = '127.0.0.1:{}', oid = '1.3.6.1', user = 'a', authentication_file = '{file}', \
             timeout = '50ms'",
            port()
        );
        let text = format!("[resource.array]\ntarget = '15ms'\nsource = {{ {source}, unit = 'ms' }}\n");
        fs::write(&path, text).unwrap();
        text_of(&tidegate(&["check", "-c", path.to_str().unwrap()]))
    };
    key(folder.path(), "short", "seven b\n");
    key(folder.path(), "long", "eight by\n");
    assert!(check("short").contains("short holds a passphrase of 7 bytes; SNMP version 3 needs 8"), "short");
    assert!(check("missing").contains("cannot read the secret in"), "missing");
    let said = check("long");
    assert!(said.contains("no answer within 50ms"), "{said}");
    assert!(!said.contains("eight by"), "{said}");
}

/// Returns all that a program printed.
fn text_of(output: &std::process::Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}
