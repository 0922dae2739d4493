#!/usr/bin/env python3
"""In the guest: captures the kernel's files about an iSCSI target with initiators, as fixtures for parsers.

usage: guest.py acls|demo|dual|idle [INITIATORS]

Leaves /out/<name>.tar.gz, with the files' contents, links as links, and without unreadable files:

   acls   a list of initiators per target, over IPv4
   demo   LIO's demo mode: no lists
   dual   a list per target, the portal is [::]:3260, the second initiator logged in over IPv6
   idle   a list per target, the last initiator has logged out
"""

import glob
import io
import os
import sys
import tarfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi

PLAIN = ["/proc/diskstats", "/proc/devices", "/proc/partitions"]
SYS_BLOCK = [
    "dev",
    "stat",
    "inflight",
    "size",
    "ro",
    "dm/name",
    "dm/uuid",
    "dm/suspended",
    "queue/rotational",
    "loop/backing_file",
]


class Capture:
    def __init__(self, path):
        self.tar = tarfile.open(path, "w:gz")

    def add(self, name, content):
        entry = tarfile.TarInfo(name.lstrip("/"))
        entry.size = len(content)
        entry.mode = 0o644
        self.tar.addfile(entry, io.BytesIO(content))

    def file(self, path, name=None):
        # The sizes of files that the kernel makes up mean nothing.
        try:
            with open(path, "rb") as file:
                self.add(name or path, file.read())
        except OSError:
            pass

    def link(self, path):
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type = tarfile.SYMTYPE
        entry.linkname = os.readlink(path)
        self.tar.addfile(entry)

    def directory(self, path):
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type = tarfile.DIRTYPE
        entry.mode = 0o755
        self.tar.addfile(entry)

    def tree(self, top):
        for path, directories, files in os.walk(top):
            self.directory(path)
            for name in sorted(directories + files):
                full = os.path.join(path, name)
                if os.path.islink(full):
                    self.link(full)
                elif name in files:
                    self.file(full)

    def blocks(self):
        for block in sorted(glob.glob("/sys/block/*")):
            block_real = os.path.realpath(block)
            self.link(block)
            self.directory(block_real)
            for name in SYS_BLOCK:
                self.file(f"{block_real}/{name}")
            for kind in ("slaves", "holders"):
                for slave in sorted(glob.glob(f"{block_real}/{kind}/*")):
                    self.link(slave)

    def close(self):
        self.tar.close()


def everything(lab, path):
    capture = Capture(path)
    for file in PLAIN:
        capture.file(file)
    # /proc/net shows the namespace of the process. The agent's is the target's.
    with lab.target_namespace():
        for name in ("tcp", "tcp6"):
            capture.file(f"/proc/thread-self/net/{name}", f"/proc/net/{name}")
    capture.blocks()
    capture.tree("/sys/kernel/config/target")
    capture.close()


def main():
    kind = sys.argv[1]
    initiators = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    lab = iscsi.Lab(initiators=initiators, acls=kind != "demo", ipv6={2} if kind == "dual" else ())
    lab.fio(
        [
            {
                "name": f"w{n}",
                "filename": lab.device(n),
                "rw": "randrw",
                "bs": "16k",
                "iodepth": 4,
                "io_size": "2m",
                "size": "64m",
            }
            for n in lab.numbers
        ]
    )
    if kind == "idle":
        lab.log_out(initiators)
    # Requests in flight, so that their counters are not all zero.
    under_way = lab.start_fio(
        [
            {
                "name": f"w{n}",
                "filename": lab.device(n),
                "rw": "write",
                "bs": "64k",
                "iodepth": 16,
                "size": "64m",
            }
            for n in lab.numbers
            if lab.logged_in(n)
        ],
        runtime=8,
    )
    iscsi.until(lambda: int(iscsi.read("/sys/block/dm-0/inflight").split()[1]) > 0, "a request in flight")
    everything(lab, f"/out/lio-{kind}.tar.gz")
    under_way()


if __name__ == "__main__":
    main()
