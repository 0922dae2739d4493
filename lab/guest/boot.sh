#!/bin/bash
# Second half of the guest's start: the usual set-up of a Linux machine, then the job, then the end.
export PATH=/run/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8

job=/run/lab
port() {
  grep -lx "$1" /sys/class/virtio-ports/*/name | sed 's|.*/\(vport[^/]*\)/name|/dev/\1|'
}
exec >"$(port stdout)" 2>"$(port stderr)"

mkdir -p /dev/pts /dev/shm /out "$job/out" "$job/bin" /run/lock
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /out
ln -s /proc/self/fd /dev/fd
mount -t configfs configfs /sys/kernel/config 2>/dev/null
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none out "$job/out"
modules=$(<"$job/kernel-modules")
mkdir -p "/lib/modules/${modules##*/}"
mount --bind "$modules" "/lib/modules/${modules##*/}"
hostname lab
ip link set lo up

mv "$job/pin" "$job/bin/"
binary=$(<"$job/binary")
[ -z "$binary" ] || cp "$binary" "$job/bin/tidegate"
export LAB_REPOSITORY
LAB_REPOSITORY=$(<"$job/repository")
mapfile -d '' -t command <"$job/command"
pin bash sleep date cat mkdir rm kill "${command[0]}" ${binary:+tidegate}

cd /tmp || exit
if [ -x "${command[0]}" ]; then
  "${command[@]}" </dev/null
else
  bash "${command[@]}" </dev/null
fi
status=$?

# Results are copied only now, so that the job never waits for the machine outside.
cp -r /out/. "$job/out/" || status=1
echo "$status" >"$(port status)"
sync
echo o >/proc/sysrq-trigger
sleep 60
