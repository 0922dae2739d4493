#!/usr/bin/env bash
# Promises of lab/run to its callers: arguments, output, results, status, an end at the limit.
set -uo pipefail
# shellcheck source=lab/tests/check.sh
source "$(dirname "$0")/check.sh"

failing=$(guest failing.sh <<'EOF'
printf '%s|' "$@"
echo "on stderr" >&2
mkdir /out/folder
tidegate >/out/folder/result
touch "$LAB_REPOSITORY/a-trace" || exit 1
exit 7
EOF
)
hanging=$(guest hanging.sh <<'EOF'
echo started
sleep infinity
EOF
)
printf '#!/bin/sh\necho "this build"\n' >"$work/program"
chmod +x "$work/program"

"$lab/run" --binary "$work/program" --out "$work/out" "$failing" one 'two words' $'two\nlines' '' \
  >"$work/stdout" 2>"$work/stderr"
check "a failing script's status is passed on" test $? -eq 7
check "arguments arrive as they are" test "$(<"$work/stdout")" = $'one|two words|two\nlines||'
check "stderr is stderr" grep -qx "on stderr" "$work/stderr"
check "the failure is explained, with the console" grep -q "console: " "$work/stderr"
check "results come out, the program was run" test "$(<"$work/out/folder/result")" = "this build"
check "the console's log comes out" test -s "$work/out/console.log"
check "the machine's files are out of reach" test ! -e "$(dirname "$lab")/a-trace"

# 90 s: enough to start the guest on a machine with several builds under way.
"$lab/run" --limit 90 --out "$work/out" "$hanging" >"$work/stdout" 2>"$work/stderr"
check "a script that hangs is ended at the limit" test $? -eq 124
check "its output is not lost" test "$(<"$work/stdout")" = started
check "the limit is named" grep -q "limit of 90 s" "$work/stderr"

for wrong in "--no-such-option" "--limit soon $failing" "--memory lots $failing" ""; do
  # shellcheck disable=SC2086
  "$lab/run" $wrong >"$work/stdout" 2>"$work/stderr"
  check "usage error, status 2: lab/run $wrong" test $? -eq 2
done
"$lab/run" "$work/nothing" 2>"$work/stderr"
check "a missing script: status 1" test $? -eq 1
finish
