#!/bin/bash
# In the guest: two PostgreSQL servers on one emulated array, pgbench on both at once.
#
# Each server has an ext4 file system on a volume of its own, attached by the kernel's NBD client. It has
# memory for a small part of its data only, so that most transactions wait for the array. The favoured server
# has four times the shares of the other. The driver `postgres` makes the volume, runs this script and
# compares.
#
# usage: guest.sh VOLUME [--hosts 1|2] [--law on|off] [--regulates_by window|auto] [--preset NAME]
#                    [--target TIME] [--interval TIME] [--gain K]
#                    [--clients N] [--ramp SECONDS] [--seconds SECONDS]
#
#   --hosts 1   one gateway serves both volumes from the array
#   --hosts 2   each server has a host of its own, as in the paper; the hosts share an array that another
#               process exports
#
# Leaves the logs, and /out/{minor,favoured}.transactions with a line per transaction: its end in microseconds
# since the measurement began, and the microseconds that it took.
set -euo pipefail
volume=$1
shift
here=$(dirname "$(realpath "$0")")
hosts=1 law=on regulates_by=window preset=dnes-309170w carrier=udp target=60ms interval=250ms gain=0.15
clients=16 ramp=20 seconds=60
while [ $# -gt 0 ]; do
  case $1 in
    --hosts | --law | --regulates_by | --preset | --target | --interval | --gain | --clients | --ramp | \
      --seconds)
      declare "${1#--}=$2" && shift 2
      ;;
    *) echo "guest.sh: no such option: $1" >&2 && exit 2 ;;
  esac
done
array_data=/tmp/array
# shellcheck source=lab/experiments/shared/chain.sh
source "$here/../shared/chain.sh"

programs=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n1)
pin "$programs"/{postgres,pgbench,psql} nbd-client setpriv awk ip grep base64
modprobe -a nbd ext4

cat "$volume" "$volume" >"$array_data"
size=$(stat -c %s "$volume")
servers=() devices=()
# From the top down: a file system without its device would keep the machine from stopping.
finish() {
  for pid in "${servers[@]}"; do
    kill -QUIT "$pid" 2>/dev/null && wait "$pid" || true
  done
  for device in "${devices[@]}"; do
    umount "$device" || true
    nbd-client -d "$device" >/dev/null || true
  done
  stop_chain
}
trap finish EXIT

# `off` treats both alike: the same chain, equal shares, no law.
favoured=100
[ "$law" = off ] || favoured=400
if [ "$hosts" = 2 ]; then
  start_array {minor,favoured}="${size}B"
  add_host 1
  add_host 2
  start_host 1 "$law" minor=100
  start_host 2 "$law" "favoured=$favoured"
  declare -A sockets=([minor]=/tmp/h1.sock [favoured]=/tmp/h2.sock)
else
  start_host_with_array "$law" "$size" minor=100 "favoured=$favoured"
  declare -A sockets=([minor]=/tmp/h1.sock [favoured]=/tmp/h1.sock)
fi

mkdir -p /sys/fs/cgroup
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control

for name in minor favoured; do
  device=/dev/nbd${#devices[@]}
  nbd-client -unix "${sockets[$name]}" "$device" -name "$name" -block-size 4096 >/out/nbd-client.log 2>&1
  mkdir -p "/tmp/$name" "/tmp/$name-socket" "/sys/fs/cgroup/$name"
  mount -o noatime "$device" "/tmp/$name"
  devices+=("$device")
  # The memory of the server and of the kernel on its behalf: buffers, page cache and all.
  echo 64M >"/sys/fs/cgroup/$name/memory.max"
  owner=$(stat -c %u:%g "/tmp/$name/cluster")
  chown "$owner" "/tmp/$name-socket"
  (
    echo "$BASHPID" >"/sys/fs/cgroup/$name/cgroup.procs"
    exec setpriv --reuid "${owner%:*}" --regid "${owner#*:}" --clear-groups \
      "$programs/postgres" -D "/tmp/$name/cluster" \
      -c listen_addresses= -c unix_socket_directories="/tmp/$name-socket" -c shared_buffers=8MB -c jit=off \
      -c autovacuum=off -c max_connections=$((clients + 5))
  ) 2>"/out/$name.log" &
  servers+=($!)
done
for name in minor favoured; do
  until "$programs/psql" --host="/tmp/$name-socket" --username=lab --quiet \
    -c 'select 1' postgres >/dev/null 2>&1; do
    sleep 0.1
  done
done

# simple-update: `tellers` and `branches` have so few rows that transactions would wait for each other's
# locks, not for the array.
benches=()
for name in minor favoured; do
  "$programs/pgbench" --host="/tmp/$name-socket" --username=lab --builtin=simple-update --protocol=prepared \
    --no-vacuum --client="$clients" --time=$((ramp + seconds)) --progress=10 --log \
    --log-prefix="/tmp/$name-transactions" --random-seed=1 postgres \
    >"/out/$name.pgbench" 2>"/out/$name.progress" &
  benches+=($!)
done
started_at=$(date +%s%6N)
for pid in "${benches[@]}"; do
  wait "$pid"
done
for name in minor favoured; do
  # Fields of pgbench's log: client, transaction, microseconds that it took, script, and its end as seconds
  # and microseconds.
  awk -v began=$((started_at + ramp * 1000000)) -v seconds="$seconds" '
    { ended = $5 * 1000000 + $6 - began }
    ended >= 0 && ended < seconds * 1000000 { printf "%d %d\n", ended, $3 }
  ' /tmp/"$name"-transactions.* >"/out/$name.transactions"
  awk -v name="$name" -v seconds="$seconds" '
    { sum += $2 }
    END { printf "%-8s %6.1f transactions/s, mean %.1f ms\n", name, NR / seconds, sum / NR / 1000 }
  ' "/out/$name.transactions"
done
