#!/usr/bin/env python3
"""judge.py DIR: guest.py's measurements against the promises. Prints them, and leaves DIR/verdict.json.

Latencies are those of the readers (fio, the mean of each second). Exit status 1 when a promise is missed.
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import KEPT, Verdict, part_within, settled


def judge_seed(found, targets, writers, verdict):
    row = {"seed": found["seed"]}
    for name in ("unregulated", "both", "one"):
        if name not in found:
            continue
        phase = found[name]
        row[name] = {
            "written_bytes_per_s": phase["written"],
            "members": phase["members"],
            **({"shared_ms": phase["shared_ms"]} if "shared_ms" in phase else {}),
        }
        for group, target in targets.items():
            seconds = settled(phase["readers"][group])
            row[name][group] = {"kept": part_within(seconds, target), "mean_ms": statistics.mean(seconds)}
            if name != "unregulated":
                verdict.within(
                    f"seed {found['seed']}, {name}: seconds of {group} within {target:g} ms",
                    row[name][group]["kept"],
                    KEPT,
                )
        if name != "unregulated":
            label = f"seed {found['seed']}, {name}"
            verdict.within(
                f"{label}: segments sent again", float(sum(phase["retransmissions"].values())), most=0
            )
            verdict.within(f"{label}: packets dropped", float(phase["drops"]), most=0)
            overloaded = writers.values() if name == "both" else [writers["vg0"]]
            wanted = sorted({address for group in overloaded for address in group})
            verdict.within(
                f"{label}: the writers were throttled, and no other initiator",
                float(phase["members"] == wanted),
                1,
            )
    return row


def main(directory):
    with open(os.path.join(directory, "measured.json")) as file:
        measured = json.load(file)
    verdict, options = Verdict(), measured["options"]
    targets = dict(zip(("vg0", "vg1"), map(float, options["targets"].split(","))))
    rows = [judge_seed(found, targets, measured["writers"], verdict) for found in measured["seeds"]]
    verdict.show()
    for row in rows:
        print(f"  {json.dumps(row)}")
    with open(os.path.join(directory, "verdict.json"), "w") as file:
        json.dump(
            {"met": verdict.met(), "seeds": rows, "checks": verdict.rows, "options": options}, file, indent=1
        )
    return 0 if verdict.met() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
