#!/usr/bin/env python3
"""The rehearsal in the lab: its report of a dry run, beside the same load with the law in force.

For each seed and storage, one virtual machine runs a database beside a backup. It does so for four minutes on
a dry run, and for four minutes with the law in force. The journal of the first part is rehearsed outside.
Exit status 1 when a run fails.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

STORAGES = {
    "queue": "exponential = { rate = '200 IO/s', servers = 2, capacity = '4GiB' }",
    "raid5": "preset = 'fc-raid5'",
}


def asked(binary, journal, *command):
    """A document of the program about a journal. A report without a claim has exit status 1."""
    ended = subprocess.run([binary, *command, "--journal", journal, "--json"], capture_output=True, text=True)
    if ended.returncode > 1 or not ended.stdout:
        raise RuntimeError(f"{command}: {ended.stderr}")
    return json.loads(ended.stdout)


def rehearsed(binary, journal):
    """The rehearsal of a whole journal."""
    newest = asked(binary, journal, "journal", "info")["newest"]
    return asked(binary, journal, "rehearse", "--at", newest, "--since", "1h")[0]


def backups(folder):
    """Runtimes of the backups in seconds, as fio tells them."""
    reports = []
    for number in (1, 2):
        with open(os.path.join(folder, f"backup-{number}.json")) as file:
            reports.append(json.load(file)["jobs"][0]["job_runtime"] / 1e3)
    return reports


def run(seed, storage, options, directory):
    """The rehearsal of one seed on one storage, and the actual values. None if the run failed."""
    out = os.path.join(directory, f"{storage}-{seed}")
    status, printed, errors = driver.run(
        "rehearsal/guest.sh", seed, STORAGES[storage], out=out, binary=options.binary, limit=options.limit
    )
    if status != 0:
        print(f"{storage}, seed {seed}: lab/run ended with {status}\n{printed}{errors}", file=sys.stderr)
        return None
    return compared(seed, storage, out, options)


def compared(seed, storage, out, options):
    program = (
        options.rehearse_with
        or options.binary
        or os.path.join(driver.LAB, "..", "target", "release", "tidegate")
    )
    report, law = (rehearsed(program, os.path.join(out, phase, "journal")) for phase in ("dry", "law"))
    before, after = (backups(os.path.join(out, phase)) for phase in ("dry", "law"))
    report["outcome"].get("predicted", {}).pop("curve", None)
    return {
        "storage": storage,
        "seed": seed,
        "report": report,
        "actual": law["measured"],
        "backup_seconds": {"dry": before, "law": after},
        "actual_later_seconds": max(late - early for early, late in zip(before, after)),
    }


def print_table(results):
    print(
        f"{'storage':8} {'seed':>8} {'dry':>7} {'with the law':>22} {'actual':>7} "
        f"{'backup later by':>22} {'actual':>7}"
    )
    for result in results:
        outcome, measured = result["report"]["outcome"], result["report"]["measured"]
        if "refused" in outcome:
            said = ", ".join(reason["reason"] for reason in outcome["refused"])
            print(
                f"{result['storage']:8} {result['seed']:>8} {measured['above_fraction']:>7.1%} "
                f"nothing claimed: {said}; actual {result['actual']['above_fraction']:.1%}"
            )
            continue
        prediction = outcome["predicted"]
        above = prediction["above_fraction"]
        later = next(one for one in prediction["consumers"] if one["name"] == "backup")["later_seconds"]
        spread = f"{above['likely']:.1%} ({above['low']:.1%}..{above['high']:.1%})"
        late = f"{later['likely']:.0f} s ({later['low']:.0f}..{later['high']:.0f})"
        print(
            f"{result['storage']:8} {result['seed']:>8} {measured['above_fraction']:>7.1%} {spread:>22} "
            f"{result['actual']['above_fraction']:>7.1%} {late:>22} {result['actual_later_seconds']:>5.0f} s"
        )


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--storages", default="queue,raid5", help="names, separated by commas (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="per storage (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed (default: %(default)s)")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--json", action="store_true", help="print the document instead of the table")
    parser.add_argument("--binary", help="the program in the guest (default: target/release/tidegate)")
    parser.add_argument(
        "--rehearse-with", metavar="FILE", help="the program that rehearses (default: the same)"
    )
    parser.add_argument("--done", metavar="DIR", help="compare the runs in DIR/STORAGE-SEED, and run none")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    return parser.parse_args()


def main():
    options = arguments()
    description = driver.described()
    cases = [
        (seed, storage)
        for storage in options.storages.split(",")
        for seed in range(options.first, options.first + options.seeds)
    ]
    if options.done:
        results = [
            compared(seed, storage, os.path.join(options.done, f"{storage}-{seed}"), options)
            for seed, storage in cases
        ]
    else:
        subprocess.run([os.path.join(driver.LAB, "setup")], check=True, stdout=sys.stderr)
        with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
            options.jobs
        ) as machines:
            results = list(machines.map(lambda case: run(*case, options, directory), cases))
    if any(result is None for result in results):
        return 1
    document = {"experiment": "lab rehearsal", "date": driver.today(), **description, "runs": results}
    if options.json:
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        print_table(results)
    if options.out:
        driver.leave(options.out, "lab-rehearsal", document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
