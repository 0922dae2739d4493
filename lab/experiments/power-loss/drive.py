#!/usr/bin/env python3
"""The contents of the disk after a power loss, in the lab: see guest.py.

    power-loss                      five seeds
    power-loss --mutations          each rule of durability is removed from the gateway, and the loss of data
                                    must be found

Exit status 1 when data is lost, or a removed rule is not noticed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

sys.path.insert(0, os.path.join(os.path.dirname(driver.LAB), "scripts"))
import gateway_rules

# The rules whose absence must lose data, and the case that shows it.
CASES = {
    "a flush syncs the file": "direct",
    "FUA past the page cache": "direct",
    "FUA through the page cache": "buffered",
    "FUA of zeroes that are written": "direct",
    "a flush does not join a sync that runs": "buffered",
    "a sync covers all that wait for it": "buffered",
    "FUA is passed on": "upstream",
}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=60, help="marks of each case (default: %(default)s)")
    parser.add_argument(
        "--mutations", action="store_true", help="remove each rule, and check that data is lost"
    )
    parser.add_argument(
        "--target-dir",
        default=os.path.join(gateway_rules.ROOT, "target", "mutations"),
        metavar="DIR",
        help="build folder of the changed programs (default: target/mutations)",
    )
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    return parser.parse_args()


def run(options, seed, binary, *more):
    """The cases of one run; None if the guest has failed."""
    with tempfile.TemporaryDirectory() as out:
        status, printed, complaint = driver.run(
            "power-loss/guest.py",
            "--seed",
            seed,
            "--rounds",
            options.rounds,
            *more,
            out=out,
            binary=binary,
            limit=options.limit,
        )
        path = os.path.join(out, "measured.json")
        if not os.path.exists(path):
            print(f"seed {seed}: status {status}\n{printed}{complaint}", file=sys.stderr)
            return None
        with open(path) as file:
            return json.load(file)["cases"]


def over_seeds(options):
    rows = []
    for seed in range(1, options.seeds + 1):
        cases = run(options, seed, options.binary)
        if cases is None:
            return None
        rows += [
            {"seed": seed, **{key: found[key] for key in ("case", "rounds", "checked", "lost")}}
            for found in cases
        ]
        print(
            f"seed {seed}: "
            + ", ".join(
                f"{found['case']} {found['lost']} lost at {found['checked']} marks" for found in cases
            ),
            flush=True,
        )
    return rows


def mutations(options):
    rows = []
    with gateway_rules.copied_tree() as tree:
        for name, case in CASES.items():
            with gateway_rules.without(tree, name):
                subprocess.run(
                    ["cargo", "build", "--locked", "-q", "-p", "tidegate", "--bin", "tidegate"],
                    cwd=tree,
                    check=True,
                    env={**os.environ, "CARGO_TARGET_DIR": options.target_dir},
                )
            cases = run(options, 1, os.path.join(options.target_dir, "debug", "tidegate"), "--only", case)
            if cases is None:
                return None
            rows.append({"rule": name, "case": case, "lost": cases[0]["lost"]})
            print(f"without \"{name}\": {cases[0]['lost']} sectors lost ({case})", flush=True)
    return rows


def main():
    options = arguments()
    description = driver.described()
    rows = mutations(options) if options.mutations else over_seeds(options)
    if rows is None:
        return 1
    if options.mutations:
        right = all(row["lost"] > 0 for row in rows)
        print(
            "every removed rule is noticed" if right else "MISSED: a rule was removed, and nothing was lost"
        )
    else:
        right = all((row["lost"] > 0) == (row["case"] == "liar") for row in rows)
        print(
            "nothing lost, and the liar found"
            if right
            else "MISSED: something was lost, or the liar was not found"
        )
    if options.out:
        name = "lab-power-loss" + ("-mutations" if options.mutations else "")
        driver.leave(
            options.out,
            name,
            {
                "experiment": name.replace("-", " ", 1),
                "date": driver.today(),
                **description,
                "met": right,
                "rows": rows,
            },
        )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
