#!/usr/bin/env python3
"""In the guest: `tidegate agent` on an iSCSI target, an NVMe/TCP target or an NFS server.

usage: guest.py [--kind iscsi|nvme|nfs] [--targets MS,…] [--burst S] [--pause S] [--bursts N] [--depth N]
                      [--seed N] [--only PHASE,… | --beside-static | --sweep]

Initiator 1 is a small reader: 4 KiB at random places, at most 256 KiB/s. Initiators 2 to 4 write with four
jobs each, all at once, in bursts with pauses between them (the paper's figs. 12 to 16). In order:

   check        the program's report of this machine's capabilities
   alone        the reader alone
   unregulated  with the bursts, without an agent
   rest         the agent runs and has nothing to throttle: the contents of the kernel
   sets         the members of the set, and the times at which they join and leave
   pairs        the throughput of twelve writers beside an agent at rest, and without it, by turns
   target-MS    with the bursts and the agent, for each target
   edt-target-MS
                the same with the throttle `edt`, for the first of the targets
   identify     `tidegate identify --relay` under the writers, and the bursts again with its gains at the
                first target
   p95-target-MS, window-target-MS
                the same with the percentile of reads as the signal, for the last of the targets. And the same
                with the window law, for the middle one
   auto-target-MS, auto-p95-target-MS
                the same by the law `auto`, for each target, and by the percentile for the last
   unregulated-mixed, rate-mixed-target-MS
                the same as unregulated and target-MS with the throttle `rate`, while the writers' initiators
                also read by the same sessions: 64 KiB at random places, one after the other each
   killed       the agent is killed while it throttles: the contents of the kernel two seconds later
   ended        the agent is told to end while it throttles: the contents of the kernel after its end
   edt-killed, edt-ended, rate-killed, rate-ended
                the same with the throttles `edt` and `rate`
   hung, rate-hung
                the agent is stopped while it throttles, and does not die: the contents of the kernel when its
                guardian must have noticed. The agent must throttle again when it goes on
   removed      another program removes the agent's device while it throttles: the return of the device, and
                the agent's errors
   volume-removed
                the last writer ends, its initiator logs out, and its volume is removed while the others are
                throttled: the members of the set, the throttled consumers, and the agent's errors. Comes
                last: the volume does not come back
   foreign      the interface has another program's queueing disciplines, filters and rules: their fate, and
                the agent's throttles and errors, with each throttle

Limits of writes (`rate`) are of LIO, and only an iSCSI volume is removed: suites of other kinds skip these
phases.

With --beside-static, the phases are these, for the first target:

   unregulated, agent
                with the bursts
   static       with the bursts and a delay that never changes: the least one of whole steps that keeps the
                target, found by search
   writers      without a reader: the throughput of the writers by themselves, beside the agent, and with that
                delay

With --sweep, the phases are these, for each of --seeds, and with --mixed for both loads:

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

# A guardian waits for ten seconds, and removes the throttle in less than two.
HUNG_S = 12
# The agent's `greatest`.
GREATEST_STATIC_MS = 100
# The error of `identify` when a delay hardly changes the latency.
REFUSED = "too little of a difference"
# ext4 needs some of a volume for itself.
FILE_MIB, VOLUME_MIB = 64, 96
THREADS = 64


@contextlib.contextmanager
def static(lab, delay):
    """Delays all packets to the writers by a constant, as an administrator would by hand."""
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
    """Halves steps to the least delay that keeps the target as the agent must. Returns all tried delays."""
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
    """Runs each target with each gain, beside the same load unregulated, with every seed."""
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
    """Returns the members of the set over time, and the times of the first and the last write.

    The members come from the kernel, as an administrator would see them. The times of writes come from the
    target's volumes: fio begins later than it was asked to, by up to a second.
    """
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
    # The last count before the first write, and the first count after the last one.
    wrote = [
        max(at for at, count in counts if count == counts[0][1]),
        min(at for at, count in counts if count == counts[-1][1]),
    ]
    return {"wrote": wrote, "seen": seen}


def pairs(lab, options):
    """Returns bytes written per second without an agent and beside one at rest, by turns."""

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
    """Returns the result of `tidegate identify`, and a phase with the gains that it proposes.

    On NFS the longest delay takes so little of the latency that `identify` may refuse. Then its error is the
    result, and there is no phase.
    """
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
    gains = (
        f'pid = {{ proportional_gain = {found["proportional_gain"]:.2f}, '
        f'integral_time = "{1e3 * found["integral_time_s"]:.0f}ms" }}'
    )
    with Agent(lab, "identified", target, f"{options.more}\n{gains}"):
        phase = bursts(lab, options)
    return {**found, "gains": gains, "after": left}, {**phase, "target_ms": target, "after": kernel(lab)}


def load_until_throttled(lab, options, log, seconds=14):
    """Writes until the agent throttles. Returns a function that waits for the load's result."""
    load = lab.start_fio([reader(lab, seconds)] + writers(lab, options, 1, seconds - 2))
    iscsi.until(lambda: "throttled by up to" in iscsi.read(log), "the agent to throttle")
    time.sleep(2)
    return load


def removed(lab, options, target):
    """Removes the agent's device while packets wait in it."""
    with Agent(lab, "removed", target, options.more) as agent:
        load = load_until_throttled(lab, options, agent.log.name, 14)
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
    """Removes a volume while other writers are throttled."""
    *stay, goes = WRITERS
    with Agent(lab, "volume-removed", target, options.more) as agent:
        log = agent.log.name
        load = lab.start_fio([reader(lab, 24)] + writers(lab, options, 1, 22, stay))
        last = lab.start_fio(writers(lab, options, 1, 6, [goes]))
        iscsi.until(lambda: "throttled by up to" in iscsi.read(log), "the agent to throttle")
        iscsi.until(lambda: lab.address(goes) in kernel(lab)["members"], "the last writer to be in the set")
        last()
        during = kernel(lab)
        lab.remove_volume(goes)
        began = time.monotonic()
        iscsi.until(
            lambda: lab.address(goes) not in kernel(lab)["members"], "the removed writer to leave the set"
        )
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
    """Runs each throttle of packets beside another program's queues, filters and rules.

    Returns the contents of the kernel before, during and after each, and the agent's errors.
    """
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
            iscsi.until(lambda: "throttled by up to" in iscsi.read(log), "the agent to want to throttle")
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
    # Without tail loss probes: a saturated array answers later than TCP expects, and TCP would send again for
    # nothing.
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
        "--short", action="store_true", help="with the throttle `edt`, only the phase `edt-killed`"
    )
    parser.add_argument(
        "--only",
        metavar="PHASE,…",
        help="only these phases of a full run, after `alone` and `unregulated`",
    )
    parser.add_argument(
        "--beside-static", action="store_true", help="the agent beside the best delay that never changes"
    )
    parser.add_argument(
        "--static-step",
        type=float,
        default=2.5,
        metavar="MS",
        help="the step of that search (default: %(default)s)",
    )
    parser.add_argument("--sweep", action="store_true", help="targets and gains over seeds, and nothing else")
    parser.add_argument(
        "--throttle", default="netem", choices=list(HELD), help="of the sweep (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=10, help="of the sweep (default: %(default)s)")
    parser.add_argument(
        "--gains", default="", metavar="K_P,…", help="of the sweep's PID (default: the agent's own)"
    )
    parser.add_argument("--mixed", action="store_true", help="the sweep also with writers that read")
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
            load = load_until_throttled(lab, options, f"/out/{name}.log", seconds)
            during = kernel(lab)
            agent.end(with_signal)
            time.sleep(wait)
            measured[name] = {"during": during, "after": kernel(lab)}
            load()

    if not options.short:
        for name in filter(wanted, ("hung", "rate-hung")):
            phase(name)
            with Agent(lab, name, targets[0], options.more) as agent:
                load = load_until_throttled(lab, options, f"/out/{name}.log", 22)
                during = kernel(lab)
                agent.process.send_signal(signal.SIGSTOP)
                time.sleep(HUNG_S)
                measured[name] = {"during": during, "after": kernel(lab)}
                agent.process.send_signal(signal.SIGCONT)
                iscsi.until(lambda: HELD[throttle_of(name)](kernel(lab)), "the agent to throttle again")
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
