"""In the guest, imported: how the packaged service is started, without systemd, and what it has in the kernel."""

import glob
import json
import os

from iscsi import mapped, read, run

# The agent's own, in which packets wait by netem.
DEVICE = "tidegate"
# Guest time may leap by seconds while a program waits for the machine's files. What must be gone when is judged by itself.
ENDS_WITHIN_S = 60
PACKAGING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../packaging")


def capabilities(*drop_ins):
    """The capabilities of the service, with those of these drop-ins that there are, as setpriv wants them."""
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
    """The command before a program that gives it a user without rights, and the capabilities of the service."""
    sets = [
        option
        for kind in ("inh-caps", "ambient-caps", "bounding-set")
        for option in (f"--{kind}", capabilities(*drop_ins))
    ]
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs", *sets]


def packets_throttled():
    """What is in the kernel of this network namespace: rules, tables, members of the agent's maps, its chains, its device."""
    ruleset = json.loads(run(["nft", "-j", "list", "ruleset"]))["nftables"]
    links = json.loads(run(["ip", "-j", "link", "show"]))
    chains = [item["chain"]["name"] for item in ruleset if "chain" in item]
    return {
        "rules": sum("rule" in item for item in ruleset),
        "tables": [item["table"]["name"] for item in ruleset if "table" in item],
        "members": mapped(ruleset),
        # A chain for each interface that packets are delayed at.
        "hooks": sorted(chain for chain in chains if chain.startswith("on_")),
        "has_device": any(link["ifname"] == DEVICE for link in links),
    }
