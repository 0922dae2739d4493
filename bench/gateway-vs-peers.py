#!/usr/bin/env python3
"""Speed of the gateway beside nbdkit and qemu-nbd: same file, same cache mode, same client, one go.

    gateway-vs-peers.py                    every point: three quarters of an hour
    gateway-vs-peers.py --short            four points, three rounds: two minutes
    gateway-vs-peers.py --points 'write 4k depth 1' --rounds 20

A point is a load. In each round every server has one run, in an order that rotates, so that the machine's
noise meets all of them. The result is the median over the rounds of the ratio to the peer in the same round.
Beside it are the order statistics that cover the median with at least 95 % (of ten rounds: the second and the
ninth).

A ratio of IOPS above 1 means that the gateway is faster. A ratio of processor time per request below 1 means
that the gateway takes less. The processor time is the server's own, its kernel's workers included.

Prints a table and, with --out, leaves a dated JSON document with the machine's description.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from measuring import ROOT, interval, leave, processor_seconds

PEERS = ("nbdkit", "qemu-nbd")
BASE = {"block": "4k", "depth": 1, "clients": 1, "tcp": False, "direct": False, "peers": PEERS}


def points():
    """Returns reads and writes of three sizes at three depths, and then each other factor alone."""
    found = {}
    for kind in ("read", "write"):
        for block in ("4k", "64k", "1m"):
            for depth in (1, 8, 32):
                found[f"{kind} {block} depth {depth}"] = {"kind": kind, "block": block, "depth": depth}
        base = {"kind": kind, "block": "4k", "depth": 32}
        found[f"{kind} 4k depth 128"] = base | {"depth": 128}
        found[f"{kind} 4k depth 32, four clients"] = base | {"clients": 4}
        found[f"{kind} 4k depth 32, TCP"] = base | {"tcp": True}
        # nbdkit has no direct mode.
        found[f"{kind} 4k depth 32, O_DIRECT"] = base | {"direct": True, "peers": ("qemu-nbd",)}
        found[f"{kind} 4k depth 32, QoS off"] = base | {"peers": ("tidegate-plain",)}
    return {name: BASE | point for name, point in found.items()}


SHORT = ("read 4k depth 1", "read 4k depth 32", "write 4k depth 1", "write 64k depth 8")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def tidegate(point, place, options, data, scratch, qos=True):
    config = os.path.join(scratch, "serve.toml")
    law = 'law = "auto"\ntarget = "1s"\n' if qos else ""
    with open(config, "w") as out:
        out.write(
            f'listen = ["{place}"]\n[pool.bench]\n'
            f'backend = {{ kind = "file", direct = {str(point["direct"]).lower()} }}\n'
            f'depth = 128\n{law}[pool.bench.export.bench]\npath = "{data}"\n'
        )
    return [options.binary, "serve", "-c", config]


def command(name, point, options, data, scratch, port):
    unix = os.path.join(scratch, "nbd.sock")
    if name.startswith("tidegate"):
        place = f"tcp:127.0.0.1:{port}" if port else f"unix:{unix}"
        return tidegate(point, place, options, data, scratch, qos=name == "tidegate")
    if name == "nbdkit":
        place = ["-i", "127.0.0.1", "-p", str(port)] if port else ["-U", unix]
        return ["nbdkit", "-f", *place, "-e", "bench", "file", data]
    place = ["-b", "127.0.0.1", "-p", str(port)] if port else ["-k", unix]
    cache = "none" if point["direct"] else "writeback"
    return [
        "qemu-nbd",
        "-t",
        "-f",
        "raw",
        "-x",
        "bench",
        "-e",
        "8",
        "--aio=io_uring",
        f"--cache={cache}",
        *place,
        data,
    ]


def answers(place):
    family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    with socket.socket(family) as client:
        return client.connect_ex(place) == 0


def run(name, point, options, data):
    """Runs fio once against one server, whose process begins and ends here."""
    with tempfile.TemporaryDirectory() as scratch:
        port = free_port() if point["tcp"] else None
        unix = os.path.join(scratch, "nbd.sock")
        log = open(os.path.join(scratch, "log"), "wb")
        process = subprocess.Popen(command(name, point, options, data, scratch, port), stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 10
            while not answers(("127.0.0.1", port) if port else unix):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{name} did not start:\n{open(log.name).read()}")
                time.sleep(0.01)
            uri = f"nbd://127.0.0.1:{port}/bench" if port else f"nbd+unix:///bench?socket={unix}"
            before = processor_seconds(process)
            output = subprocess.run(
                [
                    "fio",
                    "--name=bench",
                    "--ioengine=nbd",
                    f"--uri={uri}",
                    f"--rw=rand{point['kind']}",
                    f"--bs={point['block']}",
                    f"--iodepth={point['depth']}",
                    f"--numjobs={point['clients']}",
                    "--group_reporting",
                    "--time_based",
                    f"--runtime={options.seconds}",
                    "--randrepeat=1",
                    "--norandommap",
                    "--output-format=json",
                ],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            spent = processor_seconds(process) - before
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    found = json.loads(output[output.index("{") :])["jobs"][0][point["kind"]]
    return {
        "iops": found["iops"],
        "mean_us": found["clat_ns"]["mean"] / 1e3,
        "processor_us": 1e6 * spent / found["total_ios"],
        "p99_us": found["clat_ns"]["percentile"]["99.000000"] / 1e3,
    }


def measure(name, point, options, data):
    servers = ("tidegate", *point["peers"])
    rounds = []
    for number in range(options.rounds):
        first = number % len(servers)
        rounds.append(
            {server: run(server, point, options, data) for server in servers[first:] + servers[:first]}
        )
    figures = {
        server: {key: statistics.median(found[server][key] for found in rounds) for key in rounds[0][server]}
        for server in servers
    }
    ratios = {
        peer: {
            key: interval(
                [found["tidegate"][key] / found[peer][key] for found in rounds if found[peer][key] > 0]
            )
            for key in ("iops", "p99_us", "processor_us")
        }
        for peer in point["peers"]
    }
    print_row(name, figures, ratios)
    return {
        "point": name,
        **{key: value for key, value in point.items() if key != "peers"},
        "rounds": options.rounds,
        "servers": figures,
        "ratios": ratios,
    }


def print_head():
    print(
        f"{'point':<34}{'IOPS':>9}  {'peer':<15}{'IOPS ratio':>20}"
        f"{'processor µs':>14}{'ratio':>7}{'p99 ratio':>11}"
    )


def print_row(name, figures, ratios):
    ours = figures["tidegate"]
    for peer, ratio in ratios.items():
        iops = ratio["iops"]
        span = f"{iops['median']:.2f} ({iops['low']:.2f} to {iops['high']:.2f})"
        print(
            f"{name:<34}{ours['iops']:>9.0f}  {peer:<15}{span:>20}{ours['processor_us']:>14.1f}"
            f"{ratio['processor_us']['median']:>7.2f}{ratio['p99_us']['median']:>11.2f}",
            flush=True,
        )


def arguments(known):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/tidegate"))
    parser.add_argument(
        "--rounds", type=int, default=10, help="runs of each server at a point (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=int, default=3, help="seconds of each run (default: %(default)s)")
    parser.add_argument(
        "--points", nargs="+", choices=list(known), metavar="POINT", help="these points (default: all)"
    )
    parser.add_argument("--short", action="store_true", help="four points, three rounds of two seconds")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    options = parser.parse_args()
    if options.short:
        options.points, options.rounds, options.seconds = options.points or SHORT, 3, 2
    return options


def main():
    known = points()
    options = arguments(known)
    for tool in ("fio", *PEERS):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: run `make packages`")
    with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "target")) as folder:
        data = os.path.join(folder, "data")
        with open(data, "wb") as out:
            for _ in range(256):
                out.write(os.urandom(1 << 20))
        print_head()
        results = [measure(name, known[name], options, data) for name in options.points or known]
    ratios = [
        ratio["iops"]["median"]
        for found in results
        for peer, ratio in found["ratios"].items()
        if peer in PEERS
    ]
    if ratios:
        print(
            f"IOPS beside the peers: the least {min(ratios):.2f}, the median {statistics.median(ratios):.2f}"
        )
    if options.out:
        leave(options.out, "gateway-vs-peers", {"seconds": options.seconds, "results": results})


if __name__ == "__main__":
    main()
