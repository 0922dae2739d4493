#!/usr/bin/env python3
"""judge.py DIR: compares the measurements of guest.py with figures 12 to 16 of the paper.

Prints the checks, and leaves DIR/verdict.json. Latencies are the means of seconds that fio measured at the
reader. Exit status 1 when a check is missed.
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import KEPT, Verdict, part_within, settled


def main(directory):
    with open(os.path.join(directory, "measured.json")) as file:
        measured = json.load(file)
    verdict, rows, target = Verdict(), [], measured["options"]["target"]
    for found in measured["seeds"]:
        seed, free, throttled = found["seed"], found["unregulated"], found["acks"]
        seconds = settled(throttled)
        row = {
            "seed": seed,
            "unregulated_ms": statistics.mean(settled(free)),
            "kept": part_within(seconds, target),
            "mean_ms": statistics.mean(seconds),
            "delay_ms": throttled["delay_ms"],
            "writers_kept": throttled["written_bytes_per_s"] / free["written_bytes_per_s"],
            "written_bytes_per_s": throttled["written_bytes_per_s"],
        }
        rows.append(row)
        verdict.within(f"seed {seed}: seconds within the target", row["kept"], KEPT)
        verdict.within(
            f"seed {seed}: segments sent again",
            float(sum(side["RetransSegs"] for side in throttled["retransmissions"].values())),
            most=0,
        )
        verdict.within(f"seed {seed}: packets dropped", float(throttled["drops"]), most=0)
        print(
            f"  seed {seed}: {row['unregulated_ms']:.1f} ms unregulated; {row['mean_ms']:.1f} ms, "
            f"{100 * row['kept']:.0f} % within {target:g} ms, "
            f"writers {100 * row['writers_kept']:.0f} %, delay {throttled['delay_ms']}"
        )
    verdict.show()
    with open(os.path.join(directory, "verdict.json"), "w") as file:
        json.dump(
            {
                "met": verdict.met(),
                "alone_ms": measured["alone"]["mean_ms"],
                "seeds": rows,
                "checks": verdict.rows,
                "options": measured["options"],
            },
            file,
            indent=1,
        )
    return 0 if verdict.met() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
