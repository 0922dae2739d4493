//! The command line in the documents: the reference of commands, and commands shown elsewhere.

#[allow(dead_code, reason = "the tests in that folder use the rest")]
#[path = "../tests/integration/documents/markdown.rs"]
mod markdown;

use std::fmt::Write as _;
use std::fs;

use clap::{Command, CommandFactory, Parser};

use crate::Cli;
use markdown::{documents, root};

/// The reference of commands.
const PAGE: &str = "docs/reference/commands.md";

const HEAD: &str = "\
# Commands

This page is made from the program's own help: `UPDATE_DOCS=1 cargo test -p tidegate --bin tidegate documents`
writes it. `tidegate COMMAND --help` shows the same.

Exit status of all commands: 0 done, 1 failed, 2 wrong usage or configuration.
";

#[test]
fn the_reference_of_commands_is_the_programs_help() {
    let mut expected = HEAD.to_owned();
    let mut program = Cli::command();
    program.build();
    for command in documented(&program) {
        describe(&mut expected, command, "tidegate");
    }
    let page = root().join(PAGE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    let found = fs::read_to_string(&page).unwrap_or_default();
    assert!(found == expected, "run this test once with UPDATE_DOCS=1, and commit {PAGE}");
}

/// Writes the help of a command, and of its subcommands, each under a heading of its own.
fn describe(page: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    let help = command.clone().bin_name(&name).term_width(100).render_long_help().to_string();
    let lines = help.trim_end().lines().map(str::trim_end);
    writeln!(page, "\n## `{name}`\n\n```text\n{}\n```", lines.collect::<Vec<_>>().join("\n")).unwrap();
    for inner in documented(command) {
        describe(page, inner, &name);
    }
}

/// Returns the subcommands that are for users, without clap's own `help`.
fn documented(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set())
}

#[test]
fn every_command_of_the_documents_is_one() {
    let mut wrong = Vec::new();
    let mut parsed = 0;
    for document in documents() {
        for (number, words) in document.commands() {
            if let Err(error) = Cli::try_parse_from(&words) {
                wrong.push(format!("{}:{number}: {}: {error}", document.name, words.join(" ")));
            }
            parsed += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parsed > 50, "only {parsed} commands were found");
}

#[test]
fn every_command_named_in_prose_is_one() {
    let program = Cli::command();
    let mut wrong = Vec::new();
    for document in documents() {
        for line in &document.lines {
            for span in line.text.split('`').skip(1).step_by(2) {
                let words: Vec<_> = span.split_whitespace().collect();
                if let Some(("tidegate", words)) = words.split_first().map(|(first, rest)| (*first, rest))
                    && let Some(unknown) = unknown(&program, words)
                {
                    wrong.push(format!("{}:{}: `{span}`: {unknown}", document.name, line.number));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the first word that is neither a command, an option nor a value.
fn unknown<'a>(program: &Command, words: &[&'a str]) -> Option<&'a str> {
    let mut command = program;
    for word in words {
        if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        } else if let Some(option) = word.strip_prefix("--") {
            let option = option.split('=').next().unwrap_or(option);
            let option = option.trim_end_matches(|c: char| !c.is_alphanumeric());
            let known = |argument: &clap::Arg| argument.get_long() == Some(option);
            if !["help", "version"].contains(&option) && !command.get_arguments().any(known) {
                return Some(word);
            }
        } else if command.has_subcommands() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-') {
            return Some(word);
        }
    }
    None
}
