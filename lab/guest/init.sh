#!/bin/busybox sh
# shellcheck shell=dash
# First process of the guest: mounts the machine's files over 9p, read-only under a tmpfs, and moves there.
PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /below /above /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in /modules/*.ko; do
  insmod "$module" || echo "lab: insmod $module failed"
done
# cache=loose: data that was read once is never requested again. No program waits on 9p in the middle of a
# measurement.
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose root /below
mount -t tmpfs -o size=80% tmpfs /above
mkdir /above/upper /above/work
mount -t overlay -o lowerdir=/below,upperdir=/above/upper,workdir=/above/work overlay /root
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
mount -t tmpfs tmpfs /root/run
mv /job /root/run/lab
exec switch_root /root /bin/bash /run/lab/boot
