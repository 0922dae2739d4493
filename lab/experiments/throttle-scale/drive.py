#!/usr/bin/env python3
"""The packet-delay throttles with a thousand consumers throttled at once, and the time to change that.

A second kind of case has a hundred resources whose delays move by themselves, each with consumers of the next
one's. In the lab, on its virtual clock: crates/tidegate-host/examples/throttle.rs in the guest, beside
guest.py. Exit status 1 when a consumer is not throttled, or is still throttled afterwards. It is also 1 when
moving delays take more than a transaction of nftables each second, or make the control interval longer than
promised.
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

CASES = ["netemx1x1000", "netemx100x10", "edtx1x1000", "edtx100x10", "netemx100x10x30", "edtx100x10x30"]
SHORT = ["netemx100x10", "edtx1x1000", "netemx100x10x10"]
DELAY_MS = 50
# The 99th percentile of the control interval, with a hundred resources whose delays move by themselves.
INTERVAL_S = 0.15
# The time of a path without delay, and of a program that waits for the processor.
MOST_BEYOND_MS = 5


def built():
    repository = os.path.dirname(driver.LAB)
    # With the whole workspace selected, other crates have the program's features, and are built already.
    subprocess.run(
        ["cargo", "build", "--locked", "--release", "--quiet", "--workspace", "--example", "throttle"],
        cwd=repository,
        check=True,
    )
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(repository, "target"))
    return os.path.join(target, "release/examples/throttle")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="three cases")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    options = parser.parse_args()
    description, binary = driver.described(), built()
    with tempfile.TemporaryDirectory() as directory:
        status, printed, complaint = driver.run(
            "throttle-scale/guest.py", *(SHORT if options.short else CASES), out=directory, binary=binary
        )
        if status != 0:
            print(printed + complaint, file=sys.stderr)
            return 1
        with open(os.path.join(directory, "measured.json")) as file:
            measured = json.load(file)
    met = True
    print(
        "throttle  resources  consumers   join s  throttle s  all delays s  all sets s  nothing s   undo s"
        "   throttled ms"
    )
    for row in (row for row in measured if "seconds" not in row):
        throttled = (
            row["held_ms"][0] >= DELAY_MS
            and row["held_ms"][1] < 2 * DELAY_MS
            and row["after_ms"] < DELAY_MS / 2
        )
        met = met and throttled
        print(
            f"{row['method']:8} {row['resources']:10} {row['consumers']:10} {row['join_s']:8.3f} "
            f"{row['hold_s']:11.3f} {row['change_delays_s']:13.4f} {row['change_members_s']:11.4f} "
            f"{row['unchanged_s']:10.4f} {row['undo_s']:8.3f}   "
            f"{row['held_ms'][0]:.1f} to {row['held_ms'][1]:.1f}{'' if throttled else '   MISSED'}"
        )
    for row in (row for row in measured if "seconds" in row):
        # A follower of the kernel's messages hears of a transaction at its end, and some take 0.1 s longer
        # than others: hence the mean.
        seldom = row["transactions"] <= row["seconds"] + 4 and (
            row["mean_between_s"] is None or row["mean_between_s"] > 0.95
        )
        throttled = (
            row["beyond_wanted_ms"][0] >= 0
            and row["beyond_wanted_ms"][1] < MOST_BEYOND_MS
            and row["after_ms"] < MOST_BEYOND_MS
        )
        kept = seldom and throttled and row["interval_p99_s"] < INTERVAL_S
        met = met and kept
        print(
            f"{row['method']}, {row['resources']} resources of {row['consumers']} consumers "
            f"whose delays move for {row['seconds']} s: {row['transactions']} transactions, "
            f"intervals of {row['interval_p50_s']:.3f} s, p99 {row['interval_p99_s']:.3f} s; "
            f"a call takes {1000 * row['apply_p50_s']:.1f} ms, p99 {1000 * row['apply_p99_s']:.1f} ms; "
            f"waits beyond the wanted delay {row['beyond_wanted_ms'][0]:.1f} to "
            f"{row['beyond_wanted_ms'][1]:.1f} ms{'' if kept else '   MISSED'}"
        )
    if options.out:
        driver.leave(
            options.out,
            "lab-throttle-scale",
            {
                "experiment": "lab throttle-scale",
                "date": driver.today(),
                **description,
                "met": met,
                "measured": measured,
            },
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
