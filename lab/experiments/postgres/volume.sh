#!/usr/bin/env bash
# volume.sh: makes the volume that both servers of guest.sh start from, and prints its path. It is an ext4
# file system with a PostgreSQL cluster that `pgbench -i` has filled. It is made once, outside the guest,
# where that takes seconds and no clock is watched.
set -euo pipefail
# shellcheck source=lab/common.sh
source "$(dirname "$0")/../../common.sh"

# 300 MB of tables and indexes: five times the memory of a server of the experiment.
scale=20
size=512M

volume=$cache/postgres/pgbench-$scale-$size.ext4
mkdir -p "$cache/postgres"
exec {lock}>"$cache/postgres/lock"
flock "$lock"
if [ -e "$volume" ]; then
  echo "$volume"
  exit
fi

programs=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n1)
[ -x "$programs/initdb" ] || die "no PostgreSQL under /usr/lib/postgresql: run lab/setup"
work=$(mktemp -d)
cluster=$work/volume/cluster
mkdir "$work/volume"
as_server=()
if [ "$(id -u)" -eq 0 ]; then # PostgreSQL refuses to run as root
  as_server=(setpriv --reuid postgres --regid postgres --clear-groups)
  chown -R postgres:postgres "$work"
fi
stop() {
  [ ! -e "$cluster/postmaster.pid" ] \
    || "${as_server[@]}" "$programs/pg_ctl" -D "$cluster" -s -m fast -w stop >&2
}
trap 'stop; rm -rf "$work" "$volume.new"' EXIT

# Small segments: the recycled part of the log counts little beside the data.
"${as_server[@]}" "$programs/initdb" -D "$cluster" --auth=trust --username=lab --encoding=UTF8 --locale=C \
  --wal-segsize=4 --no-sync >/dev/null
"${as_server[@]}" "$programs/pg_ctl" -D "$cluster" -s -w -l "$work/log" \
  -o "-c listen_addresses='' -c unix_socket_directories='$work' -c fsync=off -c max_wal_size=96MB" start >&2
"${as_server[@]}" "$programs/pgbench" --host="$work" --username=lab --initialize --quiet --scale="$scale" \
  postgres >&2
stop
truncate -s "$size" "$volume.new"
mkfs.ext4 -q -b 4096 -L postgres -d "$work/volume" "$volume.new"
mv "$volume.new" "$volume"
echo "$volume"
