"""Parts that the drivers outside the guest share: a run in the lab, and the origin of a result."""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile

LAB = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def described():
    """Returns the commit of the program, the emulator and the machine.

    Drivers call it when an experiment begins, because the tree may change during the run.
    """

    def output(*command):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    commit = output("git", "-C", LAB, "rev-parse", "HEAD")
    changed = output("git", "-C", LAB, "status", "--porcelain", "--untracked-files=no") != ""
    return {
        "commit": commit + ("+changes" if changed else ""),
        "machine": f"virtual clock: {output('qemu-system-x86_64', '--version').splitlines()[0]}",
        "host": f"{platform.machine()}, {os.cpu_count()} processors",
    }


def run(script, *arguments, out, binary=None, memory=None, kernel=None, limit=3600):
    """Runs a script of `experiments/` in a machine of its own. Returns exit status, stdout and stderr."""
    command = [os.path.join(LAB, "run"), "--out", out, "--limit", str(limit)]
    if binary:
        command += ["--binary", binary]
    if memory:
        command += ["--memory", memory]
    if kernel:
        command += ["--kernel", kernel]
    command += [os.path.join(LAB, "experiments", script), *map(str, arguments)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr


def judged(experiment, description, short, short_means, seed_each=False):
    """Runs guest.py of an experiment, and judge.py on its results. Returns the exit status of the driver.

    seed_each: guest.py takes one `--seed`, and each seed has a machine of its own.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help=short_means)
    parser.add_argument("--out", metavar="DIR", help="write the result there, named after the date")
    parser.add_argument("--keep", metavar="DIR", help="keep the agent's logs there")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument(
        "--limit",
        type=int,
        default=3600,
        help="limit of each machine in seconds of real time (default: %(default)s)",
    )
    if seed_each:
        parser.add_argument(
            "--seeds", type=int, default=1, help="number of seeds, one machine each (default: %(default)s)"
        )
        parser.add_argument(
            "--first-seed", type=int, default=1, help="number of the first seed (default: %(default)s)"
        )
    parser.add_argument("agent", nargs="*", help="after --: more options for guest.py")
    options = parser.parse_args()
    about = described()
    if not seed_each:
        verdict = _judged_once(
            experiment, options, [*(short if options.short else []), *options.agent], options.keep
        )
    else:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        runs = []
        for seed in seeds:
            print(f"seed {seed}", flush=True)
            arguments = [*(short if options.short else []), "--seed", str(seed), *options.agent]
            runs.append(
                _judged_once(
                    experiment, options, arguments, options.keep and os.path.join(options.keep, str(seed))
                )
            )
        verdict = None if None in runs else _together(seeds, runs)
    if verdict is None:
        return 1
    if options.out:
        variant = [verdict["variant"]] if "variant" in verdict else []
        leave(
            options.out,
            "-".join(["lab", experiment, *variant, *(["short"] if options.short else [])]),
            {
                "experiment": f"lab {experiment}",
                "date": today(),
                "short": options.short,
                **about,
                **verdict,
            },
        )
    return 0 if verdict["met"] else 1


def _judged_once(experiment, options, arguments, keep):
    """Returns the verdict on one machine, or None if the machine failed."""
    with tempfile.TemporaryDirectory() as directory:
        out = keep or directory
        status, printed, complaint = run(
            f"{experiment}/guest.py", *arguments, out=out, binary=options.binary, limit=options.limit
        )
        print(printed, flush=True)
        if status != 0:
            print(complaint, file=sys.stderr)
            return None
        subprocess.run([os.path.join(LAB, "experiments", experiment, "judge.py"), out])
        with open(os.path.join(out, "verdict.json")) as file:
            return json.load(file)


def _together(seeds, runs):
    """Combines the verdicts on several seeds. Prints the number of seeds that met each check."""
    values = {}
    for run_of_seed in runs:
        for check in run_of_seed["checks"]:
            values.setdefault(check["name"], []).append(check)
    print(f"{len(runs)} seeds")
    for name, checks in values.items():
        known = [check["value"] for check in checks if check["value"] is not None]
        span = (
            f"{min(known):.4f} to {max(known):.4f}, mean {sum(known) / len(known):.4f}" if known else "none"
        )
        print(f"  {name:88} {span:40} met in {sum(check['met'] for check in checks)} of {len(checks)}")
    return {
        "met": all(one["met"] for one in runs),
        "seeds": [{"seed": seed, **one} for seed, one in zip(seeds, runs)],
    }


def leave(directory, name, document):
    """Writes the result to a file named after the date."""
    path = os.path.join(directory, f"{document['date']}-{name}.json")
    os.makedirs(directory, exist_ok=True)
    with open(path, "w") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    print(f"result: {path}", file=sys.stderr)


def today():
    return datetime.date.today().isoformat()
