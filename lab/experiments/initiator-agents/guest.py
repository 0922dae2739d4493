#!/usr/bin/env python3
"""In the guest: initiators that report their latency, and `tidegate agent` on their iSCSI target.

usage: guest.py [--target MS] [--burst S] [--pause S] [--link MBIT] [--seed N] [--only PHASE,…] [--more LINES]

The target is that of the experiment iscsi-agent, with disks that answer in 0.2 ms. The link to its portal is
slow: writes queue in front of it, and so do the requests of readers. Initiators 1 and 2 read a little and
have an agent. Initiator 3 writes 2 MiB/s and has an agent. Initiators 4 to 6 write as much as they can, and
have none.

   unregulated  with the burst
   alone        with the burst, and the target's agent, which steers by the target's disks
   reports      with the burst, and agents on both sides: initiators report, and consumers without an agent
                are throttled first

Leaves /out/measured.json, and the agents' logs of each phase.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import bursts as load
import iscsi
from agent import Agent, kernel
from judging import LEFT_OUT_S

PHASES = ("unregulated", "alone", "reports")
WITH_AGENT = (1, 2, 3)
READERS = (1, 2)
STEADY, BULK = 3, (4, 5, 6)
# The jobs of each bulk writer, with one write outstanding each.
JOBS = 4
KEY = "/tmp/cluster.key"
PORT = 7710
# Never full: nothing is lost in front of the link.
QUEUE = "8mb"


def cluster(host, address, peers):
    listed = ", ".join(f'"{peer}:{PORT}"' for peer in peers)
    return f"""
[cluster]
name = "lab"
host = "{host}"
carrier = {{ kind = "udp", listen = "{address}:{PORT}", peers = [{listed}], key_file = "{KEY}" }}
"""


def congest(mbit):
    """Slows the link from the switch to the target."""
    with iscsi.namespace("switch"):
        iscsi.run(
            [
                "tc",
                "qdisc",
                "add",
                "dev",
                "p0",
                "root",
                "tbf",
                "rate",
                f"{mbit}mbit",
                "burst",
                "32kb",
                "limit",
                QUEUE,
            ]
        )


class Reporters:
    """`tidegate agent` of each initiator that has one, with its own address and device."""

    def __init__(self, lab):
        self.processes = []
        for number in WITH_AGENT:
            path, log = f"/tmp/initiator{number}.toml", f"/out/initiator{number}.log"
            device = os.path.basename(lab.device(number))
            section = cluster(lab.initiator(number), lab.address(number), ["10.0.0.1"])
            iscsi.write(path, f'{section}\n[report_to.vg0]\ndevice = "{device}"\n')
            with open(log, "w") as file:
                self.processes.append(subprocess.Popen(["tidegate", "agent", "-c", path], stderr=file))
            iscsi.until(lambda log=log: "ready" in iscsi.read(log), f"the agent of initiator {number}")

    def end(self):
        for process in self.processes:
            process.terminate()
            process.wait(60)


def measure(lab, options):
    """Runs two readers beside a burst. Returns their latencies, and the consumers throttled meanwhile."""
    length, begin = 2 * options.pause + options.burst, options.pause
    jobs = [load.reader(lab, length) | {"name": f"reader{n}", "filename": lab.device(n)} for n in READERS]
    jobs.append(
        {
            "name": "steady",
            "filename": lab.device(STEADY),
            "rw": "write",
            "bs": "64k",
            "iodepth": 1,
            "rate": "2m",
            "runtime": length,
            "size": "64m",
        }
    )
    jobs += [
        {
            "name": f"bulk{n}-{job}",
            "filename": lab.device(n),
            "rw": "write",
            "bs": "64k",
            "iodepth": 1,
            "offset": f"{16 * job}m",
            "size": "16m",
            "startdelay": begin,
            "runtime": options.burst,
        }
        for n in BULK
        for job in range(JOBS)
    ]
    drops, volumes, began = lab.drops(), lab.volumes(), load.now_ms()
    wait = lab.start_fio(jobs, log_ms=1000, randseed=options.seed)
    members = set()
    while load.now_ms() - began < 1000 * length:
        # Before the burst, the writer with an agent is the only one that is eligible.
        if LEFT_OUT_S < (load.now_ms() - began) / 1000 - begin < options.burst:
            members |= set(kernel(lab)["members"])
        time.sleep(1)
    results = {result["name"]: result for result in wait()}
    counted = lab.volumes()
    disk = [counted[lab.volume(n)]["read_ms"] - volumes[lab.volume(n)]["read_ms"] for n in READERS]
    reads = [counted[lab.volume(n)]["reads"] - volumes[lab.volume(n)]["reads"] for n in READERS]
    rows = {
        n: [[(at - began) / 1000, value] for at, _, value in results[f"reader{n}"]["log"]["lat"]]
        for n in READERS
    }
    bulk = [results[f"bulk{n}-{job}"]["write"] for n in BULK for job in range(JOBS)]
    return {
        "readers": {str(n): load.per_second(rows[n]) for n in READERS},
        "bursts": [[begin, begin + options.burst]],
        "members": sorted(members),
        "steady_bytes_per_s": results["steady"]["write"]["bytes_per_s"],
        "bulk_bytes_per_s": sum(written["bytes"] for written in bulk) / options.burst,
        "at_the_disks_ms": sum(disk) / max(sum(reads), 1),
        "drops": lab.drops() - drops,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=float, default=20, help="ms (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=60)
    parser.add_argument("--pause", type=int, default=4)
    parser.add_argument("--link", type=int, default=100, help="Mbit/s (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="PHASE,…", help="only these phases")
    parser.add_argument("--more", default="", help="more lines of the resource's configuration")
    options = parser.parse_args()

    # Without tail loss probes, as in iscsi-agent: a saturated link provokes them.
    lab = iscsi.Lab(initiators=6, devices=4, service_ms=0.2, tail_loss_probes=False)
    iscsi.write(KEY, "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0MTI=")
    os.chmod(KEY, 0o644)
    iscsi.run(["pin", "nft", "tc", "tidegate"])
    congest(options.link)
    measured = {"options": vars(options), "addresses": {str(n): lab.address(n) for n in lab.numbers}}

    def agent(name, more=""):
        return Agent(
            lab,
            f"{name}-target-{options.target:g}",
            options.target,
            f"{options.more}{more}",
            law={"law": '"pid"'},
        )

    def leave():
        with open("/out/measured.json", "w") as file:
            json.dump(measured, file, indent=1)

    with contextlib.ExitStack() as stack:
        stack.callback(leave)
        for name in options.only.split(",") if options.only else PHASES:
            print(f"{time.monotonic():7.1f} {name}", flush=True)
            if name == "unregulated":
                measured[name] = measure(lab, options)
            elif name == "alone":
                with agent(name):
                    measured[name] = measure(lab, options)
            else:
                peers = [lab.address(n) for n in WITH_AGENT]
                reporters = Reporters(lab)
                reports = '\nreports = { without_agent = "first" }\n'
                with agent(name, reports + cluster("target", "10.0.0.1", peers)):
                    time.sleep(2)
                    measured[name] = measure(lab, options)
                reporters.end()
            print(
                json.dumps({key: value for key, value in measured[name].items() if key != "readers"}),
                flush=True,
            )
            for n, seconds in measured[name]["readers"].items():
                print(
                    n,
                    statistics.mean(value for _, value in seconds),
                    " ".join(f"{value:.1f}" for _, value in seconds),
                    flush=True,
                )


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"initiator-agents: {failure}")
