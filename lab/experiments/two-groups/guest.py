#!/usr/bin/env python3
"""In the guest: `tidegate agent` on an iSCSI target with two volume groups, each with a target of its own.

usage: guest.py [--targets MS,MS] [--burst S] [--pause S] [--depth N] [--seeds N] [--first-seed N]
                [--only PHASE,…]

vg0 and vg1 have four servers each, all behind one portal. Initiator 1 reads from vg0 and initiator 4 from
vg1, 4 KiB at random places, at most 256 KiB/s. Initiators 2 and 3 write to vg0, initiators 5 and 6 to vg1.
Initiator 3 also writes to vg1: it is shared. In order, for each seed:

   unregulated  all writers write, without the agent
   both         all writers write, and the agent runs
   one          the agent runs, and only vg0 is written to; the shared initiator also reads from vg1, 4 KiB at
                random places: the latency of its reads because of the overload of vg0

Leaves /out/measured.json, and the agent's log of each phase.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import bursts as load
import iscsi
from agent import Agent, kernel

PHASES = ("unregulated", "both", "one")
GROUPS = {"vg0": {"reader": 1, "writers": (2, 3)}, "vg1": {"reader": 4, "writers": (5, 6)}}
SHARED = 3
SERVERS = 4
JOBS = 4


class Lab(iscsi.Lab):
    """Volumes 1 to 3 are in vg0, the others in vg1. `shared` is one more of vg1, for the shared initiator."""

    def group(self, number):
        return "vg0" if number <= 3 else "vg1"

    def backing(self, number):
        return f"/dev/{self.group(number)}/lv{number}"

    def volume(self, number):
        return f"{self.group(number)}-lv{number}"

    def _disks(self, devices):
        self._others = devices[SERVERS:]
        return devices[:SERVERS]

    def _volumes(self, disks, volume_mib):
        make = f"lvcreate -y -Wn -Zn -i {SERVERS} -I 64k -L {volume_mib}m"
        return [
            f"vgcreate -y vg1 {' '.join(self._others)}",
            *(f"{make} -n lv{number} {self.group(number)}" for number in self.numbers),
            f"{make} -n shared vg1",
        ]

    def _export(self):
        super()._export()
        self.offer(
            self.target("shared"),
            iscsi.backstore("shared", "/dev/vg1/shared"),
            self.initiator(SHARED),
            self.portal,
        )

    def _node(self, number):
        node = super()._node(number)
        return node[:-1] + [f"i{SHARED}"] if number == "shared" else node


def jobs_of(lab, options, name, begin):
    """The jobs of the readers, and of the initiators that write in this phase."""
    length = 2 * options.pause + options.burst
    read = {"rw": "randread", "bs": "4k", "iodepth": 1, "rate": "256k", "runtime": length, "size": "64m"}
    jobs = [
        {"name": group, "filename": lab.device(hosts["reader"]), **read} for group, hosts in GROUPS.items()
    ]
    volumes = [
        number
        for group, hosts in GROUPS.items()
        for number in hosts["writers"]
        if name != "one" or group == "vg0"
    ]
    volumes += ["shared"] if name != "one" else []
    jobs += [
        {
            "name": f"w{number}-{job}",
            "filename": lab.device(number),
            "rw": "write",
            "bs": "64k",
            "iodepth": options.depth,
            "offset": f"{16 * job}m",
            "size": "16m",
            "startdelay": begin,
            "runtime": options.burst,
        }
        for number in volumes
        for job in range(JOBS)
    ]
    if name == "one":
        jobs.append({"name": "shared", "filename": lab.device("shared"), **read})
    return jobs, length


def measure(lab, options, name, seed):
    begin = options.pause
    jobs, length = jobs_of(lab, options, name, begin)
    before, drops, began = lab.retransmissions(), lab.drops(), load.now_ms()
    wait = lab.start_fio(jobs, log_ms=1000, randseed=seed)
    members = set()
    while load.now_ms() - began < 1000 * length:
        members |= set(kernel(lab)["members"])
        time.sleep(1)
    results = {result["name"]: result for result in wait()}
    after = lab.retransmissions()

    def seconds(job):
        return load.per_second([[(at - began) / 1000, value] for at, _, value in results[job]["log"]["lat"]])

    written = {}
    for job, result in results.items():
        if result["write"]:
            written[job.split("-")[0]] = written.get(job.split("-")[0], 0) + result["write"]["bytes_per_s"]
    found = {
        "readers": {
            group: {"seconds": seconds(group), "bursts": [[begin, begin + options.burst]]} for group in GROUPS
        },
        "written": written,
        "members": sorted(members),
        "retransmissions": {side: after[side]["RetransSegs"] - before[side]["RetransSegs"] for side in after},
        "drops": lab.drops() - drops,
    }
    if name == "one":
        shared = seconds("shared")
        found["shared_ms"] = {
            "before": statistics.mean(value for at, value in shared if at < begin),
            "during": statistics.mean(
                value for at, value in shared if begin + 3 < at <= begin + options.burst
            ),
        }
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", default="20,30", help="ms, of vg0 and of vg1 (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=25)
    parser.add_argument("--pause", type=int, default=4)
    parser.add_argument(
        "--depth", type=int, default=2, help="depth of each job, four jobs to a writer (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--only", metavar="PHASE,…", help="these phases")
    options = parser.parse_args()
    first, second = map(float, options.targets.split(","))

    # Without tail loss probes, as in iscsi-agent: a saturated array provokes them.
    lab = Lab(initiators=6, devices=2 * SERVERS, tail_loss_probes=False)
    lab.log_in("shared")
    iscsi.run(["pin", "nft", "tc", "tidegate"])
    measured = {
        "options": vars(options),
        "seeds": [],
        "writers": {
            group: sorted({lab.address(n) for n in hosts["writers"]} | {lab.address(SHARED)})
            for group, hosts in GROUPS.items()
        },
    }

    def leave():
        with open("/out/measured.json", "w") as file:
            json.dump(measured, file, indent=1)

    with contextlib.ExitStack() as stack:
        stack.callback(leave)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            measured["seeds"].append({"seed": seed})
            for name in options.only.split(",") if options.only else PHASES:
                print(f"{time.monotonic():7.1f} {name} {seed}", flush=True)
                with contextlib.ExitStack() as phase:
                    if name != "unregulated":
                        more = f'\n[resource.vg1]\ntarget = "{second:g}ms"\n'
                        phase.enter_context(
                            Agent(
                                lab,
                                f"auto-target-{first:g}-{name}-{seed}",
                                first,
                                more,
                                law={"law": '"auto"'},
                            )
                        )
                    measured["seeds"][-1][name] = measure(lab, options, name, seed)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"two-groups: {failure}")
