#!/usr/bin/env python3
"""`tidegate agent` beside the best delay that never changes, on a real iSCSI target, over ten seeds.

See iscsi-agent/guest.py, --beside-static. The best delay is found by search with the very load that it is
judged with: an administrator could not choose better by hand. Exit status 1 when a run fails, or the agent
does not keep its target.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver
from judging import KEPT

TARGET_MS = 20


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="one seed, and a shorter burst")
    parser.add_argument("--seeds", type=int, default=10, help="(default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at a time (default: %(default)s)")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument(
        "--limit", type=int, default=3600, help="real seconds of a seed (default: %(default)s)"
    )
    return parser.parse_args()


def run(seed, options, directory):
    out = os.path.join(directory, str(seed))
    more = ["--burst", 10, "--static-step", 25] if options.short else ["--burst", 15]
    status, printed, complaint = driver.run(
        "iscsi-agent/guest.py",
        "--beside-static",
        "--targets",
        TARGET_MS,
        "--bursts",
        1,
        "--seed",
        seed,
        *more,
        out=out,
        binary=options.binary,
        limit=options.limit,
    )
    if status != 0:
        print(f"seed {seed}: {printed}{complaint}", file=sys.stderr)
        return None
    with open(os.path.join(out, "measured.json")) as file:
        return row(seed, json.load(file))


def row(seed, measured):
    free, agent = measured["unregulated"], measured["agent"]
    keep = [tried for tried in measured["static"] if tried["kept"] >= KEPT]
    static = min(keep, key=lambda tried: tried["delay_ms"]) if keep else None
    writers = measured["writers"]
    return {
        "seed": seed,
        "unregulated_ms": free["mean_ms"],
        "agent": {
            "kept": agent["kept"],
            "mean_ms": agent["mean_ms"],
            "sent_again": agent["sent_again"],
            "writers_kept": agent["written_bytes_per_s"] / free["written_bytes_per_s"],
        },
        "static": static
        and {
            "delay_ms": static["delay_ms"],
            "kept": static["kept"],
            "mean_ms": static["mean_ms"],
            "writers_kept": static["written_bytes_per_s"] / free["written_bytes_per_s"],
        },
        "tried": measured["static"],
        "writers_by_themselves": {
            how: writers[how] / writers["alone"] for how in ("agent", "static") if how in writers
        },
    }


def main():
    options = arguments()
    description = driver.described()
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(
        options.jobs
    ) as pool:
        seeds = range(1, 2 if options.short else options.seeds + 1)
        rows = list(pool.map(lambda seed: run(seed, options, directory), seeds))
    print("seed  none ms | agent ms  kept  writers  alone | static delay  ms  kept  writers  alone")
    for found in filter(None, rows):
        agent, static, alone = found["agent"], found["static"], found["writers_by_themselves"]
        by_hand = (
            f"{static['delay_ms']:10.1f} ms {static['mean_ms']:4.1f} {100 * static['kept']:4.0f} % "
            f"{100 * static['writers_kept']:5.0f} % {100 * alone['static']:5.0f} %"
            if static
            else "none keeps it"
        )
        print(
            f"{found['seed']:4} {found['unregulated_ms']:8.1f} | "
            f"{agent['mean_ms']:8.1f} {100 * agent['kept']:4.0f} % "
            f"{100 * agent['writers_kept']:5.0f} % {100 * alone['agent']:5.0f} % | {by_hand}"
        )
    met = all(found and found["agent"]["kept"] >= KEPT and not found["agent"]["sent_again"] for found in rows)
    if all(rows):
        print(
            "writers, mean over seeds: agent",
            f"{100 * statistics.mean(found['agent']['writers_kept'] for found in rows):.1f} %",
            "static",
            ", ".join(f"{100 * found['static']['writers_kept']:.0f} %" for found in rows if found["static"]),
        )
    print(
        "kept, and nothing sent again, with every seed"
        if met
        else "MISSED: the target, or something was sent again"
    )
    if options.out:
        driver.leave(
            options.out,
            "lab-iscsi-static" + ("-short" if options.short else ""),
            {
                "experiment": "lab iscsi-static",
                "date": driver.today(),
                "short": options.short,
                **description,
                "target_ms": TARGET_MS,
                "met": met,
                "seeds": rows,
            },
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
