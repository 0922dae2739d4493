//! The help of the program itself, with the commands in groups: clap has none.

use std::fmt::Write as _;

use clap::{Command, Subcommand};
use tidegate_program::wrap;

/// The commands by what people want to do. Each is in one group.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Set up", &["demo", "init", "check"]),
    ("Run", &["serve", "agent"]),
    ("Look", &["top", "status", "explain", "report", "journal", "replay"]),
    ("Change", &["set", "dry-run", "release", "config", "policy"]),
    ("Plan", &["sim", "rehearse", "identify", "admit", "load"]),
    ("Transfers", &["broker", "place", "transfer"]),
    ("Documents", &["manual", "help"]),
];

/// The text of the command that clap adds.
const HELP: &str = "Print this message or the help of a command";

/// The width of a line, and the column where texts begin.
const WIDTH: usize = 100;
const COLUMN: usize = 12;

/// Returns clap's template for the help of the program.
pub(crate) fn template<C: Subcommand>() -> String {
    let program = C::augment_subcommands(Command::new("tidegate"));
    let mut template = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, commands) in GROUPS {
        let _ = write!(template, "\n{group}:\n");
        for name in commands {
            let about = program.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| HELP.to_owned(), ToString::to_string);
            for (at, line) in wrap(&about, WIDTH - COLUMN).lines().enumerate() {
                let name = if at == 0 { *name } else { "" };
                let _ = writeln!(template, "  {name:<width$}{line}", width = COLUMN - 2);
            }
        }
    }
    template + "\nOptions:\n{options}{after-help}"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn each_command_is_in_one_group() {
        let program = Cli::command();
        let visible =
            program.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
        let expected: BTreeSet<_> = visible.chain(["help"]).collect();
        let grouped: Vec<_> = GROUPS.into_iter().flat_map(|(_, commands)| commands).copied().collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), expected);
        assert_eq!(grouped.len(), expected.len());
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("\nLook:\n  top       Watch running services"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= WIDTH), "{help}");
    }
}
