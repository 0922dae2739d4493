#!/usr/bin/env python3
"""`tidegate agent` on a real iSCSI target in the lab, for several targets and gains over seeds.

It compares the reader's latency, and the throughput that is left to the writers (the paper's fig. 13). See
iscsi-agent/guest.py, --sweep.

    iscsi-sweep                                                       # netem, 20, 15 and 10 ms
    iscsi-sweep --throttle rate --targets 20 --gains 1,2,3,4 --mixed  # the source of `rate`'s default gain

Exit status 1 when a run fails, something is sent again, or the agent with its own gain misses a target.
Targets count if their set point is above the latency of the reader alone. The results of other gains are only
shown.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver
from judging import KEPT

# The agent's default.
SET_POINT = 0.8


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--throttle", default="netem")
    parser.add_argument("--targets", default="20,15,10", metavar="MS,…", help="(default: %(default)s)")
    parser.add_argument("--gains", default="", metavar="K_P,…", help="(default: the agent's own)")
    parser.add_argument(
        "--mixed", action="store_true", help="also with writers that read by the same sessions"
    )
    parser.add_argument("--seeds", type=int, default=10, help="(default: %(default)s)")
    parser.add_argument("--more", default="", help="more lines of the resource's configuration")
    parser.add_argument("--short", action="store_true", help="one seed, and a shorter burst")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=7200, help="real seconds (default: %(default)s)")
    return parser.parse_args()


def together(runs):
    """A row for each group of runs that differ by their seed only."""
    rows = {}
    for run in runs:
        rows.setdefault((run["mixed"], run["target_ms"], run["gain"]), []).append(run)
    return [row(*key, group) for key, group in rows.items()]


def row(mixed, target, gain, runs):
    def over_seeds(number):
        values = [number(run) for run in runs]
        return {"mean": statistics.mean(values), "least": min(values), "most": max(values)}

    found = {
        "mixed": mixed,
        "target_ms": target,
        "gain": gain,
        "seeds": len(runs),
        "kept": over_seeds(lambda run: run["kept"]),
        "mean_ms": over_seeds(lambda run: run["mean_ms"]),
        "writers_kept": over_seeds(lambda run: run["writers_kept"]),
        "sent_again": sum(count for run in runs for _, _, count in run["sent_again"]),
    }
    if mixed:
        found["own_reads"] = over_seeds(
            lambda run: statistics.mean(run["own_reads_ms"])
            / statistics.mean(run["own_reads_unregulated_ms"])
        )
    return found


def show(rows):
    def span(values, factor=100, digits=0):
        return " to ".join(f"{factor * values[key]:.{digits}f}" for key in ("least", "most"))

    print("load    target   K_p  seeds  kept %       mean ms         writers %    own reads %")
    for found in rows:
        gain = "" if found["gain"] is None else f"{found['gain']:g}"
        reads = span(found["own_reads"]) if found["mixed"] else ""
        print(
            f"{'mixed' if found['mixed'] else 'writes':6} {found['target_ms']:5g} ms {gain:>5} "
            f"{found['seeds']:5}  {span(found['kept']):11}  {span(found['mean_ms'], 1, 1):14}  "
            f"{span(found['writers_kept']):11}  {reads}"
        )


def met(rows, alone_ms):
    def is_met(found):
        promised = found["gain"] is None and SET_POINT * found["target_ms"] > alone_ms
        return not found["sent_again"] and (not promised or found["kept"]["least"] >= KEPT)

    return all(is_met(found) for found in rows)


def main():
    options = arguments()
    description = driver.described()
    load = [
        "--bursts",
        1,
        *(["--burst", 10, "--seeds", 1] if options.short else ["--burst", 15, "--seeds", options.seeds]),
    ]
    asked = [
        "--sweep",
        "--throttle",
        options.throttle,
        "--targets",
        options.targets,
        "--gains",
        options.gains,
        "--more",
        options.more,
    ]
    with tempfile.TemporaryDirectory() as out:
        status, printed, complaint = driver.run(
            "iscsi-agent/guest.py",
            *asked,
            *(["--mixed"] if options.mixed else []),
            *load,
            out=out,
            binary=options.binary,
            limit=options.limit,
        )
        if status != 0:
            print(printed, complaint, file=sys.stderr)
            return 1
        with open(os.path.join(out, "measured.json")) as file:
            measured = json.load(file)
    rows, alone = together(measured["runs"]), measured["alone_ms"]
    print(f"{options.throttle}; the reader alone {alone:.1f} ms")
    show(rows)
    kept = met(rows, alone)
    print("kept, and nothing sent again" if kept else "MISSED: a target, or something was sent again")
    if options.out:
        driver.leave(
            options.out,
            f"lab-iscsi-sweep-{options.throttle}" + ("-short" if options.short else ""),
            {
                "experiment": f"lab iscsi-sweep {options.throttle}",
                "date": driver.today(),
                "short": options.short,
                **description,
                "alone_ms": alone,
                "met": kept,
                "rows": rows,
                "runs": measured["runs"],
                "options": measured["options"],
            },
        )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
