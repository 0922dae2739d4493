#!/usr/bin/env python3
"""`tidegate agent` on targets of other kinds, in the lab: see guest.py, which describes each kind and phase.

usage: drive.py [options] -- nvme|nfs|files|thin|md|tgt [more options for guest.py]

Exit status 1 when the run fails or something promised is missed (judge.py).
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

SHORT = ["--bursts", "1", "--burst", "15"]

if __name__ == "__main__":
    sys.exit(driver.judged("target-kinds", __doc__, SHORT, "one burst"))
