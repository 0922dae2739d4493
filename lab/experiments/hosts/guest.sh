#!/bin/bash
# In the guest: hosts that share an array without seeing each other. One process exports one emulated array.
# Four gateways are upstream to it, each in a network namespace of its own. fio clients are the VMs.
#
# usage: guest.sh [--carrier udp|file|nats] [--phases LIST] [--seconds S] [--preset NAME] [--target MS]
#                 [--interval MS] [--gain K] [--law window|auto]
#
#   uncontrolled   the same chain, law off
#   shares         hosts with shares 1:1:2:2
#   kill           one host dies; it comes back
#   policy         (NATS) shares become 2:2:1:1 by compare-and-set of the policy, while all run; then the
#                  policy is removed
#   cut            the statistics network is cut (with NATS: the server stops), and healed; a file has no such
#                  network
#   end-to-end     two hosts, VMs 2:1 on one and 1:1 on the other: hosts 3:2
#   contracts      (law auto, preset sata-stripe) four hosts, each with a contract that is used to the full
#                  beside an export without one; then one host dies
#
# Leaves /out/verdict.json (judge.py) and its sources: phases, fio's logs of every second, the gateways' logs
# with every decision. Exit status 1 when a promise is missed.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
carrier=udp phases=uncontrolled,shares,kill,policy,cut,end-to-end seconds=20
preset=dnes-309170w target=150 interval=250 gain=0.4 law=window
while [ $# -gt 0 ]; do
  case $1 in
    --carrier | --phases | --seconds | --preset | --target | --interval | --gain | --law)
      declare "${1#--}=$2" && shift 2
      ;;
    *) echo "guest.sh: no such option: $1" >&2 && exit 2 ;;
  esac
done
jq -n --arg carrier "$carrier" --arg preset "$preset" --argjson target "$target" \
  --argjson interval "$interval" --argjson gain "$gain" --arg law "$law" \
  '{$law, $carrier, $preset, target_ms: $target, interval_ms: $interval, gain_per_100_shares: $gain}' \
  >/out/settings.json
target=${target}ms interval=${interval}ms regulates_by=$law
# shellcheck source=lab/experiments/shared/chain.sh
source "$here/../shared/chain.sh"
pin fio ip curl grep jq awk base64 nats-server

declare -A vms=()
vm() { # HOST EXPORT [OPTION…]: keeps 32 requests outstanding, unless an option differs, until it is stopped
  fio --ioengine=nbd --uri="nbd+unix:///$2?socket=/tmp/$1.sock" --name="$2" --rw=randread --bs=4k \
    --iodepth=32 "${@:3}" --randseed=1 --time_based --runtime=1d --write_iops_log="/tmp/$2.$SECONDS" \
    --log_avg_msec=1000 --log_unix_epoch=1 --per_job_logs=0 --output="/out/$2.fio" 2>>"/out/$2.fio.log" &
  vms[$2]=$!
}
stop_vms() {
  local vm
  for vm in "${!vms[@]}"; do
    kill -INT "${vms[$vm]}" 2>/dev/null || true
    wait "${vms[$vm]}" || true
  done
  vms=()
}
trap 'stop_vms; stop_chain' EXIT

now() { date +%s%3N; }
# Lets the chain settle, then measures it: NAME SETTLE SECONDS [BEGAN: the time of the change, if not now].
measure() {
  local name=$1 began=${4:-$(now)} from
  echo "$name"
  sleep "$2"
  snapshot "$name.from"
  from=$(now)
  sleep "$3"
  jq -nc --arg name "$name" --argjson began "$began" --argjson from "$from" --argjson to "$(now)" \
    '{$name, began_ms: $began, from_ms: $from, to_ms: $to}' >>/out/phases.jsonl
  snapshot "$name.to"
}
wanted() { [[ ,$phases, == *,$1,* ]]; }

start_array {h1,h2,h3,h4,h1b,h2b,c1,c2,c3,c4}=8MiB
for number in 1 2 3 4; do
  add_host "$number"
done
four_hosts() { # LAW
  start_host 1 "$1" h1=100
  start_host 2 "$1" h2=100
  start_host 3 "$1" h3=200
  start_host 4 "$1" h4=200
  for host in h1 h2 h3 h4; do
    vm "$host" "$host"
  done
}
everything_stops() {
  stop_vms
  for host in "${!gateways[@]}"; do
    stop_host "$host"
  done
}

if wanted uncontrolled; then
  four_hosts off
  measure uncontrolled 5 "$seconds"
  everything_stops
fi
if wanted shares || wanted kill || wanted policy || wanted cut; then
  four_hosts on
  measure shares 10 "$seconds"
  if wanted kill; then
    kill_host h4
    measure killed 10 "$seconds"
    wait "${vms[h4]}" || true
    start_host 4 on h4=200
    vm h4 h4
    measure returned 15 "$seconds"
  fi
  if wanted policy && [ "$carrier" = nats ]; then
    revision=$(put_policy 0 {h1,h2}=100 {h3,h4}=200)
    sleep 1
    changed_at=$(now)
    changed=$(put_policy "$revision" {h1,h2}=200 {h3,h4}=100)
    sleep "$(awk -v interval="${interval%ms}" 'BEGIN { print 2 * interval / 1000 }')"
    snapshot policy.in-force
    if put_policy "$revision" {h1,h2,h3,h4}=1 2>/out/refused; then
      echo "a change from a revision that is not the last was taken" >&2 && exit 1
    fi
    measure policy 10 "$seconds" "$changed_at"
    # Back to the hosts' own files, here and at the end, where a policy would still be in force for h1 to h4.
    clear_policy "$changed"
    measure policy-back 10 "$seconds"
  fi
  if wanted cut && [ "$carrier" != file ]; then
    if [ "$carrier" = nats ]; then stop_nats; else statistics_network down; fi
    measure cut 5 "$seconds"
    if [ "$carrier" = nats ]; then start_nats; else statistics_network up; fi
    measure healed 12 "$seconds"
  fi
  everything_stops
fi
if wanted end-to-end; then
  start_host 1 on h1=200 h1b=100
  start_host 2 on h2=100 h2b=100
  for vm in h1 h1b; do vm h1 "$vm"; done
  for vm in h2 h2b; do vm h2 "$vm"; done
  measure end-to-end 10 "$seconds"
  everything_stops
fi
if wanted contracts; then
  for number in 1 2 3 4; do
    terms[c$number]='contract = { iops = "100 IO/s", response_time = "60ms", expected = "40ms" }'
    start_host "$number" on "h$number=100" "c$number=100"
    vm "h$number" "h$number"
    vm "h$number" "c$number" --rate_iops=100
  done
  measure contracts 20 "$seconds"
  kill_host h4
  measure contracts-killed 0 "$seconds"
  for name in h4 c4; do
    wait "${vms[$name]}" || true
  done
  everything_stops
fi
for log in /tmp/*_iops.log; do
  cp "$log" /out/
done
"$here/judge.py" /out
