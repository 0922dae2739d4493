#!/usr/bin/env python3
"""The cost of one scheduling decision beside the reference implementation of mClock, github.com/ceph/dmclock.

One decision pulls the next request, and adds another one of its client. Every client has requests queued, a
reservation, a weight and a limit. The light clients live by their reservations, the heavy ones are at their
limits. Ours also completes the request: its window is part of the decision.

The sources of dmclock are not part of this repository: give their folder, as an argument or as DMCLOCK. It
takes a C++ compiler and the headers of Boost (Debian: g++, libboost-dev).

The cost is the processor time of whole processes, less that of the same process without decisions. Runs of
all sides alternate, so that the machine's noise meets all of them. The result is the median of the ratios of
neighbouring runs (above 1: ours is faster). Prints a table and, with --out, leaves a dated JSON document with
the machine's description.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from measuring import ROOT, leave

PEERS = ["ceph", "default"]


def build_peer(sources, folder):
    binary = os.path.join(folder, "dmclock")
    subprocess.run(
        [
            "c++",
            "-std=c++17",
            "-O3",
            "-DNDEBUG",
            "-pthread",
            f"-I{sources}/src",
            f"-I{sources}/support/src",
            os.path.join(ROOT, "bench", "dmclock.cc"),
            f"{sources}/src/dmclock_util.cc",
            f"{sources}/support/src/run_every.cc",
            "-o",
            binary,
        ],
        check=True,
    )
    return binary


def build_ours():
    built = subprocess.run(
        [
            "cargo",
            "build",
            "--locked",
            "--release",
            "-p",
            "tidegate-sched",
            "--example",
            "decisions",
            "--message-format=json",
        ],
        check=True,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    lines = map(json.loads, built.splitlines())
    return next(
        line["executable"]
        for line in lines
        if line["reason"] == "compiler-artifact" and line["target"]["name"] == "decisions"
    )


def processor_seconds(command, decisions):
    """Returns the processor time of the process, and the number of requests of each weight that it served."""
    process = subprocess.Popen([*command, str(decisions)], stdout=subprocess.PIPE, text=True)
    served = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command[0]} failed")
    if sum(served) != decisions:
        sys.exit(f"{command[0]} served {sum(served)} of {decisions} requests: its work is not comparable")
    return usage.ru_utime + usage.ru_stime, served


def nanoseconds(command, decisions):
    """Returns the processor time per decision in ns, and the number of requests of each weight."""
    empty, _ = processor_seconds(command, 0)
    full, served = processor_seconds(command, decisions)
    return (full - empty) / decisions * 1e9, served


def compare(clients, commands, options):
    runs = {name: [] for name in commands}
    served = {}
    for number in range(options.rounds):
        names = list(commands) if number % 2 == 0 else list(commands)[::-1]
        for name in names:
            cost, served[name] = nanoseconds([*commands[name], str(clients)], options.decisions)
            runs[name].append(cost)
        print(".", end="", flush=True, file=sys.stderr)
    for peer in PEERS:
        if any(
            abs(our - theirs) > 0.02 * options.decisions
            for our, theirs in zip(served["tidegate"], served[peer])
        ):
            sys.exit(
                f"by weight tidegate served {served['tidegate']} and {peer} {served[peer]}: "
                "that is not the same work"
            )
    ours = runs["tidegate"]
    results = []
    for peer in PEERS:
        ratios = [theirs / our for our, theirs in zip(ours, runs[peer])]
        results.append(
            {
                "clients": clients,
                "peer": f"dmclock, {peer}",
                "ratio": statistics.median(ratios),
                "least_ratio": min(ratios),
                "ns": statistics.median(ours),
                "least_ns": min(ours),
                "peer_ns": statistics.median(runs[peer]),
                "peer_least_ns": min(runs[peer]),
                "served_by_weight": served["tidegate"],
                "peer_served_by_weight": served[peer],
            }
        )
    return results


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sources",
        nargs="?",
        default=os.environ.get("DMCLOCK"),
        help="a checkout of dmclock (default: the environment's DMCLOCK)",
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--decisions", type=int, default=1_000_000, help="decisions per run")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", help="a folder for the dated result")
    options = parser.parse_args()
    if not options.sources:
        parser.error("the sources of dmclock are missing: give their folder, or set DMCLOCK")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        ours, peer = build_ours(), build_peer(os.path.abspath(options.sources), folder)
        commands = {"tidegate": [ours], **{variant: [peer, variant] for variant in PEERS}}
        for clients in options.clients:
            results += compare(clients, commands, options)
    print(file=sys.stderr)
    print(f"{'clients':>8}  {'peer':18} {'ours':>9} {'peer':>9} {'ratio':>6} {'least':>6}")
    for result in results:
        print(
            f"{result['clients']:8}  {result['peer']:18} {result['ns']:6.0f} ns {result['peer_ns']:6.0f} ns "
            f"{result['ratio']:6.2f} {result['least_ratio']:6.2f}"
        )
    if options.out:
        leave(
            options.out,
            "decision-vs-dmclock",
            {"decisions": options.decisions, "rounds": options.rounds, "results": results},
        )


main()
