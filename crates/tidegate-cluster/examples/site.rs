//! The exchange of reports at the scale of a site: many members in this one process, each with a carrier,
//! sockets and a thread of its own, on one resource, with the reports of the law `auto`.
//!
//!     unshare -n sh -c 'ip link set lo up; ulimit -n 20000;
//!         target/release/examples/site nats 1000 --interval 10 --json site.json'
//!
//! Carriers: `nats` (it starts a `nats-server`), `udp` (each member has a list of all others) and
//! `file:PATH`. In a network namespace of its own, the bytes of the loopback interface are those of the site.
//!
//! It measures one after the other: the start, a calm stretch, a step of the latency that all members
//! measure, and with NATS a policy, a restart of the server, and an outage that outlasts the silence rule.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the figures are the result")]

use std::error::Error;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tidegate_cluster::{
    Carrier, CarrierReach, ClusterConfig, ClusterHandle, ClusterKey, ClusterName, FileConfig, NatsConfig,
    NatsCredentials, PolicyKey, ResourcePolicy, UdpConfig, policy_put,
};
use tidegate_control::{
    ClusterSignal, HeardReport, HostReport, LoadReport, MeanOutstanding, SignalRequests, combine,
};
use tidegate_units::{HostName, Iops, Latency, ResourceName, Window};

/// The mean latency that members report, in milliseconds, and from the step on.
const MEANS: (u64, u64) = (10, 20);

/// Members agree on a mean if it is so close to the true one.
const AGREED: f64 = 0.01;

/// No phase is waited for longer, in intervals.
const PATIENCE: u32 = 30;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let options = Options::read()?;
    let mut server = if options.carrier == "nats" { Some(Server::start()?) } else { None };
    let key = PolicyKey::generate();
    let mut site = Site::join(&options, server.as_ref(), &key)?;
    let start = site.until_all(Instant::now(), |heard| heard.complete);
    let calm = site.calm(options.calm, server.as_ref())?;
    let step = site.step();
    let mut document = Document {
        carrier: options.carrier.clone(),
        members: options.members,
        interval_s: options.interval.as_secs_f64(),
        machine: machine(),
        start,
        calm,
        step,
        policy: None,
        restart: None,
        outage: None,
    };
    if let Some(server) = &mut server {
        document.policy = Some(site.policy(server, &key)?);
        document.restart = Some(site.restart(server)?);
        document.outage = Some(site.outage(server)?);
    }
    if let Some(path) = &options.json {
        fs::write(path, format!("{}\n", serde_json::to_string(&document)?))?;
    }
    document.show();
    Ok(())
}

struct Options {
    carrier: String,
    members: u16,
    interval: Duration,
    calm: Duration,
    json: Option<String>,
}

impl Options {
    fn read() -> Outcome<Self> {
        let usage =
            "usage: site nats|udp|file:PATH MEMBERS [--interval SECONDS] [--calm SECONDS] [--json FILE]";
        let mut arguments = std::env::args().skip(1);
        let (Some(carrier), Some(members)) = (arguments.next(), arguments.next()) else {
            return Err(usage.into());
        };
        let interval = ClusterConfig::DEFAULT_INTERVAL;
        let mut options =
            Self { carrier, members: members.parse()?, interval, calm: Duration::from_secs(20), json: None };
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or(usage)?;
            match option.as_str() {
                "--interval" => options.interval = Duration::try_from_secs_f64(value.parse()?)?,
                "--calm" => options.calm = Duration::try_from_secs_f64(value.parse()?)?,
                "--json" => options.json = Some(value),
                _ => return Err(usage.into()),
            }
        }
        Ok(options)
    }

    fn carrier_of(&self, number: u16, server: Option<&Server>, key: &PolicyKey) -> Outcome<Carrier> {
        let address = |number: u16| SocketAddr::from(([127, 84, 0, 1], 20_000 + number));
        if let Some(server) = server {
            return Ok(Carrier::Nats(server.config(key)));
        }
        Ok(match self.carrier.split_once(':') {
            None if self.carrier == "udp" => Carrier::Udp(UdpConfig {
                listen: address(number),
                reach: CarrierReach::Peers(
                    (0..self.members)
                        .filter(|other| *other != number)
                        .map(|other| address(other).into())
                        .collect(),
                ),
                key: ClusterKey::new(b"a key for a measurement")?,
            }),
            Some(("file", path)) => {
                Carrier::File(FileConfig { path: path.into(), slots: self.members, slot: Some(number) })
            }
            _ => return Err(format!("`{}` is no carrier: nats, udp or file:PATH", self.carrier).into()),
        })
    }
}

struct Member {
    name: HostName,
    cluster: ClusterHandle,
}

/// All members, and the driver that has each take a control interval's step at a time of its own.
struct Site {
    members: Vec<Member>,
    interval: Duration,
    resource: ResourceName,
    mean: Latency,
    /// The next step of a member.
    next: Instant,
    at: usize,
    /// The longest time by which a step was late.
    late: Duration,
    /// Processor time of the steps' folds.
    folding: Duration,
    folds: u64,
    /// The members that were heard in time, summed over the folds.
    heard: u64,
}

/// The state of a member after a step.
struct MemberState<'a> {
    cluster: &'a ClusterHandle,
    signal: &'a ClusterSignal,
    /// All members were heard in time.
    complete: bool,
    /// Age of the oldest report.
    oldest: Latency,
}

impl Site {
    fn join(options: &Options, server: Option<&Server>, key: &PolicyKey) -> Outcome<Self> {
        let member = |number: u16| {
            let name = HostName::new(&format!("host-{number:04}"))?;
            let config = ClusterConfig {
                name: ClusterName::new("site")?,
                host: name.clone(),
                interval: options.interval,
                carrier: options.carrier_of(number, server, key)?,
            };
            Ok(Member { name, cluster: ClusterHandle::join(config)? })
        };
        Ok(Self {
            members: (0..options.members).map(member).collect::<Outcome<_>>()?,
            interval: options.interval,
            resource: ResourceName::new("vg0")?,
            mean: Latency::from_millis(MEANS.0),
            next: Instant::now(),
            at: 0,
            late: Duration::ZERO,
            folding: Duration::ZERO,
            folds: 0,
            heard: 0,
        })
    }

    /// The step of one member: it folds what it heard and publishes its report, as a gateway does.
    fn pass(&mut self, look: impl FnOnce(usize, &MemberState<'_>)) {
        let now = Instant::now();
        match self.next.checked_duration_since(now) {
            Some(pause) => thread::sleep(pause),
            None => self.late = self.late.max(now - self.next),
        }
        self.next += self.interval / self.members.len() as u32;
        let at = self.at;
        self.at = (at + 1) % self.members.len();
        let Member { name, cluster } = &self.members[at];
        let report = report(self.interval, self.mean);
        let begun = thread_time();
        let heard: Vec<HeardReport> = cluster.heard(&self.resource);
        let signal = combine(name, &report, &heard, self.interval);
        self.folding += thread_time() - begun;
        self.folds += 1;
        self.heard += u64::from(signal.hosts);
        cluster.publish(&self.resource, report);
        let complete = signal.hosts as usize == self.members.len();
        let oldest = heard.iter().map(|report| report.age).max().unwrap_or_default();
        look(at, &MemberState { cluster, signal: &signal, complete, oldest });
    }

    /// Goes on until a condition has held once for every member, and returns the times since an event.
    fn until_all(&mut self, begun: Instant, holds: impl Fn(&MemberState<'_>) -> bool) -> Agreement {
        let mut reached: Vec<Option<Duration>> = vec![None; self.members.len()];
        let mut fewest = u32::MAX;
        while begun.elapsed() < self.interval * PATIENCE && reached.contains(&None) {
            self.pass(|at, state| {
                fewest = fewest.min(state.signal.hosts);
                if reached[at].is_none() && holds(state) {
                    reached[at] = Some(begun.elapsed());
                }
            });
        }
        let mut times: Vec<Duration> = reached.into_iter().flatten().collect();
        times.sort();
        let all = times.len() == self.members.len();
        Agreement {
            members: times.len(),
            median_s: times.get(self.members.len() / 2).map(Duration::as_secs_f64),
            all_s: times.last().filter(|_| all).map(Duration::as_secs_f64),
            fewest_heard: fewest,
        }
    }

    fn calm(&mut self, length: Duration, server: Option<&Server>) -> Outcome<Calm> {
        let count = |site: &Self| {
            let status = |member: &Member| member.cluster.status();
            site.members.iter().map(status).fold((0, 0, 0), |(sent, taken, rejected), status| {
                (sent + status.sent, taken + status.taken, rejected + status.rejected.total())
            })
        };
        let server_time = || server.map(Server::time).transpose();
        let before = count(self);
        (self.late, self.folding, self.folds, self.heard) = (Duration::ZERO, Duration::ZERO, 0, 0);
        let (bytes, server_before) = (loopback_bytes()?, server_time()?);
        let (process, driver, begun) = (process_time(), thread_time(), Instant::now());
        while begun.elapsed() < length {
            self.pass(|_, _| {});
        }
        let seconds = begun.elapsed().as_secs_f64();
        let driver = thread_time() - driver;
        let carriers = (process_time() - process).saturating_sub(driver);
        let bytes = loopback_bytes()? - bytes;
        let server_after = server_time()?;
        let after = count(self);
        let members = self.members.len() as f64;
        let each = |time: Duration| 1e3 * time.as_secs_f64() / seconds / members;
        let (sent, taken) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
        Ok(Calm {
            seconds,
            heard: self.heard as f64 / self.folds as f64 / members,
            latest_step_s: self.late.as_secs_f64(),
            sent_per_member_s: sent / seconds / members,
            taken_per_member_s: taken / seconds / members,
            rejected: after.2 - before.2,
            bytes_per_member_s: bytes as f64 / seconds / members,
            carrier_ms_per_member_s: each(carriers),
            carrier_us_per_message: 1e6 * carriers.as_secs_f64() / taken.max(1.0),
            fold_us: 1e6 * self.folding.as_secs_f64() / self.folds as f64,
            server_core: server_before.zip(server_after).map(|(before, after)| (after - before) / seconds),
            process_mib: resident("self")?,
            server_mib: server.map(|server| resident(&server.process.id().to_string())).transpose()?,
        })
    }

    /// All members measure another latency from now on.
    fn step(&mut self) -> Agreement {
        self.mean = Latency::from_millis(MEANS.1);
        let to = self.mean.as_millis_f64();
        self.until_all(Instant::now(), move |state| {
            let mean = state.signal.load.and_then(|load| load.mean);
            mean.is_some_and(|mean| (mean.as_millis_f64() / to - 1.0).abs() < AGREED)
        })
    }

    /// A policy is written, and every member has it.
    fn policy(&mut self, server: &Server, key: &PolicyKey) -> Outcome<Agreement> {
        let policy = ResourcePolicy { target: Some(Latency::from_millis(30)), ..ResourcePolicy::default() };
        let (config, cluster) = (server.config(key), ClusterName::new("site")?);
        policy_put(&config, &cluster, &self.resource, (&policy, 1, key), 0)?;
        let begun = Instant::now();
        let mut left: Vec<usize> = (0..self.members.len()).collect();
        let mut times = Vec::new();
        while !left.is_empty() && begun.elapsed() < self.interval * PATIENCE {
            left.retain(|at| {
                let watch = self.members[*at].cluster.policy();
                let has = watch.is_some_and(|watch| watch.current().contains_key(&self.resource));
                if has {
                    times.push(begun.elapsed().as_secs_f64());
                }
                !has
            });
            // The members go on reporting meanwhile.
            if self.next <= Instant::now() {
                self.pass(|_, _| {});
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(Agreement {
            members: times.len(),
            median_s: times.get(self.members.len() / 2).copied(),
            all_s: times.last().copied().filter(|_| left.is_empty()),
            fewest_heard: self.members.len() as u32,
        })
    }

    /// The server is killed and started at once. The time is from its end until each member has heard all
    /// others anew.
    fn restart(&mut self, server: &mut Server) -> Outcome<Agreement> {
        let killed = Instant::now();
        server.kill()?;
        server.run()?;
        Ok(self.until_all(killed, |state| state.complete && state.oldest < killed.elapsed().into()))
    }

    /// The server is away for longer than reports count.
    fn outage(&mut self, server: &mut Server) -> Outcome<Outage> {
        let killed = Instant::now();
        server.kill()?;
        let alone = self.until_all(killed, |state| state.signal.hosts == 1 && !state.cluster.status().up);
        server.run()?;
        let server_begun = server.time()?;
        let (process, begun) = (process_time(), Instant::now());
        let together = self.until_all(begun, |state| state.complete);
        let seconds = begun.elapsed().as_secs_f64();
        let busy = (process_time() - process).as_secs_f64() / seconds;
        Ok(Outage {
            alone,
            together,
            process_core: busy,
            server_core: (server.time()? - server_begun) / seconds,
        })
    }
}

/// The report of one interval on a host that does 1,000 requests per second.
fn report(interval: Duration, mean: Latency) -> HostReport {
    let completed = 1_000.0 * interval.as_secs_f64();
    HostReport {
        interval: interval.into(),
        signal: SignalRequests::Everything,
        completed: completed as u64,
        total_latency: mean.scale(completed),
        outstanding: true,
        oldest: None,
        window: Some(Window::new(10.0)),
        active_shares: 100.0,
        reserved: Iops::ZERO,
        set_point: None,
        point: None,
        load: Some(LoadReport {
            iops: Iops::new(1_000.0),
            writes: Iops::new(300.0),
            outstanding: MeanOutstanding::new(10.0),
            writing: MeanOutstanding::new(3.0),
            waiting: true,
            recent: MeanOutstanding::new(5_000.0),
            recent_mean: mean,
            worst: mean.scale(1.2),
            late: false,
            total_window: Some(Window::new(10_000.0)),
        }),
    }
}

/// A `nats-server` of this program's own.
struct Server {
    port: u16,
    folder: tempfile::TempDir,
    process: Child,
}

impl Server {
    fn start() -> Outcome<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let folder = tempfile::tempdir()?;
        let process = launch(port, &folder)?;
        Ok(Self { port, folder, process })
    }

    fn run(&mut self) -> Outcome<()> {
        self.process = launch(self.port, &self.folder)?;
        Ok(())
    }

    fn kill(&mut self) -> Outcome<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    fn config(&self, key: &PolicyKey) -> NatsConfig {
        NatsConfig {
            servers: vec![format!("nats://127.0.0.1:{}", self.port)],
            credentials: NatsCredentials::None,
            tls: None,
            replicas: 1,
            writers: [key.writer()].into(),
        }
    }

    /// Seconds that the server has had of a processor.
    fn time(&self) -> Outcome<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let after_name = text.rsplit(')').next().ok_or("the kernel tells nothing of the server")?;
        let ticks: Vec<f64> =
            after_name.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        // The kernel counts in hundredths of a second, whatever its own clock.
        Ok(ticks.iter().sum::<f64>() / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn launch(port: u16, folder: &tempfile::TempDir) -> Outcome<Child> {
    let mut command = Command::new("nats-server");
    command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &port.to_string(), "--store_dir"]);
    let mut process = command.arg(folder.path()).stderr(Stdio::null()).spawn()?;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = process.try_wait()? {
            return Err(format!("nats-server ended: {status}").into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

/// Times from an event until a condition held once for a member, at its own step.
#[derive(Serialize)]
struct Agreement {
    /// The members for which it held.
    members: usize,
    /// Half of the members.
    median_s: Option<f64>,
    /// All members; `null` if some never did.
    all_s: Option<f64>,
    /// The least number of members that any member heard in time meanwhile.
    fewest_heard: u32,
}

/// The costs of a stretch in which nothing changes.
#[derive(Serialize)]
struct Calm {
    seconds: f64,
    /// The part of all members that a member hears in time, in the mean.
    heard: f64,
    latest_step_s: f64,
    sent_per_member_s: f64,
    taken_per_member_s: f64,
    rejected: u64,
    /// On the loopback interface, headers and acknowledgements included.
    bytes_per_member_s: f64,
    carrier_ms_per_member_s: f64,
    /// The same for each report that a member takes.
    carrier_us_per_message: f64,
    /// Processor time of a member's fold of all reports.
    fold_us: f64,
    /// Cores that the NATS server uses.
    server_core: Option<f64>,
    process_mib: f64,
    server_mib: Option<f64>,
}

/// The server's end and its return.
#[derive(Serialize)]
struct Outage {
    alone: Agreement,
    together: Agreement,
    process_core: f64,
    server_core: f64,
}

#[derive(Serialize)]
struct Document {
    carrier: String,
    members: u16,
    interval_s: f64,
    machine: Machine,
    start: Agreement,
    calm: Calm,
    step: Agreement,
    policy: Option<Agreement>,
    restart: Option<Agreement>,
    outage: Option<Outage>,
}

impl Document {
    fn show(&self) {
        let calm = &self.calm;
        println!("{}, {} members, {} s", self.carrier, self.members, self.interval_s);
        println!("  heard in time                  {:10.1} % of members", 100.0 * calm.heard);
        println!("  carrier, processor time        {:10.3} % of a core", calm.carrier_ms_per_member_s / 10.0);
        println!("  carrier, per report taken      {:10.2} µs", calm.carrier_us_per_message);
        println!("  fold of all reports            {:10.0} µs", calm.fold_us);
        println!("  bytes per member and second    {:10.0}", calm.bytes_per_member_s);
        println!("  reports taken per member and s {:10.1}", calm.taken_per_member_s);
        if let Some(core) = calm.server_core {
            println!("  server                         {:10.1} % of a core", 100.0 * core);
        }
        let outage = self.outage.as_ref();
        for (what, agreement) in [
            ("start until all hear all", Some(&self.start)),
            ("step until all agree", Some(&self.step)),
            ("policy until all have it", self.policy.as_ref()),
            ("restart until heard anew", self.restart.as_ref()),
            ("outage until all are alone", outage.map(|outage| &outage.alone)),
            ("return until all hear all", outage.map(|outage| &outage.together)),
        ] {
            let Some(Agreement { members, median_s, all_s, fewest_heard }) = agreement else { continue };
            let shown = |time: &Option<f64>| time.map_or("never".to_owned(), |time| format!("{time:.2} s"));
            println!(
                "  {what:30} {:>10}, half {}; {members} members; fewest heard {fewest_heard}",
                shown(all_s),
                shown(median_s)
            );
        }
    }
}

#[derive(Serialize)]
struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    load_average: String,
}

fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    Machine {
        cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        cores: thread::available_parallelism().map_or(0, Into::into),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        load_average: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
    }
}

/// Bytes that the loopback interface has carried.
fn loopback_bytes() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/net/dev")?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:"));
    let bytes =
        line.and_then(|line| line.split_whitespace().next()).ok_or("there is no loopback interface")?;
    Ok(bytes.parse()?)
}

/// Resident memory of a process, in MiB.
fn resident(process: &str) -> Outcome<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no memory is told")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

fn process_time() -> Duration {
    elapsed(ClockId::ProcessCPUTime)
}

fn thread_time() -> Duration {
    elapsed(ClockId::ThreadCPUTime)
}

fn elapsed(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
