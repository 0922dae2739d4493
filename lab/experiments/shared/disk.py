"""One disk, and the agent that limits cgroups on it; imported in the guest.

The disk is a loop device over a server in order of arrival.
"""

import os
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
import iscsi
from iscsi import CGROUPS, read, run, until, write
from service import ENDS_WITHIN_S

DEVICE = "loop0"
# The service's capabilities, and those that docs/guide/agent.md adds for limits.
CAPABILITIES = "-all,+net_admin,+dac_read_search,+dac_override"


def set_up(cgroups, mib, service_ms, depth=None):
    """Makes the disk and the cgroups.

    depth: the number of requests that the disk takes from its queue; None is the kernel's default, 128.
    """
    run(["modprobe", "loop", *([f"hw_queue_depth={depth}"] if depth else [])])
    run(["modprobe", "null_blk", "nr_devices=0"])
    if not os.path.ismount(CGROUPS):
        run(["mount", "-t", "cgroup2", "cgroup2", CGROUPS])
    if not os.path.ismount(iscsi.CONFIGFS):
        run(["mount", "-t", "configfs", "configfs", iscsi.CONFIGFS])
    run(["pin", "fio", "losetup", "python3", "setpriv"])
    iscsi.null_block("null0", mib, service_ms)
    run(["losetup", "--direct-io=on", f"/dev/{DEVICE}", "/dev/null0"])
    write(f"/sys/block/{DEVICE}/queue/scheduler", "none")
    write(f"{CGROUPS}/cgroup.subtree_control", "+io")
    for name in cgroups:
        os.mkdir(f"{CGROUPS}/{name}")


def number():
    return read(f"/sys/block/{DEVICE}/dev")


def join(name):
    """Returns the function by which a new process joins that cgroup before its program starts."""
    return lambda: write(f"{CGROUPS}/{name}/cgroup.procs", os.getpid())


class Agent:
    """`tidegate agent` with a configuration and its service's capabilities."""

    def __init__(self, name, configuration, log_level="debug"):
        self.path, self.log = f"/tmp/{name}.toml", open(f"/out/{name}.log", "w")
        write(self.path, configuration)
        self.process = subprocess.Popen(
            [
                "setpriv",
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--no-new-privs",
                *(
                    option
                    for kind in ("inh-caps", "ambient-caps", "bounding-set")
                    for option in (f"--{kind}", CAPABILITIES)
                ),
                "tidegate",
                "agent",
                "-c",
                self.path,
                "--log",
                log_level,
            ],
            stderr=self.log,
        )
        until(lambda: "ready" in read(f"/out/{name}.log") or self.process.poll() is not None, "the agent")
        if self.process.poll() is not None:
            raise iscsi.Failed(f"the agent ended: {read(f'/out/{name}.log')}")

    def end(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        self.process.wait(ENDS_WITHIN_S)
        self.log.close()
