//! `tidegate report` of a simulated month, of what a real gateway wrote before it was killed, and of wrong
//! files.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_journal::WallTime;
use tidegate_rollups::{
    JudgedBy, Minute, MinuteBatch, MinuteCounts, Month, PromiseTerms, RollupKey, RollupReader, RollupWriter,
};
use tidegate_service::rollups::{LookTime, MinuteFold, MinuteReading};
use tidegate_service::status::{ConsumerTotal, PromiseCounters, PromiseReading, PromiseRecord};
use tidegate_sim::{Recorder, Scenario, SeriesRow, simulate};
use tidegate_testing::until;
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, ResourceName};

use crate::service::disk_reader::DiskReader;
use crate::service::{LoadClient, Service, text, tidegate};

/// Longer than a disk needs for some minutes of rollups.
const PATIENCE: Duration = Duration::from_secs(60);

const SECONDS_PER_DAY: u64 = 86_400;

fn month() -> Month {
    "2026-06".parse().unwrap()
}

/// A folder in memory where that can be: a simulated month is brought to the disk hundreds of times.
fn memory_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn report(folder: &Path, consumer: &str, month: &str) -> Value {
    let journal = folder.to_str().unwrap();
    let said = tidegate(&["report", consumer, "--month", month, "--journal", journal, "--json"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

/// A tenant that sends a request every two seconds by day. It is promised 150 ms, on an array that another
/// one loads for two hours.
const DAY: &str = r#"
    name = "day"
    duration = "24h"
    array.disk = { rate = "20 IO/s" }
    host.gateway = { law = "window", target = "150ms", interval = "60s", dry_run = true }
    workload.tenant = { rate = "0.5 IO/s", size = "16KiB", reads = 0.5, during = "6h..20h" }
    workload.neighbour = { rate = "16 IO/s", size = "4KiB", during = "10h..12h" }
    vm.tenant = { workload = "tenant" }
    vm.neighbour = { workload = "neighbour" }
"#;

/// The simulation's own count of the tenant, by minutes of the wall clock.
#[derive(Debug, Clone, Copy, Default)]
struct OwnCount {
    requests: u64,
    bytes: u64,
    nanos: u64,
    judged: u64,
    kept: u64,
    is_stuck: bool,
}

/// State of the service while it runs: it begins anew after a stop.
#[derive(Default)]
struct RunningService {
    total: ConsumerTotal,
    promise: PromiseRecord,
    fold: MinuteFold,
    has_reading: bool,
}

/// A month of the tenant. Each second of the simulation goes through the service's own code, and is counted
/// by itself beside it.
struct MonthRecorder {
    folder: PathBuf,
    day: u32,
    /// `None` while the service does not run.
    service: Option<RunningService>,
    writer: Option<RollupWriter>,
    names: (ResourceName, ConsumerName),
    own: BTreeMap<Minute, OwnCount>,
    /// Counts of the minute under way, which a kill loses.
    unwritten: BTreeMap<Minute, OwnCount>,
    batches: u32,
    /// Judged seconds of the day, whether the service ran or not.
    judged_of_day: u64,
}

const PROMISED: Latency = Latency::from_millis(150);

impl MonthRecorder {
    /// Returns the second of the day by the wall clock: on the 25th it is five minutes slow for an hour.
    fn wall(&self, second: u64) -> u64 {
        let is_slow = self.day == 25 && (46_801..=50_400).contains(&second);
        second - if is_slow { 300 } else { 0 }
    }

    fn time(&self, second: u64) -> LookTime {
        let days = u64::from(self.day - 1) * SECONDS_PER_DAY;
        let nanos = |seconds: u64| seconds * 1_000_000_000;
        let wall = month().first_minute().begin().as_nanos() + nanos(days + self.wall(second));
        LookTime { at: Instant::from_nanos(nanos(days + second)), wall: WallTime::from_nanos(wall) }
    }

    /// Stops and starts the service at some seconds of the month.
    fn operate(&mut self, second: u64) {
        match (self.day, second) {
            // Stopped for two hours and a half, in order, in the middle of minutes.
            (10, 36_030) => self.stop(),
            (10, 45_050) => self.start(),
            // Killed in the middle of a block, and running again in the same minute.
            (20, 43_230) => {
                self.kill();
                self.start();
            }
            _ => {}
        }
    }

    fn start(&mut self) {
        self.service = Some(RunningService::default());
        self.writer = Some(RollupWriter::start(&self.folder).unwrap());
    }

    fn stop(&mut self) {
        let mut service = self.service.take().unwrap();
        for batch in service.fold.take_all() {
            self.write(batch);
        }
        self.close();
    }

    fn kill(&mut self) {
        self.service = None;
        self.unwritten.clear();
        self.close();
        let file = self.folder.join(format!("rollups/{}.1.tdgr", month()));
        let mut file = OpenOptions::new().append(true).open(file).unwrap();
        file.write_all(&[0xB5, 0x1C, 90, 0, 1, 2, 3, 4, 5]).unwrap();
    }

    fn close(&mut self) {
        let writer = self.writer.take().unwrap();
        assert!(writer.flush(PATIENCE));
        writer.close(PATIENCE);
    }

    fn write(&mut self, batch: MinuteBatch) {
        if let Some(count) = self.unwritten.remove(&batch.minute) {
            let own = self.own.entry(batch.minute).or_default();
            own.requests += count.requests;
            own.bytes += count.bytes;
            own.nanos += count.nanos;
            own.judged += count.judged;
            own.kept += count.kept;
            own.is_stuck |= count.is_stuck;
        }
        let writer = self.writer.as_mut().unwrap();
        writer.write(batch);
        self.batches += 1;
        if self.batches.is_multiple_of(30) {
            assert!(writer.flush(PATIENCE));
        }
    }
}

impl Recorder for MonthRecorder {
    fn row(&mut self, row: &SeriesRow<'_>) {
        if row.consumer.as_str() != "tenant" {
            return;
        }
        let second = row.time_s.round() as u64;
        let requests = row.sample.iops.round() as u64;
        let mean = row.sample.device_latency_ms;
        self.judged_of_day += u64::from(mean.is_some());
        let nanos = mean.map_or(0, |mean| (mean * requests as f64 * 1e6).round() as u64);
        let bytes = row.sample.bytes_per_s.round() as u64;
        self.operate(second);
        let now = self.time(second);
        let Some(service) = &mut self.service else { return };

        // The service, with its own code.
        let total = &mut service.total;
        total.count += requests;
        total.sum = total.sum.saturating_add(Latency::from_nanos(nanos));
        total.client = (total.count, total.sum);
        total.read = Bytes::new(total.read.get() + bytes);
        let counters = PromiseCounters::Latencies { count: total.count, sum: total.sum, oldest: None };
        let reading = PromiseReading { promised: PROMISED, counters };
        let is_first = !std::mem::replace(&mut service.has_reading, true);
        let reading = MinuteReading {
            total: service.total,
            promise: Some(reading.terms()),
            judgement: service.promise.note(now.at, reading),
            is_outstanding: row.sample.outstanding > 0.0,
        };
        service.fold.note(&self.names.0, &self.names.1, now, reading);
        let ended = service.fold.take_ended(now.wall);

        // The simulation's count, by itself. The first second of a service is before its first reading.
        let minute = Minute::of(WallTime::from_nanos(now.wall.as_nanos() - 1));
        let own = self.unwritten.entry(minute).or_default();
        own.requests += requests;
        own.bytes += bytes;
        own.nanos += nanos;
        if let Some(mean) = mean.filter(|_| !is_first) {
            own.judged += 1;
            own.kept += u64::from(mean <= PROMISED.as_millis_f64());
        }
        own.is_stuck |= requests == 0 && row.sample.outstanding > 0.0;
        for batch in ended {
            self.write(batch);
        }
    }
}

#[test]
fn the_statement_of_a_simulated_month_is_the_simulations_own_count() {
    let folder = memory_folder();
    let names = (ResourceName::new("disk").unwrap(), ConsumerName::new("tenant").unwrap());
    let mut recorder = MonthRecorder {
        folder: folder.path().to_owned(),
        day: 1,
        service: None,
        writer: None,
        names,
        own: BTreeMap::new(),
        unwritten: BTreeMap::new(),
        batches: 0,
        judged_of_day: 0,
    };
    recorder.start();
    let scenario = Scenario::parse("day", DAY).unwrap();
    // Judged and kept seconds of each day, as the simulator itself judges them.
    let mut judged_by_simulator = Vec::new();
    for day in 1..=30 {
        (recorder.day, recorder.judged_of_day) = (day, 0);
        let outcome = simulate(&scenario, u64::from(day), &mut recorder).unwrap();
        let above = outcome.consumers.get("tenant").unwrap().above_target_fraction.unwrap();
        let judged = recorder.judged_of_day;
        judged_by_simulator.push((judged, judged - (above * judged as f64).round() as u64));
    }
    recorder.stop();
    assert!(recorder.unwritten.is_empty());
    let statement = report(folder.path(), "tenant", &month().to_string());

    let mut total = OwnCount::default();
    let mut minutes = [0; 4];
    for day in 1..=30 {
        let figures = &statement["days"][day as usize - 1];
        assert_eq!(figures["day"], day);
        let (mut sum, mut own_minutes) = (OwnCount::default(), [0; 4]);
        for of_day in 0..1_440 {
            let own = recorder.own.get(&month().day(day).later(of_day));
            let kind = match own {
                Some(own) if own.judged > 0 => {
                    own_minutes[1] += u64::from((own.kept as f64) < 0.95 * own.judged as f64);
                    0
                }
                Some(own) if own.requests == 0 && !own.is_stuck => 2,
                _ => 3,
            };
            own_minutes[kind] += 1;
            let own = own.copied().unwrap_or_default();
            sum.requests += own.requests;
            sum.bytes += own.bytes;
            sum.nanos += own.nanos;
            sum.judged += own.judged;
            sum.kept += own.kept;
        }
        check(figures, &sum, own_minutes, 1_440);
        // Days on which the service ran all the time: the simulator's own judgement, exactly.
        if ![10, 20].contains(&day) {
            assert_eq!((sum.judged, sum.kept), judged_by_simulator[day as usize - 1], "day {day}");
        }
        total.requests += sum.requests;
        total.bytes += sum.bytes;
        total.nanos += sum.nanos;
        total.judged += sum.judged;
        total.kept += sum.kept;
        (0..4).for_each(|kind| minutes[kind] += own_minutes[kind]);
    }
    check(&statement["total"], &total, minutes, 43_200);
    // Two and a half hours without the service, and the five minutes that the clock left out.
    let unknown = |day: usize| statement["days"][day - 1]["minutes"]["unknown"].as_u64().unwrap();
    assert_eq!((unknown(9), unknown(10), unknown(20), unknown(25)), (0, 149, 0, 5));
    assert!(total.kept < total.judged && total.kept * 100 > total.judged * 60, "{total:?}");
    assert_eq!(statement["is_kept"], total.kept as f64 >= 0.95 * total.judged as f64);
    assert_eq!(statement["is_over"], true);
    assert_eq!(statement["resources"], serde_json::json!(["disk"]));
    written_as_files(folder.path(), &statement);
}

fn check(figures: &Value, own: &OwnCount, minutes: [u64; 4], all: u64) {
    let promise = &figures["promises"][0];
    assert_eq!((&promise["judged"], &promise["kept"]), (&own.judged.into(), &own.kept.into()), "{figures}");
    assert_eq!(promise["judged_by"], "seconds");
    assert_eq!((&figures["requests"], &figures["read_bytes"]), (&own.requests.into(), &own.bytes.into()));
    let found =
        ["judged", "missed", "idle", "unknown"].map(|kind| figures["minutes"][kind].as_u64().unwrap());
    assert_eq!(found, minutes, "{figures}");
    assert_eq!(figures["minutes"]["total"], all);
    // Each minute's sum of latencies is rounded to a microsecond.
    let mean = own.nanos as f64 / own.requests as f64 / 1e9;
    assert!((figures["storage_seconds"].as_f64().unwrap() - mean).abs() < 1e-6, "{figures}");
}

/// Text, page and rows say the same.
fn written_as_files(folder: &Path, statement: &Value) {
    let (page, rows) = (folder.join("tenant.html"), folder.join("tenant.csv"));
    let said = tidegate(&[
        "report",
        "tenant",
        "--month",
        &month().to_string(),
        "--journal",
        folder.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
        "--csv",
        rows.to_str().unwrap(),
    ]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let said = text(&said.stdout);
    let verdict = "tenant in 2026-06: the promise was not kept";
    assert!(said.starts_with(verdict), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("2026-06-")).count(), 30, "{said}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(verdict) && page.matches("<svg").count() >= 3);
    for reference in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(reference), "the page asks for something elsewhere: {reference}");
    }
    let rows = fs::read_to_string(rows).unwrap();
    let names: Vec<&str> = rows.lines().next().unwrap().split(',').collect();
    let sum = |name: &str| -> u64 {
        let column = names.iter().position(|known| *known == name).unwrap();
        rows.lines().skip(1).map(|row| row.split(',').nth(column).unwrap().parse::<u64>().unwrap()).sum()
    };
    let total = &statement["total"];
    assert_eq!(sum("judged_seconds"), total["promises"][0]["judged"].as_u64().unwrap());
    assert_eq!(sum("kept_seconds"), total["promises"][0]["kept"].as_u64().unwrap());
    assert_eq!(sum("requests"), total["requests"].as_u64().unwrap());
    assert_eq!(sum("unknown_minutes"), total["minutes"]["unknown"].as_u64().unwrap());
}

/// A database beside a backup, on an array of one server that serves 200 requests per second.
const POOL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
journal = { folder = 'FOLDER', limit = '64MiB' }
[pool.array]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
target = '20ms'
export.database = { size = '64MiB', protected = true }
export.backup = { size = '64MiB', limit = { iops = '100 IO/s' } }
";

/// Requests of an export so far, by the metrics.
fn requests(service: &Service, export: &str) -> u64 {
    let of = |operation: &str| {
        let series = format!(
            "tidegate_response_time_seconds_count{{pool=\"array\",consumer=\"{export}\",op=\"{operation}\"}}"
        );
        service.metric(&series).unwrap_or_else(|| panic!("{series}")) as u64
    };
    of("read") + of("write")
}

#[test]
fn a_gateway_that_was_killed_has_written_its_minutes_and_one_that_ends_writes_all() {
    let keep = tempfile::tempdir().unwrap();
    let journal = keep.path().to_str().unwrap();
    let configuration = POOL.replace("FOLDER", journal);
    let service = Service::start("serve", &configuration);
    let database = LoadClient::start(&service, "database", &["--rate", "30"]);
    let backup = LoadClient::start(&service, "backup", &["--depth", "16"]);
    let reported = |consumer: &str| {
        let said = tidegate(&["report", consumer, "--journal", journal, "--json"]);
        (said.status.code() == Some(0)).then(|| serde_json::from_slice::<Value>(&said.stdout).unwrap())
    };
    // The first minute may have begun too late to have a judged second.
    let judged = || reported("database").filter(|said| said["total"]["promises"][0]["judged"] != 0);
    until("the end of a judged minute", judged);
    let first = reported("backup").unwrap();
    let at_most = requests(&service, "backup");
    service.signal("-KILL");
    drop((database, backup));
    drop(service);
    let after = reported("backup").unwrap();
    let written = after["total"]["requests"].as_u64().unwrap();
    assert!(first["total"]["requests"].as_u64().unwrap() <= written && written > 0, "{after}");
    assert!(written <= at_most, "{written} of {at_most}");
    let database = reported("database").unwrap();
    let promise = &database["total"]["promises"][0];
    assert_eq!((&promise["judged_by"], &promise["response_time_seconds"]), (&"seconds".into(), &0.02.into()));
    assert!(promise["judged"].as_u64().unwrap() > 0, "{database}");
    let waited = &after["total"]["waited"];
    let throttled = ["law_seconds", "limit_seconds"].map(|reason| waited[reason].as_f64().unwrap());
    assert!(throttled.iter().sum::<f64>() > 0.0, "{after}");

    // Running again, and ended in order: not a request is missing.
    let service = Service::start("serve", &configuration);
    let backup = LoadClient::start(&service, "backup", &["--depth", "16"]);
    until("some requests", || (requests(&service, "backup") > 50).then_some(()));
    drop(backup);
    let outstanding = || {
        let of = |state: &str| format!("tidegate_{state}_requests{{pool=\"array\",consumer=\"backup\"}}");
        ["queued", "in_flight"].map(|state| service.metric(&of(state)).unwrap_or(0.0)).iter().sum::<f64>()
    };
    until("no outstanding request", || (outstanding() < 1.0).then_some(()));
    let mut count = 0;
    until("the end of the last request", || {
        let before = count;
        count = requests(&service, "backup");
        // Nothing may be counted in this time.
        std::thread::sleep(Duration::from_millis(300));
        (count == before).then_some(())
    });
    assert!(service.terminate().0.success());
    // A report leaves out the minute under way, and the files have it.
    let mut all = 0;
    let reader = RollupReader::open(keep.path()).unwrap();
    for month in reader.months() {
        let visit = |_, key: &RollupKey, counts: &MinuteCounts| {
            all += if key.consumer.as_str() == "backup" { counts.requests } else { 0 };
        };
        assert!(reader.read(month, visit).unwrap().is_empty());
    }
    assert_eq!(all, written + count);
}

fn key(consumer: &str) -> RollupKey {
    RollupKey {
        resource: ResourceName::new("disk").unwrap(),
        consumer: ConsumerName::new(consumer).unwrap(),
        promise: Some(PromiseTerms { response_time: PROMISED, judged_by: JudgedBy::Requests }),
    }
}

#[test]
fn questions_and_files_that_are_wrong_end_with_status_2_and_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().to_str().unwrap();
    let fails = |arguments: &[&str], expected: &str| {
        let arguments = [&["report"], arguments, &["--journal", journal]].concat();
        let said = tidegate(&arguments);
        let error = text(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
        text(&said.stdout)
    };
    fails(&["w1", "--month", "2026-06"], "there are no rollups");
    let mut writer = RollupWriter::start(folder.path()).unwrap();
    let counts = MinuteCounts { judged: 100, kept: 99, requests: 100, ..MinuteCounts::default() };
    for month in ["2026-04", "2026-06"] {
        let first = month.parse::<Month>().unwrap().first_minute();
        for minute in 0..3 {
            let rollups = vec![(key("w1"), counts), (key("w2"), counts)];
            writer.write(MinuteBatch { minute: first.later(minute), rollups });
        }
    }
    assert!(writer.flush(PATIENCE));
    // The writer also has a file of the month under way.
    let now = Minute::of(WallTime::now()).month();
    fails(&["w11", "--month", "2026-06"], "no consumer `w11` in 2026-06: did you mean `w1`?");
    fails(&["backup", "--month", "2026-06"], "no consumer `backup` in 2026-06: there are w1, w2");
    fails(
        &["w1", "--month", "2026-05"],
        &format!("nothing is kept of 2026-05; kept are 2026-04, 2026-06, {now}"),
    );
    fails(&["w1"], "nothing is known of that month yet");
    for wrong in ["06-2026", "2026-13", "june", "2026-6"] {
        fails(&["w1", "--month", wrong], "is no month; write for example `2026-11`");
    }
    fails(&["w1", "--month", "2026-06", "--csv", "rows.txt"], "the name must end in `.csv` or `.parquet`");
    writer.close(PATIENCE);

    let path = folder.path().join("rollups/2026-06.1.tdgr");
    let whole = fs::read(&path).unwrap();
    let place = path.to_str().unwrap();
    // What is left is reported, and what is lost is told.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let statement = fails(&["w1", "--month", "2026-06", "--json"], &format!("{place}: byte"));
    let statement: Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(statement["total"]["requests"], 200);
    let mut damaged = whole.clone();
    damaged[whole.len() - 40] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let statement = fails(&["w1", "--month", "2026-06", "--json"], "a checksum does not match");
    let statement: Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(statement["total"]["requests"], 200);
    let mut newer = whole;
    newer[8] = 7;
    fs::write(&path, &newer).unwrap();
    fails(&["w1", "--month", "2026-06"], &format!("{place}: byte 8: written in rollup format version 7"));
    fs::write(&path, "time,requests\n").unwrap();
    fails(&["w1", "--month", "2026-06"], &format!("{place}: byte 0: this is no file of rollups"));
}

/// On a dry run, so that nothing is limited; as root, because of the cgroup.
#[test]
fn an_agents_reads_are_reported_with_their_promise_and_its_consumers_without_a_latency() {
    let Some(reader) = DiskReader::start("report") else { return };
    let (device, cgroup) = (reader.device.name(), reader.cgroup.file_name().unwrap());
    let cgroup = cgroup.to_str().unwrap();
    let keep = tempfile::tempdir().unwrap();
    let journal = keep.path().join("journal");
    let agent = Service::start(
        "agent",
        &format!(
            "metrics = '127.0.0.1:0'\nthrottle = 'cgroup'\njournal = {{ folder = '{}' }}\n[resource.disk]\n\
             device = '{device}'\nlaw = 'pid'\ntarget = '60s'\ndry_run = true\ncgroups = ['{cgroup}']\n",
            journal.display()
        ),
    );
    let kept = "tidegate_resource_promise_kept_ratios{resource=\"disk\",over=\"day\"}";
    until("a judged second", || agent.metric(kept));
    let reads = "tidegate_resource_completed_requests_total{resource=\"disk\",op=\"read\"}";
    let before = agent.metric(reads).unwrap();
    until("more reads", || agent.metric(reads).filter(|reads| *reads > before + 100.0));
    assert!(agent.terminate().0.success());
    let month = WallTime::now().to_string()[..7].to_owned();
    let folder = journal.to_str().unwrap();
    // The minute of the last read: an earlier one may have ended before the first judged second.
    let statement = until("the end of a judged minute", || {
        let said = tidegate(&["report", "disk", "--month", &month, "--journal", folder, "--json"]);
        let is_over = said.status.code() == Some(0);
        assert!(is_over || text(&said.stderr).contains("is not over yet"), "{}", text(&said.stderr));
        let statement = is_over.then(|| serde_json::from_slice::<Value>(&said.stdout).unwrap())?;
        (statement["total"]["promises"][0]["judged"] != 0).then_some(statement)
    });
    let of_reads = &statement["total"];
    let promise = &of_reads["promises"][0];
    assert_eq!((&promise["response_time_seconds"], &promise["is_kept"]), (&60.0.into(), &true.into()));
    assert!(of_reads["storage_seconds"].as_f64().unwrap() > 0.0, "{of_reads}");
    assert!(of_reads["requests"].as_u64().unwrap() as f64 > before, "{of_reads}");
    let of_cgroup = &report(&journal, cgroup, &month)["total"];
    assert_eq!(of_cgroup["promises"], serde_json::json!([]));
    assert_eq!((&of_cgroup["storage_seconds"], &of_cgroup["client_seconds"]), (&Value::Null, &Value::Null));
    assert!(of_cgroup["read_bytes"].as_u64().unwrap() > 0, "{of_cgroup}");
}
