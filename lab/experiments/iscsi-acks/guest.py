#!/usr/bin/env python3
"""In the guest: the throttle of Bjørgeengen's paper, in a closed loop.

usage: guest.py [options], see --help

Windows are of 128 KiB, and only acknowledgements are delayed. Load and array are those of iscsi-agent
(shared/bursts.py). The agent decides by the PID, in a dry run. This program carries its decisions out:
packets to the writers without payload wait in netem. In order, the last two for each seed:

   alone        the reader alone
   unregulated  with the bursts
   acks         with the bursts, and the delay

Leaves /out/measured.json, and the agent's log of each phase.
"""

import argparse
import contextlib
import json
import os
import re
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi
from bursts import WRITERS, bursts, reader
from service import ENDS_WITHIN_S, unprivileged

WINDOW = 128 << 10
# 20 bytes each of IPv4 and TCP, 12 of timestamps: 52. Three SACK blocks more: 80. A PDU is at least 48 bytes
# of payload.
PURE_ACK_IP_BYTES = 80
# The paper's longest class.
GREATEST_MS = 20
CONFIGURATION = """\
[resource.vg0]
target = "{target:g}ms"
law = "pid"
set_point = 0.8
interval = "100ms"
pid = {{ proportional_gain = 0.5, integral_time = "200ms", greatest = "{greatest}ms" }}
"""
WANTED = re.compile(r"by up to ([\d.]+)(ms|us|µs|s)\b")
MILLISECONDS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "µs": 1e-3}
FOLLOWS_S = 0.05


class AckDelay(threading.Thread):
    """Delays acknowledgements to the writers as the agent's log says."""

    def __init__(self, lab, log):
        super().__init__(daemon=True)
        self.lab, self.log = lab, log
        self.ended, self.used = threading.Event(), []

    def __enter__(self):
        writers = ", ".join(self.lab.address(n) for n in WRITERS)
        acks = f"tcp sport 3260 tcp flags & (fin|syn|rst) == 0x0 ip length <= {PURE_ACK_IP_BYTES}"
        with self.lab.target_namespace():
            iscsi.batch(
                "tc",
                [
                    "qdisc add dev eth0 root handle 1: htb default 0",
                    "class add dev eth0 parent 1: classid 1:1 htb rate 100gbit quantum 60000",
                    f"qdisc add dev eth0 parent 1:1 {self.netem(0)}",
                ],
            )
            iscsi.run(
                ["nft", "-f", "-"],
                f"""table inet lab {{
                chain output {{
                    type filter hook output priority mangle;
                    {acks} ip daddr {{ {writers} }} meta priority set 1:1
                }}
            }}""",
            )
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()
        with self.lab.target_namespace():
            iscsi.run(["nft", "delete", "table", "inet", "lab"])
            iscsi.run(["tc", "qdisc", "del", "dev", "eth0", "root"])

    @staticmethod
    def netem(delay):
        # With a rate, packets keep their order when the delay changes.
        return f"handle 11: netem limit 100000 delay {delay:.1f}ms rate 100gbit"

    def run(self):
        delay, lines = 0.0, open(self.log)
        with contextlib.closing(lines):
            while not self.ended.wait(FOLLOWS_S):
                wanted = delay
                for line in lines.read().splitlines():
                    if " DEBUG vg0" in line:
                        found = WANTED.search(line)
                        wanted = float(found[1]) * MILLISECONDS[found[2]] if found else 0.0
                if wanted != delay:
                    delay = wanted
                    self.lab.target_exec(
                        ["tc", "qdisc", "change", "dev", "eth0", "parent", "1:1", *self.netem(delay).split()]
                    )
                self.used.append(delay)


def regulated(lab, options):
    name = f"acks-{options.seed}"
    path, log_path = f"/tmp/{name}.toml", f"/out/{name}.log"
    iscsi.write(path, CONFIGURATION.format(target=options.target, greatest=GREATEST_MS))
    with open(log_path, "w") as log:
        agent = lab.target_popen(
            [*unprivileged("netem"), "tidegate", "agent", "-c", path, "--dry-run", "--log", "debug"],
            stderr=log,
        )
        iscsi.until(lambda: "ready" in iscsi.read(log_path) or agent.poll() is not None, "the agent")
        if agent.poll() is not None:
            raise iscsi.Failed(f"the agent ended: {iscsi.read(log_path)}")
        with AckDelay(lab, log_path) as delay:
            phase = bursts(lab, options)
        agent.terminate()
        agent.wait(ENDS_WITHIN_S)
    used = [used for used in delay.used if used]
    return {
        **phase,
        "delay_ms": {
            "mean": sum(used) / max(len(used), 1),
            "greatest": max(delay.used),
            "at_the_greatest": sum(used >= GREATEST_MS for used in delay.used) / max(len(delay.used), 1),
        },
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=float, default=20, help="ms (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=20)
    parser.add_argument("--pause", type=int, default=5)
    parser.add_argument("--bursts", type=int, default=2)
    parser.add_argument(
        "--depth", type=int, default=2, help="of each of the twelve jobs (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    options = parser.parse_args()
    lab = iscsi.Lab(initiators=4, devices=4, tail_loss_probes=False, window=WINDOW)
    iscsi.run(["pin", "nft", "tc", "tidegate"])
    measured = {
        "options": vars(options).copy(),
        "alone": lab.fio([reader(lab, 10)], randseed=1)[0]["read"],
        "seeds": [],
    }
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        options.seed = seed
        print(f"{time.monotonic():7.1f} seed {seed}", flush=True)
        measured["seeds"].append(
            {"seed": seed, "unregulated": bursts(lab, options), "acks": regulated(lab, options)}
        )
        with open("/out/measured.json", "w") as file:
            json.dump(measured, file, indent=1)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"iscsi-acks: {failure}")
