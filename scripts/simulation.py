#!/usr/bin/env python3
"""The simulation of gateways under faults (crates/tidegate-gateway/src/worker/simulation), at length.

    simulation.py [--seeds N] [--first N]      runs seeds, and shows the first that breaks a rule
    simulation.py --mutations [TEXT...]        removes each rule from the source, and sees that a seed finds it

With texts, only the rules whose name has one of them. Exit status 1 when a seed breaks a rule, or a removed rule is
not noticed.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GATEWAY = "crates/tidegate-gateway/src"
# A rule: the file, its text, and the text without the rule.
MUTATIONS = {
    "a flush syncs the file": (
        "worker/syncs.rs",
        "                ring.sync(RingToken::Synced { export: key }, file, range);",
        "                let _ = (&mut ring, file, range);\n                self.synced(key, Ok(()), now);"),
    "a flush does not join a sync that runs": (
        "worker/syncs.rs",
        "        syncs.waiting.push(key);\n        if !syncs.busy {",
        "        if syncs.busy {\n            return syncs.running.push(key);\n        }\n        syncs.waiting.push(key);\n"
        "        if !syncs.busy {"),
    "a sync covers all that wait for it": (
        "request.rs",
        "            start = start.min(offset);\n            end = end.max(offset + length);",
        "            start = offset;\n            end = end.min(0) + offset + length;"),
    "a flush waits for durable writes beside it": (
        "worker/syncs.rs",
        "request.export == key && is_under_way &&", "false && request.export == key && is_under_way &&"),
    "an export is poisoned by a report of lost data": (
        "worker/syncs.rs",
        "if std::mem::replace(&mut syncs.poisoned, true) {", "if syncs.poisoned {"),
    "FUA past the page cache": (
        "backend/file.rs",
        "let durable = self.is_durable_by_itself(fua);", "let durable = self.is_durable_by_itself(fua) && false;"),
    "FUA through the page cache": (
        "backend/file.rs",
        "let sync = fua && !self.is_durable_by_itself(fua);", "let sync = false && fua && !self.is_durable_by_itself(fua);"),
    "FUA of zeroes that are written": (
        "backend/file.rs",
        "self.transferred(ring, key, request, buffer, result).with_sync(fua)",
        "self.transferred(ring, key, request, buffer, result).with_sync(fua && false)"),
    "FUA of zeroes that are marked": (
        "backend/file.rs",
        "                Ok(_) => RequestProgress::Done { result: Ok(()), sync: fua },\n"
        "                // Zeros are written then",
        "                Ok(_) => RequestProgress::Done { result: Ok(()), sync: fua && false },\n"
        "                // Zeros are written then"),
    "a write is answered once all of it is written": (
        "backend/file.rs",
        "                request.done += count as u64;\n",
        "                request.done += (count as u64).max(if changes { request.slice.until - request.done } else { 0 });\n"),
    "writes of a client reach the storage in their order": (
        "worker/requests.rs",
        "PullAnswer::Request { request, released, .. } => self.start(request, released, now),",
        "PullAnswer::Request { request, released, .. } => {\n"
        "                    if let PullAnswer::Request { request, released, .. } = self.stage.pull(now) {\n"
        "                        self.start(request, released, now);\n                    }\n"
        "                    self.start(request, released, now);\n                }"),
    "zeroes that fail are not answered": (
        "worker/slices.rs",
        "            (Err(_), _) => return Some(result),", "            (Err(_), _) => request.done = slice.until,"),
    "a flush is passed on": (
        "worker/syncs.rs",
        "ExportVolume::Upstream(_) => self.at_upstream(key, now, UpstreamExport::flush),",
        "ExportVolume::Upstream(_) => self.at_upstream(key, now, |upstream, hands| {\n"
        "                let (ledger, mark) = (upstream.ledger(), crate::upstream::ledger::LedgerMark::default());\n"
        "                let covers = ledger.begin_flush();\n"
        "                hands.done.push(crate::upstream::UpstreamEvent::Flush(Ok(ledger.flushed(mark, covers))));\n"
        "            }),"),
    "FUA is passed on": (
        "upstream/plan.rs",
        "(NbdCommand::Write, fua(durable), offset, left.min(self.longest.into()))",
        "(NbdCommand::Write, fua(durable && false), offset, left.min(self.longest.into()))"),
    "a missing FUA is made up for by a flush": (
        "upstream/plan.rs",
        "        is_durable(operation) && !self.flags.contains(TransmissionFlags::SEND_FUA)",
        "        false && is_durable(operation) && !self.flags.contains(TransmissionFlags::SEND_FUA)"),
    "that flush must cover the change": (
        "worker/upstream.rs",
        "(Ok(flushed), _) if request.change.is_none_or(|change| flushed.covers(change)) => Ok(()),",
        "(Ok(flushed), _) if request.change.is_none_or(|change| flushed.covers(change) || true) => Ok(()),"),
    "changes that are not durable yet are counted": (
        "upstream/plan.rs",
        "        changes && self.has_volatile_cache()", "        false && changes && self.has_volatile_cache()"),
    "a flush by a later connection finds a loss": (
        "upstream/ledger.rs", "        if self.settled < mark.0 {", "        if false && self.settled < mark.0 {"),
    "a connection is marked when it is opened": (
        "upstream/ledger.rs", "        LedgerMark(self.answered)\n", "        LedgerMark(self.answered * 0)\n"),
    "a session is told of a loss": (
        "worker/upstream.rs",
        "result.map(drop).and(if lost { Err(Errno::Io) } else { Ok(()) })",
        "result.map(drop).and(if lost && false { Err(Errno::Io) } else { Ok(()) })"),
    "each session is told of a loss": (
        "upstream/ledger.rs",
        "        std::mem::replace(heard, self.losses) < self.losses",
        "        let first = !self.heard;\n        self.heard = true;\n        std::mem::replace(heard, self.losses) < self.losses && first"),
    "reads and flushes are sent again": (
        "upstream/loss.rs",
        "let harmless = !sent || !part.changes();", "let harmless = !sent && part.changes();"),
    "a change that had left is not sent again": (
        "upstream/loss.rs",
        "let harmless = !sent || !part.changes();", "let harmless = !sent || !part.changes() || part.changes();"),
    "what has not left is sent again": (
        "upstream/loss.rs",
        "let harmless = !sent || !part.changes();", "let harmless = sent && !part.changes();"),
    "requests of a lost connection are decided": (
        "upstream/loss.rs",
        "                fail(job, hands);\n            }\n        }\n        self.counters.replayed",
        "                let _ = job;\n            }\n        }\n        self.counters.replayed"),
    "a change is answered by the upstream's reply": (
        "upstream/traffic.rs", "                if flight.replied {\n", "                if flight.replied || flight.part.changes() {\n"),
    "a long outage ends the wait": (
        "upstream/mod.rs",
        "if !self.waiting.is_empty() && self.has_lost_patience(hands.now) {",
        "if false && !self.waiting.is_empty() && self.has_lost_patience(hands.now) {"),
    "memory is given back with the reply": (
        "worker/sessions.rs",
        "            *requests -= 1;\n            memory.release(account, bytes, reply.charged);",
        "            *requests -= 1;\n            memory.release(account, bytes, reply.charged * 0);"),
}
FAILED = re.compile(r"TIDEGATE_SEED=(\d+) cargo")
BROKEN = re.compile(r"^BROKEN: (.*)$", re.MULTILINE)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--mutations", nargs="*", metavar="TEXT", help="remove each rule, and see that it is missed")
    parser.add_argument("--target-dir", default=os.path.join(ROOT, "target", "mutations"), metavar="DIR",
                        help="where the changed programs are built (default: target/mutations)")
    parser.add_argument("--out", metavar="DIR", help="leave a document there, named after the day")
    return parser.parse_args()


def run(options, tree=ROOT, target=None):
    """Runs the seeds. Returns the seed that broke a rule, or none, and what was printed."""
    environment = {**os.environ, "TIDEGATE_SEEDS": str(options.seeds), "TIDEGATE_FIRST_SEED": str(options.first),
                   "RUST_BACKTRACE": "0"}
    if target:
        environment["CARGO_TARGET_DIR"] = target
    command = [os.environ.get("CARGO", "cargo"), "test", "--locked", "-q", "-p", "tidegate", "-p", "tidegate-gateway", "--lib",
               "simulation::no_seed_breaks_a_rule"]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    failed = FAILED.search(done.stdout)
    if done.returncode != 0 and not failed:
        sys.exit(f"the simulation does not run:\n{done.stdout}")
    return (int(failed.group(1)) if failed else None), done.stdout


@contextlib.contextmanager
def copied_tree():
    """The committed tree, to be changed."""
    tree = os.path.join(ROOT, "target", "mutations-tree")
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(tree)
    with subprocess.Popen(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE) as archive:
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
        for name, (file, text, replacement) in MUTATIONS.items():
            if options.mutations and not any(part in name for part in options.mutations):
                continue
            with without(tree, file, text, replacement):
                seed, printed = run(options, tree, options.target_dir)
            broken = BROKEN.search(printed)
            rows.append({"rule": name, "seed": seed, "broken": broken.group(1) if broken else None})
            found = f"seed {seed}: {rows[-1]['broken']}" if seed else f"NOT FOUND by {options.seeds} seeds"
            print(f"without \"{name}\": {found}", flush=True)
    return rows, all(row["seed"] for row in rows)


def seeds(options):
    began = time.monotonic()
    seed, printed = run(options)
    print(printed if seed else f"{options.seeds} seeds from {options.first} in {time.monotonic() - began:.0f} s")
    return [{"seeds": options.seeds, "first": options.first, "broken_by": seed}], seed is None


def main():
    options = arguments()
    rows, met = seeds(options) if options.mutations is None else mutations(options)
    if options.out:
        name = "simulation" + ("" if options.mutations is None else "-mutations")
        path = os.path.join(options.out, f"{datetime.date.today()}-{name}.json")
        with open(path, "w") as file:
            json.dump({"experiment": name, "date": str(datetime.date.today()), "seeds": options.seeds, "met": met,
                       "rows": rows}, file, indent=2)
            file.write("\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
