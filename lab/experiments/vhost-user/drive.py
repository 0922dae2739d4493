#!/usr/bin/env python3
"""A guest of QEMU with its disk on vhost-user, or on NBD, beside ends of the gateway.

The gateway is killed with -9, or ended and started anew as for an upgrade, while fio writes and verifies. No
block may be wrong, and the guest may see no error. A limit throttles the guest, and the status shows that. In
the end the disk grows, and the guest sees that too; QEMU's NBD client does not.

usage: lab/experiments/vhost-user/drive.py [--nbd] [--binary FILE] [--ends N] [--size MIB] [--iops N]
                                           [--out DIR]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver  # noqa: E402

CONFIGURATION = """
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:{port}'
[pool.storage]
backend = {{ kind = 'file' }}
[pool.storage.export.guest]
path = 'disk.raw'
limit = {{ iops = '{iops} IO/s' }}
listen = ['vhost-user:disk.sock']
"""


# QEMU connects again every second.
TRY_S = 1
# Growth of the disk, in MiB.
GROWTH = 16


class Gateway:
    """The program in a folder of its own."""

    def __init__(self, binary, folder, port):
        self.binary, self.folder, self.port = binary, folder, port
        self.log = open(os.path.join(folder, "log"), "a")
        self.process = None

    def start(self):
        command = [self.binary, "serve", "-c", os.path.join(self.folder, "tidegate.toml")]
        self.process = subprocess.Popen(command, stderr=self.log)
        self.wait(lambda: self.metric("tidegate_requests_total", 'op="write"') is not None)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.terminate()
        self.process.wait()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def ask(self, page):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}{page}", timeout=5).read().decode()

    def metric(self, name, label=""):
        try:
            lines = self.ask("/metrics").splitlines()
        except OSError:
            return None
        found = [line for line in lines if line.startswith(name) and label in line]
        return float(found[0].split()[-1]) if found else None

    def is_limited(self):
        """Returns true if the status says that an export waits for its limit.

        A busy machine may not answer.
        """
        try:
            return '"waits_for": "limit"' in self.ask("/v1/status")
        except OSError:
            return False

    def wait(self, condition, seconds=120, alive=lambda: True):
        """Waits for a condition. Returns true if it came before the time was up or `alive` ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and alive():
            if condition():
                return True
            time.sleep(0.05)
        return False


def free_port():
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default=os.path.join(driver.LAB, "..", "target", "release", "tidegate"))
    parser.add_argument("--nbd", action="store_true", help="QEMU has the disk by NBD")
    parser.add_argument(
        "--ends", type=int, default=6, help="ends of the gateway, kill -9 and SIGTERM by turns (default: 6)"
    )
    parser.add_argument("--size", type=int, default=64, help="size of the disk, in MiB")
    parser.add_argument("--iops", type=int, default=1000, help="the limit of the export")
    parser.add_argument("--out", help="leave a dated document here")
    options = parser.parse_args()
    about = driver.described()
    about["machine"] = about["machine"].replace("virtual clock", "the machine's clock")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "disk.raw"), "wb") as disk:
            disk.truncate(options.size << 20)
        port = free_port()
        with open(os.path.join(folder, "tidegate.toml"), "w") as file:
            file.write(CONFIGURATION.format(port=port, iops=options.iops))
        gateway = Gateway(os.path.abspath(options.binary), folder, port)
        gateway.start()
        out = os.path.join(folder, "out")
        script = os.path.join(driver.LAB, "experiments", "vhost-user", "guest.sh")
        place = ("--nbd", "nbd.sock") if options.nbd else ("--disk", "disk.sock")
        command = [os.path.join(driver.LAB, "run"), place[0], os.path.join(folder, place[1]), "--out", out]
        guest = subprocess.Popen([*command, "--limit", "1800", script], stdin=subprocess.DEVNULL)
        is_up = lambda: guest.poll() is None  # noqa: E731
        ends, rates, limited, absence = 0, [], False, 0
        try:
            for turn in range(options.ends):
                started = gateway.metric("tidegate_requests_total", 'op="write"') or 0
                target = started + options.size * 256 / (options.ends + 1)
                began = None

                def is_loaded():
                    nonlocal began, limited
                    asked = time.monotonic()
                    done = gateway.metric("tidegate_requests_total", 'op="write"') or 0
                    # From before the first count to after the last one: an answer may come late.
                    if began is None and done > started:
                        began = (asked, done)
                    if done >= target:
                        rates.append((done - began[1]) / (time.monotonic() - began[0]))
                    limited = limited or gateway.is_limited()
                    return done >= target

                if not gateway.wait(is_loaded, seconds=900, alive=is_up):
                    break
                left = time.monotonic()
                gateway.kill() if turn % 2 == 0 else gateway.end()
                ends += 1
                gateway.start()
                absence = max(absence, time.monotonic() - left)
            with open(os.path.join(folder, "disk.raw"), "r+b") as disk:
                disk.truncate(options.size + GROWTH << 20)
            gateway.reload()
            status = guest.wait()
        finally:
            if is_up():
                guest.terminate()
                guest.wait()
        disks = gateway.metric("tidegate_disks")
        gateway.end()
        fio, complaints = None, ""
        if os.path.exists(os.path.join(out, "fio.json")):
            with open(os.path.join(out, "fio.json")) as file:
                fio = json.load(file)["jobs"][0]
        size = None
        if os.path.exists(os.path.join(out, "size")):
            with open(os.path.join(out, "size")) as file:
                size = int(file.read())
        for name in ("kernel", "disk"):
            if os.path.exists(os.path.join(out, name)):
                with open(os.path.join(out, name)) as file:
                    text = file.read()
                complaints += text if name == "kernel" else ""
                print(f"{name}:\n{text}", file=sys.stderr)
        with open(os.path.join(folder, "log")) as log:
            lines = [line for line in log if "session" in line or "WARN" in line or "ERROR" in line]
        print("".join(lines[-20:]), file=sys.stderr)
    pause = fio and fio["write"]["clat_ns"]["max"] / 1e9
    errors = [line for line in complaints.splitlines() if "error" in line.lower() or "hung" in line.lower()]
    checks = {
        "the guest's script succeeded": status == 0,
        f"the gateway ended {options.ends} times under load": ends == options.ends,
        "no request waited longer than QEMU's next try after the gateway's return": pause is not None
        and pause <= absence + TRY_S + 0.5,
        "the guest saw its disk grow": options.nbd or size == options.size + GROWTH << 20,
        "fio verified every block": fio is not None and fio["error"] == 0 and fio["read"]["total_ios"] > 0,
        "the guest's kernel saw no error": not errors,
        "the limit throttled the guest, and the status said so": limited,
        f"no faster than {options.iops} IO/s": bool(rates) and max(rates) <= 1.05 * options.iops,
    }
    for check, met in checks.items():
        print(f"{'ok' if met else 'FAILED'}: {check}")
    if options.out:
        figures = {
            "ends": ends,
            "longest_wait_s": pause,
            "longest_absence_s": round(absence, 2),
            "writes_per_s": [round(rate) for rate in rates],
            "disks": disks,
        }
        figures["blocks_verified"] = fio["read"]["total_ios"] if fio else 0
        name = "vhost-user-nbd" if options.nbd else "vhost-user"
        document = {"experiment": name, "date": driver.today(), **about, "figures": figures, "checks": checks}
        driver.leave(options.out, name, document)
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
