//! Commands in the documents of the repository, compared with the command line of a program.

use std::fmt::Write as _;
use std::fs;

use clap::{Command, CommandFactory, Parser};

use crate::markdown::{documents, root};

/// Checks that `page` is `head` and the help of every command of `C`. With `UPDATE_DOCS` in the environment
/// the page is written first.
///
/// # Panics
///
/// Panics if the page differs.
pub fn check_reference<C: CommandFactory>(page: &str, head: &str) {
    let mut expected = head.to_owned();
    let mut program = C::command();
    program.build();
    for command in documented(&program) {
        describe(&mut expected, command, program.get_name());
    }
    let path = root().join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "run this test once with UPDATE_DOCS=1, and commit {page}");
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

/// Checks that `C` parses every command of its program that a document shows as code, and that there are at
/// least `fewest`.
///
/// # Panics
///
/// Panics if a command is wrong, or if there are fewer.
pub fn check_shown<C: Parser>(fewest: usize) {
    let name = C::command().get_name().to_owned();
    let mut wrong = Vec::new();
    let mut parsed = 0;
    for document in documents() {
        for (number, words) in document.commands(&name) {
            if let Err(error) = C::try_parse_from(&words) {
                wrong.push(format!("{}:{number}: {}: {error}", document.name, words.join(" ")));
            }
            parsed += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parsed >= fewest, "only {parsed} commands were found");
}

/// Checks the commands and options of `C` that documents name in prose.
///
/// # Panics
///
/// Panics if there is no such command or option.
pub fn check_named<C: CommandFactory>() {
    let program = C::command();
    let mut wrong = Vec::new();
    for document in documents() {
        for line in &document.lines {
            for span in line.text.split('`').skip(1).step_by(2) {
                let mut words = span.split_whitespace();
                if words.next() == Some(program.get_name())
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
fn unknown<'a>(program: &Command, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
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
