#!/usr/bin/env python3
"""`tidegate agent` with consumers of unequal importance, in the lab. guest.py describes each phase.

Exit status 1 when the run fails or a promise is missed (judge.py).
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

SHORT = ["--seeds", "1", "--burst", "20"]

if __name__ == "__main__":
    sys.exit(driver.judged("iscsi-weights", __doc__, SHORT, "one seed, a shorter burst"))
