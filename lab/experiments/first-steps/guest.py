#!/usr/bin/env python3
"""In the guest: a storage administrator protects a database by the three commands of the guide's first steps.

usage: guest.py [--seed N]

The storage is an iSCSI target on LVM. Initiator 1 is the database: 4 KiB reads at random places, one after
the other, at most 64 per second. Initiators 2 to 4 write with four jobs each, from the beginning to the end.
The commands:

   tidegate init -o AGENT.TOML --protect INITIATOR --target 20ms
   tidegate agent -c AGENT.TOML        as the service starts it, with its rights and no others
   tidegate dry-run off vg0

The administrator takes no time: the time that passes is the commands' own. Without --target the proposal
would be twice the mean of reads that already suffer, and the guide says to measure at a quiet time. `init`
also runs before the writers, and its proposal at that time is in the result. Leaves /out/measured.json, the
configuration and the agent's log.
"""

import argparse
import json
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi
from service import unprivileged

CONFIGURATION = "/out/agent.toml"
SOCKET = "/out/agent.sock"
LOG = "/out/agent.log"
LENGTH_S = 150
SUFFERS_S = 20
BURST = {"rw": "write", "bs": "64k", "iodepth": 2, "size": "16m", "runtime": LENGTH_S}


def seconds_since(began):
    return round(time.monotonic() - began, 2)


def init(lab, *more):
    return lab.target_exec(["tidegate", "init", "-o", CONFIGURATION, "--protect", lab.initiator(1), *more])


def start_agent(lab):
    # The service has a folder of its own. Here the folder of the results is open to all users.
    os.chmod("/out", 0o777)
    with open(LOG, "w") as log:
        agent = lab.target_popen(
            [*unprivileged("netem"), "tidegate", "agent", "-c", CONFIGURATION], stderr=log
        )
    iscsi.until(lambda: "ready" in iscsi.read(LOG) or agent.poll() is not None, "the agent")
    if agent.poll() is not None:
        raise iscsi.Failed(f"the agent ended: {iscsi.read(LOG)}")
    return agent


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    lab = iscsi.Lab(initiators=4, devices=4, tail_loss_probes=False)
    iscsi.run(["pin", "nft", "tc", "tidegate"])

    database = {
        "name": "database",
        "filename": lab.device(1),
        "rw": "randread",
        "bs": "4k",
        "iodepth": 1,
        "rate": "256k",
        "size": "64m",
    }
    quiet = lab.start_fio([database | {"runtime": 15}], randseed=options.seed)
    measured = {
        "seed": options.seed,
        "quiet": {"said": init(lab), "configuration": iscsi.read(CONFIGURATION)},
    }
    measured["quiet"]["reads"] = quiet()[0]["read"]
    os.remove(CONFIGURATION)

    writers = [
        {"name": f"w{n}-{job}", "filename": lab.device(n), "offset": f"{16 * job}m", **BURST}
        for n in (2, 3, 4)
        for job in range(4)
    ]
    wall = time.time()
    load = lab.start_fio([database | {"runtime": LENGTH_S}, *writers], log_ms=1000, randseed=options.seed)
    time.sleep(SUFFERS_S)
    began, at = time.monotonic(), time.time()
    steps = [["init", 0.0]]
    said = [init(lab, "--target", "20ms")]
    steps.append(["agent", seconds_since(began)])
    agent = start_agent(lab)
    steps.append(["dry-run off", seconds_since(began)])
    said.append(lab.target_exec(["tidegate", "dry-run", "off", "vg0", "-c", CONFIGURATION]))
    steps.append(["done", seconds_since(began)])
    results = load()
    agent.terminate()
    agent.wait(30)
    measured |= {
        "steps": steps,
        "said": said,
        "first_command_s": at - wall,
        "configuration": iscsi.read(CONFIGURATION),
        "seconds": [[(moment - 1000 * wall) / 1000, value] for moment, _, value in results[0]["log"]["lat"]],
    }
    with open("/out/measured.json", "w") as file:
        json.dump(measured, file, indent=1)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"first-steps: {failure}")
