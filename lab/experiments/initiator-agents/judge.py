#!/usr/bin/env python3
"""judge.py DIR: compares the measurements of guest.py with the promises.

Prints the checks, and leaves DIR/verdict.json. Latencies are the means of seconds that fio measured at the
readers. Exit status 1 when a check is missed.
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import KEPT, Verdict, part_within, settled

# A link counts as congested if at most this part of the seconds is within the target.
CONGESTED = 0.5
# Disks count as idle if reads take at most this long there, in ms.
IDLE_MS = 2
# The throughput that the writer with an agent asks for, and the part of it that it must have.
STEADY_BYTES_PER_S, STEADY_PART = 2 << 20, 0.95
# The part of their throughput that the bulk writers must keep: throttling pays for itself.
BULK_PART = 0.5
BULK = ("4", "5", "6")


def main(directory):
    with open(os.path.join(directory, "measured.json")) as file:
        measured = json.load(file)
    verdict, target, rows = Verdict(), measured["options"]["target"], {}
    for name in ("unregulated", "alone", "reports"):
        if name not in measured:
            continue
        phase = measured[name]
        readers = {
            n: settled({"seconds": seconds, "bursts": phase["bursts"]})
            for n, seconds in phase["readers"].items()
        }
        rows[name] = {
            "kept": {n: part_within(seconds, target) for n, seconds in readers.items()},
            "mean_ms": {n: statistics.mean(seconds) for n, seconds in readers.items()},
            "members": phase["members"],
            "at_the_disks_ms": phase["at_the_disks_ms"],
            "steady_bytes_per_s": phase["steady_bytes_per_s"],
            "bulk_bytes_per_s": phase["bulk_bytes_per_s"],
        }
        verdict.within(f"{name}: reads at the disks, ms", phase["at_the_disks_ms"], most=IDLE_MS)
        verdict.within(f"{name}: packets dropped", float(phase["drops"]), most=0)
        for n, kept in rows[name]["kept"].items():
            bounds = {"least": KEPT} if name == "reports" else {"most": CONGESTED}
            verdict.within(f"{name}: seconds of reader {n} within the target", kept, **bounds)
    if "reports" in rows:
        verdict.within(
            "reports: the consumers without an agent are throttled, and no other",
            float(measured["reports"]["members"] == sorted(measured["addresses"][n] for n in BULK)),
            1,
        )
        verdict.within(
            "reports: written by the writer with an agent / the throughput it asks for",
            rows["reports"]["steady_bytes_per_s"] / STEADY_BYTES_PER_S,
            STEADY_PART,
        )
        if "unregulated" in rows:
            verdict.within(
                "reports: written by the bulk writers / unregulated",
                rows["reports"]["bulk_bytes_per_s"] / rows["unregulated"]["bulk_bytes_per_s"],
                BULK_PART,
            )
    verdict.show()
    for name, row in rows.items():
        print(f"  {name}: {json.dumps(row)}")
    with open(os.path.join(directory, "verdict.json"), "w") as file:
        json.dump(
            {"met": verdict.met(), "phases": rows, "checks": verdict.rows, "options": measured["options"]},
            file,
            indent=1,
        )
    return 0 if verdict.met() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
