#!/usr/bin/env python3
"""In the guest: a storage node on an NFS mount, beside one on a local file system of the same array.

The sensors of an agent and a broker, as an administrator sets them up: `nfs` is a path on a mount of NFS 4.2,
`local` a path on a volume of this machine. In order:

   sensed    fio writes on the mount at one rate, and reads at another: the sensor's rates beside fio's
   moved     transfers put and get files on each node: peaks and moving averages that are learnt
   placed    policy `sm-r2`, which uses the moving average: while fio writes on either node as fast as it can,
             a transfer goes to the other one

Leaves /out/measured.json and the logs. Exit status 1 when a check is missed.
"""

import json
import os
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import iscsi
from iscsi import namespace, read, run, until, write
from judging import Verdict
from protocols import Nfs

# The server seldom has the place of a random read in memory.
FILE_MIB = 96
SECONDS = 30
BEGINNING, END = 13, 5
MIB = 1 << 20
# An administrator sees no smaller difference of a rate.
NEAR = 0.05
NODES = {"nfs": "/mnt/host1/store", "local": "/srv/lv2/store"}
# The classes let a transfer choose its node.
CLASSES = {"nfs": "availability = 0\ncost = 0", "local": "availability = 1\ncost = 1"}
ONLY = {"nfs": ["--cost", "0"], "local": ["--availability", "1"]}
LOADS = {
    "write": {"rw": "write", "bs": "64k", "rate": "4m"},
    "read": {"rw": "randread", "bs": "64k", "rate": "1m"},
}


class Service:
    """The broker and the agent, in the namespace of the host that has the mount."""

    def __init__(self):
        self.processes = []
        nodes = "".join(
            f'[node.{name}]\nplace = "file://{path}"\nagent = true\n{CLASSES[name]}\n'
            for name, path in NODES.items()
        )
        sensors = "".join(f'[sensor.{name}]\npath = "{path}"\n' for name, path in NODES.items())
        write(
            "/tmp/broker.toml", f'listen = "127.0.0.1:7311"\nstate = "/tmp/state"\npolicy = "sm-r2"\n{nodes}'
        )
        write(
            "/tmp/agent.toml", f'metrics = "127.0.0.1:9809"\nbrokers = ["http://127.0.0.1:7311"]\n{sensors}'
        )
        os.environ["TIDEGATE_NODES"] = "/tmp/broker.toml"
        for name in ("broker", "agent"):
            with open(f"/out/{name}.log", "w") as log:
                self.processes.append(
                    subprocess.Popen(["tidegate", name, "-c", f"/tmp/{name}.toml"], stderr=log)
                )
            until(lambda: "ready" in read(f"/out/{name}.log"), f"the {name}")

    def node(self, name):
        found = json.loads(run(["tidegate", "transfer", "nodes", "--json"]))["nodes"]
        return next(node for node in found if node["name"] == name)

    def report(self, name):
        sensor = self.node(name)["sensor"]
        return sensor["report"] if sensor and sensor["recent"] else None

    def transfer(self, *words):
        return json.loads(run(["tidegate", "transfer", *words, "--json"]))["transfers"][0]

    def end(self):
        for process in self.processes:
            process.terminate()
            process.wait()


def sensed(lab, service):
    """The rate and latency of each load, by fio and by the sensor."""
    found = {}
    for way, load in LOADS.items():
        job = {"name": way, "filename": lab.device(1), "size": f"{FILE_MIB}m", "runtime": SECONDS, **load}
        ended = lab.start_fio([job], log_ms=1000, randseed=1)
        # The mean of the last ten intervals includes the beginning for so long.
        time.sleep(BEGINNING)
        # Keyed by sequence number: a report may be seen twice.
        told, began_s, lasts_s = {}, time.time(), SECONDS - BEGINNING - END
        while time.time() < began_s + lasts_s:
            report = service.report("nfs")
            told[report["sequence"]] = report[way]
            time.sleep(0.5)
        [result] = ended()
        told = list(told.values())
        # The same seconds are compared, since a server has more and more in memory.
        waits = [value for at, _, value in result["log"]["lat"] if began_s <= at / 1000 <= began_s + lasts_s]
        rates = [lane["current_bps"] for lane in told]
        latencies = [lane["latency_s"] for lane in told if lane.get("latency_s") is not None]
        found[way] = {
            "fio_bps": result[way]["bytes_per_s"],
            "fio_ms": statistics.mean(waits),
            "sensor_bps": statistics.mean(rates),
            "sensor_ms": 1e3 * statistics.mean(latencies),
            "moving_average_bps": told[-1]["moving_average_bps"],
        }
    return found


def moved(service):
    """The transfers of an object to and from each node, and the values that are learnt from them."""
    found = {}
    for name in NODES:
        put = service.transfer("put", "/tmp/object", "--name", f"of-{name}", "--rate", "100kB/s", *ONLY[name])
        write("/proc/sys/vm/drop_caches", 3)
        got = service.transfer("get", f"of-{name}", "--rate", "100kB/s", "--to", "/tmp/back", "--force")
        same = run(["cmp", "/tmp/object", "/tmp/back"]) == ""
        time.sleep(1.5)
        node = service.node(name)
        found[name] = {
            "node": put["nodes"][0],
            "same": same,
            "put_bps": put.get("rate_bps"),
            "get_bps": got.get("rate_bps"),
            "learnt": {
                way: {key: node[way][key] for key in ("peak_bps", "moving_average_bps")} for way in LOADS
            },
            "sensor": node["sensor"]["report"],
        }
    return found


def placed(lab, service):
    """The node of a transfer while fio writes on the one node, and while it writes on the other."""
    found = {}
    for name, file in (("nfs", lab.device(1)), ("local", "/srv/lv2/file")):
        job = {
            "name": "others",
            "filename": file,
            "size": f"{FILE_MIB}m",
            "runtime": SECONDS,
            "rw": "write",
            "bs": "64k",
            "iodepth": 8,
        }
        ended = lab.start_fio([job], randseed=2)
        time.sleep(SECONDS - END)
        others = service.report(name)["write"]
        put = service.transfer("put", "/tmp/object", "--name", f"beside-{name}", "--rate", "100kB/s")
        ended()
        found[name] = {"others": others, "node": put["nodes"][0]}
    return found


def main():
    lab = Nfs(hosts=2, file_mib=lambda _: FILE_MIB, threads=16, volume_mib=160)
    run(["pin", "tidegate", "cmp", "fio"])
    for path in NODES.values():
        os.makedirs(path, exist_ok=True)
    with open("/tmp/object", "wb") as file:
        file.write(os.urandom(8 * MIB))
    verdict = Verdict()
    with namespace("h1"):
        run(["ip", "link", "set", "lo", "up"])
        service = Service()
        until(lambda: all(service.report(name) for name in NODES), "the sensors' reports")
        measured = {"sensed": sensed(lab, service), "moved": moved(service), "placed": placed(lab, service)}
        service.end()
    write("/out/measured.json", json.dumps(measured, indent=1))
    for way, one in measured["sensed"].items():
        verdict.within(
            f"{way}s: the sensor's rate over fio's", one["sensor_bps"] / one["fio_bps"], 1 - NEAR, 1 + NEAR
        )
        verdict.within(
            f"{way}s: the moving average over fio's rate",
            one["moving_average_bps"] / one["fio_bps"],
            1 - NEAR,
            1 + NEAR,
        )
        verdict.within(
            f"{way}s: the sensor's latency over fio's", one["sensor_ms"] / one["fio_ms"], 1 - NEAR, 1 + NEAR
        )
    for name, one in measured["moved"].items():
        verdict.within(
            f"{name}: the object went there, and came back whole",
            float(one["node"] == name and one["same"]),
            1,
        )
        for way, learnt in one["learnt"].items():
            verdict.within(f"{name}: peak of {way}s learnt, MiB/s", learnt["peak_bps"] / MIB, 1)
            verdict.within(
                f"{name}: moving average of {way}s known", float(learnt["moving_average_bps"] is not None), 1
            )
    for name, one in measured["placed"].items():
        verdict.within(
            f"{name}: a transfer beside fio's writes there went to the other node",
            float(one["node"] != name),
            1,
        )
    verdict.show()
    print(json.dumps(measured, indent=1))
    return 0 if verdict.met() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except iscsi.Failed as failure:
        sys.exit(f"nfs-node: {failure}")
