#!/usr/bin/env python3
"""In the guest: reads and writes of a host whose packets from an NVMe/TCP target or NFS server are delayed.

usage: guest.py nvme|nfs [options], see --help. Parts, one after the other:

   sensed    the report of `tidegate check` on two hosts, and the members in the set of an agent that detects
             the writers by itself, while the first host writes
   packets   the messages that the target sends for reads and for writes at depth 1, and whether packets begin
             with those that pace a writer
   delay     ms per request against delay for 64 KiB, by `tidegate agent` with each throttle and
             classification. Its target cannot be kept, so that it always throttles by its longest delay
   mixed     reads and writes at once by one host, over one session, by netem

All servers are the kernel's own. nvmet and nvme-tcp are configured by configfs and /dev/nvme-fabrics. nfsd
has ext4 and NFSv4.2, and none of its helpers: their answers are written to the kernel's caches beforehand.
The array, LVM and the network are iscsi.py's, but each host has a network namespace of its own.

Leaves /out/measured.json.
"""

import argparse
import collections
import json
import os
import socket
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
from delay import Agent, counted, names, numbers, rows_of, transfers
from iscsi import mapped, read, until, write
from protocols import Nfs, Nvme

NFS_FILE_MIB = 16
MIXED_MS = (0, 5, 10, 20)
MIXED_MIB = 4
# Reads are at random places: of a file read in order, the server has the next part before it is asked for.
DIRECTIONS = {"read": "randread", "write": "randwrite"}
# Reads take no longer than this target, so that no host is throttled.
SENSING = """\
[resource.vg0]
law = "pid"
target = "1s"
"""
TCP_PROTOCOL = 6
ETH_P_ALL = 3  # also outgoing packets


class Sniffer(threading.Thread):
    """The payloads of packets that the target sends to the first host from its port."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.lab, self.packets, self.ended = lab, [], threading.Event()
        with lab.target_namespace():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.socket.bind(("eth0", ETH_P_ALL))
        self.socket.settimeout(0.1)

    def run(self):
        to = socket.inet_aton(self.lab.address(1))
        while not self.ended.is_set():
            try:
                packet = self.socket.recv(1 << 17)
            except TimeoutError:
                continue
            header = (packet[0] & 15) * 4
            if packet[0] >> 4 != 4 or packet[9] != TCP_PROTOCOL or packet[16:20] != to:
                continue
            port, to_port = struct.unpack_from("!HH", packet, header)
            words = packet[header + 12] >> 4
            end = struct.unpack_from("!H", packet, 2)[0] or len(packet)
            if port == self.lab.port and end > header + 4 * words:
                self.packets.append((to_port, words, packet[header + 4 * words : end]))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        time.sleep(0.2)
        self.ended.set()
        self.join()
        self.socket.close()


def nvme_messages(stream):
    """Type, flags and length of each PDU."""
    at = 0
    while at + 8 <= len(stream):
        kind, flags, _, _, length = struct.unpack_from("<BBBBI", stream, at)
        yield at, f"PDU {kind:#04x}, flags {flags:#x}, {length} bytes"
        at += length


def nfs_messages(stream):
    """The length of each message of the RPC."""
    at = 0
    while at + 4 <= len(stream):
        length = struct.unpack_from("!I", stream, at)[0] & 0x7FFFFFFF
        yield at, f"reply of {length} bytes"
        at += 4 + length


def messages_of(packets, split):
    """The number of each message, and of those that began a packet; the TCP header lengths, in words."""
    # Only the connection that carries the data counts: NVMe has another one for its administration, which is
    # kept alive meanwhile.
    lengths = collections.Counter()
    for port, _, payload in packets:
        lengths[port] += len(payload)
    connection = max(lengths, key=lengths.get)
    begins, stream = set(), bytearray()
    for port, _, payload in packets:
        if port == connection:
            begins.add(len(stream))
            stream += payload
    found, first = collections.Counter(), collections.Counter()
    for at, name in split(bytes(stream)):
        found[name] += 1
        first[name] += at in begins
    return {
        "messages": dict(found),
        "begin_a_packet": dict(first),
        "packets": len(begins),
        "header_words": dict(collections.Counter(words for _, words, _ in packets)),
    }


class Experiment:
    def __init__(self, kind, options):
        self.kind, self.options = kind, options
        # The second host of NFS only has its own file open.
        self.lab = (
            Nvme(hosts=2)
            if kind == "nvme"
            else Nfs(hosts=2, file_mib=lambda number: NFS_FILE_MIB if number == 1 else 1)
        )
        self.size = f"{NFS_FILE_MIB}m" if kind == "nfs" else "64m"
        self.transfers, self.loads, self.complaints = [], [], {}
        self.found = {}

    def move(self, direction, combinations, amounts=None):
        results = transfers(
            self.lab,
            1,
            direction,
            combinations,
            amounts or self.options.amounts,
            rw=DIRECTIONS[direction],
            size=self.size,
        )
        return results

    def part_sensed(self):
        path, log = "/tmp/sensing.toml", "/out/sensing.log"
        write(path, SENSING)
        check = self.lab.target_exec(["tidegate", "check", "-c", path])
        write("/out/check.txt", check)
        print(check, flush=True)
        with open(log, "w") as file:
            agent = self.lab.target_popen(["tidegate", "agent", "-c", path, "--log", "debug"], stderr=file)
        until(lambda: "ready" in read(log) or agent.poll() is not None, "the agent")
        load = self.lab.start_fio(
            [
                {
                    "name": "load",
                    "filename": self.lab.device(1),
                    "rw": "randwrite",
                    "bs": "64k",
                    "iodepth": 8,
                    "size": self.size,
                }
            ],
            runtime=6,
        )
        time.sleep(4)
        sensed = self.members()
        load()
        agent.terminate()
        agent.wait(10)
        self.found["sensed"] = {"check": check, "log": read(log).splitlines()[-40:], "members": sensed}
        print("in the set while host 1 writes:", sensed, flush=True)

    def members(self):
        """The members in the agent's maps in the kernel."""
        return mapped(json.loads(self.lab.target_exec(["nft", "-j", "list", "ruleset"]))["nftables"])

    def part_packets(self):
        split = {"nvme": nvme_messages, "nfs": nfs_messages}[self.kind]
        for direction in DIRECTIONS:
            with Sniffer(self.lab) as sniffer:
                self.move(direction, [(64, 1)], (1, 1))
            self.found.setdefault("packets", {})[direction] = messages_of(sniffer.packets, split)
            print("packets", direction, self.found["packets"][direction], flush=True)

    def part_delay(self):
        for packets in self.options.packets:
            for throttle in self.options.throttles:
                with self.lab.pulse(), Agent(self.lab, throttle, packets) as agent:
                    self.measure_delays(agent, f"{throttle}, {packets}")
                    self.complaints[f"{throttle}, {packets}"] = agent.complaints()

    def part_mixed(self):
        for packets in self.options.packets:
            with self.lab.pulse(), Agent(self.lab, "netem", packets) as agent:
                for delay in MIXED_MS:
                    agent.hold(delay)
                    self.mix(packets, delay)

    def mix(self, packets, delay):
        """Reads one half of the volume and writes the other: an NFS server has new data in memory."""
        row = {"packets": packets, "delay_ms": delay}
        with counted(self.lab, row):
            results = self.lab.fio(
                [
                    {
                        "name": direction,
                        "filename": self.lab.device(1),
                        "rw": DIRECTIONS[direction],
                        "bs": "64k",
                        "iodepth": 1,
                        "offset": f"{half * NFS_FILE_MIB // 2}m",
                        "size": f"{NFS_FILE_MIB // 2}m",
                        "io_size": f"{MIXED_MIB}m",
                    }
                    for half, direction in enumerate(DIRECTIONS)
                ]
            )
        row |= {direction: result[direction] for direction, result in zip(DIRECTIONS, results)}
        self.found.setdefault("mixed", []).append(row)
        print(
            "mixed",
            packets,
            delay,
            "ms",
            *(f"{d} {row[d]['mean_ms']:.2f} ms" for d in DIRECTIONS),
            row["tcp"],
            flush=True,
        )

    def measure_delays(self, agent, what):
        combinations = [(64, depth) for depth in self.options.depths]
        for delay in self.options.delays:
            agent.hold(delay)
            for direction in DIRECTIONS:
                load = {"classification": what, "delay_ms": delay, "direction": direction}
                with counted(self.lab, load):
                    results = self.move(direction, combinations)
                if delay:
                    load["held_ms"] = agent.held_ms()
                self.loads.append(load)
                rows = list(
                    rows_of(results, combinations, direction, {"classification": what, "delay_ms": delay})
                )
                self.transfers += rows
                print(
                    what,
                    delay,
                    "ms,",
                    direction,
                    " ".join(f"depth {row['depth']}: {row['ms_per_io']:.2f} ms" for row in rows),
                    flush=True,
                )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["nvme", "nfs"])
    parser.add_argument("--delays", type=numbers, default=[0, 2, 5, 10, 20], help="ms")
    parser.add_argument("--depths", type=numbers, default=[1, 8])
    parser.add_argument(
        "--amounts", type=numbers, default=[4, 8], help="MiB per transfer at depth 1, and deeper"
    )
    parser.add_argument("--throttles", type=names, default=["netem", "edt"])
    parser.add_argument("--packets", type=names, default=["all", "responses"])
    parser.add_argument("--parts", type=names, default=["sensed", "packets", "delay", "mixed"])
    options = parser.parse_args()
    experiment = Experiment(options.kind, options)
    # First reads of data happen now.
    for direction in DIRECTIONS:
        experiment.move(direction, [(64, 8)], (2, 2))
    for part in options.parts:
        getattr(experiment, f"part_{part}")()
    with open("/out/measured.json", "w") as file:
        json.dump(
            {
                "kind": options.kind,
                "delays_ms": options.delays,
                **experiment.found,
                "transfers": experiment.transfers,
                "loads": experiment.loads,
                "complaints": experiment.complaints,
            },
            file,
            indent=1,
        )


if __name__ == "__main__":
    main()
