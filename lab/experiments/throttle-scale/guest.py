#!/usr/bin/env python3
"""In the guest: a thousand consumers throttled at once. See drive.py, which runs this script.

usage: guest.py METHODxRESOURCESxCONSUMERS[xSECONDS]…

The consumers are addresses of one interface in a network namespace of their own. While all are throttled,
some of them ask a server at port 3260 for an answer: that shows the real delays. With SECONDS, all delays
move by themselves for so long, and consumers use two resources each. The kernel reports the transactions of
nftables that this took. Leaves /out/measured.json.
"""

import ipaddress
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi

FIRST = ipaddress.IPv4Address("10.1.0.1")
SERVER = ("10.0.0.1", 3260)
ASKED = 20


def network(consumers):
    iscsi.run(["ip", "netns", "add", "consumers"])
    iscsi.batch(
        "ip",
        [
            "link add eth0 type veth peer name eth1 netns consumers",
            "address add 10.0.0.1/16 dev eth0",
            "link set eth0 up",
            "link set lo up",
            "route add 10.1.0.0/16 dev eth0",
        ],
    )
    with iscsi.namespace("consumers"):
        iscsi.batch(
            "ip",
            ["link set eth1 up", "link set lo up", "route add 10.0.0.0/16 dev eth1"]
            + [f"address add {FIRST + number}/32 dev eth1" for number in range(consumers)],
        )


def serve():
    listener = socket.create_server(SERVER, backlog=100)
    while True:
        connection, _ = listener.accept()
        while connection.recv(1):
            connection.sendall(b"!")
        connection.close()


def listens():
    with socket.socket() as probe:
        return probe.connect_ex(SERVER) == 0


def sample(consumers, count):
    return random.Random(1).sample(range(consumers), count)


def answers(consumers, count):
    """The waits of some consumers for an answer over a connection that they have, in milliseconds."""
    waits = []
    with iscsi.namespace("consumers"):
        for number in sample(consumers, count):
            with socket.create_connection(SERVER, source_address=(str(FIRST + number), 0)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                began = time.monotonic()
                connection.sendall(b"?")
                connection.recv(1)
                waits.append(1000 * (time.monotonic() - began))
    return waits


def moving(method, resources, consumers, seconds):
    """The control intervals and the transactions of nftables while all delays move by themselves."""
    watch = subprocess.Popen(["nft", "monitor"], stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    command = ["tidegate", method, str(resources), str(consumers), str(seconds)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    generations = []

    def follow():
        for line in watch.stdout:
            if line.startswith("# new generation"):
                generations.append(time.monotonic())

    threading.Thread(target=follow, daemon=True).start()
    said = process.stderr.readline()
    if said.strip() != "held":
        raise iscsi.Failed(f"{' '.join(command)}: {said}{process.stderr.read()}")
    # The longer of the delays of each consumer's two resources, at the end.
    delays = [10 + 7 * resource % 60 for resource in range(resources)]
    wanted = {
        number: max(delays[number // consumers], delays[(number // consumers + 1) % resources])
        for number in range(resources * consumers)
    }
    waited = answers(resources * consumers, ASKED)
    beyond = [wait - wanted[number] for number, wait in zip(sample(resources * consumers, ASKED), waited)]
    changed = list(generations)
    printed, complaint = process.communicate("\n")
    watch.terminate()
    if process.returncode != 0:
        raise iscsi.Failed(f"{' '.join(command)}: {complaint}")
    return {
        **json.loads(printed),
        "seconds": seconds,
        "transactions": len(changed),
        "mean_between_s": (changed[-1] - changed[0]) / (len(changed) - 1) if len(changed) > 1 else None,
        "beyond_wanted_ms": [min(beyond), max(beyond)],
        "after_ms": max(answers(resources * consumers, ASKED)),
    }


def measure(method, resources, consumers, seconds=None):
    if seconds is not None:
        return moving(method, resources, consumers, seconds)
    free = answers(resources * consumers, ASKED)
    command = ["tidegate", method, str(resources), str(consumers)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = process.stderr.readline()
    if said.strip() != "held":
        raise iscsi.Failed(f"{' '.join(command)}: {said}{process.stderr.read()}")
    throttled = answers(resources * consumers, ASKED)
    printed, complaint = process.communicate("\n")
    if process.returncode != 0:
        raise iscsi.Failed(f"{' '.join(command)}: {complaint}")
    return {
        **json.loads(printed),
        "free_ms": [min(free), max(free)],
        "held_ms": [min(throttled), max(throttled)],
        "after_ms": max(answers(resources * consumers, ASKED)),
    }


def main(cases):
    cases = [(method, *map(int, numbers)) for method, *numbers in (case.split("x") for case in cases)]
    iscsi.run(["pin", "nft", "tc", "tidegate"])
    iscsi.run(["touch", *iscsi.NFT_LOOKS_FOR])
    network(max(case[1] * case[2] for case in cases))
    server = subprocess.Popen([sys.executable, __file__, "serve"])
    try:
        iscsi.until(listens, "the server")
        measured = [measure(*case) for case in cases]
    finally:
        server.kill()
    with open("/out/measured.json", "w") as file:
        json.dump(measured, file, indent=1)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    try:
        main(sys.argv[1:])
    except iscsi.Failed as failure:
        sys.exit(f"throttle-scale: {failure}")
