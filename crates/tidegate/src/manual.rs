//! `tidegate manual`: manual pages, and completions for shells, from the definition of the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_complete::aot::generate_to;

use crate::failure::CommandFailure;

/// The shells that get completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

/// Write the manual pages, and completions for bash, fish and zsh, as makers of packages want them
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder for the files; made if it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes a page for the program and for each command of `program`, and a file for each shell.
pub(crate) fn run(args: &Args, program: Command) -> Result<(), CommandFailure> {
    Ok(write(&args.folder, program)?)
}

fn write(folder: &Path, program: Command) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut offered = visible(&program);
    for shell in SHELLS {
        generate_to(shell, &mut offered, "tidegate", folder)?;
    }
    clap_mangen::generate_to(program, folder)
}

/// Returns what shells offer of a command: without the commands that people do not call.
fn visible(command: &Command) -> Command {
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(visible);
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().map(str::to_owned).unwrap_or_default())
        .args(command.get_arguments().cloned())
        .subcommands(inner)
}

#[cfg(test)]
mod tests {
    use std::process;

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// The files of the manual.
    struct Manual(tempfile::TempDir);

    impl Manual {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), Cli::command()).unwrap();
            Self(folder)
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.0.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
        }

        /// Returns the words that bash offers after these.
        fn offered(&self, words: &[&str]) -> Vec<String> {
            let script = format!(
                "source {}; COMP_WORDS=({}); COMP_CWORD={}; _tidegate tidegate '{}' '{}'; \
                 printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                self.0.path().join("tidegate.bash").display(),
                words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
                words.len() - 1,
                words[words.len() - 1],
                words[words.len() - 2],
            );
            let output = process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
        }
    }

    /// Calls `check` with each command that people call, and its words.
    fn each(command: &Command, words: &[&str], check: &mut impl FnMut(&Command, &[&str])) {
        check(command, words);
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            each(inner, &[words, &[inner.get_name()]].concat(), check);
        }
    }

    #[test]
    fn every_command_has_a_page_and_every_option_is_in_it_and_in_each_shells_file() {
        let manual = Manual::new();
        let shells = ["tidegate.bash", "tidegate.fish", "_tidegate"].map(|name| manual.read(name));
        let mut commands = 0;
        each(&Cli::command(), &["tidegate"], &mut |command, words| {
            let page = manual.read(&format!("{}.1", words.join("-"))).replace("\\-", "-");
            assert!(page.contains("\n.SH NAME\n"), "{words:?}");
            for option in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let Some(long) = option.get_long() else { continue };
                assert!(page.contains(&format!("--{long}")), "{words:?}: --{long} is not in its page");
                let [bash, fish, zsh] = &shells;
                assert!(bash.contains(&format!("--{long}")), "{words:?}: --{long}, bash");
                assert!(fish.contains(&format!("-l {long}")), "{words:?}: --{long}, fish");
                assert!(zsh.contains(&format!("--{long}")), "{words:?}: --{long}, zsh");
            }
            commands += 1;
        });
        assert!(commands > 30, "only {commands} commands");
        let pages = fs::read_dir(manual.0.path()).unwrap().count() - shells.len();
        assert_eq!(pages, commands, "a hidden command has a page");
    }

    #[test]
    fn bash_offers_commands_and_options_and_nothing_hidden() {
        let manual = Manual::new();
        assert_eq!(manual.offered(&["tidegate", "jour"]), ["journal"]);
        assert_eq!(manual.offered(&["tidegate", "guar"]), [""]);
        let options = manual.offered(&["tidegate", "check", "--conf"]);
        assert_eq!(options, ["--config"]);
    }
}
