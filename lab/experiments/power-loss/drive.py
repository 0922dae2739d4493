#!/usr/bin/env python3
"""What is on the disk after a power loss, in the lab: see guest.py.

    power-loss                      five seeds
    power-loss --mutations          each rule of durability is removed from the gateway, and its loss must be found

Exit status 1 when something is lost, or a removed rule is not noticed.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

ROOT = os.path.dirname(driver.LAB)
GATEWAY = "crates/tidegate-gateway/src"
# A rule: the case that finds its loss, the file, its text, and the text without the rule.
MUTATIONS = {
    "a flush syncs the file": (
        "direct", "worker/syncs.rs",
        "                ring.sync(RingToken::Synced { export: key }, file, range);",
        "                let _ = (&mut ring, file, range);\n                self.synced(key, Ok(()), now);"),
    "FUA past the page cache": (
        "direct", "backend/file.rs",
        "let durable = self.is_durable_by_itself(fua);", "let durable = self.is_durable_by_itself(fua) && false;"),
    "FUA through the page cache": (
        "buffered", "backend/file.rs",
        "let sync = fua && !self.is_durable_by_itself(fua);", "let sync = false && fua && !self.is_durable_by_itself(fua);"),
    "FUA of zeroes": (
        "direct", "backend/file.rs",
        "self.transferred(ring, key, request, buffer, result).with_sync(fua)",
        "self.transferred(ring, key, request, buffer, result).with_sync(fua && false)"),
    "a flush does not join a sync that runs": (
        "buffered", "worker/syncs.rs",
        "        syncs.waiting.push(key);\n        if !syncs.busy {",
        "        if syncs.busy {\n            return syncs.running.push(key);\n        }\n        syncs.waiting.push(key);\n"
        "        if !syncs.busy {"),
    "a sync covers all that wait for it": (
        "buffered", "request.rs",
        "            start = start.min(offset);\n            end = end.max(offset + length);",
        "            start = offset;\n            end = end.min(0) + offset + length;"),
    "FUA is passed on": (
        "upstream", "upstream/plan.rs",
        "(NbdCommand::Write, fua(durable), offset, left.min(self.longest.into()))",
        "(NbdCommand::Write, fua(durable && false), offset, left.min(self.longest.into()))"),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=60, help="marks of each case (default: %(default)s)")
    parser.add_argument("--mutations", action="store_true", help="remove each rule, and see that it is missed")
    parser.add_argument("--target-dir", default=os.path.join(ROOT, "target", "mutations"), metavar="DIR",
                        help="where the changed programs are built (default: target/mutations)")
    parser.add_argument("--out", metavar="DIR", help="leave the document there, named after the day")
    parser.add_argument("--binary", help="the program (default: target/release/tidegate)")
    parser.add_argument("--limit", type=int, default=3600, help="real seconds per run (default: %(default)s)")
    return parser.parse_args()


def run(options, seed, binary, *more):
    """The cases of one run; None if the guest has failed."""
    with tempfile.TemporaryDirectory() as out:
        status, printed, complaint = driver.run("power-loss/guest.py", "--seed", seed, "--rounds", options.rounds, *more, out=out,
                                                binary=binary, limit=options.limit)
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
        rows += [{"seed": seed, **{key: found[key] for key in ("case", "rounds", "checked", "lost")}} for found in cases]
        print(f"seed {seed}: " + ", ".join(f"{found['case']} {found['lost']} lost at {found['checked']} marks" for found in cases),
              flush=True)
    return rows


@contextlib.contextmanager
def copied_tree():
    """The committed tree, to be changed."""
    tree = os.path.join(ROOT, "target", "mutations-tree")
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(tree)
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
    try:
        yield tree
    finally:
        shutil.rmtree(tree)


@contextlib.contextmanager
def without(tree, file, text, replacement):
    path = os.path.join(tree, GATEWAY, file)
    with open(path) as source:
        before = source.read()
    if before.count(text) != 1:
        sys.exit(f"{file}: the rule's text is there {before.count(text)} times; correct it in {__file__}")
    with open(path, "w") as source:
        source.write(before.replace(text, replacement))
    try:
        yield
    finally:
        with open(path, "w") as source:
            source.write(before)


def mutations(options):
    rows = []
    with copied_tree() as tree:
        for name, (case, file, text, replacement) in MUTATIONS.items():
            with without(tree, file, text, replacement):
                subprocess.run(["cargo", "build", "--locked", "-q", "-p", "tidegate", "--bin", "tidegate"], cwd=tree, check=True,
                               env={**os.environ, "CARGO_TARGET_DIR": options.target_dir})
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
        print("every removed rule is missed" if right else "MISSED: a rule was removed, and nothing was lost")
    else:
        right = all((row["lost"] > 0) == (row["case"] == "liar") for row in rows)
        print("nothing lost, and the liar found" if right else "MISSED: something was lost, or the liar was not found")
    if options.out:
        name = "lab-power-loss" + ("-mutations" if options.mutations else "")
        driver.leave(options.out, name, {"experiment": name.replace("-", " ", 1), "date": driver.today(), **description,
                                         "met": right, "rows": rows})
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
