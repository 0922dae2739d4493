#!/bin/bash
# In the guest, sealed or not: the demo, on the virtual clock. Arguments go to `tidegate demo`. Leaves
# /out/demo.json.
set -eu
tidegate demo --json --no-tui "$@" >/out/demo.json
