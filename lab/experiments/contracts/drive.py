#!/usr/bin/env python3
"""Contracts on the gateway, in the lab: Lee's cases 1 to 4 in both orders, beside the simulator.

guest.sh describes the cases. The simulator runs the same cases with the same program. Its law decides as long
after the first request as the gateway's did. A consumer that returns right after a decision gets no room for
a whole second. With the paper's law, up to half as many again of its requests are late as when it returns
between decisions.

Both variants of the law are run: the paper's, with any number of requests ahead and its buckets, and ours. A
case depends on chance: with one seed late requests come in clusters. So a case is judged by its mean over the
seeds. Late requests must agree within three percentage points, mean response times within 15 %. With --short
there is one seed, which must lie that near to the span of the simulator's seeds. Exit status 1 when a run
fails or a result does not agree.
"""

import argparse
import concurrent.futures
import datetime
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

LATE, TIMES = 0.03, 0.15
EXPORTS = ("w1", "w2")
CASES = ("1a", "1b", "2a", "2b", "3a", "3b", "4")
VARIANTS = {"literal": {"ahead": 0, "buckets": (8, 4)}, "improved": {"ahead": 2, "buckets": (2, 2)}}
# The activity of each export; `None`: never active.
ALL_THE_TIME, FROM_HALF, PULSES = (
    "",
    'during = "{half}s.."',
    'cycle = {{ on = "5s", off = "5s", delay = "5s" }}',
)
ACTIVE = {
    "1a": (ALL_THE_TIME, None),
    "1b": (None, ALL_THE_TIME),
    "2a": (ALL_THE_TIME, FROM_HALF),
    "2b": (FROM_HALF, ALL_THE_TIME),
    "3a": (ALL_THE_TIME, PULSES),
    "3b": (PULSES, ALL_THE_TIME),
    "4": (ALL_THE_TIME, ALL_THE_TIME),
}
CONTRACTS = {
    "w1": 'iops = "40 IO/s", response_time = "35ms", expected = "29.08ms"',
    "w2": 'iops = "20 IO/s", response_time = "38ms", expected = "31.38ms"',
}
UNITS_MS = {"us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1e3}


def scenario(case, variant, seconds, phase):
    """The case for the simulator. The law decides `phase` seconds after each whole one."""
    terms = VARIANTS[variant]
    text = f"""name = "contracts-{case}"
duration = "{seconds}s"
[array.disk]
preset = "dnes-309170w"
[host.server]
depth = 1
scheduler = "yfq"
law = "integral"
target = "35ms"
interval = "1s"
phase = "{round(1000 * phase)}ms"
integral = {{ gain = 0.33, variant = "{variant}" }}
release = {{ tick = "1ms", ahead = {terms["ahead"]} }}
batch = {{ requests = 0 }}
"""
    for export, active, bucket, shares in zip(EXPORTS, ACTIVE[case], terms["buckets"], (200, 100)):
        # An export that is never active still has its contract.
        when = 'during = "0s..1us"' if active is None else active.format(half=seconds // 2)
        text += f"""[vm.{export}]
shares = {shares}
workload = "{export}"
size = "4GiB"
contract = {{ {CONTRACTS[export]}, bucket = {bucket} }}
[workload.{export}]
outstanding = 16
size = "4KiB"
{when}
"""
    return text


def simulate(case, variant, phase, seed, options, directory):
    path = os.path.join(directory, f"{case}-{variant}.toml")
    with open(path, "w") as file:
        file.write(scenario(case, variant, options.seconds, phase))
    ended = subprocess.run(
        [options.binary, "sim", "run", path, "--json", "--seed", str(seed)], capture_output=True, text=True
    )
    if ended.returncode != 0:
        raise RuntimeError(
            f"case {case}, {variant}: the simulator ended with {ended.returncode}\n{ended.stderr}"
        )
    found = {}
    for export, active in zip(EXPORTS, ACTIVE[case]):
        if active is not None:
            consumer = json.loads(ended.stdout)["consumers"][export]
            times = consumer["contract"]["release_to_completion_ms"]
            found[export] = {
                "late": consumer["contract"]["late_fraction"],
                "mean_ms": times["mean"],
                "p95_ms": times["p95"],
                "iops": consumer["iops"],
            }
    return found


def jobs(case, seconds):
    """The number of fio's jobs: guest.sh has one for each pulse."""
    return sum(
        len(range(5, seconds, 10)) if active == PULSES else 1 for active in ACTIVE[case] if active is not None
    )


def phase(log, case, seconds):
    """Seconds from the first request to the law's next decision, less than its interval of one second."""

    def when(text):
        return [datetime.datetime.fromisoformat(line.split()[0]) for line in log.splitlines() if text in line]

    # Every job first asks for the export's size, over a session of its own.
    begun = when(" session opened ")[jobs(case, seconds)]
    return (when(" ready, ")[0] - begun).total_seconds() % 1


def measured(out, case, seconds):
    """The results of a case in the gateway's metrics and in its log."""
    with open(os.path.join(out, f"{case}.metrics")) as file:
        metrics = dict(
            line.rsplit(" ", 1) for line in file.read().splitlines() if line.startswith("tidegate_")
        )
    with open(os.path.join(out, f"{case}.log")) as file:
        log = file.read()
    found = {"phase": phase(log, case, seconds)}
    for export, active in zip(EXPORTS, ACTIVE[case]):
        if active is None:
            continue

        def value(name):
            return float(metrics[f'tidegate_{name}{{pool="disk",consumer="{export}"}}'])

        requests = value("contract_requests_total")
        p95, unit = re.search(
            rf"contract of {export} .* 95 % within ([0-9.]+)(\D+)$", log, re.MULTILINE
        ).groups()
        found[export] = {
            "late": value("contract_late_requests_total") / requests,
            "mean_ms": 1e3 * value("release_time_seconds_sum") / value("release_time_seconds_count"),
            "p95_ms": float(p95) * UNITS_MS[unit.strip()],
            "iops": requests / seconds,
        }
    return found


def run(variant, seed, options, directory):
    """All cases of a variant with one seed, in a machine of its own: the results by case, or None."""
    out = os.path.join(directory, f"{variant}-{seed}")
    status, _, complaint = driver.run(
        "contracts/guest.sh",
        "--variant",
        variant,
        "--seed",
        seed,
        "--seconds",
        options.seconds,
        *options.cases[variant],
        out=out,
        binary=options.binary,
        limit=options.limit,
    )
    if status != 0:
        print(f"{variant}, seed {seed}: lab/run ended with {status}\n{complaint}", file=sys.stderr)
        return None
    return {case: measured(out, case, options.seconds) for case in options.cases[variant]}


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def compare(variant, case, export, gateway, simulator, options):
    """One row: the gateway's runs beside the simulator's."""
    row = {"variant": variant, "case": case, "export": export, "phases": [run["phase"] for run in gateway]}
    for key in ("late", "mean_ms", "p95_ms", "iops"):
        row[key] = {
            "gateway": [run[export][key] for run in gateway],
            "simulator": [run[export][key] for run in simulator],
        }

    def near(key, absolute, relative):
        found, known = mean(row[key]["gateway"]), row[key]["simulator"]
        least, most = (min(known), max(known)) if options.short else (mean(known), mean(known))
        return least * (1 - relative) - absolute <= found <= most * (1 + relative) + absolute

    row["late_agree"], row["times_agree"] = near("late", LATE, 0), near("mean_ms", 0, TIMES)
    return row


def show(rows):
    print(
        f"{'variant':9} case export  {'late %':>16} {'mean ms':>16} {'p95 ms':>16} {'IO/s':>14}"
        "   (gateway, simulator)"
    )
    for row in rows:

        def both(key, factor=1.0):
            return "  ".join(f"{factor * mean(row[key][where]):6.1f}" for where in ("gateway", "simulator"))

        missed = [
            what for what, agree in (("late", row["late_agree"]), ("mean", row["times_agree"])) if not agree
        ]
        verdict = "DIFFER: " + ", ".join(missed) if missed else "agree"
        print(
            f"{row['variant']:9} {row['case']:4} {row['export']:6} {both('late', 100):>16} "
            f"{both('mean_ms'):>16} {both('p95_ms'):>16} {both('iops'):>14}   {verdict}"
        )


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--short", action="store_true", help="one seed, and only the pulse and the contention of each variant"
    )
    parser.add_argument("--cases", help="cases, separated by commas (default: all; with --short 3a and 4)")
    parser.add_argument(
        "--variants", default="literal,improved", help="variants, separated by commas (default: %(default)s)"
    )
    parser.add_argument(
        "--seeds", type=int, help="seeds of the gateway's disk, from 1 (default: 4; 1 with --short)"
    )
    parser.add_argument(
        "--sim-seeds",
        type=int,
        help="seeds of the simulator, for each run of the gateway (default: 20; 200 with --short)",
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="virtual seconds per case (default: %(default)s)"
    )
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument(
        "--binary",
        default=os.path.join(os.path.dirname(driver.LAB), "target", "release", "tidegate"),
        help="the program (default: target/release/tidegate)",
    )
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="machines at once (default: %(default)s)"
    )
    options = parser.parse_args()
    cases = options.cases.split(",") if options.cases else (["3a", "4"] if options.short else CASES)
    variants = options.variants.split(",")
    for unknown in [*set(cases) - set(CASES), *set(variants) - set(VARIANTS)]:
        parser.error(f"no such case or variant: {unknown}")
    options.cases = {variant: list(cases) for variant in variants}
    # A single run is compared with the simulator's least and most, which few seeds do not show.
    options.sim_seeds = options.sim_seeds or (200 if options.short else 20)
    options.seeds = range(1, 1 + (options.seeds or (1 if options.short else 4)))
    return options


def main():
    options = arguments()
    description = driver.described()
    subprocess.run([os.path.join(driver.LAB, "setup")], check=True, stdout=sys.stderr)
    keys = list(itertools.product(options.cases, options.seeds))
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
        options.jobs
    ) as machines:
        runs = dict(zip(keys, machines.map(lambda key: run(*key, options, directory), keys)))
        if None in runs.values():
            return 1
        rows = []
        for variant, cases in options.cases.items():
            for case in cases:
                gateway = [runs[variant, seed][case] for seed in options.seeds]
                simulator = [
                    simulate(case, variant, run["phase"], seed, options, directory)
                    for run in gateway
                    for seed in range(1, 1 + options.sim_seeds)
                ]
                rows += [
                    compare(variant, case, export, gateway, simulator, options) for export in simulator[0]
                ]
    show(rows)
    agree = all(row["late_agree"] and row["times_agree"] for row in rows)
    if options.out:
        driver.leave(
            options.out,
            "lab-contracts" + ("-short" if options.short else ""),
            {
                "experiment": "lab contracts",
                "date": driver.today(),
                "short": options.short,
                **description,
                "seconds": options.seconds,
                "tolerance": {"late": LATE, "mean": TIMES},
                "agree": agree,
                "rows": rows,
            },
        )
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
