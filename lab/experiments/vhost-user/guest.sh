#!/bin/bash
# Writes to the whole disk in random order, in checked blocks, and reads all of it back. Leaves fio's report,
# and the kernel's complaints about the disk.
set -euo pipefail
modprobe virtio_blk
disk=/dev/vda
for _ in $(seq 100); do
  [ -b "$disk" ] && break
  sleep 0.1
done
echo "$(blockdev --getsize64 "$disk") bytes, queues: $(ls /sys/block/vda/mq | wc -l)"
cat /sys/block/vda/{serial,cache_type,ro} \
  /sys/block/vda/queue/{discard_max_bytes,write_zeroes_max_bytes} >/out/disk
status=0
fio --name=verify --filename="$disk" --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=4k \
  --verify=crc32c --verify_fatal=1 --do_verify=1 --fsync=256 --output-format=json --output=/out/fio.json \
  || status=$?
modprobe ext4
mkfs.ext4 -q "$disk" && mkdir -p /mnt/disk && mount "$disk" /mnt/disk && cp /bin/bash /mnt/disk/ && sync
cmp /bin/bash /mnt/disk/bash && fstrim /mnt/disk && umount /mnt/disk && fsck.ext4 -fn "$disk" || status=1
# The disk may have grown meanwhile.
blockdev --getsize64 "$disk" >/out/size
dmesg | grep -iE 'vda|i/o error|hung' >/out/kernel || true
exit "$status"
