#!/bin/bash
# In the guest: eight fio clients behind four gateways share one emulated array by throughput bands, each with
# a latency goal. The array changes twice under them: its data move from disk to cache, and then its capacity
# doubles.
#
# usage: guest.sh [--law fixed|adaptive|queueing|auto] [--carrier udp|file|nats] [--seconds S] [--seed N]
#
# The laws:
#
#   fixed      the regulator of the self-tuning law with a gain chosen for this array in the simulator
#              (K_I = 3 IO/s per ms, twice a second)
#   adaptive   the same regulator with a model that it learns without any hint (once a second, all defaults)
#   queueing   the model of a queue, by its window (once a second, all defaults)
#   auto       the law auto, with rates that divide its window (all defaults)
#
# The phases:
#
#   disk      from the first request on: one server, 200 requests per second
#   cache     after S seconds: one server, 320
#   doubled   after 2·S seconds, until 3·S: two servers, 320 each
#
# Each host has a gateway in a network namespace of its own, upstream to the array. The gateway has an export
# of the business (g1 to g4, goal 16 ms) and one of the mining (b1 to b4, goal 20 ms).
#
# The goals are those of Triage, 4 and 5 ms, four times as long. A virtual machine on one emulated processor
# carries a quarter of the load of two servers. The array must not be slower: a regulator looks at no less
# than six requests in a second, which are 48 of eight clients. The bands are those of the paper's table 1 for
# eight clients, with the steps of this array: in each phase it operates inside one of them. The gateways
# reach the array by a Unix socket. Their messages to each other travel by networks.
#
# Leaves /out/verdict.json (judge.py) and its sources: phases, fio's logs of every second, the gateways' logs
# with every decision, and their metrics. Exit status 1 when a promise is missed.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
law=fixed carrier=udp seconds=15 seed=1
while [ $# -gt 0 ]; do
  case $1 in
    --law | --carrier | --seconds | --seed) declare "${1#--}=$2" && shift 2 ;;
    *) echo "guest.sh: no such option: $1" >&2 && exit 2 ;;
  esac
done
case $law in
  fixed) regulation='law = "self-tuning"
interval = "500ms"
self_tuning = { gain = 3.0 }' ;;
  adaptive) regulation='law = "self-tuning"
interval = "1s"' ;;
  queueing) regulation='law = "queueing-model"
interval = "1s"' ;;
  auto) regulation='law = "auto"' ;;
  *) echo "guest.sh: no such law: $law" >&2 && exit 2 ;;
esac
rates=(200 320 640) servers=(1 1 2) ends=(200 400 800)
goal=16 patient=20
jq -n --arg law "$law" --arg carrier "$carrier" --argjson seconds "$seconds" --argjson seed "$seed" \
  --argjson rates "[${rates[0]}, ${rates[1]}, ${rates[2]}]" \
  --argjson ends "[${ends[0]}, ${ends[1]}, ${ends[2]}]" --argjson goal "$goal" --argjson patient "$patient" \
  '{$law, $carrier, phase_s: $seconds, $seed, $rates, band_ends: $ends,
    goals_ms: {business: $goal, mining: $patient}}' >/out/settings.json
array_model="exponential = { rate = \"${rates[0]} IO/s\", servers = ${servers[0]}, capacity = \"1GiB\",
  changes = [
    { after = \"${seconds}s\", rate = \"${rates[1]} IO/s\", servers = ${servers[1]} },
    { after = \"$((2 * seconds))s\", rate = \"${rates[2]} IO/s\", servers = ${servers[2]} }] }"
array_model=${array_model//$'\n'/}
# shellcheck source=lab/experiments/shared/chain.sh
source "$here/../shared/chain.sh"
pin fio ip curl grep jq awk base64 nats-server

# Succeeds once a request is or was at the array. Through a pipe, `grep -q` would end the program before it.
asked_for() {
  grep -q '^tidegate_\(requests_total\|pool_in_flight_requests\){.*} [1-9]' \
    <<<"$(ip netns exec array curl -s http://127.0.0.1:9809/metrics)"
}

clients=''
stop_clients() {
  [ -z "$clients" ] || { kill -INT "$clients" 2>/dev/null && wait "$clients" || true; }
  clients=''
}
trap 'stop_clients; stop_chain' EXIT

all_eight='g1 = 0.125, g2 = 0.125, g3 = 0.125, g4 = 0.125, b1 = 0.125, b2 = 0.125, b3 = 0.125, b4 = 0.125'
bands="bands = [
    { up_to = \"${ends[0]} IO/s\", ratios = { $all_eight } },
    { up_to = \"${ends[1]} IO/s\", ratios = { g1 = 0.25, g2 = 0.25, g3 = 0.25, g4 = 0.25 } },
    { up_to = \"${ends[2]} IO/s\", ratios = { b1 = 0.25, b2 = 0.25, b3 = 0.25, b4 = 0.25 } },
]"

# A host's gateway, upstream to the array, with a client of each kind: NUMBER
start_gateway() {
  cat >"/out/h$1.toml" <<TOML
listen = ["unix:/tmp/h$1.sock"]
metrics = "127.0.0.1:9809"
[cluster]
name = "lab"
host = "h$1"
carrier = $(carrier_of "$1")
[pool.array]
backend = { kind = "nbd", address = "unix:/tmp/array.sock" }
depth = 256
cluster = true
target = "${patient}ms"
set_point = 0.8
$regulation
$bands
[pool.array.export.g$1]
upstream = "g$1"
goal = "${goal}ms"
[pool.array.export.b$1]
upstream = "b$1"
goal = "${patient}ms"
TOML
  serve_as "h$1" ip netns exec "h$1"
}

start_array {g,b}{1,2,3,4}=8MiB
for number in 1 2 3 4; do
  add_host "$number"
  start_gateway "$number"
done

jobs=()
for number in 1 2 3 4; do
  for name in g b; do
    jobs+=(--name="$name$number" --uri="nbd+unix:///$name$number?socket=/tmp/h$number.sock"
      --randseed="$((seed * 100 + ${#jobs[@]}))" --write_iops_log="/tmp/$name$number")
  done
done
fio --ioengine=nbd --thread --rw=randread --bs=4k --iodepth=4 --norandommap --time_based --runtime=1d \
  --log_avg_msec=1000 --log_unix_epoch=1 --per_job_logs=0 --output=/out/fio "${jobs[@]}" 2>/out/fio.log &
clients=$!
# The array's time counts from its first request.
until asked_for; do
  kill -0 "$clients" || { cat /out/fio.log >&2 && exit 1; }
  sleep 0.02
done
begun=$(date +%s%3N)

until_second() { # SECOND, since the array's first request
  local left=$((begun + 1000 * $1 - $(date +%s%3N)))
  [ "$left" -le 0 ] || sleep "$(awk -v left="$left" 'BEGIN { print left / 1000 }')"
}
# The gateways' counters at each beginning and end of a window.
for ((phase = 0; phase < 3; phase++)); do
  for ((at = phase * seconds + 5; at <= (phase + 1) * seconds; at += 10)); do
    until_second "$at"
    snapshot "$at"
  done
done
echo "$begun" >/out/begun
stop_clients
cp /tmp/*_iops.log /out/
"$here/judge.py" /out
