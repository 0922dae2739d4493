#!/bin/busybox sh
# shellcheck shell=dash
# First process of a sealed guest. All its files came with the initial file system. Nothing from outside
# reaches it before the script has ended: no disk, no network, no console to wait for, no source of chance. So
# a run repeats to the last nanosecond.
PATH=/job/bin:/bin
export PATH HOME=/
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp /out /outside
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
ln -s /proc/self/fd /dev/fd
ip link set lo up

cd /tmp || exit
sh /job/command </dev/null >/job/stdout 2>/job/stderr
status=$?

for module in /modules/*.ko; do
  insmod "$module" || echo "lab: insmod $module failed"
done
port() {
  for name in /sys/class/virtio-ports/*/name; do
    [ "$(cat "$name")" != "$1" ] || basename "$(dirname "$name")" | sed 's|^|/dev/|'
  done
}
# The ports come up a moment after their module.
until [ -c "$(port status)" ]; do sleep 0.1; done
cat /job/stdout >"$(port stdout)"
cat /job/stderr >"$(port stderr)"
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none out /outside
cp -r /out/. /outside/ || status=1
echo "$status" >"$(port status)"
sync
poweroff -f
