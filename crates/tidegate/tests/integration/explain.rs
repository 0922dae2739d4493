//! `tidegate explain`, `journal` and `replay` of what a real gateway and a real agent recorded.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::service::disk_reader::{DiskReader, OwnAgent};
use crate::service::{LoadClient, Service, text, tidegate};
use tidegate_testing::{Lack, has_programs, skip, until};

/// A database beside a backup, on an array of one server that serves 200 requests per second.
const POOL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
journal = { folder = 'FOLDER', limit = '64MiB' }
[pool.array]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
target = '20ms'
export.database = { size = '64MiB', protected = true }
export.backup = { size = '64MiB' }
";

/// The folder in which `scripts/duckdb` installs DuckDB.
const DUCKDB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/duckdb");

/// Returns the first row that DuckDB answers a query with.
fn duckdb(query: &str) -> String {
    let script = "import sys, duckdb; print(*duckdb.sql(sys.argv[1]).fetchone(), sep='|')";
    let done = Command::new("python3").env("PYTHONPATH", DUCKDB).args(["-c", script, query]).output();
    let answer = done.unwrap();
    assert!(answer.status.success(), "{query}: {}", text(&answer.stderr));
    text(&answer.stdout).trim_end().to_owned()
}

/// Exports a journal to a file.
fn export(journal: &str, file: &Path) {
    let exported = tidegate(&["journal", "export", "--journal", journal, "--out", file.to_str().unwrap()]);
    assert_eq!(exported.status.code(), Some(0), "{}", text(&exported.stderr));
}

/// Exported rows.
struct ExportedRows {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl ExportedRows {
    fn read(csv: &Path) -> Self {
        let lines = fs::read_to_string(csv).unwrap();
        let mut rows = lines.lines().map(|row| row.split(',').map(str::to_owned).collect());
        Self { names: rows.next().unwrap(), rows: rows.collect() }
    }

    fn column(&self, name: &str) -> impl Iterator<Item = &str> {
        let place = self.names.iter().position(|known| known == name).unwrap();
        self.rows.iter().map(move |row| &*row[place])
    }

    fn windows(&self) -> Vec<f64> {
        self.column("window").filter_map(|window| window.parse().ok()).collect()
    }

    fn least_window(&self) -> f64 {
        self.windows().into_iter().fold(f64::INFINITY, f64::min)
    }
}

/// Other programs read the same, whatever the format.
#[test]
fn duckdb_reads_the_rows_that_are_exported() {
    if !has_programs(&["python3"]) {
        return;
    }
    let imported = Command::new("python3").env("PYTHONPATH", DUCKDB).args(["-c", "import duckdb"]).output();
    if !imported.unwrap().status.success() {
        return skip(Lack::Program("DuckDB"), "scripts/duckdb installs it");
    }
    let keep = tempfile::tempdir().unwrap();
    let journal = keep.path().join("journal").to_str().unwrap().to_owned();
    let service = Service::start("serve", &POOL.replace("FOLDER", &journal));
    let loads = [
        LoadClient::start(&service, "database", &["--rate", "30"]),
        LoadClient::start(&service, "backup", &["--depth", "16"]),
    ];
    let window = "tidegate_pool_window_requests{pool=\"array\"}";
    until("a window that throttles", || service.metric(window).filter(|window| *window < 8.0));
    drop(loads);
    assert!(service.terminate().0.success());
    let [csv, parquet] = ["rows.csv", "rows.parquet"].map(|name| keep.path().join(name));
    for file in [&csv, &parquet] {
        export(&journal, file);
    }
    let rows = ExportedRows::read(&csv);
    let reads: u64 = rows.column("reads").map(|reads| reads.parse::<u64>().unwrap()).sum();
    for file in [&csv, &parquet] {
        let file = file.display();
        let found = duckdb(&format!(
            "select count(*), count(distinct consumer), bool_and(agrees = 1), sum(reads)::bigint from '{file}'"
        ));
        assert_eq!(found, format!("{}|2|True|{reads}", rows.rows.len()));
        let found: f64 = duckdb(&format!("select min(\"window\") from '{file}'")).parse().unwrap();
        assert!((found - rows.least_window()).abs() < 1e-12, "{found} for {}", rows.least_window());
        let names = duckdb(&format!("select string_agg(column_name, ',') from (describe from '{file}')"));
        assert_eq!(names, rows.names.join(","));
    }
}

#[test]
fn who_is_throttled_is_explained_as_it_was_and_replayed_bit_for_bit() {
    let keep = tempfile::tempdir().unwrap();
    let journal = keep.path().join("journal").to_str().unwrap().to_owned();
    let service = Service::start("serve", &POOL.replace("FOLDER", &journal));
    let database = LoadClient::start(&service, "database", &["--rate", "30"]);
    let backup = LoadClient::start(&service, "backup", &["--depth", "16"]);
    let held = "tidegate_pool_held_consumers{pool=\"array\"}";
    let window = "tidegate_pool_window_requests{pool=\"array\"}";
    until("a decision that finds the backup waiting", || service.metric(held).filter(|held| *held > 0.0));
    until("a window that throttles", || service.metric(window).filter(|window| *window < 8.0));
    // A journal is read while it is written.
    let info = until("the first block", || {
        let info = tidegate(&["journal", "info", "--journal", &journal, "--json"]);
        (info.status.code() == Some(0)).then(|| text(&info.stdout))
    });
    assert!(info.contains("\"bytes\":"), "{info}");
    // The service explains itself, from the same journal.
    let url = format!("http://{}", service.address());
    let asked = tidegate(&["explain", "backup", "--since", "30min", "--url", &url, "--json"]);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked.stderr));
    let document: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(
        (&document[0]["resource"], &document[0]["consumers"][0]["name"]),
        (&"array".into(), &"backup".into())
    );
    let for_people = tidegate(&["explain", "--url", &url]);
    assert!(text(&for_people.stdout).contains("backup"), "{}", text(&for_people.stderr));
    for (query, status, said) in [
        ("name=backpu", 404, "did you mean `backup`?"),
        ("at=yesterday", 400, "`at`: write 2026-11-26T14:00:00Z"),
        ("since=9", 400, "`since`: `9`: the unit is missing"),
        ("pool=array", 400, "unknown field `pool`"),
        ("at=2001-01-01T00:00:00Z", 404, "nothing is kept of"),
    ] {
        let (code, body) = service.ask(&format!("GET /v1/explain?{query}"), "");
        assert!(code == status && body.contains(said), "{query}: {code} {body}");
    }
    // The last window that was in force, read back from the scheduler.
    let in_force = service.metric(window).unwrap();
    drop((database, backup));
    assert!(service.terminate().0.success());

    let said = tidegate(&["explain", "backup", "--journal", &journal, "--json"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let document: Value = serde_json::from_slice(&said.stdout).unwrap();
    let array = &document[0];
    assert_eq!((&array["resource"], &array["law"]), (&"array".into(), &"auto".into()));
    assert_eq!(array["protects"], serde_json::json!(["database"]));
    assert!((array["signal"]["target_seconds"].as_f64().unwrap() - 0.02).abs() < 1e-9);
    let backup = &array["consumers"][0];
    assert_eq!((&backup["name"], &backup["protected"]), (&"backup".into(), &false.into()));
    let episode = backup["episodes"].as_array().unwrap().last().unwrap();
    assert!(episode["throttled_seconds"].as_f64().unwrap() > 0.0, "{episode}");
    let strongest = episode["strongest"]["window_requests"].as_f64().unwrap();
    assert!(strongest <= in_force + 1e-9, "{strongest} beside {in_force} in force");

    // The export has the commands and what was in force.
    let csv = keep.path().join("rows.csv");
    export(&journal, &csv);
    let rows = ExportedRows::read(&csv);
    assert!(
        rows.windows().into_iter().any(|window| (window - in_force).abs() < 1e-9),
        "{in_force} is among the commands"
    );
    let least = rows.least_window();
    assert!((least - strongest).abs() < 1e-9 || least < strongest, "{least} beside {strongest}");
    assert!(rows.column("agrees").all(|agrees| agrees == "1"), "bit for bit");

    let replayed = tidegate(&["replay", "--journal", &journal]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
    let other = tidegate(&["replay", "--journal", &journal, "--law", "window", "--set", "target=5ms"]);
    assert_eq!(other.status.code(), Some(0), "{}", text(&other.stderr));
    assert!(text(&other.stdout).contains("first difference at"), "{}", text(&other.stdout));

    let wrong = tidegate(&["explain", "bakcup", "--journal", &journal]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `backup`?"), "{}", text(&wrong.stderr));
    let wrong = tidegate(&["explain", "--at", "2020-01-01T00:00:00Z", "--journal", &journal]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("nothing is kept of"), "{}", text(&wrong.stderr));
}

/// An agent that touches nothing, of storage that is not here.
const DRY_AGENT: &str = "
metrics = '127.0.0.1:0'
journal = { folder = 'FOLDER', limit = '1MiB' }
[resource.gone]
device = 'no-such-device'
law = 'pid'
target = '15ms'
dry_run = true
";

#[test]
fn an_agents_decisions_are_kept_and_replayed_across_a_reload() {
    let keep = tempfile::tempdir().unwrap();
    let journal = keep.path().join("journal").to_str().unwrap().to_owned();
    let configuration = DRY_AGENT.replace("FOLDER", &journal);
    let agent = Service::start("agent", &configuration);
    let decided = || agent.metric("tidegate_resource_decisions_total{resource=\"gone\",input=\"idle\"}");
    until("some decisions", || decided().filter(|decisions| *decisions > 5.0));
    agent.configure(&configuration.replace("15ms", "30ms"));
    agent.await_log("reloaded ");
    let before = decided().unwrap();
    until("decisions after the reload", || decided().filter(|decisions| *decisions > before + 5.0));
    agent.configure(&configuration.replace("1MiB", "2MiB"));
    agent.await_log("needs a restart to change: journal");
    // The journal is found by the agent's configuration.
    let config = agent.path("tidegate.toml");
    let info = until("the first block", || {
        let info = tidegate(&["journal", "info", "-c", config.to_str().unwrap()]);
        (info.status.code() == Some(0)).then(|| text(&info.stdout))
    });
    assert!(info.starts_with("decisions from "), "{info}");
    assert!(agent.terminate().0.success());

    let replayed = tidegate(&["replay", "--journal", &journal, "--json"]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
    let outcome: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    let (decisions, agreeing) = (&outcome["gone"]["decisions"], &outcome["gone"]["agreeing"]);
    assert!(decisions.as_u64().unwrap() > 10 && decisions == agreeing, "{outcome}");
    let said = tidegate(&["explain", "gone", "--journal", &journal, "--json"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let document: Value = serde_json::from_slice(&said.stdout).unwrap();
    let gone = &document[0];
    assert_eq!((&gone["mechanism"], &gone["dry_run"]), (&"packet_delay".into(), &true.into()));
    assert!((gone["signal"]["target_seconds"].as_f64().unwrap() - 0.03).abs() < 1e-9, "{gone}");
}

/// With real limits, as root.
#[test]
fn an_agents_limits_are_explained_as_they_were_read_back_from_the_kernel() {
    let Some(reader) = DiskReader::start_for_own_agent("explain") else { return };
    let (device, cgroup) = (reader.device.name(), reader.cgroup.file_name().unwrap());
    let cgroup = cgroup.to_str().unwrap();
    let keep = tempfile::tempdir().unwrap();
    let configuration = format!(
        "throttle = 'cgroup'\njournal = {{ folder = 'journal' }}\n[resource.disk]\ndevice = '{device}'\n\
         law = 'pid'\ntarget = '20us'\ncgroups = ['{cgroup}']\n"
    );
    // The folder is relative to that of the configuration.
    let journal = keep.path().join("journal").to_str().unwrap().to_owned();
    let mut agent = OwnAgent::start(keep.path(), &configuration);
    let explained = || {
        let said = tidegate(&["explain", cgroup, "--journal", &journal, "--json"]);
        let document: Option<Value> = serde_json::from_slice(&said.stdout).ok();
        document.map(|document| document[0].clone())
    };
    let disk = until("a limit that was read back", || {
        agent.expect_alive();
        explained().filter(|disk| disk["consumers"][0]["in_force"]["read_iops"].is_number())
    });
    assert_eq!(disk["mechanism"], "cgroup_limit");
    let said = tidegate(&["explain", cgroup, "--journal", &journal]);
    let said = text(&said.stdout);
    assert!(said.contains(", carried out by limits of cgroups\n  in force  "), "{said}");
    agent.terminate();
    let replayed = tidegate(&["replay", "--journal", &journal]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
    assert!(text(&replayed.stdout).starts_with("disk: "), "{}", text(&replayed.stdout));
}

#[test]
fn a_journal_that_is_none_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let none = tidegate(&["journal", "info", "--journal", path]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("there is no decision journal"), "{}", text(&none.stderr));
    fs::write(folder.path().join("0000000001-1790000000000.tdgj"), "something else").unwrap();
    let foreign = tidegate(&["replay", "--journal", path, "--at", "2026-09-21T16:00:00Z"]);
    assert_eq!(foreign.status.code(), Some(2));
    assert!(text(&foreign.stderr).contains("byte 0"), "{}", text(&foreign.stderr));
}
