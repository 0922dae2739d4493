"""The array of iscsi.py behind an NVMe/TCP target or an NFS server, and its hosts; imported in the guest.

    lab = protocols.Nvme(hosts=2)
    lab = protocols.Nfs(hosts=4, file_mib=lambda number: 64)

All parts are the kernel's own. nfsd has ext4 and NFSv4.2, and none of its helpers: their answers are written
to the kernel's caches beforehand. The array, LVM and the network are iscsi.py's, but each host has a network
namespace of its own.
"""

import glob
import os
import socket

import iscsi
from delay import Pulse
from iscsi import batch, namespace, read, run, until, wait_for_disk, write

NVMET = iscsi.CONFIGFS + "/nvmet"


class Lab(iscsi.Lab):
    """Hosts, each in a network namespace of its own (`h1`, `h2`…), and their volumes."""

    def __init__(self, hosts, **options):
        super().__init__(initiators=hosts, tail_loss_probes=False, **options)

    def _make_network(self, mtu):
        super()._make_network(mtu)
        for n in self.numbers:
            batch("ip", [f"netns add h{n}", f"link set i{n} netns h{n}"])
            with namespace(f"h{n}"):
                batch(
                    "ip", ["link set lo up", f"address add 10.0.0.{10 + n}/24 dev i{n}", f"link set i{n} up"]
                )
        # One portal for each volume: a host connected to it uses that volume.
        with namespace("tgt"):
            batch("ip", [f"address add 10.0.0.{n}/24 dev eth0" for n in self.numbers if n > 1])

    def _for_both_sides(self, key, value):
        for where in ("tgt", *(f"h{n}" for n in self.numbers)):
            with namespace(where):
                write(f"/proc/sys/net/ipv4/{key}", value)

    def retransmissions(self):
        found = {}
        for side, where in (("target", "tgt"), *((f"host {n}", f"h{n}") for n in self.numbers)):
            with namespace(where):
                found[side] = iscsi.tcp_counters()
        return found

    def _start_initiators(self, options):
        self._devices, self._kept_open = {}, []


class Nvme(Lab):
    """nvmet and nvme-tcp, configured by configfs and /dev/nvme-fabrics."""

    port = 4420

    def subsystem(self, number):
        return f"nqn.2026-01.lab:lv{number}"

    def target(self, number):
        return self.subsystem(number)

    def initiator(self, number):
        return self.host(number)

    def host(self, number):
        return f"nqn.2014-08.org.nvmexpress:uuid:{number:08}-1111-1111-1111-111111111111"

    def _export(self):
        run(["modprobe", "-a", "nvmet", "nvmet-tcp", "nvme-tcp"])
        for number in self.numbers:
            subsystem, host = (
                f"{NVMET}/subsystems/{self.subsystem(number)}",
                f"{NVMET}/hosts/{self.host(number)}",
            )
            os.mkdir(host)
            os.mkdir(subsystem)
            write(f"{subsystem}/attr_allow_any_host", 0)
            os.symlink(host, f"{subsystem}/allowed_hosts/{self.host(number)}")
            os.mkdir(f"{subsystem}/namespaces/1")
            write(f"{subsystem}/namespaces/1/device_path", f"/dev/{iscsi.GROUP}/lv{number}")
            write(f"{subsystem}/namespaces/1/enable", 1)
            port = f"{NVMET}/ports/{number}"
            os.mkdir(port)
            for key, value in (
                ("adrfam", "ipv4"),
                ("trtype", "tcp"),
                ("traddr", f"10.0.0.{number}"),
                ("trsvcid", self.port),
            ):
                write(f"{port}/addr_{key}", value)
            # The socket belongs to the namespace of the process that makes this link.
            with namespace("tgt"):
                os.symlink(subsystem, f"{port}/subsystems/{self.subsystem(number)}")

    def log_in(self, number):
        options = {
            "transport": "tcp",
            "traddr": f"10.0.0.{number}",
            "trsvcid": self.port,
            "nqn": self.subsystem(number),
            "hostnqn": self.host(number),
            "hostid": self.host(number).rpartition(":")[2],
        }
        with namespace(f"h{number}"):
            write("/dev/nvme-fabrics", ",".join(f"{key}={value}" for key, value in options.items()))

        def device():
            for path in glob.glob("/sys/class/nvme-subsystem/*"):
                if read(f"{path}/subsysnqn") == self.subsystem(number):
                    return next((os.path.basename(name) for name in glob.glob(f"{path}/nvme*n1")), None)
            return None

        name = until(device, f"the device of host {number}")
        wait_for_disk(name)
        self._devices[number] = f"/dev/{name}"

    def log_out(self, number):
        for path in glob.glob("/sys/class/nvme/nvme*"):
            if read(f"{path}/subsysnqn") == self.subsystem(number):
                write(f"{path}/delete_controller", 1)
        del self._devices[number]

    def pulse(self):
        return Pulse(self.device(2))


class Nfs(Lab):
    """nfsd, and hosts that mount its exports.

    file_mib: the size of a host's file, by its number. threads: nfsd's threads, one per request under way.
    """

    port = 2049

    def __init__(self, hosts, file_mib, threads=8, **options):
        self.file_mib, self.threads = file_mib, threads
        super().__init__(hosts, **options)

    def _export(self):
        # The answers of nfsd's helpers when the kernel asks for the permissions of clients.
        forever, insecure_no_subtree_check_fsid = 2_147_483_647, 0x2402
        run(["modprobe", "-a", "ext4", "nfsd", "nfsv4"])
        run(["pin", "mkfs.ext4", "mount"])
        for number in self.numbers:
            directory, volume = f"/srv/lv{number}", f"/dev/{iscsi.GROUP}/lv{number}"
            run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", "-O", "^has_journal", volume])
            os.makedirs(directory)
            run(["mount", "-t", "ext4", "-o", "noatime", volume, directory])
            # A host's root, which is an unprivileged user here, may write to it.
            os.chmod(directory, 0o777)
            with open(f"{directory}/file", "wb") as file:
                for _ in range(self.file_mib(number)):
                    file.write(os.urandom(1 << 20))
            os.chmod(f"{directory}/file", 0o666)
        os.sync()
        with namespace("tgt"):
            # Both belong to the namespace in which they are mounted, or opened.
            run(["mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd"])
            rpc = "/proc/thread-self/net/rpc"
            for number in self.numbers:
                domain, directory = f"host{number}", f"/srv/lv{number}"
                write(f"{rpc}/auth.unix.ip/channel", f"nfsd {self.address(number)} {forever} {domain}\n")
                write(
                    f"{rpc}/nfsd.export/channel",
                    f"{domain} {directory} {forever} {insecure_no_subtree_check_fsid} 65534 65534 0\n",
                )
                # Handles of the export with number 0 (type 1): each host has its own volume as the root.
                write(f"{rpc}/nfsd.fh/channel", f"{domain} 1 \\x00000000 {forever} {directory}\n")
            write("/proc/fs/nfsd/versions", "-2 -3 +4 +4.1 +4.2\n")
            write("/proc/fs/nfsd/nfsv4gracetime", "10\n")
            write("/proc/fs/nfsd/portlist", f"tcp {self.port}\n")
            write("/proc/fs/nfsd/threads", f"{self.threads}\n")

    def log_in(self, number):
        directory = f"/mnt/host{number}"
        os.makedirs(directory, exist_ok=True)
        # A client is known by the name of its machine.
        socket.sethostname(f"host{number}")
        with namespace(f"h{number}"):
            # -i: without mount.nfs, which resolves names.
            run(
                [
                    "mount",
                    "-i",
                    "-t",
                    "nfs4",
                    "-o",
                    f"vers=4.2,addr=10.0.0.1,clientaddr={self.address(number)}",
                    "10.0.0.1:/",
                    directory,
                ]
            )
        # Nothing can be opened for writing before the server's grace period is over.
        self._devices[number] = f"{directory}/file"
        self._kept_open.append(os.open(self._devices[number], os.O_RDWR))

    def before_reads(self):
        write("/proc/sys/vm/drop_caches", 3)

    def pulse(self):
        # Reads the volume itself, because the server has a host's repeated reads in memory.
        return Pulse(f"/dev/{iscsi.GROUP}/lv2")
