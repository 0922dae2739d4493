//! `tidegate sim`: the real binary on real files.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

const SCENARIO: &str = r#"
name = "small"
duration = "20s"
warmup = "4s"
seed = 5

[array.lun]
rate = "500 IO/s"

[host.a]
law = "window"
target = "50ms"
interval = "1s"
beta_scale = "per-share"

[host.b]
law = "window"
target = "50ms"
interval = "1s"
beta_scale = "per-share"

[workload.busy]
outstanding = 100

[workload.recorded]
trace = "traces/short.csv"

[vm."one, \"the first\""]
host = "a"
reservation = "900 IO/s"
workload = ["busy", "recorded"]

[vm.two]
host = "b"
shares = 200
workload = "busy"

[vm.idle]
host = "b"
workload = "busy"
on = "19s.."
"#;

/// A folder with a scenario and the trace it names.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.toml"), SCENARIO).unwrap();
    fs::create_dir(folder.path().join("traces")).unwrap();
    fs::write(folder.path().join("traces/short.csv"), "time,op,offset,bytes\n1.5,W,0,4096\n6,R,4096,512\n")
        .unwrap();
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(folder).args(arguments);
    command
}

fn tidegate(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// What `sim run small.toml` with more arguments prints; it must succeed, and say nothing else.
fn run(folder: &Path, more: &[&str]) -> String {
    let output = tidegate(folder, &[&["sim", "run", "small.toml"], more].concat());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{more:?}");
    text(&output.stdout).to_owned()
}

/// What a run that goes wrong says; it must print no result.
fn complaint(folder: &Path, arguments: &[&str], status: i32) -> String {
    let output = tidegate(folder, arguments);
    let said = text(&output.stderr).to_owned();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(status), ""), "{arguments:?}: {said}");
    said
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The rows of a table's part that begins with this heading, as words; those of a column run together no
/// further than two blanks.
fn rows<'a>(table: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let mut lines = table.lines().skip_while(|line| !line.starts_with(heading));
    let cells = |line: &'a str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    lines.by_ref().take_while(|line| !line.is_empty()).map(cells).collect()
}

#[test]
fn the_table_has_everything_under_its_heading() {
    let folder = folder();
    let table = run(folder.path(), &[]);
    assert!(table.starts_with("small: 20 s, statistics from 4 s on, seed 5\n\n"), "{table}");
    let document: Value = serde_json::from_str(&run(folder.path(), &["--json"])).unwrap();
    let cell = |part: &str, row: usize, heading: &str| {
        let rows = rows(&table, part);
        let column = rows[0].iter().position(|cell| *cell == heading);
        rows[row][column.unwrap_or_else(|| panic!("no `{heading}` in\n{table}"))].to_owned()
    };
    let shown = |value: &Value| format!("{:.2}", value.as_f64().unwrap());
    let lun = &document["resources"]["lun"];
    assert_eq!(cell("array", 1, "array"), "lun");
    for (heading, key) in [("mean ms", "mean"), ("p50", "p50"), ("p95", "p95"), ("p99", "p99")] {
        assert_eq!(cell("array", 1, heading), shown(&lun["latency_ms"][key]), "{heading}");
    }
    let b = &document["hosts"]["b"];
    assert_eq!((cell("host", 2, "host"), cell("host", 2, "array")), ("b".into(), "lun".into()));
    assert_eq!(cell("host", 2, "window"), shown(&b["window"]["mean"]));
    assert_eq!(cell("host", 2, "at the end"), shown(&b["window"]["final"]));
    assert_eq!(cell("host", 2, "beta"), shown(&b["beta"]));
    assert_eq!(cell("host", 2, "reservations"), "-");
    assert_eq!(cell("host", 1, "reservations"), "missed 100.0 %: storage", "900 of 500");
    assert_eq!(cell("consumer", 1, "consumer"), "one, \"the first\"");
    let two = &document["consumers"]["two"];
    assert_eq!((cell("consumer", 2, "host"), cell("consumer", 2, "shares")), ("b".into(), "200".into()));
    assert_eq!(cell("consumer", 2, "array ms"), shown(&two["device_latency_ms"]));
    assert_eq!(cell("consumer", 2, "outstanding"), shown(&two["outstanding"]));
    let above = two["above_target_fraction"].as_f64().unwrap() * 100.0;
    assert_eq!(cell("consumer", 2, "above target"), format!("{above:.1} %"));
}

/// The paths of a document's values, with `NAME` for what the scenario names.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let named = ["resources", "hosts", "consumers"].contains(&at);
                paths(
                    value,
                    &format!(
                        "{at}{}{}",
                        if at.is_empty() { "" } else { "." },
                        if named { "NAME" } else { key }
                    ),
                    found,
                );
            }
        }
        _ if found.iter().any(|path| path == at) => {}
        _ => found.push(at.to_owned()),
    }
}

/// The paths that a shape as `{a, b: {c}}` has.
fn documented(shape: &str) -> Vec<String> {
    let (mut found, mut stack, mut word) = (Vec::new(), Vec::<String>::new(), String::new());
    let mut leaf = |stack: &[String], word: &mut String| {
        if !word.is_empty() {
            found.push(stack.iter().chain([&*word]).cloned().collect::<Vec<_>>().join("."));
            word.clear();
        }
    };
    for letter in shape.trim().strip_prefix('{').unwrap().strip_suffix('}').unwrap().chars() {
        match letter {
            ':' => stack.push(std::mem::take(&mut word)),
            ',' => leaf(&stack, &mut word),
            '}' => {
                leaf(&stack, &mut word);
                stack.pop();
            }
            '{' => {}
            letter if letter.is_whitespace() => {}
            letter => word.push(letter),
        }
    }
    leaf(&stack, &mut word);
    found
}

#[test]
fn the_document_has_the_shape_that_is_documented() {
    let folder = folder();
    let manual =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/scenarios.md"))
            .unwrap();
    let shape = manual.split_once("\n## Output\n").unwrap().1.split("```").nth(1).unwrap();
    let document: Value = serde_json::from_str(&run(folder.path(), &["--json"])).unwrap();
    assert_eq!((&document["scenario"], &document["seed"]), (&"small".into(), &5.into()));
    assert_eq!(document["consumers"]["two"]["shares"], 200);
    let mut found = Vec::new();
    // A host without a reservation has no part of decisions that missed it.
    let mut whole = document.clone();
    whole["hosts"].as_object_mut().unwrap().remove("b");
    paths(&whole, "", &mut found);
    let mut expected = documented(shape);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(document["hosts"]["b"]["reservations_missed"], Value::Null);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let folder = folder();
    let plain = run(folder.path(), &["--json"]);
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    for format in ["csv", "parquet"] {
        let (one, two, other) = (format!("one.{format}"), format!("two.{format}"), format!("other.{format}"));
        assert_eq!(run(folder.path(), &["--json", "--series", &one]), plain);
        assert_eq!(run(folder.path(), &["--json", "--series", &two, "--seed", "5"]), plain);
        assert_ne!(run(folder.path(), &["--json", "--series", &other, "--seed", "6"]), plain);
        assert!(read(&one) == read(&two), "{format} of one seed");
        assert!(read(&one) != read(&other), "{format} of two seeds");
    }
}

/// Fields of a line as RFC 4180 has it.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => fields.last_mut().unwrap().push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            letter => fields.last_mut().unwrap().push(letter),
        }
    }
    fields
}

#[test]
fn parquet_has_the_values_of_the_csv() {
    let folder = folder();
    run(folder.path(), &["--series", "series.csv"]);
    run(folder.path(), &["--series", "series.PARQUET"]);
    let csv = fs::read_to_string(folder.path().join("series.csv")).unwrap();
    let mut lines = csv.lines().map(fields);
    let names = lines.next().unwrap();
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 20 * 3, "a row for each second and consumer");

    let file = File::open(folder.path().join("series.PARQUET")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    assert_eq!(columns.iter().map(|column| column.name()).collect::<Vec<_>>(), names);
    assert_eq!(reader.metadata().file_metadata().num_rows(), 60);
    let (mut numbers, mut missing) = (0, 0);
    for (row, fields) in reader.get_row_iter(None).unwrap().zip(&lines) {
        for ((name, value), field) in row.unwrap().get_column_iter().zip(fields) {
            match value {
                Field::Null => {
                    assert_eq!(field, "", "{name}");
                    missing += 1;
                }
                Field::Str(text) => assert_eq!(field, text, "{name}"),
                Field::Double(value) => {
                    assert_eq!(
                        field.parse::<f64>().unwrap().to_bits(),
                        value.to_bits(),
                        "{name}: {field}, {value}"
                    );
                    numbers += 1;
                }
                other => panic!("{name}: {other}"),
            }
        }
    }
    assert_eq!(numbers + missing, 60 * 14);
    assert!(missing > 18, "who is off has no response time: {missing}");
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_to_do() {
    let folder = folder();
    let wrong = SCENARIO
        .replace("outstanding", "outstandin")
        .replace("\"50ms\"", "50")
        .replace("short.csv", "long.csv");
    fs::write(folder.path().join("wrong.toml"), wrong).unwrap();
    let said = complaint(folder.path(), &["sim", "run", "wrong.toml", "--json", "--series", "x.csv"], 2);
    for expected in [
        "wrong.toml:12:10: ",
        "wrong.toml:18:10: ",
        "\nwrong.toml:23:1: unknown key `outstandin` in workload `busy`\n",
        "did you mean `outstanding`?",
        "\nwrong.toml:26:9: ",
        "`traces/long.csv`",
    ] {
        assert!(said.contains(expected), "`{expected}` in\n{said}");
    }
    assert!(!folder.path().join("x.csv").exists(), "nothing is begun");
    let said = complaint(folder.path(), &["sim", "run", "missing.toml"], 2);
    assert!(said.starts_with("tidegate: missing.toml: "), "{said}");
}

#[test]
fn a_series_of_another_kind_is_wrong_usage_before_anything_is_read() {
    let folder = folder();
    for name in ["series.json", "series", "parquet", ".csv"] {
        let said = complaint(folder.path(), &["sim", "run", "missing.toml", "--series", name], 2);
        assert!(said.contains(&format!("'{name}' for '--series <FILE>'")), "{said}");
        assert!(said.contains("the name must end in `.csv` or `.parquet`"), "{said}");
        assert!(!folder.path().join(name).exists());
    }
    complaint(folder.path(), &["sim", "run", "small.toml", "--seed", "-1"], 2);
}

#[test]
fn a_series_that_cannot_be_written_is_a_failure_that_names_the_file() {
    let folder = folder();
    // A device that is always full: a file is opened, and its end, or more, cannot be written.
    for format in ["csv", "parquet"] {
        let full = format!("full.{format}");
        symlink("/dev/full", folder.path().join(&full)).unwrap();
        for name in [full, format!("no/such/folder.{format}")] {
            let said = complaint(folder.path(), &["sim", "run", "small.toml", "--series", &name], 1);
            let expected = format!("tidegate: {name}: the rows cannot be written: ");
            assert!(said.starts_with(&expected) && said.contains("(os error "), "{said}");
        }
    }
}

#[test]
fn a_result_that_nobody_takes_is_a_failure_and_a_closed_pipe_is_none() {
    let folder = folder();
    for more in [&[][..], &["--json"]] {
        let mut full = command(folder.path(), &[&["sim", "run", "small.toml"], more].concat());
        let output = full.stdout(File::create("/dev/full").unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).starts_with("tidegate: cannot write the result: "));
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(folder.path(), &["sim", "run", "small.toml"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn the_schema_is_the_published_one() {
    let output = tidegate(Path::new("."), &["sim", "schema"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.schema.json");
    assert!(text(&output.stdout) == fs::read_to_string(published).unwrap(), "docs/scenarios.schema.json");
}

/// Runs a scenario with one workload on one array, and returns the complaint.
fn refused_work(array: &str, workload: &str, status: i32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"x\"\nduration = \"200s\"\n[array.lun]\n{array}\n[host.a]\n[vm.v]\nworkload = \"w\"\n\
         [workload.w]\n{workload}\n"
    );
    fs::write(folder.path().join("x.toml"), text).unwrap();
    complaint(folder.path(), &["sim", "run", "x.toml"], status)
}

#[test]
fn a_scenario_that_would_hardly_end_is_refused_and_the_keys_are_named() {
    let slow = "rate = \"500 IO/s\"";
    let refused = refused_work(slow, "rate = \"10000000 IO/s\"", 2);
    assert!(refused.contains("x.toml:9:8: `rate` must be at most 1000000 IO/s"), "{refused}");
    let refused = refused_work(slow, "outstanding = 65536\ncount = 65536", 2);
    assert!(refused.contains("write a lower `limit`, `outstanding` or `count`"), "{refused}");
}

#[test]
fn a_simulation_whose_time_hardly_passes_ends_with_the_reason() {
    let refused = refused_work("rate = \"1000000000000 IO/s\"", "outstanding = 64", 1);
    assert!(refused.contains("events within a second") && refused.contains("(`rate`)"), "{refused}");
}
