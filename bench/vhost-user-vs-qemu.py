#!/usr/bin/env python3
"""Requests per second and processor time of a vhost-user disk: Tidegate beside qemu-storage-daemon, and beside
Tidegate's own NBD. One front end of ours loads both disks (`crates/tidegate-vhost/examples/disk_load.rs`), fio the NBD
export. Runs alternate; ratios are medians of the pairs.

usage: bench/vhost-user-vs-qemu.py [--pairs N] [--seconds N] [--depths 1,8,32] [--out DIR]
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZE = 256 << 20

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


def processor_seconds(process):
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_load(socket, depth, operation, options):
    command = [options.load, socket, str(depth), str(options.seconds), operation]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def fio(socket, depth, operation, options):
    command = ["fio", "--name=x", "--ioengine=nbd", f"--uri=nbd+unix:///disk?socket={socket}", f"--rw=rand{operation}"]
    command += ["--bs=4k", f"--iodepth={depth}", f"--runtime={options.seconds}", "--ramp_time=1", "--time_based"]
    command += [f"--size={SIZE}", "--output-format=json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output)["jobs"][0][operation]["iops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--depths", default="1,8,32")
    parser.add_argument("--out", help="leave a dated document here")
    options = parser.parse_args()
    build = ["cargo", "build", "--release", "--quiet", "--locked", "--manifest-path", f"{ROOT}/Cargo.toml"]
    subprocess.run([*build, "-p", "tidegate-vhost", "--example", "disk_load"], check=True)
    options.load = f"{ROOT}/target/release/examples/disk_load"
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)  # noqa: E731
        with open(path("disk.raw"), "wb") as disk:
            disk.write(os.urandom(SIZE))
        with open(path("tidegate.toml"), "w") as file:
            file.write(CONFIGURATION)
        with open(path("log"), "w") as log:
            gateway = subprocess.Popen([f"{ROOT}/target/release/tidegate", "serve", "-c", path("tidegate.toml")], stderr=log)
        daemon = subprocess.Popen([
            "qemu-storage-daemon",
            "--blockdev", f"driver=file,node-name=f,filename={path('disk.raw')},aio=io_uring,locking=off",
            "--blockdev", "driver=raw,node-name=d,file=f",
            "--export", f"type=vhost-user-blk,id=e,node-name=d,addr.type=unix,addr.path={path('q.sock')},writable=on",
        ])
        try:
            for name in ("disk.sock", "q.sock", "nbd.sock"):
                wait_for(path(name))
            ways = {
                "tidegate": (gateway, lambda *about: disk_load(path("disk.sock"), *about)),
                "qemu-storage-daemon": (daemon, lambda *about: disk_load(path("q.sock"), *about)),
                "tidegate by NBD": (gateway, lambda *about: fio(path("nbd.sock"), *about)),
            }
            for operation in ("read", "write"):
                for depth in map(int, options.depths.split(",")):
                    seen = {way: [] for way in ways}
                    for pair in range(options.pairs):
                        order = list(ways) if pair % 2 == 0 else list(reversed(ways))
                        for way in order:
                            process, measure = ways[way]
                            before = processor_seconds(process)
                            iops = measure(depth, operation, options)
                            # The ramp of a second is in the processor time, and its requests are not counted.
                            used = (processor_seconds(process) - before) * options.seconds / (options.seconds + 1)
                            seen[way].append((iops, used / (iops * options.seconds) * 1e6))
                    row = {"operation": operation, "depth": depth}
                    for way, runs in seen.items():
                        row[way] = {
                            "iops": round(statistics.median(iops for iops, _ in runs)),
                            "processor_us": round(statistics.median(used for _, used in runs), 2),
                        }
                    for way in ("qemu-storage-daemon", "tidegate by NBD"):
                        ratios = [ours[0] / theirs[0] for ours, theirs in zip(seen["tidegate"], seen[way])]
                        row[f"ratio to {way}"] = round(statistics.median(ratios), 2)
                    results.append(row)
                    print(json.dumps(row))
        finally:
            for process in (gateway, daemon):
                process.terminate()
                process.wait()
    if options.out:
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        document = {
            "experiment": "vhost-user-vs-qemu", "date": datetime.date.today().isoformat(), "commit": commit,
            "host": f"{platform.machine()}, {os.cpu_count()} processors, {platform.release()}",
            "load": os.getloadavg(), "pairs": options.pairs, "seconds": options.seconds, "results": results,
        }
        with open(os.path.join(options.out, f"{document['date']}-vhost-user-vs-qemu.json"), "w") as file:
            json.dump(document, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
