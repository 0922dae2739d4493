//! `tidegate admit`: the real binary on files of contracts.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

/// Lee's tables 1 and 2.
const LEE: &str = r#"
[storage]
preset = "dnes-309170w"

[tenant.w1]
iops = 40
size = "4KiB"
response_time = "35ms"
weight = 200

[tenant.w2]
iops = 20
size = "4KiB"
response_time = "38ms"
"#;

fn admit(contracts: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("c.toml"), contracts).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(folder.path()).args(["admit", "-c", "c.toml"]).args(more).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn document(contracts: &str, status: i32) -> Value {
    let output = admit(contracts, &["--json"]);
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_papers_pair_is_admitted() {
    let output = admit(LEE, &[]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let said = text(&output.stdout);
    assert!(said.starts_with("60 IO/s together, of at most 85."), "{said}");
    assert!(said.ends_with("\n\nadmitted\n"), "{said}");
    let document = document(LEE, 0);
    assert_eq!(document["admitted"], true);
    assert!(document.get("instead").is_none());
    for (tenant, row) in document["tenants"].as_array().unwrap().iter().zip(said.lines().skip(3)) {
        let seconds = |key: &str| tenant[key].as_f64().unwrap();
        assert!((seconds("deliverable_s") / seconds("expected_s") - 1.2).abs() < 1e-6);
        assert!((seconds("margin_s") - seconds("promised_s") + seconds("deliverable_s")).abs() < 1e-12);
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells[0], tenant["name"]);
        assert_eq!(cells[5], format!("{:.1}ms", 1e3 * seconds("expected_s")), "{row}");
        assert_eq!(*cells.last().unwrap(), "kept");
    }
}

#[test]
fn a_third_tenant_that_does_not_fit_is_refused_and_what_is_proposed_is_admitted() {
    let three = format!("{LEE}\n[tenant.w3]\niops = 20\nsize = \"4KiB\"\nresponse_time = \"40ms\"\n");
    let output = admit(&three, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "tidegate: refused: 3 contracts could not be kept, of 3\n");
    let said = text(&output.stdout);
    let proposed = said.split("response times of: ").nth(1).unwrap().lines().next().unwrap();
    let mut instead = three.clone();
    for (proposal, asked) in proposed.split(", ").zip(["35ms", "38ms", "40ms"]) {
        let (_, response_time) = proposal.split_once(' ').unwrap();
        instead = instead.replace(asked, response_time);
    }
    assert_eq!(admit(&instead, &[]).status.code(), Some(0), "{instead}");
}

#[test]
fn at_the_rates_that_are_proposed_the_response_times_hold() {
    let tight = LEE.replace("35ms", "30ms").replace("38ms", "30ms");
    let arrivals = ["--json", "--arrivals", "poisson"];
    let output = admit(&tight, &arrivals);
    assert_eq!(output.status.code(), Some(1));
    let refused: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(refused["tenants"][1]["kept"], false);
    let rates = refused["instead"]["rates"]["tenants"].as_array().unwrap();
    let [first, second] = &rates[..] else { panic!("two tenants") };
    let instead = tight
        .replace("iops = 40", &format!("iops = {}", first["iops"]))
        .replace("iops = 20", &format!("iops = {}", second["iops"]));
    assert_eq!(admit(&instead, &arrivals).status.code(), Some(0), "{instead}");
}

#[test]
fn what_the_storage_cannot_do_at_all_is_said_with_its_place() {
    for (contracts, expected) in [
        (LEE.replace("35ms", "5ms"), "c.toml:8:17: `w1` asks for 5.00ms, and its requests take 11."),
        (
            LEE.replace("iops = 40", "iops = 70"),
            "c.toml:5:2: together they ask for 90.0 IO/s, and the storage completes",
        ),
    ] {
        let output = admit(&contracts, &[]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
        assert!(text(&output.stderr).starts_with(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn of_whom_too_little_was_measured_nothing_is_promised() {
    let seldom = LEE.replace("iops = 20", "iops = 0.02");
    let output = admit(&seldom, &[]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    let said = text(&output.stderr);
    assert!(
        said.contains("requests of `w2` were measured, too few") && said.ends_with(": --requests 22011\n"),
        "{said}"
    );
}

#[test]
fn a_file_that_is_wrong_is_no_refusal() {
    for (contracts, expected) in [
        (LEE.replace("weight", "wait"), "c.toml:9:1: unknown key `wait` in tenant `w1`"),
        (LEE.replace("iops = 40", "iops = -40"), "c.toml:6:8: `iops` must be at least 0.01, this is -40"),
        (LEE.replace("dnes-309170w", "dnes"), "c.toml:3:10: `preset` cannot be `dnes`"),
        (
            "storage = { rate = \"100 IO/s\" }".to_owned(),
            "c.toml:1:1: there are no contracts to decide about",
        ),
        ("[storage".to_owned(), "c.toml:1:"),
    ] {
        let output = admit(&contracts, &[]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
        assert!(text(&output.stderr).starts_with(expected), "{}", text(&output.stderr));
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["admit", "-c", "missing.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("tidegate: missing.toml: "), "{}", text(&output.stderr));
}

/// What the document shows of this disk is what comes out.
#[test]
fn the_document_shows_what_is_printed() {
    let shown = include_str!("../../../../docs/guide/contracts.md");
    assert!(shown.contains(LEE.trim()), "its file is another");
    let third = "[tenant.w3]\niops = 20\nsize = \"4KiB\"\nresponse_time = \"40ms\"\n";
    for contracts in [LEE.to_owned(), format!("{LEE}\n{third}")] {
        let printed = admit(&contracts, &[]).stdout;
        assert!(shown.contains(text(&printed)), "{}", text(&printed));
    }
    for arrivals in ["in-step", "even", "drawn", "poisson"] {
        let output = admit(LEE, &["--json", "--arrivals", arrivals]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = |tenant: usize| 1e3 * document["tenants"][tenant]["expected_s"].as_f64().unwrap();
        let row = shown.lines().find(|line| line.starts_with(&format!("| `{arrivals}`"))).unwrap();
        let figures = format!("| {:.1} and {:.1} ms |", expected(0), expected(1));
        assert!(row.contains(&figures), "{figures} instead of {row}");
    }
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let print = |more: &[&str]| admit(LEE, more).stdout;
    assert_eq!(print(&["--json"]), print(&["--json"]));
    assert_ne!(print(&["--json", "--seed", "2"]), print(&["--json"]));
    assert!(text(&print(&["--seed", "7", "--seeds", "1"])).contains("; seed 7, 2000 requests each"));
}

/// Lee's pair by day. By night the second sends more than the disk can do within what is promised to both.
#[test]
fn every_set_of_requirements_that_holds_together_is_judged() {
    let (pair, second) = LEE.split_once("iops = 20").unwrap();
    let day = format!(
        "{pair}{second}requirements = [
            {{ from = \"07:00+01:00\", until = \"18:00\", iops = 20 }},
            {{ from = \"20:00\", iops = 44 }},
        ]\n"
    );
    let output = admit(&day, &[]);
    assert_eq!(output.status.code(), Some(1));
    let refused = "tidegate: refused: from 20:00 until 06:00 2 contracts could not be kept, of 2\n";
    assert_eq!(text(&output.stderr), refused);
    let said = text(&output.stdout);
    let parts = [
        "from 06:00 until 18:00 (UTC): 60 IO/s",
        "from 18:00 until 20:00 (UTC): 40 IO/s",
        "from 20:00 until 06:00 (UTC): 84 IO/s",
    ];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    let document = document(&day, 1);
    assert_eq!(document["admitted"], false);
    let periods = document["periods"].as_array().unwrap();
    let said: Vec<_> = periods
        .iter()
        .map(|period| {
            (
                period["from"].as_str().unwrap(),
                period["admitted"].as_bool().unwrap(),
                period["tenants"].as_array().unwrap().len(),
            )
        })
        .collect();
    assert_eq!(said, [("06:00", true, 2), ("18:00", true, 1), ("20:00", false, 2)]);
    assert_eq!(admit(&day.replace("44", "20"), &[]).status.code(), Some(0));
}

/// By night the disk is asked for more than twice of what it does. What was found of the day is printed all
/// the same.
#[test]
fn a_set_that_cannot_be_takes_nothing_from_the_others() {
    let (pair, second) = LEE.split_once("iops = 20").unwrap();
    let day = format!(
        "{pair}{second}requirements = [
            {{ from = \"08:00\", until = \"20:00\", iops = 20 }},
            {{ from = \"20:00\", iops = 200 }},
        ]\n"
    );
    let output = admit(&day, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("from 20:00 until 08:00: together they ask for 240.0 IO/s"), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["admitted"], false);
    assert_eq!(document["periods"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&document["periods"][0]["from"], &document["periods"][0]["admitted"]),
        (&"08:00".into(), &true.into())
    );
    assert_eq!(document["impossible"][0]["from"], "20:00");
    let people = admit(&day, &[]);
    assert!(
        text(&people.stdout).starts_with("from 08:00 until 20:00 (UTC): 60 IO/s"),
        "{}",
        text(&people.stdout)
    );
}
