#!/usr/bin/env python3
"""The packet-delay throttles with a thousand consumers held at once, and how quickly what is held can be changed.

In the lab, on its virtual clock: crates/tidegate-host/examples/throttle.rs in the guest, beside guest.py. Exit status 1
when somebody is not held, or is still throttled afterwards.
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

CASES = ["netemx1x1000", "netemx100x10", "edtx1x1000", "edtx100x10"]
SHORT = ["netemx100x10", "edtx1x1000"]
DELAY_MS = 50


def built():
    repository = os.path.dirname(driver.LAB)
    # With the whole workspace selected, other crates have the features that the program has, and are there already.
    subprocess.run(["cargo", "build", "--locked", "--release", "--quiet", "--workspace", "--example", "throttle"],
                   cwd=repository, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(repository, "target"))
    return os.path.join(target, "release/examples/throttle")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="two cases")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    options = parser.parse_args()
    description, binary = driver.described(), built()
    with tempfile.TemporaryDirectory() as directory:
        status, printed, complaint = driver.run("throttle-scale/guest.py", *(SHORT if options.short else CASES), out=directory,
                                                binary=binary)
        if status != 0:
            print(printed + complaint, file=sys.stderr)
            return 1
        with open(os.path.join(directory, "measured.json")) as file:
            measured = json.load(file)
    met = True
    print("throttle  resources  consumers   join s   hold s  all delays s  all sets s  nothing s   undo s   held ms")
    for row in measured:
        holds = row["held_ms"][0] >= DELAY_MS and row["held_ms"][1] < 2 * DELAY_MS and row["after_ms"] < DELAY_MS / 2
        met = met and holds
        print(f"{row['method']:8} {row['resources']:10} {row['consumers']:10} {row['join_s']:8.3f} {row['hold_s']:8.3f} "
              f"{row['change_delays_s']:13.4f} {row['change_members_s']:11.4f} {row['unchanged_s']:10.4f} {row['undo_s']:8.3f}   "
              f"{row['held_ms'][0]:.1f} to {row['held_ms'][1]:.1f}{'' if holds else '   MISSED'}")
    if options.out:
        driver.leave(options.out, "lab-throttle-scale", {
            "experiment": "lab throttle-scale", "date": driver.today(), **description, "met": met, "measured": measured})
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
