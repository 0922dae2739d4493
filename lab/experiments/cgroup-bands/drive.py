#!/usr/bin/env python3
"""`tidegate agent` throttles cgroups on a block device, in the lab.

guest.py describes the phases. Exit status 1 when the run fails or a promise is missed (judge.py).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

SHORT = ["--seconds", "25"]


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="25 seconds of regulation instead of a minute")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--keep", metavar="DIR", help="keep the agent's logs there")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=1200, help="real seconds (default: %(default)s)")
    return parser.parse_args()


def main():
    options = arguments()
    description = driver.described()
    with tempfile.TemporaryDirectory() as directory:
        out = options.keep or directory
        status, printed, complaint = driver.run(
            "cgroup-bands/guest.py",
            *(SHORT if options.short else []),
            out=out,
            binary=options.binary,
            limit=options.limit
        )
        print(printed, flush=True)
        if status != 0:
            print(complaint, file=sys.stderr)
            return 1
        judge = os.path.join(os.path.dirname(os.path.abspath(__file__)), "judge.py")
        met = subprocess.run([judge, out]).returncode == 0
        with open(os.path.join(out, "verdict.json")) as file:
            verdict = json.load(file)
    if options.out:
        driver.leave(
            options.out,
            "lab-cgroup-bands" + ("-short" if options.short else ""),
            {
                "experiment": "lab cgroup-bands",
                "date": driver.today(),
                "short": options.short,
                **description,
                **verdict,
            },
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
