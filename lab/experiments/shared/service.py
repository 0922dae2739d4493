"""In the guest, imported: how the packaged service is started, without systemd."""

import glob
import os

from iscsi import read

PACKAGING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../packaging")


def capabilities(*drop_ins):
    """The capabilities of the service, with those of these drop-ins that there are, as setpriv wants them."""
    files = [f"{PACKAGING}/tidegate-agent.service",
             *(path for name in drop_ins for path in glob.glob(f"{PACKAGING}/tidegate-agent.service.d/{name}.conf"))]
    given = [line.partition("=")[2] for path in files for line in read(path).splitlines()
             if line.startswith("AmbientCapabilities=")]
    return ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in " ".join(given).split())])


def unprivileged(*drop_ins):
    """The command before a program that gives it a user without rights, and the capabilities of the service."""
    sets = [option for kind in ("inh-caps", "ambient-caps", "bounding-set") for option in (f"--{kind}", capabilities(*drop_ins))]
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs", *sets]
