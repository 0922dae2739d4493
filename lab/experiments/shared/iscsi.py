"""An array, its volumes behind an iSCSI target, and initiators that are logged in; imported in the guest.

    root namespace                          namespace switch     namespace tgt
    i1 (10.0.0.11, fd00::11) ── initiator 1 ──┐
    i2 (10.0.0.12, fd00::12) ── initiator 2 ──┼── bridge ──── eth0 (10.0.0.1, fd00::1), portal of LIO
    …                                         ┘                 target :lv1 → /dev/vg0/lv1, :lv2 → …
                                                                LVM group vg0: striped FIFO servers of 8 ms

All parts are the kernel's: null_blk and loop, LVM, LIO, open-iscsi. One iscsid in the root namespace serves
all initiators; it does not work in another namespace. Each initiator has an address, an interface and a name.
Volumes, devices, LIO and /sys are the same in every namespace; only the network differs.

    lab = iscsi.Lab(initiators=4, devices=4)
    lab.device(1)                                  # /dev/sda: volume lv1 at initiator 1
    lab.target_exec(["tc", "-batch", "-"], input=…)
    lab.target_popen(["tidegate", "agent", …])
    lab.fio([{"name": "w1", "filename": lab.device(1), "rw": "write", "bs": "64k", "iodepth": 8}], runtime=10)
    lab.volumes(), lab.retransmissions(), lab.drops()   # counters: take the difference of two calls

Nothing is undone, because the machine ends. A step that fails raises Failed with the output.
"""

import contextlib
import ctypes
import errno
import glob
import json
import os
import signal
import subprocess
import threading
import time

CONFIGFS = "/sys/kernel/config"
TARGET = CONFIGFS + "/target"
CGROUPS = "/sys/fs/cgroup"
MODULES = (
    "configfs dm-mod loop target_core_mod target_core_iblock iscsi_target_mod sd_mod iscsi_tcp veth bridge "
    "nf_tables sch_netem sch_htb sch_prio sch_fq sch_ingress cls_bpf cls_matchall cls_u32 act_police"
)
PROGRAMS = "fio ip tc nft nsenter iscsid iscsiadm lvm losetup python3".split()
GROUP = "vg0"
LVM_CONFIGURATION = """\
devices { scan = "/dev" filter = [ "a|^/dev/loop[0-9]+$|", "a|^/dev/md[0-9]+$|", "r|.*|" ] \
obtain_device_list_from_udev = 0 \
external_device_info_source = "none" use_devicesfile = 0 }
activation { udev_sync = 0 udev_rules = 0 monitoring = 0 }
backup { backup = 0 archive = 0 }
global { use_lvmpolld = 0 event_activation = 0 thin_check_executable = "" }
"""
STAT_FIELDS = (
    "reads",
    "reads_merged",
    "read_sectors",
    "read_ms",
    "writes",
    "writes_merged",
    "write_sectors",
    "write_ms",
    "in_flight",
    "busy_ms",
    "queued_ms",
)
# Counters of losses, and of events that TCP mistook for losses. RetransSegs is the one that matters.
TCP_COUNTERS = (
    "RetransSegs",
    "TCPLossProbes",
    "TCPTimeouts",
    "TCPDSACKRecv",
    "TCPOFOQueue",
    "TCPSpuriousRtxHostQueues",
    "TCPChallengeACK",
)
# Files that nft looks for at every start. Unless they are in memory, nft waits for the machine's files and
# the clock leaps.
NFT_LOOKS_FOR = [
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/connlabel.conf",
    "/etc/iproute2/rt_realms",
    "/etc/iproute2/rt_marks",
    "/etc/iproute2/group",
]
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL("libc.so.6", use_errno=True)


class Failed(Exception):
    """A failed step of the lab, and its output."""


def read(path):
    with open(path) as file:
        return file.read().strip()


def write(path, value):
    try:
        with open(path, "w") as file:
            file.write(str(value))
    except OSError as error:
        raise Failed(f"{path}: cannot write {value!r}: {error.strerror}") from error


def run(command, input=None):
    ended = subprocess.run(command, input=input, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        raise Failed(f"{' '.join(command)}: status {ended.returncode}: {ended.stdout.strip()}")
    return ended.stdout


def batch(tool, lines, input_option="-batch"):
    """Runs many commands in one process: in this machine a fork costs more than a command."""
    return run([tool, input_option, "-"], input="\n".join(lines) + "\n")


def until(condition, what, seconds=30):
    """Waits until the result of `condition` is true, and returns it."""
    for _ in range(seconds * 20):
        if result := condition():
            return result
        time.sleep(0.05)
    raise Failed(f"waited {seconds} s in vain for {what}")


def wait_for_disk(name):
    """Waits until the disk can be opened.

    Its node in /dev exists before its directory in /sys and its queue.
    """

    def has_size():
        try:
            with open(f"/dev/{name}", "rb") as disk:
                return disk.seek(0, os.SEEK_END) > 0
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENXIO):
                return False
            raise

    until(has_size, f"/dev/{name}")


def mapped(ruleset):
    """Returns the addresses in the maps of the agent's table, from a listing by `nft -j`."""
    maps = [item["map"] for item in ruleset if "map" in item and item["map"]["table"] == "tidegate"]
    return sorted({element[0] for one in maps for element in one.get("elem", [])})


@contextlib.contextmanager
def namespace(name):
    """Puts this thread, and the processes that it starts meanwhile, into that network namespace."""

    def enter(descriptor):
        if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
            raise Failed(f"setns {name}: {os.strerror(ctypes.get_errno())}")

    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        enter(there)
        yield
    finally:
        enter(before)
        os.close(there)
        os.close(before)


class Lab:
    """The array, its target and its initiators.

    initiators: their number; each has a volume. ipv6: the numbers of the initiators that log in over IPv6.
    devices, service_ms: number and service time of the array's servers. They serve in order of arrival, each
    one request at a time.
    acls: a list of permitted initiators per target; False is LIO's demo mode.
    window: the largest amount that TCP may have in flight, in bytes, on both sides; None is the kernel's
    default.
    tail_loss_probes: True is the kernel's default. When writers saturate the array, their last segment waits
    for longer than TCP expects and is sent again. That counts as a retransmission, although nothing was lost.
    mtu: the MTU of every interface between initiators and target. vlan: the tag of all packets between them.
    portal: LIO's address; by default 10.0.0.1:3260, or [::]:3260 if an initiator logs in over IPv6.
    initiator_options: lines of iscsid.conf, by key.
    """

    # More lines of the resource's configuration.
    resource = ""

    def __init__(
        self,
        initiators=4,
        devices=4,
        service_ms=8,
        volume_mib=64,
        acls=True,
        ipv6=(),
        window=None,
        tail_loss_probes=True,
        mtu=1500,
        vlan=None,
        portal=None,
        initiator_options=None,
    ):
        self.numbers = range(1, initiators + 1)
        self.acls = acls
        self.ipv6 = frozenset(ipv6)
        self.portal = portal or ("[::]:3260" if self.ipv6 else "10.0.0.1:3260")
        self._set_up(devices, service_ms, volume_mib)
        self.vlan = vlan
        self._make_network(mtu)
        if window:
            self._for_both_sides("tcp_rmem", f"4096 {window} {window}")
        self.tail_loss_probes(tail_loss_probes)
        self._export()
        self._start_initiators(initiator_options or {})
        for number in self.numbers:
            self.log_in(number)

    # Names and addresses.

    def device(self, number):
        """Returns the initiator's block device of its volume."""
        return self._devices[number]

    def logged_in(self, number):
        return number in self._devices

    def backing(self, number):
        """Returns the block device that the target exports to an initiator."""
        return f"/dev/{GROUP}/lv{number}"

    def volume(self, number):
        """Returns the volume's name at the device mapper."""
        return f"{GROUP}-lv{number}"

    def address(self, number):
        """Returns the initiator's address at the target: an IPv6 address if it logged in over IPv6."""
        return f"fd00::{10 + number}" if number in self.ipv6 else f"10.0.0.{10 + number}"

    # The number of a volume at its target.
    lun = 0

    def initiator(self, number):
        return f"iqn.2026-01.lab:initiator{number}"

    def target(self, number):
        return f"iqn.2026-01.lab:lv{number}"

    # The target's network.

    def target_namespace(self):
        """Puts this thread, and the processes that it starts, into the target's network namespace."""
        return namespace("tgt")

    def target_exec(self, command, input=None):
        """Runs a command there and returns its output. Raises Failed if its status is not 0."""
        with namespace("tgt"):
            return run(command, input)

    def target_popen(self, command, **options):
        with namespace("tgt"):
            return subprocess.Popen(command, **options)

    # Load.

    def before_reads(self):
        """Prepares for a load, so that its reads reach the array."""

    def fio(self, jobs, log_ms=None, log_directory="/tmp/fio", **options):
        """Runs the jobs (fio's options, by name) together in one process.

        Returns [{name, read, write, log}] by job.

        `read` and `write`: ios, bytes, runtime_ms, iops, bytes_per_s, mean_ms, p50_ms, p99_ms; or None.
        options: more options of all jobs.
        With log_ms, `log` is {"iops" | "bw" | "lat": [(ms, direction, value)]}, one row per log_ms: requests
        per second, KiB/s, mean ms; ms is the time since the epoch.
        """
        self.before_reads()
        command = [
            "fio",
            "--output-format=json",
            "--thread",
            "--ioengine=libaio",
            "--direct=1",
            "--randrepeat=1",
            "--norandommap",
            "--group_reporting=0",
        ]
        if "runtime" in options or any("runtime" in job for job in jobs):
            command.append("--time_based")
        command += [f"--{key}={value}" for key, value in options.items()]
        if log_ms:
            os.makedirs(log_directory, exist_ok=True)
            for path in glob.glob(f"{log_directory}/*.log"):
                os.remove(path)
            command += [f"--log_avg_msec={log_ms}", "--log_unix_epoch=1"]
        for job in jobs:
            command.append(f"--name={job['name']}")
            command += [f"--{key}={value}" for key, value in job.items() if key != "name"]
            if log_ms:
                command += [
                    f"--write_{kind}_log={log_directory}/{job['name']}" for kind in ("iops", "bw", "lat")
                ]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if ended.returncode != 0 or "{" not in ended.stdout:
            raise Failed(f"{' '.join(command)}: status {ended.returncode}: {ended.stderr or ended.stdout}")
        found = json.loads(ended.stdout[ended.stdout.index("{") :])["jobs"]
        for job in found:
            if job["error"]:
                raise Failed(f"fio: {job['jobname']}: error {job['error']}: {ended.stderr}")
        results = []
        for index, job in enumerate(found, 1):
            result = {
                "name": job["jobname"],
                "read": _direction(job["read"]),
                "write": _direction(job["write"]),
            }
            if log_ms:
                result["log"] = {
                    kind: _log(f"{log_directory}/{job['jobname']}_{kind}.{index}.log", scale)
                    for kind, scale in (("iops", 1), ("bw", 1), ("lat", 1e-6))
                }
            results.append(result)
        return results

    def start_fio(self, jobs, **options):
        """Starts `fio` in the background. Returns a function that waits for it and returns its results."""
        outcome = []

        def body():
            try:
                outcome.append(self.fio(jobs, **options))
            except Failed as error:
                outcome.append(error)

        thread = threading.Thread(target=body)
        thread.start()

        def result():
            thread.join()
            if isinstance(outcome[0], Failed):
                raise outcome[0]
            return outcome[0]

        return result

    @staticmethod
    def stop_fio(load):
        """Ends a load of `start_fio` and drops its results."""
        for comm in glob.glob("/proc/[0-9]*/comm"):
            # A process that has ended meanwhile needs no signal.
            with contextlib.suppress(OSError):
                if read(comm) == "fio":
                    os.kill(int(comm.split("/")[2]), signal.SIGINT)
        with contextlib.suppress(Failed):
            load()

    # Counters.

    def volumes(self):
        """Returns the counters of the target's kernel for each volume (`vg0-lv1`…): see STAT_FIELDS."""
        return {
            name: dict(zip(STAT_FIELDS, map(int, read(f"/sys/block/{dm}/stat").split())))
            for name, dm in self._dm.items()
        }

    def retransmissions(self):
        """Returns TCP's counters (TCP_COUNTERS) by side, `target` and `initiators`."""
        with namespace("tgt"):
            target = tcp_counters()
        return {"target": target, "initiators": tcp_counters()}

    def drops(self):
        """Counts the packets that a qdisc or an interface dropped, anywhere between initiators and target."""
        total = 0
        for where in (None, "switch", "tgt"):
            with namespace(where) if where else contextlib.nullcontext():
                total += sum(
                    qdisc.get("drops", 0) for qdisc in json.loads(run(["tc", "-s", "-j", "qdisc", "show"]))
                )
                for line in read("/proc/thread-self/net/dev").splitlines()[2:]:
                    fields = line.split(":")[1].split()
                    total += int(fields[3]) + int(fields[11])
        return total

    def negotiated(self, number):
        """Returns the parameters, agreed between initiator and target, that shape a request's transfer."""
        session = self._sessions[number]
        connection = session.replace("/session", "/connection") + ":0"
        connection = connection.replace("iscsi_session", "iscsi_connection")
        found = {
            name: read(f"{session}/{name}")
            for name in (
                "initial_r2t",
                "immediate_data",
                "first_burst_len",
                "max_burst_len",
                "max_outstanding_r2t",
            )
        }
        return found | {
            name: read(f"{connection}/{name}") for name in ("max_recv_dlength", "max_xmit_dlength")
        }

    # Set-up.

    def _set_up(self, devices, service_ms, volume_mib):
        os.environ["DM_DISABLE_UDEV"] = "1"  # no udev answers: LVM makes its device nodes itself
        os.makedirs("/etc/target", exist_ok=True)  # else LIO complains when it is loaded
        run(["modprobe", "-a", *MODULES.split()])
        run(["modprobe", "null_blk", "nr_devices=0"])
        if not os.path.ismount(CGROUPS):
            run(["mount", "-t", "cgroup2", "cgroup2", CGROUPS])
        if not os.path.ismount(CONFIGFS):
            run(["mount", "-t", "configfs", "configfs", CONFIGFS])
        run(["pin", *PROGRAMS])
        # Includes 4 MiB for LVM's own data, and extents of 4 MiB.
        mib = -(-len(self.numbers) * volume_mib // devices) + 8 + 4 * len(self.numbers)
        for number in range(devices):
            null_block(f"null{number}", mib, service_ms)
            # A busy null_blk makes its submitter wait in the kernel. LIO submits from one thread, so that
            # other volumes would wait for it too. The loop device queues, and submits one request at a time.
            run(["losetup", "--direct-io=on", f"/dev/loop{number}", f"/dev/null{number}"])
            write(f"/sys/block/loop{number}/queue/scheduler", "none")
        os.makedirs("/etc/lvm", exist_ok=True)
        write("/etc/lvm/lvm.conf", LVM_CONFIGURATION)
        disks = self._disks([f"/dev/loop{number}" for number in range(devices)])
        said = run(
            ["lvm"],
            input="\n".join([f"vgcreate -y {GROUP} {' '.join(disks)}", *self._volumes(disks, volume_mib)])
            + "\n",
        )
        self._dm = {read(f"{path}/dm/name"): os.path.basename(path) for path in glob.glob("/sys/block/dm-*")}
        if missing := [name for name in map(self.volume, self.numbers) if name not in self._dm]:
            raise Failed(f"lvm made no {', '.join(missing)}: {said}")

    def _disks(self, devices):
        """Returns the devices of the volume group."""
        return devices

    def _volumes(self, disks, volume_mib):
        """Returns the commands of LVM that make the volumes."""
        return [
            f"lvcreate -y -Wn -Zn -i {len(disks)} -I 64k -L {volume_mib}m -n lv{number} {GROUP}"
            for number in self.numbers
        ]

    def _make_network(self, mtu):
        # An interface of a VLAN lies on another one (under-…), which its packets pass with their tag.
        under = "" if self.vlan is None else "under-"
        batch(
            "ip",
            [
                "netns add tgt",
                "netns add switch",
                f"link add {under}eth0 netns tgt type veth peer name p0 netns switch",
                *(f"link add {under}i{n} type veth peer name p{n} netns switch" for n in self.numbers),
            ],
        )
        if under:

            def tagged(name):
                return [
                    f"link set under-{name} mtu {mtu} up",
                    f"link add link under-{name} name {name} type vlan id {self.vlan}",
                ]

            batch("ip", [line for n in self.numbers for line in tagged(f"i{n}")])
            with namespace("tgt"):
                batch("ip", tagged("eth0"))
        for where in (None, "switch", "tgt"):
            with namespace(where) if where else contextlib.nullcontext():
                # Addresses are usable at once, and no host asks for routers.
                for key, value in (("accept_dad", 0), ("accept_ra", 0), ("router_solicitations", 0)):
                    for kind in ("all", "default"):
                        write(f"/proc/sys/net/ipv6/conf/{kind}/{key}", value)
        with namespace("switch"):
            batch(
                "ip",
                [
                    "link add br0 type bridge forward_delay 0 mcast_snooping 0",
                    "link set br0 up",
                    *(f"link set p{n} mtu {mtu} master br0 up" for n in (0, *self.numbers)),
                ],
            )
        with namespace("tgt"):
            batch(
                "ip",
                [
                    "link set lo up",
                    "address add 10.0.0.1/24 dev eth0",
                    "address add fd00::1/64 dev eth0 nodad",
                    f"link set eth0 mtu {mtu} up",
                ],
            )
        batch(
            "ip",
            [
                line
                for n in self.numbers
                for line in (
                    f"address add 10.0.0.{10 + n}/24 dev i{n}",
                    f"address add fd00::{10 + n}/64 dev i{n} nodad",
                    f"link set i{n} mtu {mtu} up",
                )
            ],
        )
        # The interfaces share one network and one namespace: each answers for its own address only.
        for key, value in (("arp_ignore", 1), ("arp_announce", 2), ("rp_filter", 0)):
            for interface in ("all", *(f"i{n}" for n in self.numbers)):
                write(f"/proc/sys/net/ipv4/conf/{interface}/{key}", value)

    def tail_loss_probes(self, wanted):
        """Takes effect at once, for existing connections too."""
        self._for_both_sides("tcp_early_retrans", 3 if wanted else 0)

    def small_queues(self, wide):
        """Sets the amount of a connection's data that TCP queues in its own host.

        The default is the amount that it would send in a millisecond at its pacing rate, and no small segment
        behind other data (autocorking). `wide`: five times as much, or more, and small segments too.
        """
        for key, usual, much in (
            ("tcp_pacing_ss_ratio", 200, 1000),
            ("tcp_pacing_ca_ratio", 120, 1000),
            ("tcp_autocorking", 1, 0),
        ):
            self._for_both_sides(key, much if wide else usual)

    def _for_both_sides(self, key, value):
        for where in (None, "tgt"):
            with namespace(where) if where else contextlib.nullcontext():
                write(f"/proc/sys/net/ipv4/{key}", value)

    def _store(self, number):
        """Makes the backstore of a volume in LIO and returns its directory."""
        return backstore(f"lv{number}", self.backing(number))

    def offer(self, target, store, initiator, portal, tag=1, ports=None):
        """Makes a portal group of a target, with one volume.

        initiator: the initiator that may use it; None permits every initiator (LIO's demo mode).
        ports: the group of target ports for ALUA.
        """
        group = f"{TARGET}/iscsi/{target}/tpgt_{tag}"
        os.makedirs(f"{group}/lun/lun_0")
        os.symlink(store, f"{group}/lun/lun_0/port")
        if ports:
            write(f"{group}/lun/lun_0/alua_tg_pt_gp", ports)
        write(f"{group}/attrib/authentication", 0)
        if initiator:
            acl = f"{group}/acls/{initiator}"
            os.makedirs(f"{acl}/lun_0")
            os.symlink(f"{group}/lun/lun_0", f"{acl}/lun_0/lun")
        else:
            write(f"{group}/attrib/generate_node_acls", 1)
            write(f"{group}/attrib/demo_mode_write_protect", 0)
        # The socket belongs to the namespace of the process that makes this directory.
        with namespace("tgt"):
            os.mkdir(f"{group}/np/{portal}")
        write(f"{group}/enable", 1)

    def _export(self):
        os.makedirs(f"{TARGET}/iscsi", exist_ok=True)
        for number in self.numbers:
            store = self._store(number)
            write(f"{store}/wwn/vpd_unit_serial", f"lab{number}")
            self.offer(self.target(number), store, self.initiator(number) if self.acls else None, self.portal)

    def _start_initiators(self, options):
        for path in ("/run/lock/iscsi", "/etc/iscsi/ifaces", "/etc/iscsi/nodes"):
            os.makedirs(path, exist_ok=True)
        write("/etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.2026-01.lab:nobody\n")
        options = {
            "node.startup": "manual",
            "node.session.scan": "auto",
            "node.session.cmds_max": 128,
            "node.session.queue_depth": 32,
            "node.session.iscsi.InitialR2T": "No",
            "node.session.iscsi.ImmediateData": "Yes",
            **options,
        }
        write("/etc/iscsi/iscsid.conf", "".join(f"{key} = {value}\n" for key, value in options.items()))
        for n in self.numbers:
            write(
                f"/etc/iscsi/ifaces/i{n}",
                f"iface.iscsi_ifacename = i{n}\niface.transport_name = tcp\n"
                f"iface.net_ifacename = i{n}\niface.initiatorname = {self.initiator(n)}\n",
            )
        with open("/out/iscsid.log", "w") as log:
            daemon = subprocess.Popen(
                ["iscsid", "--foreground"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

        def listens():
            if daemon.poll() is not None:
                raise Failed(f"iscsid ended with {daemon.returncode}: {read('/out/iscsid.log')}")
            return "@ISCSIADM_ABSTRACT_NAMESPACE" in read("/proc/net/unix")

        until(listens, "iscsid")
        self._devices, self._sessions = {}, {}

    def _node(self, number):
        portal = "[fd00::1]:3260" if number in self.ipv6 else "10.0.0.1:3260"
        return ["iscsiadm", "-m", "node", "-T", self.target(number), "-p", portal, "-I", f"i{number}"]

    def log_in(self, number):
        """Logs an initiator in and waits for its block device."""
        run([*self._node(number), "-o", "new"])
        run([*self._node(number), "--login"])

        def session():
            for path in glob.glob("/sys/class/iscsi_session/session*"):
                # A session appears before its attributes, and these vanish before it does.
                with contextlib.suppress(OSError):
                    if read(f"{path}/targetname") != self.target(number):
                        continue
                    for block in glob.glob(f"{path}/device/target*/*:{self.lun}/block/*"):
                        return path, os.path.basename(block)
            return None

        self._sessions[number], name = until(session, f"the device of initiator {number}")
        wait_for_disk(name)
        write(f"/sys/block/{name}/queue/scheduler", "none")
        self._devices[number] = f"/dev/{name}"

    def log_out(self, number):
        run([*self._node(number), "--logout"])
        del self._devices[number], self._sessions[number]

    def remove_volume(self, number):
        """Removes a volume as an administrator does.

        Its initiator logs out, its export ends, and LVM removes it.
        """
        self.log_out(number)
        group = f"{TARGET}/iscsi/{self.target(number)}/tpgt_1"
        acl, lun = f"{group}/acls/{self.initiator(number)}", f"{group}/lun/lun_0"
        write(f"{group}/enable", 0)
        os.unlink(f"{acl}/lun_0/lun")
        os.unlink(f"{lun}/port")
        for path in (
            f"{acl}/lun_0",
            acl,
            lun,
            f"{group}/np/{self.portal}",
            group,
            os.path.dirname(group),
            f"{TARGET}/core/iblock_0/lv{number}",
        ):
            os.rmdir(path)
        run(["lvm", "lvremove", "-y", f"{GROUP}/lv{number}"])


def backstore(name, device):
    """Makes a backstore of LIO for a block device and returns its directory."""
    store = f"{TARGET}/core/iblock_0/{name}"
    os.makedirs(store)
    write(f"{store}/control", f"udev_path={device}")
    write(f"{store}/udev_path", device)
    write(f"{store}/enable", 1)
    return store


def null_block(name, mib, service_ms):
    path = f"{CONFIGFS}/nullb/{name}"
    os.mkdir(path)
    for key, value in (
        ("irqmode", 2),
        ("completion_nsec", round(service_ms * 1e6)),
        ("submit_queues", 1),
        ("hw_queue_depth", 1),
        ("queue_mode", 2),
        ("blocksize", 512),
        ("size", mib),
        ("memory_backed", 1),
        ("power", 1),
    ):
        write(f"{path}/{key}", value)
    write(f"/sys/block/{name}/queue/scheduler", "none")


def _direction(found):
    if not found["total_ios"]:
        return None
    quantile = found["clat_ns"].get("percentile", {})
    return {
        "ios": found["total_ios"],
        "bytes": found["io_bytes"],
        "runtime_ms": found["runtime"],
        "iops": round(found["iops"], 2),
        "bytes_per_s": found["bw_bytes"],
        "mean_ms": round(found["lat_ns"]["mean"] / 1e6, 4),
        "p50_ms": round(quantile.get("50.000000", 0) / 1e6, 4),
        "p99_ms": round(quantile.get("99.000000", 0) / 1e6, 4),
    }


def _log(path, scale):
    with open(path) as file:
        rows = [line.split(",") for line in file]
    return [(int(row[0]), ("read", "write", "trim")[int(row[2])], float(row[1]) * scale) for row in rows]


def tcp_counters():
    """Returns the counters of this thread's namespace. (/proc/net is that of the process's first thread.)"""
    found = {}
    for file in ("snmp", "netstat"):
        lines = [line.split() for line in read(f"/proc/thread-self/net/{file}").splitlines()]
        for names, values in zip(lines[::2], lines[1::2]):
            if names[0] in ("Tcp:", "TcpExt:"):
                found.update(zip(names[1:], map(int, values[1:])))
    return {name: found[name] for name in TCP_COUNTERS}
