#!/usr/bin/env bash
# The guest's clock tells the truth: a delay of 8 ms in an NBD server is 8 ms in the client. Both repeats run
# at the same time, each disturbing the other, and still agree.
set -uo pipefail
# shellcheck source=lab/tests/check.sh
source "$(dirname "$0")/check.sh"

script=$(guest delay.sh <<'EOF'
set -eu
plugins=$(nbdkit --dump-config | sed -n 's/^plugindir=//p')
filters=$(nbdkit --dump-config | sed -n 's/^filterdir=//p')
pin fio nbdkit "$plugins/nbdkit-memory-plugin.so" "$filters/nbdkit-delay-filter.so"
nbdkit -U /tmp/nbd -P /tmp/nbd.pid --filter=delay memory 256M rdelay=8ms
fio --name=probe --ioengine=nbd --uri='nbd+unix:///?socket=/tmp/nbd' --rw=randread --bs=4k --iodepth=1 \
  --time_based --ramp_time=2 --runtime=20 --output-format=json --output=/out/fio.json
EOF
)

"$lab/run" --out "$work/1" "$script" &
first=$!
"$lab/run" --out "$work/2" "$script"
check "second run ends with status 0" test $? -eq 0
wait "$first"
check "first run ends with status 0" test $? -eq 0

mean() {
  jq '.jobs[0].read.lat_ns.mean / 1e6' "$work/$1/fio.json"
}
first=$(mean 1) second=$(mean 2)
check "8 ms are measured as $first ms" jq_true "$first >= 8.0 and $first <= 8.3"
check "8 ms are measured as $second ms" jq_true "$second >= 8.0 and $second <= 8.3"
check "the repeats agree within 1 %" jq_true "($first / $second - 1 | fabs) <= 0.01"
finish
