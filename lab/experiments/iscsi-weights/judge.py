#!/usr/bin/env python3
"""judge.py DIR: compares the measurements of guest.py with the promises.

Prints the checks, and leaves DIR/verdict.json. Latencies are the means of seconds that fio measured at the
reader. Throughputs are those that fio counted for each bulk consumer. Exit status 1 when a check is missed.
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import KEPT, Verdict, part_within, settled

# The difference of a throughput from the share that the weight gives.
NEAR = 0.1
# Shares are found by feedback, which takes this long.
FOUND_S = 6


def throughputs(phase):
    """Bytes per second of each consumer in the burst, once shares are found."""
    ((begin, end),) = phase["bursts"]
    return {
        consumer: statistics.mean(value for second, value in seconds if begin + FOUND_S < second <= end)
        for consumer, seconds in phase["moved"].items()
    }


def judge_seed(found, options, addresses, verdict):
    row = {"seed": found["seed"]}
    for name, phase in found.items():
        if name == "seed":
            continue
        label, moved, seconds = f"seed {found['seed']}, {name}", throughputs(phase), settled(phase)
        row[name] = {
            "moved_bytes_per_s": moved,
            "mean_ms": statistics.mean(seconds),
            "kept": part_within(seconds, options["target"]),
            "members": phase["members"],
            "retransmissions": phase["retransmissions"],
        }
        if name == "unregulated":
            continue
        verdict.within(f"{label}: seconds within the target", row[name]["kept"], KEPT)
        verdict.within(f"{label}: packets dropped", float(phase["drops"]), most=0)
        # Without weights nothing is promised of the shares.
        if "weighted" in name:
            weights = dict(zip(moved, map(float, options["weights"].split(","))))
            parts = {
                consumer: moved[consumer] / sum(moved.values()) / (weight / sum(weights.values()))
                for consumer, weight in weights.items()
            }
            row[name]["of_share"] = parts
            for consumer, part in parts.items():
                verdict.within(
                    f"{label}: throughput of initiator {consumer} / its share", part, 1 - NEAR, 1 + NEAR
                )
        if options["throttle"] == "netem":
            wanted = sorted(addresses[consumer] for consumer in moved)
            verdict.within(
                f"{label}: all bulk consumers were members, and no other",
                float(phase["members"] == wanted),
                1,
            )
    if "unregulated" in row:
        all_free = sum(row["unregulated"]["moved_bytes_per_s"].values())
        for name in ("alike", "weighted"):
            if name in row:
                row[name]["writers_kept"] = sum(row[name]["moved_bytes_per_s"].values()) / all_free
    return row


def main(directory):
    with open(os.path.join(directory, "measured.json")) as file:
        measured = json.load(file)
    verdict, options = Verdict(), measured["options"]
    rows = [judge_seed(found, options, measured["addresses"], verdict) for found in measured["seeds"]]
    verdict.show()
    for row in rows:
        for name, phase in row.items():
            if name != "seed":
                moved = ", ".join(
                    f"{consumer}: {value / 2**20:.1f}"
                    for consumer, value in phase["moved_bytes_per_s"].items()
                )
                print(
                    f"  seed {row['seed']}, {name}: reader {phase['mean_ms']:.1f} ms; MiB/s {moved}; "
                    f"all {sum(phase['moved_bytes_per_s'].values()) / 2**20:.1f}; "
                    f"sent again {phase['retransmissions']}"
                )
    with open(os.path.join(directory, "verdict.json"), "w") as file:
        json.dump(
            {
                "met": verdict.met(),
                "alone_ms": measured["alone"]["mean_ms"],
                "seeds": rows,
                "checks": verdict.rows,
                "options": options,
            },
            file,
            indent=1,
        )
    return 0 if verdict.met() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
