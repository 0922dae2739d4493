#!/usr/bin/env python3
"""The kernel's own regulators of a disk, and Tidegate beside them, in the lab with kernel 6.12.

guest.py describes the comparison. Prints a table of means over the seeds. Exit status 1 when a run fails, or
when Tidegate by the law auto misses its promise: the reader within its target in 95 % of the seconds, shares
within a tenth.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver
from judging import KEPT

CASES = ("protect", "weights")
SHARES_WITHIN = 0.1
BY_AUTO = ("auto", "serve")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--keep", metavar="DIR", help="keep the files of the machines there")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=7200, help="real seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the first (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    return parser.parse_args()


def summary(runs):
    """Means over the seeds, for the runs of one method in one case."""
    first = runs[0]
    row = {"case": first["case"], "method": first["method"], "parameter": first["parameter"]}
    for key in ("iops", "processor_us_per_request"):
        row[key] = statistics.mean(run[key] for run in runs)
    if first["case"] == "protect":
        means = [mean for run in runs for mean in run["reader_ms"]]
        row |= {
            "above": statistics.mean(run["above"] for run in runs),
            "reader_ms": statistics.mean(means),
            "reader_worst_ms": max(means),
            "writers_iops": statistics.mean(
                sum(rate for name, rate in run["each"].items() if name != "reader") for run in runs
            ),
        }
    else:
        row |= {
            "share_error": max(run["share_error"] for run in runs),
            "paused_iops": statistics.mean(run["paused_iops"] for run in runs),
            "latency_ms": {
                name: statistics.mean(run["latency_ms"][name] for run in runs) for name in first["latency_ms"]
            },
        }
    row["met"] = first["method"] not in BY_AUTO or (
        row["above"] <= 1 - KEPT if "above" in row else row["share_error"] <= SHARES_WITHIN
    )
    return row


def show(rows):
    for row in rows:
        found = (
            f"above {100 * row['above']:5.1f} %, reader {row['reader_ms']:6.1f} ms, "
            f"worst second {row['reader_worst_ms']:6.1f} ms, writers {row['writers_iops']:4.0f} IO/s"
            if row["case"] == "protect"
            else f"shares within {100 * row['share_error']:5.1f} %, "
            f"{row['paused_iops']:4.0f} IO/s while w1 is stopped"
        )
        print(
            f"  {row['case']:8} {row['method']:8} {str(row['parameter']):12} {row['iops']:4.0f} IO/s, "
            f"{found}, {row['processor_us_per_request']:4.0f} us of processor per request"
            f"{'' if row['met'] else '  MISSED'}"
        )


def run(case, options, directory):
    """Runs a case in a guest. Returns its measurements, or None if it failed."""
    out = os.path.join(directory, case)
    status, _, complaint = driver.run(
        "kernel-limits/guest.py",
        "--cases",
        case,
        "--seed",
        options.seed,
        "--seeds",
        options.seeds,
        out=out,
        binary=options.binary,
        kernel="6.12",
        limit=options.limit,
    )
    if status != 0:
        print(f"{case}: lab/run ended with {status}\n{complaint}", file=sys.stderr)
        return None
    with open(os.path.join(out, "measured.json")) as file:
        return json.load(file)


def main():
    options = arguments()
    description = driver.described()
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
        options.jobs
    ) as machines:
        found = list(machines.map(lambda case: run(case, options, options.keep or directory), CASES))
    if None in found:
        return 1
    rows = []
    for measured in found:
        for method in dict.fromkeys(one["method"] for one in measured["runs"]):
            rows.append(summary([one for one in measured["runs"] if one["method"] == method]))
    show(rows)
    met = all(row["met"] for row in rows)
    if options.out:
        driver.leave(
            options.out,
            "lab-kernel-limits",
            {
                "experiment": "lab kernel-limits",
                "date": driver.today(),
                **description,
                "kernel": found[0]["kernel"],
                "met": met,
                "summary": rows,
                "tried": [summary([one]) for measured in found for one in measured["tried"]],
            },
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
