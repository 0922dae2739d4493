#!/usr/bin/env python3
"""In the guest: processor time of the whole machine per request, for three block devices.

The devices are an export, a loop device on the same file, and a device that moves nothing (null_blk). The
guest's clock counts instructions, so that a nanosecond of processor time is one instruction. The file is in
memory. The time of the device that moves nothing is fio's, and the kernel's for any device.

usage: cost.py [--requests N]

Leaves /out/cost.json.
"""

import argparse
import json
import os
import subprocess
import time

CONFIGURATION = """
listen = ['unix:nbd.sock']
[pool.storage]
backend = { kind = 'file' }
[pool.storage.export.disk]
path = '/mnt/memory/disk.raw'
shared_volume = true
listen = ['ublk:0']
"""
SIZE = 64 << 20


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def busy():
    """Seconds that the processor was not idle."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def cost(device, kind, depth, requests):
    command = [
        "fio",
        "--name=x",
        f"--filename={device}",
        "--direct=1",
        "--ioengine=libaio",
        f"--iodepth={depth}",
        f"--rw={kind}",
        "--bs=4k",
        f"--number_ios={requests}",
        f"--size={SIZE}",
        "--output-format=json",
        "--norandommap",
    ]
    run(*command)
    before = busy()
    done = json.loads(run(*command))["jobs"][0]
    return 1e9 * (busy() - before) / (done["read"]["total_ios"] + done["write"]["total_ios"])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests", type=int, default=20_000, help="requests of each load (default: %(default)s)"
    )
    options = parser.parse_args()
    run("pin", "fio", "losetup")
    os.makedirs("/mnt/memory", exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", "/mnt/memory")
    with open("/mnt/memory/disk.raw", "wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    run("modprobe", "-a", "ublk_drv", "loop")
    run("modprobe", "null_blk", "nr_devices=1", "gb=1", "queue_mode=2", "irqmode=0")
    loop = run("losetup", "--find", "--show", "/mnt/memory/disk.raw")
    with open("tidegate.toml", "w") as file:
        file.write(CONFIGURATION)
    gateway = subprocess.Popen(["tidegate", "serve", "-c", "tidegate.toml"])
    while not os.path.exists("/dev/ublkb0"):
        time.sleep(0.1)
    devices = {"ublk": "/dev/ublkb0", "loop": loop, "nothing": "/dev/nullb0"}
    rows = []
    for kind in ("randread", "randwrite"):
        for depth in (1, 32):
            took = {
                name: round(cost(device, kind, depth, options.requests)) for name, device in devices.items()
            }
            rows.append({"load": kind, "depth": depth, **took})
            print(rows[-1], flush=True)
    gateway.terminate()
    gateway.wait()
    with open("/out/cost.json", "w") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    main()
