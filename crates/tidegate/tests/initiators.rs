//! Latencies that other machines measure, by real programs: an initiator's agent and the one that takes its
//! reports, a Prometheus server, an SNMP agent. On a dry run they need no privileges, and touch nothing.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail like the test")]

mod service;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use service::{Service, text, tidegate, until};

const KEY: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0MTI=";

/// A port that is free now.
fn port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
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
    until("a datagram", || stranger.log().contains("reports what this host waits for").then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(800));
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
    let said = text(&tidegate(&["status", "--url", &format!("http://{}", regulator.address())]).stdout);
    assert!(said.contains("cluster san-a: this host is target, carrier udp, up"), "{said}");
    assert!(said.contains("does not count: no consumer of the resource by its name or address"), "{said}");

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
        let output = tidegate(&["check", "-c", path.to_str().unwrap()]);
        text(&output.stdout) + &text(&output.stderr)
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

#[test]
fn a_prometheus_server_is_asked_and_its_silence_is_said() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("prometheus.yml"), "scrape_configs: []\n").unwrap();
    let address = format!("127.0.0.1:{}", port());
    let arguments = [
        format!("--config.file={}", folder.path().join("prometheus.yml").display()),
        format!("--storage.tsdb.path={}", folder.path().join("data").display()),
        format!("--web.listen-address={address}"),
    ];
    let server = start("prometheus", &arguments, folder.path());
    let place = format!("prometheus = 'http://{address}', every = '200ms'");
    let agent = by_source(&format!("{place}, query = 'vector(12.5)'"));
    await_latency(&agent);
    drop(server);
    until("that it is too old", || (source(&agent)["counts"] == false).then_some(()));
    assert!(source(&agent)["trouble"].is_string());
    agent.await_log("no latency from the Prometheus server at");
}

#[test]
fn an_object_of_an_snmp_agent_is_got_and_a_wrong_community_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("snmpd.conf");
    fs::write(&config, "rocommunity secret 127.0.0.1\nextend latency /bin/echo 12.5\n").unwrap();
    let address = format!("127.0.0.1:{}", port());
    let arguments = ["-f", "-Lo", "-C", "-c"].map(str::to_owned);
    let arguments = [&arguments[..], &[config.display().to_string(), format!("udp:{address}")]].concat();
    let _server = start("snmpd", &arguments, folder.path());
    // nsExtendOutput1Line."latency"
    let object = "1.3.6.1.4.1.8072.1.3.2.3.1.1.7.108.97.116.101.110.99.121";
    let place = |object: &str, community: &str| {
        let file = key(folder.path(), community, community);
        let file = file.display();
        format!("snmp = '{address}', oid = '{object}', community_file = '{file}', every = '200ms'")
    };
    await_latency(&by_source(&place(object, "secret")));
    by_source(&place(object, "wrong")).await_log("no answer within 200ms: is the community right");
    by_source(&place("1.3.6.1.4.1.8072.9999.1", "secret")).await_log("has no object 1.3.6.1.4.1.8072.9999.1");
}
