#!/usr/bin/env python3
"""Shows that scripts/run-tests.py notices failures: plants one of each kind in a package made for it.

A run over that package must name each failure for what it is, and end with 1. A run without them must end
with 0.
"""

import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

MANIFEST = """
[package]
name = "planted"
version = "0.1.0"
edition = "2024"

[workspace]
"""
# Hangs are noticed after two seconds instead of three minutes.
CONFIGURATION = """
[profile.default]
slow-timeout = { period = "1s", terminate-after = 2 }

[profile.default.junit]
path = "junit.xml"
store-success-output = true
store-failure-output = true
"""
SOUND = """
#[test]
fn passes() {}

#[test]
fn lacks_what_is_allowed() {
    println!("skipped: this machine lacks an allowed part (as planted)");
}
"""
PLANTED = {
    "always": 'panic!("planted")',
    "once": 'if std::fs::File::create_new("was-here").is_ok() { panic!("planted once") }',
    "once_but_judges_data": 'if std::fs::File::create_new("judged").is_ok() { panic!("planted data") }',
    "hangs": "std::thread::sleep(std::time::Duration::from_secs(60))",
    "aborts": "std::process::abort()",
    "lacks": 'println!("skipped: this machine lacks another part (as planted)")',
}
# What the run must say, line by line, of these and of a module that no file declares.
EXPECTED = [
    "FAILED planted always: test failure with exit code 101",
    "FAILED once, flaky: planted once",
    "FAILED planted once_but_judges_data: test failure with exit code 101",
    "FAILED planted hangs: test timeout",
    "FAILED planted aborts: test abort",
    "FAILED planted lacks was skipped, and ",
    "FAILED planted has 9 tests in its sources, and its programs 8",
    "tests: 1 passed, 6 failed, 1 flaky, 2 skipped",
]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def run(folder, *filters):
    """Runs the tests of the package. Returns the exit status and the printed text."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEP_")}
    # One folder for both builds, whatever the surroundings use.
    environment["CARGO_TARGET_DIR"] = os.path.join(folder, "target")
    done = subprocess.run(
        [os.path.join(folder, "scripts", "run-tests.py"), "--lacks", os.path.join(folder, "lacks"), *filters],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def main():
    problems = []
    nextest = subprocess.run(
        [os.path.join(ROOT, "scripts", "cargo-tool"), "cargo-nextest"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    os.environ["PATH"] = os.path.dirname(nextest) + os.pathsep + os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("run-tests.py", "cargo-tool"):
            os.makedirs(os.path.join(folder, "scripts"), exist_ok=True)
            shutil.copy(os.path.join(ROOT, "scripts", name), os.path.join(folder, "scripts", name))
        shutil.copy(os.path.join(ROOT, "rust-toolchain.toml"), folder)
        write(os.path.join(folder, "Cargo.toml"), MANIFEST)
        write(os.path.join(folder, ".config", "nextest.toml"), CONFIGURATION)
        write(os.path.join(folder, "lacks"), "an allowed part\n")
        write(os.path.join(folder, "scripts", "never-retried"), "")
        source = os.path.join(folder, "src", "lib.rs")
        write(source, SOUND)
        subprocess.run(["cargo", "generate-lockfile", "--quiet"], cwd=folder, check=True)
        status, printed = run(folder)
        if status != 0 or "tests: 1 passed, 0 failed, 0 flaky, 1 skipped" not in printed:
            problems.append(f"a sound package failed with {status}")
        status, printed = run(folder, "planted/mistyped")
        if status != 1 or "planted/mistyped: there is no such test" not in printed:
            problems.append(f"a filter that names no test ended with {status}")
        write(os.path.join(folder, "scripts", "never-retried"), "planted *judges_data\n")
        planted = "".join(f"\n#[test]\nfn {name}() {{ {body} }}\n" for name, body in PLANTED.items())
        write(source, SOUND + planted)
        write(os.path.join(folder, "src", "lost.rs"), "#[test]\nfn does_not_run() {}\n")
        status, again = run(folder)
        printed += again
        if status != 1:
            problems.append(f"planted failures: the run ended with {status}")
        problems += [f"not said: {line}" for line in EXPECTED if line not in again]
    if problems:
        print(printed)
    for problem in problems:
        print(problem)
    print(f"{len(EXPECTED) - len(problems)} of {len(EXPECTED)} planted failures are named")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
