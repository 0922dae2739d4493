#!/usr/bin/env python3
"""Runs the tests of the workspace, several test programs side by side, with their progress and times.

  scripts/run-tests.py                  builds all tests, and runs them once
  scripts/run-tests.py --build          only builds them
  scripts/run-tests.py FILTER…          runs the programs whose name contains a filter
  scripts/run-tests.py --times          also prints the tests that take the longest
  scripts/run-tests.py --stress N       runs each test with sockets or processes N times, beside other load
  scripts/run-tests.py --properties N   runs each property test N times, on new random cases each time

Tests, examples and benches are compiled in one go. A bench runs each of its cases once, unmeasured.
Documentation tests run beside the programs.

A test belongs to --stress if its source file names a socket, a process or a service (`MARKS`). The helper
modules that its test program includes count, too. Each of these tests runs in a process of its own, beside as
many busy processes as there are processors, and one that keeps the disk busy. Tests run in rounds: first all
of them once, then all of them again. Tests that would need more than an equal part of --minutes run in fewer
rounds, and the summary names them. --properties runs in rounds as well, without other load.

Property tests run on the same cases each time, those of `SEED`, so that what fails is due to a change. Only
--properties draws new ones, and so does `cargo test`. Each run begins with the cases that once failed.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CARGO = os.environ.get("CARGO", "cargo")
# The programs that take longest start first, so that none of them is left over at the end.
LONGEST_FIRST = [
    "tidegate-control knee",
    "tidegate-device fc_raid5",
    "tidegate-sim auto_set_point",
    "tidegate-sim behaviour",
    "tidegate attacks",
    "tidegate-host",
    "tidegate-agent agent",
    "tidegate-control",
    "tidegate transfer",
    "tidegate-experiments",
    "tidegate-transfer",
    "tidegate identify",
    "tidegate serve",
]
# Names in a source file that opens sockets or starts processes.
MARKS = re.compile(
    r"\b(?:Tcp|Unix)(?:Listener|Stream)\b|\bUnixDatagram\b|\bUdpSocket\b|\bsocketpair\b|\bCommand::new\b"
    r"|\btokio::net\b|\bService::start\b"
)
# Keeps the disk of the tests' files busy: writes a gibibyte without a name, and flushes it, again and again.
WRITER = """
import os, tempfile
while True:
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(1024):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())
"""
# The options of a test program that times its tests.
TIMES = ("-Zunstable-options", "--report-time")
PASSED = re.compile(r"^test result: \w+\. (\d+) passed;", re.MULTILINE)
TEST_OUTPUT = re.compile(
    r"^---- (.+?) (?:stdout )?----\n(.*?)(?=^---- |^failures:|^successes:|\Z)", re.MULTILINE | re.DOTALL
)
TIMED = re.compile(r"^test (\S+) (?:- should panic )?\.\.\. \w+ <([\d.]+)s>", re.MULTILINE)
SKIPPED = re.compile(r"^skipped: (.*)", re.MULTILINE)
# A test program that runs for longer hangs.
LIMIT_S = 900
# The source of a block of property tests, and the names in it.
PROPERTIES = re.compile(r"^( *)proptest! \{\n(.*?)^\1\}$", re.MULTILINE | re.DOTALL)
PROPERTY = re.compile(r"^ *fn (\w+)\(", re.MULTILINE)
# The variable by which proptest draws its cases, and its value.
SEED = {"PROPTEST_RNG_SEED": "1"}


@dataclasses.dataclass
class Program:
    name: str
    command: list
    folder: str
    source: str = ""
    passed: int = 0
    failed: int = 0
    skipped: list = dataclasses.field(default_factory=list)
    options: tuple = ()
    variables: dict = dataclasses.field(default_factory=lambda: SEED)
    seconds: float = 0.0
    processor_s: float = 0.0
    output: str = ""
    ok: bool = True


def build():
    """Compiles tests, examples and benches. Returns the programs with tests."""
    process = subprocess.Popen(
        [
            CARGO,
            "test",
            "--locked",
            "--workspace",
            "--all-targets",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    programs = []
    for line in process.stdout:
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        target, kind = message["target"], message["target"]["kind"][0]
        if not message["profile"]["test"] or kind == "example":
            continue
        folder = os.path.dirname(message["manifest_path"])
        package = os.path.basename(folder)
        name = {"lib": package, "bin": package, "bench": f"{package} bench {target['name']}"}.get(
            kind, f"{package} {target['name']}"
        )
        # A skipped test succeeds: only its output says that it did not run.
        options = () if kind == "bench" else ("--show-output",)
        programs.append(Program(name, [message["executable"]], folder, target["src_path"], options=options))
    if process.wait() != 0:
        sys.exit(process.returncode)
    # Else a test's write may wait for gigabytes that the compiler has written.
    os.sync()
    return programs


def documentation():
    return Program("documentation", [CARGO, "test", "--locked", "--workspace", "--doc", "--quiet"], ROOT)


def environment(program):
    """Returns the environment of a test program, as cargo sets it.

    Cargo itself gets nothing more: build scripts run again when these variables change.
    """
    if program.command[0] == CARGO:
        return None
    # The option that times tests is not stable yet.
    unstable = {"RUSTC_BOOTSTRAP": "1"} if TIMES[0] in program.options else {}
    # A summary has room for a message, and none for a backtrace.
    return {
        **os.environ,
        "RUST_BACKTRACE": "0",
        "CARGO_MANIFEST_DIR": program.folder,
        "CARGO": CARGO,
        **unstable,
        **program.variables,
    }


# The process groups under way: a signal that ends this program ends them too.
groups = set()


def stop(number, _frame):
    for leader in list(groups):
        kill_group(leader)
    os._exit(128 + number)


def kill_group(leader):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def run(program, *arguments, limit=LIMIT_S):
    """Runs a program to its end, in a process group of its own, which is gone afterwards."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            [*program.command, *arguments],
            cwd=program.folder,
            env=environment(program),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        groups.add(process.pid)
        timer = threading.Timer(limit, kill_group, (process.pid,))
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        seconds = time.monotonic() - began
        kill_group(process.pid)
        groups.discard(process.pid)
        file.seek(0)
        output = file.read().decode(errors="replace")
    if seconds >= limit:
        output += f"\nended at the limit of {limit} s\n"
    return process.returncode, output, seconds, usage.ru_utime + usage.ru_stime


class Progress:
    """One line for each program that ends, and the names of those that run."""

    def __init__(self, total):
        self.total, self.done, self.running, self.lock = total, 0, [], threading.Lock()

    def begin(self, name):
        with self.lock:
            self.running.append(name)

    def end(self, name, text):
        with self.lock:
            self.running.remove(name)
            self.done += 1
            running = ", ".join(self.running)
            print(
                f"[{self.done}/{self.total}] {text}" + (f"; runs: {running}" if running else ""), flush=True
            )


def perform(program, progress):
    progress.begin(program.name)
    status, program.output, program.seconds, program.processor_s = run(program, *program.options)
    program.ok = status == 0
    succeeded, failed = outputs(program.output)
    program.skipped = [f"{name}: {why}" for name, text in succeeded for why in SKIPPED.findall(text)[:1]]
    program.passed = sum(int(found) for found in PASSED.findall(program.output)) - len(program.skipped)
    program.failed = 0 if program.ok else max(len(failed), 1)
    outcome = f"{program.passed} passed" + (f", {len(program.skipped)} skipped" if program.skipped else "")
    if not program.ok:
        outcome += f", {program.failed} FAILED, status {status}"
    progress.end(program.name, f"{program.name}: {outcome}, {program.seconds:.1f} s")


def outputs(text):
    """Returns the outputs of the tests that succeeded, and of those that failed, with their names."""
    succeeded, _, failed = text.partition("\nfailures:\n")
    return TEST_OUTPUT.findall(succeeded), TEST_OUTPUT.findall(failed)


def complain(name, lines):
    print(f"FAILED {name}")
    for line in [line for line in lines if line.strip() and "RUST_BACKTRACE" not in line][-8:]:
        print(f"  {line[:200]}")


def note_skipped(skipped):
    """Prints the tests that did not run, and reports their number to scripts/steps.sh."""
    for line in skipped:
        print(f"skipped {line}")
    if skipped and "STEP_SKIPS" in os.environ:
        with open(os.environ["STEP_SKIPS"], "a") as file:
            file.write(f"{len(skipped)} tests\n")


def once(programs, jobs):
    programs.sort(
        key=lambda program: (
            LONGEST_FIRST.index(program.name) if program.name in LONGEST_FIRST else len(LONGEST_FIRST)
        )
    )
    progress = Progress(len(programs))
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for ended in [pool.submit(perform, program, progress) for program in programs]:
            ended.result()
    seconds = time.monotonic() - began
    print(f"\n{seconds:.0f} s for {len(programs)} programs; the slowest:")
    for program in sorted(programs, key=lambda program: -program.seconds)[:8]:
        print(f"  {program.seconds:6.1f} s, {program.processor_s:6.1f} s of a processor  {program.name}")
    times = [
        (float(seconds), program.name, name)
        for program in programs
        for name, seconds in TIMED.findall(program.output)
    ]
    for took, program, name in sorted(times, reverse=True)[:60]:
        print(f"  {took:6.1f} s  {program}: {name}")
    for program in programs:
        if program.ok:
            continue
        _, found = outputs(program.output)
        for name, text in found:
            complain(f"{program.name}: {name}", text.splitlines())
        if not found:
            complain(program.name, program.output.splitlines())
    skipped = [f"{program.name}: {why}" for program in programs for why in program.skipped]
    note_skipped(skipped)
    passed, failed = (sum(getattr(program, field) for program in programs) for field in ("passed", "failed"))
    print(f"tests: {passed} passed, {failed} failed, {len(skipped)} skipped")
    return all(program.ok for program in programs)


def marked(path):
    with open(path, errors="replace") as file:
        return MARKS.search(file.read()) is not None


def rust_files(folder):
    return [
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(".rs")
    ]


def module_of(path, source):
    """The module path of a source file below the folder of the crate's root `source`."""
    parts = os.path.relpath(path, os.path.dirname(source))[: -len(".rs")].split(os.sep)
    if parts[-1] in ("mod", "lib", "main"):
        parts.pop()
    return "::".join(parts)


def names_of(program):
    """Returns the names of a program's tests."""
    status, output, _, _ = run(program, "--list", "--format", "terse")
    if status != 0:
        sys.exit(f"{program.name}: {output}")
    return [line[: -len(": test")] for line in output.splitlines() if line.endswith(": test")]


def properties_of(program):
    """Returns the names of a program's property tests."""
    properties = set()
    for path in rust_files(program.folder):
        with open(path) as file:
            for _, block in PROPERTIES.findall(file.read()):
                properties.update(PROPERTY.findall(block))
    return [name for name in names_of(program) if name.rpartition("::")[2] in properties]


def tests_of(program):
    """Returns the names of a program's tests that use a socket or a process."""
    names = names_of(program)
    if os.path.basename(os.path.dirname(program.source)) == "src":
        modules = [
            module_of(path, program.source)
            for path in rust_files(os.path.dirname(program.source))
            if marked(path)
        ]
        return [name for name in names if any(name.startswith(module + "::") for module in modules if module)]
    # A test program: its file, and the modules that it includes.
    with open(program.source) as file:
        included = re.findall(r"^\s*(?:pub(?:\(crate\))? )?mod (\w+);", file.read(), re.MULTILINE)
    folder = os.path.dirname(program.source)
    files = [program.source]
    for module in included:
        files += [os.path.join(folder, module + ".rs"), *rust_files(os.path.join(folder, module))]
    return names if any(marked(path) for path in files if os.path.exists(path)) else []


@contextlib.contextmanager
def busy(processes):
    load = [
        subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        for program in [*["while True: pass"] * processes, WRITER]
    ]
    groups.update(process.pid for process in load)
    try:
        yield
    finally:
        for process in load:
            process.kill()
            process.wait()


@dataclasses.dataclass
class Repeated:
    program: Program
    name: str
    runs: int = 0
    failed: int = 0
    seconds: float = 0.0
    complaint: list = dataclasses.field(default_factory=list)


def repeat(test):
    status, output, seconds, _ = run(test.program, "--exact", test.name, limit=300)
    test.runs += 1
    test.seconds = max(test.seconds, seconds)
    if status != 0:
        test.failed += 1
        if not test.complaint:
            _, failed = outputs(output)
            test.complaint = (failed[0][1] if failed else output).splitlines()


def repeatedly(programs, select, times, options):
    """Runs rounds of the selected tests until each ran the asked number of times, or the time is over."""
    tests = [
        Repeated(program, name) for program in programs if program.options != () for name in select(program)
    ]
    print(
        f"{len(tests)} tests in {len({test.program.name for test in tests})} programs, {times} times each",
        flush=True,
    )
    began, deadline = time.monotonic(), time.monotonic() + 60 * options.minutes
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for turn in range(times):
            # A round begins with the tests that took the longest in the round before.
            tests.sort(key=lambda test: -test.seconds)
            part = 60 * options.minutes * options.jobs / times / max(len(tests), 1)
            waiting = [
                pool.submit(repeat, test)
                for test in tests
                if turn * test.seconds <= (turn + 1) * max(part, 1)
            ]
            for ended in waiting:
                ended.result()
            failed = [test for test in tests if test.failed]
            print(
                f"[{turn + 1}/{times}] {len(waiting)} tests, {time.monotonic() - began:.0f} s, "
                f"{len(failed)} of them failed so far",
                flush=True,
            )
            if time.monotonic() > deadline:
                break
    for test in failed:
        complain(f"{test.program.name}: {test.name}: {test.failed} of {test.runs} times", test.complaint)
    for test in tests:
        if test.runs < times:
            print(f"only {test.runs} times: {test.program.name}: {test.name} ({test.seconds:.0f} s)")
    print(f"{len(tests) - len(failed)} passed, {len(failed)} failed")
    return not failed and bool(tests)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", action="store_true", help="compile only")
    parser.add_argument("--times", action="store_true", help="also print the tests that take the longest")
    parser.add_argument(
        "--stress", type=int, default=0, metavar="N", help="run tests with sockets and processes N times"
    )
    parser.add_argument(
        "--properties", type=int, default=0, metavar="N", help="run property tests N times on new cases"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60,
        help="the time for --stress and --properties, in minutes (default: %(default)s)",
    )
    # Most tests of sockets and processes wait: two programs for each processor keep it busy.
    parser.add_argument(
        "--jobs", type=int, default=2 * os.cpu_count(), help="programs at once (default: %(default)s)"
    )
    parser.add_argument("filters", nargs="*", metavar="FILTER")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    programs = build()
    if options.build:
        return 0
    if not (options.stress or options.properties):
        programs.append(documentation())
    if options.filters:
        programs = [program for program in programs if any(part in program.name for part in options.filters)]
    if options.times:
        for program in programs:
            if program.options:
                program.options += TIMES
    if options.stress:
        with busy(os.cpu_count()):
            return 0 if repeatedly(programs, tests_of, options.stress, options) else 1
    if options.properties:
        for program in programs:
            program.variables = {}
        return 0 if repeatedly(programs, properties_of, options.properties, options) else 1
    return 0 if once(programs, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
