#!/usr/bin/env python3
"""`tidegate agent` and initiators with two paths, in the lab: see guest.py, which says what each phase is.

Exit status 1 when the run fails or something promised is missed (judge.py).
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
