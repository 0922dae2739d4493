#!/usr/bin/env python3
"""A gateway under mixed load for a long time, on the real binary.

Clients verify the data that they wrote. The configuration changes under them, and restarts keep their
connections. Other clients connect only to waste connections.

    soak.py [--minutes N] [--binary FILE] [--out DIR]

    load        fio by three exports, two with limits that change, one with flushes; by random sizes and
                depths
    reloads     SIGHUP every two seconds with other shares, limits and sizes of a volume
    restarts    SIGTERM five times; this program keeps the descriptors, as systemd does
    intruders   half a handshake, half a header, 4 GiB asked, a client that never reads, and a thousand that
                say nothing; ten seconds of them, then ten without
    a reader    one request at a time by a protected export; its waits beside intruders and without them are
                reported
    errors      an upstream that fails half of its requests for five seconds of every ten, and a client that
                verifies the answers

No client may see an error that its storage did not have. No block may be wrong, and neither memory nor
descriptors may grow. Exit status 1 otherwise.
"""

import argparse
import array
import datetime
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20
SIZE = 64 * MIB
RELOAD_S = 2
# The memory that a process may gain after the first quarter of its life. Buffers are kept for reuse, up to
# 32 MiB.
GROWTH = 48 * MIB


def configuration(turn):
    limits = [f"{500 * (1 + (turn + k) % 7)} IO/s" for k in range(2)]
    return f"""
listen = ['unix:nbd.sock']
[pool.p]
backend = {{ kind = 'file' }}
[pool.p.export.reader]
path = 'reader.raw'
protected = true
[pool.p.export.a]
path = 'a.raw'
shares = {1 + turn % 900}
limit = {{ iops = '{limits[0]}' }}
[pool.p.export.b]
path = 'b.raw'
limit = {{ iops = '{limits[1]}' }}
[pool.p.export.c]
path = 'c.raw'
[pool.p.export.other]
path = 'other.raw'
[pool.failing]
backend = {{ kind = 'nbd', address = 'unix:failing.sock' }}
[pool.failing.export.failing]
upstream = ''
"""


class Gateway:
    """The program, and the part of systemd that keeps its connections."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.kept = binary, folder, []
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(os.path.join(folder, "notify.sock"))
        threading.Thread(target=self.keep, daemon=True).start()
        self.log = open(os.path.join(folder, "log"), "ab")
        self.process = None

    def keep(self):
        while True:
            text, ancillary, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(256 * 4))
            descriptors = array.array("i")
            for _, _, data in ancillary:
                descriptors.frombytes(data)
            lines = text.decode().split("\n")
            name = next((line[7:] for line in lines if line.startswith("FDNAME=")), "")
            if "FDSTORE=1" in lines:
                self.kept += [(name, descriptor) for descriptor in descriptors]
                continue
            if "FDSTOREREMOVE=1" in lines:
                descriptors.extend(kept for known, kept in self.kept if known == name)
                self.kept = [entry for entry in self.kept if entry[0] != name]
            for descriptor in descriptors:
                os.close(descriptor)

    def start(self):
        names, passed = [name for name, _ in self.kept], [descriptor for _, descriptor in self.kept]
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": os.path.join(self.folder, "notify.sock"),
            "FDSTORE": "1000",
        }
        if names:
            environment |= {"LISTEN_FDS": str(len(names)), "LISTEN_FDNAMES": ":".join(names)}

        def place():
            # All move to high numbers first: some of them may be in the places of others.
            high = [os.dup2(descriptor, 2000 + at) for at, descriptor in enumerate(passed)]
            for at, descriptor in enumerate(high):
                os.dup2(descriptor, 3 + at)
                os.close(descriptor)

        command = [
            "sh",
            "-c",
            'export LISTEN_PID=$$; exec "$@"',
            "sh",
            self.binary,
            "serve",
            "-c",
            "tidegate.toml",
        ]
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stderr=self.log,
            stdin=subprocess.DEVNULL,
            preexec_fn=place,
            close_fds=False,
        )
        end = time.monotonic() + 60
        while names and self.kept or not os.path.exists(os.path.join(self.folder, "nbd.sock")):
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit("soak: the gateway does not start; see its log")
            time.sleep(0.01)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def fio(folder, export, seed):
    draw = random.Random(seed)
    high = draw.choice([4, 16, 64, 256])
    return subprocess.Popen(
        [
            "fio",
            f"--name={export}",
            "--ioengine=nbd",
            f"--uri=nbd+unix:///{export}?socket={folder}/nbd.sock",
            f"--rw={draw.choice(['randwrite', 'randrw', 'write'])}",
            f"--bsrange=4k-{high}k",
            "--size=60m",
            f"--iodepth={draw.choice([1, 4, 16, 32])}",
            f"--fsync={draw.choice([0, 8, 64])}",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--verify_state_save=0",
            f"--randseed={seed}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
    )


def connected(folder):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    client.connect(os.path.join(folder, "nbd.sock"))
    return client


def opened(folder, export):
    """Returns a connection in the transmission phase, by the oldest handshake: a name, and no negotiation."""
    client = connected(folder)
    read_exactly(client, 18)
    client.sendall(
        struct.pack(">I", 3) + struct.pack(">QII", 0x49484156454F5054, 1, len(export)) + export.encode()
    )
    read_exactly(client, 10)
    return client


def read_exactly(client, length):
    data = b""
    while len(data) < length:
        part = client.recv(length - len(data))
        if not part:
            raise ConnectionError("the gateway hung up")
        data += part
    return data


def request(command, cookie, offset, length):
    return struct.pack(">IHHQQI", 0x25609513, 0, command, cookie, offset, length)


def verify_failing(folder, over, counts):
    """Writes and reads blocks of an export whose storage fails now and then."""
    fails, draw = os.path.join(folder, "fails"), random.Random(2)
    client, blocks, ended = opened(folder, "failing"), [{bytes(4096)} for _ in range(256)], 0
    while not over.is_set():
        # An error from the time of failures may answer a request just after they have ended.
        allowed = int(time.monotonic()) // 5 % 2
        if allowed:
            open(fails, "w").close()
        elif os.path.exists(fails):
            os.unlink(fails)
            ended = time.monotonic()
        at, is_write, data = draw.randrange(256), draw.random() < 0.5, draw.randbytes(4096)
        client.settimeout(60)
        client.sendall(request(1 if is_write else 0, 7, 4096 * at, 4096) + (data if is_write else b""))
        reply = read_exactly(client, 16)
        failed = reply[4:8] != b"\0\0\0\0"
        counts["requests of failing storage"] += 1
        counts["its errors"] += failed
        if failed and not allowed and time.monotonic() > ended + 1:
            raise RuntimeError("an error that the storage did not have")
        if is_write:
            blocks[at] = blocks[at] | {data} if failed else {data}
        elif not failed:
            found = read_exactly(client, 4096)
            if found not in blocks[at]:
                raise RuntimeError(f"block {at} of the failing storage is wrong")
            blocks[at] = {found}
        time.sleep(0.002)


def intrude(folder, draw):
    """Runs one of the clients that waste connections. Its own failure does not matter."""
    kind = draw.randrange(5)
    try:
        if kind == 0:
            crowd = [connected(folder) for _ in range(1000)]
            time.sleep(0.2)
            [client.close() for client in crowd]
        elif kind == 1:
            connected(folder).sendall(b"\0\0\0")
        elif kind == 2:
            opened(folder, "other").sendall(request(1, 1, 0, 65536)[:11])
        elif kind == 3:
            opened(folder, "other").sendall(request(0, 1, 0, 0xFFFFFFFF))
        else:
            client = opened(folder, "other")
            client.settimeout(0.5)
            for cookie in range(2000):
                client.sendall(request(0, cookie, 0, 1 << 20))
    except OSError:
        pass


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, help="(default: %(default)s)")
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "tidegate"))
    parser.add_argument("--out", help="leave a dated document here")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="tidegate-soak-")
    for volume in ("reader", "a", "b", "c", "other"):
        with open(os.path.join(folder, f"{volume}.raw"), "wb") as file:
            file.truncate(SIZE)
    with open(os.path.join(folder, "failing.raw"), "wb") as file:
        file.truncate(MIB)
    upstream = subprocess.Popen(
        [
            "nbdkit",
            "-f",
            "-U",
            "failing.sock",
            "--filter=error",
            "file",
            "failing.raw",
            "error=EIO",
            "error-rate=50%",
            f"error-file={folder}/fails",
        ],
        cwd=folder,
        stderr=subprocess.DEVNULL,
    )
    while not os.path.exists(os.path.join(folder, "failing.sock")):
        time.sleep(0.01)
    write = lambda turn: open(os.path.join(folder, "tidegate.toml"), "w").write(
        configuration(turn)
    )  # noqa: E731
    write(0)
    gateway, draw = Gateway(os.path.abspath(options.binary), folder), random.Random(1)
    gateway.start()
    over, failures = threading.Event(), []
    # Waits of the reader without intruders, and beside them.
    waits = ([], [])
    beside_intruders = lambda: int(time.monotonic()) // 10 % 2  # noqa: E731
    counts = {
        "fio runs": 0,
        "reloads": 0,
        "restarts": 0,
        "intruders": 0,
        "reads": 0,
        "requests of failing storage": 0,
        "its errors": 0,
    }

    def guarded(body):
        def run():
            try:
                body()
            except Exception as error:  # noqa: BLE001
                failures.append(f"{body.__name__}: {error!r}")
                over.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def load():
        running, seed = {}, 1
        while not over.is_set() or running:
            for export in ("a", "b", "c"):
                client = running.get(export)
                if client is None and not over.is_set():
                    running[export], seed = fio(folder, export, seed), seed + 1
                elif client is not None and client.poll() is not None:
                    counts["fio runs"] += 1
                    if client.returncode != 0:
                        raise RuntimeError(f"fio on {export}: {client.stderr.read().decode()[-500:]}")
                    del running[export]
            time.sleep(0.1)

    def intruders():
        while not over.is_set():
            if beside_intruders():
                intrude(folder, draw)
                counts["intruders"] += 1
            time.sleep(0.1)

    def reader():
        client, cookie = opened(folder, "reader"), 0
        while not over.is_set():
            began, cookie = time.monotonic(), cookie + 1
            client.sendall(request(0, cookie, (cookie * 4096) % SIZE, 4096))
            client.settimeout(60)
            reply = read_exactly(client, 16 + 4096)
            if reply[4:8] != b"\0\0\0\0" or reply[8:16] != struct.pack(">Q", cookie):
                raise RuntimeError("a read failed")
            waits[beside_intruders()].append(time.monotonic() - began)
            counts["reads"] += 1
            time.sleep(0.005)

    def failing():
        verify_failing(folder, over, counts)

    threads = [guarded(body) for body in (load, intruders, reader, failing)]
    life = 60 * options.minutes / 6
    end, restart = time.monotonic() + 60 * options.minutes, time.monotonic() + life
    lives, turn, began = [], 0, time.monotonic()
    first = None
    while time.monotonic() < end and not over.is_set():
        time.sleep(RELOAD_S)
        turn += 1
        write(turn)
        os.truncate(os.path.join(folder, "other.raw"), SIZE + turn % 5 * MIB)
        gateway.process.send_signal(signal.SIGHUP)
        counts["reloads"] += 1
        if first is None and time.monotonic() > began + life / 4:
            first = (gateway.resident(), gateway.descriptors())
        if time.monotonic() > restart:
            lives.append((first, (gateway.resident(), gateway.descriptors())))
            gateway.stop()
            gateway.start()
            counts["restarts"] += 1
            restart, began, first = time.monotonic() + life, time.monotonic(), None
    over.set()
    [thread.join() for thread in threads]
    gateway.stop()
    upstream.kill()
    grown = [last[0] - first[0] for first, last in lives if first]

    def quantiles(times):
        times.sort()
        at = lambda part: (
            round(1000 * times[int(part * (len(times) - 1))], 2) if times else None
        )  # noqa: E731
        return {"median": at(0.5), "p99": at(0.99), "longest": at(1)}

    with open(os.path.join(folder, "log"), errors="replace") as log:
        errors = [line.strip() for line in log if " ERROR " in line and "export=failing" not in line]
    checks = {
        "no client saw an error, and no block was wrong": not failures,
        "memory did not grow": all(growth <= GROWTH for growth in grown),
        "the log has no errors": not errors,
    }
    figures = {
        **counts,
        "reader_ms": quantiles(waits[0]),
        "reader_beside_intruders_ms": quantiles(waits[1]),
        "grown_mib": [round(growth / MIB, 1) for growth in grown],
        "descriptors": [[first[1], last[1]] for first, last in lives if first],
    }
    print(json.dumps(figures, indent=1))
    for check, passed in checks.items():
        print(f"{'ok' if passed else 'FAILED'}: {check}")
    print("\n".join([*failures, *errors[:5]]), file=sys.stderr)
    if options.out:
        today = datetime.date.today().isoformat()
        document = {
            "experiment": "soak",
            "date": today,
            "minutes": options.minutes,
            "checks": checks,
            **figures,
        }
        with open(os.path.join(options.out, f"{today}-soak.json"), "w") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
    if all(checks.values()):
        shutil.rmtree(folder)
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
