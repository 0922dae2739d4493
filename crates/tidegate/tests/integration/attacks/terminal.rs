//! Files and names of others that are made for terminals: no command passes on a character that would change one.

use std::fs;
use std::process::{Command, Output};

use tidegate_testing::markdown::root;

use crate::service::text;

/// Sets the title of a window, and reads backwards.
const NAME: &str = "\u{1b}]0;title\u{7}\u{202e}\u{9b}31m";

fn assert_harmless(output: &Output) {
    for said in [text(&output.stdout), text(&output.stderr)] {
        assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']), "{said:?}");
    }
}

#[test]
fn texts_of_files_and_arguments_do_not_change_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("{NAME}.toml"));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(arguments).arg(&file).output().unwrap();
        assert_harmless(&output);
        output
    };
    let example = fs::read_to_string(root().join("scenarios/examples/three-hosts.toml")).unwrap();
    let named = |line: &str| {
        if line.starts_with("name = ") { r#"name = "\u001b]0;title\u0007\u202e\u009b31m""# } else { line }
            .to_owned()
    };
    let scenario: String = example.lines().map(|line| named(line) + "\n").collect();
    for (scenario, succeeds) in
        [(scenario.clone(), true), (format!("{scenario}[{NAME:?}]\nx = '{NAME}'"), false)]
    {
        fs::write(&file, scenario).unwrap();
        for options in [&["sim", "run"][..], &["sim", "run", "--json"]] {
            assert_eq!(run(options).status.success(), succeeds);
        }
    }
    // As a pattern of the shell gives names of files to a command.
    for command in [
        &["serve"][..],
        &["keys"],
        &["load", "unix:/nowhere", "--export"],
        &["status", "--config"],
        &["check"],
    ] {
        assert!(!run(command).status.success());
    }
}
