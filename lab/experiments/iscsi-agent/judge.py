#!/usr/bin/env python3
"""judge.py DIR: compares the measurements of guest.py with the promises.

Prints the checks, and leaves DIR/verdict.json. Latencies are the means of seconds that fio measured at the
reader. Exit status 1 when a check is missed.
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from judging import KEPT, LEFT_OUT_S, part_within, settled

# The least part of the throughput beside an agent at rest: two equal runs differ by the missing part.
FREE = 0.99
# Bursts that disturb the reader by a smaller factor would not be worth regulating.
DISTURBED = 2
JOINED_WITHIN_S = 2
# The average rate of a consumer that wrote at full speed is below half a MiB/s after three to four seconds.
# The agent looks at it every second.
LEFT_WITHIN_S = 5
WRITERS = ["10.0.0.12", "10.0.0.13", "10.0.0.14"]
SESSIONS = {"iscsi": "iSCSI", "nvme": "NVMe", "nfs": "NFS"}
QUEUES = {"netem": {"htb", "netem"}, "edt": {"htb", "fq"}, "rate": set()}
OURS = set.union(*QUEUES.values())


class Verdict:
    def __init__(self):
        self.checks = []

    def check(self, what, met, found):
        self.checks.append({"what": what, "met": bool(met), "found": found})
        print(f"  {'ok     ' if met else 'MISSED '} {what}: {found}")


def first(phase):
    """The greatest mean of a second, of the seconds that `settled` leaves out."""
    return max(
        value
        for at, value in phase["seconds"]
        if any(start < at <= start + LEFT_OUT_S for start, _ in phase["bursts"])
    )


def throttle_of(phase):
    return next((throttle for throttle in ("edt", "rate") if phase.startswith(f"{throttle}-")), "netem")


def nothing(kernel):
    return not kernel["tables"] and nothing_in_the_way(kernel)


def nothing_in_the_way(kernel):
    return (
        not kernel["rules"]
        and not kernel["filters"]
        and not kernel["has_device"]
        and not OURS & set(kernel["qdiscs"])
        and not kernel["cgroups"]
        and not kernel["controllers"]
        and kernel["threads_free"] == kernel["threads"]
    )


def is_throttling(kernel, throttle):
    """Returns True if the kernel has all parts of this throttle, and no part of another.

    With netem the interface keeps its own queues, with edt there is no table, and with rate the network has
    nothing.
    """
    if throttle == "rate":
        return (
            kernel["cgroups"] == ["tidegate.claim", "tidegate.io"]
            and len(kernel["limits"]) == len(WRITERS)
            and not kernel["threads_free"]
            and not kernel["tables"]
            and not kernel["has_device"]
            and not OURS & set(kernel["qdiscs"])
        )
    if throttle == "netem":
        return (
            kernel["rules"] and QUEUES[throttle] <= set(kernel["device"]) and not OURS & set(kernel["qdiscs"])
        )
    return (
        kernel["filters"]
        and not kernel["tables"]
        and not kernel["has_device"]
        and QUEUES[throttle] <= set(kernel["qdiscs"])
    )


# Signals by which single reads are judged.
OF_READS = ("p95", "auto-p95")


def judge(measured):
    verdict, rows = Verdict(), []
    alone, unregulated = measured["alone"]["mean_ms"], measured["unregulated"]
    disturbed = statistics.mean(settled(unregulated))
    verdict.check(
        "writers disturb the reader",
        disturbed > DISTURBED * alone,
        f"{alone:.1f} ms alone, {disturbed:.1f} ms",
    )
    for name, phase in measured.items():
        if name != "identified" and "target-" not in name:
            continue
        mixed = "mixed-" in name
        throttle = throttle_of(name)
        target = phase["target_ms"] if name == "identified" else float(name.split("-")[-1])
        gains = measured["identify"]["gains"] if name == "identified" else None
        signal = name.partition("-target-")[0] if name.startswith(("p95-", "window-", "auto-")) else None
        what = (
            f"{signal or throttle}, {target:g} ms"
            + (", with the identified gains" if gains else "")
            + (", writers that also read" if mixed else "")
        )
        free = measured["unregulated-mixed"] if mixed else unregulated
        seconds = settled(phase)
        # With the percentile of reads as the signal, 95 % of the reads must be within the target, not 95 % of
        # the seconds' means.
        mean = statistics.mean(seconds)
        kept = part_within(
            settled({**phase, "seconds": phase["each"]}) if signal in OF_READS else seconds, target
        )
        writing = phase["written_bytes_per_s"] / free["written_bytes_per_s"]
        rows.append(
            {
                "throttle": throttle,
                "signal": signal,
                "target_ms": target,
                "gains": gains,
                "mean_ms": mean,
                "kept": kept,
                "peak_ms": first(phase),
                "writers_kept": writing,
                "writers_bytes_per_s": phase["written_bytes_per_s"],
            }
        )
        # The window law promises nothing within a burst of a few tens of seconds. It must relieve the reader;
        # the part of the seconds that it keeps is only shown. The law auto learns its margin in the first
        # burst: its mean is judged when one second is more than a twentieth of all.
        if signal == "window":
            met = mean < statistics.mean(settled(free))
        elif signal == "auto" and len(seconds) * (1 - KEPT) < 1:
            met = mean <= target
        else:
            met = kept >= KEPT
        verdict.check(
            what,
            met,
            f"{100 * kept:.0f} % of {'the reads in ' if signal in OF_READS else ''}{len(seconds)} s, "
            f"mean {mean:.1f} ms, peak after the beginning {first(phase):.1f} ms; "
            f"writers {100 * writing:.0f} %",
        )
        if mixed:
            reads, before = (statistics.mean(run["writers_reads_ms"]) for run in (phase, free))
            verdict.check(
                f"{what}: the writers' reads are not slowed",
                reads <= before,
                f"{reads:.1f} ms, unregulated {before:.1f} ms",
            )
        sent_again = sum(side["RetransSegs"] for side in phase["retransmissions"].values())
        verdict.check(
            f"{what}: nothing lost or sent again",
            sent_again == 0 and phase["drops"] == 0,
            f"{sent_again} segments {phase['sent_again'] or ''}, {phase['drops']} packets dropped",
        )
        verdict.check(f"{what}: nothing is left", nothing(phase["after"]), phase["after"])
    # A run of a few phases is judged by those.
    for moment in ("begin", "end") if "rest" in measured else ():
        kernel = measured["rest"][moment]
        verdict.check(f"at rest nothing is in the way ({moment})", nothing_in_the_way(kernel), kernel)
    if "pairs" in measured:
        ratios = sorted(beside / without for without, beside in measured["pairs"])
        verdict.check(
            "at rest the agent costs nothing",
            statistics.median(ratios) >= FREE,
            "written beside the agent / without: " + ", ".join(f"{ratio:.4f}" for ratio in ratios),
        )
    if "identify" in measured:
        found = measured["identify"]
        # On NFS a delay takes so little of the latency that there may be no gains to find.
        may_refuse = measured["options"].get("kind") == "nfs"
        verdict.check(
            "gains are found, and nothing is left",
            nothing(found["after"]) and ("gains" in found or may_refuse),
            found.get("gains", found.get("refused")),
        )
    if "sets" in measured:
        sets(measured["sets"], verdict)
    if "check" in measured:
        check = measured["check"]
        lacking = [finding["what"] for finding in check["throttles"] if not finding["works"]]
        verdict.check("check: this kernel has every throttle", not lacking, lacking)
        kind = SESSIONS[measured["options"].get("kind", "iscsi")]
        seen = next(
            (finding for finding in check["sensors"] if finding["what"] == f"sessions of {kind}"), None
        )
        verdict.check(
            "check: the initiators are seen", seen and seen["detail"].startswith("4 sessions"), seen
        )
    if "foreign-netem" in measured:
        foreign(measured["foreign-netem"], measured["foreign-edt"], verdict)
    if "removed" in measured:
        found = measured["removed"]
        verdict.check(
            "removed by another program, the device comes back, and the agent says so once",
            is_throttling(found["during"], "netem")
            and is_throttling(found["again"], "netem")
            and nothing(found["after"])
            and len(found["said"]) == 1,
            found,
        )
    if "volume-removed" in measured:
        found = measured["volume-removed"]
        verdict.check(
            "a removed volume's initiator leaves the set, and the others stay throttled",
            found["alive"]
            and not found["said"]
            and is_throttling(found["during"], "netem")
            and is_throttling(found["then"], "netem")
            and found["then"]["members"] == WRITERS[:-1]
            and nothing(found["after"]),
            found,
        )
    for name in (
        "killed",
        "ended",
        "edt-killed",
        "edt-ended",
        "rate-killed",
        "rate-ended",
        "hung",
        "rate-hung",
    ):
        if name not in measured:
            continue
        during, after = measured[name]["during"], measured[name]["after"]
        verdict.check(f"{name}: the agent was throttling", is_throttling(during, throttle_of(name)), during)
        verdict.check(f"{name}: nothing is left", nothing(after), after)
    return verdict, {
        "alone_ms": alone,
        "unregulated_ms": disturbed,
        "targets": rows,
        "identify": measured.get("identify"),
        "pairs": measured.get("pairs"),
        "unregulated_writers_bytes_per_s": unregulated["written_bytes_per_s"],
    }


def foreign(netem, edt, verdict):
    """Judges that another program's queues, filters and rules stay.

    netem throttles all the same. edt needs the interface's root, and says that it does not have it.
    """
    before, during = netem["before"], netem["during"]
    others = {"qdiscs": before["qdiscs"], "filters": before["filters"]}
    kept = all(during[what] == others[what] for what in others) and set(before["tables"]) <= set(
        during["tables"]
    )
    throttled = during["rules"] > before["rules"] and QUEUES["netem"] <= set(during["device"])
    verdict.check(
        "among another program's queues, filters and rules netem throttles",
        kept and throttled and not netem["said"],
        {"before": before, "during": during, "said": netem["said"]},
    )
    verdict.check("netem leaves them", netem["after"] == before, netem["after"])
    said = edt["said"]
    verdict.check(
        "edt leaves them, too, and says so once",
        edt["during"] == edt["after"] == before
        and len(said) == 1
        and "eth0" in said[0]
        and "pfifo 1:" in said[0],
        {**edt},
    )


def sets(measured, verdict):
    begin, end = measured["wrote"]
    seen = measured["seen"]
    full = next((at for at, members in seen if members == WRITERS), None)
    verdict.check(
        "writers join the set",
        full is not None and full - begin <= JOINED_WITHIN_S,
        f"{full - begin:.1f} s after they began" if full else "never",
    )
    empty = next((at for at, members in seen if at > end and not members), None)
    verdict.check(
        "writers leave the set",
        empty is not None and empty - end <= LEFT_WITHIN_S,
        f"{empty - end:.1f} s after they ended" if empty else "never",
    )
    others = sorted({member for _, members in seen for member in members} - set(WRITERS))
    verdict.check("no other consumer is ever in the set", not others, others)


def main(directory):
    with open(os.path.join(directory, "measured.json")) as file:
        measured = json.load(file)
    verdict, summary = judge(measured)
    met = all(check["met"] for check in verdict.checks)
    with open(os.path.join(directory, "verdict.json"), "w") as file:
        kind = measured["options"].get("kind", "iscsi")
        json.dump(
            {
                "met": met,
                **({} if kind == "iscsi" else {"variant": kind}),
                **summary,
                "checks": verdict.checks,
                "options": measured["options"],
            },
            file,
            indent=1,
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
