#!/usr/bin/env python3
"""Two PostgreSQL servers on one array, shares 1:4, with Tidegate and without (PARDA 5.7): see guest.sh.

The runs start from the same volumes and have the same chain. Without Tidegate, both servers are treated
alike. Exit status 1 when a run fails or the favoured server misses its bounds. It must get at least half as
many transactions again as the other, in at most four fifths of the time each. (The paper's server got about
twice as many, in half the time. The database determines how far shares of requests become shares of
transactions.)
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

SERVERS = ("minor", "favoured")
LEAST_RATIO, MOST_LATENCY_RATIO = 1.5, 0.8


def percentile(ordered, part):
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def transactions(path, seconds):
    """The rate and latency of the transactions that guest.sh leaves."""
    with open(path) as file:
        took = sorted(int(line.split()[1]) / 1000 for line in file)
    return {
        "transactions_per_s": len(took) / seconds,
        "latency_ms": {
            "mean": sum(took) / len(took),
            **{f"p{p}": percentile(took, p / 100) for p in (50, 95, 99)},
        },
    }


def run(law, volume, options, directory):
    out = os.path.join(directory, law)
    status, _, complaint = driver.run(
        "postgres/guest.sh",
        volume,
        "--hosts",
        options.hosts,
        "--law",
        law,
        "--regulates_by",
        options.law,
        "--ramp",
        options.ramp,
        "--seconds",
        options.seconds,
        *options.postgres,
        out=out,
        binary=options.binary,
        limit=options.limit,
    )
    if status != 0:
        print(f"law {law}: lab/run ended with {status}\n{complaint}", file=sys.stderr)
        return None
    return {
        name: transactions(os.path.join(out, f"{name}.transactions"), options.seconds) for name in SERVERS
    }


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--hosts",
        type=int,
        choices=(1, 2),
        default=1,
        help="one gateway for both, or as in the paper a host for each (default: %(default)s)",
    )
    parser.add_argument(
        "--law", choices=("window", "auto"), default="window", help="the law of `on` (default: %(default)s)"
    )
    parser.add_argument("--short", action="store_true", help="a third of the time")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    parser.add_argument("postgres", nargs="*", help="after --: more options for guest.sh")
    options = parser.parse_args()
    options.ramp, options.seconds = (10, 20) if options.short else (20, 60)
    return options


def main():
    options = arguments()
    description = driver.described()
    subprocess.run([os.path.join(driver.LAB, "setup")], check=True, stdout=sys.stderr)
    volume = subprocess.run(
        [os.path.join(driver.LAB, "experiments", "postgres", "volume.sh")],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
        options.jobs
    ) as machines:
        runs = dict(
            zip(("off", "on"), machines.map(lambda law: run(law, volume, options, directory), ("off", "on")))
        )
    if None in runs.values():
        return 1

    for law, servers in runs.items():
        for name, result in servers.items():
            latency = "  ".join(f"{key} {value:.1f}" for key, value in result["latency_ms"].items())
            print(f"law {law:4} {name:9} {result['transactions_per_s']:7.1f} transactions/s   ms: {latency}")
    minor, favoured = (runs["on"][name] for name in SERVERS)
    ratio = favoured["transactions_per_s"] / minor["transactions_per_s"]
    latency_ratio = favoured["latency_ms"]["mean"] / minor["latency_ms"]["mean"]
    met = ratio >= LEAST_RATIO and latency_ratio <= MOST_LATENCY_RATIO
    print(
        f"with shares 1:4 the favoured server gets {ratio:.2f} times the transactions "
        f"in {latency_ratio:.2f} of the time: {'met' if met else 'MISSED'}"
    )
    if options.out:
        driver.leave(
            options.out,
            f"lab-postgres-{options.hosts}"
            + ("-auto" if options.law == "auto" else "")
            + ("-short" if options.short else ""),
            {
                "experiment": "lab postgres",
                "regulates_by": options.law,
                "date": driver.today(),
                "short": options.short,
                **description,
                "hosts": options.hosts,
                "shares": {"minor": 100, "favoured": 400},
                "options": options.postgres,
                "law": runs,
                "favoured_to_minor": {"transactions": ratio, "latency": latency_ratio},
                "met": met,
            },
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
