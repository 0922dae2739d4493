#!/bin/bash
# In the guest: a database beside a backup that runs twice, first on a dry run and then with the law in force.
#
#   guest.sh SEED STORAGE    STORAGE is the emulated backend, as TOML
#
# Leaves /out/{dry,law}/: the decision journal, and fio's reports with the runtime of each backup.
set -euo pipefail
pin fio jq

seed=$1
storage=$2
socket=/tmp/nbd.sock
# Seconds of a phase, and the seconds at which the backup begins.
length=240
begins=(30 130)
requests=7000

phase() {
  local name=$1 dry=$2 folder=/tmp/$1
  mkdir -p "$folder"
  cat >"/tmp/$name.toml" <<TOML
listen = ["unix:$socket"]
journal = { folder = "$folder/journal" }

[pool.array]
backend = { kind = "emulated", data = "memory", seed = $seed, $storage }
target = "20ms"
dry_run = $dry
export.database = { size = "1GiB", protected = true }
export.backup = { size = "512MiB" }
TOML
  tidegate serve -c "/tmp/$name.toml" 2>"$folder/serve.log" &
  gateway=$!
  until [ -S "$socket" ]; do
    kill -0 "$gateway" || { cat "$folder/serve.log" >&2 && exit 1; }
    sleep 0.1
  done
  client "$folder/database" database --rw=randread --bs=4k --iodepth=64 --rate_iops=30 \
    --rate_process=poisson --time_based --runtime="$length" --randseed="$seed" &
  local database=$!
  backups &
  local backups=$!
  wait "$database" "$backups"
  kill -TERM "$gateway"
  wait "$gateway" || true
  rm -f "$socket"
}

# The second backup begins at its time, or when the first one is done.
backups() {
  local from at number=1
  from=$(date +%s)
  for at in "${begins[@]}"; do
    while [ $(($(date +%s) - from)) -lt "$at" ]; do
      sleep 0.1
    done
    client "$folder/backup-$number" backup --rw=randwrite --bs=16k --iodepth=16 --norandommap \
      --number_ios="$requests" --size=512m --randseed="$((seed + number))"
    number=$((number + 1))
  done
}

# The first lines of fio's report are about its connections, not JSON.
client() {
  local report=$1 export=$2
  shift 2
  fio --ioengine=nbd --uri="nbd+unix:///$export?socket=$socket" --name="$export" --output-format=json "$@" \
    | sed -n '/^{/,$p' >"$report.json"
}

phase dry true
phase law false
cp -r /tmp/dry /tmp/law /out/
