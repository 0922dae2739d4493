"""Parts that the benches share: processor time of a process, ratios with their interval, dated results."""

import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process):
    """User and system time of all threads of a process, those of the kernel's workers for it included."""
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def interval(values):
    """Returns the median, and the order statistics between which it lies with at least 95 %."""
    ordered, count = sorted(values), len(values)
    outside = 0
    # Binomial: the part of samples whose k-th value is above the median.
    while (
        outside < count // 2 and 2 * sum(math.comb(count, k) for k in range(outside + 1)) / 2**count <= 0.05
    ):
        outside += 1
    low = max(outside - 1, 0)
    return {"median": statistics.median(ordered), "low": ordered[low], "high": ordered[count - 1 - low]}


def machine():
    with open("/proc/cpuinfo") as file:
        processor = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "")
    return {"cpu": processor, "cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()}


def leave(directory, name, document):
    """Writes a result, named after the day, with its machine and the commit."""
    now = datetime.datetime.now(datetime.timezone.utc)
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"{now.date().isoformat()}-{name}.json")
    with open(path, "w") as out:
        json.dump(
            {
                "experiment": name,
                "date": now.isoformat(timespec="seconds"),
                "commit": commit,
                "machine": machine(),
                **document,
            },
            out,
            indent=1,
        )
        out.write("\n")
    print(f"result: {path}", file=sys.stderr)
