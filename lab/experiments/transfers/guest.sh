#!/bin/bash
# In the guest: transfers placed on three storage nodes, at the load of Nikolow's paper, by
# scripts/transfers-real.py.
#
#   guest.sh S3-SERVER OPTION…    the program of the node that speaks S3, and options of the script
#
# Leaves the script's document in /out.
set -euo pipefail
s3_server=$1
shift
pin "$s3_server" nginx ip tc sysctl cmp python3
modprobe -a sch_htb veth
exec python3 "$(dirname "$0")/../../../scripts/transfers-real.py" --binary "$(command -v tidegate)" \
  --s3-server "$s3_server" --out /out "$@"
