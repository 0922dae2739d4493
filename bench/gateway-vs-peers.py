#!/usr/bin/env python3
"""Speed of the gateway beside nbdkit and qemu-nbd: same file, same cache mode, same client, one go.

Runs of both sides alternate, so that the machine's noise meets both; what is reported is the median of the
ratios of neighbouring runs (above 1: the gateway is faster). Prints a table and, with --out, leaves a dated
JSON document with the machine's description.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def tidegate(binary, data, socket, scratch, qos):
    config = os.path.join(scratch, "serve.toml")
    law = 'law = "window"\ntarget = "1s"\n' if qos else ""
    with open(config, "w") as out:
        out.write(f'listen = ["unix:{socket}"]\n[pool.bench]\nbackend = {{ kind = "file", direct = false }}\n'
                  f'depth = 64\n{law}[pool.bench.export.bench]\npath = "{data}"\n')
    return [binary, "serve", "-c", config]


def server(name, options, data, socket, scratch):
    return {
        "tidegate": lambda: tidegate(options.binary, data, socket, scratch, qos=True),
        "tidegate-plain": lambda: tidegate(options.binary, data, socket, scratch, qos=False),
        "nbdkit": lambda: ["nbdkit", "-f", "-U", socket, "-e", "bench", "file", data],
        "qemu-nbd": lambda: ["qemu-nbd", "-t", "-f", "raw", "-x", "bench", "-e", "8", "--aio=io_uring",
                             "--cache=writeback", "-k", socket, data],
    }[name]()


def run(name, depth, options, data):
    """One run of fio against one server; the server's own process, started and ended here."""
    with tempfile.TemporaryDirectory() as scratch:
        socket = os.path.join(scratch, "nbd.sock")
        log = open(os.path.join(scratch, "log"), "wb")
        process = subprocess.Popen(server(name, options, data, socket, scratch), stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 10
            while not os.path.exists(socket):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{name} did not start:\n{open(log.name).read()}")
                time.sleep(0.01)
            output = subprocess.run(
                ["fio", "--name=bench", "--ioengine=nbd", f"--uri=nbd+unix:///bench?socket={socket}",
                 "--rw=randread", "--bs=4k", f"--iodepth={depth}", "--time_based", "--ramp_time=1",
                 f"--runtime={options.seconds}", "--randrepeat=1", "--output-format=json"],
                check=True, capture_output=True, text=True).stdout
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    read = json.loads(output[output.index("{"):])["jobs"][0]["read"]
    latency = read["clat_ns"]
    return {"iops": read["iops"], "mean_us": latency["mean"] / 1e3,
            "p99_us": latency["percentile"]["99.000000"] / 1e3}


def compare(ours, peer, depth, options, data):
    pairs = []
    for number in range(options.pairs):
        order = (ours, peer) if number % 2 == 0 else (peer, ours)
        both = {name: run(name, depth, options, data) for name in order}
        pairs.append((both[ours], both[peer]))
        print(".", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    ratio = lambda key: statistics.median(a[key] / b[key] for a, b in pairs)
    middle = lambda side, key: statistics.median(pair[side][key] for pair in pairs)
    return {"ours": ours, "peer": peer, "depth": depth, "pairs": len(pairs),
            "iops_ratio": ratio("iops"), "p99_ratio": ratio("p99_us"),
            "iops": middle(0, "iops"), "peer_iops": middle(1, "iops"),
            "p99_us": middle(0, "p99_us"), "peer_p99_us": middle(1, "p99_us")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/tidegate"))
    parser.add_argument("--pairs", type=int, default=10, help="alternating pairs of runs (default 10)")
    parser.add_argument("--seconds", type=int, default=3, help="measured seconds of each run (default 3)")
    parser.add_argument("--peers", nargs="+", default=["nbdkit", "qemu-nbd", "tidegate-plain"], metavar="PEER")
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 32], metavar="DEPTH")
    parser.add_argument("--out", help="folder for the dated result")
    options = parser.parse_args()
    for tool in ("fio", "nbdkit", "qemu-nbd"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: run `make packages`")

    with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "target")) as folder:
        data = os.path.join(folder, "data")
        with open(data, "wb") as out:
            for _ in range(256):
                out.write(os.urandom(1 << 20))
        results = [compare("tidegate", peer, depth, options, data)
                   for peer in options.peers for depth in options.depths]

    print(f"{'against':<16}{'depth':>6}{'IOPS':>10}{'theirs':>10}{'ratio':>8}{'p99 µs':>9}{'theirs':>9}{'ratio':>8}")
    for r in results:
        print(f"{r['peer']:<16}{r['depth']:>6}{r['iops']:>10.0f}{r['peer_iops']:>10.0f}{r['iops_ratio']:>8.3f}"
              f"{r['p99_us']:>9.0f}{r['peer_p99_us']:>9.0f}{r['p99_ratio']:>8.3f}")
    if options.out:
        now = datetime.datetime.now(datetime.timezone.utc)
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
        document = {"date": now.isoformat(timespec="seconds"), "seconds": options.seconds,
                    "machine": {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release()},
                    "results": results}
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, f"{now:%Y-%m-%d}-gateway-vs-peers.json"), "w") as out:
            json.dump(document, out, indent=2)
            out.write("\n")


if __name__ == "__main__":
    main()
