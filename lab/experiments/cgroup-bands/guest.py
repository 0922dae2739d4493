#!/usr/bin/env python3
"""In the guest: `tidegate agent` throttles cgroups on a block device, by their io.max.

usage: guest.py [--seconds S] [--phases NAME,…]

    fio in cgroup w1 ┐
                     ├─ io.max ─▶ loop0 ─▶ a server in order of arrival, 2 ms each
    fio in cgroup w2 ┘

Both read 4 KiB at random places past the page cache. Another program has limited w2's reads to 64 MB/s, which
w2 does not reach. The phases, in order:

   check        the program's findings about this machine's throttles and about the consumers
   alone        w1 alone, four outstanding
   unregulated  w2 beside it, 32 outstanding
   static       the same with constant limits of both, by the bands, in growing steps: the effect of the
                kernel's throttle alone
   pid          the same, and the agent throttles w2, and no other, by the law pid
   auto         the same by the law auto
   bands        the agent throttles both by bands; then w1 is stopped for a while, and goes on
   ended        the agent is told to end while it throttles: the limits left at its end
   killed       the agent is killed while it throttles: the limits left two seconds later
   changed      another program sets a new limit of w2 while the agent throttles, and w1 becomes eligible: the
                limits in force, and those left at the end

The kernel's counters of the device and of each cgroup are read every second. Leaves /out/measured.json and
the agent's logs.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import disk
import iscsi
from disk import DEVICE, Agent, join, number
from iscsi import CGROUPS, read, run, until, write

SERVICE_MS = 2
MIB = 64
# Another program's limit, in w2's io.max.
OTHERS = "rbps=64000000"
TARGET_MS = 20
DEPTHS = {"w1": 4, "w2": 32}
# The upper end of each band in requests per second, and each cgroup's part of it. The device does 500, so
# that it operates in the last one.
BANDS = [(100, {"w1": 0.5, "w2": 0.5}), (200, {"w1": 1}), (900, {"w2": 1})]
PAUSE_S = 15
# Constant limits of both together: from less than half of the device's throughput to that demanded of a law.
STATIC = range(200, 401, 25)
MARK = "user.tidegate"
PHASES = ("check", "alone", "unregulated", "static", "pid", "auto", "bands", "ended", "killed", "changed")
RESOURCE = """\
throttle = "cgroup"
[resource.disk]
device = "{device}"
target = "{target}ms"
cgroups = [{cgroups}]
{law}
"""

PID = """\
law = "pid"
set_point = 0.8
interval = "100ms"
pid = { proportional_gain = 2.0, integral_time = "200ms", greatest = "1s" }
"""

AUTO = """\
law = "auto"
"""

BY_BANDS = """\
law = "self-tuning"
set_point = 0.8
interval = "1s"
bands = [{bands}]
"""


def set_up():
    disk.set_up(DEPTHS, MIB, SERVICE_MS)
    write(f"{CGROUPS}/w2/io.max", f"{number()} {OTHERS}")


def limits():
    """The limits in force in the kernel, and the marks of the cgroups."""
    return {
        name: {"limit": read(f"{CGROUPS}/{name}/io.max"), "marked": MARK in os.listxattr(f"{CGROUPS}/{name}")}
        for name in DEPTHS
    }


class Load:
    """fio in a cgroup."""

    def __init__(self, name):
        command = [
            "fio",
            "--thread",
            "--ioengine=libaio",
            "--direct=1",
            "--randrepeat=1",
            "--norandommap",
            "--rw=randread",
            "--bs=4k",
            f"--name={name}",
            f"--filename=/dev/{DEVICE}",
            f"--iodepth={DEPTHS[name]}",
            "--time_based",
            "--runtime=1000000",
        ]
        self.process = subprocess.Popen(
            command, preexec_fn=join(name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self):
        until(lambda: counters()["outstanding"] > 0, "fio")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


def resource(cgroups, law=PID):
    return RESOURCE.format(device=DEVICE, target=TARGET_MS, cgroups=cgroups, law=law)


def agent_of(name, cgroups, law=PID):
    return Agent(name, resource(", ".join(f'"{one}"' for one in cgroups), law))


def counters():
    fields = [int(field) for field in read(f"/sys/block/{DEVICE}/stat").split()]
    found = {"ios": fields[0], "ms": fields[3], "outstanding": fields[8]}
    for name in DEPTHS:
        words = [
            word
            for line in read(f"{CGROUPS}/{name}/io.stat").splitlines()
            if line.startswith(f"{number()} ")
            for word in line.split()
        ]
        found[name] = next((int(word[5:]) for word in words if word.startswith("rios=")), 0)
    return found


def seconds(count):
    """One row for each second: the device's mean latency, and the reads of each cgroup."""
    rows, before, begin = [], counters(), time.monotonic()
    for second in range(1, count + 1):
        time.sleep(max(0, begin + second - time.monotonic()))
        now = counters()
        ios = now["ios"] - before["ios"]
        rows.append(
            {
                "mean_ms": (now["ms"] - before["ms"]) / ios if ios else None,
                "ios": ios,
                **{name: now[name] - before[name] for name in DEPTHS},
            }
        )
        before = now
    return rows


def any_throttled():
    return any("iops=" in found["limit"].replace("iops=max", "") for found in limits().values())


def by_bands():
    def band(up_to, ratios):
        each = ", ".join(f"{name} = {ratio}" for name, ratio in ratios.items())
        return f'{{ up_to = "{up_to} IO/s", ratios = {{ {each} }} }}'

    return BY_BANDS.format(bands=", ".join(band(*one) for one in BANDS))


def static(together):
    """Limits both by the bands, without an agent. Leaves out the second in which limits change."""
    begin = 0
    limit = dict.fromkeys(DEPTHS, 0)
    for up_to, ratios in BANDS:
        for name, ratio in ratios.items():
            limit[name] += ratio * max(0, min(together, up_to) - begin)
        begin = up_to
    for name, rate in limit.items():
        write(f"{CGROUPS}/{name}/io.max", f"{number()} riops={rate:.0f}")
    return seconds(4)[1:]


def measure(options):
    measured, phases = {
        "options": vars(options),
        "target_ms": TARGET_MS,
        "bands": BANDS,
    }, options.phases.split(",")
    before = limits()
    measured["before"] = before
    if "check" in phases:
        write("/tmp/check.toml", resource('"w*", "none"'))
        measured["check"] = json.loads(run(["tidegate", "check", "--json", "-c", "/tmp/check.toml"]))[
            "machine"
        ]
    if "alone" in phases:
        with Load("w1"):
            measured["alone"] = seconds(5)
    with Load("w1") as first, Load("w2"):
        if "unregulated" in phases:
            measured["unregulated"] = seconds(5)
        if "static" in phases:
            measured["static"] = [{"together": together, "seconds": static(together)} for together in STATIC]
            write(f"{CGROUPS}/w1/io.max", f"{number()} riops=max")
            write(f"{CGROUPS}/w2/io.max", f"{number()} riops=max {OTHERS}")
        for name, law in (("pid", PID), ("auto", AUTO)):
            if name in phases:
                agent = agent_of(name, ["w2"], law)
                rows = seconds(options.seconds)
                measured[name] = {"seconds": rows, "during": limits()}
                agent.end()
                measured[name]["after"] = limits()
        if "bands" in phases:
            agent = agent_of("bands", ["w1", "w2"], by_bands())
            both, during = seconds(options.seconds), limits()
            first.pause()
            paused = seconds(PAUSE_S)
            first.go_on()
            again = seconds(options.seconds)
            agent.end()
            measured["by_bands"] = {
                "both": both,
                "during": during,
                "paused": paused,
                "again": again,
                "after": limits(),
            }
        for name, with_signal, wait in (("ended", signal.SIGTERM, 0), ("killed", signal.SIGKILL, 2)):
            if name in phases:
                agent = agent_of(name, ["w2"])
                until(any_throttled, "a limit")
                during = limits()
                agent.end(with_signal)
                time.sleep(wait)
                measured[name] = {"during": during, "after": limits()}
        if "changed" in phases:
            agent = agent_of("changed", ["w2"])
            until(any_throttled, "a limit")
            write(f"{CGROUPS}/w2/io.max", f"{number()} rbps=max riops=90 wiops=max wbps=max")
            # The agent rescans each second.
            time.sleep(2.5)
            during = limits()
            write(agent.path, resource('"w1", "w2"'))
            agent.process.send_signal(signal.SIGHUP)
            time.sleep(4)
            both = limits()
            agent.end(signal.SIGKILL)
            time.sleep(2)
            measured["changed"] = {"during": during, "both": both, "after": limits()}
    return measured


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="length of the agent's regulation (default: %(default)s)"
    )
    parser.add_argument("--phases", default=",".join(PHASES))
    options = parser.parse_args()
    set_up()
    with open("/out/measured.json", "w") as file:
        json.dump(measure(options), file, indent=1)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as error:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {error}")
