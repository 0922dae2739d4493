#!/bin/bash
# In the guest: Lee's cases (figs. 6 to 9) on the gateway, over the emulated DNES-309170W. Two exports have
# contracts, w1 (40 IO/s) and w2 (20 IO/s). An active export has sixteen reads of 4 KiB outstanding.
#
#   guest.sh --variant literal|improved --seed N --seconds S CASE…
#
#   1a, 1b    only w1 is active; only w2
#   2a, 2b    w1 is active, and w2 from half of the time on; the other way round
#   3a, 3b    w1 is active, and w2 for 5 s after every 5 s; the other way round
#   4         both are active
#
# Leaves the gateway's metrics at the end of each case (/out/CASE.metrics), and its log (/out/CASE.log).
set -euo pipefail
pin fio

variant=literal seed=1 seconds=60
while [ $# -gt 0 ]; do
  case $1 in
    --variant | --seed | --seconds) declare "${1#--}=$2" && shift 2 ;;
    *) break ;;
  esac
done
case $variant in
  literal) ahead=0 buckets=(8 4) ;;
  improved) ahead=2 buckets=(2 2) ;;
  *) echo "contracts: no such variant: $variant" >&2 && exit 2 ;;
esac

socket=/tmp/nbd.sock port=9809
cat >/tmp/serve.toml <<TOML
listen = ["unix:$socket"]
metrics = "127.0.0.1:$port"

[pool.disk]
backend = { kind = "emulated", preset = "dnes-309170w", seed = $seed }
depth = 1
scheduler = "yfq"
law = "integral"
target = "35ms"
interval = "1s"
integral = { gain = 0.33, variant = "$variant" }
release = { tick = "1ms", ahead = $ahead }

[pool.disk.export.w1]
size = "4GiB"
shares = 200
contract = { iops = "40 IO/s", response_time = "35ms", expected = "29.08ms", bucket = ${buckets[0]} }

[pool.disk.export.w2]
size = "4GiB"
shares = 100
contract = { iops = "20 IO/s", response_time = "38ms", expected = "31.38ms", bucket = ${buckets[1]} }
TOML

gateway='' clients=''
trap 'kill $clients $gateway 2>/dev/null || true' EXIT

metrics() {
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf 'GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n' >&3
  cat <&3
  exec 3>&-
}

# grep reads everything: with -q it may end before `cat`. Then `cat` fails, and so does the pipe.
asked_for() {
  metrics | grep '^tidegate_in_flight_requests{.*} [1-9]' >/dev/null
}

# Adds fio's arguments for an active export: EXPORT START LENGTH
jobs=()
active() {
  jobs+=(--name="$1" --uri="nbd+unix:///$1?socket=$socket" --startdelay="$2" --runtime="$3"
    --randseed="$((seed * 100 + ${#jobs[@]}))")
}

# Exports that are active until the end go on a little longer, so that the end is the same for all.
whole=$((seconds + 10))
pulses() {
  local begin
  for ((begin = 5; begin < seconds; begin += 10)); do
    active "$1" "$begin" 5
  done
}

for name in "$@"; do
  jobs=()
  case $name in
    1a) active w1 0 "$whole" ;;
    1b) active w2 0 "$whole" ;;
    2a) active w1 0 "$whole" && active w2 "$((seconds / 2))" "$whole" ;;
    2b) active w2 0 "$whole" && active w1 "$((seconds / 2))" "$whole" ;;
    3a) active w1 0 "$whole" && pulses w2 ;;
    3b) active w2 0 "$whole" && pulses w1 ;;
    4) active w1 0 "$whole" && active w2 0 "$whole" ;;
    *) echo "contracts: no such case: $name" >&2 && exit 2 ;;
  esac
  tidegate serve -c /tmp/serve.toml 2>"/out/$name.log" &
  gateway=$!
  until [ -S "$socket" ] && grep -q ' ready' "/out/$name.log"; do
    kill -0 "$gateway" || { cat "/out/$name.log" >&2 && exit 1; }
    sleep 0.1
  done
  fio --ioengine=nbd --thread --rw=randread --bs=4k --iodepth=16 --norandommap --time_based \
    --output="/out/$name.fio" "${jobs[@]}" &
  clients=$!
  until asked_for; do
    kill -0 "$clients" || { cat "/out/$name.fio" >&2 && exit 1; }
    sleep 0.02
  done
  sleep "$seconds"
  metrics >"/out/$name.metrics"
  kill -KILL "$clients"
  wait "$clients" 2>/dev/null || true
  kill "$gateway"
  wait "$gateway"
  echo "case $name"
  grep -o 'contract of .*' "/out/$name.log" | sed 's/^/  /'
done
clients='' gateway=''
