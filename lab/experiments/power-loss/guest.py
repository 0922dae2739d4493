#!/usr/bin/env python3
"""In the guest: the contents of the disk after a power loss at any moment, under the kernel's dm-log-writes.

usage: guest.py [--seed N] [--rounds N] [--only CASE,…]

dm-log-writes keeps a log of the writes that reach the disk, in their order. It logs a write only when a flush
after it, or its own FUA, has completed. After a power loss, a disk without a battery certainly has the log up
to that moment.

A client writes blocks with their version, zeroes some, some with FUA, and flushes at times before all answers
are there. It puts marks into the log. At every mark the disk is rebuilt from the log. Each sector must have a
version between the last that the client may rely on and the last that it sent.

   direct       the gateway on the device, past the page cache
   buffered     the same, through the page cache
   ext4         on a file of ext4, through the page cache; the file system recovers its journal first
   upstream     a gateway in front of the gateway of `direct`
   liar         a gateway in front of qemu-nbd that ignores flushes. The loss must be found, or the experiment
                proves nothing

Leaves /out/measured.json. Exit status 1 when a case other than `liar` loses data, or `liar` does not.
"""

import argparse
import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time

SECTOR = 512
BLOCK = 4096
BLOCKS = 512
SIZE = 64 << 20
LOG_SIZE = 512 << 20
MAPPED = "/dev/mapper/logged"
SOCKET = "/tmp/{}.sock"

READ, WRITE, DISCONNECT, FLUSH, WRITE_ZEROES = 0, 1, 2, 3, 6
FUA = 1
OPT_GO = 7
INFO_EXPORT = 0
REP_ACK, REP_INFO = 1, 3


class Failed(Exception):
    """A step that did not work, and its output."""


def run(*command):
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        raise Failed(f"{' '.join(command)}: {ended.stdout.strip()}")
    return ended.stdout.strip()


class Client:
    """A client of NBD that does not wait: it sends requests, and takes answers as they come."""

    def __init__(self, path, export):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self._receive(18)
        name = export.encode()
        option = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self.socket.sendall(
            struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", OPT_GO, len(option)) + option
        )
        while True:
            _, _, kind, length = struct.unpack(">QIII", self._receive(20))
            self._receive(length)
            if kind == REP_ACK:
                break
            if kind != REP_INFO:
                raise Failed(f"{export}: the option's answer is {kind:#x}")

    def _receive(self, length):
        data = bytearray()
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise Failed("the server closed the connection")
            data += part
        return bytes(data)

    def send(self, command, cookie, offset=0, length=0, flags=0, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length) + data)

    def answer(self):
        """The cookie of the next answer."""
        _, error, cookie = struct.unpack(">IIQ", self._receive(16))
        if error:
            raise Failed(f"request {cookie} failed with {error}")
        return cookie


class Expectation:
    """Versions of each block: the one that may be relied on, the last one sent, and those that are zeros."""

    def __init__(self):
        self.durable = [0] * BLOCKS
        # The kind of request that made it durable, for the reader of a loss.
        self.by = ["nothing"] * BLOCKS
        self.sent = [0] * BLOCKS
        self.zeros = [{0} for _ in range(BLOCKS)]

    def rely_on(self, block, version, by):
        if version > self.durable[block]:
            self.durable[block], self.by[block] = version, by

    def snapshot(self):
        return list(self.durable), list(self.sent), list(self.by)

    def wrong(self, snapshot, image):
        """Sectors of an image that have none of the versions that they may have."""
        durable, sent, by = snapshot
        found = []
        for block in range(BLOCKS):
            for at in range(block * BLOCK, (block + 1) * BLOCK, SECTOR):
                sector = image[at : at + SECTOR]
                if not self.may_have(block, durable[block], sent[block], sector):
                    number, version = struct.unpack_from("<II", sector)
                    found.append(
                        {
                            "sector": at // SECTOR,
                            "has": [number, version],
                            "durable": durable[block],
                            "by": by[block],
                            "is_zeros": durable[block] in self.zeros[block],
                            "sent": sent[block],
                        }
                    )
        return found

    def may_have(self, block, durable, sent, sector):
        if not any(sector):
            return any(durable <= version <= sent for version in self.zeros[block])
        number, version = struct.unpack_from("<II", sector)
        return number == block and durable <= version <= sent and sector == content(block, version)[:SECTOR]


def content(block, version):
    return struct.pack("<II", block, version) * (BLOCK // 8)


class Load:
    """Rounds of writes, each with a mark at a moment when some of its requests are not answered yet."""

    def __init__(self, client, expectation, chance):
        self.client, self.expectation, self.chance = client, expectation, chance
        self.cookie = 0
        # Requests without an answer: the block, the version and FUA of a write; None for a flush.
        self.waiting = {}
        # Answered writes that no flush has covered yet.
        self.answered = []

    def write(self, block, fua):
        expectation = self.expectation
        expectation.sent[block] += 1
        version = expectation.sent[block]
        self.cookie += 1
        self.waiting[self.cookie] = (block, version, fua)
        flags = FUA if fua else 0
        if self.chance.random() < 0.15:
            expectation.zeros[block].add(version)
            self.client.send(WRITE_ZEROES, self.cookie, block * BLOCK, BLOCK, flags)
        else:
            self.client.send(WRITE, self.cookie, block * BLOCK, BLOCK, flags, content(block, version))

    def take(self):
        """Takes an answer, and returns its cookie."""
        done = self.client.answer()
        if written := self.waiting.pop(done):
            block, version, fua = written
            if fua:
                self.expectation.rely_on(block, version, "FUA")
            else:
                self.answered.append((block, version))
        return done

    def flush(self):
        """Flushes: writes that were answered before it are durable after it."""
        covered, self.answered = self.answered, []
        self.cookie += 1
        flush = self.cookie
        self.waiting[flush] = None
        self.client.send(FLUSH, flush)
        while self.take() != flush:
            pass
        for block, version in covered:
            self.expectation.rely_on(block, version, "flush")

    def round(self, mark):
        # A block has one write at a time: either of two may be the later one.
        blocks = self.chance.sample(range(BLOCKS), self.chance.randint(2, 24))
        # FUA before all others: its sync runs while they are written.
        begins_with_fua = self.chance.random() < 0.5
        # dm-log-writes logs a write when it is flushed, and one with FUA at once. A block that has both would
        # have them in the wrong order.
        unflushed = {block for block, _ in self.answered}
        for place, block in enumerate(blocks):
            fua = (place == 0 and begins_with_fua) or self.chance.random() < 0.15
            self.write(block, fua and block not in unflushed)
        for _ in range(self.chance.randint(1, len(blocks))):
            self.take()
        # Without a flush, only FUA has brought anything to the disk.
        if self.chance.random() < 0.5:
            self.flush()
        mark()
        snapshot = self.expectation.snapshot()
        while self.waiting:
            self.take()
        return snapshot


def entries(log):
    """Entries of the log: (sector, number of sectors, flags, the name of a mark, the place of the data)."""
    magic, _, count, sector_size = struct.unpack_from("<QQQI", log)
    if magic != 0x6A736677736872:
        raise Failed(f"no log: {magic:#x}")
    at = sector_size
    for _ in range(count):
        sector, sectors, flags, length = struct.unpack_from("<QQQQ", log, at)
        name = log[at + 32 : at + 32 + length].decode() if flags & 8 else None
        yield sector, sectors, flags, name, at + sector_size
        at += sector_size + (0 if flags & 4 else sectors * SECTOR)


def at_marks(log_path, image):
    """Changes the image in place, and yields the name of each mark that it has reached."""
    with open(log_path, "rb") as file:
        log = file.read()
    for sector, sectors, flags, name, data in entries(log):
        if name is not None:
            yield name
        elif flags & 4:
            image[sector * SECTOR : (sector + sectors) * SECTOR] = bytes(sectors * SECTOR)
        else:
            image[sector * SECTOR : (sector + sectors) * SECTOR] = log[data : data + sectors * SECTOR]


@contextlib.contextmanager
def logged_disk(prepare):
    """A disk under dm-log-writes: the path of the log, and the image that the disk had before."""
    paths = {"data": "/tmp/data.disk", "log": "/tmp/log.disk"}
    for name, size in (("data", SIZE), ("log", LOG_SIZE)):
        with open(paths[name], "wb") as file:
            file.truncate(size)
    prepare(paths["data"])
    with open(paths["data"], "rb") as file:
        image = bytearray(file.read())
    data, log = (run("losetup", "-f", "--show", paths[name]) for name in ("data", "log"))
    run(
        "dmsetup",
        "create",
        "--noudevsync",
        "--noudevrules",
        "logged",
        "--table",
        f"0 {SIZE // SECTOR} log-writes {data} {log}",
    )
    run("dmsetup", "mknodes", "logged")
    try:
        yield paths["log"], image
    finally:
        run("dmsetup", "remove", "--noudevsync", "--retry", "logged")
        run("losetup", "-d", data)
        run("losetup", "-d", log)


def listens(path):
    """Returns true if a server listens: the file of its socket is there before."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@contextlib.contextmanager
def server(name, command):
    path = SOCKET.format(name)
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    with open(f"/out/{name}.log", "a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    for _ in range(600):
        if (is_up := listens(path)) or process.poll() is not None:
            break
        time.sleep(0.05)
    if not is_up:
        with open(f"/out/{name}.log") as log:
            raise Failed(f"{name} did not start: {log.read()}")
    try:
        yield path
    finally:
        process.terminate()
        process.wait(30)


def gateway(name, backend, export):
    configuration = f"/tmp/{name}.toml"
    with open(configuration, "w") as file:
        file.write(
            f"listen = ['unix:{SOCKET.format(name)}']\n"
            f"[pool.p]\nbackend = {{ {backend} }}\nexport.disk = {{ {export} }}\n"
        )
    return server(name, ["tidegate", "serve", "-c", configuration])


def on_device(stack, direct):
    return stack.enter_context(gateway("storage", f"kind = 'file', direct = {direct}", f"path = '{MAPPED}'"))


def in_front_of(stack, upstream):
    return stack.enter_context(gateway("front", f"kind = 'nbd', address = 'unix:{upstream}'", ""))


def mark(name):
    run("dmsetup", "message", "logged", "0", "mark", name)


def raw(image):
    return image


def case(name, chance, rounds):
    prepare, volume = (make_ext4, in_ext4) if name == "ext4" else (lambda path: None, raw)
    expectation = Expectation()
    with logged_disk(prepare) as (log, image), contextlib.ExitStack() as stack:
        if name == "ext4":
            os.makedirs("/mnt/volume", exist_ok=True)
            run("mount", MAPPED, "/mnt/volume")
            stack.callback(run, "umount", "/mnt/volume")
            path = stack.enter_context(
                gateway("storage", "kind = 'file', direct = false", "path = '/mnt/volume/disk.raw'")
            )
        elif name == "liar":
            command = [
                "qemu-nbd",
                "-t",
                "-f",
                "raw",
                "-x",
                "disk",
                "--cache=unsafe",
                "-k",
                SOCKET.format("storage"),
                MAPPED,
            ]
            path = in_front_of(stack, stack.enter_context(server("storage", command)))
        else:
            path = on_device(stack, "false" if name == "buffered" else "true")
            path = in_front_of(stack, path) if name == "upstream" else path
        load = Load(Client(path, "disk"), expectation, chance)
        snapshots = {f"m{number}": load.round(lambda: mark(f"m{number}")) for number in range(rounds)}
        checked, lost = 0, []
        for place, reached in enumerate(at_marks(log, image)):
            if reached in snapshots and (name != "ext4" or place % 5 == 0 or reached == f"m{rounds - 1}"):
                checked += 1
                lost += [
                    {"mark": reached, **wrong}
                    for wrong in expectation.wrong(snapshots[reached], volume(image))
                ]
    return {"case": name, "rounds": rounds, "checked": checked, "lost": len(lost), "first": lost[:3]}


def make_ext4(path):
    run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", path)
    os.makedirs("/mnt/prepared", exist_ok=True)
    run("mount", "-o", "loop", path, "/mnt/prepared")
    with open("/mnt/prepared/disk.raw", "wb") as file:
        file.write(bytes(BLOCKS * BLOCK))
    run("umount", "/mnt/prepared")


def in_ext4(image):
    """The volume's file on a copy of the disk, after the file system has recovered its journal."""
    with open("/tmp/copy.disk", "wb") as file:
        file.write(image)
    os.makedirs("/mnt/copy", exist_ok=True)
    run("mount", "-o", "loop", "/tmp/copy.disk", "/mnt/copy")
    try:
        with open("/mnt/copy/disk.raw", "rb") as file:
            return file.read()
    finally:
        run("umount", "/mnt/copy")


def main():
    cases = ("direct", "buffered", "ext4", "upstream", "liar")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60, help="marks of each case (default: %(default)s)")
    parser.add_argument("--only", default=",".join(cases), metavar="CASE,…")
    options = parser.parse_args()
    run("modprobe", "-a", "loop", "dm-mod", "dm-log-writes", "ext4")
    chance = random.Random(options.seed)
    results = []
    for name in options.only.split(","):
        results.append(case(name, chance, options.rounds))
        print(results[-1], flush=True)
    with open("/out/measured.json", "w") as file:
        json.dump({"seed": options.seed, "cases": results}, file, indent=1)
    right = all(
        (found["lost"] > 0) == (found["case"] == "liar") and found["checked"] > 0 for found in results
    )
    return 0 if right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"power-loss: {failure}")
