#!/usr/bin/env python3
"""Transfers placed on real storage nodes in the lab, at the load of Nikolow's paper.

All policies run, with idle nodes and with loaded ones. Sixty files, four a second, are 2.6 times the load
that the nodes can move, as the paper's hundred are. The paper's rates are divided by a hundred, and its time
by four: 0.2, 3 and 0.6 MB/s, and files of 2.5 MB that need 0.1 MB/s. Other traffic takes another part of the
links every five seconds. Throughput is printed at the paper's rates over ten. One virtual machine for each
seed.

Exit status 1 when a transfer failed. The script (scripts/transfers-real.py) has expectations at its own load;
those that are not met here are printed.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

S3_SERVER = os.path.join(os.path.dirname(driver.LAB), "target", "debug", "examples", "s3-server")
LOAD = ["--size", "2.5", "--slower", "10", "--others", "5", "--without-accidents"]


def run(seed, options, directory):
    """The script's document of one seed; None if the run failed."""
    out = os.path.join(directory, str(seed))
    load = ["--transfers", options.transfers, *LOAD]
    policies = [word for policy in options.policy for word in ("--policy", policy)]
    status, printed, complaint = driver.run(
        "transfers/guest.sh",
        options.s3_server,
        *load,
        *policies,
        "--seed",
        seed,
        out=out,
        binary=options.binary,
        memory="3G",
        limit=options.limit,
    )
    print(f"seed {seed}\n{printed}", flush=True)
    documents = glob.glob(os.path.join(out, "*-transfers-real.json"))
    if not documents:
        print(f"seed {seed}: lab/run ended with {status}\n{complaint}", file=sys.stderr)
        return None
    with open(documents[0]) as file:
        return json.load(file)


def rows(runs):
    """The table: the values of all seeds for each policy, idle and loaded."""
    found = {}
    for one in runs:
        for result in one["results"]:
            found.setdefault((result["policy"], result["loaded"]), []).append(result)
    columns = ("kept", "throughput_bps", "waited_s", "of_needed", "nodes")
    return [
        {
            "policy": policy,
            "loaded": loaded,
            **{column: [one[column] for one in results] for column in columns},
        }
        for (policy, loaded), results in found.items()
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", action="append", default=[], help="one of the policies (default: all)")
    parser.add_argument(
        "--transfers", type=int, default=60, help="transfers of each policy (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument(
        "--s3-server",
        default=S3_SERVER,
        metavar="FILE",
        help="the example of tidegate-transfer (default: %(default)s)",
    )
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument(
        "--limit", type=int, default=7200, help="real seconds per seed (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    options = parser.parse_args()
    about, seeds = driver.described(), range(options.first_seed, options.first_seed + options.seeds)
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
        options.jobs
    ) as machines:
        runs = list(machines.map(lambda seed: run(seed, options, directory), seeds))
    if None in runs:
        return 1
    table = rows(runs)
    for row in table:
        print(
            f"{row['policy']:<11} {'loaded' if row['loaded'] else 'idle':<6} "
            f"{statistics.mean(row['kept']):5.0%}"
            f"  {statistics.mean(row['throughput_bps']) / 1e6:5.1f} MB/s; of the rate that is needed:"
            f" median {statistics.mean(one['median'] for one in row['of_needed']):.2f},"
            f" least {min(one['least'] for one in row['of_needed']):.2f}"
        )
    said = [f"seed {seed}: {line}" for seed, one in zip(seeds, runs) for line in one["not_as_expected"]]
    for line in said:
        print(f"not as expected: {line}")
    if options.out:
        driver.leave(
            options.out,
            "lab-transfers",
            {
                "experiment": "lab transfers",
                "date": driver.today(),
                **about,
                "load": LOAD,
                "transfers": options.transfers,
                "seeds": list(seeds),
                "rows": table,
                "not_as_expected": said,
            },
        )
    return 1 if any(result["errors"] for one in runs for result in one["results"]) else 0


if __name__ == "__main__":
    sys.exit(main())
