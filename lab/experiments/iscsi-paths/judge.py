#!/usr/bin/env python3
"""judge.py DIR: compares the measurements of guest.py with the promises.

Prints the checks, and leaves DIR/verdict.json. Latencies are the means of seconds that fio measured at the
reader. Exit status 1 when a check is missed.
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import KEPT, LEFT_OUT_S, Verdict, part_within, settled

# The difference of the bytes written by the two paths of the writers.
ALIKE = 0.1
# The difference of reads of the other device over its own portal, during the burst and before it.
FREE_MS = 0.5
# An initiator gives a path up after its ping, the ping's time-out and the session's: 6 s, and nothing is read
# meanwhile.
FAILS_OVER_S = 10
WRITERS = ("2", "3", "4")


def by_path(written):
    """Bytes per second by each path of the writers."""
    sums = [0, 0]
    for name, value in written.items():
        sums[int(name.partition("-")[2]) % 2] += value
    return sums


def judge_failover(name, phase, target, addresses, verdict):
    """Judges a phase in which a network was lost during the burst.

    Requests wait until the paths are given up. Then all begin at once, as a burst does.
    """
    begin, end = phase["bursts"][0]
    lost = phase["lost_at"]
    again = next((at for at, _ in phase["seconds"] if at > lost + 1), end)
    verdict.within(f"{name}: seconds until reads go on", again - lost, most=FAILS_OVER_S)
    kept = {}
    for part, since, until in (("before", begin + LEFT_OUT_S, lost), ("after", again + LEFT_OUT_S, end)):
        seconds = [value for at, value in phase["seconds"] if since < at <= until]
        # A short burst may leave no seconds to judge.
        kept[part] = part_within(seconds, target) if seconds else None
        verdict.within(
            f"{name}: seconds within the target, {part} the failure ({len(seconds)})", kept[part], KEPT
        )
    # Addresses in the network that is left.
    left = {"failover": 0, "alua": 1}[name]
    wanted = {addresses[n][left] for n in WRITERS}
    verdict.within(
        f"{name}: every remaining path of the writers is throttled",
        float(wanted <= set(phase["members_after"])),
        1,
    )
    reader = set(addresses["1"]) & set(phase["members"])
    verdict.within(f"{name}: paths of the reader that are throttled", float(len(reader)), most=0)
    return {
        "kept": kept,
        "members": phase["members"],
        "members_after": phase["members_after"],
        "lost_at": lost,
        "seconds": phase["seconds"],
        "written_bytes_per_s": sum(phase["written"].values()),
    }


def main(directory):
    with open(os.path.join(directory, "measured.json")) as file:
        measured = json.load(file)
    verdict, target, rows = Verdict(), measured["options"]["target"], {}
    if "doubtful" in measured:
        verdict.within(
            "initiators whose hidden paths are named",
            float(len({line.split(" WARN ")[-1] for line in measured["doubtful"]})),
            4,
        )
    for name in ("unregulated", "paths", "apart", "together"):
        if name not in measured:
            continue
        phase = measured[name]
        seconds = settled(phase)
        rows[name] = {
            "kept": part_within(seconds, target),
            "mean_ms": statistics.mean(seconds),
            "members": phase["members"],
            "written_bytes_per_s": sum(phase["written"].values()),
            "retransmissions": phase["retransmissions"],
            **({"other_ms": phase["other_ms"]} if "other_ms" in phase else {}),
        }
        if name == "unregulated":
            continue
        verdict.within(f"{name}: seconds within the target", rows[name]["kept"], KEPT)
        verdict.within(f"{name}: segments sent again", float(sum(phase["retransmissions"].values())), most=0)
        verdict.within(f"{name}: packets dropped", float(phase["drops"]), most=0)
        paths = 2 if name == "paths" else 1
        wanted = sorted(address for n in WRITERS for address in measured["addresses"][n][:paths])
        verdict.within(
            f"{name}: every path of the writers is throttled, and no other",
            float(phase["members"] == wanted),
            1,
        )
    for name in ("failover", "alua"):
        if name in measured:
            rows[name] = judge_failover(name, measured[name], target, measured["addresses"], verdict)
    if "paths" in measured:
        first, other = by_path(measured["paths"]["written"])
        rows["paths"]["by_path"] = [first, other]
        verdict.within(
            "paths: written by the second path / by the first", other / first, 1 - ALIKE, 1 + ALIKE
        )
    if "apart" in measured:
        waits = measured["apart"]["other_ms"]
        verdict.within(
            "apart: reads of the other device during the burst − before it, ms",
            waits["during"] - waits["before"],
            most=FREE_MS,
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
