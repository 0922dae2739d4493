//! Several `tidegate serve` as hosts that share storage: real binaries that hear each other. What the
//! regulation is worth is measured in the lab; here: that they find each other, and notice when one is gone.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_testing::until;

/// Longer than anything here takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host: a process with a folder of its own.
struct Host {
    folder: TempDir,
    process: Child,
}

/// What decides in a pool unless something else is said.
const POOL: &str = "
            backend = { kind = 'emulated', preset = 'sata-stripe' }
            law = 'window'
            target = '20ms'
            interval = '50ms'";

impl Host {
    /// Starts a gateway without a cluster, which serves no metrics.
    fn alone(pool: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!("listen = ['unix:nbd.sock']\n[pool.array]{pool}");
        fs::write(folder.path().join("tidegate.toml"), config).unwrap();
        let process = serve(folder.path());
        let host = Self { folder, process };
        // Those in front of it connect when they start.
        host.await_log(" ready");
        host
    }

    /// Starts host `name` with its own `[cluster] carrier`.
    fn start(name: &str, carrier: &str, key: &str) -> Self {
        Self::with_pool(name, carrier, key, POOL)
    }

    fn with_pool(name: &str, carrier: &str, key: &str, pool: &str) -> Self {
        Self::with_exports(name, carrier, key, &format!("{pool}\nexport.{name} = {{ size = '16MiB' }}"))
    }

    /// The same, where the pool says which exports it has.
    fn with_exports(name: &str, carrier: &str, key: &str, pool: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("key"), key).unwrap();
        let config = format!(
            "listen = ['unix:nbd.sock']
            metrics = '127.0.0.1:0'
            [cluster]
            name = 'test'
            host = '{name}'
            carrier = {carrier}
            [pool.array]
            cluster = true{pool}"
        );
        fs::write(folder.path().join("tidegate.toml"), config).unwrap();
        let process = serve(folder.path());
        Self { folder, process }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The address of the metrics, which the log tells; `None` while it does not.
    fn metrics(&self) -> Option<String> {
        let log = self.log();
        let told = |line: &str| {
            line.split_once(" metrics on http://")?.1.strip_suffix("/metrics").map(str::to_owned)
        };
        log.lines().filter_map(told).find(|address| !address.ends_with(":0"))
    }

    /// The value of a series; `None` while it is not there.
    fn metric(&self, series: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(self.metrics()?).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    fn await_metric(&self, series: &str, expected: impl Fn(f64) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.metric(series);
            if seen.is_some_and(&expected) {
                return;
            }
            assert!(Instant::now() < end, "{series} is {seen:?}; {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn await_log(&self, expected: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(expected) {
            assert!(Instant::now() < end, "{expected:?} is not in {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sixteen requests outstanding on its export, until the end of the host.
    fn load(&self, name: &str) -> Child {
        let uri = format!("nbd+unix:///{name}?socket={}", self.folder.path().join("nbd.sock").display());
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["load", &uri, "--depth", "16", "--duration", "5min"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// The output of `tidegate status`, which must succeed.
    fn status(&self, options: &[&str]) -> String {
        let url = format!("http://{}", self.metrics().unwrap());
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["status", "--url", &url])
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until the exchange with other hosts is as expected in the status, and returns it.
    fn await_cluster(&self, what: &str, expected: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status: Value = serde_json::from_str(&self.status(&["--json"])).unwrap();
            let cluster = status["cluster"].clone();
            if expected(&cluster) {
                return cluster;
            }
            assert!(Instant::now() < end, "waited in vain for {what}: {cluster:#}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn await_live(&self, hosts: f64) {
        self.await_metric("tidegate_pool_hosts{pool=\"array\",state=\"live\"}", |live| {
            (live - hosts).abs() < 0.5
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server of the test's own, with a folder for what it stores.
struct NatsServer {
    address: String,
    process: Child,
    store: TempDir,
}

impl NatsServer {
    fn start() -> Self {
        Self::start_with(&["--jetstream"])
    }

    /// Starts a server of a site, which finds the others by one of them.
    fn of_site(other: Option<&Self>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("server.conf");
        let routes = other.map(|other| format!("\"nats://{}\"", other.chosen("cluster").unwrap()));
        let routes = routes.unwrap_or_default();
        fs::write(&config, format!("cluster {{ name: s, listen: \"127.0.0.1:-1\", routes: [{routes}] }}\n"))
            .unwrap();
        Self::start_with(&["-c", config.to_str().unwrap()])
    }

    fn start_with(options: &[&str]) -> Self {
        let store = tempfile::tempdir().unwrap();
        // The port is its own choice: of one that was free a moment ago somebody else may have been quicker.
        let process = Command::new("nats-server")
            .args(["--addr", "127.0.0.1", "--port", "-1", "--store_dir"])
            .arg(store.path())
            .arg("--ports_file_dir")
            .arg(store.path())
            .args(options)
            .stderr(Stdio::null())
            .spawn()
            .expect("`apt-get install nats-server`");
        let mut server = Self { address: String::new(), process, store };
        let end = Instant::now() + PATIENCE;
        while !server.greeting().starts_with("INFO") {
            assert!(server.process.try_wait().unwrap().is_none(), "nats-server ended");
            assert!(Instant::now() < end, "nats-server does not listen");
            thread::sleep(Duration::from_millis(20));
            server.address = server.chosen("nats").unwrap_or_default();
        }
        server
    }

    /// Where it says that it listens; half of its file is none.
    fn chosen(&self, purpose: &str) -> Option<String> {
        let file = self.store.path().join(format!("nats-server_{}.ports", self.process.id()));
        let ports: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        Some(ports[purpose][0].as_str()?.strip_prefix("nats://")?.to_owned())
    }

    /// The line with which it introduces itself.
    fn greeting(&self) -> String {
        let mut line = String::new();
        let Ok(stream) = TcpStream::connect(&self.address) else { return line };
        let _ = BufReader::new(stream).read_line(&mut line);
        line
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(folder: &Path) -> Child {
    let log = fs::File::create(folder.join("log")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--log", "debug", "-c"])
        .arg(folder.join("tidegate.toml"))
        .stderr(Stdio::from(log))
        .spawn()
        .unwrap()
}

/// UDP carriers for so many hosts on this machine, each with the same list.
fn udp(hosts: usize) -> Vec<String> {
    let free: Vec<_> = (0..hosts).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = free.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect();
    let peers = addresses.iter().map(|address| format!("'{address}'")).collect::<Vec<_>>().join(", ");
    addresses
        .iter()
        .map(|listen| format!("{{ kind = 'udp', listen = '{listen}', peers = [{peers}], key_file = 'key' }}"))
        .collect()
}

const KEY: &str = "a secret that all hosts have\n";

#[test]
fn by_udp_hosts_find_each_other_notice_who_is_gone_and_who_is_back() {
    come_and_go(&udp(3));
}

#[test]
fn by_a_shared_file_hosts_find_each_other_notice_who_is_gone_and_who_is_back() {
    let shared = tempfile::tempdir().unwrap();
    let path = shared.path().join("cluster");
    come_and_go(&vec![format!("{{ kind = 'file', path = '{}' }}", path.display()); 3]);
}

fn come_and_go(carriers: &[String]) {
    let one = Host::start("one", &carriers[0], KEY);
    one.await_live(1.0);
    let two = Host::start("two", &carriers[1], KEY);
    let three = Host::start("three", &carriers[2], KEY);
    [&one, &two, &three].iter().for_each(|host| host.await_live(3.0));
    drop(three);
    [&one, &two].iter().for_each(|host| host.await_live(2.0));
    let three = Host::start("three", &carriers[2], KEY);
    [&one, &two, &three].iter().for_each(|host| host.await_live(3.0));
}

/// An interval that a busy machine does not miss three times in a row.
const SLOW_POOL: &str = "
            backend = { kind = 'emulated', preset = 'sata-stripe' }
            law = 'window'
            target = '20ms'
            interval = '1s'";

#[test]
fn a_host_that_died_and_came_back_left_no_line_by_udp() {
    die_and_come_back(&udp(3));
}

#[test]
fn a_host_that_died_and_came_back_left_no_line_by_a_shared_file() {
    let shared = tempfile::tempdir().unwrap();
    let path = shared.path().join("cluster");
    die_and_come_back(&vec![format!("{{ kind = 'file', path = '{}' }}", path.display()); 3]);
}

fn die_and_come_back(carriers: &[String]) {
    let start = |name: &str, carrier: &String| Host::with_pool(name, carrier, KEY, SLOW_POOL);
    let [one, two] = [("one", &carriers[0]), ("two", &carriers[1])].map(|(name, at)| start(name, at));
    let three = start("three", &carriers[2]);
    [&one, &two, &three].iter().for_each(|host| host.await_live(3.0));
    let lines = |host: &Host, part: &str| {
        let log = host.log();
        log.lines().filter(|line| line.contains(part) && line.contains("three")).count()
    };
    let survivors = [&one, &two];
    // In one line with the other where both were heard at once.
    survivors.iter().for_each(|host| {
        let end = Instant::now() + PATIENCE;
        while lines(host, "joined") == 0 {
            assert!(Instant::now() < end, "{}", host.log());
            thread::sleep(Duration::from_millis(20));
        }
    });
    drop(three);
    for host in survivors {
        host.await_log("cluster test: host three fell silent, and will not count until heard again");
        let stale = |member: &Value| member["name"] == "three" && member["stale"] == true;
        host.await_cluster("a silent host", |cluster| {
            cluster["members"].as_array().unwrap().iter().any(stale)
        });
        let text = host.status(&[]);
        let line = text.lines().find(|line| line.starts_with("three ")).unwrap();
        assert!(line.contains(" ago  ") && line.contains("NO, silent for "), "{text}");
    }
    let three = start("three", &carriers[2]);
    survivors.iter().for_each(|host| host.await_log("cluster test: host three came back"));
    [&one, &two, &three].iter().for_each(|host| host.await_live(3.0));
    for host in survivors {
        let said = ["fell silent", "came back", "joined"].map(|part| lines(host, part));
        assert_eq!(said, [1, 1, 1], "{}", host.log());
    }
}

/// Three exports of one array at two gateways in front of it. By eq. 3 of PARDA their windows are 0.44, 0.89
/// and 1.77 requests: 8 ms at 300 IO/s are 2.4, and β is 0.1 per 100 shares.
#[test]
fn windows_of_exports_follow_shares_wherever_the_exports_are_served() {
    let array = Host::alone(
        "
            backend.kind = 'emulated'
            backend.exponential = { rate = '300 IO/s', servers = 1, capacity = '1GiB' }
            depth = 256
            export.a = { size = '16MiB' }
            export.b = { size = '16MiB' }
            export.c = { size = '16MiB' }",
    );
    let pool = |exports: &str| {
        format!(
            "
            backend = {{ kind = 'nbd', address = 'unix:{}/nbd.sock' }}
            law = 'window'
            scope = 'export'
            target = '10ms'
            interval = '100ms'
            window = {{ beta_gain = 0.1 }}
            {exports}",
            array.folder.path().display()
        )
    };
    let carriers = udp(2);
    let exports = "export.a = { shares = 100 }\nexport.b = { shares = 200 }";
    let two = Host::with_exports("two", &carriers[0], KEY, &pool(exports));
    let one = Host::with_exports("one", &carriers[1], KEY, &pool("export.c = { shares = 400 }"));
    [&two, &one].iter().for_each(|host| host.await_live(2.0));
    let served = [(&two, "a"), (&two, "b"), (&one, "c")];
    let mut loads: Vec<Child> = served.iter().map(|(host, export)| host.load(export)).collect();
    let done = || {
        served.map(|(host, export)| {
            let labels = format!("pool=\"array\",consumer=\"{export}\",op=\"read\"");
            host.metric(&format!("tidegate_requests_total{{{labels}}}")).unwrap_or_default()
        })
    };
    let end = Instant::now() + PATIENCE;
    let mut before = done();
    loop {
        thread::sleep(Duration::from_millis(50));
        let now = done();
        let did = [0, 1, 2].map(|place| now[place] - before[place]);
        let all: f64 = did.iter().sum();
        if all < 900.0 {
            assert!(Instant::now() < end, "{did:?} of 900: {} {}", two.log(), one.log());
            continue;
        }
        let share = [1.0, 2.0, 4.0].map(|share| share / 7.0 * all);
        if did.iter().zip(share).all(|(did, share)| (did / share - 1.0).abs() < 0.3) {
            break;
        }
        assert!(Instant::now() < end, "{did:?} for 1:2:4");
        before = now;
    }
    for load in &mut loads {
        let _ = load.kill();
        let _ = load.wait();
    }
}

#[test]
fn the_status_did_not_name_the_other_hosts_nor_the_carrier() {
    let shared = tempfile::tempdir().unwrap();
    let path = shared.path().join("cluster");
    let carrier = format!("{{ kind = 'file', path = '{}' }}", path.display());
    let one = Host::start("one", &carrier, KEY);
    let two = Host::start("two", &carrier, KEY);
    let has_heard = |cluster: &Value| {
        cluster["slot"].is_u64() && cluster["members"][0]["report_age_seconds"].as_f64().is_some()
    };
    [&one, &two].iter().for_each(|host| host.await_live(2.0));
    let seen = [&one, &two].map(|host| host.await_cluster("a slot and a report", has_heard));
    assert_ne!(seen[0]["slot"], seen[1]["slot"]);
    let cluster = &seen[0];
    assert_eq!(
        (&cluster["name"], &cluster["host"], &cluster["carrier"], &cluster["up"]),
        (&"test".into(), &"one".into(), &"file".into(), &true.into())
    );
    let member = &cluster["members"][0];
    assert_eq!((&member["name"], &member["pools"]), (&"two".into(), &serde_json::json!(["array"])));
    assert!(member["report_age_seconds"].as_f64() < Some(60.0), "{member:#}");
    let said = format!("\ncluster test: this host is one, carrier file, slot {}, up", cluster["slot"]);
    // A file on a busy disk is down now and then.
    until("the status of the cluster", || {
        let text = one.status(&[]);
        let parts = [said.as_str(), "\nmember  last report  ", "\ntwo  "];
        parts.iter().all(|part| text.contains(part)).then_some(())
    });
}

#[test]
fn the_status_did_not_say_that_two_hosts_have_one_name() {
    let carriers = udp(3);
    let first = Host::start("one", &carriers[0], KEY);
    let other = Host::start("two", &carriers[1], KEY);
    [&first, &other].iter().for_each(|host| host.await_live(2.0));
    let _second = Host::start("one", &carriers[2], KEY);
    // Three times until now: the file is read to check it, to start, and to join.
    assert_eq!(first.log().matches("is open to everyone on this host").count(), 1, "{}", first.log());
    for host in [&first, &other] {
        let twice = serde_json::json!(["one"]);
        host.await_cluster("a name used twice", |cluster| cluster["duplicates"] == twice);
        let text = host.status(&[]);
        assert!(text.contains("TWO HOSTS have the name one: only the one heard first counts\n"), "{text}");
    }
}

#[test]
fn by_udp_the_lowest_operating_point_wins() {
    the_lowest_wins(&udp(2));
}

#[test]
fn by_a_shared_file_the_lowest_operating_point_wins() {
    let shared = tempfile::tempdir().unwrap();
    let path = shared.path().join("cluster");
    the_lowest_wins(&vec![format!("{{ kind = 'file', path = '{}' }}", path.display()); 2]);
}

#[test]
fn by_nats_the_lowest_operating_point_wins() {
    let server = NatsServer::start();
    the_lowest_wins(&vec![format!("{{ kind = 'nats', servers = ['nats://{}'] }}", server.address); 2]);
}

#[test]
fn hosts_with_one_address_of_nats_go_on_by_the_servers_that_it_announced() {
    let configured = NatsServer::of_site(None);
    let other = NatsServer::of_site(Some(&configured));
    until("they know each other", || configured.greeting().contains(&other.address).then_some(()));
    let carrier = format!("{{ kind = 'nats', servers = ['nats://{}'] }}", configured.address);
    let hosts = ["one", "two"].map(|name| Host::start(name, &carrier, KEY));
    hosts.iter().for_each(|host| host.await_live(2.0));
    drop(configured);
    let taken = "tidegate_cluster_messages_total{outcome=\"taken\"}";
    for host in &hosts {
        let before = host.metric(taken).unwrap();
        host.await_metric(taken, |count| count >= before + 3.0);
        host.await_live(2.0);
    }
}

/// Two that do the same, of which one has promised more: the other one is told so, and follows.
fn the_lowest_wins(carriers: &[String]) {
    let pool = |target: &str| {
        format!(
            "
            backend = {{ kind = 'emulated', exponential = {{ rate = '200 IO/s', servers = 1, capacity = \
            '64MiB' }} }}
            law = 'self-tuning'
            interval = '250ms'
            target = '{target}'"
        )
    };
    let strict = Host::with_pool("strict", &carriers[0], KEY, &pool("30ms"));
    let patient = Host::with_pool("patient", &carriers[1], KEY, &pool("90ms"));
    [&strict, &patient].iter().for_each(|host| host.await_live(2.0));
    let mut loads = [strict.load("strict"), patient.load("patient")];
    patient.await_log("as strict asks for");
    drop(strict);
    patient.await_live(1.0);
    drop(patient);
    // Their servers are gone, and so are they.
    for load in &mut loads {
        load.wait().unwrap();
    }
}

#[test]
fn a_host_with_another_key_is_alone_and_everyone_says_so() {
    let carriers = udp(2);
    let one = Host::start("one", &carriers[0], KEY);
    let other = Host::start("other", &carriers[1], "another secret of theirs\n");
    for host in [&one, &other] {
        host.await_metric("tidegate_cluster_messages_total{outcome=\"bad_key\"}", |count| count >= 3.0);
        host.await_live(1.0);
        host.await_log("key");
    }
}

#[test]
fn what_cannot_work_is_said_before_anything_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let file = folder.path().join("tidegate.toml");
        fs::write(&file, text).unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["check", "-c"]).arg(file).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let pool = "[pool.array]\nbackend = { kind = 'emulated', preset = 'sata-stripe' }\ncluster = true\n\
                target = '20ms'\nexport.e = { size = '16MiB' }\n";
    let cluster = |carrier: &str| {
        format!("listen = ['tcp:127.0.0.1:0']\n[cluster]\nname = 'c'\ncarrier = {carrier}\n{pool}")
    };
    fs::write(folder.path().join("short"), "secret").unwrap();
    fs::write(folder.path().join("key"), KEY).unwrap();
    let cases = [
        (format!("listen = ['tcp:127.0.0.1:0']\n{pool}"), "add a table `[cluster]`"),
        (cluster("{ kind = 'pigeon' }"), "`kind` cannot be `pigeon`"),
        (
            cluster("{ kind = 'file', path = 'f', key_file = 'key' }"),
            "`key_file` is only for `kind = \"udp\"`",
        ),
        (cluster("{ kind = 'file', path = 'f', slots = 4, slot = 4 }"), "`slot` must be 0 to 3"),
        (cluster("{ kind = 'udp', peers = ['127.0.0.1:7710'] }"), "needs `listen`"),
        (
            cluster(
                "{ kind = 'udp', listen = '127.0.0.1:7710', peers = ['127.0.0.1:7711'], key_file = 'none' }",
            ),
            "there is no such file",
        ),
        (
            cluster(
                "{ kind = 'udp', listen = '127.0.0.1:7710', peers = ['127.0.0.1:7711'], key_file = 'short' }",
            ),
            "the cluster's key has 6 bytes",
        ),
        (
            cluster("{ kind = 'udp', listen = '127.0.0.1:7710', peers = ['[::1]:7711'], key_file = 'key' }"),
            "cannot reach [::1]:7711 from 127.0.0.1:7710",
        ),
        (
            cluster("{ kind = 'udp', listen = '0.0.0.0:7710', group = '10.0.0.1', key_file = 'key' }"),
            "10.0.0.1 is not a multicast address",
        ),
    ];
    for (text, expected) in cases {
        let (status, errors) = check(&text);
        assert_eq!(status, Some(2), "{errors}");
        assert!(errors.contains(expected), "{expected:?} is not in:\n{errors}");
    }
}
