"""`tidegate agent` with a given delay, transfers against the delay, and losses; imported in the guest.

with delay.Pulse(device), delay.Agent(lab, "netem", "all") as agent:
    agent.hold(20)                              # milliseconds, for every initiator of the lab
    with delay.counted(lab, row):               # retransmissions and drops, into the row
        results = delay.transfers(lab, 1, "write", [(64, 1)], (4, 8))
"""

import contextlib
import json
import mmap
import os
import re
import signal
import threading
import time

import iscsi
from service import ENDS_WITHIN_S

# Both initiators are members. The agent does not delay an initiator that has nothing outstanding, and the
# second one always reads.
AGENT = """\
throttle = "{throttle}"
{packets}
[resource.vg0]
law = "pid"
target = "1ms"
set_point = 0.8
interval = "100ms"
writers = false
members = {members}
idle_half_life = "60s"
pid = {{ greatest = "{greatest}ms", proportional_gain = 100, integral_time = "200ms" }}
"""
# The agent decides ten times a second.
AGENT_FOLLOWS_S = 0.5


class Pulse(threading.Thread):
    """Reads 4 KiB by an initiator some twenty times a second, so that the agent has a signal."""

    def __init__(self, device):
        super().__init__(daemon=True)
        self.device = device
        self.ended = threading.Event()

    def run(self):
        buffer = mmap.mmap(-1, 4096)
        file = os.open(self.device, os.O_RDONLY | os.O_DIRECT)
        offset = 0
        while not self.ended.wait(0.05):
            os.preadv(file, [buffer], offset % (32 << 20))
            offset += 4096
        os.close(file)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


class Agent:
    """`tidegate agent`, which delays both initiators by a given time."""

    def __init__(self, lab, throttle, packets="all"):
        self.lab, self.throttle, self.packets = lab, throttle, packets
        self.path, self.log = f"/tmp/{throttle}.toml", f"/out/{throttle}.log"
        self.write(0)
        with open(self.log, "w") as log:
            self.process = lab.target_popen(
                ["tidegate", "agent", "-c", self.path, "--log", "debug"], stderr=log
            )
        iscsi.until(lambda: "ready" in iscsi.read(self.log) or self.process.poll() is not None, "the agent")
        if self.process.poll() is not None:
            raise iscsi.Failed(f"the agent ended: {iscsi.read(self.log)}")

    def write(self, delay):
        members = [self.lab.address(number) for number in self.lab.numbers] if delay else []
        packets = "" if self.throttle == "rate" else f'packets = "{self.packets}"'
        iscsi.write(
            self.path,
            AGENT.format(
                throttle=self.throttle, packets=packets, members=json.dumps(members), greatest=delay or 1
            ),
        )

    def hold(self, delay, wait=AGENT_FOLLOWS_S):
        """Sets the delay in milliseconds; 0 throttles no initiator."""
        self.write(delay)
        self.process.send_signal(signal.SIGHUP)
        time.sleep(wait)

    def held_ms(self):
        """Returns the agent's latest delay."""
        said = re.findall(r"throttled by up to ([0-9.]+) ?ms", iscsi.read(self.log))
        return float(said[-1]) if said else None

    def complaints(self):
        return [line for line in iscsi.read(self.log).splitlines() if " ERROR " in line]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(ENDS_WITHIN_S)


@contextlib.contextmanager
def counted(lab, row):
    """Adds the retransmissions and drops of the block to the row."""
    drops, before = lab.drops(), lab.retransmissions()
    yield
    after = lab.retransmissions()
    row["drops"] = lab.drops() - drops
    row["tcp"] = {
        side: {name: after[side][name] - before[side][name] for name in after[side]} for side in after
    }


def transfers(lab, initiator, direction, combinations, amounts_mib, **changes):
    """Moves the amount of each (block KiB, depth), one after the other. Returns fio's results.

    changes: other values of fio's options.
    """
    alone, queued = amounts_mib
    return lab.fio(
        [
            {
                "name": f"{block}k-{depth}",
                "filename": lab.device(initiator),
                "rw": direction,
                "bs": f"{block}k",
                "iodepth": depth,
                "size": "64m",
                "io_size": f"{alone if depth == 1 else queued}m",
                "stonewall": 1,
                **changes,
            }
            for block, depth in combinations
        ]
    )


def rows_of(results, combinations, direction, common):
    for (block, depth), result in zip(combinations, results):
        found = result[direction]
        yield {
            **common,
            "direction": direction,
            "block_kib": block,
            "depth": depth,
            "ios": found["ios"],
            "seconds": found["runtime_ms"] / 1000,
            "ms_per_io": found["runtime_ms"] / found["ios"],
            "bytes_per_s": found["bytes_per_s"],
            "mean_ms": found["mean_ms"],
            "p99_ms": found["p99_ms"],
        }


def numbers(text):
    """Returns the numbers of a command-line option."""
    return [int(number) for number in text.split(",")]


def names(text):
    """Returns the texts of a command-line option."""
    return text.split(",")
