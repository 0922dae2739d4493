#!/usr/bin/env python3
"""judge.py DIR: compares the measurements of guest.py with the promises.

Prints the verdict, and leaves it in DIR/verdict.json. Latencies are those that the reader saw (fio, the mean
of each second). Exit status 1 when a promise is missed.
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import KEPT, Verdict, part_within, settled

# Tolerance of the agent on the bridge: its cost beside the agent on the target, and the error of its
# measurements.
NEAR = 0.03
# Part of the throughput that writers keep beside an agent at rest. Two equal runs differ by as much here.
FREE = 0.99
# Ports of the bridge, without that of the target.
PORTS = 4


def flag(value):
    return 1.0 if value else 0.0


def retransmitted(phase):
    return sum(side["RetransSegs"] for side in phase["retransmissions"].values())


def judge_seed(found, target, verdict):
    name = f"seed {found['seed']}"
    row = {"seed": found["seed"]}
    if "unregulated" in found:
        phase = found["unregulated"]
        (count, seconds), (own_count, own_seconds) = phase["bridge_reads"], phase["target_reads"]
        measured, own = 1000 * seconds / max(count, 1), 1000 * own_seconds / max(own_count, 1)
        row["latency_ms"] = {"bridge": measured, "target": own, "reads": [count, own_count]}
        verdict.within(
            f"{name}: reads' latency at the bridge / the target's own", measured / own, 1 - NEAR, 1 + NEAR
        )
        verdict.within(
            f"{name}: reads seen at the bridge / by the target", count / own_count, 1 - NEAR, 1 + NEAR
        )
        row["unregulated_ms"] = statistics.mean(settled(phase))
    for place in ("target", "bridge"):
        if place in found:
            phase = found[place]
            seconds = settled(phase)
            row[place] = {
                "kept": part_within(seconds, target),
                "mean_ms": statistics.mean(seconds),
                "written_bytes_per_s": phase["written_bytes_per_s"],
            }
    if "bridge" in found:
        verdict.within(f"{name}: seconds within the target", row["bridge"]["kept"], KEPT)
        verdict.within(f"{name}: segments sent again", float(retransmitted(found["bridge"])), most=0)
        verdict.within(f"{name}: packets dropped", float(found["bridge"]["drops"]), most=0)
        verdict.within(
            f"{name}: nothing is left",
            flag(not found["bridge"]["after"]["tables"] and not found["bridge"]["after"]["has_device"]),
            1,
        )
    if "bridge" in found and "target" in found:
        ratio = row["bridge"]["written_bytes_per_s"] / row["target"]["written_bytes_per_s"]
        row["writers_beside_target"] = ratio
        verdict.within(f"{name}: writers beside the agent on the bridge / on the target", ratio, 1 - NEAR)
    return row


def judge(measured):
    verdict, target = Verdict(), measured["options"]["target"]
    if "middle" in measured:
        verdict.within(
            "sessions seen from their middle: writers are known by address",
            flag(measured["middle"]["consumers"] == measured["writers"]),
            1,
        )
    for moment in ("first", "later"):
        verdict.within(
            f"names of writers, {moment}",
            flag(measured["login"][moment]["consumers"] == measured["names"]),
            1,
        )
    if "check" in measured:
        verdict.within("check: status", float(measured["check"]["status"]), 0, 0)
    if "rest" in measured:
        ratios = [beside / without for without, beside in measured["rest"]]
        verdict.within("at rest: written beside the agent / without", statistics.median(ratios), FREE)
    rows = [judge_seed(found, target, verdict) for found in measured["seeds"]]
    if "killed" in measured:
        during, after = measured["killed"]["during"], measured["killed"]["after"]
        verdict.within(
            "killed: it throttled at the initiators' ports",
            flag(
                during["rules"] and len(during["hooks"]) == PORTS and during["members"] == measured["writers"]
            ),
            1,
        )
        verdict.within(
            "killed: nothing is left after 2 s", flag(not after["tables"] and not after["has_device"]), 1
        )
    return verdict, rows


def variant(options):
    parts = [word for key, word in (("nvme", "nvme"), ("ipv6", "ipv6")) if options[key]]
    parts += [f"mtu-{options['mtu']}"] if options["mtu"] != 1500 else []
    parts += ["vlan"] if options.get("vlan") else []
    return {"variant": "-".join(parts)} if parts else {}


def main(directory):
    with open(os.path.join(directory, "measured.json")) as file:
        measured = json.load(file)
    verdict, rows = judge(measured)
    verdict.show()
    with open(os.path.join(directory, "verdict.json"), "w") as file:
        json.dump(
            {
                **variant(measured["options"]),
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
