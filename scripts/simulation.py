#!/usr/bin/env python3
"""The simulation of gateways under faults (crates/tidegate-gateway/src/worker/simulation), at length.

    simulation.py [--seeds N] [--first N]      runs seeds, and shows the first that breaks a rule
    simulation.py --mutations [TEXT...]        removes each rule from the source: a seed must find the gap

With texts, only the rules are removed whose name contains one of them. Exit status 1 when a seed breaks a
rule, or a removed rule is not noticed.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from gateway_rules import ROOT, RULES, copied_tree, without

FAILED = re.compile(r"TIDEGATE_SEED=(\d+) cargo")
BROKEN = re.compile(r"^BROKEN: (.*)$", re.MULTILINE)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument(
        "--mutations", nargs="*", metavar="TEXT", help="remove each rule: a seed must find the gap"
    )
    parser.add_argument(
        "--target-dir",
        default=os.path.join(ROOT, "target", "mutations"),
        metavar="DIR",
        help="the folder for the changed programs (default: target/mutations)",
    )
    parser.add_argument("--out", metavar="DIR", help="leave a document there, named after the day")
    return parser.parse_args()


def run(options, tree=ROOT, target=None):
    """Runs the seeds. Returns the seed that broke a rule, or None, and the printed text."""
    environment = {
        **os.environ,
        "TIDEGATE_SEEDS": str(options.seeds),
        "TIDEGATE_FIRST_SEED": str(options.first),
        "RUST_BACKTRACE": "0",
    }
    if target:
        environment["CARGO_TARGET_DIR"] = target
    command = [
        os.environ.get("CARGO", "cargo"),
        "test",
        "--locked",
        "-q",
        "-p",
        "tidegate",
        "-p",
        "tidegate-gateway",
        "--lib",
        "simulation::no_seed_breaks_a_rule",
    ]
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    failed = FAILED.search(done.stdout)
    if done.returncode != 0 and not failed:
        sys.exit(f"the simulation does not run:\n{done.stdout}")
    return (int(failed.group(1)) if failed else None), done.stdout


def mutations(options):
    rows = []
    with copied_tree() as tree:
        for name in RULES:
            if options.mutations and not any(part in name for part in options.mutations):
                continue
            with without(tree, name):
                seed, printed = run(options, tree, options.target_dir)
            broken = BROKEN.search(printed)
            rows.append({"rule": name, "seed": seed, "broken": broken.group(1) if broken else None})
            found = f"seed {seed}: {rows[-1]['broken']}" if seed else f"NOT FOUND by {options.seeds} seeds"
            print(f'without "{name}": {found}', flush=True)
    return rows, all(row["seed"] for row in rows)


def seeds(options):
    began = time.monotonic()
    seed, printed = run(options)
    print(
        printed if seed else f"{options.seeds} seeds from {options.first} in {time.monotonic() - began:.0f} s"
    )
    return [{"seeds": options.seeds, "first": options.first, "broken_by": seed}], seed is None


def main():
    options = arguments()
    rows, met = seeds(options) if options.mutations is None else mutations(options)
    if options.out:
        name = "simulation" + ("" if options.mutations is None else "-mutations")
        path = os.path.join(options.out, f"{datetime.date.today()}-{name}.json")
        with open(path, "w") as file:
            json.dump(
                {
                    "experiment": name,
                    "date": str(datetime.date.today()),
                    "seeds": options.seeds,
                    "met": met,
                    "rows": rows,
                },
                file,
                indent=2,
            )
            file.write("\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
