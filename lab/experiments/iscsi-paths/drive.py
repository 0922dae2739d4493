#!/usr/bin/env python3
"""`tidegate agent` and initiators with two paths, in the lab. guest.py describes each phase.

Exit status 1 when the run fails or a promise is missed (judge.py).
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shared"))
import driver

SHORT = ["--burst", "15", "--only", "doubtful,unregulated,paths,apart,together"]

if __name__ == "__main__":
    sys.exit(
        driver.judged(
            "iscsi-paths", __doc__, SHORT, "a shorter burst, in which no path fails", seed_each=True
        )
    )
