#!/usr/bin/env python3
"""Runs the tests of the workspace with cargo-nextest: each test in a process of its own.

  scripts/run-tests.py                  builds all tests, and runs them once
  scripts/run-tests.py --build          only builds them
  scripts/run-tests.py FILTER…          builds and runs the tests of some packages: `control`, or
                                        `tidegate/attacks::` for the tests whose name contains a text
  scripts/run-tests.py --lacks FILE     fails on a skipped test, unless FILE names what the machine lacks
  scripts/run-tests.py --in-lab         runs the tests of the kernel's parts in the lab's kernel, without skips
  scripts/run-tests.py --stress N       runs each test with sockets or processes N times, beside other load
  scripts/run-tests.py --properties N   runs each property test N times, on new random cases each time

A test that fails is run again once, alone, after all others. If it passes then, it is reported as flaky, with
the output of its failure; more than three flaky tests fail the run. Tests that scripts/never-retried names,
property tests, and tests that hang get no second chance.

A test that cannot run on this machine prints a line `skipped: …` (the crate tidegate-testing), and counts as
skipped. As many tests as the sources have must be in the programs, and every test of the programs must run:
so a test that no longer runs is noticed.

A test belongs to --stress if its source file, or a module that the file uses, names a socket, a process or a
service (`MARKS`). These tests run beside as many busy processes as there are processors, and one that keeps
the disk busy. Tests run in rounds: first all of them once, then all of them again. Tests that would need more
than an equal part of --minutes run in fewer rounds, and the summary names them. --properties runs in rounds
as well, without other load.

Property tests run on the same cases each time, those of `SEED`, so that what fails is due to a change. Only
--properties draws new ones, and so does `cargo test`. Each run begins with the cases that once failed.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CARGO = os.environ.get("CARGO", "cargo")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
JUNIT = os.path.join(TARGET, "nextest", "default", "junit.xml")
NEVER_RETRIED = os.path.join(ROOT, "scripts", "never-retried")
SETTINGS = os.path.join(ROOT, ".config", "nextest.toml")
# A test that the settings name.
NAMED = re.compile(r"\btest\(=([^)]*)\)")
# What cargo builds and nextest runs. Benches and examples are compiled by the lints.
KINDS = ("--lib", "--bins", "--tests")
# The programs with tests of what only some kernels have: throttles of packets, cgroups, BPF.
KERNEL_PROGRAMS = ("tidegate-host",)
# More flaky tests than these fail a run.
MOST_FLAKY = 3
# If more tests than these fail, something is broken: none of them is run again.
MOST_RETRIED = 10
# Names in a source file that opens sockets or starts processes.
MARKS = re.compile(
    r"\b(?:Tcp|Unix)(?:Listener|Stream)\b|\bUnixDatagram\b|\bUdpSocket\b|\bsocketpair\b|\bCommand::new\b"
    r"|\btokio::net\b|\bService::start\b|\btidegate_testing::(?:nbd|s3|vhost)\b|\btest_command\b"
    r"|\bLoopDevice\b|\bin_own_network\b|\bhas_namespaces\b"
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
SKIPPED = re.compile(r"^skipped: (.*)", re.MULTILINE)
LACK = re.compile(r"this machine lacks (.*?) \(")
PROGRESS = re.compile(r"^\s*(?:PASS|FAIL|TIMEOUT|ABORT|SIG\w+|LEAK)\b.*?\(\s*(\d+)/(\d+)\)")
SLOW = re.compile(r"^\s*SLOW\b")
# A test in the source, and a block of property tests with the names in it.
TEST = re.compile(r"^\s*#\[(?:tokio::)?test(?:\([^)]*\))?\]", re.MULTILINE)
PROPERTIES = re.compile(r"^( *)proptest! \{\n(.*?)^\1\}$", re.MULTILINE | re.DOTALL)
PROPERTY = re.compile(r"^ *fn (\w+)\(", re.MULTILINE)
# The variable by which proptest draws its cases, and its value.
SEED = {"PROPTEST_RNG_SEED": "1"}


@dataclasses.dataclass(frozen=True)
class Test:
    """A test, by its name and its program: a package's unit tests, or `PACKAGE::integration`."""

    program: str
    name: str

    def __str__(self):
        return f"{self.program} {self.name}"


@dataclasses.dataclass
class Program:
    """A test program, as nextest lists it."""

    identifier: str
    package: str
    path: str
    folder: str
    kind: str
    tests: list
    ignored: int


@dataclasses.dataclass
class Outcome:
    """The end of one test."""

    test: Test
    seconds: float
    output: str
    failure: str = ""

    @property
    def hung(self):
        return "timeout" in self.failure

    @property
    def lack(self):
        found = SKIPPED.search(self.output)
        return found.group(1) if found and not self.failure else None


def nextest(*arguments, **options):
    program = subprocess.run(
        [os.path.join(ROOT, "scripts", "cargo-tool"), "cargo-nextest"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    environment = {
        **os.environ,
        **SEED,
        # A summary has room for a message, and none for a backtrace.
        "RUST_BACKTRACE": "0",
        "CARGO_TERM_COLOR": "never",
    }
    return subprocess.Popen(
        [program, "nextest", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def packages():
    """Returns the names of the workspace's packages."""
    metadata = subprocess.run(
        [CARGO, "metadata", "--locked", "--no-deps", "--format-version", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    return [package["name"] for package in json.loads(metadata.stdout)["packages"]]


def selection(filters):
    """Returns cargo's options for the packages of the filters, and nextest's for their tests."""
    if not filters:
        return ["--workspace"], []
    known, chosen, expressions = packages(), [], []
    for text in filters:
        package, _, part = text.partition("/")
        names = [name for name in (package, f"tidegate-{package}") if name in known]
        if not names:
            sys.exit(f"run-tests: there is no package {package}: write one of {', '.join(known)}")
        chosen += ["--package", names[0]]
        expressions.append(f"package(={names[0]})" + (f" & test({part})" if part else ""))
    return chosen, ["-E", " | ".join(f"({expression})" for expression in expressions)]


def build(chosen):
    """Compiles the tests. Returns the programs."""
    process = nextest("list", "--locked", *chosen, *KINDS, "--message-format", "json")
    runners.add(process)
    text, _ = process.communicate()
    runners.discard(process)
    if process.returncode != 0:
        sys.exit(process.returncode)
    # Else a test's write may wait for gigabytes that the compiler has written.
    os.sync()
    programs = []
    for identifier, suite in json.loads(text)["rust-suites"].items():
        cases = suite["testcases"]
        programs.append(
            Program(
                identifier,
                suite["package-name"],
                suite["binary-path"],
                suite["cwd"],
                suite["kind"],
                [name for name, case in cases.items() if not case["ignored"]],
                sum(case["ignored"] for case in cases.values()),
            )
        )
    return programs


def rust_files(folder):
    return [
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(".rs")
    ]


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def lost_tests(programs):
    """Returns a complaint for each package whose sources have other tests than its programs.

    A module that no file declares is not compiled, and so its tests do not run.
    """
    listed, folders = collections.Counter(), {}
    for program in programs:
        listed[program.package] += len(program.tests) + program.ignored
        folders[program.package] = program.folder
    complaints = []
    for package, folder in folders.items():
        files = [path for part in ("src", "tests") for path in rust_files(os.path.join(folder, part))]
        written = sum(len(TEST.findall(read(path))) for path in files)
        if written != listed[package]:
            complaints.append(f"{package} has {written} tests in its sources, and its programs {listed[package]}")
    return complaints


def outcomes():
    """Returns the outcomes of nextest's last run."""
    found = []
    for suite in xml.etree.ElementTree.parse(JUNIT).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            failure = case.find("failure")
            if failure is None:
                failure = case.find("error")
            output = "".join(
                element.text or ""
                for element in case
                if element.tag in ("system-out", "system-err")
            )
            kind = "" if failure is None else failure.get("type", "failed")
            test = Test(suite.get("name"), case.get("name"))
            found.append(Outcome(test, float(case.get("time", 0)), output, kind))
    return found


def run_once(chosen, *arguments, show=True):
    """Runs tests by nextest, with a line of progress now and then. Returns their outcomes."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(JUNIT)
    process = nextest(
        "run",
        "--profile",
        "default",
        "--locked",
        *chosen,
        *KINDS,
        "--no-fail-fast",
        "--status-level",
        "pass",
        "--final-status-level",
        "none",
        "--show-progress",
        "counter",
        "--failure-output",
        "never",
        *arguments,
        stderr=subprocess.STDOUT,
    )
    runners.add(process)
    began, shown, lines = time.monotonic(), 0, collections.deque(maxlen=20)
    for line in process.stdout:
        lines.append(line)
        progress = PROGRESS.match(line)
        if show and SLOW.match(line):
            print(line.rstrip(), flush=True)
        if show and progress:
            done, total = (int(number) for number in progress.groups())
            if done == total or done >= shown + max(total // 20, 1):
                shown = done
                print(f"[{done}/{total}] {time.monotonic() - began:.0f} s", flush=True)
    process.wait()
    runners.discard(process)
    if not os.path.exists(JUNIT):
        sys.exit("".join(lines) or "nextest ran nothing")
    return outcomes()


def never_retried():
    """Returns the patterns of scripts/never-retried: a program and a test's name."""
    lines = [line.split("#")[0].split() for line in read(NEVER_RETRIED).splitlines()]
    return [tuple(words) for words in lines if words]


def properties_of(program):
    """Returns the names of a program's property tests."""
    properties = set()
    for part in ("src", "tests"):
        for path in rust_files(os.path.join(program.folder, part)):
            for _, block in PROPERTIES.findall(read(path)):
                properties.update(PROPERTY.findall(block))
    return [name for name in program.tests if name.rpartition("::")[2] in properties]


def matches(test, program, name):
    return fnmatch.fnmatchcase(test.program, program) and fnmatch.fnmatchcase(test.name, name)


def may_be_retried(outcome, programs, patterns):
    program = next(program for program in programs if program.identifier == outcome.test.program)
    named = any(matches(outcome.test, *pattern) for pattern in patterns)
    return not (outcome.hung or named or outcome.test.name in properties_of(program))


def retried(failed, programs, chosen):
    """Runs failed tests again, each alone. Returns those that pass now, and those that do not."""
    patterns = never_retried()
    flaky, broken = [], []
    for outcome in failed:
        again = [outcome]
        if len(failed) <= MOST_RETRIED and may_be_retried(outcome, programs, patterns):
            print(f"failed, and runs again alone: {outcome.test}", flush=True)
            expression = f"binary_id(={outcome.test.program}) & test(={outcome.test.name})"
            again = run_once(chosen, "-E", expression, "--test-threads", "1", show=False)
        passes = bool(again) and not any(run.failure or run.lack for run in again)
        (flaky if passes else broken).append(outcome)
    return flaky, broken


def documentation(chosen):
    """Runs the examples in the documentation."""
    process = subprocess.Popen(
        [CARGO, "test", "--locked", *chosen, "--doc", "--quiet"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    runners.add(process)
    printed, _ = process.communicate()
    runners.discard(process)
    return process.returncode == 0, printed


def complain(name, text):
    print(f"FAILED {name}")
    for line in [line for line in text.splitlines() if line.strip() and "RUST_BACKTRACE" not in line][-8:]:
        print(f"  {line[:200]}")


def note(variable, line):
    """Leaves a line for the summary of scripts/steps.sh."""
    if variable in os.environ:
        with open(os.environ[variable], "a") as file:
            file.write(f"{line}\n")


def allowed_lacks(path):
    lines = [line.split("#")[0].strip() for line in read(path).splitlines()]
    return {line for line in lines if line}


def once(programs, chosen, expressions, allowed, options):
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        examples = None if options.filters else pool.submit(documentation, chosen)
        ended = run_once(chosen, *expressions, "--test-threads", str(options.jobs))
        documented, printed = examples.result() if examples else (True, "")
    problems = [] if options.filters else lost_tests(programs)
    if not ended:
        problems.append(f"{' '.join(options.filters)}: there is no such test")
    expected = {Test(program.identifier, name) for program in programs for name in program.tests}
    ran = {outcome.test for outcome in ended}
    if not options.filters:
        problems += [f"{test} did not run" for test in sorted(expected - ran, key=str)]
        problems += [
            f"scripts/never-retried names `{program} {name}`, and no test is called so"
            for program, name in never_retried()
            if not any(matches(test, program, name) for test in expected)
        ]
        problems += [
            f".config/nextest.toml names `{name}`, and no test is called so"
            for name in NAMED.findall(read(SETTINGS))
            if name not in {test.name for test in expected}
        ]
    failed = [outcome for outcome in ended if outcome.failure]
    flaky, broken = retried(failed, programs, chosen)
    skipped = [outcome for outcome in ended if outcome.lack]
    print(f"\n{time.monotonic() - began:.0f} s; the slowest:")
    for outcome in sorted(ended, key=lambda outcome: -outcome.seconds)[: 60 if options.times else 8]:
        print(f"  {outcome.seconds:6.1f} s  {outcome.test}")
    unexpected = show_skips(skipped, allowed)
    for outcome in flaky:
        complain(f"once, flaky: {outcome.test}", outcome.output)
    for outcome in broken:
        complain(f"{outcome.test}: {outcome.failure}", outcome.output)
    if not documented:
        complain("examples in the documentation", printed)
    for problem in problems:
        print(f"FAILED {problem}")
    for outcome in unexpected:
        print(f"FAILED {outcome.test} was skipped, and {options.lacks} does not allow it: {outcome.lack}")
    passed = len(ended) - len(failed) - len(skipped)
    print(
        f"tests: {passed} passed, {len(broken) + (not documented) + len(problems) + len(unexpected)} failed, "
        f"{len(flaky)} flaky, {len(skipped)} skipped"
    )
    if len(flaky) > MOST_FLAKY:
        print(f"FAILED {len(flaky)} flaky tests are more than {MOST_FLAKY}")
    for outcome in flaky:
        note("STEP_FLAKY", outcome.test)
    return not (broken or problems or unexpected or not documented or len(flaky) > MOST_FLAKY)


def in_lab(programs):
    """Runs the tests of the kernel's parts in the lab's virtual machine."""
    words = [
        word
        for program in programs
        if program.identifier in KERNEL_PROGRAMS
        for word in (program.folder, program.path)
    ]
    assert len(words) == 2 * len(KERNEL_PROGRAMS), words
    process = subprocess.Popen([os.path.join(ROOT, "lab", "run"), "lab/kernel-tests.sh", *words], cwd=ROOT)
    runners.add(process)
    status = process.wait()
    runners.discard(process)
    return status == 0


def show_skips(skipped, allowed):
    """Prints the tests that did not run, with the reasons. Returns those that the list does not allow."""
    lacks = collections.Counter()
    unexpected = []
    for outcome in sorted(skipped, key=lambda outcome: outcome.lack):
        found = LACK.search(outcome.lack)
        lack = found.group(1) if found else outcome.lack
        lacks[lack] += 1
        if allowed is not None and lack not in allowed:
            unexpected.append(outcome)
        else:
            print(f"skipped {outcome.test}: {outcome.lack}")
    for lack, count in lacks.items():
        note("STEP_SKIPS", f"{count} tests for lack of {lack}")
    return unexpected


# The process groups and runs of nextest under way: a signal that ends this program ends them too.
groups = set()
runners = set()


def stop(number, _frame):
    # nextest ends its tests, which are in groups of their own. Here `wait` could wait for itself: the signal
    # may have come in the midst of one.
    for process in list(runners):
        process.terminate()
    deadline = time.monotonic() + 15
    for process in list(runners):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(process.pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.1)
    for leader in list(groups):
        kill_group(leader)
    os._exit(128 + number)


def kill_group(leader):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def run(program, *arguments, variables=SEED, limit=300):
    """Runs a test program to its end, in a process group of its own, which is gone afterwards."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            [program.path, *arguments],
            cwd=program.folder,
            env={**os.environ, "RUST_BACKTRACE": "0", "CARGO_MANIFEST_DIR": program.folder, **variables},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        groups.add(process.pid)
        timer = threading.Timer(limit, kill_group, (process.pid,))
        timer.start()
        process.wait()
        timer.cancel()
        seconds = time.monotonic() - began
        kill_group(process.pid)
        groups.discard(process.pid)
        file.seek(0)
        output = file.read().decode(errors="replace")
    if seconds >= limit:
        output += f"\nended at the limit of {limit} s\n"
    return process.returncode, output, seconds


def module_of(path, folder):
    """The module path of a source file below the folder of the program's root."""
    parts = os.path.relpath(path, folder)[: -len(".rs")].split(os.sep)
    if parts[-1] in ("mod", "lib", "main"):
        parts.pop()
    return "::".join(parts)


def marked_tests_of(program):
    """Returns the names of a program's tests that use a socket or a process."""
    folder = os.path.join(program.folder, "src" if program.kind != "test" else "tests/integration")
    if not os.path.isdir(folder):
        folder = os.path.join(program.folder, "tests")
    texts = {module_of(path, folder): read(path) for path in rust_files(folder)}
    marked = {module for module, text in texts.items() if module and MARKS.search(text)}
    if program.kind == "test":
        # A module uses a socket if one of the modules that it names does.
        uses = {
            module: {used for used in texts if used and re.search(rf"\b(?:crate|super)::{used}\b", text)}
            for module, text in texts.items()
        }
        for _ in texts:
            marked |= {module for module, used in uses.items() if module and used & marked}
    return [name for name in program.tests if any(name.startswith(module + "::") for module in marked)]


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
    complaint: str = ""


def repeat(test, variables):
    status, output, seconds = run(test.program, "--exact", test.name, variables=variables)
    test.runs += 1
    test.seconds = max(test.seconds, seconds)
    if status != 0:
        test.failed += 1
        test.complaint = test.complaint or output


def repeatedly(programs, select, times, options, variables=SEED):
    """Runs rounds of the selected tests until each ran the asked number of times, or the time is over."""
    tests = [Repeated(program, name) for program in programs for name in select(program)]
    print(
        f"{len(tests)} tests in {len({test.program.identifier for test in tests})} programs, {times} times each",
        flush=True,
    )
    failed = []
    began, deadline = time.monotonic(), time.monotonic() + 60 * options.minutes
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for turn in range(times):
            # A round begins with the tests that took the longest in the round before.
            tests.sort(key=lambda test: -test.seconds)
            part = 60 * options.minutes * options.jobs / times / max(len(tests), 1)
            waiting = [
                pool.submit(repeat, test, variables)
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
        complain(
            f"{test.program.identifier} {test.name}: {test.failed} of {test.runs} times", test.complaint
        )
    for test in tests:
        if test.runs < times:
            print(f"only {test.runs} times: {test.program.identifier} {test.name} ({test.seconds:.0f} s)")
    print(f"{len(tests) - len(failed)} passed, {len(failed)} failed")
    return not failed and bool(tests)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", action="store_true", help="compile only")
    parser.add_argument("--times", action="store_true", help="print more of the tests that take the longest")
    parser.add_argument(
        "--lacks",
        metavar="FILE",
        default=os.environ.get("TIDEGATE_LACKS"),
        help="what this machine may lack, a line each (default: the variable TIDEGATE_LACKS)",
    )
    parser.add_argument("--in-lab", action="store_true", help="run the kernel's tests in the lab's kernel")
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
    # Most tests of sockets and processes wait: five for each processor keep it busy.
    parser.add_argument(
        "--jobs", type=int, default=5 * os.cpu_count(), help="tests at once (default: %(default)s)"
    )
    parser.add_argument("filters", nargs="*", metavar="FILTER")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    if options.in_lab and options.filters:
        parser.error("--in-lab takes no filter")
    allowed = allowed_lacks(options.lacks) if options.lacks else None
    chosen, expressions = selection(options.filters)
    programs = build(chosen)
    if options.build:
        return 0
    if options.in_lab:
        return 0 if in_lab(programs) else 1
    if options.stress:
        with busy(os.cpu_count()):
            return 0 if repeatedly(programs, marked_tests_of, options.stress, options) else 1
    if options.properties:
        return 0 if repeatedly(programs, properties_of, options.properties, options, variables={}) else 1
    return 0 if once(programs, chosen, expressions, allowed, options) else 1


if __name__ == "__main__":
    sys.exit(main())
