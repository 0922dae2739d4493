"""`tidegate agent` on the target of iscsi.py, and its state in the kernel; imported in the guest.

The agent has any throttle and law. A phase is named after its throttle (`edt-…`, `rate-…`, otherwise netem)
and after its signal (SIGNALS).
"""

import contextlib
import glob
import json
import os
import signal

import iscsi
from service import DEVICE, ENDS_WITHIN_S, packets_throttled, unprivileged

CONFIGURATION = """\
throttle = "{throttle}"
[resource.vg0]
target = "{target}ms"
{more}
"""
# The laws of the phases, with their gains: the experiment does not follow the agent's defaults.
PACKETS = '{ proportional_gain = 0.5, integral_time = "200ms", greatest = "100ms" }'
LIMITS = '{ proportional_gain = 2.0, integral_time = "200ms", greatest = "1s" }'
GAINS = {"netem": PACKETS, "edt": PACKETS, "rate": LIMITS}
WINDOW = {
    "law": '"window"',
    "set_point": "0.8",
    "interval": '"250ms"',
    "window": "{ gamma = 0.8, beta_gain = 0.1 }",
}


def configuration(throttle, target, more="", law=None):
    """Returns the agent's configuration, with the PID if no other law is given.

    A key in `more` replaces the law's own.
    """
    law = law or {"law": '"pid"', "set_point": "0.8", "interval": '"100ms"', "pid": GAINS[throttle]}
    given = {line.partition("=")[0].strip() for line in more.splitlines()}
    lines = [f"{key} = {value}" for key, value in law.items() if key not in given]
    return CONFIGURATION.format(throttle=throttle, target=f"{target:g}", more="\n".join([*lines, more]))


# Signals by their name in a phase's name: lines of the configuration, the law if it is not the PID, and the
# drop-in that these need.
SIGNALS = {
    "p95": ('statistic = "p95"', None, "histograms"),
    "window": ("", WINDOW, None),
    "auto": ("", {"law": '"auto"'}, None),
    "auto-p95": ('statistic = "p95"', {"law": '"auto"'}, "histograms"),
}


def signal_of(name):
    return SIGNALS.get(name.partition("-target-")[0], ("", None, None))


# Tests of the kernel's state, by throttle: true if an initiator is throttled.
HELD = {
    "netem": lambda kernel: kernel["rules"],
    "edt": lambda kernel: kernel["filters"],
    "rate": lambda kernel: kernel["limits"],
}


def throttle_of(name):
    return next((throttle for throttle in ("edt", "rate") if name.startswith(f"{throttle}-")), "netem")


class Agent:
    """`tidegate agent` in the target's network namespace, with no more rights than its service."""

    def __init__(self, lab, name, target, more="", log="debug", law=None):
        path = f"/tmp/{name}.toml"
        throttle, (lines, of_name, drop_in) = throttle_of(name), signal_of(name)
        law = law or of_name
        iscsi.write(path, configuration(throttle, target, f"{more}\n{lines}", law))
        self.log = open(f"/out/{name}.log", "w")
        self.process = lab.target_popen(
            [*unprivileged(throttle, drop_in), "tidegate", "agent", "-c", path, "--log", log], stderr=self.log
        )
        iscsi.until(
            lambda: "ready" in iscsi.read(f"/out/{name}.log") or self.process.poll() is not None, "the agent"
        )
        if self.process.poll() is not None:
            raise iscsi.Failed(f"the agent ended: {iscsi.read(f'/out/{name}.log')}")

    def end(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        self.process.wait(ENDS_WITHIN_S)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()


def kernel(lab):
    """Returns the state of the target's kernel, from all programs.

    It contains rules, members of the agent's maps, filters, and the queueing disciplines of the interface and
    of the agent's own device, if that exists.
    """
    qdiscs = json.loads(lab.target_exec(["tc", "-j", "qdisc", "show"]))
    with lab.target_namespace():
        common = packets_throttled()
    # Filters of the root, and of a clsact.
    filters = [
        line
        for parent in ([], ["egress"])
        for line in lab.target_exec(["tc", "filter", "show", "dev", "eth0", *parent]).splitlines()
        if line.startswith("filter")
    ]
    return {
        **common,
        "qdiscs": [qdisc["kind"] for qdisc in qdiscs if qdisc["dev"] == "eth0"],
        "device": [qdisc["kind"] for qdisc in qdiscs if qdisc["dev"] == DEVICE],
        "filters": len(filters),
        **cgroups(),
    }


def cgroups():
    """Returns the cgroups, their limits, and the numbers of LIO's threads: all, and those in no cgroup."""
    paths = glob.glob(f"{iscsi.CGROUPS}/*/")
    limits, threads = [], []
    for path in paths:
        # The agent makes and removes cgroups meanwhile, and turns their controller on and off.
        with contextlib.suppress(OSError):
            limits += iscsi.read(f"{path}io.max").splitlines()
    for path in glob.glob("/proc/[0-9]*/comm"):
        # A thread that has ended meanwhile does not count.
        with contextlib.suppress(OSError):
            if iscsi.read(path) == "iscsi_trx":
                threads.append(iscsi.read(path.replace("comm", "cgroup")))
    return {
        "cgroups": sorted(os.path.basename(os.path.dirname(path)) for path in paths),
        "limits": sorted(limits),
        "controllers": iscsi.read(f"{iscsi.CGROUPS}/cgroup.subtree_control"),
        "threads": len(threads),
        "threads_free": threads.count("0::/"),
    }
