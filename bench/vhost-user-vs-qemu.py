#!/usr/bin/env python3
"""Requests per second and processor time of a vhost-user disk: Tidegate beside other ways to a file.

The other ways are qemu-storage-daemon, and Tidegate's own NBD. One front end of ours loads both disks
(`crates/tidegate-vhost/examples/disk_load.rs`), and fio loads the NBD export. Runs alternate; ratios are
medians of the pairs.

usage: bench/vhost-user-vs-qemu.py [--pairs N] [--seconds N] [--depths 1,8,32] [--out DIR]
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from measuring import ROOT, interval, leave, processor_seconds

SIZE = 256 << 20
OURS = "tidegate"

CONFIGURATION = """
listen = ['unix:nbd.sock']
[pool.p]
backend = { kind = 'file' }
[pool.p.export.disk]
path = 'disk.raw'
shared_volume = true
listen = ['vhost-user:disk.sock']
"""


def wait_for(path):
    end = time.monotonic() + 30
    while not os.path.exists(path):
        if time.monotonic() > end:
            sys.exit(f"{path} did not come")
        time.sleep(0.05)


def disk_load(socket, depth, operation, options):
    command = [options.load, socket, str(depth), str(options.seconds), operation]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def fio(socket, depth, operation, options):
    command = [
        "fio",
        "--name=x",
        "--ioengine=nbd",
        f"--uri=nbd+unix:///disk?socket={socket}",
        f"--rw=rand{operation}",
    ]
    command += [
        "--bs=4k",
        f"--iodepth={depth}",
        f"--runtime={options.seconds}",
        "--ramp_time=1",
        "--time_based",
    ]
    command += [f"--size={SIZE}", "--output-format=json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # A note of fio may come before the document.
    return json.loads(output[output.index("{") :])["jobs"][0][operation]["iops"]


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs", type=int, default=10, help="runs of each way at a point (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=int, default=3, help="seconds of each run (default: %(default)s)")
    parser.add_argument("--depths", default="1,8,32", help="(default: %(default)s)")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    return parser.parse_args()


def build_load():
    build = ["cargo", "build", "--release", "--quiet", "--locked", "--manifest-path", f"{ROOT}/Cargo.toml"]
    subprocess.run([*build, "-p", "tidegate-vhost", "--example", "disk_load"], check=True)
    return f"{ROOT}/target/release/examples/disk_load"


@contextlib.contextmanager
def ways(folder):
    """Runs the gateway and QEMU's daemon on one file. Yields the server and the load of each way to it."""

    def path(name):
        return os.path.join(folder, name)

    with open(path("disk.raw"), "wb") as disk:
        disk.write(os.urandom(SIZE))
    with open(path("tidegate.toml"), "w") as file:
        file.write(CONFIGURATION)
    with open(path("log"), "w") as log:
        gateway = subprocess.Popen(
            [f"{ROOT}/target/release/tidegate", "serve", "-c", path("tidegate.toml")], stderr=log
        )
    daemon = subprocess.Popen(
        [
            "qemu-storage-daemon",
            "--blockdev",
            f"driver=file,node-name=f,filename={path('disk.raw')},aio=io_uring,locking=off",
            "--blockdev",
            "driver=raw,node-name=d,file=f",
            "--export",
            f"type=vhost-user-blk,id=e,node-name=d,addr.type=unix,addr.path={path('q.sock')},writable=on",
        ]
    )
    try:
        for name in ("disk.sock", "q.sock", "nbd.sock"):
            wait_for(path(name))
        yield {
            OURS: (gateway, lambda *about: disk_load(path("disk.sock"), *about)),
            "qemu-storage-daemon": (daemon, lambda *about: disk_load(path("q.sock"), *about)),
            "tidegate by NBD": (gateway, lambda *about: fio(path("nbd.sock"), *about)),
        }
    finally:
        for process in (gateway, daemon):
            process.terminate()
            process.wait()


def measure(known, operation, depth, options):
    """Measures a point: figures of each way, and ratios to ours. Runs alternate."""
    seen = {way: [] for way in known}
    for pair in range(options.pairs):
        for way in known if pair % 2 == 0 else reversed(known):
            process, load = known[way]
            before = processor_seconds(process)
            iops = load(depth, operation, options)
            # The ramp of a second is in the processor time, and its requests are not counted.
            used = (processor_seconds(process) - before) * options.seconds / (options.seconds + 1)
            seen[way].append({"iops": iops, "processor_us": used / (iops * options.seconds) * 1e6})
    figures = {
        way: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for way, runs in seen.items()
    }
    ratios = {
        way: {
            key: interval(
                [ours[key] / theirs[key] for ours, theirs in zip(seen[OURS], runs) if theirs[key] > 0]
            )
            for key in ("iops", "processor_us")
        }
        for way, runs in seen.items()
        if way != OURS
    }
    for way, ratio in ratios.items():
        iops = ratio["iops"]
        print(
            f"{operation:<6} depth {depth:<3} {figures[OURS]['iops']:>9.0f} IO/s, to {way}: "
            f"{iops['median']:.2f} ({iops['low']:.2f} to {iops['high']:.2f}), "
            f"processor {ratio['processor_us']['median']:.2f}",
            flush=True,
        )
    return {"operation": operation, "depth": depth, "ways": figures, "ratios": ratios}


def main():
    options = arguments()
    options.load = build_load()
    with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "target")) as folder, ways(folder) as known:
        results = [
            measure(known, operation, int(depth), options)
            for operation in ("read", "write")
            for depth in options.depths.split(",")
        ]
    if options.out:
        leave(
            options.out,
            "vhost-user-vs-qemu",
            {"pairs": options.pairs, "seconds": options.seconds, "results": results},
        )


if __name__ == "__main__":
    main()
