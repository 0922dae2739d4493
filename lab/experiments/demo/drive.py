#!/usr/bin/env python3
"""The demo in the lab: checks that its repeats agree, and that its goals are met over all seeds.

Every run has a sealed virtual machine of its own; as many run at once as there are processors. Repeats have
the same seed: their differences come from the machine, not from chance. Other seeds run once each. A goal is
judged by the mean over the seeds, because an elevator under twelve writers is chaotic. Two bursts of one
phase differ by some per cent. Exit status 1 when a run fails, repeats differ by more than the tolerance, or a
goal is missed.
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

DEMO = os.path.join(driver.LAB, "experiments", "demo", "guest.sh")
# Greatest difference between repeats, as a part of their mean; for a share of seconds, the difference itself.
TOLERANCE = 0.03

# Figures that must agree, and figures that are only shown: percentiles in the tail and single seconds depend
# on a few events, and a share kept is the quotient of two others.
FIGURES = [
    # heading        path in a phase of the result         agrees
    ("mean ms", ("victim_latency_ms", "mean"), True),
    ("writers MB/s", ("writers_bytes_per_s",), True),
    ("p50 ms", ("victim_latency_ms", "p50"), False),
    ("p95 ms", ("victim_latency_ms", "p95"), False),
    ("p99 ms", ("victim_latency_ms", "p99"), False),
    ("above target", ("above_target_fraction",), False),
    ("burst peak ms", ("burst_start_peak_ms",), False),
    ("kept", ("writers_kept_fraction",), False),
]
SHARES = {"above target", "kept"}


def run(law, seed, number, options, directory):
    """One run in a machine of its own: the demo's result, or None."""
    out = os.path.join(directory, f"{law}-{seed}-{number}")
    command = [os.path.join(driver.LAB, "run"), "--sealed", "--out", out, "--limit", str(options.limit)]
    if options.binary:
        command += ["--binary", options.binary]
    command += [DEMO, "--law", law, "--seed", str(seed), *options.demo]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if process.returncode != 0:
        print(
            f"{law}, seed {seed}, run {number}: lab/run ended with {process.returncode}\n{process.stderr}",
            file=sys.stderr,
        )
        return None
    with open(os.path.join(out, "demo.json")) as file:
        return json.load(file)


def figure(phase, path):
    for key in path:
        phase = phase.get(key)
        if phase is None:
            return None
    return phase


def spread(heading, values):
    """The distance between the repeats: relative, or in the unit itself for shares."""
    width = max(values) - min(values)
    mean = sum(values) / len(values)
    return width if heading in SHARES or mean == 0 else width / mean


def compare(law, results):
    """One row per phase and figure, over the repeats of a law."""
    rows = []
    for index, phase in enumerate(results[0]["phases"]):
        for heading, path, agrees in FIGURES:
            values = [figure(result["phases"][index], path) for result in results]
            # No writers ran, or no burst began, in this phase.
            if any(value is None for value in values) or (
                phase["name"] == "alone" and heading == "writers MB/s"
            ):
                continue
            apart = spread(heading, values)
            rows.append(
                {
                    "law": law,
                    "phase": phase["name"],
                    "figure": heading,
                    "values": values,
                    "spread": apart,
                    "judged": agrees,
                    "agree": not agrees or apart <= TOLERANCE,
                }
            )
    return rows


def shown(heading, value):
    if heading in SHARES:
        return f"{value:.1%}"
    return f"{value / 1e6:.2f}" if heading == "writers MB/s" else f"{value:.2f}"


def print_table(rows):
    print(f"{'law':7} {'phase':12} {'figure':14} {'repeats':36} {'spread':>7}")
    for row in rows:
        values = "  ".join(shown(row["figure"], value) for value in row["values"])
        mark = "" if row["agree"] else "  > 3 %: the repeats differ"
        note = mark if row["judged"] else "  (not judged)"
        print(f"{row['law']:7} {row['phase']:12} {row['figure']:14} {values:36} {row['spread']:7.2%}{note}")


def judge(law, results):
    """Each goal with its value for every seed; met when the mean over the seeds is within the bound."""
    goals = []
    for goal in zip(*(result["verdict"]["goals"] for result in results)):
        bounds = {key: goal[0][key] for key in ("at_least", "at_most") if key in goal[0]}
        values = [one["value"] for one in goal]
        mean = None if None in values else sum(values) / len(values)
        met = mean is not None and bounds.get("at_least", mean) <= mean <= bounds.get("at_most", mean)
        goals.append(
            {"law": law, "goal": goal[0]["name"], **bounds, "by_seed": values, "mean": mean, "met": met}
        )
    return goals


def print_goals(goals, seeds):
    print(
        f"{'law':7} {'goal, mean over the seeds':34} {'mean':>7} {'bound':>15}         "
        f"by seed {seeds[0]} to {seeds[-1]}"
    )
    for goal in goals:
        bound = " ".join(
            f"{key.replace('_', ' ')} {goal[key]:g}" for key in ("at_least", "at_most") if key in goal
        )
        mean = "none" if goal["mean"] is None else f"{goal['mean']:.3f}"
        values = " ".join("none" if value is None else f"{value:.3f}" for value in goal["by_seed"])
        print(
            f"{goal['law']:7} {goal['goal']:34} {mean:>7} {bound:>15} "
            f"{'met' if goal['met'] else 'MISSED':7} {values}"
        )


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--laws", default="auto,window,pid", help="laws, separated by commas (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, help="runs per law with seed 1 (default: 3; 2 with --short)")
    parser.add_argument("--seeds", type=int, help="seeds per law (default: 10; 3 with --short)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="fewer repeats and seeds")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--json", action="store_true", help="print the document instead of the tables")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=1800, help="real seconds per run (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    parser.add_argument("demo", nargs="*", help="after --: more options for `tidegate demo`")
    options = parser.parse_args()
    options.repeats = options.repeats or (2 if options.short else 3)
    options.seeds = range(options.first, options.first + (options.seeds or (3 if options.short else 10)))
    return options


def main():
    options = arguments()
    laws = options.laws.split(",")
    description = driver.described()
    subprocess.run([os.path.join(driver.LAB, "setup")], check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
        options.jobs
    ) as machines:
        started = {
            (law, seed): [
                machines.submit(run, law, seed, number, options, directory)
                for number in range(options.repeats if seed == options.seeds[0] else 1)
            ]
            for law in laws
            for seed in options.seeds
        }
        results = {key: [future.result() for future in futures] for key, futures in started.items()}
    if any(result is None for runs in results.values() for result in runs):
        return 1

    rows = [row for law in laws for row in compare(law, results[law, options.seeds[0]])]
    agree = all(row["agree"] for row in rows)
    goals = [goal for law in laws for goal in judge(law, [results[law, seed][0] for seed in options.seeds])]
    met = all(goal["met"] for goal in goals)
    document = {
        "experiment": "lab demo",
        "date": driver.today(),
        "short": options.short,
        **description,
        "first_seed": options.first,
        "tolerance": TOLERANCE,
        "repeats_agree": agree,
        "goals_met": met,
        "comparison": rows,
        "goals": goals,
        "runs": {law: [results[law, seed][0] for seed in options.seeds] for law in laws},
    }
    if options.json:
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        print_table(rows)
        print()
        print_goals(goals, options.seeds)
    if options.out:
        driver.leave(options.out, "lab-demo" + ("-short" if options.short else ""), document)
    return 0 if agree and met else 1


if __name__ == "__main__":
    sys.exit(main())
