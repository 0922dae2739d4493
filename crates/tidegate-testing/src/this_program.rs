//! A test that starts another test of its own program, as a process of its own.

use std::ffi::OsString;
use std::process::Command;

/// Returns the command that runs one ignored test of this test program alone: `test` of the module
/// `module_path!()`. `wrapper` is a command to run it under, or nothing.
///
/// # Panics
///
/// Panics if the program has no ignored test of that name. The standard harness would run no test then, and
/// report success.
#[must_use]
pub fn test_command(module: &str, test: &str, wrapper: &[&str]) -> Command {
    // The harness names a test without the program.
    let name = match module.split_once("::") {
        Some((_, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    };
    let program = std::env::current_exe().expect("a test is a program");
    let arguments = ["--exact", &name, "--ignored"];
    let listed = Command::new(&program).args(arguments).args(["--list", "--format", "terse"]).output();
    let listed = listed.expect("this program runs once more").stdout;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    assert_eq!(listed.trim_end(), format!("{name}: test"), "this program has no ignored test {name}");
    let mut words: Vec<OsString> = wrapper.iter().map(OsString::from).collect();
    words.push(program.into_os_string());
    let mut command = Command::new(words.remove(0));
    command.args(words).args(arguments).args(["--nocapture", "--test-threads=1"]);
    command
}
