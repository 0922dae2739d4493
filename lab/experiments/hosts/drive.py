#!/usr/bin/env python3
"""Hosts that share an array, in the lab, with each of the three carriers: see guest.sh, which says what each phase is.

Every carrier has a virtual machine of its own, and so have contracts, which the law auto keeps whatever --law says. Exit status 1 when a run fails or something promised is missed.
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
# The carriers differ in how reports travel, not in what is done with them.
SHORT = {"udp": "uncontrolled,shares,kill,end-to-end", "file": "shares", "nats": "shares,policy,cut"}
CONTRACTS = ["--carrier", "udp", "--phases", "contracts", "--law", "auto", "--preset", "sata-stripe", "--target", 50]


def run(carrier, options, directory):
    out = os.path.join(directory, carrier)
    phases = SHORT.get(carrier) if options.short else PHASES
    seconds = 15 if options.short else 30
    what = CONTRACTS if carrier == "contracts" else ["--carrier", carrier, "--phases", phases, "--law", options.law]
    status, printed, complaint = driver.run(
        "hosts/guest.sh", *what, "--seconds", seconds, *options.hosts,
        out=out, binary=options.binary, limit=options.limit)
    print(f"{carrier}\n{printed}", flush=True)
    try:
        with open(os.path.join(out, "verdict.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        print(f"{carrier}: lab/run ended with {status}\n{complaint}", file=sys.stderr)
        return None


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--law", default="window", help="window or auto (default: %(default)s)")
    parser.add_argument("--carriers", help="which, separated by commas (default: udp,file,nats and, unless --short, contracts)")
    parser.add_argument("--short", action="store_true", help="fewer phases with each, and shorter ones")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)")
    parser.add_argument("hosts", nargs="*", help="after --: more options for guest.sh")
    options = parser.parse_args()
    options.carriers = (options.carriers or ",".join([*SHORT, *([] if options.short else ["contracts"])])).split(",")
    return options


def main():
    options = arguments()
    carriers = options.carriers
    description = driver.described()
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(options.jobs) as machines:
        runs = list(machines.map(lambda carrier: run(carrier, options, directory), carriers))
    met = all(result is not None and result["met"] for result in runs)
    if options.out:
        driver.leave(options.out, "lab-hosts" + ("-auto" if options.law == "auto" else "") + ("-short" if options.short else ""), {
            "experiment": "lab hosts", "law": options.law, "date": driver.today(), "short": options.short, **description,
            "met": met, "carriers": dict(zip(carriers, runs)),
        })
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
