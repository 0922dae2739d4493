#!/usr/bin/env python3
"""The three commands of the guide's first steps on a real iSCSI target, in the lab (see guest.py).

The promises: the database gets its 20 ms within ten seconds of the last command, and then keeps it in 95 % of
the seconds. Exit status 1 when a run fails or a promise is missed.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver
from judging import KEPT, part_within

TARGET_MS = 20
SOON_S = 10
# Seconds at the beginning of the run that are not judged.
FIRST_S = 3


def judged(measured):
    steps = dict(measured["steps"])
    last = measured["first_command_s"] + steps["done"]
    before = [value for at, value in measured["seconds"] if FIRST_S < at <= measured["first_command_s"]]
    after = [(at - last, value) for at, value in measured["seconds"] if at > last]
    settled = [value for at, value in after if at > SOON_S]
    return {
        "seed": measured["seed"],
        "commands_s": steps["done"],
        "before_ms": statistics.mean(before),
        "within_s": next((at for at, value in after if value <= TARGET_MS), None),
        "kept": part_within(settled, TARGET_MS),
        "after_ms": statistics.mean(settled),
        "proposed_in_quiet": next(
            line for line in measured["quiet"]["configuration"].splitlines() if line.startswith("target")
        ),
        "quiet_ms": measured["quiet"]["reads"]["mean_ms"],
    }


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=1800, help="real seconds per run (default: %(default)s)")
    return parser.parse_args()


def run(seed, options):
    with tempfile.TemporaryDirectory() as out:
        status, printed, complaint = driver.run(
            "first-steps/guest.py", "--seed", seed, out=out, binary=options.binary, limit=options.limit
        )
        if status != 0:
            print(printed, complaint, file=sys.stderr)
            return None
        with open(os.path.join(out, "measured.json")) as file:
            return judged(json.load(file))


def main():
    options = arguments()
    description = driver.described()
    rows = [run(seed, options) for seed in range(1, options.seeds + 1)]
    if None in rows:
        return 1
    for row in rows:
        print(
            f"seed {row['seed']}: {row['before_ms']:.1f} ms before; "
            f"the three commands took {row['commands_s']:.1f} s; "
            f"within {TARGET_MS} ms {row['within_s']:.1f} s later; "
            f"kept in {row['kept']:.1%} of the seconds since, mean {row['after_ms']:.1f} ms"
        )
    met = all(
        row["within_s"] is not None and row["within_s"] <= SOON_S and row["kept"] >= KEPT for row in rows
    )
    print("kept" if met else "MISSED: the target")
    if options.out:
        driver.leave(
            options.out,
            "lab-first-steps",
            {
                "experiment": "lab first-steps",
                "date": driver.today(),
                **description,
                "met": met,
                "rows": rows,
            },
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
