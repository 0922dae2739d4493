#!/usr/bin/env python3
"""In the guest: delayed packets from the target to an initiator, and their effect on its reads and writes.

usage: guest.py [--window BYTES] [--parts LIST] …, see --help. Parts:

   sweep     time to move a fixed amount against the delay, per classification, direction, block size and
             depth; reads and writes alone, without another load
   probes    writes of the sweep again, with TCP's tail loss probes as the kernel has them; every other part
             is without
   ipv6      an initiator that logged in over IPv6, all packets delayed
   jump      the delay jumps between 2 and 20 ms every 100 ms, three ways: the packet goes to another class;
             netem's delay is changed; the same with a rate
   baseline  HTB on egress and policing on ingress, set to the throughputs that the sweep had with delay
   mixed     reads and writes at once over one session
   limited   the same beside `tidegate agent` with the throttle `rate`, which throttles writes only, always
             for its longest delay
   throttles the same as in the sweep for all packets, by `tidegate agent` with each of its throttles, netem
             and edt; then its delay jumps. An agent with a target that cannot be kept always uses its longest
             delay

Classifications, of packets that the target sends to the initiator:

   all       every packet
   ack       acknowledgements without payload: the paper's
   small     up to four iSCSI headers of payload: acknowledgements, R2T, SCSI responses; also the header of
             read data, when that travels in a packet of its own
   response  acknowledgements without payload, and packets that begin with an R2T or a SCSI response, by
             opcode

Leaves /out/measured.json.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi
from delay import Agent, Pulse, counted, names, numbers, rows_of, transfers

# 20 bytes each of IPv4 and TCP, 12 of timestamps: 52. Three SACK blocks more: 80. A PDU is at least 48 bytes
# of payload.
PURE_ACK_IP_BYTES = 80
SMALL_IP_BYTES = 52 + 4 * 48
IPV6_LESS = 20  # the length of IPv6 is without the header, which IPv4's includes
# With timestamps, the TCP header has 32 bytes. The byte behind it is the first of a PDU when a packet begins
# with one. LIO's reads have no response: their status travels with the last data. Any size, because TCP puts
# responses together while an earlier one is still queued. With the acknowledgements, because a response that
# these overtake by more than the initiator's largest window is discarded there (RFC 5961, 5.2).
OPCODES = "tcp doff 8 @th,256,8 { 0x21, 0x31 }"


def no_larger(bytes):
    """A match on the packet's length, by address family."""
    return {
        "ip": f"tcp flags & (fin|syn|rst) == 0x0 ip length <= {bytes}",
        "ip6": f"tcp flags & (fin|syn|rst) == 0x0 ip6 length <= {bytes - IPV6_LESS}",
    }


def any_size(match):
    return {"ip": match, "ip6": match}


CLASSIFICATIONS = {
    "all": [any_size("")],
    "ack": [no_larger(PURE_ACK_IP_BYTES)],
    "small": [no_larger(SMALL_IP_BYTES)],
    "response": [no_larger(PURE_ACK_IP_BYTES), any_size(OPCODES)],
}
DIRECTIONS = ("read", "write")
# Packets of 1500 bytes for 20 ms at 10 Gbit/s are 17 000; netem's default of 1000 would drop.
NETEM_LIMIT = 100_000
JUMP_MS = (20, 2)
JUMP_EVERY_S = 0.1
THROTTLES = ("netem", "edt")
AGENT_JUMPS_EVERY_S = 0.25
# The agent limits only writes that it has seen: for a moment it lets them go on.
LEARNS_S = 2


class Throttle:
    """HTB with a class per delay, reached by priority only. Unclassified packets go directly, undelayed."""

    def __init__(self, lab, rate="rate 100gbit"):
        self.lab = lab
        self.rate = rate

    def classify(self, classification, delays):
        """Makes the classes 1:1, 1:2, … with these delays, without members yet."""
        self.remove()
        self.delays = list(delays)
        lines = ["qdisc add dev eth0 root handle 1: htb default 0"]
        for number, delay in enumerate(self.delays, 1):
            lines += [
                f"class add dev eth0 parent 1: classid 1:{number:x} htb rate 100gbit quantum 60000",
                f"qdisc add dev eth0 parent 1:{number:x} {self.netem(number, delay)}",
            ]
        rules = "\n".join(
            f"tcp sport 3260 {match[family]} meta priority set {family} daddr map @{addresses}"
            for match in CLASSIFICATIONS[classification]
            for family, addresses in (("ip", "ipv4"), ("ip6", "ipv6"))
        )
        with self.lab.target_namespace():
            iscsi.batch("tc", lines)
            iscsi.run(
                ["nft", "-f", "-"],
                f"""table inet lab {{
                map ipv4 {{ type ipv4_addr : classid; }}
                map ipv6 {{ type ipv6_addr : classid; }}
                chain output {{
                    type filter hook output priority mangle;
                    {rules}
                }}
            }}""",
            )

    def netem(self, number, delay):
        return f"handle {0x10 + number:x}: netem limit {NETEM_LIMIT} delay {delay}ms {self.rate}"

    def put(self, initiator, delay):
        """Moves an initiator into the class with that delay; 0 is none."""
        kind = "ipv6" if initiator in self.lab.ipv6 else "ipv4"
        line = f"flush map inet lab {kind}\n"
        if delay:
            line += self.element(initiator, delay)
        self.lab.target_exec(["nft", "-f", "-"], line)

    def element(self, initiator, delay):
        kind = "ipv6" if initiator in self.lab.ipv6 else "ipv4"
        number = self.delays.index(delay) + 1
        return f"add element inet lab {kind} {{ {self.lab.address(initiator)} : 1:{number:x} }}\n"

    def remove(self):
        with self.lab.target_namespace():
            iscsi.run(["nft", "-f", "-"], "add table inet lab\ndelete table inet lab\n")
            # Fails when there is none.
            subprocess.run(["tc", "qdisc", "del", "dev", "eth0", "root"], stderr=subprocess.DEVNULL)


class Experiment:
    def __init__(self, lab, options):
        self.lab = lab
        self.options = options
        self.throttle = Throttle(lab)
        self.combinations = [(block, depth) for block in options.block_sizes for depth in options.depths]
        self.transfers = []  # one row per transfer
        self.complaints = {}  # the agent's errors, by throttle
        self.loads = []  # one row per fio, with counters: all combinations of a direction together

    def transfer(self, initiator, direction, combinations, **common):
        load = {**common, "direction": direction}
        with counted(self.lab, load):
            results = transfers(self.lab, initiator, direction, combinations, self.options.amounts)
        self.loads.append(load)
        self.transfers += rows_of(results, combinations, direction, common)
        print(
            " ".join(map(str, common.values())),
            direction,
            " ".join(
                f"{block}k-{depth} {row[direction]['runtime_ms'] / row[direction]['ios']:.2f} ms"
                for (block, depth), row in zip(combinations, results)
            ),
            flush=True,
        )

    def sweep(self, part, classification, initiator, directions, combinations):
        delays = [delay for delay in self.options.delays if delay]
        self.throttle.classify(classification, delays)
        for delay in self.options.delays:
            self.throttle.put(initiator, delay)
            for direction in directions:
                self.transfer(
                    initiator,
                    direction,
                    combinations,
                    part=part,
                    classification=classification,
                    delay_ms=delay,
                )

    def part_sweep(self):
        for classification in CLASSIFICATIONS:
            self.sweep("sweep", classification, 1, DIRECTIONS, self.combinations)

    def part_probes(self):
        self.lab.tail_loss_probes(True)
        self.sweep("probes", "all", 1, ["write"], self.combinations)
        self.lab.tail_loss_probes(False)

    def part_ipv6(self):
        self.sweep("ipv6", "all", 2, DIRECTIONS, [(64, 1)])

    # The delay jumps.

    def part_jump(self):
        for how, rate in (("class", ""), ("change", ""), ("change with rate", "rate 100gbit")):
            if how not in self.options.jumps:
                continue
            for classification in self.options.jump_classifications:
                throttle = Throttle(self.lab, rate)
                throttle.classify(classification, JUMP_MS)
                throttle.put(1, JUMP_MS[0])
                for direction in DIRECTIONS:
                    self.jump(throttle, how, classification, direction)
                throttle.remove()

    def jump(self, throttle, how, classification, direction):
        row = {"part": "jump", "how": how, "classification": classification, "direction": direction}
        program = ["nft", "--interactive"] if how == "class" else ["tc", "-batch", "-"]
        seconds = self.options.jump_seconds
        tool = self.lab.target_popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        with counted(self.lab, row):
            load = self.lab.start_fio(
                [
                    {
                        "name": "load",
                        "filename": self.lab.device(1),
                        "rw": direction,
                        "bs": "64k",
                        "iodepth": 8,
                        "size": "64m",
                    }
                ],
                runtime=seconds,
            )
            changes, begin = 0, time.monotonic()
            while time.monotonic() < begin + seconds:
                delay = JUMP_MS[changes % 2]
                if how == "class":
                    tool.stdin.write("flush map inet lab ipv4; " + throttle.element(1, delay))
                else:
                    tool.stdin.write(f"qdisc change dev eth0 parent 1:1 {throttle.netem(1, delay)}\n")
                tool.stdin.flush()
                changes += 1
                time.sleep(max(0, begin + changes * JUMP_EVERY_S - time.monotonic()))
            result = load()[0][direction]
        said = tool.communicate()[0].strip()
        if tool.returncode != 0 or "rror" in said:
            raise iscsi.Failed(f"{program[0]}: status {tool.returncode}: {said}")
        row |= {"changes": changes, **result}
        self.loads.append(row)
        print("jump", how, classification, direction, row["tcp"], "drops", row["drops"], flush=True)

    # Limits, to compare delay with.

    def part_baseline(self):
        """Limits each transfer to the throughput that it had with this delay of all packets.

        TCP's tail loss probes are on: they are there for losses.
        """
        self.lab.tail_loss_probes(True)
        for row in [
            row
            for row in self.transfers
            if row["part"] == "sweep"
            and row["classification"] == "all"
            and row["block_kib"] == 64
            and row["delay_ms"] in self.options.compared
        ]:
            for limit in ("htb", "police"):
                with self.lab.target_namespace():
                    self.throttle.remove()
                    iscsi.batch("tc", self.limit(limit, row["bytes_per_s"]))
                found = {
                    "part": "baseline",
                    "limit": limit,
                    "limit_bytes_per_s": row["bytes_per_s"],
                    "delay_ms": row["delay_ms"],
                }
                combination = [(64, row["depth"])]
                with counted(self.lab, found):
                    results = transfers(self.lab, 1, row["direction"], combination, self.options.amounts)
                found |= next(rows_of(results, combination, row["direction"], {}))
                self.loads.append(found)
                print(
                    "baseline",
                    limit,
                    row["direction"],
                    row["depth"],
                    f"{row['bytes_per_s'] / 1e6:.2f} MB/s wanted,",
                    f"{found['bytes_per_s'] / 1e6:.2f} had",
                    found["tcp"],
                    flush=True,
                )
                self.lab.target_exec(
                    ["tc", "qdisc", "del", "dev", "eth0", "root" if limit == "htb" else "ingress"]
                )
        self.lab.tail_loss_probes(False)

    def limit(self, kind, bytes_per_s):
        bits = round(bytes_per_s * 8)
        if kind == "htb":
            return [
                "qdisc add dev eth0 root handle 1: htb default 1",
                f"class add dev eth0 parent 1: classid 1:1 htb rate {bits}bit burst 64kb",
            ]
        # Up to 64 KiB reach the policer at once, here as behind an interface that puts segments together. It
        # always drops more than `mtu`. `burst` is two of these, or the bytes of 100 ms.
        burst = max(128 << 10, round(bytes_per_s / 10))
        return [
            "qdisc add dev eth0 handle ffff: ingress",
            f"filter add dev eth0 parent ffff: protocol ip matchall action police rate {bits}bit "
            f"burst {burst}b mtu 64kb conform-exceed drop",
        ]

    # Reads and writes of one consumer.

    def part_mixed(self):
        delays = self.options.mixed_delays or self.options.delays
        for classification in CLASSIFICATIONS:
            self.throttle.classify(classification, [delay for delay in delays if delay])
            for depth in self.options.mixed_depths:
                for delay in delays:
                    self.throttle.put(1, delay)
                    row = {
                        "part": "mixed",
                        "classification": classification,
                        "delay_ms": delay,
                        "depth": depth,
                    }
                    with counted(self.lab, row):
                        results = self.lab.fio(
                            [
                                {
                                    "name": direction,
                                    "filename": self.lab.device(1),
                                    "rw": direction,
                                    "bs": "64k",
                                    "iodepth": depth,
                                    "size": "64m",
                                }
                                for direction in DIRECTIONS
                            ],
                            runtime=self.options.mixed_seconds,
                        )
                    row |= {direction: result[direction] for direction, result in zip(DIRECTIONS, results)}
                    self.loads.append(row)
                    print(
                        "mixed",
                        classification,
                        depth,
                        delay,
                        *(f"{d} {row[d]['mean_ms']:.2f} ms" for d in DIRECTIONS),
                        row["tcp"],
                        flush=True,
                    )

    def part_limited(self):
        self.throttle.remove()
        with self.agent("rate", "all", 1) as agent:
            for depth in self.options.limited_depths:
                for delay in (0, *self.options.limited_delays):
                    agent.hold(delay)
                    row = {"part": "limited", "classification": "rate", "delay_ms": delay, "depth": depth}
                    with counted(self.lab, row):
                        load = self.lab.start_fio(
                            [
                                {
                                    "name": direction,
                                    "filename": self.lab.device(1),
                                    "rw": f"rand{direction}",
                                    "bs": "64k",
                                    "iodepth": depth,
                                    "size": "64m",
                                }
                                for direction in DIRECTIONS
                            ],
                            runtime=self.options.limited_seconds,
                            ramp_time=LEARNS_S,
                        )
                        time.sleep(LEARNS_S)
                        before = self.lab.volumes()
                        time.sleep(self.options.limited_seconds - 1)
                        after = self.lab.volumes()
                        results = load()
                    done = {
                        key: after[self.lab.volume(1)][key] - value
                        for key, value in before[self.lab.volume(1)].items()
                    }
                    row |= {direction: result[direction] for direction, result in zip(DIRECTIONS, results)}
                    row["at_device_ms"] = done["write_ms"] / max(1, done["writes"])
                    self.loads.append(row)
                    print(
                        "limited",
                        depth,
                        delay,
                        *(f"{d} {row[d]['mean_ms']:.2f} ms" for d in DIRECTIONS),
                        f"{row['at_device_ms']:.2f} at the device",
                        row["tcp"],
                        flush=True,
                    )

    # The agent's throttles.

    def part_throttles(self):
        self.throttle.remove()
        combinations = [(64, depth) for depth in self.options.throttle_depths or self.options.depths]
        for throttle in THROTTLES:
            with self.agent(throttle, "all", 1) as agent:
                self.agent_delays(agent, throttle, 1, combinations)
                if throttle in self.options.throttle_jumps:
                    for direction in DIRECTIONS:
                        self.agent_jumps(agent, direction)
        for throttle in THROTTLES:
            if f"{throttle}-responses" in self.options.throttles_too:
                with self.agent(throttle, "responses", 1) as agent:
                    self.agent_delays(agent, f"{throttle}, responses", 1, [(64, 1)])
        if "wide" in self.options.throttles_too:
            self.lab.small_queues(wide=True)
            with self.agent("edt", "all", 1) as agent:
                self.agent_delays(agent, "edt, wide", 1, [(64, 1), (64, 8)])
            self.lab.small_queues(wide=False)
        if "ipv6" in self.options.throttles_too:
            for throttle in THROTTLES:
                with self.agent(throttle, "all", 2) as agent:
                    self.agent_delays(agent, f"{throttle}, IPv6", 2, [(64, 1)])

    @contextlib.contextmanager
    def agent(self, throttle, packets, initiator):
        """Runs an agent, while the other initiator reads a little."""
        with Pulse(self.lab.device(3 - initiator)), Agent(self.lab, throttle, packets) as agent:
            yield agent
            self.complaints[f"{throttle}, {packets}, initiator {initiator}"] = agent.complaints()

    def agent_delays(self, agent, what, initiator, combinations):
        for delay in self.options.throttle_delays or self.options.delays:
            agent.hold(delay)
            for direction in DIRECTIONS:
                self.transfer(
                    initiator, direction, combinations, part="throttles", classification=what, delay_ms=delay
                )
                if delay:
                    self.loads[-1]["held_ms"] = agent.held_ms()

    def agent_jumps(self, agent, direction):
        row = {
            "part": "jump",
            "how": f"agent, {agent.throttle}",
            "classification": "all",
            "direction": direction,
        }
        with counted(self.lab, row):
            load = self.lab.start_fio(
                [
                    {
                        "name": "load",
                        "filename": self.lab.device(1),
                        "rw": direction,
                        "bs": "64k",
                        "iodepth": 8,
                        "size": "64m",
                    }
                ],
                runtime=self.options.jump_seconds,
            )
            changes, end = 0, time.monotonic() + self.options.jump_seconds
            while time.monotonic() < end:
                agent.hold(JUMP_MS[changes % 2], wait=AGENT_JUMPS_EVERY_S)
                changes += 1
            result = load()[0][direction]
        row |= {"changes": changes, **result}
        self.loads.append(row)
        print("jump", row["how"], direction, row["tcp"], "drops", row["drops"], flush=True)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--window",
        default="default",
        help="the most that TCP has in flight, in bytes (default: the kernel's)",
    )
    parser.add_argument("--delays", type=numbers, default=[0, 2, 5, 10, 15, 20])
    parser.add_argument("--block-sizes", type=numbers, default=[64, 256], help="KiB")
    parser.add_argument("--depths", type=numbers, default=[1, 4, 8])
    parser.add_argument(
        "--amounts", type=numbers, default=[8, 12], help="MiB per transfer at depth 1, and deeper"
    )
    parser.add_argument(
        "--parts",
        type=names,
        default=["sweep", "probes", "ipv6", "jump", "baseline", "mixed", "throttles", "limited"],
    )
    parser.add_argument(
        "--compared", type=numbers, default=[5, 10, 20], help="delays that the baselines are set beside"
    )
    parser.add_argument("--jumps", type=names, default=["class", "change", "change with rate"])
    parser.add_argument("--jump-classifications", type=names, default=["all", "small", "response"])
    parser.add_argument("--mixed-delays", type=numbers, help="(default: all)")
    parser.add_argument("--mixed-depths", type=numbers, default=[1, 4])
    parser.add_argument("--mixed-seconds", type=int, default=1)
    parser.add_argument("--limited-delays", type=numbers, default=[20, 50, 100, 200, 400])
    parser.add_argument("--limited-depths", type=numbers, default=[1, 4, 16])
    parser.add_argument("--limited-seconds", type=int, default=6)
    parser.add_argument("--throttle-delays", type=numbers, help="with the agent (default: all)")
    parser.add_argument("--throttle-depths", type=numbers, help="with the agent (default: all)")
    parser.add_argument("--throttle-jumps", type=names, default=list(THROTTLES))
    parser.add_argument(
        "--throttles-too",
        type=names,
        default=["netem-responses", "edt-responses", "wide", "ipv6"],
        help="with the agent, beside all packets over IPv4",
    )
    parser.add_argument("--jump-seconds", type=int, default=2)
    return parser.parse_args()


def main():
    options = arguments()
    window = None if options.window == "default" else int(options.window)
    lab = iscsi.Lab(initiators=2, ipv6={2}, window=window, tail_loss_probes=False)
    experiment = Experiment(lab, options)
    # Everything that is read only for the first transfer is read now.
    transfers(lab, 1, "write", [(64, 8)], options.amounts)
    for part in options.parts:
        getattr(experiment, f"part_{part}")()
    with open("/out/measured.json", "w") as file:
        json.dump(
            {
                "window": options.window,
                "delays_ms": options.delays,
                "negotiated": lab.negotiated(1),
                "transfers": experiment.transfers,
                "loads": experiment.loads,
                "complaints": experiment.complaints,
            },
            file,
            indent=1,
        )


if __name__ == "__main__":
    main()
