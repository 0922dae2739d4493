#!/usr/bin/env python3
"""Packet delay on a real NVMe/TCP target and a real NFS server: time against delay, reads and writes.

See guest.py. One virtual machine for each. Exit status 1 when a run fails or a check is missed.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver
from judging import Verdict, fit, retransmitted

SHORT = ["--delays", "0,5,20", "--depths", "1", "--amounts", "2,2", "--parts", "sensed,packets,delay"]
# A request at depth 1 waits for one delayed packet, its response or its data: one millisecond per
# millisecond. More when it waits again: NFS opens its file within the transfer, which takes three or four
# replies for 32 requests or more.
ONE_WAIT = (0.95, 1.25)
# 64 KiB are more than a command of NVMe/TCP brings along with Linux's target (16 KiB): a write waits for an
# R2T, then for the response.
TWO_WAITS = (1.9, 2.5)
# With edt, TCP has only so much under way in its own host. The part of the data that leaves a delay later
# depends on the pieces in which the server hands it over.
ONE_OR_TWO_WAITS = (0.95, 2.5)
# "close-to-linear" is the paper's claim, without a figure.
LINEAR_R2 = 0.99
# No packet of a read is delayed, except to open a file (see above).
NO_WAIT = 0.1
WRITE_WAITS = {"nvme": TWO_WAITS, "nfs": ONE_WAIT}
NAMES = {"nvme": "NVMe/TCP", "nfs": "NFS"}
WRITER = "10.0.0.11"
HOSTS = {"nvme": [f"uuid:{n:08}-1111" for n in (1, 2)], "nfs": [f"host{n}" for n in (1, 2)]}


def paces_writes(kind, message):
    """Returns true if a message paces writes, as in crates/tidegate-host/src/throttle/protocol.rs."""
    if kind == "nvme":
        return message.startswith(("PDU 0x05", "PDU 0x09"))
    return int(message.split()[2]) < 512


def lines_of(measured):
    def key(row):
        return row["classification"], row["direction"], row["block_kib"], row["depth"]

    found = {}
    for name, rows in itertools.groupby(sorted(measured["transfers"], key=key), key):
        points = sorted((row["delay_ms"], row["ms_per_io"]) for row in rows)
        found[name] = {"ms_per_io": dict(points), **fit(points)}
    return found


def judge(measured, lines):
    kind, verdict = measured["kind"], Verdict()
    verdict.within(
        "hosts that `check` names", sum(host in measured["sensed"]["check"] for host in HOSTS[kind]), 2, 2
    )
    members = measured["sensed"]["members"]
    verdict.within("members of the set while host 1 writes", len(members), 1, 1)
    verdict.within("of these, host 1", members.count(WRITER), 1, 1)
    for direction, packets in measured["packets"].items():
        pacing = [message for message in packets["messages"] if paces_writes(kind, message)]
        begin = sum(packets["begin_a_packet"][message] for message in pacing)
        if direction == "write":
            all_of_them = sum(packets["messages"][message] for message in pacing)
            verdict.within(
                "writes: messages that pace them and do not begin a packet", all_of_them - begin, most=0
            )
        elif kind == "nvme":
            verdict.within("reads: messages that pace writes and begin a packet", begin, most=0)
    for (what, direction, block, depth), line in lines.items():
        if depth != 1:
            continue  # only shown: the part of a delay that a queue hides depends on the array
        name = f"{what}, {block} KiB {direction}s at depth 1"
        if direction == "read" and what.endswith("responses"):
            verdict.within(f"{name}: ms per ms", line["slope"], most=NO_WAIT)
            continue
        waits = (
            WRITE_WAITS[kind]
            if direction == "write"
            else ONE_OR_TWO_WAITS if what.startswith("edt") else ONE_WAIT
        )
        verdict.within(f"{name}: ms per ms", line["slope"], *waits)
        verdict.within(f"{name}: R²", line["r2"], LINEAR_R2)
    # With `responses`, read data overtakes delayed packets of the same session, which TCP may take for loss.
    # These rows are only shown.
    loads = measured["loads"] + [row for row in measured.get("mixed", ()) if row["packets"] == "all"]
    verdict.within("retransmissions", sum(map(retransmitted, loads)), most=0)
    verdict.within("packets dropped", sum(load["drops"] for load in loads), most=0)
    differences = [abs((load["held_ms"] or 0) - load["delay_ms"]) for load in loads if "held_ms" in load]
    verdict.within(
        "greatest difference of an agent's delay from the wanted one, ms", max(differences), most=0
    )
    verdict.within("complaints of the agents", sum(map(len, measured["complaints"].values())), most=0)
    return verdict


def show(measured, lines):
    for direction, packets in measured["packets"].items():
        print(
            f"{direction}s: "
            + "; ".join(
                f"{count} times {name}, beginning a packet {packets['begin_a_packet'][name]} times"
                for name, count in packets["messages"].items()
            )
        )
    delays = measured["delays_ms"]
    print(
        f"{'ms per request, delay':44}" + "".join(f"{delay:8}" for delay in delays) + f"{'slope':>9}{'R²':>9}"
    )
    for (what, direction, block, depth), line in lines.items():
        times = "".join(f"{line['ms_per_io'][delay]:8.2f}" for delay in delays)
        print(
            f"{what + ', ' + direction:24}{block:4} KiB, depth {depth:3}  "
            f"{times}{line['slope']:9.3f}{line['r2']:9.5f}"
        )
    for row in measured.get("mixed", ()):
        print(
            f"reads and writes at once, depth 1, {row['packets']:9} {row['delay_ms']:3} ms: "
            + ", ".join(f"{direction}s {row[direction]['mean_ms']:.2f} ms" for direction in ("read", "write"))
            + f"; retransmissions {retransmitted(row)}, drops {row['drops']}"
        )


def run(kind, options, directory):
    out = os.path.join(directory, kind)
    status, printed, complaint = driver.run(
        "nvme-nfs-delay/guest.py",
        kind,
        *(SHORT if options.short else []),
        *options.more,
        out=out,
        binary=options.binary,
        limit=options.limit,
    )
    if status != 0:
        print(f"{kind}: lab/run ended with {status}\n{printed}{complaint}", file=sys.stderr)
        return None
    return os.path.join(out, "measured.json")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="fewer delays, depth 1 only")
    parser.add_argument("--kinds", default="nvme,nfs", help="(default: %(default)s)")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=1800, help="real seconds per run (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    parser.add_argument("more", nargs="*", help="after --: more options for guest.py")
    return parser.parse_args()


def main():
    options = arguments()
    description = driver.described()
    documents = {}
    kinds = options.kinds.split(",")
    with tempfile.TemporaryDirectory() as directory:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as machines:
            runs = list(machines.map(lambda kind: run(kind, options, directory), kinds))
        for kind, path in zip(kinds, runs):
            if path is None:
                continue
            with open(path) as file:
                measured = json.load(file)
            lines = lines_of(measured)
            verdict = judge(measured, lines)
            print(NAMES[kind])
            show(measured, lines)
            verdict.show()
            print(flush=True)
            fits = [
                dict(zip(("classification", "direction", "block_kib", "depth"), key)) | line
                for key, line in lines.items()
            ]
            documents[kind] = {**measured, "fits": fits, "verdict": verdict.rows, "met": verdict.met()}
    met = all(kind in documents and documents[kind]["met"] for kind in kinds)
    if options.out and documents:
        driver.leave(
            options.out,
            "lab-nvme-nfs-delay" + ("-short" if options.short else ""),
            {
                "experiment": "lab nvme-nfs-delay",
                "date": driver.today(),
                "short": options.short,
                **description,
                "met": met,
                "protocols": documents,
            },
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
