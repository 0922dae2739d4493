#!/usr/bin/env python3
"""Hosts that share an array, in the lab, with each of the three carriers.

guest.sh describes the phases. Every run has a virtual machine of its own: one for each carrier, and one for
contracts. The latter is by the law auto, with any --law. Exit status 1 when a run fails or a promise is
missed.
"""

import argparse
import concurrent.futures
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

PHASES = "uncontrolled,shares,kill,policy,cut,end-to-end"
# The carriers differ in the transport of reports, not in their use.
SHORT = {"udp": "uncontrolled,shares,kill,end-to-end", "file": "shares", "nats": "shares,policy,cut"}
CONTRACTS = [
    "--carrier",
    "udp",
    "--phases",
    "contracts",
    "--law",
    "auto",
    "--preset",
    "sata-stripe",
    "--target",
    50,
]


def arguments_of(name, options):
    """The arguments of guest.sh for a run."""
    if name == "contracts":
        return CONTRACTS
    return ["--carrier", name, "--phases", SHORT[name] if options.short else PHASES, "--law", options.law]


def seconds(options):
    """The length of a phase.

    In 15 s this disk completes 2,600 requests, by chance a hundredth more or less. The law auto stays further
    below the target. It needs the longer phases, so that its throughput can be told from the bound.
    """
    return 15 if options.short and options.law != "auto" else 30


def run(name, options, directory):
    out = os.path.join(directory, name)
    status, printed, complaint = driver.run(
        "hosts/guest.sh",
        *arguments_of(name, options),
        "--seconds",
        seconds(options),
        *options.hosts,
        out=out,
        binary=options.binary,
        limit=options.limit,
    )
    print(f"{name}\n{printed}", flush=True)
    try:
        with open(os.path.join(out, "verdict.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        print(f"{name}: lab/run ended with {status}\n{complaint}", file=sys.stderr)
        return None


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--law", default="window", help="window or auto (default: %(default)s)")
    parser.add_argument(
        "--runs", help="runs, separated by commas (default: udp,file,nats and, unless --short, contracts)"
    )
    parser.add_argument("--short", action="store_true", help="fewer phases with each, and shorter ones")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    parser.add_argument("hosts", nargs="*", help="after --: more options for guest.sh")
    options = parser.parse_args()
    options.runs = (options.runs or ",".join([*SHORT, *([] if options.short else ["contracts"])])).split(",")
    return options


def main():
    options = arguments()
    description = driver.described()
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
        options.jobs
    ) as machines:
        runs = list(machines.map(lambda name: run(name, options, directory), options.runs))
    met = all(result is not None and result["met"] for result in runs)
    if options.out:
        driver.leave(
            options.out,
            "lab-hosts" + ("-auto" if options.law == "auto" else "") + ("-short" if options.short else ""),
            {
                "experiment": "lab hosts",
                "law": options.law,
                "date": driver.today(),
                "short": options.short,
                **description,
                "met": met,
                "runs": dict(zip(options.runs, runs)),
            },
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
