# shellcheck shell=bash disable=SC2154
# One emulated array that one process exports, and hosts; sourced in the guest. Each host is a gateway in a
# network namespace of its own, upstream to the array. There are two networks, as at a site: 10.0.0.0/24 to
# the array, and 10.0.1.0/24, on which the hosts exchange their measurements.
#
#   array (10.0.0.1) ──┬── h1 (10.0.0.11, 10.0.1.11) ── /tmp/h1.sock ── its VMs
#                      ├── h2 (10.0.0.12, 10.0.1.12) ── /tmp/h2.sock
#                      └── …                              (NATS: 10.0.1.1)
#
# Set before: here, preset, carrier (udp, file or nats), target, interval, gain. All results lie in /out.
# array_model may describe the array in full, instead of preset.

declare -A gateways=()
# Configuration of exports beside their shares.
declare -A terms=()
nats='' array=''

namespace() { # NAME
  ip netns add "$1"
  ip -n "$1" link set lo up
}

connect() { # NAMESPACE INTERFACE ADDRESS BRIDGE
  ip link add "$1-$2" type veth peer name "$2" netns "$1"
  ip link set "$1-$2" master "$4" up
  ip -n "$1" address add "$3/24" dev "$2"
  ip -n "$1" link set "$2" up
}

ready() { # SOCKET PID LOG
  until [ -S "$1" ]; do
    kill -0 "$2" 2>/dev/null || { cat "$3" >&2 && exit 1; }
    sleep 0.1
  done
}

# Starts the networks, the array with an export per argument (NAME=SIZE), and the needs of the carrier.
start_array() {
  modprobe -a bridge veth
  local bridge volume
  local model="${array_model:-preset = \"$preset\"}"
  local allow='[{ network = "10.0.0.0/24" }, { user = "root" }]'
  for bridge in storage statistics; do
    ip link add "$bridge" type bridge
    ip link set "$bridge" up
  done
  namespace array
  connect array storage 10.0.0.1 storage
  {
    echo 'listen = ["tcp:10.0.0.1:10809", "unix:/tmp/array.sock"]
metrics = "127.0.0.1:9809"
[pool.array]
backend = { kind = "emulated", '"$model"', data = "'"${array_data:-memory}"'", seed = '"${seed:-1}"' }
depth = 1024
law = "none"'
    for volume in "$@"; do
      echo "export.${volume%=*} = { size = \"${volume#*=}\", allow = $allow }"
    done
  } >/out/array.toml
  ip netns exec array tidegate serve -c /out/array.toml 2>/out/array.log &
  array=$!
  ready /tmp/array.sock "$array" /out/array.log
  case $carrier in
    udp) head -c 32 /dev/urandom | base64 >/tmp/cluster.key && chmod 600 /tmp/cluster.key ;;
    file) # a block device as hosts would share it: tmpfs has no O_DIRECT
      modprobe null_blk nr_devices=1 memory_backed=1 gb=1
      ;;
    nats)
      namespace nats
      connect nats statistics 10.0.1.1 statistics
      start_nats
      tidegate policy key /tmp/policy.seed >/tmp/policy.writer
      ;;
  esac
}

start_nats() {
  ip netns exec nats nats-server --addr 10.0.1.1 --port 4222 --jetstream --store_dir /tmp/jetstream \
    --log /out/nats.log &
  nats=$!
  until ip netns exec nats bash -c 'exec 3<>/dev/tcp/10.0.1.1/4222' 2>/dev/null; do
    kill -0 "$nats"
    sleep 0.1
  done
}

# Sets the array's policy for all hosts and prints its new revision: EXPECTED-REVISION EXPORT=SHARES…
put_policy() {
  local expected=$1 wanted
  shift
  mapfile -t wanted < <(printf -- '--shares=%s\n' "$@")
  ip netns exec h1 tidegate policy set array -c /out/h1.toml --key /tmp/policy.seed \
    --expect "$expected" "${wanted[@]}" --json | jq .revision
}

# Removes the whole policy: EXPECTED-REVISION
clear_policy() {
  ip netns exec h1 tidegate policy set array -c /out/h1.toml --key /tmp/policy.seed \
    --expect "$1" --replace >/dev/null
}

stop_nats() {
  kill "$nats"
  wait "$nats" || true
  nats=''
}

# Prints the configuration of a host's carrier: NUMBER
carrier_of() {
  case $carrier in
    udp)
      printf '{ kind = "udp", listen = "%s", peers = [%s], key_file = "/tmp/cluster.key" }\n' \
        "10.0.1.1$1:7700" "$udp_peers"
      ;;
    file) echo "{ kind = \"file\", path = \"/dev/nullb0\", slot = $1 }" ;;
    nats) echo '{ kind = "nats", servers = ["nats://10.0.1.1:4222"] }' ;;
  esac
}
udp_peers='"10.0.1.11:7700", "10.0.1.12:7700", "10.0.1.13:7700", "10.0.1.14:7700"'

add_host() { # NUMBER
  namespace "h$1"
  connect "h$1" storage "10.0.0.1$1" storage
  connect "h$1" statistics "10.0.1.1$1" statistics
}

# Prints the law of a gateway: LAW, which is on or off.
regulation() {
  if [ "$1" = off ]; then
    echo 'law = "none"'
    return
  fi
  if [ "${regulates_by:-window}" = auto ]; then
    echo "law = \"auto\"
target = \"$target\"
interval = \"$interval\""
    return
  fi
  echo "law = \"window\"
target = \"$target\"
set_point = 1.0
interval = \"$interval\"
window = { gamma = 0.8, beta_gain = $gain }"
}

serve_as() { # HOST [COMMAND…]: starts a gateway with its configuration in /out
  local name=$1
  shift
  rm -f "/tmp/$name.sock"
  # Every decision is in the log, which is written to memory.
  "$@" tidegate serve -c "/out/$name.toml" --log debug 2>>"/out/$name.log" &
  gateways[$name]=$!
  ready "/tmp/$name.sock" "${gateways[$name]}" "/out/$name.log"
}

# Starts a host's gateway, upstream to the array: NUMBER LAW EXPORT=SHARES…
start_host() {
  local number=$1 law=$2 name=h$1 volume more
  shift 2
  {
    echo "listen = [\"unix:/tmp/$name.sock\"]
metrics = \"127.0.0.1:9809\""
    if [ "$law" = on ]; then
      echo "[cluster]
name = \"lab\"
host = \"$name\"
carrier = $(carrier_of "$number")
$([ "$carrier" != nats ] || echo "policy = { writers = [\"$(cat /tmp/policy.writer)\"] }")"
    fi
    echo '[pool.array]
backend = { kind = "nbd", address = "tcp:10.0.0.1:10809" }
depth = 256'
    [ "$law" = off ] || echo 'cluster = true'
    regulation "$law"
    for volume in "$@"; do
      more="${terms[${volume%=*}]:+, ${terms[${volume%=*}]}}"
      echo "export.${volume%=*} = { upstream = \"${volume%=*}\", shares = ${volume#*=}$more }"
    done
  } >"/out/$name.toml"
  serve_as "$name" ip netns exec "$name"
}

# Starts one gateway, h1, that has the array itself, and exports of the same size: LAW SIZE EXPORT=SHARES…
start_host_with_array() {
  local law=$1 size=$2 volume
  shift 2
  {
    echo 'listen = ["unix:/tmp/h1.sock"]
[pool.array]
backend = { kind = "emulated", preset = "'"$preset"'", data = "'"$array_data"'", seed = 1 }
depth = 256'
    regulation "$law"
    for volume in "$@"; do
      echo "export.${volume%=*} = { size = \"${size}B\", shares = ${volume#*=} }"
    done
  } >/out/h1.toml
  serve_as h1
}

# Ends a host as a power failure would: HOST
kill_host() {
  kill -KILL "${gateways[$1]}"
  wait "${gateways[$1]}" 2>/dev/null || true
  unset "gateways[$1]"
}

stop_host() { # HOST
  kill "${gateways[$1]}"
  wait "${gateways[$1]}" || true
  unset "gateways[$1]"
}

stop_chain() {
  local host
  for host in "${!gateways[@]}"; do
    stop_host "$host"
  done
  [ -z "$array" ] || { kill "$array" && wait "$array" || true; }
  [ -z "$nats" ] || stop_nats
}

# Sets the network between all hosts, and to NATS, down or up: STATE
statistics_network() {
  local host
  for host in "${!gateways[@]}"; do
    ip link set "$host-statistics" "$1"
  done
}

# Saves the gateways' metrics: NAME
snapshot() {
  local host kept
  kept='^tidegate_(backend_time_seconds_(sum|count)|pool_window_requests|shares'
  kept+='|contract_(late_)?requests_total)'
  mkdir -p /out/metrics
  for host in "${!gateways[@]}"; do
    ip netns exec "$host" curl -s http://127.0.0.1:9809/metrics \
      | grep -E "$kept" >"/out/metrics/$1.$host" || true
  done
}
