#!/usr/bin/env python3
"""In the guest: the agent as a container of the Kubernetes manifest, beside pods that read one disk.

The manifest is packaging/kubernetes/tidegate-agent.yaml. There is no container engine. The container is made
as an engine makes it: with namespaces of its own, the program's libraries as its image, and the manifest's
configuration, capabilities and mounts. The pods are cgroups with the kubelet's names and fio in them:
`shop/database` reads at depth 2, `batch/backup` at depth 32. The phases, in order:

   alone        the database alone
   unregulated  the backup beside it
   regulated    the same beside the container: the backup's cgroup, and no other, is limited
   killed       the container is killed while it throttles, with all of its processes, and started again
                without a load, as the kubelet starts it: the limits left
   ended        the container is told to end while it throttles: the limits left

Exit status 1 when a promise is missed.
"""

import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "shared"))
import disk
import iscsi
from iscsi import CGROUPS, read, run, until, write
from judging import Verdict

MANIFEST = os.path.join(HERE, "../../../packaging/kubernetes/tidegate-agent.yaml")
SERVICE_MS = 2
MIB = 64
TARGET_MS = 20
BURST_S = 20
# In this time the law finds its margin.
SETTLED_S = 8
SLICE = "kubepods.slice/kubepods-besteffort.slice"
PODS = {
    "shop_database": ("2e0f4f0a-0d5b-4d3c-9a53-0c1d0e7f1a01", 2),
    "batch_backup": ("2e0f4f0a-0d5b-4d3c-9a53-0c1d0e7f1a02", 32),
}
CONTAINER = "/tmp/container"


def cgroup(pod):
    return f"{SLICE}/kubepods-besteffort-pod{PODS[pod][0].replace('-', '_')}.slice"


def make_pods():
    disk.set_up([], MIB, SERVICE_MS)
    for path in ("kubepods.slice", SLICE):
        os.mkdir(f"{CGROUPS}/{path}")
        write(f"{CGROUPS}/{path}/cgroup.subtree_control", "+io")
    for pod, (uid, _) in PODS.items():
        os.mkdir(f"{CGROUPS}/{cgroup(pod)}")
        os.makedirs(f"/var/log/pods/{pod}_{uid}")


def manifest():
    """The agent's configuration, arguments and capabilities in the manifest, and its mounts of host paths."""
    text = read(MANIFEST)
    block = re.search(r"^  agent\.toml: \|\n((?:    .*\n|\n)+)", text, re.MULTILINE).group(1)
    configuration = "".join(line[4:] if line.strip() else line for line in block.splitlines(keepends=True))
    paths = dict(re.findall(r"- name: (\w+)\n\s+hostPath: {path: ([^,]+),", text))
    mounts = re.findall(r"{name: (\w+), mountPath: ([^,}]+)(, readOnly: true)?}", text)
    return {
        "configuration": configuration,
        "arguments": re.findall(r'"([^"]+)"', re.search(r"args: \[(.*)\]", text).group(1)),
        "capabilities": re.findall(r'"([^"]+)"', re.search(r"add: \[(.*)\]", text).group(1)),
        "mounts": [(paths.get(name), inside, bool(read_only)) for name, inside, read_only in mounts],
    }


def prepare(manifest):
    """Makes a root for the container, with the configuration.

    Its device is this machine's, its target one that the disk can keep, and it is no dry run.
    """
    os.makedirs(f"{CONTAINER}/configuration")
    configuration = (
        manifest["configuration"]
        .replace('"nvme0n1"', f'"{disk.DEVICE}"')
        .replace('"5ms"', f'"{TARGET_MS}ms"')
        .replace("dry_run = true\n", "")
    )
    write(f"{CONTAINER}/configuration/agent.toml", configuration)
    root = f"{CONTAINER}/root"
    lines = [
        f"mount --make-rprivate /; mkdir -p {root}; mount -t tmpfs none {root}; "
        f"mkdir -p {root}/proc {root}/sys {root}/tmp {root}/dev"
    ]
    # No nft and no tc, the same as in the image: those are in /usr/sbin.
    for library in ("usr/lib", "usr/lib64", "usr/bin", "lib", "lib64", "bin"):
        lines.append(
            f"[ -d /{library} ] && mkdir -p {root}/{library} "
            f"&& mount --rbind -o ro /{library} {root}/{library}"
        )
    lines.append(f"mount -t proc proc {root}/proc; mount -t sysfs -o ro sysfs {root}/sys")
    for source, inside, read_only in manifest["mounts"]:
        made = "" if inside.startswith("/sys/") else f"mkdir -p {root}{inside}; "
        lines.append(f"{made}mount --rbind {source or f'{CONTAINER}/configuration'} {root}{inside}")
        if read_only:
            lines.append(f"mount -o remount,bind,ro {root}{inside}")
    capabilities = ",".join(["-all", *(f"+{name.lower()}" for name in manifest["capabilities"])])
    program = subprocess.run(["which", "tidegate"], capture_output=True, text=True, check=True).stdout.strip()
    lines.append(f"mkdir -p {root}/program; cp {program} {root}/program/tidegate; mount -o remount,ro {root}")
    lines.append(
        f"exec chroot {root} setpriv --bounding-set {capabilities} --inh-caps {capabilities} --no-new-privs "
        f"/program/tidegate {' '.join(manifest['arguments'])} --log debug"
    )
    write(f"{CONTAINER}/start", "set -e\n" + "\n".join(lines) + "\n")


class Container:
    def __init__(self, name):
        self.log = f"/out/{name}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "--pid",
                    "--ipc",
                    "--uts",
                    "--cgroup",
                    "--fork",
                    "--kill-child",
                    "sh",
                    f"{CONTAINER}/start",
                ],
                stderr=log,
                stdout=log,
            )
        until(lambda: "ready" in read(self.log) or self.process.poll() is not None, "the agent")
        if self.process.poll() is not None:
            raise iscsi.Failed(f"the agent ended: {read(self.log)}")

    def signal(self, number):
        """Signals the first of its processes, as a container engine does."""
        first = read(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split()[0]
        os.kill(int(first), number)
        self.process.wait(30)


def limits():
    """The limits of each pod."""
    return {pod: read(f"{CGROUPS}/{cgroup(pod)}/io.max") for pod in PODS}


def start(pod, seconds):
    """Starts fio in a pod. The result, when called, waits for fio's log, [[second, ms]]."""
    log = f"/tmp/{pod}"
    command = [
        "fio",
        f"--name={pod}",
        f"--filename=/dev/{disk.DEVICE}",
        "--rw=randread",
        "--bs=4k",
        f"--iodepth={PODS[pod][1]}",
        "--ioengine=libaio",
        "--direct=1",
        "--time_based",
        f"--runtime={seconds}",
        "--output=/dev/null",
        f"--write_lat_log={log}",
        "--log_avg_msec=1000",
    ]
    process = subprocess.Popen(command, preexec_fn=disk.join(cgroup(pod)))

    def result():
        if process.wait() != 0:
            raise iscsi.Failed(f"fio of {pod}: status {process.returncode}")
        rows = (line.split(",") for line in read(f"{log}_lat.1.log").splitlines())
        return [[int(at) / 1000, int(value) / 1e6] for at, value, *_ in rows]

    return result


def settled(rows):
    values = [value for at, value in rows if at > SETTLED_S]
    return sum(values) / len(values)


def device_reads():
    """The disk's reads, and their milliseconds, as the agent sees them."""
    fields = read(f"/sys/block/{disk.DEVICE}/stat").split()
    return int(fields[0]), int(fields[3])


def beside():
    """Both pods at once: the database's latency, the disk's, and the limits at the end."""
    loads = [start(pod, BURST_S) for pod in PODS]
    time.sleep(SETTLED_S)
    before = device_reads()
    time.sleep(BURST_S - SETTLED_S - 2)
    reads, milliseconds = (after - before for after, before in zip(device_reads(), before))
    during = limits()
    database = settled([load() for load in loads][0])
    return {"database_ms": database, "disk_ms": milliseconds / reads, "limits": during}


def throttling(name):
    """A container beside the load, as soon as it limits a pod."""
    container, loads = Container(name), [start(pod, 14) for pod in PODS]
    until(lambda: limits()["batch_backup"], "the backup to be limited")
    return container, lambda: [load() for load in loads]


def main():
    make_pods()
    run(["pin", "tidegate", "unshare", "setpriv", "chroot", "mount", "sh"])
    prepare(manifest())
    verdict = Verdict()
    alone = settled(start("shop_database", 12)())
    unregulated = beside()
    container = Container("regulated")
    regulated = beside()
    print(f"the database alone: {alone:.1f} ms; unregulated: {unregulated}; with the agent: {regulated}")
    verdict.within("the disk's reads, unregulated, ms", unregulated["disk_ms"], least=TARGET_MS)
    verdict.within("the disk's reads, with the agent, ms", regulated["disk_ms"], most=TARGET_MS)
    verdict.within(
        "the database, with the agent / without",
        regulated["database_ms"] / unregulated["database_ms"],
        most=0.9,
    )
    verdict.within("the backup is limited", float(bool(regulated["limits"]["batch_backup"])), least=1)
    verdict.within("the database is limited", float(bool(regulated["limits"]["shop_database"])), most=0)
    container.signal(signal.SIGTERM)

    container, load = throttling("killed")
    container.signal(signal.SIGKILL)
    load()
    verdict.within("killed: the limit of the backup is left", float(bool(limits()["batch_backup"])))
    container = Container("again")
    time.sleep(2)
    verdict.within("started again: pods that are limited", float(sum(map(bool, limits().values()))), most=0)
    container.signal(signal.SIGTERM)

    container, load = throttling("ended")
    container.signal(signal.SIGTERM)
    verdict.within("ended: pods that are limited", float(sum(map(bool, limits().values()))), most=0)
    load()
    verdict.show()
    return 0 if verdict.met() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except iscsi.Failed as failure:
        sys.exit(f"daemonset: {failure}")
