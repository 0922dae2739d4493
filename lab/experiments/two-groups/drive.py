#!/usr/bin/env python3
"""`tidegate agent` on two volume groups with a target each and initiators in common, in the lab.

See guest.py. Exit status 1 when the run fails or something promised is missed (judge.py).
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

SHORT = ["--burst", "15"]

if __name__ == "__main__":
    sys.exit(driver.judged("two-groups", __doc__, SHORT, "a shorter burst"))
