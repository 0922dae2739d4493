"""Variants of the array of iscsi.py, and other backstores of its iSCSI target; imported in the guest.

    lab = layouts.Files(initiators=4)
    lab = layouts.Thin(initiators=4)
    lab = layouts.Raid(initiators=4)
    lab = layouts.Tgt(initiators=4)

`resource` contains the lines that the agent's resource vg0 takes beside its target.
"""

import os
import subprocess

import iscsi
from iscsi import run, until, write

VOLUME_MIB = 64


class Layout(iscsi.Lab):
    def __init__(self, initiators, volume_mib=VOLUME_MIB, **array):
        super().__init__(initiators=initiators, volume_mib=volume_mib, tail_loss_probes=False, **array)

    def _fill(self, path, mib):
        """Writes random data, because reads of unwritten blocks reach no disk."""
        with open(path, "wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())


class Files(Layout):
    """LUNs as files of an XFS on the first volume.

    LIO writes one request of a session after the other, so that three writers disturb an array of one device
    only. A delay is felt only if it is longer than the session's waiting requests take.
    """

    # xfsprogs make no file system smaller than 300 MB.
    SIZE_MIB = 384

    def __init__(self, initiators):
        super().__init__(initiators, volume_mib=self.SIZE_MIB, devices=1)

    def file(self, number):
        return f"/srv/luns/lv{number}"

    def _export(self):
        run(["modprobe", "-a", "xfs", "target_core_file"])
        run(["mkfs.xfs", "-q", "-K", self.backing(1)])
        os.makedirs("/srv/luns")
        run(["mount", "-t", "xfs", "-o", "noatime", self.backing(1), "/srv/luns"])
        super()._export()

    def _store(self, number):
        store, size = f"{iscsi.TARGET}/core/fileio_0/lv{number}", VOLUME_MIB << 20
        self._fill(self.file(number), VOLUME_MIB)
        os.makedirs(store)
        write(f"{store}/control", f"fd_dev_name={self.file(number)},fd_dev_size={size}")
        write(f"{store}/udev_path", self.file(number))
        write(f"{store}/enable", 1)
        return store

    def before_reads(self):
        write("/proc/sys/vm/drop_caches", 3)


class Thin(Layout):
    """LUNs as thin volumes of one pool."""

    resource = 'device = "vg0/lv*"'

    def _volumes(self, disks, volume_mib):
        run(["modprobe", "dm-thin-pool"])
        whole, group = len(self.numbers) * volume_mib, iscsi.GROUP
        return [
            (
                f"lvcreate -y -Wn -Zn -i {len(disks)} -I 64k -L {whole}m "
                f"--poolmetadatasize 4m --thinpool pool {group}"
            ),
            *(
                f"lvcreate -y -Wn -V {volume_mib}m --thin --thinpool pool -n lv{number} {group}"
                for number in self.numbers
            ),
        ]

    def _export(self):
        for number in self.numbers:
            self._fill(self.backing(number), VOLUME_MIB)
        super()._export()


class Raid(Layout):
    """LUNs as volumes on a RAID 0 of md, which is configured by sysfs."""

    def _disks(self, devices):
        run(["modprobe", "-a", "md_mod", "raid0"])
        write("/sys/module/md_mod/parameters/new_array", "md0")
        md = "/sys/block/md0/md"
        for key, value in (
            ("metadata_version", "none"),
            ("level", "raid0"),
            ("raid_disks", len(devices)),
            ("chunk_size", 64 << 10),
        ):
            write(f"{md}/{key}", value)
        for slot, device in enumerate(devices):
            name = os.path.basename(device)
            write(f"{md}/new_dev", iscsi.read(f"/sys/block/{name}/dev"))
            write(f"{md}/dev-{name}/slot", slot)
            # In KiB.
            write(f"{md}/dev-{name}/size", int(iscsi.read(f"/sys/block/{name}/size")) // 2)
        write(f"{md}/array_state", "active")
        return ["/dev/md0"]


class Tgt(Layout):
    """Volumes behind tgtd, a target in user space: the kernel shows only the connections of its sessions."""

    resource = 'portals = "10.0.0.1:3260"'
    # LUN 0 is the controller.
    lun = 1

    def _export(self):
        run(["pin", "tgtd", "tgtadm"])
        os.makedirs("/run/tgtd", exist_ok=True)
        with open("/out/tgtd.log", "w") as log:
            self._daemon = self.target_popen(
                ["tgtd", "-f", "--iscsi", "portal=10.0.0.1:3260"], stdout=log, stderr=log
            )
        ask = ["tgtadm", "--lld", "iscsi"]
        until(
            lambda: subprocess.run([*ask, "--op", "show", "--mode", "sys"], capture_output=True).returncode
            == 0,
            "tgtd",
        )
        for number in self.numbers:
            tid = ["--tid", str(number)]
            run([*ask, "--op", "new", "--mode", "target", *tid, "-T", self.target(number)])
            run(
                [
                    *ask,
                    "--op",
                    "new",
                    "--mode",
                    "logicalunit",
                    *tid,
                    "--lun",
                    str(self.lun),
                    "-b",
                    self.backing(number),
                    "--bstype",
                    "rdwr",
                    "--bsoflags",
                    "direct",
                ]
            )
            run([*ask, "--op", "bind", "--mode", "target", *tid, "-I", "ALL"])
