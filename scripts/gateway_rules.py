"""Rules of the gateway, each with its place in the source. The absence of each must be noticed."""

import contextlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GATEWAY = "crates/tidegate-gateway/src"
# The file, its text, and the text without the rule.
RULES = {
    "a flush syncs the file": (
        "worker/syncs.rs",
        "                ring.sync(RingToken::Synced { export: key }, file, range);",
        "                let _ = (&mut ring, file, range);\n                self.synced(key, Ok(()), now);",
    ),
    "a flush does not join a sync that runs": (
        "worker/syncs.rs",
        "        syncs.waiting.push(key);\n        if !syncs.busy {",
        "        if syncs.busy {\n            return syncs.running.push(key);\n        }\n"
        "        syncs.waiting.push(key);\n"
        "        if !syncs.busy {",
    ),
    "a sync covers all that wait for it": (
        "request.rs",
        "            start = start.min(offset);\n            end = end.max(offset + length);",
        "            start = offset;\n            end = end.min(0) + offset + length;",
    ),
    "a flush waits for durable writes beside it": (
        "worker/syncs.rs",
        "syncs.beside.clone_from(&syncs.by_themselves),",
        "syncs.beside.clear(),",
    ),
    "flushes give their slot back": (
        "worker/syncs.rs",
        "if syncs.has_slot && !syncs.waiting.iter().any(is_flush) {",
        "if false && !syncs.waiting.iter().any(is_flush) {",
    ),
    "a flush waits for its turn": (
        "worker/sessions.rs",
        "                    } else {\n                        self.enqueue(request, now);\n",
        "                    } else if operation == tidegate_nbd::CheckedOperation::Flush {\n"
        "                        self.start_flush(request, now);\n"
        "                    } else {\n                        self.enqueue(request, now);\n",
    ),
    "the syncs of an export have one slot": (
        "worker/syncs.rs",
        "if syncs.poisoned || std::mem::replace(&mut syncs.has_slot, true) {",
        "if std::mem::replace(&mut syncs.has_slot, true) && syncs.poisoned {",
    ),
    "a long sync lends its slot once": (
        "worker/syncs.rs",
        "if is_long && std::mem::take(&mut syncs.has_slot) {",
        "if is_long && syncs.has_slot {",
    ),
    "an export is poisoned by a report of lost data": (
        "worker/syncs.rs",
        "if std::mem::replace(&mut syncs.poisoned, true) {",
        "if syncs.poisoned {",
    ),
    "FUA past the page cache": (
        "backend/file_requests.rs",
        "let durable = self.syncs_with(&request.operation);",
        "let durable = self.syncs_with(&request.operation) && false;",
    ),
    "FUA of parts of blocks": (
        "backend/bounce.rs",
        "let durable = self.syncs_with(operation);",
        "let durable = self.syncs_with(operation) && false;",
    ),
    "a change in part keeps the bytes around it": (
        "blocks.rs",
        "            self.keep(memory);",
        "            let _ = &memory;",
    ),
    "changes of a block in part wait for each other": (
        "block_order.rs",
        "if !self.queue.is_empty() || !is_free {",
        "if false && (!self.queue.is_empty() || !is_free) {",
    ),
    "FUA through the page cache": (
        "backend/file.rs",
        "                fua && !self.syncs_with(operation)\n",
        "                fua && !self.syncs_with(operation)"
        " && !matches!(operation, CheckedOperation::Write { .. })\n",
    ),
    "FUA of zeroes that are written": (
        "backend/file.rs",
        "                fua && !self.syncs_with(operation)\n",
        "                fua && !self.syncs_with(operation)"
        " && matches!(operation, CheckedOperation::Write { .. })\n",
    ),
    "FUA of zeroes that are marked": (
        "backend/file_requests.rs",
        "                Ok(_) => RequestProgress::Done { result: Ok(()), sync: fua },\n"
        "                // Zeros are written then",
        "                Ok(_) => RequestProgress::Done { result: Ok(()), sync: fua && false },\n"
        "                // Zeros are written then",
    ),
    "a write is answered once all of it is written": (
        "backend/file_requests.rs",
        "                request.done += count as u64;\n",
        "                request.done += (count as u64)"
        ".max(match request.operation {\n"
        "                    CheckedOperation::Read { .. } | CheckedOperation::Cache { .. } => 0,\n"
        "                    _ => request.slice.until - request.done,\n                });\n",
    ),
    "writes of a client reach the storage in their order": (
        "worker/requests.rs",
        "PullAnswer::Request { request, released, .. } => self.start(request, released, now),",
        "PullAnswer::Request { request, released, .. } => {\n"
        "                    if let PullAnswer::Request { request, released, .. } = self.stage.pull(now) {\n"
        "                        self.start(request, released, now);\n                    }\n"
        "                    self.start(request, released, now);\n                }",
    ),
    "zeroes that fail are not answered": (
        "worker/slices.rs",
        "            (Err(_), _) => return Some(result),",
        "            (Err(_), _) => request.done = slice.until,",
    ),
    "a flush is passed on": (
        "worker/syncs.rs",
        "ExportVolume::Upstream(_) => self.at_upstream(key, now, UpstreamExport::flush),",
        "ExportVolume::Upstream(_) => self.at_upstream(key, now, |upstream, hands| {\n"
        "                let (ledger, mark) = "
        "(upstream.ledger(), crate::upstream::ledger::LedgerMark::default());\n"
        "                let covers = ledger.begin_flush();\n"
        "                hands.done.push("
        "crate::upstream::UpstreamEvent::Flush(Ok(ledger.flushed(mark, covers))));\n"
        "            }),",
    ),
    "FUA is passed on": (
        "upstream/plan.rs",
        "(NbdCommand::Write, fua(durable), offset, left.min(self.longest.into()))",
        "(NbdCommand::Write, fua(durable && false), offset, left.min(self.longest.into()))",
    ),
    "a missing FUA is made up for by a flush": (
        "upstream/plan.rs",
        "        is_durable(operation) && !self.flags.contains(TransmissionFlags::SEND_FUA)",
        "        false && is_durable(operation) && !self.flags.contains(TransmissionFlags::SEND_FUA)",
    ),
    "that flush must cover the change": (
        "worker/upstream.rs",
        "(Ok(flushed), _) if request.change.is_none_or(|change| flushed.covers(change)) => Ok(()),",
        "(Ok(flushed), _) if request.change.is_none_or(|change| flushed.covers(change) || true) => Ok(()),",
    ),
    "changes that are not durable yet are counted": (
        "upstream/plan.rs",
        "        changes && self.has_volatile_cache()",
        "        false && changes && self.has_volatile_cache()",
    ),
    "a flush by a later connection finds a loss": (
        "upstream/ledger.rs",
        "        if self.settled < mark.0 {",
        "        if false && self.settled < mark.0 {",
    ),
    "a connection is marked when it is opened": (
        "upstream/ledger.rs",
        "        LedgerMark(self.answered)\n",
        "        LedgerMark(self.answered * 0)\n",
    ),
    "a session is told of a loss": (
        "worker/upstream.rs",
        "result.map(drop).and(if lost { Err(Errno::Io) } else { Ok(()) })",
        "result.map(drop).and(if lost && false { Err(Errno::Io) } else { Ok(()) })",
    ),
    "each session is told of a loss": (
        "upstream/ledger.rs",
        "        std::mem::replace(heard, self.losses) < self.losses",
        "        let first = !self.heard;\n        self.heard = true;\n"
        "        std::mem::replace(heard, self.losses) < self.losses && first",
    ),
    "reads and flushes are sent again": (
        "upstream/loss.rs",
        "let harmless = !sent || !part.changes();",
        "let harmless = !sent && part.changes();",
    ),
    "a change that had left is not sent again": (
        "upstream/loss.rs",
        "let harmless = !sent || !part.changes();",
        "let harmless = !sent || !part.changes() || part.changes();",
    ),
    "a request that has not left is sent again": (
        "upstream/loss.rs",
        "let harmless = !sent || !part.changes();",
        "let harmless = sent && !part.changes();",
    ),
    "requests of a lost connection are decided": (
        "upstream/loss.rs",
        "                fail(job, hands);\n            }\n        }\n        self.counters.replayed",
        "                let _ = job;\n            }\n        }\n        self.counters.replayed",
    ),
    "a change is answered by the upstream's reply": (
        "upstream/traffic.rs",
        "                if flight.replied {\n",
        "                if flight.replied || flight.part.changes() {\n",
    ),
    "a long outage ends the wait": (
        "upstream/mod.rs",
        "if !self.waiting.is_empty() && self.has_lost_patience(hands.now) {",
        "if false && !self.waiting.is_empty() && self.has_lost_patience(hands.now) {",
    ),
    "memory is given back with the reply": (
        "worker/sessions.rs",
        "            *requests -= 1;\n            memory.release(account, bytes, reply.charged);",
        "            *requests -= 1;\n            memory.release(account, bytes, reply.charged * 0);",
    ),
}


def misplaced():
    """The rules whose text is not at one place of its file, each with a sentence."""
    for name, (file, text, _) in RULES.items():
        with open(os.path.join(ROOT, GATEWAY, file)) as source:
            count = source.read().count(text)
        if count != 1:
            yield f'{file} has the text of "{name}" {count} times, and not once'


@contextlib.contextmanager
def copied_tree():
    """A copy of the committed tree, to be changed."""
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
def without(tree, rule):
    """The tree without a rule."""
    file, text, replacement = RULES[rule]
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


if __name__ == "__main__":
    sys.exit("\n".join(misplaced()) or 0)
