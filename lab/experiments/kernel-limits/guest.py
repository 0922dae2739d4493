#!/usr/bin/env python3
"""In the guest: the kernel's own regulators of a disk, and Tidegate beside them, with the same loads.

usage: guest.py [--seed N] [--seconds S] [--cases LIST] [--methods LIST]

    fio in cgroup reader ┐
    fio in cgroup w1     ├─▶ loop0, 32 requests at once ─▶ a server in order of arrival, 2 ms each
    fio in cgroup w2     │
    fio in cgroup w3     ┘

   protect   the reader reads 4 KiB, 60 times a second at random moments, with a target of 20 ms; each of the
             three others writes 16 KiB, and keeps 16 outstanding
   weights   w1, w2 and w3 read 4 KiB, 16 outstanding each, with the weights 4:2:1; then w1 is stopped for
             10 s

Methods; each of the kernel's has the parameters that a search over them found best:

   none      nothing
   io.max    a limit of each writer: the greatest with which the reader has 20 ms in all but 2 % of the
             seconds, found by bisection. In `weights`, limits are parts of the disk's capacity, by weight
   io.cost   weights, with a model measured on this disk; `io.cost.qos` for several latencies and least rates
   bfq       the scheduler's weights, with its `low_latency` and without
   pid, auto `tidegate agent` with the throttle `cgroup` and the law
   bands     (weights) `tidegate agent` by the law self-tuning
   serve     `tidegate serve` by the law auto, over NBD, with every consumer on a part of the disk of its own

Leaves /out/measured.json: for each run the means of seconds, and the processor time of the whole machine per
request.
"""

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
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
DEPTH = 32
TARGET_MS = 20
SETTLE_S = 15
ABOVE = 0.02
READER_IOPS = 60
WRITERS = ("w1", "w2", "w3")
WEIGHTS = {"w1": 400, "w2": 200, "w3": 100}
READER_WEIGHT, WRITER_WEIGHT = 1000, 100
PAUSE_S = 10
CAPACITY = 1000 / SERVICE_MS
# All requests of the disk take the same time: bytes cost nothing.
MODEL = (
    f"ctrl=user model=linear rbps=1000000000 rseqiops={CAPACITY:.0f} rrandiops={CAPACITY:.0f} "
    f"wbps=1000000000 wseqiops={CAPACITY:.0f} wrandiops={CAPACITY:.0f}"
)
QOS_MS, QOS_LEAST = (20, 10, 5), (50, 10)
# Debian's for a disk with one queue. Without a scheduler, requests beyond the disk's 32 wait, and no counter
# has them.
SCHEDULER = "mq-deadline"
# The length of each run of a search for parameters. Its seed is not among those that are reported.
SEARCH_S = 15
METHODS = {
    "protect": ("none", "io.max", "io.cost", "bfq", "pid", "auto", "serve"),
    "weights": ("none", "io.max", "io.cost", "bfq", "bands", "serve"),
}

AGENT = """\
throttle = "cgroup"
[resource.disk]
device = "{device}"
target = "{target}ms"
cgroups = ["w1", "w2", "w3"]
law = "{law}"
{more}
"""

SERVE = """\
listen = ["unix:/tmp/nbd.sock"]
[pool.disk]
backend = {{ kind = "file", direct = true }}
target = "{target}ms"
law = "auto"
"""


class Load:
    """fio for one consumer, in its cgroup, or over NBD."""

    def __init__(self, name, what, options):
        over_nbd = what == "serve"
        reads = options.case == "weights" or name == "reader"
        self.name, self.log = name, f"/tmp/{options.run}-{name}"
        command = [
            "fio",
            "--thread",
            "--direct=1",
            "--norandommap",
            f"--name={name}",
            f"--randseed={options.seed * 100 + len(name) + ord(name[-1])}",
            f"--rw={'randread' if reads else 'randwrite'}",
            f"--bs={'4k' if reads else '16k'}",
            "--time_based",
            "--runtime=100000",
            f"--write_lat_log={self.log}",
            f"--write_iops_log={self.log}",
            "--log_avg_msec=1000",
            "--per_job_logs=0",
            "--disable_clat=1",
            "--disable_slat=1",
        ]
        if name == "reader":
            command += ["--iodepth=32", f"--rate_iops={READER_IOPS}", "--rate_process=poisson"]
        else:
            command += ["--iodepth=16"]
        if over_nbd:
            command += ["--ioengine=nbd", f"--uri=nbd+unix:///{name}?socket=/tmp/nbd.sock"]
        else:
            command += ["--ioengine=libaio", f"--filename=/dev/{DEVICE}"]
        self.process = subprocess.Popen(
            command,
            preexec_fn=None if over_nbd else join(name),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def rows(self, kind):
        """fio's time and the value of each whole second."""
        rows = [line.split(",") for line in read(f"{self.log}_{kind}.log").splitlines()]
        return [(int(at) / 1000, float(value)) for at, value, *_ in rows]


def processor_s():
    """Processor time of the machine, all but idle: the kernel measures idle time, and samples the rest."""
    fields = [int(field) for field in read("/proc/stat").splitlines()[0].split()[4:6]]
    return time.monotonic() - sum(fields) / os.sysconf("SC_CLK_TCK")


def completed():
    fields = [int(field) for field in read(f"/sys/block/{DEVICE}/stat").split()]
    return fields[0] + fields[4]


def weights(case):
    return (
        {"reader": READER_WEIGHT, **dict.fromkeys(WRITERS, WRITER_WEIGHT)}
        if case == "protect"
        else {"reader": 100, **WEIGHTS}
    )


def parts():
    """The part of each consumer by weight."""
    return {name: weight / sum(WEIGHTS.values()) for name, weight in WEIGHTS.items()}


@contextlib.contextmanager
def io_max(rate, case):
    key, rates = (
        ("wiops", dict.fromkeys(WRITERS, rate))
        if case == "protect"
        else ("riops", {name: CAPACITY * part for name, part in parts().items()})
    )

    def limit(rate_of):
        for name in rates:
            write(f"{CGROUPS}/{name}/io.max", f"{number()} {key}={rate_of(name)}")

    limit(lambda name: f"{rates[name]:.0f}")
    yield
    limit(lambda _: "max")


@contextlib.contextmanager
def io_cost(parameter, case):
    latency, least = parameter
    for name, weight in weights(case).items():
        write(f"{CGROUPS}/{name}/io.weight", f"default {weight}")
    write(f"{CGROUPS}/io.cost.model", f"{number()} {MODEL}")
    write(
        f"{CGROUPS}/io.cost.qos",
        f"{number()} enable=1 ctrl=user rpct=95.00 rlat={latency * 1000} wpct=95.00 wlat={latency * 1000} "
        f"min={least}.00 max=150.00",
    )
    yield
    write(f"{CGROUPS}/io.cost.qos", f"{number()} enable=0")


@contextlib.contextmanager
def bfq(low_latency, case):
    queue = f"/sys/block/{DEVICE}/queue"
    write(f"{queue}/scheduler", "bfq")
    write(f"{queue}/iosched/low_latency", int(low_latency))
    for name, weight in weights(case).items():
        write(f"{CGROUPS}/{name}/io.bfq.weight", weight)
    yield
    write(f"{queue}/scheduler", SCHEDULER)


@contextlib.contextmanager
def agent(law, target, more=""):
    running = Agent(f"agent-{law}", AGENT.format(device=DEVICE, target=target, law=law, more=more), "info")
    yield
    running.end()


def agent_by_bands(target):
    ratios = ", ".join(f"{name} = {part:.4f}" for name, part in parts().items())
    return agent(
        "self-tuning", target, f'bands = [{{ up_to = "{10 * CAPACITY:.0f} IO/s", ratios = {{ {ratios} }} }}]'
    )


@contextlib.contextmanager
def gateway(target, case):
    terms = (
        {"reader": "protected = true\n", **dict.fromkeys(WRITERS, "")}
        if case == "protect"
        else {name: f"shares = {weight}\n" for name, weight in WEIGHTS.items()}
    )
    write(
        "/tmp/serve.toml",
        SERVE.format(target=target)
        + "".join(
            f'[pool.disk.export.{name}]\npath = "/dev/mapper/{name}"\n{own}' for name, own in terms.items()
        ),
    )
    with open("/out/serve.log", "w") as log:
        running = subprocess.Popen(["tidegate", "serve", "-c", "/tmp/serve.toml"], stderr=log)
        until(lambda: " ready" in read("/out/serve.log") or running.poll() is not None, "the gateway")
        if running.poll() is not None:
            raise iscsi.Failed(f"the gateway ended: {read('/out/serve.log')}")
        yield
        running.send_signal(signal.SIGTERM)
        running.wait(30)


REGULATORS = {
    "none": lambda _, case: contextlib.nullcontext(),
    "io.max": io_max,
    "io.cost": io_cost,
    "bfq": bfq,
    "pid": lambda target, case: agent("pid", target),
    "auto": lambda target, case: agent("auto", target),
    "bands": lambda target, case: agent_by_bands(target),
    "serve": gateway,
}


def beside_a_pause(load):
    """Requests per second of the disk while a load is stopped."""
    load.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    first = completed()
    time.sleep(PAUSE_S)
    load.process.send_signal(signal.SIGCONT)
    return (completed() - first) / PAUSE_S


RUNS = itertools.count(1)


def run_one(method, parameter, case, seed, seconds):
    options = argparse.Namespace(run=f"{next(RUNS):03}-{method}", case=case, seed=seed)
    names = (("reader",) if case == "protect" else ()) + WRITERS
    begun, paused = time.monotonic(), None
    with REGULATORS[method](parameter, case):
        loads = {name: Load(name, method, options) for name in names}
        time.sleep(SETTLE_S)
        before = processor_s(), completed()
        time.sleep(seconds)
        after = processor_s(), completed()
        if case == "weights":
            paused = beside_a_pause(loads["w1"])
        for load in loads.values():
            load.end()

    def within(rows):
        return [value for at, value in rows if SETTLE_S < at <= SETTLE_S + seconds]

    found = {
        "method": method,
        "parameter": parameter,
        "case": case,
        "seed": seed,
        "iops": (after[1] - before[1]) / seconds,
        "processor_us_per_request": 1e6 * (after[0] - before[0]) / max(1, after[1] - before[1]),
        "each": {name: statistics.mean(within(load.rows("iops")) or [0]) for name, load in loads.items()},
    }
    if case == "protect":
        means = [value / 1e6 for value in within(loads["reader"].rows("lat"))]
        found |= {
            "reader_ms": means,
            "above": sum(mean > TARGET_MS for mean in means) / max(1, len(means)) if means else 1.0,
        }
    else:
        did = sum(found["each"].values()) or 1
        found |= {
            "share_error": max(abs(found["each"][name] / did / part - 1) for name, part in parts().items()),
            "latency_ms": {
                name: statistics.mean(within(load.rows("lat")) or [0]) / 1e6 for name, load in loads.items()
            },
            "paused_iops": paused,
        }
    print(
        f"{case} {method} {parameter}: {found['iops']:.0f} IO/s, above {found.get('above')}, "
        f"{ {name: round(value, 1) for name, value in found['each'].items()} } "
        f"after {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return found


def best_of(runs):
    """The tried run with the fewest seconds above beyond the allowance, then with the most requests."""
    return min(runs, key=lambda found: (max(0, found["above"] - ABOVE), -found["iops"]))


def search(method, case, seed):
    """The parameter of the reported runs, and the runs of its search."""
    if method == "io.max" and case == "protect":
        least, most, tried = 10, int(CAPACITY / len(WRITERS)) + 30, []
        while most - least > 10:
            middle = (least + most) // 2 // 10 * 10
            if middle == least:
                break
            tried.append(run_one(method, middle, case, seed, SEARCH_S))
            least, most = (middle, most) if tried[-1]["above"] <= ABOVE else (least, middle)
        return least, tried
    if method == "io.cost":
        choices = [(latency, least) for latency in QOS_MS for least in QOS_LEAST]
    elif method == "bfq":
        choices = [True, False]
    else:
        return {"none": None, "io.max": None}.get(
            method, TARGET_MS if case == "protect" else 2 * TARGET_MS
        ), []
    tried = [run_one(method, choice, case, seed, SEARCH_S) for choice in choices]
    if case == "protect":
        return best_of(tried)["parameter"], tried
    return min(tried, key=lambda found: found["share_error"])["parameter"], tried


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=30, help="measured of each run (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="from --seed on (default: %(default)s)")
    parser.add_argument("--cases", default="protect,weights")
    parser.add_argument("--methods")
    options = parser.parse_args()
    disk.set_up(("reader", *WRITERS), MIB, SERVICE_MS, DEPTH)
    run(["modprobe", "-a", "dm-mod", "bfq", "mq-deadline"])
    write(f"/sys/block/{DEVICE}/queue/rotational", 1)
    write(f"/sys/block/{DEVICE}/queue/scheduler", SCHEDULER)
    part = MIB * 2048 // 4
    for place, name in enumerate(("reader", *WRITERS)):
        run(
            [
                "dmsetup",
                "--noudevsync",
                "create",
                name,
                "--table",
                f"0 {part} linear /dev/{DEVICE} {place * part}",
            ]
        )
        run(["dmsetup", "mknodes"])
    run(["pin", "dmsetup"])
    measured = {
        "options": vars(options),
        "kernel": os.uname().release,
        "target_ms": TARGET_MS,
        "tried": [],
        "runs": [],
    }
    for case in options.cases.split(","):
        for method in METHODS[case]:
            if options.methods and method not in options.methods.split(","):
                continue
            parameter, tried = search(method, case, 1_000_000 + options.seed)
            measured["tried"] += tried
            for seed in range(options.seed, options.seed + options.seeds):
                measured["runs"].append(run_one(method, parameter, case, seed, options.seconds))
    with open("/out/measured.json", "w") as file:
        json.dump(measured, file, indent=1)


if __name__ == "__main__":
    try:
        main()
    except iscsi.Failed as error:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {error}")
