"""What the drivers on the outside share: a run in the lab, and what a result says about where it comes from."""

import datetime
import json
import os
import platform
import subprocess
import sys

LAB = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def described():
    """The program, the emulator and the machine. Asked when an experiment begins: while it runs, the tree may change."""
    def output(*command):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    commit = output("git", "-C", LAB, "rev-parse", "HEAD")
    changed = output("git", "-C", LAB, "status", "--porcelain", "--untracked-files=no") != ""
    return {
        "commit": commit + ("+changes" if changed else ""),
        "machine": f"virtual clock: {output('qemu-system-x86_64', '--version').splitlines()[0]}",
        "host": f"{platform.machine()}, {os.cpu_count()} processors",
    }


def run(script, *arguments, out, binary=None, memory=None, kernel=None, limit=3600):
    """Runs a script of `experiments/` in a machine of its own: exit status, what it printed, what went wrong."""
    command = [os.path.join(LAB, "run"), "--out", out, "--limit", str(limit)]
    if binary:
        command += ["--binary", binary]
    if memory:
        command += ["--memory", memory]
    if kernel:
        command += ["--kernel", kernel]
    command += [os.path.join(LAB, "experiments", script), *map(str, arguments)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr


def leave(directory, name, document):
    """Writes the result, named after the day."""
    path = os.path.join(directory, f"{document['date']}-{name}.json")
    os.makedirs(directory, exist_ok=True)
    with open(path, "w") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    print(f"result: {path}", file=sys.stderr)


def today():
    return datetime.date.today().isoformat()
