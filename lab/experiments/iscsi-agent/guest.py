#!/usr/bin/env python3
"""In the guest: `tidegate agent` on an iSCSI target, an NVMe/TCP target or an NFS server, a small reader, and writers on other initiators.

usage: guest.py [--kind iscsi|nvme|nfs] [--targets MS,…] [--burst S] [--pause S] [--bursts N] [--depth N] [--seed N]
                      [--only PHASE,… | --beside-static | --sweep]

Initiator 1 reads 4 KiB at random places, at most 256 KiB/s; initiators 2 to 4 write with four jobs each, all at once, in
bursts with pauses between them (the paper's figs. 12 to 16). In order:

   check        what the program says that this machine can do
   alone        the reader alone
   unregulated  with the bursts, without an agent
   rest         the agent runs and nobody is to be held: what is in the kernel
   sets         who is in the set, and when
   pairs        what twelve writers get beside an agent at rest, and without it, by turns
   target-MS    with the bursts and the agent, for each target
   edt-target-MS  the same with the throttle `edt`, for the first of the targets
   identify     `tidegate identify --relay` under the writers, and at the first target the bursts again with its gains
   p95-target-MS, window-target-MS  the same with the percentile of reads as what is steered, for the last of the targets, and with the
                window law, for the middle one
   auto-target-MS, auto-p95-target-MS  the same by the law `auto`, for each target, and by the percentile for the last
   unregulated-mixed, rate-mixed-target-MS  the same as unregulated and target-MS with the throttle `rate`, while the writers' initiators
                read by the same sessions, too: 64 KiB at random places, one after the other each
   killed       the agent is killed while it holds: what is left in the kernel two seconds later
   ended        the agent is told to end while it holds: what is left when it has
   edt-killed, edt-ended, rate-killed, rate-ended  the same with the throttles `edt` and `rate`
   hung, rate-hung  the agent is stopped while it holds, and does not die: what is left when its guardian must have noticed; and whether
                it holds again when it goes on
   removed      the agent's device is removed by somebody while it holds: whether it is there again, and what the agent says
   volume-removed  the last writer ends, its initiator logs out, and its volume is removed while the others are held: who is in the set
                and held then, and what the agent says. Comes last: the volume does not come back
   foreign      the interface has queueing disciplines, filters and rules of somebody else's: what becomes of them, and what the
                agent does, and says, with each throttle

Limits of writes (`rate`) are of LIO, and only an iSCSI volume is removed: a suite of another kind goes without these phases.

With --beside-static it is these instead, for the first target:

   unregulated, agent  with the bursts
   static       with the bursts and a delay that never changes: found by search, the least one of whole steps that keeps the target
   writers      without a reader: what writers get by themselves, beside the agent, and with that delay

With --sweep it is these, for each of --seeds, and with --mixed for both loads:

   unregulated  with the bursts
   agent        with the bursts, by the --throttle, for each target and each of --gains

Leaves /out/measured.json, and the agent's log of each phase.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi
from agent import HELD, Agent, configuration, kernel, throttle_of
from bursts import WRITERS, bursts, judged, reader, writers
from judging import KEPT, settled
from protocols import Nfs, Nvme
from service import DEVICE, unprivileged

# A guardian waits for ten seconds, and removes what is held in less than two.
HUNG_S = 12
# As the agent's greatest.
GREATEST_STATIC_MS = 100
# What `identify` says where a delay hardly changes the latency.
REFUSED = "too little of a difference"
# ext4 needs some of a volume for itself.
FILE_MIB, VOLUME_MIB = 64, 96
THREADS = 64


@contextlib.contextmanager
def static(lab, delay):
    """What an administrator would set by hand: all packets to the writers wait for that long, always."""
    lab.target_exec(
        ["tc", "-batch", "-"],
        input=f"""\
qdisc add dev eth0 root handle 1: htb
class add dev eth0 parent 1: classid 1:1 htb rate 100gbit quantum 60000
qdisc add dev eth0 parent 1:1 netem delay {delay}ms rate 100gbit limit 1000000
""",
    )
    writers = ", ".join(f"10.0.0.1{n}" for n in WRITERS)
    lab.target_exec(
        ["nft", "-f", "-"],
        input=f"""\
table inet static {{
    chain hold {{
        type filter hook postrouting priority mangle
        tcp sport 3260 ip daddr {{ {writers} }} meta priority set 1:1
    }}
}}
""",
    )
    time.sleep(1)
    yield
    lab.target_exec(["nft", "delete", "table", "inet", "static"])
    time.sleep(1)
    lab.target_exec(["tc", "qdisc", "del", "dev", "eth0", "root"])


def best_static(lab, options, target):
    """The least delay that keeps the target as the agent must keep it, by halving: every one that was tried."""
    tried, least, most = [], 0, round(GREATEST_STATIC_MS / options.static_step)
    while least + 1 < most:
        step = (least + most) // 2
        delay = step * options.static_step
        with static(lab, delay):
            tried.append({"delay_ms": delay, **judged(bursts(lab, options), target)})
        print(tried[-1], flush=True)
        least, most = (least, step) if tried[-1]["kept"] >= KEPT else (step, most)
    return tried


def beside_static(lab, options, target):
    def written():
        return sum(
            result["write"]["bytes_per_s"]
            for result in lab.fio(writers(lab, options, 0, 8), randseed=options.seed)
        )

    measured = {"options": vars(options), "unregulated": judged(bursts(lab, options), target)}
    print("unregulated", measured["unregulated"], flush=True)
    with Agent(lab, "agent", target, options.more):
        measured["agent"] = judged(bursts(lab, options), target)
    print("agent", measured["agent"], flush=True)
    measured["static"] = best_static(lab, options, target)
    keep = [tried["delay_ms"] for tried in measured["static"] if tried["kept"] >= KEPT]
    measured["writers"] = {"alone": written()}
    with Agent(lab, "writers", target, options.more):
        measured["writers"]["agent"] = written()
    if keep:
        with static(lab, min(keep)):
            measured["writers"]["static"] = written()
    return measured


def sweep(lab, options, targets):
    """Each target by each gain, beside the same load unregulated, with every seed."""
    alone = lab.fio([reader(lab, 10)], randseed=1)[0]["read"]["mean_ms"]
    measured = {"options": dict(vars(options)), "alone_ms": alone, "runs": []}
    gains = [float(gain) for gain in options.gains.split(",")] if options.gains else [None]
    for seed in range(1, options.seeds + 1):
        options.seed = seed
        for mixed in (False, True) if options.mixed else (False,):
            free = bursts(lab, options, mixed)
            for target in targets:
                for gain in gains:
                    more = (
                        options.more
                        if gain is None
                        else f"{options.more}\npid = {{ proportional_gain = {gain:g} }}"
                    )
                    name = f"{options.throttle}-{seed}-{mixed:d}-{target:g}-{gain}"
                    with Agent(lab, name, target, more, log="info"):
                        phase = bursts(lab, options, mixed)
                    found = {
                        "seed": seed,
                        "mixed": mixed,
                        "target_ms": target,
                        "gain": gain,
                        **judged(phase, target),
                        "unregulated_ms": statistics.mean(settled(free)),
                        "writers_kept": phase["written_bytes_per_s"] / free["written_bytes_per_s"],
                        "own_reads_ms": phase["writers_reads_ms"],
                        "own_reads_unregulated_ms": free["writers_reads_ms"],
                    }
                    measured["runs"].append(found)
                    print(found, flush=True)
    return measured


def watch_sets(lab, options):
    """When the writers came into the set, and when they left it. The kernel is asked as an administrator would. When they wrote is told by
    the target's volumes: fio begins later than it was asked to, by up to a second."""
    seen, counts, began = [], [], time.monotonic()

    def look():
        return round(time.monotonic() - began, 2), sum(volume["writes"] for volume in lab.volumes().values())

    def count():
        while counts[-1][0] < 22:
            time.sleep(0.05)
            counts.append(look())

    counts.append(look())
    counting = threading.Thread(target=count)
    counting.start()
    load = lab.start_fio([reader(lab, 22)] + writers(lab, options, 2, 8))
    while time.monotonic() - began < 22:
        seen.append([round(time.monotonic() - began, 2), kernel(lab)["members"]])
        time.sleep(0.25)
    load()
    counting.join()
    # The last look before the first write, and the first look after the last one.
    wrote = [
        max(at for at, count in counts if count == counts[0][1]),
        min(at for at, count in counts if count == counts[-1][1]),
    ]
    return {"wrote": wrote, "seen": seen}


def pairs(lab, options):
    """What is written beside an agent at rest and without it, by turns, in bytes per second."""

    def written():
        return sum(
            result["write"]["bytes_per_s"]
            for result in lab.fio(writers(lab, options, 0, 4), randseed=options.seed)
        )

    measured = []
    for number in range(options.pairs):
        without = written()
        with Agent(lab, f"pair-{number}", 10_000):
            measured.append([without, written()])
    return measured


def identify(lab, options, target):
    """What it found, and the phase with the gains that it proposes. On NFS the longest delay takes so little of the latency that it may
    refuse, which is told."""
    iscsi.write("/tmp/identify.toml", configuration("netem", target, options.more))
    load = lab.start_fio([reader(lab, 64)] + writers(lab, options, 1, 62))
    time.sleep(2)
    try:
        answer = lab.target_exec(
            [*unprivileged("netem"), "tidegate", "identify", "-c", "/tmp/identify.toml", "--relay", "--json"]
        )
    except iscsi.Failed as refused:
        if REFUSED not in str(refused):
            raise
        left = kernel(lab)
        lab.stop_fio(load)
        return {"refused": str(refused).rpartition("tidegate: ")[2].strip(), "after": left}, None
    found = json.loads(answer)
    left = kernel(lab)
    lab.stop_fio(load)
    gains = f'pid = {{ proportional_gain = {found["proportional_gain"]:.2f}, integral_time = "{1e3 * found["integral_time_s"]:.0f}ms" }}'
    with Agent(lab, "identified", target, f"{options.more}\n{gains}"):
        phase = bursts(lab, options)
    return {**found, "gains": gains, "after": left}, {**phase, "target_ms": target, "after": kernel(lab)}


def hold(lab, options, log, seconds=14):
    """Writes until the agent holds: then the load's result is still to be waited for."""
    load = lab.start_fio([reader(lab, seconds)] + writers(lab, options, 1, seconds - 2))
    iscsi.until(lambda: "throttled by up to" in iscsi.read(log), "the agent to hold")
    time.sleep(2)
    return load


def removed(lab, options, target):
    """Somebody removes the device that packets wait in, while they do."""
    with Agent(lab, "removed", target, options.more) as agent:
        load = hold(lab, options, agent.log.name, 14)
        during = kernel(lab)
        lab.target_exec(["ip", "link", "delete", DEVICE])
        iscsi.until(lambda: kernel(lab)["has_device"], "the device to come back")
        time.sleep(1)
        again = kernel(lab)
        load()
    return {
        "during": during,
        "again": again,
        "after": kernel(lab),
        "said": [line for line in iscsi.read(agent.log.name).splitlines() if " ERROR " in line],
    }


def volume_removed(lab, options, target):
    """A volume goes while writers are held."""
    *stay, goes = WRITERS
    with Agent(lab, "volume-removed", target, options.more) as agent:
        log = agent.log.name
        load = lab.start_fio([reader(lab, 24)] + writers(lab, options, 1, 22, stay))
        last = lab.start_fio(writers(lab, options, 1, 6, [goes]))
        iscsi.until(lambda: "throttled by up to" in iscsi.read(log), "the agent to hold")
        iscsi.until(lambda: lab.address(goes) in kernel(lab)["members"], "the last writer to be in the set")
        last()
        during = kernel(lab)
        lab.remove_volume(goes)
        began = time.monotonic()
        iscsi.until(lambda: lab.address(goes) not in kernel(lab)["members"], "who is gone to leave the set")
        left_s = time.monotonic() - began
        time.sleep(1)
        then = kernel(lab)
        load()
        alive = agent.process.poll() is None
    return {
        "during": during,
        "then": then,
        "after": kernel(lab),
        "left_s": left_s,
        "alive": alive,
        "said": [line for line in iscsi.read(log).splitlines() if " ERROR " in line],
    }


def foreign(lab, options, target):
    """What becomes of somebody else's, and what each throttle of packets does and says there."""
    measured = {}
    lab.target_exec(
        ["tc", "-batch", "-"],
        input="""\
qdisc add dev eth0 root handle 1: pfifo limit 5000
qdisc add dev eth0 clsact
filter add dev eth0 egress protocol all matchall action pass
""",
    )
    lab.target_exec(
        ["nft", "-f", "-"],
        input="""\
table netdev site { chain out { type filter hook egress device "eth0" priority 10; counter accept; }; }
table inet site { chain out { type filter hook postrouting priority mangle; counter accept; }; }
""",
    )
    before = kernel(lab)
    for throttle in ("netem", "edt"):
        with Agent(lab, f"{throttle}-foreign", target, options.more) as agent:
            log = agent.log.name
            load = lab.start_fio([reader(lab, 8)] + writers(lab, options, 1, 6))
            iscsi.until(lambda: "throttled by up to" in iscsi.read(log), "the agent to want to hold")
            time.sleep(1)
            during = kernel(lab)
            load()
        measured[f"foreign-{throttle}"] = {
            "before": before,
            "during": during,
            "after": kernel(lab),
            "said": [line for line in iscsi.read(log).splitlines() if " ERROR " in line],
        }
    return measured


def made(kind):
    """The array behind a target, and its initiators."""
    if kind == "nvme":
        return Nvme(hosts=4)
    if kind == "nfs":
        return Nfs(hosts=4, file_mib=lambda _: FILE_MIB, threads=THREADS, volume_mib=VOLUME_MIB)
    # Without tail loss probes: a saturated array answers later than TCP expects, and it would send again for nothing.
    return iscsi.Lab(initiators=4, devices=4, tail_loss_probes=False)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", default="iscsi", choices=["iscsi", "nvme", "nfs"])
    parser.add_argument("--targets", default="15,20,30")
    parser.add_argument("--burst", type=int, default=20)
    parser.add_argument("--pause", type=int, default=5)
    parser.add_argument("--bursts", type=int, default=2)
    parser.add_argument(
        "--depth", type=int, default=2, help="of each of the twelve jobs (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pairs", type=int, default=4, help="with and without the agent (default: %(default)s)"
    )
    parser.add_argument(
        "--short", action="store_true", help="of the throttle `edt` only what is left when it is killed"
    )
    parser.add_argument(
        "--only",
        metavar="PHASE,…",
        help="these phases, of a full run's, and `alone` and `unregulated` before them",
    )
    parser.add_argument(
        "--beside-static", action="store_true", help="the agent beside the best delay that never changes"
    )
    parser.add_argument(
        "--static-step",
        type=float,
        default=2.5,
        metavar="MS",
        help="how finely that is searched (default: %(default)s)",
    )
    parser.add_argument("--sweep", action="store_true", help="targets and gains over seeds, and nothing else")
    parser.add_argument(
        "--throttle", default="netem", choices=list(HELD), help="of the sweep (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=10, help="of the sweep (default: %(default)s)")
    parser.add_argument(
        "--gains", default="", metavar="K_P,…", help="of the sweep's PID (default: the agent's own)"
    )
    parser.add_argument("--mixed", action="store_true", help="the sweep also with writers who read")
    parser.add_argument("--more", default="", help="more lines of the resource's configuration")
    options = parser.parse_args()
    targets = [float(target) for target in options.targets.split(",")]

    lab = made(options.kind)
    iscsi.run(["pin", "nft", "tc", "tidegate"])
    iscsi.run(["touch", *iscsi.NFT_LOOKS_FOR])
    if options.beside_static or options.sweep:
        measured = sweep(lab, options, targets) if options.sweep else beside_static(lab, options, targets[0])
        with open("/out/measured.json", "w") as file:
            json.dump(measured, file, indent=1)
        return
    measured = {"options": vars(options), "before": kernel(lab)}

    def phase(name):
        print(f"{time.monotonic():7.1f} {name}", flush=True)

    def wanted(name):
        is_there = options.kind == "iscsi" or not (name.startswith("rate-") or name == "volume-removed")
        return is_there and (options.only is None or name in options.only.split(","))

    if wanted("check"):
        phase("check")
        measured["check"] = json.loads(lab.target_exec(["tidegate", "check", "--json"]))["machine"]
    phase("alone")
    measured["alone"] = lab.fio([reader(lab, 10)], randseed=options.seed)[0]["read"]
    phase("unregulated")
    measured["unregulated"] = bursts(lab, options)

    if wanted("rest"):
        phase("rest")
        with Agent(lab, "rest", 10_000):
            measured["rest"] = {"begin": kernel(lab)}
            lab.fio([reader(lab, 3)])
            measured["rest"]["end"] = kernel(lab)
            phase("sets")
            measured["sets"] = watch_sets(lab, options)
        measured["rest"]["after"] = kernel(lab)
    if wanted("pairs"):
        phase("pairs")
        measured["pairs"] = pairs(lab, options)

    regulated = [f"target-{target:g}" for target in targets] + [f"auto-target-{targets[0]:g}"]
    if not options.short:
        regulated.append(f"edt-{regulated[0]}")
        regulated.append(f"rate-{regulated[0]}")
        regulated.append(f"p95-target-{targets[-1]:g}")
        regulated.append(f"window-target-{targets[len(targets) // 2]:g}")
        regulated += [f"auto-target-{target:g}" for target in targets[1:]]
        regulated.append(f"auto-p95-target-{targets[-1]:g}")
    mixed = f"rate-mixed-{regulated[0]}"
    if wanted(mixed):
        phase("unregulated-mixed")
        measured["unregulated-mixed"] = bursts(lab, options, mixed=True)
        regulated.append(mixed)
    for name in filter(wanted, regulated):
        target = float(name.split("-")[-1])
        phase(name)
        with Agent(lab, name, target, options.more):
            measured[name] = bursts(lab, options, mixed="mixed" in name, each_read="p95-" in name)
        measured[name]["after"] = kernel(lab)

    if wanted("identify"):
        phase("identify")
        measured["identify"], identified = identify(lab, options, targets[0])
        measured.update({"identified": identified} if identified else {})

    ends = [
        ("killed", signal.SIGKILL, 2, 14),
        ("ended", signal.SIGTERM, 0, 14),
        ("edt-killed", signal.SIGKILL, 2, 8),
        ("rate-killed", signal.SIGKILL, 2, 8),
    ]
    if not options.short:
        ends += [("edt-ended", signal.SIGTERM, 0, 8), ("rate-ended", signal.SIGTERM, 0, 8)]
    for name, with_signal, wait, seconds in ends:
        if not wanted(name):
            continue
        phase(name)
        with Agent(lab, name, targets[0], options.more) as agent:
            load = hold(lab, options, f"/out/{name}.log", seconds)
            during = kernel(lab)
            agent.end(with_signal)
            time.sleep(wait)
            measured[name] = {"during": during, "after": kernel(lab)}
            load()

    if not options.short:
        for name in filter(wanted, ("hung", "rate-hung")):
            phase(name)
            with Agent(lab, name, targets[0], options.more) as agent:
                load = hold(lab, options, f"/out/{name}.log", 22)
                during = kernel(lab)
                agent.process.send_signal(signal.SIGSTOP)
                time.sleep(HUNG_S)
                measured[name] = {"during": during, "after": kernel(lab)}
                agent.process.send_signal(signal.SIGCONT)
                iscsi.until(lambda: HELD[throttle_of(name)](kernel(lab)), "the agent to hold again")
                load()

        if wanted("removed"):
            phase("removed")
            measured["removed"] = removed(lab, options, targets[0])

    if wanted("foreign"):
        phase("foreign")
        measured.update(foreign(lab, options, targets[0]))

    if not options.short and wanted("volume-removed"):
        phase("volume-removed")
        if "foreign" in (options.only or "foreign").split(","):
            lab.target_exec(["tc", "qdisc", "delete", "dev", "eth0", "root"])
            lab.target_exec(["tc", "qdisc", "delete", "dev", "eth0", "clsact"])
            for family in ("netdev", "inet"):
                lab.target_exec(["nft", "delete", "table", family, "site"])
        measured["volume-removed"] = volume_removed(lab, options, targets[0])

    with open("/out/measured.json", "w") as file:
        json.dump(measured, file, indent=1)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"iscsi-agent: {failure}")
