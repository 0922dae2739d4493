#!/bin/bash
# In the guest: systemd itself with the packaged unit, and two clients that verify their writes: fio by NBD,
# and fio on ext4 on the kernel's nbd.
#
#   restarts  `systemctl restart` under load: no client sees an error, and no request waits longer than 2 s
#   kill      after kill -9 systemd starts the gateway; the kernel's device is connected again, its file
#             system is clean, and all synced data is there
#
# Leaves the reports of fio and the gateway's log.
set -euo pipefail
restarts=${1:-4}
here=$(dirname "$(realpath "$0")")
repository=$(realpath "$here/../../..")

fail() {
  echo "restart: $*" >&2
  tail -n 30 /out/serve.log >&2
  exit 1
}

# systemd is the first process of a namespace of its own: the guest has another one.
inside() {
  nsenter -t "$systemd" -m -p -- "$@"
}

await() {
  local what=$1
  shift
  for _ in $(seq 600); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 1
  done
  fail "waited in vain for $what"
}

pin fio fsck.ext4 mkfs.ext4 nbd-client nsenter systemctl
modprobe -a nbd ext4
mount -t cgroup2 none /sys/fs/cgroup
install -D -m 644 "$repository/packaging/tidegate.service" /etc/systemd/system/tidegate.service
install -D -m 644 "$repository/packaging/sysusers.conf" /usr/lib/sysusers.d/tidegate.conf
systemd-sysusers /usr/lib/sysusers.d/tidegate.conf
install -m 755 "$(type -P tidegate)" /usr/bin/tidegate
# A boot target of its own: with another one, units would wait for parts that the guest does not have.
printf '[Unit]\nDescription=The experiment\n' >/etc/systemd/system/experiment.target
mkdir -p /etc/systemd/system/tidegate.service.d /etc/tidegate
printf '[Unit]\nDefaultDependencies=no\nWants=\nAfter=\n[Service]\nStandardError=append:/out/serve.log\n' \
  >/etc/systemd/system/tidegate.service.d/experiment.conf
cat >/etc/tidegate/tidegate.toml <<'EOF'
listen = ["unix:/run/tidegate/nbd.sock"]

[pool.p]
backend = { kind = "file" }
export.plain = { path = "/var/lib/tidegate/plain", limit = { iops = "300 IO/s" } }
export.kernel = { path = "/var/lib/tidegate/kernel" }
EOF
install -d -o tidegate -g tidegate -m 750 /var/lib/tidegate
for volume in plain kernel; do
  truncate -s 64M "/var/lib/tidegate/$volume"
  chown tidegate:tidegate "/var/lib/tidegate/$volume"
done

unshare --pid --fork --mount --mount-proc env -i PATH="$PATH" container=lab \
  /usr/lib/systemd/systemd --system --unit=experiment.target --show-status=no &
await "systemd" pgrep -x systemd
systemd=$(pgrep -x systemd)
await "systemd's socket" inside systemctl list-units
inside systemctl start tidegate || fail "the unit does not start"

socket=/run/tidegate/nbd.sock
inside nbd-client -unix "$socket" /dev/nbd0 -name kernel >/dev/null || fail "nbd-client does not connect"
mkfs.ext4 -q /dev/nbd0
mkdir -p /mnt/kernel
mount /dev/nbd0 /mnt/kernel

verify=(
  --rw=randwrite --bs=4k --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0
  --output-format=json
)
inside fio --name=plain --ioengine=nbd --uri="nbd+unix:///plain?socket=$socket" --size=16m --iodepth=16 \
  "${verify[@]}" --output=/out/plain.json &
plain=$!
fio --name=kernel --directory=/mnt/kernel --ioengine=libaio --direct=1 --size=24m --iodepth=8 --loops=2 \
  --fsync=64 "${verify[@]}" --output=/out/kernel.json &
kernel=$!
sleep 2
for _ in $(seq "$restarts"); do
  kill -0 "$plain" || fail "the load is too short"
  before=$(inside systemctl show -P MainPID tidegate)
  inside systemctl restart tidegate || fail "it does not restart"
  [ "$(inside systemctl show -P MainPID tidegate)" != "$before" ] || fail "the process is the same"
  sleep 1
done
wait "$plain" || fail "fio fails over NBD"
wait "$kernel" || fail "fio fails on the kernel's device"
gone=$(grep -c 'sessions of the last process that go on: 2 of 2' /out/serve.log) || true
[ "$gone" -ge 1 ] || fail "no restart had both sessions"
longest=$(jq -s '[.[].jobs[0].write.clat_ns.max, .[].jobs[0].read.clat_ns.max] | max / 1e6 | round' \
  /out/plain.json /out/kernel.json)
echo "restarts: $restarts, $gone of them with both clients; the longest request took $longest ms"
[ "$longest" -le 2000 ] || fail "a request waited for $longest ms"

# A process that is killed leaves no connection behind.
head -c 8M /dev/urandom >/mnt/kernel/synced
sync /mnt/kernel/synced
sum=$(md5sum </mnt/kernel/synced)
inside systemctl kill --signal=KILL tidegate
await "another process" inside systemctl is-active tidegate
await "its socket" inside test -S "$socket"
umount -l /mnt/kernel
inside nbd-client -d /dev/nbd0 >/dev/null 2>&1 || true
await "the device's release" test ! -e /sys/block/nbd0/pid
inside nbd-client -unix "$socket" /dev/nbd1 -name kernel >/dev/null \
  || fail "nbd-client does not connect again"
mount /dev/nbd1 /mnt/kernel
[ "$(md5sum </mnt/kernel/synced)" = "$sum" ] || fail "synced data is lost"
umount /mnt/kernel
fsck.ext4 -fn /dev/nbd1 >/dev/null || fail "the file system is damaged"
echo "kill: all synced data is there, and the file system is clean"
