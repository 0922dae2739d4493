//! The command line in the documents: the reference of commands, and commands shown elsewhere.

use tidegate_testing::commands::{check_named, check_reference, check_shown};

use crate::Cli;

const HEAD: &str = "\
# Commands

This page is made from the program's own help: `UPDATE_DOCS=1 cargo test -p tidegate --lib documents`
writes it. `tidegate COMMAND --help` shows the same.

Exit status of all commands: 0 done, 1 failed, 2 wrong usage or configuration.
";

#[test]
fn the_reference_of_commands_is_the_programs_help() {
    check_reference::<Cli>("docs/reference/commands.md", HEAD);
}

#[test]
fn every_command_of_the_documents_is_one() {
    check_shown::<Cli>(50);
}

#[test]
fn every_command_named_in_prose_is_one() {
    check_named::<Cli>();
}
