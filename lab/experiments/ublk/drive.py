#!/usr/bin/env python3
"""Block devices of the host (ublk) on kernel 6.12: guest.py and its checks, in one virtual machine.

With --cost, instructions of the machine per request beside a loop device, by cost.py.

usage: lab/experiments/ublk/drive.py [--cost] [--binary FILE] [--ends N] [--size MIB] [--iops N] [--out DIR]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver  # noqa: E402


def run_command(options, out, script):
    """Returns the command that runs a script of this experiment in a machine with ublk."""
    machine = ["--kernel", "6.12", "--binary", options.binary, "--out", out, "--limit", "3600"]
    path = os.path.join(driver.LAB, "experiments", "ublk", script)
    return [os.path.join(driver.LAB, "run"), *machine, path]


def cost(options, about):
    with tempfile.TemporaryDirectory() as out:
        command = run_command(options, out, "cost.py")
        subprocess.run(command, check=True)
        with open(os.path.join(out, "cost.json")) as file:
            rows = json.load(file)
    if options.out:
        driver.leave(
            options.out,
            "lab-ublk-cost",
            {"experiment": "ublk cost", "date": driver.today(), **about, "rows": rows},
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default=os.path.join(driver.LAB, "..", "target", "release", "tidegate"))
    parser.add_argument("--cost", action="store_true", help="instructions per request, and nothing else")
    parser.add_argument("--ends", type=int, default=6, help="kills and stops of the gateway under load")
    parser.add_argument("--size", type=int, default=16, help="size of the disk, in MiB")
    parser.add_argument("--iops", type=int, default=1000, help="the limit of the export")
    parser.add_argument("--out", help="leave a dated document here")
    options = parser.parse_args()
    about = driver.described()
    if options.cost:
        return cost(options, about)
    with tempfile.TemporaryDirectory() as out:
        command = run_command(options, out, "guest.py")
        asked = ["--ends", str(options.ends), "--size", str(options.size), "--iops", str(options.iops)]
        status = subprocess.run([*command, *asked]).returncode
        result = {"figures": {}, "checks": {}}
        if os.path.exists(os.path.join(out, "result.json")):
            with open(os.path.join(out, "result.json")) as file:
                result = json.load(file)
        else:
            for name in ("gateway.log", "dmesg"):
                if os.path.exists(os.path.join(out, name)):
                    with open(os.path.join(out, name)) as file:
                        print(f"{name}:\n" + "".join(file.readlines()[-30:]), file=sys.stderr)
    checks = {"the guest's script succeeded": status == 0, **result["checks"]}
    print(json.dumps(result["figures"], indent=1))
    for check, met in checks.items():
        print(f"{'ok' if met else 'FAILED'}: {check}")
    if options.out:
        document = {"experiment": "ublk", "date": driver.today(), **about}
        document |= {"figures": result["figures"], "checks": checks}
        driver.leave(options.out, "lab-ublk", document)
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
