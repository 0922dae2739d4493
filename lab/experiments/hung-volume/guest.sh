#!/bin/bash
# In the guest: two volumes whose device is suspended (dmsetup suspend), one a file on ext4 and one the device
# itself, with 64 requests each. The kernel's threads wait there in uninterruptible sleep.
#
#   others    the pool's other export is answered within 50 ms
#   drain     after SIGTERM the sockets are closed within the deadline and a second, although the kernel keeps
#             the process
#   resume    the process vanishes once the device answers again
#
# Leaves /out/good.json and the gateway's log.
set -euo pipefail
pin date dmsetup grep jq losetup mkfs.ext4 mount python3 sleep

fail() {
  echo "hung-volume: $*" >&2
  resume
  cat /out/serve.log >&2
  exit 1
}

# Nothing in the guest ends, the guest included, while a device is suspended.
resume() {
  for name in file device; do
    dmsetup resume --noudevsync "$name" || true
  done
}

modprobe -a loop dm-mod ext4
for name in file device; do
  truncate -s 192M "/tmp/$name.disk"
  loop=$(losetup -f --show "/tmp/$name.disk")
  echo "0 $(blockdev --getsz "$loop") linear $loop 0" | dmsetup create --noudevsync --noudevrules "$name"
  dmsetup mknodes "$name"
done
mkfs.ext4 -q -E lazy_itable_init=1,nodiscard /dev/mapper/file
mkdir /mnt/file
mount /dev/mapper/file /mnt/file
# Many extents, so that reads need metadata that is on the device.
python3 -I - <<'EOF'
import os
volume = os.open("/mnt/file/volume", os.O_RDWR | os.O_CREAT)
os.ftruncate(volume, 128 << 20)
for at in range(0, 128 << 20, 2 << 20):
    os.pwrite(volume, bytes(65536), at)
EOF
truncate -s 64M /tmp/good
sync

socket=/tmp/nbd.sock
cat >/tmp/serve.toml <<EOF
listen = ["unix:$socket"]
drain_deadline = "3s"

[pool.p]
backend = { kind = "file" }
export.file = { path = "/mnt/file/volume" }
export.device = { path = "/dev/mapper/device" }
export.good = { path = "/tmp/good" }
EOF
tidegate serve -c /tmp/serve.toml 2>/out/serve.log &
gateway=$!
until grep -q ' ready' /out/serve.log; do
  kill -0 "$gateway" || fail "does not start"
  sleep 0.1
done

load() {
  local export=$1
  shift
  tidegate load "nbd+unix:///$export?socket=$socket" "$@"
}

load good --duration 1s --rate 200 --json --fua --reads 50 >/dev/null
echo 3 >/proc/sys/vm/drop_caches
for name in file device; do
  dmsetup suspend --noflush --nolockfs --noudevsync "$name"
done
clients=()
for name in file device; do
  load "$name" --depth 64 --reads 50 --fua --duration 10min >/dev/null 2>&1 &
  clients+=($!)
done
sleep 1
# At a fixed rate: a client that never pauses costs the emulator minutes, and shows no more.
load good --duration 10s --rate 200 --reads 50 --fua --json >/out/good.json || fail "the other export fails"
longest=$(jq '[.reads.latency_ms.max, .writes.latency_ms.max] | max' /out/good.json)
echo "others: $(jq '.reads.requests + .writes.requests' /out/good.json) requests," \
  "the longest took $longest ms"
jq -en "$longest < 50" >/dev/null || fail "the other export takes $longest ms"
[ "$(grep -c 'the volume hangs' /out/serve.log)" = 2 ] || fail "hangs are not logged once each"

begun=${EPOCHREALTIME/[.,]/}
kill -TERM "$gateway"
wait "${clients[@]}" || true
# By the shell's own clock: a program that starts lets the virtual clock of an idle machine leap.
took=$(((${EPOCHREALTIME/[.,]/} - begun) / 1000))
echo "drain: the clients' connections have ended after $took ms"
[ "$took" -lt 4000 ] || fail "clients waited $took ms for the end"
python3 -I - "$socket" <<'EOF' || fail "the listener is still there"
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except (ConnectionRefusedError, FileNotFoundError):
    sys.exit(0)
sys.exit(1)
EOF
# The gateway waits for the kernel a little longer than for its clients. Then it logs the remaining requests.
for ((waits = 0; waits < 300; waits++)); do
  grep -q 'are left at storage that hangs' /out/serve.log && break
  sleep 0.1
done
[ "$waits" -lt 300 ] || fail "the log does not count the remaining requests"

resume
wait "$gateway" || true
echo "resume: the process has ended"
