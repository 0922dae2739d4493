#!/usr/bin/env python3
"""In the guest: `tidegate agent` on a target of some kind, a small reader, and writers on other hosts.

usage: guest.py KIND [options], see --help

   nvme   an NVMe/TCP target (shared/protocols.py)
   nfs    an NFS server
   files  LUNs of LIO that are files, all on one XFS (shared/layouts.py)
   thin   LUNs of LIO that are thin volumes of one pool, and one resource by a pattern
   md     LUNs of LIO that are volumes on a RAID 0 of md
   tgt    LUNs of tgtd, which is no part of the kernel: its clients are those of a portal

The load (shared/bursts.py) and the array are those of iscsi-agent. In order, the last three for each seed:

   alone        the reader alone
   unregulated  with the bursts, without an agent
   pid          with the bursts and the agent, by the PID with the gains of iscsi-agent
   auto         with the bursts and the agent, by its own law

Leaves /out/measured.json, and the agent's log of each phase.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi
from bursts import WRITERS, bursts, reader
from layouts import Files, Raid, Tgt, Thin
from protocols import Nfs, Nvme
from service import ENDS_WITHIN_S, packets_throttled, unprivileged

FILE_MIB = 64
# ext4 needs some of a volume for itself.
VOLUME_MIB = 96
LAWS = {
    "pid": 'law = "pid"\nset_point = 0.8\ninterval = "100ms"\n'
    'pid = { proportional_gain = 0.5, integral_time = "200ms", greatest = "100ms" }',
    "auto": "",
}
LAYOUTS = {"files": Files, "thin": Thin, "md": Raid, "tgt": Tgt}


def kernel(lab):
    with lab.target_namespace():
        return packets_throttled()


def watch_members(lab, seen, over):
    """Collects the members of the agent's maps, until the load is over."""
    while not over.wait(1):
        seen.update(kernel(lab)["members"])


def regulated(lab, options, law):
    """The bursts beside the agent, the hosts that it throttled, and its leftovers in the kernel."""
    name = f"{law}-{options.seed}"
    path, log_path = f"/tmp/{name}.toml", f"/out/{name}.log"
    iscsi.write(path, f'[resource.vg0]\ntarget = "{options.target:g}ms"\n{lab.resource}\n{LAWS[law]}\n')
    with open(log_path, "w") as log:
        agent = lab.target_popen(
            [*unprivileged("netem"), "tidegate", "agent", "-c", path, "--log", "debug"], stderr=log
        )
        iscsi.until(lambda: "ready" in iscsi.read(log_path) or agent.poll() is not None, "the agent")
        if agent.poll() is not None:
            raise iscsi.Failed(f"the agent ended: {iscsi.read(log_path)}")
        seen, over = set(), threading.Event()
        watch = threading.Thread(target=watch_members, args=(lab, seen, over))
        watch.start()
        load = bursts(lab, options)
        over.set()
        watch.join()
        agent.send_signal(signal.SIGTERM)
        agent.wait(ENDS_WITHIN_S)
    return {**load, "members": sorted(seen), "after": kernel(lab)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["nvme", "nfs", *LAYOUTS])
    parser.add_argument("--target", type=float, default=20, help="ms (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=20)
    parser.add_argument("--pause", type=int, default=5)
    parser.add_argument("--bursts", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=4, help="jobs of each writer (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=2, help="depth of each job (default: %(default)s)")
    parser.add_argument(
        "--threads",
        type=int,
        default=64,
        help="threads of nfsd. With fewer threads than requests, reads wait for a thread, and "
        "the agent, which measures the volumes, does not see it (default: %(default)s)",
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    options = parser.parse_args()

    if options.kind == "nvme":
        lab = Nvme(hosts=4, volume_mib=VOLUME_MIB)
    elif options.kind in LAYOUTS:
        lab = LAYOUTS[options.kind](initiators=4)
    else:
        lab = Nfs(hosts=4, file_mib=lambda _: FILE_MIB, threads=options.threads, volume_mib=VOLUME_MIB)
    iscsi.run(["pin", "nft", "tc", "tidegate"])
    measured = {
        "options": vars(options).copy(),
        "writers": [lab.address(n) for n in WRITERS],
        "alone": lab.fio([reader(lab, 10)], randseed=1)[0]["read"],
        "seeds": [],
    }
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        options.seed = seed
        print(f"{time.monotonic():7.1f} seed {seed}", flush=True)
        found = {"seed": seed, "unregulated": bursts(lab, options)}
        for law in LAWS:
            found[law] = regulated(lab, options, law)
        measured["seeds"].append(found)
        with open("/out/measured.json", "w") as file:
            json.dump(measured, file, indent=1)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"target-kinds: {failure}")
