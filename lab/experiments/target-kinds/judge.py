#!/usr/bin/env python3
"""judge.py DIR: guest.py's measurements against the promises. Prints them, and leaves DIR/verdict.json.

Latencies are those of the reader (fio, the mean of each second). Exit status 1 when a promise is missed.
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import KEPT, Verdict, part_within, settled

# Weaker bursts would not be worth regulating.
DISTURBED = 2
LAWS = ("pid", "auto")


def judge_seed(found, alone, target, writers, verdict):
    seed, free = found["seed"], found["unregulated"]
    unregulated = statistics.mean(settled(free))
    row = {
        "seed": seed,
        "unregulated_ms": unregulated,
        "unregulated_kept": part_within(settled(free), target),
        "unregulated_written_bytes_per_s": free["written_bytes_per_s"],
    }
    verdict.within(
        f"seed {seed}: writers disturb the reader, times its latency alone", unregulated / alone, DISTURBED
    )
    for law in LAWS:
        phase, name = found[law], f"seed {seed}, {law}"
        seconds = settled(phase)
        row[law] = {
            "kept": part_within(seconds, target),
            "mean_ms": statistics.mean(seconds),
            "writers_kept": phase["written_bytes_per_s"] / free["written_bytes_per_s"],
            "sent_again": phase["sent_again"],
        }
        verdict.within(f"{name}: seconds within the target", row[law]["kept"], KEPT)
        verdict.within(
            f"{name}: segments sent again",
            float(sum(side["RetransSegs"] for side in phase["retransmissions"].values())),
            most=0,
        )
        verdict.within(f"{name}: packets dropped", float(phase["drops"]), most=0)
        verdict.within(
            f"{name}: the writers were throttled, and no other host", float(phase["members"] == writers), 1
        )
        left = phase["after"]["tables"] or phase["after"]["has_device"]
        verdict.within(f"{name}: something is left in the kernel", 1.0 if left else 0.0, most=0)
    return row


def main(directory):
    with open(os.path.join(directory, "measured.json")) as file:
        measured = json.load(file)
    verdict, alone = Verdict(), measured["alone"]["mean_ms"]
    rows = [
        judge_seed(found, alone, measured["options"]["target"], measured["writers"], verdict)
        for found in measured["seeds"]
    ]
    verdict.show()
    for law in LAWS:
        kept, writers = ([row[law][key] for row in rows] for key in ("kept", "writers_kept"))
        print(
            f"  {law}: {100 * statistics.mean(kept):.1f} % of all seconds, "
            f"writers {100 * statistics.mean(writers):.0f} %"
        )
    with open(os.path.join(directory, "verdict.json"), "w") as file:
        json.dump(
            {
                "variant": measured["options"]["kind"],
                "met": verdict.met(),
                "alone_ms": alone,
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
