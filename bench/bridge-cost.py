#!/usr/bin/env python3
"""The cost of watching an array's packets: a bridge's throughput and latency, with and without the sensor.

usage: bridge-cost.py [--pairs N] [--seconds N] [--binary FILE] [--out DIR]

A target (tgtd, in memory), a bridge and an initiator (iscsi-perf) are in network namespaces of this machine.
`tidegate agent --dry-run` runs on the bridge. Three ways take turns, in this order: without the agent, with
all of each packet captured, with 256 bytes of each.

Limited rates of requests give about 1, 10 and 100 thousand packets per second. Without a limit, and with
interfaces that join segments, as many packets pass as can. One request at a time shows latency, and 32 at
once throughput. `machine_us_per_segment` is the time that all processors spend more than without the sensor,
the kernel's copies included. Takes root, tgt and libiscsi-bin.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measuring import ROOT, TICKS, interval, leave, processor_seconds

TARGET = "iqn.2026-01.bench:array"
URL = f"iscsi://10.9.0.1/{TARGET}/1"
PORT = 9809
SMALL, LARGE = ["-b", "8", "-m", "1"], ["-b", "128", "-m", "32"]
# Options of iscsi-perf, the limit of the initiator in kbit/s, and True if interfaces join segments.
LOADS = {
    "1 kpps: 4 KiB, 1 at once": (SMALL, 360, True),
    "10 kpps: 4 KiB, 1 at once": (SMALL, 3_600, True),
    "4 KiB, 1 at once": (SMALL, None, True),
    "100 kpps: 64 KiB, 32 at once": (LARGE, 43_000, False),
    "64 KiB, 32 at once": (LARGE, None, True),
}
WAYS = {"without": None, "whole packets": None, "256 bytes": 'capture = "256B"'}


def run(*command, within=None):
    command = (["ip", "netns", "exec", within] if within else []) + list(command)
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"bridge-cost: {' '.join(command)}: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


class Network:
    """Three namespaces of this process: initiator, bridge, target."""

    def __init__(self):
        self.names = {
            role: f"tidegate-bench-{role}-{os.getpid()}" for role in ("initiator", "bridge", "target")
        }

    def __enter__(self):
        for name in self.names.values():
            run("ip", "netns", "add", name)
        bridge = self.names["bridge"]
        run("ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0", within=bridge)
        for role, port, address in (("initiator", "p0", "10.9.0.2/24"), ("target", "p1", "10.9.0.1/24")):
            run(
                "ip",
                "link",
                "add",
                port,
                "netns",
                bridge,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                self.names[role],
            )
            run("ip", "link", "set", port, "master", "br0", "up", within=bridge)
            run("ip", "address", "add", address, "dev", "eth0", within=self.names[role])
            run("ip", "link", "set", "eth0", "up", within=self.names[role])
        run("ip", "link", "set", "br0", "up", within=bridge)
        run("ip", "link", "set", "lo", "up", within=bridge)
        return self

    def shape(self, kbits, joined):
        """Limits what the initiator sends, and lets interfaces join segments or not."""
        initiator = self.names["initiator"]
        subprocess.run(
            ["ip", "netns", "exec", initiator, "tc", "qdisc", "delete", "dev", "eth0", "root"],
            capture_output=True,
        )
        if kbits:
            run(
                "tc",
                "qdisc",
                "add",
                "dev",
                "eth0",
                "root",
                "tbf",
                "rate",
                f"{kbits}kbit",
                "burst",
                "1600",
                "limit",
                "1000000",
                within=initiator,
            )
        for role in ("initiator", "target"):
            run(
                "ip",
                "link",
                "set",
                "eth0",
                "gso_max_segs",
                "65535" if joined else "1",
                within=self.names[role],
            )

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name])


@contextlib.contextmanager
def target(network, directory):
    disk = os.path.join(directory, "disk")
    with open(disk, "wb") as file:
        file.truncate(64 << 20)
    control = ["--control-port", str(os.getpid() % 10_000)]
    process = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            network.names["target"],
            "tgtd",
            "-f",
            *control,
            "--iscsi",
            "portal=10.9.0.1:3260",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            tried = subprocess.run(["tgtadm", *control, "--mode", "sys", "--op", "show"], capture_output=True)
            if tried.returncode == 0:
                break
            time.sleep(0.1)
        admin = ["tgtadm", *control, "--lld", "iscsi"]
        run(*admin, "--mode", "target", "--op", "new", "--tid", "1", "-T", TARGET)
        run(*admin, "--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", disk)
        run(*admin, "--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL")
        yield
    finally:
        # It ignores SIGTERM.
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def agent(network, directory, binary, more):
    """Runs an agent. Yields its process, and a function that counts segments, losses, gaps and reads."""
    path = os.path.join(directory, "agent.toml")
    with open(path, "w") as file:
        file.write(
            f'metrics = "127.0.0.1:{PORT}"\n[bridge]\narray = "p1"\n{more or ""}\n'
            '[resource.array]\ntarget = "1s"\nluns = ["*"]\n'
        )
    bridge = network.names["bridge"]
    process = subprocess.Popen(
        ["ip", "netns", "exec", bridge, binary, "agent", "-c", path, "--dry-run", "--log", "warn"]
    )

    def counts():
        text = run("curl", "-s", f"http://127.0.0.1:{PORT}/metrics", within=bridge)
        found = dict(re.findall(r"^(tidegate_agent_bridge_\w+) (\S+)$", text, re.MULTILINE))
        reads = re.search(
            r'^tidegate_resource_completed_requests_total{resource="array",op="read"} (\S+)$',
            text,
            re.MULTILINE,
        )
        return {
            "segments": float(found["tidegate_agent_bridge_segments_total"]),
            "lost": float(found["tidegate_agent_bridge_lost_packets_total"]),
            "gaps": float(found["tidegate_agent_bridge_gaps_total"]),
            "reads": float(reads.group(1)) if reads else 0.0,
        }

    try:
        for _ in range(100):
            if (
                subprocess.run(
                    ["ip", "netns", "exec", bridge, "curl", "-sf", f"http://127.0.0.1:{PORT}/healthz"],
                    capture_output=True,
                ).returncode
                == 0
            ):
                break
            time.sleep(0.1)
        yield process, counts
    finally:
        process.terminate()
        process.wait()


def busy_seconds():
    """Returns the seconds that all processors have spent, those of interrupts included."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = (int(value) for value in file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def load(network, options, seconds):
    """Returns the reads per second: iscsi-perf prints their average over `seconds`."""
    command = [
        "ip",
        "netns",
        "exec",
        network.names["initiator"],
        "iscsi-perf",
        *options,
        "-t",
        str(seconds),
        "-n",
        URL,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    found = re.findall(r"average\s+([\d.]+)", ended.stdout)
    found = found or re.findall(r"iops\s+(?:average|current)\s+([\d.]+)", ended.stdout)
    if not found:
        sys.exit(f"bridge-cost: iscsi-perf: {ended.stdout[-500:]} {ended.stderr[-500:]}")
    return float(found[-1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/tidegate"))
    parser.add_argument("--out", metavar="DIR")
    options = parser.parse_args()
    rounds = {name: {way: [] for way in WAYS} for name in LOADS}
    sensor = {name: {way: [] for way in WAYS} for name in LOADS}
    busy = {name: {way: [] for way in WAYS} for name in LOADS}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, Network() as network, target(
        network, directory
    ):
        for number in range(options.pairs):
            for name, (arguments, kbits, joined) in LOADS.items():
                network.shape(kbits, joined)
                for way, more in WAYS.items():
                    if way == "without":
                        idle = busy_seconds()
                        rounds[name][way].append(load(network, arguments, options.seconds))
                        busy[name][way].append(busy_seconds() - idle)
                        continue
                    with agent(network, directory, options.binary, more) as (process, counts):
                        before, began, idle = counts(), processor_seconds(process), busy_seconds()
                        rate = load(network, arguments, options.seconds)
                        busy[name][way].append(busy_seconds() - idle)
                        time.sleep(0.2)
                        after, ended = counts(), processor_seconds(process)
                    rounds[name][way].append(rate)
                    seen = {key: after[key] - before[key] for key in after}
                    sensor[name][way].append({**seen, "processor_s": ended - began})
            print(f"round {number + 1} of {options.pairs}", flush=True)
    results = []
    for name in LOADS:
        for way in list(WAYS)[1:]:
            ratios = [beside / without for beside, without in zip(rounds[name][way], rounds[name]["without"])]
            seen = sensor[name][way]
            segments = sum(one["segments"] for one in seen)
            # The processor time of as many reads without the sensor is taken off, since their numbers differ.
            plain = sum(busy[name]["without"]) / sum(rounds[name]["without"])
            more = sum(busy[name][way]) - plain * sum(rounds[name][way])
            row = {
                "load": name,
                "captured": way,
                "reads_per_s": statistics.median(rounds[name][way]),
                "reads_per_s_without": statistics.median(rounds[name]["without"]),
                "ratio": interval(ratios),
                "segments_per_s": segments / (options.seconds * len(seen)),
                "agent_us_per_segment": 1e6 * sum(one["processor_s"] for one in seen) / segments,
                "machine_us_per_segment": 1e6 * more / segments,
                "agent_part_of_a_core": sum(one["processor_s"] for one in seen)
                / (options.seconds * len(seen)),
                "lost_of_all": sum(one["lost"] for one in seen) / segments,
                "gaps": sum(one["gaps"] for one in seen),
            }
            results.append(row)
            print(json.dumps(row), flush=True)
    if options.out:
        leave(
            options.out,
            "bridge-cost",
            {"pairs": options.pairs, "seconds": options.seconds, "results": results},
        )


if __name__ == "__main__":
    main()
