"""What the drivers on the outside share: a run in the lab, and what a result says about where it comes from."""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile

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


def judged(experiment, description, short, short_means):
    """A whole driver: runs guest.py of an experiment, has judge.py judge what it left, and gives the exit status."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help=short_means)
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--keep", metavar="DIR", help="keep the agent's logs there")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds (default: %(default)s)")
    parser.add_argument("agent", nargs="*", help="after --: more options for guest.py")
    options = parser.parse_args()
    about = described()
    with tempfile.TemporaryDirectory() as directory:
        out = options.keep or directory
        status, printed, complaint = run(f"{experiment}/guest.py", *(short if options.short else []), *options.agent,
                                         out=out, binary=options.binary, limit=options.limit)
        print(printed, flush=True)
        if status != 0:
            print(complaint, file=sys.stderr)
            return 1
        met = subprocess.run([os.path.join(LAB, "experiments", experiment, "judge.py"), out]).returncode == 0
        with open(os.path.join(out, "verdict.json")) as file:
            verdict = json.load(file)
    if options.out:
        variant = [verdict["variant"]] if "variant" in verdict else []
        leave(options.out, "-".join(["lab", experiment, *variant, *(["short"] if options.short else [])]), {
            "experiment": f"lab {experiment}", "date": today(), "short": options.short, **about, **verdict,
        })
    return 0 if met else 1


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
