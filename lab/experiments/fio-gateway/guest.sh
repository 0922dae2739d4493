#!/bin/bash
# In the guest: fio against the gateway.
#
#   shares    three backlogged clients with shares 1:2:4 on one emulated array: each gets its part within 7 %
#   verify    eight jobs of mixed random I/O, everything read back and compared, on both kinds of backend
#
# Leaves /out/shares.json, fio's own reports and the gateway's log.
set -euo pipefail
pin fio jq

socket=/tmp/nbd.sock
cat >/tmp/serve.toml <<EOF
listen = ["unix:$socket"]

[pool.array]
backend = { kind = "emulated", preset = "sata-stripe", data = "memory" }
depth = 16
export.one = { size = "4GiB", shares = 100 }
export.two = { size = "4GiB", shares = 200 }
export.four = { size = "4GiB", shares = 400 }

[pool.scratch]
backend = { kind = "emulated", preset = "sata-stripe", data = "memory" }
export.emulated = { size = "4GiB" }

[pool.files]
backend = { kind = "file" }
export.file = { path = "/tmp/volume" }
EOF
truncate -s 64M /tmp/volume

tidegate serve -c /tmp/serve.toml 2>/out/serve.log &
gateway=$!
trap 'kill "$gateway" 2>/dev/null || true; wait "$gateway" || true' EXIT
until [ -S "$socket" ]; do
  kill -0 "$gateway" || { cat /out/serve.log >&2 && exit 1; }
  sleep 0.1
done

# The first lines of fio's report are about its connections, not JSON.
client() {
  local name=$1 export=$2
  shift 2
  fio --ioengine=nbd --uri="nbd+unix:///$export?socket=$socket" --name="$export" --output-format=json "$@" \
    | sed -n '/^{/,$p' >"/out/$name.json"
}

echo "shares: reading at random for 60 s"
clients=()
for export in one two four; do
  client "shares-$export" "$export" --rw=randread --bs=4k --iodepth=32 --time_based --ramp_time=5 \
    --runtime=60 &
  clients+=($!)
done
for pid in "${clients[@]}"; do
  wait "$pid"
done
jq -s '
  [.[].jobs[0] | {export: .jobname, iops: .read.iops}] | (map(.iops) | add) as $all
  | map(. + {share: ({one: 1, two: 2, four: 4}[.export] / 7), got: (.iops / $all)})
  | map(. + {error: (.got / .share - 1)})' /out/shares-{one,two,four}.json >/out/shares.json
jq -r '.[] | "\(.export) \(.iops) \(.got * 100) \(.error * 100)"' /out/shares.json \
  | xargs printf '  %-5s %7.1f IO/s  %5.2f %% of all  %+5.2f %% off its share\n'
jq -e 'all(.[]; .error | fabs <= 0.07)' /out/shares.json >/dev/null \
  || { echo "shares: missed" >&2 && exit 1; }

for export in emulated file; do
  echo "verify: $export"
  client "verify-$export" "$export" --rw=randrw --bs=4k --iodepth=4 --numjobs=8 --size=1m \
    --offset_increment=1m --verify=crc32c --verify_fatal=1 --group_reporting
done
