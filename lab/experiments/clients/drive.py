#!/usr/bin/env python3
"""Eight clients behind four gateways, by bands, on an array that changes under them (see guest.sh).

Every run has a virtual machine of its own. Exit status 1 when a run fails or a promise is missed.
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

# A window of ten seconds in each phase, or three.
SHORT_PHASE_S, PHASE_S = 15, 35


def run(which, options, directory):
    law, carrier = which
    out = os.path.join(options.keep or directory, f"{law}-{carrier}")
    seconds = SHORT_PHASE_S if options.short else PHASE_S
    status, printed, complaint = driver.run(
        "clients/guest.sh",
        "--law",
        law,
        "--carrier",
        carrier,
        "--seconds",
        seconds,
        "--seed",
        options.seed,
        out=out,
        binary=options.binary,
        limit=options.limit,
    )
    print(f"{law}, by {carrier}\n{printed}", flush=True)
    try:
        with open(os.path.join(out, "verdict.json")) as file:
            return {"passed": status == 0, **json.load(file)}
    except FileNotFoundError:
        print(f"{law}, by {carrier}: lab/run ended with {status}\n{complaint}", file=sys.stderr)
        return None


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs",
        help=(
            "law-carrier, separated by commas "
            "(default: fixed-udp,adaptive-udp,queueing-udp, and in full fixed-nats)"
        ),
    )
    parser.add_argument("--short", action="store_true", help="one window in each phase, by UDP only")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="seed of the array's service times and the clients' places (default: %(default)s)",
    )
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--keep", metavar="DIR", help="keep logs and metrics there, in a folder for each run")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    options = parser.parse_args()
    runs = options.runs or "fixed-udp,adaptive-udp,queueing-udp" + ("" if options.short else ",fixed-nats")
    options.runs = [tuple(one.split("-")) for one in runs.split(",")]
    return options


def main():
    options = arguments()
    description = driver.described()
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
        options.jobs
    ) as machines:
        runs = list(machines.map(lambda carrier: run(carrier, options, directory), options.runs))
    passed = all(result is not None and result["passed"] for result in runs)
    if options.out:
        driver.leave(
            options.out,
            "lab-clients" + ("-short" if options.short else ""),
            {
                "experiment": "lab clients",
                "date": driver.today(),
                "short": options.short,
                **description,
                "passed": passed,
                "runs": {"-".join(which): result for which, result in zip(options.runs, runs)},
            },
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
