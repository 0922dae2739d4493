#!/usr/bin/env python3
"""Initiators with an agent, on an iSCSI target with idle disks and a saturated link, in the lab.

guest.py describes each phase. Exit status 1 when the run fails or a promise is missed (judge.py).
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

SHORT = ["--burst", "60", "--only", "unregulated,reports"]

if __name__ == "__main__":
    sys.exit(
        driver.judged(
            "initiator-agents",
            __doc__,
            SHORT,
            "without the phase that shows that the latency of the disks tells nothing",
            seed_each=True,
        )
    )
