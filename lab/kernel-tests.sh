#!/bin/bash
# In the guest, whose kernel has every part that Tidegate uses: runs the tests that need netem, BPF or cgroups
# of version 2. None may be skipped.
#
#   lab/run lab/kernel-tests.sh FOLDER PROGRAM [FOLDER PROGRAM]…
#
# FOLDER is the package of a test program, in which it runs. Only its tests of throttles and of the sensors
# that use BPF or packet sockets run.
set -uo pipefail

modprobe -a loop zram sch_netem sch_fq sch_prio sch_htb cls_fw cls_bpf sch_ingress nf_tables veth dummy ext4 || true
# Cgroups of version 1 would keep the controller of I/O from those of version 2.
if mountpoint -q /sys/fs/cgroup/blkio; then umount /sys/fs/cgroup/blkio; fi
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
echo +io >/sys/fs/cgroup/cgroup.subtree_control || true
mountpoint -q /sys/fs/bpf || mount -t bpf none /sys/fs/bpf || true

# Attributes of files, which a file system in memory lacks.
truncate -s 512M /tmp/files
mkfs.ext4 -q -E lazy_itable_init=1 /tmp/files
mkdir /tmp/ext4
mount -o loop /tmp/files /tmp/ext4
export TMPDIR=/tmp/ext4

failed=0
while [ $# -gt 0 ]; do
  folder=$1 program=$2
  shift 2
  echo "$program"
  cd "$folder" || exit 1
  for part in throttle sense::capture sense::latency; do
    RUST_BACKTRACE=0 "$program" "$part::" --test-threads 1 --show-output >/tmp/output 2>&1 || failed=1
    grep -E '^(test .* FAILED|test result:)|^skipped: ' /tmp/output
    grep -A 3 'panicked at' /tmp/output
    if grep -q '^skipped: ' /tmp/output; then failed=1; fi
    # The result of the program is the last one: some tests start others, which have results of their own.
    grep '^test result:' /tmp/output | tail -n 1 | grep -q '^test result: ok\. [1-9]' \
      || { echo "$part: no test ran, or one failed" && failed=1; }
    cp /tmp/output "/out/$part.log"
  done
done
exit "$failed"
