#!/usr/bin/env python3
"""In the guest: an export is a block device of this host.

The gateway is killed with -9, and stopped in order, while fio writes and verifies. A file system stays
mounted through the same, and a client of NBD uses another export meanwhile. The export leads to another volume
at a start, with and without a use of the device. Then LIO exports the device over
iSCSI, and an initiator writes and verifies. The gateway has the rights that
packaging/tidegate.service.d/ublk.conf gives it, and no others.

usage: guest.py [--ends N] [--size MIB] [--iops N]

Leaves /out/result.json: figures and checks.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi  # noqa: E402

DEVICE = "/dev/ublkb0"
PORT = 9809
CONFIGURATION = """
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:{port}'
[pool.storage]
limits = {{ pool_memory = '64MiB' }}
backend = {{ kind = 'file' }}
[pool.storage.export.remote]
path = 'remote.raw'
{exports}
"""
LIMITED = """
[pool.storage.export.disk]
path = 'disk.raw'
limit = {{ iops = '{iops} IO/s', burst = '10ms' }}
listen = ['ublk:0']
"""
BUSY = """
[pool.storage.export.another]
path = 'another.raw'
listen = ['ublk:0']
"""


# The capabilities of the drop-in, for a user that owns nothing.
CAPABILITIES = "-all,+sys_admin,+dac_override"
RIGHTS = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--no-new-privs",
    f"--inh-caps={CAPABILITIES}",
    f"--ambient-caps={CAPABILITIES}",
    f"--bounding-set={CAPABILITIES}",
]


class LioLab(iscsi.Lab):
    """One initiator of a target that exports the gateway's device."""

    def __init__(self):
        super().__init__(initiators=1)

    def backing(self, number):
        return DEVICE

    def _set_up(self, devices, service_ms, volume_mib):
        os.makedirs("/etc/target", exist_ok=True)
        run("modprobe", "-a", *iscsi.MODULES.split())
        if not os.path.ismount(iscsi.CONFIGFS):
            run("mount", "-t", "configfs", "configfs", iscsi.CONFIGFS)


class Gateway:
    """The program, in a folder of its own."""

    def __init__(self, limited):
        self.process, self.limited, self.log = None, limited, open("log", "a")

    def launch(self):
        self.process = subprocess.Popen(
            [*RIGHTS, "tidegate", "serve", "-c", "tidegate.toml"], stderr=self.log
        )

    def start(self):
        self.launch()
        until(lambda: metric("tidegate_requests_total") is not None, "the gateway")

    def end(self, how):
        self.process.send_signal(how)
        return self.process.wait()


def until(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.05)
    return result


def metric(name, label=""):
    try:
        lines = (
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5).read().decode().splitlines()
        )
    except OSError:
        return None
    found = [line for line in lines if line.startswith(name) and label in line]
    return float(found[0].split()[-1]) if found else None


def writes_done():
    """The writes that the kernel has completed on the device."""
    with open("/sys/block/ublkb0/stat") as file:
        return int(file.read().split()[4])


def configure(exports):
    with open("tidegate.toml", "w") as file:
        file.write(CONFIGURATION.format(port=PORT, exports=exports))


def refused(config, rights=()):
    """The exit status and the message of the program for a configuration that it cannot serve."""
    with open("wrong.toml", "w") as file:
        file.write(config)
    command = [*rights, "tidegate", "serve", "-c", "wrong.toml"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stderr


def over_nbd():
    """A client that writes and verifies on the other export."""
    fio = [
        "fio",
        "--name=remote",
        "--ioengine=nbd",
        "--uri=nbd+unix:///remote?socket=nbd.sock",
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=4",
        "--size=1m",
        "--verify=crc32c",
        "--do_verify=1",
        "--verify_fatal=1",
    ]
    return subprocess.Popen(fio, stdout=subprocess.DEVNULL)


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def verified_writes(gateway, options, figures, checks):
    """fio on the device, through ends of the gateway of both kinds."""
    fio = subprocess.Popen(
        [
            "fio",
            "--name=verify",
            f"--filename={DEVICE}",
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=16",
            "--rw=randwrite",
            "--bs=4k",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--fsync=256",
            "--output-format=json",
            "--output=/out/fio.json",
        ]
    )
    rates, remote, pauses = [], [], []
    share = options.size * 256 / (options.ends + 1)
    for number in range(options.ends):
        began, done = time.monotonic(), writes_done()
        client = over_nbd()
        until(lambda: writes_done() - done >= share or fio.poll() is not None, "writes", 1800)
        rates.append((writes_done() - done) / (time.monotonic() - began))
        remote.append(client.wait() == 0)
        stopped = writes_done()
        ended = time.monotonic()
        gateway.end(signal.SIGKILL if number % 3 < 2 else signal.SIGTERM)
        gateway.start()
        until(lambda: writes_done() > stopped or fio.poll() is not None, "the first write after a restart")
        pauses.append(time.monotonic() - ended)
    status = fio.wait()
    with open("/out/fio.json") as file:
        report = json.load(file)["jobs"][0]
    figures["blocks_verified"] = report["read"]["total_ios"]
    figures["writes_per_s"] = [round(rate) for rate in rates]
    figures["pauses_s"] = [round(pause, 2) for pause in pauses]
    checks[f"fio verified every block through {options.ends} ends of the gateway"] = (
        status == 0 and report["error"] == 0 and report["read"]["total_ios"] >= options.size * 256
    )
    checks[f"no faster than {options.iops} IO/s"] = max(rates) <= 1.05 * options.iops
    checks["a client of NBD used another export meanwhile"] = all(remote) and bool(remote)


def storm(gateway, deaths, checks):
    """Kills the gateway at any moment of its start, again and again; then the device is there and right."""
    chance = random.Random(1)
    gateway.end(signal.SIGTERM)
    with open("copy", "wb") as copy, open("disk.raw", "rb") as disk:
        copy.write(disk.read())
    for _ in range(deaths):
        gateway.launch()
        time.sleep(chance.uniform(0, 0.2))
        gateway.end(signal.SIGKILL)
    gateway.start()
    checks[f"after {deaths} deaths during the start the device has its data"] = (
        subprocess.run(["cmp", DEVICE, "copy"]).returncode == 0
    )


def births(gateway, deaths, checks):
    """Kills the gateway while it makes a device that is not there yet."""
    chance = random.Random(2)
    for _ in range(deaths):
        gateway.launch()
        time.sleep(chance.uniform(0.02, 0.1))
        gateway.end(signal.SIGKILL)
        gateway.start()
        configure("")
        gateway.process.send_signal(signal.SIGHUP)
        until(lambda: not os.path.exists("/dev/ublkc0"), "the end of the device", 30)
        gateway.end(signal.SIGTERM)
        configure(gateway.limited)
    gateway.start()
    checks[f"after {deaths} deaths while the device was made it can be had"] = os.path.exists(DEVICE)


def pressed(gateway, checks, figures):
    """128 requests of 1 MiB are more than the pool's memory."""
    fio = [
        "fio",
        "--name=large",
        f"--filename={DEVICE}",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=128",
        "--rw=randrw",
        "--bs=1m",
        "--io_size=256m",
        "--norandommap",
    ]
    done = subprocess.run(fio, stdout=subprocess.DEVNULL).returncode == 0
    peak = metric("tidegate_pool_buffered_peak_bytes")
    figures["memory_peak_mib"] = peak / (1 << 20)
    # One export draws about half of the shared memory.
    checks["128 requests of 1 MiB do with 64 MiB of memory"] = done and 16 << 20 < peak <= 64 << 20


def mounted(gateway, checks):
    """A file system stays mounted through a kill, a stop, and the removal of its export."""
    run("modprobe", "ext4")
    run("mkfs.ext4", "-q", DEVICE)
    os.makedirs("mnt", exist_ok=True)
    run("mount", DEVICE, "mnt")
    for how in (signal.SIGKILL, signal.SIGTERM):
        copy = subprocess.Popen(["cp", "/bin/bash", f"mnt/bash-{how}"])
        sync = subprocess.Popen(["sync", "-f", "mnt"])
        gateway.end(how)
        gateway.start()
        copy.wait(), sync.wait()
        run("sync", "-f", "mnt")
    run("sh", "-c", "echo 3 >/proc/sys/vm/drop_caches")
    same = [
        subprocess.run(["cmp", "/bin/bash", f"mnt/bash-{how}"]).returncode == 0
        for how in (signal.SIGKILL, signal.SIGTERM)
    ]
    checks["files written while the gateway ended are whole"] = all(same)
    checks["fstrim works"] = subprocess.run(["fstrim", "mnt"]).returncode == 0
    configure("")
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: "is in use" in open("log").read(), "the warning about the device in use")
    run("cp", "/bin/cat", "mnt/cat")
    run("sync", "-f", "mnt")
    checks["the device of a removed export stays while it is mounted"] = os.path.exists(DEVICE)
    run("umount", "mnt")
    until(lambda: not os.path.exists("/dev/ublkc0"), "the end of the device", 30)
    checks["the device of a removed export is deleted once nothing uses it"] = not os.path.exists(DEVICE)


def other_volume(gateway, checks):
    """The export leads to another volume when the next gateway starts."""
    other = gateway.limited.replace("disk.raw", "another.raw")
    with open("another.raw", "r+b") as file:
        file.write(b"another!")
    run("mount", DEVICE, "mnt")
    gateway.end(signal.SIGKILL)
    status, said = refused(CONFIGURATION.format(port=PORT, exports=other), RIGHTS)
    checks["a mounted device is not taken over with another volume"] = (
        status == 1 and "another volume" in said
    )
    gateway.start()
    run("cmp", "/bin/cat", "mnt/cat")
    run("umount", "mnt")
    gateway.end(signal.SIGTERM)
    configure(other)
    gateway.start()
    with open(DEVICE, "rb") as device:
        checks["an unused device is made anew for another volume"] = device.read(8) == b"another!"
    gateway.end(signal.SIGTERM)
    configure(gateway.limited)
    gateway.start()


def through_lio(gateway, figures, checks):
    """An initiator of LIO writes and verifies while the gateway is killed and stopped."""
    lab = LioLab()
    load = lab.start_fio(
        [
            {
                "name": "initiator",
                "filename": lab.device(1),
                "rw": "randwrite",
                "bs": "4k",
                "iodepth": 16,
                "size": "4m",
                "norandommap": 0,
                "verify": "crc32c",
                "do_verify": 1,
                "verify_fatal": 1,
            }
        ]
    )
    started = writes_done()
    for number, how in enumerate((signal.SIGKILL, signal.SIGTERM), 1):
        until(lambda: writes_done() >= started + 300 * number, "the initiator's writes")
        gateway.end(how)
        gateway.start()
    figures["initiator"] = {kind: load()[0][kind]["ios"] for kind in ("write", "read")}
    checks["an initiator of LIO verified every block through a kill and a stop"] = (
        figures["initiator"]["read"] >= 1024
    )
    lab.log_out(1)


def release_target(group):
    """Ends the use of the device by LIO."""
    if not os.path.isdir(group):
        return
    for path in (f"{group}/acls/iqn.2026-01.lab:initiator1/lun_0/lun", f"{group}/lun/lun_0/port"):
        os.unlink(path)
    for path in (
        f"{group}/acls/iqn.2026-01.lab:initiator1/lun_0",
        f"{group}/acls/iqn.2026-01.lab:initiator1",
        f"{group}/lun/lun_0",
        f"{iscsi.TARGET}/core/iblock_0/lv1",
    ):
        os.rmdir(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ends", type=int, default=6)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--iops", type=int, default=1000)
    options = parser.parse_args()
    os.makedirs("/tmp/ublk")
    os.chdir("/tmp/ublk")
    for name in ("disk", "remote", "another"):
        with open(f"{name}.raw", "wb") as file:
            file.truncate(options.size << 20)
        os.chmod(f"{name}.raw", 0o666)
    figures, checks = {"ends": options.ends}, {}
    limited = LIMITED.format(iops=options.iops)
    configure(limited)
    status, said = refused(CONFIGURATION.format(port=PORT, exports=limited))
    figures["without_module"] = said
    checks["without the module: status 1 and the place"] = (
        status == 1 and "modprobe ublk_drv" in said and ":" in said
    )
    run("modprobe", "ublk_drv")
    without = CONFIGURATION.format(port=PORT, exports=limited).replace("unix:nbd.sock", "tcp:127.0.0.1:10999")
    status, said = refused(without, RIGHTS[:4] + ["--bounding-set=-all"])
    figures["without_rights"] = said
    checks["without rights: status 1 and the place"] = status == 1 and "CAP_SYS_ADMIN" in said
    gateway = Gateway(limited)
    gateway.start()
    checks["the device is there when the gateway is ready"] = os.path.exists(DEVICE)
    figures["queue"] = {}
    for name in (
        "logical_block_size",
        "physical_block_size",
        "max_sectors_kb",
        "fua",
        "write_cache",
        "nr_requests",
        "discard_max_bytes",
        "write_zeroes_max_bytes",
    ):
        with open(f"/sys/block/ublkb0/queue/{name}") as file:
            figures["queue"][name] = file.read().strip()
    status, said = refused(CONFIGURATION.format(port=PORT, exports=BUSY).replace("nbd.sock", "other.sock"))
    figures["busy"] = said
    checks["the number of another export: status 1 and the place"] = status == 1 and "ublk:0" in said
    checks["one session is shown as a disk"] = metric("tidegate_disks", 'consumer="disk"') == 1
    pressed(gateway, checks, figures)
    verified_writes(gateway, options, figures, checks)
    storm(gateway, 5 * options.ends, checks)
    mounted(gateway, checks)
    gateway.end(signal.SIGTERM)
    configure(limited)
    gateway.start()
    checks["the file system is clean"] = subprocess.run(["fsck.ext4", "-fn", DEVICE]).returncode == 0
    other_volume(gateway, checks)
    through_lio(gateway, figures, checks)
    gateway.end(signal.SIGTERM)
    checks["the device stays after a stop"] = os.path.exists(DEVICE)
    for name in os.listdir(iscsi.TARGET + "/iscsi"):
        release_target(f"{iscsi.TARGET}/iscsi/{name}/tpgt_1")
    configure("")
    gateway.start()
    until(lambda: not os.path.exists("/dev/ublkc0"), "the end of the device that was left behind", 30)
    checks["a device that was left behind is deleted"] = not os.path.exists(DEVICE)
    gateway.end(signal.SIGTERM)
    configure(limited)
    births(gateway, options.ends, checks)
    gateway.end(signal.SIGTERM)
    complaints = subprocess.run(["dmesg"], capture_output=True, text=True).stdout.splitlines()
    signs = ("I/O error", "EXT4-fs error", "blocked for more than", "WARNING:", "BUG:")
    complaints = [line for line in complaints if any(sign in line for sign in signs)]
    figures["kernel"] = complaints
    checks["the kernel saw no error"] = not complaints
    with open("/out/result.json", "w") as file:
        json.dump({"figures": figures, "checks": checks}, file, indent=1)


try:
    main()
finally:
    if os.path.exists("/tmp/ublk/log"):
        subprocess.run(["cp", "/tmp/ublk/log", "/out/gateway.log"])
    with open("/out/dmesg", "w") as file:
        subprocess.run(["dmesg"], stdout=file)
