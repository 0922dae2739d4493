#!/usr/bin/env bash
# Nothing from outside reaches a sealed guest: two runs get the same random bytes and the same clock.
set -uo pipefail
# shellcheck source=lab/tests/check.sh
source "$(dirname "$0")/check.sh"

script=$(guest chance.sh <<'EOF'
echo "arguments: $*"
sleep 1
{ head -c 32 /dev/urandom | md5sum; cat /proc/uptime; cat /proc/self/maps; } >/out/chance
exit 7
EOF
)

"$lab/run" --sealed --out "$work/1" "$script" one 'and two' >"$work/said" 2>/dev/null &
first=$!
"$lab/run" --sealed --out "$work/2" "$script" one 'and two' >/dev/null 2>&1
check "the script's status comes out" test $? -eq 7
wait "$first"
check "its output comes out, and its arguments went in" grep -qx 'arguments: one and two' "$work/said"
check "its results come out" test -s "$work/1/chance"
check "both runs are the same to the last bit" cmp "$work/1/chance" "$work/2/chance"
finish
