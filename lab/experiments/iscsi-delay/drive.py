#!/usr/bin/env python3
"""Packet delay on a real iSCSI target: time against delay, for reads and writes, per classification.

guest.py describes each part. Two virtual machines: one with TCP as current kernels have it, one with the
window capped as it was in 2010. judge.py gives the checks and their reasons. Exit status 1 when a run fails
or an expectation is missed.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

JUDGE = os.path.join(driver.LAB, "experiments", "iscsi-delay", "judge.py")
# 131072 bytes stand for the small windows of 2010; the paper does not say its own.
WINDOWS = ("default", "131072")
SHORT = [
    "--delays",
    "0,5,10,20",
    "--block-sizes",
    "64",
    "--depths",
    "1,8",
    "--amounts",
    "4,8",
    "--compared",
    "10",
    "--jumps",
    "change,change with rate",
    "--jump-classifications",
    "all",
    "--jump-seconds",
    "2",
    "--throttle-delays",
    "0,5,20",
    "--throttle-depths",
    "1",
    "--throttle-jumps",
    "edt",
    "--throttles-too",
    "edt-responses",
    "--mixed-delays",
    "0,20",
    "--mixed-depths",
    "1",
    "--mixed-seconds",
    "1",
    "--limited-delays",
    "50,200",
    "--limited-depths",
    "4",
    "--limited-seconds",
    "4",
]
# Parts that do not depend on the window are measured with the default one only.
PARTS = {
    "default": "sweep,probes,ipv6,jump,baseline,mixed,throttles,limited",
    "131072": "sweep,baseline,mixed",
}
SHORT_PARTS = {**PARTS, "131072": "sweep"}
ONLY_THROTTLES = {"default": "throttles,limited"}


def parts(options):
    """The parts to measure, by window."""
    return ONLY_THROTTLES if options.throttles else SHORT_PARTS if options.short else PARTS


def run(window, options, directory):
    out = os.path.join(directory, window)
    chosen = ["--parts", parts(options)[window], *(SHORT if options.short else [])]
    status, printed, complaint = driver.run(
        "iscsi-delay/guest.py",
        "--window",
        window,
        *chosen,
        *options.delay,
        out=out,
        binary=options.binary,
        limit=options.limit,
    )
    if status != 0:
        print(f"window {window}: lab/run ended with {status}\n{printed}{complaint}", file=sys.stderr)
        return None
    return os.path.join(out, "measured.json")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--short", action="store_true", help="one block size, fewer delays, less of everything"
    )
    parser.add_argument(
        "--throttles", action="store_true", help="only the agent's throttles beside each other"
    )
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    parser.add_argument("delay", nargs="*", help="after --: more options for guest.py")
    return parser.parse_args()


def main():
    options = arguments()
    description = driver.described()
    with tempfile.TemporaryDirectory() as directory:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as machines:
            measured = list(machines.map(lambda window: run(window, options, directory), parts(options)))
        there = [path for path in measured if path]
        verdict = os.path.join(directory, "verdict.json")
        judged = there and subprocess.run([JUDGE, "--verdict", verdict, *there]).returncode == 0
        met = bool(judged) and len(there) == len(measured)
        if options.out and there:
            with open(verdict) as file:
                windows = {document["window"]: document for document in json.load(file)}
            name = (
                "lab-iscsi-delay"
                + ("-throttles" if options.throttles else "")
                + ("-short" if options.short else "")
            )
            driver.leave(
                options.out,
                name,
                {
                    "experiment": "lab iscsi-delay",
                    "date": driver.today(),
                    "short": options.short,
                    **description,
                    "met": met,
                    "windows": windows,
                },
            )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
