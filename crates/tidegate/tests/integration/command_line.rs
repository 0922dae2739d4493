//! The real binary: what it prints where, and its exit status.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use crate::service::{Service, tidegate_beside};
use tidegate_testing::{Lack, skip};

fn tidegate(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).current_dir(folder).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const GOOD: &str = "
listen = ['unix:nbd.sock']
[pool.vg0]
backend = { kind = 'file' }
law = 'window'
target = '15ms'
[pool.vg0.export.database]
path = 'disk.raw'
protected = true
[pool.vg0.export.backup]
path = 'backup.raw'
";

fn folder_with(configuration: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.raw"), [0u8; 4096]).unwrap();
    fs::write(folder.path().join("backup.raw"), [0u8; 4096]).unwrap();
    fs::write(folder.path().join("t.toml"), configuration).unwrap();
    folder
}

#[test]
fn check_says_what_a_right_configuration_comes_to() {
    let folder = folder_with(GOOD);
    let output = tidegate(&["check", "-c", "t.toml"], folder.path());
    assert_eq!((status(&output), text(&output.stderr)), (0, ""));
    let said = text(&output.stdout);
    assert!(
        said.starts_with("t.toml: right\nlistening on unix:nbd.sock\npool vg0: files, depth 32; law window:"),
        "{said}"
    );
    assert!(
        said.contains("\n  database  disk.raw, protected\n  backup    backup.raw, 100 shares\n"),
        "{said}"
    );
}

#[test]
fn a_configuration_without_its_option_is_told_the_option() {
    let folder = folder_with(GOOD);
    for command in ["check", "serve", "agent", "status"] {
        let output = tidegate(&[command, "t.toml"], folder.path());
        assert_eq!(status(&output), 2);
        let said = text(&output.stderr);
        assert!(said.contains("tip: the configuration is an option: `-c t.toml`"), "{command}: {said}");
    }
}

#[test]
fn check_finds_what_is_wrong_and_its_place() {
    let folder = folder_with(&GOOD.replace("protected", "protekted"));
    let output = tidegate(&["check", "-c", "t.toml"], folder.path());
    assert_eq!((status(&output), text(&output.stdout)), (2, ""));
    assert_eq!(
        text(&output.stderr),
        "t.toml:9:1: unknown key `protekted` in export `database`\n \
         9 | protekted = true\n   | ^^^^^^^^^ did you mean `protected`?\n\
         verdict: nothing starts with this configuration; mistakes: 1\n"
    );
}

#[test]
fn check_speaks_json_in_both_cases() {
    let folder = folder_with(GOOD);
    let output = tidegate(&["check", "-c", "t.toml", "--json"], folder.path());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((status(&output), &document["valid"]), (0, &true.into()));
    assert_eq!(document["serves"]["pools"][0]["exports"][0]["path"], "disk.raw");

    let folder = folder_with(&GOOD.replace("'15ms'", "15"));
    let output = tidegate(&["check", "-c", "t.toml", "--json"], folder.path());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((status(&output), &document["valid"]), (2, &false.into()));
    assert_eq!(
        (&document["findings"][0]["line"], &document["findings"][0]["column"]),
        (&6.into(), &10.into())
    );
}

#[test]
fn check_says_what_this_machine_can_sense_and_throttle() {
    let folder = folder_with("[resource.vg-that-is-not-here]\ntarget = '15ms'\n");
    let output = tidegate(&["check"], folder.path());
    assert_eq!((status(&output), text(&output.stderr)), (0, ""));
    let said = text(&output.stdout);
    assert!(said.contains(" block devices and LVM: ") && said.contains(" sessions of iSCSI: "), "{said}");

    let output = tidegate(&["check", "-c", "t.toml", "--json"], folder.path());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let machine = &document["machine"];
    assert_eq!((&document["valid"], &machine["resources"][0]["here"]), (&true.into(), &false.into()));
    // The configuration is right, and whether it comes to anything depends on the machine.
    let lacking = machine["resources"][0]["cannot_be_held"].as_array().unwrap();
    assert_eq!(status(&output), i32::from(!lacking.is_empty()), "{lacking:?}");
    // Whatever there is here: each is said to work, or why not and what would help.
    for finding in machine["throttles"].as_array().unwrap() {
        assert!(
            finding["works"].is_boolean() && finding["detail"].as_str().is_some_and(|text| !text.is_empty())
        );
    }
}

#[test]
fn check_says_that_nobody_can_be_held_here_and_why() {
    let acting = "[resource.vg0]\ntarget = '15ms'\n";
    let check = |configuration: &str| {
        let folder = folder_with(configuration);
        // Rules take a program, whatever the kernel has. Nothing else that is looked for is one.
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["check", "-c", "t.toml"])
            .env("PATH", "/nowhere")
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let output = check(acting);
    let said = text(&output.stdout);
    if said.contains("run this as root") {
        assert_eq!(status(&output), 0, "what cannot be tried is not lacking: {said}");
        return skip(Lack::Root, "a network namespace to try a throttle in");
    }
    assert!(said.starts_with("t.toml: right\n"), "{said}");
    assert!(said.contains("\nresource vg0: cannot be throttled here: nftables: "), "{said}");
    assert!(said.contains("it takes the package nftables"), "{said}");
    assert_eq!(status(&output), 1, "{said}");
    assert!(
        text(&output.stderr).contains("nothing can be throttled here for vg0"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(status(&check(&format!("{acting}dry_run = true"))), 0, "nobody is to be held");
}

#[test]
fn an_agents_configuration_is_checked_as_such() {
    let folder = folder_with("[resource.vg0]\ntarget = '15ms'\nexmept = '10.0.0.1'\n");
    for arguments in [&["check", "-c", "t.toml"][..], &["agent", "-c", "t.toml"]] {
        let output = tidegate(arguments, folder.path());
        assert_eq!(status(&output), 2);
        let said = text(&output.stderr);
        assert!(said.starts_with("t.toml:3:1: unknown key `exmept` in resource `vg0`\n"), "{said}");
        assert!(said.contains("did you mean `exempt`?"), "{said}");
    }
}

#[test]
fn identify_wants_to_know_which_resource_and_how() {
    let two = "[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\n[resource.vg1]\nlaw = 'pid'\ntarget = '15ms'\n";
    let folder = folder_with(two);
    for (arguments, said) in [
        (&["identify", "-c", "t.toml", "--relay"][..], "name one of the configuration's resources: vg0, vg1"),
        (
            &["identify", "-c", "t.toml", "--relay", "vg2"],
            "name one of the configuration's resources: vg0, vg1",
        ),
        (&["identify", "-c", "t.toml", "vg0"], "--relay"),
        (&["identify", "-c", "missing.toml", "--relay"], "missing.toml"),
        (&["identify", "--relay"], "--config"),
        (&["identify", "-c", "t.toml", "--relay", "--seed", "2"], "--seed"),
        (&["identify", "--relay", "--model", "dnes-309170w"], "--model"),
        (&["identify", "-c", "t.toml", "--model", "dnes-309170w"], "--model"),
        (&["identify", "--model", "dnes"], "there is no device preset `dnes`"),
    ] {
        let output = tidegate(arguments, folder.path());
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn identify_says_at_once_that_there_is_no_such_storage() {
    let folder = folder_with("[resource.vg-that-is-not-here]\nlaw = 'pid'\ntarget = '15ms'\n");
    let output = tidegate(&["identify", "-c", "t.toml", "--relay"], folder.path());
    assert_eq!(status(&output), 1);
    let said = text(&output.stderr);
    assert!(said.contains("vg-that-is-not-here: there is no such storage on this machine"), "{said}");
}

#[test]
fn a_warning_is_said_and_is_no_failure() {
    let folder = folder_with(&GOOD.replace("law = 'window'\ntarget = '15ms'", "dry_run = true"));
    let output = tidegate(&["check", "-c", "t.toml"], folder.path());
    assert_eq!(status(&output), 0);
    assert!(text(&output.stderr).starts_with("t.toml:5:1: warning: `dry_run` has no effect\n"));
}

#[test]
fn check_did_not_warn_of_settings_that_do_nothing_or_show_all() {
    let gateway = GOOD
        .replacen('\n', "\nmetrics = '0.0.0.0:9809'\n", 1)
        .replace("'15ms'", "'1ns'")
        .replace("protected = true", "protected = true\nshares = 300");
    let agent = "metrics = '[::]:9809'\n[resource.vg0]\ntarget = '9us'\n".to_owned();
    let everywhere = "can read the metrics and the status\n";
    for (configuration, expected) in [
        (
            gateway,
            [
                "warning: any host that reaches 0.0.0.0:9809 ",
                everywhere,
                "warning: no storage keeps a `target` of 1ns: the law throttles as far as it may\n",
                "warning: `shares` has no effect\n",
            ],
        ),
        (
            agent,
            [
                "warning: any host that reaches [::]:9809 ",
                everywhere,
                "warning: no storage keeps a `target` of 9.00µs",
                "9.00µs: the law throttles as far as it may\n",
            ],
        ),
    ] {
        let folder = folder_with(&configuration);
        let output = tidegate(&["check", "-c", "t.toml"], folder.path());
        let said = text(&output.stderr);
        for part in expected {
            assert_eq!(said.matches(part).count(), 1, "{part:?}: {said}");
        }
    }
    let folder =
        folder_with(&GOOD.replacen('\n', "\nmetrics = '127.0.0.1:0'\n", 1).replace("'15ms'", "'20us'"));
    let output = tidegate(&["check", "-c", "t.toml"], folder.path());
    assert_eq!((status(&output), text(&output.stderr)), (0, ""), "no warning without a reason");
}

#[test]
fn check_finds_what_serve_would_refuse_with_the_same_status() {
    let folder = folder_with("");
    fs::write(folder.path().join("odd.raw"), [0u8; 1_000_003]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _socket = UnixListener::bind(folder.path().join("used.sock")).unwrap();
    let locked = fs::File::open(folder.path().join("backup.raw")).unwrap();
    locked.lock().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let direct = GOOD.replace("kind = 'file'", "kind = 'file', direct = true");
    let disk = "path = 'disk.raw'\nlisten = ['vhost-user:used.sock']";
    // With `backup.raw` free, but for the case that is about it.
    let good = |text: &str| text.replace("backup.raw", "odd.raw");
    for (configuration, place, said) in [
        (
            good(&GOOD.replace("unix:nbd.sock", &format!("tcp:127.0.0.1:{port}"))),
            "t.toml:2:",
            "listens there",
        ),
        (
            good(&GOOD.replacen('\n', &format!("\nmetrics = '0.0.0.0:{port}'\n"), 1)),
            "t.toml:2:",
            "listens there",
        ),
        (good(&GOOD.replace("nbd.sock", "used.sock")), "t.toml:2:", "listens there"),
        (good(&GOOD.replace("path = 'disk.raw'", disk)), "t.toml:9:", "listens there"),
        (direct.replace("backup.raw", "odd.raw"), "t.toml:11:", "1000003, is not a multiple of the"),
        (GOOD.to_owned(), "t.toml:11:", "is in use by another program"),
        (good(&GOOD.replacen('\n', "\njournal = { folder = 'file' }\n", 1)), "t.toml:2:", "it is no folder"),
    ] {
        fs::write(folder.path().join("t.toml"), &configuration).unwrap();
        let output = tidegate(&["check", "-c", "t.toml"], folder.path());
        let errors = text(&output.stderr);
        assert_eq!(status(&output), 1, "{configuration}{errors}");
        let finding = errors.lines().find(|line| line.starts_with(place) && line.contains(said));
        assert!(finding.is_some(), "{said}: {errors}");
        assert!(errors.ends_with("the service does not start here now; obstacles: 1\n"), "{errors}");
        let served = tidegate(&["serve", "-c", "t.toml"], folder.path());
        assert_eq!(status(&served), 1, "{}", text(&served.stderr));
    }
    let left: BTreeSet<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 6, "nothing was made: {left:?}");
}

#[test]
fn what_the_running_service_uses_is_not_in_its_way() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let service = Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock', 'tcp:127.0.0.1:{port}']\nmetrics = '127.0.0.1:0'\n\
             journal = {{ folder = 'journal' }}\n[pool.p]\nbackend = {{ kind = 'file' }}\n\
             export.a = {{ path = 'disk.raw', listen = ['vhost-user:disk.sock'] }}\n"
        ),
    );
    let folder = service.path("");
    let config = service.path("tidegate.toml");
    let check = |config: &Path| tidegate_beside(&folder, &["check", "-c", config.to_str().unwrap()]);
    let output = check(&config);
    assert_eq!((status(&output), text(&output.stderr)), (0, ""), "its own");
    // Another configuration cannot have any of it.
    let other = service.path("other.toml");
    fs::copy(&config, &other).unwrap();
    let output = check(&other);
    assert_eq!(status(&output), 1);
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("`tcp:127.0.0.1:{port}`: tidegate (process {})", service.pid())),
        "{said}"
    );
    assert!(said.ends_with("obstacles: 5\n"), "{said}");
}

#[test]
fn wrong_usage_and_wrong_configurations_exit_with_2() {
    let folder = folder_with("listen = 5");
    let wrong: [&[&str]; 8] = [
        &[],
        &["frobnicate"],
        &["serve"],
        &["check", "-c", "missing.toml"],
        &["serve", "-c", "t.toml"],
        &["serve", "-c", "t.toml", "--log", "tide=gate=high"],
        &["load", "http://localhost/"],
        &["load", "nbd://127.0.0.1:1/x", "--depth", "0"],
    ];
    for arguments in wrong {
        let output = tidegate(arguments, folder.path());
        assert_eq!((status(&output), text(&output.stdout)), (2, ""), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} says nothing");
    }
}

#[test]
fn what_fails_exits_with_1_and_says_why() {
    let folder = folder_with(GOOD);
    let output = tidegate(&["load", "nbd+unix:///x?socket=missing.sock"], folder.path());
    assert_eq!(status(&output), 1);
    let said = text(&output.stderr);
    assert!(said.starts_with("tidegate: nbd+unix:///x?socket=missing.sock: cannot connect: "), "{said}");
}

#[test]
fn help_and_version_are_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["--version"], &["serve", "--help"], &["load", "--help"]] {
        let output = tidegate(arguments, folder.path());
        assert_eq!((status(&output), text(&output.stderr)), (0, ""), "{arguments:?}");
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn a_log_level_that_does_not_exist_is_an_error_and_not_silence() {
    let folder = folder_with(GOOD);
    let serve = |level: Option<&str>, environment: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["serve", "-c", "absent.toml"]).current_dir(folder.path());
        command.args(level.into_iter().flat_map(|level| ["--log", level]));
        let output = command.env("TIDEGATE_LOG", environment).output().unwrap();
        (status(&output), text(&output.stderr).to_owned())
    };
    let (code, said) = serve(Some("inof"), "info");
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--log: `inof` is no log level (the nearest is `info`)"), "{said}");
    let (code, said) = serve(Some("tidegate_gateway=verbose"), "info");
    assert!(code == 2 && said.contains("`verbose` is no log level; use error, warn"), "{code} {said}");
    let (code, said) = serve(None, "warning");
    assert!(code == 2 && said.contains("TIDEGATE_LOG: `warning` is no log level"), "{code} {said}");
    // A level that exists, in whatever case, leads on to what is wrong then.
    for level in ["info", "WARN", "tidegate_gateway=debug,warn"] {
        let (_, said) = serve(Some(level), "info");
        assert!(said.contains("absent.toml") && !said.contains("log level"), "{said}");
    }
}
