//! The command line in the documents: the reference of commands, and commands shown elsewhere.

use tidegate_testing::commands::{check_named, check_reference, check_shown};

use crate::Cli;

const HEAD: &str = "\
# Commands of tidegate-lab

`make lab` builds `target/release/tidegate-lab` from the repository. No package has this program.

This page is made from the program's own help: `UPDATE_DOCS=1 cargo test -p tidegate-lab --bin tidegate-lab
documents` writes it. `tidegate-lab COMMAND --help` shows the same.

Exit status of both commands: 0 done, 1 failed, 2 wrong usage or scenario.
";

#[test]
fn the_reference_of_commands_is_the_programs_help() {
    check_reference::<Cli>("docs/reference/lab-commands.md", HEAD);
}

#[test]
fn every_command_of_the_documents_is_one() {
    check_shown::<Cli>(5);
}

#[test]
fn every_command_named_in_prose_is_one() {
    check_named::<Cli>();
}
