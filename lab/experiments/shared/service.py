"""The packaged service, started without systemd, and its state in the kernel; imported in the guest."""

import glob
import json
import os

from iscsi import mapped, read, run

# The agent's own device, in which netem delays packets.
DEVICE = "tidegate"
# Guest time may leap by seconds while a program waits for the machine's files.
# The time at which the agent's rules must be gone is judged separately.
ENDS_WITHIN_S = 60
PACKAGING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../packaging")


def capabilities(*drop_ins):
    """Returns the capabilities of the service and of those drop-ins that exist, in setpriv's notation."""
    files = [
        f"{PACKAGING}/tidegate-agent.service",
        *(
            path
            for name in drop_ins
            for path in glob.glob(f"{PACKAGING}/tidegate-agent.service.d/{name}.conf")
        ),
    ]
    given = [
        line.partition("=")[2]
        for path in files
        for line in read(path).splitlines()
        if line.startswith("AmbientCapabilities=")
    ]
    return ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in " ".join(given).split())])


def unprivileged(*drop_ins):
    """Returns the prefix of a command: an unprivileged user with the capabilities of the service."""
    sets = [
        option
        for kind in ("inh-caps", "ambient-caps", "bounding-set")
        for option in (f"--{kind}", capabilities(*drop_ins))
    ]
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs", *sets]


def packets_throttled():
    """Returns the state of this network namespace in the kernel.

    It contains the rules, the tables, the members of the agent's maps, and the agent's chains and device.
    """
    ruleset = json.loads(run(["nft", "-j", "list", "ruleset"]))["nftables"]
    links = json.loads(run(["ip", "-j", "link", "show"]))
    chains = [item["chain"]["name"] for item in ruleset if "chain" in item]
    return {
        "rules": sum("rule" in item for item in ruleset),
        "tables": [item["table"]["name"] for item in ruleset if "table" in item],
        "members": mapped(ruleset),
        # One chain per interface at which packets are delayed.
        "hooks": sorted(chain for chain in chains if chain.startswith("on_")),
        "has_device": any(link["ifname"] == DEVICE for link in links),
    }
