#!/usr/bin/env python3
"""In the guest: `tidegate agent` on an iSCSI target with two portals, and initiators that use both.

usage: guest.py [--target MS] [--burst S] [--pause S] [--depth N] [--seed N] [--only PHASE,…] [--more LINES]

Target, array and load are those of the experiment iscsi-agent, in one burst. Portals are 10.0.0.1 and
10.1.0.1. Initiator n is 10.0.0.1n and 10.1.0.1n, and has a session by each: the reader and the writers use
both paths alike. LIO shows one session of each.

   doubtful     a dry run without configured addresses: the agent's warnings of paths that LIO does not show
   unregulated  with the bursts
   paths        with the bursts and the agent, with the addresses configured
   failover     the same through dm-multipath, round-robin. A third into the burst the second network loses
                all packets
   alua         through dm-multipath and targets whose first portal is optimized by ALUA, and the second is
                not. The first network loses all packets, and all requests go on by the second. The agent has
                no addresses configured: each portal is a portal group of its own, and LIO shows its sessions
   apart        the writers have the first path only. Initiator 2 also reads from a device that no law
                regulates, over the second path
   together     the same, and that device is reached by the first portal

Leaves /out/measured.json, and the agent's log of each phase.
"""

import argparse
import contextlib
import glob
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

PHASES = ("doubtful", "unregulated", "paths", "failover", "alua", "apart", "together")
PORTALS = ("10.0.0.1", "10.1.0.1")
NETWORKS = ("10.0.0.0/24", "10.1.0.0/24")
# The initiator that uses the other device as well.
BOTH = 2
# A path that answers nothing is given up after some seconds.
TIMEOUTS = {
    "node.conn[0].timeo.noop_out_interval": 2,
    "node.conn[0].timeo.noop_out_timeout": 2,
    "node.session.timeo.replacement_timeout": 2,
}
# `multipath` of the kernel: features, handler, groups; each with a selector, and paths.
TABLES = {
    "failover": "0 {sectors} multipath 1 queue_if_no_path 0 1 1 round-robin 0 2 1 {first} 1 {second} 1",
    "alua": (
        "0 {sectors} multipath 1 queue_if_no_path 1 alua 2 1 "
        "round-robin 0 1 1 {first} 1 round-robin 0 1 1 {second} 1"
    ),
}


class Lab(iscsi.Lab):
    """Two networks over the same interfaces, a portal in each, and another device at either portal."""

    def addresses(self, number):
        return [self.address(number), f"10.1.0.{10 + number}"]

    def _make_network(self, mtu):
        super()._make_network(mtu)
        with iscsi.namespace("tgt"):
            iscsi.batch("ip", [f"address add {PORTALS[1]}/24 dev eth0"])
        iscsi.batch("ip", [f"address add {self.addresses(n)[1]}/24 dev i{n}" for n in self.numbers])

    def _export(self):
        super()._export()
        for number in self.numbers:
            with iscsi.namespace("tgt"):
                os.mkdir(f"{iscsi.TARGET}/iscsi/{self.target(number)}/tpgt_1/np/{PORTALS[1]}:3260")
        iscsi.null_block("other", 64, 1)
        store = iscsi.backstore("other", "/dev/other")
        for place, portal in enumerate(PORTALS):
            self.offer(self.other(place), store, self.initiator(BOTH), f"{portal}:3260")
        for number in self.numbers:
            self._export_by_alua(number)

    def by_alua(self, number):
        """The target with a portal group for each portal."""
        return f"iqn.2026-01.lab:alua{number}"

    def _export_by_alua(self, number):
        """Exports the same volume; the ports of the second portal are not optimized."""
        store = f"{iscsi.TARGET}/core/iblock_0/lv{number}"
        ports = f"{store}/alua/second"
        os.mkdir(ports)
        iscsi.write(f"{ports}/tg_pt_gp_id", 2)
        iscsi.write(f"{ports}/alua_access_state", 1)
        for place, portal in enumerate(PORTALS):
            self.offer(
                self.by_alua(number),
                store,
                self.initiator(number),
                f"{portal}:3260",
                place + 1,
                "second" if place else None,
            )

    def other(self, place):
        """The target of the other device at a portal."""
        return f"iqn.2026-01.lab:other{place}"

    def by(self, number, target, portal):
        """Logs in by a portal. Returns the block device."""
        before = set(glob.glob("/sys/class/iscsi_session/session*"))
        node = ["iscsiadm", "-m", "node", "-T", target, "-p", f"{portal}:3260", "-I", f"i{number}"]
        iscsi.run([*node, "-o", "new"])
        iscsi.run([*node, "--login"])

        def device():
            for path in set(glob.glob("/sys/class/iscsi_session/session*")) - before:
                for block in glob.glob(f"{path}/device/target*/*:0/block/*"):
                    return os.path.basename(block)
            return None

        name = iscsi.until(device, f"the device of initiator {number} by {portal}")
        iscsi.wait_for_disk(name)
        iscsi.write(f"/sys/block/{name}/queue/scheduler", "none")
        return f"/dev/{name}"


@contextlib.contextmanager
def multipath(lab, kind, first, second):
    """A device of dm-multipath for each initiator, over its devices by either portal."""
    iscsi.run(["modprobe", "-a", "dm-multipath", "dm-round-robin", "scsi_dh_alua"])
    devices = {}
    for number in lab.numbers:
        names = [os.path.basename(paths[number]) for paths in (first, second)]
        table = TABLES[kind].format(
            sectors=iscsi.read(f"/sys/block/{names[0]}/size"),
            **dict(zip(("first", "second"), (iscsi.read(f"/sys/block/{name}/dev") for name in names))),
        )
        iscsi.run(["dmsetup", "--noudevsync", "create", f"mp{number}", "--table", table])
        devices[number] = f"/dev/mapper/mp{number}"
    yield devices
    for number in lab.numbers:
        iscsi.run(["dmsetup", "--noudevsync", "remove", f"mp{number}"])


@contextlib.contextmanager
def lost(lab, network):
    """Drops all packets of a network, to the target and from it."""
    hooks = (("input", "saddr"), ("output", "daddr"))
    chains = "".join(
        f"chain {hook} {{ type filter hook {hook} priority 0; ip {of} {network} drop; }}\n"
        for hook, of in hooks
    )
    lab.target_exec(["nft", "-f", "-"], input=f"table inet lost {{\n{chains}}}\n")
    yield
    lab.target_exec(["nft", "delete", "table", "inet", "lost"])

    def all_are_back():
        states = [iscsi.read(path) for path in glob.glob("/sys/class/iscsi_session/session*/state")]
        return all(state == "LOGGED_IN" for state in states)

    iscsi.until(all_are_back, "the sessions to come back", 60)


def told(lab):
    """The table of addresses, after the resource's lines."""
    lines = [f'"{lab.initiator(n)}" = {json.dumps(lab.addresses(n))}' for n in lab.numbers]
    return "\n[addresses]\n" + "\n".join(lines)


def by_paths(jobs, second):
    """Moves every other job of each consumer to its second path."""
    for job in jobs:
        number, _, place = job["name"].removeprefix("w").partition("-")
        if place and int(place) % 2:
            job["filename"] = second[int(number)]
    return jobs


def measure(lab, options, second=None, other=None, devices=None, loses=None):
    """Runs the reader beside a burst of writers. Returns its latencies, and those of the other device.

    second: devices by the second portal, for half of the load. other: the other device, which initiator 2
    reads before and during the burst. devices: others for all of the load. loses: a network that loses all
    packets from a third of the burst on.
    """
    length = 2 * options.pause + options.burst
    begin = options.pause
    reader = [load.reader(lab, length)]
    if second:
        half = {"rate": "128k"}
        reader = [reader[0] | half, reader[0] | half | {"name": "reader-2", "filename": second[1]}]
    jobs = (
        reader + by_paths(load.writers(lab, options, begin, options.burst), second or {})
        if second
        else reader + load.writers(lab, options, begin, options.burst)
    )
    if devices:
        numbers = {lab.device(number): number for number in lab.numbers}
        jobs = [job | {"filename": devices[numbers[job["filename"]]]} for job in jobs]
    if other:
        jobs.append(
            {
                "name": "other",
                "filename": other,
                "rw": "randread",
                "bs": "4k",
                "iodepth": 1,
                "rate": "256k",
                "runtime": length,
                "size": "64m",
            }
        )
    before, drops, began = lab.retransmissions(), lab.drops(), load.now_ms()
    wait = lab.start_fio(jobs, log_ms=1000, randseed=options.seed)
    members, lost_at = {"before": set(), "after": set()}, None
    with contextlib.ExitStack() as stack:
        while load.now_ms() - began < 1000 * length:
            if loses and lost_at is None and load.now_ms() - began > 1000 * (begin + options.burst / 3):
                stack.enter_context(lost(lab, loses))
                lost_at = (load.now_ms() - began) / 1000
            members["after" if lost_at else "before"] |= set(kernel(lab)["members"])
            time.sleep(1)
    results = {result["name"]: result for result in wait()}
    after = lab.retransmissions()

    def latencies(name):
        return [[(at - began) / 1000, value] for at, _, value in results[name]["log"]["lat"]]

    found = {
        "seconds": load.per_second([read for job in reader for read in latencies(job["name"])]),
        "bursts": [[begin, begin + options.burst]],
        "members": sorted(members["before"] | members["after"]),
        "members_after": sorted(members["after"]),
        "lost_at": lost_at,
        "written": {
            name: result["write"]["bytes_per_s"] for name, result in results.items() if result["write"]
        },
        "retransmissions": {side: after[side]["RetransSegs"] - before[side]["RetransSegs"] for side in after},
        "drops": lab.drops() - drops,
    }
    if other:
        seconds = load.per_second(latencies("other"))
        found["other_ms"] = {
            "before": statistics.mean(value for at, value in seconds if at < begin),
            "during": statistics.mean(
                value for at, value in seconds if begin + 3 < at <= begin + options.burst
            ),
        }
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=float, default=20, help="ms (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=25)
    parser.add_argument("--pause", type=int, default=4)
    parser.add_argument(
        "--depth", type=int, default=2, help="of each of the twelve jobs (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="PHASE,…", help="only these phases")
    parser.add_argument("--more", default="", help="more lines of the resource's configuration")
    options = parser.parse_args()

    # Without tail loss probes, as in iscsi-agent: a saturated array provokes them.
    lab = Lab(initiators=4, devices=4, tail_loss_probes=False, initiator_options=TIMEOUTS)
    second = {n: lab.by(n, lab.target(n), PORTALS[1]) for n in lab.numbers}
    iscsi.run(["pin", "nft", "tc", "dmsetup", "tidegate"])
    measured = {"options": vars(options).copy(), "addresses": {str(n): lab.addresses(n) for n in lab.numbers}}

    def agent(name, more=""):
        return Agent(
            lab,
            f"auto-target-{options.target:g}-{name}",
            options.target,
            f"{options.more}{more}",
            law={"law": '"auto"'},
        )

    def leave():
        with open("/out/measured.json", "w") as file:
            json.dump(measured, file, indent=1)

    with contextlib.ExitStack() as stack:
        stack.callback(leave)
        for name in options.only.split(",") if options.only else PHASES:
            print(f"{time.monotonic():7.1f} {name}", flush=True)
            if name == "doubtful":
                with agent(name, "\ndry_run = true") as running:
                    time.sleep(2)
                    said = iscsi.read(running.log.name).splitlines()
                measured[name] = [line for line in said if "where its addresses are unknown" in line]
            elif name == "unregulated":
                measured[name] = measure(lab, options, second)
            elif name == "paths":
                with agent(name, told(lab)):
                    measured[name] = measure(lab, options, second)
            elif name == "failover":
                first = {n: lab.device(n) for n in lab.numbers}
                with multipath(lab, name, first, second) as devices, agent(name, told(lab)):
                    measured[name] = measure(lab, options, devices=devices, loses=NETWORKS[1])
            elif name == "alua":
                by = [{n: lab.by(n, lab.by_alua(n), portal) for n in lab.numbers} for portal in PORTALS]
                with multipath(lab, name, *by) as devices, agent(name):
                    measured[name] = measure(lab, options, devices=devices, loses=NETWORKS[0])
                for number, portal in ((n, portal) for n in lab.numbers for portal in PORTALS):
                    iscsi.run(
                        [
                            "iscsiadm",
                            "-m",
                            "node",
                            "-T",
                            lab.by_alua(number),
                            "-p",
                            f"{portal}:3260",
                            "-I",
                            f"i{number}",
                            "--logout",
                        ]
                    )
            else:
                place = {"apart": 1, "together": 0}[name]
                other = lab.by(BOTH, lab.other(place), PORTALS[place])
                # One path each: LIO shows all sessions.
                for number in list(second):
                    iscsi.run(
                        [
                            "iscsiadm",
                            "-m",
                            "node",
                            "-T",
                            lab.target(number),
                            "-p",
                            f"{PORTALS[1]}:3260",
                            "-I",
                            f"i{number}",
                            "--logout",
                        ]
                    )
                    del second[number]
                with agent(name):
                    measured[name] = measure(lab, options, other=other)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"iscsi-paths: {failure}")
