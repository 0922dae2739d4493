#!/usr/bin/env python3
"""In the guest: `tidegate agent` on an iSCSI target, a small reader, and bulk consumers that have weights.

usage: guest.py [--target MS] [--burst S] [--pause S] [--jobs N] [--depth N] [--seeds N] [--first-seed N]
                      [--throttle METHOD] [--weights N,N,N] [--only PHASE,…] [--more LINES]

Target, array and reader are those of the experiment iscsi-agent: initiator 1 reads 4 KiB at random places, at
most 256 KiB/s. Initiators 2 to 4 write 64 KiB in one burst. For each seed:

   unregulated  without an agent
   alike        the agent, without weights
   weighted     the agent, with the weights
   reads        initiators 2 to 4 read instead of writing, and the agent finds bulk readers: consumers that it
                ever throttled
   reads-weighted
                the same, with the weights

The law is `auto`. Leaves /out/measured.json, and the agent's log of each phase.
"""

import argparse
import contextlib
import json
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import bursts as load
import iscsi
from agent import Agent, kernel

PHASES = ("unregulated", "alike", "weighted", "reads", "reads-weighted")
# The reader has 256 KiB/s.
READERS = 'readers = { above = "1MiB/s" }'


def bulk(lab, options, direction):
    """The jobs of initiators 2 to 4, all at once. Offsets are as far apart as in iscsi-agent."""
    kind = {"write": {"rw": "write"}, "read": {"rw": "randread"}}[direction]
    return [
        {
            "name": f"{n}-{job}",
            "filename": lab.device(n),
            **kind,
            "bs": "64k",
            "iodepth": options.depth,
            "offset": f"{16 * job}m",
            "size": "16m",
            "startdelay": options.pause,
            "runtime": options.burst,
        }
        for n in load.WRITERS
        for job in range(options.jobs)
    ]


def measure(lab, options, direction, seed):
    """The reader's latency per second, and the bytes of each other consumer in each second of the burst."""
    length = 2 * options.pause + options.burst
    before, drops, began = lab.retransmissions(), lab.drops(), load.now_ms()
    begun = lab.start_fio(
        [load.reader(lab, length)] + bulk(lab, options, direction), log_ms=1000, randseed=seed
    )
    members = set()
    while load.now_ms() - began < 1000 * length:
        members |= set(kernel(lab)["members"])
        time.sleep(1)
    results = begun()
    after = lab.retransmissions()
    moved = {}
    for result in results[1:]:
        consumer = moved.setdefault(result["name"].partition("-")[0], {})
        for at, _, kib in result["log"]["bw"]:
            second = int((at - began) / 1000) + 1
            consumer[second] = consumer.get(second, 0) + 1024 * kib
    return {
        "seconds": load.per_second(
            [[(at - began) / 1000, value] for at, _, value in results[0]["log"]["lat"]]
        ),
        "bursts": [[options.pause, options.pause + options.burst]],
        "moved": {consumer: sorted(seconds.items()) for consumer, seconds in moved.items()},
        "members": sorted(members),
        "retransmissions": {side: after[side]["RetransSegs"] - before[side]["RetransSegs"] for side in after},
        "drops": lab.drops() - drops,
    }


def phase(lab, options, name, seed):
    if name == "unregulated":
        return measure(lab, options, "write", seed)
    lines = [options.more]
    if "weighted" in name:
        weights = zip(load.WRITERS, options.weights.split(","))
        lines.append(
            "weights = { %s }" % ", ".join(f'"{lab.initiator(n)}" = {weight}' for n, weight in weights)
        )
    if name.startswith("reads"):
        lines.append(READERS)
    prefix = "" if options.throttle == "netem" else f"{options.throttle}-"
    with Agent(
        lab,
        f"{prefix}auto-target-{options.target:g}-{name}-{seed}",
        options.target,
        "\n".join(lines),
        law={"law": '"auto"'},
    ):
        return measure(lab, options, "read" if name.startswith("reads") else "write", seed)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=float, default=20, help="ms (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=30)
    parser.add_argument("--pause", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=3, help="of each bulk consumer (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=2, help="of each of them (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--throttle", default="netem", choices=["netem", "edt", "rate"])
    parser.add_argument("--weights", default="4,2,1", help="of initiators 2 to 4 (default: %(default)s)")
    parser.add_argument("--only", metavar="PHASE,…", help="only these phases")
    parser.add_argument("--more", default="", help="more lines of the resource's configuration")
    options = parser.parse_args()

    # Without tail loss probes, as in iscsi-agent: a saturated array provokes them.
    lab = iscsi.Lab(initiators=4, devices=4, tail_loss_probes=False)
    iscsi.run(["pin", "nft", "tc", "tidegate"])
    measured = {
        "options": vars(options),
        "addresses": {str(n): lab.address(n) for n in lab.numbers},
        "seeds": [],
    }

    def leave():
        with open("/out/measured.json", "w") as file:
            json.dump(measured, file, indent=1)

    with contextlib.ExitStack() as stack:
        stack.callback(leave)
        measured["alone"] = lab.fio([load.reader(lab, 10)], randseed=options.first_seed)[0]["read"]
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            measured["seeds"].append({"seed": seed})
            for name in options.only.split(",") if options.only else PHASES:
                # The throttle `rate` limits no reads.
                if name.startswith("reads") and options.throttle == "rate":
                    continue
                print(f"{time.monotonic():7.1f} {name} {seed}", flush=True)
                measured["seeds"][-1][name] = phase(lab, options, name, seed)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"iscsi-weights: {failure}")
