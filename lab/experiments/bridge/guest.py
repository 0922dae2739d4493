#!/usr/bin/env python3
"""In the guest: `tidegate agent` on a bridge between initiators and a target that runs nothing of Tidegate.

usage: guest.py [--target MS] [--burst S] [--pause S] [--bursts N] [--depth N] [--seeds N] [--only PHASE,…]
                [--ipv6] [--mtu N] [--nvme] [--vlan ID]

The load and the array are those of the experiment iscsi-agent: initiator 1 reads 4 KiB at random places, and
initiators 2 to 4 write in bursts. The agent runs in the namespace of the bridge. It captures at the port that
leads to the target. The phases, in order:

   middle       the agent starts when sessions exist already: its knowledge of them
   login        the initiators log in again beside the agent: its names of them, and those of a later agent
   check        the findings of `tidegate check -c` there
   rest         the writers' throughput beside an agent at rest, and without it, by turns
   unregulated  with the bursts: latencies as a dry run on the bridge measures them, and as the target's
                kernel does
   target       with the bursts, and the agent on the target itself
   bridge       with the bursts, and the agent on the bridge
   killed       the agent on the bridge is killed while it throttles: the rules left two seconds later, and
                whether traffic flows

The phases from `unregulated` to `bridge` run for each seed. Leaves /out/measured.json and the agent's log of
each phase.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import bursts as load
import iscsi
from protocols import Nvme
from service import ENDS_WITHIN_S, packets_throttled, unprivileged

STATE = "/tmp/state"
METRICS = "127.0.0.1:9809"
BRIDGE = """\
metrics = "{metrics}"
{root}
[bridge]
array = "p0"
[resource.vg0]
target = "{target:g}ms"
luns = {luns}
{more}
"""
ON_TARGET = """\
{root}
[resource.vg0]
target = "{target:g}ms"
{more}
"""


class Agent:
    """`tidegate agent` in a namespace, with the rights of its service and no others."""

    def __init__(self, name, where, text, throttle="netem", dry_run=False, log="debug"):
        path, self.log_path = f"/tmp/{name}.toml", f"/out/{name}.log"
        iscsi.write(path, text)
        self.log = open(self.log_path, "w")
        options = ["--dry-run"] if dry_run else []
        environment = {**os.environ, "STATE_DIRECTORY": STATE}
        with iscsi.namespace(where):
            self.process = subprocess.Popen(
                [*unprivileged(throttle, "bridge"), "tidegate", "agent", "-c", path, "--log", log, *options],
                stderr=self.log,
                env=environment,
            )
        iscsi.until(
            lambda: "ready" in iscsi.read(self.log_path) or self.process.poll() is not None, "the agent"
        )
        if self.process.poll() is not None:
            raise iscsi.Failed(f"the agent ended: {iscsi.read(self.log_path)}")

    def end(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        self.process.wait(ENDS_WITHIN_S)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()


def on_bridge(name, options, target, luns=("*.2026-01.lab:lv*",), more="", **rest):
    text = BRIDGE.format(
        metrics=METRICS,
        root=options.root,
        target=target,
        luns=json.dumps(list(luns)),
        more=f"{options.more}\n{more}",
    )
    return Agent(name, "switch", text, **rest)


def on_target(name, options, target):
    return Agent(name, "tgt", ON_TARGET.format(root=options.root, target=target, more=options.more))


def metrics():
    """The agent's series, by name and labels."""
    with iscsi.namespace("switch"), urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line and not line.startswith("#")
    }


def reads(series):
    of = 'resource="vg0",op="read"'
    return series.get(f"tidegate_resource_completed_requests_total{{{of}}}", 0), series.get(
        f"tidegate_resource_response_time_seconds_total{{{of}}}", 0
    )


def counters(series):
    return {name: value for name, value in series.items() if name.startswith("tidegate_agent_bridge")}


def kernel():
    """The throttle's state and the root qdiscs in the kernel of the bridge's namespace."""
    with iscsi.namespace("switch"):
        qdiscs = json.loads(iscsi.run(["tc", "-j", "qdisc", "show"]))
        return {
            **packets_throttled(),
            "roots": {qdisc["dev"]: qdisc["kind"] for qdisc in qdiscs if qdisc.get("root")},
        }


def consumers(series):
    return sorted(
        name.split('consumer="')[1].split('"')[0]
        for name in series
        if name.startswith("tidegate_resource_member{")
    )


def beside_writers(lab, options):
    """The agent's series while all writers write, as soon as all are members.

    A writer that stops writing soon stops being a member.
    """
    wait = lab.start_fio([load.reader(lab, 8)] + load.writers(lab, options, 0, 8), randseed=1)
    # fio itself takes seconds to start, the first time.
    iscsi.until(lambda: len(consumers(metrics())) >= len(load.WRITERS), "writers to be members")
    series = metrics()
    wait()
    return series


def middle(lab, options):
    """Sessions older than the agent: it finds writers by their addresses, at the LUNs of a portal."""
    portals = ["10.0.0.*:4420"] if options.nvme else ["[fd00::1]:3260" if options.ipv6 else "10.0.0.1:3260"]
    with on_bridge("middle", options, 10_000, luns=portals, dry_run=True) as agent:
        series = beside_writers(lab, options)
        return {"consumers": consumers(series), "counters": counters(series), "said": warnings(agent)}


def warnings(agent):
    return [line for line in iscsi.read(agent.log_path).splitlines() if " WARN " in line or " ERROR " in line]


def login(lab, options):
    """The agent sees all logins. Another agent, started later, knows the names."""
    with on_bridge("login", options, 10_000, dry_run=True) as agent:
        for number in lab.numbers:
            lab.log_out(number)
            lab.log_in(number)
        first = {"consumers": consumers(beside_writers(lab, options)), "said": warnings(agent)}
    with on_bridge("recalled", options, 10_000, dry_run=True) as agent:
        return {
            "first": first,
            "later": {"consumers": consumers(beside_writers(lab, options)), "said": warnings(agent)},
        }


def check(options):
    path = "/tmp/check.toml"
    iscsi.write(
        path,
        BRIDGE.format(
            metrics=METRICS, root="", target=options.target, luns='["iqn.2026-01.lab:lv*"]', more=""
        ),
    )
    with iscsi.namespace("switch"):
        ended = subprocess.run(
            ["tidegate", "check", "-c", path, "--json"],
            capture_output=True,
            text=True,
            env={**os.environ, "STATE_DIRECTORY": STATE},
        )
    return {
        "status": ended.returncode,
        "document": json.loads(ended.stdout) if ended.stdout else ended.stderr,
    }


def pairs(lab, options):
    """The writers' throughput without the agent and beside it at rest, by turns, in bytes per second."""

    def written():
        return sum(
            result["write"]["bytes_per_s"] for result in lab.fio(load.writers(lab, options, 0, 4), randseed=1)
        )

    measured = []
    for number in range(options.pairs):
        without = written()
        with on_bridge(f"pair-{number}", options, 10_000, log="info"):
            measured.append([without, written()])
    return measured


def volumes_reads(phase):
    """The target's own counters: reads of all volumes, and their seconds."""
    count = sum(counted["reads"] for counted in phase["volumes"].values())
    return count, sum(counted["read_ms"] for counted in phase["volumes"].values()) / 1000


def unregulated(lab, options, seed):
    """The bursts, as a dry run on the bridge and the target's kernel measure them."""
    with on_bridge(f"unregulated-{seed}", options, 10_000, dry_run=True, log="info") as agent:
        time.sleep(2)
        before = reads(metrics())
        phase = load.bursts(lab, options)
        time.sleep(1)
        series = metrics()
        after = reads(series)
        return {
            **phase,
            "bridge_reads": [after[0] - before[0], after[1] - before[1]],
            "target_reads": volumes_reads(phase),
            "counters": counters(series),
            "said": warnings(agent),
        }


def killed(lab, options):
    """SIGKILL while the agent throttles."""
    with on_bridge("killed", options, options.target) as agent:
        wait = lab.start_fio([load.reader(lab, 16)] + load.writers(lab, options, 1, 14))
        iscsi.until(lambda: kernel()["rules"], "the agent to throttle")
        time.sleep(2)
        during = kernel()
        agent.end(signal.SIGKILL)
        time.sleep(2)
        after = kernel()
        results = wait()
    return {
        "during": during,
        "after": after,
        "reader_ios": results[0]["read"]["ios"],
        "written": sum(result["write"]["bytes"] for result in results if result["write"]),
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
        "--depth",
        type=int,
        default=2,
        help="requests outstanding of each of the twelve jobs (default: %(default)s)",
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument(
        "--pairs", type=int, default=2, help="runs with and without the agent (default: %(default)s)"
    )
    parser.add_argument("--only", metavar="PHASE,…", help="these phases, and `login`")
    parser.add_argument("--ipv6", action="store_true", help="all sessions of iSCSI over IPv6")
    parser.add_argument("--nvme", action="store_true", help="NVMe/TCP instead of iSCSI")
    parser.add_argument("--mtu", type=int, default=1500, help="(default: %(default)s)")
    parser.add_argument("--vlan", type=int, metavar="ID", help="iSCSI in packets with this tag")
    parser.add_argument("--root", default="", help="more lines above the tables of the configuration")
    parser.add_argument("--more", default="", help="more lines of the resource's configuration")
    options = parser.parse_args()

    # No tail loss probes, which a saturated array provokes: the same as in iscsi-agent.
    ipv6 = (1, 2, 3, 4) if options.ipv6 else ()
    if options.nvme:
        lab = Nvme(hosts=4, mtu=options.mtu)
    else:
        lab = iscsi.Lab(
            initiators=4, devices=4, tail_loss_probes=False, ipv6=ipv6, mtu=options.mtu, vlan=options.vlan
        )
    iscsi.run(["pin", "nft", "tc", "tidegate"])
    with iscsi.namespace("switch"):
        iscsi.run(["ip", "link", "set", "lo", "up"])
    os.makedirs(STATE, exist_ok=True)
    os.chmod(STATE, 0o777)
    measured = {
        "options": vars(options),
        "before": kernel(),
        "writers": [lab.address(n) for n in load.WRITERS],
        "names": [lab.initiator(n) for n in load.WRITERS],
    }

    def wanted(name):
        if options.only is not None and name not in options.only.split(","):
            return False
        print(f"{time.monotonic():7.1f} {name}", flush=True)
        return True

    def leave():
        with open("/out/measured.json", "w") as file:
            json.dump(measured, file, indent=1)

    with contextlib.ExitStack() as stack:
        stack.callback(leave)
        if wanted("middle"):
            measured["middle"] = middle(lab, options)
        measured["login"] = login(lab, options)
        if wanted("check"):
            measured["check"] = check(options)
        if wanted("rest"):
            measured["rest"] = pairs(lab, options)
        measured["alone"] = lab.fio([load.reader(lab, 10)], randseed=1)[0]["read"]
        measured["seeds"] = []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            options.seed, found = seed, {"seed": seed}
            measured["seeds"].append(found)
            if wanted("unregulated"):
                found["unregulated"] = unregulated(lab, options, seed)
            if wanted("target"):
                with on_target(f"target-{seed}", options, options.target):
                    found["target"] = load.bursts(lab, options)
            if wanted("bridge"):
                with on_bridge(f"bridge-{seed}", options, options.target):
                    found["bridge"] = load.bursts(lab, options)
                    found["bridge"]["counters"] = counters(metrics())
                found["bridge"]["after"] = kernel()
        if wanted("killed"):
            measured["killed"] = killed(lab, options)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as failure:
        sys.exit(f"bridge: {failure}")
