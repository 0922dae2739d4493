#!/usr/bin/env python3
"""judge.py MEASURED…: compares the measurements of guest.py with expectations, and prints the checks.

--verdict FILE leaves them as JSON. Exit status 1 when a check is missed.

Only claims that theory or the paper makes beforehand are judged; the rest is shown. Nothing else was running,
and the clock is virtual. Bounds are therefore about mechanisms, not about noise.
"""

import argparse
import itertools
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import Verdict, fit, retransmitted

# A request at depth 1 waits for one delayed packet of the target, its response or its data: one millisecond
# per millisecond. It takes more only if it must wait again: for a congestion window that is still opening, a
# few times at the start.
ONE_WAIT = (0.95, 1.25)
# 256 KiB are more than the first burst of 64 KiB: R2T, then the response.
TWO_WAITS = (1.9, 2.5)
# With half of 131072 bytes as the window (tcp_adv_win_scale), 64 KiB and a header do not always fit: one
# wait, or two.
ONE_OR_TWO_WAITS = (0.95, 2.3)
# "close-to-linear" is the paper's claim, without a figure.
LINEAR_R2 = 0.99
# An acknowledgement that no request waits for.
NO_WAIT = 0.1
# The window lets at most 64 KiB travel per round trip: 3.2 MB/s at 20 ms, of the array's 31. Half of that is
# asked for.
CAPPED_ALL_TIMES = 5
# The paper's figure 9: writes from 15 to 2.5 MB/s at 9.6 ms, by acknowledgements. A third of that is asked
# for.
CAPPED_ACK_TIMES = 2
UNCHANGED = 0.05
# The difference of two ways to delay the same packets for the same time: five times that of repeats.
SAME = 0.05
# The agent takes the most requests outstanding of late for their number, and keeps a limit that is off by a
# thirty-second.
BY_LITTLE = (0.85, 1.15)
NOT_SLOWER = 1.02
# The queue hides shorter delays: the line begins behind the bend.
BEND_MS = 5


def fits(measured):
    """A line per combination: the time against the delay."""

    def key(row):
        return row["part"], row["classification"], row["direction"], row["block_kib"], row["depth"]

    found = {}
    for name, rows in itertools.groupby(sorted(measured["transfers"], key=key), key):
        points = sorted((row["delay_ms"], row["ms_per_io"]) for row in rows)
        found[name] = {"ms_per_io": dict(points), **fit(points)}
    return found


def counter(loads, name):
    return sum(side[name] for load in loads for side in load["tcp"].values())


def judge_default(verdict, lines):
    line = lambda *key: lines.get(("sweep", *key))
    for direction in ("read", "write"):
        wait = line("all", direction, 64, 1)
        verdict.within(f"all packets, 64 KiB {direction}s at depth 1: ms per ms", wait["slope"], *ONE_WAIT)
        verdict.within(f"all packets, 64 KiB {direction}s at depth 1: R²", wait["r2"], LINEAR_R2)
        verdict.within(
            f"ACKs only, 64 KiB {direction}s at depth 1: ms per ms",
            line("ack", direction, 64, 1)["slope"],
            most=NO_WAIT,
        )
    for classification, what in (("small", "small packets"), ("response", "responses")):
        wait = line(classification, "write", 64, 1)
        verdict.within(f"{what}, 64 KiB writes at depth 1: ms per ms", wait["slope"], *ONE_WAIT)
        verdict.within(f"{what}, 64 KiB writes at depth 1: R²", wait["r2"], LINEAR_R2)
    # Reads alone have no packet that this delays.
    verdict.within(
        "responses, 64 KiB reads at depth 1: ms per ms",
        line("response", "read", 64, 1)["slope"],
        most=NO_WAIT,
    )
    if large := line("all", "write", 256, 1):
        verdict.within("all packets, 256 KiB writes at depth 1: ms per ms", large["slope"], *TWO_WAITS)


def judge_capped(verdict, lines):
    line = lambda *key: lines[("sweep", *key)]
    for direction in ("read", "write"):
        wait = line("all", direction, 64, 1)
        verdict.within(
            f"all packets, 64 KiB {direction}s at depth 1: ms per ms", wait["slope"], *ONE_OR_TWO_WAITS
        )
        verdict.within(f"all packets, 64 KiB {direction}s at depth 1: R²", wait["r2"], LINEAR_R2)
    deep = line("all", "write", 64, 8)["ms_per_io"]
    behind = fit([point for point in deep.items() if point[0] >= BEND_MS])
    verdict.within(f"all packets, 64 KiB writes at depth 8, from {BEND_MS} ms: R²", behind["r2"], LINEAR_R2)
    verdict.within(
        "all packets, 64 KiB writes at depth 8: time with the longest delay, times",
        deep[max(deep)] / deep[0],
        CAPPED_ALL_TIMES,
    )
    acks = line("ack", "write", 64, 8)["ms_per_io"]
    verdict.within(
        "ACKs only, 64 KiB writes at depth 8: time with 10 ms, times", acks[10] / acks[0], CAPPED_ACK_TIMES
    )
    acks = line("ack", "read", 64, 8)["ms_per_io"]
    verdict.within(
        "ACKs only, 64 KiB reads at depth 8: change of time with the longest delay",
        acks[max(acks)] / acks[0] - 1,
        -UNCHANGED,
        UNCHANGED,
    )


def judge_throttles(verdict, measured, lines):
    """Judges that the delays of writes by the agent's two throttles come to the same."""
    for what in sorted({name[1] for name in lines if name[0] == "throttles"}):
        for direction in ("read", "write"):
            line = lines["throttles", what, direction, 64, 1]
            if direction == "read" and what.endswith("responses"):
                verdict.within(
                    f"agent, {what}, 64 KiB reads at depth 1: ms per ms", line["slope"], most=NO_WAIT
                )
                continue
            if direction == "read" and what == "edt, wide":
                continue  # shown
            # With edt TCP has only so much under way in its own host: the last part of 64 KiB leaves a delay
            # later.
            waits = TWO_WAITS if direction == "read" and what.startswith("edt") else ONE_WAIT
            verdict.within(f"agent, {what}, 64 KiB {direction}s at depth 1: ms per ms", line["slope"], *waits)
            verdict.within(f"agent, {what}, 64 KiB {direction}s at depth 1: R²", line["r2"], LINEAR_R2)
        decided = [
            load for load in measured["loads"] if load.get("classification") == what and "held_ms" in load
        ]
        verdict.within(
            f"agent, {what}: greatest difference of decided and wanted delay, ms",
            max(abs((load["held_ms"] or 0) - load["delay_ms"]) for load in decided),
            most=0,
        )
        for load in measured["loads"]:
            if load["part"] == "jump" and load["how"] == f"agent, {what}":
                verdict.within(
                    f"agent, {what}, jumping, {load['direction']}s: retransmissions",
                    retransmitted(load),
                    most=0,
                )
                verdict.within(
                    f"agent, {what}, jumping, {load['direction']}s: segments out of order",
                    counter([load], "TCPOFOQueue"),
                    most=0,
                )
    for what, complaints in measured["complaints"].items():
        verdict.within(f"agent, {what}: complaints", len(complaints), most=0)
    if ("throttles", "edt", "write", 64, 1) in lines:
        # At greater depths, several answers are under way at once, and the bytes that TCP may have in its own
        # host count, too.
        netem, edt = (
            lines["throttles", throttle, "write", 64, 1]["ms_per_io"] for throttle in ("netem", "edt")
        )
        apart = max(abs(edt[delay] / netem[delay] - 1) for delay in netem)
        verdict.within("edt beside netem, 64 KiB writes at depth 1: furthest apart", apart, most=SAME)


def judge_limited(verdict, loads):
    """Judges a delay as a limit by Little's law.

    With as many writes outstanding, each takes its time at the device, and the delay. The agent counts the
    writes at the device; some are on their way there, and wait in proportion. Only writes are throttled:
    reads of the same session have the device more for themselves than before.
    """
    rows = [load for load in loads if load["part"] == "limited"]
    for depth in sorted({row["depth"] for row in rows}):
        free, *throttled = [row for row in rows if row["depth"] == depth]
        way = free["write"]["mean_ms"] / free["at_device_ms"]
        for row in throttled:
            what = f"rate, reads and writes at depth {depth}, {row['delay_ms']} ms"
            expected = way * (row["at_device_ms"] + row["delay_ms"])
            ratio = row["write"]["mean_ms"] / expected
            verdict.within(f"{what}: latency of writes / by Little's law", ratio, *BY_LITTLE)
            verdict.within(
                f"{what}: latency of reads / without a throttle",
                row["read"]["mean_ms"] / free["read"]["mean_ms"],
                most=NOT_SLOWER,
            )


def judge_loss(verdict, loads):
    """Judges that delay loses nothing, and that packets in order are not taken for lost.

    Read data may overtake a delayed header of its own connection where only small packets are delayed. That
    is shown, not judged.
    """
    parts = {load["part"]: [other for other in loads if other["part"] == load["part"]] for load in loads}
    for part in ("sweep", "ipv6", "mixed", "throttles", "limited"):
        one_way = [
            load
            for load in parts.get(part, ())
            if load["classification"] in ("all", "ack", "netem", "edt", "netem, IPv6", "edt, IPv6", "rate")
            or load.get("direction") == "write"
        ]
        if one_way:
            verdict.within(f"{part}: retransmissions", sum(map(retransmitted, one_way)), most=0)
    for probing in parts.get("probes", ()):
        unexplained = max(side["RetransSegs"] - side["TCPLossProbes"] for side in probing["tcp"].values())
        verdict.within(
            f"probes, {probing['delay_ms']} ms: retransmissions that are no probes", unexplained, most=0
        )
    if "jump" in parts:
        jumps = {(load["how"], load["classification"], load["direction"]): load for load in parts["jump"]}
        for name in (("all", "read"), ("all", "write"), ("small", "write"), ("response", "write")):
            load = jumps.get(("change with rate", *name))
            if load is None:
                continue
            verdict.within(
                f"jumping, with rate, {name[0]}, {name[1]}s: retransmissions", retransmitted(load), most=0
            )
            verdict.within(
                f"jumping, with rate, {name[0]}, {name[1]}s: segments out of order",
                counter([load], "TCPOFOQueue"),
                most=0,
            )
        # Without overtaking here, the two checks above say nothing of the rate.
        if control := jumps.get(("change", "all", "read")):
            verdict.within(
                "jumping, without rate, all, reads: segments out of order (control)",
                counter([control], "TCPOFOQueue"),
                least=1,
            )
    delayed = [load for load in loads if load["part"] != "baseline"]
    verdict.within(
        "packets dropped in all loads with a delay", sum(load["drops"] for load in delayed), most=0
    )


def show(measured, lines):
    delays = measured["delays_ms"]
    print(
        f"{'ms per request, delay':44}" + "".join(f"{delay:8}" for delay in delays) + f"{'slope':>9}{'R²':>9}"
    )
    for (part, classification, direction, block, depth), line in lines.items():
        name = f"{part:7} {classification:8} {direction:5} {block:4} KiB, depth {depth:3}"
        times = "".join(
            f"{line['ms_per_io'][delay]:8.2f}" if delay in line["ms_per_io"] else " " * 8 for delay in delays
        )
        print(
            f"{name:44}{times}{line['slope']:9.3f}" + (f"{line['r2']:9.5f}" if line["r2"] is not None else "")
        )
    loads = measured["loads"]
    for part, classification in sorted(
        {
            (load["part"], load["classification"])
            for load in loads
            if "delay_ms" in load and "classification" in load
        }
    ):
        mine = [
            load for load in loads if (load["part"], load.get("classification")) == (part, classification)
        ]
        for direction in sorted({load.get("direction", "both") for load in mine}):
            some = [load for load in mine if load.get("direction", "both") == direction]
            print(
                f"{part:7} {classification:8} {direction:5} "
                f"retransmissions {sum(map(retransmitted, some))}, "
                f"of them probes {counter(some, 'TCPLossProbes')}, "
                f"out of order {counter(some, 'TCPOFOQueue')}, "
                f"not sent because still queued {counter(some, 'TCPSpuriousRtxHostQueues')}, "
                f"challenged {counter(some, 'TCPChallengeACK')}, "
                f"timeouts {counter(some, 'TCPTimeouts')}, drops {sum(load['drops'] for load in some)}"
            )
    for load in loads:
        if load["part"] == "jump":
            print(
                f"jump    {load['how']:17} {load['classification']:8} {load['direction']:5} "
                f"{load['changes']:4} changes, retransmissions {retransmitted(load)}, "
                f"out of order {counter([load], 'TCPOFOQueue')}, drops {load['drops']}, "
                f"{load['bytes_per_s'] / 1e6:.2f} MB/s"
            )
    for load in loads:
        if load["part"] == "baseline":
            delayed = lines["sweep", "all", load["direction"], 64, load["depth"]]["ms_per_io"][
                load["delay_ms"]
            ]
            print(
                f"limit   {load['limit']:7} {load['direction']:6} depth {load['depth']:3}, "
                f"as with {load['delay_ms']:2} ms: {load['limit_bytes_per_s'] / 1e6:6.2f} MB/s wanted, "
                f"{load['bytes_per_s'] / 1e6:6.2f} had; p99 {load['p99_ms']:7.1f} ms "
                f"({delayed:.1f} ms per request with delay), "
                f"retransmissions {retransmitted(load)}, drops {load['drops']}"
            )
    for load in loads:
        if load["part"] == "limited":
            print(
                f"limited 64 KiB, depth {load['depth']:2}, {load['delay_ms']:3} ms: "
                f"reads {load['read']['mean_ms']:7.2f} ms, writes {load['write']['mean_ms']:7.2f} ms, "
                f"of these {load['at_device_ms']:6.2f} at the device"
            )
    mixed = [load for load in loads if load["part"] == "mixed"]
    for classification, depth in sorted({(load["classification"], load["depth"]) for load in mixed}):
        rows = [load for load in mixed if (load["classification"], load["depth"]) == (classification, depth)]
        for direction in ("read", "write"):
            points = [(load["delay_ms"], load[direction]["mean_ms"]) for load in rows]
            print(
                f"{'mixed':7} {classification:8} {direction:5}   64 KiB, depth {depth:3}  ".ljust(44)
                + "".join(f"{value:8.2f}" for _, value in points)
                + f"{fit(points)['slope']:9.3f}"
            )


def thinned(load):
    """A load for the document, without counters of zero."""
    return {
        **load,
        "tcp": {
            side: {name: count for name, count in counters.items() if count}
            for side, counters in load["tcp"].items()
        },
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measured", nargs="+")
    parser.add_argument("--verdict", metavar="FILE")
    options = parser.parse_args()
    documents = []
    for path in options.measured:
        with open(path) as file:
            measured = json.load(file)
        verdict = Verdict()
        lines = fits(measured)
        if any(name[0] == "sweep" for name in lines):
            (judge_default if measured["window"] == "default" else judge_capped)(verdict, lines)
        if any(name[0] == "ipv6" for name in lines):
            for direction in ("read", "write"):
                line = lines["ipv6", "all", direction, 64, 1]
                verdict.within(
                    f"IPv6, all packets, 64 KiB {direction}s at depth 1: ms per ms", line["slope"], *ONE_WAIT
                )
                verdict.within(
                    f"IPv6, all packets, 64 KiB {direction}s at depth 1: R²", line["r2"], LINEAR_R2
                )
        judge_throttles(verdict, measured, lines)
        judge_limited(verdict, measured["loads"])
        judge_loss(verdict, measured["loads"])
        print(f"window: {measured['window']}")
        show(measured, lines)
        verdict.show()
        documents.append(
            {
                **measured,
                "loads": [thinned(load) for load in measured["loads"]],
                "fits": [
                    dict(zip(("part", "classification", "direction", "block_kib", "depth"), key)) | line
                    for key, line in lines.items()
                ],
                "verdict": verdict.rows,
                "met": verdict.met(),
            }
        )
        print()
    if options.verdict:
        with open(options.verdict, "w") as file:
            json.dump(documents, file, indent=1)
    return 0 if all(document["met"] for document in documents) else 1


if __name__ == "__main__":
    sys.exit(main())
